//! Changes of mappings: memory that is moved, mapped twice, given other rights, or replaced.

use std::time::{Duration, Instant};

use crate::parties::{
    GRANTED, Home, Importer, Line, NOT_PERMITTED, PAGE, SHOWN, between, error, from_late_code, range,
    store_at,
};

/// Where nothing is.
const ELSEWHERE: usize = 0x5_0000_0000_0000 >> 4;

#[test]
fn nobody_moves_it_or_maps_it_twice() {
    let importer = |line: Line| {
        let importer = Importer::covered(line);
        let (move_it, fixed) = (libc::MREMAP_MAYMOVE, libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED);
        for page in [SHOWN, GRANTED] {
            let start = importer.page(page);
            // SAFETY: of memory that nobody here has references to.
            unsafe {
                for bytes in [4096, 0] {
                    let moved = libc::mremap(start.cast(), bytes, 4096, fixed, ELSEWHERE);
                    assert_eq!((moved, error(-1)), (libc::MAP_FAILED, libc::EPERM));
                    let moved = libc::mremap(start.cast(), bytes, 4096, move_it);
                    assert_eq!((moved, error(-1)), (libc::MAP_FAILED, libc::EPERM));
                    let late = [start as usize, bytes, 4096, fixed as usize, ELSEWHERE, 0];
                    assert_eq!(from_late_code(libc::SYS_mremap, late), NOT_PERMITTED);
                }
                let again = libc::syscall(libc::SYS_remap_file_pages, start, 4096, 0, 1, 0);
                assert_eq!(error(again), libc::EPERM);
                let late = [start as usize, 4096, 0, 1, 0, 0];
                assert_eq!(from_late_code(libc::SYS_remap_file_pages, late), NOT_PERMITTED);
            }
        }
        assert_eq!(store_at(ELSEWHERE), Some(libc::SIGSEGV), "nothing is there");
        importer.is_held();
        importer.has_tried();
    };
    between(
        "mappings::nobody_moves_it_or_maps_it_twice",
        |home| {
            home.usual();
            home.when_it_has_tried();
        },
        importer,
    );
}

/// Without a filter. Who moves it waits for somebody to hear of that, and nobody does; a store to where it is now is stopped as ever.
fn moved(name: &str, old_bytes: usize, ending: impl FnOnce(&mut Home)) {
    let importer = |line: Line| {
        let importer = Importer::come_in(line);
        let start = importer.page(SHOWN) as usize;
        std::thread::spawn(move || {
            let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
            // SAFETY: of memory that nobody here has references to.
            unsafe { libc::mremap(start as *mut _, old_bytes, 4096, flags, ELSEWHERE) };
        });
        let maps = || std::fs::read_to_string("/proc/self/maps").unwrap();
        let mapped = format!("{ELSEWHERE:x}-");
        while !maps().lines().any(|line| line.starts_with(&mapped)) {
            std::thread::yield_now();
        }
        assert_eq!(store_at(ELSEWHERE + 8), Some(libc::SIGBUS));
        assert!(importer.stores(GRANTED));
        importer.has_tried();
        importer.stays();
    };
    between(
        name,
        |home| {
            home.usual();
            home.when_it_has_tried();
            home.importer.is_to_be_killed();
            ending(home);
            let limit = Instant::now() + Duration::from_secs(30);
            while home.importer.child.try_wait().unwrap().is_none() {
                assert!(Instant::now() < limit, "it lives on");
                std::thread::yield_now();
            }
            // What is left of it holds nobody up.
            home.exports.revoke(&(0..600 * PAGE));
            home.is_as_it_was();
        },
        importer,
    );
}

#[test]
fn what_is_moved_stays_guarded_and_its_mover_is_ended() {
    moved("mappings::what_is_moved_stays_guarded_and_its_mover_is_ended", 4096, |home| {
        home.exports.forget_dead();
    });
}

#[test]
fn what_is_mapped_twice_stays_guarded_and_a_revoke_does_not_wait_for_ever() {
    moved("mappings::what_is_mapped_twice_stays_guarded_and_a_revoke_does_not_wait_for_ever", 0, |home| {
        home.exports.revoke(&range(GRANTED));
    });
}

#[test]
fn other_protections_open_nothing() {
    let importer = |line: Line| {
        let importer = Importer::come_in(line);
        let (start, bytes) = (importer.page(0), 600 * 4096);
        let all = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
        for protection in [libc::PROT_NONE, libc::PROT_READ, all, libc::PROT_READ | libc::PROT_WRITE] {
            // SAFETY: of memory that nobody here has references to.
            assert_eq!(error(unsafe { libc::mprotect(start.cast(), bytes, protection) }), 0);
            for page in [SHOWN, 3, 4, 5] {
                assert!(!importer.stores(page));
            }
        }
        importer.is_held();
        importer.has_tried();
        importer.line.expect("revoked");
        assert!(!importer.stores(GRANTED));
    };
    between(
        "mappings::other_protections_open_nothing",
        |home| {
            home.usual();
            home.when_it_has_tried();
            home.exports.revoke(&range(GRANTED));
            home.importer.say("revoked");
        },
        importer,
    );
}

/// Its own memory in the place of ours is its own; what lies around is guarded as it was, and a run of grants with such a gap is revoked whole.
#[test]
fn what_is_mapped_over_it_is_nobody_elses() {
    let importer = |line: Line| {
        let importer = Importer::come_in(line);
        let cover = |page: u64| {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
            let start = importer.page(page).cast();
            // SAFETY: of memory that nobody here has references to.
            unsafe {
                assert_eq!(libc::munmap(start, 4096), 0);
                assert_eq!(libc::mmap(start, 4096, protection, flags, -1, 0), start);
            }
        };
        cover(SHOWN);
        cover(102);
        assert!(
            importer.stores(SHOWN) && importer.stores(102) && importer.stores(101) && importer.stores(103)
        );
        assert!(!importer.stores(3) && !importer.stores(5));
        importer.has_tried();
        importer.line.expect("revoked");
        assert!(!importer.stores(101) && !importer.stores(103) && !importer.stores(GRANTED));
        importer.has_tried();
    };
    between(
        "mappings::what_is_mapped_over_it_is_nobody_elses",
        |home| {
            (100..105).for_each(|page| home.exports.copy_in(page * PAGE + 8, &[7]));
            home.let_in();
            for page in [0, SHOWN, GRANTED, 3, 5, 6, 7] {
                home.put(page, 10);
            }
            for page in [GRANTED, 100, 101, 102, 103, 104] {
                home.exports.grant(1, range(page)).unwrap();
            }
            home.importer.say("begin");
            home.when_it_has_tried();
            assert_eq!([home.byte(101), home.byte(102), home.byte(103)], [99, 7, 99]);
            home.exports.revoke(&(0..600 * PAGE));
            home.importer.say("revoked");
            home.when_it_has_tried();
        },
        importer,
    );
}
