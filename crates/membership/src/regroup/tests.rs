//! Small groups with a network that delivers everything at once, in order.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::vec::Vec;

use comb_types::{Incarnation, NodeId, Time};

use super::message::{Ballot, Body, Message};
use super::*;
use crate::quorum::{QuorumResource, ResourceInMemory};

pub(super) fn member(node: u32) -> Member {
    Member { node: NodeId(node), incarnation: Incarnation(1) }
}

pub(super) fn first_view(members: u32) -> View {
    View { epoch: ViewEpoch(1), members: (0..members).map(member).collect(), tie_breaker: NodeId(0) }
}

/// Members whose drivers answer at once.
pub(super) struct Group {
    pub(super) machines: BTreeMap<NodeId, Regroup>,
    pub(super) positions: BTreeMap<NodeId, u64>,
    pub(super) events: BTreeMap<NodeId, Vec<Event>>,
    network: VecDeque<(NodeId, Transmit)>,
    /// What these lack of a cut they do not get before it is agreed.
    pub(super) slow: BTreeSet<NodeId>,
    /// Nothing goes from the first to the second.
    pub(super) cut: BTreeSet<(u32, u32)>,
    resource: ResourceInMemory,
    pub(super) now: Time,
    pub(super) sent: u64,
    pub(super) liar: Option<NodeId>,
}

impl Group {
    /// Members of one view, which is settled.
    pub(super) fn settled(members: u32) -> Self {
        let mut group = Self {
            machines: BTreeMap::new(),
            positions: (0..members).map(|node| (NodeId(node), 0)).collect(),
            events: BTreeMap::new(),
            network: VecDeque::new(),
            slow: BTreeSet::new(),
            cut: BTreeSet::new(),
            resource: ResourceInMemory::default(),
            now: Time::from_millis(1),
            sent: 0,
            liar: None,
        };
        for node in 0..members {
            let machine =
                Regroup::joining(member(node), Timing::default(), group.now, first_view(members), 0);
            group.machines.insert(NodeId(node), machine);
        }
        (0..members).for_each(|node| group.input(node, Input::Flushed));
        group.deliver();
        group.sent = 0;
        group
    }

    pub(super) fn input(&mut self, node: u32, input: Input<'_>) {
        let now = self.now;
        let Some(machine) = self.machines.get_mut(&NodeId(node)) else { return };
        if let Err(error) = machine.handle(now, input) {
            assert_eq!(Some(error.from), self.liar, "everybody else keeps the rules: {error}");
        }
        self.drain(node);
    }

    fn drain(&mut self, node: u32) {
        let id = NodeId(node);
        loop {
            let machine = self.machines.get_mut(&id).expect("it is there");
            while let Some(transmit) = machine.poll_transmit() {
                self.sent += 1;
                self.network.push_back((id, transmit));
            }
            let Some(event) = machine.poll_event() else { break };
            self.events.entry(id).or_default().push(event.clone());
            let answer = match event {
                Event::Freeze { .. } => Input::Position(self.positions[&id]),
                Event::Reach { .. } if self.slow.contains(&id) => continue,
                Event::Reach { cut, .. } => {
                    self.positions.insert(id, cut);
                    Input::Position(cut)
                }
                Event::Acquire { epoch, .. } => {
                    Input::Acquired { epoch, granted: self.resource.try_acquire(epoch, member(node)) }
                }
                Event::Decided { cut, .. } => {
                    self.positions.insert(id, cut);
                    Input::Flushed
                }
                _ => continue,
            };
            let now = self.now;
            self.machines
                .get_mut(&id)
                .expect("it is there")
                .handle(now, answer)
                .expect("no peer is involved");
        }
    }

    pub(super) fn deliver(&mut self) {
        while let Some((from, transmit)) = self.network.pop_front() {
            if !self.cut.contains(&(from.0, transmit.to.0)) {
                self.input(transmit.to.0, Input::Message { from, bytes: &transmit.bytes });
            }
        }
    }

    /// Lets so many timeouts come, each when it is due.
    pub(super) fn pass(&mut self, timeouts: u32) {
        for _ in 0..timeouts {
            self.wait();
            self.deliver();
        }
    }

    /// Until the next timeout.
    fn wait(&mut self) {
        let due = self.machines.values().filter_map(Regroup::next_timeout).min();
        let Some(due) = due else { return };
        self.now = self.now.max(due);
        let ready: Vec<_> = self.machines.keys().map(|node| node.0).collect();
        ready.into_iter().for_each(|node| self.input(node, Input::Timeout));
    }

    pub(super) fn crash(&mut self, node: u32) {
        self.machines.remove(&NodeId(node));
    }

    /// All that are left hear of it.
    pub(super) fn everybody_suspects(&mut self, node: u32, strength: Strength) {
        let nodes: Vec<_> = self.machines.keys().map(|node| node.0).collect();
        nodes.into_iter().for_each(|at| self.input(at, Input::Suspect(member(node), strength)));
    }

    pub(super) fn settled_views(&self, node: u32) -> Vec<Vec<u32>> {
        let settled = self.events.get(&NodeId(node)).into_iter().flatten().filter_map(|event| match event {
            Event::Settled(view) => Some(view.nodes().map(|node| node.0).collect()),
            _ => None,
        });
        settled.skip(1).collect()
    }

    fn has_told(&self, node: u32, wanted: impl Fn(&Event) -> bool) -> bool {
        self.events.get(&NodeId(node)).into_iter().flatten().any(wanted)
    }

    pub(super) fn is_excluded(&self, node: u32) -> bool {
        self.has_told(node, |event| matches!(event, Event::Excluded { .. }))
    }

    fn is_stuck(&self, node: u32) -> bool {
        self.has_told(node, |event| matches!(event, Event::Stuck { .. }))
    }
}

#[test]
fn one_that_failed_is_out_without_any_timeout() {
    let mut group = Group::settled(5);
    for (node, position) in [(1, 16), (2, 19), (3, 17)] {
        group.positions.insert(NodeId(node), position);
    }
    group.crash(4);
    group.everybody_suspects(4, Strength::Failed);
    group.deliver();
    for node in 0..4 {
        assert_eq!(group.settled_views(node), [[0, 1, 2, 3]], "at {node}");
        assert_eq!(
            group.positions[&NodeId(node)],
            17,
            "with the dead one, that many may have held a committed update"
        );
    }
}

#[test]
fn the_next_coordinates_when_the_first_has_failed() {
    let mut group = Group::settled(5);
    group.crash(0);
    group.everybody_suspects(0, Strength::Failed);
    group.deliver();
    assert_eq!(group.settled_views(4), [[1, 2, 3, 4]]);
}

#[test]
fn a_suspected_member_that_answers_stays() {
    let mut group = Group::settled(3);
    group.now = Time::from_millis(10_000);
    group.input(1, Input::Suspect(member(2), Strength::Suspected));
    group.deliver();
    group.pass(100);
    assert_eq!(group.settled_views(2), [[0, 1, 2]], "and the suspicion has gone with that");
}

#[test]
fn after_a_change_only_what_is_sure_is_a_reason_for_the_next_at_once() {
    let mut group = Group::settled(5);
    group.now = Time::from_millis(10_000);
    group.crash(4);
    group.everybody_suspects(4, Strength::Failed);
    group.deliver();
    group.input(0, Input::Suspect(member(3), Strength::Suspected));
    group.deliver();
    assert_eq!(group.settled_views(0).len(), 1, "not yet");
    group.pass(30);
    assert_eq!(group.settled_views(0).len(), 2);
}

/// It would bring a view to an end that others have gone on from.
#[test]
fn who_froze_on_the_way_into_a_view_and_then_reached_the_cut_says_so_to_the_next_coordinator() {
    let now = Time::from_millis(1);
    let mut machine = Regroup::joining(member(1), Timing::default(), now, first_view(3), 7);
    let promised = |machine: &mut Regroup, number| {
        let body = Body::Prepare { ballot: Ballot { number, node: NodeId(0) } };
        let message = Message { sender: member(0), epoch: ViewEpoch(1), body };
        let bytes = wire::encode(Protocol::Regroup, &message);
        machine.handle(now, Input::Message { from: NodeId(0), bytes: &bytes }).expect("honest");
        if number == 1 {
            machine.handle(now, Input::Position(3)).expect("own");
        }
        machine.out.drain(..).find_map(|(_, message)| match message.body {
            Body::Promise { promise, .. } => Some(promise.position),
            _ => None,
        })
    };
    assert_eq!(promised(&mut machine, 1), Some(3));
    machine.handle(now, Input::Flushed).expect("own");
    assert_eq!(promised(&mut machine, 2), Some(7));
}

#[test]
fn who_raises_the_same_false_alarm_twice_is_not_heard_a_third_time() {
    let mut group = Group::settled(4);
    let accuse = |group: &mut Group, accuser, accused| {
        group.now = group.now.saturating_add(Duration::from_secs(10));
        group.input(accuser, Input::Suspect(member(accused), Strength::Suspected));
        group.deliver();
        group.pass(10);
        group.settled_views(0).len()
    };
    assert_eq!(accuse(&mut group, 1, 2), 1);
    assert_eq!(accuse(&mut group, 1, 2), 2);
    assert_eq!(accuse(&mut group, 1, 2), 2, "it has been wrong twice");
    assert_eq!(accuse(&mut group, 1, 3), 3, "about another it may be right");
    assert_eq!(accuse(&mut group, 0, 2), 4, "and another about that one");
    group.now = group.now.saturating_add(Duration::from_secs(600));
    assert_eq!(accuse(&mut group, 1, 2), 5, "it was long ago");
    assert!(group.settled_views(0).iter().all(|view| *view == [0, 1, 2, 3]), "nobody leaves for it");
    group.crash(2);
    group.input(1, Input::Suspect(member(2), Strength::Failed));
    group.deliver();
    group.pass(20);
    assert_eq!(group.settled_views(0).last(), Some(&std::vec![0, 1, 3]), "what is certain always counts");
}

#[test]
fn a_suspected_member_that_is_silent_is_waited_for_and_then_out() {
    let mut group = Group::settled(4);
    group.now = Time::from_millis(10_000);
    group.crash(3);
    group.input(0, Input::Suspect(member(3), Strength::Suspected));
    group.deliver();
    assert_eq!(group.settled_views(0), Vec::<Vec<u32>>::new(), "one detector is not a quorum of them");
    group.pass(20);
    assert_eq!(group.settled_views(0), [[0, 1, 2]]);
}

#[test]
fn a_minority_is_stuck_and_what_was_left_behind_halts_when_it_hears_of_it() {
    let mut group = Group::settled(5);
    for (one, two) in [(0, 2), (0, 3), (0, 4), (1, 2), (1, 3), (1, 4)] {
        group.cut.insert((one, two));
        group.cut.insert((two, one));
        group.input(one, Input::Suspect(member(two), Strength::Failed));
        group.input(two, Input::Suspect(member(one), Strength::Failed));
    }
    group.deliver();
    group.pass(40);
    assert_eq!(group.settled_views(4), [[2, 3, 4]]);
    assert!(group.is_stuck(0));
    assert!(!group.is_excluded(0) && !group.is_excluded(1), "they cannot know");
    group.cut.clear();
    group.pass(40);
    assert!(group.is_excluded(0) && group.is_excluded(1));
    assert_eq!(group.settled_views(0), Vec::<Vec<u32>>::new());
}

#[test]
fn of_two_the_one_with_the_quorum_resource_goes_on() {
    let mut group = Group::settled(2);
    group.cut.extend([(0, 1), (1, 0)]);
    group.input(1, Input::Suspect(member(0), Strength::Failed));
    group.deliver();
    assert_eq!(group.settled_views(1), [[1]]);
    group.input(0, Input::Suspect(member(1), Strength::Failed));
    group.pass(10);
    assert!(group.is_stuck(0));
    group.cut.clear();
    group.pass(20);
    assert!(group.is_excluded(0));
}

#[test]
fn all_that_are_not_fenced_go_on_however_few() {
    let mut group = Group::settled(5);
    for node in [2, 3, 4] {
        group.crash(node);
        group.everybody_suspects(node, Strength::Failed);
    }
    group.pass(30);
    assert_eq!(group.settled_views(0), Vec::<Vec<u32>>::new(), "two of five are no quorum");
    for node in [2, 3, 4] {
        group.everybody_suspects(node, Strength::Fenced);
    }
    group.pass(30);
    assert_eq!(group.settled_views(0), [[0, 1]]);
    assert_eq!(group.settled_views(1), [[0, 1]]);
}

/// Those who have accepted may be all that a decision rests on: who reads only their last words must know that there may be one.
#[test]
fn who_has_accepted_has_agreed_though_nothing_is_decided() {
    let mut group = Group::settled(3);
    let agreed = |group: &Group| {
        let machine = &group.machines[&NodeId(1)];
        (machine.accepted.is_some(), machine.agreed(), machine.view().epoch)
    };
    group.crash(2);
    group.everybody_suspects(2, Strength::Failed);
    assert_eq!(agreed(&group), (false, ViewEpoch(1), ViewEpoch(1)));
    while !agreed(&group).0 {
        let (from, transmit) = group.network.pop_front().expect("it is asked to accept");
        group.input(transmit.to.0, Input::Message { from, bytes: &transmit.bytes });
    }
    assert_eq!(agreed(&group), (true, ViewEpoch(2), ViewEpoch(1)));
    group.deliver();
    assert_eq!(agreed(&group), (false, ViewEpoch(2), ViewEpoch(2)));
}

#[test]
fn a_broken_link_is_pruned_at_the_end_that_complains() {
    let mut group = Group::settled(4);
    group.now = Time::from_millis(10_000);
    group.cut.insert((3, 2));
    group.input(2, Input::Suspect(member(3), Strength::Unreachable));
    group.deliver();
    group.pass(3);
    assert_eq!(group.settled_views(0), [[0, 1, 3]]);
    assert!(group.is_excluded(2));
}

#[test]
fn the_pruned_serve_until_the_view_is_installed() {
    let mut group = Group::settled(5);
    group.now = Time::from_millis(10_000);
    group.positions.insert(NodeId(2), 9);
    group.crash(3);
    group.crash(4);
    group.input(2, Input::Suspect(member(1), Strength::Unreachable));
    group.everybody_suspects(3, Strength::Failed);
    group.everybody_suspects(4, Strength::Failed);
    group.deliver();
    let holders = group.events[&NodeId(0)].iter().rev().find_map(|event| match event {
        Event::Decided { holders, .. } => Some(holders.clone()),
        _ => None,
    });
    assert_eq!(holders, Some(std::vec![NodeId(2)]), "only one that goes has the last updates");
    assert!(group.is_excluded(2), "and in the end it goes");
}

/// A cut that the coordinator alone had reached died with it, and then four of five members stood still for good.
#[test]
fn a_view_does_not_end_at_a_cut_that_no_quorum_has_reached() {
    let mut group = Group::settled(5);
    group.positions.insert(NodeId(0), 9);
    group.slow.extend([NodeId(1), NodeId(2)]);
    let between = [(0, 3), (0, 4), (1, 3), (1, 4), (2, 3), (2, 4)];
    for (one, two) in between {
        group.cut.extend([(one, two), (two, one)]);
        group.input(one, Input::Suspect(member(two), Strength::Failed));
        group.input(two, Input::Suspect(member(one), Strength::Failed));
    }
    group.deliver();
    group.pass(40);
    assert!(
        (0..5).all(|node| group.machines[&NodeId(node)].view().epoch == ViewEpoch(1)),
        "one of five has reached it"
    );
    group.crash(0);
    group.cut.clear();
    for (one, two) in between {
        group.input(one, Input::Heard(NodeId(two)));
        group.input(two, Input::Heard(NodeId(one)));
    }
    group.everybody_suspects(0, Strength::Failed);
    group.pass(200);
    for node in 1..5 {
        assert_eq!(group.settled_views(node).last(), Some(&std::vec![1, 2, 3, 4]), "at {node}");
        assert_eq!(group.positions[&NodeId(node)], 0, "what no other member holds was promised to nobody");
    }
}

/// It halted half a second later, whether anybody had heard of it or not, and was missing in a quorum.
#[test]
fn a_coordinator_that_decided_without_itself_stays_until_the_others_have_gone_on() {
    let mut group = Group::settled(4);
    let step_until = |group: &mut Group, is_there: &dyn Fn(&Group) -> bool| {
        for _ in 0..10_000 {
            if is_there(group) {
                return;
            }
            match group.network.pop_front() {
                Some((from, transmit)) => {
                    group.input(transmit.to.0, Input::Message { from, bytes: &transmit.bytes });
                }
                None => group.wait(),
            }
        }
        panic!("it does not come to that");
    };
    group.now = Time::from_millis(10_000);
    group.cut.insert((2, 1));
    group.input(1, Input::Suspect(member(2), Strength::Unreachable));
    step_until(&mut group, &|group| group.machines[&NodeId(2)].accepted.is_some());
    group.cut.clear();
    group.crash(0);
    group.everybody_suspects(0, Strength::Failed);
    step_until(&mut group, &|group| group.machines[&NodeId(1)].is_leaving);
    group.cut.extend([(1, 2), (1, 3)]);
    group.deliver();
    group.pass(60);
    assert!(!group.is_excluded(1), "nobody knows what it knows");
    assert!(group.is_stuck(1), "and people hear of it");
    group.cut.clear();
    group.pass(100);
    assert_eq!(group.settled_views(2).last(), Some(&std::vec![2, 3]));
    assert_eq!(group.settled_views(3).last(), Some(&std::vec![2, 3]));
    assert!(group.is_excluded(1), "they have gone on");
}

#[test]
fn the_coordinator_dies_in_every_phase() {
    for phase in 0..40 {
        let mut group = Group::settled(5);
        group.crash(4);
        group.everybody_suspects(4, Strength::Failed);
        for _ in 0..phase {
            if let Some((from, transmit)) = group.network.pop_front() {
                group.input(transmit.to.0, Input::Message { from, bytes: &transmit.bytes });
            }
        }
        group.crash(0);
        group.everybody_suspects(0, Strength::Failed);
        group.deliver();
        for node in 1..4 {
            let views = group.settled_views(node);
            assert_eq!(
                views.last(),
                Some(&[1, 2, 3].to_vec()),
                "phase {phase}, at {node}, without a timeout"
            );
        }
    }
}

/// Everybody else of its view had gone on without it and died, and it was alone in that view for ever, beside a group of their next lives.
#[test]
fn who_is_left_alone_in_a_view_hears_from_next_lives_that_it_is_over() {
    let mut group = Group::settled(3);
    for node in [0, 1] {
        group.crash(node);
        group.everybody_suspects(node, Strength::Ended);
    }
    group.pass(4);
    assert!(group.is_stuck(2) && !group.is_excluded(2));
    let next_life = Member { node: NodeId(0), incarnation: Incarnation(2) };
    let view = View { epoch: ViewEpoch(5), members: Vec::from([next_life]), tie_breaker: next_life.node };
    let machine = Regroup::joining(next_life, Timing::default(), group.now, view, 0);
    group.machines.insert(next_life.node, machine);
    group.input(0, Input::Flushed);
    group.pass(4);
    assert!(group.is_excluded(2));
}

/// Of four cells one died, and then another that had promised and had not accepted: what had been proposed could not come to a quorum any more, though
/// the proofs of both deaths were there, and half a second passed.
#[test]
fn two_of_four_die_at_any_time_and_the_others_go_on_at_once() {
    let pairs = (0..4).flat_map(|first| (0..4).map(move |second| (first, second)));
    for ((first, second), phase) in pairs
        .filter(|(first, second)| first != second)
        .flat_map(|pair| (0..40).map(move |phase| (pair, phase)))
    {
        let mut group = Group::settled(4);
        // As their host's agent says of those that it has ended.
        let end = |group: &mut Group, node| {
            let has_agreed = group.machines[&NodeId(node)].agreed() > ViewEpoch(1);
            group.crash(node);
            let strength = if has_agreed { Strength::Ended } else { Strength::Fenced };
            group.everybody_suspects(node, strength);
            has_agreed
        };
        end(&mut group, first);
        for _ in 0..phase {
            if let Some((from, transmit)) = group.network.pop_front() {
                group.input(transmit.to.0, Input::Message { from, bytes: &transmit.bytes });
            }
        }
        end(&mut group, second);
        group.deliver();
        let left: Vec<u32> = (0..4).filter(|node| ![first, second].contains(node)).collect();
        for &node in &left {
            let views = group.settled_views(node);
            assert_eq!(views.last(), Some(&left), "{first}, and {second} in phase {phase}: at {node}");
        }
    }
}

#[test]
fn a_planned_change_waits_for_nobody() {
    let mut group = Group::settled(3);
    let joiner = member(7);
    group.input(1, Input::Admit([joiner].to_vec()));
    group.positions.insert(NodeId(7), 0);
    group.deliver();
    let view = group.machines[&NodeId(0)].view().clone();
    assert_eq!(view.nodes().map(|node| node.0).collect::<Vec<_>>(), [0, 1, 2, 7]);
    let machine = Regroup::joining(joiner, Timing::default(), group.now, view, 0);
    group.machines.insert(NodeId(7), machine);
    group.input(7, Input::Flushed);
    group.deliver();
    group.pass(2);
    for node in [0, 1, 2] {
        assert_eq!(group.settled_views(node), [[0, 1, 2, 7]]);
    }
}
