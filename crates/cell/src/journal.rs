//! Lines for the log. A line is one write to stderr, which the agent has led to the log file, opened for appending:
//! lines of several processes do not mix.

use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

/// Writes one line: when, who, what. A log that cannot be written stops nobody.
pub fn write(who: &str, what: impl std::fmt::Display) {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let line = format!("{} {who}: {what}\n", timestamp(since.as_secs(), since.subsec_millis()));
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// As RFC 3339 has it, in UTC: the log of several hosts is compared.
pub fn timestamp(seconds: u64, millis: u32) -> String {
    let (days, in_day) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (in_day / 3600, in_day / 60 % 60, in_day % 60);
    format!("{year}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

/// Year, month and day of a day counted from 1 January 1970. Years begin in March here, so that the leap day is the
/// last one; 400 of them are an era.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, in_era) = (days / 146_097, days % 146_097);
    let year = (in_era - in_era / 1460 + in_era / 36_524 - in_era / 146_096) / 365;
    let in_year = in_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * in_year + 2) / 153;
    let day = in_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (era * 400 + year + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_written_as_everybody_writes_them() {
        assert_eq!(timestamp(0, 0), "1970-01-01T00:00:00.000Z");
        assert_eq!(timestamp(951_782_399, 999), "2000-02-28T23:59:59.999Z");
        assert_eq!(timestamp(951_782_400, 0), "2000-02-29T00:00:00.000Z");
        assert_eq!(timestamp(1_763_632_491, 7), "2025-11-20T09:54:51.007Z");
    }
}
