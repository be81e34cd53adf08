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
    /// Groups that are used for pages without neighbours, until all of it is free: otherwise every group would soon lack a frame for many.
    is_small: Vec<bool>,
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
        Self { is_small: vec![false; free.len()], free, count }
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
        if let Some(group) = self.group_for(wanted) {
            self.is_small[group] |= in_group == 1;
            self.hand_out(group, rest, in_group, runs);
        } else if in_group > 1 {
            self.take_some(page, in_group / 2, runs);
            self.take_some(page + u64::from(in_group / 2), in_group - in_group / 2, runs);
        } else {
            let any = self.fullest(|free, is_small| free != 0 && is_small);
            let group = any.or_else(|| self.fullest(|free, _| free != 0)).expect("they were counted");
            self.hand_out(group, self.free[group].trailing_zeros(), 1, runs);
        }
        if in_group < count {
            self.take_some(page + u64::from(in_group), count - in_group, runs);
        }
    }

    /// Whether neighbours can have neighbouring frames, and all others as good ones after that.
    pub(super) fn fits(&self, page: u64, count: u32) -> bool {
        let (mut page, mut left) = (page, count);
        while left > 0 {
            let rest = u32::try_from(page % GROUP).expect("less than a group");
            let in_group = left.min(GROUP_FRAMES - rest);
            let wanted = bits(rest, in_group);
            let one_of_few = in_group == 1 && self.has_small();
            let group = self.group_for(wanted);
            let is_kept_whole =
                |group: usize| in_group > 1 || self.is_small[group] || self.free[group] == u128::MAX;
            if !one_of_few && !group.is_some_and(is_kept_whole) {
                return false;
            }
            (page, left) = (page + u64::from(in_group), left - in_group);
        }
        true
    }

    /// The best group that has these frames.
    fn group_for(&self, wanted: u128) -> Option<usize> {
        let is_alone = wanted.is_power_of_two();
        let has = |free: u128| free & wanted == wanted;
        let like = self.fullest(|free, is_small| has(free) && is_small == is_alone);
        // One alone is as well off with any of them.
        if like.is_none() && is_alone && self.has_small() {
            return None;
        }
        let whole = || self.fullest(|free, _| is_alone && free == u128::MAX);
        like.or_else(whole).or_else(|| self.fullest(|free, _| has(free)))
    }

    fn has_small(&self) -> bool {
        self.fullest(|free, is_small| free != 0 && is_small).is_some()
    }

    /// Of the groups of which something is so the one with the fewest frames left: others are kept whole, for many neighbours.
    fn fullest(&self, is_so: impl Fn(u128, bool) -> bool) -> Option<usize> {
        let groups = self.free.iter().zip(&self.is_small).enumerate();
        let groups = groups.filter(|(_, (free, is_small))| is_so(**free, **is_small));
        groups.min_by_key(|(_, (free, _))| free.count_ones()).map(|(group, _)| group)
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
        self.is_small[(frame / GROUP_FRAMES) as usize] &= *group != u128::MAX;
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
        // Beyond a group's end there is another; and the group that is used more is used first.
        let runs = pool.take(112, 32).expect("there are as many");
        assert_eq!(runs, [Run { frame: 256 + 112, count: 16 }, Run { frame: 256, count: 16 }]);
        assert_eq!(pool.free(), 176);
        assert_eq!(pool.take(0, 177), None);
        let rest = pool.take(5, 176).expect("there are as many");
        assert_eq!((rest.iter().map(|run| run.count).sum::<u32>(), pool.free()), (176, 0));
        rest.into_iter().for_each(|run| pool.give(run));
        assert_eq!(pool.free(), 176);
        assert!(pool.take_this(320) && !pool.take_this(320) && !pool.take_this(128));
    }

    /// A page here and there does not take from each group what makes it whole.
    #[test]
    fn pages_without_neighbours_share_a_group_and_others_have_one_for_themselves() {
        let mut pool = Pool::new([true; 3].into_iter());
        for page in [5, 700, 5, 3 * 128 + 9] {
            assert!(pool.fits(page, 1));
            pool.take(page, 1).expect("there are some");
        }
        assert_eq!(pool.take(128, 128), Some(vec![Run { frame: 128, count: 128 }]));
        assert_eq!(pool.take(128, 128), Some(vec![Run { frame: 256, count: 128 }]));
        assert!(!pool.fits(0, 128) && pool.fits(5, 1) && !pool.fits(4, 2));
        // When it is as it was, it serves anybody.
        pool.give(Run { frame: 128, count: 128 });
        assert!(pool.fits(0, 128) && pool.fits(4, 2));
    }

    #[test]
    #[should_panic(expected = "once")]
    fn what_nobody_has_cannot_be_given_back() {
        Pool::new([true].into_iter()).give(Run { frame: 3, count: 1 });
    }
}
