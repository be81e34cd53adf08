//! What a program may choose of how members watch each other, and that each choice has its effect.

use super::*;
use crate::state::Distance;

const LONG: Duration = Duration::from_secs(1000);

fn with(change: impl FnOnce(&mut Watching)) -> Config {
    let mut config = Config::default();
    change(&mut config.watching);
    assert_eq!(config.watching.check(), Ok(()));
    config
}

fn failed(node: u32) -> Event {
    Event::Condition(Change { subject: member(node), condition: Condition::Failed })
}

#[test]
fn what_cannot_be_watched_is_refused() {
    let refused = |change: fn(&mut Watching)| {
        let mut watching = Watching::default();
        change(&mut watching);
        watching.check().expect_err("it cannot be")
    };
    assert_eq!(refused(|it| it.ping = Duration::ZERO), WatchingError::TooOften);
    assert_eq!(refused(|it| it.gossip = Duration::from_micros(999)), WatchingError::TooOften);
    assert_eq!(refused(|it| it.false_suspicions_per_billion = 0), WatchingError::FalseSuspicions);
    assert_eq!(refused(|it| it.false_suspicions_per_billion = 10_000_001), WatchingError::FalseSuspicions);
    assert_eq!(refused(|it| it.buddies = 0), WatchingError::Buddies);
    assert_eq!(refused(|it| it.buddies = 17), WatchingError::Buddies);
    assert_eq!(refused(|it| it.buddies_that_agree = 0), WatchingError::Buddies);
    assert_eq!(refused(|it| it.buddies_that_agree = 4), WatchingError::Buddies);
    assert_eq!(refused(|it| it.doubters_that_agree = 0), WatchingError::Doubters);
    assert_eq!(refused(|it| it.doubters_that_agree = 17), WatchingError::Doubters);
    assert_eq!(refused(|it| it.zone_size = 0), WatchingError::ZoneSize);
    assert_eq!(refused(|it| it.zone_size = 65), WatchingError::ZoneSize);
    assert_eq!(Watching::default().check(), Ok(()));
}

#[test]
fn who_may_err_less_often_suspects_later() {
    let threshold = |false_suspicions_per_billion| {
        let config = with(|it| {
            (it.ping, it.false_suspicions_per_billion) = (LONG, false_suspicions_per_billion);
        });
        let mut group = Group::configured(40, &config);
        group.pass(Duration::from_secs(60));
        group.stacks[&0].state().threshold()
    };
    assert!(threshold(10_000_000) < threshold(1));
}

#[test]
fn as_many_ping_a_member_as_are_to() {
    for buddies in [2, 5] {
        let config = with(|it| it.buddies = buddies);
        let group = Group::configured(8, &config);
        assert_eq!(group.stacks[&7].lookout.watched().count(), buddies);
    }
}

#[test]
fn it_takes_as_many_buddies_as_are_to_agree() {
    for (agree, is_failed) in [(1, true), (2, false)] {
        let config = with(|it| {
            (it.starting, it.buddies_that_agree) = (Duration::ZERO, agree);
        });
        let mut group = Group::configured(5, &config);
        group.stacks.retain(|node, _| *node == 0);
        group.pass(Duration::from_secs(20));
        assert_eq!(group.told(0, |event| *event == failed(4)), is_failed, "{agree}");
    }
}

#[test]
fn it_takes_as_many_doubters_as_are_to_agree() {
    let until_failed = |agree| {
        let config = with(|it| (it.ping, it.doubters_that_agree) = (LONG, agree));
        let mut group = Group::configured(12, &config);
        group.pass(Duration::from_secs(30));
        group.stacks.remove(&11);
        let died = group.now;
        while !(0..11).any(|node| group.told(node, |event| *event == failed(11))) {
            group.pass(Duration::from_millis(10));
            assert!(group.now.since(died) < Duration::from_secs(100), "nobody misses it");
        }
        group.now.since(died)
    };
    assert!(until_failed(1) < until_failed(8));
}

#[test]
fn zones_are_as_large_as_they_are_to_be() {
    for (zone_size, is_layered) in [(2, true), (64, false)] {
        let mut group = Group::configured(5, &with(|it| it.zone_size = zone_size));
        group.pass(Duration::from_secs(10));
        assert_eq!(group.stacks[&0].state().is_layered(), is_layered);
    }
}

#[test]
fn gossip_goes_to_near_nodes_more_often() {
    let to_the_last_two = |distance: Distance| {
        let config = with(|it| (it.ping, it.distance) = (LONG, distance));
        let mut group = Group::configured(9, &config);
        group.pass(Duration::from_secs(200));
        group.gossip[&(0, 7)] + group.gossip[&(0, 8)]
    };
    let places = (0..9).map(|node| (NodeId(node), if (1..7).contains(&node) { "far" } else { "near" }));
    let (near, far) = (to_the_last_two(Distance::of_places(places)), to_the_last_two(Distance::Numbers));
    assert!(near * 2 > far * 3, "{near} and {far} messages");
}
