//! Components of one host in a task of several hosts: they share page frames, and to protocols they are one.

mod components;
mod conditions;
mod hosts;

use comb_region::task::Share;
use comb_region::{Array, Combine, Guard, Placement, Sharing, Task, Terms};
use components::Case;
use conditions::wait_until;

const CASES: &[Case] = &[("shares", shares), ("misses", misses), ("asks_ahead", asks_ahead)];

#[test]
fn component() {
    components::run(CASES);
}

#[test]
fn part() {
    hosts::serve();
}

#[track_caller]
fn passes_on(case: &str, hosts: &[u32]) {
    let launch = hosts::on(components::prepare(case, 1, Share::Auto), hosts);
    components::succeeds(&launch, &format!("{case} on hosts with {hosts:?}"));
}

const PAGE: usize = 4096;
const WORDS: usize = PAGE / 8;

/// All store, in turns, to what lives with whomever, and all find it.
fn shares(task: &Task) {
    const PAGES: usize = 40;
    let (rank, count) = (task.rank() as usize, task.count() as usize);
    for sharing in [Sharing::Stache, Sharing::Migratory, Sharing::Release, Sharing::Update] {
        for placement in [Placement::FirstTouch, Placement::RoundRobin, Placement::At(0), Placement::At(1)] {
            for (guard, block_bytes) in [(Guard::Page, 4096), (Guard::Page, 16384)] {
                let terms = Terms { sharing, placement, guard, block_bytes, ..Terms::default() };
                let words = Array::<u64>::together(task, PAGES * WORDS, &terms).expect("allocated");
                for round in 1..4_u64 {
                    for page in 0..PAGES {
                        words.set(page * WORDS + rank, round * 1000 + page as u64);
                        words.set(page * WORDS + WORDS - 1 - rank, round);
                    }
                    task.barrier();
                    for page in 0..PAGES {
                        for other in 0..count {
                            let found = (
                                words.get(page * WORDS + other),
                                words.get(page * WORDS + WORDS - 1 - other),
                            );
                            assert_eq!(
                                found,
                                (round * 1000 + page as u64, round),
                                "{terms:?}, page {page} of {other}"
                            );
                        }
                    }
                    task.barrier();
                }
                let sum = task.reduce(Combine::Sum, &[words.get(0)])[0];
                assert_eq!(sum, 3000 * count as u64);
            }
        }
    }
}

#[test]
fn stores_are_found_by_neighbours_and_by_others() {
    components::pass("shares", 4, Share::Copy);
    components::pass_by_protections("shares", 2);
    passes_on("shares", &[2, 2]);
    passes_on("shares", &[2, 1]);
    passes_on("shares", &[1, 3, 1]);
    // Where one cannot guard its neighbours' memory, all have copies.
    let launch = components::prepare("shares", 1, Share::Auto).environment("COMB_WITHOUT", "userfaultfd");
    components::succeeds(&hosts::on(launch, &[2, 1]), "by protections");
}

/// What one of a host has read, its neighbours have.
fn misses(task: &Task) {
    const PAGES: usize = 64;
    let terms = Terms { placement: Placement::At(0), ..Terms::default() };
    let words = Array::<u64>::together(task, PAGES * WORDS, &terms).expect("allocated");
    // A lead's count is of its guests, too: when they have come here.
    let misses = || {
        task.barrier();
        task.reduce(Combine::Sum, &[task.misses()])[0]
    };
    if task.rank() == 0 {
        (0..words.len()).for_each(|index| words.set(index, index as u64));
    }
    let mut before = misses();
    for (reader, is_first) in [(3, true), (2, false), (1, false), (0, false)] {
        if task.rank() == reader {
            (0..words.len()).for_each(|index| assert_eq!(words.get(index), index as u64));
        }
        let now = misses();
        assert_eq!(now > before, is_first, "component {reader}: {} misses", now - before);
        before = now;
    }
    assert!(!task.imports());
    // A store of one takes the block from all of the other host, and from nobody of its own.
    if task.rank() == 1 {
        words.set(5, 77);
    }
    assert_eq!(misses(), before + 1, "of the home, for its neighbour");
    for (reader, missed) in [(0, 0), (3, 1), (2, 0)] {
        let before = misses();
        if task.rank() == reader {
            assert_eq!(words.get(5), 77);
        }
        assert_eq!(misses(), before + missed, "by component {reader}");
    }
}

#[test]
fn what_one_has_its_neighbours_have() {
    passes_on("misses", &[2, 2]);
}

/// What a guest would have done, its lead does.
fn asks_ahead(task: &Task) {
    const PAGES: usize = 32;
    const BYTES: usize = PAGES * PAGE;
    let numbers = |placement, moves| {
        let terms = Terms { placement, moves, ..Terms::default() };
        let words = Array::<u64>::together(task, PAGES * WORDS, &terms).expect("allocated");
        if task.rank() == 0 {
            (0..words.len()).for_each(|index| words.set(index, index as u64 + 9));
        }
        task.barrier();
        words
    };
    let reads = |words: &Array<u64>| {
        (0..words.len()).for_each(|index| assert_eq!(words.get(index), index as u64 + 9));
    };
    // The copies that a lead has count what is there.
    let copies = || task.counts().copies_bytes;
    let comes = |before: u64| {
        if task.rank() == 2 {
            wait_until("it has come", || {
                task.poll();
                copies() >= before + BYTES as u64
            });
        }
        task.barrier();
    };
    // Before anybody can have asked.
    let (before, asked) = (copies(), numbers(Placement::At(0), false));
    if task.rank() == 3 {
        task.prefetch(asked.as_ptr().cast(), BYTES, false);
    }
    comes(before);
    let (before, offered) = (copies(), numbers(Placement::At(0), false));
    if task.rank() == 1 {
        let offer = |to| task.push(offered.as_ptr().cast(), BYTES, to);
        assert_eq!(offer(Some(0)), PAGES, "to its own host: nothing comes of it");
        assert_eq!(offer(Some(3)), PAGES);
    }
    comes(before);
    let misses = task.misses();
    if task.rank() == 3 {
        reads(&asked);
        reads(&offered);
    }
    task.barrier();
    assert_eq!(task.misses(), misses, "all of it was there");
    // Two of one host have homes in common: what is given to the one lives with the other.
    let moved = numbers(Placement::At(1), true);
    if task.rank() == 1 {
        assert_eq!(task.move_home(moved.as_ptr().cast(), BYTES, 3), PAGES);
    }
    if task.rank() == 2 {
        wait_until("it lives here", || {
            task.poll();
            task.counts().moved_here == PAGES as u64
        });
        assert_eq!(task.home(moved.as_ptr().cast()), Some(2));
    }
    task.barrier();
    reads(&moved);
    task.barrier();
}

#[test]
fn what_a_guest_asks_for_ahead_its_lead_does() {
    passes_on("asks_ahead", &[2, 2]);
}
