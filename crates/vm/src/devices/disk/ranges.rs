//! Which sectors a virtual machine has modified: ranges in a B-tree by their first sector. (Disco §4.2.5)

use std::collections::BTreeMap;
use std::ops::Range;

/// A set of sectors. Ranges that touch are one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    /// The sectors are in it from now on.
    pub(super) fn insert(&mut self, mut range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        while let Some((&first, &end)) = self.0.range(..=range.end).next_back() {
            if end < range.start {
                break;
            }
            range = range.start.min(first)..range.end.max(end);
            self.0.remove(&first);
        }
        self.0.insert(range.start, range.end);
    }

    /// Whether all of them are in it.
    pub(super) fn contains(&self, range: &Range<u64>) -> bool {
        range.is_empty() || self.0.range(..=range.start).next_back().is_some_and(|(_, end)| *end >= range.end)
    }

    /// The parts of a range, in order, and whether they are in it.
    pub(super) fn runs(&self, range: Range<u64>) -> impl Iterator<Item = (Range<u64>, bool)> + '_ {
        let mut at = range.start;
        std::iter::from_fn(move || {
            if at >= range.end {
                return None;
            }
            let (end, is_in) = match self.0.range(..=at).next_back() {
                Some((_, &end)) if end > at => (end, true),
                _ => (self.0.range(at..).next().map_or(range.end, |(&first, _)| first), false),
            };
            let run = at..end.min(range.end);
            at = run.end;
            Some((run, is_in))
        })
    }
}

#[cfg(test)]
#[expect(clippy::cast_possible_truncation, reason = "the numbers of a test are small")]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ranges_are_what_an_array_of_sectors_is(
            inserted in proptest::collection::vec((0..200_u64, 0..20_u64), 0..60),
            (first, count) in (0..200_u64, 0..60_u64),
        ) {
            let (mut ranges, mut model) = (Ranges::default(), [false; 300]);
            for (first, count) in inserted {
                ranges.insert(first..first + count);
                model[first as usize..(first + count) as usize].fill(true);
            }
            let asked = &model[first as usize..(first + count) as usize];
            prop_assert_eq!(ranges.contains(&(first..first + count)), asked.iter().all(|is_in| *is_in));
            let mut at = first;
            let mut last = None;
            for (run, is_in) in ranges.runs(first..first + count) {
                prop_assert_eq!(run.start, at);
                prop_assert!(run.end > at && Some(is_in) != last, "runs are as long as they can be");
                prop_assert!(model[run.start as usize..run.end as usize].iter().all(|model| *model == is_in));
                (at, last) = (run.end, Some(is_in));
            }
            prop_assert_eq!(at, first + count);
            let borders: Vec<_> = ranges.0.iter().collect();
            prop_assert!(borders.windows(2).all(|pair| pair[0].1 < pair[1].0), "ranges that touch are one");
        }
    }
}
