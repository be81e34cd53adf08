//! The way by which a machine moves from this host to another: bytes, over a session between this host and the other's agent, to the program
//! that this starts for it.
//!
//! ```text
//! comb vm-monitor ══ TLS, by this host's key ══ agent of beta ─ pipes ─ comb vm-monitor --receives
//! ```

use std::io::{self, ErrorKind};
use std::time::Duration;

use comb_net::hosts::{SecureStream, StreamError};

use super::Book;
use super::shell::{MOST_BYTES, Piece, greet, say};
use super::words::Greeting;
use crate::state_directory::StateDirectory;

/// See the [module](self).
#[derive(Debug)]
pub struct Passage {
    stream: SecureStream,
    /// What came and was not taken, from there on.
    came: Vec<u8>,
    taken: usize,
    has_ended: bool,
}

impl Passage {
    /// Opens one. A sentence if there is none.
    pub fn open(files: &StateDirectory, host: &str) -> Result<Self, String> {
        let book = Book::open(files)?;
        if book.member(host)?.name == book.own() {
            return Err(format!("{host} is this host"));
        }
        let stream = greet(&book, host, Greeting::Machine)?;
        Ok(Self { stream, came: Vec::new(), taken: 0, has_ended: false })
    }

    /// Some of what comes, for which it waits so long, and fails with [`ErrorKind::TimedOut`]; nothing: no more will come.
    pub fn read(&mut self, buffer: &mut [u8], limit: Duration) -> io::Result<usize> {
        while self.taken == self.came.len() {
            if self.has_ended {
                return Ok(0);
            }
            let received = self.stream.receive(Some(limit)).map_err(|error| match error {
                StreamError::TimedOut => ErrorKind::TimedOut.into(),
                StreamError::Io(error) => error,
                error => io::Error::new(ErrorKind::ConnectionAborted, error),
            })?;
            let Some(bytes) = received else { return Ok(0) };
            let piece: Piece =
                postcard::from_bytes(bytes).map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
            match piece {
                Piece::Bytes(bytes) => (self.came, self.taken) = (bytes, 0),
                Piece::Ended(_) | Piece::End => self.has_ended = true,
                // It has a voice of its own in what it says.
                Piece::Error(_) => {}
            }
        }
        let some = &self.came[self.taken..];
        let count = some.len().min(buffer.len());
        buffer[..count].copy_from_slice(&some[..count]);
        self.taken += count;
        Ok(count)
    }

    /// All of this goes. The other end that takes nothing for seconds is an error.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        for some in bytes.chunks(MOST_BYTES) {
            say(&mut self.stream, &Piece::Bytes(some.to_vec())).map_err(|error| match error {
                StreamError::TimedOut => ErrorKind::TimedOut.into(),
                StreamError::Io(error) => error,
                error => io::Error::new(ErrorKind::ConnectionAborted, error),
            })?;
        }
        Ok(())
    }
}
