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

/// Threads that begin together, and go on until one that changes rights meanwhile has seen enough.
struct Contest {
    is_over: AtomicBool,
    all_run: Barrier,
}

impl Contest {
    /// Runs `contend` in each of the threads, and `judge` beside them.
    fn hold(world: &World, contend: impl Fn(u64, &Self) + Sync, judge: impl FnOnce()) {
        world.policy(Policy::Wait);
        let all_run = Barrier::new(1 + usize::try_from(THREADS).unwrap());
        let contest = Self { is_over: AtomicBool::new(false), all_run };
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (contend, contest) = (&contend, &contest);
                scope.spawn(move || contend(thread, contest));
            }
            let _ends = Ends { contest: &contest, world };
            contest.all_run.wait();
            judge();
        });
    }

    /// Waits for all others.
    fn begin(&self) {
        self.all_run.wait();
    }

    fn goes_on(&self) -> bool {
        !self.is_over.load(Ordering::Relaxed)
    }
}

/// However the judge ends: one that has found something wrong would wait for ever for threads that go on.
struct Ends<'a> {
    contest: &'a Contest,
    world: &'a World,
}

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.world.set_all(ReadWrite);
        self.contest.is_over.store(true, Ordering::Relaxed);
        self.world.stop_waiting();
    }
}

/// Threads store as fast as they can to all words; whoever is stopped goes on the moment that the right is there.
pub(crate) fn no_late_store(kind: Kind) {
    let world = begin(kind, BLOCKS, ReadWrite);
    let stores = |thread, contest: &Contest| {
        let mut value = 0;
        contest.begin();
        while contest.goes_on() {
            value += 1;
            // Most of it where it hurts.
            let block = if value % 4 == 0 { value / 4 % BLOCKS } else { 3 + thread % 2 };
            world.store(block, value << 8 | thread);
        }
    };
    Contest::hold(world, stores, || {
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
    });
}

/// A thread stores to two blocks that it has looked at together, first to one that nobody has touched. There it is stopped, and lets go what it had, or
/// whoever takes the other would wait for it for ever. Before it goes on it has to have
/// both again, though each is taken while it gets the other.
pub(crate) fn together(kind: Kind) {
    let world = begin(kind, 70, ReadWrite);
    world.store(3, 1);
    world.policy(Policy::Rob);
    world.store_both([60, 3], 7);
    assert_eq!(world.stops(), [(3, true), (60, true)], "it has stored to what was taken");
    assert_eq!((world.content(60), world.content(3)), (7, 7));
}

/// Before a block is filled with something newer, everybody has stopped reading the old: what a reader sees never goes back.
pub(crate) fn no_late_load(kind: Kind) {
    let world = begin(kind, BLOCKS, Invalid);
    let loads = |thread, contest: &Contest| {
        let block = 3 + thread % 2;
        let mut last = 0;
        contest.begin();
        while contest.goes_on() {
            let value = world.load(block);
            assert!(value >= last, "{value} after {last}");
            // A word that is about to be filled is a mark; it is not to be seen.
            assert_ne!(value, u64::MAX);
            last = value;
        }
    };
    Contest::hold(world, loads, || {
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
    });
}

/// `lock xadd` is whole, or has not begun.
pub(crate) fn counters(kind: Kind) {
    let world = begin(kind, BLOCKS, ReadWrite);
    let added = AtomicU64::new(0);
    let counts = |thread, contest: &Contest| {
        world.add(thread, 1);
        let mut count = 1;
        contest.begin();
        while contest.goes_on() {
            world.add((count + thread) % 7, 1);
            count += 1;
        }
        added.fetch_add(count, Ordering::Relaxed);
    };
    Contest::hold(world, counts, || {
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
    });
    let sum: u64 = (0..7).map(|block| world.content(block)).sum();
    assert_eq!(sum, added.load(Ordering::Relaxed));
    assert!(sum >= THREADS);
}

fn below(dice: &mut Dice, limit: u64) -> u64 {
    u64::from(dice.below(u32::try_from(limit).unwrap()))
}
