//! What all members must have delivered, and the application whose state shows that they have.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use crate::order::Delivery;
use crate::view::{Member, ViewEpoch};

/// One position of the one order, as the first that delivered it said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    pub(super) epoch: ViewEpoch,
    pub(super) sender: Member,
    pub(super) number: u64,
    pub(super) hash: u64,
    /// The application's after it.
    pub(super) state: u64,
}

/// All positions that anybody has delivered.
#[derive(Debug, Default)]
pub(super) struct OneOrder(Vec<Place>);

impl OneOrder {
    pub(super) fn len(&self) -> u64 {
        self.0.len() as u64
    }

    #[cfg(test)]
    pub(super) fn places(&self) -> &[Place] {
        &self.0
    }

    /// What lies beyond a position is lost with all that had delivered it.
    pub(super) fn lose_beyond(&mut self, position: u64) -> Vec<Place> {
        let kept = usize::try_from(position).map_or(self.0.len(), |kept| kept.min(self.0.len()));
        self.0.split_off(kept)
    }

    /// The application's state when all up to a position was delivered.
    pub(super) fn state(&self, position: u64) -> u64 {
        let index = position.checked_sub(1).and_then(|index| usize::try_from(index).ok());
        index.and_then(|index| self.0.get(index)).map_or(0, |place| place.state)
    }

    /// A life that had delivered all up to `before` delivers this. Says whether it is the first that does.
    pub(super) fn deliver(&mut self, before: u64, position: u64, place: Place) -> Result<bool, String> {
        rule(position == before + 1, || format!("order: position {position} delivered after {before}"))?;
        let index = usize::try_from(before).map_err(|error| error.to_string())?;
        if let Some(&first) = self.0.get(index) {
            rule(first.epoch == place.epoch, || {
                format!("view synchrony: position {position} belongs to {} and {}", first.epoch, place.epoch)
            })?;
            rule(first == place, || format!("total order: position {position} is {first:?} and {place:?}"))?;
            return Ok(false);
        }
        rule(index == self.0.len(), || format!("order: nobody has delivered what precedes {position}"))?;
        let is_in_time = self.0.last().is_none_or(|last| last.epoch <= place.epoch);
        rule(is_in_time, || format!("view synchrony: position {position} is of an old view"))?;
        self.0.push(place);
        Ok(true)
    }
}

/// A rule that is broken says so in words.
pub(super) fn rule(holds: bool, words: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(words()) }
}

pub(super) fn hash(content: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    content.hash(&mut hasher);
    hasher.finish()
}

/// What an application does whose state is a hash of all that it was told. Says the place of the update.
pub(super) fn apply(state: &mut u64, delivery: &Delivery) -> Place {
    let Delivery { position, epoch, sender, number, ref body } = *delivery;
    let hash = hash(&**body);
    *state = self::hash((*state, position, sender, number, hash));
    Place { epoch, sender, number, hash, state: *state }
}

#[cfg(test)]
mod tests {
    use super::*;
    use comb_types::{Incarnation, NodeId};

    fn place(epoch: u64, number: u64) -> Place {
        let sender = Member { node: NodeId(1), incarnation: Incarnation(1) };
        Place { epoch: ViewEpoch(epoch), sender, number, hash: number, state: number }
    }

    #[test]
    fn what_breaks_the_order_is_named() {
        let mut order = OneOrder::default();
        assert_eq!(order.deliver(0, 1, place(1, 1)), Ok(true));
        assert_eq!(order.deliver(1, 2, place(2, 2)), Ok(true));
        assert_eq!(order.deliver(0, 1, place(1, 1)), Ok(false), "another life");
        assert_eq!((order.len(), order.state(0), order.state(2)), (2, 0, 2));
        let mut broken = |before, position, place| order.deliver(before, position, place).unwrap_err();
        assert!(broken(0, 2, place(2, 2)).starts_with("order: position 2 delivered after 0"));
        assert!(broken(1, 2, place(3, 2)).starts_with("view synchrony: position 2 belongs"));
        assert!(broken(1, 2, place(2, 9)).starts_with("total order: position 2"));
        assert!(broken(3, 4, place(2, 4)).starts_with("order: nobody has delivered"));
        assert!(broken(2, 3, place(1, 3)).starts_with("view synchrony: position 3 is of an old view"));
        assert_eq!(order.lose_beyond(1), [place(2, 2)]);
        assert_eq!((order.deliver(1, 2, place(3, 2)), order.len()), (Ok(true), 2));
    }
}
