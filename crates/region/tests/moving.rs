//! Copies that come before they are missed, homes that move, and copies that are given back: what threads wait for, in numbers.

mod components;
mod conditions;

use comb_region::launch::Launch;
use comb_region::task::Share;
use comb_region::{Array, Combine, Guard, Placement, Sharing, Task, Terms};
use components::Case;
use conditions::wait_until;

const CASES: &[Case] = &[
    ("pushed", pushed),
    ("evicted", evicted),
    ("evicted_objects", evicted_objects),
    ("used_by_one", used_by_one),
    ("used_by_several", used_by_several),
    ("read_by_several", read_by_several),
    ("given", given),
];

#[test]
fn component() {
    components::run(CASES);
}

const PAGE: usize = 4096;
const WORDS: usize = PAGE / 8;

fn passes(launch: &Launch) {
    let outcome = launch.start().expect("started").wait();
    let said = components::said(&outcome);
    assert!(outcome.is_success(), "{said}");
    println!("{said}");
}

/// What was read without a miss.
fn reads(task: &Task, words: &Array<u64>, expected: impl Fn(usize) -> u64) -> u64 {
    let before = task.misses();
    for index in 0..words.len() {
        assert_eq!(words.get(index), expected(index), "element {index} of {}", words.len());
    }
    task.misses() - before
}

/// One stores, and tells another that it will want that. It comes without having been missed; who was not told misses it.
fn pushed(task: &Task) {
    const PAGES: usize = 64;
    // At its home; where its home has to be asked for first; and by one that is not the home.
    for (placement, from) in [(Placement::At(0), 0), (Placement::FirstTouch, 2), (Placement::At(1), 0)] {
        let terms = Terms { placement, ..Terms::default() };
        let words = Array::<u64>::together(task, PAGES * WORDS, &terms).expect("allocated");
        let bytes = PAGES * PAGE;
        let (to, neither) = if from == 0 { (2, 1) } else { (1, 0) };
        let before = task.counts().copies_bytes;
        task.barrier();
        assert_eq!(
            task.push(words.as_ptr().cast(), 0, Some(to)),
            usize::from(placement == Placement::At(task.rank()))
        );
        if task.rank() == from {
            (0..words.len()).for_each(|index| words.set(index, index as u64 * 3));
            assert_eq!(task.push(words.as_ptr().cast(), bytes, Some(from)), 0, "to itself");
            assert_eq!(task.push(words.as_ptr().cast(), bytes, Some(99)), 0, "to nobody");
            assert_eq!(task.push(words.as_ptr().cast(), bytes, Some(to)), PAGES);
        }
        let is_here = || task.counts().copies_bytes >= before + bytes as u64;
        if task.rank() == to {
            wait_until("what was pushed is here", || {
                task.poll();
                is_here()
            });
            assert_eq!(reads(task, &words, |index| index as u64 * 3), 0, "{placement:?}");
        }
        task.barrier();
        if task.rank() == neither && placement != Placement::At(neither) {
            assert!(!is_here());
            assert!(reads(task, &words, |index| index as u64 * 3) > 0, "nobody has told it");
        }
        task.barrier();
        // To all, of whom some have it: the last words count.
        if task.rank() == from {
            (0..words.len()).for_each(|index| words.set(index, index as u64 * 5));
            assert_eq!(task.push(words.as_ptr().cast(), bytes, None), PAGES);
            (0..words.len()).for_each(|index| words.set(index, index as u64 * 7));
        }
        task.barrier();
        reads(task, &words, |index| index as u64 * 7);
        task.barrier();
    }
}

#[test]
fn what_was_pushed_is_read_without_a_miss() {
    components::pass("pushed", 3, Share::Copy);
}

/// Memory of this process that is shared with anybody, in bytes: page frames above all.
fn shared_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("procfs");
    let line = status.lines().find_map(|line| line.strip_prefix("RssShmem:")).expect("Linux 4.5");
    line.trim().trim_end_matches("kB").trim().parse::<u64>().expect("a number") << 10
}

/// What this component's page frames take, wherever and however often they are mapped: its file of them is as long as the heap.
fn frames_bytes() -> u64 {
    use std::os::unix::fs::MetadataExt;
    let files = std::fs::read_dir("/proc/self/fd").expect("procfs").flatten();
    let files = files.filter_map(|entry| std::fs::metadata(entry.path()).ok());
    let frames = files.filter(|file| file.is_file() && file.len() >= 1 << 40);
    frames.map(|file| file.blocks() * 512).max().expect("there is one")
}

const COPIES_BYTES: u64 = 16 << 20;

/// An array that is much larger than what a component may keep of others'.
fn evicted(task: &Task) {
    const LENGTH: usize = (64 << 20) / 8;
    for sharing in [Sharing::Stache, Sharing::Release] {
        let terms = Terms { sharing, placement: Placement::At(0), ..Terms::default() };
        let words = Array::<u64>::together(task, LENGTH, &terms).expect("allocated");
        let value = |round: u64, index: usize| round << 32 | index as u64;
        let least = shared_bytes();
        for round in 1..3 {
            let writer = u32::from(round == 2);
            let mut most = 0;
            if task.rank() == writer {
                for index in 0..LENGTH {
                    words.set(index, value(round, index));
                    if index % (WORDS * 256) == 0 {
                        most = most.max(shared_bytes());
                    }
                }
            }
            task.barrier();
            if task.rank() != writer {
                for index in 0..LENGTH {
                    assert_eq!(words.get(index), value(round, index), "{sharing:?} round {round}");
                    if index % (WORDS * 256) == 0 {
                        most = most.max(shared_bytes());
                    }
                }
            }
            task.barrier();
            if task.rank() == 1 {
                let counts = task.counts();
                // The frames and their alias are counted both; then what comes while there is no time to look.
                let bound = least + 2 * COPIES_BYTES + (4 << 20);
                assert!(most <= bound, "{most} bytes at most, from {least} on: {counts:?}");
                assert!(counts.copies_bytes <= COPIES_BYTES + (2 << 20), "{counts:?}");
                assert!(counts.evicted >= LENGTH as u64 * 8 / PAGE as u64 / 2, "{counts:?}");
                println!("{sharing:?}: {} MB at most, {counts:?}", (most - least) >> 20);
            }
        }
        task.barrier();
        if task.rank() == 0 {
            task.free(words.as_ptr().cast()).expect("ours");
        }
        task.barrier();
        assert_eq!(task.counts().copies_bytes, 0, "{sharing:?}");
    }
}

#[test]
fn copies_beyond_what_is_allowed_are_given_back() {
    passes(&components::prepare("evicted", 2, Share::Copy).copies_bytes(COPIES_BYTES));
}

const OBJECTS_COPIES_BYTES: u64 = 2 << 20;

/// Objects share frames, and frames go back to the system when none of their objects is here.
#[expect(unsafe_code, reason = "objects by their addresses")]
fn evicted_objects(task: &Task) {
    const OBJECTS: usize = 16 << 10;
    const BYTES: usize = 1024;
    let terms =
        Terms { guard: Guard::Mmu, block_bytes: 1024, placement: Placement::RoundRobin, ..Terms::default() };
    let memory = task.allocate_together((OBJECTS * BYTES) as u64, &terms).expect("allocated");
    let object = |index| task.object(memory, index).expect("so many").cast::<u64>();
    for round in 0..3_u64 {
        for index in
            (0..OBJECTS).filter(|index| index % 2 == usize::from((u64::from(task.rank()) + round) % 2 == 1))
        {
            // SAFETY: an object; in this round it is ours alone.
            unsafe { object(index).write_volatile(round << 32 | index as u64) };
        }
        task.barrier();
        for index in 0..OBJECTS {
            // SAFETY: an object, which nobody stores into now.
            assert_eq!(unsafe { object(index).read_volatile() }, round << 32 | index as u64);
        }
        task.barrier();
    }
    let (counts, frames) = (task.counts(), frames_bytes());
    // What lives here, half of it; copies; and frames of which an object or two are left.
    let bound = (OBJECTS * BYTES) as u64 / 2 + 3 * OBJECTS_COPIES_BYTES;
    assert!(frames <= bound && counts.evicted > 0, "{frames}, {counts:?}");
    println!("{frames} bytes, {counts:?}");
}

#[test]
fn objects_that_are_too_many_are_given_back() {
    passes(&components::prepare("evicted_objects", 2, Share::Copy).copies_bytes(OBJECTS_COPIES_BYTES));
}

/// One component uses, round after round, more than it may keep of another's memory. Where blocks move, they come to it, and it misses none any more.
fn used_by_one(task: &Task) {
    const PAGES: usize = 1024;
    for (sharing, moves) in [(Sharing::Stache, false), (Sharing::Stache, true), (Sharing::Migratory, true)] {
        let terms = Terms { sharing, moves, placement: Placement::At(0), ..Terms::default() };
        let words = Array::<u64>::together(task, PAGES * WORDS, &terms).expect("allocated");
        let before = task.counts();
        task.barrier();
        if task.rank() == 1 {
            let mut misses = Vec::new();
            for round in 0..40 {
                let before = task.misses();
                for page in 0..PAGES {
                    let index = page * WORDS + round;
                    words.set(index, words.get(page * WORDS) + index as u64);
                }
                misses.push(task.misses() - before);
            }
            let moved = task.counts().moved_here - before.moved_here;
            println!("{sharing:?}, moves {moves}: {moved} blocks moved, misses by round {misses:?}");
            let last = misses[misses.len() - 1];
            if moves {
                // Those that are left it may keep as copies.
                assert!(moved >= PAGES as u64 * 3 / 4 && last == 0, "{moved}: {misses:?}");
                assert_eq!(task.home(words.as_ptr().cast()), Some(1));
            } else {
                assert!(moved == 0 && last > PAGES as u64 / 2, "{misses:?}");
            }
        }
        task.barrier();
        for page in 0..PAGES {
            let first = words.get(page * WORDS);
            for round in 1..40 {
                let index = page * WORDS + round;
                assert_eq!(words.get(index), first + index as u64);
            }
        }
        task.barrier();
    }
}

#[test]
fn what_one_component_misses_again_and_again_moves_there() {
    passes(&components::prepare("used_by_one", 3, Share::Copy).copies_bytes(1 << 20));
}

/// What several store into stays where it is, however often it is missed.
fn used_by_several(task: &Task) {
    const PAGES: usize = 8;
    let terms = Terms { moves: true, placement: Placement::At(0), ..Terms::default() };
    let words = Array::<u64>::together(task, PAGES * WORDS, &terms).expect("allocated");
    task.barrier();
    let rank = task.rank() as usize;
    for round in 1..200 {
        for page in 0..PAGES {
            words.set(page * WORDS + rank, round);
        }
        task.barrier();
    }
    let counts = task.counts();
    let misses = task.reduce(Combine::Sum, &[counts.misses])[0];
    assert!(misses > 1000, "{misses}");
    assert_eq!((counts.moved_here, counts.moved_away), (0, 0));
    assert!((0..PAGES).all(|page| task.home(words.as_ptr().wrapping_add(page * WORDS).cast()) == Some(0)));
    task.barrier();
}

#[test]
fn what_several_store_into_stays() {
    components::pass("used_by_several", 3, Share::Copy);
}

/// What several read and hardly anybody stores into comes to all of them, by the policy's word, before they have missed all of it; from then on nobody asks its home for any of it,
/// until somebody stores.
fn read_by_several(task: &Task) {
    /// So much is judged together.
    const PAGES: usize = 16;
    /// Not in a row, so that nothing is read ahead. Six readers miss so many often enough for the policy.
    const MISSED: [usize; 11] = [0, 5, 3, 12, 1, 9, 14, 7, 2, 10, 6];
    const STORED: usize = 3;
    let terms = Terms { moves: true, placement: Placement::At(0), ..Terms::default() };
    let words = Array::<u64>::together(task, PAGES * WORDS, &terms).expect("allocated");
    let (before, is_home) = (task.counts().copies_bytes, task.rank() == 0);
    if is_home {
        (0..words.len()).for_each(|index| words.set(index, index as u64 * 3));
    }
    task.barrier();
    if !is_home {
        MISSED.iter().for_each(|page| assert_eq!(words.get(page * WORDS), (page * WORDS) as u64 * 3));
        wait_until("what nobody has asked for is here", || {
            task.poll();
            task.counts().copies_bytes >= before + (PAGES * PAGE) as u64
        });
        for _ in 0..20 {
            assert_eq!(reads(task, &words, |index| index as u64 * 3), 0, "asked for after it was replicated");
        }
    }
    task.barrier();
    let is_stored = |index: usize| index / WORDS == STORED;
    if is_home {
        (STORED * WORDS..(STORED + 1) * WORDS).for_each(|index| words.set(index, 1));
    }
    task.barrier();
    let value = |index: usize| if is_stored(index) { 1 } else { index as u64 * 3 };
    let misses = reads(task, &words, value);
    assert_eq!(misses, u64::from(!is_home), "the store has taken one block from each reader, and no other");
    assert_eq!(reads(task, &words, value), 0, "and it is back");
    assert_eq!(task.reduce(Combine::Sum, &[task.counts().moved_here])[0], 0, "it lives where it was born");
    task.barrier();
}

#[test]
fn what_several_read_is_replicated_and_a_store_takes_it_back() {
    components::pass("read_by_several", 7, Share::Copy);
}

/// Blocks that are given from one to the next, while others who do not know of it use them.
fn given(task: &Task) {
    const PAGES: usize = 50;
    for (placement, block_bytes) in
        [(Placement::At(0), 4096), (Placement::FirstTouch, 4096), (Placement::RoundRobin, 65536)]
    {
        let terms = Terms { moves: true, placement, block_bytes, ..Terms::default() };
        let words = Array::<u64>::together(task, PAGES * WORDS, &terms).expect("allocated");
        let (rank, count) = (task.rank(), task.count());
        for round in 1..10 {
            // Each in its turn has it all; the first time it finds it where it was born.
            let turn = (round % count) as usize;
            if rank as usize == turn {
                (0..words.len()).for_each(|index| words.set(index, u64::from(round) << 32 | index as u64));
            }
            task.barrier();
            let bytes = PAGES * PAGE;
            let to = (round + 1) % count;
            let moving = task.move_home(words.as_ptr().cast(), bytes, to) as u64;
            assert!(rank != to || moving == 0, "to itself");
            // Read while it is on its way; asked where it was.
            reads(task, &words, |index| u64::from(round) << 32 | index as u64);
            task.barrier();
        }
        let places = (0..PAGES).map(|page| words.as_ptr().wrapping_add(page * WORDS).cast());
        let own = places.filter(|&place| task.home(place) == Some(rank)).count() as u64;
        assert_eq!(task.reduce(Combine::Sum, &[own])[0], PAGES as u64, "each lives once");
        assert!(task.reduce(Combine::Sum, &[task.counts().moved_here])[0] > 0);
        task.barrier();
    }
    // By their terms they stay; and where many write, there are no such terms.
    let words =
        Array::<u64>::together(task, WORDS, &Terms { placement: Placement::At(0), ..Terms::default() });
    assert_eq!(task.move_home(words.expect("allocated").as_ptr().cast(), PAGE, 1), 0);
    let refused = task
        .allocate(1, &Terms { moves: true, sharing: Sharing::Release, ..Terms::default() })
        .expect_err("no");
    assert!(refused.to_string().contains("stay where they were born"), "{refused}");
}

#[test]
fn blocks_that_were_given_away_are_found() {
    for count in [2, 4] {
        components::pass("given", count, Share::Copy);
    }
    components::pass_by_protections("given", 3);
}
