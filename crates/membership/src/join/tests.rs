//! Joiners and sponsors with their messages carried by hand.

use std::collections::BTreeMap;
use std::vec;
use std::vec::Vec;

use comb_types::{Dice, Incarnation, NodeId, Time};
use proptest::prelude::*;

use super::*;
use crate::view::ViewEpoch;

fn member(node: u32) -> Member {
    Member { node: NodeId(node), incarnation: Incarnation(1) }
}

fn config(contacts: u32, may_found: bool) -> Config {
    Config { contacts: (0..contacts).map(NodeId).collect(), may_found, ..Config::default() }
}

struct Nodes {
    joins: BTreeMap<NodeId, Join>,
    events: Vec<(NodeId, Event)>,
    now: Time,
}

impl Nodes {
    fn new(founders: &[bool]) -> Self {
        let contacts = u32::try_from(founders.len()).expect("few");
        let now = Time::from_millis(1);
        let join = |(node, may_found): (u32, &bool)| {
            (NodeId(node), Join::new(member(node), config(contacts, *may_found), now))
        };
        Self { joins: (0..).zip(founders).map(join).collect(), events: Vec::new(), now }
    }

    fn run(&mut self, until: Time) {
        while self.now < until {
            while self.deliver() {}
            let due = self.joins.values().filter_map(Join::next_timeout).min().unwrap_or(until);
            self.now = due.min(until).max(self.now);
            for join in self.joins.values_mut() {
                join.handle(self.now, Input::Timeout).expect("no peer is involved");
            }
        }
    }

    fn deliver(&mut self) -> bool {
        let mut sent = Vec::new();
        for (&node, join) in &mut self.joins {
            self.events.extend(core::iter::from_fn(|| join.poll_event()).map(|event| (node, event)));
            sent.extend(core::iter::from_fn(|| join.poll_transmit()).map(|transmit| (node, transmit)));
        }
        for (from, transmit) in &sent {
            if let Some(join) = self.joins.get_mut(&transmit.to) {
                let input = Input::Message { from: *from, bytes: &transmit.bytes };
                join.handle(self.now, input).expect("everybody keeps the rules");
            }
        }
        !sent.is_empty()
    }

    fn founders(&self) -> Vec<u32> {
        let founded = self.events.iter().filter(|(_, event)| matches!(event, Event::Founded(_)));
        founded.map(|(node, _)| node.0).collect()
    }
}

#[test]
fn the_founder_founds_when_most_contacts_are_in_no_group() {
    let mut nodes = Nodes::new(&[true, false, false]);
    nodes.run(Time::from_millis(900));
    assert!(nodes.founders().is_empty(), "it searches first");
    nodes.run(Time::from_millis(1500));
    assert_eq!(nodes.founders(), [0]);
}

#[test]
fn a_founder_that_hears_too_few_does_not_found() {
    let mut nodes = Nodes::new(&[true, false, false]);
    nodes.joins.retain(|node, _| node.0 == 0);
    nodes.run(Time::from_millis(5000));
    assert!(nodes.founders().is_empty());
}

#[test]
fn two_founders_do_not_make_two_groups() {
    let mut nodes = Nodes::new(&[true, true, false, false, false]);
    nodes.run(Time::from_millis(5000));
    assert_eq!(nodes.founders().len(), 1);
}

#[test]
fn petitions_of_a_moment_become_one_change_and_welcomes_follow() {
    let mut nodes = Nodes::new(&[true, false, false]);
    nodes.run(Time::from_millis(1500));
    for node in [1, 2] {
        let join = nodes.joins.get_mut(&NodeId(node)).expect("it is there");
        join.handle(nodes.now, Input::Synchronised { position: 7 }).expect("no peer is involved");
    }
    let then = Time::from_millis(1510);
    nodes.run(then);
    let admits = nodes.events.iter().filter(|(_, event)| matches!(event, Event::Admit(_))).cloned();
    assert_eq!(admits.collect::<Vec<_>>(), [(NodeId(0), Event::Admit(vec![member(1), member(2)]))]);
    let members = vec![member(0), member(1), member(2)];
    let view = View { epoch: ViewEpoch(2), members, tie_breaker: NodeId(0) };
    let holders = vec![NodeId(0)];
    let sponsor = nodes.joins.get_mut(&NodeId(0)).expect("it is there");
    sponsor
        .handle(then, Input::Decided { view: view.clone(), cut: 7, holders: holders.clone() })
        .expect("own");
    nodes.deliver();
    nodes.deliver();
    for node in [1, 2] {
        let joined = Event::Joined { view: view.clone(), cut: 7, holders: holders.clone() };
        assert!(nodes.events.contains(&(NodeId(node), joined)), "{node}");
    }
}

#[test]
fn a_sponsor_that_dies_is_replaced_and_progress_puts_that_off() {
    let now = Time::from_millis(1);
    let mut join = Join::new(member(5), config(3, false), now);
    for sponsor in [1, 2] {
        let bytes = wire::encode(
            Protocol::Join,
            &Body::Offer { snapshot: vec![u8::try_from(sponsor).expect("small")] },
        );
        join.handle(now, Input::Message { from: NodeId(sponsor), bytes: &bytes }).expect("an offer");
    }
    let first = Event::Synchronise { sponsor: NodeId(1), snapshot: vec![1] };
    assert_eq!(join.poll_event(), Some(first));
    join.handle(Time::from_millis(1500), Input::Progress).expect("own");
    join.handle(Time::from_millis(2500), Input::Timeout).expect("own");
    assert_eq!(join.poll_event(), None, "there is progress");
    join.handle(Time::from_millis(3501), Input::Timeout).expect("own");
    assert_eq!(join.poll_event(), Some(Event::Synchronise { sponsor: NodeId(2), snapshot: vec![2] }));
}

/// A sponsor was stuck, with the news of a view that had long ended. The joiner left it, got a newer state from another, and
/// then that welcome came: it installed a view whose cut lay before its own state. (Found by seed 1000982 of the scenario
/// `group`.)
#[test]
fn a_welcome_to_a_view_that_ended_before_the_snapshot_was_made_is_passed_over() {
    let now = Time::from_millis(1);
    let mut join = Join::new(member(5), config(3, false), now);
    let offer = wire::encode(Protocol::Join, &Body::Offer { snapshot: vec![] });
    join.handle(now, Input::Message { from: NodeId(1), bytes: &offer }).expect("an offer");
    join.handle(now, Input::Synchronised { position: 8 }).expect("own");
    let mut welcome = |epoch, cut| {
        let members = vec![member(1), member(5)];
        let view = View { epoch: ViewEpoch(epoch), members, tie_breaker: NodeId(1) };
        let bytes = wire::encode(Protocol::Join, &Body::Welcome { view, cut, holders: vec![NodeId(1)] });
        join.handle(now, Input::Message { from: NodeId(1), bytes: &bytes }).expect("it was asked for");
        join.is_member()
    };
    assert!(!welcome(3, 7));
    assert!(welcome(5, 8));
}

/// Its messages to a node, as they are now.
fn said(join: &mut Join, to: u32) -> Vec<Body> {
    let transmits = core::iter::from_fn(|| join.poll_transmit()).filter(|it| it.to == NodeId(to));
    transmits.map(|it| wire::decode(it.to, Protocol::Join, &it.bytes).expect("ours")).collect()
}

fn hear(join: &mut Join, now: Time, from: u32, body: &Body) -> Result<(), PeerError> {
    let bytes = wire::encode(Protocol::Join, body);
    join.handle(now, Input::Message { from: NodeId(from), bytes: &bytes })
}

#[test]
fn half_of_the_contacts_are_too_few_to_found_and_who_is_none_itself_counts_with_them() {
    for contacts in [vec![0, 1, 2, 3], vec![1]] {
        let contacts: Vec<_> = contacts.into_iter().map(NodeId).collect();
        let alone = Body::Alone { word: Some(member(0)) };
        let is_among = contacts.len() > 1;
        let config = Config { contacts, may_found: true, ..Config::default() };
        let mut join = Join::new(member(0), config, Time::ZERO);
        let late = Time::from_millis(5000);
        join.handle(late, Input::Timeout).expect("own");
        if is_among {
            hear(&mut join, late, 1, &alone).expect("it was asked");
        }
        assert!(!join.is_member(), "half of them");
        let next = if is_among { 2 } else { 1 };
        hear(&mut join, late, next, &alone).expect("it was asked");
        assert!(join.is_member());
    }
}

#[test]
fn who_has_given_its_word_does_not_found() {
    let mut join = Join::new(member(0), config(3, true), Time::ZERO);
    said(&mut join, 1);
    let hello = Body::Hello { member: member(1), since: member(1).incarnation, wants_word: true };
    hear(&mut join, Time::ZERO, 1, &hello).expect("honest");
    assert_eq!(said(&mut join, 1), [Body::Alone { word: Some(member(1)) }]);
    join.handle(Time::from_millis(5000), Input::Timeout).expect("own");
    assert_eq!(
        said(&mut join, 2),
        [Body::Hello { member: member(0), since: member(0).incarnation, wants_word: false }]
    );
}

fn sponsor(members: Vec<Member>) -> (Join, View) {
    let view = View { epoch: ViewEpoch(4), members, tie_breaker: NodeId(1) };
    (Join::within(member(1), config(3, false), Time::ZERO, view.clone()), view)
}

#[test]
fn what_joiners_may_not_say_is_refused() {
    let second = Member { incarnation: Incarnation(2), ..member(2) };
    let (mut join, _) = sponsor(vec![member(1), second]);
    let rule = |join: &mut Join, body| hear(join, Time::ZERO, 2, &body).expect_err("refused").rule;
    let hello = Body::Hello { member: member(3), since: member(3).incarnation, wants_word: false };
    assert_eq!(rule(&mut join, hello), "a greeting in the name of another");
    assert_eq!(
        rule(&mut join, Body::Petition { member: member(3), since: member(3).incarnation }),
        "a greeting in the name of another"
    );
    let former = member(2);
    let late = [
        Body::Petition { member: former, since: former.incarnation },
        Body::Hello { member: former, since: former.incarnation, wants_word: false },
    ];
    for body in late {
        hear(&mut join, Time::ZERO, 2, &body).expect("late");
    }
    assert_eq!(join.poll_event(), None, "a former life ends no later one");
    assert_eq!(join.next_timeout(), None, "nor does it come in");
    let third = Member { incarnation: Incarnation(3), ..member(2) };
    hear(
        &mut join,
        Time::ZERO,
        2,
        &Body::Hello { member: third, since: third.incarnation, wants_word: false },
    )
    .expect("it came back");
    assert_eq!(join.poll_event(), Some(Event::Reborn { former: second }));
}

#[test]
fn petitions_wait_once_and_who_is_let_in_by_a_later_view_hears_it_too() {
    let (mut join, view) = sponsor(vec![member(1)]);
    for (millis, node) in [(0, 2), (1, 3)] {
        hear(
            &mut join,
            Time::from_millis(millis),
            node,
            &Body::Petition { member: member(node), since: member(node).incarnation },
        )
        .expect("honest");
    }
    assert_eq!(
        join.next_timeout(),
        Some(Time::ZERO.saturating_add(join.config.batch)),
        "the first sets the time"
    );
    join.handle(Time::from_millis(2), Input::Timeout).expect("own");
    assert_eq!(join.poll_event(), Some(Event::Admit(vec![member(2), member(3)])));
    for members in [vec![member(1), member(2)], vec![member(1), member(2), member(3)]] {
        let last = members.len();
        let view = View { members, ..view.clone() };
        join.handle(Time::from_millis(3), Input::Decided { view, cut: 0, holders: vec![NodeId(1)] })
            .expect("own");
        let welcomed = said(&mut join, u32::try_from(last).expect("few"));
        assert!(matches!(welcomed[..], [Body::Welcome { .. }]), "{last}: {welcomed:?}");
    }
}

#[test]
fn a_welcome_nobody_asked_for_is_refused() {
    let mut join = Join::new(member(5), config(3, false), Time::ZERO);
    let view = View { epoch: ViewEpoch(9), members: vec![member(1), member(5)], tie_breaker: NodeId(1) };
    let bytes = wire::encode(Protocol::Join, &Body::Welcome { view, cut: 0, holders: vec![NodeId(1)] });
    let before = join.clone();
    let error = join.handle(Time::ZERO, Input::Message { from: NodeId(1), bytes: &bytes });
    assert_eq!(error, Err(PeerError::new(NodeId(1), "a welcome that was not asked for")));
    assert_eq!(join, before);
}

/// What a member may make up, but for a later life of its own: it would leave by that.
pub(crate) fn lie(dice: &mut Dice, me: Member, nodes: u32) -> Vec<u8> {
    let other =
        Member { node: NodeId(dice.below(nodes)), incarnation: Incarnation(1 + u64::from(dice.below(3))) };
    let view = View { epoch: ViewEpoch(u64::MAX), members: vec![other, me], tie_breaker: me.node };
    let other = if other.node == me.node { me } else { other };
    let body = match dice.below(6) {
        0 => Body::Hello { member: other, since: other.incarnation, wants_word: dice.below(2) == 0 },
        1 => Body::Petition { member: other, since: other.incarnation },
        2 => Body::Offer { snapshot: vec![0; dice.index(2000)] },
        3 => Body::Alone { word: Some(other) },
        _ => Body::Welcome { view, cut: u64::MAX, holders: vec![other.node] },
    };
    wire::encode(Protocol::Join, &body)
}

proptest! {
    #[test]
    fn any_bytes_are_judged(bytes in proptest::collection::vec(any::<u8>(), 0..60), with_envelope: bool, is_in: bool) {
        let mut join = Join::new(member(5), config(3, false), Time::ZERO);
        if is_in {
            join.handle(Time::ZERO, Input::Found).expect("own");
        }
        let envelope = [wire::VERSION, Protocol::Join as u8];
        let bytes = if with_envelope { [&envelope[..], &bytes].concat() } else { bytes };
        let before = join.clone();
        if join.handle(Time::ZERO, Input::Message { from: NodeId(1), bytes: &bytes }).is_err() {
            prop_assert_eq!(join, before);
        }
    }
}
