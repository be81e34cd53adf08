//! Words from a signal handler: no allocation, no lock.

use std::fmt::{self, Write};

/// Longer ones are cut: three lines, and names of files and regions.
const LONGEST_BYTES: usize = 1024;

struct Line {
    bytes: [u8; LONGEST_BYTES],
    length: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = &mut self.bytes[self.length..];
        let length = text.len().min(room.len());
        room[..length].copy_from_slice(&text.as_bytes()[..length]);
        self.length += length;
        Ok(())
    }
}

/// To stderr, in one write. Apart from its caller, whose stack may be short.
#[inline(never)]
pub(super) fn say(what: &fmt::Arguments<'_>) {
    let mut line = Line { bytes: [0; LONGEST_BYTES], length: 0 };
    let _ = line.write_fmt(*what);
    // SAFETY: a buffer of this function. Whoever has closed stderr does not want to know.
    unsafe { libc::write(libc::STDERR_FILENO, line.bytes.as_ptr().cast(), line.length) };
}
