//! What messages go through.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// A connection: bytes in order, both ways, from and to somebody whom its maker knows.
pub trait Stream: Read + Write {
    /// From now on no read and no write waits longer than this. One that would fails with [`io::ErrorKind::WouldBlock`] or
    /// [`io::ErrorKind::TimedOut`], and can be tried again: nothing of it has been done.
    fn set_patience(&mut self, patience: Duration) -> io::Result<()>;
}

impl Stream for TcpStream {
    fn set_patience(&mut self, patience: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(patience))?;
        self.set_write_timeout(Some(patience))
    }
}

impl Stream for UnixStream {
    fn set_patience(&mut self, patience: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(patience))?;
        self.set_write_timeout(Some(patience))
    }
}

impl<S: Stream + ?Sized> Stream for Box<S> {
    fn set_patience(&mut self, patience: Duration) -> io::Result<()> {
        (**self).set_patience(patience)
    }
}

/// A message on its way out.
#[derive(Default)]
pub(super) struct Outgoing {
    bytes: Vec<u8>,
    written: usize,
}

impl Outgoing {
    /// Writes what can be written now; the next message is asked for when one is out. Returns whether all are.
    pub(super) fn write(
        &mut self,
        to: &mut impl Stream,
        next: &mut dyn FnMut() -> Option<Vec<u8>>,
        most_messages: usize,
    ) -> io::Result<bool> {
        for _ in 0..most_messages {
            if self.written == self.bytes.len() {
                let Some(bytes) = next() else { return patiently(to.flush()).map(|done| done.is_some()) };
                (self.bytes, self.written) = (bytes, 0);
            }
            match patiently(to.write(&self.bytes[self.written..]))? {
                Some(0) => return Err(io::ErrorKind::WriteZero.into()),
                Some(bytes) => self.written += bytes,
                None => return Ok(false),
            }
        }
        Ok(false)
    }
}

/// Reads what is there. `None` if nothing came in time; 0 if nothing will come.
pub(super) fn read(from: &mut impl Stream, buffer: &mut [u8]) -> io::Result<Option<usize>> {
    patiently(from.read(buffer))
}

fn patiently<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) => match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted => Ok(None),
            _ => Err(error),
        },
    }
}
