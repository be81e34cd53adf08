//! Advice about pages, and pages that are gone.

use crate::parties::{
    EMPTY, GRANTED, HIDDEN, Importer, Line, NOT_PERMITTED, SHOWN, between, error, from_late_code, range,
};

#[test]
fn nobody_gives_the_homes_frames_back() {
    let importer = |line: Line| {
        let importer = Importer::covered(line);
        let (start, bytes) = (importer.page(0), 600 * 4096_usize);
        let advice = libc::MADV_REMOVE;
        // SAFETY: of memory that nobody here has references to.
        unsafe {
            assert_eq!(error(libc::madvise(start.cast(), bytes, advice)), libc::EPERM);
            let itself = libc::syscall(libc::SYS_pidfd_open, libc::getpid(), 0);
            let vector = libc::iovec { iov_base: start.cast(), iov_len: bytes };
            let advised = libc::syscall(libc::SYS_process_madvise, itself, &raw const vector, 1, advice, 0);
            assert_eq!(error(advised), libc::EPERM);
            let late = [
                from_late_code(libc::SYS_madvise, [start as usize, bytes, advice as usize, 0, 0, 0]),
                from_late_code(
                    libc::SYS_process_madvise,
                    [itself as usize, (&raw const vector) as usize, 1, advice as usize, 0, 0],
                ),
            ];
            assert_eq!(late, [NOT_PERMITTED; 2]);
        }
        importer.is_held();
        importer.has_tried();
    };
    between(
        "holes::nobody_gives_the_homes_frames_back",
        |home| {
            home.usual();
            home.when_it_has_tried();
        },
        importer,
    );
}

/// Without a filter: what the kernel does by itself.
#[test]
fn no_advice_opens_a_page() {
    const COLLAPSE: i32 = 25;
    let importer = |line: Line| {
        let importer = Importer::come_in(line);
        let whole = 600 * 4096;
        for (advice, from, bytes) in [
            (libc::MADV_DONTNEED, 0, whole),
            (libc::MADV_POPULATE_WRITE, SHOWN, 4096),
            (libc::MADV_POPULATE_WRITE, EMPTY, 4096),
            (libc::MADV_POPULATE_READ, HIDDEN, 8192),
            (libc::MADV_COLD, 0, whole),
            (libc::MADV_PAGEOUT, 0, whole),
            (libc::MADV_WILLNEED, 0, whole),
            (COLLAPSE, 0, whole),
            (libc::MADV_HUGEPAGE, 0, whole),
            (libc::MADV_DONTNEED, 0, whole),
        ] {
            // SAFETY: of memory that nobody here has references to.
            let done = unsafe { libc::madvise(importer.page(from).cast(), bytes, advice) };
            let is_to_fail = [libc::MADV_POPULATE_WRITE, libc::MADV_POPULATE_READ].contains(&advice);
            assert!(!is_to_fail || done == -1, "advice {advice}");
            for page in [SHOWN, HIDDEN, EMPTY, 5] {
                assert!(!importer.stores(page), "page {page} after advice {advice}");
            }
        }
        // What it has dropped itself it is to ask for again.
        assert!(!importer.stores(GRANTED));
        importer.has_tried();
        importer.line.expect("granted again");
        importer.is_held();
    };
    between(
        "holes::no_advice_opens_a_page",
        |home| {
            home.usual();
            home.when_it_has_tried();
            home.exports.grant(1, range(GRANTED)).unwrap();
            home.importer.say("granted again");
        },
        importer,
    );
}

#[test]
fn a_hole_that_is_filled_again_is_closed() {
    let importer = |line: Line| {
        let importer = Importer::come_in(line);
        importer.is_held();
        importer.has_tried();
        for page in [GRANTED, SHOWN, EMPTY] {
            importer.line.expect("punched");
            assert!(!importer.stores(page) && importer.load(page).is_none(), "a hole");
            importer.line.say("stopped");
            importer.line.expect("filled");
            assert!(!importer.stores(page) && importer.load(page).is_none(), "filled, and not shown");
            importer.line.say("stopped");
        }
    };
    between(
        "holes::a_hole_that_is_filled_again_is_closed",
        |home| {
            home.usual();
            home.when_it_has_tried();
            for page in [GRANTED, SHOWN, EMPTY] {
                home.exports.take(&range(page)).unwrap();
                home.importer.say("punched");
                home.importer.expect("stopped");
                home.exports.put_back(&range(page));
                home.importer.say("filled");
                home.importer.expect("stopped");
            }
            home.is_as_it_was();
        },
        importer,
    );
}

/// The clock hand takes what is all zeros and nobody may store to; who had it mapped is stopped there, and is shown it again.
#[test]
fn what_is_given_back_is_zeros_that_nobody_may_store_to() {
    let importer = |line: Line| {
        let importer = Importer::come_in(line);
        importer.line.expect("given back");
        assert!(importer.load(SHOWN).is_none() && !importer.stores(SHOWN), "it is not there");
        assert!(importer.stores(GRANTED) && importer.load(GRANTED).is_some(), "it is there");
        importer.line.say("stopped");
        importer.line.expect("shown");
        assert!(importer.load(SHOWN) == Some(0) && !importer.stores(SHOWN));
        importer.has_tried();
    };
    between(
        "holes::what_is_given_back_is_zeros_that_nobody_may_store_to",
        |home| {
            home.usual();
            for page in [SHOWN, GRANTED] {
                home.exports.copy_in(page * 4096 + 8, &[0]);
            }
            let (mut hand, before) = (0, home.exports.resident_bytes());
            let first = home.exports.give_back(&mut hand, 2, false);
            assert_eq!((first.zero_bytes, first.swapped_bytes, first.looked_at, hand), (4096, 0, 2, 2));
            // The rest is granted, or is no zeros.
            let rest = home.exports.give_back(&mut hand, 100, false);
            assert_eq!((rest.zero_bytes, rest.looked_at, hand), (0, 5, 0));
            assert_eq!(home.exports.resident_bytes(), before - 4096);
            home.importer.say("given back");
            home.importer.expect("stopped");
            home.exports.show(1, range(SHOWN)).unwrap();
            home.importer.say("shown");
            home.importer.expect("tried");
            for page in (0..8).filter(|page| ![SHOWN, GRANTED].contains(page)) {
                assert_eq!(home.byte(page), if page == EMPTY { 0 } else { u8::try_from(page).unwrap() + 10 });
            }
        },
        importer,
    );
}

/// What is idle goes to swap, where the host has any, and comes back as it was; who has no right there gets none by that.
#[test]
fn what_was_in_swap_is_what_it_was() {
    let importer = |line: Line| {
        let importer = Importer::come_in(line);
        importer.line.expect("swapped");
        assert!(!importer.stores(SHOWN) && importer.load(HIDDEN).is_none(), "nothing was opened");
        assert!(importer.stores(GRANTED));
        importer.line.say("looked");
        importer.line.expect("shown");
        assert!(importer.load(HIDDEN).is_some() && !importer.stores(HIDDEN));
        importer.has_tried();
    };
    between(
        "holes::what_was_in_swap_is_what_it_was",
        |home| {
            home.usual();
            let has_swap = std::fs::read_to_string("/proc/swaps").unwrap().lines().count() > 1;
            let given = home.exports.give_back(&mut 0, 100, true);
            assert_eq!(given.swapped_bytes > 0, has_swap, "{given:?}");
            home.importer.say("swapped");
            home.importer.expect("looked");
            home.exports.show(1, range(HIDDEN)).unwrap();
            home.importer.say("shown");
            home.when_it_has_tried();
        },
        importer,
    );
}
