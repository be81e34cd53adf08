//! The peer's side of a window: taking it, put and get.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use super::{Access, AccessError, IncomingWindow, NotifyError, PutNotice, WindowError, copy_in, copy_out};
use crate::bypass::Bypass;
use crate::channel::{Channel, ChannelKey};
use crate::endpoint::{Endpoint, PostError};
use crate::kinds;
use crate::segment::Segment;
use crate::sync::{Ordering, Words};
use crate::withdrawal;

/// A window of a peer's, mapped here. The mapping lives as long as this handle, whatever the owner does.
#[derive(Debug)]
pub struct RemoteWindow {
    memory: Segment,
    epoch_word: Segment,
    epoch: u64,
    writable: bool,
    number: u32,
    channel: ChannelKey,
    peer: String,
}

impl RemoteWindow {
    /// The owner's number for it.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Its epoch: the owner never has another window of the same.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The channel that it came over.
    pub fn channel(&self) -> ChannelKey {
        self.channel
    }

    /// `process/endpoint` of its owner.
    pub fn peer(&self) -> &str {
        &self.peer
    }

    /// What we may do.
    pub fn access(&self) -> Access {
        if self.writable { Access::Put } else { Access::Get }
    }

    /// Its size in bytes.
    pub fn len(&self) -> usize {
        self.memory.len()
    }

    /// Never: a window has at least one byte.
    pub fn is_empty(&self) -> bool {
        self.memory.len() == 0
    }

    #[inline]
    pub(crate) fn put(&self, offset: usize, bytes: &[u8], bypass: &mut Bypass) -> Result<(), AccessError> {
        if !self.writable {
            return Err(self.read_only());
        }
        if !withdrawal::is_open(self.epoch_word.word(0), self.epoch) {
            return Err(self.closed());
        }
        copy_in(&self.memory, offset, bytes, |to, bytes| bypass.copy(to, bytes))
            .ok_or_else(|| self.out_of_range(offset, bytes.len()))
    }

    #[inline]
    pub(crate) fn get(&self, offset: usize, into: &mut [u8]) -> Result<(), AccessError> {
        copy_out(&self.memory, offset, into).ok_or_else(|| self.out_of_range(offset, into.len()))?;
        // Looked at afterwards: the memory of a withdrawn window reads as zeros, which must not pass for its content.
        if withdrawal::was_open(self.epoch_word.word(0), self.epoch) { Ok(()) } else { Err(self.closed()) }
    }

    #[cold]
    fn read_only(&self) -> AccessError {
        AccessError::Direction { window: self.number, peer: self.peer.clone() }
    }

    #[cold]
    fn closed(&self) -> AccessError {
        let (window, peer) = (self.number, self.peer.clone());
        match self.epoch_word.word(0).load(Ordering::Acquire) {
            0 => AccessError::Withdrawn { window, peer },
            now => AccessError::Stale { window, peer, ours: self.epoch, now },
        }
    }

    #[cold]
    fn out_of_range(&self, offset: usize, bytes: usize) -> AccessError {
        AccessError::Range { window: self.number, offset, bytes, window_bytes: self.memory.len() }
    }
}

impl Endpoint {
    /// The windows that the channel's peer has shared and that were not taken yet, in the order in which they came.
    pub fn windows(&mut self, channel: ChannelKey) -> Result<Vec<RemoteWindow>, WindowError> {
        let mut windows = Vec::new();
        while let Some(window) = self.take_window(channel, |_| true)? {
            windows.push(window);
        }
        Ok(windows)
    }

    /// Takes the next window that the channel's peer shares; waits for it.
    pub fn window(&mut self, channel: ChannelKey, limit: Duration) -> Result<RemoteWindow, WindowError> {
        self.await_window(channel, limit, |_| true)
    }

    /// Takes the window of that number ([`crate::Window::number`]); waits for it.
    pub fn window_numbered(
        &mut self,
        channel: ChannelKey,
        number: u32,
        limit: Duration,
    ) -> Result<RemoteWindow, WindowError> {
        self.await_window(channel, limit, |window| window.terms.number == number)
    }

    fn await_window(
        &mut self,
        channel: ChannelKey,
        limit: Duration,
        wanted: impl Fn(&IncomingWindow) -> bool,
    ) -> Result<RemoteWindow, WindowError> {
        let started = Instant::now();
        loop {
            // Before the look, so that a window that comes after it raises the news again.
            self.look_at_news();
            if let Some(window) = self.take_window(channel, &wanted)? {
                return Ok(window);
            }
            let found = self.channel(channel).ok_or(WindowError::NoChannel)?;
            if let Some(cause) = found.cause() {
                return Err(found.ended(cause).into());
            }
            let peer = found.peer().to_owned();
            let left = limit.checked_sub(started.elapsed()).filter(|left| !left.is_zero());
            let Some(left) = left else { return Err(WindowError::NoneCame { peer, limit }) };
            self.sleep_while(left, |this| !this.shared.has_news(Ordering::Acquire));
            self.look_for_silence();
        }
    }

    fn take_window(
        &mut self,
        channel: ChannelKey,
        wanted: impl Fn(&IncomingWindow) -> bool,
    ) -> Result<Option<RemoteWindow>, WindowError> {
        let found = self.channel(channel).ok_or(WindowError::NoChannel)?;
        let Some(IncomingWindow { terms, memory }) = found.life().take_window(wanted) else {
            return Ok(None);
        };
        let link = found.shm().ok_or_else(|| WindowError::NotLocal(found.peer().to_owned()))?;
        let access = if terms.writable { Access::Put } else { Access::Get };
        let memory = Segment::adopt(memory.as_fd(), terms.bytes, access.writers(), terms.writable)?;
        Ok(Some(RemoteWindow {
            memory,
            epoch_word: link.peer_window_epoch(terms.number),
            epoch: terms.epoch,
            writable: terms.writable,
            number: terms.number,
            channel,
            peer: found.peer().to_owned(),
        }))
    }

    /// Copies bytes into a window. The owner takes no part and is not told: it sees them when it looks. Eight bytes at
    /// a multiple of eight are one store, and are seen after all that was put before them.
    ///
    /// A put into the window of a peer that died, and whose death nobody noticed yet, succeeds: nobody will read it.
    #[inline]
    pub fn put(&mut self, window: &RemoteWindow, offset: usize, bytes: &[u8]) -> Result<(), AccessError> {
        // Windows are only made to peers of this machine.
        let bypass = self.channel_mut(window.channel).and_then(Channel::bypass);
        let bypass = bypass.ok_or_else(|| AccessError::Ended(window.peer.clone()))?;
        window.put(offset, bytes, bypass)
    }

    /// Puts, and then tells the owner by a message ([`PutNotice`]), which it receives after the bytes are there.
    #[inline]
    pub fn put_notify(
        &mut self,
        window: &RemoteWindow,
        offset: usize,
        bytes: &[u8],
    ) -> Result<(), NotifyError> {
        self.put(window, offset, bytes)?;
        Ok(self.notify(window, offset, bytes.len())?)
    }

    /// Tells a window's owner what was put before: many puts, one message.
    pub fn notify(&mut self, window: &RemoteWindow, offset: usize, bytes: usize) -> Result<(), PostError> {
        let notice = PutNotice {
            window: window.number,
            epoch: window.epoch,
            offset: offset as u64,
            bytes: bytes as u64,
        };
        // In order behind the bytes: the message's header is stored with release ordering.
        self.post(window.channel, kinds::PUT_NOTICE, &notice.encode())
    }

    /// Copies bytes out of a window. The owner takes no part. Eight bytes at a multiple of eight are read at once;
    /// anything else may be a mixture of old and new where the owner writes meanwhile.
    ///
    /// After an error `into` may hold anything: whether the window was withdrawn is looked at when the bytes are out.
    #[inline]
    pub fn get(&mut self, window: &RemoteWindow, offset: usize, into: &mut [u8]) -> Result<(), AccessError> {
        self.check_channel(window)?;
        window.get(offset, into)
    }

    #[inline]
    fn check_channel(&self, window: &RemoteWindow) -> Result<(), AccessError> {
        match self.channel(window.channel) {
            Some(_) => Ok(()),
            None => Err(AccessError::Ended(window.peer.clone())),
        }
    }
}
