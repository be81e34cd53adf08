//! Every message once and in order, over a transport that loses, doubles and reorders.
//!
//! U-Net's active messages do this with the plainest means that work, a window of fixed size and "go back N":
//! the sender keeps a copy of the last `w` messages; the receiver takes only the one that it expects next,
//! drops all others and says which one that is; the sender then sends everything again from there. (Thesis
//! §2.5.1) Between two hosts of one room losses are rare and windows short, so what a smarter receiver would
//! save by keeping messages that came too early is little, and it would have to hold buffers for every peer
//! that might misbehave.
//!
//! A message that is longer than a frame travels in pieces, each with a sequence number of its own. They come in order
//! like everything else, so the receiver only puts one behind the other; it holds at most one message.
//!
//! [`GoBackN`] is one end of one channel, both directions: acknowledgements ride on messages of the other
//! direction, or travel alone when there are none. It is pure: time and frames go in, frames and events come
//! out, and the caller owns sockets, clocks and threads. It knows nothing of keys: frames from the network go
//! through the module `seal` first, so whatever is wrong with one here is the peer's own doing.
//!
//! It bounds memory at both ends and keeps one peer from overrunning the other. What to do about congestion
//! in between is not its business. (Thesis §2.5.1; see `comb-congestion`)

mod assembly;
mod frame;
mod receiver;
mod round_trip;
mod sender;
#[cfg(test)]
mod tests;

use assembly::Assembly;
use comb_types::{Time, VersionError};
use frame::Header;
use receiver::{Position, Receiver};
use sender::Sender;
use std::time::Duration;
use thiserror::Error;

pub use frame::HEADER_BYTES;

/// What both ends must agree on (the first three), and how patient this one is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// Messages, or pieces of longer ones, that may be on their way without an acknowledgement.
    pub window: u32,
    /// The longest message. Its pieces fit into one window.
    pub longest_message_bytes: usize,
    /// The longest piece: what a frame carries behind its header.
    pub longest_piece_bytes: usize,
    /// How long an acknowledgement may wait for a message to ride on. Shorter than the peer's
    /// `shortest_timeout`, or it sends again what we have.
    pub acknowledge_within: Duration,
    /// When to send again before any round trip has been measured.
    pub first_timeout: Duration,
    /// Send again after this at the earliest, however fast the round trips are: a peer that was not scheduled
    /// for a moment has lost nothing.
    pub shortest_timeout: Duration,
    /// Send again after this at the latest, however often it was in vain.
    pub longest_timeout: Duration,
    /// A peer that says nothing for so long, while we wait for its acknowledgement, is silent for ever.
    pub silence_limit: Duration,
}

impl Default for Config {
    /// For hosts in one room: round trips of 10 µs to 1 ms.
    fn default() -> Config {
        Config {
            window: 64,
            longest_message_bytes: 2048,
            longest_piece_bytes: 1388,
            acknowledge_within: Duration::from_micros(100),
            first_timeout: Duration::from_millis(1),
            shortest_timeout: Duration::from_micros(500),
            longest_timeout: Duration::from_millis(50),
            silence_limit: Duration::from_millis(500),
        }
    }
}

impl Config {
    /// The longest piece that there can be.
    fn piece_bytes(&self) -> usize {
        self.longest_piece_bytes.min(self.longest_message_bytes).max(1)
    }
}

/// Sequence numbers are compared by half their range; a window far below that keeps even copies that the
/// network delayed for long on the right side.
const WIDEST_WINDOW: u32 = 1 << 16;

/// What happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Input<'f> {
    /// A frame of the peer arrived.
    Frame {
        /// The frame, as `poll_transmit` wrote it at the other end, or so it is alleged.
        bytes: &'f [u8],
        /// Whether a message in it can be taken. If not, it counts as never received: the peer keeps it
        /// and sends it again; tell it with [`GoBackN::room_again`] when.
        room: bool,
    },
    /// The time of `next_timeout` has come. Too early or twice does no harm.
    Timeout,
}

/// What the driver must know of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// `send` refused for want of room, and now there is some.
    Writable,
    /// The peer said nothing for the silence limit while messages waited for its acknowledgement. Whether it
    /// has them is unknown. This end is finished: it sends and takes nothing any more.
    PeerSilent {
        /// Messages, or pieces of them, whose fate is unknown, sent or not.
        unacknowledged: u32,
    },
}

/// Why a message was not taken. Nothing changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum SendError {
    /// The window is full: back-pressure, nobody's fault. [`Event::Writable`] says when to try again.
    #[error("the window is full: the peer has not acknowledged enough yet")]
    WindowFull,
    /// The caller's fault.
    #[error("a message of {bytes} bytes is longer than this channel's limit of {limit}")]
    TooLong {
        /// Its length.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The peer has been given up.
    #[error("the peer has been silent for too long")]
    PeerSilent,
}

/// What the peer did that no correct peer does. Nothing changed: the frame counts as not received, and what
/// to do about the peer is the caller's decision.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum PeerError {
    /// Not even a header.
    #[error("a frame of {bytes} bytes is shorter than its header of {HEADER_BYTES}")]
    Truncated {
        /// Its length.
        bytes: usize,
    },
    /// A version that we do not speak.
    #[error("{0}")]
    Version(VersionError),
    /// Bits that mean nothing in this version.
    #[error("a frame with bits set that have no meaning in its version")]
    ReservedBits,
    /// More bytes than agreed.
    #[error("a message of {bytes} bytes is longer than this channel's limit of {limit}")]
    TooLong {
        /// Its length.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// A piece that is longer than agreed, or not the last of its message and shorter.
    #[error("a piece of {bytes} bytes, where the pieces of a longer message have {expected}")]
    Piece {
        /// Its length.
        bytes: usize,
        /// As agreed.
        expected: usize,
    },
    /// Nobody can have received what we never sent.
    #[error("it acknowledged everything before {acknowledged}, and {unsent} is the first that was not sent")]
    AcknowledgedUnsent {
        /// The sequence number that it says it expects.
        acknowledged: u32,
        /// The first that we did not send.
        unsent: u32,
    },
    /// It must wait for our acknowledgement when a window's worth is on its way.
    #[error("it sent message {sequence} when {expected} is due, beyond a window of {window}")]
    BeyondWindow {
        /// What it sent.
        sequence: u32,
        /// What we expect.
        expected: u32,
        /// How far ahead it may be.
        window: u32,
    },
}

/// What one end has counted since it was made. Rises only, but for the round trip. Each piece of a longer message counts
/// as one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Messages sent for the first time.
    pub sent: u64,
    /// Messages sent again.
    pub retransmitted: u64,
    /// Messages of ours that the peer acknowledged.
    pub acknowledged: u64,
    /// Frames that came only to say what we knew.
    pub duplicate_acknowledgements: u64,
    /// Times that nothing was heard until the timer ran out.
    pub timeouts: u64,
    /// Times that the peer saw a gap and we went back without waiting for the timer.
    pub gaps_reported: u64,
    /// Messages of the peer that were delivered.
    pub delivered: u64,
    /// Messages that came once more, dropped.
    pub duplicates: u64,
    /// Messages that came before their turn, dropped.
    pub out_of_order: u64,
    /// Messages in turn for which there was no room.
    pub refused: u64,
    /// Acknowledgements that found no message to ride on.
    pub explicit_acknowledgements: u64,
    /// Smoothed round-trip time, once one has been measured.
    pub round_trip: Option<Duration>,
}

/// One end of a reliable channel.
///
/// Drive it so: after every call of [`send`](GoBackN::send), [`handle`](GoBackN::handle) or
/// [`room_again`](GoBackN::room_again), call [`poll_transmit`](GoBackN::poll_transmit) and
/// [`poll_event`](GoBackN::poll_event) until both return `None`, then sleep until a frame arrives or the time
/// of [`next_timeout`](GoBackN::next_timeout), and feed that.
#[derive(Debug)]
pub struct GoBackN {
    config: Config,
    sender: Sender,
    receiver: Receiver,
    assembly: Assembly,
    /// Since when we have been waiting for a word of the peer; `None` while we need none.
    waiting_since: Option<Time>,
    /// Whether something was sent again meanwhile.
    asked_again: bool,
    blocked: bool,
    writable: bool,
    silent: bool,
    silence_told: bool,
}

impl GoBackN {
    /// Both ends start anew together: which life of the peer this is must have been agreed before (new keys
    /// for each life do that).
    ///
    /// # Panics
    /// When `config` contradicts itself.
    pub fn new(config: Config) -> GoBackN {
        let Config { window, shortest_timeout, first_timeout, longest_timeout, silence_limit, .. } = config;
        assert!((1..=WIDEST_WINDOW).contains(&window), "a window of {window} messages");
        assert!(!shortest_timeout.is_zero(), "a timeout of nothing");
        assert!(
            shortest_timeout <= first_timeout && first_timeout <= longest_timeout,
            "timeouts out of order"
        );
        assert!(longest_timeout < silence_limit, "the peer is given up before it is asked again");
        let pieces = config.longest_message_bytes.div_ceil(config.piece_bytes());
        assert!(pieces <= window as usize, "a window of {window} for messages of {pieces} pieces");
        GoBackN {
            config,
            sender: Sender::new(&config),
            receiver: Receiver::new(&config),
            assembly: Assembly::new(&config),
            waiting_since: None,
            asked_again: false,
            blocked: false,
            writable: false,
            silent: false,
            silence_told: false,
        }
    }

    /// Takes a message, gathered from `parts`, into buffers that were allocated for earlier ones: all of it or nothing.
    pub fn send(&mut self, parts: &[&[u8]]) -> Result<(), SendError> {
        if self.silent {
            return Err(SendError::PeerSilent);
        }
        let (bytes, limit) = (parts.iter().map(|part| part.len()).sum(), self.config.longest_message_bytes);
        if bytes > limit {
            return Err(SendError::TooLong { bytes, limit });
        }
        if !self.sender.has_room_for(bytes) {
            self.blocked = true;
            return Err(SendError::WindowFull);
        }
        self.sender.take(parts);
        Ok(())
    }

    /// Whether the window has room for a message of this length.
    pub fn has_room_for(&self, bytes: usize) -> bool {
        self.sender.has_room_for(bytes)
    }

    /// Feeds one input. Returns the message that is complete with the frame, if it is the next one in order: that counts as
    /// delivered, and will be acknowledged whatever the caller does with it. Call again at
    /// [`next_timeout`](GoBackN::next_timeout) even if nothing arrived.
    pub fn handle<'a>(&'a mut self, now: Time, input: Input<'a>) -> Result<Option<&'a [u8]>, PeerError> {
        if self.silent {
            return Ok(None);
        }
        match input {
            Input::Frame { bytes, room } => self.frame(now, bytes, room),
            Input::Timeout => {
                self.timeout(now);
                Ok(None)
            }
        }
    }

    /// Call when there is room again for a message that was refused: the peer is told at once, instead of
    /// finding out when its timer runs out.
    pub fn room_again(&mut self) {
        self.receiver.room_again();
    }

    /// Writes the next frame to send and returns its length, or `None`. Frames that the network loses are the
    /// business of this type, not of the caller.
    ///
    /// # Panics
    /// When `into` is shorter than [`longest_frame`](GoBackN::longest_frame).
    pub fn poll_transmit(&mut self, now: Time, into: &mut [u8]) -> Option<usize> {
        assert!(into.len() >= self.longest_frame(), "no room for a frame in {} bytes", into.len());
        if self.silent {
            return None;
        }
        if let Some((sequence, piece, more)) = self.sender.poll(now) {
            self.waiting_since.get_or_insert(now);
            let (acknowledged, resend) = self.receiver.acknowledge();
            return Some(Header { sequence: Some(sequence), acknowledged, resend, more }.write(piece, into));
        }
        let (acknowledged, resend) = self.receiver.poll(now)?;
        Some(Header { sequence: None, acknowledged, resend, more: false }.write(&[], into))
    }

    /// The next event, or `None`.
    pub fn poll_event(&mut self) -> Option<Event> {
        if self.silent {
            let told = std::mem::replace(&mut self.silence_told, true);
            return (!told).then(|| Event::PeerSilent { unacknowledged: self.sender.unacknowledged() });
        }
        std::mem::take(&mut self.writable).then_some(Event::Writable)
    }

    /// When to feed [`Input::Timeout`] and poll; `None` while there is nothing to wait for.
    pub fn next_timeout(&self) -> Option<Time> {
        if self.silent {
            return None;
        }
        [self.sender.next_timeout(), self.receiver.next_timeout(), self.silent_at()]
            .into_iter()
            .flatten()
            .min()
    }

    /// The length of the longest frame of this channel.
    pub fn longest_frame(&self) -> usize {
        HEADER_BYTES + self.config.piece_bytes()
    }

    /// Messages, or pieces of longer ones, taken and not yet acknowledged.
    pub fn unacknowledged(&self) -> u32 {
        self.sender.unacknowledged()
    }

    /// What was counted so far.
    pub fn counters(&self) -> Counters {
        let Counters { delivered, duplicates, out_of_order, refused, explicit_acknowledgements, .. } =
            self.receiver.counters;
        Counters {
            delivered,
            duplicates,
            out_of_order,
            refused,
            explicit_acknowledgements,
            ..self.sender.counters
        }
    }

    fn frame<'a>(
        &'a mut self,
        now: Time,
        bytes: &'a [u8],
        room: bool,
    ) -> Result<Option<&'a [u8]>, PeerError> {
        let (header, piece) = Header::read(bytes)?;
        self.assembly.check_piece(piece.len(), header.more)?;
        // Both halves are checked before either changes.
        let acknowledged = self.sender.check(header.acknowledged)?;
        let position = header.sequence.map(|sequence| self.receiver.check(sequence)).transpose()?;
        if position == Some(Position::Expected) {
            self.assembly.check_next(piece.len())?;
        }

        let alone = position.is_none();
        if self.sender.acknowledge(now, acknowledged, alone) && self.blocked {
            self.blocked = false;
            self.writable = true;
        }
        if header.resend {
            self.sender.gap_reported(now, header.acknowledged);
        }
        self.waiting_since = self.sender.awaits_acknowledgement().then_some(now);
        self.asked_again = false;
        let taken = position.is_some_and(|position| self.receiver.arrived(now, position, room));
        Ok(if taken { self.assembly.add(piece, header.more) } else { None })
    }

    fn timeout(&mut self, now: Time) {
        if self.silent_at().is_some_and(|at| at <= now) {
            if self.asked_again {
                self.silent = true;
                return;
            }
            // The caller came so late that nothing was sent a second time: that is no silence of the peer's.
            self.waiting_since = Some(now);
        }
        self.asked_again |= self.sender.timeout(now);
    }

    fn silent_at(&self) -> Option<Time> {
        self.waiting_since.map(|since| since.saturating_add(self.config.silence_limit))
    }
}
