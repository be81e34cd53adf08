use alloc::vec::Vec;

use super::*;

const EPOCH: u64 = 1;

fn at(millis: u64) -> Time {
    Time::from_millis(millis)
}

fn set(nodes: impl IntoIterator<Item = u32>) -> NodeSet {
    nodes.into_iter().map(NodeId).collect()
}

/// Node 0 of so many, which suspects the last at time zero.
fn suspicious(nodes: u32) -> Regroup {
    let mut regroup = Regroup::new(at(0), NodeId(0), set(0..nodes), EPOCH, NodeId(0));
    regroup.suspect(at(0), NodeId(nodes - 1));
    regroup
}

/// What a node that has just activated says.
fn active(nodes: impl IntoIterator<Item = u32>) -> State {
    let mut masks = [NodeSet::EMPTY; PHASES];
    masks[0] = set(nodes);
    State {
        epoch: EPOCH + 1,
        phase: Phase::Activate,
        is_cautious: false,
        masks,
        rows: Vec::new(),
        decided: None,
        installed: (EPOCH, Decision { members: set(0..8), locker: NodeId(0) }),
    }
}

/// When it leaves phase one, if nothing more comes.
fn closes_at(mut regroup: Regroup) -> u64 {
    while regroup.phase() == Phase::Activate {
        let tick = regroup.next_timeout().expect("a regroup ticks");
        regroup.timeout(tick);
        let since = tick.since(Time::ZERO);
        if regroup.phase() != Phase::Activate {
            return u64::try_from(since.as_millis()).expect("a short time");
        }
    }
    0
}

#[test]
fn nothing_is_sent_or_collected_before_the_first_tick() {
    let mut regroup = suspicious(4);
    assert_eq!(regroup.next_timeout(), Some(at(300)));
    regroup.receive(at(200), NodeId(1), active(0..4)).expect("a sound state");
    assert!(regroup.sends.is_empty() && regroup.masks[0].is_empty());
    regroup.timeout(at(300));
    let to: Vec<_> = regroup.sends.iter().map(|(to, _)| to.0).collect();
    assert_eq!(to, [1, 2, 3], "to each node a datagram, to the silent one as well");
    assert_eq!(regroup.masks[0], set([0]));
}

#[test]
fn all_active_ends_phase_one_at_once() {
    let mut regroup = suspicious(4);
    regroup.timeout(at(300));
    // It has heard of node 2 and 3 by node 1 only: information is shared.
    regroup.receive(at(301), NodeId(1), active([1, 2, 3])).expect("a sound state");
    assert_eq!(regroup.phase(), Phase::Closing);
}

#[test]
fn with_one_missing_phase_one_takes_2400_ms_and_with_two_9600() {
    for (heard, expected) in [(vec![1, 2, 3, 4], 2400), (vec![1, 2, 3], 9600)] {
        let mut regroup = suspicious(6);
        regroup.timeout(at(300));
        regroup.receive(at(301), NodeId(1), active(heard)).expect("a sound state");
        assert_eq!(closes_at(regroup), expected);
    }
}

#[test]
fn with_caution_phase_one_takes_the_longest_even_if_all_are_active() {
    let mut regroup = suspicious(4);
    regroup.timeout(at(300));
    let careful = State { is_cautious: true, ..active(1..4) };
    regroup.receive(at(301), NodeId(1), careful).expect("a sound state");
    assert_eq!(closes_at(regroup), 9600);
}

#[test]
fn a_cascading_start_is_cautious() {
    let mut regroup = suspicious(4);
    regroup.timeout(at(300));
    regroup.outcomes.clear();
    let later = State { epoch: EPOCH + 2, ..active(1..4) };
    regroup.receive(at(301), NodeId(1), later).expect("a sound state");
    assert_eq!(regroup.outcomes[0], Outcome::Started { epoch: EPOCH + 2, is_cautious: true });
}

#[test]
fn who_has_finished_answers_one_that_has_not() {
    let mut regroup = Regroup::new(at(0), NodeId(0), set(0..3), EPOCH + 1, NodeId(0));
    let waits = State { phase: Phase::CleanupTwo, ..active(0..3) };
    regroup.receive(at(1), NodeId(2), waits).expect("a sound state");
    let (to, answer) = regroup.sends.pop_front().expect("an answer");
    assert_eq!(to, NodeId(2));
    assert_eq!(answer.masks[PHASES - 1], set(0..3));
}

/// A seed of the simulation found this: two of five had installed a membership of three when a new failure made all start over. The
/// third kept the old one, so that the sets that they closed over never came to be the same.
#[test]
fn a_membership_that_others_installed_before_a_restart_is_followed() {
    let former = Decision { members: set(0..3), locker: NodeId(2) };
    let installed = |epoch| State { epoch, installed: (EPOCH + 1, former), ..active([1]) };
    let mut regroup = suspicious(5);
    regroup.receive(at(301), NodeId(1), installed(EPOCH + 2)).expect("a sound state");
    assert_eq!(regroup.members(), set(0..3));
    let removed = set([3, 4]);
    let outcome = Outcome::Installed { epoch: EPOCH + 1, decision: former, removed };
    assert!(regroup.outcomes.contains(&outcome), "{:?}", regroup.outcomes);
    let mut outsider = Regroup::new(at(0), NodeId(4), set(0..5), EPOCH, NodeId(0));
    outsider.receive(at(301), NodeId(1), installed(EPOCH + 2)).expect("a sound state");
    assert!(outsider.outcomes.contains(&Outcome::Halted("regrouped away")));
}

/// Were it otherwise, node 1 might decide for its own two while node 0 decides for three, and node 2 follow either.
#[test]
fn nothing_is_decided_before_all_have_closed_over_the_same() {
    for over in [set(0..3), set(1..3)] {
        let mut regroup = suspicious(4);
        regroup.timeout(at(300));
        regroup.receive(at(301), NodeId(1), active(0..3)).expect("a sound state");
        (1..=8).for_each(|tick| regroup.timeout(at(300 + 300 * tick)));
        assert_eq!(regroup.phase(), Phase::Closing);
        for (node, closed_over) in [(NodeId(1), set(0..3)), (NodeId(2), over)] {
            let mut closing = State { phase: Phase::Closing, ..active(0..3) };
            closing.masks[1].insert(node);
            closing.rows.push((node, Row { heard: set(0..3), closed_over }));
            regroup.receive(at(2701), node, closing).expect("a sound state");
        }
        let agree = over == set(0..3);
        assert_eq!(regroup.decided.is_some(), agree);
        (9..=14).for_each(|tick| regroup.timeout(at(300 + 300 * tick)));
        let restarted = Outcome::Started { epoch: EPOCH + 2, is_cautious: true };
        assert_eq!(regroup.outcomes.contains(&restarted), !agree, "after a second it starts anew");
    }
}

fn is_halted_in_phase_one(mut regroup: Regroup) -> bool {
    while regroup.phase() == Phase::Activate {
        let Some(tick) = regroup.next_timeout() else { break };
        regroup.timeout(tick);
    }
    regroup.outcomes.contains(&Outcome::Halted("not in a part that may survive"))
}

/// The others might be three: two that know the joiner for a member already, and the joiner.
#[test]
fn a_joiner_that_is_announced_counts_as_one_that_is_missing() {
    for is_announced in [false, true] {
        let mut regroup = suspicious(4);
        if is_announced {
            regroup.announce(NodeId(4));
        }
        regroup.timeout(at(300));
        regroup.receive(at(301), NodeId(1), active([1])).expect("a sound state");
        assert_eq!(is_halted_in_phase_one(regroup), is_announced);
    }
}

/// Nodes 0 and 1 may have installed the four, and go on without these: with the two that the four had left behind they would be more
/// than half of the six.
#[test]
fn who_survives_an_interrupted_run_is_one_that_may_by_its_decision_too() {
    for is_decided in [false, true] {
        let mut regroup = Regroup::new(at(0), NodeId(3), set(0..6), EPOCH, NodeId(0));
        regroup.suspect(at(0), NodeId(4));
        regroup.phase = Phase::Pruning;
        let decision = Decision { members: set(0..4), locker: NodeId(0) };
        regroup.decided = is_decided.then_some(decision);
        regroup.start(at(0), EPOCH + 2, true);
        regroup.timeout(at(300));
        let again = State { epoch: EPOCH + 2, ..active([2, 4, 5]) };
        regroup.receive(at(301), NodeId(2), again).expect("a sound state");
        assert_eq!(is_halted_in_phase_one(regroup), is_decided);
    }
}

#[test]
fn what_cannot_be_a_state_is_refused_and_changes_nothing() {
    let mut regroup = suspicious(4);
    let nobody = Decision { members: NodeSet::EMPTY, locker: NodeId(1) };
    let wrong = [
        State { rows: [(NodeId(1), Row::default()); 65].to_vec(), epoch: 9, ..active([1]) },
        State { decided: Some(nobody), epoch: 9, ..active([1]) },
        State { installed: (8, nobody), epoch: 9, ..active([1]) },
    ];
    for state in wrong {
        regroup.receive(at(1), NodeId(1), state).expect_err("refused");
        assert_eq!((regroup.epoch, regroup.members()), (EPOCH + 1, set(0..4)));
    }
}
