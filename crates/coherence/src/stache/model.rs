//! A few cells with a protocol each, a thread each that loads and stores, and every order in which messages, faults, evictions and a
//! death may come.
//!
//! A store gives a block a number that it never had. What a load must find is the business of each protocol's property.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use std::vec;
use std::vec::Vec;

use comb_types::CellId;
use stateright::{Model, Property};

use super::{Kind, Stache};
use crate::block::Block;
use crate::exhaustive::look_at_all;
use crate::machine::{Do, Machine, TELLS, at};
use crate::scene::{Network, bury, post, walk};
use crate::tempest::{Loss, Protocol, Tempest};

/// More than there are cells.
const WRITERS: u32 = 1000;
/// A check that takes longer than this has bounds that are too wide.
const LIMIT: Duration = Duration::from_secs(60);

/// Who there is, and what may happen.
#[derive(Clone, Debug)]
pub(super) struct Bounds {
    pub(super) protocol: Stache,
    pub(super) cells: u32,
    /// Block `n` is born in cell `n`, round and round these first cells.
    pub(super) homes: u32,
    pub(super) blocks: u64,
    /// Loads and stores, by all cells together.
    pub(super) accesses: u32,
    pub(super) evictions: u32,
    /// How often a home is given away, by all cells together.
    pub(super) moves: u32,
    /// How often a cell is told that it will want to read.
    pub(super) pushes: u32,
    /// A cell that dies at any time.
    pub(super) mortal: Option<u32>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct State {
    /// None is dead.
    pub(super) cells: Vec<Option<(Stache, Machine)>>,
    network: Network,
    /// What was stored last.
    pub(super) stored: Vec<u32>,
    next: u32,
    accesses: u32,
    evictions: u32,
    moves: u32,
    pushes: u32,
    /// Of each block, whether the mortal cell had nothing of it that nobody else has, when it died.
    spared: Vec<bool>,
    /// Of each block, whether it was to move to the mortal cell, and may still be on its way there.
    goes_there: Vec<bool>,
    /// Who has not heard yet that the mortal cell is dead.
    to_hear: Vec<u32>,
    pub(super) mistake: Option<&'static str>,
    pub(super) has: Seen,
}

/// What is to happen in some run, lest the model be a toy.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Seen {
    /// A cell has loaded what another had stored.
    pub(super) passed_on: bool,
    /// A cell was without a right when its thread tried again.
    faulted_again: bool,
    lost_with_holder: bool,
    lost_with_home: bool,
    /// A block lives where it was not born.
    moved: bool,
    /// … and there it is at home for the second time, or later.
    pub(super) moved_again: bool,
    /// A cell asked where the home had been.
    sent_on: bool,
    /// A block that was born with the dead has another home.
    pub(super) outlived: bool,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Action {
    Access(u32, Block, Do),
    TryAgain(u32),
    Deliver(u32, u32),
    Evict(u32, Block),
    Move(u32, Block, u32),
    Push(u32, Block, u32),
    Die,
    Hear(u32),
}

impl Bounds {
    fn blocks(&self) -> impl Iterator<Item = Block> + use<> {
        (0..self.blocks).map(Block)
    }

    /// Lets a cell do something, and puts what it says on its way.
    fn act(state: &mut State, cell: u32, act: impl FnOnce(&mut Stache, &mut Machine)) {
        let lives: Vec<bool> = state.cells.iter().map(Option::is_some).collect();
        let Some((protocol, machine)) = &mut state.cells[cell as usize] else { return };
        act(protocol, machine);
        post(&mut state.network, cell, machine, |to| lives[to as usize]);
    }

    /// A thread loads or stores, or faults.
    fn access(state: &mut State, cell: u32, block: Block, does: Do) {
        let (next, stored) = (state.next, state.stored[at(block)]);
        let Some((_, machine)) = &mut state.cells[cell as usize] else { return };
        machine.wakes();
        if machine.lost[at(block)].is_some() {
            return;
        }
        let access = machine.access(block);
        match does {
            Do::Load if access.may_load() => {
                let found = machine.found(block);
                if found != stored {
                    state.mistake = Some("a load found what was stored before");
                }
                state.has.passed_on |= found != 0 && found % WRITERS != cell;
            }
            Do::Store if access.may_store() => {
                // Whose store it was can be told from the number.
                let number = next * WRITERS + cell;
                machine.content[at(block)] = number.to_le_bytes();
                state.stored[at(block)] = number;
                state.next += 1;
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
}

impl Bounds {
    /// Where blocks live now.
    fn see_moves(&self, state: &mut State) {
        let is_settled = state.to_hear.is_empty()
            && self.mortal.is_some_and(|mortal| state.cells[mortal as usize].is_none());
        for block in self.blocks() {
            let living = || state.cells.iter().flatten().map(|(_, machine)| machine);
            let homes = || {
                living().filter(|machine| {
                    machine.home_of(block) == machine.me && machine.lost[at(block)].is_none()
                })
            };
            let moved = homes().filter(|machine| machine.born_in(block) != machine.me);
            let is_born_dead = living().all(|machine| machine.born_in(block) != machine.me);
            let is_there = homes().any(|machine| Some(machine.me.0) == self.mortal);
            let (has, moves) = (&mut state.has, homes().map(|machine| machine.home(block).moves).max());
            has.moved |= moved.count() > 0;
            has.moved_again |= moves.is_some_and(|moves| moves > 1);
            has.outlived |= is_settled && is_born_dead && moves.is_some();
            state.goes_there[at(block)] &= !is_there;
        }
    }
}

impl Model for Bounds {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let count = at(Block(self.blocks));
        let machine = |me| {
            let mut machine = Machine::new(CellId(me), self.homes, self.blocks);
            machine.homes_move = self.moves > 0;
            machine
        };
        let cell = |me| Some((self.protocol.clone(), machine(me)));
        vec![State {
            cells: (0..self.cells).map(cell).collect(),
            network: BTreeMap::new(),
            stored: vec![0; count],
            next: 1,
            accesses: 0,
            evictions: 0,
            moves: 0,
            pushes: 0,
            spared: vec![false; count],
            goes_there: vec![false; count],
            to_hear: Vec::new(),
            mistake: None,
            has: Seen::default(),
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (&(from, to), letters) in &state.network {
            if !letters.is_empty() {
                actions.push(Action::Deliver(from, to));
            }
        }
        actions.extend(state.to_hear.iter().map(|&cell| Action::Hear(cell)));
        for (number, cell) in (0..).zip(&state.cells) {
            let Some((_, machine)) = cell else { continue };
            if machine.is_resumed {
                actions.push(Action::TryAgain(number));
            }
            if machine.waiting.is_none() && state.accesses < self.accesses {
                for block in self.blocks() {
                    actions.extend([Do::Load, Do::Store].map(|does| Action::Access(number, block, does)));
                }
            }
            if state.evictions < self.evictions {
                let held = self.blocks().filter(|&block| machine.access(block).may_load());
                let held = held.filter(|&block| machine.home_of(block) != machine.me);
                actions.extend(held.map(|block| Action::Evict(number, block)));
            }
            let others = || (0..self.cells).filter(move |&other| other != number);
            if state.moves < self.moves {
                let ours = self.blocks().filter(|&block| machine.home_of(block) == machine.me);
                actions
                    .extend(ours.flat_map(|block| others().map(move |to| Action::Move(number, block, to))));
            }
            if state.pushes < self.pushes {
                let held = self.blocks().filter(|&block| machine.access(block).may_load());
                actions
                    .extend(held.flat_map(|block| others().map(move |to| Action::Push(number, block, to))));
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
            Action::Access(cell, block, does) => {
                state.accesses += 1;
                Self::access(&mut state, cell, block, does);
            }
            Action::TryAgain(cell) => {
                let (block, does) = last.cells[cell as usize].as_ref()?.1.waiting?;
                Self::access(&mut state, cell, block, does);
                let (_, machine) = state.cells[cell as usize].as_ref()?;
                state.has.faulted_again |= machine.waiting.is_some();
            }
            Action::Deliver(from, to) => {
                let letter = state.network.get_mut(&(from, to))?.pop_front()?;
                let mut outcome = Ok(());
                state.has.sent_on |= letter.kind == Kind::Moved as u8;
                Self::act(&mut state, to, |protocol, machine| {
                    if letter.kind == TELLS {
                        machine.is_told(CellId(from), &letter.content);
                        bury(protocol, machine);
                    } else {
                        outcome = protocol.on_message(machine, CellId(from), letter.message());
                    }
                });
                if outcome.is_err() {
                    state.mistake = Some("an honest cell is accused");
                }
            }
            Action::Evict(cell, block) => {
                state.evictions += 1;
                Self::act(&mut state, cell, |protocol, machine| protocol.on_evict(machine, block));
                if state.cells == last.cells && state.network == last.network {
                    return None;
                }
            }
            Action::Move(cell, block, to) => {
                state.moves += 1;
                let mut is_on_its_way = false;
                Self::act(&mut state, cell, |protocol, machine| {
                    is_on_its_way = protocol.on_move(machine, block, CellId(to));
                });
                if !is_on_its_way {
                    return None;
                }
                state.goes_there[at(block)] |= self.mortal == Some(to);
            }
            Action::Push(cell, block, to) => {
                state.pushes += 1;
                Self::act(&mut state, cell, |protocol, machine| protocol.on_push(machine, block, CellId(to)));
                if state.network == last.network {
                    return None;
                }
            }
            Action::Die => {
                let mortal = self.mortal?;
                let (protocol, machine) = state.cells[mortal as usize].take()?;
                let carried = |block: Block| {
                    let mut letters =
                        last.network.iter().filter(|((from, to), _)| mortal == *from || mortal == *to);
                    letters.any(|(_, letters)| {
                        letters.iter().any(|letter| letter.block == block && !letter.content.is_empty())
                    })
                };
                let waits = |block| protocol.wanted.contains_key(&block);
                let is_spared = |block| {
                    let is_its = machine.home_of(block).0 == mortal || machine.access(block).may_store();
                    // What it asked for, it may be given while nobody knows that it is dead.
                    !is_its && !waits(block) && !carried(block)
                };
                state.spared = self.blocks().map(is_spared).collect();
                state.network.retain(|(_, to), _| *to != mortal);
                state.to_hear = (0..self.cells).filter(|&cell| cell != mortal).collect();
            }
            Action::Hear(cell) => {
                let mortal = self.mortal?;
                state.to_hear.retain(|&other| other != cell);
                let lives = (0..self.cells).filter(|&other| other != mortal).map(CellId).collect();
                // Nothing comes from the dead any more.
                state.network.remove(&(mortal, cell));
                Self::act(&mut state, cell, |protocol, machine| {
                    machine.hears_of(CellId(mortal), lives);
                    bury(protocol, machine);
                });
            }
        }
        for (_, machine) in state.cells.iter().flatten() {
            let losses = machine.lost.iter().flatten();
            losses.for_each(|loss| match loss {
                Loss::Holder(_) => state.has.lost_with_holder = true,
                Loss::Home(_) => state.has.lost_with_home = true,
                Loss::Nowhere => {}
            });
        }
        self.see_moves(&mut state);
        let is_alive = self.mortal.is_none_or(|mortal| state.cells[mortal as usize].is_some());
        let is_lost =
            |block| state.cells.iter().flatten().any(|(_, machine)| machine.lost[at(block)].is_some());
        if self.blocks().any(|block| {
            (is_alive || state.spared[at(block)] && !state.goes_there[at(block)]) && is_lost(block)
        }) {
            state.mistake = Some("a block is lost that no dead cell had alone");
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always("nothing is said or found that cannot be", |_, state: &State| {
                state.mistake.is_none()
            }),
            Property::always("one may store, or some may load", |model: &Self, state: &State| {
                model.blocks().all(|block| {
                    let living = || state.cells.iter().flatten().map(|(_, machine)| machine);
                    let may_load = living().filter(|machine| machine.access(block).may_load()).count();
                    let may_store = living().any(|machine| machine.access(block).may_store());
                    !may_store || may_load == 1
                })
            }),
            Property::always("whoever may load finds what was stored last", |model: &Self, state: &State| {
                let living = state.cells.iter().flatten();
                living.map(|(_, machine)| machine).all(|machine| {
                    let readable = model.blocks().filter(|&block| machine.access(block).may_load());
                    readable.into_iter().all(|block| machine.found(block) == state.stored[at(block)])
                })
            }),
            Property::always("nobody waits for ever", |_, state: &State| {
                let is_over = state.network.values().all(VecDeque::is_empty) && state.to_hear.is_empty();
                !is_over || !state.cells.iter().flatten().any(|(_, machine)| machine.is_stuck())
            }),
            Property::always("nothing is left over", |_, state: &State| {
                let is_over = state.network.values().all(VecDeque::is_empty) && state.to_hear.is_empty();
                let has_ended =
                    |protocol: &Stache| protocol.wanted.is_empty() && protocol.transactions.is_empty();
                !is_over || state.cells.iter().flatten().all(|(protocol, _)| has_ended(protocol))
            }),
            Property::sometimes("what one stored, another loads", |_, state: &State| state.has.passed_on),
            Property::sometimes("a right is gone before it was used", |_, state: &State| {
                state.has.faulted_again
            }),
        ];
        if self.mortal.is_some() {
            properties.push(Property::sometimes("what only the dead had is lost", |_, state: &State| {
                state.has.lost_with_holder
            }));
        }
        if self.moves > 0 {
            properties
                .push(Property::sometimes("a block lives where it was not born", |_, state: &State| {
                    state.has.moved
                }));
            properties.push(Property::sometimes("who asks a former home is sent on", |_, state: &State| {
                state.has.sent_on
            }));
        }
        if self.moves > 1 {
            properties
                .push(Property::sometimes("a block moves again", |_, state: &State| state.has.moved_again));
        }
        if self.moves > 0 && self.mortal.is_some_and(|mortal| mortal < self.homes) {
            properties.push(Property::sometimes(
                "what has moved outlives where it was born",
                |_, state: &State| state.has.outlived,
            ));
        }
        if self.mortal.is_some_and(|mortal| mortal < self.homes) {
            properties.push(Property::sometimes("what lived with the dead is lost", |_, state: &State| {
                state.has.lost_with_home
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
    pub(super) fn walk(&self, seed: u64, steps: u32) -> State {
        walk(self, seed, steps, |state| state.mistake)
    }
}
