//! Which channels of an endpoint with many are to be looked at next.
//!
//! Each peer writes the low byte of its count of messages to its channel's flag on the bell board. The endpoint
//! remembers what it has read of each channel and looks at those whose flag says something else. It never writes to the
//! board: a flag that had to be taken down would be one more line to fetch from the peer's core for every message.

use std::collections::VecDeque;
use std::ops::Range;

use crate::bell::Bell;
use crate::flags;

/// What was read of each channel, when there are too many to look at each.
#[derive(Debug, Default)]
pub(crate) struct Flagged {
    /// A byte a channel, as on the board: the flag with which there is nothing to read. In blocks of 64.
    read: Vec<[u64; 8]>,
    /// Where the next look begins: the channel behind the last one found, so that each has its turn.
    at: usize,
    /// Channels to look at whatever their flags say, until there is nothing to read.
    certain: VecDeque<usize>,
    /// Whether the last one found was one of those: they have every other turn.
    was_certain: bool,
    /// Whether peers were told to raise flags.
    demanded: bool,
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
        self.read.resize(self.read.len().max(channels.div_ceil(64)), [0; 8]);
        if self.demanded {
            self.certain = (0..channels).collect();
        }
    }

    pub(crate) fn is_demanded(&self) -> bool {
        self.demanded
    }

    /// The channel may have something, whatever its flag says: it is new in its place, or was seen to.
    pub(crate) fn look_at(&mut self, index: usize) {
        if self.read.len() <= index / 64 {
            self.read.resize(index / 64 + 1, [0; 8]);
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
        self.at = (index + 1) % (self.read.len() * 64);
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

    /// Once round, from `at` on.
    #[inline]
    fn find(&self, bell: &Bell) -> Option<(usize, u8)> {
        let (block, byte) = (self.at / 64, self.at % 64);
        let among = |blocks: Range<usize>| {
            let same = bell.same_blocks(blocks.start, &self.read[blocks.clone()]);
            let block = blocks.start + same;
            (block < blocks.end).then(|| self.find_within(bell, block, 0)).flatten()
        };
        let found = self
            .find_within(bell, block, byte)
            .or_else(|| among(block + 1..self.read.len()))
            .or_else(|| among(0..block + 1));
        flags::seen();
        found
    }

    /// The first in a block, from a byte on.
    #[inline]
    fn find_within(&self, bell: &Bell, block: usize, byte: usize) -> Option<(usize, u8)> {
        (byte / 8..8).find_map(|word| {
            let read = self.read[block][word];
            let not_before = if word == byte / 8 { u64::MAX << (byte % 8 * 8) } else { u64::MAX };
            let changed = (bell.flags(block * 8 + word) ^ read) & not_before;
            let byte = changed.trailing_zeros() as usize / 8;
            #[expect(clippy::cast_possible_truncation, reason = "one byte of a word, cut out on purpose")]
            let flag = ((changed ^ read) >> (byte * 8 % 64)) as u8;
            (changed != 0).then_some(((block * 8 + word) * 8 + byte, flag))
        })
    }

    /// From now on the channel is found again when its flag is not this.
    #[inline]
    pub(crate) fn record(&mut self, index: usize, flag: u8) {
        let shift = index % 8 * 8;
        let word = &mut self.read[index / 64][index % 64 / 8];
        *word = *word & !(0xFF << shift) | u64::from(flag) << shift;
    }
}
