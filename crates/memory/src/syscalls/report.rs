//! What is said on standard error when a call cannot be covered: once a call, without memory of the heap.
#![expect(
    unsafe_code,
    reason = "writes within a signal handler, where the standard library's lock may be held"
)]

use std::fmt::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};

use super::stub::raw;
use super::table::{self, NUMBERS};

/// One bit a number; the last word's last bit is for all others.
static SAID: [AtomicU64; NUMBERS / 64 + 1] = [const { AtomicU64::new(0) }; NUMBERS / 64 + 1];

/// Says once of this call what is wrong with it, and what to do.
pub(super) fn once(number: usize, address: Option<usize>, what: fmt::Arguments<'_>) {
    let bit = number.min(NUMBERS);
    if SAID[bit / 64].fetch_or(1 << (bit % 64), Ordering::Relaxed) >> (bit % 64) & 1 == 1 {
        return;
    }
    let mut line = Line { bytes: [0; 512], used: 0 };
    let name = table::find(number).map_or("unknown", table::Row::name);
    let _ = match address {
        Some(address) => {
            writeln!(
                line,
                "comb: system call {number} ({name}) was given shared memory at {address:#x}, {what}"
            )
        }
        None => writeln!(line, "comb: system call {number} ({name}) {what}"),
    };
    // SAFETY: writes bytes of ours.
    unsafe { raw(libc::SYS_write, [2, line.bytes.as_ptr() as usize, line.used, 0, 0, 0]) };
}

struct Line {
    bytes: [u8; 512],
    used: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.bytes.get_mut(self.used..).unwrap_or_default();
        for (place, byte) in room.iter_mut().zip(text.bytes()) {
            *place = byte;
            self.used += 1;
        }
        Ok(())
    }
}
