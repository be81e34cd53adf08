//! Whether the payloads of a stream are written through the cache or past it.
//!
//! A line that the reader had last is first taken from its cache, and fetched back from ours when it is read. Between
//! cores that share no cache that is all there is to the time of a stream: 1.4 GB/s here. Stores past the cache take
//! nothing, and what they wrote is read from memory: 7 GB/s. Between the two threads of one core the same stores are half
//! as fast as ordinary ones. Which it is, only a clock can tell, and a virtual machine's cores move. How long the copy
//! alone takes tells little: it depends on where the last ones were read. So both ways are tried by turns, each timed from
//! one payload to the next, with all that lies between; the faster one is kept for a while.

use std::time::Instant;

use crate::copy;
use crate::segment::SharedRange;

/// Payloads of one attempt: several times as many as are under way of the attempt before.
const ATTEMPT_PAYLOADS: u32 = 32;
/// Attempts of a trial, by turns. Two of each way: the better one counts, so that a pause in one does no harm.
const ATTEMPTS: u32 = 4;
/// Payloads from one trial to the next.
const KEPT_PAYLOADS: u32 = 1024;
/// Below, the fence after such stores costs more than they save.
const LEAST_BYTES: usize = 512;

/// How the longer payloads of one channel are written.
#[derive(Debug)]
pub(crate) struct Bypass {
    is_on: bool,
    /// Payloads until the next turn.
    left: u32,
    /// The attempt that is under way; [`ATTEMPTS`]: none, the faster way is kept.
    attempt: u32,
    started: Option<Instant>,
    /// Bytes of this attempt.
    bytes: u64,
    /// The shortest time for a byte, in picoseconds: through the cache, and past it.
    best: [u64; 2],
}

impl Default for Bypass {
    fn default() -> Self {
        Self { is_on: false, left: 0, attempt: ATTEMPTS, started: None, bytes: 0, best: [u64::MAX; 2] }
    }
}

impl Bypass {
    /// Whether the next payload, of so many bytes, goes past the cache.
    #[inline]
    pub(crate) fn is_on(&mut self, bytes: usize) -> bool {
        if bytes < LEAST_BYTES {
            return false;
        }
        if self.left == 0 {
            self.turn(Instant::now());
        }
        self.left -= 1;
        self.bytes += bytes as u64;
        self.is_on
    }

    /// Whether the last payload of some length went past the cache.
    #[inline]
    pub(crate) fn was_on(&self) -> bool {
        self.is_on
    }

    /// Copies a payload that is in one piece.
    #[inline]
    pub(crate) fn copy(&mut self, to: &SharedRange<'_>, from: &[u8]) {
        if self.is_on(from.len()) {
            to.copy_from_past_cache(from);
            copy::settle();
        } else {
            to.copy_from(from);
        }
    }

    /// Ends an attempt, or what was kept, and begins the next.
    #[cold]
    fn turn(&mut self, now: Instant) {
        if self.attempt < ATTEMPTS {
            let started = self.started.expect("an attempt begins with a look at the clock");
            let took = u64::try_from(now.saturating_duration_since(started).as_nanos()).unwrap_or(u64::MAX);
            let best = &mut self.best[usize::from(self.is_on)];
            *best = (*best).min(took.saturating_mul(1000) / self.bytes.max(1));
            self.attempt += 1;
        } else {
            (self.attempt, self.best) = (0, [u64::MAX; 2]);
        }
        (self.started, self.bytes) = (Some(now), 0);
        (self.is_on, self.left) = if self.attempt < ATTEMPTS {
            (!self.attempt.is_multiple_of(2), ATTEMPT_PAYLOADS)
        } else {
            // Where both are about as fast the cache is left in peace: what is written past it costs memory's time, too.
            (self.best[1] < self.best[0] / 8 * 7, KEPT_PAYLOADS)
        };
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// A trial in which each attempt takes so many microseconds; what is kept after it.
    fn after_trial(bypass: &mut Bypass, took_us: [u64; 4]) -> bool {
        let mut now = Instant::now();
        let payloads = |bypass: &mut Bypass| {
            bypass.bytes = 4096 * u64::from(bypass.left);
            bypass.left = 0;
        };
        bypass.turn(now);
        for (attempt, took) in took_us.into_iter().enumerate() {
            assert_eq!((bypass.is_on, bypass.left), (attempt % 2 == 1, ATTEMPT_PAYLOADS), "by turns");
            payloads(bypass);
            now += Duration::from_micros(took);
            bypass.turn(now);
        }
        assert_eq!(bypass.left, KEPT_PAYLOADS);
        payloads(bypass);
        bypass.is_on
    }

    #[test]
    fn the_faster_way_is_kept_until_the_next_trial() {
        let mut bypass = Bypass::default();
        assert!(after_trial(&mut bypass, [60, 20, 60, 20]), "far");
        assert!(!after_trial(&mut bypass, [10, 20, 10, 20]), "near");
        assert!(after_trial(&mut bypass, [60, 20, 60, 20]), "the cores moved");
        assert!(!after_trial(&mut bypass, [21, 20, 21, 20]), "as good as equal");
    }

    #[test]
    fn a_pause_in_one_attempt_does_no_harm() {
        let mut bypass = Bypass::default();
        assert!(after_trial(&mut bypass, [60, 1_000_000, 60, 20]));
        assert!(!after_trial(&mut bypass, [1_000_000, 20, 10, 20]));
    }

    #[test]
    fn short_payloads_go_through_the_cache_and_are_not_counted() {
        let mut bypass = Bypass::default();
        for _ in 0..10 * KEPT_PAYLOADS {
            assert!(!bypass.is_on(511));
        }
        assert!(bypass.started.is_none());
        let on = (0..4 * ATTEMPT_PAYLOADS).filter(|_| bypass.is_on(512)).count();
        assert_eq!(on, 64, "half of a trial");
    }
}
