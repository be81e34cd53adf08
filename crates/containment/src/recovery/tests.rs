use alloc::vec;
use alloc::vec::Vec;

use comb_types::{CellId, Incarnation};
use proptest::prelude::*;

use super::*;

const ME: CellId = CellId(1);

fn cells(numbers: &[u32]) -> Vec<(CellId, Incarnation)> {
    numbers.iter().map(|&number| (CellId(number), Incarnation(1))).collect()
}

fn events(recovery: &mut Recovery) -> Vec<Event> {
    core::iter::from_fn(|| recovery.poll_event()).collect()
}

fn sent(recovery: &mut Recovery) -> Vec<Message> {
    core::iter::from_fn(|| recovery.poll_transmit()).map(|(_, message)| message).collect()
}

fn forget_said(recovery: &mut Recovery) {
    events(recovery);
    sent(recovery);
}

fn at(barrier: Barrier, epoch: u64) -> Message {
    Message::Reached { epoch, barrier, asks: false }
}

/// In view 1 with cells 0 to 2, when all have resumed.
fn settled() -> Recovery {
    let mut recovery = Recovery::new(ME);
    recovery.view(1, &cells(&[0, 1, 2]));
    recovery.done(1, Step::CutOff);
    for (cell, barrier) in [(0, Barrier::First), (2, Barrier::First)] {
        recovery.handle(CellId(cell), at(barrier, 1)).unwrap();
    }
    recovery.done(1, Step::Discard);
    for (cell, barrier) in [(0, Barrier::Second), (2, Barrier::Second)] {
        recovery.handle(CellId(cell), at(barrier, 1)).unwrap();
    }
    assert!(!recovery.is_recovering());
    forget_said(&mut recovery);
    recovery
}

#[test]
fn each_step_waits_for_all_and_for_this_cells_own_work() {
    let mut recovery = settled();
    recovery.view(2, &cells(&[1, 2]));
    let dead = cells(&[0]);
    assert_eq!(events(&mut recovery), [Event::CutOff { epoch: 2, dead: dead.clone() }]);
    assert_eq!(recovery.held_up_by(), (Barrier::First, vec![ME, CellId(2)]));
    recovery.handle(CellId(2), at(Barrier::First, 2)).unwrap();
    assert_eq!((events(&mut recovery), sent(&mut recovery)), (vec![], vec![]), "this cell has not cut off");
    recovery.done(2, Step::Discard);
    assert_eq!(sent(&mut recovery), [], "what was not asked for was not done");
    recovery.done(2, Step::CutOff);
    assert_eq!(sent(&mut recovery), [at(Barrier::First, 2)]);
    assert_eq!(events(&mut recovery), [Event::Discard { epoch: 2, dead: dead.clone() }]);
    recovery.done(2, Step::Discard);
    assert_eq!((events(&mut recovery), sent(&mut recovery)), (vec![], vec![at(Barrier::Second, 2)]));
    assert_eq!(recovery.held_up_by(), (Barrier::Second, vec![CellId(2)]));
    recovery.handle(CellId(2), at(Barrier::Second, 2)).unwrap();
    assert_eq!(events(&mut recovery), [Event::Resumed { epoch: 2, dead, master: true }]);
    assert_eq!((recovery.is_recovering(), recovery.held_up_by().1), (false, vec![]));
}

#[test]
fn whoever_is_alone_waits_for_nobody() {
    let mut recovery = Recovery::new(ME);
    recovery.view(5, &cells(&[1]));
    recovery.done(5, Step::CutOff);
    recovery.done(5, Step::Discard);
    let last = events(&mut recovery).pop();
    assert_eq!(last, Some(Event::Resumed { epoch: 5, dead: vec![], master: true }));
}

#[test]
fn a_view_in_the_middle_of_a_round_begins_again_with_all_the_dead() {
    let mut recovery = settled();
    recovery.view(2, &cells(&[1, 2]));
    recovery.done(2, Step::CutOff);
    recovery.handle(CellId(2), at(Barrier::First, 2)).unwrap();
    forget_said(&mut recovery);
    recovery.view(3, &cells(&[1]));
    recovery.done(2, Step::Discard);
    assert_eq!(events(&mut recovery), [Event::CutOff { epoch: 3, dead: cells(&[0, 2]) }]);
    recovery.done(3, Step::CutOff);
    recovery.done(3, Step::Discard);
    let last = events(&mut recovery).pop();
    assert_eq!(last, Some(Event::Resumed { epoch: 3, dead: cells(&[0, 2]), master: true }));
    recovery.view(4, &cells(&[1]));
    assert_eq!(events(&mut recovery), [Event::CutOff { epoch: 4, dead: vec![] }], "those are buried");
}

#[test]
fn a_cell_that_lives_anew_is_dead_and_living() {
    let mut recovery = settled();
    let again = [(CellId(0), Incarnation(1)), (ME, Incarnation(1)), (CellId(2), Incarnation(2))];
    recovery.view(2, &again);
    assert_eq!(events(&mut recovery), [Event::CutOff { epoch: 2, dead: cells(&[2]) }]);
    recovery.done(2, Step::CutOff);
    recovery.handle(CellId(0), at(Barrier::First, 2)).unwrap();
    assert_eq!(recovery.held_up_by(), (Barrier::First, vec![CellId(2)]), "its new life takes part");
}

#[test]
fn views_come_to_some_earlier_and_never_count_backwards() {
    let mut recovery = settled();
    recovery.handle(CellId(3), at(Barrier::First, 2)).unwrap();
    recovery.handle(CellId(2), at(Barrier::First, 2)).unwrap();
    recovery.handle(CellId(2), at(Barrier::Second, 1)).unwrap();
    recovery.view(2, &cells(&[1, 2, 3]));
    recovery.view(1, &cells(&[1]));
    recovery.view(2, &cells(&[1]));
    assert_eq!(recovery.held_up_by(), (Barrier::First, vec![ME]), "the others were earlier");
    recovery.done(2, Step::CutOff);
    assert!(matches!(events(&mut recovery)[..], [Event::CutOff { .. }, Event::Discard { .. }]));
    recovery.view(9, &cells(&[2, 3]));
    assert_eq!(events(&mut recovery), [], "a view without us is none of ours");
}

/// A cell said that it was at the barriers of the last view that there can be, and died. Whatever its next life said was less than that,
/// and all waited for it.
#[test]
fn what_a_life_says_does_not_outlive_it() {
    let mut recovery = settled();
    recovery.handle(CellId(2), at(Barrier::First, u64::MAX)).unwrap();
    recovery.handle(CellId(2), at(Barrier::Second, 2)).unwrap();
    recovery.handle(CellId(3), at(Barrier::First, u64::MAX)).unwrap();
    let again = |epoch| [(CellId(0), Incarnation(1)), (ME, Incarnation(1)), (CellId(2), Incarnation(epoch))];
    recovery.view(2, &again(2));
    assert_eq!(recovery.held_up_by().1, [CellId(0), ME, CellId(2)]);
    recovery.handle(CellId(2), at(Barrier::First, 2)).unwrap();
    // One that came and went unseen, too.
    recovery.view(3, &cells(&[1, 3]));
    recovery.handle(CellId(3), at(Barrier::First, 3)).unwrap();
    assert_eq!(recovery.held_up_by().1, [ME]);
}

/// A cell came in whose channels were not there yet: what the others said of the round was said to nobody, and all of them waited for ever.
#[test]
fn what_was_said_to_nobody_is_said_again() {
    let (mut one, mut two) = (Recovery::new(CellId(1)), Recovery::new(CellId(2)));
    for recovery in [&mut one, &mut two] {
        recovery.view(1, &cells(&[1, 2]));
        recovery.done(1, Step::CutOff);
        // Lost, all of it.
        forget_said(recovery);
    }
    let say = |from: &mut Recovery, number: u32, to: &mut Recovery| {
        for message in sent(from) {
            to.handle(CellId(number), message).unwrap();
        }
    };
    one.repeat();
    say(&mut one, 1, &mut two);
    two.done(1, Step::Discard);
    say(&mut two, 2, &mut one);
    // The first has not heard that the second was at the first barrier, but that it is at the second.
    one.done(1, Step::Discard);
    assert!(!one.is_recovering() && two.is_recovering());
    forget_said(&mut one);
    one.repeat();
    assert!(sent(&mut one).is_empty(), "whoever has gone on says nothing by itself");
    two.repeat();
    say(&mut two, 2, &mut one);
    say(&mut one, 1, &mut two);
    assert!(!two.is_recovering());
    assert!(sent(&mut two).is_empty(), "and it ends there");
}

/// Two cells that had gone on took each other's answers for questions: from then on they said the same thing to each other, as fast as they could.
#[test]
fn who_has_gone_on_answers_a_question_and_no_answer() {
    let (mut one, mut two) = (Recovery::new(CellId(1)), Recovery::new(CellId(2)));
    for recovery in [&mut one, &mut two] {
        recovery.view(1, &cells(&[1, 2]));
        recovery.done(1, Step::CutOff);
    }
    let deliver = |one: &mut Recovery, two: &mut Recovery| {
        for _ in 0..10 {
            sent(one).into_iter().for_each(|message| two.handle(CellId(1), message).unwrap());
            sent(two).into_iter().for_each(|message| one.handle(CellId(2), message).unwrap());
        }
    };
    deliver(&mut one, &mut two);
    two.done(1, Step::Discard);
    // This is on its way for long.
    two.repeat();
    let late = sent(&mut two).pop().unwrap();
    one.handle(CellId(2), at(Barrier::Second, 1)).unwrap();
    one.done(1, Step::Discard);
    deliver(&mut one, &mut two);
    assert!(!one.is_recovering() && !two.is_recovering());
    one.handle(CellId(2), late).unwrap();
    assert_eq!(one.transmits.len(), 1, "two may wait for it");
    deliver(&mut one, &mut two);
    assert_eq!((sent(&mut one), sent(&mut two)), (vec![], vec![]));
}

#[test]
fn what_a_peer_may_not_say_is_refused_and_changes_nothing() {
    let mut recovery = settled();
    recovery.view(2, &cells(&[1, 2]));
    events(&mut recovery);
    let before = recovery.clone();
    let cases = [
        (CellId(0), at(Barrier::First, 2), PeerError::NotLiving(CellId(0))),
        (CellId(2), at(Barrier::Second, 2), PeerError::TooEarly(CellId(2))),
        (ME, at(Barrier::First, 2), PeerError::FromOurselves(ME)),
    ];
    for (from, message, error) in cases {
        assert_eq!(recovery.handle(from, message), Err(error));
        assert_eq!(error.guilty(), from);
        assert_eq!(recovery, before);
    }
}

proptest! {
    /// Whatever two peers say, this cell does not go past a barrier at which an honest third is not, and keeps two numbers of each.
    #[test]
    fn any_message_is_taken_or_refused(said in prop::collection::vec((0_u32..5, any::<[u8; 12]>(), 0_u64..5), 0..200)) {
        let mut recovery = settled();
        recovery.view(3, &cells(&[0, 1, 2, 3]));
        recovery.done(3, Step::CutOff);
        for (from, bytes, epoch) in said {
            if from == 2 {
                continue;
            }
            let message = match postcard::from_bytes::<Message>(&bytes) {
                Ok(message) => message,
                Err(_) => at(if bytes[0] % 2 == 0 { Barrier::First } else { Barrier::Second }, epoch),
            };
            let _ = recovery.handle(CellId(from), message);
            prop_assert!(recovery.reached.len() <= 10);
        }
        prop_assert_eq!(recovery.phase, Phase::AtFirst);
        recovery.handle(CellId(2), at(Barrier::First, 3)).unwrap();
    }
}
