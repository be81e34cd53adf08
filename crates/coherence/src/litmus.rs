//! Small programs, of a thread a cell, and everything that they can find under each protocol.
//!
//! Before they begin, every cell has loaded every block: what is found can be old.

use core::hash::{BuildHasher, BuildHasherDefault, Hash};
use std::collections::{BTreeSet, HashSet, VecDeque};
use std::hash::DefaultHasher;
use std::vec;
use std::vec::Vec;

use comb_types::CellId;

use crate::block::Block;
use crate::machine::{Do, Machine, at};
use crate::release::Release;
use crate::scene::{Network, post};
use crate::stache::Stache;
use crate::tempest::{Protocol, Tempest};

mod programs;
use programs::Op::{Load, Store, Sync};
use programs::{BLOCKS, FORBIDDEN, FORBIDDEN_UNDER_RELEASE, Op, Programs, STORE_BUFFERING, X, Y};

/// What the home of a block does once besides, whoever is the home then.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Meddling {
    /// Gives it to a cell.
    Moves(u64, u32),
    /// Tells a cell that it will want to read it.
    Pushes(u64, u32),
}
use Meddling::{Moves, Pushes};

#[derive(Clone, PartialEq, Eq, Hash)]
struct State<P> {
    cells: Vec<Thread<P>>,
    network: Network,
    /// What may still happen, at any time.
    meddlings: Vec<Meddling>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Thread<P> {
    protocol: P,
    machine: Machine,
    next: usize,
    found: Vec<u8>,
    is_syncing: bool,
}

impl<P: Protocol + Clone + Eq + Hash> State<P> {
    fn new(protocol: &P, cells: usize, meddlings: &[Meddling]) -> Self {
        let homes = u32::try_from(cells).unwrap().min(2);
        let machine = |cell| {
            let mut machine = Machine::new(CellId(cell), homes, BLOCKS);
            machine.homes_move = !meddlings.is_empty();
            machine
        };
        let thread = |cell| Thread {
            protocol: protocol.clone(),
            machine: machine(cell),
            next: 0,
            found: Vec::new(),
            is_syncing: false,
        };
        let threads = (0..).take(cells).map(thread).collect();
        let mut state = Self { cells: threads, network: Network::new(), meddlings: Vec::new() };
        for cell in 0..cells {
            for block in (0..BLOCKS).map(Block) {
                state.act(cell, |protocol, machine| {
                    if !machine.access(block).may_load() {
                        protocol.on_read_fault(machine, block);
                    }
                });
                while let Some(next) = state.deliveries().pop() {
                    state = next;
                }
            }
        }
        state.meddlings = meddlings.to_vec();
        state
    }

    fn act(&mut self, cell: usize, act: impl FnOnce(&mut P, &mut Machine)) {
        let Thread { protocol, machine, is_syncing, next, .. } = &mut self.cells[cell];
        act(protocol, machine);
        if machine.is_synced {
            (machine.is_synced, *is_syncing) = (false, false);
            *next += 1;
        }
        post(&mut self.network, u32::try_from(cell).unwrap(), machine, |_| true);
    }

    fn deliveries(&self) -> Vec<Self> {
        let pairs = self.network.iter().filter(|(_, letters)| !letters.is_empty());
        let deliver = |&(from, to): &(u32, u32)| {
            let mut state = self.clone();
            let letter = state.network.get_mut(&(from, to)).and_then(VecDeque::pop_front).unwrap();
            state.act(to as usize, |protocol, machine| {
                protocol.on_message(machine, CellId(from), letter.message()).expect("all are honest");
            });
            state.network.retain(|_, letters| !letters.is_empty());
            state
        };
        pairs.map(|(pair, _)| deliver(pair)).collect()
    }

    /// What a block's home may do besides.
    fn meddled(&self) -> Vec<Self> {
        let mut after = Vec::new();
        for (at, &meddling) in self.meddlings.iter().enumerate() {
            let (Moves(block, to) | Pushes(block, to)) = meddling;
            let (block, to) = (Block(block), CellId(to));
            let is_home = |thread: &Thread<P>| thread.machine.home_of(block) == thread.machine.me;
            for cell in (0..self.cells.len()).filter(|&cell| is_home(&self.cells[cell])) {
                let mut state = self.clone();
                state.meddlings.remove(at);
                state.act(cell, |protocol, machine| match meddling {
                    Pushes(..) => protocol.on_push(machine, block, to),
                    Moves(..) => {
                        protocol.on_move(machine, block, to);
                    }
                });
                after.push(state);
            }
        }
        after
    }

    /// A thread does its next step, if it can.
    fn step(&self, cell: usize, op: Op) -> Option<Self> {
        let mut state = self.clone();
        let Thread { machine, next, found, is_syncing, .. } = &mut state.cells[cell];
        let (block, does) = match op {
            Load(block) => (Block(block), Do::Load),
            Store(block) => (Block(block), Do::Store),
            Sync if *is_syncing => return None,
            Sync => {
                *is_syncing = true;
                state.act(cell, |protocol, machine| protocol.on_sync(machine));
                return Some(state);
            }
        };
        if machine.is_stuck() {
            return None;
        }
        machine.wakes();
        match does {
            Do::Load if machine.access(block).may_load() => {
                found.push(machine.content[at(block)][0]);
                *next += 1;
            }
            Do::Store if machine.access(block).may_store() => {
                machine.content[at(block)][0] = u8::try_from(cell).unwrap() + 1;
                *next += 1;
            }
            _ => {
                machine.waits(block, does);
                state.act(cell, |protocol, machine| match does {
                    Do::Load => protocol.on_read_fault(machine, block),
                    Do::Store => protocol.on_write_fault(machine, block),
                });
            }
        }
        Some(state)
    }
}

/// Everything that the loads of the programs can find, those of the first cell first.
fn outcomes<P: Protocol + Clone + Eq + Hash>(protocol: &P, programs: &[&[Op]]) -> BTreeSet<Vec<u8>> {
    outcomes_of(State::new(protocol, programs.len(), &[]), programs)
}

fn outcomes_of<P: Protocol + Clone + Eq + Hash>(first: State<P>, programs: &[&[Op]]) -> BTreeSet<Vec<u8>> {
    // Numbers stand for states: there are millions of these.
    let number = |state: &State<P>| BuildHasherDefault::<DefaultHasher>::default().hash_one(state);
    let (mut outcomes, mut seen, mut open) = (BTreeSet::new(), HashSet::from([number(&first)]), vec![first]);
    while let Some(state) = open.pop() {
        let mut next = state.deliveries();
        let mut is_over = next.is_empty();
        for (cell, program) in programs.iter().enumerate() {
            let Some(&op) = program.get(state.cells[cell].next) else { continue };
            is_over = false;
            next.extend(state.step(cell, op));
        }
        assert!(is_over || !next.is_empty(), "somebody waits for ever");
        next.extend(state.meddled());
        if is_over {
            outcomes.insert(state.cells.iter().flat_map(|thread| thread.found.iter().copied()).collect());
        }
        next.into_iter().for_each(|state| {
            if seen.insert(number(&state)) {
                open.push(state);
            }
        });
    }
    outcomes
}

#[test]
fn under_stache_and_its_migratory_form_all_find_one_order() {
    for protocol in [Stache::new(), Stache::migratory()] {
        for (programs, forbidden) in FORBIDDEN {
            let found = outcomes(&protocol, programs);
            assert!(found.len() > 2, "{programs:?}: {found:?}");
            forbidden
                .iter()
                .for_each(|outcome| assert!(!found.contains(*outcome), "{programs:?}: {outcome:?}"));
        }
    }
}

/// The same programs, whose loads find no more than they did where nothing moves.
#[test]
fn under_stache_all_find_one_order_wherever_blocks_live() {
    for protocol in [Stache::new(), Stache::migratory()] {
        for (programs, forbidden) in FORBIDDEN {
            // Among four, one that reads both, or what is stored to last, gets the block that is stored to first.
            let (of_two, of_four) = ([Moves(X, 1), Moves(X, 0), Pushes(X, 1)], [Moves(X, 3)]);
            let meddlings = if programs.len() > 2 { &of_four[..] } else { &of_two };
            let found = outcomes_of(State::new(&protocol, programs.len(), meddlings), programs);
            let fixed = outcomes(&protocol, programs);
            assert_eq!(found, fixed, "{programs:?}");
            forbidden.iter().for_each(|outcome| assert!(!found.contains(*outcome), "{programs:?}"));
        }
    }
}

#[test]
fn under_release_what_was_not_synchronised_may_be_found_late() {
    for protocol in [Release::invalidating(), Release::updating()] {
        // Their homes tell of the two stores, each in its time.
        let synchronised_late: Programs = &[&[], &[], &[Store(X), Store(Y), Sync], &[Load(Y), Load(X)]];
        for (programs, permitted) in [(STORE_BUFFERING, [0, 0]), (synchronised_late, [3, 0])] {
            let found = outcomes(&protocol, programs);
            assert!(found.contains(&permitted[..]), "{programs:?}: {found:?}");
        }
    }
}

#[test]
fn under_release_what_was_synchronised_is_found() {
    for protocol in [Release::invalidating(), Release::updating()] {
        for (programs, forbidden) in FORBIDDEN_UNDER_RELEASE {
            let found = outcomes(&protocol, programs);
            assert!(found.len() > 1, "{programs:?}: {found:?}");
            forbidden
                .iter()
                .for_each(|outcome| assert!(!found.contains(*outcome), "{programs:?}: {found:?}"));
        }
    }
}
