//! What `comb trace collect` and `comb trace agent` have in common: what they speak through, and how they tell people of it.

use std::fmt::Display;
use std::io::{self, Read, Write};
use std::time::Duration;

use comb_net::hosts::{ByteStream, SecureStream};
use comb_trace::collect::Stream;
use serde::Serialize;

use crate::output::Output;

/// Where collectors listen, if nothing else is said: beside the agents of hosts.
pub(super) const DEFAULT_PORT: u16 = 7171;

/// Until the library says how patient it is.
const FIRST_PATIENCE: Duration = Duration::from_secs(1);

/// A session between two hosts, each of which has proved that it is one of the comb.
pub(super) struct Line(ByteStream);

impl Line {
    pub(super) fn over(session: SecureStream) -> io::Result<Self> {
        ByteStream::new(session, FIRST_PATIENCE).map(Self)
    }
}

impl Read for Line {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl Stream for Line {
    fn set_patience(&mut self, patience: Duration) -> io::Result<()> {
        self.0.set_patience(patience)
    }
}

/// So many of them, in words.
pub(super) fn counted(count: u64, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

/// Says what happens, a line each.
#[derive(Clone, Copy)]
pub(super) struct Teller {
    pub(super) output: Output,
    /// Only what goes wrong is said.
    pub(super) is_quiet: bool,
}

impl Teller {
    pub(super) fn tell(self, object: &impl Serialize, text: impl Display) {
        if !self.is_quiet {
            // Who no longer listens wants it to go on all the same.
            let _ = self.output.tell(object, text);
        }
    }

    pub(super) fn trouble(self, object: &impl Serialize, text: impl Display) {
        if self.is_quiet {
            self.output.warn(text);
        } else {
            let _ = self.output.tell(object, text);
        }
    }
}
