//! What runs a protocol where there is no cell: some memory in arrays, a thread that waits, and what is to be sent.
//!
//! Models, litmus tests and the seeded world stand on it, each with a network of its own.

use std::vec;
use std::vec::Vec;

use comb_types::CellId;

use crate::block::{Access, Block};
use crate::cells::Cells;
use crate::homes::{Home, Homes};
use crate::tempest::{Content, Loss, Tempest};

/// How long a block is.
pub(crate) const BLOCK_BYTES: usize = 4;
/// The kind of a letter between drivers, which no protocol has: what a cell knows of homes. Its word is who has died.
pub(crate) const TELLS: u8 = u8::MAX;

/// One cell's memory, of which each block is born in one of the first cells, in turns.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Machine {
    pub(crate) me: CellId,
    born_in: u32,
    homes: Homes,
    pub(crate) homes_move: bool,
    /// Who has died, as this cell has heard, and is not buried; and who of the living has not told yet what it knows of homes.
    dying: Option<(CellId, Cells)>,
    /// Who has told what it knows, perhaps before this cell has heard of the death.
    told: Cells,
    /// Misses of what lives here, if somebody looks at them.
    pub(crate) misses: Option<Vec<(Block, CellId, bool)>>,
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
    pub(crate) fn new(me: CellId, born_in: u32, blocks: u64) -> Self {
        let count = at(Block(blocks));
        let mut machine = Self {
            me,
            born_in,
            homes: Homes::new(me),
            homes_move: false,
            dying: None,
            told: Cells::NONE,
            misses: None,
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

    /// Where a block was born.
    pub(crate) fn born_in(&self, block: Block) -> CellId {
        CellId(u32::try_from(block.0).expect("few blocks") % self.born_in)
    }

    /// All blocks.
    pub(crate) fn all(&self) -> impl Iterator<Item = Block> + use<> {
        (0..self.content.len() as u64).map(Block)
    }

    /// The driver's part in a death, first: it has heard of it, and tells all others who live what it knows of homes. Where homes do not
    /// move, there is nothing to tell.
    pub(crate) fn hears_of(&mut self, dead: CellId, mut others: Cells) {
        let known = self.homes.known();
        let words = known.flat_map(|(block, home)| [block.0, home.to_word()]);
        let content: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        others.remove(self.me);
        let mut to_tell = if self.homes_move { others } else { Cells::NONE };
        for to in to_tell.iter() {
            let letter =
                Letter { kind: TELLS, block: Block(0), word: u64::from(dead.0), content: content.clone() };
            self.sent.push((to, letter));
        }
        for told in self.told.iter() {
            to_tell.remove(told);
        }
        self.dying = Some((dead, to_tell));
    }

    /// Another has told what it knows.
    pub(crate) fn is_told(&mut self, from: CellId, content: &[u8]) {
        for entry in content.chunks_exact(16) {
            let number = |at: usize| u64::from_le_bytes(entry[at..at + 8].try_into().expect("eight"));
            self.homes.allege(Block(number(0)), Home::from_word(number(8)));
        }
        match &mut self.dying {
            Some((_, to_tell)) => {
                to_tell.remove(from);
            }
            None => self.told.insert(from),
        }
    }

    /// When all have told: gives up what was homed with the dead, and every later access is told. Then the protocol is to be.
    pub(crate) fn buries(&mut self) -> Option<CellId> {
        let (dead, _) = self.dying.take_if(|(_, to_tell)| to_tell.is_empty())?;
        self.told = Cells::NONE;
        let granted = |block: &Block| self.home_of(*block) == dead && self.access(*block).may_load();
        let granted: Vec<Block> = self.all().filter(granted).collect();
        self.homes.bury(dead);
        for block in self.all() {
            let home = self.home_of(block);
            if self.homes.is_dead(home) {
                self.lose(block, Loss::Home(home));
            } else if granted.contains(&block) {
                self.lose(block, Loss::Home(dead));
            }
        }
        Some(dead)
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
        self.home(block).cell
    }

    fn homes_move(&self) -> bool {
        self.homes_move
    }

    fn home(&self, block: Block) -> Home {
        self.homes.of(block, self.born_in(block))
    }

    fn set_home(&mut self, block: Block, home: Home) {
        self.homes.set(block, home);
    }

    fn missed(&mut self, block: Block, by: CellId, is_store: bool) {
        self.misses.iter_mut().for_each(|misses| misses.push((block, by, is_store)));
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
