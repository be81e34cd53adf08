//! Which of two distributions a tail is likelier from: Pareto, or lognormal or exponential, each fitted above the same start.
//! (Clauset, Shalizi and Newman 2009; Vuong 1989)
//!
//! Nothing is searched over the values. A truncated lognormal's likelihood is made of Σ ln x and Σ ln² x, an exponential's of Σ x: both fits
//! take one pass, and the comparison another, however long the tail.

use super::distributions::{erfc, normal_density, normal_mills, normal_survival};
use std::f64::consts::PI;

/// A lognormal cut off farther out than so many standard deviations above its own median cannot be told from a Pareto tail by any sample that
/// fits into memory: their log-spacings differ by one part in this number's square.
const FARTHEST_CUT: f64 = 1000.0;

/// A lognormal cut off so far below its median is not cut off.
const NO_CUT: f64 = -30.0;

/// A lognormal fitted to what lies above a tail's start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LognormalFit {
    /// With the likeliest mean and standard deviation of ln X.
    Fitted {
        /// The mean of the whole, not of what is above the start.
        mu: f64,
        /// The standard deviation of the whole.
        sigma: f64,
    },
    /// The wider, the likelier: the tail bends not at all, or the other way. In the limit the lognormal is the Pareto tail itself.
    Limit,
}

/// Two fits compared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Comparison {
    /// The logarithm of the Pareto's likelihood less the other's: above 0 the Pareto is likelier.
    pub log_likelihood_ratio: f64,
    /// That, over its standard deviation (Vuong).
    pub normalised: f64,
    /// How likely the sign is chance; 1 if the fits are the same.
    pub p_value: f64,
}

impl Comparison {
    /// Of the pointwise differences; two passes over them.
    fn of(differences: impl Iterator<Item = f64> + Clone) -> Self {
        let (count, sum) = differences.clone().fold((0.0, 0.0), |(count, sum), one| (count + 1.0, sum + one));
        let mean = sum / count;
        let squares: f64 = differences.map(|one| (one - mean) * (one - mean)).sum();
        if squares == 0.0 {
            return Self::SAME;
        }
        let normalised = sum / squares.sqrt();
        let p_value = erfc(normalised.abs() / 2.0_f64.sqrt());
        Self { log_likelihood_ratio: sum, normalised, p_value }
    }

    const SAME: Self = Self { log_likelihood_ratio: 0.0, normalised: 0.0, p_value: 1.0 };
}

/// A tail's values beside those of three fits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Alternatives {
    /// The lognormal above the same start.
    pub lognormal: LognormalFit,
    /// The Pareto against it.
    pub against_lognormal: Comparison,
    /// The rate of the exponential above the same start.
    pub exponential_rate: f64,
    /// The Pareto against it.
    pub against_exponential: Comparison,
}

impl Alternatives {
    /// Of a tail whose values are at least `x_min`, above 0. None if they are fewer than three, or all one.
    pub fn of(tail: &[f64], x_min: f64) -> Option<Self> {
        let excesses: Vec<f64> = tail.iter().map(|value| (value / x_min).ln()).collect();
        Self::with_excesses(tail, &excesses, x_min)
    }

    /// For whoever has ln(x / `x_min`) of each value at hand.
    pub(super) fn with_excesses(tail: &[f64], excesses: &[f64], x_min: f64) -> Option<Self> {
        let count = tail.len() as f64;
        let constant = tail.first() == tail.last();
        if tail.len() < 3 || x_min <= 0.0 || constant {
            return None;
        }
        let mean = excesses.iter().sum::<f64>() / count;
        let square = excesses.iter().map(|y| y * y).sum::<f64>() / count;
        let alpha = 1.0 / mean;
        let pareto = move |y: f64| alpha.ln() - alpha * y;

        let cut = Cut::fitted(mean, square);
        let against_lognormal = cut.map_or(Comparison::SAME, |cut| {
            let normaliser = cut.log_normaliser();
            Comparison::of(excesses.iter().map(move |y| pareto(*y) - cut.log_density(*y, normaliser)))
        });

        let rate = count / tail.iter().map(|value| value - x_min).sum::<f64>();
        // Densities of x, not of ln x: x is exp(y) times its start.
        let density = move |(value, y): (&f64, &f64)| {
            pareto(*y) - y - x_min.ln() - (rate.ln() - rate * (value - x_min))
        };
        Some(Self {
            lognormal: cut.map_or(LognormalFit::Limit, |cut| LognormalFit::Fitted {
                mu: x_min.ln() - cut.start * cut.sigma,
                sigma: cut.sigma,
            }),
            against_lognormal,
            exponential_rate: rate,
            against_exponential: Comparison::of(tail.iter().zip(excesses).map(density)),
        })
    }
}

/// A normal distribution of ln(x / `x_min`), cut off at 0, which is `start` standard deviations `sigma` above its mean.
#[derive(Clone, Copy)]
struct Cut {
    start: f64,
    sigma: f64,
}

impl Cut {
    /// The likeliest one has the mean and the mean square of the tail's own logarithms: it is of an exponential family. Their ratio depends on where
    /// the cut is alone, and rises with it up to 2, that of an exponential; found by halving. None in the limit.
    fn fitted(mean: f64, square: f64) -> Option<Self> {
        let wanted = square / (mean * mean);
        if wanted >= square_over_mean(FARTHEST_CUT) {
            return None;
        }
        if wanted <= square_over_mean(NO_CUT) {
            let sigma = (square - mean * mean).max(0.0).sqrt();
            return (sigma > 0.0).then(|| Self { start: -mean / sigma, sigma });
        }
        let (mut low, mut high) = (NO_CUT, FARTHEST_CUT);
        while high - low > 1e-13 * (1.0 + low.abs()) {
            let middle = 0.5 * (low + high);
            if middle <= low || middle >= high {
                break;
            }
            if square_over_mean(middle) < wanted { low = middle } else { high = middle }
        }
        Some(Self { start: low, sigma: mean / mean_excess(low) })
    }

    /// The part of the density's logarithm that no value changes. Far out the two halves of ln(1 − Φ) would cancel: Mills' ratio is what
    /// remains of them.
    fn log_normaliser(self) -> f64 {
        if self.start > 0.0 {
            -self.sigma.ln() - normal_mills(self.start).ln()
        } else {
            -self.sigma.ln()
                - 0.5 * (2.0 * PI).ln()
                - 0.5 * self.start * self.start
                - normal_survival(self.start).ln()
        }
    }

    fn log_density(self, y: f64, normaliser: f64) -> f64 {
        let scaled = y / self.sigma;
        normaliser - scaled * (self.start + 0.5 * scaled)
    }
}

/// The mean of Z − `start` for a standard normal Z above it.
fn mean_excess(start: f64) -> f64 {
    if start > 3.0 {
        // 1/Mills − start cancels; the continued fraction without its first level is the difference itself.
        let (mut level, mut inner) = (120.0, start);
        while level >= 2.0 {
            inner = start + level / inner;
            level -= 1.0;
        }
        return 1.0 / inner;
    }
    normal_density(start) / normal_survival(start) - start
}

/// The mean of (Z − `start`)² over the square of the mean of Z − `start`.
fn square_over_mean(start: f64) -> f64 {
    let mean = mean_excess(start);
    (1.0 - start * mean) / (mean * mean)
}

#[cfg(test)]
mod tests {
    use super::super::distributions::{Exponential, Lognormal, Pareto, Sampler};
    use super::super::sample::Sample;
    use super::*;
    use comb_types::Dice;

    fn drawn(sampler: &impl Sampler, count: usize) -> Sample {
        Sample::new(sampler.draw_many(count, &mut Dice::new(21)))
    }

    #[test]
    fn the_moments_of_a_cut_normal() {
        // Half a normal: mean √(2/π), mean square 1.
        assert!((mean_excess(0.0) - (2.0 / PI).sqrt()).abs() < 1e-14);
        assert!((square_over_mean(0.0) - PI / 2.0).abs() < 1e-13);
        assert!((mean_excess(3.0 + 1e-9) - mean_excess(3.0)).abs() < 1e-9);
        let ratios: Vec<f64> = (-300..10_000).map(|i| square_over_mean(f64::from(i) / 10.0)).collect();
        assert!(ratios.is_sorted_by(|a, b| a < b) && ratios[ratios.len() - 1] < 2.0);
    }

    #[test]
    fn a_lognormal_is_found_again_above_a_start() {
        let sample = drawn(&Lognormal { mu: 3.0, sigma: 1.5 }, 200_000);
        for start in [1e-9, 3.0_f64.exp()] {
            let fit = Alternatives::of(sample.at_least(start), start).expect("a fit");
            let LognormalFit::Fitted { mu, sigma } = fit.lognormal else { panic!("{fit:?}") };
            assert!((mu - 3.0).abs() < 0.1 && (sigma - 1.5).abs() < 0.05, "{start}: {mu} {sigma}");
            assert!(
                fit.against_lognormal.normalised < -10.0 && fit.against_lognormal.p_value < 1e-20,
                "{fit:?}"
            );
        }
    }

    /// The likeliest: no neighbour is likelier.
    #[test]
    fn the_fit_is_at_the_top_of_its_likelihood() {
        let sample = drawn(&Lognormal { mu: 0.0, sigma: 2.0 }, 3000);
        let tail = sample.at_least(2.0);
        let excesses: Vec<f64> = tail.iter().map(|x| (x / 2.0).ln()).collect();
        let count = excesses.len() as f64;
        let (sum, squares) = excesses.iter().fold((0.0, 0.0), |(sum, squares), y| (sum + y, squares + y * y));
        let best = Cut::fitted(sum / count, squares / count).expect("a fit");
        let likelihood =
            |cut: Cut| excesses.iter().map(|y| cut.log_density(*y, cut.log_normaliser())).sum::<f64>();
        for (start, sigma) in [(0.01, 0.0), (-0.01, 0.0), (0.0, 0.01), (0.0, -0.01)] {
            let other = Cut { start: best.start + start, sigma: best.sigma + sigma };
            assert!(likelihood(best) > likelihood(other), "{start} {sigma}");
        }
    }

    #[test]
    fn a_pareto_tail_is_as_likely_as_the_widest_lognormal_and_likelier_than_an_exponential() {
        let sample = drawn(&Pareto { alpha: 1.3, x_min: 1.0, upper_bound: None }, 20_000);
        let fit = Alternatives::of(sample.ascending(), 1.0).expect("a fit");
        assert!(
            fit.against_lognormal.normalised.abs() < 2.0 && fit.against_lognormal.p_value > 0.05,
            "{fit:?}"
        );
        assert!(
            fit.against_exponential.normalised > 4.0 && fit.against_exponential.p_value < 1e-4,
            "{fit:?}"
        );
        let exponential = drawn(&Exponential { mean: 10.0 }, 20_000);
        let fit = Alternatives::of(exponential.at_least(5.0), 5.0).expect("a fit");
        assert!((fit.exponential_rate - 0.1).abs() < 0.005, "{fit:?}");
        assert!(fit.against_exponential.normalised < -10.0, "{fit:?}");
    }

    #[test]
    fn a_tail_that_bends_upwards_has_no_lognormal() {
        let heavier = [1.0, 1.01, 1.02, 1.03, 1e6];
        let fit = Alternatives::of(&heavier, 1.0).expect("a fit");
        assert_eq!((fit.lognormal, fit.against_lognormal), (LognormalFit::Limit, Comparison::SAME));
        assert_eq!(Alternatives::of(&[2.0, 2.0, 2.0], 2.0), None);
    }
}
