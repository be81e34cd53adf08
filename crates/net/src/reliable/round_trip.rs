//! How long to wait before sending again.

use super::Config;
use std::time::Duration;

/// A running estimate of the round trip and its spread, and the timeout that follows. (Jacobson's estimator
/// as RFC 6298 §2 writes it down)
#[derive(Debug)]
pub(super) struct RoundTrip {
    smoothed: Option<Duration>,
    spread: Duration,
    first: Duration,
    shortest: Duration,
    longest: Duration,
    /// How often the present timeout has been doubled.
    doublings: u32,
}

impl RoundTrip {
    pub(super) fn new(config: &Config) -> RoundTrip {
        RoundTrip {
            smoothed: None,
            spread: Duration::ZERO,
            first: config.first_timeout,
            shortest: config.shortest_timeout,
            longest: config.longest_timeout,
            doublings: 0,
        }
    }

    /// Takes in one measured round trip. The caller obeys Karn's rule: a message that was sent twice measures
    /// nothing, since nobody knows which sending was acknowledged.
    pub(super) fn measured(&mut self, round_trip: Duration) {
        let smoothed = match self.smoothed {
            None => {
                self.spread = round_trip / 2;
                round_trip
            }
            Some(smoothed) => {
                self.spread = (self.spread * 3 + smoothed.abs_diff(round_trip)) / 4;
                (smoothed * 7 + round_trip) / 8
            }
        };
        self.smoothed = Some(smoothed);
        // Only now: until something measures again, the doubled timeout stays. If it fell back with any
        // progress, a path slower than the estimate would have every message sent twice, measure nothing, and
        // never be recognised as slow. (Karn's rule, second half)
        self.doublings = 0;
    }

    /// The timer ran out: ask half as often. A path that is down or overloaded is not helped by asking.
    pub(super) fn back_off(&mut self) {
        self.doublings = self.doublings.saturating_add(1);
    }

    pub(super) fn timeout(&self) -> Duration {
        let patient = match self.smoothed {
            None => self.first,
            Some(smoothed) => (smoothed + self.spread * 4).max(self.shortest),
        };
        patient.saturating_mul(1u32.checked_shl(self.doublings).unwrap_or(u32::MAX)).min(self.longest)
    }

    pub(super) fn smoothed(&self) -> Option<Duration> {
        self.smoothed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn micros(micros: u64) -> Duration {
        Duration::from_micros(micros)
    }

    fn estimate() -> RoundTrip {
        RoundTrip::new(&Config {
            first_timeout: micros(1000),
            shortest_timeout: micros(500),
            longest_timeout: micros(6000),
            ..Config::default()
        })
    }

    #[test]
    fn follows_the_path() {
        let mut estimate = estimate();
        assert_eq!(estimate.timeout(), micros(1000), "nothing measured yet");
        estimate.measured(micros(400));
        assert_eq!((estimate.smoothed(), estimate.timeout()), (Some(micros(400)), micros(1200)));
        estimate.measured(micros(1200));
        // Spread (3 × 200 + 800) / 4 = 350, smoothed (7 × 400 + 1200) / 8 = 500.
        assert_eq!((estimate.smoothed(), estimate.timeout()), (Some(micros(500)), micros(1900)));
    }

    #[test]
    fn stays_within_bounds() {
        let mut estimate = estimate();
        (0..100).for_each(|_| estimate.measured(micros(10)));
        assert_eq!(estimate.timeout(), micros(500));
        (0..100).for_each(|_| estimate.measured(micros(100_000)));
        assert_eq!(estimate.timeout(), micros(6000));
    }

    #[test]
    fn doubles_until_something_is_measured() {
        let mut estimate = estimate();
        let doubled: Vec<Duration> = std::iter::repeat_with(|| {
            estimate.back_off();
            estimate.timeout()
        })
        .take(4)
        .collect();
        assert_eq!(doubled, [2000, 4000, 6000, 6000].map(micros));
        (0..100).for_each(|_| estimate.back_off());
        assert_eq!(estimate.timeout(), micros(6000), "even after more doublings than a number has bits");
        estimate.measured(micros(400));
        assert_eq!(estimate.timeout(), micros(1200));
    }
}
