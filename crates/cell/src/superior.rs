//! A cell's connection to its agent, which may be away for a while.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use comb_net::agent::protocol::{self, ProtocolError};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::supervision::{Order, Report};

/// An agent that does not read for so long is stopped, and what it misses is the least of its troubles.
const MOST_UNSENT: usize = 1024;

/// What has come from the agent.
#[derive(Debug)]
pub enum Word {
    /// This, with files that come along.
    Order(Order, Vec<OwnedFd>),
    /// It has gone away just now.
    Away,
}

/// See the [module](self).
#[derive(Debug)]
pub struct Superior {
    path: PathBuf,
    socket: Option<OwnedFd>,
    away_since: Instant,
    /// Reports that its queue had no room for.
    unsent: Vec<Report>,
    went: bool,
}

impl Superior {
    /// Not connected yet.
    pub fn at(path: PathBuf) -> Self {
        Self { path, socket: None, away_since: Instant::now(), unsent: Vec::new(), went: false }
    }

    /// How long it has been away.
    pub fn away_for(&self) -> Option<Duration> {
        self.socket.is_none().then(|| self.away_since.elapsed())
    }

    /// Readable when it has said something.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.socket.as_ref().map(AsFd::as_fd)
    }

    /// Looks whether it is there again. The first words, the second with descriptors, are said at once. Whether it is.
    pub fn find(&mut self, hello: &Report, published: Option<(&Report, BorrowedFd<'_>)>) -> bool {
        let Ok(socket) = connect(&self.path) else { return false };
        let said = protocol::send(&socket, hello, &[]).is_ok()
            && published.is_none_or(|(report, file)| protocol::send(&socket, report, &[file]).is_ok());
        if said {
            self.socket = Some(socket);
            self.unsent.clear();
        }
        said
    }

    /// The next thing it has said.
    pub fn hear(&mut self) -> Option<Word> {
        if std::mem::take(&mut self.went) {
            return Some(Word::Away);
        }
        match protocol::receive::<Order>(self.socket.as_ref()?) {
            Ok((order, descriptors)) => Some(Word::Order(order, descriptors)),
            Err(ProtocolError::System(Errno::AGAIN)) => None,
            Err(_) => {
                self.left();
                self.hear()
            }
        }
    }

    /// Tells the agent, now or when it has read what it was told before: a queue takes a few hundred messages.
    pub fn report(&mut self, report: Report) {
        if self.socket.is_some() && self.unsent.len() < MOST_UNSENT {
            self.unsent.push(report);
            self.send_unsent();
        }
    }

    /// Whether it has been told everything.
    pub fn send_unsent(&mut self) -> bool {
        while let (Some(socket), Some(report)) = (&self.socket, self.unsent.first()) {
            match protocol::send(socket, report, &[]) {
                Ok(()) => drop(self.unsent.remove(0)),
                Err(ProtocolError::System(Errno::AGAIN)) => return false,
                Err(_) => self.left(),
            }
        }
        true
    }

    fn left(&mut self) {
        // What was not said is in the next hello.
        self.unsent.clear();
        self.socket = None;
        self.away_since = Instant::now();
        self.went = true;
    }
}

fn connect(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    rustix::net::connect(socket.as_fd(), &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}
