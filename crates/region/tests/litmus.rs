//! Litmus tests on real memory: small programs, of a thread a component, and what each protocol forbids their loads to find. Here by chance, on
//! every way that stops threads; `comb-coherence` tries all orders of the same programs, with the protocols alone.

mod components;
mod hosts;
#[path = "../../coherence/src/litmus/programs.rs"]
#[expect(dead_code, reason = "the protocols' own tests need more of it")]
mod programs;

use std::sync::atomic::{AtomicU64, Ordering};

use comb_memory::software::with_right;
use comb_region::task::Share;
use comb_region::{Combine, EXTENT_BYTES, Guard, Placement, Sharing, Task, Terms};
use comb_types::Dice;
use components::Case;
use programs::{FORBIDDEN, FORBIDDEN_UNDER_RELEASE, Op, Outcomes, Programs, X};

const CASES: &[Case] = &[("copies", copies), ("checked", checked), ("page_frames", page_frames)];

/// As many as the largest program has threads.
const COMPONENTS: u32 = 4;
/// How often each program runs.
const ROUNDS: usize = 100;
/// The most that a program loads in one component.
const LOADS: usize = 2;

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

#[test]
fn nobody_finds_what_a_protocol_forbids() {
    components::pass("copies", COMPONENTS, Share::Copy);
    components::pass_by_protections("copies", COMPONENTS);
}

#[test]
fn neither_do_those_whose_own_code_checks_loads_and_stores() {
    components::pass("checked", COMPONENTS, Share::Copy);
    components::pass_by_protections("checked", COMPONENTS);
    passes_on("checked", &[2, 2]);
}

#[test]
fn neither_do_neighbours_who_share_page_frames_on_each_of_two_hosts() {
    passes_on("copies", &[2, 2]);
    passes_on("copies", &[1, 3]);
}

#[test]
fn nobody_finds_in_shared_page_frames_what_the_processor_forbids() {
    components::pass("page_frames", COMPONENTS, Share::Auto);
}

fn copies(task: &Task) {
    for (guard, block_bytes) in [(Guard::Page, 4096), (Guard::Mmu, 128)] {
        let terms = |sharing| Terms {
            guard,
            block_bytes,
            sharing,
            placement: Placement::RoundRobin,
            ..Terms::default()
        };
        for sharing in [Sharing::Stache, Sharing::Migratory] {
            run_all(task, &terms(sharing), &FORBIDDEN);
        }
        for sharing in [Sharing::Release, Sharing::Update] {
            run_all(task, &terms(sharing), &FORBIDDEN_UNDER_RELEASE);
        }
    }
}

fn checked(task: &Task) {
    for (guard, block_bytes) in [(Guard::Check, 128), (Guard::Check, 4096), (Guard::Hybrid, 4096)] {
        for sharing in [Sharing::Stache, Sharing::Migratory] {
            let terms =
                Terms { guard, block_bytes, sharing, placement: Placement::RoundRobin, ..Terms::default() };
            run_all(task, &terms, &FORBIDDEN);
        }
    }
}

/// Of these programs x86 permits only that a load overtakes a store, which the first of them shows.
fn page_frames(task: &Task) {
    for (guard, block_bytes) in [(Guard::Page, 4096), (Guard::Check, 128), (Guard::Hybrid, 4096)] {
        run_all(task, &Terms { guard, block_bytes, ..Terms::default() }, &FORBIDDEN[1..]);
    }
}

fn run_all(task: &Task, terms: &Terms, forbidden: &[(Programs, Outcomes)]) {
    let places = Places::new(task, terms, ROUNDS * forbidden.len());
    let mut dice = Dice::new(0x117_7053);
    let mut words = 0..;
    for &(programs, forbidden) in forbidden {
        for word in words.by_ref().take(ROUNDS) {
            let pair = places.pair(word);
            // The same for all, and as often as not: what is found can be old.
            if dice.below(2) == 0 {
                pair.iter().for_each(|place| assert_eq!(load(place), 0, "fresh"));
            }
            let late = dice.below(COMPONENTS);
            task.barrier();
            let own = task.rank() as usize;
            let pause = if late == task.rank() { dice.below(3000) } else { 0 };
            (0..pause).for_each(|_| std::hint::spin_loop());
            let mut found =
                programs.get(own).map_or(Vec::new(), |program| run(task, program, &pair)).into_iter();
            let mut all = vec![0; programs.len() * LOADS];
            all.iter_mut().skip(own * LOADS).zip(found.by_ref()).for_each(|(into, value)| *into = value);
            let all = task.reduce(Combine::Greatest, &all);
            let outcome: Vec<u64> = (programs.iter().zip(all.chunks(LOADS)))
                .flat_map(|(program, found)| found[..loads(program)].to_vec())
                .collect();
            for &never in forbidden {
                assert!(
                    !outcome.iter().copied().eq(never.iter().copied().map(u64::from)),
                    "{terms:?}, {programs:?}: {outcome:?}"
                );
            }
        }
    }
}

fn loads(program: &[Op]) -> usize {
    program.iter().filter(|op| matches!(op, Op::Load(_))).count()
}

/// Does what a program says, and returns what it has found. One byte of each word is stored to, once: no store is half there.
fn run(task: &Task, program: &[Op], pair: &[&AtomicU64; 2]) -> Vec<u64> {
    let place = |block: u64| pair[usize::from(block != X)];
    let mut found = Vec::with_capacity(LOADS);
    for op in program {
        match *op {
            Op::Store(block) => store(place(block), u64::from(task.rank()) + 1),
            Op::Load(block) => found.push(load(place(block))),
            Op::Sync => task.publish(),
        }
    }
    found
}

/// By itself where the MMU stops those who have no right.
fn load(place: &AtomicU64) -> u64 {
    let load = || place.load(Ordering::Relaxed);
    with_right(place.as_ptr().cast(), 8, false, load).expect("it is allocated")
}

fn store(place: &AtomicU64, value: u64) {
    let store = || place.store(value, Ordering::Relaxed);
    with_right(place.as_ptr().cast(), 8, true, store).expect("it is allocated");
}

/// Where the two words of each run are: in blocks of one extent, in the same page frame if they are small, or of two that live apart.
struct Places<'a> {
    task: &'a Task,
    terms: Terms,
    memory: *mut u8,
    pairs: usize,
}

impl<'a> Places<'a> {
    fn new(task: &'a Task, terms: &Terms, runs: usize) -> Self {
        let memory = task.allocate_together(u64::from(COMPONENTS) * EXTENT_BYTES, terms).expect("allocated");
        let words = terms.block_bytes as usize / 8;
        Self { task, terms: *terms, memory, pairs: runs.div_ceil(words).max(2 * COMPONENTS as usize) }
    }

    /// Words that no other run has.
    fn pair(&self, run: usize) -> [&'a AtomicU64; 2] {
        let (pair, word) = (run % self.pairs, run / self.pairs);
        let extent_blocks = usize::try_from(EXTENT_BYTES).expect("small") / self.terms.block_bytes as usize;
        let extents = COMPONENTS as usize;
        // In each extent, so many blocks for a pair that has its first there or its second.
        let (extent, behind) = (pair % extents, pair / extents * 4);
        let (others, other) =
            if (pair / extents).is_multiple_of(2) { (extent, 1) } else { ((extent + 1) % extents, 2) };
        assert!(behind + 4 <= extent_blocks, "room for all pairs");
        [
            self.word(extent * extent_blocks + behind, word),
            self.word(others * extent_blocks + behind + other, word),
        ]
    }

    #[expect(unsafe_code, reason = "atomics in shared memory")]
    fn word(&self, block: usize, word: usize) -> &'a AtomicU64 {
        let object = self.task.object(self.memory, block).expect("so many blocks");
        assert!((word + 1) * 8 <= self.terms.block_bytes as usize, "within the block");
        // SAFETY: a word of a block of an allocation that is never freed, aligned, and accessed by atomic instructions alone.
        unsafe { AtomicU64::from_ptr(object.cast::<u64>().add(word)) }
    }
}
