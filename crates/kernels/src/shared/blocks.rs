//! What a protocol of `comb-coherence` runs on here: what may be done with blocks, and mappings of pages that follow it.

use std::collections::{BTreeSet, VecDeque};

use comb_coherence::{Access, Block, Content, Loss, Tempest};
use comb_kernel::supervisor::CallError;
use comb_types::CellId;

use super::{Letter, Shape};

/// What shared pages lie on: the frames and the mappings of whoever has programs on them.
pub trait Ground {
    /// Takes rights to a page from all programs: with `ReadOnly`, loads are left. When it returns, they have them no more.
    fn restrict(&mut self, page: u32, left: Access) -> Result<(), CallError>;

    /// Copies what is at a place of the pages now.
    fn copy_out(&self, offset: usize, into: &mut [u8]);

    /// Writes there.
    fn copy_in(&mut self, offset: usize, from: &[u8]);
}

/// One cell's rights.
#[derive(Debug)]
pub(super) struct Blocks {
    pub(super) me: CellId,
    pub(super) shape: Shape,
    /// By block.
    pub(super) access: Vec<Access>,
    pub(super) lost: Vec<Option<Loss>>,
    /// Of which pages something may be mapped, and whether to be stored to.
    mapped: Vec<Option<bool>>,
    /// Pages of which a block has come, or will not.
    pub(super) changed: BTreeSet<u32>,
    pub(super) letters: VecDeque<(CellId, Letter)>,
    /// What must be done before anything else is said has not been done.
    pub(super) failed: Option<CallError>,
}

pub(super) fn at(block: Block) -> usize {
    usize::try_from(block.0).expect("a block of the segment")
}

impl Blocks {
    pub(super) fn new(me: CellId, shape: Shape) -> Self {
        let mut blocks = Self {
            me,
            shape,
            access: Vec::new(),
            lost: Vec::new(),
            mapped: vec![None; shape.pages as usize],
            changed: BTreeSet::new(),
            letters: VecDeque::new(),
            failed: None,
        };
        let count = shape.pages as usize * blocks.in_page() as usize;
        for block in 0..count {
            let is_own = blocks.lives_in(blocks.page_of(Block(block as u64))) == me;
            blocks.access.push(if is_own { Access::ReadWrite } else { Access::Invalid });
        }
        blocks.lost.resize(count, None);
        blocks
    }

    /// How many blocks a page has.
    pub(super) fn in_page(&self) -> u32 {
        4096 / self.shape.block_bytes
    }

    pub(super) fn page_of(&self, block: Block) -> u32 {
        u32::try_from(block.0 / u64::from(self.in_page())).expect("a page of the segment")
    }

    /// The blocks of a page.
    pub(super) fn of(&self, page: u32) -> impl Iterator<Item = Block> + use<> {
        let count = u64::from(self.in_page());
        (u64::from(page) * count..(u64::from(page) + 1) * count).map(Block)
    }

    pub(super) fn lives_in(&self, page: u32) -> CellId {
        CellId(page % self.shape.cells)
    }

    /// How many blocks of a page can be used so, from the first one on.
    pub(super) fn usable(&self, page: u32, is_store: bool) -> u32 {
        let usable = self.of(page).take_while(|block| self.access[at(*block)].allows(is_store)).count();
        u32::try_from(usable).expect("few blocks")
    }

    /// Whether all of a page can be used so.
    pub(super) fn has(&self, page: u32, is_store: bool) -> bool {
        self.usable(page, is_store) == self.in_page()
    }

    /// Why a page cannot be had any more.
    pub(super) fn loss(&self, page: u32) -> Option<(Block, Loss)> {
        self.of(page).find_map(|block| Some((block, self.lost[at(block)]?)))
    }

    /// A page, of which all blocks can be used, is about to be mapped: whether it may be to be stored to, if that is wanted. Nothing: it cannot be used any more.
    pub(super) fn map(&mut self, page: u32, writable: bool) -> Option<bool> {
        if !self.has(page, false) {
            return None;
        }
        let writable = writable && self.has(page, true);
        let mapped = &mut self.mapped[page as usize];
        *mapped = Some(writable || mapped.unwrap_or(false));
        Some(writable)
    }

    /// Where a block is in the pages.
    pub(super) fn offset(&self, block: Block) -> usize {
        at(block) * self.shape.block_bytes as usize
    }
}

/// Rights and what they are about, while something is done with them.
pub(super) struct Driven<'a> {
    pub(super) blocks: &'a mut Blocks,
    pub(super) ground: &'a mut dyn Ground,
}

impl Driven<'_> {
    /// Takes a right to a page away from all programs of this cell.
    fn restrict(&mut self, page: u32, to: Access) {
        let mapped = &mut self.blocks.mapped[page as usize];
        let is_too_much = match (*mapped, to) {
            (None, _) | (_, Access::ReadWrite) => false,
            (Some(is_writable), Access::ReadOnly) => is_writable,
            (Some(_), Access::Invalid) => true,
        };
        if !is_too_much {
            return;
        }
        *mapped = (to == Access::ReadOnly).then_some(false);
        if let Err(error) = self.ground.restrict(page, to) {
            self.blocks.failed.get_or_insert(error);
        }
    }
}

impl Tempest for Driven<'_> {
    fn me(&self) -> CellId {
        self.blocks.me
    }

    fn home_of(&self, block: Block) -> CellId {
        self.blocks.lives_in(self.blocks.page_of(block))
    }

    fn blocks(&self) -> u64 {
        self.blocks.access.len() as u64
    }

    fn block_bytes(&self) -> usize {
        self.blocks.shape.block_bytes as usize
    }

    fn access(&self, block: Block) -> Access {
        self.blocks.access[at(block)]
    }

    fn set_access(&mut self, block: Block, access: Access) {
        self.restrict(self.blocks.page_of(block), access);
        self.blocks.access[at(block)] = access;
    }

    fn fill(&mut self, block: Block, content: &[u8]) {
        self.ground.copy_in(self.blocks.offset(block), content);
    }

    fn copy_out(&self, block: Block, into: &mut [u8]) {
        self.ground.copy_out(self.blocks.offset(block), into);
    }

    fn patch(&mut self, block: Block, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.block_bytes(), "within the block");
        self.ground.copy_in(self.blocks.offset(block) + offset, bytes);
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
        if self.blocks.failed.is_none() {
            self.blocks.letters.push_back((to, Letter { kind, block, word, content }));
        }
    }

    fn resume(&mut self, block: Block) {
        self.blocks.changed.insert(self.blocks.page_of(block));
    }

    fn synced(&mut self) {}

    fn lose(&mut self, block: Block, loss: Loss) {
        self.set_access(block, Access::Invalid);
        self.blocks.lost[at(block)] = Some(loss);
        self.blocks.changed.insert(self.blocks.page_of(block));
    }
}
