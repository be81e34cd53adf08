//! Where blocks live that were given from home to home: what one cell knows of it.
//!
//! Every block is born somewhere, the same in the eyes of all. When it moves, the old home and the new one know, and those are told
//! who ask the old one; nobody else. So what a cell knows of others' blocks may be old. It leads to the home all the same: each former home
//! knows whom it gave the block to, and each move has a number, so that nobody is sent back to where the block was before.
//!
//! That chain breaks when a cell on it dies. Then all cells tell each other what they know, and who comes to a dead cell goes on with the
//! latest that anybody knows.

use alloc::collections::BTreeMap;

use comb_types::CellId;

use crate::block::Block;
use crate::cells::Cells;

/// Where a block lives.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Home {
    /// In which cell.
    pub cell: CellId,
    /// How often it had been given away when it came there.
    pub moves: u32,
}

impl Home {
    /// Of a block that has never moved.
    pub fn born(cell: CellId) -> Self {
        Self { cell, moves: 0 }
    }

    /// In a message's word.
    pub fn to_word(self) -> u64 {
        u64::from(self.moves) << 32 | u64::from(self.cell.0)
    }

    /// From a message's word; every word is one.
    pub fn from_word(word: u64) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "the lower half is the cell")]
        let cell = CellId(word as u32);
        let moves = (word >> 32) as u32;
        Self { cell, moves }
    }
}

/// What one cell knows. For whoever implements [`Tempest`](crate::Tempest).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Homes {
    me: CellId,
    /// From own moves, and from those who were asked.
    known: BTreeMap<Block, Home>,
    /// What others said when somebody had died. It counts only where one's own knowledge ends in a dead cell: a liar cannot
    /// take over what lives elsewhere.
    alleged: BTreeMap<Block, Home>,
    dead: Cells,
}

impl Homes {
    /// Nothing has moved.
    pub fn new(me: CellId) -> Self {
        Self { me, known: BTreeMap::new(), alleged: BTreeMap::new(), dead: Cells::NONE }
    }

    /// Where a block lives that was born in a cell: [`Tempest::home`](crate::Tempest::home).
    pub fn of(&self, block: Block, born: CellId) -> Home {
        let known = self.known.get(&block).copied().unwrap_or(Home::born(born));
        match self.alleged.get(&block) {
            Some(later) if self.is_dead(known.cell) && later.moves > known.moves => *later,
            _ => known,
        }
    }

    /// [`Tempest::set_home`](crate::Tempest::set_home).
    pub fn set(&mut self, block: Block, home: Home) {
        self.known.insert(block, home);
    }

    /// What this cell tells all others when one has died.
    pub fn known(&self) -> impl Iterator<Item = (Block, Home)> + '_ {
        self.known.iter().map(|(&block, &home)| (block, home))
    }

    /// Of how many blocks this cell knows that they have moved.
    pub fn moved(&self) -> usize {
        self.known.len()
    }

    /// What another cell tells when one has died. Of what lives here, nobody else knows better.
    pub fn allege(&mut self, block: Block, home: Home) {
        let is_news = self.alleged.get(&block).is_none_or(|before| before.moves < home.moves);
        if home.cell != self.me && is_news {
            self.alleged.insert(block, home);
        }
    }

    /// A cell is dead, and all the living have told what they know.
    pub fn bury(&mut self, dead: CellId) {
        self.dead.insert(dead);
    }

    /// Whether a cell was buried.
    pub fn is_dead(&self, cell: CellId) -> bool {
        self.dead.contains(cell)
    }

    /// Bytes that it takes besides itself.
    pub fn heap_bytes(&self) -> usize {
        (self.known.len() + self.alleged.len()) * size_of::<(Block, Home)>() + self.dead.heap_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: Block = Block(7);

    fn home(cell: u32, moves: u32) -> Home {
        Home { cell: CellId(cell), moves }
    }

    #[test]
    fn who_comes_to_a_dead_cell_goes_on_with_the_latest_that_anybody_knows() {
        let mut homes = Homes::new(CellId(0));
        let of = |homes: &Homes| homes.of(BLOCK, CellId(1));
        assert_eq!(of(&homes), home(1, 0));
        homes.set(BLOCK, home(2, 3));
        // Old, the latest, and what comes after it.
        for told in [home(3, 2), home(4, 5), home(5, 4)] {
            homes.allege(BLOCK, told);
        }
        assert_eq!(of(&homes), home(2, 3), "it lives");
        homes.bury(CellId(2));
        assert_eq!(of(&homes), home(4, 5));
        // Of another that is dead, found out later, the same is true.
        homes.bury(CellId(6));
        homes.set(BLOCK, home(6, 4));
        assert_eq!(of(&homes), home(4, 5));
        homes.set(BLOCK, home(6, 5));
        assert_eq!(of(&homes), home(6, 5), "nobody knows a later one");
        homes.allege(BLOCK, home(0, 9));
        assert_eq!(of(&homes), home(6, 5), "it would be known here");
        assert_eq!(homes.known().collect::<std::vec::Vec<_>>(), [(BLOCK, home(6, 5))]);
    }

    #[test]
    fn what_was_born_with_the_dead_and_moved_lives() {
        let mut homes = Homes::new(CellId(0));
        homes.allege(BLOCK, home(2, 1));
        homes.bury(CellId(1));
        assert_eq!(homes.of(BLOCK, CellId(1)), home(2, 1));
        assert_eq!(homes.of(Block(8), CellId(1)), home(1, 0));
    }

    #[test]
    fn a_home_is_a_word() {
        for home in [home(0, 0), home(3, 9), home(u32::MAX, 1), home(1, u32::MAX)] {
            assert_eq!(Home::from_word(home.to_word()), home);
        }
    }
}
