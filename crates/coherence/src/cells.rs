//! Sets of cells.

use alloc::boxed::Box;
use alloc::vec::Vec;

use comb_types::CellId;

/// A set of cells. Small numbers in a few words: a comb has up to some hundreds of cells, and they are numbered from 0.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Cells {
    first: u64,
    /// Of cells from 64 on; the last word is never 0.
    others: Option<Box<[u64]>>,
}

const WORD_BITS: u32 = 64;

impl Cells {
    /// Nobody.
    pub const NONE: Self = Self { first: 0, others: None };

    /// One cell.
    pub fn one(cell: CellId) -> Self {
        let mut cells = Self::NONE;
        cells.insert(cell);
        cells
    }

    fn place(cell: CellId) -> (usize, u64) {
        ((cell.0 / WORD_BITS) as usize, 1 << (cell.0 % WORD_BITS))
    }

    fn word(&self, index: usize) -> u64 {
        if index == 0 { self.first } else { self.others().get(index - 1).copied().unwrap_or(0) }
    }

    fn others(&self) -> &[u64] {
        self.others.as_deref().unwrap_or_default()
    }

    fn words(&self) -> usize {
        1 + self.others().len()
    }

    /// Others words than the first, as many as needed.
    fn change_others(&mut self, change: impl FnOnce(&mut Vec<u64>)) {
        let mut others = self.others.take().unwrap_or_default().into_vec();
        change(&mut others);
        while others.last() == Some(&0) {
            others.pop();
        }
        self.others = (!others.is_empty()).then(|| others.into_boxed_slice());
    }

    /// Adds a cell.
    pub fn insert(&mut self, cell: CellId) {
        let (index, bit) = Self::place(cell);
        if index == 0 {
            self.first |= bit;
            return;
        }
        self.change_others(|others| {
            others.resize(others.len().max(index), 0);
            others[index - 1] |= bit;
        });
    }

    /// Takes a cell out; whether it was in.
    pub fn remove(&mut self, cell: CellId) -> bool {
        let (index, bit) = Self::place(cell);
        let was_in = self.word(index) & bit != 0;
        if was_in && index == 0 {
            self.first &= !bit;
        } else if was_in {
            self.change_others(|others| others[index - 1] &= !bit);
        }
        was_in
    }

    /// Adds all of another set.
    pub fn add(&mut self, others: &Self) {
        others.iter().for_each(|cell| self.insert(cell));
    }

    /// Whether a cell is in.
    pub fn contains(&self, cell: CellId) -> bool {
        let (index, bit) = Self::place(cell);
        self.word(index) & bit != 0
    }

    /// Whether nobody is in.
    pub fn is_empty(&self) -> bool {
        self.first == 0 && self.others.is_none()
    }

    /// How many are in.
    pub fn len(&self) -> usize {
        (0..self.words()).map(|index| self.word(index).count_ones() as usize).sum()
    }

    /// The one that is in, if it is one.
    pub fn single(&self) -> Option<CellId> {
        let mut cells = self.iter();
        let first = cells.next()?;
        cells.next().is_none().then_some(first)
    }

    /// All, in their order.
    pub fn iter(&self) -> impl Iterator<Item = CellId> + '_ {
        (0..self.words()).flat_map(|index| {
            let mut word = self.word(index);
            core::iter::from_fn(move || {
                let bit = (word != 0).then(|| word.trailing_zeros())?;
                word &= word - 1;
                #[expect(clippy::cast_possible_truncation, reason = "cells are numbered in 32 bits")]
                let before = index as u32 * WORD_BITS;
                Some(CellId(before + bit))
            })
        })
    }

    /// Bytes that it takes besides itself.
    pub fn heap_bytes(&self) -> usize {
        size_of_val(self.others())
    }
}

impl FromIterator<CellId> for Cells {
    fn from_iter<T: IntoIterator<Item = CellId>>(cells: T) -> Self {
        let mut set = Self::NONE;
        cells.into_iter().for_each(|cell| set.insert(cell));
        set
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_set(steps in prop::collection::vec((any::<bool>(), 0..300_u32), 0..200)) {
            let (mut cells, mut expected) = (Cells::NONE, BTreeSet::new());
            for (goes_in, cell) in steps {
                let cell = CellId(cell);
                if goes_in {
                    cells.insert(cell);
                    expected.insert(cell);
                } else {
                    prop_assert_eq!(cells.remove(cell), expected.remove(&cell));
                }
                prop_assert_eq!(cells.contains(cell), goes_in);
            }
            prop_assert_eq!(cells.iter().collect::<Vec<_>>(), expected.iter().copied().collect::<Vec<_>>());
            prop_assert_eq!(cells.len(), expected.len());
            prop_assert_eq!(cells.is_empty(), expected.is_empty());
            prop_assert_eq!(cells.single(), (expected.len() == 1).then(|| *expected.first().unwrap()));
            // One set has one form, however it came about.
            prop_assert_eq!(expected.into_iter().collect::<Cells>(), cells);
        }
    }
}
