//! What a member knows of one sender's messages: which it had, which exist, and since when it knows that.

use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;

/// Numbers from the first to the last.
pub(super) type Range = (u64, u64);

#[derive(Clone, Debug)]
pub(super) struct Track {
    /// Everything below has come, or was given up.
    next: u64,
    /// What has come beyond that. Never `next` itself.
    beyond: BTreeSet<u64>,
    /// How far the sender was known to have come, and in which round that was first known. Rising in both.
    marks: VecDeque<(u64, u64)>,
    /// What is before this may have been said before this member was there: it is welcome, and not missed.
    counts_from: u64,
}

impl Track {
    /// The first that counts is `next`.
    pub(super) fn from(next: u64) -> Self {
        Self { next, beyond: BTreeSet::new(), marks: VecDeque::new(), counts_from: next }
    }

    /// For one who has come to a sender that had said so much when it was first heard of. The last of it may have been said to this
    /// member already.
    pub(super) fn joining(first_heard: u64, most: u64) -> Self {
        let next = first_heard.saturating_sub(most).max(1);
        Self { counts_from: first_heard, ..Self::from(next) }
    }

    pub(super) fn next(&self) -> u64 {
        self.next
    }

    pub(super) fn has(&self, number: u64) -> bool {
        number < self.next || self.beyond.contains(&number)
    }

    /// The highest number that is known to be there; 0 if none is.
    pub(super) fn high(&self) -> u64 {
        self.marks.back().map_or(self.next - 1, |mark| mark.0)
    }

    /// Somebody has everything up to `high`, or knows of it.
    pub(super) fn exists(&mut self, high: u64, round: u64) {
        if high <= self.high() {
            return;
        }
        match self.marks.back_mut() {
            Some(mark) if mark.1 == round => mark.0 = high,
            _ => self.marks.push_back((high, round)),
        }
    }

    /// A message came. False if it had come before, or was given up.
    pub(super) fn receive(&mut self, number: u64, round: u64) -> bool {
        if self.has(number) {
            return false;
        }
        self.exists(number, round);
        self.beyond.insert(number);
        self.settle();
        true
    }

    fn settle(&mut self) {
        while self.beyond.remove(&self.next) {
            self.next += 1;
        }
        while self.marks.front().is_some_and(|mark| mark.0 < self.next) {
            self.marks.pop_front();
        }
    }

    /// What is known to be there and has not come.
    pub(super) fn lacks(&self, most: usize) -> Vec<Range> {
        let mut gaps = Vec::new();
        let mut first = self.next;
        for &number in &self.beyond {
            if gaps.len() == most {
                return gaps;
            }
            if number > first {
                gaps.push((first, number - 1));
            }
            first = number + 1;
        }
        if first <= self.high() && gaps.len() < most {
            gaps.push((first, self.high()));
        }
        gaps
    }

    /// What has come beyond `next`, as ranges.
    pub(super) fn extra(&self, most: usize) -> Vec<Range> {
        let mut ranges: Vec<Range> = Vec::new();
        for &number in &self.beyond {
            if let Some(last) = ranges.last_mut().filter(|last| last.1 + 1 == number) {
                last.1 = number;
            } else if ranges.len() < most {
                ranges.push((number, number));
            } else {
                break;
            }
        }
        ranges
    }

    /// Gives up the first gap, as far as it was known in `known_by` or before; and, in any case, so much of it that no more
    /// than `most` numbers are open. Says what of it is missed.
    pub(super) fn give_up(&mut self, known_by: u64, most: u64) -> Option<Range> {
        loop {
            let (first, last) = self.give_up_first(known_by, most)?;
            if last >= self.counts_from {
                return Some((first.max(self.counts_from), last));
            }
        }
    }

    fn give_up_first(&mut self, known_by: u64, most: u64) -> Option<Range> {
        let (first, last) = *self.lacks(1).first()?;
        let old = self.marks.iter().take_while(|mark| mark.1 <= known_by).last().map_or(0, |mark| mark.0);
        let until = last.min(old.max(self.high().saturating_sub(most)));
        if until < first {
            return None;
        }
        self.next = until + 1;
        self.settle();
        Some((first, until))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_and_extras_are_told_as_ranges() {
        let mut track = Track::from(1);
        for number in [1, 3, 4, 7] {
            assert!(track.receive(number, 0));
        }
        track.exists(9, 0);
        assert_eq!((track.next(), track.high()), (2, 9));
        assert_eq!(track.lacks(9), [(2, 2), (5, 6), (8, 9)]);
        assert_eq!(track.extra(9), [(3, 4), (7, 7)]);
        assert_eq!((track.lacks(1), track.extra(1)), (vec![(2, 2)], vec![(3, 4)]));
        assert!(!track.receive(3, 0) && !track.receive(1, 0), "each comes once");
        let mut track = Track::from(1);
        assert!(track.receive(2, 0));
        track.exists(5, 0);
        assert_eq!(track.lacks(1), [(1, 1)]);
        for number in [1, 3, 4, 5] {
            assert!(track.receive(number, number));
        }
        assert!(track.marks.is_empty() && track.high() == 5, "nothing is open");
    }

    #[test]
    fn a_gap_is_given_up_when_it_was_known_for_long_and_no_sooner() {
        let mut track = Track::from(1);
        track.exists(2, 10);
        track.receive(5, 20);
        assert_eq!(track.give_up(9, 100), None);
        assert_eq!(track.give_up(10, 100), Some((1, 2)));
        assert_eq!(track.give_up(19, 100), None, "3 and 4 are known since round 20");
        assert_eq!(track.give_up(20, 100), Some((3, 4)));
        assert_eq!((track.next(), track.lacks(9)), (6, vec![]));
        assert!(!track.receive(3, 21), "what was given up is not delivered later");
    }

    #[test]
    fn what_was_said_before_it_came_is_welcome_and_not_missed() {
        let mut track = Track::joining(500, 10);
        assert_eq!(track.next(), 490);
        track.exists(502, 1);
        assert!(track.receive(495, 1) && track.receive(501, 1));
        assert_eq!(track.lacks(9), [(490, 494), (496, 500), (502, 502)]);
        assert_eq!(track.give_up(1, 100), Some((500, 500)), "and nothing before");
        assert_eq!(track.give_up(1, 100), Some((502, 502)));
        assert_eq!((track.give_up(9, 100), track.next()), (None, 503));
        assert_eq!(Track::joining(3, 10).next(), 1);
    }

    #[test]
    fn so_much_is_open_and_no_more() {
        let mut track = Track::from(1);
        track.receive(1000, 0);
        assert_eq!(track.give_up(0, 10), Some((1, 999)), "known in round 0");
        track.exists(u64::MAX, 5);
        assert_eq!(track.give_up(1, 10), Some((1001, u64::MAX - 10)));
    }
}
