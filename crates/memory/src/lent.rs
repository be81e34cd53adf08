//! Memory whose frames other processes of this host map, and whose rights are theirs, too: a block is lowered for all of them at once.

use std::ops::Range;
use std::os::fd::OwnedFd;

use comb_coherence::{Access, Block};

use crate::exports::AROUND_BYTES;
use crate::guests::{Guests, Pages};
use crate::layout::Layout;
use crate::memory::{Memory, MemoryError};
use crate::space::{HEAP_START, PAGE_BYTES};

const PAGE: u64 = PAGE_BYTES as u64;

/// What of a process's [`Memory`] its neighbours have. They map the frames of an allocation at its own addresses
/// ([`Memory::import_under`]), each under one guard for all that it maps. Blocks are whole pages.
#[derive(Debug, Default)]
pub struct Lent {
    guests: Guests,
    /// Of which frames some guest may have entries.
    shown: Pages,
    content: Vec<u8>,
}

impl Lent {
    /// A neighbour, by a number of its own, has handed over its guard.
    pub fn admit(&mut self, number: u32, guard: OwnedFd, process: OwnedFd) {
        self.guests.admit(number, guard, HEAP_START, process);
    }

    /// Whether that is the number of one.
    pub fn has(&self, number: u32) -> bool {
        self.guests.has(number)
    }

    /// Lets a neighbour load, or store to, a run of blocks; the caller knows that each of them may be. To load, it is shown what is around them
    /// and here, too. Where that ends.
    pub fn let_in(
        &mut self,
        memory: &Memory,
        layout: &Layout,
        blocks: Range<u64>,
        (number, to_store): (u32, bool),
    ) -> Result<u64, MemoryError> {
        let blocks = if to_store { blocks } else { around(memory, layout, &blocks) };
        let end = blocks.end;
        let frames = frames(layout, &blocks);
        let mut pages = frames.start / PAGE..frames.end / PAGE;
        if !pages.all(|page| self.shown.has(page)) {
            memory.populate(layout, &frames)?;
            self.shown.note(frames.start / PAGE..frames.end / PAGE, true);
        }
        if !to_store {
            return self.guests.show(number, &frames).map(|()| end);
        }
        for block in blocks {
            self.guests.grant(number, &self::frames(layout, &(block..block + 1)))?;
        }
        Ok(end)
    }

    /// A block's right was lowered in `memory`: now it is for all neighbours. When this returns, no load or store that it forbids is still
    /// to come from them either, and the content is as the last store has left it.
    pub fn lower(
        &mut self,
        memory: &Memory,
        layout: &Layout,
        block: Block,
        access: Access,
    ) -> Result<(), MemoryError> {
        let frames = frames(layout, &(block.0..block.0 + 1));
        let is_fenced = self.guests.revoke(&frames).is_empty();
        let pages = frames.start / PAGE..frames.end / PAGE;
        if access != Access::Invalid && is_fenced || !pages.clone().any(|page| self.shown.has(page)) {
            return Ok(());
        }
        // Nobody can take an entry out of another process's page table but together with the frame, and all others'.
        self.content.resize(layout.block_bytes(), 0);
        memory.copy_out(layout, block, &mut self.content);
        memory.discard(layout, block.0..block.0 + 1)?;
        memory.fill(layout, block, &self.content);
        self.shown.note(pages, false);
        Ok(())
    }

    /// An allocation is no more.
    pub fn forget(&mut self, layout: &Layout) {
        let frames = frames(layout, &(0..layout.blocks()));
        // What cannot be revoked is nobody's content any more.
        let _ = self.guests.revoke(&frames);
        self.shown.forget(frames.start / PAGE..frames.end / PAGE);
    }
}

/// A run of blocks, with those on both sides that may be loaded and have been, as far as the next multiples of what is shown together.
fn around(memory: &Memory, layout: &Layout, blocks: &Range<u64>) -> Range<u64> {
    let each = (AROUND_BYTES / layout.block_bytes() as u64).max(1);
    let is_here = |&block: &u64| {
        memory.access(layout, Block(block)).may_load() && memory.is_known(layout, Block(block))
    };
    let before = (blocks.start / each * each..blocks.start).rev().take_while(is_here).last();
    let end = blocks.end.next_multiple_of(each).min(layout.blocks());
    let behind = (blocks.end..end).take_while(is_here).last();
    before.unwrap_or(blocks.start)..behind.map_or(blocks.end, |last| last + 1)
}

/// Where a run of blocks has its frames: they are whole blocks.
fn frames(layout: &Layout, blocks: &Range<u64>) -> Range<u64> {
    let begin = layout.frame(Block(blocks.start));
    begin..begin + (blocks.end - blocks.start) * layout.block_bytes() as u64
}
