//! The sequencer by itself: what it takes into a batch, what it makes of acknowledgements, and whom it reminds.

use super::cluster::view;
use super::message::{Known, MOST_OVERHEAD_BYTES};
use super::sender::MOST_BACKOFF;
use super::sequencer::Sequencer;
use super::*;

fn small() -> Config {
    Config {
        longest_message: MOST_OVERHEAD_BYTES + 400,
        window_most: 64,
        history_most: 10,
        ..Config::default()
    }
}

fn sequencer(members: u32, config: &Config) -> Sequencer {
    let nodes: Vec<_> = (0..members).collect();
    Sequencer::new(&view(1, &nodes), config, 0, |_| 1)
}

fn admit(sequencer: &mut Sequencer, place: usize, number: u64, bytes: usize) -> bool {
    sequencer.admit(place, number, Level::Majority, Body::from(&vec![0; bytes][..]))
}

fn progress(committed: u64, last: u64) -> Progress {
    Progress { committed, stable: 0, trim: 0, last }
}

fn known(held: u64) -> Known {
    Known { held, committed: 0, stable: 0 }
}

fn acknowledge(
    sequencer: &mut Sequencer,
    now: Time,
    place: usize,
    known: Known,
    progress: &Progress,
) -> (Result<bool, PeerError>, Vec<Event>) {
    let mut events = VecDeque::new();
    let outcome = sequencer.acknowledge(now, place, known, progress, &mut events);
    (outcome, events.into())
}

fn survey(sequencer: &mut Sequencer, now: Time, config: &Config, progress: &Progress) -> usize {
    sequencer.survey(now, config, progress, &mut VecDeque::new());
    sequencer.laggards().count()
}

#[test]
fn while_a_batch_is_under_way_only_a_full_one_follows_and_what_it_leaves_waits() {
    let config = small();
    let mut sequencer = sequencer(3, &config);
    let under_way = progress(0, 1);
    (1..=4).for_each(|number| assert!(admit(&mut sequencer, 1, number, 128)));
    assert!(!sequencer.has_batch(&config, &under_way), "512 bytes");
    (5..=6).for_each(|number| assert!(admit(&mut sequencer, 1, number, 128)));
    assert!(sequencer.has_batch(&config, &under_way), "768 bytes fill a message");
    let (entries, numbered) = sequencer.fill_batch(&config, &under_way);
    assert_eq!(numbered.len(), 3, "a message is no longer than it may be");
    assert_eq!(numbered.last().map(|last| last.body.end), Some(entries.len()), "with nothing behind them");
    assert!(!sequencer.has_batch(&config, &under_way), "what is left fills no message");
    assert!(sequencer.has_batch(&config, &progress(1, 1)));
}

#[test]
fn nothing_gets_a_position_beyond_the_window() {
    let config = Config { window_most: 4, ..small() };
    let mut sequencer = sequencer(3, &config);
    (1..=9).for_each(|number| assert!(admit(&mut sequencer, 1, number, 100)));
    assert_eq!(sequencer.fill_batch(&config, &progress(0, 3)).1.len(), 1);
    assert!(!sequencer.has_batch(&config, &progress(0, 4)));
    assert!(sequencer.has_batch(&config, &progress(1, 4)));
}

#[test]
fn a_batch_takes_all_that_is_in_turn_and_nothing_that_is_not() {
    let config = small();
    let mut sequencer = sequencer(3, &config);
    (1..=3).for_each(|number| assert!(admit(&mut sequencer, 1, number, 1)));
    assert!(admit(&mut sequencer, 2, 2, 1), "the first is still to come");
    assert!(!admit(&mut sequencer, 1, 3, 1), "it waits already");
    let (_, numbered) = sequencer.fill_batch(&config, &progress(0, 0));
    let taken: Vec<_> = numbered.iter().map(|update| (update.place, update.number)).collect();
    assert_eq!(taken, [(1, 1), (1, 2), (1, 3)]);
    assert!(!admit(&mut sequencer, 1, 3, 1), "it has a position");
    assert!(!sequencer.has_batch(&config, &progress(0, 0)));
}

#[test]
fn so_many_may_be_outstanding_and_not_one_more() {
    let config = Config { outstanding_most: 2, ..small() };
    let sequencer = sequencer(3, &config);
    let updates = |count| vec![(Level::Majority, Body::from(&b"x"[..])); count];
    assert!(sequencer.may_admit(&config, 1, 1, &updates(2)).is_ok());
    assert!(sequencer.may_admit(&config, 1, 1, &updates(3)).is_err());
    assert!(sequencer.may_admit(&config, 1, 2, &updates(2)).is_err());
}

#[test]
fn half_is_no_quorum() {
    for (members, holders, is_quorum) in
        [(4, 2, false), (4, 3, true), (5, 2, false), (5, 3, true), (2, 1, false)]
    {
        let mut sequencer = sequencer(members, &small());
        for place in 0..holders {
            acknowledge(&mut sequencer, Time::ZERO, place, known(7), &progress(0, 9)).0.expect("honest");
        }
        assert_eq!(sequencer.held_by_quorum() == 7, is_quorum, "{holders} of {members}");
    }
}

#[test]
fn an_old_acknowledgement_takes_nothing_back_and_one_of_what_never_was_is_refused() {
    let mut sequencer = sequencer(2, &small());
    let all = Progress { committed: 8, stable: 7, trim: 0, last: 9 };
    let known = |held, committed, stable| Known { held, committed, stable };
    let mut tell = |known| acknowledge(&mut sequencer, Time::ZERO, 1, known, &all).0;
    for (held, committed, stable) in [(10, 0, 0), (9, 9, 0), (9, 8, 8)] {
        assert!(tell(known(held, committed, stable)).is_err(), "{held} {committed} {stable}");
    }
    assert_eq!(tell(known(9, 8, 7)), Ok(true));
    assert_eq!(
        [tell(known(5, 8, 7)), tell(known(9, 4, 7)), tell(known(9, 8, 3))],
        [Ok(false), Ok(false), Ok(false)]
    );
    acknowledge(&mut sequencer, Time::ZERO, 0, known(9, 8, 7), &all).0.expect("honest");
    assert_eq!(sequencer.held_by_all(), 9);
    sequencer.told(Time::ZERO, &small(), all);
    assert_eq!(sequencer.remind(Time::from_millis(1000), &small(), &all), [], "all know all");
}

#[test]
fn who_comes_nearer_is_not_lagging_and_who_had_all_begins_anew() {
    let config = small();
    let (after, half) = (config.lag_after, config.lag_after / 2);
    let at = |span| Time::ZERO.saturating_add(span);
    let some = progress(10, 10);
    let behind = || {
        let mut sequencer = sequencer(2, &config);
        acknowledge(&mut sequencer, at(Duration::ZERO), 0, known(10), &some).0.expect("honest");
        assert_eq!(survey(&mut sequencer, at(Duration::ZERO), &config, &some), 0);
        sequencer
    };
    let mut stands_still = behind();
    assert_eq!(survey(&mut stands_still, at(after), &config, &some), 1);

    let mut comes_nearer = behind();
    acknowledge(&mut comes_nearer, at(half), 1, known(5), &some).0.expect("honest");
    assert_eq!(survey(&mut comes_nearer, at(after), &config, &some), 0);
    assert_eq!(survey(&mut comes_nearer, at(after + half), &config, &some), 1, "and then stands still");
    let (_, events) = acknowledge(&mut comes_nearer, at(after + half), 1, known(6), &some);
    assert_eq!(events, [], "it has not caught up");

    let mut has_all = behind();
    acknowledge(&mut has_all, at(half), 1, known(10), &some).0.expect("honest");
    assert_eq!(
        survey(&mut has_all, at(after * 3), &config, &progress(12, 12)),
        0,
        "it lacks these since now"
    );
    assert_eq!(survey(&mut has_all, at(after * 4), &config, &progress(12, 12)), 2, "both");
}

#[test]
fn what_only_laggards_lack_is_kept_as_far_as_the_history_reaches() {
    let config = small();
    let trimmable = |in_time: u64, committed: u64, last: u64| {
        let mut sequencer = sequencer(3, &config);
        for (place, held) in [(0, last), (1, in_time)] {
            acknowledge(&mut sequencer, Time::ZERO, place, known(held), &progress(0, last))
                .0
                .expect("honest");
        }
        let later = Time::ZERO.saturating_add(config.lag_after);
        // The third lacks everything; who lacks little has not stood still for long.
        survey(
            &mut sequencer,
            Time::ZERO,
            &Config { history_most: u64::MAX, ..config.clone() },
            &progress(1, last),
        );
        survey(
            &mut sequencer,
            later,
            &Config { history_most: u64::MAX, ..config.clone() },
            &progress(1, last),
        );
        assert_eq!(sequencer.laggards().collect::<Vec<_>>(), [NodeId(2)]);
        sequencer.trimmable(&config, &progress(committed, last))
    };
    assert_eq!(trimmable(100, 100, 100), 90);
    assert_eq!(trimmable(50, 100, 100), 50, "somebody in time lacks it");
    assert_eq!(trimmable(100, 40, 100), 40, "it may be lost yet");
}

#[test]
fn the_window_is_halved_once_in_a_while_and_grows_slowly_from_then_on() {
    let config = Config { window_most: 400, ..small() };
    let mut sequencer = sequencer(3, &config);
    sequencer.open_window(&config, 100);
    assert_eq!(sequencer.window(), 356);
    sequencer.open_window(&config, 100);
    assert_eq!(sequencer.window(), 400);
    let mut now = Time::from_millis(1000);
    sequencer.close_window(now, &config);
    now = now.saturating_add(config.resend_after / 2);
    sequencer.close_window(now, &config);
    assert_eq!(sequencer.window(), 200, "one loss is told by many");
    sequencer.open_window(&config, 100);
    assert_eq!(sequencer.window(), 201);
    now = now.saturating_add(config.resend_after / 2);
    sequencer.close_window(now, &config);
    assert_eq!(sequencer.window(), 100, "another loss");
    for _ in 0..10 {
        now = now.saturating_add(config.resend_after);
        sequencer.close_window(now, &config);
    }
    assert_eq!(sequencer.window(), 16, "a batch of small updates fits");
}

#[test]
fn whoever_may_not_know_all_is_reminded_ever_more_seldom_and_laggards_as_seldom_as_can_be() {
    let config = small();
    let all = Progress { committed: 5, stable: 5, trim: 0, last: 5 };
    let mut sequencer = sequencer(5, &config);
    let tell = |sequencer: &mut Sequencer, place, held, committed, stable| {
        let known = Known { held, committed, stable };
        acknowledge(sequencer, Time::ZERO, place, known, &all).0.expect("honest");
    };
    tell(&mut sequencer, 0, 5, 5, 5);
    tell(&mut sequencer, 1, 5, 4, 5);
    tell(&mut sequencer, 2, 5, 5, 4);
    tell(&mut sequencer, 3, 4, 5, 5);
    sequencer.told(Time::ZERO, &config, all);
    let mut due = Time::ZERO.saturating_add(config.resend_after);
    sequencer.told(Time::from_millis(1), &config, all);
    assert_eq!(sequencer.next_timeout(), Some(due), "what is told since puts nothing off");
    assert_eq!(sequencer.remind(Time::from_millis(1), &config, &all), []);
    let lagging = due.saturating_add(config.lag_after);
    survey(&mut sequencer, Time::ZERO, &config, &all);
    assert_eq!(survey(&mut sequencer, lagging, &config, &all), 2, "they do not hold all");
    let (mut waits, mut reminded) = (Vec::new(), Vec::new());
    for _ in 0..8 {
        reminded.push(sequencer.remind(due, &config, &all).len());
        let next = sequencer.next_timeout().expect("some lack something");
        waits.push(next.since(due));
        due = next;
    }
    assert_eq!(reminded, [2, 2, 2, 2, 4, 4, 4, 4]);
    let expected: Vec<_> = [1, 2, 4, 8, 16, 16, 16, 16].map(|times| config.resend_after * times).into();
    assert_eq!((waits, MOST_BACKOFF), (expected, 16));
    sequencer.told(due, &config, all);
    assert_eq!(sequencer.remind(due, &config, &all).len(), 2);
    assert_eq!(sequencer.next_timeout(), Some(due.saturating_add(config.resend_after)), "from the beginning");
}

#[test]
fn that_all_hold_it_is_news_for_those_who_wait_for_that() {
    let config = Config { tell_after: Duration::from_millis(3), ..small() };
    let mut sequencer = sequencer(3, &config);
    assert_eq!(Sequencer::new(&view(1, &[0]), &config, 7, |_| 1).told_to_senders(), 7);
    sequencer.told(Time::ZERO, &config, progress(1, 1));
    let stable = Progress { stable: 1, ..progress(1, 1) };
    assert!(!sequencer.has_news(&stable), "nobody waits");
    sequencer.admit(1, 1, Level::All, Body::from(&b"x"[..]));
    sequencer.fill_batch(&config, &progress(0, 0));
    assert!(sequencer.has_news(&stable));
    assert_eq!(sequencer.tell_first(Time::ZERO, &config, &stable), None, "all are told at once");
}
