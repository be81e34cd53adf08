//! For how many rounds must a message be gossiped so that it almost certainly reaches all?

/// Beyond so many members the exact chain costs too much, and chance evens out anyhow.
const MOST_EXACT: u32 = 128;

/// A bound that no sensible network needs; it ends the search if nothing at all gets through.
const MOST_ROUNDS: u32 = 10_000;

/// The rounds after which the probability that some member lacks a message is below `epsilon`, if each message between two
/// members is lost with the probability `loss`.
///
/// The number of members that have the message is a Markov chain. The first sending reaches each of the n − 1 others with
/// probability 1 − loss. In each round every member that lacks it tells `fanout` others, chosen at random, what it has; if
/// one of them, of whom k have the message, hears that and its answer is not lost, it has it too:
///
/// ```text
/// got(k) = 1 − (1 − (1 − loss)² · k / (n − 1))^fanout          k' = k + Binomial(n − k, got(k))
/// ```
///
/// The answer is the first round r with P(k_r < n) < epsilon. What members who have it offer to those who lack it is not
/// counted, so the truth is better. For more than 128 members the mean is taken, u' = u · (1 − got), from half of those
/// that the first sending reaches, until n · u < epsilon.
///
/// # Panics
/// Unless `loss` lies in [0, 1) and `epsilon` in (0, 1).
pub fn rounds(members: u32, fanout: u32, loss: f64, epsilon: f64) -> u32 {
    assert!(
        (0.0..1.0).contains(&loss) && epsilon > 0.0 && epsilon < 1.0,
        "probabilities that mean something"
    );
    if members < 2 {
        return 0;
    }
    let chance = Chance { members, fanout, answered: (1.0 - loss) * (1.0 - loss) };
    if members <= MOST_EXACT {
        chance.exact(1.0 - loss, epsilon)
    } else {
        chance.in_the_mean(1.0 - loss, epsilon)
    }
}

struct Chance {
    members: u32,
    fanout: u32,
    answered: f64,
}

impl Chance {
    /// That a member gets it in one round, if so many of the others have it.
    fn got(&self, having: f64) -> f64 {
        let not = 1.0 - self.answered * having / f64::from(self.members - 1);
        1.0 - power(not, self.fanout)
    }

    fn exact(&self, reached: f64, epsilon: f64) -> u32 {
        let n = self.members as usize;
        // Index: how many others than the sender have it.
        let mut spread = alloc::vec![0.0; n];
        binomial(self.members - 1, reached, |more, chance| spread[more as usize] += chance);
        for round in 0..MOST_ROUNDS {
            if 1.0 - spread[n - 1] < epsilon {
                return round;
            }
            let mut next = alloc::vec![0.0; n];
            for (others, &likely) in (0..self.members).zip(&spread) {
                if likely > 0.0 {
                    let got = self.got(f64::from(others + 1));
                    binomial(self.members - 1 - others, got, |more, chance| {
                        next[(others + more) as usize] += likely * chance;
                    });
                }
            }
            spread = next;
        }
        MOST_ROUNDS
    }

    fn in_the_mean(&self, reached: f64, epsilon: f64) -> u32 {
        let n = f64::from(self.members);
        let mut lacking = 1.0 - reached / 2.0;
        for round in 0..MOST_ROUNDS {
            if n * lacking < epsilon {
                return round;
            }
            lacking *= 1.0 - self.got((1.0 - lacking) * (n - 1.0));
        }
        MOST_ROUNDS
    }
}

fn power(base: f64, exponent: u32) -> f64 {
    (0..exponent).fold(1.0, |product, _| product * base)
}

/// Hands over how likely each number of successes is. It starts at the likelier end: the other may be too small for a number.
fn binomial(trials: u32, success: f64, mut each: impl FnMut(u32, f64)) {
    if success >= 1.0 {
        return each(trials, 1.0);
    }
    let is_likely = success > 0.5;
    let (one, other) = if is_likely { (1.0 - success, success) } else { (success, 1.0 - success) };
    let mut chance = power(other, trials);
    for count in 0..=trials {
        each(if is_likely { trials - count } else { count }, chance);
        chance *= f64::from(trials - count) / f64::from(count + 1) * one / other;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_round_is_needed_where_nothing_is_lost() {
        assert_eq!(rounds(50, 1, 0.0, 1e-9), 0);
        assert_eq!(rounds(1, 1, 0.5, 1e-9), 0);
    }

    #[test]
    fn two_members_are_counted_by_hand() {
        // The other lacks it after r rounds with 0.5 · (1 − 0.25)^r: below 0.1 for the first time at 6.
        assert_eq!(rounds(2, 1, 0.5, 0.1), 6);
        // Two requests a round are two rounds in one.
        assert_eq!(rounds(2, 2, 0.5, 0.1), 3);
    }

    #[test]
    fn the_chances_of_all_counts_sum_to_one() {
        for success in [0.0, 0.001, 0.3, 0.5, 0.7, 0.999, 1.0] {
            let mut sum = 0.0;
            binomial(127, success, |_, chance| sum += chance);
            assert!((sum - 1.0).abs() < 1e-9, "{success}: {sum}");
        }
    }

    #[test]
    fn more_loss_more_members_and_more_certainty_cost_rounds_and_fanout_saves_them() {
        let base = rounds(32, 2, 0.25, 1e-3);
        assert!(rounds(32, 2, 0.75, 1e-3) > 2 * base);
        assert!(rounds(32, 2, 0.25, 1e-6) > base);
        assert!(rounds(128, 2, 0.25, 1e-3) > base);
        assert!(rounds(32, 4, 0.25, 1e-3) < base);
    }

    #[test]
    fn the_mean_is_no_less_careful_than_the_chain() {
        for loss in [0.25, 0.5, 0.75] {
            let (chain, mean) = (rounds(128, 2, loss, 1e-3), rounds(129, 2, loss, 1e-3));
            assert!(mean >= chain && mean <= chain + 12, "{loss}: {chain} {mean}");
        }
    }
}
