//! The frame of a fuzz test: what it mutates, its crate knows.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use std::vec::Vec;
use std::{eprintln, println};

use crate::Dice;

/// One test's random numbers and its time. If the test fails, its seed is said.
#[derive(Debug)]
pub struct Fuzz {
    seed: u64,
    until: Instant,
    rounds: u64,
    /// All that the test draws by chance comes from these.
    pub dice: Dice,
}

impl Fuzz {
    /// For a test of this name, which has so many seconds, or as many as `COMB_FUZZ_SECONDS` says. `COMB_FUZZ_SEED` replays one.
    pub fn start(test: &str, seconds: u64) -> Self {
        let from = |variable: &str| {
            let text = std::env::var(variable).ok()?;
            Some(text.parse::<u64>().unwrap_or_else(|_| panic!("{variable} is a number, and not {text:?}")))
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let seed = from("COMB_FUZZ_SEED").unwrap_or(u64::from(now.subsec_nanos()) + now.as_secs());
        let seconds = Duration::from_secs(from("COMB_FUZZ_SECONDS").unwrap_or(seconds));
        println!("{test}: COMB_FUZZ_SEED={seed}");
        Self { seed, until: Instant::now() + seconds, rounds: 0, dice: Dice::new(seed) }
    }

    /// Whether there is time for another round. There is for one.
    pub fn goes_on(&mut self) -> bool {
        self.rounds += 1;
        self.rounds == 1 || Instant::now() < self.until
    }

    /// Changes bytes here and there: turned over, cut off, doubled, taken out, with numbers as large as can be.
    pub fn mutate(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..1 + self.dice.below(3) {
            let at = self.dice.index(bytes.len() + 1);
            match self.dice.below(8) {
                0 | 1 if at < bytes.len() => bytes[at] ^= 1 << self.dice.below(8),
                2 if at < bytes.len() => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][self.dice.index(5)],
                3 => bytes.truncate(at),
                4 => {
                    let piece = bytes[at..(at + self.dice.index(20)).min(bytes.len())].to_vec();
                    drop(bytes.splice(at..at, piece));
                }
                5 => drop(bytes.drain(at..(at + self.dice.index(9)).min(bytes.len()))),
                6 => drop(bytes.splice(at..at, [0xff; 9].into_iter().chain([1]))),
                _ => bytes.push(self.dice.roll().to_le_bytes()[0]),
            }
        }
    }
}

impl Drop for Fuzz {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failed in round {} with COMB_FUZZ_SEED={}", self.rounds, self.seed);
        } else {
            println!("{} rounds", self.rounds);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_mutates_in_one_way() {
        let mutated = |seed| {
            let mut fuzz = Fuzz { seed, until: Instant::now(), rounds: 0, dice: Dice::new(seed) };
            let mut bytes: Vec<u8> = (0..100).collect();
            (0..50).for_each(|_| fuzz.mutate(&mut bytes));
            bytes
        };
        assert_eq!(mutated(7), mutated(7));
        assert_ne!(mutated(7), mutated(8));
    }

    #[test]
    fn there_is_a_round_even_without_time() {
        let mut fuzz = Fuzz { seed: 1, until: Instant::now(), rounds: 0, dice: Dice::new(1) };
        assert!(fuzz.goes_on());
        assert!(!fuzz.goes_on());
    }
}
