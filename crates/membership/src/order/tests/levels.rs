//! What a sender is told, and when.

use super::cluster::view;
use super::*;

#[test]
fn every_member_delivers_the_same_updates_in_the_same_order() {
    let mut cluster = Cluster::new(5, &Config::default());
    for round in 0..20_u8 {
        for node in 0..5 {
            cluster.submit(node, Level::Majority, &[round, u8::try_from(node).unwrap()]).unwrap();
        }
        cluster.settle();
    }
    let first = cluster.delivered(0);
    assert_eq!(first.len(), 100);
    assert!(first.iter().map(|(position, _)| *position).eq(1..=100));
    (1..5).for_each(|node| assert_eq!(cluster.delivered(node), first));
}

#[test]
fn an_update_reaches_its_level_and_no_other_when_so_many_hold_it() {
    let config = Config::default();
    let mut cluster = Cluster::new(5, &config);
    let submit = |cluster: &mut Cluster| {
        for level in [Level::Ordered, Level::Majority, Level::All] {
            cluster.submit(1, level, b"x").unwrap();
        }
        cluster.settle();
        cluster.pass(config.resend_after * 4);
    };
    let all = [(1, Level::Ordered), (2, Level::Majority), (3, Level::All)];
    submit(&mut cluster);
    assert_eq!(cluster.reached(1), all);

    cluster.silent = vec![4];
    submit(&mut cluster);
    assert_eq!(cluster.reached(1)[3..], [(4, Level::Ordered), (5, Level::Majority)]);

    cluster.silent = vec![2, 3, 4];
    submit(&mut cluster);
    assert_eq!(cluster.reached(1)[5..], [(7, Level::Ordered)]);
    assert_eq!(cluster.delivered(0).len(), 6, "what no quorum holds is not delivered");

    cluster.silent.clear();
    cluster.pass(config.resend_after * 40);
    assert_eq!(cluster.reached(1)[6..], [(8, Level::Majority), (6, Level::All), (9, Level::All)]);
}

#[test]
fn who_waits_for_all_hears_at_once_that_all_have_it() {
    let mut cluster = Cluster::new(5, &Config::default());
    for number in 1..=3 {
        cluster.submit(3, Level::All, b"x").unwrap();
        cluster.settle();
        assert_eq!(cluster.reached(3).last(), Some(&(number, Level::All)));
    }
}

#[test]
fn a_group_of_one_needs_nobody() {
    let mut cluster = Cluster::new(1, &Config::default());
    for level in [Level::Ordered, Level::Majority, Level::All] {
        cluster.submit(0, level, b"x").unwrap();
    }
    cluster.settle();
    assert_eq!(cluster.delivered(0).len(), 3);
    assert_eq!(cluster.reached(0), [(1, Level::Ordered), (2, Level::Majority), (3, Level::All)]);
    assert_eq!(cluster.orders[0].next_timeout(), None, "nothing is left to be done");
}

#[test]
fn updates_go_on_in_the_next_view_each_once() {
    let config = Config::default();
    let mut cluster = Cluster::new(5, &config);
    cluster.submit(2, Level::Majority, b"before").unwrap();
    cluster.settle();
    cluster.silent = vec![0];
    cluster.submit(2, Level::Majority, b"during").unwrap();
    cluster.submit(1, Level::Majority, b"own").unwrap();
    cluster.pass(config.resend_after * 3);
    cluster.change_view(&view(2, &[1, 2, 3, 4]));
    cluster.pass(config.resend_after);
    let updates: Vec<_> = cluster.delivered(1).into_iter().map(|(_, body)| body).collect();
    assert_eq!(updates, [&b"before"[..], b"own", b"during"]);
    (2..5).for_each(|node| assert_eq!(cluster.delivered(node), cluster.delivered(1)));
    assert_eq!(cluster.reached(2), [(1, Level::Majority), (2, Level::Majority)]);
}

#[test]
fn a_quiet_group_sends_nothing() {
    let config = Config::default();
    let mut cluster = Cluster::new(5, &config);
    cluster.submit(3, Level::All, b"x").unwrap();
    cluster.pass(config.resend_after * 40);
    assert!(cluster.orders.iter().all(|order| order.next_timeout().is_none()));
    assert!(cluster.orders.iter().all(|order| order.kept() == 0), "what all hold is kept by nobody");
}

#[test]
fn who_waits_hears_of_a_commit_at_once_and_the_others_in_a_moment() {
    let config = Config { tell_after: Duration::from_millis(3), ..Config::default() };
    let mut cluster = Cluster::new(5, &config);
    cluster.submit(3, Level::Majority, b"x").unwrap();
    cluster.settle();
    assert_eq!(cluster.reached(3), [(1, Level::Majority)]);
    let delivered = |cluster: &Cluster| [0, 1, 2, 3, 4].map(|node| cluster.delivered(node).len());
    assert_eq!(delivered(&cluster), [1, 0, 0, 1, 0], "the sequencer and the sender");
    cluster.pass(Duration::from_millis(2));
    assert_eq!(delivered(&cluster), [1, 0, 0, 1, 0]);
    cluster.pass(Duration::from_millis(1));
    assert_eq!(delivered(&cluster), [1; 5]);
    // A batch tells them sooner.
    cluster.submit(2, Level::Majority, b"y").unwrap();
    cluster.settle();
    cluster.submit(2, Level::Majority, b"z").unwrap();
    cluster.settle();
    assert_eq!(delivered(&cluster), [3, 2, 3, 2, 2]);
    assert_eq!(cluster.reached(2), [(1, Level::Majority), (2, Level::Majority)]);
}

/// They hold it when it is committed, all of them, so that nobody need keep it; the one who waits has still to be found.
#[test]
fn who_waits_hears_at_once_also_where_all_hold_it_by_then() {
    let config = Config { tell_after: Duration::from_millis(3), ..Config::default() };
    let mut cluster = Cluster::new(2, &config);
    for number in 1..=3 {
        cluster.submit(1, Level::Majority, b"x").unwrap();
        cluster.settle();
        assert_eq!(cluster.reached(1).len(), number);
    }
}
