//! How an endpoint sends: at once or not at all, or waiting for room.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::channel::{Channel, ChannelKey};
use crate::endpoint::{Endpoint, PostError};
use crate::life::Cause;
use crate::transport::SendError;

#[inline]
fn application_kind(kind: u8) -> Result<(), PostError> {
    if kind <= *crate::kinds::APPLICATION.end() { Ok(()) } else { Err(PostError::ReservedKind(kind)) }
}

impl Endpoint {
    /// Sends one message, or says at once why not.
    #[inline]
    pub fn send(&mut self, channel: ChannelKey, kind: u8, message: &[u8]) -> Result<(), PostError> {
        application_kind(kind)?;
        self.post(channel, kind, message)
    }

    /// [`Endpoint::send`] for layers: of any kind.
    #[inline]
    pub(crate) fn post(&mut self, channel: ChannelKey, kind: u8, message: &[u8]) -> Result<(), PostError> {
        self.awaited = channel.index as usize;
        // An answer of one byte costs the callers on the way less than a `Result` of ten words, which is some
        // nanoseconds of a round trip.
        if self.channel_mut(channel).is_some_and(|found| found.post_small(kind, message)) {
            return Ok(());
        }
        self.post_otherwise(channel, kind, message)
    }

    #[inline(never)]
    fn post_otherwise(&mut self, channel: ChannelKey, kind: u8, message: &[u8]) -> Result<(), PostError> {
        self.post_by(channel, |found| found.send(kind, message))
    }

    /// Sends one message gathered from parts.
    #[inline]
    pub fn send_gathered(&mut self, channel: ChannelKey, kind: u8, parts: &[&[u8]]) -> Result<(), PostError> {
        application_kind(kind)?;
        self.post_gathered(channel, kind, parts)
    }

    /// [`Endpoint::send_gathered`] for layers: of any kind.
    #[inline]
    pub(crate) fn post_gathered(
        &mut self,
        channel: ChannelKey,
        kind: u8,
        parts: &[&[u8]],
    ) -> Result<(), PostError> {
        self.post_by(channel, |found| found.send_gathered(kind, parts))
    }

    #[inline(always)]
    fn post_by(
        &mut self,
        channel: ChannelKey,
        send: impl FnOnce(&mut Channel) -> Result<(), SendError>,
    ) -> Result<(), PostError> {
        self.awaited = channel.index as usize;
        let Some(found) = self.channel_mut(channel) else { return Err(self.no_channel(channel)) };
        send(found).map_err(|error| self.sending_failed(channel, error))
    }

    /// A channel whose end waits to be told to the receiver is gone already: the sender is told the same.
    #[cold]
    fn no_channel(&self, key: ChannelKey) -> PostError {
        let ended = self.ended.iter().find(|ended| ended.channel == key);
        ended.map_or(PostError::NoChannel, |ended| PostError::Ended(ended.clone()))
    }

    /// Sends one message of up to seven words, without packing bytes first.
    #[inline]
    pub(crate) fn send_words(
        &mut self,
        channel: ChannelKey,
        kind: u8,
        words: &[u64],
    ) -> Result<(), PostError> {
        self.post_by(channel, |found| found.send_words(kind, words))
    }

    /// Sends one message whose first words are `words`, if that can be done at once. `false`: nothing was sent, and
    /// who wants to know why takes [`Endpoint::send_words`].
    #[inline]
    pub(crate) fn post_words<const N: usize>(
        &mut self,
        channel: ChannelKey,
        kind: u8,
        bytes: u8,
        words: &[u64; N],
    ) -> bool {
        self.awaited = channel.index as usize;
        self.channel_mut(channel).is_some_and(|found| found.post_words(kind, bytes, words))
    }

    /// Whether more messages are there, as far as a load can tell.
    #[inline]
    pub(crate) fn has_more(&mut self) -> bool {
        match &mut self.channels[..] {
            [Some(channel)] => channel.has_next(),
            several => several.len() > 1,
        }
    }

    #[cold]
    fn sending_failed(&mut self, key: ChannelKey, error: SendError) -> PostError {
        let Some(channel) = self.channel_mut(key) else { return PostError::NoChannel };
        match error {
            SendError::Full => match channel.cause() {
                // A dead peer reads nothing any more: the room will never come. What it sent before is still there to
                // be received; then the channel stays, and its end is told once more, to the receiver.
                Some(cause) if !channel.is_idle() => PostError::Ended(channel.ended(cause)),
                Some(cause) => self.end_channel(key, cause).map_or(PostError::NoChannel, PostError::Ended),
                None => PostError::Full(channel.peer().to_owned()),
            },
            SendError::TooLong { bytes, limit } => PostError::TooLong { bytes, limit },
            SendError::System(error) => PostError::System(error),
            SendError::Breach(breach) => {
                self.end_channel(key, Cause::Breach(breach)).map_or(PostError::NoChannel, PostError::Ended)
            }
        }
    }

    /// Sends one message; waits for room if it has to. Incoming messages stay where they are meanwhile: a pair that
    /// only sends to each other this way fills both rings and gets [`PostError::Full`] on both sides.
    pub fn send_within(
        &mut self,
        channel: ChannelKey,
        kind: u8,
        parts: &[&[u8]],
        limit: Duration,
    ) -> Result<(), PostError> {
        application_kind(kind)?;
        self.post_within(channel, kind, parts, limit)
    }

    /// [`Endpoint::send_within`] for layers: of any kind.
    pub(crate) fn post_within(
        &mut self,
        channel: ChannelKey,
        kind: u8,
        parts: &[&[u8]],
        limit: Duration,
    ) -> Result<(), PostError> {
        let started = Instant::now();
        loop {
            match self.post_gathered(channel, kind, parts) {
                Err(PostError::Full(peer)) => {
                    let left = limit.checked_sub(started.elapsed()).filter(|left| !left.is_zero());
                    let Some(left) = left else { return Err(PostError::Full(peer)) };
                    self.wait_for_room(channel, left);
                }
                outcome => return outcome,
            }
        }
    }

    fn wait_for_room(&mut self, key: ChannelKey, limit: Duration) {
        // First, or news about others would keep this from ever sleeping.
        self.look_at_news();
        let stuck = |this: &mut Self| {
            !this.shared.has_news(Ordering::Acquire)
                && this
                    .channel_mut(key)
                    .is_some_and(|channel| !channel.has_room() && channel.cause().is_none())
        };
        self.wait_for_credit(key, limit, stuck);
    }

    /// Waits until a refused send may succeed, or something came that is to be read first.
    pub(crate) fn wait_for_room_or_message(&mut self, key: ChannelKey, limit: Duration) {
        let stuck = |this: &mut Self| {
            this.channel_mut(key).is_some_and(|channel| !channel.has_room()) && !this.has_something()
        };
        self.wait_for_credit(key, limit, stuck);
    }

    fn wait_for_credit(&mut self, key: ChannelKey, limit: Duration, stuck: impl Fn(&mut Self) -> bool) {
        if self.spin(|this| !stuck(this)) {
            return;
        }
        self.want_credit(key, true);
        let started = Instant::now();
        if self.channel(key).is_some_and(Channel::is_remote) {
            self.sleep_for_room(key, limit);
        } else {
            self.sleep_while(limit, stuck);
        }
        self.learn(started.elapsed());
        self.want_credit(key, false);
        // The peer may have died or fallen silent; then its channel refuses the next message and says why.
        self.look_for_silence();
    }

    pub(crate) fn want_credit(&mut self, key: ChannelKey, wanted: bool) {
        if let Some(channel) = self.channel_mut(key) {
            channel.want_credit(wanted);
        }
        // Said on the board after it was said to the channel: who sees the bit finds the word. The fence is that of the
        // sleep that follows.
        self.shared.bell().demand_credit(wanted || self.shared.options().silence_limit.is_some());
    }
}
