//! Where a page had better live, by who misses it: a policy. Wrong, it costs time, and nothing else.
//!
//! Disco's rules (§4.2.3): what one cell uses moves there; what is read by several and hardly written is replicated where it is read;
//! what is written by several stays, for wherever it were, others would miss it; and nothing moves too often.

use alloc::collections::BTreeMap;
use core::ops::Range;

use comb_types::CellId;

use crate::block::Block;
use crate::cells::Cells;
use crate::homes::Home;
use crate::tempest::{Protocol, Tempest};

/// When a page is moved.
///
/// Disco's paper gives no numbers. The default ones stood up best to what [`replay`] makes of misses recorded of programs on eight and
/// on sixteen processors (Figure 9, `comb bench vm --full`): with half the misses until a page is hot, pages move in vain; with twice as many, too
/// late; and where sixteen read a page alike, each has 6% of its misses. With more than 25 such, none gets a replica.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Policy {
    /// Misses from which on a page is looked at. Below, a move costs more than it can save: some misses of each who has a copy.
    pub hot_misses: u32,
    /// Of a hundred misses, how many are one cell's if it alone uses the page.
    pub alone_percent: u32,
    /// Of a hundred misses, how many may be stores if a page is only read.
    pub stores_percent: u32,
    /// Of a hundred misses, how many a cell has at least that a replica is for.
    pub replica_percent: u32,
    /// How often a page moves in its life.
    pub most_moves: u8,
}

impl Default for Policy {
    fn default() -> Self {
        Self { hot_misses: 64, alone_percent: 90, stores_percent: 2, replica_percent: 4, most_moves: 4 }
    }
}

/// What is to be done with a page.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Move {
    /// Nothing.
    Stay,
    /// It gets another home.
    Migrate(CellId),
    /// These get copies to read that stay with them.
    Replicate(Cells),
}

/// Misses of one cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Misses {
    /// Loads that found nothing.
    pub loads: u32,
    /// Stores that found no right.
    pub stores: u32,
}

impl Misses {
    fn all(self) -> u64 {
        u64::from(self.loads) + u64::from(self.stores)
    }
}

/// What is known of a page.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Page {
    /// Where it lives.
    pub home: CellId,
    misses: BTreeMap<CellId, Misses>,
    moves: u8,
}

impl Page {
    /// A page that nobody has missed.
    pub fn new(home: CellId) -> Self {
        Self { home, misses: BTreeMap::new(), moves: 0 }
    }

    /// A page that has come to its home, and that nobody has missed there. How often it has moved goes with it.
    pub fn at(home: Home) -> Self {
        Self { moves: u8::try_from(home.moves).unwrap_or(u8::MAX), ..Self::new(home.cell) }
    }

    /// A cell has missed it. Its home misses it where others had it alone.
    pub fn missed(&mut self, by: CellId, is_store: bool) {
        let misses = self.misses.entry(by).or_default();
        let count = if is_store { &mut misses.stores } else { &mut misses.loads };
        *count = count.saturating_add(1);
    }

    /// What had better be done, after which counting begins anew; so it does when the page is hot and stays.
    pub fn decide(&mut self, policy: &Policy) -> Move {
        let total: u64 = self.misses.values().map(|misses| misses.all()).sum();
        if total < u64::from(policy.hot_misses) {
            return Move::Stay;
        }
        let is_part = |part: u64, percent: u32| part * 100 >= total * u64::from(percent);
        let stores: u64 = self.misses.values().map(|misses| u64::from(misses.stores)).sum();
        let misses = core::mem::take(&mut self.misses);
        if self.moves >= policy.most_moves {
            return Move::Stay;
        }
        let alone = misses.iter().find(|(_, misses)| is_part(misses.all(), policy.alone_percent));
        let decided = match alone {
            Some((&cell, _)) if cell == self.home => Move::Stay,
            Some((&cell, _)) => Move::Migrate(cell),
            None if stores * 100 > total * u64::from(policy.stores_percent) => Move::Stay,
            None => {
                let reads = misses.iter().filter(|(_, misses)| is_part(misses.all(), policy.replica_percent));
                let readers: Cells = reads.map(|(&cell, _)| cell).filter(|&cell| cell != self.home).collect();
                if readers.is_empty() { Move::Stay } else { Move::Replicate(readers) }
            }
        };
        if let Move::Migrate(cell) = decided {
            self.home = cell;
        }
        if decided != Move::Stay {
            self.moves += 1;
        }
        decided
    }
}

/// Counts the misses of what lives in a cell, page by page. For whoever implements [`Tempest`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pages {
    policy: Policy,
    page_blocks: u64,
    pages: BTreeMap<u64, Page>,
}

impl Pages {
    /// Nobody has missed anything. Pages are so many blocks long.
    pub fn new(policy: Policy, page_blocks: u64) -> Self {
        assert!(page_blocks > 0, "pages without blocks");
        Self { policy, page_blocks, pages: BTreeMap::new() }
    }

    /// A block was missed that lives here: what [`Tempest::missed`] is told, with that block's [`Tempest::home`]. What had better be
    /// done, and with which blocks: for [`carry_out`], when the handler has ended.
    pub fn missed(
        &mut self,
        block: Block,
        home: Home,
        by: CellId,
        is_store: bool,
    ) -> Option<(Range<u64>, Move)> {
        let number = block.0 / self.page_blocks;
        let page = self.pages.entry(number).or_insert_with(|| Page::at(home));
        page.missed(by, is_store);
        let decided = page.decide(&self.policy);
        if matches!(decided, Move::Migrate(_)) {
            self.pages.remove(&number);
        }
        let first = number * self.page_blocks;
        (decided != Move::Stay).then(|| (first..first.saturating_add(self.page_blocks), decided))
    }
}

/// Does what was decided, as far as the protocol does such things and the blocks live here.
pub fn carry_out(decided: &Move, blocks: Range<u64>, protocol: &mut dyn Protocol, tempest: &mut dyn Tempest) {
    let blocks = blocks.start..blocks.end.min(tempest.blocks());
    for block in blocks.map(Block) {
        if tempest.home_of(block) != tempest.me() {
            continue;
        }
        match decided {
            Move::Stay => {}
            Move::Migrate(to) => {
                protocol.on_move(tempest, block, *to);
            }
            Move::Replicate(readers) => readers.iter().for_each(|to| protocol.on_push(tempest, block, to)),
        }
    }
}

/// A miss as it was recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Miss {
    /// Of which page.
    pub page: u64,
    /// By whom.
    pub by: CellId,
    /// Whether it was a store.
    pub is_store: bool,
}

/// What a policy would have made of recorded misses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Replayed {
    /// Misses that went to another cell.
    pub remote: u64,
    /// Misses that would have found the page where they were.
    pub local: u64,
    /// Pages that got another home.
    pub migrations: u64,
    /// Pages that were replicated.
    pub replications: u64,
    /// Stores that took replicas away.
    pub collapses: u64,
}

/// Tries a policy on what was recorded without one. A store takes replicas away. What its
/// new home had missed counts as use, as a home's own misses do.
pub fn replay(
    policy: &Policy,
    home_of: impl Fn(u64) -> CellId,
    misses: impl IntoIterator<Item = Miss>,
) -> Replayed {
    let mut pages: BTreeMap<u64, (Page, Cells)> = BTreeMap::new();
    let mut replayed = Replayed::default();
    for Miss { page: number, by, is_store } in misses {
        let (page, replicas) =
            pages.entry(number).or_insert_with(|| (Page::new(home_of(number)), Cells::NONE));
        if is_store && !replicas.is_empty() {
            replayed.collapses += 1;
            *replicas = Cells::NONE;
        }
        if replicas.contains(by) {
            replayed.local += 1;
            continue;
        }
        if page.home == by {
            replayed.local += 1;
        } else {
            replayed.remote += 1;
        }
        page.missed(by, is_store);
        match page.decide(policy) {
            Move::Stay => {}
            Move::Migrate(_) => {
                replayed.migrations += 1;
                *replicas = Cells::NONE;
            }
            Move::Replicate(readers) => {
                replayed.replications += 1;
                replicas.add(&readers);
            }
        }
    }
    replayed
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    const HOME: CellId = CellId(0);

    /// Misses of a page in turns: each cell so many loads and stores a round.
    fn rounds(count: u32, of: &[(u32, u32, u32)]) -> Vec<Miss> {
        let miss = |by, is_store| Miss { page: 7, by: CellId(by), is_store };
        let round = || {
            of.iter().flat_map(move |&(by, loads, stores)| {
                let loads = (0..loads).map(move |_| miss(by, false));
                loads.chain((0..stores).map(move |_| miss(by, true)))
            })
        };
        (0..count).flat_map(|_| round()).collect()
    }

    fn replayed(misses: Vec<Miss>) -> Replayed {
        replay(&Policy::default(), |_| HOME, misses)
    }

    #[test]
    fn what_one_cell_uses_moves_there() {
        let used = replayed(rounds(1000, &[(1, 1, 1)]));
        assert_eq!((used.migrations, used.remote), (1, 64));
        // One in twenty of another's makes no difference.
        let nearly = replayed(rounds(100, &[(1, 10, 9), (2, 1, 0)]));
        assert_eq!(nearly.migrations, 1);
        assert!(nearly.remote < 64 + 1 + 100, "{nearly:?}");
    }

    #[test]
    fn what_is_read_by_several_is_replicated_where_it_is_read() {
        let read = replayed(rounds(1000, &[(1, 1, 0), (2, 1, 0), (3, 1, 0)]));
        assert_eq!((read.migrations, read.replications, read.remote, read.collapses), (0, 1, 64, 0));
        // Who hardly reads it gets none.
        let mut page = Page::new(HOME);
        rounds(8, &[(1, 5, 0), (2, 4, 0)]).iter().for_each(|miss| page.missed(miss.by, false));
        page.missed(CellId(3), false);
        assert_eq!(
            page.decide(&Policy::default()),
            Move::Replicate([1, 2].map(CellId).into_iter().collect())
        );
    }

    #[test]
    fn what_is_written_by_several_stays() {
        let written = replayed(rounds(1000, &[(1, 3, 1), (2, 3, 1)]));
        assert_eq!(written, Replayed { remote: 8000, ..Replayed::default() });
    }

    #[test]
    fn nothing_moves_too_often() {
        let turns = (0..50).flat_map(|turn| rounds(200, &[(1 + turn % 2, 0, 1)])).collect();
        let moved = replayed(turns);
        assert_eq!(moved.migrations, u64::from(Policy::default().most_moves), "{moved:?}");
    }

    proptest! {
        /// Whatever is missed, in whatever order.
        #[test]
        fn every_miss_is_counted_and_no_page_moves_too_often(
            missed in vec((0_u64..6, 0_u32..4, 0_u32..20), 0..4000),
            most_moves in 0_u8..6,
        ) {
            let policy = Policy { hot_misses: 16, most_moves, ..Policy::default() };
            let all = missed.iter().map(|&(page, by, kind)| Miss { page, by: CellId(by), is_store: kind == 0 });
            let found = replay(&policy, |_| HOME, all);
            prop_assert_eq!(found.local + found.remote, missed.len() as u64);
            prop_assert!(found.migrations + found.replications <= 6 * u64::from(most_moves));
            prop_assert!(found.collapses <= found.replications, "a replica is taken away once");
            for page in 0..6 {
                let of_page = missed.iter().filter(|miss| miss.0 == page);
                let all = of_page.map(|&(page, by, kind)| Miss { page, by: CellId(by), is_store: kind == 0 });
                let found = replay(&policy, |_| HOME, all);
                prop_assert!(found.migrations + found.replications <= u64::from(most_moves));
            }
        }

        /// What two or more store into, each a good part of it, has no replicas and no other home, in whatever order they do.
        #[test]
        fn what_is_written_by_several_never_moves(order in any::<u64>(), cells in 2_u32..6) {
            let mut page = Page::new(HOME);
            let mut turns: Vec<_> = (0..Policy::default().hot_misses).collect();
            for _ in 0..4 {
                turns.sort_by_key(|turn| (order ^ u64::from(*turn)).wrapping_mul(0x9e37_79b9_7f4a_7c15));
                for turn in &turns {
                    page.missed(CellId(turn % cells), turn / cells % 2 == 0);
                    prop_assert_eq!(page.decide(&Policy::default()), Move::Stay);
                }
            }
            prop_assert_eq!(page.home, HOME);
        }
    }

    #[test]
    fn a_store_takes_replicas_away_and_they_come_again() {
        let mut missed = rounds(64, &[(1, 1, 0), (2, 1, 0)]);
        missed.extend(rounds(1, &[(2, 0, 1)]));
        missed.extend(rounds(8, &[(1, 1, 0), (2, 1, 0)]));
        let before = replayed(missed.clone());
        assert_eq!((before.replications, before.collapses, before.remote), (1, 1, 64 + 1 + 16), "{before:?}");
        missed.extend(rounds(64, &[(1, 1, 0), (2, 1, 0)]));
        let after = replayed(missed);
        assert_eq!((after.replications, after.collapses, after.remote), (2, 1, 64 + 64), "{after:?}");
    }

    #[test]
    fn pages_are_runs_of_blocks_and_their_moves_go_with_them() {
        let policy = Policy { hot_misses: 4, most_moves: 2, ..Policy::default() };
        let decided = |moves, misses: &[u64]| {
            let mut pages = Pages::new(policy, 8);
            let mut missed = |&block| pages.missed(Block(block), Home { cell: HOME, moves }, CellId(1), true);
            let (last, before) = misses.split_last().unwrap();
            before.iter().for_each(|block| assert_eq!(missed(block), None));
            missed(last)
        };
        assert_eq!(decided(0, &[8, 9, 15, 8]), Some((8..16, Move::Migrate(CellId(1)))));
        assert_eq!(decided(0, &[8, 9, 16, 7]), None, "of three pages");
        assert_eq!(decided(1, &[8; 4]), Some((8..16, Move::Migrate(CellId(1)))));
        assert_eq!(decided(2, &[8; 4]), None, "it has moved often enough");
        assert_eq!(decided(300, &[8; 4]), None);
    }

    #[test]
    fn what_was_decided_is_said_of_the_blocks_that_live_here() {
        let mut scene = crate::scene::Scene::of(crate::stache::Stache::new());
        scene.machine.homes_move = true;
        let mut said = |decided: &Move| {
            carry_out(decided, 0..8, &mut scene.protocol, &mut scene.machine);
            let sent = core::mem::take(&mut scene.machine.sent);
            sent.into_iter().map(|(to, letter)| (to.0, letter.block.0)).collect::<Vec<_>>()
        };
        assert_eq!(said(&Move::Stay), []);
        assert_eq!(said(&Move::Replicate([3, 5].map(CellId).into_iter().collect())), [(3, 0), (5, 0)]);
        assert_eq!(said(&Move::Migrate(CellId(3))), [(3, 0)]);
    }

    #[test]
    fn what_is_cold_stays_and_what_is_hot_is_judged_by_what_happens_now() {
        let mut page = Page::new(HOME);
        (0..63).for_each(|_| page.missed(CellId(1), true));
        assert_eq!(page.decide(&Policy::default()), Move::Stay);
        page.missed(CellId(2), true);
        assert_eq!(page.decide(&Policy::default()), Move::Migrate(CellId(1)));
        // Counted anew: what cell 1 missed before is over.
        (0..64).for_each(|_| page.missed(CellId(2), true));
        assert_eq!(page.decide(&Policy::default()), Move::Migrate(CellId(2)));
    }
}
