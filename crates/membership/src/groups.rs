//! How do thousands of small groups live on one? (Galaxy §8.5, §8.8)
//!
//! They have no detectors, no quorums and no view changes of their own. Who belongs to which group is a table that all
//! members of the base group have, and that changes by its ordered updates: so all have the same one at the same position.
//! A group's view is counted by the position of the update that made it. A member that leaves the base group leaves all of
//! its groups, at the same position everywhere, as no update lies across a change of the base view.
//!
//! What is told to a group goes through the base group's order too: every member of the base group gets it, and those that do
//! not belong to the group drop it. That suits what is rare. What is frequent should go to [`Groups::members`] directly.
//!
//! The machine sends nothing itself: what [`Groups::poll_submit`] gives is submitted to [`crate::order`], and what that
//! delivers comes back by [`Input::Delivered`].

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use comb_types::NodeId;
use serde::{Deserialize, Serialize};

use crate::order::Delivery;
use crate::view::{Member, View};
use crate::wire::{PeerError, Protocol, decode, encode};

/// Names a group. Whoever founds one chooses the name; two that choose the same are in one group.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct GroupId(pub u64);

/// What the machine is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Input<'a> {
    /// The base group's order has delivered this, which is for this machine.
    Delivered(&'a Delivery),
    /// The base group has another view, and everything of the one before has been delivered.
    Base(&'a View),
    /// This member wants to belong to a group, which is founded if it is not there.
    Join(GroupId),
    /// This member wants to leave a group.
    Leave(GroupId),
    /// This member has something to say to a group.
    Tell(GroupId, &'a [u8]),
}

/// What the machine tells. All members of a group are told the same in the same order.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Event {
    /// A group that this member belongs to, or has just left, has other members.
    Changed {
        /// Which group.
        group: GroupId,
        /// Counts the group's views: the position of the last base update before it. Two changes by one change of the base
        /// view are one.
        since: u64,
        /// By node. Without this member if it has left.
        members: Vec<Member>,
    },
    /// Somebody said something to a group that this member belongs to. Only members are heard.
    Told {
        /// Which group.
        group: GroupId,
        /// Who said it.
        from: Member,
        /// What.
        body: Vec<u8>,
    },
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
enum Update {
    Join(GroupId),
    Leave(GroupId),
    Tell(GroupId, Vec<u8>),
}

/// The table of all groups, as one member of the base group has it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Groups {
    me: Member,
    /// None is empty.
    members: BTreeMap<GroupId, BTreeSet<Member>>,
    position: u64,
    submits: VecDeque<Vec<u8>>,
    events: VecDeque<Event>,
}

impl Groups {
    /// No groups.
    pub fn new(me: Member) -> Self {
        Self { me, members: BTreeMap::new(), position: 0, submits: VecDeque::new(), events: VecDeque::new() }
    }

    /// The groups of a snapshot: see [`Self::snapshot`].
    pub fn restored(me: Member, from: NodeId, snapshot: &[u8]) -> Result<Self, PeerError> {
        let (position, members) = decode(from, Protocol::Groups, snapshot)?;
        Ok(Self { position, members, ..Self::new(me) })
    }

    /// The table, for a joiner's snapshot. The same bytes at every member at the same position.
    pub fn snapshot(&self) -> Vec<u8> {
        encode(Protocol::Groups, &(self.position, &self.members))
    }

    /// Feeds one input. The error is of an update that its sender, a member of the base group, may not send; every member
    /// says it.
    pub fn handle(&mut self, input: Input<'_>) -> Result<(), PeerError> {
        match input {
            Input::Delivered(delivery) => return self.delivered(delivery),
            Input::Base(view) => self.follow(view),
            Input::Join(group) => self.submit(&Update::Join(group)),
            Input::Leave(group) => self.submit(&Update::Leave(group)),
            Input::Tell(group, body) => self.submit(&Update::Tell(group, body.to_vec())),
        }
        Ok(())
    }

    /// The next update to be submitted to the base group, at least at the level of a majority.
    pub fn poll_submit(&mut self) -> Option<Vec<u8>> {
        self.submits.pop_front()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// The members of a group, by node; nobody if there is none of that name.
    pub fn members(&self, group: GroupId) -> impl Iterator<Item = Member> + '_ {
        self.members.get(&group).into_iter().flatten().copied()
    }

    /// How many groups there are.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    fn submit(&mut self, update: &Update) {
        self.submits.push_back(encode(Protocol::Groups, update));
    }

    fn delivered(&mut self, delivery: &Delivery) -> Result<(), PeerError> {
        self.position = delivery.position;
        let from = delivery.sender;
        match decode(from.node, Protocol::Groups, &delivery.body)? {
            Update::Join(group) => {
                if self.members.entry(group).or_default().insert(from) {
                    self.tell_change(group, false);
                }
            }
            Update::Leave(group) => self.remove(group, from),
            Update::Tell(group, body) => {
                let members = self.members.get(&group);
                let is_member = |member| members.is_some_and(|members| members.contains(member));
                // Who has left in the meantime may not have known that it was the last word.
                if is_member(&from) && is_member(&self.me) {
                    self.events.push_back(Event::Told { group, from, body });
                }
            }
        }
        Ok(())
    }

    fn remove(&mut self, group: GroupId, member: Member) {
        let Some(members) = self.members.get_mut(&group) else { return };
        if !members.remove(&member) {
            return;
        }
        self.tell_change(group, member == self.me);
        self.members.retain(|other, members| *other != group || !members.is_empty());
    }

    /// Who has left the base group has left all others.
    fn follow(&mut self, view: &View) {
        let mut changed = Vec::new();
        for (&group, members) in &mut self.members {
            let before = members.len();
            members.retain(|member| view.members.contains(member));
            if members.len() < before {
                changed.push(group);
            }
        }
        for group in changed {
            self.tell_change(group, false);
        }
        self.members.retain(|_, members| !members.is_empty());
    }

    fn tell_change(&mut self, group: GroupId, has_left: bool) {
        let Some(members) = self.members.get(&group) else { return };
        if has_left || members.contains(&self.me) {
            let (since, members) = (self.position, members.iter().copied().collect());
            self.events.push_back(Event::Changed { group, since, members });
        }
    }
}

#[cfg(test)]
mod tests {
    use comb_types::Incarnation;
    use proptest::prelude::*;

    use super::*;
    use crate::order::Body;
    use crate::view::ViewEpoch;

    const RED: GroupId = GroupId(1);
    const BLUE: GroupId = GroupId(2);

    fn member(node: u32) -> Member {
        Member { node: NodeId(node), incarnation: Incarnation(1) }
    }

    fn deliver(position: u64, sender: Member, body: &[u8]) -> Delivery {
        Delivery { position, epoch: ViewEpoch(1), sender, number: position, body: Body::from(body) }
    }

    /// Three members, whose updates come to all in the order in which they are submitted.
    struct Base {
        all: Vec<Groups>,
        position: u64,
    }

    impl Base {
        fn new() -> Self {
            Self { all: (0..3).map(|node| Groups::new(member(node))).collect(), position: 0 }
        }

        fn input(&mut self, node: usize, input: Input<'_>) {
            self.all[node].handle(input).unwrap();
            while let Some(body) = self.all[node].poll_submit() {
                self.position += 1;
                let delivery = deliver(self.position, self.all[node].me, &body);
                self.all.iter_mut().for_each(|groups| groups.handle(Input::Delivered(&delivery)).unwrap());
            }
        }

        fn events(&mut self, node: usize) -> Vec<Event> {
            core::iter::from_fn(|| self.all[node].poll_event()).collect()
        }
    }

    fn changed(group: GroupId, since: u64, nodes: &[u32]) -> Event {
        Event::Changed { group, since, members: nodes.iter().map(|&node| member(node)).collect() }
    }

    #[test]
    fn members_see_the_changes_and_hear_the_words_of_their_groups_only() {
        let mut base = Base::new();
        base.input(0, Input::Join(RED));
        base.input(1, Input::Join(RED));
        base.input(2, Input::Join(BLUE));
        base.input(2, Input::Tell(RED, b"from outside"));
        base.input(1, Input::Tell(RED, b"hello"));
        base.input(1, Input::Leave(RED));
        base.input(1, Input::Leave(RED));
        base.input(0, Input::Join(RED));
        let told = Event::Told { group: RED, from: member(1), body: b"hello".to_vec() };
        assert_eq!(
            base.events(0),
            [changed(RED, 1, &[0]), changed(RED, 2, &[0, 1]), told.clone(), changed(RED, 6, &[0])]
        );
        assert_eq!(base.events(1), [changed(RED, 2, &[0, 1]), told, changed(RED, 6, &[0])]);
        assert_eq!(base.events(2), [changed(BLUE, 3, &[2])]);
    }

    #[test]
    fn who_leaves_the_base_group_leaves_all_others_and_empty_ones_go() {
        let mut base = Base::new();
        base.input(0, Input::Join(RED));
        base.input(1, Input::Join(RED));
        base.input(1, Input::Join(BLUE));
        base.events(0);
        let view = View { members: alloc::vec![member(0), member(2)], ..View::founded_by(member(0)) };
        base.input(0, Input::Base(&view));
        assert_eq!(base.events(0), [changed(RED, 3, &[0])]);
        assert_eq!((base.all[0].len(), base.all[0].members(BLUE).count()), (1, 0));
        base.input(0, Input::Leave(RED));
        assert!(base.all[0].is_empty());
    }

    #[test]
    fn a_joiner_has_the_table_of_its_sponsor() {
        let mut base = Base::new();
        base.input(0, Input::Join(RED));
        base.input(1, Input::Join(BLUE));
        let snapshot = base.all[0].snapshot();
        assert_eq!(snapshot, base.all[2].snapshot(), "all have the same");
        let joiner = Groups::restored(member(3), NodeId(0), &snapshot).unwrap();
        assert_eq!(joiner.members(RED).collect::<Vec<_>>(), [member(0)]);
        assert_eq!((joiner.len(), joiner.snapshot()), (2, snapshot));
        assert!(Groups::restored(member(3), NodeId(0), b"no snapshot").is_err());
    }

    proptest! {
        #[test]
        fn what_is_no_update_is_refused_and_changes_nothing_but_the_position(
            bytes in proptest::collection::vec(any::<u8>(), 0..20),
        ) {
            let mut groups = Groups::new(member(0));
            groups.handle(Input::Delivered(&deliver(1, member(1), &encode(Protocol::Groups, &Update::Join(RED))))).unwrap();
            let before = groups.clone();
            if let Err(error) = groups.handle(Input::Delivered(&deliver(2, member(1), &bytes))) {
                prop_assert_eq!(error.from, NodeId(1));
                prop_assert_eq!(groups.position, 2);
                groups.position = 1;
                prop_assert_eq!(groups, before);
            }
        }
    }
}
