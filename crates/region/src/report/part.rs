//! What one component hands to the launcher.

use serde::{Deserialize, Serialize};

/// Of [`Part`]: launcher and component are of neighbouring builds, or this number tells.
pub const PART_VERSION: u32 = 1;

/// What one component has recorded. For the launcher all of it is an allegation.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Part {
    /// Of this format: [`PART_VERSION`].
    pub version: u32,
    /// Which component.
    pub rank: u32,
    /// It shares page frames with all others: nothing is ever stopped.
    pub imports: bool,
    /// From when it joined the task to when it wrote this.
    pub elapsed_ns: u64,
    /// How many of its threads have ever waited for a block; 1 if none has.
    pub threads: u32,
    /// What those have waited for that was no block: locks, barriers, allocations.
    pub synchronised_ns: u64,
    /// Content of blocks that has come.
    pub bytes_in: u64,
    /// Content of blocks that has gone to others.
    pub bytes_out: u64,
    /// How many waits for blocks took from 2^n up to 2^(n+1) nanoseconds, by n.
    pub waits: Vec<u64>,
    /// Where its threads have waited.
    pub sites: Vec<Site>,
    /// For what.
    pub blocks: Vec<BlockPart>,
    /// What was allocated in the task, as far as this component knows.
    pub allocations: Vec<AllocationPart>,
    /// Files whose code is in its memory.
    pub programs: Vec<Program>,
    /// What found no room.
    pub uncounted: Uncounted,
}

/// Why a thread had to wait for a block.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Kind {
    /// It loads what is not here.
    Read,
    /// It stores to what is not here.
    Write,
    /// It stores to what is here to be read.
    Upgrade,
    /// It is the first to touch it here, and had to ask where it lives: it lives here now.
    Place,
}

/// An instruction that misses in one way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Site {
    /// Its address, or of a software check one within the call that has asked; 0 where Comb itself has looked.
    pub instruction: u64,
    /// In which way.
    pub kind: Kind,
    /// How often.
    pub count: u64,
    /// All waits together.
    pub waited_ns: u64,
    /// The longest.
    pub longest_ns: u64,
    /// What it missed first.
    pub address: u64,
}

impl Site {
    pub(super) fn new(instruction: u64, kind: Kind, address: u64) -> Self {
        Self { instruction, kind, count: 0, waited_ns: 0, longest_ns: 0, address }
    }

    pub(super) fn add(&mut self, waited_ns: u64) {
        self.count += 1;
        self.waited_ns = self.waited_ns.saturating_add(waited_ns);
        self.longest_ns = self.longest_ns.max(waited_ns);
    }
}

/// A block that threads of this component have waited for, or that was taken from it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BlockPart {
    /// Where it begins.
    pub start: u64,
    /// How long it is.
    pub bytes: u32,
    /// Where its allocation begins.
    pub allocation: u64,
    /// Where it lives, as this component last knew.
    pub home: Option<u32>,
    /// Misses, by kind.
    pub reads: u64,
    /// See [`Kind::Write`].
    pub writes: u64,
    /// See [`Kind::Upgrade`].
    pub upgrades: u64,
    /// All waits together.
    pub waited_ns: u64,
    /// How often others made this component lose it.
    pub taken: u64,
    /// How often they made it keep no more than the right to load.
    pub lowered: u64,
    /// On account of whose words, and how often: the home's in most cases, which speaks for whoever asked it. Some may be missing.
    pub taken_by: Vec<(u32, u64)>,
    /// Units of the block at which a load missed, as bits.
    pub loaded: Vec<u64>,
    /// The same of stores.
    pub stored: Vec<u64>,
    /// By which instructions most of them did; where more than a few did, counts may be too high.
    pub touches: Vec<Touch>,
}

/// One instruction's misses of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Touch {
    /// As in [`Site`].
    pub instruction: u64,
    /// Whether it stores.
    pub is_store: bool,
    /// The last byte that it missed, counted from the block's start.
    pub offset: u32,
    /// How often.
    pub count: u64,
}

/// Blocks up to this size have a bit for each word of 8 bytes; larger ones for units that are larger by as much.
const BITS: u32 = 512;

impl BlockPart {
    /// How many bytes each bit stands for.
    pub fn unit_bytes(&self) -> u32 {
        unit_bytes(self.bytes)
    }

    /// Units at which a load missed, counted from the block's start.
    pub fn loaded_words(&self) -> Vec<u32> {
        bits(&self.loaded)
    }

    /// The same of stores.
    pub fn stored_words(&self) -> Vec<u32> {
        bits(&self.stored)
    }

    /// All misses.
    pub fn misses(&self) -> u64 {
        self.reads + self.writes + self.upgrades
    }
}

pub(super) fn unit_bytes(block_bytes: u32) -> u32 {
    (block_bytes / BITS).max(8)
}

fn bits(words: &[u64]) -> Vec<u32> {
    let all = words.len().min(BITS as usize / 64) * 64;
    (0..all)
        .filter(|bit| words[bit / 64] >> (bit % 64) & 1 != 0)
        .map(|bit| u32::try_from(bit).unwrap_or(0))
        .collect()
}

/// A piece of shared memory that was allocated at once.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AllocationPart {
    /// Where it begins.
    pub start: u64,
    /// As asked for.
    pub bytes: u64,
    /// The grain of its rights.
    pub block_bytes: u32,
    /// Which component has made it.
    pub creator: u32,
    /// Return addresses, the innermost first, if this component has made it.
    pub callers: Vec<u64>,
}

/// A file whose code is in the component's memory.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Program {
    /// Where it is.
    pub path: String,
    /// The first address of its code.
    pub start: u64,
    /// Behind the last.
    pub end: u64,
    /// Where in the file the first is.
    pub offset: u64,
}

/// What found no room in the component's tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Uncounted {
    /// Misses whose instruction is not among the sites.
    pub misses_of_sites: u64,
    /// Misses whose block is not among the blocks.
    pub misses_of_blocks: u64,
    /// Allocations of which nothing is known.
    pub allocations: u64,
}

/// Why bytes are no part.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadPart {
    /// Of another build.
    #[error("it is of another release")]
    Version,
    /// Nobody's.
    #[error("it cannot be understood")]
    Malformed,
}

impl Part {
    /// Reads one.
    pub fn decode(bytes: &[u8]) -> Result<Self, BadPart> {
        // First and alone: what comes with another version may be anything.
        let (version, _) = postcard::take_from_bytes::<u32>(bytes).map_err(|_| BadPart::Malformed)?;
        if version != PART_VERSION {
            return Err(BadPart::Version);
        }
        postcard::from_bytes(bytes).map_err(|_| BadPart::Malformed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_part_is_refused() {
        let part = Part { version: PART_VERSION, rank: 3, ..Part::default() };
        let bytes = postcard::to_stdvec(&part).expect("plain");
        assert_eq!(Part::decode(&bytes), Ok(part.clone()));
        assert_eq!(Part::decode(&bytes[..5]), Err(BadPart::Malformed));
        assert_eq!(Part::decode(&[]), Err(BadPart::Malformed));
        let other = postcard::to_stdvec(&Part { version: 9, ..part }).expect("plain");
        assert_eq!(Part::decode(&other), Err(BadPart::Version));
    }

    #[test]
    fn large_blocks_have_larger_units() {
        assert_eq!([128, 4096, 65536].map(unit_bytes), [8, 8, 128]);
        assert_eq!(bits(&[1 << 63, 1]), [63, 64]);
    }
}
