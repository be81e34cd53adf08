//! What a protocol of `comb-coherence` runs on here: frames, and mappings that follow what may be done with their blocks.

use std::collections::{BTreeSet, VecDeque};

use comb_coherence::{Access, Block, Content, Loss, Tempest};
use comb_kernel::calls::Calls;
use comb_kernel::objects::{Mapping, Refused, SpaceId};
use comb_kernel::supervisor::CallError;
use comb_types::CellId;

use super::{Letter, Shape};
use crate::communication::Pages;

/// Where a space sees the segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The space.
    pub space: SpaceId,
    /// The page where the segment's first one is.
    pub first: u64,
    /// Whether its programs may store there.
    pub writable: bool,
}

/// One cell's frames and rights.
#[derive(Debug)]
pub(super) struct Memory {
    pub(super) me: CellId,
    pub(super) shape: Shape,
    pub(super) frames: Pages,
    /// By block.
    pub(super) access: Vec<Access>,
    pub(super) lost: Vec<Option<Loss>>,
    pub(super) places: Vec<Place>,
    /// Of which pages something may be mapped, and whether to be stored to.
    mapped: Vec<Option<bool>>,
    /// Pages of which a block has come, or will not.
    pub(super) changed: BTreeSet<u32>,
    pub(super) letters: VecDeque<(CellId, Letter)>,
    /// The supervisor has not done what must be done before anything else is said.
    pub(super) failed: Option<CallError>,
}

fn at(block: Block) -> usize {
    usize::try_from(block.0).expect("a block of the segment")
}

impl Memory {
    pub(super) fn new(me: CellId, shape: Shape, frames: Pages) -> Self {
        let mut memory = Self {
            me,
            shape,
            frames,
            access: Vec::new(),
            lost: Vec::new(),
            places: Vec::new(),
            mapped: vec![None; shape.pages as usize],
            changed: BTreeSet::new(),
            letters: VecDeque::new(),
            failed: None,
        };
        let blocks = shape.pages * memory.blocks_in_page();
        for block in 0..blocks {
            let is_own = memory.lives_in(memory.page_of(Block(block.into()))) == me;
            memory.access.push(if is_own { Access::ReadWrite } else { Access::Invalid });
        }
        memory.lost.resize(blocks as usize, None);
        memory
    }

    pub(super) fn blocks_in_page(&self) -> u32 {
        4096 / self.shape.block_bytes
    }

    pub(super) fn page_of(&self, block: Block) -> u32 {
        u32::try_from(block.0 / u64::from(self.blocks_in_page())).expect("a page of the segment")
    }

    /// The blocks of a page.
    pub(super) fn blocks_of(&self, page: u32) -> impl Iterator<Item = Block> + use<> {
        let count = u64::from(self.blocks_in_page());
        (u64::from(page) * count..(u64::from(page) + 1) * count).map(Block)
    }

    pub(super) fn lives_in(&self, page: u32) -> CellId {
        CellId(page % self.shape.cells)
    }

    /// How many blocks of a page can be used so, from the first one on.
    pub(super) fn usable(&self, page: u32, is_store: bool) -> u32 {
        let usable =
            self.blocks_of(page).take_while(|block| self.access[at(*block)].allows(is_store)).count();
        u32::try_from(usable).expect("few blocks")
    }

    /// Why a page cannot be had any more.
    pub(super) fn loss(&self, page: u32) -> Option<(Block, Loss)> {
        self.blocks_of(page).find_map(|block| Some((block, self.lost[at(block)]?)))
    }

    /// Maps a page, of which all blocks can be used, with the rights that they have.
    pub(super) fn map(&mut self, calls: &mut dyn Calls, place: &Place, page: u32) -> Result<(), CallError> {
        let writable = place.writable && self.usable(page, true) == self.blocks_in_page();
        let frame = u64::from(self.frames.first() + page);
        let read = Mapping::read(place.space, place.first + u64::from(page), frame);
        let mapped = &mut self.mapped[page as usize];
        *mapped = Some(writable || mapped.unwrap_or(false));
        calls.load_mappings(&Mapping { writable, stored: writable, ..read }, 1)
    }

    /// Where a block is in the frames.
    fn offset(&self, block: Block) -> usize {
        at(block) * self.shape.block_bytes as usize
    }
}

/// The memory while something is done with it.
pub(super) struct Driven<'a> {
    pub(super) memory: &'a mut Memory,
    pub(super) calls: &'a mut dyn Calls,
}

impl Driven<'_> {
    /// Takes a right to a page away from all programs of this cell.
    fn restrict(&mut self, page: u32, to: Access) {
        let mapped = &mut self.memory.mapped[page as usize];
        let is_too_much = match (*mapped, to) {
            (None, _) | (_, Access::ReadWrite) => false,
            (Some(is_writable), Access::ReadOnly) => is_writable,
            (Some(_), Access::Invalid) => true,
        };
        if !is_too_much {
            return;
        }
        *mapped = (to == Access::ReadOnly).then_some(false);
        let calls = &mut *self.calls;
        let failed = &mut self.memory.failed;
        self.memory.places.retain(|place| {
            let at = place.first + u64::from(page);
            let done = match to {
                Access::ReadOnly => calls.forbid_writes(place.space, at, 1),
                _ => calls.unload_mappings(place.space, at, 1).map(drop),
            };
            match done {
                Ok(()) => true,
                // What is not loaded has nothing mapped.
                Err(CallError::Refused(Refused::StaleSpace(_))) => false,
                Err(error) => {
                    failed.get_or_insert(error);
                    true
                }
            }
        });
    }
}

impl Tempest for Driven<'_> {
    fn me(&self) -> CellId {
        self.memory.me
    }

    fn home_of(&self, block: Block) -> CellId {
        self.memory.lives_in(self.memory.page_of(block))
    }

    fn blocks(&self) -> u64 {
        self.memory.access.len() as u64
    }

    fn block_bytes(&self) -> usize {
        self.memory.shape.block_bytes as usize
    }

    fn access(&self, block: Block) -> Access {
        self.memory.access[at(block)]
    }

    fn set_access(&mut self, block: Block, access: Access) {
        self.restrict(self.memory.page_of(block), access);
        self.memory.access[at(block)] = access;
    }

    fn fill(&mut self, block: Block, content: &[u8]) {
        self.memory.frames.copy_in(self.memory.offset(block), content);
    }

    fn copy_out(&self, block: Block, into: &mut [u8]) {
        self.memory.frames.copy_out(self.memory.offset(block), into);
    }

    fn patch(&mut self, block: Block, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.block_bytes(), "within the block");
        self.memory.frames.copy_in(self.memory.offset(block) + offset, bytes);
    }

    fn send(&mut self, to: CellId, kind: u8, block: Block, word: u64, content: Content<'_>) {
        let content = match content {
            Content::None => Vec::new(),
            Content::Block => {
                let mut bytes = vec![0; self.block_bytes()];
                self.copy_out(block, &mut bytes);
                bytes
            }
            Content::Bytes(bytes) => bytes.to_vec(),
        };
        // What could still be stored to is not given away.
        if self.memory.failed.is_none() {
            self.memory.letters.push_back((to, Letter { kind, block, word, content }));
        }
    }

    fn resume(&mut self, block: Block) {
        self.memory.changed.insert(self.memory.page_of(block));
    }

    fn synced(&mut self) {}

    fn lose(&mut self, block: Block, loss: Loss) {
        self.set_access(block, Access::Invalid);
        self.memory.lost[at(block)] = Some(loss);
        self.memory.changed.insert(self.memory.page_of(block));
    }
}
