//! The distance of Kolmogorov and Smirnov between a sample and a fit, without looking at every value.

/// A fit that is far from the sample shows it at a few values.
const FIRST_LOOK: usize = 128;

/// The largest difference of `fitted` from `below` over so many distinct values, if it is at most `limit`. Both rise with the value: `fitted` is the
/// fit's P\[X < x\], `below` the fraction of the sample that is smaller.
///
/// Between two values neither can leave the range of its ends. What lies between them is looked at only where it could exceed the largest
/// difference so far, so that ten million values are compared at some ten thousand of them, and the result is exact.
pub(super) fn distance(
    values: usize,
    fitted: impl Fn(usize) -> f64,
    below: impl Fn(usize) -> f64,
    limit: f64,
) -> Option<f64> {
    let look = |at: usize| Look { at, fitted: fitted(at), below: below(at) };
    let last = values.checked_sub(1)?;
    let stride = (values / FIRST_LOOK).max(1);
    let ends: Vec<Look> = (0..last).step_by(stride).chain([last]).map(look).collect();
    let mut largest = ends.iter().map(Look::difference).fold(0.0, f64::max);
    let mut between: Vec<(Look, Look)> = ends.windows(2).map(|pair| (pair[0], pair[1])).collect();
    while largest <= limit {
        let Some((low, high)) = between.pop() else { return Some(largest) };
        let possible = (high.fitted - low.below).max(high.below - low.fitted);
        if high.at - low.at > 1 && possible > largest {
            let middle = look(low.at.midpoint(high.at));
            largest = largest.max(middle.difference());
            between.extend([(low, middle), (middle, high)]);
        }
    }
    None
}

#[derive(Clone, Copy)]
struct Look {
    at: usize,
    fitted: f64,
    below: f64,
}

impl Look {
    fn difference(&self) -> f64 {
        (self.fitted - self.below).abs()
    }
}

#[cfg(test)]
mod tests {
    use super::super::distributions::uniform;
    use super::*;
    use comb_types::Dice;
    use std::cell::Cell;

    #[test]
    fn few_looks_find_what_all_would() {
        let mut dice = Dice::new(1);
        let mut values: Vec<f64> = (0..100_000).map(|_| uniform(&mut dice)).collect();
        values.sort_unstable_by(f64::total_cmp);
        let looks = Cell::new(0);
        for power in [1.0, 1.001, 1.1, 3.0] {
            let fitted = |at: usize| {
                looks.set(looks.get() + 1);
                values[at].powf(power)
            };
            let below = |at: usize| at as f64 / 100_000.0;
            let all = (0..100_000).map(|at| (values[at].powf(power) - below(at)).abs()).fold(0.0, f64::max);
            assert_eq!(distance(100_000, fitted, below, 1.0), Some(all), "{power}");
            assert_eq!(distance(100_000, fitted, below, all), Some(all), "{power}");
            assert_eq!(distance(100_000, fitted, below, all * 0.999_999), None, "{power}");
        }
        assert!(looks.get() < 60_000, "{}", looks.get());
        assert_eq!(distance(0, |_| 0.0, |_| 0.0, 1.0), None);
        assert_eq!(distance(1, |_| 0.25, |_| 0.0, 1.0), Some(0.25));
    }
}
