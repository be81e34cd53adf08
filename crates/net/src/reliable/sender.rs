//! The half that cuts messages into pieces and keeps these until they are acknowledged.

use super::round_trip::RoundTrip;
use super::{Config, Counters, PeerError};
use comb_types::Time;
use std::collections::VecDeque;

/// Positions in `kept` count from the oldest message that is not acknowledged: `oldest` is the sequence
/// number of position 0.
#[derive(Debug)]
pub(super) struct Sender {
    window: u32,
    longest_piece: usize,
    pub(super) oldest: u32,
    kept: VecDeque<Kept>,
    /// Buffers of acknowledged pieces. Together with `kept` never more than the window: the steady
    /// state allocates nothing.
    spare: Vec<Vec<u8>>,
    /// The position to send next; everything before it is on its way.
    next: usize,
    /// How many have been sent at least once.
    sent: usize,
    round_trip: RoundTrip,
    /// When to go back, while anything is on its way.
    timer: Option<Time>,
    /// When a reported gap last made us go back, and to which number.
    went_back: Option<(Time, u32)>,
    /// Only what concerns messages of ours.
    pub(super) counters: Counters,
}

#[derive(Debug)]
struct Kept {
    piece: Vec<u8>,
    /// The message goes on in the next piece.
    more: bool,
    /// When it was sent, if that was once.
    sent_once_at: Option<Time>,
}

/// How many pieces an acknowledgement covers: checked to have been sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Covered(usize);

impl Sender {
    pub(super) fn new(config: &Config) -> Sender {
        Sender {
            window: config.window,
            longest_piece: config.piece_bytes(),
            oldest: 0,
            kept: VecDeque::with_capacity(config.window as usize),
            spare: Vec::with_capacity(config.window as usize),
            next: 0,
            sent: 0,
            round_trip: RoundTrip::new(config),
            timer: None,
            went_back: None,
            counters: Counters::default(),
        }
    }

    /// Whether the window has room for all pieces of such a message.
    pub(super) fn has_room_for(&self, bytes: usize) -> bool {
        let pieces = bytes.div_ceil(self.longest_piece).max(1);
        self.kept.len() + pieces <= self.window as usize
    }

    /// Keeps a copy of a message for which there is room, in pieces, for sending and for sending again.
    pub(super) fn take(&mut self, parts: &[&[u8]]) {
        let mut piece = self.buffer();
        for part in parts {
            let mut rest = *part;
            while !rest.is_empty() {
                if piece.len() == self.longest_piece {
                    let next = self.buffer();
                    self.keep(std::mem::replace(&mut piece, next), true);
                }
                let (fitting, behind) = rest.split_at(rest.len().min(self.longest_piece - piece.len()));
                piece.extend_from_slice(fitting);
                rest = behind;
            }
        }
        self.keep(piece, false);
    }

    fn buffer(&mut self) -> Vec<u8> {
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.clear();
        buffer
    }

    fn keep(&mut self, piece: Vec<u8>, more: bool) {
        self.kept.push_back(Kept { piece, more, sent_once_at: None });
    }

    /// The next piece to send, with its sequence number and whether its message goes on.
    pub(super) fn poll(&mut self, now: Time) -> Option<(u32, &[u8], bool)> {
        let position = self.next;
        let kept = self.kept.get_mut(position)?;
        if position == self.sent {
            self.sent += 1;
            self.counters.sent += 1;
            kept.sent_once_at = Some(now);
        } else {
            self.counters.retransmitted += 1;
            kept.sent_once_at = None;
        }
        self.next += 1;
        self.timer.get_or_insert_with(|| now.saturating_add(self.round_trip.timeout()));
        Some((self.oldest.wrapping_add(number(position)), &kept.piece, kept.more))
    }

    /// Whether the peer can mean this: it may say again what it said before, and it may not have what we
    /// never sent.
    pub(super) fn check(&self, acknowledged: u32) -> Result<Covered, PeerError> {
        let ahead = acknowledged.wrapping_sub(self.oldest);
        if ahead > u32::MAX / 2 {
            // Delayed by the network; a later one has been here.
            return Ok(Covered(0));
        }
        if ahead as usize > self.sent {
            let unsent = self.oldest.wrapping_add(number(self.sent));
            return Err(PeerError::AcknowledgedUnsent { acknowledged, unsent });
        }
        Ok(Covered(ahead as usize))
    }

    /// Lets go of what is acknowledged. `alone`: the frame carried no message. Returns whether there
    /// is room that was not there before.
    pub(super) fn acknowledge(&mut self, now: Time, Covered(covered): Covered, alone: bool) -> bool {
        if covered == 0 {
            if alone && self.awaits_acknowledgement() {
                self.counters.duplicate_acknowledgements += 1;
            }
            return false;
        }
        // The last one covered is what the peer answered; those before it may have waited for it.
        let measured = self.kept[covered - 1].sent_once_at.map(|sent_at| now.since(sent_at));
        if let Some(round_trip) = measured {
            self.round_trip.measured(round_trip);
            self.counters.round_trip = self.round_trip.smoothed();
        }
        self.spare.extend(self.kept.drain(..covered).map(|kept| kept.piece));
        self.oldest = self.oldest.wrapping_add(number(covered));
        self.next = self.next.saturating_sub(covered);
        self.sent -= covered;
        self.counters.acknowledged += covered as u64;
        self.timer = self.awaits_acknowledgement().then(|| now.saturating_add(self.round_trip.timeout()));
        true
    }

    /// The peer misses `missing` and has seen something later. Everything on its way behind the gap will
    /// be dropped there, so waiting for the timer gains nothing.
    pub(super) fn gap_reported(&mut self, now: Time, missing: u32) {
        if missing != self.oldest || !self.awaits_acknowledgement() {
            return;
        }
        // Each message behind the gap makes the peer report it again; those reports are about the time before
        // we went back. A report that comes later than a round trip is about a second loss.
        let settled = match self.went_back {
            Some((at, number)) if number == missing => now.since(at) >= self.round_trip.timeout(),
            _ => true,
        };
        if settled {
            self.went_back = Some((now, missing));
            self.counters.gaps_reported += 1;
            self.go_back(now);
        }
    }

    /// Whether the timer had run out, so that everything is sent again.
    pub(super) fn timeout(&mut self, now: Time) -> bool {
        let due = self.timer.is_some_and(|at| at <= now);
        if due {
            self.counters.timeouts += 1;
            self.round_trip.back_off();
            self.go_back(now);
        }
        due
    }

    pub(super) fn next_timeout(&self) -> Option<Time> {
        self.timer
    }

    pub(super) fn awaits_acknowledgement(&self) -> bool {
        self.sent > 0
    }

    pub(super) fn unacknowledged(&self) -> u32 {
        number(self.kept.len())
    }

    fn go_back(&mut self, now: Time) {
        self.next = 0;
        self.timer = Some(now.saturating_add(self.round_trip.timeout()));
    }

    /// Where the buffers are, in use or not.
    #[cfg(test)]
    pub(super) fn buffers(&self) -> std::collections::BTreeSet<*const u8> {
        self.kept.iter().map(|kept| &kept.piece).chain(&self.spare).map(|buffer| buffer.as_ptr()).collect()
    }
}

/// A position as a distance between sequence numbers.
fn number(position: usize) -> u32 {
    u32::try_from(position).expect("positions lie within the window")
}
