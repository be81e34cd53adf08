//! On which cells a task depends, and why. (Hive §2, §5.6)
//!
//! The chance that a program dies is to be proportional to what it uses. That can be kept only by who counts: pages that are
//! allocated anywhere make a long-lived task depend on every cell in the end.

use alloc::collections::BTreeMap;

use comb_types::CellId;

/// Why a task dies with a cell.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Reason {
    /// A component of it runs there.
    Component,
    /// A region that it uses is homed there.
    Region,
    /// Page frames of its memory were borrowed from there.
    Frames,
    /// A process from which it was forked left pages there that it has not yet copied.
    Ancestor,
}

/// What one task depends on. Each reason counts: it ends when as many were removed as were added.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Dependencies {
    /// Never none for a cell, never 0 for a reason.
    cells: BTreeMap<CellId, BTreeMap<Reason, u32>>,
}

impl Dependencies {
    /// A task that uses nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// The task depends on a cell once more.
    pub fn add(&mut self, cell: CellId, reason: Reason) {
        let count = self.cells.entry(cell).or_default().entry(reason).or_insert(0);
        *count = count.checked_add(1).expect("nobody has so many reasons");
    }

    /// And once less.
    ///
    /// # Panics
    ///
    /// If this was not added: then another reason would be forgotten with it, and the task believed safe.
    pub fn remove(&mut self, cell: CellId, reason: Reason) {
        let reasons = self.cells.get_mut(&cell).expect("a dependency on this cell was added");
        let count = reasons.get_mut(&reason).expect("a dependency for this reason was added");
        *count -= 1;
        if *count == 0 {
            reasons.remove(&reason);
        }
        if reasons.is_empty() {
            self.cells.remove(&cell);
        }
    }

    /// The cells without which the task cannot live, in their order.
    pub fn cells(&self) -> impl ExactSizeIterator<Item = CellId> + '_ {
        self.cells.keys().copied()
    }

    /// Why it depends on a cell, and how often for that reason.
    pub fn why(&self, cell: CellId) -> impl Iterator<Item = (Reason, u32)> + '_ {
        self.cells.get(&cell).into_iter().flatten().map(|(&reason, &count)| (reason, count))
    }

    /// Whether the task ends when this cell does.
    pub fn dies_with(&self, cell: CellId) -> bool {
        self.cells.contains_key(&cell)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use comb_types::Dice;
    use proptest::prelude::*;

    use super::*;

    const REASONS: [Reason; 4] = [Reason::Component, Reason::Region, Reason::Frames, Reason::Ancestor];

    #[test]
    fn a_reason_ends_when_as_many_were_removed_as_were_added() {
        let mut task = Dependencies::new();
        task.add(CellId(2), Reason::Frames);
        task.add(CellId(2), Reason::Frames);
        task.add(CellId(2), Reason::Component);
        task.add(CellId(1), Reason::Region);
        assert_eq!(task.cells().collect::<Vec<_>>(), [CellId(1), CellId(2)]);
        let why: Vec<_> = task.why(CellId(2)).collect();
        assert_eq!(why, [(Reason::Component, 1), (Reason::Frames, 2)]);
        task.remove(CellId(2), Reason::Component);
        task.remove(CellId(2), Reason::Frames);
        assert!(task.dies_with(CellId(2)));
        task.remove(CellId(2), Reason::Frames);
        assert!(!task.dies_with(CellId(2)) && task.why(CellId(2)).next().is_none());
    }

    #[test]
    #[should_panic(expected = "for this reason was added")]
    fn what_was_not_added_cannot_be_removed() {
        let mut task = Dependencies::new();
        task.add(CellId(2), Reason::Frames);
        task.remove(CellId(2), Reason::Component);
    }

    proptest! {
        /// If each of n cells is as likely to die as any other, a task dies with a chance of exactly its cells divided by n: what it uses,
        /// and nothing else, however many cells there are besides and whatever it used before.
        #[test]
        fn the_chance_of_death_is_what_a_task_uses(
            placed in prop::collection::vec((0_u32..12, 0_usize..4, any::<bool>()), 0..40),
            more_cells in 0_u32..200,
        ) {
            let mut task = Dependencies::new();
            let mut uses: Vec<(CellId, Reason)> = vec![];
            for (cell, reason, stays) in placed {
                let (cell, reason) = (CellId(cell), REASONS[reason]);
                task.add(cell, reason);
                if stays { uses.push((cell, reason)) } else { task.remove(cell, reason) }
            }
            let n = 12 + more_cells;
            let is_hit = |cell: CellId| uses.iter().any(|(used, _)| *used == cell);
            let mut deaths = 0;
            for cell in (0..n).map(CellId) {
                prop_assert_eq!(task.dies_with(cell), is_hit(cell));
                prop_assert_eq!(task.why(cell).map(|(_, count)| count as usize).sum::<usize>(),
                    uses.iter().filter(|(used, _)| *used == cell).count());
                deaths += usize::from(task.dies_with(cell));
            }
            // deaths / n == cells / n
            prop_assert_eq!(deaths, task.cells().len());
        }
    }

    #[test]
    fn tasks_of_one_size_die_less_often_the_more_cells_there_are() {
        let mut dice = Dice::new(1);
        for (cells, used) in [(4, 2), (16, 2), (64, 2), (64, 16)] {
            let mut died = 0;
            for _ in 0..20_000 {
                let mut task = Dependencies::new();
                while task.cells().len() < used {
                    task.add(CellId(dice.below(cells)), REASONS[dice.index(4)]);
                }
                died += usize::from(task.dies_with(CellId(dice.below(cells))));
            }
            let expected = 20_000 * used / cells as usize;
            assert!(died.abs_diff(expected) < 20_000 / 100, "{died} of 20,000, {used} of {cells} cells");
        }
    }
}
