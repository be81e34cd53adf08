//! Cells whose threads share blocks without data races: each byte has a lock, which whoever stores there holds until its store is
//! everywhere. Then every load under the lock must find what was stored last, whatever else is stored in the block meanwhile.

use std::collections::VecDeque;
use std::time::Duration;
use std::vec;
use std::vec::Vec;

use comb_types::CellId;
use stateright::{Model, Property};

use super::Release;
use crate::block::Block;
use crate::cells::Cells;
use crate::exhaustive::look_at_all;
use crate::machine::{Do, Machine, at};
use crate::scene::{Network, bury, post, walk};
use crate::tempest::{Protocol, Tempest};

/// A check that takes longer than this has bounds that are too wide.
const LIMIT: Duration = Duration::from_secs(60);

/// Who there is, and what may happen.
#[derive(Clone, Debug)]
pub(super) struct Bounds {
    pub(super) protocol: Release,
    pub(super) cells: u32,
    /// Block `n` is homed in cell `n`, round and round these first cells.
    pub(super) homes: u32,
    pub(super) blocks: u64,
    /// Of each block that are used, each with a lock.
    pub(super) bytes: usize,
    pub(super) sections: u8,
    /// Into how many a thread stores before it synchronises.
    pub(super) stores: usize,
    pub(super) evictions: u8,
    pub(super) mortal: Option<u32>,
}

/// Which lock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Lock(Block, usize);

/// The thread of a cell.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct Thread {
    does: Does,
    /// Where it has stored since it has synchronised.
    has: Vec<Lock>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
enum Does {
    #[default]
    Rests,
    Tries(Lock, Do),
    Syncs,
}

impl Thread {
    fn locks(&self) -> impl Iterator<Item = Lock> + '_ {
        let tried = if let Does::Tries(lock, _) = self.does { Some(lock) } else { None };
        self.has.iter().copied().chain(tried)
    }
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct State {
    /// None is dead.
    cells: Vec<Option<(Release, Machine, Thread)>>,
    network: Network,
    /// What each byte may be found to hold: what was stored last, or, when who did that died over it, what was there before.
    stored: Vec<Vec<[u8; 2]>>,
    next: u8,
    sections: u8,
    evictions: u8,
    to_hear: Vec<u32>,
    mistake: Option<&'static str>,
    passed_on: bool,
    both_stored: bool,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Action {
    Begin(u32, Lock, Do),
    TryAgain(u32),
    Sync(u32),
    Deliver(u32, u32),
    Evict(u32, Block),
    Die,
    Hear(u32),
}

impl Bounds {
    fn locks(&self) -> impl Iterator<Item = Lock> + use<> {
        let bytes = self.bytes;
        (0..self.blocks).flat_map(move |block| (0..bytes).map(move |byte| Lock(Block(block), byte)))
    }

    fn act(state: &mut State, cell: u32, act: impl FnOnce(&mut Release, &mut Machine)) {
        let lives: Vec<bool> = state.cells.iter().map(Option::is_some).collect();
        let Some((protocol, machine, thread)) = &mut state.cells[cell as usize] else { return };
        act(protocol, machine);
        if machine.is_synced {
            if thread.does != Does::Syncs {
                state.mistake = Some("a thread is told that it has synchronised, and did not want to");
            }
            machine.is_synced = false;
            *thread = Thread::default();
        }
        post(&mut state.network, cell, machine, |to| lives[to as usize]);
    }

    fn access(state: &mut State, cell: u32) {
        let Some((_, machine, thread)) = &mut state.cells[cell as usize] else { return };
        let Does::Tries(Lock(block, byte), does) = thread.does else { return };
        machine.wakes();
        if machine.lost[at(block)].is_some() {
            thread.does = Does::Rests;
            return;
        }
        let (access, stored) = (machine.access(block), &mut state.stored[at(block)]);
        match does {
            Do::Load if access.may_load() => {
                let found = machine.content[at(block)][byte];
                if !stored[byte].contains(&found) {
                    state.mistake = Some("a load found what was stored before");
                }
                state.passed_on |= found != 0 && u32::from(found) % 8 != cell;
                thread.does = Does::Rests;
            }
            Do::Store if access.may_store() => {
                // Whose store it was can be told from the number.
                let number = state.next * 8 + u8::try_from(cell).unwrap();
                state.next += 1;
                machine.content[at(block)][byte] = number;
                stored[byte] = [number, stored[byte][0]];
                thread.does = Does::Rests;
                thread.has.push(Lock(block, byte));
                state.both_stored |= stored.iter().all(|[last, _]| *last != 0)
                    && stored.iter().any(|[last, _]| u32::from(*last) % 8 != cell);
            }
            _ => {
                machine.waits(block, does);
                Self::act(state, cell, |protocol, machine| match does {
                    Do::Load => protocol.on_read_fault(machine, block),
                    Do::Store => protocol.on_write_fault(machine, block),
                });
            }
        }
    }

    /// What is stored is certain again, once who stored it has synchronised.
    fn settle(state: &mut State, before: &State) {
        for (now, before) in state.cells.iter().zip(&before.cells) {
            let (Some((.., now)), Some((.., before))) = (now, before) else { continue };
            for Lock(block, byte) in before.has.iter().filter(|lock| !now.has.contains(lock)) {
                let [last, _] = state.stored[at(*block)][*byte];
                state.stored[at(*block)][*byte] = [last, last];
            }
        }
    }
}

impl Model for Bounds {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let count = at(Block(self.blocks));
        let machine = |cell| Machine::new(CellId(cell), self.homes, self.blocks);
        vec![State {
            cells: (0..self.cells)
                .map(|cell| Some((self.protocol.clone(), machine(cell), Thread::default())))
                .collect(),
            network: Network::new(),
            stored: vec![vec![[0, 0]; self.bytes]; count],
            next: 1,
            sections: 0,
            evictions: 0,
            to_hear: Vec::new(),
            mistake: None,
            passed_on: false,
            both_stored: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let waiting = state.network.iter().filter(|(_, letters)| !letters.is_empty());
        actions.extend(waiting.map(|(&(from, to), _)| Action::Deliver(from, to)));
        actions.extend(state.to_hear.iter().map(|&cell| Action::Hear(cell)));
        let held: Vec<Lock> = state.cells.iter().flatten().flat_map(|(.., thread)| thread.locks()).collect();
        for (number, cell) in (0..).zip(&state.cells) {
            let Some((_, machine, thread)) = cell else { continue };
            let may_begin = state.sections < self.sections && thread.has.len() < self.stores;
            match thread.does {
                // A dead cell's locks are free when all have heard of its death.
                Does::Rests if may_begin && state.to_hear.is_empty() => {
                    let free = self.locks().filter(|lock| !held.contains(lock));
                    actions.extend(free.flat_map(|lock| {
                        [Do::Load, Do::Store].map(|does| Action::Begin(number, lock, does))
                    }));
                }
                Does::Tries(..) if machine.is_resumed || machine.waiting.is_none() => {
                    actions.push(Action::TryAgain(number));
                }
                _ => {}
            }
            if thread.does == Does::Rests && !thread.has.is_empty() {
                actions.push(Action::Sync(number));
            }
            if state.evictions < self.evictions {
                let held = (0..self.blocks).map(Block).filter(|&block| machine.access(block).may_load());
                let held = held.filter(|&block| machine.home_of(block).0 != number);
                actions.extend(held.map(|block| Action::Evict(number, block)));
            }
        }
        if self.mortal.is_some_and(|mortal| state.cells[mortal as usize].is_some()) {
            actions.push(Action::Die);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        if last.mistake.is_some() {
            return None;
        }
        let mut state = last.clone();
        match action {
            Action::Begin(cell, lock, does) => {
                state.sections += 1;
                state.cells[cell as usize].as_mut()?.2.does = Does::Tries(lock, does);
                Self::access(&mut state, cell);
            }
            Action::TryAgain(cell) => Self::access(&mut state, cell),
            Action::Sync(cell) => {
                state.cells[cell as usize].as_mut()?.2.does = Does::Syncs;
                Self::act(&mut state, cell, |protocol, machine| protocol.on_sync(machine));
            }
            Action::Deliver(from, to) => {
                let letter = state.network.get_mut(&(from, to))?.pop_front()?;
                let mut outcome = Ok(());
                Self::act(&mut state, to, |protocol, machine| {
                    outcome = protocol.on_message(machine, CellId(from), letter.message());
                });
                if outcome.is_err() {
                    state.mistake = Some("an honest cell is accused");
                }
            }
            Action::Evict(cell, block) => {
                state.evictions += 1;
                Self::act(&mut state, cell, |protocol, machine| protocol.on_evict(machine, block));
            }
            Action::Die => {
                let mortal = self.mortal?;
                state.cells[mortal as usize] = None;
                state.network.retain(|(_, to), _| *to != mortal);
                state.to_hear = (0..self.cells).filter(|&cell| cell != mortal).collect();
            }
            Action::Hear(cell) => {
                let mortal = self.mortal?;
                state.to_hear.retain(|&other| other != cell);
                state.network.remove(&(mortal, cell));
                Self::act(&mut state, cell, |protocol, machine| {
                    machine.hears_of(CellId(mortal), Cells::NONE);
                    bury(protocol, machine);
                });
            }
        }
        Self::settle(&mut state, last);
        let lost_alive = |(_, machine, _): &(Release, Machine, Thread)| {
            (0..self.blocks).map(Block).any(|block| {
                let home_is_dead = self.mortal == Some(machine.home_of(block).0);
                machine.lost[at(block)].is_some() && !home_is_dead
            })
        };
        if state.cells.iter().flatten().any(lost_alive) {
            state.mistake = Some("a block is lost whose home lives");
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always("nothing is said or found that cannot be", |_, state: &State| {
                state.mistake.is_none()
            }),
            Property::always("nobody waits for ever", |_, state: &State| {
                let is_over = state.network.values().all(VecDeque::is_empty) && state.to_hear.is_empty();
                let waits = |(_, machine, thread): &(Release, Machine, Thread)| {
                    machine.is_stuck() || thread.does == Does::Syncs
                };
                !is_over || !state.cells.iter().flatten().any(waits)
            }),
            Property::sometimes("what one stored, another loads", |_, state: &State| state.passed_on),
        ];
        if self.bytes > 1 {
            properties.push(Property::sometimes("two have stored in one block", |_, state: &State| {
                state.both_stored
            }));
        }
        properties
    }
}

impl Bounds {
    pub(super) fn look_at_all(self) {
        look_at_all(self, LIMIT);
    }

    /// One way through what is too wide to be looked at whole.
    pub(super) fn walk(&self, seed: u64, steps: u32) {
        walk(self, seed, steps, |state| state.mistake);
    }
}
