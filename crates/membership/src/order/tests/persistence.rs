//! The log: nothing is acknowledged that is not on a disk, and a group that was down as a whole goes on where it was.

use super::cluster::{member, view};
use super::*;

fn logged() -> Config {
    Config { has_log: true, ..Config::default() }
}

/// The records that a node was told to write, and has not been answered for.
fn records(cluster: &Cluster, node: u32) -> Vec<(u64, Vec<u8>)> {
    let records = cluster.events[node as usize].iter().filter_map(|event| match event {
        Event::Persist { position, bytes } => Some((*position, bytes.clone())),
        _ => None,
    });
    records.collect()
}

#[test]
fn nothing_is_acknowledged_before_it_is_on_the_disk() {
    let mut cluster = Cluster::new(3, &logged());
    cluster.submit(1, Level::Majority, b"x").unwrap();
    cluster.settle();
    assert_eq!(cluster.delivered(1), []);
    cluster.input(1, Input::Persisted { position: 1 }).unwrap();
    cluster.settle();
    assert_eq!(cluster.delivered(1), [], "one of three");
    cluster.input(2, Input::Persisted { position: 1 }).unwrap();
    cluster.settle();
    assert_eq!(cluster.delivered(1).len(), 1, "two of three, whoever they are");
}

fn restored(node: u32, records: &[(u64, Vec<u8>)]) -> Order {
    let life = Member { incarnation: Incarnation(2), ..member(node) };
    let records = records.iter().map(|(_, bytes)| &bytes[..]);
    Order::restored(logged(), life, Snapshot::default(), records).expect("a log without fault")
}

/// Members 0 and 1 have two updates on disk, 2 has one. All come back; they agree on two, and deliver both anew.
#[test]
fn a_group_that_was_down_as_a_whole_goes_on_from_the_last_agreed_update() {
    let mut cluster = Cluster::new(3, &logged());
    for (number, body) in [(1, b"first"), (2, b"secnd")] {
        cluster.submit(1, Level::Majority, body).unwrap();
        cluster.settle();
        for node in [0, 1] {
            cluster.input(node, Input::Persisted { position: number }).unwrap();
        }
        cluster.settle();
    }
    let logs: Vec<_> = (0..3).map(|node| records(&cluster, node)).collect();
    assert_eq!(cluster.delivered(1).len(), 2);
    let lives = (0..3).map(|node| Member { incarnation: Incarnation(2), ..member(node) });
    let next = View { epoch: ViewEpoch(2), members: lives.collect(), tie_breaker: NodeId(0) };
    cluster.orders = vec![restored(0, &logs[0]), restored(1, &logs[1]), restored(2, &logs[2][..1])];
    cluster.events = vec![Vec::new(); 3];
    assert!(cluster.orders[..2].iter().all(|order| order.last_epoch() == ViewEpoch(1)));
    for node in 0..3 {
        cluster.input(node, Input::Freeze).unwrap();
    }
    let positions: Vec<_> = cluster.events.iter().map(|events| events[0].clone()).collect();
    assert_eq!(positions, [Event::Position(2), Event::Position(2), Event::Position(1)]);
    for node in 0..3 {
        let holders = vec![NodeId(0), NodeId(1)];
        cluster.input(node, Input::Change { view: next.clone(), cut: 2, holders }).unwrap();
    }
    cluster.settle();
    assert!(!cluster.events[2].contains(&Event::Flushed), "what it fetched is not on its disk");
    cluster.input(2, Input::Persisted { position: 2 }).unwrap();
    for node in 0..3 {
        assert!(cluster.events[node as usize].contains(&Event::Flushed), "node {node}");
        cluster.input(node, Input::Install(next.clone())).unwrap();
        assert_eq!(cluster.delivered(node).len(), 2);
    }
    let again = cluster.submit(1, Level::Majority, b"third").unwrap();
    assert_eq!(again, 1, "another life counts anew");
    cluster.settle();
    for node in [0, 1] {
        cluster.input(node, Input::Persisted { position: 3 }).unwrap();
    }
    cluster.settle();
    assert_eq!(cluster.delivered(2)[2], (3, b"third".to_vec()));
}

/// A record that was under way when its updates were dropped says nothing of those that took their positions.
#[test]
fn a_record_of_what_was_dropped_does_not_count() {
    let mut cluster = Cluster::new(3, &logged());
    cluster.submit(0, Level::Majority, b"dropped").unwrap();
    cluster.settle();
    let next = view(2, &[1, 2]);
    for node in [1, 2] {
        cluster.input(node, Input::Freeze).unwrap();
        let change = Input::Change { view: next.clone(), cut: 0, holders: vec![NodeId(1), NodeId(2)] };
        cluster.input(node, change).unwrap();
        cluster.input(node, Input::Install(next.clone())).unwrap();
    }
    cluster.submit(1, Level::Majority, b"kept").unwrap();
    cluster.settle();
    for node in [1, 2] {
        cluster.input(node, Input::Persisted { position: 1 }).unwrap();
    }
    cluster.settle();
    assert_eq!(cluster.delivered(1), [], "those were the records of what was dropped");
    for node in [1, 2] {
        cluster.input(node, Input::Persisted { position: 1 }).unwrap();
    }
    cluster.settle();
    assert_eq!(cluster.delivered(1), [(1, b"kept".to_vec())]);
}

#[test]
fn a_log_with_a_fault_is_refused() {
    let life = member(0);
    let read =
        |record: &[u8]| Order::restored(logged(), life, Snapshot::default(), [record]).expect_err("a fault");
    assert_eq!(read(&[]), LogError::Unreadable);
    assert_eq!(read(&[1, 255]), LogError::Unreadable);
    assert_eq!(read(&[0]), LogError::Unreadable);
    assert_eq!(read(&[2]), LogError::Gap { first: 2 });
}

/// The records of two updates, the second of which is as told.
fn log_of(second: &[u8]) -> Vec<(u64, Vec<u8>)> {
    let mut cluster = Cluster::new(3, &logged());
    for (number, body) in [(1, &b"first"[..]), (2, second)] {
        cluster.submit(1, Level::Majority, body).unwrap();
        cluster.settle();
        for node in [0, 1] {
            cluster.input(node, Input::Persisted { position: number }).unwrap();
        }
        cluster.settle();
    }
    records(&cluster, 1)
}

/// A member comes back with an update that the view after it had dropped, while others come back with what took its
/// position. Its first update is as theirs: that is on its disk, and is not written again, for it would be missing if all
/// went down meanwhile.
#[test]
fn what_a_log_holds_and_the_holders_do_not_is_replaced_and_nothing_else() {
    let mut cluster = Cluster::new(3, &logged());
    let lives = (0..3).map(|node| Member { incarnation: Incarnation(2), ..member(node) });
    let next = View { epoch: ViewEpoch(2), members: lives.collect(), tie_breaker: NodeId(0) };
    let good = log_of(b"agreed");
    cluster.orders = vec![restored(0, &good), restored(1, &good), restored(2, &log_of(b"dropped"))];
    for node in 0..3 {
        cluster.input(node, Input::Freeze).unwrap();
        let holders = vec![NodeId(0), NodeId(1)];
        cluster.input(node, Input::Change { view: next.clone(), cut: 2, holders }).unwrap();
    }
    cluster.settle();
    let written = records(&cluster, 2);
    assert_eq!(written.len(), 1);
    assert_eq!((written[0].0, written[0].1[0]), (2, 2), "one record, of position 2 alone");
    cluster.input(2, Input::Persisted { position: 2 }).unwrap();
    for node in 0..3 {
        cluster.input(node, Input::Install(next.clone())).unwrap();
        assert_eq!(cluster.delivered(node)[1], (2, b"agreed".to_vec()));
    }
}
