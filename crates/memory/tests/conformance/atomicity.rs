//! Many threads against one that gives and takes rights.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use comb_memory::Access::{self, Invalid, ReadOnly, ReadWrite};
use comb_types::Dice;

use crate::Kind;
use crate::world::{Policy, World, begin};

const THREADS: u64 = 4;
const BLOCKS: u64 = 40;
const ROUNDS: u64 = 3000;

/// Threads store as fast as they can to all words; whoever is stopped goes on the moment that the right is there.
pub(crate) fn no_late_store(kind: Kind) {
    let world = begin(kind, BLOCKS, ReadWrite);
    world.policy(Policy::Wait);
    let is_over = AtomicBool::new(false);
    let all_run = Barrier::new(1 + usize::try_from(THREADS).unwrap());
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (is_over, all_run) = (&is_over, &all_run);
            scope.spawn(move || {
                let mut value = 0;
                all_run.wait();
                while !is_over.load(Ordering::Relaxed) {
                    value += 1;
                    // Most of it where it hurts.
                    let block = if value % 4 == 0 { value / 4 % BLOCKS } else { 3 + thread % 2 };
                    world.store(block, value << 8 | thread);
                }
            });
        }
        all_run.wait();
        let mut dice = Dice::new(1);
        for round in 0..ROUNDS {
            let first = below(&mut dice, 5);
            let blocks = first..first + 1 + below(&mut dice, BLOCKS - first);
            let access = if round % 2 == 0 { Invalid } else { ReadOnly };
            world.set(blocks.clone(), access);
            let contents =
                |blocks: std::ops::Range<u64>| blocks.map(|block| world.content(block)).collect::<Vec<_>>();
            let taken = contents(blocks.clone());
            // Others get the processor; who has a store in the pipe would do it now.
            for _ in 0..below(&mut dice, 4) {
                std::thread::yield_now();
            }
            assert_eq!(contents(blocks.clone()), taken, "round {round}: {blocks:?} were {access:?}");
            // Partly, so that a run meets all rights.
            if below(&mut dice, 2) == 0 {
                world.set(blocks.start..blocks.start + 1, ReadOnly);
            }
            world.set(blocks, ReadWrite);
        }
        is_over.store(true, Ordering::Relaxed);
        world.stop_waiting();
    });
}

/// Before a block is filled with something newer, everybody has stopped reading the old: what a reader sees never goes back.
pub(crate) fn no_late_load(kind: Kind) {
    let world = begin(kind, BLOCKS, Invalid);
    world.policy(Policy::Wait);
    let is_over = AtomicBool::new(false);
    let all_run = Barrier::new(1 + usize::try_from(THREADS).unwrap());
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (is_over, all_run) = (&is_over, &all_run);
            scope.spawn(move || {
                let block = 3 + thread % 2;
                let mut last = 0;
                all_run.wait();
                while !is_over.load(Ordering::Relaxed) {
                    let value = world.load(block);
                    assert!(value >= last, "{value} after {last}");
                    // A word that is about to be filled is a mark; it is not to be seen.
                    assert_ne!(value, u64::MAX);
                    last = value;
                }
            });
        }
        all_run.wait();
        for round in 0..ROUNDS {
            world.set(3..5, Invalid);
            for block in 3..5 {
                world.fill(block, u64::MAX);
            }
            std::thread::yield_now();
            for block in 3..5 {
                world.fill(block, round);
            }
            world.set(3..5, if round % 2 == 0 { ReadOnly } else { ReadWrite });
        }
        is_over.store(true, Ordering::Relaxed);
        world.stop_waiting();
    });
}

/// `lock xadd` is whole, or has not begun.
pub(crate) fn counters(kind: Kind) {
    let world = begin(kind, BLOCKS, ReadWrite);
    world.policy(Policy::Wait);
    let is_over = AtomicBool::new(false);
    let all_run = Barrier::new(1 + usize::try_from(THREADS).unwrap());
    let added = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (is_over, all_run, added) = (&is_over, &all_run, &added);
            scope.spawn(move || {
                world.word(thread).fetch_add(1, Ordering::Relaxed);
                let mut count = 1;
                all_run.wait();
                while !is_over.load(Ordering::Relaxed) {
                    world.word((count + thread) % 7).fetch_add(1, Ordering::Relaxed);
                    count += 1;
                }
                added.fetch_add(count, Ordering::Relaxed);
            });
        }
        all_run.wait();
        let mut dice = Dice::new(2);
        for _ in 0..ROUNDS {
            let block = below(&mut dice, 7);
            let access: Access =
                [Invalid, ReadOnly, ReadWrite][usize::try_from(below(&mut dice, 3)).unwrap()];
            world.set(block..block + 1, access);
            if below(&mut dice, 2) == 0 {
                world.set(0..7, ReadWrite);
            }
        }
        give_all(world);
        is_over.store(true, Ordering::Relaxed);
    });
    let sum: u64 = (0..7).map(|block| world.content(block)).sum();
    assert_eq!(sum, added.load(Ordering::Relaxed));
    assert!(sum >= THREADS);
}

fn give_all(world: &World) {
    world.set_all(ReadWrite);
    world.stop_waiting();
}

fn below(dice: &mut Dice, limit: u64) -> u64 {
    u64::from(dice.below(u32::try_from(limit).unwrap()))
}
