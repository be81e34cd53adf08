use alloc::vec::Vec;

use comb_types::CellId;
use proptest::prelude::*;

use super::*;

const A: CellId = CellId(0);
const B: CellId = CellId(1);
const C: CellId = CellId(2);

fn frame(home: CellId, number: u64) -> Frame {
    Frame { home, number }
}

/// Cell 0 with some frames.
fn table() -> FrameTable {
    FrameTable::new(A, 4)
}

#[test]
fn a_frame_is_left_alone_from_the_loan_until_it_comes_back() {
    let (mut memory, mut data) = (FrameTable::new(A, 1), FrameTable::new(B, 0));
    let frame = memory.loanable().unwrap();
    memory.loan_frame(B, frame).unwrap();
    data.borrow_frame(frame).unwrap();
    assert_eq!((memory.free(), memory.loanable()), (0, None));
    assert_eq!(memory.allocate(&[A], None), None);
    assert_eq!(data.allocate(&[A, B], None), Some(Allocated::Frame(frame)));
    assert_eq!(data.return_frame(frame), Err(ReturnError::InUse(frame)));
    data.give_up(frame).unwrap();
    assert_eq!(data.return_frame(frame), Ok(A));
    memory.returned(B, frame).unwrap();
    assert_eq!((memory, data), (FrameTable::new(A, 1), FrameTable::new(B, 0)));
}

#[test]
fn frames_come_from_who_is_preferred_then_from_home_then_from_whoever_is_acceptable() {
    let mut table = FrameTable::new(A, 2);
    let all = [A, B, C];
    assert_eq!(table.allocate(&all, Some(C)), Some(Allocated::BorrowFrom(C)));
    table.borrow_frame(frame(C, 9)).unwrap();
    assert_eq!(table.allocate(&all, Some(C)), Some(Allocated::Frame(frame(C, 9))));
    assert_eq!(table.allocate(&[A, B], Some(C)), Some(Allocated::Frame(frame(A, 0))));
    assert_eq!(table.allocate(&[B], None), Some(Allocated::BorrowFrom(B)));
    table.borrow_frame(frame(B, 5)).unwrap();
    assert_eq!(table.allocate(&all, None), Some(Allocated::Frame(frame(A, 1))));
    assert_eq!(table.allocate(&all, Some(A)), Some(Allocated::Frame(frame(B, 5))));
    assert_eq!(table.allocate(&all, None), Some(Allocated::BorrowFrom(B)));
    assert_eq!(table.allocate(&[A], None), None);
    assert_eq!(table.allocate(&[], None), None);
    table.give_up(frame(B, 5)).unwrap();
    assert_eq!(table.return_frame(frame(B, 5)), Ok(B));
}

#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
    let mut table = table();
    assert_eq!(table.allocate(&[A], None), Some(Allocated::Frame(frame(A, 0))));
    let taken = frame(A, 0);
    table.loan_frame(B, frame(A, 1)).unwrap();
    table.borrow_frame(frame(B, 5)).unwrap();
    let before = table.clone();

    assert_eq!(table.loan_frame(C, frame(A, 1)), Err(LoanError::LoanedAlready(frame(A, 1))));
    assert_eq!(table.loan_frame(C, taken), Err(LoanError::InUse(taken)));
    assert_eq!(table.loan_frame(C, frame(A, 99)), Err(LoanError::InUse(frame(A, 99))));
    assert_eq!(table.loan_frame(C, frame(B, 5)), Err(LoanError::NotOurs(frame(B, 5))));
    assert_eq!(table.loan_frame(A, frame(A, 2)), Err(LoanError::ToItself));

    let not_loaned = |client, frame| Err(ReturnedError::NotLoaned { client, frame });
    assert_eq!(table.returned(C, frame(A, 1)), not_loaned(C, frame(A, 1)));
    assert_eq!(table.returned(B, taken), not_loaned(B, taken));
    assert_eq!(table.returned(B, frame(A, 2)), not_loaned(B, frame(A, 2)));

    assert_eq!(table.borrow_frame(frame(B, 5)), Err(BorrowError::BorrowedAlready(frame(B, 5))));
    assert_eq!(table.borrow_frame(frame(A, 2)), Err(BorrowError::FromOurselves(frame(A, 2))));
    assert_eq!(table.return_frame(frame(C, 3)), Err(ReturnError::NotBorrowed(frame(C, 3))));
    assert_eq!(table.return_frame(frame(A, 1)), Err(ReturnError::NotBorrowed(frame(A, 1))));

    for frame in [frame(A, 1), frame(A, 2), frame(B, 5), frame(C, 3)] {
        assert_eq!(table.give_up(frame), Err(GiveUpError::NotOurs(frame)));
    }
    assert_eq!(table, before);
}

#[test]
fn a_death_takes_what_was_there_and_brings_back_what_was_loaned() {
    let mut table = table();
    for number in [4, 5] {
        table.borrow_frame(frame(B, number)).unwrap();
    }
    table.borrow_frame(frame(C, 8)).unwrap();
    assert_eq!(table.allocate(&[B], None), Some(Allocated::Frame(frame(B, 4))));
    assert_eq!(table.allocate(&[A], None), Some(Allocated::Frame(frame(A, 0))));
    table.loan_frame(B, frame(A, 2)).unwrap();
    table.loan_frame(C, frame(A, 3)).unwrap();
    assert_eq!(table.free(), 1);
    table.dead(B);
    assert_eq!(table.free(), 2);
    let left: Vec<Frame> = table.entries.keys().copied().collect();
    assert_eq!(left, [frame(A, 0), frame(A, 3), frame(C, 8)]);
    let before = table.clone();
    table.dead(B);
    assert_eq!(table, before);
}

/// Frames, and those who have them, agree.
fn is_sound(table: &FrameTable, frames: u64) -> bool {
    let own = table.entries.keys().filter(|frame| frame.home == A).count() as u64;
    let is_possible = |frame: &Frame, used: &Use| match used {
        Use::Taken => frame.home == A,
        Use::LoanedTo(borrower) => frame.home == A && *borrower != A,
        Use::Borrowed { .. } => frame.home != A,
    };
    own + table.free.len() as u64 == frames
        && table.free.iter().all(|&number| !table.entries.contains_key(&frame(A, number)))
        && table.entries.iter().all(|(frame, used)| is_possible(frame, used))
}

proptest! {
    /// Whatever is asked and alleged, the table stays sound, an error changes nothing, and of the dead nothing is left.
    #[test]
    fn any_call_is_carried_out_or_refused(calls in prop::collection::vec((0_u32..7, 0_u32..3, 0_u64..5, 0_u32..3), 0..80)) {
        let mut table = FrameTable::new(A, 3);
        for (call, cell, number, other) in calls {
            let before = table.clone();
            let (cell, other) = (CellId(cell), CellId(other));
            let frame = frame(other, number);
            let acceptable = [cell, other];
            let is_done = match call {
                0 => match table.allocate(&acceptable, None) {
                    Some(Allocated::Frame(frame)) => acceptable.contains(&frame.home),
                    Some(Allocated::BorrowFrom(from)) => from != A && acceptable.contains(&from),
                    None => false,
                },
                1 => table.give_up(frame).is_ok(),
                2 => table.loan_frame(cell, frame).is_ok(),
                3 => table.returned(cell, frame).is_ok(),
                4 => table.borrow_frame(frame).is_ok(),
                5 => table.return_frame(frame).is_ok(),
                _ if cell == A => false,
                _ => {
                    table.dead(cell);
                    let is_left = std::format!("{table:?}").contains(&std::format!("{cell:?}"));
                    prop_assert!(!is_left);
                    true
                }
            };
            prop_assert!(is_done || table == before);
            prop_assert!(is_sound(&table, 3), "{:?}", table);
        }
    }
}
