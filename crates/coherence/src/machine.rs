//! What runs a protocol where there is no cell: some memory in arrays, a thread that waits, and what is to be sent.
//!
//! Models, litmus tests and the seeded world stand on it, each with a network of its own.

use std::vec;
use std::vec::Vec;

use comb_types::CellId;

use crate::block::{Access, Block};
use crate::tempest::{Content, Loss, Tempest};

/// How long a block is.
pub(crate) const BLOCK_BYTES: usize = 4;

/// One cell's memory, of which each block's home is one of the first cells, in turns.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Machine {
    pub(crate) me: CellId,
    homes: u32,
    pub(crate) access: Vec<Access>,
    pub(crate) content: Vec<[u8; BLOCK_BYTES]>,
    pub(crate) lost: Vec<Option<Loss>>,
    /// What its thread waits to do.
    pub(crate) waiting: Option<(Block, Do)>,
    pub(crate) is_resumed: bool,
    pub(crate) is_synced: bool,
    pub(crate) sent: Vec<(CellId, Letter)>,
}

/// What a thread does with a block.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Do {
    Load,
    Store,
}

/// A message on its way.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Letter {
    pub(crate) kind: u8,
    pub(crate) block: Block,
    pub(crate) word: u64,
    pub(crate) content: Vec<u8>,
}

/// Where a block stands in an array.
pub(crate) fn at(block: Block) -> usize {
    usize::try_from(block.0).expect("few blocks")
}

impl Machine {
    pub(crate) fn new(me: CellId, homes: u32, blocks: u64) -> Self {
        let count = at(Block(blocks));
        let mut machine = Self {
            me,
            homes,
            access: Vec::new(),
            content: vec![[0; BLOCK_BYTES]; count],
            lost: vec![None; count],
            waiting: None,
            is_resumed: false,
            is_synced: false,
            sent: Vec::new(),
        };
        let own = |block| machine.home_of(block) == me;
        let access = |block| if own(block) { Access::ReadWrite } else { Access::Invalid };
        machine.access = machine.all().map(access).collect();
        machine
    }

    /// All blocks.
    pub(crate) fn all(&self) -> impl Iterator<Item = Block> + use<> {
        (0..self.content.len() as u64).map(Block)
    }

    /// The driver's part in a death: what was homed there is gone, and every later access is told.
    pub(crate) fn lose_homed_in(&mut self, dead: CellId) {
        for block in self.all().filter(|&block| self.home_of(block) == dead).collect::<Vec<_>>() {
            self.lose(block, Loss::Home(dead));
        }
    }

    /// Its thread could not do what it wanted, and waits.
    pub(crate) fn waits(&mut self, block: Block, does: Do) {
        (self.waiting, self.is_resumed) = (Some((block, does)), false);
    }

    /// Its thread tries again.
    pub(crate) fn wakes(&mut self) {
        (self.waiting, self.is_resumed) = (None, false);
    }
}

impl Tempest for Machine {
    fn me(&self) -> CellId {
        self.me
    }

    fn home_of(&self, block: Block) -> CellId {
        CellId(u32::try_from(block.0).expect("few blocks") % self.homes)
    }

    fn blocks(&self) -> u64 {
        self.content.len() as u64
    }

    fn block_bytes(&self) -> usize {
        BLOCK_BYTES
    }

    fn access(&self, block: Block) -> Access {
        self.access[at(block)]
    }

    fn set_access(&mut self, block: Block, access: Access) {
        self.access[at(block)] = access;
    }

    fn fill(&mut self, block: Block, content: &[u8]) {
        assert_eq!(self.access(block), Access::Invalid, "somebody may load or store {block} meanwhile");
        self.content[at(block)].copy_from_slice(content);
    }

    fn copy_out(&self, block: Block, into: &mut [u8]) {
        into.copy_from_slice(&self.content[at(block)]);
    }

    fn patch(&mut self, block: Block, offset: usize, bytes: &[u8]) {
        self.content[at(block)][offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    fn send(&mut self, to: CellId, kind: u8, block: Block, word: u64, content: Content<'_>) {
        assert_ne!(to, self.me);
        let content = match content {
            Content::None => Vec::new(),
            Content::Block => self.content[at(block)].to_vec(),
            Content::Bytes(bytes) => bytes.to_vec(),
        };
        self.sent.push((to, Letter { kind, block, word, content }));
    }

    fn resume(&mut self, block: Block) {
        self.is_resumed |= self.waiting.is_some_and(|(waits, _)| waits == block);
    }

    fn synced(&mut self) {
        self.is_synced = true;
    }

    fn lose(&mut self, block: Block, loss: Loss) {
        self.lost[at(block)] = Some(loss);
        self.access[at(block)] = Access::Invalid;
        self.resume(block);
    }
}
