//! The Hill estimator of α, its plot, and an exact test of whether the plot is flat. (Thesis §9.7)
//!
//! Let x₁ ≥ x₂ ≥ … be the sample from its largest value down, and Eᵢ = i·ln(xᵢ / xᵢ₊₁). Above the start of a Pareto tail the Eᵢ are
//! independent and exponential with mean 1/α (Rényi). Hill's estimate from k values is the inverse of the mean of the first k of them, and a
//! plot over k that drifts is a trend of the Eᵢ over i: lognormal and exponential tails steepen outwards, so that their Eᵢ shrink towards i = 1.

use super::distributions::normal_survival;
use super::ladder::ladder;

/// Hill's estimate from the largest `tail_values` values, and whether the plot is flat up to here.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HillPoint {
    /// How many values the estimate is from: k.
    pub tail_values: usize,
    /// The next smaller value, above which they lie.
    pub threshold: f64,
    /// The estimate.
    pub alpha: f64,
    /// Of the estimate, if the tail is Pareto: α/√k.
    pub standard_error: f64,
    /// Of the first k spacings.
    pub trend: Trend,
}

/// Whether scaled log-spacings grow or shrink towards the largest value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trend {
    /// Σ aᵢEᵢ over the mean of the Eᵢ, with aᵢ = −ln i less its mean, scaled so that its variance is exactly 1 under a Pareto tail. Negative where
    /// the tail steepens outwards. These scores are those of the likelihood against a truncated lognormal, so that no test sees its
    /// bend sooner (Castillo and Puig 1999).
    pub statistic: f64,
    /// The statistic as a standard normal variable: what is left of its skewness at small k is taken out.
    pub z: f64,
}

impl Trend {
    /// How likely a Pareto tail is to show such a trend or a stronger one, in either direction.
    pub fn p_value(&self) -> f64 {
        2.0 * normal_survival(self.z.abs())
    }
}

/// The Hill plot.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HillPlot {
    /// From the far tail to the whole sample, evenly spaced on a logarithmic axis of k.
    pub points: Vec<HillPoint>,
}

impl HillPlot {
    /// At most `limit` points; the values must be above 0. Points whose values are all equal are left out, they have no estimate.
    pub fn of(ascending: &[f64], limit: usize) -> Self {
        let logs: Vec<f64> = ascending.iter().map(|value| value.ln()).collect();
        Self::at(&logs, &ladder(2, ascending.len().saturating_sub(1), limit))
    }

    /// At these k, ascending and each less than the values. Hands in logarithms, which whoever asks more than once has at hand. One pass: the
    /// sums over i ≤ k are had for every k on the way.
    pub(super) fn at(ascending_logs: &[f64], ranks: &[usize]) -> Self {
        let descending = |rank: usize| ascending_logs[ascending_logs.len() - rank];
        let mut sums = Sums::default();
        let mut points = Vec::with_capacity(ranks.len());
        for &k in ranks.iter().filter(|k| **k >= 2 && **k < ascending_logs.len()) {
            while sums.count < k {
                let i = sums.count + 1;
                sums.add(i, i as f64 * (descending(i) - descending(i + 1)));
            }
            if sums.spacings > 0.0 {
                let alpha = k as f64 / sums.spacings;
                points.push(HillPoint {
                    tail_values: k,
                    threshold: descending(k + 1).exp(),
                    alpha,
                    standard_error: alpha / (k as f64).sqrt(),
                    trend: sums.trend(),
                });
            }
        }
        Self { points }
    }

    /// The longest stretch from the largest value down that is flat: the last point whose trend is within `limit` standard deviations of none.
    /// Of all k that a Pareto tail could have, the largest has the smallest error.
    pub fn stable(&self, limit: f64) -> Option<&HillPoint> {
        self.points.iter().rev().find(|point| point.trend.z.abs() <= limit)
    }
}

/// Hill's estimate from the largest k of the values, which must be above 0. None for k = 0, for all values, and where they are equal.
pub fn hill(ascending: &[f64], tail_values: usize) -> Option<f64> {
    let threshold = ascending.len().checked_sub(tail_values + 1)?;
    let sum: f64 = ascending[threshold + 1..].iter().map(|value| (value / ascending[threshold]).ln()).sum();
    (sum > 0.0).then(|| tail_values as f64 / sum)
}

/// Sums over the first spacings, and of powers of their ln i.
#[derive(Default)]
struct Sums {
    count: usize,
    spacings: f64,
    scored: f64,
    logs: f64,
    squares: f64,
    cubes: f64,
}

impl Sums {
    fn add(&mut self, i: usize, spacing: f64) {
        let log = (i as f64).ln();
        self.count = i;
        self.spacings += spacing;
        self.scored += log * spacing;
        self.logs += log;
        self.squares += log * log;
        self.cubes += log * log * log;
    }

    /// Eᵢ/ΣE is uniform over the simplex under a Pareto tail, whatever α: the moments of Σ aᵢEᵢ/ΣE are exact.
    fn trend(&self) -> Trend {
        let k = self.count as f64;
        let mean = self.logs / k;
        let variance = self.squares / k - mean * mean;
        let third = self.cubes / k - 3.0 * mean * self.squares / k + 2.0 * mean * mean * mean;
        let score = mean - self.scored / self.spacings;
        let statistic = score * ((k + 1.0) / variance).sqrt();
        let skewness = -2.0 * third / variance.powf(1.5) * (k + 1.0).sqrt() / (k + 2.0);
        Trend { statistic, z: unskewed(statistic, skewness) }
    }
}

/// A variable of mean 0, variance 1 and this skewness as a normal one: taken for a gamma variable, of which the cube root is normal (Wilson and
/// Hilferty). Never decreasing, unlike an expansion in powers.
pub(super) fn unskewed(statistic: f64, skewness: f64) -> f64 {
    if skewness.abs() < 1e-6 {
        return statistic;
    }
    let shape = 4.0 / (skewness * skewness);
    let above_least = (1.0 + statistic * skewness.signum() / shape.sqrt()).max(0.0);
    let root = 1.0 - 1.0 / (9.0 * shape);
    skewness.signum() * (above_least.cbrt() - root) * 3.0 * shape.sqrt()
}

#[cfg(test)]
mod tests {
    use super::super::distributions::{Exponential, Lognormal, Pareto, Sampler, normal_survival};
    use super::super::sample::Sample;
    use super::*;
    use comb_types::Dice;

    fn drawn(sampler: &impl Sampler, count: usize, seed: u64) -> Sample {
        Sample::new(sampler.draw_many(count, &mut Dice::new(seed)))
    }

    #[test]
    fn the_estimate_of_four_values_by_hand() {
        let ascending = [1.0, 2.0, 4.0, 16.0];
        assert!(
            (hill(&ascending, 2).expect("an estimate") - 2.0 / (2.0_f64.ln() + 8.0_f64.ln())).abs() < 1e-15
        );
        assert_eq!((hill(&ascending, 4), hill(&ascending, 0), hill(&[3.0; 5], 2)), (None, None, None));
        let plot = HillPlot::of(&ascending, 10);
        assert_eq!(plot.points.iter().map(|point| point.tail_values).collect::<Vec<_>>(), [2, 3]);
        assert!((plot.points[0].alpha - hill(&ascending, 2).expect("an estimate")).abs() < 1e-14);
        assert!((plot.points[0].threshold - 2.0).abs() < 1e-14);
    }

    #[test]
    fn the_trend_is_what_its_definition_says() {
        let sample = drawn(&Lognormal { mu: 0.0, sigma: 1.0 }, 40, 1);
        let plot = HillPlot::of(sample.ascending(), 200);
        let descending: Vec<f64> = sample.ascending().iter().rev().copied().collect();
        for point in &plot.points {
            let k = point.tail_values;
            let spacing = |i: usize| i as f64 * (descending[i - 1] / descending[i]).ln();
            let mean = (1..=k).map(|i| (i as f64).ln()).sum::<f64>() / k as f64;
            let scores = |i: usize| mean - (i as f64).ln();
            let over = (1..=k).map(|i| scores(i) * spacing(i)).sum::<f64>();
            let under = (1..=k).map(spacing).sum::<f64>() / k as f64;
            let spread = (1..=k).map(|i| scores(i).powi(2)).sum::<f64>() * k as f64 / (k + 1) as f64;
            assert!((point.trend.statistic - over / under / spread.sqrt()).abs() < 1e-9, "{k}");
        }
    }

    /// Rejects in as many of a thousand Pareto samples as its p-value says, at a small k and at a large one: the test is exact.
    #[test]
    fn the_trend_of_pareto_tails_is_standard_normal() {
        for (k, count) in [(30, 31), (400, 2000)] {
            let mut dice = Dice::new(9);
            let pareto = Pareto { alpha: 1.4, x_min: 1.0, upper_bound: None };
            let z: Vec<f64> = (0..1000)
                .map(|_| {
                    let logs: Vec<f64> = Sample::new(pareto.draw_many(count, &mut dice))
                        .ascending()
                        .iter()
                        .map(|x| x.ln())
                        .collect();
                    HillPlot::at(&logs, &[k]).points[0].trend.z
                })
                .collect();
            for limit in [-2.0, -1.0, 0.0, 1.0, 2.0] {
                let expected = normal_survival(limit);
                let found = z.iter().filter(|z| **z > limit).count() as f64 / 1000.0;
                let spread = (expected * (1.0 - expected) / 1000.0).sqrt();
                assert!((found - expected).abs() < 4.0 * spread, "{k} {limit}: {found} {expected}");
            }
        }
    }

    #[test]
    fn the_plot_of_a_lognormal_and_of_an_exponential_drifts() {
        let trend = |sample: &Sample, k: usize| {
            let logs: Vec<f64> = sample.ascending().iter().map(|x| x.ln()).collect();
            HillPlot::at(&logs, &[k]).points[0].trend.z
        };
        let pareto = drawn(&Pareto { alpha: 1.4, x_min: 1.0, upper_bound: None }, 10_000, 1);
        assert!(trend(&pareto, 5000).abs() < 3.0);
        assert!(trend(&drawn(&Lognormal { mu: 2.0, sigma: 4.0 }, 10_000, 1), 5000) < -10.0);
        assert!(trend(&drawn(&Exponential { mean: 5.0 }, 10_000, 1), 5000) < -20.0);
    }

    #[test]
    fn the_stable_stretch_of_a_pareto_sample_is_nearly_all_of_it_and_has_its_alpha() {
        let sample = drawn(&Pareto { alpha: 1.4, x_min: 1.0, upper_bound: None }, 10_000, 2);
        let plot = HillPlot::of(sample.ascending(), 200);
        assert!(plot.points.len() <= 200 && plot.points.len() > 150);
        let stable = plot.stable(2.5).expect("a stretch");
        assert!(stable.tail_values > 5000 && (stable.alpha - 1.4).abs() < 0.05, "{stable:?}");
        let lognormal = drawn(&Lognormal { mu: 0.0, sigma: 2.0 }, 10_000, 2);
        let stable =
            HillPlot::of(lognormal.ascending(), 200).stable(2.5).map_or(0, |point| point.tail_values);
        assert!(stable < 2000, "{stable}");
    }

    #[test]
    fn unskewing_is_exact_for_none_and_never_decreases() {
        assert_eq!(unskewed(1.7, 0.0), 1.7);
        for skewness in [-0.5, 0.5] {
            let steps: Vec<f64> = (-200..200).map(|i| unskewed(f64::from(i) / 10.0, skewness)).collect();
            assert!(steps.is_sorted(), "{skewness}");
        }
        // χ² with 8 degrees of freedom: skewness 1; its 97.5 % quantile is 17.5345.
        assert!((unskewed((17.5345 - 8.0) / 4.0, 1.0) - 1.96).abs() < 0.02);
    }
}
