//! The empirical distribution of a sample in which each value weighs 1, or as much as it is given.
//!
//! The same files seen by number and by bytes are two distributions: most files are small, and most bytes are in large ones.

use super::ladder::ladder;
use super::sample::Sample;

/// A point of a distribution's plot.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EcdfPoint {
    /// The value.
    pub value: f64,
    /// The fraction of all weight that is at or below it.
    pub fraction: f64,
}

/// A distribution: its distinct values, and how much weight lies at or below each.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ecdf {
    values: Vec<f64>,
    at_or_below: Vec<f64>,
}

impl Ecdf {
    /// Every value weighs 1.
    pub fn of(sample: &Sample) -> Self {
        Self::summed(sample.ascending().iter().map(|value| (*value, 1.0)))
    }

    /// Pairs of a value and its weight, which is 0 or more; the pairs are sorted where they are.
    pub fn weighted(pairs: &mut [(f64, f64)]) -> Self {
        pairs.sort_unstable_by(|(one, _), (other, _)| one.total_cmp(other));
        Self::summed(pairs.iter().copied().filter(|(value, weight)| !value.is_nan() && *weight > 0.0))
    }

    fn summed(ascending: impl Iterator<Item = (f64, f64)>) -> Self {
        let mut ecdf = Self::default();
        let mut total = 0.0;
        for (value, weight) in ascending {
            total += weight;
            match (ecdf.values.last(), ecdf.at_or_below.last_mut()) {
                (Some(last), Some(sum)) if *last == value => *sum = total,
                _ => {
                    ecdf.values.push(value);
                    ecdf.at_or_below.push(total);
                }
            }
        }
        ecdf
    }

    /// All weight.
    pub fn total(&self) -> f64 {
        self.at_or_below.last().copied().unwrap_or(0.0)
    }

    /// How many distinct values there are.
    pub fn distinct(&self) -> usize {
        self.values.len()
    }

    /// The smallest value with at least the fraction `p` of the weight at or below it. None of an empty distribution.
    pub fn quantile(&self, p: f64) -> Option<f64> {
        // A weight that is a rounding error short of what is asked for is enough.
        let wanted = p * self.total() * (1.0 - 4.0 * f64::EPSILON);
        let at = self.at_or_below.partition_point(|sum| *sum < wanted);
        self.values.get(at).or(self.values.last()).copied()
    }

    /// Several quantiles, p in percent.
    pub fn percentiles(&self, percents: &[f64]) -> Option<Vec<f64>> {
        percents.iter().map(|percent| self.quantile(percent / 100.0)).collect()
    }

    /// The fraction of the weight that is at or below `x`; 0 of an empty distribution.
    pub fn fraction_at_or_below(&self, x: f64) -> f64 {
        match self.values.partition_point(|value| *value <= x) {
            0 => 0.0,
            values => self.at_or_below[values - 1] / self.total(),
        }
    }

    /// At most `limit` points for a plot, both ends among them.
    ///
    /// A third each is spaced evenly in the values' ranks, in ranks counted from the top on a logarithmic axis, and from the bottom: a plot with
    /// a logarithmic axis shows the tails as large as the body, and evenly spaced ranks alone would leave them to two or three points.
    pub fn points(&self, limit: usize) -> Vec<EcdfPoint> {
        self.point_ranks(limit)
            .into_iter()
            .map(|rank| EcdfPoint {
                value: self.values[rank],
                fraction: self.at_or_below[rank] / self.total(),
            })
            .collect()
    }

    fn point_ranks(&self, limit: usize) -> Vec<usize> {
        let count = self.values.len();
        if count <= limit {
            return (0..count).collect();
        }
        if limit < 6 {
            return ladder(1, count, limit).into_iter().map(|rank| rank - 1).collect();
        }
        let third = limit / 3;
        let mut ranks: Vec<usize> = (0..third).map(|part| part * (count - 1) / (third - 1).max(1)).collect();
        ranks.extend(ladder(1, count, third).into_iter().map(|rank| rank - 1));
        ranks.extend(ladder(1, count, third).into_iter().map(|rank| count - rank));
        ranks.sort_unstable();
        ranks.dedup();
        ranks
    }
}

#[cfg(test)]
mod tests {
    use super::super::distributions::{Pareto, Sampler};
    use super::*;
    use comb_types::Dice;

    #[test]
    fn quantiles_and_fractions_undo_each_other() {
        let ecdf = Ecdf::of(&Sample::new(vec![1.0, 2.0, 2.0, 2.0, 10.0]));
        assert_eq!((ecdf.distinct(), ecdf.total()), (3, 5.0));
        let fractions = [0.5, 1.0, 1.5, 2.0, 9.9, 10.0, 99.0].map(|x| ecdf.fraction_at_or_below(x));
        assert_eq!(fractions, [0.0, 0.2, 0.2, 0.8, 0.8, 1.0, 1.0]);
        assert_eq!(
            ecdf.percentiles(&[0.0, 20.0, 21.0, 80.0, 81.0, 100.0]).expect("values"),
            [1.0, 1.0, 2.0, 2.0, 10.0, 10.0]
        );
        assert_eq!((Ecdf::default().quantile(0.5), Ecdf::default().fraction_at_or_below(1.0)), (None, 0.0));
    }

    #[test]
    fn weights_are_another_distribution() {
        let mut pairs = [(100.0, 100.0), (1.0, 1.0), (1.0, 1.0), (f64::NAN, 5.0), (7.0, 0.0)];
        let by_bytes = Ecdf::weighted(&mut pairs);
        assert_eq!((by_bytes.total(), by_bytes.distinct()), (102.0, 2));
        assert_eq!(by_bytes.quantile(0.5), Some(100.0));
        assert!((by_bytes.fraction_at_or_below(1.0) - 2.0 / 102.0).abs() < 1e-15);
    }

    #[test]
    fn a_thinned_plot_keeps_both_tails() {
        let pareto = Pareto { alpha: 1.2, x_min: 1.0, upper_bound: None };
        let sample = Sample::new(pareto.draw_many(50_000, &mut Dice::new(3)));
        let ecdf = Ecdf::of(&sample);
        let points = ecdf.points(300);
        assert!(points.len() <= 300 && points.len() > 250, "{}", points.len());
        assert!(points.is_sorted_by(|a, b| a.value < b.value && a.fraction < b.fraction));
        assert_eq!((points[0].value, points[points.len() - 1].fraction), (sample.ascending()[0], 1.0));
        let last_thousandth = points.iter().filter(|point| point.fraction > 0.999).count();
        assert!(last_thousandth > 20, "{last_thousandth}");
        assert!(points.iter().all(|point| ecdf.fraction_at_or_below(point.value) == point.fraction));
        assert_eq!(ecdf.points(3).len(), 3);
        assert_eq!(Ecdf::default().points(10), []);
    }
}
