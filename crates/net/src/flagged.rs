//! Which channels of an endpoint with many are to be looked at next.
//!
//! Each peer writes the low byte of its count of messages to its channel's flag on the bell board. The endpoint
//! remembers what it has read of each channel and looks at those whose flag says something else. It never writes to the
//! board: a flag that had to be taken down would be one more line to fetch from the peer's core for every message.

use std::collections::VecDeque;

use crate::bell::Bell;
use crate::flags;

/// What was read of each channel, when there are too many to look at each.
#[derive(Debug, Default)]
pub(crate) struct Flagged {
    /// A byte a channel, as on the board: the flag with which there is nothing to read.
    read: Vec<u64>,
    /// Where the next look begins: the channel behind the last one found, so that each has its turn.
    at: usize,
    /// Channels to look at whatever their flags say, until there is nothing to read.
    certain: VecDeque<usize>,
    /// Whether the last one found was one of those: they have every other turn.
    was_certain: bool,
    /// Whether peers were told to raise flags.
    demanded: bool,
}

/// The bytes of a word from `first` on.
fn from_byte(first: usize) -> u64 {
    u64::MAX << (first * 8)
}

impl Flagged {
    /// Peers raise flags from now on. What came before that raised none: every channel is looked at once.
    pub(crate) fn demand(&mut self, bell: &Bell, channels: usize) {
        self.demanded = true;
        bell.demand_flags();
        self.look_at_all(channels);
    }

    /// Every channel may have something, whatever its flag says.
    pub(crate) fn look_at_all(&mut self, channels: usize) {
        self.read.resize(self.read.len().max(channels.div_ceil(8)), 0);
        if self.demanded {
            self.certain = (0..channels).collect();
        }
    }

    pub(crate) fn is_demanded(&self) -> bool {
        self.demanded
    }

    /// The channel may have something, whatever its flag says: it is new in its place, or was seen to.
    pub(crate) fn look_at(&mut self, index: usize) {
        if self.read.len() <= index / 8 {
            self.read.resize(index / 8 + 1, 0);
        }
        if self.demanded && !self.certain.contains(&index) {
            self.certain.push_back(index);
        }
    }

    /// The next channel to look at, and its flag.
    #[inline]
    pub(crate) fn next(&mut self, bell: &Bell) -> Option<(usize, u8)> {
        if let Some(&index) = self.certain.front() {
            self.was_certain = !self.was_certain || self.find(bell).is_none();
            if self.was_certain {
                self.certain.pop_front();
                let flag = bell.flag(index);
                flags::seen();
                return Some((index, flag));
            }
        }
        self.was_certain = false;
        let (index, flag) = self.find(bell)?;
        self.at = (index + 1) % (self.read.len() * 8);
        Some((index, flag))
    }

    /// Whether the channel that was found last may hold messages that no flag was raised for.
    #[inline]
    pub(crate) fn was_certain(&self) -> bool {
        self.was_certain
    }

    /// Whether there is one.
    pub(crate) fn any(&self, bell: &Bell) -> bool {
        !self.certain.is_empty() || self.find(bell).is_some()
    }

    #[inline]
    fn find(&self, bell: &Bell) -> Option<(usize, u8)> {
        let start = self.at / 8;
        let changed = |word: usize| bell.flags(word) ^ self.read[word];
        let behind = changed(start) & from_byte(self.at % 8);
        let (word, changed) = if behind != 0 {
            (start, behind)
        } else {
            // Once round, and back to what lies before the start in its own word.
            let word = (start + 1..self.read.len()).chain(0..=start).find(|&word| changed(word) != 0)?;
            (word, changed(word))
        };
        flags::seen();
        let byte = changed.trailing_zeros() as usize / 8;
        #[expect(clippy::cast_possible_truncation, reason = "one byte of a word, cut out on purpose")]
        let flag = ((changed ^ self.read[word]) >> (byte * 8)) as u8;
        Some((word * 8 + byte, flag))
    }

    /// From now on the channel is found again when its flag is not this.
    #[inline]
    pub(crate) fn record(&mut self, index: usize, flag: u8) {
        let shift = index % 8 * 8;
        let word = &mut self.read[index / 8];
        *word = *word & !(0xFF << shift) | u64::from(flag) << shift;
    }
}
