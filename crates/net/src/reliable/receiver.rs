//! The half that takes messages in order and acknowledges them.

use super::{Config, Counters, PeerError};
use comb_types::Time;
use std::time::Duration;

#[derive(Debug)]
pub(super) struct Receiver {
    window: u32,
    pub(super) expected: u32,
    acknowledge_within: Duration,
    /// Messages taken since the last acknowledgement left.
    unacknowledged: u32,
    /// An acknowledgement leaves at this time at the latest.
    acknowledge_at: Option<Time>,
    acknowledge_now: bool,
    /// The next acknowledgement asks the peer to go back.
    resend: bool,
    /// The expected message has been refused for want of room. What comes after it is no gap.
    refusing: bool,
    /// Only what concerns messages of the peer.
    pub(super) counters: Counters,
}

/// Where a message stands relative to the expected one: checked to be within the window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Position {
    Before,
    Expected,
    Ahead,
}

/// A sender at the end of its window stands still until it hears of us. Acknowledging each quarter at once,
/// without waiting for a message to ride on, keeps it moving.
const ACKNOWLEDGEMENTS_PER_WINDOW: u32 = 4;

impl Receiver {
    pub(super) fn new(config: &Config) -> Receiver {
        Receiver {
            window: config.window,
            expected: 0,
            acknowledge_within: config.acknowledge_within,
            unacknowledged: 0,
            acknowledge_at: None,
            acknowledge_now: false,
            resend: false,
            refusing: false,
            counters: Counters::default(),
        }
    }

    /// Whether the peer can mean this. A copy that the network delayed may be as old as it likes; ahead there
    /// is nothing beyond the window.
    pub(super) fn check(&self, sequence: u32) -> Result<Position, PeerError> {
        match sequence.wrapping_sub(self.expected) {
            0 => Ok(Position::Expected),
            ahead if ahead < self.window => Ok(Position::Ahead),
            behind if behind > u32::MAX / 2 => Ok(Position::Before),
            _ => {
                let (expected, window) = (self.expected, self.window);
                Err(PeerError::BeyondWindow { sequence, expected, window })
            }
        }
    }

    /// A message arrived. Returns whether it is delivered.
    pub(super) fn arrived(&mut self, now: Time, position: Position, room: bool) -> bool {
        match position {
            Position::Expected if room => {
                self.take(now);
                return true;
            }
            Position::Expected => {
                self.counters.refused += 1;
                self.refusing = true;
            }
            Position::Ahead => {
                self.counters.out_of_order += 1;
                self.resend = !self.refusing;
            }
            Position::Before => self.counters.duplicates += 1,
        }
        // The peer sent something that it did not have to, so it does not know where we are.
        self.acknowledge_now = true;
        false
    }

    /// See [`GoBackN::room_again`](super::GoBackN::room_again).
    pub(super) fn room_again(&mut self) {
        if self.refusing {
            self.refusing = false;
            self.resend = true;
            self.acknowledge_now = true;
        }
    }

    /// The acknowledgement to put on a frame that leaves now, and whether it asks to go back.
    pub(super) fn acknowledge(&mut self) -> (u32, bool) {
        self.unacknowledged = 0;
        self.acknowledge_at = None;
        self.acknowledge_now = false;
        (self.expected, std::mem::take(&mut self.resend))
    }

    /// The acknowledgement that must leave even without a message.
    pub(super) fn poll(&mut self, now: Time) -> Option<(u32, bool)> {
        if !self.acknowledge_now && self.acknowledge_at.is_none_or(|at| at > now) {
            return None;
        }
        self.counters.explicit_acknowledgements += 1;
        Some(self.acknowledge())
    }

    pub(super) fn next_timeout(&self) -> Option<Time> {
        self.acknowledge_at
    }

    fn take(&mut self, now: Time) {
        self.counters.delivered += 1;
        self.expected = self.expected.wrapping_add(1);
        self.refusing = false;
        self.unacknowledged += 1;
        if self.unacknowledged >= self.window.div_ceil(ACKNOWLEDGEMENTS_PER_WINDOW) {
            self.acknowledge_now = true;
        } else {
            self.acknowledge_at.get_or_insert(now.saturating_add(self.acknowledge_within));
        }
    }
}
