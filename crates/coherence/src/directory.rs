//! Who holds copies of the blocks that are homed here: a byte a block.
//!
//! The byte is a number in a table of the block's extent, whose entries are sets of cells: of thousands of neighbouring blocks,
//! most are held by the same few sets. When a table is full, a set is widened: it then names cells that hold nothing, which costs
//! them a message that they answer with "nothing", and no more. So a region needs no more for a hundred cells than for two.
//!
//! Nothing is kept of an extent in which every block is at home.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use comb_types::CellId;

use crate::block::Block;
use crate::cells::Cells;

/// Blocks of an extent: 2 MB of the smallest ones.
pub const EXTENT_BLOCKS: usize = 16384;

/// Entries of a table for those who may write, who are therefore named alone in a comb of up to so many cells.
const WRITERS: usize = 127;
/// Entries for sets of readers. More would be told apart by a byte, but take more room than two per cent of the smallest blocks.
const READERS: usize = 63;
const LOST: u8 = 255;

/// Where a block's content is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Holding<'a> {
    /// At its home, and nobody else has a copy.
    Home,
    /// At its home, and none but these may have copies to read.
    Shared(&'a Cells),
    /// With one of these, who may write.
    Exclusive(&'a Cells),
    /// Nowhere: who had it is dead.
    Lost,
}

/// [`Holding`], to be kept.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Entry {
    is_exclusive: bool,
    cells: Cells,
    /// Blocks that have it; without any, it is free.
    blocks: u32,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Extent {
    numbers: Box<[u8]>,
    entries: Vec<Entry>,
    /// Blocks that are not at home.
    away: u32,
}

/// The holders of all blocks.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Directory {
    extents: BTreeMap<u64, Extent>,
}

fn place(block: Block) -> (u64, usize) {
    let blocks = EXTENT_BLOCKS as u64;
    #[expect(clippy::cast_possible_truncation, reason = "below the blocks of an extent")]
    let index = (block.0 % blocks) as usize;
    (block.0 / blocks, index)
}

impl Directory {
    /// Where a block is.
    pub fn holding(&self, block: Block) -> Holding<'_> {
        let (extent, index) = place(block);
        let Some(extent) = self.extents.get(&extent) else { return Holding::Home };
        match extent.numbers[index] {
            0 => Holding::Home,
            LOST => Holding::Lost,
            number => {
                let entry = &extent.entries[usize::from(number) - 1];
                if entry.is_exclusive {
                    Holding::Exclusive(&entry.cells)
                } else {
                    Holding::Shared(&entry.cells)
                }
            }
        }
    }

    /// Says where a block is now. A set of nobody is its home.
    pub fn set(&mut self, block: Block, holding: Holding<'_>) {
        let (number, index) = place(block);
        let (is_exclusive, cells) = match holding {
            Holding::Shared(cells) => (false, cells),
            Holding::Exclusive(cells) => (true, cells),
            Holding::Lost => return self.extent(number).put(index, LOST),
            Holding::Home => return self.bring_home(number, index),
        };
        if cells.is_empty() {
            return self.bring_home(number, index);
        }
        let extent = self.extent(number);
        // Its old entry may be the one that is free for the new.
        extent.put(index, 0);
        let entry = extent.entry(is_exclusive, cells);
        extent.put(index, entry);
    }

    fn extent(&mut self, number: u64) -> &mut Extent {
        self.extents.entry(number).or_insert_with(|| Extent {
            numbers: vec![0; EXTENT_BLOCKS].into_boxed_slice(),
            entries: Vec::new(),
            away: 0,
        })
    }

    fn bring_home(&mut self, number: u64, index: usize) {
        let Some(extent) = self.extents.get_mut(&number) else { return };
        extent.put(index, 0);
        if extent.away == 0 {
            self.extents.remove(&number);
        }
    }

    /// Nobody counts on a dead cell any more. `lost` is told of each block that nobody but the dead had.
    pub fn forget(&mut self, dead: CellId, mut lost: impl FnMut(Block)) {
        for (&number, extent) in &mut self.extents {
            let Some(becomes) = extent.forget(dead) else { continue };
            for index in 0..EXTENT_BLOCKS {
                let Some(becomes) = becomes[usize::from(extent.numbers[index])] else { continue };
                extent.put(index, becomes);
                if becomes == LOST {
                    lost(Block(number * EXTENT_BLOCKS as u64 + index as u64));
                }
            }
        }
        self.extents.retain(|_, extent| extent.away > 0);
    }

    /// Blocks that a cell may have alone.
    pub fn owned_by(&self, cell: CellId) -> Vec<Block> {
        let mut owned = Vec::new();
        for (&number, extent) in &self.extents {
            for (index, &of) in extent.numbers.iter().enumerate() {
                let entry = usize::from(of).checked_sub(1).and_then(|at| extent.entries.get(at));
                if of != LOST && entry.is_some_and(|entry| entry.is_exclusive && entry.cells.contains(cell)) {
                    owned.push(Block(number * EXTENT_BLOCKS as u64 + index as u64));
                }
            }
        }
        owned
    }

    /// Bytes that it takes besides itself.
    pub fn heap_bytes(&self) -> usize {
        let of_extent = |extent: &Extent| {
            let sets: usize = extent.entries.iter().map(|entry| entry.cells.heap_bytes()).sum();
            size_of::<Extent>() + EXTENT_BLOCKS + extent.entries.capacity() * size_of::<Entry>() + sets
        };
        self.extents.values().map(of_extent).sum()
    }
}

impl Extent {
    /// Gives a block another number.
    fn put(&mut self, index: usize, number: u8) {
        let old = core::mem::replace(&mut self.numbers[index], number);
        if old != 0 {
            self.away -= 1;
        }
        if number != 0 {
            self.away += 1;
        }
        if let Some(entry) = Self::kept(&mut self.entries, old) {
            entry.blocks -= 1;
        }
        if let Some(entry) = Self::kept(&mut self.entries, number) {
            entry.blocks += 1;
        }
    }

    fn kept(entries: &mut [Entry], number: u8) -> Option<&mut Entry> {
        if number == LOST { None } else { entries.get_mut(usize::from(number).wrapping_sub(1)) }
    }

    /// The number of an entry that names these cells: themselves, if there is room.
    fn entry(&mut self, is_exclusive: bool, cells: &Cells) -> u8 {
        let alike = |entry: &Entry| entry.is_exclusive == is_exclusive && entry.blocks > 0;
        if let Some(same) = self.entries.iter().position(|entry| alike(entry) && entry.cells == *cells) {
            return Self::number(same);
        }
        let most = if is_exclusive { WRITERS } else { READERS };
        let fresh = Entry { is_exclusive, cells: cells.clone(), blocks: 0 };
        if self.entries.iter().filter(|entry| alike(entry)).count() < most {
            let free = self.entries.iter().position(|entry| entry.blocks == 0).unwrap_or(self.entries.len());
            match self.entries.get_mut(free) {
                Some(entry) => *entry = fresh,
                None => {
                    self.entries.reserve_exact(1);
                    self.entries.push(fresh);
                }
            }
            return Self::number(free);
        }
        let grown = |entry: &Entry| {
            let mut both = entry.cells.clone();
            both.add(cells);
            both.len() - entry.cells.len()
        };
        let candidates = (0..self.entries.len()).filter(|&at| alike(&self.entries[at]));
        let widened = candidates.min_by_key(|&at| grown(&self.entries[at])).expect("so many of its sort");
        self.entries[widened].cells.add(cells);
        Self::number(widened)
    }

    fn number(at: usize) -> u8 {
        u8::try_from(at + 1).expect("fewer entries than a byte tells apart")
    }

    /// Takes a dead cell out of all sets. What each number becomes of which nothing is left; none, if it was in no set.
    fn forget(&mut self, dead: CellId) -> Option<[Option<u8>; 256]> {
        let (mut becomes, mut was_in) = ([None; 256], false);
        for (at, entry) in self.entries.iter_mut().enumerate() {
            if !entry.cells.remove(dead) {
                continue;
            }
            was_in = true;
            if entry.cells.is_empty() {
                becomes[usize::from(Self::number(at))] = Some(if entry.is_exclusive { LOST } else { 0 });
            }
        }
        was_in.then_some(becomes)
    }
}

#[cfg(test)]
mod tests;
