//! One end of a channel.

use std::sync::atomic::Ordering::{Acquire, Release, SeqCst};
use std::time::{Duration, Instant};

use comb_kernel::host;
use thiserror::Error;

use super::Pages;
use super::layout::*;

/// A message that was taken: a copy, which nobody else changes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// What its writer says it is.
    pub kind: u32,
    /// The message.
    pub bytes: Vec<u8>,
}

/// Why a channel cannot be used any more, or not yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum ChannelError {
    /// The other end has not opened it yet.
    #[error("the other end has not opened the channel")]
    NotOpen,
    /// The other end has closed it, and all that it had written was taken.
    #[error("the other end has closed the channel")]
    Closed,
    /// The other end does not keep the rules. It is not believed any more.
    #[error("the other end of the channel wrote {0}")]
    Broken(&'static str),
}

/// Why a message was not sent. Nothing was.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum SendError {
    /// The other end has not taken enough. It can be sent later.
    #[error("there is no room: the other end has not taken what was sent")]
    Full,
    /// Longer than the channel's messages can be.
    #[error("a message of {0} bytes, where at most {1} can be sent")]
    TooLong(usize, usize),
    /// No message can be sent.
    #[error(transparent)]
    Channel(#[from] ChannelError),
}

/// One end of a channel.
#[derive(Debug)]
pub struct Channel {
    shape: Shape,
    own: Pages,
    other: Pages,
    written: u64,
    taken: u64,
    /// How many of this end's messages the other has taken, as far as is known: what has room once, has room until it is used.
    freed: u64,
    is_closed: bool,
    broken: Option<&'static str>,
}

/// Writes what an end begins with.
pub(super) fn begin(shape: Shape, own: &Pages) {
    own.word(STATE_AT).store(0, SeqCst);
    let header = [
        (MAGIC_AT, MAGIC),
        (VERSION_AT, VERSION),
        (PLACES_AT, shape.places()),
        (PLACE_BYTES_AT, shape.place_bytes()),
        (SLEEPS_AT, 0),
    ];
    for (at, value) in header {
        own.word(at).store(value, Release);
    }
    own.long(WRITTEN_AT).store(0, Release);
    own.long(TAKEN_AT).store(0, Release);
    own.word(STATE_AT).store(OPEN, SeqCst);
}

impl Channel {
    /// Opens an end, whose pages are these. The other end may have been opened or not; before either is, the pages of both are zeros.
    pub fn open(shape: Shape, own: Pages, other: Pages) -> Self {
        assert!(own.count() >= shape.pages() && other.count() >= shape.pages(), "pages for all places");
        begin(shape, &own);
        let channel =
            Self { shape, own, other, written: 0, taken: 0, freed: 0, is_closed: false, broken: None };
        channel.turn();
        channel
    }

    /// Its shape.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The pages that this end writes.
    pub fn own(&self) -> &Pages {
        &self.own
    }

    /// Sends a message: where it is in this end's pages. That can be signalled to a thread which has those mapped.
    pub fn send(&mut self, kind: u32, bytes: &[u8]) -> Result<usize, SendError> {
        let most = self.shape.message_bytes();
        let length = u32::try_from(bytes.len()).ok().filter(|_| bytes.len() <= most);
        let length = length.ok_or(SendError::TooLong(bytes.len(), most))?;
        match self.state()? {
            OPEN => {}
            CLOSED => return Err(ChannelError::Closed.into()),
            _ => return Err(ChannelError::NotOpen.into()),
        }
        if self.room()? == 0 {
            return Err(SendError::Full);
        }
        let at = self.shape.place(self.written);
        self.own.word(at).store(length, Release);
        self.own.word(at + 4).store(kind, Release);
        self.own.long(at + 8).store(self.written, Release);
        self.own.copy_in(at + HEADER_BYTES, bytes);
        self.written += 1;
        self.own.long(WRITTEN_AT).store(self.written, SeqCst);
        self.turn();
        Ok(at)
    }

    /// How many messages can be sent now.
    pub fn room(&mut self) -> Result<u32, ChannelError> {
        self.check()?;
        let taken = self.other.long(TAKEN_AT).load(Acquire);
        match self.written.checked_sub(taken) {
            Some(waiting) if waiting <= u64::from(self.shape.places()) && taken >= self.freed => {
                self.freed = taken;
                Ok(self.shape.places() - u32::try_from(waiting).expect("at most all places"))
            }
            _ => Err(self.found("that it has taken what it can not have")),
        }
    }

    /// Takes the next message, if there is one.
    pub fn receive(&mut self) -> Result<Option<Message>, ChannelError> {
        // Before what it has written: who closes has written before.
        let state = self.state()?;
        let written = self.other.long(WRITTEN_AT).load(Acquire);
        match written.checked_sub(self.taken) {
            Some(0) if state == CLOSED => return Err(ChannelError::Closed),
            Some(0) => return Ok(None),
            Some(waiting) if waiting <= u64::from(self.shape.places()) && state != 0 => {}
            _ => return Err(self.found("more messages than there are places")),
        }
        let at = self.shape.place(self.taken);
        let mut place = vec![0; self.shape.place_bytes() as usize];
        self.other.copy_out(at, &mut place);
        let (header, message) = place.split_at(HEADER_BYTES);
        let word = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("four bytes"));
        let number = u64::from_le_bytes(header[8..16].try_into().expect("eight bytes"));
        if number != self.taken {
            return Err(self.found("a message with another's number"));
        }
        let Some(bytes) = message.get(..word(0) as usize) else {
            return Err(self.found("a message that is longer than its place"));
        };
        let message = Message { kind: word(4), bytes: bytes.to_vec() };
        self.taken += 1;
        self.own.long(TAKEN_AT).store(self.taken, SeqCst);
        self.turn();
        Ok(Some(message))
    }

    /// Waits until the other end has changed something since `seen`, and not longer than this: an end whose process dies says nothing. See [`Self::seen`].
    pub fn wait(&self, seen: u32, limit: Duration) {
        let turn = self.other.word(TURN_AT);
        let since = Instant::now();
        self.own.word(SLEEPS_AT).store(1, SeqCst);
        while turn.load(SeqCst) == seen {
            let Some(left) = limit.checked_sub(since.elapsed()).filter(|left| !left.is_zero()) else { break };
            host::wait(turn, seen, Some(left));
        }
        self.own.word(SLEEPS_AT).store(0, SeqCst);
    }

    /// To be read before one looks whether there is something to wait for.
    pub fn seen(&self) -> u32 {
        self.other.word(TURN_AT).load(SeqCst)
    }

    /// Closes it. The other end can still take what was sent.
    pub fn close(&mut self) {
        if !self.is_closed {
            self.is_closed = true;
            self.own.word(STATE_AT).store(CLOSED, SeqCst);
            self.turn();
        }
    }

    /// Says that something has changed, and wakes who waits for it.
    fn turn(&self) {
        let turn = self.own.word(TURN_AT);
        turn.fetch_add(1, SeqCst);
        if self.other.word(SLEEPS_AT).load(SeqCst) != 0 {
            host::wake(turn);
        }
    }

    fn check(&self) -> Result<(), ChannelError> {
        match self.broken {
            Some(what) => Err(ChannelError::Broken(what)),
            None if self.is_closed => Err(ChannelError::Closed),
            None => Ok(()),
        }
    }

    /// Whether the other end is open, if it is one at all.
    fn state(&mut self) -> Result<u32, ChannelError> {
        self.check()?;
        let state = self.other.word(STATE_AT).load(SeqCst);
        if state == 0 {
            return Ok(0);
        }
        let is_one = [
            (MAGIC_AT, MAGIC),
            (VERSION_AT, VERSION),
            (PLACES_AT, self.shape.places()),
            (PLACE_BYTES_AT, self.shape.place_bytes()),
        ]
        .into_iter()
        .all(|(at, value)| self.other.word(at).load(Acquire) == value);
        if !is_one || state > CLOSED {
            return Err(self.found("no channel of this version and shape"));
        }
        Ok(state)
    }

    /// What the other end has done wrong. This end is closed by that.
    fn found(&mut self, what: &'static str) -> ChannelError {
        self.close();
        self.broken = Some(what);
        ChannelError::Broken(what)
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        self.close();
    }
}
