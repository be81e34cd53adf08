//! Parts and names that tests make up.

use comb_region::report::{BlockPart, Part, Touch};

use super::names::{Naming, Place};

/// Line 1 has instructions 100 to 199; each page is a variable of its own.
pub(super) struct Plain;

impl Naming for Plain {
    fn place(&mut self, _: u32, instruction: u64) -> Place {
        Place { line: format!("a.c:{}", instruction / 100), function: "work".to_owned() }
    }

    fn variable(&mut self, address: u64) -> (String, u64) {
        (format!("v{}", address >> 12), address & 4095)
    }

    fn is_ours(&mut self, _: u32, _: u64) -> bool {
        false
    }
}

/// One that has worked for a second.
pub(super) fn part(rank: u32) -> Part {
    Part { rank, elapsed_ns: 1_000_000_000, threads: 1, waits: vec![0; 33], ..Part::default() }
}

/// A page that lives with component 0, at which an instruction has missed so often, half a microsecond each time.
pub(super) fn block(start: u64, loaded: &[u32], stored: &[u32], instruction: u64, misses: u64) -> BlockPart {
    let bits = |words: &[u32]| {
        let mut bits = vec![0; 8];
        words.iter().for_each(|&word| bits[word as usize / 64] |= 1 << (word % 64));
        bits
    };
    let is_store = !stored.is_empty();
    let offset = stored.first().or(loaded.first()).map_or(0, |word| word * 8);
    BlockPart {
        start,
        bytes: 4096,
        allocation: start,
        home: Some(0),
        reads: if is_store { 0 } else { misses },
        writes: if is_store { misses } else { 0 },
        upgrades: 0,
        waited_ns: misses * 500,
        taken: misses,
        lowered: 0,
        taken_by: Vec::new(),
        loaded: bits(loaded),
        stored: bits(stored),
        touches: vec![Touch { instruction, is_store, offset, count: misses }],
    }
}
