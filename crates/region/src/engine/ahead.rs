//! What is asked for before anybody misses it: who has missed some blocks at the same distance from each other will probably read the next, too.

use std::ops::RangeInclusive;

/// Places that a component reads from at the same time: of several arrays, or by several threads.
const STREAMS: usize = 4;
/// Blocks from one that is read to the next, at most: where an array's elements are longer than a block, and only a part of each is read.
const LONGEST_STRIDE: u64 = 8;

/// Of one allocation. The latest first.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Streams([Stream; STREAMS]);

/// Misses one behind the other, and how far ahead of them is read.
#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    /// The block that was missed last, and how far from it the next is. 0: there is no such stream.
    last: u64,
    stride: u64,
    /// The one that was left out in the middle of what was asked for: who comes to it misses it, and the next are asked for while those
    /// behind it are still on their way.
    marker: u64,
    /// Blocks that are asked for ahead of a miss.
    window: u64,
    /// What was asked for ends here.
    end: u64,
}

/// What is to be asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Plan {
    pub(super) first: u64,
    pub(super) end: u64,
    pub(super) stride: u64,
    pub(super) marker: u64,
}

impl Plan {
    pub(super) fn blocks(&self) -> impl Iterator<Item = u64> + use<> {
        let (stride, marker) = (usize::try_from(self.stride).unwrap_or(1), self.marker);
        (self.first..self.end).step_by(stride).filter(move |&block| block != marker)
    }
}

impl Stream {
    fn begin(last: u64, stride: u64) -> Self {
        let next = last + stride;
        Self { last, stride, marker: next, window: 0, end: next }
    }

    fn goes_on(&self, missed: &RangeInclusive<u64>) -> bool {
        let next = [self.last + self.stride, self.marker, self.end];
        self.stride > 0 && next.iter().any(|block| missed.contains(block))
    }

    /// How far a miss is behind the last, if that is not far.
    fn distance(&self, missed: &RangeInclusive<u64>, longest_stride: u64) -> Option<u64> {
        let distance = missed.start().checked_sub(self.last).filter(|_| self.stride > 0)?;
        (missed.start() == missed.end() && (1..=longest_stride).contains(&distance)).then_some(distance)
    }
}

impl Streams {
    /// Blocks were missed. `most` is how many are asked for ahead; nothing is from where on `may_be` says no. What is not `is_far` is here soon, and
    /// what is asked for in vain costs more than a miss: there only single blocks in one row are read ahead of.
    pub(super) fn missed(
        &mut self,
        missed: RangeInclusive<u64>,
        most: u64,
        is_far: bool,
        may_be: impl Fn(u64) -> bool,
    ) -> Option<Plan> {
        if !is_far && missed.start() != missed.end() {
            return None;
        }
        let (streams, longest_stride) =
            if is_far { (&mut self.0[..], LONGEST_STRIDE) } else { (&mut self.0[..1], 1) };
        if let Some(index) = streams.iter().position(|stream| stream.goes_on(&missed)) {
            streams[..=index].rotate_right(1);
            return streams[0].go_on(&missed, most, may_be);
        }
        let near = streams.iter().position(|stream| stream.distance(&missed, longest_stride).is_some());
        let stride = near.and_then(|index| streams[index].distance(&missed, longest_stride)).unwrap_or(1);
        let oldest = streams.len() - 1;
        streams[..=near.unwrap_or(oldest)].rotate_right(1);
        streams[0] = Stream::begin(*missed.end(), stride);
        None
    }
}

impl Stream {
    fn go_on(
        &mut self,
        missed: &RangeInclusive<u64>,
        most: u64,
        may_be: impl Fn(u64) -> bool,
    ) -> Option<Plan> {
        let (last, stride) = (*missed.end(), self.stride);
        let length = last + 1 - missed.start();
        let window = (self.window * 2).max(length).clamp(2, most.max(2));
        let first = self.end.max(last + stride);
        let mut end = first;
        while end <= last + window * stride && may_be(end) {
            end += stride;
        }
        let marker = first.max(last + window.div_ceil(2) * stride);
        *self = Self { last, stride, marker, window, end };
        (first < end).then_some(Plan { first, end, stride, marker })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Which of the blocks that are read are missed.
    fn missed(streams: &mut Streams, here: &mut BTreeSet<u64>, read: impl IntoIterator<Item = u64>) -> usize {
        let mut misses = 0;
        for block in read {
            if here.insert(block) {
                misses += 1;
                if let Some(plan) = streams.missed(block..=block, 64, true, |block| block < 5000) {
                    here.extend(plan.blocks());
                }
            }
        }
        misses
    }

    #[test]
    fn what_is_read_in_a_row_is_missed_seldom_and_little_is_asked_for_in_vain() {
        for stride in 1..=8 {
            let (mut streams, mut here) = (Streams::default(), BTreeSet::new());
            let misses = missed(&mut streams, &mut here, (300..).step_by(stride).take(400));
            assert!(misses < 24, "{misses} misses, {stride} apart");
            assert!(here.len() < 400 + 70, "{} blocks, {stride} apart", here.len());
        }
    }

    #[test]
    fn the_first_block_of_all_begins() {
        let mut streams = Streams::default();
        assert_eq!(streams.missed(0..=0, 64, true, |_| true), None);
        assert_eq!(
            streams.missed(1..=1, 64, true, |_| true).map(|plan| (plan.first, plan.stride)),
            Some((2, 1))
        );
    }

    #[test]
    fn nearby_only_single_blocks_in_one_row_are_read_ahead_of() {
        let mut streams = Streams::default();
        let mut missed = |range| streams.missed(range, 64, false, |_| true);
        for range in [5..=5, 7..=7, 9..=9, 30..=33, 34..=37, 100..=100, 10..=10] {
            assert_eq!(missed(range), None);
        }
        assert_eq!(missed(11..=11).map(|plan| (plan.first, plan.end)), Some((12, 14)));
    }

    #[test]
    fn several_are_read_at_the_same_time() {
        let (mut streams, mut here) = (Streams::default(), BTreeSet::new());
        let by_turns = (0..200).flat_map(|index| [100 + index, 1000 + 3 * index, 3000 + index]);
        let misses = missed(&mut streams, &mut here, by_turns);
        assert!(misses < 60, "{misses} misses");
    }

    #[test]
    fn what_is_read_here_and_there_is_not_read_ahead() {
        let (mut streams, mut here) = (Streams::default(), BTreeSet::new());
        let here_and_there = (1..300).map(|index| index * index * 31 % 4999);
        let misses = missed(&mut streams, &mut here, here_and_there);
        assert!(here.len() < misses + misses / 4, "{} blocks for {misses} misses", here.len());
    }

    #[test]
    fn ranges_go_on_and_end_where_nothing_may_be_asked_for() {
        let mut streams = Streams::default();
        let may_be = |block: u64| block < 40;
        assert_eq!(streams.missed(10..=13, 64, true, may_be), None);
        let plan = streams.missed(14..=17, 64, true, may_be).expect("goes on");
        assert_eq!((plan.first, plan.end, plan.stride), (18, 22, 1));
        let plan = streams.missed(plan.marker..=plan.marker, 64, true, may_be).expect("goes on");
        assert!(plan.first == 22 && plan.end > 26);
        let plan = streams.missed(plan.end - 1..=plan.end, 64, true, may_be).expect("goes on");
        assert_eq!(plan.end, 40);
        assert_eq!(streams.missed(40..=40, 64, true, may_be), None);
    }
}
