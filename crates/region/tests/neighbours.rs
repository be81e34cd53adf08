//! Components of one host in a task of several hosts: they share page frames, and to protocols they are one.

mod components;

use comb_region::{Array, Combine, Guard, Placement, Sharing, Task, Terms};
use components::Case;

const CASES: &[Case] = &[("shares", shares), ("misses", misses)];

#[test]
fn component() {
    components::run(CASES);
}

#[test]
fn part() {
    components::serve();
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
                            let found = (words.get(page * WORDS + other), words.get(page * WORDS + WORDS - 1 - other));
                            assert_eq!(found, (round * 1000 + page as u64, round), "{terms:?}, page {page} of {other}");
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
    components::pass_on_hosts("shares", &[2, 2]);
    components::pass_on_hosts("shares", &[2, 1]);
    components::pass_on_hosts("shares", &[1, 3, 1]);
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
    components::pass_on_hosts("misses", &[2, 2]);
}
