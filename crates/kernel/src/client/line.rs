//! The line from the first kernel to another's process: by it the other gets its counter, and after each time that it was swapped out, the next.

use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::io::Errno;

use crate::wire::{receive_descriptors, send_descriptors, understood};

/// What a counter comes with is no longer. It names every page group at most twice.
const MOST_BYTES: u64 = 1 << 21;

/// Hands a counter's end over to a kernel's process, with what became of its page groups: the number of each, and of that which has its content now. It goes
/// on with the numbers that it knows.
pub fn hand_over(line: &UnixStream, counter: &OwnedFd, moved: &[(u32, u32)]) -> Result<(), Errno> {
    let bytes = postcard::to_stdvec(moved).map_err(|_| Errno::NOMEM)?;
    send_descriptors(line, bytes.len() as u64, &[counter.as_fd()])?;
    let mut line = line;
    line.write_all(&bytes).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

/// Takes it.
pub(super) fn receive(line: &UnixStream) -> Result<(UnixStream, Vec<(u32, u32)>), Errno> {
    let (length, files) = receive_descriptors(line)?;
    let counter = files.into_iter().next().ok_or(Errno::PROTO)?;
    if length > MOST_BYTES {
        return Err(Errno::PROTO);
    }
    let mut bytes = Vec::new();
    line.take(length).read_to_end(&mut bytes).map_err(|_| Errno::PIPE)?;
    let moved = understood(&bytes).ok_or(Errno::PROTO)?;
    Ok((UnixStream::from(counter), moved))
}
