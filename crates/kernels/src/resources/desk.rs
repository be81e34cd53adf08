//! Where a manager is asked by those of other cells: one question a connection, over a socket of this machine.
//!
//! Nobody waits for anybody here: what is there is read, what has been asked is answered, and who takes too long goes.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::words::{Key, Question, Reply, decode, encode};

/// More than these ask at a time only if somebody means harm: the oldest goes.
const MOST_GUESTS: usize = 32;

/// A connection.
pub(super) trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

#[derive(Debug)]
enum Door {
    Unix(UnixListener, PathBuf),
    Tcp(TcpListener),
}

impl Door {
    fn accept(&self) -> io::Result<Box<dyn Stream>> {
        match self {
            Self::Unix(listener, _) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(true)?;
                Ok(Box::new(stream))
            }
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(true)?;
                Ok(Box::new(stream))
            }
        }
    }
}

struct Guest {
    stream: Box<dyn Stream>,
    since: Instant,
    asked: Vec<u8>,
    /// What has yet to be sent, once it is answered.
    reply: Option<Vec<u8>>,
}

/// What became of a guest in one turn.
enum Turn {
    Stays,
    Goes,
}

/// Where questions come in.
pub struct Desk {
    door: Door,
    key: Key,
    guests: Vec<Guest>,
    limit: Duration,
}

impl Desk {
    /// At a path of this machine, for this user only. Who asks has so long for all of it.
    pub fn at_path(path: &Path, key: Key, limit: Duration) -> io::Result<Self> {
        let listener = UnixListener::bind(path)?;
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        Ok(Self { door: Door::Unix(listener, path.to_owned()), key, guests: Vec::new(), limit })
    }

    /// At a port of this machine, which no other machine reaches: where.
    pub fn at_port(key: Key, limit: Duration) -> io::Result<(Self, SocketAddr)> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok((Self { door: Door::Tcp(listener), key, guests: Vec::new(), limit }, address))
    }

    /// How many have come and not gone yet.
    pub fn guests(&self) -> usize {
        self.guests.len()
    }

    /// Answers what has been asked. To be called again and again; it does not wait.
    pub fn turn(&mut self, mut answer: impl FnMut(Question) -> Reply) {
        while let Ok(stream) = self.door.accept() {
            if self.guests.len() >= MOST_GUESTS {
                self.guests.remove(0);
            }
            self.guests.push(Guest { stream, since: Instant::now(), asked: Vec::new(), reply: None });
        }
        let (key, limit) = (&self.key, self.limit);
        self.guests.retain_mut(|guest| {
            let turn = guest.turn(key, &mut answer).unwrap_or(Turn::Goes);
            matches!(turn, Turn::Stays) && guest.since.elapsed() < limit
        });
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        if let Door::Unix(_, path) = &self.door {
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Guest {
    fn turn(&mut self, key: &Key, answer: &mut impl FnMut(Question) -> Reply) -> io::Result<Turn> {
        let mut some = [0; 4096];
        while self.reply.is_none() {
            match self.stream.read(&mut some) {
                Ok(0) => return Ok(Turn::Goes),
                Ok(length) => self.asked.extend_from_slice(&some[..length]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Turn::Stays),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            let reply = match decode(key, &self.asked) {
                Ok(None) => continue,
                Ok(Some(question)) => answer(question),
                // Who does not have the key is told nothing, and not even that.
                Err(_) => return Ok(Turn::Goes),
            };
            let bytes = encode(key, &reply)
                .or_else(|error| encode(key, &Reply::Refused(format!("the answer: {error}"))));
            self.reply = Some(bytes.map_err(io::Error::other)?);
        }
        let reply = self.reply.as_mut().expect("it was just asked");
        while !reply.is_empty() {
            match self.stream.write(reply) {
                Ok(length) => drop(reply.drain(..length)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Turn::Stays),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Turn::Goes)
    }
}
