//! Whatever comes, nothing breaks; and what is refused has changed nothing.

use core::hash::{Hash, Hasher};
use std::hash::DefaultHasher;

use proptest::prelude::*;

use super::message::{Copied, Known, Ordered, Submitted};
use super::*;
use crate::wire::{Protocol, VERSION, encode};

/// All of a machine, but for what it has counted.
fn fingerprint(order: &Order) -> u64 {
    let mut order = order.clone();
    order.counts = Counts::default();
    let mut hasher = DefaultHasher::new();
    order.hash(&mut hasher);
    hasher.finish()
}

/// A group in which something has happened, and something more is going on.
fn busy() -> Cluster {
    let mut cluster = Cluster::new(3, &Config { history_most: 8, window_most: 8, ..Config::default() });
    for _ in 0..3 {
        cluster.submit(1, Level::Majority, b"old").unwrap();
    }
    cluster.settle();
    cluster.submit(1, Level::Majority, b"new").unwrap();
    cluster.poll(1);
    let (from, _, submit) = cluster.under_way.pop_front().expect("an update is under way");
    cluster.input(0, Input::Message { from, bytes: &submit }).unwrap();
    let (from, _, batch) = cluster.under_way.pop_front().expect("a batch is under way");
    cluster.input(1, Input::Message { from, bytes: &batch }).unwrap();
    assert_eq!((cluster.orders[0].held(), cluster.orders[0].delivered()), (4, 3));
    cluster
}

fn progress(committed: u64, last: u64) -> Progress {
    Progress { committed, stable: 0, trim: 0, last }
}

fn batch(epoch: u64, first: u64, progress: Progress, entries: &[Ordered<'_>]) -> Vec<u8> {
    let entries = entries.iter().fold(Vec::new(), message::append);
    let head = Head::Batch { epoch: ViewEpoch(epoch), first, progress, answer: false };
    head.write_with(&entries).0.to_vec()
}

fn submit(first_number: u64, held: u64, bodies: &[&[u8]]) -> Vec<u8> {
    let known = Known { held, committed: 0, stable: 0 };
    let append = |bytes, body: &&[u8]| message::append(bytes, &Submitted { level: Level::All, body });
    let entries = bodies.iter().fold(Vec::new(), append);
    Head::Submit { epoch: ViewEpoch(1), known, first_number }.write_with(&entries).0.to_vec()
}

#[track_caller]
fn refused(to: u32, from: u32, bytes: &[u8]) -> &'static str {
    let mut cluster = busy();
    let before = fingerprint(&cluster.orders[to as usize]);
    let input = Input::Message { from: NodeId(from), bytes };
    let error = cluster.orders[to as usize].handle(Time::ZERO, input).expect_err("refused");
    assert_eq!(error.from, NodeId(from));
    assert_eq!(fingerprint(&cluster.orders[to as usize]), before, "nothing has changed");
    assert_eq!(cluster.orders[to as usize].counts().refused, 1);
    error.rule
}

#[test]
fn each_lie_is_refused_with_its_reason() {
    let update = |number, body| Ordered { place: 1, number, body };
    let good = batch(1, 5, progress(4, 5), &[update(5, b"x")]);
    assert_eq!(refused(1, 2, &good), "positions from somebody who is not the sequencer");
    assert_eq!(refused(0, 2, &good), "positions from somebody who is not the sequencer");
    assert_eq!(refused(1, 9, &good), "a message from somebody who is no other member");
    assert_eq!(refused(1, 1, &good), "a message from somebody who is no other member");
    assert_eq!(refused(1, 0, &batch(1, 5, progress(4, 5), &[update(6, b"x")])), "a number out of its turn");
    assert_eq!(refused(1, 0, &batch(1, 5, progress(4, 5), &[update(4, b"x")])), "a number out of its turn");
    assert_eq!(
        refused(1, 0, &batch(1, 4, progress(4, 5), &[update(4, b"x")])),
        "one position for two updates"
    );
    assert_eq!(refused(1, 0, &batch(1, 6, progress(4, 5), &[update(5, b"x")])), "positions beyond the last");
    assert_eq!(refused(1, 0, &batch(1, 5, progress(6, 5), &[])), "a progress that contradicts itself");
    assert_eq!(refused(1, 0, &batch(1, 5, progress(4, 99), &[])), "more positions than a window has");
    let nobody = Ordered { place: 3, number: 1, body: b"x" };
    assert_eq!(refused(1, 0, &batch(1, 5, progress(4, 5), &[nobody])), "an update from nobody");
    assert_eq!(refused(2, 1, &submit(1, 0, &[b"x"])), "what only the sequencer is told");
    assert_eq!(refused(0, 1, &submit(5, 9, &[b"x"])), "an acknowledgement of what never was");
    assert_eq!(refused(0, 1, &submit(5 + 256, 4, &[b"x"])), "more updates than may be outstanding");
    assert_eq!(refused(0, 1, &submit(4, 4, &[b"other"])), "one number for two updates");
    assert_eq!(refused(0, 1, &submit(0, 4, &[b"x"])), "numbers that cannot be");
    assert_eq!(refused(0, 1, &submit(5, 4, &[&[0; 1400]])), "an update that does not fit a message");
    let fetch = |first, last| Head::Fetch { epoch: ViewEpoch(1), first, last }.write();
    assert_eq!(refused(0, 1, &fetch(3, 2)), "a request for nothing");
    assert_eq!(refused(0, 1, &[fetch(2, 3), vec![0]].concat()), "a message with something behind it");
    assert_eq!(
        refused(0, 1, &[good, vec![255]].concat()),
        "positions from somebody who is not the sequencer"
    );
    assert_eq!(refused(0, 1, &encode(Protocol::State, &0_u8)), "a message of another protocol");
}

#[test]
fn two_pending_updates_of_one_number_are_seen() {
    let mut cluster = busy();
    let tell = |cluster: &mut Cluster, body: &[u8]| {
        let bytes = submit(6, 0, &[body]);
        cluster.orders[0].handle(Time::ZERO, Input::Message { from: NodeId(2), bytes: &bytes })
    };
    assert_eq!(tell(&mut cluster, b"one"), Ok(()), "number 6 waits for 1 to 5");
    assert_eq!(tell(&mut cluster, b"one"), Ok(()));
    assert_eq!(tell(&mut cluster, b"two").expect_err("refused").rule, "one number for two updates");
}

#[test]
fn other_views_are_counted_and_have_no_effect() {
    let mut cluster = busy();
    let before = fingerprint(&cluster.orders[1]);
    for epoch in [0, 2] {
        let update = Ordered { place: 1, number: 5, body: b"x" };
        let bytes = batch(epoch, 5, progress(4, 5), &[update]);
        cluster.orders[1].handle(Time::ZERO, Input::Message { from: NodeId(0), bytes: &bytes }).unwrap();
    }
    assert_eq!(fingerprint(&cluster.orders[1]), before);
    let counts = cluster.orders[1].counts();
    assert_eq!((counts.stale, counts.ahead), (1, 1));
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 0_u64..12, 1 => Just(u64::MAX), 1 => Just(u64::MAX - 1)]
}

fn body() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![Just(b"old".to_vec()), Just(b"new".to_vec()), proptest::collection::vec(any::<u8>(), 0..4)]
}

fn known() -> impl Strategy<Value = Known> {
    (number(), number(), number()).prop_map(|(held, committed, stable)| Known { held, committed, stable })
}

fn said_progress() -> impl Strategy<Value = Progress> {
    (number(), number(), number(), number()).prop_map(|(committed, stable, trim, last)| Progress {
        committed,
        stable,
        trim,
        last,
    })
}

prop_compose! {
    /// A message that means something, true or not.
    fn some_message()(
        kind in 0..6,
        epoch in (0_u64..4).prop_map(ViewEpoch),
        numbers in (number(), number()),
        known in known(),
        progress in said_progress(),
        answer in any::<bool>(),
        entries in proptest::collection::vec((0_u32..4, number(), body(), 0_u64..3), 0..4),
        garbage in proptest::collection::vec(any::<u8>(), 0..2),
    ) -> Vec<u8> {
        let (first, last) = numbers;
        let head = match kind {
            0 => Head::Submit { epoch, known, first_number: first },
            1 => Head::Batch { epoch, first, progress, answer },
            2 => Head::Ack { epoch, known },
            3 => Head::Fetch { epoch, first, last },
            4 => Head::Copies { epoch, first },
            _ => Head::Trimmed { epoch, first },
        };
        let mut bytes = Vec::new();
        for (place, number, body, epoch) in &entries {
            let (&place, &number) = (place, number);
            let sender = cluster::member(place);
            bytes = match kind {
                0 => message::append(bytes, &Submitted { level: Level::All, body }),
                1 => message::append(bytes, &Ordered { place, number, body }),
                4 => message::append(bytes, &Copied { epoch: ViewEpoch(*epoch), sender, number, body }),
                _ => bytes,
            };
        }
        bytes.extend(garbage);
        head.write_with(&bytes).0.to_vec()
    }
}

fn any_message() -> impl Strategy<Value = Vec<u8>> {
    let noise = proptest::collection::vec(any::<u8>(), 0..40).prop_map(|mut bytes| {
        bytes.splice(..0, [VERSION, Protocol::Order as u8]);
        bytes
    });
    prop_oneof![9 => some_message(), 1 => noise, 1 => proptest::collection::vec(any::<u8>(), 0..40)]
}

/// Where a machine is when it is lied to.
fn ready(to: u32, stage: u8) -> Order {
    let mut cluster = busy();
    let order = &mut cluster.orders[to as usize];
    let view = cluster::view(2, &[0, 1, 2]);
    if stage > 0 {
        order.handle(Time::ZERO, Input::Freeze).unwrap();
    }
    if stage > 1 {
        let holders = vec![NodeId(0), NodeId(1)];
        order.handle(Time::ZERO, Input::Change { view, cut: 6, holders }).unwrap();
    }
    order.clone()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_message_breaks_a_machine_and_none_that_is_refused_changes_it(
        to in 0_u32..3,
        stage in 0_u8..3,
        messages in proptest::collection::vec((0_u32..4, any_message()), 1..20),
    ) {
        let mut order = ready(to, stage);
        let mut last = order.delivered();
        for (from, bytes) in messages {
            let before = fingerprint(&order);
            let from = NodeId(from);
            if let Err(error) = order.handle(Time::ZERO, Input::Message { from, bytes: &bytes }) {
                prop_assert_eq!(error.from, from);
                prop_assert_eq!(fingerprint(&order), before);
            }
            while order.poll_transmit().is_some() {}
            while let Some(event) = order.poll_event() {
                if let Event::Delivered(delivery) = event {
                    prop_assert_eq!(delivery.position, last + 1);
                    last += 1;
                }
            }
            prop_assert!(order.kept() < 100, "bounded, whatever is told");
        }
    }
}
