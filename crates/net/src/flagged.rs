//! Which channels of an endpoint with many are to be looked at next.
//!
//! Each peer writes the low byte of its count of messages to its channel's flag on the bell board. The endpoint
//! remembers what it has read of each channel and looks at those whose flag says something else. It never writes to the
//! board: a flag that had to be taken down would be one more line to fetch from the peer's core for every message.

use std::sync::atomic::{Ordering, fence};

use crate::bell::Bell;

/// What was read of each channel, when there are too many to look at each.
#[derive(Debug, Default)]
pub(crate) struct Flagged {
    /// A byte a channel, as on the board: the flag with which there is nothing to read.
    seen: Vec<u64>,
    /// Where the next look begins: the channel behind the last one found, so that each has its turn.
    at: usize,
    /// Whether peers were told to raise flags.
    pub(crate) demanded: bool,
}

/// The bytes of a word from `first` on.
fn from_byte(first: usize) -> u64 {
    u64::MAX << (first * 8)
}

impl Flagged {
    /// A channel took this place. What its flag says is not to be believed before it was looked at once.
    pub(crate) fn install(&mut self, bell: &Bell, index: usize) {
        if self.seen.len() <= index / 8 {
            self.seen.resize(index / 8 + 1, 0);
        }
        self.raise(bell, index);
    }

    /// The channel has something, whatever its flag says.
    pub(crate) fn raise(&mut self, bell: &Bell, index: usize) {
        self.record(index, !bell.flag(index));
    }

    /// The next channel whose flag is up, and its flag.
    #[inline]
    pub(crate) fn next(&mut self, bell: &Bell) -> Option<(usize, u8)> {
        let (index, flag) = self.find(bell)?;
        self.at = (index + 1) % (self.seen.len() * 8);
        Some((index, flag))
    }

    /// The same, without taking it from its place in line.
    #[inline]
    pub(crate) fn find(&self, bell: &Bell) -> Option<(usize, u8)> {
        let flags = bell.flags(self.seen.len());
        let start = self.at / 8;
        let changed = |word: usize| flags[word].load(Ordering::Relaxed) ^ self.seen[word];
        let behind = changed(start) & from_byte(self.at % 8);
        let (word, changed) = if behind != 0 {
            (start, behind)
        } else {
            // Once round, and back to what lies before the start in its own word.
            let word = (start + 1..flags.len()).chain(0..=start).find(|&word| changed(word) != 0)?;
            (word, changed(word))
        };
        // The channel is looked at after its flag, as its peer posted before it raised the flag.
        fence(Ordering::Acquire);
        let byte = changed.trailing_zeros() as usize / 8;
        let index = word * 8 + byte;
        #[expect(clippy::cast_possible_truncation, reason = "one byte of a word, cut out on purpose")]
        let flag = ((changed ^ self.seen[word]) >> (byte * 8)) as u8;
        Some((index, flag))
    }

    /// From now on the channel is found again when its flag is not this.
    #[inline]
    pub(crate) fn record(&mut self, index: usize, flag: u8) {
        let shift = index % 8 * 8;
        let word = &mut self.seen[index / 8];
        *word = *word & !(0xFF << shift) | u64::from(flag) << shift;
    }
}
