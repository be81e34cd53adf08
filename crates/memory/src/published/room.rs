//! Where the next record goes.
//!
//! Places are of a few sizes, and stay of their size: what was in front of a record's content once, tag word and sequence word, is
//! there for ever. All that is known about them is private, so nothing that anybody stores to the shared memory confuses it.

use std::collections::{HashMap, VecDeque};

use super::Full;
use super::format::FRONT_BYTES;

/// Sizes of places, front included: 32, 48, 64, 96, 128 … bytes.
const SIZES: usize = 60;

const fn size(class: usize) -> u64 {
    (if class.is_multiple_of(2) { 32 } else { 48 }) << (class / 2)
}

fn class_for(bytes: u64) -> Option<usize> {
    (0..SIZES).find(|&class| size(class) >= bytes)
}

/// A place that has a record.
#[derive(Clone, Copy)]
struct Taken {
    class: usize,
    tag_word: u64,
}

pub(super) struct Room {
    /// From here on there was never a record.
    next: u64,
    end: u64,
    /// Where content may be, by size of the place. What was freed last is used last: whoever still has a pointer there shall be told so, not find another
    /// structure of the same type.
    free: [VecDeque<u64>; SIZES],
    /// By where the content is.
    taken: HashMap<u64, Taken>,
}

impl Room {
    pub(super) fn new(first: u64, end: u64) -> Self {
        Self { next: first, end, free: std::array::from_fn(|_| VecDeque::new()), taken: HashMap::new() }
    }

    /// A place for a record. Where its content is to be.
    pub(super) fn take(&mut self, content_bytes: u64, tag_word: u64) -> Result<u64, Full> {
        let full = Full { bytes: content_bytes };
        let class = class_for(content_bytes.saturating_add(FRONT_BYTES)).ok_or(full)?;
        let (class, content) = self.place(class).ok_or(full)?;
        self.taken.insert(content, Taken { class, tag_word });
        Ok(content)
    }

    fn place(&mut self, class: usize) -> Option<(usize, u64)> {
        if let Some(content) = self.free[class].pop_front() {
            return Some((class, content));
        }
        if self.end - self.next >= size(class) {
            let content = self.next + FRONT_BYTES;
            self.next += size(class);
            return Some((class, content));
        }
        // There is none of this size, so one that is larger than needed.
        let larger = (class + 1..SIZES).find(|&larger| !self.free[larger].is_empty())?;
        self.free[larger].pop_front().map(|content| (larger, content))
    }

    /// The tag word of the record whose content is there, if there is one.
    pub(super) fn tag_word(&self, content: u64) -> Option<u64> {
        self.taken.get(&content).map(|taken| taken.tag_word)
    }

    /// Behind this there was never a record.
    #[cfg(feature = "faults")]
    pub(super) fn used(&self) -> u64 {
        self.next
    }

    /// The place of a record has none any more.
    pub(super) fn give_back(&mut self, content: u64) {
        if let Some(taken) = self.taken.remove(&content) {
            self.free[taken.class].push_back(content);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_never_overlap_and_keep_their_fronts() {
        let mut room = Room::new(4096, 4096 + 65536);
        let mut fronts = std::collections::HashSet::new();
        let mut held = Vec::new();
        for round in 0_u64..2000 {
            let bytes = round * 7919 % 900;
            match room.take(bytes, round + 1) {
                Ok(content) => {
                    assert!(content.is_multiple_of(16) && room.tag_word(content) == Some(round + 1));
                    fronts.insert(content);
                    held.push((content, bytes));
                }
                Err(full) => assert_eq!(full.bytes, bytes),
            }
            if round % 3 == 0 && !held.is_empty() {
                let (content, _) = held.swap_remove(usize::try_from(round).unwrap() % held.len());
                room.give_back(content);
                assert_eq!(room.tag_word(content), None);
            }
            let mut inside: Vec<_> = held.clone();
            inside.sort_unstable();
            assert!(inside.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0 - FRONT_BYTES));
        }
        // No content has ever covered what was in front of another.
        for (content, bytes) in held {
            assert!(!fronts.iter().any(|&front| front > content && front - FRONT_BYTES < content + bytes));
        }
    }

    #[test]
    fn all_room_can_be_used_again() {
        let mut room = Room::new(4096, 8192);
        for _ in 0..3 {
            let held: Vec<_> = std::iter::from_fn(|| room.take(16, 1).ok()).collect();
            assert_eq!(held.len(), 128);
            held.into_iter().for_each(|content| room.give_back(content));
        }
        assert_eq!(room.take(17, 1), Err(Full { bytes: 17 }), "places keep their size");
    }
}
