//! Which parts of the heap are allocated, in the slice of one component.
//!
//! Every component allocates in a slice of its own, so that nobody has to be asked. Slices are long and addresses are cheap: what is
//! given out stands apart by a page at least, so that a store beyond its end meets nothing.

use std::collections::BTreeMap;

use crate::terms::EXTENT_BYTES;

/// Addresses of a task's heap; named regions have the rest.
pub(crate) const HEAP_BYTES: u64 = comb_memory::HEAP_BYTES / 4 * 3;
/// A slice is never longer.
const LONGEST_SLICE_BYTES: u64 = 4 << 40;

/// What is free in a slice.
#[derive(Debug)]
pub(crate) struct Heap {
    /// Begin and end of each free part; no two touch.
    free: BTreeMap<u64, u64>,
}

impl Heap {
    /// The slice of a component among `count`.
    pub(crate) fn slice(rank: u32, count: u32) -> Self {
        let bytes = Self::slice_bytes(count);
        let begin = u64::from(rank) * bytes;
        Self { free: BTreeMap::from([(begin, begin + bytes)]) }
    }

    fn slice_bytes(count: u32) -> u64 {
        let each = HEAP_BYTES / u64::from(count.max(1));
        LONGEST_SLICE_BYTES.min(1 << each.ilog2())
    }

    /// Whose slice an offset is in.
    pub(crate) fn owner(offset: u64, count: u32) -> u32 {
        u32::try_from(offset / Self::slice_bytes(count)).unwrap_or(u32::MAX)
    }

    /// Takes so many bytes, and a hole behind them.
    pub(crate) fn take(&mut self, span: u64) -> Option<u64> {
        let length = Self::length(span)?;
        let (&begin, &end) = self.free.iter().find(|&(&begin, &end)| end - begin >= length)?;
        self.free.remove(&begin);
        if end - begin > length {
            self.free.insert(begin + length, end);
        }
        Some(begin)
    }

    /// With a hole behind, and a multiple of what has a home together.
    fn length(span: u64) -> Option<u64> {
        (span + 4096).checked_next_multiple_of(EXTENT_BYTES)
    }

    /// Takes what an earlier life of the task had allocated. Whether it is free.
    pub(crate) fn take_at(&mut self, offset: u64, span: u64) -> bool {
        let Some(length) = Self::length(span) else { return false };
        let Some((&begin, &end)) = self.free.range(..=offset).next_back() else { return false };
        if offset + length > end {
            return false;
        }
        self.free.remove(&begin);
        for (begin, end) in [(begin, offset), (offset + length, end)] {
            if begin < end {
                self.free.insert(begin, end);
            }
        }
        true
    }

    /// Gives back what [`Heap::take`] gave out.
    pub(crate) fn give_back(&mut self, offset: u64, span: u64) {
        let length = Self::length(span).expect("it was given out");
        let (mut begin, mut end) = (offset, offset + length);
        if let Some((&before, &before_end)) = self.free.range(..begin).next_back()
            && before_end == begin
        {
            self.free.remove(&before);
            begin = before;
        }
        if let Some(behind_end) = self.free.remove(&end) {
            end = behind_end;
        }
        self.free.insert(begin, end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_do_not_meet_and_all_lie_in_the_heap() {
        for count in [1, 2, 3, 8, 9, 100, 1000] {
            let bytes = Heap::slice_bytes(count);
            assert!(
                bytes * u64::from(count) <= HEAP_BYTES && bytes >= HEAP_BYTES / u64::from(count) / 2
                    || bytes == LONGEST_SLICE_BYTES
            );
            for rank in 0..count {
                let (&begin, &end) = Heap::slice(rank, count).free.iter().next().unwrap();
                assert_eq!((Heap::owner(begin, count), Heap::owner(end - 1, count)), (rank, rank));
            }
        }
    }

    #[test]
    fn what_is_given_back_is_whole_again() {
        let mut heap = Heap::slice(1, 4);
        let before = heap.free.clone();
        let taken: Vec<(u64, u64)> =
            (0..50).map(|n| 1 + n * 7919).map(|span| (heap.take(span).unwrap(), span)).collect();
        for pair in taken.windows(2) {
            assert!(pair[0].0 + pair[0].1 + 4096 <= pair[1].0, "a hole between");
        }
        // In any order.
        for at in [1, 3, 2, 0] {
            let (offset, span) = taken[at];
            heap.give_back(offset, span);
        }
        assert_eq!(heap.take(taken[0].1), Some(taken[0].0), "the first that is large enough");
        heap.give_back(taken[0].0, taken[0].1);
        taken[4..].iter().rev().for_each(|&(offset, span)| heap.give_back(offset, span));
        assert_eq!(heap.free, before);
        assert_eq!(heap.take(LONGEST_SLICE_BYTES), None);
        let offset = taken[7].0;
        assert!(heap.take_at(offset, 10) && !heap.take_at(offset, 10) && !heap.take_at(0, 10));
        heap.give_back(offset, 10);
        assert_eq!(heap.free, before);
    }
}
