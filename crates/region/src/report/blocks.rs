//! What has happened to each block, in a table of a fixed size.

use std::collections::HashMap;

use comb_coherence::Access;

use super::part::unit_bytes;
use super::{BlockPart, Kind, Miss, Touch};

/// As many as 56 MB have at page grain: a component that misses more of them misses each seldom. Seven eighths of a power of two are what such a table
/// holds before it doubles.
pub(super) const MOST_BLOCKS: usize = 14_336;
/// As a rule one line loads and one stores; some loops are unrolled.
const MOST_TOUCHES: usize = 6;
const MOST_TAKERS: usize = 4;

/// One block.
#[derive(Clone, Copy)]
struct Record {
    bytes: u32,
    allocation: u64,
    home: Option<u32>,
    reads: u64,
    writes: u64,
    upgrades: u64,
    waited_ns: u64,
    taken: u64,
    lowered: u64,
    takers: [(u32, u64); MOST_TAKERS],
    loaded: [u64; 8],
    stored: [u64; 8],
    touches: [Touch; MOST_TOUCHES],
}

const NO_TOUCH: Touch = Touch { instruction: 0, is_store: false, offset: 0, count: 0 };

pub(super) struct Blocks(HashMap<u64, Record>);

impl Default for Blocks {
    fn default() -> Self {
        // All at once: a thread that misses is in a signal's handler, where nothing is to be allocated.
        Self(HashMap::with_capacity(MOST_BLOCKS))
    }
}

impl Blocks {
    fn record(&mut self, start: u64, bytes: u32, allocation: u64) -> Option<&mut Record> {
        if self.0.len() >= MOST_BLOCKS && !self.0.contains_key(&start) {
            return None;
        }
        let record = self.0.entry(start).or_insert_with(|| Record::new(bytes, allocation));
        if (record.bytes, record.allocation) != (bytes, allocation) {
            // What was here was freed.
            *record = Record::new(bytes, allocation);
        }
        Some(record)
    }

    /// Whether there was room for it.
    pub(super) fn missed(&mut self, miss: &Miss, waited_ns: u64) -> bool {
        let Some(record) = self.record(miss.block, miss.block_bytes, miss.allocation) else { return false };
        record.home = miss.home.or(record.home);
        let (count, words) = match miss.kind {
            Kind::Read => (&mut record.reads, &mut record.loaded),
            Kind::Write => (&mut record.writes, &mut record.stored),
            Kind::Upgrade => (&mut record.upgrades, &mut record.stored),
            // Nobody had it.
            Kind::Place => return true,
        };
        *count += 1;
        record.waited_ns = record.waited_ns.saturating_add(waited_ns);
        let last = miss.block_bytes - 1;
        let offset = |address: u64| {
            u32::try_from(address.saturating_sub(miss.block)).map_or(last, |offset| offset.min(last))
        };
        let (first, behind) =
            (offset(miss.address), offset(miss.address.saturating_add(miss.bytes.max(1) - 1)));
        for unit in first / unit_bytes(miss.block_bytes)..=behind / unit_bytes(miss.block_bytes) {
            words[unit as usize / 64] |= 1 << (unit % 64);
        }
        let offset = first;
        record.touch(miss.instruction, miss.kind != Kind::Read, offset);
        true
    }

    pub(super) fn taken(&mut self, (start, bytes, allocation): (u64, u32, u64), left: Access, by: u32) {
        let Some(record) = self.record(start, bytes, allocation) else { return };
        if left == Access::Invalid {
            record.taken += 1;
        } else {
            record.lowered += 1;
        }
        let taker = record.takers.iter_mut().find(|(rank, count)| *count == 0 || *rank == by);
        if let Some((rank, count)) = taker {
            *rank = by;
            *count += 1;
        }
    }

    pub(super) fn parts(&self) -> Vec<BlockPart> {
        self.0.iter().map(|(&start, record)| record.part(start)).collect()
    }
}

impl Record {
    fn new(bytes: u32, allocation: u64) -> Self {
        Self {
            bytes,
            allocation,
            home: None,
            reads: 0,
            writes: 0,
            upgrades: 0,
            waited_ns: 0,
            taken: 0,
            lowered: 0,
            takers: [(0, 0); MOST_TAKERS],
            loaded: [0; 8],
            stored: [0; 8],
            touches: [NO_TOUCH; MOST_TOUCHES],
        }
    }

    fn touch(&mut self, instruction: u64, is_store: bool, offset: u32) {
        let is_it = |touch: &&mut Touch| {
            touch.count > 0 && (touch.instruction, touch.is_store) == (instruction, is_store)
        };
        if let Some(touch) = self.touches.iter_mut().find(is_it) {
            (touch.count, touch.offset) = (touch.count + 1, offset);
            return;
        }
        // Where there is no room, the rarest gives up its place and its count: what is frequent stays. (Metwally's Space-Saving)
        if let Some(rarest) = self.touches.iter_mut().min_by_key(|touch| touch.count) {
            *rarest = Touch { instruction, is_store, offset, count: rarest.count + 1 };
        }
    }

    fn part(&self, start: u64) -> BlockPart {
        let without_end = |words: &[u64]| {
            let used = words.iter().rposition(|&word| word != 0).map_or(0, |last| last + 1);
            words[..used].to_vec()
        };
        BlockPart {
            start,
            bytes: self.bytes,
            allocation: self.allocation,
            home: self.home,
            reads: self.reads,
            writes: self.writes,
            upgrades: self.upgrades,
            waited_ns: self.waited_ns,
            taken: self.taken,
            lowered: self.lowered,
            taken_by: self.takers.iter().copied().filter(|(_, count)| *count > 0).collect(),
            loaded: without_end(&self.loaded),
            stored: without_end(&self.stored),
            touches: self.touches.iter().copied().filter(|touch| touch.count > 0).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_frequent_keeps_its_place() {
        let mut record = Record::new(4096, 0);
        for round in 0..100 {
            record.touch(1, true, 8);
            record.touch(2, false, 16);
            record.touch(1000 + round, true, 24);
        }
        let part = record.part(0);
        let mut frequent: Vec<_> = part.touches.iter().filter(|touch| touch.count >= 100).collect();
        frequent.sort_by_key(|touch| touch.instruction);
        assert_eq!(
            frequent.iter().map(|touch| (touch.instruction, touch.count)).collect::<Vec<_>>(),
            [(1, 100), (2, 100)]
        );
    }

    #[test]
    fn a_range_is_all_its_words_in_the_block() {
        let mut blocks = Blocks::default();
        let miss = Miss {
            address: 0x1010,
            bytes: 5000,
            instruction: 1,
            kind: Kind::Read,
            waited: std::time::Duration::ZERO,
            block: 0x1000,
            block_bytes: 128,
            allocation: 0x1000,
            home: None,
            thread: 1,
        };
        assert!(blocks.missed(&miss, 0) && blocks.missed(&Miss { bytes: 9, kind: Kind::Upgrade, ..miss }, 0));
        let part = &blocks.parts()[0];
        assert_eq!(part.loaded_words(), (2..16).collect::<Vec<_>>());
        assert_eq!(part.stored_words(), [2, 3]);
    }

    #[test]
    fn another_allocation_at_an_address_begins_anew() {
        let mut blocks = Blocks::default();
        blocks.taken((0x1000, 4096, 0x1000), Access::Invalid, 1);
        blocks.taken((0x1000, 4096, 0x1000), Access::ReadOnly, 2);
        blocks.taken((0x1000, 128, 0x1000), Access::Invalid, 3);
        let [part] = &blocks.parts()[..] else { panic!("one") };
        assert_eq!((part.taken, part.lowered, &part.taken_by[..]), (1, 0, &[(3, 1)][..]));
    }
}
