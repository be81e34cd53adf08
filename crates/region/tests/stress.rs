//! Components load and store by chance, and whatever they find has to fit one order of all stores. `COMB_STRESS_SECONDS` says for how long, all of it
//! together, if one test runs at a time.

mod components;
mod hosts;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use comb_memory::LARGEST_BLOCK_BYTES;
use comb_memory::software::with_right;
use comb_region::task::Share;
use comb_region::{Array, Combine, Guard, Placement, Sharing, Task, Terms};
use comb_types::Dice;
use components::{Case, stress_time};

const CASES: &[Case] = &[
    ("order", order),
    ("checked_order", checked_order),
    ("atomics", atomics),
    ("checked_atomics", checked_atomics),
    ("ranges", ranges),
    ("long_ranges", long_ranges),
    ("objects", objects),
];

#[test]
fn part() {
    hosts::serve();
}

#[track_caller]
fn passes_on(case: &str, hosts: &[u32]) {
    let launch = hosts::on(components::prepare(case, 1, Share::Auto), hosts);
    components::succeeds(&launch, &format!("{case} on hosts with {hosts:?}"));
}

#[test]
fn component() {
    components::run(CASES);
}

fn passes(case: &str) {
    for count in [2, 3, 5] {
        components::pass(case, count, Share::Copy);
    }
    components::pass_by_protections(case, 2);
    passes_on(case, &[2, 2]);
}

const PAGES: usize = 24;
const WORDS: usize = 512;

/// How blocks of [`order`] come to where they are.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Ways {
    /// Who misses one asks for it.
    Asked,
    /// Homes move by chance, and so do offers.
    Moved,
}

/// Each component counts up in words of its own, one a page, always in the order of the pages. Who reads the pages the other way round
/// finds no less in a page than in the one behind it that it has read before; and never less than it has found there before.
fn order(task: &Task) {
    for sharing in [Sharing::Stache, Sharing::Migratory] {
        for placement in [Placement::RoundRobin, Placement::FirstTouch, Placement::At(1)] {
            for ways in [Ways::Asked, Ways::Moved] {
                let terms = Terms { sharing, placement, ..Terms::default() };
                order_by(task, &terms, ways, stress_time() / 12);
            }
        }
    }
    // In so short a time it may be that all were in use whenever they were to move: then now, when nobody uses them.
    let moved = || task.reduce(Combine::Sum, &[task.counts().moved_here])[0];
    let terms = Terms { moves: true, placement: Placement::At(0), ..Terms::default() };
    let words = Array::<u64>::together(task, WORDS, &terms).expect("allocated");
    while moved() == 0 {
        task.move_home(words.as_ptr().cast(), WORDS * 8, task.count() - 1);
    }
}

/// The same where the program's own code looks for its rights, at whatever grain.
fn checked_order(task: &Task) {
    for (guard, block_bytes) in CHECKED {
        for ways in [Ways::Asked, Ways::Moved] {
            let terms = Terms { guard, block_bytes, placement: Placement::RoundRobin, ..Terms::default() };
            order_by(task, &terms, ways, stress_time() / 8);
        }
    }
}

const CHECKED: [(Guard, u32); 4] =
    [(Guard::Check, 128), (Guard::Check, 1024), (Guard::Check, 16384), (Guard::Hybrid, 4096)];

fn order_by(task: &Task, terms: &Terms, ways: Ways, time: Duration) {
    let (rank, count) = (task.rank() as usize, task.count() as usize);
    let moves = ways == Ways::Moved;
    let terms = Terms { moves, ..*terms };
    let words = Array::<u64>::together(task, PAGES * WORDS, &terms).expect("allocated");
    let mut dice = Dice::new(0x5EED + u64::from(task.rank()));
    let mut seen = vec![0; PAGES * count];
    let mut stored = 0;
    task.barrier();
    let end = Instant::now() + time;
    while Instant::now() < end {
        if moves {
            let place = words.as_ptr().wrapping_add(dice.index(PAGES) * WORDS).cast();
            let to = u32::try_from(dice.index(count)).expect("a rank");
            let bytes = dice.index(5 * 4096) + 1;
            match dice.below(3) {
                0 => task.move_home(place, bytes, to),
                1 => task.push(place, bytes, None),
                _ => task.push(place, bytes, Some(to)),
            };
        }
        if dice.below(2) == 0 {
            stored += 1;
            for page in 0..PAGES {
                words.set(page * WORDS + rank, stored);
            }
        } else {
            let of = dice.index(count);
            let mut least = 0;
            for page in (0..PAGES).rev() {
                let value = words.get(page * WORDS + of);
                assert!(value >= least, "{terms:?}: page {page} has {value} of {of}, a later one {least}");
                assert!(value >= seen[page * count + of], "{terms:?}: it goes back");
                (least, seen[page * count + of]) = (value, value);
            }
        }
    }
    task.barrier();
    for page in 0..PAGES {
        assert_eq!(words.get(page * WORDS + rank), stored, "{terms:?}: a store is lost");
    }
    task.barrier();
}

#[test]
fn what_is_found_fits_one_order_of_stores() {
    passes("order");
}

#[test]
fn what_checked_code_finds_fits_one_order_of_stores() {
    passes("checked_order");
}

/// The same with so little room for copies that blocks are given back all the time.
#[test]
fn what_is_given_back_fits_one_order_of_stores() {
    let outcome =
        components::prepare("order", 3, Share::Copy).copies_bytes(64 << 10).start().expect("started").wait();
    assert!(outcome.is_success(), "{}", components::said(&outcome));
}

/// A number of shared memory as the processor's own atomic.
#[expect(unsafe_code, reason = "an atomic in shared memory")]
fn atomic(words: &Array<u64>, index: usize) -> &AtomicU64 {
    assert!(index < words.len());
    // SAFETY: within the allocation, aligned, and accessed by atomic instructions alone.
    unsafe { AtomicU64::from_ptr(words.as_ptr().add(index)) }
}

/// Atomic instructions count right, of several threads in each component, for every page is with one who may write it.
fn atomics(task: &Task) {
    for sharing in [Sharing::Stache, Sharing::Migratory] {
        count_by_atomics(task, &Terms { sharing, ..Terms::default() }, stress_time() / 2);
    }
}

fn checked_atomics(task: &Task) {
    for (guard, block_bytes) in CHECKED {
        for sharing in [Sharing::Stache, Sharing::Migratory] {
            let terms = Terms { guard, block_bytes, sharing, ..Terms::default() };
            count_by_atomics(task, &terms, stress_time() / 8);
        }
    }
}

fn count_by_atomics(task: &Task, terms: &Terms, time: Duration) {
    {
        let words = Array::<u64>::together(task, 4 * WORDS, terms).expect("allocated");
        task.barrier();
        let end = Instant::now() + time;
        let added: u64 = std::thread::scope(|scope| {
            let thread = |number: u64| {
                let words = &words;
                scope.spawn(move || {
                    let mut dice = Dice::new(number);
                    let mut added = 0;
                    while Instant::now() < end {
                        let word = atomic(words, dice.index(words.len()));
                        let add = || word.fetch_add(1, Ordering::Relaxed);
                        with_right(word.as_ptr().cast(), 8, true, add).expect("it is allocated");
                        added += 1;
                    }
                    added
                })
            };
            let threads: Vec<_> = (0..2).map(|number| thread(number + 2 * u64::from(task.rank()))).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
        });
        let added = task.reduce(Combine::Sum, &[added])[0];
        let counted: u64 = (0..words.len()).map(|index| words.get(index)).sum();
        assert_eq!(counted, added, "{terms:?}");
        task.barrier();
    }
}

#[test]
fn atomic_instructions_count_right() {
    passes("atomics");
}

#[test]
fn atomic_instructions_of_checked_code_count_right() {
    passes("checked_atomics");
}

/// Threads that need many blocks together, some of which others need too: each gets all of its own in the end, and what it does to them is whole.
fn ranges(task: &Task) {
    const TURNS: u64 = 200;
    const BYTES: usize = 4096;
    for (guard, block_bytes) in [(Guard::Check, 128), (Guard::Check, 1024)] {
        let terms = Terms { guard, block_bytes, placement: Placement::RoundRobin, ..Terms::default() };
        let words = Array::<u64>::together(task, 4 * WORDS, &terms).expect("allocated");
        task.barrier();
        std::thread::scope(|scope| {
            for thread in 0..2 {
                let words = &words;
                scope.spawn(move || {
                    // Not even: the second half of one is the first of another's, or both are the same.
                    let first = (task.rank() as usize + thread) % 3 * WORDS / 2;
                    let add = || {
                        (first..first + BYTES / 8).for_each(|index| {
                            // Plain loads and stores, but of this component's other threads.
                            atomic(words, index).fetch_add(1, Ordering::Relaxed);
                        });
                    };
                    for _ in 0..TURNS {
                        let start = words.as_ptr().wrapping_add(first).cast();
                        with_right(start, BYTES, true, add).expect("it is allocated");
                    }
                });
            }
        });
        task.barrier();
        let of = |index: usize| {
            let threads = (0..task.count() as usize).flat_map(|rank| [rank, rank + 1]);
            threads
                .filter(|thread| (thread % 3 * WORDS / 2..thread % 3 * WORDS / 2 + WORDS).contains(&index))
                .count()
        };
        for index in 0..words.len() {
            assert_eq!(words.get(index), TURNS * of(index) as u64, "word {index}, {terms:?}");
        }
        task.barrier();
    }
}

#[test]
fn who_needs_many_blocks_together_gets_them() {
    passes("ranges");
}

/// The same of hundreds of blocks, more than can be held one by one: two components each have some of them, and need those of the other.
fn long_ranges(task: &Task) {
    const TURNS: usize = 8;
    let terms = Terms { guard: Guard::Check, block_bytes: 128, ..Terms::default() };
    let words = Array::<u64>::together(task, 3 * LARGEST_BLOCK_BYTES / 16, &terms).expect("allocated");
    task.barrier();
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let words = &words;
            scope.spawn(move || {
                // The first two thirds, or the last.
                let first = (task.rank() as usize + thread) % 2 * LARGEST_BLOCK_BYTES / 16;
                let start = words.as_ptr().wrapping_add(first).cast();
                for _ in 0..TURNS {
                    task.fetch(start, LARGEST_BLOCK_BYTES, true).expect("it is allocated");
                    words.set(first, 1);
                }
            });
        }
    });
    task.barrier();
}

#[test]
fn who_needs_hundreds_of_blocks_together_gets_them() {
    passes("long_ranges");
}

/// Neighbours in one frame, each with a page of addresses of its own.
#[expect(unsafe_code, reason = "objects by their addresses")]
fn objects(task: &Task) {
    const OBJECTS: usize = 100;
    for block_bytes in [128, 1024] {
        let terms =
            Terms { guard: Guard::Mmu, block_bytes, placement: Placement::RoundRobin, ..Terms::default() };
        let memory =
            task.allocate_together(OBJECTS as u64 * u64::from(block_bytes), &terms).expect("allocated");
        assert_eq!(task.objects(memory), OBJECTS);
        let object = |index: usize| task.object(memory, index).expect("so many").cast::<u64>();
        let mut dice = Dice::new(u64::from(task.rank()));
        let mut added = 0;
        task.barrier();
        let end = Instant::now() + stress_time() / 2;
        while Instant::now() < end {
            let place = object(dice.index(OBJECTS));
            // SAFETY: an object's first and last word, for atomic instructions alone.
            let (first, last) = unsafe {
                (AtomicU64::from_ptr(place), AtomicU64::from_ptr(place.add(block_bytes as usize / 8 - 1)))
            };
            first.fetch_add(1, Ordering::Relaxed);
            last.fetch_add(1, Ordering::Relaxed);
            added += 1;
        }
        let added = task.reduce(Combine::Sum, &[added])[0];
        for word in [0, block_bytes as usize / 8 - 1] {
            // SAFETY: as above; nobody stores now.
            let counted: u64 =
                (0..OBJECTS).map(|index| unsafe { object(index).add(word).read_volatile() }).sum();
            assert_eq!(counted, added, "word {word} of objects of {block_bytes}");
        }
        task.barrier();
    }
}

#[test]
fn objects_of_one_frame_do_not_disturb_each_other() {
    passes("objects");
}
