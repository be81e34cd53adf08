//! Which objects have lost something since they were opened. (Hive §4.2)
//!
//! An access to what was discarded may come at any time, and to write down for ever which pages are gone would be dear. So each object
//! counts its losses, and whoever opened it before the last one gets an error. Whoever opens it now finds what is left, as after the
//! restart of a whole machine.

use alloc::collections::BTreeMap;
use core::fmt::{Debug, Display};

use serde::{Deserialize, Serialize};

/// How often each object of a data home has lost something. Objects are known by whatever names them for ever.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Generations<O: Ord> {
    /// Of those that have. None is forgotten: what was opened before would become valid again.
    lost: BTreeMap<O, u64>,
}

/// A user's claim to an object, copied to where the object is used from: a descriptor, a region of an address space. It may come back from another cell,
/// and is an allegation then; it claims no more than when the object was opened.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Opened<O> {
    object: O,
    generation: u64,
}

/// The object has lost something since it was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "{object} has lost data with a cell that failed, since it was opened: open it again to use what is left"
)]
pub struct Stale<O: Display + Debug> {
    /// Which.
    pub object: O,
}

impl<O: Ord + Clone> Generations<O> {
    /// Nothing is lost.
    pub fn new() -> Self {
        Self { lost: BTreeMap::new() }
    }

    /// Somebody opens an object.
    pub fn opened(&self, object: O) -> Opened<O> {
        let generation = self.generation(&object);
        Opened { object, generation }
    }

    /// A page of an object was discarded that no disk has.
    pub fn discarded(&mut self, object: O) {
        *self.lost.entry(object).or_insert(0) += 1;
    }

    /// Whether the object is whole, as far as this user can tell.
    pub fn check(&self, opened: &Opened<O>) -> Result<(), Stale<O>>
    where
        O: Display + Debug,
    {
        let is_whole = self.generation(&opened.object) == opened.generation;
        if is_whole { Ok(()) } else { Err(Stale { object: opened.object.clone() }) }
    }

    /// How often an object has lost something.
    pub fn generation(&self, object: &O) -> u64 {
        self.lost.get(object).copied().unwrap_or(0)
    }
}

impl<O: Ord + Clone> Default for Generations<O> {
    fn default() -> Self {
        Self::new()
    }
}

impl<O> Opened<O> {
    /// What was opened.
    pub fn object(&self) -> &O {
        &self.object
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_opened_before_a_loss_gets_an_error_and_who_opens_afterwards_none() {
        let mut generations = Generations::new();
        let (before, other) = (generations.opened(7_u64), generations.opened(8));
        assert_eq!(generations.check(&before), Ok(()));
        generations.discarded(7);
        assert_eq!(generations.check(&before), Err(Stale { object: 7 }));
        assert_eq!(generations.check(&other), Ok(()), "the file is the unit of loss, and no more");
        let after = generations.opened(7);
        assert_eq!(generations.check(&after), Ok(()));
        generations.discarded(7);
        assert_eq!((generations.check(&after), generations.generation(&7)), (Err(Stale { object: 7 }), 2));
    }

    #[test]
    fn a_claim_from_the_future_is_no_better_than_an_old_one() {
        let generations = Generations::<u64>::new();
        let opened: Opened<u64> = postcard::from_bytes(&[7, 1]).unwrap();
        assert_eq!(opened.object(), &7);
        assert!(generations.check(&opened).is_err());
    }
}
