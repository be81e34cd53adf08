//! A sample, sorted once: every question here is one about ranks.

/// The values of a sample in ascending order. What is infinite or no number was left out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    ascending: Vec<f64>,
}

impl Sample {
    /// Sorts the values where they are.
    pub fn new(mut values: Vec<f64>) -> Self {
        values.retain(|value| value.is_finite());
        values.sort_unstable_by(f64::total_cmp);
        Self { ascending: values }
    }

    /// All values.
    pub fn ascending(&self) -> &[f64] {
        &self.ascending
    }

    /// The values above 0: those that have a place on a logarithmic axis.
    pub fn positive(&self) -> &[f64] {
        self.at_least(f64::MIN_POSITIVE)
    }

    /// The values of at least `x_min`: a tail.
    pub fn at_least(&self, x_min: f64) -> &[f64] {
        &self.ascending[self.ascending.partition_point(|value| *value < x_min)..]
    }

    /// The smallest value with at least the fraction `p` of the sample at or below it. None of an empty sample.
    pub fn quantile(&self, p: f64) -> Option<f64> {
        let rank = super::ladder::nearest((p * self.ascending.len() as f64).ceil());
        self.ascending.get(rank.saturating_sub(1)).or(self.ascending.last()).copied()
    }
}

impl From<&[u64]> for Sample {
    fn from(values: &[u64]) -> Self {
        Self::new(values.iter().map(|value| *value as f64).collect())
    }
}

/// A sample in five numbers. With a heavy tail the mean and the standard deviation say little of what is typical: see the quantiles.
/// (Thesis §9.7: the mean of bytes read was beyond the 90th percentile)
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Descriptors {
    /// How many values.
    pub count: u64,
    /// The smallest.
    pub minimum: f64,
    /// The largest.
    pub maximum: f64,
    /// The mean.
    pub mean: f64,
    /// The sample's standard deviation (over n − 1); 0 for a single value.
    pub standard_deviation: f64,
}

impl Descriptors {
    /// None of an empty sample.
    pub fn of(values: &[f64]) -> Option<Self> {
        let mut moments = Moments::default();
        values.iter().for_each(|value| moments.add(*value));
        moments.descriptors()
    }
}

/// What [`Descriptors`] are made of, value by value; two can be merged. Deviations are summed from the mean so far: the difference of two huge
/// sums has no digits left.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Moments {
    count: u64,
    minimum: f64,
    maximum: f64,
    mean: f64,
    squares: f64,
}

impl Default for Moments {
    fn default() -> Self {
        Self { count: 0, minimum: f64::INFINITY, maximum: f64::NEG_INFINITY, mean: 0.0, squares: 0.0 }
    }
}

impl Moments {
    pub(super) fn add(&mut self, value: f64) {
        self.count += 1;
        self.minimum = self.minimum.min(value);
        self.maximum = self.maximum.max(value);
        let deviation = value - self.mean;
        self.mean += deviation / self.count as f64;
        self.squares += deviation * (value - self.mean);
    }

    pub(super) fn merge(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        let (own, others) = (self.count as f64, other.count as f64);
        let deviation = other.mean - self.mean;
        self.count += other.count;
        self.minimum = self.minimum.min(other.minimum);
        self.maximum = self.maximum.max(other.maximum);
        self.mean += deviation * others / (own + others);
        self.squares += other.squares + deviation * deviation * own * others / (own + others);
    }

    pub(super) fn descriptors(&self) -> Option<Descriptors> {
        (self.count > 0).then(|| Descriptors {
            count: self.count,
            minimum: self.minimum,
            maximum: self.maximum,
            mean: self.mean,
            standard_deviation: (self.squares / self.count.saturating_sub(1).max(1) as f64).sqrt(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_sorted_and_knows_its_parts() {
        let sample = Sample::new(vec![3.0, f64::NAN, 0.0, f64::INFINITY, -1.0, 2.0, 3.0]);
        assert_eq!(sample.ascending(), [-1.0, 0.0, 2.0, 3.0, 3.0]);
        assert_eq!(sample.positive(), [2.0, 3.0, 3.0]);
        assert_eq!(sample.at_least(3.0), [3.0, 3.0]);
        assert_eq!(Sample::from(&[7_u64, 5][..]).ascending(), [5.0, 7.0]);
    }

    #[test]
    fn quantiles_are_values_of_the_sample() {
        let sample = Sample::new(vec![10.0, 20.0, 30.0, 40.0]);
        let quantiles = [0.0, 0.25, 0.26, 0.5, 1.0].map(|p| sample.quantile(p));
        assert_eq!(quantiles, [10.0, 10.0, 20.0, 20.0, 40.0].map(Some));
        assert_eq!(Sample::default().quantile(0.5), None);
    }

    #[test]
    fn descriptors_keep_their_digits_far_from_zero() {
        let values = [1e9 + 1.0, 1e9 + 2.0, 1e9 + 3.0, 1e9 + 4.0];
        let descriptors = Descriptors::of(&values).expect("values");
        assert!((descriptors.standard_deviation - (5.0_f64 / 3.0).sqrt()).abs() < 1e-9);
        assert_eq!(
            (descriptors.mean, descriptors.minimum, descriptors.maximum),
            (1e9 + 2.5, 1e9 + 1.0, 1e9 + 4.0)
        );
        assert_eq!(Descriptors::of(&[]), None);
        assert_eq!(Descriptors::of(&[5.0]).expect("a value").standard_deviation, 0.0);
    }

    #[test]
    fn merged_moments_are_those_of_all_values() {
        let values: Vec<f64> = (0..100).map(|i| f64::from(i * i)).collect();
        let mut merged = Moments::default();
        for part in values.chunks(33) {
            let mut moments = Moments::default();
            part.iter().for_each(|value| moments.add(*value));
            merged.merge(&moments);
        }
        let (found, expected) =
            (merged.descriptors().expect("values"), Descriptors::of(&values).expect("values"));
        assert!((found.standard_deviation - expected.standard_deviation).abs() < 1e-9);
        assert!((found.mean - expected.mean).abs() < 1e-9);
        assert_eq!((found.count, found.minimum, found.maximum), (100, 0.0, 9801.0));
    }
}
