//! Losses, gaps, and members that fall behind.

use super::cluster::view;
use super::*;

fn small() -> Config {
    Config { history_most: 32, window_most: 32, ..Config::default() }
}

fn submit_many(cluster: &mut Cluster, count: u8) {
    for number in 0..count {
        cluster.submit(1, Level::Majority, &[number]).unwrap();
        cluster.settle();
    }
}

fn lagging(cluster: &Cluster) -> Vec<Event> {
    let is_told = |event: &&Event| matches!(event, Event::Lagging { .. } | Event::CaughtUp { .. });
    cluster.events[0].iter().filter(is_told).cloned().collect()
}

#[test]
fn a_lost_batch_is_asked_for_when_the_gap_is_seen() {
    let config = small();
    let mut cluster = Cluster::new(3, &config);
    cluster.silent = vec![2];
    submit_many(&mut cluster, 1);
    cluster.silent.clear();
    submit_many(&mut cluster, 1);
    assert_eq!(cluster.delivered(2), [], "the first is missing");
    cluster.pass(config.gap_after);
    assert_eq!(cluster.delivered(2).len(), 2);
    assert_eq!(cluster.orders[2].counts().fetched, 1);
}

#[test]
fn a_state_from_beyond_the_cut_is_not_taken_on_the_way_into_a_view() {
    let mut cluster = Cluster::new(3, &small());
    submit_many(&mut cluster, 3);
    cluster.input(2, Input::Freeze).unwrap();
    let holders = vec![NodeId(0)];
    cluster.input(2, Input::Change { view: view(2, &[0, 1, 2]), cut: 5, holders }).unwrap();
    for (position, delivered) in [(6, 3), (5, 5)] {
        let snapshot = Snapshot { position, ..Snapshot::default() };
        cluster.input(2, Input::Snapshot(snapshot)).unwrap();
        assert_eq!(cluster.orders[2].delivered(), delivered);
    }
}

#[test]
fn a_cut_is_reached_before_it_is_agreed_and_nothing_is_done_about_what_lies_before_or_beyond() {
    let mut cluster = Cluster::new(3, &small());
    cluster.silent = vec![2];
    submit_many(&mut cluster, 3);
    cluster.silent.clear();
    (0..3).for_each(|node| cluster.input(node, Input::Freeze).unwrap());
    let reach = |cluster: &mut Cluster, node, cut| {
        cluster.input(node, Input::Reach { cut, holders: vec![NodeId(0)] }).unwrap();
        cluster.settle();
        cluster.events[node as usize].last().cloned()
    };
    assert_eq!(reach(&mut cluster, 0, 2), Some(Event::Position(3)), "it may end beyond that");
    assert_eq!(reach(&mut cluster, 2, 2), Some(Event::Position(2)));
    assert_eq!(reach(&mut cluster, 2, 3), Some(Event::Position(3)));
    assert_eq!(cluster.delivered(2), [], "it may end before that");
}

/// The holder died, and another that had everything was asked for nothing, since it had been silent when the view ended.
#[test]
fn if_the_holders_are_silent_whoever_was_left_out_is_asked() {
    let config = small();
    let mut cluster = Cluster::new(3, &config);
    cluster.silent = vec![2];
    submit_many(&mut cluster, 3);
    (1..3).for_each(|node| cluster.input(node, Input::Freeze).unwrap());
    cluster.silent = vec![0];
    let change = |cut, epoch| Input::Change { view: view(epoch, &[0, 2]), cut, holders: vec![NodeId(0)] };
    cluster.input(2, change(2, 2)).unwrap();
    cluster.pass(config.resend_after * 4);
    assert_eq!(cluster.events[2].last(), Some(&Event::Flushed));
    // What it holds beyond may have been dropped by a view that it does not know.
    cluster.input(2, change(3, 3)).unwrap();
    cluster.pass(config.resend_after * 40);
    assert_eq!(cluster.orders[2].held(), 2);
}

#[test]
fn what_those_said_who_have_left_is_no_part_of_the_state() {
    let mut cluster = Cluster::new(3, &small());
    cluster.submit(2, Level::Majority, b"last word").unwrap();
    cluster.settle();
    cluster.change_view(&view(2, &[0, 1]));
    assert_eq!(cluster.orders[0].snapshot(Vec::new()).numbers, []);
}

#[test]
fn a_lost_update_is_sent_again_and_happens_once() {
    let config = small();
    let mut cluster = Cluster::new(3, &config);
    cluster.silent = vec![1];
    submit_many(&mut cluster, 1);
    cluster.silent.clear();
    cluster.pass(config.resend_after * 2);
    assert_eq!(cluster.delivered(1).len(), 1);
    assert_eq!(cluster.orders[1].counts().resent, 1);
}

#[test]
fn who_is_silent_for_too_long_is_lagging_and_catches_up_from_the_history() {
    let config = small();
    let mut cluster = Cluster::new(3, &config);
    cluster.silent = vec![2];
    submit_many(&mut cluster, 20);
    assert_eq!(cluster.delivered(0).len(), 20, "nobody waits");
    cluster.pass(config.lag_after * 2);
    assert_eq!(lagging(&cluster), [Event::Lagging { member: NodeId(2), held: 0 }]);
    assert_eq!(cluster.orders[0].laggards(), [NodeId(2)]);
    assert_eq!(cluster.orders[0].kept(), 20, "they are kept for it");
    cluster.silent.clear();
    cluster.pass(config.resend_after * 40);
    assert_eq!(lagging(&cluster)[1..], [Event::CaughtUp { member: NodeId(2) }]);
    assert_eq!(cluster.delivered(2), cluster.delivered(0));
}

#[test]
fn who_lacks_more_than_is_kept_is_given_a_snapshot() {
    let config = small();
    let mut cluster = Cluster::new(3, &config);
    cluster.silent = vec![2];
    submit_many(&mut cluster, 100);
    assert_eq!(cluster.delivered(0).len(), 100, "nobody waits");
    assert!(cluster.orders[0].kept() <= 33 && cluster.orders[1].kept() <= 33, "the history is bounded");
    cluster.silent.clear();
    cluster.pass(config.resend_after * 40);
    assert!(cluster.events[2].contains(&Event::NeedsSnapshot { from: 1 }));
    let snapshot = cluster.orders[1].snapshot(Vec::new());
    cluster.input(2, Input::Snapshot(snapshot)).unwrap();
    cluster.pass(config.resend_after * 40);
    assert!(lagging(&cluster).ends_with(&[Event::CaughtUp { member: NodeId(2) }]));
    submit_many(&mut cluster, 1);
    assert_eq!(cluster.delivered(2), cluster.delivered(0)[100..]);
}

#[test]
fn all_senders_get_their_turn() {
    let config = Config { window_most: 16, longest_message: 400, ..Config::default() };
    let mut cluster = Cluster::new(3, &config);
    for number in 0..200 {
        cluster.submit(1, Level::Majority, &[1, number]).unwrap();
    }
    cluster.poll(1);
    cluster.submit(2, Level::Majority, &[2]).unwrap();
    cluster.settle();
    let all = cluster.delivered(0);
    let place = all.iter().position(|(_, body)| body[0] == 2).expect("it was delivered");
    assert!(place < 60, "it waited for {place} of 200");
}

#[test]
fn the_window_closes_on_a_loss_and_opens_again() {
    let config = Config::default();
    let mut cluster = Cluster::new(3, &config);
    let before = cluster.orders[0].window().expect("it is the sequencer");
    cluster.silent = vec![2];
    submit_many(&mut cluster, 1);
    cluster.silent.clear();
    submit_many(&mut cluster, 1);
    cluster.pass(config.gap_after);
    let after = cluster.orders[0].window().unwrap();
    assert!(after < before, "{before} {after}");
    submit_many(&mut cluster, 100);
    assert!(cluster.orders[0].window().unwrap() > after);
    assert_eq!(cluster.orders[1].window(), None);
}

#[test]
fn a_sender_may_have_so_many_outstanding_and_so_long_ones() {
    let config = Config { outstanding_most: 2, ..Config::default() };
    let mut cluster = Cluster::new(2, &config);
    let long = vec![0; config.longest_update()];
    assert_eq!(cluster.submit(1, Level::Majority, &[&long[..], &[0]].concat()), Err(SubmitError::TooLong));
    assert_eq!(cluster.submit(1, Level::Majority, &long), Ok(1));
    assert_eq!(cluster.submit(1, Level::Majority, &long), Ok(2));
    assert_eq!(cluster.submit(1, Level::Majority, &[]), Err(SubmitError::Full));
    cluster.poll(1);
    while let Some((from, to, bytes)) = cluster.under_way.pop_front() {
        assert!(bytes.len() <= config.longest_message);
        cluster.input(to.0, Input::Message { from, bytes: &bytes }).unwrap();
    }
    assert_eq!(cluster.delivered(0).len(), 2);
    assert_eq!(cluster.submit(1, Level::Majority, &[]), Ok(3));
}

#[test]
fn a_laggard_holds_up_updates_for_all_and_no_others() {
    let config = Config { outstanding_most: 4, ..small() };
    let mut cluster = Cluster::new(3, &config);
    cluster.silent = vec![2];
    let submit = |cluster: &mut Cluster, level| {
        let outcome = cluster.submit(1, level, b"x");
        cluster.settle();
        outcome.is_ok()
    };
    assert!((0..4).all(|_| submit(&mut cluster, Level::All)));
    assert!(!submit(&mut cluster, Level::All), "so many may wait for it, not more");
    assert!((0..100).all(|_| submit(&mut cluster, Level::Majority)));
    assert_eq!(cluster.delivered(0).len(), 104);
}
