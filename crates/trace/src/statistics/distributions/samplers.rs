//! Samples by inverse transform: one uniform number becomes one value, so that a seed gives the same sample everywhere.

use super::normal_quantile;
use comb_types::Dice;

/// A number between 0 and 1, neither of them included: every quantile function is finite there.
pub fn uniform(dice: &mut Dice) -> f64 {
    ((dice.roll() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
}

/// A distribution that can be drawn from.
pub trait Sampler {
    /// The value below which lies the fraction `p` of the distribution, 0 < p < 1.
    fn quantile(&self, p: f64) -> f64;

    /// One value.
    fn draw(&self, dice: &mut Dice) -> f64 {
        self.quantile(uniform(dice))
    }

    /// So many values.
    fn draw_many(&self, count: usize, dice: &mut Dice) -> Vec<f64> {
        (0..count).map(|_| self.draw(dice)).collect()
    }
}

/// P\[X > x\] = (x / `x_min`)^−α for x above `x_min`: heavy-tailed for α < 2. (Thesis §9.7)
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pareto {
    /// The tail's exponent, above 0.
    pub alpha: f64,
    /// The smallest value, above 0.
    pub x_min: f64,
    /// Where values end, if they do: nothing written to a disk is larger than the disk. What would lie beyond is spread over what is below.
    pub upper_bound: Option<f64>,
}

impl Sampler for Pareto {
    fn quantile(&self, p: f64) -> f64 {
        let beyond = self.upper_bound.map_or(0.0, |bound| (self.x_min / bound).powf(self.alpha));
        self.x_min * (1.0 - p * (1.0 - beyond)).powf(-1.0 / self.alpha)
    }
}

/// ln X is normal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lognormal {
    /// The mean of ln X.
    pub mu: f64,
    /// The standard deviation of ln X.
    pub sigma: f64,
}

impl Sampler for Lognormal {
    fn quantile(&self, p: f64) -> f64 {
        (self.mu + self.sigma * normal_quantile(p)).exp()
    }
}

/// The time to the next event of a Poisson process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exponential {
    /// The mean.
    pub mean: f64,
}

impl Sampler for Exponential {
    fn quantile(&self, p: f64) -> f64 {
        -self.mean * (-p).ln_1p()
    }
}

/// P\[X > x\] = exp(−(x / scale)^shape): below shape 1 its tail is longer than an exponential's, and yet no power law's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Weibull {
    /// The exponent.
    pub shape: f64,
    /// What 63 % of the values are below.
    pub scale: f64,
}

impl Sampler for Weibull {
    fn quantile(&self, p: f64) -> f64 {
        self.scale * (-(-p).ln_1p()).powf(1.0 / self.shape)
    }
}

/// A source that is busy and idle in turn. With heavy-tailed periods many of them together are bursty at all time scales. (Thesis §9.7)
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OnOff<On, Off> {
    /// How long it is busy.
    pub on: On,
    /// How long it is idle.
    pub off: Off,
}

/// One busy or idle time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Period {
    /// Busy for so long.
    On(f64),
    /// Idle for so long.
    Off(f64),
}

impl<On: Sampler, Off: Sampler> OnOff<On, Off> {
    /// Busy and idle times in turn without end, a busy one first.
    pub fn periods(&self, mut dice: Dice) -> impl Iterator<Item = Period> {
        let mut busy = false;
        std::iter::repeat_with(move || {
            busy = !busy;
            if busy { Period::On(self.on.draw(&mut dice)) } else { Period::Off(self.off.draw(&mut dice)) }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fraction_above(sampler: &impl Sampler, x: f64) -> f64 {
        let sample = sampler.draw_many(100_000, &mut Dice::new(11));
        sample.iter().filter(|value| **value > x).count() as f64 / 100_000.0
    }

    #[test]
    fn samples_follow_their_distribution() {
        let pareto = Pareto { alpha: 1.3, x_min: 2.0, upper_bound: None };
        assert!((fraction_above(&pareto, 20.0) - 10.0_f64.powf(-1.3)).abs() < 0.002);
        let lognormal = Lognormal { mu: 1.0, sigma: 2.0 };
        assert!((fraction_above(&lognormal, 3.0_f64.exp()) - 0.158_66).abs() < 0.005);
        let exponential = Exponential { mean: 4.0 };
        assert!((fraction_above(&exponential, 8.0) - (-2.0_f64).exp()).abs() < 0.005);
        let weibull = Weibull { shape: 0.5, scale: 1.0 };
        assert!((fraction_above(&weibull, 4.0) - (-2.0_f64).exp()).abs() < 0.005);
    }

    #[test]
    fn a_bounded_pareto_ends_at_its_bound_and_keeps_its_shape_below() {
        let bounded = Pareto { alpha: 1.1, x_min: 1.0, upper_bound: Some(100.0) };
        assert!((bounded.quantile(1.0 - 1e-15) - 100.0).abs() < 1e-6);
        assert!(bounded.draw_many(100_000, &mut Dice::new(1)).iter().all(|value| *value <= 100.0));
        let beyond = 100.0_f64.powf(-1.1);
        let expected = (10.0_f64.powf(-1.1) - beyond) / (1.0 - beyond);
        assert!((fraction_above(&bounded, 10.0) - expected).abs() < 0.002);
    }

    #[test]
    fn a_source_is_busy_and_idle_in_turn() {
        let source = OnOff { on: Exponential { mean: 1.0 }, off: Exponential { mean: 10.0 } };
        let periods: Vec<_> = source.periods(Dice::new(5)).take(20_000).collect();
        let (mut busy, mut idle) = (0.0, 0.0);
        for pair in periods.chunks(2) {
            let [Period::On(on), Period::Off(off)] = pair else { panic!("{pair:?}") };
            busy += on;
            idle += off;
        }
        assert!((idle / busy - 10.0).abs() < 0.5, "{idle} {busy}");
        assert_eq!(
            periods,
            source.periods(Dice::new(5)).take(20_000).collect::<Vec<_>>(),
            "one seed, one sequence"
        );
    }
}
