use alloc::collections::BTreeMap;
use std::format;

use proptest::prelude::*;
use proptest::strategy::ValueTree;

use super::message::{Change, Delta, Doubt, Kind, LONGEST_MESSAGE, Message, Row, Summary, Want, ZoneRow};
use super::*;
use crate::wire::{self, Protocol, encode};

const PEER: NodeId = NodeId(1);

fn first_life(node: u32) -> Member {
    Member { node: NodeId(node), incarnation: Incarnation(1) }
}

/// Nodes that hear each other at once, and whose time is one.
struct Bench {
    now: Time,
    nodes: BTreeMap<NodeId, State>,
    events: Vec<(NodeId, Event)>,
    /// The last messages that were sent.
    sent: VecDeque<(NodeId, Vec<u8>)>,
}

impl Bench {
    fn new(nodes: impl IntoIterator<Item = u32>) -> Self {
        Self::of_life(Incarnation(1), nodes)
    }

    fn of_life(incarnation: Incarnation, nodes: impl IntoIterator<Item = u32>) -> Self {
        let now = Time::from_millis(5000);
        let state = |node: u32| {
            let me = Member { node: NodeId(node), incarnation };
            let config = Config::new(me, alloc::vec![NodeId(0), NodeId(1)], node.into());
            (NodeId(node), State::new(config, now))
        };
        let nodes = nodes.into_iter().map(state).collect();
        Self { now, nodes, events: Vec::new(), sent: VecDeque::new() }
    }

    fn run(&mut self, seconds: u64) {
        let end = self.now.saturating_add(Duration::from_secs(seconds));
        loop {
            let due = self.nodes.iter().filter_map(|(&node, state)| Some((state.next_timeout()?, node)));
            let Some((at, node)) = due.min().filter(|(at, _)| *at <= end) else { break };
            self.now = at.max(self.now);
            let state = self.nodes.get_mut(&node).expect("it said when it was due");
            state.handle(self.now, Input::Timeout).expect("no peer is concerned");
            self.deliver();
        }
        self.now = end;
    }

    fn deliver(&mut self) {
        loop {
            let transmits: Vec<_> = self
                .nodes
                .iter_mut()
                .flat_map(|(&from, state)| core::iter::from_fn(move || Some((from, state.poll_transmit()?))))
                .collect();
            for (&node, state) in &mut self.nodes {
                self.events.extend(core::iter::from_fn(|| state.poll_event()).map(|event| (node, event)));
            }
            if transmits.is_empty() {
                return;
            }
            for (from, Transmit { to, bytes }) in transmits {
                assert!(bytes.len() <= LONGEST_MESSAGE);
                if let Some(state) = self.nodes.get_mut(&to) {
                    state.handle(self.now, Input::Message { from, bytes: &bytes }).expect("all are honest");
                }
                self.sent.push_back((from, bytes));
                if self.sent.len() > 200 {
                    self.sent.pop_front();
                }
            }
        }
    }

    fn node(&mut self, node: u32) -> &mut State {
        self.nodes.get_mut(&NodeId(node)).expect("it is there")
    }

    fn saw(&self, node: u32, event: &Event) -> bool {
        self.events.contains(&(NodeId(node), event.clone()))
    }
}

fn entry(owner: u32, key: &str, value: Option<&[u8]>) -> Event {
    Event::Entry { owner: first_life(owner), key: key.into(), value: value.map(Vec::from) }
}

#[test]
fn readers_see_entries_and_their_removal() {
    let mut bench = Bench::new(0..3);
    bench.run(3);
    let now = bench.now;
    bench.node(1).write(now, "key", Some(b"value".to_vec())).expect("short enough");
    bench.run(5);
    assert_eq!(bench.node(2).read(NodeId(1), "key"), Some(&b"value"[..]));
    assert_eq!(bench.node(0).entries(NodeId(1)).collect::<Vec<_>>(), [("key", &b"value"[..])]);
    assert!(bench.saw(0, &entry(1, "key", Some(b"value"))));
    let now = bench.now;
    bench.node(1).write(now, "key", None).expect("short enough");
    bench.run(5);
    assert_eq!(bench.node(2).read(NodeId(1), "key"), None);
    assert!(bench.saw(2, &entry(1, "key", None)));
}

/// More than a message holds.
#[test]
fn many_entries_arrive_in_pieces_and_a_latecomer_gets_them_all() {
    let mut bench = Bench::new(0..2);
    bench.run(2);
    for number in 0..40 {
        let now = bench.now;
        let value = alloc::vec![number; 1024];
        bench.node(0).write(now, &format!("key {number}"), Some(value)).expect("short enough");
    }
    let mut late = Bench::new([2]);
    bench.nodes.append(&mut late.nodes);
    bench.run(30);
    for reader in [1, 2] {
        assert_eq!(bench.node(reader).entries(NodeId(0)).count(), 40, "node {reader}");
    }
}

#[test]
fn what_is_too_long_is_not_written() {
    let mut bench = Bench::new([0]);
    let state = bench.node(0);
    assert_eq!(state.write(Time::ZERO, &"k".repeat(65), None), Err(WriteError::KeyTooLong));
    assert_eq!(state.write(Time::ZERO, "k", Some(alloc::vec![0; 1025])), Err(WriteError::ValueTooLong));
    assert_eq!(state.entries(NodeId(0)).count(), 0);
}

#[test]
fn a_farm_falls_into_zones_when_it_grows_and_is_one_again_when_it_shrinks() {
    let mut bench = Bench::new((0..40).chain(100..124));
    bench.run(20);
    assert!(bench.nodes.values().all(|state| state.alive() == 64 && !state.is_layered()));
    assert_eq!(bench.node(0).zone_members().count(), 64, "one digest lists all");
    let mut late = Bench::new([64]);
    bench.nodes.append(&mut late.nodes);
    bench.run(20);
    assert!(bench.nodes.values().all(|state| state.alive() == 65 && state.is_layered()));
    assert_eq!(bench.node(0).zone_members().count(), 40);
    bench.nodes.retain(|node, _| node.0 < 40);
    bench.run(90);
    assert!(bench.nodes.values().all(|state| state.alive() == 40 && !state.is_layered()));
}

#[test]
fn who_is_said_to_have_failed_denies_it_and_who_is_fenced_cannot() {
    let mut bench = Bench::new(0..4);
    bench.run(5);
    let now = bench.now;
    bench.node(0).fail(now, first_life(1));
    assert_eq!(bench.node(0).member(PEER), None);
    bench.run(20);
    assert!(bench.saw(0, &Event::Failed(first_life(1))) && bench.saw(0, &Event::Refuted(first_life(1))));
    assert!(bench.nodes.values().all(|state| state.member(PEER) == Some(first_life(1))));
    let now = bench.now;
    bench.node(0).fence(now, first_life(1));
    bench.node(2).fence(now, first_life(1));
    bench.run(20);
    assert!((0..4).all(|node| bench.saw(node, &Event::Fenced(first_life(1)))), "and it has to stop");
    assert!((0..4).filter(|&node| node != 1).all(|node| bench.node(node).member(PEER).is_none()));
}

/// Each of these would make a healthy node leave, and it could not deny it: a later life, its end, its last turn.
#[test]
fn what_a_node_could_not_deny_is_believed_of_two_peers_or_of_itself() {
    let healthy = first_life(3);
    let turn = |turn| Standing { turn, ..Standing::FIRST };
    let later = Standing::alive(Incarnation(u64::MAX));
    for standing in [later, later.failed(), Standing::FIRST.fenced(), turn(u32::MAX - 3), turn(1 << 20)] {
        let news = News { node: healthy.node, standing };
        let row = Row { step: 3, incarnation: standing.incarnation, version: 1 << 20, hash: [7; 4] };
        let unusual = alloc::vec![(3, standing)];
        let summary = Summary { zone: 0, present: 0b1111_u64.to_le_bytes(), unusual };
        let lies = [
            Message { kind: Kind::Push, news: alloc::vec![news], ..Message::default() },
            Message { kind: Kind::Push, summaries: alloc::vec![summary], ..Message::default() },
            Message { kind: Kind::Push, rows: alloc::vec![row], ..Message::default() },
        ];
        let lies = &lies[..if standing == later { 3 } else { 2 }];
        for lie in lies {
            let bytes = encode(Protocol::State, lie);
            let mut bench = Bench::new(0..4);
            bench.run(5);
            for _ in 0..10 {
                for node in [0, 2] {
                    let now = bench.now;
                    let lie = Input::Message { from: PEER, bytes: &bytes };
                    bench.node(node).handle(now, lie).expect("it could be so");
                }
                bench.run(1);
            }
            bench.run(20);
            let believed = (0..4).any(|node| {
                let end = Event::Fenced(healthy);
                let start = Event::Joined(Member { incarnation: later.incarnation, ..healthy });
                bench.saw(node, &end) || bench.saw(node, &start)
            });
            assert!(!believed, "{lie:?}");
            assert!(bench.nodes.values().all(|state| state.member(healthy.node) == Some(healthy)), "{lie:?}");
            let now = bench.now;
            for from in [NodeId(1), NodeId(2)] {
                let told = Input::Message { from, bytes: &bytes };
                bench.node(0).handle(now, told).expect("it could be so");
            }
            assert_ne!(bench.node(0).zones.get(healthy.node), Some(Standing::FIRST), "{lie:?}");
        }
    }
}

/// Node 4 was cut off, took all others for failed, and is back. Who has stood still meanwhile has heard nobody for long either.
#[test]
fn of_a_group_only_its_members_are_believed_that_one_has_failed() {
    for (from, is_believed) in [(NodeId(4), false), (NodeId(2), true)] {
        let mut bench = Bench::new(0..5);
        bench.run(20);
        bench.node(0).set_jurors(&[0, 1, 2].map(first_life));
        let now = bench.now;
        for node in [1, 3] {
            let news = News { node: NodeId(node), standing: Standing::FIRST.failed() };
            let told = Message { kind: Kind::Push, news: alloc::vec![news], ..Message::default() };
            let bytes = encode(Protocol::State, &told);
            let state = bench.node(0);
            // Not heard of for so long that what others say is believed at once.
            let place = state.find(NodeId(node)).expect("it is known");
            state.near[place].risen_at = Time::from_millis(20_000);
            state.handle(now, Input::Message { from, bytes: &bytes }).expect("it could be so");
        }
        let is_dead = |state: &State, node| state.member(NodeId(node)).is_none();
        let state = bench.node(0);
        assert_eq!(is_dead(state, 1), is_believed, "{from:?} of a member");
        assert!(is_dead(state, 3), "{from:?} of a stranger");
        bench.run(20);
        assert!(bench.nodes.values().all(|state| state.alive() == 5), "all is denied");
    }
}

#[test]
fn hearsay_takes_bounded_room() {
    let mut bench = Bench::new(0..4);
    bench.run(5);
    let now = bench.now;
    for life in 2..500 {
        let news = News { node: NodeId(3), standing: Standing::alive(Incarnation(life)) };
        let lie = Message { kind: Kind::Push, news: alloc::vec![news], ..Message::default() };
        let bytes = encode(Protocol::State, &lie);
        bench.node(0).handle(now, Input::Message { from: PEER, bytes: &bytes }).expect("it could be so");
    }
    assert_eq!(bench.node(0).hearsay.len(), 64);
}

#[test]
fn one_of_two_loses_the_other_and_finds_it_again() {
    let mut bench = Bench::new(0..2);
    bench.run(30);
    let peer = bench.nodes.remove(&PEER).expect("it is there");
    bench.run(40);
    assert!(bench.saw(0, &Event::Suspected(first_life(1))) && bench.saw(0, &Event::Lost(first_life(1))));
    assert_eq!((bench.node(0).alive(), bench.node(0).member(PEER)), (1, None));
    bench.nodes.insert(PEER, peer);
    bench.run(10);
    assert_eq!((bench.node(0).alive(), bench.node(0).member(PEER)), (2, Some(first_life(1))));
    assert!(bench.saw(0, &Event::Cleared(first_life(1))) && !bench.saw(0, &Event::Failed(first_life(1))));
}

#[test]
fn what_a_former_life_said_is_taken_back() {
    let mut bench = Bench::new(0..2);
    bench.run(3);
    let now = bench.now;
    bench.node(1).write(now, "key", Some(b"value".to_vec())).expect("short enough");
    bench.run(5);
    assert!(bench.saw(0, &entry(1, "key", Some(b"value"))) && !bench.saw(0, &entry(1, "key", None)));
    let second_life = Member { incarnation: Incarnation(2), ..first_life(1) };
    let config = Config::new(second_life, alloc::vec![NodeId(0)], 77);
    bench.nodes.insert(PEER, State::new(config, bench.now));
    bench.run(5);
    assert!(bench.saw(0, &Event::Joined(second_life)) && bench.saw(0, &entry(1, "key", None)));
    assert_eq!((bench.node(0).member(PEER), bench.node(0).read(PEER, "key")), (Some(second_life), None));
}

/// A minute, in which nobody else stood still: by the clock, all others are silent for far longer than any threshold.
#[test]
fn who_stood_still_blames_nobody() {
    let mut bench = Bench::new(0..5);
    bench.run(60);
    let mut sleeper = bench.nodes.remove(&NodeId(0)).expect("it is there");
    let later = bench.now.saturating_add(Duration::from_secs(60));
    sleeper.handle(later, Input::Timeout).expect("no peer is concerned");
    while let Some(event) = sleeper.poll_event() {
        assert!(!matches!(event, Event::Suspected(_)), "{event:?}");
    }
}

#[test]
fn who_suspects_asks_and_who_is_suspected_answers_with_a_later_version() {
    let mut bench = Bench::new(0..5);
    bench.run(30);
    let now = bench.now;
    let state = bench.node(0);
    let place = state.find(PEER).expect("it is near");
    let version = state.near[place].version;
    state.suspect(now, place);
    let decode = |bytes: &[u8]| wire::decode::<Message>(NodeId(0), Protocol::State, bytes).expect("ours");
    let sent: Vec<_> = core::iter::from_fn(|| state.poll_transmit()).collect();
    let question = sent.iter().find(|transmit| transmit.to == PEER).expect("it is asked");
    assert_eq!(decode(&question.bytes).doubts[0].subject, PEER);
    assert!(sent.len() > 1, "and others are told");
    let suspect = bench.node(1);
    suspect.handle(now, Input::Message { from: NodeId(0), bytes: &question.bytes }).expect("honest");
    let shown = core::iter::from_fn(|| suspect.poll_transmit());
    let shown = shown.filter(|it| decode(&it.bytes).rows.iter().any(|row| row.version > version));
    assert!(shown.count() > 2, "it shows itself around");
}

/// Their contacts are forgotten, so that nothing but the memory of those who failed can help.
#[test]
fn halves_that_took_each_other_for_failed_find_each_other_again() {
    let mut bench = Bench::new(0..8);
    bench.run(40);
    bench.nodes.values_mut().for_each(|state| state.config.contacts.clear());
    let mut other = Bench::new([]);
    other.now = bench.now;
    other.nodes = bench.nodes.split_off(&NodeId(4));
    bench.run(60);
    other.run(60);
    assert!(bench.nodes.values().chain(other.nodes.values()).all(|state| state.alive() == 4));
    bench.nodes.append(&mut other.nodes);
    bench.run(60);
    assert!(bench.nodes.values().all(|state| state.alive() == 8));
}

/// It heard of the subject a moment ago, and does not believe at once that it failed; nor for ever that it did not.
#[test]
fn a_node_of_the_zone_believes_a_failure_when_its_own_clock_bears_it_out() {
    let mut bench = Bench::new(0..4);
    bench.run(40);
    let now = bench.now;
    let state = bench.node(0);
    let news = News { node: PEER, standing: Standing::FIRST.failed() };
    let message = Message { kind: Kind::Push, known: 4, news: alloc::vec![news], ..Message::default() };
    let bytes = encode(Protocol::State, &message);
    state.handle(now, Input::Message { from: NodeId(2), bytes: &bytes }).expect("honest");
    assert_eq!(state.member(PEER), Some(first_life(1)), "not yet");
    // Alone, it takes as long as it ever may: all others fall silent as well.
    let longest = state.config.longest_silence / 2 + state.config.interval * 2;
    let mut alone = bench.nodes.remove(&NodeId(0)).expect("it is there");
    while let Some(at) = alone.next_timeout().filter(|&at| at <= now.saturating_add(longest)) {
        alone.handle(at, Input::Timeout).expect("no peer is concerned");
    }
    assert_eq!(alone.member(PEER), None);
}

/// Nothing in its digest is wrong: only the hash of the farm shows that there is a zone of which it has never heard.
#[test]
fn who_lacks_a_whole_zone_hears_of_it_in_the_round_in_which_it_asks() {
    let mut bench = Bench::new(0..66);
    bench.run(30);
    let (now, far) = (bench.now, NodeId(640));
    for (_, knowing) in bench.nodes.iter_mut().filter(|(node, _)| **node != PEER) {
        knowing.raise(now, far, Standing::FIRST);
        knowing.rumours.clear();
        knowing.transmits.clear();
    }
    assert_eq!(bench.node(1).member(far), None);
    let at = bench.node(1).next_round;
    bench.node(1).handle(at, Input::Timeout).expect("no peer is concerned");
    bench.deliver();
    assert_eq!(bench.node(1).member(far), Some(first_life(640)));
}

/// A driver may take the time for an incarnation, and then nobody stands as most do, and every row is long. That no message is too
/// long is asserted wherever one is delivered.
#[test]
fn messages_are_short_even_if_all_numbers_are_long() {
    let mut bench = Bench::of_life(Incarnation(u64::MAX - 7), (64..128).chain(65_400..65_464));
    bench
        .nodes
        .values_mut()
        .for_each(|state| state.config.contacts = alloc::vec![NodeId(64), NodeId(65_400)]);
    for number in 0..64 {
        let now = bench.now;
        let key = format!("{number:064}");
        bench.node(64 + number).write(now, &key, Some(alloc::vec![0; 1024])).expect("short enough");
    }
    bench.run(60);
    assert!(bench.nodes.values().all(|state| state.alive() == 128));
    assert!((64..128).all(|owner| bench.node(65).entries(NodeId(owner)).count() == 1));
    bench.nodes.retain(|node, _| node.0 % 3 != 0);
    let left = bench.nodes.len();
    bench.run(60);
    assert!(bench.nodes.values().all(|state| state.alive() as usize == left));
    assert!(bench.sent.iter().any(|(_, bytes)| bytes.len() > 600), "they are long");
}

#[test]
fn nearer_nodes_are_gossiped_with_more_often() {
    let mut bench = Bench::new(0..64);
    bench.run(10);
    let state = bench.node(0);
    let picks: Vec<_> = (0..4000).filter_map(|_| state.any_near()).map(|node| node.0).collect();
    let often = |nodes: core::ops::Range<u32>| picks.iter().filter(|&node| nodes.contains(node)).count();
    let (near, far) = (often(1..17), often(48..64));
    assert!(picks.len() == 4000 && near > 3 * far / 2, "{near} to the near quarter, {far} to the far one");
    assert!(far > 400, "but the far ones are not forgotten: {far}");
}

/// The rule by which a node that has heard of node 1 for a while refuses a message from it.
fn refused(change: impl FnOnce(&mut Message)) -> &'static str {
    let mut bench = Bench::new(0..2);
    bench.run(10);
    let now = bench.now;
    let state = bench.node(0);
    let mut message = Message { known: 2, ..Message::default() };
    change(&mut message);
    let before = format!("{state:?}");
    let refused = state.handle(now, Input::Message { from: PEER, bytes: &encode(Protocol::State, &message) });
    state.refused -= 1;
    assert_eq!(before, format!("{state:?}"), "nothing has changed");
    let error = refused.expect_err("it is refused");
    assert_eq!(error.from, PEER);
    error.rule
}

fn row(step: u32, version: u32) -> Row {
    Row { step, incarnation: Incarnation(1), version, hash: [0; 4] }
}

fn delta() -> Delta {
    let change = |version, key: &str| Change { version, key: key.into(), value: None };
    Delta {
        owner: PEER,
        incarnation: Incarnation(1),
        floor: 0,
        since: 0,
        is_complete: true,
        hash: 0,
        changes: alloc::vec![change(1, "a"), change(2, "b")],
    }
}

#[test]
fn what_cannot_be_is_refused_with_its_rule() {
    let beyond = NodeId(1 << 16);
    let failed = Standing::FIRST.failed();
    let next_life = Standing::alive(Incarnation(2));
    let later_life = Row { incarnation: Incarnation(9), ..row(0, 1) };
    let news = |node, standing| alloc::vec![News { node, standing }];
    let doubt = |subject: u32, by: &[u32]| {
        let by = by.iter().copied().map(NodeId).collect();
        alloc::vec![Doubt { subject: NodeId(subject), incarnation: Incarnation(1), version: 1, by }]
    };
    let summary = |zone, present: u64, unusual: &[(u8, Standing)]| {
        alloc::vec![Summary { zone, present: present.to_le_bytes(), unusual: unusual.to_vec() }]
    };
    let rules = [
        refused(|it| it.known = 1 << 20),
        refused(|it| it.rows = alloc::vec![row(1, 1); 65]),
        refused(|it| it.rows = alloc::vec![row(0, 1), row(0, 1)]),
        refused(|it| it.rows = alloc::vec![row(1, 1), row(u32::MAX, 1)]),
        refused(|it| it.rows = alloc::vec![row(0, 1 << 30)]),
        refused(|it| it.rows = alloc::vec![row(1, u32::MAX)]),
        refused(|it| it.rows = alloc::vec![later_life]),
        refused(|it| it.doubts = doubt(1, &[2, 1])),
        refused(|it| it.doubts = doubt(1, &[])),
        refused(|it| it.doubts = doubt(1, &[1])),
        refused(|it| it.doubts = doubt(1, &[beyond.0])),
        refused(|it| it.news = news(beyond, failed)),
        refused(|it| it.news = news(NodeId(0), next_life)),
        refused(|it| it.zones = alloc::vec![ZoneRow { zone: 1024, beat: 1, hash: [0; 4] }]),
        refused(|it| it.summaries = summary(1024, 1, &[])),
        refused(|it| it.summaries = summary(0, 2, &[(0, failed)])),
        refused(|it| it.summaries = summary(0, 3, &[(1, failed), (0, failed)])),
        refused(|it| it.summaries = summary(0, 1, &[(0, next_life)])),
        refused(|it| {
            it.wants = alloc::vec![Want { owner: beyond, incarnation: Incarnation(1), since: 0, floor: 0 }];
        }),
        refused(|it| it.deltas = alloc::vec![Delta { owner: NodeId(0), ..delta() }]),
        refused(|it| it.deltas = alloc::vec![Delta { since: 1, ..delta() }]),
        refused(|it| {
            it.deltas = alloc::vec![delta()];
            it.deltas[0].changes.reverse();
        }),
        refused(|it| {
            it.deltas = alloc::vec![delta()];
            it.deltas[0].changes[1].key = "a".into();
        }),
        refused(|it| {
            it.deltas = alloc::vec![delta()];
            it.deltas[0].changes[1].value = Some(alloc::vec![0; 1025]);
        }),
        refused(|it| it.zones = alloc::vec![ZoneRow { zone: 1, beat: 1, hash: [0; 4] }; 300]),
    ];
    assert_eq!(
        rules,
        [
            "more nodes than there may be",
            "a digest of too many nodes",
            "a digest that has a node twice",
            "a digest with a node that cannot be",
            "a version of us that we never had",
            "a version that no life comes to",
            "a version of us that we never had",
            "doubters out of order",
            "a doubt of nobody, or of too many",
            "a node that doubts itself",
            "a doubt of no node",
            "news of no node",
            "a life of us that has not begun",
            "a zone that cannot be",
            "a zone that cannot be",
            "a zone that says how nobody stands",
            "a zone out of order",
            "a life of us that has not begun",
            "a request for entries of no node",
            "our own entries from another node",
            "changes from before",
            "changes out of order",
            "a key that changed twice",
            "a key or a value that is too long",
            "a message that is too long",
        ]
    );
}

fn any_standing() -> impl Strategy<Value = Standing> {
    let standing = |(incarnation, turn)| Standing { incarnation: Incarnation(incarnation), turn };
    (prop_oneof![8 => 1_u64..4, 1 => Just(0)], prop_oneof![0_u32..4, Just(u32::MAX)]).prop_map(standing)
}

fn any_node() -> impl Strategy<Value = NodeId> {
    prop_oneof![8 => 0_u32..6, 2 => 60_u32..70, 1 => any::<u32>()].prop_map(NodeId)
}

fn any_delta() -> impl Strategy<Value = Delta> {
    let change = ("[a-c]{1,2}", 0_u32..9, prop::option::of(prop::collection::vec(any::<u8>(), 0..9)));
    let change = change.prop_map(|(key, version, value)| Change { version, key, value });
    let numbers = (any_node(), 0_u64..3, 0_u32..5, 0_u32..5, any::<bool>(), any::<u32>());
    (numbers, prop::collection::vec(change, 0..4)).prop_map(|(numbers, mut changes)| {
        let (owner, incarnation, floor, since, is_complete, hash) = numbers;
        changes.sort_by_key(|change| change.version);
        Delta { owner, incarnation: Incarnation(incarnation), floor, since, is_complete, hash, changes }
    })
}

/// Messages that look like ours, with numbers that may be true, and some that cannot.
fn any_message() -> impl Strategy<Value = Message> {
    let kind = prop_oneof![Just(Kind::Digest), Just(Kind::Answer), Just(Kind::Return), Just(Kind::Push)];
    let life = || (0_u64..3).prop_map(Incarnation);
    let row = (0_u32..4, life(), 0_u32..30, prop_oneof![4 => Just([0; 4]), 1 => any::<[u8; 4]>()])
        .prop_map(|(step, incarnation, version, hash)| Row { step, incarnation, version, hash });
    let doubt = (any_node(), life(), 0_u32..30, prop::collection::btree_set(any_node(), 0..4));
    let doubt = doubt.prop_map(|(subject, incarnation, version, by)| {
        let by = by.into_iter().collect();
        Doubt { subject, incarnation, version, by }
    });
    let news = (any_node(), any_standing()).prop_map(|(node, standing)| News { node, standing });
    let zone =
        (0_u32..4, 0_u32..9, any::<[u8; 4]>()).prop_map(|(zone, beat, hash)| ZoneRow { zone, beat, hash });
    let present = prop_oneof![4 => Just([255; 8]), 1 => any::<[u8; 8]>()];
    let summary = (0_u32..4, present, prop::collection::btree_map(0_u8..66, any_standing(), 0..4));
    let summary = summary.prop_map(|(zone, present, unusual)| Summary {
        zone,
        present,
        unusual: unusual.into_iter().collect(),
    });
    let want = (any_node(), life(), 0_u32..9, 0_u32..9).prop_map(|(owner, incarnation, since, floor)| Want {
        owner,
        incarnation,
        since,
        floor,
    });
    let few = |limit: usize| 0..limit - 1;
    let states = (
        prop::collection::vec(row, few(6)),
        prop::collection::vec(doubt, few(3)),
        prop::collection::vec(news, few(3)),
        prop::collection::vec(zone, few(3)),
        prop::collection::vec(summary, few(3)),
    );
    let entries = (prop::collection::vec(want, few(3)), prop::collection::vec(any_delta(), few(3)));
    (kind, 0_u32..80, any::<[u8; 4]>(), states, entries).prop_map(|(kind, known, world, states, entries)| {
        let (rows, doubts, news, zones, summaries) = states;
        let (wants, deltas) = entries;
        Message { kind, known, world, rows, doubts, news, zones, summaries, wants, deltas }
    })
}

/// A node in the middle of its work, and messages that it and its peers sent.
fn busy() -> (State, Time, Vec<Vec<u8>>) {
    let mut bench = Bench::new((0..5).chain(62..66));
    bench.run(5);
    let now = bench.now;
    bench.node(1).write(now, "a", Some(b"value".to_vec())).expect("short enough");
    bench.nodes.remove(&NodeId(4));
    bench.run(12);
    let sent = bench.sent.into_iter().map(|(_, bytes)| bytes).collect();
    let state = bench.nodes.remove(&NodeId(0)).expect("it is there");
    (state, bench.now, sent)
}

/// Hands over a message: there is no panic, what is refused changes nothing, and what is sent is not too long.
fn survives(state: &mut State, now: Time, from: NodeId, bytes: &[u8]) -> bool {
    let before = format!("{state:?}");
    let refused = state.handle(now, Input::Message { from, bytes }).is_err();
    if refused {
        state.refused -= 1;
        assert_eq!(before, format!("{state:?}"), "what is refused changes nothing");
        state.refused += 1;
    }
    while state.poll_event().is_some() {}
    while let Some(transmit) = state.poll_transmit() {
        assert!(transmit.bytes.len() <= LONGEST_MESSAGE);
    }
    assert!(state.near.is_sorted_by(|a, b| a.member.node < b.member.node));
    assert!(state.member(NodeId(0)).is_some() || state.zones.get(NodeId(0)).is_some_and(Standing::is_fenced));
    !refused
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_bytes_do_no_harm(messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 20)) {
        let (mut state, now, _) = busy();
        for mut bytes in messages {
            survives(&mut state, now, PEER, &bytes);
            bytes.splice(0..0, [wire::VERSION, Protocol::State as u8]);
            survives(&mut state, now, PEER, &bytes);
        }
    }

    #[test]
    fn changed_messages_do_no_harm(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<u8>()), 40),
    ) {
        let (mut state, now, sent) = busy();
        for (which, place, value) in changes {
            let mut bytes = which.get(&sent).clone();
            let place = place.index(bytes.len());
            bytes[place] = value;
            survives(&mut state, now, PEER, &bytes);
        }
    }

    #[test]
    fn any_messages_do_no_harm_and_time_goes_on(
        messages in prop::collection::vec((any_message(), any_node(), 0_u64..3000), 30),
    ) {
        let (mut state, mut now, _) = busy();
        for (message, from, then_millis) in messages {
            survives(&mut state, now, from, &encode(Protocol::State, &message));
            now = now.saturating_add(Duration::from_millis(then_millis));
            state.handle(now, Input::Timeout).expect("no peer is concerned");
            assert!(state.next_timeout() > Some(now) || then_millis == 0);
        }
    }
}

/// The three above would prove nothing if all their messages were refused.
#[test]
fn some_made_up_messages_are_taken() {
    let (mut state, now, sent) = busy();
    let taken = sent.iter().filter(|bytes| survives(&mut state, now, PEER, bytes)).count();
    assert!(taken > sent.len() / 2, "{taken} of {}", sent.len());
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let made_up = (0..300).filter(|_| {
        let message = any_message().new_tree(&mut runner).expect("a message").current();
        survives(&mut state, now, PEER, &encode(Protocol::State, &message))
    });
    let taken = made_up.count();
    assert!((15..285).contains(&taken), "{taken} of 300");
}
