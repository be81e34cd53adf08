//! Which page groups a kernel has, by its own numbers.

use std::collections::BTreeMap;

use crate::objects::FRAMES_IN_GROUP;

/// A group's own number is the supervisor's, unless the kernel was swapped out and came back with other groups in the place of those that it had: it goes on
/// with the numbers that it knows.
#[derive(Debug)]
pub(super) struct Granted {
    /// By own number, the supervisor's.
    real: Vec<Option<u32>>,
    own: BTreeMap<u32, u32>,
}

impl Granted {
    /// None yet, of so many.
    pub(super) fn new(count: usize) -> Self {
        Self { real: vec![None; count], own: BTreeMap::new() }
    }

    pub(super) fn count(&self) -> usize {
        self.real.len()
    }

    pub(super) fn has(&self, own: u32) -> bool {
        self.real.get(own as usize).is_some_and(Option::is_some)
    }

    /// One more group, by the supervisor's number: its own. Nothing: there is no such group.
    pub(super) fn give(&mut self, real: u32) -> Option<u32> {
        if real as usize >= self.real.len() {
            return None;
        }
        if let Some(own) = self.own.get(&real) {
            return Some(*own);
        }
        let own = if self.has(real) {
            self.real.iter().position(Option::is_none).map(|own| u32::try_from(own).expect("a few"))?
        } else {
            real
        };
        self.put(own, real);
        Some(own)
    }

    fn put(&mut self, own: u32, real: u32) {
        self.real[own as usize] = Some(real);
        self.own.insert(real, own);
    }

    /// A group that is not there any more: what its own number was.
    pub(super) fn take(&mut self, real: u32) -> Option<u32> {
        let own = self.own.remove(&real)?;
        self.real[own as usize] = None;
        Some(own)
    }

    /// All groups are others now, each in the place of one that was there. Returns the own numbers of those that nothing came for.
    pub(super) fn swap(&mut self, moved: &[(u32, u32)]) -> Vec<u32> {
        let mut before = std::mem::take(&mut self.own);
        self.real.fill(None);
        for (old, new) in moved {
            if (*new as usize) < self.real.len()
                && !self.own.contains_key(new)
                && let Some(own) = before.remove(old)
            {
                self.put(own, *new);
            }
        }
        before.into_values().collect()
    }

    /// The supervisor's number of a frame. Nothing: it is of a group that this kernel has by another number.
    pub(super) fn real_frame(&self, own: u64) -> Option<u64> {
        let (group, rest) = (own / FRAMES_IN_GROUP, own % FRAMES_IN_GROUP);
        let real = usize::try_from(group).ok().and_then(|group| *self.real.get(group)?);
        match real {
            Some(real) => Some(u64::from(real) * FRAMES_IN_GROUP + rest),
            // It may be one that it can only read, or none: the supervisor knows.
            None if u32::try_from(group).is_ok_and(|group| self.own.contains_key(&group)) => None,
            None => Some(own),
        }
    }

    /// Its own number of a frame.
    pub(super) fn own_frame(&self, real: u64) -> u64 {
        let group = u32::try_from(real / FRAMES_IN_GROUP).ok();
        let own = group.and_then(|group| self.own.get(&group));
        own.map_or(real, |own| u64::from(*own) * FRAMES_IN_GROUP + real % FRAMES_IN_GROUP)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_when_groups_change() {
        let mut granted = Granted::new(8);
        assert_eq!([2, 5].map(|real| granted.give(real)), [Some(2), Some(5)]);
        assert_eq!(granted.swap(&[(2, 5), (5, 7)]), [] as [u32; 0]);
        assert_eq!(granted.real_frame(2 * 128 + 3), Some(5 * 128 + 3));
        assert_eq!(granted.real_frame(5 * 128), Some(7 * 128));
        assert_eq!(granted.real_frame(7 * 128), None, "it is known by another number");
        assert_eq!(granted.real_frame(6 * 128), Some(6 * 128));
        assert_eq!(granted.own_frame(5 * 128 + 3), 2 * 128 + 3);
        // The next has a number that is free.
        assert_eq!(granted.give(2), Some(0));
        assert_eq!(granted.give(8), None);
        assert_eq!(granted.take(5), Some(2));
        assert_eq!(granted.take(5), None);
        assert!(!granted.has(2) && granted.has(5));
        assert_eq!(granted.swap(&[(7, 1)]), [0]);
        assert_eq!(granted.real_frame(5 * 128), Some(128));
    }
}
