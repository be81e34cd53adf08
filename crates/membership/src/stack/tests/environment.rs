//! Plug-ins of the environment, and what a group makes of their words.

use super::*;
use crate::detect::Confidence;

/// Nobody pings or gossips: nothing is known but what plug-ins say.
fn config() -> Config {
    let mut config = Config::default();
    let long = Duration::from_secs(10_000);
    (config.watching.ping, config.watching.gossip) = (long, long);
    config
}

fn seen(node: u32, kind: Kind, per_mille: u16) -> Input<'static> {
    let confidence = Confidence::per_mille(per_mille);
    Input::Environment { plug_in: 1, notice: Notice::Seen { node: NodeId(node), kind, confidence } }
}

fn over(node: u32, kind: Kind) -> Input<'static> {
    Input::Environment { plug_in: 1, notice: Notice::Over { node: NodeId(node), kind } }
}

fn members(group: &Group, node: u32) -> Vec<u32> {
    group.stacks[&node].view().into_iter().flat_map(View::nodes).map(|node| node.0).collect()
}

fn epoch(group: &Group) -> u64 {
    group.stacks[&0].view().expect("it is in one").epoch.0
}

#[test]
fn a_view_follows_without_whom_a_plug_in_is_sure_of() {
    let mut group = Group::configured(3, &config());
    group.stacks.remove(&2);
    group.input(1, seen(2, Kind::PowerFailure, 990));
    assert!(group.told(1, |event| *event
        == Event::Condition(Change { subject: member(2), condition: Condition::Failed })));
    group.pass(Duration::from_secs(2));
    assert_eq!([members(&group, 0), members(&group, 1)], [[0, 1], [0, 1]]);
}

#[test]
fn of_whom_it_is_not_sure_the_node_itself_is_asked() {
    for (is_alive, left) in [(true, &[0, 1, 2][..]), (false, &[0, 1])] {
        let mut group = Group::configured(3, &config());
        group.now = Time::from_millis(5000);
        if !is_alive {
            group.stacks.remove(&2);
        }
        group.input(1, seen(2, Kind::PowerFailure, 950));
        group.pass(Duration::from_secs(2));
        assert_eq!((members(&group, 1), epoch(&group)), (left.to_vec(), 2));
        let expected = if is_alive { Condition::Alive } else { Condition::Suspected };
        assert_eq!(group.stacks[&1].condition(member(2)), expected);
    }
}

#[test]
fn what_is_hardly_likely_is_no_reason_for_anything() {
    let mut group = Group::configured(3, &config());
    group.now = Time::from_millis(5000);
    group.stacks.remove(&2);
    for _ in 0..10 {
        group.input(1, seen(2, Kind::PowerFailure, 99));
        group.pass(Duration::from_secs(5));
    }
    assert_eq!((epoch(&group), group.stacks[&1].condition(member(2))), (1, Condition::Alive));
}

/// Its device is broken: it says of a healthy member whatever it can, again and again.
#[test]
fn a_plug_in_that_is_always_wrong_and_never_sure_costs_two_views_and_no_member() {
    let mut group = Group::configured(3, &Config::default());
    group.pass(Duration::from_secs(5));
    for round in 0..100 {
        for kind in
            [Kind::LinkDown, Kind::PowerFailure, Kind::IcmpUnreachable, Kind::ProcessExit, Kind::Fenced]
        {
            group.input(1, seen(2, kind, if round % 2 == 0 { 989 } else { 500 }));
        }
        group.pass(Duration::from_secs(5));
        assert_eq!(members(&group, 0), [0, 1, 2]);
    }
    assert!((2..=3).contains(&epoch(&group)), "{}", epoch(&group));
    // It is heard of again when it is right.
    group.stacks.remove(&2);
    group.pass(Duration::from_secs(5));
    assert_eq!(members(&group, 0), [0, 1]);
}

/// A plug-in of one of five members is certain of what is not so. The others are a quorum, and go on.
#[test]
fn a_plug_in_that_is_certain_and_wrong_costs_a_minority() {
    for (liar, accused) in [(0, &[3, 4][..]), (4, &[1, 2, 3]), (0, &[1, 2, 3, 4])] {
        let mut group = Group::configured(5, &config());
        group.now = Time::from_millis(5000);
        for &node in accused {
            group.input(liar, seen(node, Kind::PowerFailure, 1000));
        }
        group.pass(Duration::from_secs(10));
        let stays = |node: &u32| !group.told(*node, |event| matches!(event, Event::Excluded { .. }));
        let left: Vec<_> = (0..5).filter(stays).collect();
        assert!(left.len() >= 3, "{liar}: {left:?}");
        assert!(left.iter().all(|&node| members(&group, node) == left), "{liar}: {left:?}");
    }
}

/// What a plug-in is certain of is no proof: a part that is no quorum does not go on for it.
#[test]
fn no_plug_in_makes_a_quorum_of_a_minority() {
    let mut group = Group::configured(5, &config());
    group.stacks.retain(|node, _| *node < 2);
    for node in 0..2 {
        for lost in 2..5 {
            group.input(node, seen(lost, Kind::Fenced, 1000));
        }
    }
    group.pass(Duration::from_secs(5));
    assert!(group.told(0, |event| matches!(event, Event::Stuck(Stuck::NoQuorum { here: 2, members: 5 }))));
    assert_eq!(epoch(&group), 1);
}

#[test]
fn what_is_over_speaks_against_nobody() {
    let mut group = Group::configured(3, &config());
    // So soon after a view a suspicion is no reason for the next.
    group.input(1, seen(2, Kind::LinkDown, 800));
    assert_eq!(group.stacks[&1].condition(member(2)), Condition::Suspected);
    group.input(1, over(2, Kind::LinkDown));
    assert_eq!(group.stacks[&1].condition(member(2)), Condition::Alive);
    group.pass(Duration::from_secs(20));
    assert_eq!(epoch(&group), 1);
}

#[test]
fn strangers_and_the_member_itself_are_not_heard_of() {
    let mut group = Group::configured(3, &config());
    group.now = Time::from_millis(5000);
    for node in [1, 7, u32::MAX] {
        group.input(1, seen(node, Kind::PowerFailure, 1000));
        group.input(1, over(node, Kind::PowerFailure));
        group.input(1, seen(node, Kind::Fenced, 1000));
    }
    assert!(!group.told(1, |event| matches!(event, Event::Condition(_))));
    group.pass(Duration::from_secs(20));
    assert_eq!((epoch(&group), members(&group, 1)), (1, vec![0, 1, 2]));
}
