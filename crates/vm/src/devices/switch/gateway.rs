//! The way to the outside: what is for nobody on the subnet goes there, and what is for somebody comes from there.

pub mod nat;
pub mod stream;
pub mod tap;

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use super::addresses::Network;
use super::offloads::{HEADER, Undone};
use super::segments::finish;
use crate::hardware::QEMU;
use nat::Nat;
use stream::Stream;
use tap::Tap;

/// What is outside.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outside {
    /// A program with a network listens there, as `passt` does.
    Stream(PathBuf),
    /// The network of the host, by a TAP device of this name, which is made if there is none.
    Tap(String),
    /// Whatever this user's programs reach, which take the guests' connections for the host's own.
    Nat(Network),
}

impl Outside {
    /// The file by which it is reached.
    pub fn path(&self) -> PathBuf {
        match self {
            Outside::Stream(path) => path.clone(),
            Outside::Tap(name) => Path::new(tap::DEVICE).join(name),
            Outside::Nat(_) => QEMU.into(),
        }
    }
}

/// A gateway.
pub enum Gateway {
    /// By a stream: nothing can be left undone in it.
    Stream(Stream),
    /// By a TAP device.
    Tap(Tap),
    /// By a process of ours.
    Nat(Nat),
}

impl Gateway {
    /// To what is outside.
    pub fn open(outside: &Outside) -> io::Result<Self> {
        Ok(match outside {
            Outside::Stream(path) => Gateway::Stream(Stream::connect(path)?),
            Outside::Tap(name) => Gateway::Tap(Tap::open(name)?),
            Outside::Nat(network) => Gateway::Nat(Nat::start(*network)?),
        })
    }

    fn stream(&mut self) -> Option<&mut Stream> {
        match self {
            Gateway::Stream(stream) => Some(stream),
            Gateway::Nat(nat) => Some(&mut nat.stream),
            Gateway::Tap(_) => None,
        }
    }

    /// Whether anybody is there.
    pub fn is_open(&mut self) -> bool {
        self.stream().is_none_or(|stream| stream.is_open())
    }

    /// Sends a frame in which this is undone, if it is taken.
    pub fn send(&mut self, undone: Undone, whole: &mut [u8]) -> bool {
        match self {
            Gateway::Stream(stream) | Gateway::Nat(Nat { stream, .. }) => {
                finish(whole, undone, |piece| stream.send(piece))
            }
            Gateway::Tap(tap) => tap.send(&undone.header(1), whole),
        }
    }

    /// The next frame that came, if there is one, and what is said of it.
    pub fn receive(&mut self) -> Option<([u8; HEADER], &mut [u8])> {
        match self {
            Gateway::Stream(stream) | Gateway::Nat(Nat { stream, .. }) => {
                stream.receive().map(|frame| ([0; HEADER], frame))
            }
            Gateway::Tap(tap) => tap.receive(),
        }
    }

    /// Has what was sent go. To be called after some was, and when there is room again.
    pub fn flush(&mut self) {
        if let Some(stream) = self.stream() {
            stream.flush();
        }
    }
}

impl AsFd for Gateway {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Gateway::Stream(stream) => stream.as_fd(),
            Gateway::Tap(tap) => tap.as_fd(),
            Gateway::Nat(nat) => nat.as_fd(),
        }
    }
}
