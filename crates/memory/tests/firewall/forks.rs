//! Children by `fork` have none of it: they would have it without its guard.

use crate::parties::{
    GRANTED, HIDDEN, Importer, Line, NOT_PERMITTED, SHOWN, between, error, from_late_code, how_it_ended,
};

/// A child that stores to a page dies of it.
#[track_caller]
fn no_child_stores(importer: &Importer) {
    for page in [SHOWN, HIDDEN, GRANTED] {
        let place = importer.place(page);
        // SAFETY: the child stores, and ends.
        let child = unsafe {
            match libc::fork() {
                0 => {
                    place.write_volatile(77);
                    libc::_exit(0)
                }
                child => child,
            }
        };
        assert_eq!(how_it_ended(child), Some(libc::SIGSEGV), "page {page}");
    }
}

#[test]
fn a_child_by_fork_has_no_way_in() {
    let importer = |line: Line| {
        let importer = Importer::come_in(line);
        no_child_stores(&importer);
        importer.is_held();
        importer.has_tried();
    };
    between(
        "forks::a_child_by_fork_has_no_way_in",
        |home| {
            home.usual();
            home.when_it_has_tried();
            assert_ne!(home.byte(GRANTED), 77);
        },
        importer,
    );
}

#[test]
fn nobody_has_children_inherit_it() {
    let importer = |line: Line| {
        let importer = Importer::covered(line);
        let (start, bytes) = (importer.page(0), 600 * 4096);
        // SAFETY: advice, and descriptors.
        unsafe {
            assert_eq!(error(libc::madvise(start.cast(), bytes, libc::MADV_DOFORK)), libc::EPERM);
            // From before the heap, and far into it.
            let everything: *mut libc::c_void = (1_usize << 40) as *mut _;
            assert_eq!(error(libc::madvise(everything, 1 << 45, libc::MADV_DOFORK)), libc::EPERM);
            let itself = libc::syscall(libc::SYS_pidfd_open, libc::getpid(), 0);
            let vector = libc::iovec { iov_base: start.cast(), iov_len: bytes };
            let advised =
                libc::syscall(libc::SYS_process_madvise, itself, &raw const vector, 1, libc::MADV_DOFORK, 0);
            assert_eq!(error(advised), libc::EPERM);
            let advice = libc::MADV_DOFORK as usize;
            let late = [
                from_late_code(libc::SYS_madvise, [start as usize, bytes, advice, 0, 0, 0]),
                from_late_code(libc::SYS_madvise, [1 << 40, 1 << 45, advice, 0, 0, 0]),
                from_late_code(
                    libc::SYS_process_madvise,
                    [itself as usize, (&raw const vector) as usize, 1, advice, 0, 0],
                ),
            ];
            assert_eq!(late, [NOT_PERMITTED; 3]);
        }
        no_child_stores(&importer);
        importer.has_tried();
    };
    between(
        "forks::nobody_has_children_inherit_it",
        |home| {
            home.usual();
            home.when_it_has_tried();
            assert_ne!(home.byte(GRANTED), 77);
        },
        importer,
    );
}
