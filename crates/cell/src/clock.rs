//! The clocks that matter between processes of one host.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds on `CLOCK_MONOTONIC`. All processes of a host read the same clock, so that a moment in one can be
/// compared with a moment in another.
pub fn monotonic_ns() -> u64 {
    on(ClockId::Monotonic)
}

/// For how many nanoseconds the calling thread has had a core.
pub(crate) fn own_thread_ns() -> u64 {
    on(ClockId::ThreadCPUTime)
}

fn on(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    let nanos = i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec);
    u64::try_from(nanos).unwrap_or(0)
}

/// A span for people: three digits at most, the unit behind.
pub fn span(nanos: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    let nanos = nanos as f64;
    if nanos < 95_000.0 {
        format!("{:.2} ms", nanos / 1e6)
    } else if nanos < 9.95e6 {
        format!("{:.1} ms", nanos / 1e6)
    } else if nanos < 999.5e6 {
        format!("{:.0} ms", nanos / 1e6)
    } else if nanos < 59.95e9 {
        format!("{:.1} s", nanos / 1e9)
    } else {
        let seconds = nanos / 1e9;
        let (hours, minutes) = ((seconds / 3600.0).floor(), (seconds / 60.0).floor());
        if hours >= 1.0 {
            format!("{hours} h {} min", minutes - hours * 60.0)
        } else {
            format!("{minutes} min {:.0} s", (seconds - minutes * 60.0).floor())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_goes_forward() {
        let before = monotonic_ns();
        assert!(before > 0 && monotonic_ns() >= before);
    }

    #[test]
    fn spans_read_well_at_every_size() {
        let texts =
            [40_000, 400_000, 1_240_000, 25_000_000, 1_500_000_000, 61_000_000_000, 7_260_000_000_000];
        assert_eq!(
            texts.map(span),
            ["0.04 ms", "0.4 ms", "1.2 ms", "25 ms", "1.5 s", "1 min 1 s", "2 h 1 min"]
        );
    }
}
