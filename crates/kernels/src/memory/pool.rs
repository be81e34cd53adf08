//! The frames that a kernel was granted and has no use for now.

use comb_kernel::calls::Calls;
use comb_kernel::frames::GROUP_FRAMES;

/// Neighbouring frames of one page group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// The first of them.
    pub frame: u32,
    /// How many.
    pub count: u32,
}

/// Frames that nothing is in.
#[derive(Debug)]
pub struct Pool {
    /// By page group, a bit each.
    free: Vec<u128>,
    count: u32,
}

const GROUP: u64 = GROUP_FRAMES as u64;

fn bits(first: u32, count: u32) -> u128 {
    (if count >= GROUP_FRAMES { u128::MAX } else { (1 << count) - 1 }) << first
}

impl Pool {
    /// All that were granted to a kernel, to be read and written.
    pub fn of(calls: &dyn Calls) -> Self {
        Self::new((0..calls.groups()).map(|group| calls.may_write(group)))
    }

    fn new(granted: impl Iterator<Item = bool>) -> Self {
        let free: Vec<u128> = granted.map(|granted| if granted { u128::MAX } else { 0 }).collect();
        let count = free.iter().map(|group| group.count_ones()).sum();
        Self { free, count }
    }

    /// How many there are.
    pub fn free(&self) -> u32 {
        self.count
    }

    /// Takes frames for neighbouring pages, if there are as many: as few runs as can be, and such whose numbers leave the same rests as those of the pages, for these
    /// are mapped fast.
    pub fn take(&mut self, page: u64, count: u32) -> Option<Vec<Run>> {
        if count > self.count {
            return None;
        }
        let mut runs: Vec<Run> = Vec::new();
        self.take_some(page, count, &mut runs);
        self.count -= count;
        Some(runs)
    }

    fn take_some(&mut self, page: u64, count: u32, runs: &mut Vec<Run>) {
        let rest = u32::try_from(page % GROUP).expect("less than a group");
        let in_group = count.min(GROUP_FRAMES - rest);
        let wanted = bits(rest, in_group);
        if let Some(group) = self.fullest(|free| free & wanted == wanted) {
            self.hand_out(group, rest, in_group, runs);
        } else if in_group > 1 {
            self.take_some(page, in_group / 2, runs);
            self.take_some(page + u64::from(in_group / 2), in_group - in_group / 2, runs);
        } else {
            let group = self.fullest(|free| free != 0).expect("they were counted");
            self.hand_out(group, self.free[group].trailing_zeros(), 1, runs);
        }
        if in_group < count {
            self.take_some(page + u64::from(in_group), count - in_group, runs);
        }
    }

    /// Whether all neighbours of a page group can have neighbouring frames.
    pub(super) fn fits(&self, page: u64, count: u32) -> bool {
        let (mut page, mut left) = (page, count);
        while left > 0 {
            let rest = u32::try_from(page % GROUP).expect("less than a group");
            let in_group = left.min(GROUP_FRAMES - rest);
            let wanted = bits(rest, in_group);
            if !self.free.iter().any(|free| free & wanted == wanted) {
                return false;
            }
            (page, left) = (page + u64::from(in_group), left - in_group);
        }
        true
    }

    /// Of the groups of which something is so the one with the fewest frames left: others are kept whole, for many neighbours.
    fn fullest(&self, is_so: impl Fn(u128) -> bool) -> Option<usize> {
        let groups = self.free.iter().enumerate().filter(|(_, free)| is_so(**free));
        groups.min_by_key(|(_, free)| free.count_ones()).map(|(group, _)| group)
    }

    fn hand_out(&mut self, group: usize, first: u32, count: u32, runs: &mut Vec<Run>) {
        self.free[group] &= !bits(first, count);
        let frame = u32::try_from(group).expect("groups have small numbers") * GROUP_FRAMES + first;
        match runs.last_mut() {
            Some(last) if last.frame + last.count == frame && !frame.is_multiple_of(GROUP_FRAMES) => {
                last.count += count;
            }
            _ => runs.push(Run { frame, count }),
        }
    }

    /// Gives frames back.
    pub fn give(&mut self, Run { frame, count }: Run) {
        let bits = bits(frame % GROUP_FRAMES, count);
        let group = &mut self.free[(frame / GROUP_FRAMES) as usize];
        assert!(*group & bits == 0, "each is given back once");
        *group |= bits;
        self.count += count;
    }

    /// Takes one frame, if nobody has it.
    pub(super) fn take_this(&mut self, frame: u32) -> bool {
        let bit = bits(frame % GROUP_FRAMES, 1);
        let group = &mut self.free[(frame / GROUP_FRAMES) as usize];
        let is_free = *group & bit != 0;
        *group &= !bit;
        self.count -= u32::from(is_free);
        is_free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_taken_as_pages_are_as_long_as_there_are_such() {
        let mut pool = Pool::new([true, false, true].into_iter());
        assert_eq!(pool.free(), 256);
        assert_eq!(pool.take(16, 16), Some(vec![Run { frame: 16, count: 16 }]));
        assert_eq!(pool.take(128 + 16, 32), Some(vec![Run { frame: 256 + 16, count: 32 }]));
        // Beyond a group's end there is another.
        let runs = pool.take(120, 16).expect("there are as many");
        assert_eq!(runs, [Run { frame: 120, count: 8 }, Run { frame: 0, count: 8 }]);
        assert_eq!(pool.free(), 192);
        assert_eq!(pool.take(0, 193), None);
        let rest = pool.take(5, 192).expect("there are as many");
        assert_eq!((rest.iter().map(|run| run.count).sum::<u32>(), pool.free()), (192, 0));
        rest.into_iter().for_each(|run| pool.give(run));
        assert_eq!(pool.free(), 192);
        assert!(pool.take_this(300) && !pool.take_this(300) && !pool.take_this(128));
    }

    #[test]
    #[should_panic(expected = "once")]
    fn what_nobody_has_cannot_be_given_back() {
        Pool::new([true].into_iter()).give(Run { frame: 3, count: 1 });
    }
}
