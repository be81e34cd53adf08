//! Which part of a group may go on. (MSCS §7.7.2)
//!
//! Safety of [`crate::regroup`] rests on one property: any two quorums of one view have a member in common that is not
//! fenced, or the quorum resource.

use alloc::collections::BTreeMap;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use comb_types::NodeId;
use serde::{Deserialize, Serialize};

use crate::view::{Member, View, ViewEpoch};

/// What a quorum may rest on besides those who are present.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Basis {
    /// Members that are proven dead, and had agreed to no later view, or are too few to have decided one by themselves. Everybody
    /// present must hold that proof.
    pub fenced: Vec<NodeId>,
    /// Whether the quorum resource has granted this view's epoch to the one that is present.
    pub resource: bool,
}

/// What those who are present are, taken together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Presence {
    /// More than half of the members.
    Majority,
    /// Exactly half, at least two, with the tie-breaker.
    HalfWithTieBreaker,
    /// All that are not fenced.
    Remainder,
    /// One of two, with the quorum resource.
    OneWithResource,
    /// One of two, which the quorum resource could make a quorum.
    NeedsResource,
    /// Not enough.
    Minority,
}

impl Presence {
    /// Whether they may go on.
    pub fn is_quorum(self) -> bool {
        !matches!(self, Self::NeedsResource | Self::Minority)
    }
}

/// Judges those who are present. Who is no member does not count.
///
/// The fenced leave the denominator only if nobody else is missing. If they left it always, this could be: of seven, four
/// decide to go on without the other three, which cannot be reached; three of the four are fenced; the fourth goes on alone,
/// and the other three, a majority of the four that are not fenced, go on too.
pub fn judge(view: &View, present: &BTreeSet<NodeId>, basis: &Basis) -> Presence {
    let members = view.members.len();
    let here = view.nodes().filter(|node| present.contains(node)).count();
    let missing = || view.nodes().filter(|node| !present.contains(node));
    if 2 * here > members {
        Presence::Majority
    } else if 2 * here == members && here >= 2 && present.contains(&view.tie_breaker) {
        Presence::HalfWithTieBreaker
    } else if here >= 1 && missing().all(|node| basis.fenced.contains(&node)) {
        Presence::Remainder
    } else if here == 1 && members == 2 {
        if basis.resource { Presence::OneWithResource } else { Presence::NeedsResource }
    } else {
        Presence::Minority
    }
}

/// An arbiter between two halves of a view of two: a lock on a disk that both reach, for example.
///
/// Machines do no input or output: the driver asks it when [`crate::regroup::Event::Acquire`] says so, and hands the answer in.
pub trait QuorumResource {
    /// Grants an epoch once, to the member that asks first. Who asks again hears the same.
    fn try_acquire(&mut self, epoch: ViewEpoch, member: Member) -> bool;
}

/// A quorum resource of one process, for simulations and tests.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct ResourceInMemory {
    grants: BTreeMap<ViewEpoch, Member>,
}

impl QuorumResource for ResourceInMemory {
    fn try_acquire(&mut self, epoch: ViewEpoch, member: Member) -> bool {
        *self.grants.entry(epoch).or_insert(member) == member
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use comb_types::Incarnation;
    use proptest::prelude::*;

    fn member(node: u32) -> Member {
        Member { node: NodeId(node), incarnation: Incarnation(1) }
    }

    fn view(members: u32, tie_breaker: u32) -> View {
        View {
            epoch: ViewEpoch(1),
            members: (0..members).map(member).collect(),
            tie_breaker: NodeId(tie_breaker),
        }
    }

    fn standing(members: u32, tie_breaker: u32, present: &[u32], fenced: &[u32], resource: bool) -> Presence {
        let basis = Basis { fenced: fenced.iter().map(|&node| NodeId(node)).collect(), resource };
        judge(&view(members, tie_breaker), &present.iter().map(|&node| NodeId(node)).collect(), &basis)
    }

    #[test]
    fn the_rules_of_survival() {
        assert_eq!(standing(5, 0, &[2, 3, 4], &[], false), Presence::Majority);
        assert_eq!(standing(5, 0, &[0, 1], &[], false), Presence::Minority);
        assert_eq!(standing(4, 3, &[0, 3], &[], false), Presence::HalfWithTieBreaker);
        assert_eq!(standing(4, 3, &[0, 1], &[], false), Presence::Minority);
        assert_eq!(standing(2, 0, &[0], &[], false), Presence::NeedsResource, "one is not two");
        assert_eq!(standing(2, 0, &[1], &[], true), Presence::OneWithResource);
        assert_eq!(standing(3, 0, &[0], &[], true), Presence::Minority, "the resource is for two");
        assert_eq!(standing(1, 0, &[0], &[], false), Presence::Majority);
    }

    #[test]
    fn the_fenced_do_not_count_if_nobody_else_is_missing() {
        assert_eq!(standing(5, 4, &[0, 1], &[2, 3, 4], false), Presence::Remainder);
        assert_eq!(standing(2, 1, &[0], &[1], false), Presence::Remainder);
        assert_eq!(standing(7, 6, &[0, 1, 2], &[4, 5, 6], false), Presence::Minority, "3 may have gone on");
        assert_eq!(standing(2, 0, &[], &[0, 1], false), Presence::Minority, "nobody is left");
    }

    #[test]
    fn strangers_do_not_count() {
        assert_eq!(standing(4, 0, &[1, 2, 8, 9], &[], false), Presence::Minority);
    }

    #[test]
    fn the_resource_grants_an_epoch_once() {
        let mut resource = ResourceInMemory::default();
        assert!(resource.try_acquire(ViewEpoch(4), member(1)));
        assert!(!resource.try_acquire(ViewEpoch(4), member(0)));
        assert!(resource.try_acquire(ViewEpoch(4), member(1)));
        assert!(resource.try_acquire(ViewEpoch(5), member(0)));
    }

    fn nodes(bits: u32) -> BTreeSet<NodeId> {
        (0..8).filter(|node| bits & 1 << node != 0).map(NodeId).collect()
    }

    proptest! {
        /// Without proofs of death, any two quorums share a member, or both need the resource. With them, the quorum that
        /// holds the proof shares a living member with every other that is not wholly among the dead.
        #[test]
        fn two_quorums_meet(
            members in 1_u32..9,
            tie in 0_u32..8,
            one in 0_u32..256,
            other in 0_u32..256,
            dead in prop_oneof![Just(0), 0_u32..256],
            are_parts: bool,
        ) {
            // Two parts of a view are the hardest case, and rare among all pairs.
            let two = if are_parts { !one } else { other };
            let view = view(members, tie % members);
            let (one, two, dead) = (nodes(one), nodes(two), nodes(dead));
            let basis = Basis { fenced: dead.iter().copied().collect(), resource: true };
            let living: BTreeSet<_> = one.difference(&dead).copied().collect();
            let with_proof = judge(&view, &living, &basis);
            let without = judge(&view, &two, &Basis { fenced: Vec::new(), resource: true });
            let both = with_proof.is_quorum() && without.is_quorum();
            let both_by_resource = with_proof == Presence::OneWithResource && without == Presence::OneWithResource;
            let all_dead = view.nodes().filter(|node| two.contains(node)).all(|node| dead.contains(&node));
            let meet = view.nodes().any(|node| living.contains(&node) && two.contains(&node));
            prop_assert!(!both || meet || both_by_resource || all_dead);
        }
    }
}
