//! Whether one quantity grows with another, by ranks: a few huge values decide nothing.
//! (Thesis §9: do larger files live longer?)

use super::distributions::student_two_sided;

/// Spearman's rank correlation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RankCorrelation {
    /// From −1 to 1.
    pub correlation: f64,
    /// How likely one so far from 0 is by chance, by Student's t: from some ten pairs on.
    pub p_value: f64,
    /// How many pairs.
    pub pairs: usize,
}

/// Of pairs without a value that is no number. None for fewer than three of them, or if one side is constant.
pub fn spearman(pairs: &[(f64, f64)]) -> Option<RankCorrelation> {
    if pairs.len() < 3 {
        return None;
    }
    let one = mean_ranks(pairs.len(), |pair| pairs[pair].0);
    let other = mean_ranks(pairs.len(), |pair| pairs[pair].1);
    let mean = (pairs.len() + 1) as f64 / 2.0;
    let (mut xx, mut xy, mut yy) = (0.0, 0.0, 0.0);
    for (x, y) in one.into_iter().zip(other) {
        let (x, y) = (x - mean, y - mean);
        xx += x * x;
        xy += x * y;
        yy += y * y;
    }
    if xx == 0.0 || yy == 0.0 {
        return None;
    }
    let correlation = (xy / (xx * yy).sqrt()).clamp(-1.0, 1.0);
    let degrees = (pairs.len() - 2) as f64;
    let unexplained = 1.0 - correlation * correlation;
    let p_value = if unexplained > 0.0 {
        student_two_sided(correlation * (degrees / unexplained).sqrt(), degrees)
    } else {
        0.0
    };
    Some(RankCorrelation { correlation, p_value, pairs: pairs.len() })
}

/// Each value's rank; equal values share the mean of theirs.
fn mean_ranks(count: usize, value: impl Fn(usize) -> f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_unstable_by(|one, other| value(*one).total_cmp(&value(*other)));
    let mut ranks = vec![0.0; count];
    let mut start = 0;
    for group in order.chunk_by(|one, other| value(*one) == value(*other)) {
        let rank = start as f64 + (group.len() + 1) as f64 / 2.0;
        group.iter().for_each(|pair| ranks[*pair] = rank);
        start += group.len();
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_alone_count() {
        let growing: Vec<_> = (0..20).map(|i| (f64::from(i), f64::from(i).exp())).collect();
        assert_eq!(spearman(&growing).expect("a correlation").correlation, 1.0);
        let falling: Vec<_> = growing.iter().map(|(x, y)| (*x, -y)).collect();
        assert_eq!(spearman(&falling).expect("a correlation").correlation, -1.0);
    }

    #[test]
    fn ties_share_their_ranks() {
        assert_eq!(mean_ranks(5, |i| [3.0, 1.0, 3.0, 3.0, 0.0][i]), [4.0, 2.0, 4.0, 4.0, 1.0]);
        // Ranks 1, 2.5, 2.5, 4 beside 1, 3, 2, 4: 4.5 / √(4.5 · 5).
        let found = spearman(&[(1.0, 1.0), (2.0, 3.0), (2.0, 2.0), (9.0, 4.0)]).expect("a correlation");
        assert!((found.correlation - 4.5 / 22.5_f64.sqrt()).abs() < 1e-14, "{found:?}");
    }

    #[test]
    fn nothing_of_nothing() {
        assert_eq!(spearman(&[(1.0, 2.0), (2.0, 1.0)]), None);
        assert_eq!(spearman(&[(1.0, 2.0), (1.0, 1.0), (1.0, 3.0)]), None);
    }
}
