//! A transport that loses, made one that does not: [`GoBackN`] between the channel and the network. (Thesis §2.5.1)
//!
//! Agents agree on it for every channel between two hosts. Layers that cannot do without it (active messages and calls,
//! virtual interfaces, emulated endpoints) put it under any other channel whose transport says that it can lose, and so do
//! both ends, before the first message.
//!
//! Nothing runs by itself: what has to be sent again is sent while somebody sends, receives or looks, so who waits asks
//! [`Transport::next_timeout`] how long. After a close whoever holds the transport drives it with
//! [`Transport::settle`] until the peer has all.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use comb_congestion::quench::Signal;
use comb_types::Time;
use rustix::io::Errno;

use crate::life::Cause;
use crate::payload::Payload;
use crate::quench::{self, SIGNAL};
use crate::reliable::{Config, Event, GoBackN, HEADER_BYTES, Input, PeerError};
use crate::ring::Breach;
use crate::transport::{Capabilities, SendError, Transport, TransportCounters};

/// The longest message on a channel between hosts.
pub const LONGEST_MESSAGE: usize = 64 << 10;

/// Messages, or pieces of longer ones, on their way without an acknowledgement. Two messages of the longest kind in the
/// smallest frames that Ethernet is used with; and not more than the kernel keeps for a socket unless it is told to.
pub const WINDOW: u32 = 128;

/// A thread that was not scheduled for some time is not a dead peer; death is told by other means.
const SILENCE_LIMIT: Duration = Duration::from_secs(10);

/// An endpoint that waits for events has a timer set for this, which takes longer than a message where the processor's own is emulated, and
/// whose end takes the core from a thread that computes. So it is to be rare beside messages, most of which an answer acknowledges.
const ACKNOWLEDGE_WITHIN: Duration = Duration::from_millis(1);

/// A peer whose thread waits for a core is not to be sent again what it has, and it need not acknowledge at once. What is lost in the middle of
/// a stream its receiver reports, without any timer.
const SHORTEST_TIMEOUT: Duration = Duration::from_micros(2500);

/// What a window may hold in all: it is kept until it is acknowledged, for each channel, and the peer has a say in it.
const MOST_KEPT_BYTES: usize = 1 << 20;

/// The kind under which frames of the protocol travel; the message's own kind is the first byte within.
const FRAME: u8 = *crate::kinds::CHANNEL.start();

/// Frames that one look takes before others have their turn: a peer that floods us with frames that bring nothing costs
/// an endpoint a bounded part of each turn.
const FRAMES_A_LOOK: usize = 256;

/// Frames that go one by one after nothing was heard for so long that all are sent again: there may be something on the way that does not take
/// several at once, as an AF_XDP socket at the other end of a virtual cable.
const FRAMES_ALONE: u32 = 256;

/// What may come while the endpoint waits for something else, and is kept for it: a window of the longest kind. Beyond
/// it messages stay with their sender.
const MOST_HELD_BYTES: usize = 2 * LONGEST_MESSAGE;
/// What an empty message counts: its place in the queue.
const HELD_BYTES_EACH: usize = 64;

/// What both ends must agree on, and how long this one waits for a silent peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Agreement {
    /// Pieces of messages on their way.
    pub window: u32,
    /// Bytes of the longest message.
    pub longest_message: usize,
    /// A peer that acknowledges nothing for so long is taken for dead.
    pub silence_limit: Duration,
}

/// An agreement that cannot be kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("messages of {longest_message} bytes cannot be sent in a window of {window} frames of {frame} bytes")]
pub struct BadAgreement {
    /// As it was to be.
    pub longest_message: usize,
    /// As it was to be.
    pub window: u32,
    /// Bytes of a frame's content.
    pub frame: usize,
}

impl Agreement {
    /// The usual one over frames that carry so many bytes. Both ends come to the same.
    fn usual(frame: usize) -> Self {
        let kept = u32::try_from(MOST_KEPT_BYTES / frame.max(1)).unwrap_or(WINDOW);
        let window = WINDOW.min(kept).max(1);
        let fits = (frame.saturating_sub(HEADER_BYTES) * window as usize).saturating_sub(1);
        let longest_message = LONGEST_MESSAGE.min(fits);
        Self { window, longest_message, silence_limit: SILENCE_LIMIT }
    }

    /// Whether it can be kept over frames that carry so many bytes.
    pub fn check(self, frame: usize) -> Result<(), BadAgreement> {
        self.config(frame).map(drop)
    }

    fn config(self, frame: usize) -> Result<Config, BadAgreement> {
        let Self { window, longest_message, silence_limit } = self;
        let bad = BadAgreement { longest_message, window, frame };
        let longest_piece_bytes = frame.checked_sub(HEADER_BYTES).filter(|piece| *piece > 0).ok_or(bad)?;
        if longest_message > LONGEST_MESSAGE || frame.saturating_mul(window as usize) > MOST_KEPT_BYTES {
            return Err(bad);
        }
        // The kind goes before the first byte.
        let longest_message_bytes = longest_message + 1;
        let fits = longest_message_bytes.div_ceil(longest_piece_bytes) <= window as usize;
        if !fits {
            return Err(bad);
        }
        let config = Config {
            window,
            longest_message_bytes,
            longest_piece_bytes,
            acknowledge_within: ACKNOWLEDGE_WITHIN,
            first_timeout: SHORTEST_TIMEOUT,
            shortest_timeout: SHORTEST_TIMEOUT,
            ..Config::default()
        };
        let silence_limit = silence_limit.max(config.longest_timeout * 2);
        Ok(Config { silence_limit, ..config })
    }
}

/// The rule that the peer broke. The numbers are in the error, and a breach has no place for them.
fn rule(error: PeerError) -> &'static str {
    match error {
        PeerError::Truncated { .. } => "a frame shorter than its header",
        PeerError::Version(_) => "a frame of a version that was not agreed on",
        PeerError::ReservedBits => "a frame with bits set that mean nothing",
        PeerError::TooLong { .. } => "a message longer than agreed, in pieces",
        PeerError::Piece { .. } => "a piece of a message that is not as long as agreed",
        PeerError::AcknowledgedUnsent { .. } => "an acknowledgement of what was never sent",
        PeerError::BeyondWindow { .. } => "a frame beyond the window",
    }
}

/// See the [module](self).
pub struct Reliable {
    under: Box<dyn Transport>,
    protocol: GoBackN,
    agreement: Agreement,
    started: Instant,
    outgoing: Vec<u8>,
    incoming: Vec<u8>,
    /// What came before anybody asked for it.
    held: VecDeque<(u8, Vec<u8>)>,
    held_bytes: usize,
    /// The last quench signal: it concerns our own messages, and waits behind none of the peer's.
    signal: Option<Signal>,
    /// What the peer did wrong while nobody asked.
    breach: Option<Breach>,
    silent: bool,
    /// So many frames go one by one.
    alone: u32,
    /// The network will never take a frame again.
    refusal: Option<Errno>,
    /// Bytes of the message that was refused last.
    refused: usize,
    closed: bool,
    settled: bool,
    counters: TransportCounters,
}

impl Reliable {
    /// Retransmission over `under`, as both ends do it that have agreed on nothing else.
    pub fn over(under: Box<dyn Transport>) -> Self {
        let usual = Agreement::usual(under.capabilities().longest_message);
        Self::agreed(under, usual).expect("a frame has room for a piece of a message")
    }

    /// Retransmission over `under`, as both ends agreed.
    pub fn agreed(under: Box<dyn Transport>, agreement: Agreement) -> Result<Self, BadAgreement> {
        let frame = under.capabilities().longest_message;
        let protocol = GoBackN::new(agreement.config(frame)?);
        Ok(Self {
            under,
            outgoing: vec![0; protocol.longest_frame()],
            protocol,
            agreement,
            started: Instant::now(),
            incoming: Vec::new(),
            held: VecDeque::new(),
            held_bytes: 0,
            signal: None,
            breach: None,
            silent: false,
            alone: 0,
            refusal: None,
            refused: 0,
            closed: false,
            settled: false,
            counters: TransportCounters::default(),
        })
    }

    fn now(&self) -> Time {
        Time::from_nanos(u64::try_from(self.started.elapsed().as_nanos()).expect("584 years"))
    }

    fn is_due(&self) -> bool {
        self.protocol.next_timeout().is_some_and(|at| at <= self.now())
    }

    /// What is due is sent. What the network refuses counts as lost: the protocol sends it again.
    fn transmit(&mut self) {
        let now = self.now();
        if self.is_due() {
            let before = self.protocol.counters().timeouts;
            // Frames cannot make a timeout fail, and nothing is delivered by one.
            let _ = self.protocol.handle(now, Input::Timeout);
            if self.protocol.counters().timeouts > before {
                self.alone = FRAMES_ALONE;
            }
        }
        let mut has_begun = false;
        while let Some(bytes) = self.protocol.poll_transmit(now, &mut self.outgoing) {
            if self.alone > 0 {
                self.alone -= 1;
            } else if !std::mem::replace(&mut has_begun, true) {
                self.under.begin_burst();
            }
            if let Err(SendError::System(Errno::KEYEXPIRED)) =
                self.under.send(FRAME, &[&self.outgoing[..bytes]])
            {
                self.refusal = Some(Errno::KEYEXPIRED);
            }
        }
        if has_begun {
            self.under.end_burst();
        }
        while let Some(event) = self.protocol.poll_event() {
            self.silent |= matches!(event, Event::PeerSilent { .. });
        }
    }

    /// One frame: whether one came, and whether a message was complete with it. Without room, what it says about our own
    /// messages counts all the same.
    fn take_frame(
        &mut self,
        room: bool,
        sink: &mut dyn FnMut(u8, Payload<'_>),
    ) -> Result<(bool, bool), Breach> {
        let incoming = &mut self.incoming;
        let mut kind = FRAME;
        let came = self.under.receive(&mut |frame_kind, payload| {
            kind = frame_kind;
            incoming.resize(payload.len(), 0);
            payload.copy_to(incoming);
        })?;
        if !came {
            return Ok((false, false));
        }
        if kind != FRAME {
            return Err(Breach::Kind(kind));
        }
        let now = self.now();
        let message = self
            .protocol
            .handle(now, Input::Frame { bytes: &self.incoming, room })
            .map_err(|error| Breach::Form(rule(error)))?;
        let Some(message) = message else { return Ok((true, false)) };
        let (&kind, message) = message.split_first().ok_or(Breach::Form("a message without a kind"))?;
        if kind == SIGNAL {
            self.signal = Some(quench::read(&Payload::Private(message))?);
            return Ok((true, false));
        }
        sink(kind, Payload::Private(message));
        Ok((true, true))
    }

    /// Takes what has come, until a message is there (or several, for as long as there is room). For whoever cannot take
    /// them now and waits for acknowledgements.
    fn listen(&mut self, enough: usize) {
        for _ in 0..FRAMES_A_LOOK {
            if self.held.len() >= enough || self.breach.is_some() {
                break;
            }
            let room = self.held_bytes < MOST_HELD_BYTES;
            let mut message = None;
            match self.take_frame(room, &mut |kind, payload| message = Some((kind, payload.to_vec()))) {
                Ok((false, _)) => break,
                Ok(_) => {}
                Err(breach) => self.breach = Some(breach),
            }
            if let Some((kind, message)) = message {
                self.held_bytes += message.len() + HELD_BYTES_EACH;
                self.held.push_back((kind, message));
            }
        }
        self.transmit();
    }

    /// Whether [`Transport::receive`] would do something.
    fn look(&mut self) -> bool {
        self.listen(1);
        !self.held.is_empty() || self.breach.is_some()
    }

    fn has_room_for(&self, bytes: usize) -> bool {
        self.protocol.has_room_for(bytes.saturating_add(1))
    }
}

impl Transport for Reliable {
    fn capabilities(&self) -> Capabilities {
        Capabilities { longest_message: self.agreement.longest_message, can_lose: false }
    }

    fn send(&mut self, kind: u8, parts: &[&[u8]]) -> Result<(), SendError> {
        if let Some(refusal) = self.refusal {
            return Err(SendError::System(refusal));
        }
        let (bytes, limit) =
            (parts.iter().map(|part| part.len()).sum::<usize>(), self.agreement.longest_message);
        if bytes > limit {
            return Err(SendError::TooLong { bytes, limit });
        }
        if !self.has_room_for(bytes) || self.is_due() {
            // The acknowledgements that make room, or for want of which something would be sent again, may have come.
            self.listen(usize::MAX);
        }
        let kind = [kind];
        let message: Vec<&[u8]> = std::iter::once(&kind[..]).chain(parts.iter().copied()).collect();
        let taken = self.protocol.send(&message);
        self.transmit();
        if taken.is_err() {
            // A silent peer makes no room any more either; the channel's end says so.
            self.refused = bytes;
            self.counters.refused += 1;
            // One that broke a rule makes none either, and is cut off.
            return Err(self.breach.map_or(SendError::Full, SendError::Breach));
        }
        self.counters.sent += 1;
        Ok(())
    }

    fn receive(&mut self, sink: &mut dyn FnMut(u8, Payload<'_>)) -> Result<bool, Breach> {
        if let Some((kind, message)) = self.held.pop_front() {
            self.held_bytes -= message.len() + HELD_BYTES_EACH;
            sink(kind, Payload::Private(&message));
            self.counters.received += 1;
            self.protocol.room_again();
            return Ok(true);
        }
        if let Some(breach) = self.breach.take() {
            return Err(breach);
        }
        let mut delivered = false;
        for _ in 0..FRAMES_A_LOOK {
            let (came, complete) = self.take_frame(true, sink)?;
            delivered = complete;
            if !came || complete {
                break;
            }
        }
        self.counters.received += u64::from(delivered);
        self.transmit();
        Ok(delivered)
    }

    fn is_idle(&mut self) -> bool {
        !self.look()
    }

    fn next_length(&mut self) -> Result<Option<usize>, Breach> {
        self.look();
        match (self.held.front(), self.breach.take()) {
            (Some((_, message)), breach) => {
                self.breach = breach;
                Ok(Some(message.len()))
            }
            (None, Some(breach)) => Err(breach),
            (None, None) => Ok(None),
        }
    }

    fn hear(&mut self) {
        self.listen(usize::MAX);
    }

    fn take_signal(&mut self) -> Option<Signal> {
        self.signal.take()
    }

    fn has_room(&mut self) -> bool {
        if !self.has_room_for(self.refused) {
            self.listen(usize::MAX);
        }
        // Who waits in vain is to try again and be told why.
        self.has_room_for(self.refused) || self.breach.is_some() || self.peer_closed()
    }

    fn has_in_hand(&mut self) -> bool {
        !self.held.is_empty() || self.breach.is_some() || self.under.has_in_hand()
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.protocol.next_timeout().map(|at| self.started + Duration::from_nanos(at.as_nanos()))
    }

    /// The peer is told when it has everything: see [`Transport::settle`].
    fn close(&mut self) {
        self.closed = true;
        self.settle();
    }

    fn settle(&mut self) -> bool {
        if !self.closed || self.settled {
            return self.closed;
        }
        // What the peer still says is of no interest; that it has what we said is.
        self.held.clear();
        for _ in 0..FRAMES_A_LOOK {
            if self.breach.is_some() {
                break;
            }
            match self.take_frame(true, &mut |_, _| {}) {
                Ok((true, _)) => {}
                Ok((false, _)) => break,
                Err(breach) => self.breach = Some(breach),
            }
        }
        self.transmit();
        let in_vain = self.breach.is_some() || self.refusal.is_some() || self.peer_closed();
        if in_vain || self.protocol.unacknowledged() == 0 {
            self.under.close();
            self.settled = true;
        }
        self.settled
    }

    fn peer_closed(&self) -> bool {
        self.silent || self.under.peer_closed()
    }

    fn cause(&self) -> Option<Cause> {
        if self.silent { Some(Cause::Silent(self.agreement.silence_limit)) } else { self.under.cause() }
    }

    fn counters(&self) -> TransportCounters {
        TransportCounters {
            outstanding: self.protocol.unacknowledged(),
            dropped: self.under.counters().dropped,
            ..self.counters
        }
    }

    fn readable(&self) -> Option<BorrowedFd<'_>> {
        self.under.readable()
    }
}
