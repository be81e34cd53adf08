//! Peers that send what they may not.

use std::vec;
use std::vec::Vec;

use comb_types::{Dice, Incarnation, NodeId};
use proptest::prelude::*;

use super::message::{Ballot, Body, Decision, Message, Promise, Proposal};
use super::tests::{Group, member};
use super::*;
use crate::quorum::Basis;

/// A member that lies.
const LIAR: u32 = 4;

/// Hands over a message. Who refuses it must be as it was.
fn tell(group: &mut Group, to: u32, message: &Message) -> Result<(), PeerError> {
    tell_bytes(group, to, &wire::encode(Protocol::Regroup, message))
}

fn tell_bytes(group: &mut Group, to: u32, bytes: &[u8]) -> Result<(), PeerError> {
    let now = group.now;
    let machine = group.machines.get_mut(&NodeId(to)).expect("it is there");
    machine.now = now;
    let before = machine.clone();
    let outcome = machine.handle(now, Input::Message { from: NodeId(LIAR), bytes });
    if outcome.is_err() {
        assert_eq!(*machine, before, "what is refused changes nothing");
    }
    outcome
}

fn says(epoch: u64, body: Body) -> Message {
    Message { sender: member(LIAR), epoch: ViewEpoch(epoch), body }
}

fn rule(group: &mut Group, message: &Message) -> &'static str {
    tell(group, 0, message).expect_err("refused").rule
}

fn proposal(members: &[u32]) -> Proposal {
    let view = View {
        epoch: ViewEpoch(2),
        members: members.iter().map(|&node| member(node)).collect(),
        tie_breaker: NodeId(members[0]),
    };
    Proposal { view, cut: 0, holders: vec![NodeId(LIAR)] }
}

fn decision(by: u32, accepters: &[u32], members: &[u32]) -> Decision {
    Decision {
        ballot: Ballot { number: 1, node: NodeId(by) },
        proposal: proposal(members),
        accepters: accepters.iter().map(|&node| NodeId(node)).collect(),
        basis: Basis::default(),
    }
}

#[test]
fn each_lie_is_refused_with_its_reason() {
    let mut group = Group::settled(5);
    let ballot = |number, node| Ballot { number, node: NodeId(node) };
    let decide = |decision| says(1, Body::Decide(decision));
    let mut in_the_name_of_another = says(1, Body::Ask);
    in_the_name_of_another.sender = member(2);
    let mut of_another_life = says(1, Body::Ask);
    of_another_life.sender.incarnation.0 = 9;
    let mut far = decision(LIAR, &[1, 2, 4], &[1, 2, 4]);
    far.proposal.view.epoch = ViewEpoch(9);
    let mut twice = decision(LIAR, &[1, 2, 4], &[1, 2, 4]);
    twice.proposal.view.members.push(member(4));
    let mut crowd = decision(LIAR, &[1, 2, 4], &[1, 2, 4]);
    crowd.proposal.view.members = (0..1000).map(member).collect();
    let promise = Promise { position: 0, accepted: None, evidence: vec![], installed: true, life: member(1) };
    let lies = [
        (in_the_name_of_another, "a message in the name of another"),
        (of_another_life, "a message from somebody who is not in the view that it is about"),
        (says(1, Body::Prepare { ballot: ballot(1, 3) }), "a ballot of another coordinator"),
        (says(1, Body::Prepare { ballot: ballot(u32::MAX, 4) }), "a ballot out of all proportion"),
        (says(1, Body::Promise { ballot: ballot(1, 0), promise }), "a promise for a ballot that never was"),
        (
            says(1, Body::Accept { ballot: ballot(7, 0), digest: 0 }),
            "an acceptance of a ballot that never was",
        ),
        (decide(decision(LIAR, &[4], &[4])), "a decision without a quorum"),
        (decide(decision(LIAR, &[0, 1, 4], &[0, 1, 4])), "a decision in my name that I had no part in"),
        (decide(far), "a view that does not follow"),
        (decide(twice), "a view that is none"),
        (decide(crowd), "a view that is none"),
        (says(1, Body::Install), "an order from somebody who does not lead"),
        (says(1, Body::Settle), "an order from somebody who does not lead"),
        (says(1, Body::Gone { by: ViewEpoch(1) }), "an end that comes before the beginning"),
    ];
    for (lie, reason) in lies {
        assert_eq!(rule(&mut group, &lie), reason);
    }
}

#[test]
fn who_votes_twice_is_refused() {
    let mut group = Group::settled(5);
    let vote = |digest| says(1, Body::Accept { ballot: Ballot { number: 1, node: NodeId(2) }, digest });
    assert_eq!(tell(&mut group, 0, &vote(1)), Ok(()));
    assert_eq!(rule(&mut group, &vote(2)), "two acceptances under one ballot");
    let ballot = Ballot { number: 1, node: NodeId(LIAR) };
    let propose = |members| Body::Propose { ballot, proposal: proposal(members), basis: Basis::default() };
    assert_eq!(tell(&mut group, 1, &says(1, propose(&[1, 2, 4]))), Ok(()));
    let second = tell(&mut group, 1, &says(1, propose(&[1, 4])));
    assert_eq!(second, Err(PeerError::new(NodeId(LIAR), "two proposals under one ballot")));
}

#[test]
fn one_that_says_that_another_is_out_is_not_believed() {
    let mut group = Group::settled(5);
    let lie = says(1, Body::Decide(decision(LIAR, &[1, 2, 3, 4], &[1, 2, 3, 4])));
    assert_eq!(tell(&mut group, 0, &lie), Ok(()), "it may be true");
    group.input(0, Input::Timeout);
    group.deliver();
    group.pass(50);
    assert!(!group.is_excluded(0));
    assert_eq!(group.machines[&NodeId(0)].view().epoch, ViewEpoch(1));
}

#[test]
fn one_that_cries_wolf_stops_the_others_twice() {
    let mut group = Group::settled(5);
    for (round, views) in (0..).zip([1, 2, 2, 2]) {
        group.now = group.now.saturating_add(Duration::from_secs(10));
        let alarm = Body::Alarm { evidence: vec![(NodeId(2), Strength::Failed)], admit: vec![] };
        let epoch = group.machines[&NodeId(0)].view().epoch.0;
        assert_eq!(tell(&mut group, 0, &says(epoch, alarm)), Ok(()));
        group.input(0, Input::Timeout);
        group.deliver();
        assert_eq!(group.settled_views(0).len(), views, "round {round}");
    }
    assert_eq!(group.machines[&NodeId(2)].view().members.len(), 5);
}

#[test]
fn no_view_ends_before_the_cut_that_it_began_with() {
    let mut group = Group::settled(5);
    group.now = Time::from_millis(10_000);
    group.positions.extend([0, 1, 3].map(|node| (NodeId(node), 17)));
    group.input(0, Input::Suspect(member(2), Strength::Suspected));
    group.deliver();
    let mut early = proposal(&[1, 2, 4]);
    (early.view.epoch, early.view.tie_breaker, early.cut) = (ViewEpoch(3), NodeId(LIAR), 16);
    let ballot = Ballot { number: 1, node: NodeId(LIAR) };
    let lie = says(2, Body::Propose { ballot, proposal: early, basis: Basis::default() });
    assert_eq!(rule(&mut group, &lie), "a cut before the last one");
}

#[test]
fn in_a_large_view_only_the_coordinator_of_a_ballot_is_believed() {
    let mut group = Group::settled(9);
    let members: Vec<u32> = (0..9).collect();
    let told = says(1, Body::Decide(decision(2, &[1, 2, 3, 4, 5], &members)));
    assert_eq!(tell(&mut group, 0, &told), Ok(()), "it may be true");
    assert_eq!(group.machines[&NodeId(0)].view().epoch, ViewEpoch(1));
}

#[test]
fn that_the_other_of_two_has_the_resource_is_asked_of_the_resource() {
    let now = Time::from_millis(1);
    let mut machine = Regroup::joining(member(0), Timing::default(), now, super::tests::first_view(2), 0);
    let mut made_up = decision(1, &[1], &[1]);
    (made_up.basis.resource, made_up.proposal.holders) = (true, vec![NodeId(1)]);
    let told = Message { sender: member(1), epoch: ViewEpoch(1), body: Body::Decide(made_up) };
    let bytes = wire::encode(Protocol::Regroup, &told);
    machine.handle(now, Input::Message { from: NodeId(1), bytes: &bytes }).expect("it may be true");
    let asked = core::iter::from_fn(|| machine.poll_event()).collect::<Vec<_>>();
    assert!(
        asked.contains(&Event::Acquire { epoch: ViewEpoch(1), seat: machine.me }) && !machine.halted,
        "{asked:?}"
    );
    machine.handle(now, Input::Acquired { epoch: ViewEpoch(1), granted: false }).expect("own");
    assert!(machine.halted);
}

#[test]
fn who_has_not_flushed_has_not_installed() {
    let now = Time::from_millis(1);
    let mut leader = Regroup::joining(member(0), Timing::default(), now, super::tests::first_view(3), 0);
    let told = Message { sender: member(1), epoch: ViewEpoch(1), body: Body::Installed };
    let bytes = wire::encode(Protocol::Regroup, &told);
    let error = leader.handle(now, Input::Message { from: NodeId(1), bytes: &bytes });
    assert_eq!(error, Err(PeerError::new(NodeId(1), "a report of what was not ordered")));
}

#[test]
fn a_coordinator_that_makes_up_a_quorum_is_not_believed() {
    let mut group = Group::settled(5);
    let made_up = decision(LIAR, &[1, 2, 3, 4], &[0, 1, 2, 3, 4]);
    assert_eq!(tell(&mut group, 0, &says(1, Body::Decide(made_up))), Ok(()));
    group.input(0, Input::Timeout);
    group.pass(50);
    assert_eq!(group.machines[&NodeId(0)].view().epoch, ViewEpoch(1));
}

/// What a member can lie about without a ballot of its own, and without having accepted one. As a coordinator, and as one who
/// says that it accepted a proposal that nobody made, it can lead others astray: that is the limit of a consensus for crashes.
fn lie(dice: &mut Dice) -> Body {
    let node = |dice: &mut Dice| NodeId(dice.below(6));
    let nodes =
        |dice: &mut Dice| -> Vec<NodeId> { (0..6).filter(|_| dice.below(2) == 0).map(NodeId).collect() };
    let strengths = [Strength::Suspected, Strength::Unreachable, Strength::Failed];
    let evidence = |dice: &mut Dice| vec![(node(dice), strengths[dice.index(3)])];
    let ballot = Ballot { number: dice.below(4), node: node(dice) };
    match dice.below(11) {
        0 => Body::Alarm { evidence: evidence(dice), admit: vec![] },
        1 => {
            let evidence = evidence(dice);
            let installed = dice.below(2) == 0;
            let promise = Promise { position: 0, accepted: None, evidence, installed, life: member(LIAR) };
            Body::Promise { ballot, promise }
        }
        2 => Body::Refuse { promised: ballot },
        3 => Body::Accept { ballot, digest: dice.below(3).into() },
        4 | 5 => {
            let members: Vec<_> = nodes(dice).into_iter().map(|node| member(node.0)).collect();
            let view = View { epoch: ViewEpoch(2), members, tie_breaker: node(dice) };
            let proposal = Proposal { view, cut: dice.below(3).into(), holders: vec![node(dice)] };
            let basis = Basis { fenced: nodes(dice), resource: dice.below(2) == 0 };
            Body::Decide(Decision { ballot, proposal, accepters: nodes(dice), basis })
        }
        6 => Body::Flushed,
        7 => Body::Install,
        8 => Body::Installed,
        9 => Body::Settle,
        _ => Body::Gone { by: ViewEpoch(dice.below(9).into()) },
    }
}

/// The same, or one about more than there is, for members of a group of so many.
pub(crate) fn lie_bytes(dice: &mut Dice, me: Member, epoch: ViewEpoch, nodes: u32) -> Vec<u8> {
    let crowd = || (0..300).map(member).collect::<Vec<_>>();
    let body = match dice.below(6) {
        0 => Body::Alarm {
            evidence: crowd().iter().map(|it| (it.node, Strength::Fenced)).collect(),
            admit: vec![],
        },
        1 => Body::Alarm { evidence: vec![], admit: crowd() },
        2 => {
            // A later life of somebody who is there.
            let life = Incarnation(2 + u64::from(dice.below(3)) * (u64::MAX / 2 - 1));
            Body::Alarm {
                evidence: vec![],
                admit: vec![Member { node: NodeId(dice.below(nodes)), incarnation: life }],
            }
        }
        _ => lie(dice),
    };
    let epoch = match dice.below(8) {
        0 => ViewEpoch(u64::MAX),
        1 => ViewEpoch(0),
        2 => ViewEpoch(epoch.0 + 1),
        3 => ViewEpoch(epoch.0.saturating_sub(1)),
        _ => epoch,
    };
    let sender = if dice.below(8) == 0 { member(dice.below(nodes)) } else { me };
    wire::encode(Protocol::Regroup, &Message { sender, epoch, body })
}

proptest! {
    #[test]
    fn any_bytes_are_judged(bytes in proptest::collection::vec(any::<u8>(), 0..80), with_envelope: bool) {
        let mut group = Group::settled(5);
        let envelope = [wire::VERSION, Protocol::Regroup as u8, u8::try_from(LIAR).expect("small"), 1, 1];
        let bytes = if with_envelope { [&envelope[..], &bytes].concat() } else { bytes };
        let _ = tell_bytes(&mut group, 0, &bytes);
    }

    /// One lies, one crashes, and the others go on together.
    #[test]
    fn a_liar_makes_nobody_leave(seed: u64) {
        let mut dice = Dice::new(seed);
        let mut group = Group::settled(5);
        // It has an honest side, which the others take for a liar when it contradicts the other.
        group.liar = Some(NodeId(LIAR));
        for round in 0..60 {
            if round == 20 {
                group.crash(3);
                group.everybody_suspects(3, Strength::Failed);
            }
            for _ in 0..3 {
                let to = dice.below(3);
                let epoch = group.machines[&NodeId(to)].view().epoch.0;
                let _ = tell(&mut group, to, &says(epoch, lie(&mut dice)));
                // So that what it wants sent goes out.
                group.input(to, Input::Timeout);
            }
            group.deliver();
            group.pass(1);
        }
        group.pass(200);
        let ends = |node: u32| -> Vec<_> {
            let history = &group.machines[&NodeId(node)].history;
            history.iter().map(|decision| decision.proposal.view.clone()).collect()
        };
        for node in 0..3 {
            prop_assert!(!group.is_excluded(node), "{} left", node);
            prop_assert_eq!(ends(node), ends(0));
            prop_assert!(!group.machines[&NodeId(node)].view().contains(NodeId(3)));
        }
    }
}
