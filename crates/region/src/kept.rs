//! How much this component keeps for each of the others: none of them can make it keep without end.

use std::collections::BTreeMap;

/// What each component makes this one keep, in whatever is counted.
#[derive(Debug)]
pub(crate) struct Kept {
    own: u32,
    most: u64,
    by: BTreeMap<u32, u64>,
}

/// A component would have this one keep more than so much.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TooMuch(pub(crate) u64);

impl Kept {
    /// None of the others gets more than so much kept. This component itself keeps what it likes.
    pub(crate) fn new(own: u32, most: u64) -> Self {
        Self { own, most, by: BTreeMap::new() }
    }

    /// So much more is kept for a component, unless that would be too much.
    pub(crate) fn add(&mut self, rank: u32, much: u64) -> Result<(), TooMuch> {
        let kept = self.by.entry(rank).or_default();
        if rank != self.own && much > self.most.saturating_sub(*kept) {
            return Err(TooMuch(self.most));
        }
        *kept = kept.saturating_add(much);
        Ok(())
    }

    /// So much of it is kept no longer.
    pub(crate) fn remove(&mut self, rank: u32, much: u64) {
        let kept = self.by.entry(rank).or_default();
        debug_assert!(*kept >= much, "what was added");
        *kept = kept.saturating_sub(much);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_room_of_its_own_and_gets_it_back() {
        let mut kept = Kept::new(0, 10);
        assert_eq!(kept.add(1, 11), Err(TooMuch(10)));
        assert_eq!((kept.add(1, 7), kept.add(1, 4), kept.add(1, 3)), (Ok(()), Err(TooMuch(10)), Ok(())));
        assert_eq!((kept.add(2, 10), kept.add(2, 1)), (Ok(()), Err(TooMuch(10))));
        kept.remove(1, 2);
        assert_eq!((kept.add(1, u64::MAX), kept.add(1, 2)), (Err(TooMuch(10)), Ok(())));
        assert_eq!(kept.add(0, 11), Ok(()));
    }
}
