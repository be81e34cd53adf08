//! Whole numbers that are spaced evenly on a logarithmic axis.
//!
//! A tail is looked at from every distance: at its last hundred values, its last thousand, and so on. A rank for each value would be as dear as
//! the sample, and nearly all of them would lie in the body.

/// At most `limit` whole numbers from `first` to `last`, both among them, each larger than the one before by about the same factor.
pub(super) fn ladder(first: usize, last: usize, limit: usize) -> Vec<usize> {
    if first > last || limit == 0 {
        return Vec::new();
    }
    if last - first < limit {
        return (first..=last).collect();
    }
    if limit == 1 {
        return vec![last];
    }
    let (low, high) = ((first.max(1) as f64).ln(), (last.max(1) as f64).ln());
    let step = (high - low) / (limit - 1) as f64;
    let mut rungs: Vec<usize> = (0..limit).map(|rung| nearest((low + step * rung as f64).exp())).collect();
    rungs[0] = first;
    rungs[limit - 1] = last;
    rungs.dedup();
    rungs
}

/// The nearest whole number; 0 for what is below it, or is none.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "such a cast saturates")]
pub(super) fn nearest(x: f64) -> usize {
    x.round() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_are_among_them_and_none_twice() {
        let rungs = ladder(1, 1_000_000, 100);
        assert_eq!((rungs[0], rungs[rungs.len() - 1]), (1, 1_000_000));
        assert!(rungs.len() <= 100 && rungs.is_sorted_by(|a, b| a < b), "{rungs:?}");
        let (early, late) = (rungs.iter().filter(|rung| **rung <= 1000).count(), rungs.len());
        assert!(2 * early > late - 20, "half of the axis, nearly half of the rungs: {early} of {late}");
    }

    #[test]
    fn short_ladders() {
        assert_eq!(ladder(5, 5, 10), [5]);
        assert!(ladder(6, 5, 10).is_empty());
        assert_eq!(ladder(1, 3, 10), [1, 2, 3]);
        assert_eq!(ladder(1, 9, 1), [9]);
        assert_eq!(nearest(-3.0), 0);
    }
}
