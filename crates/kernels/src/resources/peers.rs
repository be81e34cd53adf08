//! Asking the manager of another cell, and answering for one's own.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use comb_kernel::calls::First;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use thiserror::Error;

use super::Manager;
use super::words::{Key, Question, Reply, WordError, decode, encode};

/// Where another manager is asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Address {
    /// At a path of this machine.
    Path(PathBuf),
    /// At a port of this machine. Of another there is none: what is said is not hidden from who listens.
    Port(SocketAddr),
}

/// Why there is no answer.
#[derive(Debug, Error)]
pub enum PeerError {
    /// It is not to be reached, or has gone: perhaps after it did what it was asked. One that does not know the key goes, too.
    #[error("the other manager is not to be reached: {0}")]
    Host(#[from] io::Error),
    /// It did not answer in time. It may do what it was asked nevertheless.
    #[error("the other manager did not answer in time")]
    Late,
    /// What it answered is not understood.
    #[error("the other manager's answer is not understood: {0}")]
    Word(#[from] WordError),
    /// It is of another machine.
    #[error("{0} is not of this machine")]
    Elsewhere(SocketAddr),
}

/// A connection that can be told how long to wait.
trait Waits: Read + Write {
    fn wait_at_most(&self, limit: Duration) -> io::Result<()>;
}

impl Waits for UnixStream {
    fn wait_at_most(&self, limit: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(limit))?;
        self.set_write_timeout(Some(limit))
    }
}

impl Waits for TcpStream {
    fn wait_at_most(&self, limit: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(limit))?;
        self.set_write_timeout(Some(limit))
    }
}

/// As [`UnixStream::connect`], which waits without end for one who does not accept.
fn connect(path: &Path, limit: Duration) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    set_socket_timeout(&socket, Timeout::Send, Some(limit))?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(UnixStream::from(socket))
}

/// Asks, and waits for the answer: not longer than this in all.
pub fn ask(address: &Address, key: &Key, question: &Question, limit: Duration) -> Result<Reply, PeerError> {
    let until = Instant::now() + limit;
    let stream: Box<dyn Waits> = match address {
        Address::Path(path) => Box::new(connect(path, limit)?),
        Address::Port(address) if !address.ip().is_loopback() => {
            return Err(PeerError::Elsewhere(*address));
        }
        Address::Port(address) => Box::new(TcpStream::connect_timeout(address, limit)?),
    };
    exchange(stream, &encode(key, question)?, key, until)
}

fn exchange(mut stream: Box<dyn Waits>, asked: &[u8], key: &Key, until: Instant) -> Result<Reply, PeerError> {
    let wait = |stream: &dyn Waits| match until.saturating_duration_since(Instant::now()) {
        Duration::ZERO => Err(PeerError::Late),
        left => Ok(stream.wait_at_most(left)?),
    };
    let late = |error: io::Error| match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => PeerError::Late,
        _ => PeerError::Host(error),
    };
    wait(&*stream)?;
    stream.write_all(asked).map_err(late)?;
    let (mut told, mut some) = (Vec::new(), [0; 4096]);
    loop {
        wait(&*stream)?;
        match stream.read(&mut some) {
            Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            Ok(length) => told.extend_from_slice(&some[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(late(error)),
        }
        if let Some(reply) = decode(key, &told)? {
            return Ok(reply);
        }
    }
}

/// The programs that a manager starts for others, by name: it starts no other.
pub type Programs = BTreeMap<String, PathBuf>;

impl<C: First> Manager<C> {
    /// Answers another manager's question.
    pub fn answer(&mut self, question: Question, programs: &Programs) -> Reply {
        match question {
            Question::Free => Reply::Free(self.book().free()),
            Question::Running => Reply::Running(self.running()),
            Question::Take { program, arguments, allotment } => {
                let Some(path) = programs.get(&program) else {
                    return Reply::Refused(format!("there is no program {program:?}"));
                };
                let mut command = Command::new(path);
                command.args(arguments);
                match self.start(&program, command, &allotment) {
                    Ok(kernel) => Reply::Taken(kernel),
                    Err(error) => Reply::Refused(error.to_string()),
                }
            }
        }
    }
}
