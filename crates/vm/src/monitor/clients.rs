//! The lines of users to a machine's monitor.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;

use comb_guest::frames::{Frames, framed};

use super::MOST_WAITING_BYTES;
use crate::control::Answer;

/// A user's line.
pub(super) struct Client {
    pub(super) stream: UnixStream,
    pub(super) came: Frames,
    pub(super) goes: Vec<u8>,
    /// The program that it is about.
    pub(super) exec: Option<u32>,
    pub(super) has_console: bool,
    pub(super) is_gone: bool,
}

impl Client {
    pub(super) fn say(&mut self, answer: &Answer) {
        if self.goes.len() > MOST_WAITING_BYTES {
            self.is_gone = true;
        } else {
            self.goes.extend(framed(answer));
        }
    }

    fn push(&mut self) {
        self.is_gone |= !push(&mut self.stream, &mut self.goes);
    }
}

/// Sends what there is room for; whether there is anybody.
pub(super) fn push(stream: &mut UnixStream, goes: &mut Vec<u8>) -> bool {
    while !goes.is_empty() {
        match stream.write(goes) {
            Ok(written) if written > 0 => drop(goes.drain(..written)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            _ => return false,
        }
    }
    true
}

/// All users' lines.
pub(super) struct Clients {
    pub(super) listener: UnixListener,
    pub(super) lines: BTreeMap<u32, Client>,
    next: u32,
    /// Where the listener is, and where it is to be once there is a machine.
    pub(super) hidden: Option<(PathBuf, PathBuf)>,
}

impl Clients {
    pub(super) fn new(listener: UnixListener) -> Self {
        Self { listener, lines: BTreeMap::new(), next: 1, hidden: None }
    }

    /// From now on it can be asked.
    pub(super) fn show(&mut self) -> io::Result<()> {
        self.hidden.take().map_or(Ok(()), |(hidden, socket)| std::fs::rename(hidden, socket))
    }

    pub(super) fn accept(&mut self) {
        while let Ok((stream, _)) = self.listener.accept() {
            if stream.set_nonblocking(true).is_ok() {
                let (came, goes) = (Frames::default(), Vec::new());
                let client = Client { stream, came, goes, exec: None, has_console: false, is_gone: false };
                self.lines.insert(self.next, client);
                self.next += 1;
            }
        }
    }

    pub(super) fn push_all(&mut self) {
        self.lines.values_mut().for_each(Client::push);
        self.lines.retain(|_, client| !client.is_gone);
    }
}
