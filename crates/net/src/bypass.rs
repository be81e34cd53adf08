//! Whether the payloads of a stream are written through the cache or past it.
//!
//! A line that the reader had last is first taken from its cache, and fetched back from ours when it is read. Between
//! cores that share no cache that is all there is to the time of a stream: 1.4 GB/s here. Stores past the cache take
//! nothing, and what they wrote is read from memory: 7 GB/s. Between the two threads of one core the same stores are half
//! as fast as ordinary ones. Which it is, only a clock can tell, and a virtual machine's cores move: so every now and
//! then a payload is copied through the cache and timed.

use std::time::{Duration, Instant};

use crate::copy;
use crate::segment::SharedRange;

/// Payloads from one measurement to the next.
const PAYLOADS_BETWEEN_LOOKS: u32 = 64;
/// What a line costs to be written when it has to come from a core far away: 15 to 30 ns here; 3 to 8 from a near one.
const FAR_LINE: Duration = Duration::from_nanos(11);
/// Below, the fence after such stores costs more than they save.
const LEAST_BYTES: usize = 512;

/// How payloads of one channel are written.
#[derive(Debug, Default)]
pub(crate) struct Bypass {
    is_on: bool,
    /// Payloads until the next measurement.
    left: u32,
}

/// How the next payload is to be written.
#[derive(Debug)]
pub(crate) enum Way {
    ThroughCache,
    PastCache,
    /// Through the cache; say when it is done ([`Bypass::learn`]).
    Timed(Instant),
}

impl Bypass {
    /// For a payload of so many bytes.
    #[inline]
    pub(crate) fn way(&mut self, bytes: usize) -> Way {
        if bytes < LEAST_BYTES {
            return Way::ThroughCache;
        }
        if self.left == 0 {
            return Way::Timed(Instant::now());
        }
        self.left -= 1;
        if self.is_on { Way::PastCache } else { Way::ThroughCache }
    }

    /// Copies a payload that is in one piece.
    #[inline]
    pub(crate) fn copy(&mut self, to: &SharedRange<'_>, from: &[u8]) {
        match self.way(from.len()) {
            Way::ThroughCache => to.copy_from(from),
            Way::PastCache => {
                to.copy_from_past_cache(from);
                copy::settle();
            }
            Way::Timed(started) => {
                to.copy_from(from);
                self.learn(from.len(), started.elapsed());
            }
        }
    }

    /// That is how long one took that was to be timed.
    #[cold]
    pub(crate) fn learn(&mut self, bytes: usize, took: Duration) {
        let lines = u32::try_from(bytes / 64).unwrap_or(u32::MAX);
        self.is_on = took > FAR_LINE.saturating_mul(lines);
        self.left = PAYLOADS_BETWEEN_LOOKS;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_go_past_the_cache_from_one_slow_copy_to_the_next_that_is_measured() {
        let mut bypass = Bypass::default();
        for (line_ns, is_on) in [(30, true), (5, false), (30, true)] {
            assert!(matches!(bypass.way(4096), Way::Timed(_)));
            bypass.learn(4096, Duration::from_nanos(64 * line_ns));
            for _ in 0..PAYLOADS_BETWEEN_LOOKS {
                assert_eq!(matches!(bypass.way(4096), Way::PastCache), is_on);
            }
        }
    }

    #[test]
    fn short_payloads_go_through_the_cache_and_are_not_measured() {
        let mut bypass = Bypass::default();
        assert!(matches!(bypass.way(511), Way::ThroughCache));
        bypass.learn(4096, Duration::from_secs(1));
        assert!(matches!(bypass.way(511), Way::ThroughCache));
        assert!(matches!(bypass.way(512), Way::PastCache));
    }
}
