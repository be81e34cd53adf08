//! How much the tail of a lognormal would bend, had the sample been drawn from one.
//!
//! A lognormal of large σ looks like a Pareto tail over any few decades, and a test of the tail alone cannot tell: the wider the lognormal, the
//! straighter. But a sample has only so many values. Had all n of them come from one lognormal, its largest k would start at the
//! quantile 1 − k/n, and how the log-spacings shrink from there on depends on k/n alone, on neither μ nor σ. A lognormal that is but a part of the
//! sample would be cut off nearer to its middle, where it bends more; so do Weibull, exponential and normal tails. Hence a tail that is
//! straighter than this has not come from any of them.

use super::distributions::{normal_density, normal_quantile, normal_survival};
use super::hill::{Trend, unskewed};

/// Steps of the integrals below: the sixth digit is exact.
const STEPS: u32 = 400;

/// What [`Trend::statistic`] is like over the largest k of n lognormal values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LognormalTrend {
    mean: f64,
    standard_deviation: f64,
    skewness: f64,
}

impl LognormalTrend {
    /// For k of n, 0 < k < n.
    pub(super) fn of(tail_values: usize, values: usize) -> Self {
        let (k, n) = (tail_values as f64, values as f64);
        let (first, last) = (-normal_quantile(k / n), -normal_quantile(0.02 / n));
        let step = (last - first) / f64::from(STEPS);
        let nodes = || {
            (0..STEPS).map(move |node| {
                let z = first + step * (f64::from(node) + 0.5);
                let survival = normal_survival(z);
                // The i-th spacing has mean σ·P/φ at P = i/n; di/n = φ dz.
                (-(survival * n / k).ln() - 1.0, survival, survival / normal_density(z))
            })
        };
        let (spacings, scored) = nodes().fold((0.0, 0.0), |(sum, scored), (score, survival, _)| {
            (sum + survival, scored + score * survival)
        });
        let centre = scored / spacings;
        let (squares, cubes) = nodes().fold((0.0, 0.0), |(squares, cubes), (score, survival, mean)| {
            let from_centre = (score - centre) * mean;
            (
                squares + from_centre * (score - centre) * survival,
                cubes + from_centre.powi(3) * survival / mean,
            )
        });
        // Means over i ≤ k: each integral times n/k.
        let scale = step * n / k;
        let (mean, variance, third) = (spacings * scale, squares * scale, cubes * scale);
        Self {
            mean: centre * k.sqrt(),
            standard_deviation: variance.sqrt() / mean,
            skewness: 2.0 * third / variance.powf(1.5) / k.sqrt(),
        }
    }

    /// By how many standard deviations a tail is straighter than a lognormal's.
    pub(super) fn margin(&self, trend: &Trend) -> f64 {
        unskewed((trend.statistic - self.mean) / self.standard_deviation, self.skewness)
    }

    /// By how many a tail of a power law is, give or take one: the power of the margin.
    pub(super) fn margin_of_straight(&self) -> f64 {
        self.margin(&Trend { statistic: 0.0, z: 0.0 })
    }
}

#[cfg(test)]
mod tests {
    use super::super::distributions::{Lognormal, Sampler};
    use super::super::hill::HillPlot;
    use super::super::sample::Sample;
    use super::*;
    use comb_types::Dice;

    /// The margin of lognormals is standard normal, whatever σ, from the far tail to most of the sample.
    #[test]
    fn lognormals_bend_as_much_as_is_foretold() {
        let mut dice = Dice::new(6);
        for (k, n, sigma) in [(100, 150, 0.5), (100, 10_000, 4.0), (1000, 2000, 2.0)] {
            let foretold = LognormalTrend::of(k, n);
            let margins: Vec<f64> = (0..400)
                .map(|_| {
                    let sample = Sample::new(Lognormal { mu: 1.0, sigma }.draw_many(n, &mut dice));
                    let logs: Vec<f64> = sample.ascending().iter().map(|x| x.ln()).collect();
                    foretold.margin(&HillPlot::at(&logs, &[k]).points[0].trend)
                })
                .collect();
            let mean = margins.iter().sum::<f64>() / 400.0;
            let spread = (margins.iter().map(|margin| (margin - mean).powi(2)).sum::<f64>() / 400.0).sqrt();
            assert!(mean.abs() < 0.25 && (0.8..1.15).contains(&spread), "{k} of {n}: {mean} {spread}");
            assert!(margins.iter().all(|margin| *margin < 4.5), "{k} of {n}");
        }
    }

    #[test]
    fn the_fewer_values_and_the_farther_out_the_less_can_be_told() {
        let margin = |k, n| LognormalTrend::of(k, n).margin_of_straight();
        assert!(margin(5000, 10_000) > 12.0);
        assert!(margin(100, 10_000) < 1.5);
        assert!(margin(1000, 10_000) > margin(1000, 100_000));
        assert!(margin(10_000, 100_000) > margin(1000, 10_000));
    }
}
