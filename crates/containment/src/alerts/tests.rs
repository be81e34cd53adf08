use alloc::vec;
use alloc::vec::Vec;

use comb_types::{CellId, Time};
use proptest::prelude::*;

use super::*;

const ME: CellId = CellId(0);
const SILENT: Finding = Finding::Silent;

fn cells(count: u32) -> Vec<CellId> {
    (0..count).map(CellId).collect()
}

/// Cell 0 of some that live.
fn among(count: u32) -> Alerts {
    let mut alerts = Alerts::new(ME);
    alerts.living(Time::ZERO, &cells(count));
    alerts
}

fn ms(millis: u64) -> Time {
    Time::from_millis(millis)
}

fn raise(suspect: u32, finding: Finding) -> Message {
    Message::Raise { suspect: CellId(suspect), finding }
}

fn vote(suspect: u32, finding: Finding, agrees: bool) -> Message {
    Message::Vote { suspect: CellId(suspect), finding, agrees }
}

fn verdict(suspect: u32, finding: Finding) -> Event {
    Event::Verdict { suspect: CellId(suspect), finding }
}

fn voted_down(suspect: u32, by: u32) -> Event {
    Event::VotedDown { suspect: CellId(suspect), finding: SILENT, by: CellId(by) }
}

fn look(suspect: u32, by: u32) -> Event {
    Event::Look { suspect: CellId(suspect), finding: SILENT, by: CellId(by) }
}

fn events(alerts: &mut Alerts) -> Vec<Event> {
    core::iter::from_fn(|| alerts.poll_event()).collect()
}

fn sent(alerts: &mut Alerts) -> Vec<Message> {
    let all = core::iter::from_fn(|| alerts.poll_transmit());
    all.map(|(to, message)| {
        assert_eq!(to, To::Others);
        message
    })
    .collect()
}

/// Cell `by` says that cell 3 is silent, and two others, this one among them, do not find that.
fn is_wrong(alerts: &mut Alerts, now: Time, by: u32) {
    alerts.handle(now, CellId(by), raise(3, SILENT)).unwrap();
    alerts.looked(now, CellId(3), SILENT, false);
    let other = if by == 1 { 2 } else { 1 };
    alerts.handle(now, CellId(other), vote(3, SILENT, false)).unwrap();
}

#[test]
fn more_than_half_of_the_others_make_a_verdict() {
    for (count, needed) in [(2, 1), (3, 2), (4, 2), (5, 3), (6, 3), (7, 4)] {
        let mut alerts = among(count);
        let suspect = count - 1;
        alerts.hint(ms(1), CellId(suspect), SILENT);
        assert_eq!(sent(&mut alerts), [raise(suspect, SILENT)]);
        for voter in 1..needed {
            assert_eq!(events(&mut alerts), [], "{voter} of {count}");
            alerts.handle(ms(1), CellId(voter), vote(suspect, SILENT, true)).unwrap();
            alerts.handle(ms(1), CellId(voter), vote(suspect, SILENT, true)).unwrap();
        }
        assert_eq!(events(&mut alerts), [verdict(suspect, SILENT)], "{needed} of {count}");
        assert_eq!(alerts.next_timeout(), None);
        alerts.hint(ms(200), CellId(suspect), Finding::Gone);
        assert_eq!((events(&mut alerts), sent(&mut alerts)), (vec![], vec![]), "once for each life");
    }
}

#[test]
fn who_hears_an_alert_looks_once_and_tells_all() {
    let mut alerts = among(4);
    alerts.handle(ms(1), CellId(1), raise(3, SILENT)).unwrap();
    assert_eq!(events(&mut alerts), [look(3, 1)]);
    assert_eq!(alerts.next_timeout(), Some(ms(21)));
    alerts.handle(ms(2), CellId(2), raise(3, SILENT)).unwrap();
    assert_eq!(events(&mut alerts), [verdict(3, SILENT)], "two of three");

    let mut alerts = among(5);
    alerts.handle(ms(1), CellId(1), raise(3, SILENT)).unwrap();
    alerts.handle(ms(2), CellId(2), raise(3, SILENT)).unwrap();
    assert_eq!(events(&mut alerts), [look(3, 1)], "asked once, whoever raises it besides");
    alerts.looked(ms(3), CellId(3), SILENT, true);
    alerts.looked(ms(3), CellId(3), SILENT, true);
    assert_eq!(sent(&mut alerts), [vote(3, SILENT, true)]);
    assert_eq!(events(&mut alerts), [verdict(3, SILENT)]);
}

/// A liar had told one cell alone of a dead one. What that cell then found itself was a vote on the liar's alert, of which nobody else
/// knew, and so nobody else looked; the liar had only to go on.
#[test]
fn what_this_cell_finds_itself_all_hear_whatever_it_heard_from_others() {
    let mut alerts = among(5);
    alerts.handle(ms(1), CellId(1), raise(3, SILENT)).unwrap();
    alerts.looked(ms(2), CellId(3), SILENT, false);
    alerts.hint(ms(3), CellId(3), SILENT);
    assert_eq!(sent(&mut alerts), [vote(3, SILENT, false), raise(3, SILENT)]);
    alerts.handle(ms(4), CellId(2), vote(3, SILENT, true)).unwrap();
    assert_eq!(events(&mut alerts), [look(3, 1), verdict(3, SILENT)], "one alert, and the last word of each");
}

/// Of two liars one had told this cell alone what was so, and the other agreed: it condemned before it had looked, and told nobody.
#[test]
fn what_this_cell_was_asked_all_hear_though_it_is_decided() {
    let mut alerts = among(4);
    alerts.handle(ms(1), CellId(1), raise(3, SILENT)).unwrap();
    alerts.handle(ms(1), CellId(2), vote(3, SILENT, true)).unwrap();
    assert_eq!(events(&mut alerts), [look(3, 1), verdict(3, SILENT)]);
    alerts.handle(ms(2), CellId(1), raise(3, SILENT)).unwrap();
    assert_eq!(events(&mut alerts), [], "nor is it asked again");
    alerts.looked(ms(3), CellId(3), SILENT, true);
    alerts.looked(ms(3), CellId(3), SILENT, true);
    assert_eq!(sent(&mut alerts), [vote(3, SILENT, true)]);
}

#[test]
fn the_same_alert_is_not_raised_again_within_a_pause() {
    let mut alerts = among(5);
    alerts.hint(ms(1), CellId(3), SILENT);
    alerts.hint(ms(2), CellId(3), SILENT);
    alerts.hint(ms(50), CellId(3), SILENT);
    assert_eq!(sent(&mut alerts), [raise(3, SILENT)]);
    alerts.hint(ms(50), CellId(3), Finding::Late);
    assert_eq!(sent(&mut alerts), [raise(3, Finding::Late)], "this is another");
    alerts.hint(ms(101), CellId(3), SILENT);
    assert_eq!(sent(&mut alerts), [raise(3, SILENT)]);
}

#[test]
fn an_alert_ends_when_no_majority_can_be_reached_or_at_its_limit() {
    let mut alerts = among(5);
    is_wrong(&mut alerts, ms(1), 1);
    assert_eq!(events(&mut alerts), [look(3, 1), voted_down(3, 1)]);
    alerts.handle(ms(30), CellId(1), raise(3, SILENT)).unwrap();
    alerts.handle_timeout(ms(49));
    assert_eq!(events(&mut alerts), [look(3, 1)]);
    alerts.handle_timeout(ms(50));
    assert_eq!(events(&mut alerts), [voted_down(3, 1)]);
    alerts.looked(ms(51), CellId(3), SILENT, true);
    assert_eq!(sent(&mut alerts), [vote(3, SILENT, false)], "the second answer came too late");
}

#[test]
fn who_is_voted_down_twice_is_a_suspect_and_the_others_need_not_look() {
    let mut alerts = among(4);
    is_wrong(&mut alerts, ms(1), 1);
    sent(&mut alerts);
    is_wrong(&mut alerts, ms(200), 1);
    assert_eq!(sent(&mut alerts)[1..], [raise(1, Finding::Slander)]);
    events(&mut alerts);
    alerts.handle(ms(201), CellId(3), vote(1, Finding::Slander, true)).unwrap();
    assert_eq!(events(&mut alerts), [verdict(1, Finding::Slander)]);

    // Another has heard the last vote first, and is first to say it.
    let mut alerts = among(4);
    is_wrong(&mut alerts, ms(1), 1);
    alerts.handle(ms(200), CellId(2), raise(1, Finding::Slander)).unwrap();
    sent(&mut alerts);
    is_wrong(&mut alerts, ms(200), 1);
    assert_eq!(sent(&mut alerts)[1..], [raise(1, Finding::Slander)]);
    assert_eq!(events(&mut alerts).last(), Some(&verdict(1, Finding::Slander)));

    // Or this cell has had it before.
    let mut alerts = among(5);
    is_wrong(&mut alerts, ms(1), 1);
    alerts.handle(ms(1), CellId(4), vote(3, SILENT, false)).unwrap();
    is_wrong(&mut alerts, ms(200), 1);
    sent(&mut alerts);
    events(&mut alerts);
    alerts.handle(ms(300), CellId(1), raise(2, SILENT)).unwrap();
    assert_eq!(
        events(&mut alerts).last(),
        Some(&Event::VotedDown { suspect: CellId(1), finding: Finding::Slander, by: ME })
    );
    alerts.handle(ms(301), CellId(4), raise(1, Finding::Slander)).unwrap();
    assert_eq!((events(&mut alerts), sent(&mut alerts)), (vec![], vec![vote(1, Finding::Slander, true)]));
}

#[test]
fn slander_is_the_same_alert_twice_within_memory_and_heard_as_an_alert() {
    let quiet = |alerts: &mut Alerts| {
        assert!(sent(alerts).iter().all(|said| *said == vote(3, SILENT, false)));
    };
    let mut alerts = among(4);
    is_wrong(&mut alerts, ms(1), 1);
    is_wrong(&mut alerts, ms(200), 2);
    quiet(&mut alerts);
    // Long after.
    is_wrong(&mut alerts, ms(60_200), 1);
    quiet(&mut alerts);
    // Nobody answers in time: that is not the raiser's fault.
    for now in [70_000, 70_100, 70_200] {
        alerts.handle(ms(now), CellId(2), raise(3, SILENT)).unwrap();
        alerts.handle_timeout(ms(now + 20));
    }
    quiet(&mut alerts);
    // The driver cannot find it.
    alerts.hint(ms(70_300), CellId(2), Finding::Slander);
    quiet(&mut alerts);
}

#[test]
fn a_cell_in_doubt_about_itself_says_no_more() {
    let mut alerts = among(4);
    for now in [1, 200] {
        alerts.hint(ms(now), CellId(3), SILENT);
        assert_eq!(sent(&mut alerts), [raise(3, SILENT)]);
        for voter in [1, 2] {
            alerts.handle(ms(now), CellId(voter), vote(3, SILENT, false)).unwrap();
        }
    }
    alerts.hint(ms(400), CellId(3), SILENT);
    assert_eq!(sent(&mut alerts), []);
    alerts.handle(ms(401), CellId(1), raise(3, SILENT)).unwrap();
    alerts.hint(ms(402), CellId(3), SILENT);
    assert_eq!(sent(&mut alerts), [vote(3, SILENT, true)], "but it may agree");
}

#[test]
fn the_suspect_itself_is_not_asked_and_keeps_the_record() {
    let mut alerts = among(3);
    for now in [1, 200] {
        alerts.handle(ms(now), CellId(1), raise(0, SILENT)).unwrap();
        alerts.handle(ms(now), CellId(2), vote(0, SILENT, false)).unwrap();
        assert_eq!(events(&mut alerts), [voted_down(0, 1)]);
    }
    assert_eq!(sent(&mut alerts), [raise(1, Finding::Slander)]);
    alerts.handle(ms(300), CellId(2), raise(0, Finding::Gone)).unwrap();
    alerts.handle(ms(300), CellId(1), vote(0, Finding::Gone, true)).unwrap();
    assert!(!events(&mut alerts).contains(&verdict(0, Finding::Gone)));
}

#[test]
fn votes_may_come_before_their_alert() {
    let mut alerts = among(5);
    alerts.handle(ms(1), CellId(2), vote(3, SILENT, true)).unwrap();
    alerts.handle(ms(2), CellId(4), vote(3, SILENT, false)).unwrap();
    assert_eq!(events(&mut alerts), []);
    alerts.handle(ms(3), CellId(1), raise(3, SILENT)).unwrap();
    assert_eq!(alerts.next_timeout(), Some(ms(23)));
    alerts.looked(ms(4), CellId(3), SILENT, true);
    assert_eq!(events(&mut alerts), [look(3, 1), verdict(3, SILENT)]);
    // Its alert never comes: whoever raised it died over that. A majority is one all the same.
    alerts.reborn(ms(5), CellId(3));
    for voter in [1, 2, 4] {
        alerts.handle(ms(6), CellId(voter), vote(3, SILENT, true)).unwrap();
    }
    assert_eq!(events(&mut alerts), [verdict(3, SILENT)]);
    // Nothing comes of it.
    alerts.handle(ms(7), CellId(1), vote(2, SILENT, true)).unwrap();
    alerts.handle_timeout(ms(27));
    assert_eq!((events(&mut alerts), alerts.next_timeout()), (vec![], None));
}

#[test]
fn who_dies_is_counted_no_more_and_is_another_afterwards() {
    let mut alerts = among(5);
    alerts.hint(ms(1), CellId(3), SILENT);
    alerts.handle(ms(1), CellId(1), vote(3, SILENT, true)).unwrap();
    assert_eq!(events(&mut alerts), []);
    alerts.living(ms(2), &[0, 1, 3, 4].map(CellId));
    assert_eq!(events(&mut alerts), [verdict(3, SILENT)], "two of three");
    alerts.living(ms(3), &[0, 1, 4].map(CellId));
    alerts.living(ms(4), &cells(5));
    sent(&mut alerts);
    alerts.hint(ms(5), CellId(3), SILENT);
    assert_eq!(sent(&mut alerts), [raise(3, SILENT)], "another life, and no pause");
}

#[test]
fn what_a_peer_may_not_say_is_refused_and_changes_nothing() {
    let mut alerts = among(4);
    alerts.handle(ms(1), CellId(1), raise(3, SILENT)).unwrap();
    let before = alerts.clone();
    let cases = [
        (CellId(7), raise(3, SILENT), PeerError::NotLiving(CellId(7))),
        (CellId(3), vote(3, SILENT, false), PeerError::AboutItself(CellId(3))),
        (ME, raise(3, SILENT), PeerError::FromOurselves(ME)),
    ];
    for (from, message, error) in cases {
        assert_eq!(alerts.handle(ms(2), from, message), Err(error));
        assert_eq!(error.guilty(), from);
    }
    alerts.handle(ms(2), CellId(1), raise(9, SILENT)).expect("it may have a later view");
    assert_eq!(alerts, before);
}

proptest! {
    /// Whatever one peer of four says: it has nobody condemned, no honest cell accuses anybody but it, and it takes no more memory than
    /// its votes.
    #[test]
    fn any_message_is_taken_or_refused(
        said in prop::collection::vec((any::<[u8; 8]>(), 0_u32..6, 0_u32..6, 0_u64..40), 0..200),
    ) {
        const FINDINGS: [Finding; 6] = [SILENT, Finding::Gone, Finding::Late, Finding::Corrupt, Finding::Leaving, Finding::Slander];
        let mut alerts = among(4);
        let mut now = 0;
        for (bytes, suspect, finding, later) in said {
            now += later;
            let finding = FINDINGS[finding as usize];
            let message = match postcard::from_bytes::<Message>(&bytes) {
                Ok(message) if suspect == 5 => message,
                _ if bytes[0] % 3 == 0 => raise(suspect, finding),
                _ => vote(suspect, finding, bytes[0] % 2 == 0),
            };
            let _ = alerts.handle(ms(now), CellId(3), message);
            while let Some(event) = alerts.poll_event() {
                match event {
                    Event::Look { suspect, finding, by } => {
                        prop_assert_eq!(by, CellId(3));
                        prop_assert!(suspect != ME && suspect != by && finding != Finding::Slander);
                        alerts.looked(ms(now), suspect, finding, false);
                        for other in [1, 2].map(CellId).into_iter().filter(|other| *other != suspect) {
                            let agrees = false;
                            alerts.handle(ms(now), other, Message::Vote { suspect, finding, agrees }).unwrap();
                        }
                    }
                    Event::Verdict { suspect, .. } => prop_assert_eq!(suspect, CellId(3)),
                    Event::VotedDown { by, finding, .. } => prop_assert!(by == CellId(3) || finding == Finding::Slander),
                }
            }
            for message in sent(&mut alerts) {
                if let Message::Raise { suspect, .. } = message {
                    prop_assert_eq!(suspect, CellId(3));
                }
            }
            prop_assert!(alerts.alerts.len() <= 4 * 6);
            prop_assert!(alerts.alerts.values().all(|alert| alert.votes.len() <= 3));
            prop_assert!(alerts.voted_down.len() <= 4 * 6);
        }
    }
}
