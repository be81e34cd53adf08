//! How often files are opened again: which process of Pitman and Yor has as many files, and as many that were opened once.

use super::super::model::Reuse;
use crate::statistics::distributions::log_gamma;

/// Halvings of a range: more than a number has digits.
const HALVINGS: u32 = 60;

/// Where the discount can be: at its ends the process is another one.
const DISCOUNTS: (f64, f64) = (0.01, 0.99);

/// And the logarithm of the strength.
const LOG_STRENGTHS: (f64, f64) = (-10.0, 25.0);

/// Of how often each file was opened.
pub(super) fn of(opens_by_file: impl Iterator<Item = u64>) -> Reuse {
    let (mut opens, mut files, mut once) = (0.0, 0.0, 0.0);
    for of_file in opens_by_file {
        opens += of_file as f64;
        files += 1.0;
        once += if of_file == 1 { 1.0 } else { 0.0 };
    }
    let discount = between(DISCOUNTS, |discount| {
        let strength = strength_for(discount, opens, files);
        expected_once(Reuse { discount, strength }, opens) < once
    });
    Reuse { discount, strength: strength_for(discount, opens, files) }
}

/// With which there are as many files among so many opens.
fn strength_for(discount: f64, opens: f64, files: f64) -> f64 {
    between(LOG_STRENGTHS, |log| expected_files(Reuse { discount, strength: log.exp() }, opens) < files).exp()
}

/// Where something that grows is no longer too small.
fn between(range: (f64, f64), is_too_small: impl Fn(f64) -> bool) -> f64 {
    let (mut low, mut high) = range;
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(low, high);
        if is_too_small(middle) { low = middle } else { high = middle }
    }
    f64::midpoint(low, high)
}

fn expected_files(Reuse { discount, strength }: Reuse, opens: f64) -> f64 {
    let of_all = log_gamma(strength + opens + discount) - log_gamma(strength + opens);
    let of_first = log_gamma(strength + discount) - log_gamma(strength + 1.0);
    ((of_all - of_first).exp() - strength) / discount
}

/// Each open is of a file of its own if none after it joins it; they are exchangeable.
fn expected_once(Reuse { discount, strength }: Reuse, opens: f64) -> f64 {
    let of_all = log_gamma(strength + opens - 1.0 + discount) - log_gamma(strength + opens);
    let of_first = log_gamma(strength + discount) - log_gamma(strength + 1.0);
    opens * (of_all - of_first).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_is_found_by_what_it_makes() {
        for (discount, strength) in [(0.3, 10.0), (0.68, 100.0), (0.5, 1000.0)] {
            let reuse = Reuse { discount, strength };
            let opens = 20_000.0;
            let (files, once) = (expected_files(reuse, opens), expected_once(reuse, opens));
            assert!(once < files && files < opens, "{files} {once}");
            let found = between(DISCOUNTS, |discount| {
                let strength = strength_for(discount, opens, files);
                expected_once(Reuse { discount, strength }, opens) < once
            });
            assert!((found - discount).abs() < 0.02, "{found} {discount}");
        }
    }

    #[test]
    fn what_says_nothing_is_still_a_process() {
        for opens in [&[][..], &[1], &[5], &[1, 1, 1], &[1000, 1000]] {
            let Reuse { discount, strength } = of(opens.iter().copied());
            assert!((0.0..1.0).contains(&discount) && strength.is_finite(), "{opens:?}");
        }
    }
}
