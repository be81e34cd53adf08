//! What a component keeps in a checkpoint, and gets back from one.

use std::collections::{BTreeMap, BTreeSet};

use comb_coherence::Block;

use super::{Engine, Shape};
use crate::checkpoint::{Holdings, OwnPage};
use crate::driver::Core;
use crate::heap::Heap;
use crate::terms::{Allocation, Placement};

const PAGE_STEP: usize = comb_memory::PAGE_BYTES;
const PAGE: u64 = PAGE_STEP as u64;

impl Engine {
    /// All that is allocated, in what order together, and which extents live here though no rule says so.
    pub(crate) fn holdings(&self, own_pages: &[OwnPage]) -> Holdings {
        let me = self.core.me.0;
        let allocations = self.entries.values().map(|entry| entry.shape.allocation).collect();
        let mut homes: BTreeMap<u64, BTreeSet<u64>> = self
            .entries
            .iter()
            .map(|(&offset, entry)| (offset, entry.shape.homes.known_of(me).into_iter().collect()))
            .collect();
        // Those that were dealt out, too: a task that begins from here may have copies.
        for page in own_pages {
            let Some(entry) = self.entries.get(&page.offset()) else { continue };
            if entry.shape.allocation.terms.placement == Placement::FirstTouch {
                homes.entry(page.offset()).or_default().insert(entry.shape.homes.extent(page.block()));
            }
        }
        let homes = homes.into_iter().map(|(offset, extents)| (offset, extents.into_iter().collect()));
        Holdings { allocations, together: self.together.clone(), homes: homes.collect() }
    }

    /// Makes an allocation of an earlier life again.
    pub(crate) fn reinstall(&mut self, allocation: Allocation) -> Result<(), ()> {
        if self.entries.contains_key(&allocation.offset) {
            return Err(());
        }
        self.install(allocation).map_err(|_| ())?;
        let span = self.entries[&allocation.offset].shape.layout.span();
        let is_own = Heap::owner(allocation.offset, self.core.count()) == self.core.me.0;
        if is_own && !self.heap.take_at(allocation.offset, span) {
            return Err(());
        }
        Ok(())
    }

    /// Says where an extent lived.
    pub(crate) fn rehome(&mut self, offset: u64, extent: u64, home: u32) {
        if let Some(entry) = self.entries.get_mut(&offset) {
            entry.shape.homes.learn(extent, home);
        }
    }

    /// Who has memory for whom, by rank, if they are not each for itself.
    pub(crate) fn leads(&self) -> Vec<u32> {
        self.core.neighbours.as_ref().map(|neighbours| neighbours.leads.to_vec()).unwrap_or_default()
    }

    /// Gives a page its content, before anybody runs. Whether it is this component's to have.
    pub(crate) fn refill(&mut self, offset: u64, frame: u64, content: &[u8]) -> bool {
        let Some(entry) = self.entries.get_mut(&offset) else { return false };
        let layout = entry.shape.layout;
        let step = layout.block_bytes().min(content.len());
        for (part, at) in content.chunks(step).zip((0..).step_by(step)) {
            let behind = frame - offset + at;
            let block_bytes = layout.block_bytes() as u64;
            let block = Block(behind / block_bytes);
            if block.0 >= layout.blocks() {
                break;
            }
            if !self.core.imports {
                if entry.shape.home(block.0) != Some(self.core.me.0) {
                    return false;
                }
                entry.shape.claim(&self.core, block.0);
            }
            let within = usize::try_from(behind % block_bytes).expect("within a block");
            self.core.memory.patch(&layout, block, within, part);
        }
        true
    }

    /// Pages that may have content and are this component's to keep.
    pub(crate) fn own_pages(&self) -> Vec<OwnPage> {
        let (me, count) = (self.core.me.0, u64::from(self.core.count()));
        let mut pages = Vec::new();
        for entry in self.entries.values() {
            let shape = &entry.shape;
            let layout = shape.layout;
            let frame_of = |block| layout.offset() + block * layout.block_bytes() as u64;
            let within = layout.offset()..frame_of(layout.blocks());
            let mut frames: BTreeSet<u64> =
                touched(self.core.memory.frames(), within.clone()).into_iter().collect();
            if entry.protocol.is_some() {
                frames.extend(shape.blocks_elsewhere(&self.core).flat_map(|block| {
                    (frame_of(block) / PAGE * PAGE..frame_of(block + 1).min(within.end)).step_by(PAGE_STEP)
                }));
            }
            for frame in frames {
                let page = OwnPage { frame, layout, generation: shape.allocation.generation };
                // Where all share the page frames, some have no home: dealt out.
                let extent = shape.homes.extent(page.block());
                let dealt = || self.core.imports.then(|| u32::try_from(extent % count).ok()).flatten();
                if shape.homes.of(extent).or_else(dealt) == Some(me) {
                    pages.push(page);
                }
            }
        }
        pages
    }
}

impl Shape {
    /// Blocks that live here and that another component may have the only content of: frames that were never touched here do not
    /// mean that there is none.
    fn blocks_elsewhere<'a>(&'a self, core: &'a Core) -> impl Iterator<Item = u64> + 'a {
        let blocks = self.claimed.iter().flat_map(|&extent| self.homes.blocks_of(extent));
        let blocks = blocks.filter(|&block| block < self.layout.blocks());
        blocks.filter(|&block| !core.memory.access(&self.layout, Block(block)).may_load())
    }
}

/// Pages of the frames that have content, as the kernel knows.
fn touched(frames: std::os::fd::BorrowedFd<'_>, within: std::ops::Range<u64>) -> Vec<u64> {
    use rustix::fs::{SeekFrom, seek};
    let mut pages = Vec::new();
    // The last page may be used in part: one that is looked for from its middle on is found for ever.
    let within = within.start..within.end.next_multiple_of(PAGE);
    let mut at = within.start;
    // Others who share the frames seek, too: each call says where from.
    while let Ok(data) = seek(frames, SeekFrom::Data(at)) {
        let hole = seek(frames, SeekFrom::Hole(data)).unwrap_or(within.end);
        let data = data / PAGE * PAGE..hole.min(within.end);
        if data.start >= within.end {
            break;
        }
        at = data.end;
        pages.extend(data.step_by(PAGE_STEP));
    }
    pages
}

#[cfg(test)]
mod tests {
    use comb_coherence::Access;

    use super::*;
    use crate::engine::scene::{allocation, engine};
    use crate::terms::{Guard, Sharing, Terms};

    /// A page that was stored to elsewhere alone, and one that nobody has ever had.
    #[test]
    fn what_lives_here_and_is_elsewhere_is_kept_though_its_frame_was_never_touched() {
        const OFFSET: u64 = 48 << 20;
        let mut engine = engine();
        let dealt = allocation(OFFSET, Sharing::Stache, Guard::Page);
        // What all lives here has its rights from the beginning, and no frames.
        let terms = Terms { placement: Placement::At(0), ..dealt.terms };
        engine.install(Allocation { terms, ..dealt }).expect("installed");
        let shape = &mut engine.entries.get_mut(&OFFSET).expect("installed").shape;
        shape.claim(&engine.core, 3);
        engine.core.memory.set(&shape.layout, 3..4, Access::Invalid).expect("set");
        engine.core.memory.set(&shape.layout, 4..5, Access::ReadOnly).expect("set");
        let pages: Vec<u64> = engine.own_pages().iter().map(OwnPage::block).collect();
        assert_eq!(pages, [3]);
        engine.remove(OFFSET);
    }
}
