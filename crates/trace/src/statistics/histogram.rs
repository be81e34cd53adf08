//! A distribution of millions of values that stream by, in bounded memory.

use super::ecdf::EcdfPoint;
use super::ladder::nearest;
use super::sample::{Descriptors, Moments};

/// Buckets in an octave, as a power of two. A value differs from the middle of its bucket by at most 1 part in 256.
const SUB_BUCKET_BITS: u32 = 7;
const SUB_BUCKETS: usize = 1 << SUB_BUCKET_BITS;

/// Below [`SUB_BUCKETS`] each value has a bucket of its own; each octave above has as many again.
const BUCKETS: usize = SUB_BUCKETS * (u64::BITS - SUB_BUCKET_BITS + 1) as usize;

/// What the distribution is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Each value counts once.
    Count,
    /// Each value counts as much as the weight it was recorded with.
    Weight,
}

/// How often each value occurred, to within 0.4 %, and how much weight it had. 120 KB, whatever it has seen.
#[derive(Clone, Debug, PartialEq)]
pub struct LogHistogram {
    counts: Vec<u64>,
    weights: Vec<u64>,
    moments: Moments,
}

impl Default for LogHistogram {
    fn default() -> Self {
        Self { counts: vec![0; BUCKETS], weights: vec![0; BUCKETS], moments: Moments::default() }
    }
}

impl LogHistogram {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// A value, with a weight such as the bytes it stands for.
    pub fn record(&mut self, value: u64, weight: u64) {
        let bucket = bucket_of(value);
        self.counts[bucket] += 1;
        self.weights[bucket] = self.weights[bucket].saturating_add(weight);
        self.moments.add(value as f64);
    }

    /// All that the other has seen, as if it had been seen here.
    pub fn merge(&mut self, other: &Self) {
        for (own, others) in self.counts.iter_mut().zip(&other.counts) {
            *own += others;
        }
        for (own, others) in self.weights.iter_mut().zip(&other.weights) {
            *own = own.saturating_add(*others);
        }
        self.moments.merge(&other.moments);
    }

    /// Of the values themselves, not of their buckets. None if there were none.
    pub fn descriptors(&self) -> Option<Descriptors> {
        self.moments.descriptors()
    }

    /// All counts, or all weight.
    pub fn total(&self, by: By) -> u128 {
        self.buckets(by).iter().map(|amount| u128::from(*amount)).sum()
    }

    /// A value with at least the fraction `p` at or below it, to within 0.4 %. None if nothing was recorded.
    pub fn quantile(&self, by: By, p: f64) -> Option<f64> {
        self.percentiles(by, &[100.0 * p])?.pop()
    }

    /// Several quantiles, p in percent.
    pub fn percentiles(&self, by: By, percents: &[f64]) -> Option<Vec<f64>> {
        let points = self.points(by);
        let last = points.last()?.value;
        // A fraction that is a rounding error short of what is asked for is enough.
        let enough = |percent: f64| percent / 100.0 * (1.0 - 4.0 * f64::EPSILON);
        let at = |percent| points.partition_point(|point| point.fraction < enough(percent));
        Some(
            percents
                .iter()
                .map(|percent| points.get(at(*percent)).map_or(last, |point| point.value))
                .collect(),
        )
    }

    /// The fraction at or below `x`, in which the bucket of `x` counts for the part of it that is below `x`; 0 if nothing was recorded.
    pub fn fraction_at_or_below(&self, by: By, x: f64) -> f64 {
        let total = self.total(by);
        if x < 0.0 || total == 0 {
            return 0.0;
        }
        if x >= u64::MAX as f64 {
            return 1.0;
        }
        let bucket = bucket_of(nearest(x.floor()) as u64);
        let buckets = self.buckets(by);
        let below: u128 = buckets[..bucket].iter().map(|amount| u128::from(*amount)).sum();
        let (start, width) = extent_of(bucket);
        let part = ((x.floor() + 1.0 - start as f64) / width as f64).min(1.0);
        (below as f64 + part * buckets[bucket] as f64) / total as f64
    }

    /// A point for each bucket that is not empty; at most 7424.
    pub fn points(&self, by: By) -> Vec<EcdfPoint> {
        let total = self.total(by) as f64;
        let mut sum = 0_u128;
        let mut points = Vec::new();
        for (bucket, amount) in self.buckets(by).iter().enumerate().filter(|(_, amount)| **amount > 0) {
            sum += u128::from(*amount);
            points.push(EcdfPoint { value: self.typical(bucket), fraction: sum as f64 / total });
        }
        points
    }

    fn buckets(&self, by: By) -> &[u64] {
        match by {
            By::Count => &self.counts,
            By::Weight => &self.weights,
        }
    }

    /// The middle of a bucket, but no value that none has reached.
    fn typical(&self, bucket: usize) -> f64 {
        let (start, width) = extent_of(bucket);
        let middle = start as f64 + (width - 1) as f64 / 2.0;
        self.moments.descriptors().map_or(middle, |all| middle.clamp(all.minimum, all.maximum))
    }
}

fn bucket_of(value: u64) -> usize {
    if value < SUB_BUCKETS as u64 {
        return small(value);
    }
    let shift = value.ilog2() - SUB_BUCKET_BITS;
    // The highest bit says which octave, the seven after it where in there.
    SUB_BUCKETS * shift as usize + small(value >> shift)
}

/// The smallest value in a bucket, and how many values there are.
fn extent_of(bucket: usize) -> (u64, u64) {
    if bucket < 2 * SUB_BUCKETS {
        return (bucket as u64, 1);
    }
    let shift = bucket / SUB_BUCKETS - 1;
    (((bucket % SUB_BUCKETS + SUB_BUCKETS) as u64) << shift, 1 << shift)
}

/// Below twice [`SUB_BUCKETS`].
fn small(value: u64) -> usize {
    usize::try_from(value).expect("a bucket's number")
}

#[cfg(test)]
mod tests {
    use super::super::distributions::{Pareto, Sampler};
    use super::super::ecdf::Ecdf;
    use super::super::sample::Sample;
    use super::*;
    use comb_types::Dice;

    #[test]
    fn every_value_is_in_the_bucket_that_contains_it() {
        let mut dice = Dice::new(1);
        let rolled = (0..100_000).map(|_| dice.roll() >> dice.below(64));
        for value in rolled.chain([0, 1, 127, 128, 255, 256, 257, u64::MAX]) {
            let bucket = bucket_of(value);
            let (start, width) = extent_of(bucket);
            assert!(bucket < BUCKETS && value >= start && value - start < width, "{value}: {start} {width}");
            assert!(width as f64 <= (start as f64 / 128.0).max(1.0), "{value}: {start} {width}");
        }
        assert!((1..BUCKETS).all(|bucket| {
            let (start, width) = extent_of(bucket - 1);
            extent_of(bucket).0 == start + width
        }));
    }

    #[test]
    fn quantiles_differ_by_less_than_a_hundredth_from_those_of_all_values() {
        let pareto = Pareto { alpha: 1.1, x_min: 500.0, upper_bound: None };
        let values: Vec<u64> =
            pareto.draw_many(100_000, &mut Dice::new(2)).iter().map(|value| nearest(*value) as u64).collect();
        let mut histogram = LogHistogram::new();
        values.iter().for_each(|value| histogram.record(*value, *value));
        let by_count = Ecdf::of(&Sample::from(&values[..]));
        let mut pairs: Vec<_> = values.iter().map(|value| (*value as f64, *value as f64)).collect();
        let by_weight = Ecdf::weighted(&mut pairs);
        for (by, exact) in [(By::Count, &by_count), (By::Weight, &by_weight)] {
            for p in [0.0, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999, 1.0] {
                let (found, expected) =
                    (histogram.quantile(by, p).expect("values"), exact.quantile(p).expect("values"));
                assert!((found / expected - 1.0).abs() < 0.01, "{by:?} {p}: {found} {expected}");
            }
            for x in [400.0, 600.0, 5000.0, 1e6] {
                let (found, expected) =
                    (histogram.fraction_at_or_below(by, x), exact.fraction_at_or_below(x));
                assert!((found - expected).abs() < 0.005, "{by:?} {x}: {found} {expected}");
            }
        }
        assert_eq!(histogram.total(By::Count), 100_000);
    }

    #[test]
    fn merged_histograms_are_one_of_everything() {
        let mut whole = LogHistogram::new();
        let mut parts = [LogHistogram::new(), LogHistogram::new()];
        let mut dice = Dice::new(3);
        for i in 0..10_000 {
            let value = u64::from(dice.below(1_000_000));
            whole.record(value, 2 * value);
            parts[i % 2].record(value, 2 * value);
        }
        let [mut merged, other] = parts;
        merged.merge(&other);
        assert_eq!((&merged.counts, &merged.weights), (&whole.counts, &whole.weights));
        let (found, expected) = (merged.descriptors().expect("values"), whole.descriptors().expect("values"));
        assert!((found.standard_deviation / expected.standard_deviation - 1.0).abs() < 1e-9);
    }

    #[test]
    fn small_values_are_exact_and_empty_is_empty() {
        let mut histogram = LogHistogram::new();
        assert_eq!(
            (histogram.quantile(By::Count, 0.5), histogram.fraction_at_or_below(By::Count, 9.0)),
            (None, 0.0)
        );
        [0, 5, 5, 200].into_iter().for_each(|value| histogram.record(value, 1));
        assert_eq!(
            histogram.percentiles(By::Count, &[25.0, 75.0, 100.0]).expect("values"),
            [0.0, 5.0, 200.0]
        );
        assert_eq!(histogram.fraction_at_or_below(By::Count, 5.0), 0.75);
        assert_eq!(histogram.fraction_at_or_below(By::Count, 1e30), 1.0);
        histogram.record(u64::MAX, u64::MAX);
        histogram.record(u64::MAX, u64::MAX);
        let largest = histogram.quantile(By::Weight, 0.9).expect("values");
        assert!((largest / u64::MAX as f64 - 1.0).abs() < 0.004, "{largest}");
    }
}
