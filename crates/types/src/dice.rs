//! Random numbers by seed.

use core::ops::Range;
use core::time::Duration;

/// A sequence of random numbers that depends on its seed alone. Protocols are handed one by their driver: a simulation
/// seeds it with the run's seed, a real node with what the kernel gives.
///
/// SplitMix64: every seed is a good one, and it is five lines. It keeps no secrets.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// The sequence of this seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Any number.
    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// A number below `limit`, each as likely as any other to one part in 2³². Panics if `limit` is 0.
    pub fn below(&mut self, limit: u32) -> u32 {
        assert!(limit > 0, "no number is below 0");
        (((self.roll() >> 32) * u64::from(limit)) >> 32) as u32
    }

    /// An index into something of so many entries, which is not empty.
    pub fn index(&mut self, entries: usize) -> usize {
        self.below(u32::try_from(entries).unwrap_or(u32::MAX)) as usize
    }

    /// Whether something happens that happens so many times in a million.
    pub fn happens(&mut self, per_million: u32) -> bool {
        per_million > 0 && self.below(1_000_000) < per_million
    }

    /// A time in the range, its end excluded; its start if it is empty.
    pub fn between(&mut self, range: Range<Duration>) -> Duration {
        let span = range.end.saturating_sub(range.start).as_nanos();
        let nanos = (u128::from(self.roll()) * span) >> 64;
        range.start + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Another sequence, as independent of this as two seeds are.
    pub fn fork(&mut self) -> Self {
        Self(self.roll())
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;

    #[test]
    fn one_seed_is_one_sequence_and_another_seed_another() {
        let rolls = |seed| std::array::from_fn::<_, 8, _>(|_| Dice::new(seed).roll());
        assert_eq!(rolls(7), rolls(7));
        assert_ne!(rolls(7), rolls(8));
    }

    #[test]
    fn numbers_are_spread_evenly_over_their_range() {
        let mut dice = Dice::new(1);
        let mut counts = [0_u32; 10];
        (0..10_000).for_each(|_| counts[dice.index(10)] += 1);
        assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
    }

    #[test]
    fn what_never_and_what_always_happens() {
        let mut dice = Dice::new(2);
        assert!((0..1000).all(|_| !dice.happens(0) && dice.happens(1_000_000)));
        let often = (0..10_000).filter(|_| dice.happens(250_000)).count();
        assert!((2300..2700).contains(&often), "{often}");
    }

    #[test]
    fn times_stay_in_their_range() {
        let mut dice = Dice::new(3);
        let (start, end) = (Duration::from_millis(3), Duration::from_millis(5));
        assert!((0..1000).map(|_| dice.between(start..end)).all(|time| time >= start && time < end));
        assert_eq!(dice.between(start..start), start);
        assert_eq!(dice.between(end..start), end, "an empty range");
    }
}
