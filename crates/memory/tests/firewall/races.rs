//! Stores that are under way while rights change, and homes whose importers die or will not be fenced.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use comb_memory::{Exports, careful_copy_to};

use crate::parties::{GRANTED, Home, Importer, Line, PAGE, between, range};

/// Stores numbers that only grow, for ever, to the first of these pages, or to all of them in turn.
fn store_for_ever(importer: &Importer, pages: u64) -> ! {
    importer.has_tried();
    let mut number = 0_u64;
    loop {
        number += 1;
        let place = importer.page(GRANTED + number % pages).wrapping_add(16);
        let _ = careful_copy_to(&number.to_ne_bytes(), place);
    }
}

fn number(exports: &mut Exports, page: u64) -> u64 {
    let mut word = [0; 8];
    exports.copy_out(page * PAGE + 16, &mut word);
    u64::from_ne_bytes(word)
}

/// Looks for as long as a store would need that is on its way.
#[track_caller]
fn nothing_comes(exports: &mut Exports, pages: u64) {
    let all = |exports: &mut Exports| -> u64 {
        (GRANTED..GRANTED + pages).map(|page| number(exports, page)).fold(0, u64::wrapping_add)
    };
    let before = all(exports);
    for _ in 0..100 {
        std::hint::spin_loop();
        assert_eq!(all(exports), before);
    }
}

fn wait_for_a_store(exports: &mut Exports) {
    let before = number(exports, GRANTED);
    let limit = Instant::now() + Duration::from_secs(30);
    while number(exports, GRANTED) == before {
        assert!(Instant::now() < limit, "nobody stores");
        std::hint::spin_loop();
    }
}

/// Until a thread of the importer waits in the kernel as nobody can disturb it.
fn wait_until_it_stands_still(home: &Home) {
    let limit = Instant::now() + Duration::from_secs(30);
    let threads = format!("/proc/{}/task", home.importer.child.id());
    let stands = |thread: std::fs::DirEntry| {
        std::fs::read_to_string(thread.path().join("stat")).is_ok_and(|stat| stat.contains(") D "))
    };
    while !std::fs::read_dir(&threads).unwrap().flatten().any(stands) {
        assert!(Instant::now() < limit, "it goes on");
        std::thread::yield_now();
    }
}

#[test]
fn after_a_revoke_no_store_comes() {
    between(
        "races::after_a_revoke_no_store_comes",
        |home| {
            home.usual();
            home.importer.expect("tried");
            for _ in 0..10_000 {
                home.exports.grant(1, range(GRANTED)).unwrap();
                wait_for_a_store(&mut home.exports);
                home.exports.revoke(&range(GRANTED));
                nothing_comes(&mut home.exports, 1);
            }
            home.importer.kill();
        },
        |line| store_for_ever(&Importer::come_in(line), 1),
    );
}

/// Grants of single pages, revoked together, with some between that were not granted.
#[test]
fn after_a_revoke_of_many_pages_no_store_comes_to_any() {
    const PAGES: u64 = 64;
    between(
        "races::after_a_revoke_of_many_pages_no_store_comes_to_any",
        |home| {
            home.usual();
            home.importer.expect("tried");
            for turn in 0..500 {
                for page in (0..PAGES).filter(|page| page % 7 != 3) {
                    home.exports.grant(1, range(GRANTED + page)).unwrap();
                }
                wait_for_a_store(&mut home.exports);
                if turn % 2 == 0 {
                    home.exports.revoke(&(0..600 * PAGE));
                } else {
                    home.exports.revoke(&(range(GRANTED).start..range(GRANTED + 30).end));
                    home.exports.revoke(&(range(GRANTED + 30).start..range(GRANTED + PAGES).end));
                }
                nothing_comes(&mut home.exports, PAGES);
                assert_eq!(home.exports.grants(), 0);
                assert_eq!(number(&mut home.exports, GRANTED + 3), 0, "never granted");
            }
            home.importer.kill();
        },
        |line| store_for_ever(&Importer::come_in(line), PAGES),
    );
}

#[test]
fn a_grant_that_races_with_a_revoke_comes_before_or_after_it() {
    between(
        "races::a_grant_that_races_with_a_revoke_comes_before_or_after_it",
        |home| {
            home.usual();
            home.importer.expect("tried");
            let (exports, is_over) = (Mutex::new(&mut home.exports), AtomicBool::new(false));
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        let mut exports = exports.lock().unwrap();
                        exports.show(1, range(GRANTED)).unwrap();
                        exports.grant(1, range(GRANTED)).unwrap();
                        drop(exports);
                        std::thread::yield_now();
                    }
                });
                for _ in 0..5_000 {
                    let mut exports = exports.lock().unwrap();
                    exports.revoke(&range(GRANTED));
                    nothing_comes(&mut exports, 1);
                    drop(exports);
                    std::thread::yield_now();
                }
                is_over.store(true, Ordering::Relaxed);
            });
            home.importer.kill();
        },
        |line| store_for_ever(&Importer::come_in(line), 1),
    );
}

/// Whatever the home is doing when its importer dies, it goes on, and what is left of that importer is closed.
#[test]
fn an_importer_dies_while_rights_change() {
    fn changes(home: &mut Home) {
        for page in GRANTED..GRANTED + 20 {
            home.exports.grant(1, range(page)).unwrap();
        }
        home.exports.show(1, range(0).start..range(100).end).unwrap();
        home.exports.revoke(&(0..600 * PAGE));
    }
    for turn in 0..8 {
        between(
            "races::an_importer_dies_while_rights_change",
            |home| {
                home.usual();
                home.importer.expect("tried");
                for _ in 0..10 * turn {
                    changes(home);
                }
                let mut importer = std::mem::ManuallyDrop::new(home.importer.process());
                let killer = std::thread::spawn(move || {
                    std::thread::sleep(Duration::from_micros(100 * turn));
                    let _ = rustix::process::pidfd_send_signal(&*importer, rustix::process::Signal::KILL);
                    // SAFETY: not used again.
                    unsafe { std::mem::ManuallyDrop::drop(&mut importer) };
                });
                while !killer.is_finished() {
                    changes(home);
                }
                killer.join().unwrap();
                home.importer.kill();
                changes(home);
                nothing_comes(&mut home.exports, 20);
                home.exports.dismiss(1);
                assert_eq!((home.exports.importers(), home.exports.grants()), (0, 0));
            },
            |line| store_for_ever(&Importer::come_in(line), 20),
        );
    }
}

/// It moves guarded memory, so that nobody can fence it; and another process has the same memory, so that its end ends nothing.
#[test]
fn who_can_be_neither_fenced_nor_ended_has_nothing_left() {
    extern "C" fn store_until_enough(importer: *mut libc::c_void) -> i32 {
        // SAFETY: of the process whose memory this is, which stands still until it ends.
        let importer = unsafe { &*importer.cast::<Importer>() };
        for number in 1_u64.. {
            let _ = careful_copy_to(&number.to_ne_bytes(), importer.page(GRANTED).wrapping_add(16));
            if number == 1 {
                importer.has_tried();
            }
            if number % 1024 == 0 && importer.line.has_something() {
                break;
            }
        }
        0
    }
    between(
        "races::who_can_be_neither_fenced_nor_ended_has_nothing_left",
        |home| {
            home.usual();
            home.exports.grant(1, range(40)).unwrap();
            home.importer.expect("tried");
            wait_for_a_store(&mut home.exports);
            home.importer.is_to_be_killed();
            wait_until_it_stands_still(home);
            home.exports.revoke(&range(GRANTED));
            nothing_comes(&mut home.exports, 1);
            home.is_as_it_was();
            assert_eq!(home.exports.grants(), 0, "nothing else is granted to it either");
            home.exports.grant(1, range(GRANTED)).unwrap();
            std::thread::sleep(Duration::from_millis(10));
            nothing_comes(&mut home.exports, 1);
            // The one that is left stores for ever, and is stopped each time.
            home.importer.say("enough");
        },
        |line| {
            let importer = Importer::come_in(line);
            let start = importer.page(40) as usize;
            let stack = vec![0_u8; 256 << 10].leak();
            let top = stack.as_mut_ptr().wrapping_add(stack.len() - 64);
            let argument = std::ptr::from_ref(&importer).cast_mut().cast();
            // SAFETY: a process with a stack of its own, that ends with the test's.
            unsafe {
                let child = libc::clone(store_until_enough, top.cast(), libc::CLONE_VM, argument);
                assert!(child > 0);
                let flags = libc::MREMAP_MAYMOVE;
                libc::mremap(start as *mut _, 4096, 8192, flags);
            }
        },
    );
}

/// A region that is no more: who has not heard of it yet is stopped all the same.
#[test]
fn what_is_closed_is_closed_to_who_has_not_heard_of_it() {
    between(
        "races::what_is_closed_is_closed_to_who_has_not_heard_of_it",
        |home| {
            home.usual();
            home.exports.close();
            assert_eq!((home.exports.importers(), home.exports.resident_bytes()), (1, 0));
            home.importer.expect("begun");
            home.importer.say("closed");
            home.importer.expect("tried");
            assert!((0..8).all(|page| home.byte(page) == 0));
            home.importer.kill();
            home.exports.forget_dead();
            assert_eq!(home.exports.importers(), 0);
        },
        |line: Line| {
            let importer = Importer::come_in(line);
            importer.line.say("begun");
            importer.line.expect("closed");
            assert!((0..8).all(|page| !importer.stores(page) && importer.load(page).is_none()));
            importer.has_tried();
            importer.stays();
        },
    );
}
