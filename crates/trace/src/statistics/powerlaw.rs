//! The likeliest Pareto tail, and where it starts: above the value from which on it is closest to the sample.
//! (Clauset, Shalizi and Newman, Power-law distributions in empirical data, 2009)

use super::kolmogorov;
use super::ladder::ladder;

/// Each of so many distinct values is tried as the tail's start. Of more, [`THINNED_STARTS`] are, from the largest value down, evenly spaced on a
/// logarithmic axis of ranks: neighbours differ by less than 2 % of their tail, and what is closest differs by less than chance.
const MOST_STARTS: usize = 10_000;
const THINNED_STARTS: usize = 1000;

/// A Pareto distribution fitted to a tail.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ParetoFit {
    /// The likeliest exponent of P\[X > x\]; that of the density is larger by 1.
    pub alpha: f64,
    /// Of the exponent: α/√n.
    pub standard_error: f64,
    /// Where the tail starts: its smallest value.
    pub x_min: f64,
    /// How many values are in it.
    pub tail_values: usize,
    /// The distance of Kolmogorov and Smirnov: the largest difference of the fit's P\[X < x\] from the tail's, over the tail's values.
    pub distance: f64,
}

impl ParetoFit {
    /// Of the values of at least `x_min`, above 0. None if they are fewer than two, or all one.
    pub fn above(ascending: &[f64], x_min: f64) -> Option<Self> {
        let start = ascending.partition_point(|value| *value < x_min);
        let tail = Tail::of(&ascending[start..], x_min)?;
        tail.fit(0, f64::INFINITY)
    }

    /// Above that value of the sample from which on the distance is smallest. Values that are not above 0 are left out. None if fewer than four
    /// distinct values are left: the last two are never a start, everything is close to two points.
    pub fn closest(ascending: &[f64]) -> Option<Self> {
        let positive = &ascending[ascending.partition_point(|value| *value <= 0.0)..];
        let tail = Tail::of(positive, *positive.first()?)?;
        let starts = tail.starts.len().checked_sub(2).filter(|starts| *starts >= 2)?;
        let ranks = ladder(1, starts, if starts > MOST_STARTS { THINNED_STARTS } else { starts });
        let tried = if starts > MOST_STARTS { ranks } else { (1..=starts).collect() };
        let mut best: Option<Self> = None;
        // From the largest start down, whose tails are the cheapest to compare.
        for rank in tried {
            let nearer = tail.fit(starts - rank, best.map_or(f64::INFINITY, |best| best.distance));
            // Of two that are as close, the one with more values.
            best = nearer.or(best);
        }
        best
    }
}

/// A tail that may start at any of its distinct values.
struct Tail<'a> {
    ascending: &'a [f64],
    /// ln x of each value, less that of `x_min`.
    logs: Vec<f64>,
    x_min: f64,
    /// Where each distinct value is first.
    starts: Vec<usize>,
    /// Of the logarithms of the values from each start on.
    sums: Vec<f64>,
}

impl<'a> Tail<'a> {
    fn of(ascending: &'a [f64], x_min: f64) -> Option<Self> {
        let (smallest, largest) = (*ascending.first()?, *ascending.last()?);
        if x_min <= 0.0 || smallest == largest {
            return None;
        }
        let logs: Vec<f64> = ascending.iter().map(|value| (value / x_min).ln()).collect();
        let distinct = |index: &usize| *index == 0 || ascending[*index - 1] < ascending[*index];
        let starts: Vec<usize> = (0..ascending.len()).filter(distinct).collect();
        let mut sums = vec![0.0; starts.len()];
        let (mut sum, mut end) = (0.0, ascending.len());
        for (start, total) in starts.iter().zip(&mut sums).rev() {
            sum += logs[*start] * (end - start) as f64;
            end = *start;
            *total = sum;
        }
        Some(Self { ascending, logs, x_min, starts, sums })
    }

    /// The tail from this distinct value on, if it is no farther away than `limit`.
    fn fit(&self, distinct: usize, limit: f64) -> Option<ParetoFit> {
        let first = self.starts[distinct];
        let count = self.ascending.len() - first;
        // The tail of `above` starts at its x_min, which need not be a value.
        let (start, x_min) =
            if distinct == 0 { (0.0, self.x_min) } else { (self.logs[first], self.ascending[first]) };
        let excess = self.sums[distinct] - start * count as f64;
        let alpha = count as f64 / excess;
        let distance = self.distance(distinct, start, alpha, limit).filter(|_| excess > 0.0)?;
        let standard_error = alpha / (count as f64).sqrt();
        Some(ParetoFit { alpha, standard_error, x_min, tail_values: count, distance })
    }

    fn distance(&self, distinct: usize, start: f64, alpha: f64, limit: f64) -> Option<f64> {
        let starts = &self.starts[distinct..];
        let count = (self.ascending.len() - starts[0]) as f64;
        let fitted = |value: usize| -(-alpha * (self.logs[starts[value]] - start)).exp_m1();
        let below = |value: usize| (starts[value] - starts[0]) as f64 / count;
        kolmogorov::distance(starts.len(), fitted, below, limit)
    }
}

#[cfg(test)]
mod tests {
    use super::super::distributions::{Lognormal, Pareto, Sampler};
    use super::super::sample::Sample;
    use super::*;
    use comb_types::Dice;

    fn pareto(alpha: f64, count: usize, seed: u64) -> Sample {
        let pareto = Pareto { alpha, x_min: 5.0, upper_bound: None };
        Sample::new(pareto.draw_many(count, &mut Dice::new(seed)))
    }

    #[test]
    fn the_fit_of_three_values_by_hand() {
        let fit = ParetoFit::above(&[1.0, 2.0, 4.0, 8.0], 2.0).expect("a fit");
        let alpha = 3.0 / (2.0_f64.ln() + 4.0_f64.ln());
        assert!((fit.alpha - alpha).abs() < 1e-14 && fit.tail_values == 3 && fit.x_min == 2.0, "{fit:?}");
        let differences = [1.0 - 2.0_f64.powf(-alpha) - 1.0 / 3.0, 1.0 - 4.0_f64.powf(-alpha) - 2.0 / 3.0];
        assert!((fit.distance - differences[0].abs().max(differences[1].abs())).abs() < 1e-14, "{fit:?}");
        assert_eq!(ParetoFit::above(&[3.0, 3.0], 1.0), None);
        assert_eq!(ParetoFit::closest(&[0.0, 1.0, 2.0, 3.0]), None);
    }

    #[test]
    fn alpha_is_found_in_pareto_samples() {
        for alpha in [1.2, 1.3, 1.4, 1.5, 1.6, 1.7] {
            let fit = ParetoFit::above(pareto(alpha, 10_000, 3).ascending(), 5.0).expect("a fit");
            assert!((fit.alpha - alpha).abs() < 0.07 && fit.distance < 0.012, "{alpha}: {fit:?}");
        }
    }

    #[test]
    fn a_pareto_tail_is_found_where_it_starts() {
        // A lognormal body below 30, and a tail of as many values above it.
        let body = Lognormal { mu: 2.0, sigma: 0.5 }.draw_many(5000, &mut Dice::new(1));
        let mut values: Vec<f64> = body.into_iter().filter(|value| *value < 30.0).collect();
        let tail = Pareto { alpha: 1.5, x_min: 30.0, upper_bound: None };
        values.extend(tail.draw_many(5000, &mut Dice::new(2)));
        let fit = ParetoFit::closest(Sample::new(values).ascending()).expect("a fit");
        assert!(fit.x_min > 29.0 && fit.x_min < 60.0 && (fit.alpha - 1.5).abs() < 0.1, "{fit:?}");
    }

    /// The same as trying every start at every value.
    #[test]
    fn giving_up_early_changes_nothing() {
        let coarse: Vec<f64> = pareto(1.3, 700, 8).ascending().iter().map(|value| value.round()).collect();
        for ascending in [pareto(1.3, 700, 7).ascending(), &coarse] {
            let all = ascending.iter().filter(|value| **value < ascending[ascending.len() - 3]);
            let distances =
                all.filter_map(|start| ParetoFit::above(ascending, *start)).map(|fit| fit.distance);
            let closest = ParetoFit::closest(ascending).expect("a fit");
            let smallest = distances.fold(f64::INFINITY, f64::min);
            assert!((closest.distance - smallest).abs() < 1e-12, "{closest:?} {smallest}");
        }
    }

    #[test]
    fn a_start_is_found_among_many_values_as_well() {
        let sample = pareto(1.4, 200_000, 5);
        let fit = ParetoFit::closest(sample.ascending()).expect("a fit");
        assert!((fit.alpha - 1.4).abs() < 0.05 && fit.tail_values > 1000, "{fit:?}");
        let again = ParetoFit::above(sample.ascending(), fit.x_min).expect("a fit");
        assert!((fit.alpha - again.alpha).abs() < 1e-9 && (fit.distance - again.distance).abs() < 1e-9);
    }
}
