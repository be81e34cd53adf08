//! Copies of others' memory that this component has: how much that is, and if there is a limit, in which order they came.

use std::collections::{BTreeSet, VecDeque};

use comb_coherence::Block;

/// However low the limit is: an instruction may need several blocks at once, and several threads make such.
const FEWEST: usize = 16;
/// What has come since the order was last looked through, before it is looked through again.
const MOST_STALE: usize = 1024;

#[derive(Debug, Default)]
pub(crate) struct Copies {
    bytes: u64,
    /// 0: as many as there are.
    limit: u64,
    /// As they came, the oldest first: allocation and block. One that went and came again stands there twice, and may be taken for
    /// older than it is. Empty without a limit.
    order: VecDeque<(u64, Block)>,
    /// How many of them are of different blocks, when that was last counted.
    different: usize,
}

impl Copies {
    pub(crate) fn limit(&mut self, bytes: u64) {
        self.limit = bytes;
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What is asked for ahead of a miss is to be less than what is given back for it.
    pub(crate) fn most_ahead(&self) -> u64 {
        if self.limit == 0 { u64::MAX } else { self.limit / 4 }
    }

    pub(crate) fn came(&mut self, offset: u64, block: Block, bytes: u64) {
        self.bytes += bytes;
        if self.limit == 0 {
            return;
        }
        self.order.push_back((offset, block));
        if self.order.len() > 2 * self.different + MOST_STALE {
            let mut seen = BTreeSet::new();
            // Of those that stand there twice, the later.
            let order: VecDeque<_> = self.order.drain(..).rev().filter(|copy| seen.insert(*copy)).collect();
            self.order = order.into_iter().rev().collect();
            self.different = self.order.len();
        }
    }

    pub(crate) fn went(&mut self, bytes: u64) {
        self.bytes -= bytes;
    }

    /// An allocation is no more.
    pub(crate) fn forget(&mut self, offset: u64, bytes: u64) {
        self.bytes -= bytes;
        self.order.retain(|(of, _)| *of != offset);
    }

    /// Down to how many bytes copies are to be given back, if there are too many: an eighth less than the limit, so that it is done for
    /// many at once.
    pub(crate) fn too_many(&self) -> Option<u64> {
        (self.limit > 0 && self.bytes > self.limit).then(|| self.limit - self.limit / 8)
    }

    /// The oldest, which may have gone.
    pub(crate) fn oldest(&mut self) -> Option<(u64, Block)> {
        if self.order.len() > FEWEST { self.order.pop_front() } else { None }
    }

    /// It could not be given back now.
    pub(crate) fn keep(&mut self, offset: u64, block: Block) {
        self.order.push_back((offset, block));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_goes_first_and_the_order_stays_short() {
        let mut copies = Copies::default();
        copies.limit(20);
        for round in 0..100 {
            for block in 0..40 {
                copies.came(7, Block(block), 1);
                assert_eq!(copies.too_many(), (copies.bytes() > 20).then_some(18), "round {round}");
                copies.went(u64::from(round < 99));
            }
        }
        assert!(copies.order.len() < 2 * 40 + MOST_STALE + 40, "{}", copies.order.len());
        assert_eq!(copies.bytes(), 40);
        let first = copies.oldest().expect("more than the fewest");
        copies.keep(first.0, first.1);
        let mut last = Vec::new();
        while let Some((_, block)) = copies.oldest() {
            last.push(block);
        }
        assert_eq!(last[last.len() - 1], Block(24), "before the fewest, and the one that was kept");
        copies.forget(7, 40);
        assert_eq!((copies.bytes(), copies.order.len()), (0, 0));
    }

    #[test]
    fn without_a_limit_no_order_is_kept() {
        let mut copies = Copies::default();
        (0..100).for_each(|block| copies.came(0, Block(block), 4096));
        assert_eq!((copies.bytes(), copies.too_many(), copies.oldest()), (409_600, None, None));
    }
}
