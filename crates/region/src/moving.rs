//! Blocks of an allocation that live elsewhere than they were born: who knows of which, and when one is to move.
//!
//! [`crate::homes`] says where an extent was born, which all components come to alike. What has moved since stands here, block by block, and
//! each component knows only of those that it has asked for, has had or has (see "Homes that move" in `comb-coherence`'s ALGORITHM.md).
//! So whatever all have to agree on goes by birth: who keeps a word's sleepers, and who writes a block into a checkpoint. After a
//! restore everything lives where it was born.

use comb_coherence::placement::{Pages, Policy};
use comb_coherence::{CellId, Homes};

/// A block that is known to have moved takes so much in a table, about.
const ENTRY_BYTES: u64 = 40;
/// What lives elsewhere than it was born may take this part of an allocation's length in the table of who gives it away.
const LEAST_PART: u64 = 100;
/// … but small allocations may be noted whole.
const FEWEST_ENTRIES: u64 = 1024;

/// Of one allocation.
#[derive(Debug)]
pub(crate) struct Moving {
    pub(crate) homes: Homes,
    /// Misses of what lives here. What is judged together is what was born together.
    pub(crate) pages: Pages,
}

impl Moving {
    pub(crate) fn new(me: u32, page_blocks: u64) -> Self {
        Self { homes: Homes::new(CellId(me)), pages: Pages::new(Policy::default(), page_blocks) }
    }

    /// How many more blocks of an allocation of so many bytes this component may give away. What it knows of others' moves counts too.
    pub(crate) fn may_give(&self, bytes: u64) -> u64 {
        let most = (bytes / LEAST_PART / ENTRY_BYTES).max(FEWEST_ENTRIES);
        most.saturating_sub(self.homes.moved() as u64)
    }
}

#[cfg(test)]
mod tests {
    use comb_coherence::{Block, Home};

    use super::*;

    #[test]
    fn a_table_stays_small_beside_what_it_is_of() {
        let mut moving = Moving::new(0, 16);
        let large = 1 << 30;
        assert!(moving.may_give(large) * ENTRY_BYTES <= large / 100);
        assert_eq!(moving.may_give(4096), FEWEST_ENTRIES);
        (0..FEWEST_ENTRIES).for_each(|block| {
            moving.homes.set(Block(block), Home { cell: CellId(1), moves: 1 });
        });
        assert_eq!(moving.may_give(4096), 0);
        assert!(moving.may_give(large) > 0);
    }
}
