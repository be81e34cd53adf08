//! How a quantity is distributed: points of its distribution function, and beyond the last one a power law where it has one.

use comb_types::Dice;
use serde::{Deserialize, Serialize};

use crate::statistics::distributions::{Pareto, Sampler};
use crate::statistics::sample::Sample;
use crate::statistics::verdict::{Verdict, judge};

/// So many points are taken of a sample, evenly by share of values.
const POINTS: u32 = 200;

/// Where points lie too far apart to show how a sample ends.
const NEAR_THE_END: [f64; 5] = [0.998, 0.999, 0.9995, 0.9999, 1.0];

/// A power law that goes on for no longer than this beyond its beginning is cut off where it could be seen.
const LEAST_FACTOR: u64 = 10_000;

/// What goes on above the last point: P\[X > x\] ~ x^−α, up to a bound.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tail {
    /// The exponent.
    pub alpha: f64,
    /// No value is larger: what a disk holds, or how long anybody waits.
    pub most: u64,
}

/// How a quantity in whole nanoseconds, bytes or things is distributed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variable {
    /// Shares of values from 0 on, and what so many of them are at most; both ascend. The last share is 1, or less if there is a tail, which has
    /// the rest.
    pub points: Vec<(f64, u64)>,
    /// What lies above, if that is heavy-tailed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tail: Option<Tail>,
}

impl Variable {
    /// Always the same.
    pub fn always(value: u64) -> Self {
        Self { points: vec![(0.0, value), (1.0, value)], tail: None }
    }

    /// As a sample of whole numbers is. A tail is fitted where it is judged heavy, and goes beyond what was seen up to `most`. (Thesis §9.7: what
    /// was seen of a heavy tail is never all of it)
    pub fn of(sample: &Sample, most: u64) -> Self {
        let judgement = judge(sample);
        let all = sample.ascending().len() as f64;
        let fitted = judgement.evidence.filter(|_| judgement.verdict == Verdict::HeavyTailed);
        let body = fitted.map_or(1.0, |tail| 1.0 - tail.tail_values as f64 / all);
        let evenly = (0..POINTS).map(|point| f64::from(point) / f64::from(POINTS));
        let shares = evenly.chain(NEAR_THE_END).filter(|share| *share < body);
        let end = fitted.map_or_else(|| sample.quantile(1.0), |tail| Some(tail.x_min));
        let mut points: Vec<(f64, u64)> =
            shares.filter_map(|share| Some((share, whole(sample.quantile(share)?)))).collect();
        points.extend(end.map(|end| (body, whole(end))));
        // Between two equal values there is nothing to say.
        let is_between = |at: usize| points[at - 1].1 == points[at].1 && points[at].1 == points[at + 1].1;
        let kept: Vec<(f64, u64)> = (0..points.len())
            .filter(|&at| at == 0 || at + 1 == points.len() || !is_between(at))
            .map(|at| points[at])
            .collect();
        let tail = fitted.map(|tail| {
            let least = whole(tail.x_min).saturating_mul(LEAST_FACTOR);
            Tail { alpha: tail.alpha, most: most.max(least) }
        });
        if kept.is_empty() { Self::always(0) } else { Self { points: kept, tail } }
    }

    /// One value.
    pub fn draw(&self, dice: &mut Dice) -> u64 {
        whole(Sampler::draw(self, dice))
    }

    /// What is wrong with it, if anything is: anybody may have written it.
    pub(super) fn fault(&self) -> Option<&'static str> {
        let ascends = self
            .points
            .is_sorted_by(|(share, value), (next_share, next)| share < next_share && value <= next)
            && self.points.iter().all(|(share, _)| (0.0..=1.0).contains(share));
        let (Some((first, _)), Some((last, end))) = (self.points.first(), self.points.last()) else {
            return Some("it has no points");
        };
        if !ascends {
            return Some("its points do not ascend from a share of 0 to one of 1");
        }
        if *first != 0.0 {
            return Some("its first point is not that of the share 0");
        }
        match &self.tail {
            None if *last != 1.0 => Some("its last point is not that of the share 1, and it has no tail"),
            None => None,
            Some(_) if *last >= 1.0 || *end == 0 => Some("nothing is left for its tail"),
            Some(tail) if !(0.1..=10.0).contains(&tail.alpha) => {
                Some("its tail's alpha is not between 0.1 and 10")
            }
            Some(tail) if tail.most < *end => Some("its tail ends before it begins"),
            Some(_) => None,
        }
    }
}

impl Sampler for Variable {
    fn quantile(&self, p: f64) -> f64 {
        let next = self.points.partition_point(|(share, _)| *share < p);
        let Some((share, value)) = self.points.get(next).copied() else {
            let Some((body, x_min)) = self.points.last().copied() else { return 0.0 };
            let Some(tail) = self.tail else { return x_min as f64 };
            let pareto =
                Pareto { alpha: tail.alpha, x_min: x_min as f64, upper_bound: Some(tail.most as f64) };
            return pareto.quantile((p - body) / (1.0 - body));
        };
        let Some((before, low)) = next.checked_sub(1).map(|before| self.points[before]) else {
            return value as f64;
        };
        let part = (p - before) / (share - before);
        let (low, high) = (low as f64, value as f64);
        // Sizes and times are spread by factors; from 0 there is none.
        if low < 1.0 { low + part * (high - low) } else { low * (high / low).powf(part) }
    }
}

/// The nearest whole number.
pub(super) fn whole(value: f64) -> u64 {
    #[expect(clippy::cast_possible_truncation, reason = "what is too large becomes the largest there is")]
    let whole = value.round() as u64;
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_and_what_is_drawn_from_its_variable_have_the_same_quantiles() {
        let mut dice = Dice::new(3);
        let body = Pareto { alpha: 1.4, x_min: 1000.0, upper_bound: None };
        let mut values: Vec<f64> = (0..20_000).map(|_| body.draw(&mut dice).round()).collect();
        values.extend((0..20_000).map(|_| f64::from(dice.below(1000))));
        let sample = Sample::new(values);
        let variable = Variable::of(&sample, 1 << 50);
        assert_eq!(variable.fault(), None);
        let tail = variable.tail.expect("it is heavy");
        assert!((tail.alpha - 1.4).abs() < 0.1, "{tail:?}");
        let drawn = Sample::new((0..40_000).map(|_| variable.draw(&mut dice) as f64).collect());
        // Of the largest hundredth there are four hundred values on either side.
        for (p, tolerance) in [(0.1, 0.08), (0.3, 0.05), (0.5, 0.05), (0.7, 0.05), (0.9, 0.05), (0.99, 0.15)]
        {
            let (had, has) = (sample.quantile(p).expect("values"), drawn.quantile(p).expect("values"));
            assert!((has / had - 1.0).abs() < tolerance, "{p}: {had} {has}");
        }
        assert!(Variable::of(&drawn, 1 << 50).tail.is_some(), "it is heavy again");
    }

    #[test]
    fn what_most_values_are_is_drawn_as_often() {
        let mut values = vec![4096.0; 600];
        values.extend((0..400).map(|value| f64::from(value) * 7.0));
        let variable = Variable::of(&Sample::new(values), 1 << 40);
        let mut dice = Dice::new(2);
        let usual = (0..100_000).filter(|_| variable.draw(&mut dice) == 4096).count();
        assert!((59_000..60_500).contains(&usual), "{usual}");
        assert!(variable.points.len() < 100, "{} points", variable.points.len());
    }

    #[test]
    fn no_value_is_beyond_the_bound() {
        let variable =
            Variable { points: vec![(0.0, 1), (0.5, 10)], tail: Some(Tail { alpha: 0.3, most: 1000 }) };
        let mut dice = Dice::new(9);
        let largest = (0..100_000).map(|_| variable.draw(&mut dice)).max();
        assert!(largest.is_some_and(|largest| (990..=1000).contains(&largest)), "{largest:?}");
    }

    #[test]
    fn what_cannot_be_a_distribution_is_told() {
        let of = |points: &[(f64, u64)], tail| Variable { points: points.to_vec(), tail }.fault();
        let tail = |alpha| Some(Tail { alpha, most: 100 });
        assert_eq!(of(&[(0.0, 1), (1.0, 1)], None), None);
        assert_eq!(of(&[(0.0, 1), (0.9, 5)], tail(1.5)), None);
        assert!(of(&[], None).is_some());
        assert!(of(&[(0.0, 1), (0.9, 5)], None).is_some());
        assert!(of(&[(0.0, 1), (1.0, 5)], tail(1.5)).is_some());
        assert!(of(&[(0.0, 9), (1.0, 5)], None).is_some());
        assert!(of(&[(0.0, 1), (f64::NAN, 5), (1.0, 5)], None).is_some());
        assert!(of(&[(0.0, 1), (0.9, 5)], tail(f64::NAN)).is_some());
        assert!(of(&[(0.0, 1), (0.9, 500)], tail(1.5)).is_some());
    }
}
