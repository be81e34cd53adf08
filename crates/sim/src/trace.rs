//! What a run did, in one number, and how much it sent.

use comb_types::Time;

/// A number that two runs share if they did the same in the same order. Not for keeping secrets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TraceHash(u64);

impl Default for TraceHash {
    fn default() -> Self {
        Self(0x9e37_79b9_7f4a_7c15)
    }
}

impl TraceHash {
    pub(crate) fn value(self) -> u64 {
        self.0
    }

    pub(crate) fn word(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0xf135_7aea_2e62_a9c5);
    }

    pub(crate) fn time(&mut self, time: Time) {
        self.word(time.as_nanos());
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.word(bytes.len() as u64);
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|&word| self.word(u64::from_le_bytes(word)));
        rest.iter().for_each(|&byte| self.word(byte.into()));
    }
}

/// What went over the network.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Traffic {
    /// Messages sent.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Messages that arrived.
    pub received: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Messages lost on the way, or at a node that was down.
    pub lost: u64,
    /// Messages longer than their link takes.
    pub too_long: u64,
}

impl Traffic {
    pub(crate) fn send(&mut self, bytes: usize) {
        self.sent += 1;
        self.sent_bytes += bytes as u64;
    }

    pub(crate) fn receive(&mut self, bytes: usize) {
        self.received += 1;
        self.received_bytes += bytes as u64;
    }
}
