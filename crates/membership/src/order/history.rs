//! What a member holds: updates by position, without a gap, and those that came early.

use alloc::collections::{BTreeMap, VecDeque};

use super::body::Body;
use crate::view::{Member, ViewEpoch};

/// One update that has a position.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Held {
    /// The view in which it got it.
    pub epoch: ViewEpoch,
    pub sender: Member,
    pub number: u64,
    pub body: Body,
}

/// Updates without a gap, from the first that is kept to the last that is held.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct History {
    first: u64,
    entries: VecDeque<Held>,
    /// What came before something that it follows. Beyond `held() + 1`, always.
    early: BTreeMap<u64, Held>,
}

impl History {
    /// Nothing is kept, and everything up to `position` is held.
    pub(super) fn after(position: u64) -> Self {
        Self { first: position + 1, entries: VecDeque::new(), early: BTreeMap::new() }
    }

    /// The first position that is kept.
    pub(super) fn first(&self) -> u64 {
        self.first
    }

    /// The highest position without a gap.
    pub(super) fn held(&self) -> u64 {
        self.first + self.entries.len() as u64 - 1
    }

    pub(super) fn get(&self, position: u64) -> Option<&Held> {
        let place = usize::try_from(position.checked_sub(self.first)?).ok()?;
        self.entries.get(place)
    }

    /// What is held or came early at a position.
    pub(super) fn any(&self, position: u64) -> Option<&Held> {
        self.get(position).or_else(|| self.early.get(&position))
    }

    /// It has the position after the last.
    pub(super) fn push(&mut self, held: Held) {
        self.entries.push_back(held);
    }

    /// It has a position beyond that.
    pub(super) fn push_early(&mut self, position: u64, held: Held) {
        debug_assert!(position > self.held() + 1);
        self.early.insert(position, held);
    }

    /// What came early and is not early any more. What came again in the meantime is forgotten.
    pub(super) fn take_due(&mut self) -> Option<Held> {
        let next = self.held() + 1;
        while let Some(first) = self.early.first_entry().filter(|first| *first.key() <= next) {
            let (position, held) = first.remove_entry();
            if position == next {
                return Some(held);
            }
        }
        None
    }

    /// The first position that came early.
    pub(super) fn first_early(&self) -> Option<u64> {
        self.early.first_key_value().map(|(&position, _)| position)
    }

    pub(super) fn forget_early(&mut self) {
        self.early.clear();
    }

    /// Keeps nothing up to `position`.
    pub(super) fn trim(&mut self, position: u64) {
        while self.first <= position && self.entries.pop_front().is_some() {
            self.first += 1;
        }
    }

    /// Holds nothing beyond `position`.
    pub(super) fn truncate(&mut self, position: u64) {
        let kept = (position + 1).saturating_sub(self.first);
        self.entries.truncate(usize::try_from(kept).unwrap_or(usize::MAX));
        self.early.clear();
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len() + self.early.len()
    }
}

#[cfg(test)]
mod tests {
    use comb_types::{Incarnation, NodeId};

    use super::*;

    fn held(number: u64) -> Held {
        let sender = Member { node: NodeId(1), incarnation: Incarnation(1) };
        Held { epoch: ViewEpoch(1), sender, number, body: Body::from(&[][..]) }
    }

    #[test]
    fn what_came_early_is_held_when_the_gap_is_filled() {
        let mut history = History::after(4);
        history.push_early(6, held(2));
        assert_eq!((history.held(), history.first_early()), (4, Some(6)));
        assert_eq!(history.take_due(), None);
        history.push(held(1));
        let due = history.take_due().expect("position 6");
        history.push(due);
        assert_eq!((history.held(), history.first_early()), (6, None));
        assert_eq!(history.get(6), Some(&held(2)));
    }

    /// What was early and then came in a copy stayed behind for ever, and was taken for the end of the next gap: nothing
    /// was fetched any more. (Found by seed 16 of `sim_one_order_for_all_in_any_weather`.)
    #[test]
    fn what_came_early_and_again_is_forgotten() {
        let mut history = History::after(0);
        history.push_early(3, held(3));
        (1..=4).for_each(|number| history.push(held(number)));
        assert_eq!((history.take_due(), history.first_early()), (None, None));
    }

    #[test]
    fn both_ends_are_cut_off_and_no_more_than_there_is() {
        let mut history = History::after(0);
        (1..=9).for_each(|number| history.push(held(number)));
        history.trim(3);
        history.truncate(7);
        assert_eq!((history.first(), history.held(), history.len()), (4, 7, 4));
        assert_eq!((history.get(3), history.get(8)), (None, None));
        history.truncate(9);
        assert_eq!(history.held(), 7);
        history.trim(100);
        assert_eq!((history.first(), history.held()), (8, 7), "what is not held cannot be trimmed");
    }
}
