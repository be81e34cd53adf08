//! The transport within a machine: two slot rings in sealed shared memory, one each way.
//!
//! Each side owns one segment, which it alone writes and only this one peer maps:
//!
//! ```text
//! page 0   control words: identity, count of consumed messages, "I wait for credit", closed, tick, quench, window epochs
//! then     the slot ring of the messages that this side sends; in what is left of page 0, if it fits
//! then     the payload area: what does not fit in a slot
//! ```
//!
//! **Nobody reads back what it wrote here.** Each side keeps the truth about its own side in private memory. So a wild
//! store of the reader into the writer's segment spoils what is said to that reader, and nothing else: not the writer,
//! not a third. That is why the reader's mapping is writable by default. On today's AMD processors a load through a
//! read-only page table entry leaves the line shared, where a load through a writable one takes it over whole, and
//! the writer's next store must then ask every core instead of one: a third of a round trip, and the larger part of
//! what copies of 1–4 KB lose. Who prefers a trap at the wild store to that third sets
//! [`crate::EndpointOptions::trap_wild_stores`].
//!
//! A message of up to 56 bytes is one cache line. A longer one is a descriptor in the slot and its bytes, contiguous,
//! in the payload area. Nothing here is a system call, except that a sleeping receiver is woken.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use comb_congestion::quench::Signal;

use crate::bell::{Attention, Bell};
use crate::bypass::Bypass;
use crate::copy;
use crate::credit::{self, EVERY_COUNT, ROOM};
use crate::fence::Fences;
use crate::owed::Owed;
use crate::payload::{Inline, Payload, PayloadArea};
use crate::quench::{self, Pace};
use crate::ring::{
    Breach, CONTENT_WORDS, Content, Header, INLINE_BYTES, RingConsumer, RingProducer, SLOT_WORDS, low_half,
};
use crate::segment::{Segment, SegmentError, Writers};
use crate::sync::{AtomicU64, Ordering, Words};
use crate::transport::{Capabilities, SendError, Transport, TransportCounters};

const PAGE: usize = 4096;

/// Control words, each group on a cache line of its own, because each is polled by the peer at another time.
mod control {
    pub(super) const MAGIC: usize = 0;
    pub(super) const GEOMETRY: usize = 1;
    pub(super) const CONSUMED: usize = 8;
    /// Bits: [`crate::credit::ROOM`] and [`crate::credit::EVERY_COUNT`].
    pub(super) const WANTS_CREDIT: usize = 16;
    pub(super) const CLOSED: usize = 24;
    pub(super) const TICK: usize = 32;
    /// See [`crate::quench`].
    pub(super) const QUENCH: usize = 40;
    pub(super) const WINDOW_EPOCHS: usize = 64;
    pub(super) const END: usize = WINDOW_EPOCHS + super::WINDOWS;
}

/// "comb" and the version of this layout.
const MAGIC: u64 = u64::from_le_bytes(*b"comb\0\0\0\x03");

/// How many windows one side can have open on one channel.
pub(crate) const WINDOWS: usize = 256;

/// Looks that find nothing before the receiver tells what it read, unless the sender waits for that.
const EMPTY_LOOKS_BEFORE_PAYING: u8 = 16;

/// The size of one side's segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Geometry {
    /// Messages that can be under way; a power of two.
    pub slots: u32,
    /// Bytes of payload that can be under way; a multiple of 4096.
    pub payload_bytes: u32,
}

impl Default for Geometry {
    /// 64 slots are one page and stay in the first-level cache. 20 KB of payload keep a whole idle channel, both
    /// directions and all touched, below 64 KB.
    fn default() -> Self {
        Self { slots: 64, payload_bytes: 20 << 10 }
    }
}

/// A geometry outside its limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "a channel of {} slots and {} payload bytes is outside the limits: slots are a power of two from 8 to 16384, \
     payload a multiple of 4096 up to 256 MB", .0.slots, .0.payload_bytes
)]
pub struct GeometryError(pub Geometry);

impl Geometry {
    /// For streams of kilobytes between cores that share a cache: 512 slots and 2 MB each way. More is under way than a
    /// core's own cache holds, so what is read has left the writer's for the shared one, whence it comes sooner; and what is
    /// written next need not be taken from the reader first. 1–4 KB stream up to 1.6 times as fast as in the usual geometry. Such a channel holds up to 4 MB of memory once it has streamed, and a message waits behind more others.
    pub const STREAM: Self = Self { slots: 512, payload_bytes: 2 << 20 };

    /// Checks what a caller or a peer asks for.
    pub fn check(self) -> Result<Self, GeometryError> {
        let slots = self.slots.is_power_of_two() && (8..=1 << 14).contains(&self.slots);
        let payload = (self.payload_bytes as usize).is_multiple_of(PAGE) && self.payload_bytes <= 256 << 20;
        if slots && payload { Ok(self) } else { Err(GeometryError(self)) }
    }

    /// Bytes of shared memory for one direction.
    pub fn segment_bytes(self) -> usize {
        self.payload_offset() + self.payload_bytes as usize
    }

    fn ring_bytes(self) -> usize {
        self.slots as usize * SLOT_WORDS * 8
    }

    /// A short ring shares the page of the control words: of a thousand channels, each page less is an address less to
    /// translate on the way of a message.
    fn ring_offset(self) -> usize {
        let behind_control = control::END * 8;
        if behind_control + self.ring_bytes() <= PAGE { behind_control } else { PAGE }
    }

    fn payload_offset(self) -> usize {
        (self.ring_offset() + self.ring_bytes()).next_multiple_of(PAGE)
    }

    fn pack(self) -> u64 {
        u64::from(self.slots) | u64::from(self.payload_bytes) << 32
    }
}

/// One side's segment before the peer's is known: what an opener hands to the agent.
#[derive(Debug)]
pub(crate) struct OwnSide {
    segment: Segment,
    geometry: Geometry,
    /// Whether we map the peer's segment read-only.
    trap_wild_stores: bool,
}

impl OwnSide {
    pub(crate) fn create(
        geometry: Geometry,
        trap_wild_stores: bool,
    ) -> Result<(Self, OwnedFd), SegmentError> {
        let (segment, fd) = Segment::create("comb-ring", geometry.segment_bytes(), Writers::Both)?;
        segment.word(control::MAGIC).store(MAGIC, Ordering::Relaxed);
        segment.word(control::GEOMETRY).store(geometry.pack(), Ordering::Release);
        Ok((Self { segment, geometry, trap_wild_stores }, fd))
    }

    /// For an opener that gives up: the accepter may have taken the channel already, and would otherwise wait for a
    /// peer that never comes.
    pub(crate) fn abandonment(&self) -> Abandonment {
        Abandonment(self.segment.part(0, PAGE))
    }
}

/// See [`OwnSide::abandonment`].
#[derive(Debug)]
pub(crate) struct Abandonment(Segment);

impl Abandonment {
    pub(crate) fn declare(&self) {
        self.0.word(control::CLOSED).store(1, Ordering::Release);
    }
}

/// What one side gets to know of the other when a channel is made.
#[derive(Debug)]
pub(crate) struct PeerSide {
    pub(crate) segment: OwnedFd,
    pub(crate) geometry: Geometry,
    pub(crate) bell: OwnedFd,
    pub(crate) bell_channels: u32,
    /// The channel's number on the peer's bell board.
    pub(crate) bell_index: u32,
    pub(crate) event: Option<OwnedFd>,
    pub(crate) fences: Fences,
}

/// Why a peer's side was not taken. Nothing of it stays mapped.
#[derive(Debug, thiserror::Error)]
pub enum AdoptError {
    /// Its memory.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// Its geometry.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// The memory says something else than the handshake did.
    #[error("the peer's shared memory does not start as the handshake said")]
    Identity,
    /// What came as its eventfd is something else. A write to that could wait for ever.
    #[error("the peer handed over a descriptor that is no eventfd")]
    Event,
    /// A flag that its bell board does not have.
    #[error("the peer assigned flag {index} on a bell board with {channels}")]
    BellIndex {
        /// As assigned.
        index: u32,
        /// As there are.
        channels: u32,
    },
}

/// One end of a channel within a machine. What a message touches comes first, a cache line for each way: of a thousand
/// channels, none is in the nearest cache when its message comes.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct ShmLink {
    consumer: RingConsumer<Segment>,
    producer: RingProducer<Segment>,
    bell: Bell,
    bell_index: u32,
    read_ahead: ReadAhead,
    /// Looks that found nothing while something was owed.
    empty_looks: u8,
    /// The last quench signal that was taken in.
    signal: u64,
    control: Segment,
    peer_control: Segment,
    payload: Segment,
    peer_payload: Segment,
    area: PayloadArea,
    bypass: Bypass,
    event: Option<OwnedFd>,
    /// That the peer, which polls, be woken after all.
    owed: Owed,
    refused: u64,
    /// What `WANTS_CREDIT` holds while we do not wait for room.
    wants: u64,
    pace: Pace,
    stillness: Stillness,
}

/// What a quick look found.
pub(crate) enum Small<R> {
    /// A small message.
    Came(R),
    /// No message, and nothing to be done.
    Nothing,
    /// Something else: a longer look is due.
    Unclear,
}

/// What was last seen of a peer that has messages to read.
#[derive(Debug, Default)]
struct Stillness {
    tick: u64,
    outstanding: (u32, u32),
    since: Option<Instant>,
}

impl ShmLink {
    /// Checks everything that the peer handed over, then maps it.
    pub(crate) fn new(own: &OwnSide, peer: PeerSide) -> Result<Self, AdoptError> {
        let theirs = peer.geometry.check()?;
        let bytes = theirs.segment_bytes() as u64;
        let segment = Segment::adopt(peer.segment.as_fd(), bytes, Writers::Both, !own.trap_wild_stores)?;
        if segment.word(control::MAGIC).load(Ordering::Acquire) != MAGIC
            || segment.word(control::GEOMETRY).load(Ordering::Acquire) != theirs.pack()
        {
            return Err(AdoptError::Identity);
        }
        if peer.bell_index >= peer.bell_channels || peer.bell_channels > 1 << 16 {
            return Err(AdoptError::BellIndex { index: peer.bell_index, channels: peer.bell_channels });
        }
        let board = Bell::board_bytes(peer.bell_channels) as u64;
        let board = Segment::adopt(peer.bell.as_fd(), board, Writers::Both, true)?;
        let bell = Bell::of_peer(board, peer.fences.meet(Fences::of_this_process()));
        if let Some(event) = &peer.event {
            check_event(event.as_fd())?;
        }
        let ours = own.geometry;
        Ok(Self {
            consumer: RingConsumer::new(
                segment.part(theirs.ring_offset(), theirs.ring_bytes()),
                theirs.slots,
                theirs.payload_bytes,
            ),
            producer: RingProducer::new(
                own.segment.part(ours.ring_offset(), ours.ring_bytes()),
                ours.slots,
                theirs.slots,
            ),
            bell,
            bell_index: peer.bell_index,
            read_ahead: ReadAhead::default(),
            empty_looks: 0,
            signal: 0,
            control: own.segment.part(0, PAGE),
            peer_control: segment.part(0, PAGE),
            payload: own.segment.part(ours.payload_offset(), ours.payload_bytes as usize),
            peer_payload: segment.part(theirs.payload_offset(), theirs.payload_bytes as usize),
            area: PayloadArea::new(ours.payload_bytes, ours.slots),
            bypass: Bypass::default(),
            event: peer.event,
            owed: Owed::default(),
            refused: 0,
            wants: 0,
            pace: Pace::default(),
            stillness: Stillness::default(),
        })
    }

    /// Sends one message.
    #[inline]
    pub(crate) fn send(&mut self, kind: u8, message: &[u8]) -> Result<(), SendError> {
        if message.len() > INLINE_BYTES {
            return self.send_gathered(kind, &[message]);
        }
        if self.producer.credit.available() == 0 {
            self.refresh_credit()?;
        }
        let posted = self.post_small(kind, message);
        debug_assert!(posted, "there is credit");
        Ok(())
    }

    /// Sends one message if it needs nothing but a slot, and one is known to be free.
    #[inline]
    pub(crate) fn post_small(&mut self, kind: u8, message: &[u8]) -> bool {
        if message.len() > INLINE_BYTES || self.producer.credit.available() == 0 {
            return false;
        }
        #[expect(clippy::cast_possible_truncation, reason = "at most 56")]
        self.post(kind, message.len() as u8, message);
        true
    }

    /// Sends one message of up to seven words.
    #[inline]
    pub(crate) fn send_words(&mut self, kind: u8, words: &[u64]) -> Result<(), SendError> {
        debug_assert!(words.len() <= CONTENT_WORDS);
        if self.producer.credit.available() == 0 {
            self.refresh_credit()?;
        }
        #[expect(clippy::cast_possible_truncation, reason = "at most 56")]
        self.post(kind, (words.len() * 8) as u8, words);
        Ok(())
    }

    /// Sends one message if a slot is known to be free.
    #[inline]
    pub(crate) fn post_words<const N: usize>(&mut self, kind: u8, bytes: u8, words: &[u64; N]) -> bool {
        if self.producer.credit.available() == 0 {
            return false;
        }
        self.post(kind, bytes, words);
        true
    }

    /// Sends one message, gathered from `parts`.
    #[inline]
    pub(crate) fn send_gathered(&mut self, kind: u8, parts: &[&[u8]]) -> Result<(), SendError> {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        if self.producer.credit.available() == 0 {
            self.refresh_credit()?;
        }
        if bytes <= INLINE_BYTES {
            let mut message = [0; INLINE_BYTES];
            let mut at = 0;
            for part in parts {
                message[at..at + part.len()].copy_from_slice(part);
                at += part.len();
            }
            return self.send(kind, &message[..bytes]);
        }
        let descriptor = self.place(parts, bytes)?;
        self.post(kind, Header::DESCRIPTOR, &[descriptor]);
        Ok(())
    }

    #[inline]
    fn post(&mut self, kind: u8, length: u8, content: impl Content) {
        self.producer.post(kind, length, content, self.consumer.credit.short());
        let attention = self.bell.after_post();
        if attention.is_wanted() {
            self.attend(attention);
        }
    }

    /// Does what the peer wants done after a message.
    #[cold]
    fn attend(&mut self, attention: Attention) {
        self.bell.ring(attention, self.bell_index as usize, low_half(self.producer.credit.sent()));
        if attention.is_polled() {
            self.bell.raise_mail();
            self.owed.owe();
        } else if attention.wants_event() {
            self.write_event();
        }
        if attention.has_quenched() && self.signal != self.signalled() {
            // The next send finds no credit, and then out why.
            self.producer.credit.stop();
        }
    }

    fn write_event(&self) {
        if let Some(event) = &self.event {
            // Fails only when the counter is full, and then the peer has not looked at it anyway.
            let _ = rustix::io::write(event, &1_u64.to_ne_bytes());
        }
    }

    /// Wakes the peer if it polls and has not looked since something has come to it. `whoever`: from others, too.
    pub(crate) fn ring(&mut self, whoever: bool) {
        if (self.owed.is_settled() || whoever) && self.bell.is_unread() {
            self.write_event();
        }
    }

    /// What the peer's endpoint left last.
    pub(crate) fn last_word(&self) -> Option<u128> {
        self.bell.last_word()
    }

    fn ring_bell(&mut self) {
        let attention = self.bell.after_post();
        self.attend(attention);
    }

    fn signalled(&self) -> u64 {
        self.peer_control.word(control::QUENCH).load(Ordering::Relaxed)
    }

    /// Whether the peer lets this flow send, as far as it has said. Stopped, it has no credit.
    fn obey(&mut self) -> Result<(), SendError> {
        let signal = self.signalled();
        if self.signal != signal {
            self.signal = signal;
            self.pace.obey(quench::unpack(signal)).map_err(SendError::Breach)?;
        }
        if self.pace.may_send() {
            self.producer.credit.go_on();
        } else {
            self.producer.credit.stop();
        }
        Ok(())
    }

    /// Tells the source of the flow that comes in here to stop, or to go on.
    pub(crate) fn signal(&mut self, signal: Signal) {
        let word = self.control.word(control::QUENCH);
        if credit::announce(word, quench::pack(signal), self.peer_wants(), || self.bell.fences().after_post())
        {
            self.ring_bell();
        }
    }

    /// Copies a payload into our area.
    fn place(&mut self, parts: &[&[u8]], bytes: usize) -> Result<u64, SendError> {
        let too_long = SendError::TooLong { bytes, limit: self.longest_message() };
        let length = u32::try_from(bytes).map_err(|_| too_long)?;
        if length > self.area.capacity() {
            return Err(too_long);
        }
        let credit = &self.producer.credit;
        self.area.reclaim(low_half(credit.acknowledged()));
        let sequence = low_half(credit.sent() + 1);
        let offset = match self.area.allocate(sequence, length) {
            Some(offset) => offset,
            None => self.refresh_credit_or(|link| {
                link.area.reclaim(low_half(link.producer.credit.acknowledged()));
                link.area.allocate(sequence, length)
            })?,
        };
        let past_cache = self.bypass.is_on(bytes);
        let mut at = offset as usize;
        if self.producer.credit.outstanding() > 0 && !past_cache {
            // A stream: the reader had these lines last. Asking for all at once makes it a quarter faster; in a
            // request and its answer they would only be asked for twice.
            self.payload.range(at, bytes).expect("allocated within the area").prefetch_for_writing();
        }
        for part in parts {
            let range = self.payload.range(at, part.len()).expect("allocated within the area");
            if past_cache {
                range.copy_from_past_cache(part);
            } else {
                range.copy_from(part);
            }
            at += part.len();
        }
        if past_cache {
            copy::settle();
        }
        Ok(u64::from(offset) | u64::from(length) << 32)
    }

    fn refresh_credit(&mut self) -> Result<(), SendError> {
        self.refresh_credit_or(|link| (link.producer.credit.available() > 0).then_some(()))
    }

    /// Reads the peer's count of consumed messages, a cache line that it writes rarely, and tries again.
    #[cold]
    fn refresh_credit_or<T>(&mut self, attempt: impl FnOnce(&mut Self) -> Option<T>) -> Result<T, SendError> {
        if self.producer.credit.is_stopped() {
            self.obey()?;
        }
        let consumed = self.peer_consumed();
        if self.producer.credit.is_news(consumed) {
            self.producer.credit.announced(consumed).map_err(|error| SendError::Breach(error.into()))?;
        }
        attempt(self).ok_or_else(|| {
            self.refused += 1;
            SendError::Full
        })
    }

    fn peer_consumed(&self) -> u32 {
        credit::announced(self.peer_control.word(control::CONSUMED))
    }

    /// Delivers the next message if it is there, stands in its slot, nothing is wrong with it, and `take` wants it.
    #[inline(always)]
    pub(crate) fn receive_small<R>(&mut self, take: impl FnOnce(u8, Inline<'_>) -> Option<R>) -> Small<R> {
        let slot = match self.consumer.find() {
            Ok(slot) => slot,
            Err(word) if self.consumer.is_stale(word) && !self.is_time_to_pay() => {
                self.read_ahead.prefetch(&self.peer_payload);
                return Small::Nothing;
            }
            Err(_) => return Small::Unclear,
        };
        let header = slot.header();
        if usize::from(header.length) > INLINE_BYTES {
            return Small::Unclear;
        }
        let Some(result) = take(header.kind, Inline::new(self.consumer.slot(slot), header.length)) else {
            return Small::Unclear;
        };
        if self.producer.credit.announced_short(header.acknowledged).is_err() {
            return Small::Unclear;
        }
        self.consume(0);
        self.producer.ask_for_next();
        Small::Came(result)
    }

    /// Delivers the next message, if there is one.
    #[inline]
    pub(crate) fn receive<R>(
        &mut self,
        sink: impl FnOnce(u8, Payload<'_>) -> R,
    ) -> Result<Option<R>, Breach> {
        let Some(slot) = self.consumer.peek()? else {
            self.pay_credit();
            self.read_ahead.prefetch(&self.peer_payload);
            return Ok(None);
        };
        let header = slot.header();
        self.producer.credit.announced_short(header.acknowledged)?;
        let mut payload_bytes = 0;
        let result = if usize::from(header.length) <= INLINE_BYTES {
            sink(header.kind, Payload::Inline(Inline::new(self.consumer.slot(slot), header.length)))
        } else if header.length == Header::DESCRIPTOR {
            let descriptor = self.consumer.content(slot)[0];
            #[expect(clippy::cast_possible_truncation, reason = "two fields of one word")]
            let (offset, bytes) = (descriptor as u32, (descriptor >> 32) as u32);
            let area_bytes = u32::try_from(self.peer_payload.len()).expect("checked geometry");
            let breach = Breach::Descriptor { offset, bytes, area_bytes };
            let aligned = offset.is_multiple_of(8);
            let range = self.peer_payload.range(offset as usize, bytes as usize).filter(|_| aligned);
            let range = range.ok_or(breach)?;
            payload_bytes = bytes;
            if self.bypass.was_on() {
                // Such a payload is read, and its answer written, while the line is on its way.
                self.producer.ask_for_next();
            }
            self.read_ahead = ReadAhead::after(offset, bytes);
            sink(header.kind, Payload::Shared(range))
        } else {
            return Err(Breach::InlineLength(header.length));
        };
        self.consume(payload_bytes);
        if payload_bytes == 0 {
            self.producer.ask_for_next();
        }
        Ok(Some(result))
    }

    #[inline]
    fn consume(&mut self, payload_bytes: u32) {
        self.consumer.consume(payload_bytes);
        if self.consumer.credit.is_worthwhile() || self.bell.peer_wants_credit() {
            self.give_credit();
        }
    }

    /// How many bytes the next message alleges to have. What is delivered is checked and may differ: the sender can
    /// write to its ring at any time.
    pub(crate) fn next_length(&mut self) -> Result<Option<usize>, Breach> {
        let Some(slot) = self.consumer.peek()? else {
            self.pay_credit();
            return Ok(None);
        };
        Ok(Some(match slot.header().length {
            Header::DESCRIPTOR => (self.consumer.content(slot)[0] >> 32) as usize,
            inline => usize::from(inline),
        }))
    }

    /// What the channel's flag says when all is read.
    #[inline]
    pub(crate) fn flag_when_read(&self) -> u8 {
        #[expect(clippy::cast_possible_truncation, reason = "the flag is the low byte")]
        let read = self.consumer.credit.consumed() as u8;
        read
    }

    /// Whether so many messages can lie in the peer's ring that the flag, which is a byte, says the same again.
    #[inline]
    pub(crate) fn has_long_ring(&self) -> bool {
        self.consumer.slots() >= 256
    }

    /// Whether three quarters of the peer's ring are unread.
    pub(crate) fn is_almost_full(&self) -> bool {
        self.consumer.has_at_least_quarters(3)
    }

    /// Whether nothing came for a while, and something is owed. Not at once: while an answer is on its way every other
    /// look would pay for one message.
    #[inline]
    fn is_time_to_pay(&mut self) -> bool {
        if !self.consumer.credit.owes() {
            return false;
        }
        self.empty_looks = self.empty_looks.wrapping_add(1);
        self.empty_looks.is_multiple_of(EMPTY_LOOKS_BEFORE_PAYING) || self.bell.peer_wants_credit()
    }

    /// An idle receiver owes nothing: a sender that waits for room would otherwise wait for its next message.
    #[inline]
    pub(crate) fn pay_credit(&mut self) {
        if self.consumer.credit.owes() {
            self.announce();
        }
    }

    /// Announces what was consumed, if that is worthwhile or this peer wants to know.
    #[cold]
    fn give_credit(&mut self) {
        if self.consumer.credit.is_worthwhile() || credit::wanted(self.peer_wants()) != 0 {
            self.announce();
        }
    }

    fn announce(&mut self) {
        let consumed = self.consumer.credit.announce();
        let count = self.control.word(control::CONSUMED);
        if credit::announce(count, consumed.into(), self.peer_wants(), || self.bell.fences().after_post()) {
            self.ring_bell();
        }
    }

    fn peer_wants(&self) -> &AtomicU64 {
        self.peer_control.word(control::WANTS_CREDIT)
    }

    /// Whether another message stands behind the one that was read last. The producer may have started over meanwhile: a
    /// poll finds that.
    #[inline]
    pub(crate) fn has_next(&self) -> bool {
        self.consumer.has_next()
    }

    /// Whether nothing has come.
    #[inline]
    pub(crate) fn is_idle(&mut self) -> bool {
        matches!(self.consumer.peek(), Ok(None))
    }

    /// Whether the peer has read more than when we last looked, or lets us go on: a send that was refused may now
    /// succeed.
    pub(crate) fn has_room(&self) -> bool {
        let credit = &self.producer.credit;
        if credit.is_stopped() {
            return self.signal != self.signalled() || self.pace.may_send();
        }
        credit.is_news(self.peer_consumed())
    }

    /// Says to the peer that we wait for room, or no longer. A waiting sender is told of every message consumed. The
    /// endpoint says on its board that somebody waits ([`Bell::demand_credit`]).
    pub(crate) fn want_credit(&self, wanted: bool) {
        let room = if wanted { ROOM } else { 0 };
        credit::want(self.control.word(control::WANTS_CREDIT), self.wants | room);
    }

    /// From now on the peer announces every message that it reads, so that [`ShmLink::is_silent`] is exact.
    pub(crate) fn watch_silence(&mut self) {
        self.wants = EVERY_COUNT;
        self.want_credit(false);
    }

    /// Whether the peer has left messages unread, and its tick has stood still, for `limit` up to `now`. It is judged
    /// by what was seen by earlier calls: a peer is silent only if two calls so far apart saw the same.
    pub(crate) fn is_silent(&mut self, now: Instant, limit: Duration) -> bool {
        let consumed = self.peer_consumed();
        let credit = &self.producer.credit;
        let (sent, acknowledged) = (low_half(credit.sent()), low_half(credit.acknowledged()));
        let unread = sent != acknowledged && sent != consumed;
        // What we send meanwhile changes nothing: the oldest message stays unread.
        let (tick, outstanding) = (self.peer_tick(), (acknowledged, consumed));
        let seen = &mut self.stillness;
        match seen.since {
            Some(since) if unread && (seen.tick, seen.outstanding) == (tick, outstanding) => {
                now.saturating_duration_since(since) >= limit
            }
            _ => {
                *seen = Stillness { tick, outstanding, since: unread.then_some(now) };
                false
            }
        }
    }

    pub(crate) fn bypass(&mut self) -> &mut Bypass {
        &mut self.bypass
    }

    fn longest_message(&self) -> usize {
        (self.area.capacity() as usize).max(INLINE_BYTES)
    }

    /// Tells the peer that no message will follow.
    pub(crate) fn close(&mut self) {
        self.control.word(control::CLOSED).store(1, Ordering::Release);
        self.ring_bell();
    }

    /// Whether the peer said so. Messages that it sent before are still to be read.
    pub(crate) fn peer_closed(&self) -> bool {
        self.peer_control.word(control::CLOSED).load(Ordering::Acquire) != 0
    }

    /// Shows the peer that we are alive and look at the ring, and pays what is owed to it: an endpoint with many channels
    /// does not look at those that have nothing, and would sleep over what they are owed. `tick` counts up.
    pub(crate) fn tick(&mut self, tick: u64) {
        self.control.word(control::TICK).store(tick, Ordering::Relaxed);
        // Who sleeps right after a message never saw that no other is there.
        self.pay_credit();
    }

    /// The peer's tick.
    pub(crate) fn peer_tick(&self) -> u64 {
        self.peer_control.word(control::TICK).load(Ordering::Relaxed)
    }

    /// The epoch word of one of our windows, which outlives the channel with the window's handle.
    pub(crate) fn window_epoch(&self, window: u32) -> Segment {
        window_epoch(&self.control, window)
    }

    /// The epoch word of one of the peer's windows.
    pub(crate) fn peer_window_epoch(&self, window: u32) -> Segment {
        window_epoch(&self.peer_control, window)
    }
}

fn window_epoch(control: &Segment, window: u32) -> Segment {
    assert!((window as usize) < WINDOWS, "the agent lets no other number through");
    control.part((control::WINDOW_EPOCHS + window as usize) * 8, 8)
}

/// Where the next payload will probably stand: the first lines of it are asked for while its slot is polled, so that
/// the two travel side by side. Saves a quarter of the round trip of 64–256 bytes; a wrong guess costs a line.
#[derive(Clone, Copy, Debug, Default)]
struct ReadAhead {
    offset: u32,
    lines: u32,
}

impl ReadAhead {
    /// Beyond that the hardware's own prefetcher has understood.
    const MOST_LINES: u32 = 4;

    #[inline]
    fn after(offset: u32, bytes: u32) -> Self {
        // A sender whose payloads are all read starts over at 0; else the next stands behind this one.
        let next = if offset == 0 { 0 } else { offset.saturating_add(bytes).next_multiple_of(64) };
        Self { offset: next, lines: (bytes / 64).clamp(1, Self::MOST_LINES) }
    }

    #[inline]
    fn prefetch(self, payload: &Segment) {
        for line in 0..self.lines {
            payload.prefetch_for_reading((self.offset + line * 64) as usize);
        }
    }
}

/// Only an eventfd that does not wait is written on the way of a message: whatever else a peer handed over, a full pipe
/// for example, could hold us for ever.
fn check_event(event: BorrowedFd<'_>) -> Result<(), AdoptError> {
    let link = format!("/proc/self/fd/{}", event.as_raw_fd());
    if std::fs::read_link(link).map_err(|_| AdoptError::Event)?.as_os_str() != "anon_inode:[eventfd]" {
        return Err(AdoptError::Event);
    }
    rustix::io::ioctl_fionbio(event, true).map_err(|_| AdoptError::Event)
}

impl Transport for ShmLink {
    fn capabilities(&self) -> Capabilities {
        Capabilities { longest_message: self.longest_message(), can_lose: false }
    }

    fn has_room(&mut self) -> bool {
        ShmLink::has_room(self)
    }

    fn send(&mut self, kind: u8, parts: &[&[u8]]) -> Result<(), SendError> {
        ShmLink::send_gathered(self, kind, parts)
    }

    fn receive(&mut self, sink: &mut dyn FnMut(u8, Payload<'_>)) -> Result<bool, Breach> {
        Ok(ShmLink::receive(self, sink)?.is_some())
    }

    fn is_idle(&mut self) -> bool {
        ShmLink::is_idle(self)
    }

    fn close(&mut self) {
        ShmLink::close(self);
    }

    fn peer_closed(&self) -> bool {
        ShmLink::peer_closed(self)
    }

    fn counters(&self) -> TransportCounters {
        let credit = &self.producer.credit;
        TransportCounters {
            sent: credit.sent(),
            received: self.consumer.credit.consumed(),
            refused: self.refused,
            dropped: 0,
            outstanding: credit.outstanding(),
            quenches: self.pace.quenches(),
        }
    }
}

/// Two ends of a channel without endpoints and an agent: for the conformance suite, which runs over bare transports.
#[doc(hidden)]
pub fn pair_for_tests(geometry: Geometry) -> (Box<dyn Transport>, Box<dyn Transport>) {
    let (ours, theirs) = pair(geometry);
    (Box::new(ours), Box::new(theirs))
}

fn pair(geometry: Geometry) -> (ShmLink, ShmLink) {
    let side = || {
        let (own, ring) = OwnSide::create(geometry, false).expect("memory");
        let (_, bell) = Bell::create(1, Fences::Full).expect("memory");
        (own, ring, bell)
    };
    let peer = |(segment, bell)| PeerSide {
        segment,
        geometry,
        bell,
        bell_channels: 1,
        bell_index: 0,
        event: None,
        fences: Fences::Full,
    };
    let (ours, our_ring, our_bell) = side();
    let (theirs, their_ring, their_bell) = side();
    let link = |own: &OwnSide, other| ShmLink::new(own, peer(other)).expect("made a moment ago");
    (link(&ours, (their_ring, their_bell)), link(&theirs, (our_ring, our_bell)))
}

#[cfg(test)]
mod tests;
