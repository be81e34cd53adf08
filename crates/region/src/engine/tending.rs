//! What is done between messages, when no handler runs: blocks move by what was missed, copies are given back when there are too many, and
//! frames that nobody needs here go back to the system.

use std::ops::Range;

use comb_coherence::placement::{Move, carry_out};
use comb_coherence::{Access, Block, Tempest};
use comb_memory::PAGE_BYTES;

use super::{Engine, Entry, Hint, locate};
use crate::driver::Driver;

impl Engine {
    pub(super) fn tend(&mut self) {
        if !self.core.decided.is_empty() {
            self.move_as_decided();
        }
        if let Some(bytes) = self.core.copies.too_many() {
            self.make_room(bytes);
        }
        self.go_on_releasing();
        if !self.core.vacated.is_empty() {
            let vacated = std::mem::take(&mut self.core.vacated);
            self.discard(vacated);
        }
    }

    /// Does what the policy has made of misses.
    fn move_as_decided(&mut self) {
        for (offset, blocks, decided) in std::mem::take(&mut self.core.decided) {
            let Some(entry) = self.entries.get_mut(&offset) else { continue };
            let may_give = entry.may_give();
            let Some(protocol) = &mut entry.protocol else { continue };
            if matches!(decided, Move::Migrate(_)) && may_give < blocks.end - blocks.start {
                continue;
            }
            let mut driver = Driver::new(&mut self.core, &mut entry.shape);
            carry_out(&decided, blocks, protocol.as_mut(), &mut driver);
        }
        self.core.raise();
    }

    /// Gives blocks that live here another home. How many are on their way.
    pub(crate) fn move_home(&mut self, address: usize, bytes: usize, to: u32) -> usize {
        if let Some(asked) = self.hint(Hint::Move, address, bytes, Some(to)) {
            return asked;
        }
        let is_there = self.core.others().contains(&to);
        let Some((entry, first)) = locate(&mut self.entries, address).filter(|_| is_there) else { return 0 };
        let Some(&to) = self.core.leads_of(vec![to], &entry.shape.homes).first() else { return 0 };
        let last = entry.shape.layout.block_at(address + bytes.saturating_sub(1)).unwrap_or(first);
        let most = usize::try_from(entry.may_give()).unwrap_or(usize::MAX);
        let Some(protocol) = &mut entry.protocol else { return 0 };
        let mut moving = 0;
        for block in (first.0..=last.0).map(Block) {
            if moving == most {
                break;
            }
            if entry.shape.home(block.0) == Some(self.core.me.0) {
                entry.shape.claim(&self.core, block.0);
                let mut driver = Driver::new(&mut self.core, &mut entry.shape);
                moving += usize::from(protocol.on_move(&mut driver, block, to));
            }
        }
        self.core.raise();
        moving
    }

    pub(crate) fn home_at(&mut self, address: usize) -> Option<u32> {
        let (entry, block) = locate(&mut self.entries, address)?;
        entry.shape.home(block.0)
    }

    /// Gives copies back, the oldest first, until no more than so many bytes are left.
    fn make_room(&mut self, bytes: u64) {
        let mut given_back = Vec::new();
        let mut kept = Vec::new();
        while self.core.copies.bytes() > bytes {
            let Some((offset, block)) = self.core.copies.oldest() else { break };
            let Some(entry) = self.entries.get_mut(&offset) else { continue };
            let Some(protocol) = &mut entry.protocol else { continue };
            let mut driver = Driver::new(&mut self.core, &mut entry.shape);
            if driver.home_of(block) == driver.me() || !driver.access(block).may_load() {
                continue;
            }
            protocol.on_evict(&mut driver, block);
            if driver.access(block).may_load() {
                kept.push((offset, block));
            } else {
                given_back.push((offset, block));
            }
        }
        kept.into_iter().for_each(|(offset, block)| self.core.copies.keep(offset, block));
        self.core.counts.evicted += given_back.len() as u64;
        self.core.raise();
        self.discard(given_back);
    }

    /// Gives back the frames of blocks that are neither here nor at home here.
    fn discard(&mut self, mut blocks: Vec<(u64, Block)>) {
        blocks.sort_unstable();
        blocks.dedup();
        let mut rest = blocks.into_iter().peekable();
        while let Some((offset, first)) = rest.next() {
            let Some(entry) = self.entries.get(&offset) else { continue };
            let me = self.core.me.0;
            let layout = entry.shape.layout;
            let is_of_no_use = |block: u64| {
                self.core.memory.access(&layout, Block(block)) == Access::Invalid
                    && entry.shape.home(block).is_some_and(|home| home != me)
            };
            let each = entry.blocks_of_a_frame();
            // All blocks of a frame, or of the frames of one behind the other.
            let mut run = frame_of(first.0, each);
            while let Some((_, next)) = rest.next_if(|(of, next)| *of == offset && next.0 <= run.end) {
                run.end = run.end.max(frame_of(next.0, each).end);
            }
            run.end = run.end.min(layout.blocks());
            let mut begin = run.start;
            while begin < run.end {
                let is_used =
                    |frame: &u64| (*frame..(frame + each).min(run.end)).any(|block| !is_of_no_use(block));
                let step = usize::try_from(each).expect("blocks of a page");
                let end = (begin..run.end).step_by(step).find(is_used).unwrap_or(run.end);
                let discarded = self.core.memory.discard(&layout, begin..end);
                discarded.unwrap_or_else(|error| crate::driver::fail(&error));
                begin = end + each;
            }
        }
    }
}

/// The blocks that share a page frame with one.
fn frame_of(block: u64, each: u64) -> Range<u64> {
    let first = block / each * each;
    first..first + each
}

impl Entry {
    fn may_give(&self) -> u64 {
        self.shape.moving.as_ref().map_or(0, |moving| moving.may_give(self.shape.allocation.bytes))
    }

    fn blocks_of_a_frame(&self) -> u64 {
        let layout = &self.shape.layout;
        (PAGE_BYTES / layout.block_bytes()).max(1) as u64
    }
}
