//! What one detector says to the others.

use super::*;
use comb_types::Incarnation;

const SUBJECT: Member = Member { node: NodeId(1), incarnation: Incarnation(1) };
const LONG: Duration = Duration::from_secs(1000);

/// Of node 0. Its gossip has nothing to do for long.
fn lookout(has_buddy: bool) -> Lookout {
    let me = Member { node: NodeId(0), ..SUBJECT };
    let state = state::Config { interval: LONG, ..state::Config::new(me, Vec::new(), 1) };
    Lookout::new(state, has_buddy.then(|| buddy::Config::new(me, 1)), Time::ZERO)
}

fn watch(lookout: &mut Lookout) {
    let members = [0, 1, 2].map(|node| Member { node: NodeId(node), ..SUBJECT });
    let input = Input::Members { members: &members, hub: None, grace: Duration::ZERO };
    lookout.handle(Time::ZERO, input).expect("our own");
}

fn hear(lookout: &mut Lookout, event: &state::Event) -> Condition {
    lookout.heard_of_state(Time::ZERO, event);
    lookout.condition(SUBJECT)
}

#[test]
fn what_gossip_says_counts() {
    use state::Event::{Cleared, Failed, Fenced, Lost, Refuted, Suspected};
    let mut lookout = lookout(false);
    for (event, condition) in [
        (Suspected(SUBJECT), Condition::Suspected),
        (Cleared(SUBJECT), Condition::Alive),
        (Lost(SUBJECT), Condition::Suspected),
        (Cleared(SUBJECT), Condition::Alive),
        (Failed(SUBJECT), Condition::Failed),
        (Refuted(SUBJECT), Condition::Alive),
        (Fenced(SUBJECT), Condition::Fenced),
        (Refuted(SUBJECT), Condition::Fenced),
    ] {
        assert_eq!(hear(&mut lookout, &event), condition, "{event:?}");
    }
}

#[test]
fn whom_buddies_watch_gossip_alone_does_not_suspect_but_it_may_know_that_it_failed() {
    let mut lookout = lookout(true);
    watch(&mut lookout);
    for event in [state::Event::Suspected(SUBJECT), state::Event::Lost(SUBJECT)] {
        assert_eq!(hear(&mut lookout, &event), Condition::Alive);
    }
    assert_eq!(hear(&mut lookout, &state::Event::Failed(SUBJECT)), Condition::Failed);
}

#[test]
fn evidence_grows_old_when_it_says() {
    let mut lookout = lookout(false);
    while lookout.next_timeout() < Some(Time::from_millis(900_000)) {
        let due = lookout.next_timeout().expect("its gossip");
        lookout.handle(due, Input::Timeout).expect("our own");
    }
    let now = Time::from_millis(900_000);
    let evidence = Evidence::new(SUBJECT, Kind::LinkDown, Source::PlugIn(0));
    lookout.handle(now, Input::Evidence(evidence)).expect("our own");
    assert_eq!(lookout.condition(SUBJECT), Condition::Suspected);
    let due = now.saturating_add(Duration::from_secs(30));
    assert_eq!(lookout.next_timeout(), Some(due));
    lookout.handle(due, Input::Timeout).expect("our own");
    assert_eq!(lookout.condition(SUBJECT), Condition::Alive);
}

#[test]
fn an_answer_to_ourselves_ends_what_speaks_against_the_way() {
    let mut lookout = lookout(true);
    watch(&mut lookout);
    let evidence = Evidence::new(SUBJECT, Kind::LinkDown, Source::PlugIn(0));
    lookout.handle(Time::ZERO, Input::Evidence(evidence)).expect("our own");
    let answer = wire::encode(Protocol::Detect, &(1_u32, SUBJECT));
    lookout.handle(Time::ZERO, Input::Message { from: SUBJECT.node, bytes: &answer }).expect("honest");
    let changes: Vec<_> = core::iter::from_fn(|| lookout.poll_event(Time::ZERO)).collect();
    let is_last =
        |condition| changes.last() == Some(&Event::Condition(Change { subject: SUBJECT, condition }));
    assert!(is_last(Condition::Alive), "{changes:?}");
}

#[test]
fn who_takes_part_in_something_is_given_the_time_of_an_answer_again() {
    let mut lookout = lookout(true);
    watch(&mut lookout);
    let run = |lookout: &mut Lookout, until: Time| {
        while let Some(due) = lookout.next_timeout().filter(|due| *due <= until) {
            lookout.handle(due, Input::Timeout).expect("our own");
            while lookout.poll_event(due).is_some() {}
        }
    };
    run(&mut lookout, Time::from_millis(1000));
    let mut other = lookout.clone();
    other.handle(Time::from_millis(1000), Input::Alive(SUBJECT)).expect("our own");
    let conditions = [&mut lookout, &mut other].map(|lookout| {
        // Whoever hears nobody becomes patient: the third speaks.
        let mut at = 1000;
        loop {
            at += 250;
            let now = Time::from_millis(at);
            lookout.handle(now, Input::Alive(Member { node: NodeId(2), ..SUBJECT })).expect("our own");
            run(lookout, now);
            if lookout.condition(SUBJECT) != Condition::Alive || at > 20_000 {
                return at;
            }
        }
    });
    assert!(conditions[0] + 500 < conditions[1] && conditions[1] < 20_000, "{conditions:?}");
}
