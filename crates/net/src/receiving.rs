//! How an endpoint receives: from one channel by a short way, from a few by looking at each, from many by their flags.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::channel::ChannelKey;
use crate::endpoint::{CHANNELS_LOOKED_AT, ChannelEnded, Delivery, Endpoint, Received};
use crate::life::Cause;
use crate::payload::Inline;
use crate::ring::Breach;
use crate::shm::Small;

/// Messages taken from one channel before the next has its turn. Small, so that eight greedy senders share one
/// receiver evenly; large enough to amortise the walk.
const TURN_MESSAGES: usize = 16;

/// Looks at the board between two at the channel whose turn it is: flags are hints, and one that was lost is made good
/// within so many times as many polls as there are channels.
const LOOKS_PER_TURN: u32 = 64;

impl Endpoint {
    /// Hands every message that has come to `deliver`, up to a turn's worth from each channel, and returns how many.
    /// Payloads are seen in place; nothing can be sent meanwhile. `Err`: one channel ended, which is said once; the
    /// others are polled again by the next call.
    #[inline]
    pub fn poll(&mut self, mut deliver: impl FnMut(Delivery<'_>)) -> Result<usize, ChannelEnded> {
        self.poll_channels(TURN_MESSAGES, &mut deliver)
    }

    /// Hands the next message, if one has come, to `deliver`, and returns whether it did.
    #[inline]
    pub fn poll_once(&mut self, mut deliver: impl FnMut(Delivery<'_>)) -> Result<bool, ChannelEnded> {
        let mut came = false;
        self.poll_one(&mut |delivery: Delivery<'_>| {
            deliver(delivery);
            came = true;
        })?;
        Ok(came)
    }

    /// Copies the next message into `buffer`.
    #[inline]
    pub fn receive(&mut self, buffer: &mut [u8]) -> Result<Option<Received>, ChannelEnded> {
        let small = self.take_small(|channel, kind, inline| {
            let bytes = inline.len();
            let taken = bytes.min(buffer.len());
            inline.copy_to(&mut buffer[..taken]);
            Some(Received { channel, kind, bytes })
        });
        match small {
            Small::Came(received) => Ok(Some(received)),
            Small::Nothing => self.when_idle().map(|()| None),
            Small::Unclear => self.receive_otherwise(buffer),
        }
    }

    #[inline(never)]
    fn receive_otherwise(&mut self, buffer: &mut [u8]) -> Result<Option<Received>, ChannelEnded> {
        let mut received = None;
        self.poll_one(&mut |delivery: Delivery<'_>| {
            let bytes = delivery.payload.len();
            let taken = bytes.min(buffer.len());
            delivery.payload.copy_to(&mut buffer[..taken]);
            received = Some(Received { channel: delivery.channel, kind: delivery.kind, bytes });
        })?;
        Ok(received)
    }

    /// As [`Endpoint::receive`], but waits: spins first, then sleeps.
    pub fn receive_within(
        &mut self,
        buffer: &mut [u8],
        limit: Duration,
    ) -> Result<Option<Received>, ChannelEnded> {
        let started = Instant::now();
        loop {
            if let Some(received) = self.receive(buffer)? {
                return Ok(Some(received));
            }
            let Some(left) = limit.checked_sub(started.elapsed()) else { return Ok(None) };
            self.wait(left);
        }
    }

    #[inline]
    fn looks_at_each(&self) -> bool {
        self.channels.len() <= CHANNELS_LOOKED_AT || self.remote > 0
    }

    /// The next message of an endpoint with one channel, which is by far the most common, if it is a small one that
    /// `take` wants. What is unclear, or not wanted, stays for [`Endpoint::take_one`].
    #[inline(always)]
    pub(crate) fn take_small<R>(
        &mut self,
        take: impl FnOnce(ChannelKey, u8, Inline<'_>) -> Option<R>,
    ) -> Small<R> {
        if self.is_due(self.polls.wrapping_add(1)) {
            return Small::Unclear;
        }
        let [Some(channel)] = &mut self.channels[..] else { return Small::Unclear };
        let key = channel.key();
        let found = channel.receive_small(|kind, inline| take(key, kind, inline));
        if !matches!(found, Small::Unclear) {
            self.polls = self.polls.wrapping_add(1);
        }
        found
    }

    #[inline]
    fn poll_one(&mut self, deliver: &mut impl FnMut(Delivery<'_>)) -> Result<(), ChannelEnded> {
        if self.take_one(deliver)? { Ok(()) } else { self.when_idle() }
    }

    /// One message, from whichever channel has one, each in its turn. Who calls this looks around
    /// ([`Endpoint::when_idle`]) when nothing came.
    #[inline]
    pub(crate) fn take_one(&mut self, deliver: &mut impl FnMut(Delivery<'_>)) -> Result<bool, ChannelEnded> {
        self.before_poll()?;
        if let [Some(channel)] = &mut self.channels[..] {
            // By far the most common endpoint; the loop of `poll_channel` is some nanoseconds of a round trip.
            let key = channel.key();
            let came = channel.receive(|kind, payload| deliver(Delivery { channel: key, kind, payload }));
            return came.map_err(|breach| self.broke_a_rule(key, breach));
        }
        if self.looks_at_each() {
            for _ in 0..self.channels.len() {
                let index = self.turn;
                self.turn = if index + 1 >= self.channels.len() { 0 } else { index + 1 };
                if self.poll_channel(index, 1, deliver)? > 0 {
                    return Ok(true);
                }
            }
            return Ok(false);
        }
        Ok(self.poll_flagged(1, 1, deliver)? > 0)
    }

    fn poll_channels(
        &mut self,
        turn: usize,
        deliver: &mut impl FnMut(Delivery<'_>),
    ) -> Result<usize, ChannelEnded> {
        self.before_poll()?;
        let mut messages = 0;
        if self.looks_at_each() {
            for index in 0..self.channels.len() {
                messages += self.poll_channel(index, turn, deliver)?;
            }
        } else {
            messages = self.poll_flagged(turn, usize::MAX, deliver)?;
        }
        if messages == 0 {
            self.when_idle()?;
        }
        Ok(messages)
    }

    #[inline]
    fn poll_channel(
        &mut self,
        index: usize,
        turn: usize,
        deliver: &mut impl FnMut(Delivery<'_>),
    ) -> Result<usize, ChannelEnded> {
        // A peer may raise any flag of the board.
        let Some(Some(channel)) = self.channels.get_mut(index) else { return Ok(0) };
        let key = channel.key();
        let mut messages = 0;
        while messages < turn {
            match channel.receive(|kind, payload| deliver(Delivery { channel: key, kind, payload })) {
                Ok(true) => messages += 1,
                Ok(false) => break,
                Err(breach) => return Err(self.broke_a_rule(key, breach)),
            }
        }
        Ok(messages)
    }

    #[cold]
    fn broke_a_rule(&mut self, key: ChannelKey, breach: Breach) -> ChannelEnded {
        self.end_channel(key, Cause::Breach(breach)).expect("it was just polled")
    }

    /// What a layer does that takes messages channel by channel ([`Endpoint::take_accepted`]), before and after.
    pub(crate) fn begin_poll(&mut self) -> Result<(), ChannelEnded> {
        self.tend_backlog();
        self.before_poll()
    }

    /// How many places for channels there are.
    pub(crate) fn places(&self) -> usize {
        self.channels.len()
    }

    /// The channel at this place, if it has something to receive. One that has nothing is owed nothing afterwards.
    pub(crate) fn has_message(&mut self, place: usize) -> Option<ChannelKey> {
        let channel = self.channels[place].as_mut()?;
        if channel.is_idle() {
            channel.pay_credit();
            return None;
        }
        Some(channel.key())
    }

    /// Takes one message from the channel at this place; leaves it in its ring, and all behind it, if `accepts`, given its
    /// length, is false.
    pub(crate) fn take_accepted<T>(
        &mut self,
        place: usize,
        to: &mut T,
        accepts: impl FnOnce(&mut T, usize) -> bool,
        deliver: impl Fn(&mut T, Delivery<'_>),
    ) -> Result<Option<ChannelKey>, ChannelEnded> {
        let Some(channel) = &mut self.channels[place] else { return Ok(None) };
        let key = channel.key();
        let mut taken = None;
        let outcome = channel.next_length().and_then(|length| match length {
            Some(bytes) if accepts(to, bytes) => channel.receive(|kind, payload| {
                taken = Some(key);
                deliver(to, Delivery { channel: key, kind, payload });
            }),
            _ => Ok(false),
        });
        match outcome {
            Ok(_) => Ok(taken),
            Err(breach) => Err(self.broke_a_rule(key, breach)),
        }
    }

    /// Whether some channel has three quarters of its ring unread. Its sender is soon refused. (Thesis §2.3.1)
    pub fn is_almost_full(&mut self) -> bool {
        self.channels.iter_mut().flatten().any(|channel| channel.is_almost_full())
    }

    /// The channels whose flags are up, and one more in turn with each look at the board: flags are hints, and no
    /// channel waits for ever because one was lost or because others are busy.
    fn poll_flagged(
        &mut self,
        turn: usize,
        most: usize,
        deliver: &mut impl FnMut(Delivery<'_>),
    ) -> Result<usize, ChannelEnded> {
        let mut messages = 0;
        self.looks = self.looks.wrapping_add(1);
        if self.looks.is_multiple_of(LOOKS_PER_TURN) {
            self.turn = if self.turn + 1 >= self.channels.len() { 0 } else { self.turn + 1 };
            messages += self.poll_channel(self.turn, turn, deliver)?;
        }
        for _ in 0..self.channels.len() {
            if messages >= most {
                break;
            }
            let Some((index, flag)) = self.flagged.next(self.shared.bell()) else { break };
            let came = self.poll_channel(index, turn, deliver)?;
            messages += came;
            // With nothing to read, what the flag says is old, or nonsense; it is news again when it changes.
            let channel = self.channels.get_mut(index).and_then(Option::as_mut).filter(|_| came > 0);
            let Some(channel) = channel else {
                self.flagged.record(index, flag);
                continue;
            };
            let read = channel.flag_when_read();
            self.flagged.record(index, read);
            // Messages that no flag was raised for are found by looking, and so are 256 more than a flag tells of.
            let untold = self.flagged.was_certain() || (read == flag && channel.has_long_ring());
            if untold && !channel.is_idle() {
                self.flagged.look_at(index);
            }
        }
        if messages == 0 {
            // Who asks on a channel waits for the answer there: its slot is seen a line's way before its flag. Only while no
            // flag is up, so that nobody has to wait for that.
            messages = self.poll_channel(self.awaited, turn.min(most), deliver)?;
        }
        Ok(messages)
    }

    /// Nearly the same, cheaply: what a spinning thread looks at. Ends are seen by the look before the sleep.
    #[inline]
    pub(crate) fn seems_to_have_something(&mut self) -> bool {
        if self.looks_at_each() {
            return self.channels.iter_mut().flatten().any(|channel| !channel.is_idle())
                || self.shared.has_news(Ordering::Relaxed);
        }
        self.flagged.any(self.shared.bell()) || self.shared.has_news(Ordering::Relaxed)
    }
}
