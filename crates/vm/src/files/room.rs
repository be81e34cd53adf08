//! Where there is room in a shelf.

use serde::{Deserialize, Serialize};

/// Blocks that follow each other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub struct Extent {
    /// The first.
    pub block: u32,
    /// How many.
    pub blocks: u32,
}

impl Extent {
    fn end(self) -> u32 {
        self.block.saturating_add(self.blocks)
    }
}

/// What is free, in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Room {
    free: Vec<Extent>,
}

impl Room {
    /// What of all is in no use. What is used may be named more than once.
    pub(super) fn without(all: Extent, used: impl IntoIterator<Item = Extent>) -> Self {
        let mut used: Vec<Extent> = used.into_iter().filter(|extent| extent.blocks > 0).collect();
        used.sort();
        let (mut free, mut at) = (Vec::new(), all.block);
        for extent in used {
            if extent.block > at {
                free.push(Extent { block: at, blocks: extent.block.min(all.end()).saturating_sub(at) });
            }
            at = at.max(extent.end());
        }
        free.push(Extent { block: at, blocks: all.end().saturating_sub(at) });
        free.retain(|extent| extent.blocks > 0);
        Self { free }
    }

    /// All that is free.
    pub(super) fn free(&self) -> &[Extent] {
        &self.free
    }

    /// Takes so many blocks that follow each other, where they leave the least: the first of them.
    pub(super) fn take(&mut self, blocks: u32) -> Option<u32> {
        let fits = self.free.iter_mut().filter(|extent| extent.blocks >= blocks);
        let found = fits.min_by_key(|extent| extent.blocks)?;
        let block = found.block;
        found.block += blocks;
        found.blocks -= blocks;
        self.free.retain(|extent| extent.blocks > 0);
        Some(block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn nothing_is_given_twice_or_outside(
            used in prop::collection::vec((0_u32..120, 0_u32..30), 0..12),
            wanted in prop::collection::vec(1_u32..20, 0..30),
        ) {
            let all = Extent { block: 10, blocks: 90 };
            let mut is_used = [false; 200];
            for &(block, blocks) in &used {
                is_used[block as usize..(block + blocks) as usize].fill(true);
            }
            let extents = used.iter().map(|&(block, blocks)| Extent { block, blocks });
            let mut room = Room::without(all, extents);
            let free: u32 = room.free().iter().map(|extent| extent.blocks).sum();
            prop_assert_eq!(free as usize, (10..100).filter(|&at| !is_used[at]).count());
            for blocks in wanted {
                let longest = (10..100_usize)
                    .map(|at| (at..100).take_while(|&at| !is_used[at]).count())
                    .max()
                    .unwrap_or(0);
                match room.take(blocks) {
                    Some(block) => {
                        let taken = &mut is_used[block as usize..(block + blocks) as usize];
                        prop_assert!(block >= 10 && block + blocks <= 100);
                        prop_assert!(taken.iter().all(|is_used| !is_used));
                        taken.fill(true);
                    }
                    None => prop_assert!(longest < blocks as usize),
                }
            }
        }
    }
}
