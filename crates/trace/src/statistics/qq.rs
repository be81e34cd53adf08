//! Quantile–quantile plots: a sample that follows a distribution lies on a line. (Thesis §9.7, figure 9.9)

use super::distributions::{Pareto, Sampler, normal_quantile};
use super::ladder::ladder;
use super::sample::Descriptors;

/// A value of the sample beside the one that the distribution has at its rank.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QqPoint {
    /// What the distribution expects.
    pub theoretical: f64,
    /// What the sample has.
    pub observed: f64,
}

/// A sample beside a distribution that was fitted to it.
#[derive(Clone, Debug, PartialEq)]
pub struct QqPlot {
    /// The points in ascending order, thinned for the plot; the thinning keeps both ends.
    pub points: Vec<QqPoint>,
    /// The correlation of all points, thinned or not, on the plot's own axes.
    pub correlation: f64,
    /// The same on logarithmic axes; none beside a normal distribution, which has values below 0. On the plot's own axes a heavy tail's
    /// few largest values decide nearly alone.
    pub log_correlation: Option<f64>,
}

impl QqPlot {
    /// How straight the plot is: R², 1 for a line.
    pub fn straightness(&self) -> f64 {
        self.correlation * self.correlation
    }

    /// Beside the normal distribution of the sample's mean and standard deviation. None for fewer than three values, or if all are one.
    pub fn against_normal(ascending: &[f64], limit: usize) -> Option<Self> {
        let descriptors = Descriptors::of(ascending)?;
        let expected = |p| descriptors.mean + descriptors.standard_deviation * normal_quantile(p);
        Self::against(ascending, limit, expected, false)
    }

    /// Beside the Pareto distribution that is likeliest above the sample's smallest value: hand in a tail. None for fewer than three values, if
    /// all are one, or if the smallest is not above 0.
    pub fn against_pareto(ascending: &[f64], limit: usize) -> Option<Self> {
        let x_min = *ascending.first().filter(|value| **value > 0.0)?;
        let excess: f64 = ascending.iter().map(|value| (value / x_min).ln()).sum();
        let pareto = Pareto { alpha: ascending.len() as f64 / excess, x_min, upper_bound: None };
        Self::against(ascending, limit, |p| pareto.quantile(p), true)
    }

    fn against(
        ascending: &[f64],
        limit: usize,
        expected: impl Fn(f64) -> f64,
        positive: bool,
    ) -> Option<Self> {
        let count = ascending.len();
        if count < 3 || ascending[0] == ascending[count - 1] {
            return None;
        }
        let at = |rank: usize| QqPoint {
            theoretical: expected(median_of_rank(rank, count)),
            observed: ascending[rank - 1],
        };
        let mut plain = Line::default();
        let mut logarithmic = Line::default();
        for point in (1..=count).map(at) {
            plain.add(point.theoretical, point.observed);
            if positive {
                logarithmic.add(point.theoretical.ln(), point.observed.ln());
            }
        }
        Some(Self {
            points: thinned_ranks(count, limit).into_iter().map(at).collect(),
            correlation: plain.correlation(),
            log_correlation: positive.then(|| logarithmic.correlation()),
        })
    }
}

/// The median of what a uniform sample has at a rank (Filliben): at the ends a plot is less lopsided than with means.
fn median_of_rank(rank: usize, count: usize) -> f64 {
    let end = 0.5_f64.powf(1.0 / count as f64);
    if rank == count {
        end
    } else if rank == 1 {
        1.0 - end
    } else {
        (rank as f64 - 0.3175) / (count as f64 + 0.365)
    }
}

fn thinned_ranks(count: usize, limit: usize) -> Vec<usize> {
    if count <= limit {
        return (1..=count).collect();
    }
    let mut ranks = ladder(1, count, limit.div_ceil(2));
    ranks.extend(ladder(1, count, limit / 2).into_iter().map(|rank| count + 1 - rank));
    ranks.sort_unstable();
    ranks.dedup();
    ranks
}

/// Sums for a straight line through points, about their means so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Line {
    count: f64,
    mean_x: f64,
    mean_y: f64,
    xx: f64,
    xy: f64,
    yy: f64,
}

impl Line {
    pub(super) fn add(&mut self, x: f64, y: f64) {
        self.count += 1.0;
        let (from_x, from_y) = (x - self.mean_x, y - self.mean_y);
        self.mean_x += from_x / self.count;
        self.mean_y += from_y / self.count;
        self.xx += from_x * (x - self.mean_x);
        self.xy += from_x * (y - self.mean_y);
        self.yy += from_y * (y - self.mean_y);
    }

    pub(super) fn correlation(&self) -> f64 {
        self.xy / (self.xx * self.yy).sqrt()
    }

    pub(super) fn slope(&self) -> f64 {
        self.xy / self.xx
    }

    pub(super) fn intercept(&self) -> f64 {
        self.mean_y - self.slope() * self.mean_x
    }

    /// As if the deviations from the line were independent.
    pub(super) fn slope_standard_error(&self) -> f64 {
        let remaining = (self.yy - self.slope() * self.xy).max(0.0);
        (remaining / (self.count - 2.0) / self.xx).sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::Sample;
    use super::*;
    use comb_types::Dice;

    #[test]
    fn a_sample_is_straight_beside_what_it_was_drawn_from_and_bent_beside_the_other() {
        let mut dice = Dice::new(4);
        let uniform = super::super::distributions::uniform;
        let normal = Sample::new((0..5000).map(|_| 100.0 + normal_quantile(uniform(&mut dice))).collect());
        let pareto = Pareto { alpha: 1.3, x_min: 1.0, upper_bound: None };
        let pareto = Sample::new(pareto.draw_many(5000, &mut dice));
        let straightness = |plot: Option<QqPlot>| plot.expect("a plot").straightness();
        assert!(straightness(QqPlot::against_normal(normal.ascending(), 100)) > 0.998);
        assert!(straightness(QqPlot::against_normal(pareto.ascending(), 100)) < 0.3);
        let beside_pareto = QqPlot::against_pareto(pareto.ascending(), 100).expect("a plot");
        assert!(beside_pareto.log_correlation.expect("positive") > 0.999, "{beside_pareto:?}");
        let wrong = QqPlot::against_pareto(normal.ascending(), 100).expect("a plot");
        assert!(wrong.log_correlation.expect("positive") < 0.95, "{wrong:?}");
    }

    #[test]
    fn a_plot_is_thinned_to_both_its_ends() {
        let ascending: Vec<f64> = (1..=10_000).map(f64::from).collect();
        let plot = QqPlot::against_normal(&ascending, 200).expect("a plot");
        assert!(plot.points.len() <= 200 && plot.points.len() > 120, "{}", plot.points.len());
        assert_eq!((plot.points[0].observed, plot.points[plot.points.len() - 1].observed), (1.0, 10_000.0));
        assert!(plot.points.is_sorted_by(|a, b| a.theoretical < b.theoretical));
    }

    #[test]
    fn no_plot_of_nothing() {
        assert_eq!(QqPlot::against_normal(&[1.0, 2.0], 10), None);
        assert_eq!(QqPlot::against_normal(&[2.0, 2.0, 2.0], 10), None);
        assert_eq!(QqPlot::against_pareto(&[0.0, 2.0, 3.0], 10), None);
    }
}
