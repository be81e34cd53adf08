//! Which circles there are, and who belongs to which: the same at every member at the same position.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
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
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Table {
    circles: BTreeMap<CircleId, Circle>,
    /// They all by their names.
    #[serde(skip)]
    names: BTreeMap<String, CircleId>,
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
    pub(super) fn write(&self) -> Vec<u8> {
        postcard::to_allocvec(self).expect("our own table can be written")
    }

    /// None if it cannot be one: what a peer calls so may be anything.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let (mut table, rest) = postcard::take_from_bytes::<Self>(bytes).ok()?;
        table.names = table.iter().map(|(id, circle)| (circle.name.clone(), id)).collect();
        let is_good = |(&id, circle): (&CircleId, &Circle)| {
            id != BASE && is_name(&circle.name) && circle.terms.is_sound() && !circle.members.is_empty()
        };
        let is_sound = rest.is_empty()
            && table.circles.len() <= MOST_CIRCLES
            && table.names.len() == table.circles.len()
            && table.circles.iter().all(is_good);
        is_sound.then_some(table)
    }

    pub(super) fn find(&self, name: &str) -> Option<CircleId> {
        self.names.get(name).copied()
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
        me: Member,
        said: &Said<'_>,
        events: &mut VecDeque<Event>,
    ) -> Result<(), PeerError> {
        let &Said { from, position, epoch, ref update } = said;
        let refuse = |rule| Err(PeerError::new(from.node, rule));
        match *update {
            Update::Join { name, .. } | Update::Leave { name } if !is_name(name) => {
                return refuse("a circle with a name that cannot be");
            }
            Update::Join { terms, .. } if !terms.is_sound() => {
                return refuse("a circle on terms that cannot be");
            }
            Update::Join { name, terms } => match self.join(from, position, name, terms) {
                Ok(Some(id)) => events.extend(self.change(id, me, position, false)),
                Err(reason) if from == me => {
                    events.push_back(Event::Refused { circle: name.into(), reason });
                }
                Ok(None) | Err(_) => {}
            },
            Update::Leave { name } => events.extend(self.leave(me, from, position, name)),
            Update::Say { circle, to, body } => {
                let name = self.name_if_heard(circle, from, me);
                let name = name.filter(|_| to.is_none_or(|to| to == me.node));
                events.extend(name.map(|name| told(name, from, to.is_some(), Some(position), body)));
            }
            Update::Base { ref members, .. } if members.first() != Some(&from) || !members.is_sorted() => {
                return refuse("a view that its first member has not told of");
            }
            // It was meant for an earlier one. There is, or will be, another word of this.
            Update::Base { epoch: meant, .. } if meant != epoch => {}
            Update::Base { ref members, .. } => events.extend(self.follow(me, position, members)),
        }
        Ok(())
    }

    /// In which circle somebody is new, if that is so.
    fn join(
        &mut self,
        from: Member,
        position: u64,
        name: &str,
        terms: Terms,
    ) -> Result<Option<CircleId>, Refusal> {
        let id = match self.find(name) {
            Some(id) if self.circles[&id].terms != terms => {
                return Err(Refusal::OtherTerms(self.circles[&id].terms));
            }
            Some(id) => id,
            None if self.circles.len() == MOST_CIRCLES => return Err(Refusal::TooMany),
            None => {
                let (id, members) = (CircleId(position), BTreeSet::new());
                self.has_epidemic |= terms.reliability == Reliability::Epidemic;
                self.circles.insert(id, Circle { name: name.into(), terms, members });
                self.names.insert(name.into(), id);
                id
            }
        };
        let is_new = self.circles.get_mut(&id).is_some_and(|circle| circle.members.insert(from));
        Ok(is_new.then_some(id))
    }

    fn leave(&mut self, me: Member, from: Member, position: u64, name: &str) -> Option<Event> {
        let id = self.find(name)?;
        let has_left = self.circles.get_mut(&id)?.members.remove(&from);
        let event = has_left.then(|| self.change(id, me, position, from == me)).flatten();
        self.remove_if_empty(id);
        event
    }

    fn remove_if_empty(&mut self, id: CircleId) {
        if self.circles[&id].members.is_empty()
            && let Some(circle) = self.circles.remove(&id)
        {
            self.names.remove(&circle.name);
        }
    }

    /// The name of a circle in which `me` hears `from`. Who has left in the meantime may not have known that it was the last word.
    pub(super) fn name_if_heard(&self, id: CircleId, from: Member, me: Member) -> Option<&str> {
        if id == BASE {
            return Some(EVERYONE);
        }
        let circle = self.circles.get(&id)?;
        (circle.members.contains(&from) && circle.members.contains(&me)).then_some(&circle.name)
    }

    /// Whether somebody is in a circle who is not among these.
    pub(super) fn has_others_than(&self, members: &[Member]) -> bool {
        let is_other = |member: &Member| members.binary_search(member).is_err();
        self.circles.values().any(|circle| circle.members.iter().any(is_other))
    }

    /// Who has left the base group leaves all circles.
    fn follow(&mut self, me: Member, position: u64, base: &[Member]) -> Vec<Event> {
        let mut changed = Vec::new();
        for (&id, circle) in &mut self.circles {
            let before = circle.members.len();
            circle.members.retain(|member| base.binary_search(member).is_ok());
            if circle.members.len() < before {
                changed.push(id);
            }
        }
        let events = changed.iter().filter_map(|&id| self.change(id, me, position, false)).collect();
        changed.into_iter().for_each(|id| self.remove_if_empty(id));
        events
    }

    /// What `me` is told of who belongs to a circle now.
    pub(super) fn change(&self, id: CircleId, me: Member, since: u64, has_left: bool) -> Option<Event> {
        let circle = self.circles.get(&id)?;
        (has_left || circle.members.contains(&me)).then(|| {
            let members = circle.members.iter().copied().collect();
            Event::Changed { circle: circle.name.clone(), since, members }
        })
    }
}

pub(super) fn told(circle: &str, from: Member, is_to_one: bool, position: Option<u64>, body: &[u8]) -> Event {
    Event::Told { circle: circle.into(), from, is_to_one, position, body: body.to_vec() }
}
