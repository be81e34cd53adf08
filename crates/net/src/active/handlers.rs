//! What handlers see, and what they may do: a request handler may reply, once; a reply handler may not. The types say
//! so, and nothing else need watch for it: a reply that caused a reply could go on for ever. (Thesis §2.5)

use super::peers::{Peers, count};
use super::wire::{Head, Message, REPLY};
use crate::channel::ChannelKey;
use crate::endpoint::PostError;

/// A request, as its handler gets it.
#[derive(Debug)]
pub struct Request<'a> {
    pub(super) peers: &'a mut Peers,
    pub(super) from: ChannelKey,
    pub(super) arguments: &'a [u64],
    pub(super) payload: &'a [u8],
    pub(super) replied: &'a mut bool,
}

impl<'a> Request<'a> {
    /// Whence.
    pub fn from(&self) -> ChannelKey {
        self.from
    }

    /// `process/endpoint` of the peer.
    pub fn peer(&self) -> &str {
        self.peers.endpoint.peer(self.from).unwrap_or("a peer that left")
    }

    /// Its arguments, up to four words.
    #[inline]
    pub fn arguments(&self) -> &'a [u64] {
        self.arguments
    }

    /// Its payload: a private copy, which the peer no longer changes.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Answers, and calls the peer's reply handler of that number. Never waits. A request that is not answered is
    /// acknowledged when its handler returns. `Err`: the payload can never be sent on this channel; nothing was.
    ///
    /// # Panics
    /// With more than four arguments.
    #[inline]
    pub fn reply(mut self, handler: u16, arguments: &[u64], payload: &[u8]) -> Result<(), PostError> {
        self.try_reply(handler, arguments, payload)
    }

    /// As [`Request::reply`]; for who has another answer when this one is too long.
    #[inline]
    pub(crate) fn try_reply(
        &mut self,
        handler: u16,
        arguments: &[u64],
        payload: &[u8],
    ) -> Result<(), PostError> {
        debug_assert!(!*self.replied, "one reply a request");
        let head = Head { number: handler, arguments: count(arguments), ..Head::default() };
        if !(payload.is_empty() && self.peers.reply_small(self.from, head, arguments)) {
            self.peers.reply(self.from, Message { kind: REPLY, head, words: arguments, data: payload })?;
        }
        *self.replied = true;
        Ok(())
    }
}

/// A reply, as its handler gets it. There is nothing to be sent from here: what follows from a reply is done after
/// the poll.
#[derive(Clone, Copy, Debug)]
pub struct Reply<'a> {
    /// Whence.
    pub from: ChannelKey,
    /// Its arguments, up to four words.
    pub arguments: &'a [u64],
    /// Its payload: a private copy.
    pub payload: &'a [u8],
}

/// A block that was stored, whole, as the region's handler gets it.
#[derive(Debug)]
pub struct Stored<'a> {
    /// Whence.
    pub from: ChannelKey,
    /// The sender's words about it.
    pub arguments: &'a [u64],
    /// Where in the region it begins.
    pub offset: usize,
    /// Its bytes, in the region.
    pub bytes: &'a mut [u8],
}

/// Handlers by number. A closure without captures costs no allocation, and a missing one no extra word.
pub(super) struct Table<F>(Vec<F>);

impl<F> Default for Table<F> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<F> Table<Option<F>> {
    pub(super) fn set(&mut self, number: u16, handler: F) {
        let index = usize::from(number);
        if self.0.len() <= index {
            self.0.resize_with(index + 1, || None);
        }
        let before = self.0[index].replace(handler);
        assert!(before.is_none(), "number {number} is taken");
    }

    #[inline]
    pub(super) fn get(&mut self, number: u16) -> Option<&mut F> {
        self.0.get_mut(usize::from(number))?.as_mut()
    }
}

pub(super) type RequestHandler<S> = Box<dyn FnMut(&mut S, Request<'_>) + Send>;
pub(super) type ReplyHandler<S> = Box<dyn FnMut(&mut S, Reply<'_>) + Send>;
pub(super) type CompletionHandler<S> = Box<dyn FnOnce(&mut S) + Send>;
pub(super) type StoredHandler<S> = Box<dyn FnMut(&mut S, Stored<'_>) + Send>;
