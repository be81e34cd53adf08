//! What of the memory a kernel may map.

use std::ops::Range;

use super::sizes::MAXIMUM_FRAMES;

/// Access is given to so many frames at a time: a large unit keeps the array small. (§4.3)
pub const FRAMES_IN_GROUP: u64 = 128;
/// Two bits each, in words of 64.
const GROUPS_IN_WORD: u64 = 32;

/// What a kernel may do with the frames of a group.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize)]
pub enum Access {
    /// They are another's.
    None,
    /// They may be mapped, and copied from.
    Read,
    /// They may be mapped writable, too.
    ReadWrite,
}

/// The access to all page groups, two bits each: two kilobytes for four gigabytes. (§4.3)
#[derive(Clone, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "(u64, Vec<u64>)", into = "(u64, Vec<u64>)")]
pub struct Groups {
    count: u64,
    words: Vec<u64>,
}

impl Groups {
    /// The same access to each group of a memory of so many frames. The last group may be a part of one.
    pub fn new(frames: u64, access: Access) -> Self {
        let count = frames.div_ceil(FRAMES_IN_GROUP);
        let words = count.div_ceil(GROUPS_IN_WORD);
        let mut groups = Self { count, words: (0..words).map(|_| 0).collect() };
        groups.set(0..count, access);
        groups
    }

    /// What the array takes.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.words)
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The access to a frame. Of one that does not exist there is none.
    pub fn of_frame(&self, frame: u64) -> Access {
        let group = frame / FRAMES_IN_GROUP;
        if group >= self.count {
            return Access::None;
        }
        let (word, shift) = place(group);
        match self.words[word] >> shift & 0b11 {
            0 => Access::None,
            1 => Access::Read,
            _ => Access::ReadWrite,
        }
    }

    /// Gives, or takes, the access to a range of groups. Those that do not exist are left out.
    pub fn set(&mut self, groups: Range<u64>, access: Access) {
        let bits = match access {
            Access::None => 0,
            Access::Read => 1,
            Access::ReadWrite => 0b11,
        };
        for group in groups.start..groups.end.min(self.count) {
            let (word, shift) = place(group);
            self.words[word] = self.words[word] & !(0b11 << shift) | bits << shift;
        }
    }
}

impl From<Groups> for (u64, Vec<u64>) {
    fn from(groups: Groups) -> Self {
        (groups.count, groups.words)
    }
}

/// Words that say nothing of any access: too few, too many, or with bits that mean nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("these words are no access to page groups")]
pub struct NoGroups;

impl TryFrom<(u64, Vec<u64>)> for Groups {
    type Error = NoGroups;

    fn try_from((count, words): (u64, Vec<u64>)) -> Result<Self, NoGroups> {
        const LOW_BITS: u64 = u64::MAX / 3;
        let is_long_enough =
            count <= MAXIMUM_FRAMES / FRAMES_IN_GROUP && words.len() as u64 == count.div_ceil(GROUPS_IN_WORD);
        let is_access = |word: &u64| word >> 1 & LOW_BITS & !word == 0;
        let rest = count % GROUPS_IN_WORD * 2;
        let ends = words.last().is_none_or(|last| rest == 0 || last >> rest == 0);
        let is_sound = is_long_enough && ends && words.iter().all(is_access);
        if is_sound { Ok(Self { count, words }) } else { Err(NoGroups) }
    }
}

fn place(group: u64) -> (usize, u64) {
    let word = usize::try_from(group / GROUPS_IN_WORD).expect("it is within a vector");
    (word, group % GROUPS_IN_WORD * 2)
}
