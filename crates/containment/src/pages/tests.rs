use alloc::vec;
use alloc::vec::Vec;

use comb_types::CellId;
use proptest::prelude::*;

use super::*;

const A: CellId = CellId(0);
const B: CellId = CellId(1);
const C: CellId = CellId(2);

fn page(offset: u64) -> PageId {
    PageId { object: 7, offset }
}

fn frame(home: CellId, number: u64) -> Frame {
    Frame { home, number }
}

/// Cell 0 with some frames.
fn table() -> PageTable {
    PageTable::new(A, 4)
}

/// Puts a page where there is a place for it.
fn hold(table: &mut PageTable, page: PageId, acceptable: &[CellId]) -> Frame {
    let Ok(Allocated::Frame(frame)) = table.allocate(Purpose::Page, acceptable, None) else {
        panic!("no frame");
    };
    table.enter(page, frame).unwrap();
    frame
}

#[test]
fn logical_sharing_binds_a_page_here_to_an_entry_there() {
    let (mut home, mut client) = (PageTable::new(B, 4), table());
    let there = hold(&mut home, page(1), &[B]);
    let exported = home.export(A, page(1), false).unwrap();
    assert_eq!(exported, Exported { frame: there, opens_firewall: false });
    client.import(exported.frame, B, page(1), false).unwrap();
    assert_eq!(client.find(page(1)), Some(Found { frame: there, data_home: B, is_writable: false }));
    assert_eq!((client.entries(), client.free()), (1, 4));
    // It wants to store.
    assert!(home.export(A, page(1), true).unwrap().opens_firewall);
    assert!(!home.export(A, page(1), true).unwrap().opens_firewall, "it is open");
    client.import(there, B, page(1), true).unwrap();
    assert!(client.find(page(1)).unwrap().is_writable);
    assert_eq!(home.clients(page(1)).collect::<Vec<_>>(), [(A, true)]);
    assert_eq!(home.give_up(there), Err(GiveUpError::Exported(page(1))));
    assert_eq!(client.release(page(1)), Ok(B));
    assert_eq!(client, table());
    assert_eq!(home.released(A, page(1)), Ok(true));
    assert!(home.find(page(1)).is_some(), "it stays until its frame is wanted");
    home.give_up(there).unwrap();
    assert_eq!(home, PageTable::new(B, 4));
}

#[test]
fn a_frame_that_is_loaned_and_comes_back_as_an_import_has_one_entry() {
    let (mut memory, mut data) = (table(), PageTable::new(B, 0));
    let frame = memory.loanable().unwrap();
    memory.loan_frame(B, frame).unwrap();
    data.borrow_frame(frame).unwrap();
    assert_eq!((memory.entries(), memory.free(), data.entries()), (1, 3, 1));
    assert_eq!(hold(&mut data, page(1), &[A, B]), frame);
    let exported = data.export(A, page(1), true).unwrap();
    memory.import(exported.frame, B, page(1), true).unwrap();
    assert_eq!((memory.entries(), data.entries()), (1, 1), "no second entry on either side");
    // One level ends, the other does not.
    assert_eq!(memory.returned(B, frame), Err(ReturnedError::StillImported { client: B, frame }));
    assert_eq!(data.return_frame(frame), Err(ReturnError::InUse(frame)));
    assert_eq!(memory.release(page(1)), Ok(B));
    assert_eq!((memory.entries(), memory.find(page(1))), (1, None));
    data.released(A, page(1)).unwrap();
    data.give_up(frame).unwrap();
    assert_eq!(data.return_frame(frame), Ok(A));
    memory.returned(B, frame).unwrap();
    assert_eq!((memory, data), (table(), PageTable::new(B, 0)));
}

#[test]
fn frames_come_from_who_is_preferred_then_from_home_then_from_whoever_is_acceptable() {
    let mut table = PageTable::new(A, 2);
    let all = [A, B, C];
    assert_eq!(table.allocate(Purpose::Page, &all, Some(C)), Ok(Allocated::BorrowFrom(C)));
    table.borrow_frame(frame(C, 9)).unwrap();
    assert_eq!(table.allocate(Purpose::Page, &all, Some(C)), Ok(Allocated::Frame(frame(C, 9))));
    assert_eq!(table.allocate(Purpose::Page, &[A, B], Some(C)), Ok(Allocated::Frame(frame(A, 0))));
    assert_eq!(table.allocate(Purpose::Page, &[B], None), Ok(Allocated::BorrowFrom(B)));
    table.borrow_frame(frame(B, 5)).unwrap();
    assert_eq!(table.allocate(Purpose::Page, &all, None), Ok(Allocated::Frame(frame(A, 1))));
    assert_eq!(table.allocate(Purpose::Page, &all, Some(A)), Ok(Allocated::Frame(frame(B, 5))));
    assert_eq!(table.allocate(Purpose::Page, &all, None), Ok(Allocated::BorrowFrom(B)));
    assert_eq!(table.allocate(Purpose::Page, &[A], None), Err(AllocateError::NoFrame));
    assert_eq!(table.allocate(Purpose::Page, &[], None), Err(AllocateError::NoFrame));
    assert_eq!(table.borrowed(), [(B, 1), (C, 1)].into());
    table.give_up(frame(B, 5)).unwrap();
    assert_eq!(table.return_frame(frame(B, 5)), Ok(B));
}

#[test]
fn a_cells_own_structures_are_in_its_own_memory() {
    let mut table = PageTable::new(A, 1);
    table.borrow_frame(frame(B, 5)).unwrap();
    let refused = table.allocate(Purpose::Structures, &[B], Some(B));
    assert_eq!(refused, Err(AllocateError::StructuresStayHome));
    let own = table.allocate(Purpose::Structures, &[A, B], Some(B));
    assert_eq!(own, Ok(Allocated::Frame(frame(A, 0))));
    assert_eq!(table.enter(page(1), frame(A, 0)), Err(EnterError::NotAllocated(frame(A, 0))));
    assert_eq!(table.loan_frame(B, frame(A, 0)), Err(LoanError::InUse(frame(A, 0))));
    let refused = table.allocate(Purpose::Structures, &[A, B], None);
    assert_eq!(refused, Err(AllocateError::NoFrame), "whatever else is free");
}

#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
    let mut table = table();
    let held = hold(&mut table, page(1), &[A]);
    table.loan_frame(B, frame(A, 1)).unwrap();
    table.borrow_frame(frame(B, 5)).unwrap();
    table.import(frame(C, 3), C, page(2), false).unwrap();
    let before = table.clone();
    let its = |frame, data_home| ImportError::NotItsFrame { frame, data_home };

    assert_eq!(table.loan_frame(C, frame(A, 1)), Err(LoanError::LoanedAlready(frame(A, 1))));
    assert_eq!(table.loan_frame(C, held), Err(LoanError::InUse(held)));
    assert_eq!(table.loan_frame(C, frame(A, 99)), Err(LoanError::InUse(frame(A, 99))));
    assert_eq!(table.loan_frame(C, frame(B, 5)), Err(LoanError::NotOurs(frame(B, 5))));
    assert_eq!(table.loan_frame(A, frame(A, 2)), Err(LoanError::ToItself));

    let not_loaned = |client, frame| Err(ReturnedError::NotLoaned { client, frame });
    assert_eq!(table.returned(C, frame(A, 1)), not_loaned(C, frame(A, 1)));
    assert_eq!(table.returned(B, held), not_loaned(B, held));
    assert_eq!(table.returned(B, frame(A, 2)), not_loaned(B, frame(A, 2)));

    assert_eq!(table.borrow_frame(frame(B, 5)), Err(BorrowError::BorrowedAlready(frame(B, 5))));
    assert_eq!(table.borrow_frame(frame(C, 3)), Err(BorrowError::Imported(frame(C, 3))));
    assert_eq!(table.borrow_frame(frame(A, 2)), Err(BorrowError::FromOurselves(frame(A, 2))));
    assert_eq!(table.return_frame(frame(C, 3)), Err(ReturnError::NotBorrowed(frame(C, 3))));
    assert_eq!(table.return_frame(frame(A, 1)), Err(ReturnError::NotBorrowed(frame(A, 1))));

    let known = ImportError::KnownPage { page: page(1), data_home: B };
    assert_eq!(table.import(frame(B, 6), B, page(1), true), Err(known));
    let known = ImportError::KnownPage { page: page(2), data_home: B };
    assert_eq!(table.import(frame(C, 3), B, page(2), true), Err(known));
    for (frame, data_home) in
        [(held, B), (frame(A, 1), C), (frame(A, 2), B), (frame(A, 99), B), (frame(B, 5), B), (frame(C, 3), C)]
    {
        assert_eq!(table.import(frame, data_home, page(9), true), Err(its(frame, data_home)));
    }
    assert_eq!(table.import(frame(B, 6), A, page(9), true), Err(ImportError::FromOurselves));

    assert_eq!(table.export(B, page(9), true), Err(ExportError::NoPage(page(9))));
    assert_eq!(table.export(B, page(2), true), Err(ExportError::HomedElsewhere(page(2))));
    assert_eq!(table.export(A, page(1), true), Err(ExportError::ToItself));
    for (client, page) in [(B, page(1)), (C, page(2)), (C, page(9))] {
        assert_eq!(table.released(client, page), Err(ReleaseError::NotExported { client, page }));
    }
    assert_eq!(table.release(page(1)), Err(ReleaseError::NotImported(page(1))));
    assert_eq!(table.release(page(9)), Err(ReleaseError::NotImported(page(9))));

    assert_eq!(table.enter(page(1), frame(A, 2)), Err(EnterError::KnownPage(page(1))));
    assert_eq!(table.enter(page(9), frame(A, 2)), Err(EnterError::NotAllocated(frame(A, 2))));
    assert_eq!(table.enter(page(9), held), Err(EnterError::NotAllocated(held)));
    assert_eq!(table.give_up(frame(A, 1)), Err(GiveUpError::NotOurs(frame(A, 1))));
    assert_eq!(table.give_up(frame(C, 3)), Err(GiveUpError::NotOurs(frame(C, 3))));
    assert_eq!(table.discard(page(2)), None);
    assert_eq!(table, before);
}

#[test]
fn a_death_takes_what_was_there_and_brings_back_what_was_loaned() {
    let mut table = table();
    for number in [4, 5] {
        table.borrow_frame(frame(B, number)).unwrap();
    }
    let lost = hold(&mut table, page(1), &[B]);
    table.export(C, page(1), true).unwrap();
    hold(&mut table, page(2), &[A]);
    table.export(B, page(2), true).unwrap();
    table.export(C, page(2), false).unwrap();
    hold(&mut table, page(3), &[A]);
    table.export(B, page(3), false).unwrap();
    table.loan_frame(B, frame(A, 2)).unwrap();
    table.import(frame(A, 2), B, page(4), true).unwrap();
    table.import(frame(C, 8), B, page(5), true).unwrap();
    table.import(frame(B, 9), C, page(6), true).unwrap();
    table.import(frame(C, 7), C, page(7), true).unwrap();
    let losses = table.dead(B);
    assert_eq!(
        losses,
        Losses {
            lost: vec![Lost { page: page(1), frame: lost, clients: vec![C] }],
            imports: vec![page(4), page(6), page(5)],
            returned: vec![frame(A, 2)],
            damaged: vec![page(2)],
        }
    );
    assert_eq!((table.free(), table.entries()), (2, 3));
    assert_eq!(table.clients(page(3)).count(), 0);
    let discarded = table.discard(page(2)).unwrap();
    assert_eq!(discarded.clients, [C]);
    assert_eq!((table.find(page(2)), table.free()), (None, 3));
    assert_eq!(table.dead(B), Losses::default());
    assert!(table.find(page(7)).is_some());
}

/// Pages and frames, and those who have them, agree.
fn is_sound(table: &PageTable, frames: u64) -> bool {
    let bound = |entry: &Entry| match entry.logical {
        Logical::Held(page, _) | Logical::Imported { page, .. } => Some(page),
        _ => None,
    };
    let own = table.entries.keys().filter(|frame| frame.home == A).count() as u64;
    let is_possible = |frame: &Frame, entry: &Entry| match (&entry.logical, entry.physical) {
        (Logical::Empty, Physical::Own | Physical::Foreign) => false,
        (Logical::Taken(purpose), Physical::Borrowed) => *purpose == Purpose::Page,
        (Logical::Taken(_), physical) => physical == Physical::Own,
        (Logical::Held(..), physical) => matches!(physical, Physical::Own | Physical::Borrowed),
        (Logical::Imported { data_home, .. }, Physical::LoanedTo(borrower)) => *data_home == borrower,
        (Logical::Imported { .. }, physical) => physical == Physical::Foreign && frame.home != A,
        (Logical::Empty, _) => true,
    };
    own + table.free.len() as u64 == frames
        && table.free.iter().all(|&number| !table.entries.contains_key(&frame(A, number)))
        && table.pages.iter().all(|(page, frame)| bound(&table.entries[frame]) == Some(*page))
        && table.entries.values().filter_map(bound).count() == table.pages.len()
        && table.entries.iter().all(|(frame, entry)| is_possible(frame, entry))
}

proptest! {
    /// Whatever is asked and alleged, the table stays sound, an error changes nothing, and of the dead nothing is left.
    #[test]
    fn any_call_is_carried_out_or_refused(calls in prop::collection::vec((0_u32..13, 0_u32..3, 0_u64..5, 0_u64..5, 0_u32..3), 0..80)) {
        let mut table = PageTable::new(A, 3);
        for (call, cell, number, offset, other) in calls {
            let before = table.clone();
            let (cell, other, page) = (CellId(cell), CellId(other), page(offset));
            let frame = frame(other, number);
            let is_writable = number % 2 == 0;
            let acceptable = [cell, other];
            let is_done = match call {
                0 => match table.allocate(Purpose::Page, &acceptable, None) {
                    Ok(Allocated::Frame(frame)) => table.enter(page, frame).is_ok() || table.give_up(frame).is_ok(),
                    Ok(Allocated::BorrowFrom(from)) => from != A && acceptable.contains(&from),
                    Err(_) => false,
                },
                1 => table.allocate(Purpose::Structures, &acceptable, Some(other)).is_ok(),
                2 => table.export(cell, page, is_writable).is_ok(),
                3 => table.released(cell, page).is_ok(),
                4 => table.import(frame, cell, page, is_writable).is_ok(),
                5 => table.release(page).is_ok(),
                6 => table.give_up(frame).is_ok(),
                7 => table.discard(page).is_some(),
                8 => table.loan_frame(cell, frame).is_ok(),
                9 => table.returned(cell, frame).is_ok(),
                10 => table.borrow_frame(frame).is_ok(),
                11 => table.return_frame(frame).is_ok(),
                _ if cell == A => false,
                _ => {
                    let losses = table.dead(cell);
                    for page in losses.damaged {
                        prop_assert!(table.discard(page).is_some());
                    }
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
