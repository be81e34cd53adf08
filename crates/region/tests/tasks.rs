//! Tasks of several processes: each case runs in components of this very program.

mod components;
mod hosts;

use comb_region::launch::How;
use comb_region::task::{Deadline, How as Wanted, Share};
use comb_region::{Array, Barrier, Combine, EXTENT_BYTES, Lock, Placement, Sharing, Task, Terms};
use components::Case;

const CASES: &[Case] = &[
    ("stores_are_found", stores_are_found),
    ("last_of_all", last_of_all),
    ("counter", counter),
    ("many_threads", many_threads),
    ("reductions", reductions),
    ("conditions", conditions),
    ("given_back", given_back),
    ("lent", lent),
    ("freed", freed),
    ("killed", killed),
    ("refused", refused),
    ("budget", budget),
    ("depends", depends),
    ("present", present),
];

#[test]
fn component() {
    components::run(CASES);
}

#[test]
fn part() {
    hosts::serve();
}

fn passes(case: &str) {
    for (count, share) in
        [(1, Share::Auto), (2, Share::Auto), (2, Share::Copy), (4, Share::Copy), (7, Share::Copy)]
    {
        components::pass(case, count, share);
    }
    components::pass_by_protections(case, 3);
    let launch = hosts::on(components::prepare(case, 1, Share::Auto), &[2, 2]);
    components::succeeds(&launch, &format!("{case} on two hosts"));
}

const ALL_SHARINGS: [Sharing; 4] = [Sharing::Stache, Sharing::Migratory, Sharing::Release, Sharing::Update];

fn terms_of_all_kinds() -> impl Iterator<Item = Terms> {
    let placements = [Placement::FirstTouch, Placement::RoundRobin, Placement::At(0)];
    let terms =
        |sharing, placement, block_bytes| Terms { sharing, placement, block_bytes, ..Terms::default() };
    ALL_SHARINGS.into_iter().flat_map(move |sharing| {
        placements.into_iter().flat_map(move |placement| {
            [4096, 65536].into_iter().map(move |block_bytes| terms(sharing, placement, block_bytes))
        })
    })
}

/// Each component stores into its part, round after round; all find all of it.
fn stores_are_found(task: &Task) {
    const EACH: usize = 9000;
    let (rank, count) = (task.rank() as usize, task.count() as usize);
    for terms in terms_of_all_kinds() {
        let numbers = Array::<u64>::together(task, EACH * count, &terms).expect("allocated");
        for round in 1..4_u64 {
            // Not the same part each time: what one has stored another stores next.
            let part = (rank + usize::try_from(round).expect("small")) % count;
            for index in 0..EACH {
                numbers.set(part * EACH + index, round * 1_000_000 + index as u64);
            }
            task.barrier();
            for index in 0..EACH * count {
                let expected = round * 1_000_000 + (index % EACH) as u64;
                assert_eq!(numbers.get(index), expected, "{terms:?} round {round} element {index}");
            }
            task.barrier();
        }
    }
}

#[test]
fn stores_are_found_by_all_components() {
    passes("stores_are_found");
}

/// Who stores into a block of its own that nobody else has, and into one of another, has synchronised when the other is everywhere. It was once
/// told so as soon as the first was, and a third, which has a copy of the other, found the old behind the barrier.
fn last_of_all(task: &Task) {
    const WORDS: usize = 4096 / 8;
    let theirs = usize::try_from(EXTENT_BYTES).expect("it is small") / 8;
    let rank = task.rank() as usize;
    for sharing in [Sharing::Release, Sharing::Update] {
        let terms = Terms { sharing, placement: Placement::RoundRobin, ..Terms::default() };
        let words = Array::<u64>::together(task, theirs + WORDS, &terms).expect("allocated");
        let signs = Array::<u64>::together(task, 3, &Terms::default()).expect("allocated");
        let waits_for = |of: usize, round| {
            while signs.get(of) < round {
                std::thread::yield_now();
            }
        };
        for round in 1..100 {
            assert_eq!((words.get(theirs), words.get(rank)), (round - 1, round - 1), "{sharing:?}");
            task.barrier();
            words.set(rank, round);
            if rank == 0 {
                words.set(theirs, round);
            } else {
                waits_for(rank - 1, round);
            }
            if rank == 2 {
                // The others' copies of the first go, this one's with them.
                task.publish();
            }
            signs.set(rank, round);
            if rank == 0 {
                waits_for(2, round);
            }
            task.barrier();
        }
    }
}

#[test]
fn who_has_synchronised_has_nothing_under_way() {
    components::pass("last_of_all", 3, Share::Copy);
    components::pass_by_protections("last_of_all", 3);
}

/// A counter under a lock, and its neighbours in the same page without.
fn counter(task: &Task) {
    let times = 400 / u64::from(task.count());
    for terms in terms_of_all_kinds() {
        let numbers = Array::<u64>::together(task, 512, &terms).expect("allocated");
        let lock = Lock::new(task, 77).guarding(numbers.as_ptr().cast(), 8);
        let own = 1 + task.rank() as usize;
        for time in 0..times {
            let held = lock.write();
            numbers.set(0, numbers.get(0) + 1);
            drop(held);
            if !matches!(terms.sharing, Sharing::Stache | Sharing::Migratory) || time % 16 == 0 {
                numbers.set(own, numbers.get(own) + 1);
            }
        }
        task.barrier();
        assert_eq!(numbers.get(0), times * u64::from(task.count()), "{terms:?}");
        let of_own = numbers.get(own);
        assert!(of_own == times || of_own == times.div_ceil(16), "{terms:?}: {of_own}");
    }
}

/// What was said before a barrier is heard before what is said after it, whether or not the barrier is a message.
fn given_back(task: &Task) {
    for round in 0..3000_u64 {
        let lock = Lock::new(task, 1000 + round % 8);
        let is_first = u64::from(task.rank()) == round / 8 % 2;
        if is_first {
            drop(lock.write());
        }
        task.barrier();
        if !is_first {
            assert!(lock.try_write().is_some(), "round {round}: it was given back before the barrier");
        }
        task.barrier();
    }
}

#[test]
fn a_lock_that_was_given_back_before_a_barrier_is_free_after_it() {
    components::pass("given_back", 2, Share::Auto);
    components::pass("given_back", 2, Share::Copy);
}

/// Each thread takes mostly a lock of its own, which is lent to it, and sometimes one of another's, which is called back: in every way that there is. What
/// a lock guards is two numbers in blocks apart, each time stored by one thread alone.
fn lent(task: &Task) {
    const THREADS: usize = 2;
    const ROUNDS: u64 = 400;
    let all = THREADS * task.count() as usize;
    let firsts = Array::<u64>::together(task, all, &Terms::default()).expect("allocated");
    let seconds = Array::<u64>::together(task, all, &Terms::default()).expect("allocated");
    let soon = || {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
        Some(Deadline::Realtime(now + std::time::Duration::from_micros(100)))
    };
    let count = |index: usize| {
        let before = firsts.get(index);
        assert_eq!(before, seconds.get(index), "lock {index}: two have it");
        firsts.set(index, before + 1);
        seconds.set(index, before + 1);
    };
    let works = |own: usize| {
        let mut state = own as u64;
        let mut counted = 0;
        for _ in 0..ROUNDS {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let draw = (state >> 33) as usize;
            let index = if draw.is_multiple_of(8) { draw / 8 % all } else { own };
            let number = 500 + index as u64;
            let lock = Lock::new(task, number);
            match draw / 1024 % 16 {
                0 => {
                    let held = lock.read();
                    assert_eq!(firsts.get(index), seconds.get(index), "lock {index}: one has it and stores");
                    drop(held);
                }
                1 | 2 => {
                    let Some(_held) = lock.try_write() else { continue };
                    count(index);
                    counted += 1;
                }
                3 | 4 => {
                    let Some(token) = task.lock_until(number, Wanted::Alone, soon()) else { continue };
                    count(index);
                    counted += 1;
                    task.unlock_token(number, token);
                }
                5 => {
                    let token = task.lock_until(number, Wanted::Alone, None).expect("no deadline");
                    count(index);
                    let (token, _) = task.wait_until((number, 1), token, soon());
                    count(index);
                    counted += 2;
                    task.unlock_token(number, token);
                }
                6 => {
                    let held = lock.write();
                    count(index);
                    counted += 1;
                    held.notify_one(1);
                }
                _ => {
                    let _held = lock.write();
                    count(index);
                    counted += 1;
                }
            }
        }
        counted
    };
    let counted: u64 = std::thread::scope(|scope| {
        let own = |thread: usize| task.rank() as usize * THREADS + thread;
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || works(own(thread)))).collect();
        threads.into_iter().map(|thread| thread.join().expect("it did not panic")).sum()
    });
    let all_counted = task.reduce(Combine::Sum, &[counted])[0];
    let total: u64 = (0..all).map(|index| firsts.get(index)).sum();
    assert_eq!(total, all_counted);
    // None of them is held by anybody, wherever it is.
    task.barrier();
    for index in (task.rank() as usize..all).step_by(task.count() as usize) {
        assert!(Lock::new(task, 500 + index as u64).try_write().is_some(), "lock {index} is free");
    }
    task.barrier();
}

#[test]
fn a_lock_that_is_lent_comes_back_for_whoever_wants_it() {
    passes("lent");
}

#[test]
fn a_lock_guards_what_is_stored() {
    passes("counter");
}

/// Threads of one component miss the same blocks at once.
fn many_threads(task: &Task) {
    const THREADS: usize = 4;
    const LENGTH: usize = 40_000;
    for sharing in ALL_SHARINGS {
        let terms = Terms { sharing, ..Terms::default() };
        let numbers = Array::<u32>::together(task, LENGTH, &terms).expect("allocated");
        let barrier = Barrier::new(task, THREADS);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (numbers, barrier) = (&numbers, &barrier);
                scope.spawn(move || {
                    let all = THREADS * task.count() as usize;
                    let own = task.rank() as usize * THREADS + thread;
                    for round in 1..5_u32 {
                        for index in (own..LENGTH).step_by(all) {
                            // Neighbours of all components in each page: by turns for who writes alone.
                            if matches!(sharing, Sharing::Release | Sharing::Update)
                                || index / 1024 % all == own
                            {
                                numbers.set(index, round);
                            }
                        }
                        barrier.wait();
                        for index in (0..LENGTH).step_by(7) {
                            let seen = numbers.get(index);
                            assert!(
                                seen == round || seen == 0,
                                "{sharing:?} {index}: {seen} in round {round}"
                            );
                        }
                        barrier.wait();
                    }
                });
            }
        });
    }
}

#[test]
fn threads_of_a_component_share_its_misses() {
    passes("many_threads");
}

fn reductions(task: &Task) {
    let (rank, count) = (u64::from(task.rank()), u64::from(task.count()));
    for round in 0..50 {
        assert_eq!(
            task.reduce(Combine::Sum, &[rank, 1, round]),
            [count * (count - 1) / 2, count, round * count]
        );
        assert_eq!(task.reduce(Combine::Greatest, &[rank + round]), [count - 1 + round]);
        assert_eq!(task.reduce(Combine::Least, &[rank + round]), [round]);
        assert_eq!(task.reduce(Combine::First, &[rank + 7]), [7]);
        let sum = task.sum(0.1 * rank as f64);
        assert!((sum - 0.1 * (count * (count - 1) / 2) as f64).abs() < 1e-9, "{sum}");
    }
}

#[test]
fn what_all_bring_is_combined() {
    passes("reductions");
}

/// Component after component waits for its turn.
fn conditions(task: &Task) {
    let turn = Array::<u64>::together(task, 1, &Terms::default()).expect("allocated");
    let lock = Lock::new(task, 5);
    for round in 0..20 {
        let mut held = lock.write();
        while turn.get(0) != round * u64::from(task.count()) + u64::from(task.rank()) {
            held = held.wait(9);
        }
        turn.set(0, turn.get(0) + 1);
        held.notify_all(9);
    }
    task.barrier();
    assert_eq!(turn.get(0), 20 * u64::from(task.count()));
    task.barrier();
    // Readers are beside each other, and nobody writes meanwhile.
    for _ in 0..50 {
        let held = lock.read();
        let before = turn.get(0);
        std::thread::yield_now();
        assert_eq!(turn.get(0), before);
        drop(held);
        if let Some(held) = lock.try_write() {
            turn.set(0, turn.get(0) + 1);
            drop(held);
        }
    }
    task.barrier();
}

#[test]
fn conditions_wake_who_waits_for_them() {
    passes("conditions");
}

/// Addresses come back, and are zero again.
#[expect(unsafe_code, reason = "plain loads and stores, as programs make them")]
fn freed(task: &Task) {
    for round in 0..20_u8 {
        let memory = task.allocate_together(100_000, &Terms::default()).expect("allocated");
        task.barrier();
        let place = memory.wrapping_add(5000 * task.rank() as usize);
        // SAFETY: within the allocation.
        unsafe {
            assert_eq!(place.read_volatile(), 0, "round {round}");
            place.write_volatile(round + 1);
        }
        task.barrier();
        if task.rank() == 0 {
            task.free(memory).expect("ours");
        } else {
            assert!(task.free(memory).is_err());
        }
        task.barrier();
    }
}

#[test]
fn what_is_freed_is_given_out_anew() {
    passes("freed");
}

/// One dies while the others wait for it, at a barrier, for a lock and for a block.
fn killed(task: &Task) {
    let numbers = Array::<u64>::together(task, 1, &Terms { placement: Placement::At(1), ..Terms::default() })
        .expect("allocated");
    let lock = Lock::new(task, 3);
    if task.rank() == 1 {
        let _held = lock.write();
        task.barrier();
        std::process::abort();
    }
    task.barrier();
    match task.rank() {
        0 => drop(lock.write()),
        2 => loop {
            numbers.set(0, 1);
        },
        _ => task.barrier(),
    }
}

#[test]
fn a_component_that_dies_takes_its_task_with_it() {
    for share in [Share::Auto, Share::Copy] {
        let outcome = components::prepare("killed", 4, share).start().expect("started").wait();
        let failed = outcome.failed.as_ref().expect("one has died");
        assert_eq!(
            (failed.rank, &failed.how),
            (1, &How::Killed(6)),
            "{share:?}: {}",
            components::said(&outcome)
        );
    }
}

/// What cannot be allocated is refused with the reason, by all, and nothing is left of it.
fn refused(task: &Task) {
    let words = |bytes, terms: &Terms| task.allocate_together(bytes, terms).expect_err("refused").to_string();
    let (rank, usual) = (task.rank(), Terms::default());
    let why = |rank_0: &str| if rank == 0 { rank_0.to_owned() } else { "it has got nothing".to_owned() };
    assert!(words(1 << 50, &usual).contains(&why("memory and swap space")));
    assert!(words(0, &usual).contains(&why("a byte at least")));
    assert!(words(1, &Terms { block_bytes: 100, ..usual }).contains(&why("power of two")));
    assert!(words(1 << 44, &Terms { sparse: true, ..usual }).contains(&why("in a row")));
    // Reserved, and hardly used.
    let sparse = task.allocate_together(1 << 38, &Terms { sparse: true, ..usual }).expect("a reservation");
    task.barrier();
    if rank == 0 {
        task.free(sparse).expect("ours");
    }
    let numbers = Array::<u64>::together(task, 10, &usual).expect("allocated");
    assert_eq!(numbers.get(9), 0);
    task.barrier();
}

#[test]
fn what_cannot_be_had_is_refused() {
    passes("refused");
}

/// Each component may have a megabyte allocated. What is reserved and hardly used does not count.
fn budget(task: &Task) {
    let usual = Terms::default();
    let first = task.allocate(600 << 10, &usual).expect("within the budget");
    let refused = task.allocate(600 << 10, &usual).expect_err("beyond it").to_string();
    assert!(refused.contains("1048576"), "{refused}");
    let second = task.allocate(400 << 10, &usual).expect("within the budget");
    let sparse = task.allocate(1 << 30, &Terms { sparse: true, ..usual }).expect("a reservation");
    task.free(first).expect("ours");
    let third = task.allocate(600 << 10, &usual).expect("there is room again");
    [second, sparse, third].into_iter().for_each(|memory| task.free(memory).expect("ours"));
    task.barrier();
}

#[test]
fn nobody_allocates_beyond_its_budget() {
    for share in [Share::Auto, Share::Copy] {
        components::succeeds(&components::prepare("budget", 2, share).memory_bytes(1 << 20), "budget");
    }
}

/// Who has asked for something that lives with another component depends on it, be it that it asked before it needed it; nobody else does.
fn depends(task: &Task) {
    let at = |rank| Terms { placement: Placement::At(rank), ..Terms::default() };
    let arrays = [0, 1, 2].map(|rank| Array::<u64>::together(task, 1, &at(rank)).expect("allocated"));
    if task.imports() {
        let others: Vec<u32> = (0..task.count()).filter(|&rank| rank != task.rank()).collect();
        assert_eq!(task.dependencies(), others);
        return;
    }
    assert!(task.dependencies().is_empty());
    task.barrier();
    let expected: &[u32] = match task.rank() {
        0 => {
            arrays[0].set(0, 1);
            arrays[1].get(0);
            &[1]
        }
        1 => {
            arrays[2].set(0, 1);
            arrays[0].prefetch(0..1, false);
            &[0, 2]
        }
        _ => &[],
    };
    task.barrier();
    assert_eq!(task.dependencies(), expected);
}

#[test]
fn a_component_depends_on_those_whose_memory_it_has_asked_for() {
    components::pass("depends", 3, Share::Auto);
    components::pass("depends", 3, Share::Copy);
}

/// Each process has a page table of its own, and the first store of each to each page is a fault, though another has filled it.
fn present(task: &Task) {
    // Too few for large frames.
    const PAGES: usize = 2048;
    const WORDS: usize = comb_memory::PAGE_BYTES / 8;
    let faults = || {
        let stat = std::fs::read_to_string("/proc/self/stat").expect("of this process");
        let behind_its_name = stat.rsplit_once(')').expect("a name in brackets").1;
        behind_its_name.split_whitespace().nth(7).expect("minor faults").parse::<usize>().expect("a number")
    };
    let numbers = Array::<u64>::together(task, PAGES * WORDS, &Terms::default()).expect("allocated");
    let untouched = Array::<u64>::together(task, PAGES * WORDS, &Terms::default()).expect("allocated");
    if task.rank() == 0 {
        (0..PAGES).for_each(|page| numbers.set(page * WORDS, 1));
    }
    task.barrier();
    if task.rank() == 1 {
        task.map_present();
        let before = faults();
        (0..PAGES).for_each(|page| numbers.set(page * WORDS + 1, 2));
        let mapped = faults() - before;
        (0..PAGES).for_each(|page| untouched.set(page * WORDS, 1));
        let found = faults() - before - mapped;
        assert!(mapped < PAGES / 16, "{mapped} faults at {PAGES} pages that were there");
        assert!(found >= PAGES, "{found} faults at {PAGES} pages that were not: what was measured?");
    }
    task.barrier();
    assert!((0..PAGES).all(|page| (numbers.get(page * WORDS), numbers.get(page * WORDS + 1)) == (1, 2)));
}

#[test]
fn what_another_has_filled_is_mapped_before_it_is_used() {
    components::pass("present", 2, Share::Auto);
}
