//! A point in time, as protocols see it.

use core::fmt;
use core::time::Duration;

/// Nanoseconds since a moment that the driver chose when it started (boot, process start, second zero of a
/// simulation). Protocols are handed it and never ask a clock.
///
/// Two `Time`s compare only when one driver made both: another host counts from another moment, and what a
/// peer says about its own clock is at most a hint. 64 bits of nanoseconds last 584 years, so nothing here
/// wraps; additions saturate, because a deadline that cannot be represented is a deadline that never comes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(u64);

impl Time {
    /// The moment from which the driver counts.
    pub const ZERO: Time = Time(0);

    /// Later than every moment that a driver can report.
    pub const MAX: Time = Time(u64::MAX);

    /// `nanos` nanoseconds after [`Time::ZERO`].
    pub const fn from_nanos(nanos: u64) -> Time {
        Time(nanos)
    }

    /// `micros` microseconds after [`Time::ZERO`]; [`Time::MAX`] when that cannot be represented.
    pub const fn from_micros(micros: u64) -> Time {
        Time(micros.saturating_mul(1_000))
    }

    /// `millis` milliseconds after [`Time::ZERO`]; [`Time::MAX`] when that cannot be represented.
    pub const fn from_millis(millis: u64) -> Time {
        Time(millis.saturating_mul(1_000_000))
    }

    /// Nanoseconds since [`Time::ZERO`].
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The moment `span` later, or `None` when it cannot be represented.
    pub const fn checked_add(self, span: Duration) -> Option<Time> {
        // `Duration::as_nanos` is 128 bits wide and cannot overflow; only its low half fits a `Time`.
        let nanos = span.as_nanos();
        if nanos > u64::MAX as u128 {
            return None;
        }
        #[expect(clippy::cast_possible_truncation, reason = "checked in the line above")]
        match self.0.checked_add(nanos as u64) {
            Some(sum) => Some(Time(sum)),
            None => None,
        }
    }

    /// The moment `span` later, or [`Time::MAX`]: right for deadlines, which may lie beyond all time.
    pub const fn saturating_add(self, span: Duration) -> Time {
        match self.checked_add(span) {
            Some(sum) => sum,
            None => Time::MAX,
        }
    }

    /// How long after `earlier` this is; zero when it is not later at all. Inputs from several threads may
    /// reach a protocol slightly out of order, and a negative age means nothing to it.
    pub const fn since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}s", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;

    #[test]
    fn units_agree() {
        assert_eq!(Time::from_micros(3), Time::from_nanos(3_000));
        assert_eq!(Time::from_millis(3), Time::from_micros(3_000));
        assert_eq!(Time::from_millis(u64::MAX), Time::MAX);
        assert_eq!(Time::from_millis(7).as_nanos(), 7_000_000);
    }

    #[test]
    fn adding_and_since_are_inverse() {
        let start = Time::from_nanos(5);
        let span = Duration::from_micros(12);
        assert_eq!(start.saturating_add(span).since(start), span);
        assert_eq!(start.checked_add(span), Some(Time::from_nanos(12_005)));
        assert_eq!(start.since(start.saturating_add(span)), Duration::ZERO);
    }

    #[test]
    fn sums_beyond_all_time() {
        let near = Time::from_nanos(u64::MAX - 1);
        assert_eq!(near.checked_add(Duration::from_nanos(1)), Some(Time::MAX));
        assert_eq!(near.checked_add(Duration::from_nanos(2)), None);
        assert_eq!(near.saturating_add(Duration::from_nanos(2)), Time::MAX);
        assert_eq!(Time::ZERO.checked_add(Duration::MAX), None);
    }

    #[test]
    fn prints_as_seconds() {
        assert_eq!(std::format!("{:?}", Time::from_micros(1_000_001)), "1.000001000s");
    }
}
