//! What a channel promises, over a network that promises nothing: everything comes, once and in its order, while both ends live.

use std::collections::{BTreeMap, VecDeque};

/// One end of it.
#[derive(Debug, Default)]
pub(super) struct Link {
    sent: u64,
    /// Not acknowledged.
    underway: VecDeque<Vec<u8>>,
    taken: u64,
    /// What came too early.
    early: BTreeMap<u64, Vec<u8>>,
    pub(super) owes: bool,
}

/// A frame's number, and its acknowledgement.
pub(super) const HEAD: usize = 16;
/// So many are sent again at a time.
const MOST_AGAIN: usize = 16;

impl Link {
    /// A message, as it goes on the network.
    pub(super) fn send(&mut self, message: Vec<u8>) -> Vec<u8> {
        self.sent += 1;
        let frame = self.frame(self.sent, &message);
        self.underway.push_back(message);
        frame
    }

    /// Number, acknowledgement, message. Number 0 acknowledges only.
    fn frame(&self, number: u64, message: &[u8]) -> Vec<u8> {
        [&number.to_le_bytes()[..], &self.taken.to_le_bytes(), message].concat()
    }

    pub(super) fn acknowledgement(&mut self) -> Vec<u8> {
        self.owes = false;
        self.frame(0, &[])
    }

    /// What may have been lost.
    pub(super) fn again(&self) -> Vec<Vec<u8>> {
        let first = self.sent + 1 - self.underway.len() as u64;
        (first..)
            .zip(&self.underway)
            .take(MOST_AGAIN)
            .map(|(number, message)| self.frame(number, message))
            .collect()
    }

    /// Takes a frame in. The messages whose turn it is.
    pub(super) fn take(&mut self, frame: &[u8]) -> Vec<Vec<u8>> {
        let number = u64::from_le_bytes(frame[..8].try_into().expect("eight"));
        let acknowledged = u64::from_le_bytes(frame[8..HEAD].try_into().expect("eight"));
        while self.sent - (self.underway.len() as u64) < acknowledged {
            self.underway.pop_front();
        }
        if number == 0 {
            return Vec::new();
        }
        self.owes = true;
        if number > self.taken {
            self.early.insert(number, frame[HEAD..].to_vec());
        }
        let mut turn = Vec::new();
        while let Some(message) = self.early.remove(&(self.taken + 1)) {
            self.taken += 1;
            turn.push(message);
        }
        turn
    }

    pub(super) fn is_quiet(&self) -> bool {
        self.underway.is_empty()
    }
}
