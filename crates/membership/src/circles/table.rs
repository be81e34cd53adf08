//! Which circles there are, and who belongs to which: the same at every member at the same position.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use comb_types::NodeId;
use serde::{Deserialize, Serialize};

use super::{EVERYONE, Event, MOST_CIRCLES, Refusal, Reliability, Terms, is_name};
use crate::view::{Member, ViewEpoch};
use crate::wire::PeerError;

/// A circle, from its foundation until nobody belongs to it: the position of the update that founded it. One that is founded anew under
/// the same name is another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub(super) struct CircleId(pub u64);

/// What a member of the base group says of its circles, in the order of all.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum Update<'a> {
    /// It wants to belong to a circle, which is founded on these terms if it is not there.
    Join { name: &'a str, terms: Terms },
    /// It wants to leave one.
    Leave { name: &'a str },
    /// It has something to say in an atomic one, to all of it or to one.
    Say { circle: CircleId, to: Option<NodeId>, body: &'a [u8] },
    /// Said by the first of them: these are the members of the view in which this is said.
    Base { epoch: ViewEpoch, members: Vec<Member> },
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub(super) struct Circle {
    pub name: String,
    pub terms: Terms,
    /// Never empty.
    pub members: BTreeSet<Member>,
}

/// All circles but [`EVERYONE`].
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub(super) struct Table {
    circles: BTreeMap<CircleId, Circle>,
    /// Whether there has ever been one whose messages spread by gossip. From then on all members of the base group take part in that.
    pub has_epidemic: bool,
}

/// The identity of [`EVERYONE`], which is in no table.
pub(super) const BASE: CircleId = CircleId(0);

/// An update, and what is to be known of it besides.
pub(super) struct Said<'a> {
    pub from: Member,
    pub position: u64,
    pub epoch: ViewEpoch,
    pub update: Update<'a>,
}

impl Table {
    /// Whether it may be one: what a peer calls so may be anything.
    pub(super) fn is_sound(&self) -> bool {
        let names: BTreeSet<_> = self.circles.values().map(|circle| &circle.name).collect();
        let is_good = |(&id, circle): (&CircleId, &Circle)| {
            id != BASE && is_name(&circle.name) && circle.terms.is_sound() && !circle.members.is_empty()
        };
        self.circles.len() <= MOST_CIRCLES
            && names.len() == self.circles.len()
            && self.circles.iter().all(is_good)
    }

    pub(super) fn get(&self, id: CircleId) -> Option<&Circle> {
        self.circles.get(&id)
    }

    pub(super) fn len(&self) -> usize {
        self.circles.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (CircleId, &Circle)> {
        self.circles.iter().map(|(&id, circle)| (id, circle))
    }

    /// Applies an update, or finds that it may not be. The events are those of `me`.
    pub(super) fn apply(
        &mut self,
        names: &mut Names,
        me: Member,
        said: &Said<'_>,
    ) -> Result<Vec<Event>, PeerError> {
        let &Said { from, position, epoch, ref update } = said;
        let refuse = |rule| Err(PeerError::new(from.node, rule));
        let event = match *update {
            Update::Join { name, .. } | Update::Leave { name } if !is_name(name) => {
                return refuse("a circle with a name that cannot be");
            }
            Update::Join { terms, .. } if !terms.is_sound() => {
                return refuse("a circle on terms that cannot be");
            }
            Update::Join { name, terms } => {
                let refused = |reason| (from == me).then(|| Event::Refused { circle: name.into(), reason });
                let id = match names.0.get(name) {
                    Some(&id) if self.circles[&id].terms != terms => {
                        return Ok(Vec::from_iter(refused(Refusal::OtherTerms(self.circles[&id].terms))));
                    }
                    Some(&id) => id,
                    None if self.circles.len() == MOST_CIRCLES => {
                        return Ok(Vec::from_iter(refused(Refusal::TooMany)));
                    }
                    None => {
                        let (id, members) = (CircleId(position), BTreeSet::new());
                        self.has_epidemic |= terms.reliability == Reliability::Epidemic;
                        self.circles.insert(id, Circle { name: name.into(), terms, members });
                        names.0.insert(name.into(), id);
                        id
                    }
                };
                let is_new = self.circles.get_mut(&id).is_some_and(|circle| circle.members.insert(from));
                is_new.then(|| self.change(id, me, position, false)).flatten()
            }
            Update::Leave { name } => {
                let Some(&id) = names.0.get(name) else { return Ok(Vec::new()) };
                let has_left = self.circles.get_mut(&id).is_some_and(|circle| circle.members.remove(&from));
                let event = has_left.then(|| self.change(id, me, position, from == me)).flatten();
                if self.circles.get(&id).is_some_and(|circle| circle.members.is_empty()) {
                    self.circles.remove(&id);
                    names.0.remove(name);
                }
                event
            }
            Update::Say { circle: id, to, body } => {
                let is_meant = to.is_none_or(|to| to == me.node);
                let (is_to_one, position) = (to.is_some(), Some(position));
                if id == BASE {
                    return Ok(Vec::from_iter(
                        is_meant.then(|| told(EVERYONE, from, is_to_one, position, body)),
                    ));
                }
                let Some(circle) = self.circles.get(&id) else { return Ok(Vec::new()) };
                // Who has left in the meantime may not have known that it was the last word.
                let is_heard = circle.members.contains(&from) && circle.members.contains(&me);
                (is_heard && is_meant).then(|| told(&circle.name, from, is_to_one, position, body))
            }
            Update::Base { ref members, .. } if members.first() != Some(&from) || !members.is_sorted() => {
                return refuse("a view that its first member has not told of");
            }
            // It was meant for an earlier one. There is, or will be, another word of this.
            Update::Base { epoch: meant, .. } if meant != epoch => None,
            Update::Base { ref members, .. } => return Ok(self.follow(names, me, position, members)),
        };
        Ok(Vec::from_iter(event))
    }

    /// Whether somebody is in a circle who is not among these.
    pub(super) fn has_others_than(&self, members: &[Member]) -> bool {
        let is_other = |member: &Member| members.binary_search(member).is_err();
        self.circles.values().any(|circle| circle.members.iter().any(is_other))
    }

    /// Who has left the base group leaves all circles.
    fn follow(&mut self, names: &mut Names, me: Member, position: u64, base: &[Member]) -> Vec<Event> {
        let mut changed = Vec::new();
        for (&id, circle) in &mut self.circles {
            let before = circle.members.len();
            circle.members.retain(|member| base.binary_search(member).is_ok());
            if circle.members.len() < before {
                changed.push(id);
            }
        }
        let events = changed.iter().filter_map(|&id| self.change(id, me, position, false)).collect();
        for id in changed {
            if self.circles[&id].members.is_empty()
                && let Some(circle) = self.circles.remove(&id)
            {
                names.0.remove(&circle.name);
            }
        }
        events
    }

    /// What `me` is told of who belongs to a circle now.
    pub(super) fn change(&self, id: CircleId, me: Member, since: u64, has_left: bool) -> Option<Event> {
        let circle = self.circles.get(&id)?;
        let members = || circle.members.iter().copied().collect();
        (has_left || circle.members.contains(&me)).then(|| Event::Changed {
            circle: circle.name.clone(),
            since,
            members: members(),
        })
    }
}

pub(super) fn told(circle: &str, from: Member, is_to_one: bool, position: Option<u64>, body: &[u8]) -> Event {
    Event::Told { circle: circle.into(), from, is_to_one, position, body: body.to_vec() }
}

/// The circles by name: made from the table, and kept beside it.
#[derive(Clone, Debug, Default)]
pub(super) struct Names(BTreeMap<String, CircleId>);

impl Names {
    pub(super) fn of(table: &Table) -> Self {
        Self(table.iter().map(|(id, circle)| (circle.name.clone(), id)).collect())
    }

    pub(super) fn find(&self, name: &str) -> Option<CircleId> {
        self.0.get(name).copied()
    }
}
