//! A few cells with a protocol each, a thread each that loads and stores, and every order in which messages, faults, evictions and a
//! death may come.
//!
//! A store gives a block a number that it never had. What a load must find is the business of each protocol's property.

use core::fmt::Debug;
use core::hash::Hash;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use std::vec;
use std::vec::Vec;

use comb_types::{CellId, Dice};
use stateright::{Expectation, Model, Property};

use crate::block::{Access, Block};
use crate::exhaustive::look_at_all;
use crate::tempest::{Content, Loss, Message, PeerError, Protocol, Tempest};

/// More than there are cells.
const WRITERS: u32 = 1000;
/// A check that takes longer than this has bounds that are too wide.
const LIMIT: Duration = Duration::from_secs(60);

/// Who there is, and what may happen.
#[derive(Clone, Debug)]
pub(crate) struct Bounds<P> {
    pub(crate) protocol: P,
    pub(crate) cells: u32,
    /// Block `n` is homed in cell `n`, round and round these first cells.
    pub(crate) homes: u32,
    pub(crate) blocks: u64,
    /// Loads and stores, by all cells together.
    pub(crate) accesses: u32,
    pub(crate) evictions: u32,
    /// A cell that dies at any time.
    pub(crate) mortal: Option<u32>,
}

/// What runs a protocol here.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Machine {
    me: CellId,
    homes: u32,
    pub(crate) access: Vec<Access>,
    pub(crate) content: Vec<[u8; 4]>,
    pub(crate) lost: Vec<Option<Loss>>,
    /// What its thread waits to do.
    pub(crate) waiting: Option<(Block, Do)>,
    pub(crate) is_resumed: bool,
    pub(crate) is_synced: bool,
    sent: Vec<(CellId, Letter)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Do {
    Load,
    Store,
}

/// A message on its way.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Letter {
    kind: u8,
    block: Block,
    word: u64,
    content: Vec<u8>,
}

impl Letter {
    pub(crate) fn message(&self) -> Message<'_> {
        Message { kind: self.kind, block: self.block, word: self.word, content: &self.content }
    }
}

/// Letters from one cell to another.
pub(crate) type Network = BTreeMap<(u32, u32), VecDeque<Letter>>;

/// Puts what a cell says on its way.
pub(crate) fn post(network: &mut Network, from: u32, machine: &mut Machine, lives: impl Fn(u32) -> bool) {
    for (to, letter) in std::mem::take(&mut machine.sent) {
        if lives(to.0) {
            network.entry((from, to.0)).or_default().push_back(letter);
        }
    }
}

impl Machine {
    pub(crate) fn new(me: CellId, homes: u32, blocks: usize) -> Self {
        let mut machine = Self {
            me,
            homes,
            access: Vec::new(),
            content: vec![[0; 4]; blocks],
            lost: vec![None; blocks],
            waiting: None,
            is_resumed: false,
            is_synced: false,
            sent: Vec::new(),
        };
        let own = |block| machine.home_of(block) == me;
        let access = |block| if own(block) { Access::ReadWrite } else { Access::Invalid };
        machine.access = (0..blocks as u64).map(Block).map(access).collect();
        machine
    }

    fn found(&self, block: Block) -> u32 {
        u32::from_le_bytes(self.content[at(block)])
    }

    /// Of what it said last.
    pub(crate) fn last_word(&self) -> Option<u64> {
        self.sent.last().map(|(_, letter)| letter.word)
    }

    /// To whom it said what since it was last asked.
    pub(crate) fn take_sent(&mut self) -> Vec<(CellId, u8)> {
        std::mem::take(&mut self.sent).into_iter().map(|(to, letter)| (to, letter.kind)).collect()
    }
}

impl Tempest for Machine {
    fn me(&self) -> CellId {
        self.me
    }

    fn home_of(&self, block: Block) -> CellId {
        CellId(u32::try_from(block.0).unwrap() % self.homes)
    }

    fn blocks(&self) -> u64 {
        self.content.len() as u64
    }

    fn block_bytes(&self) -> usize {
        4
    }

    fn access(&self, block: Block) -> Access {
        self.access[at(block)]
    }

    fn set_access(&mut self, block: Block, access: Access) {
        self.access[at(block)] = access;
    }

    fn fill(&mut self, block: Block, content: &[u8]) {
        assert_eq!(self.access(block), Access::Invalid, "somebody may load or store {block} meanwhile");
        self.content[at(block)] = content.try_into().unwrap();
    }

    fn send(&mut self, to: CellId, kind: u8, block: Block, word: u64, content: Content<'_>) {
        assert_ne!(to, self.me);
        let content = match content {
            Content::None => Vec::new(),
            Content::Block => self.content[at(block)].to_vec(),
            Content::Bytes(bytes) => bytes.to_vec(),
        };
        self.sent.push((to, Letter { kind, block, word, content }));
    }

    fn resume(&mut self, block: Block) {
        self.is_resumed |= self.waiting.is_some_and(|(waits, _)| waits == block);
    }

    fn copy_out(&self, block: Block, into: &mut [u8]) {
        into.copy_from_slice(&self.content[at(block)]);
    }

    fn patch(&mut self, block: Block, offset: usize, bytes: &[u8]) {
        self.content[at(block)][offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    fn synced(&mut self) {
        self.is_synced = true;
    }

    fn lose(&mut self, block: Block, loss: Loss) {
        self.lost[at(block)] = Some(loss);
        self.access[at(block)] = Access::Invalid;
        if self.waiting.is_some_and(|(waits, _)| waits == block) {
            self.waiting = None;
        }
    }
}

pub(crate) fn at(block: Block) -> usize {
    usize::try_from(block.0).unwrap()
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct State<P> {
    /// None is dead.
    pub(crate) cells: Vec<Option<(P, Machine)>>,
    network: Network,
    /// What was stored last.
    pub(crate) stored: Vec<u32>,
    next: u32,
    accesses: u32,
    evictions: u32,
    /// Of each block, whether the mortal cell had nothing of it that nobody else has, when it died.
    spared: Vec<bool>,
    /// Who has not heard yet that the mortal cell is dead.
    to_hear: Vec<u32>,
    pub(crate) mistake: Option<&'static str>,
    pub(crate) has: Seen,
}

/// What is to happen in some run, lest the model be a toy.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Seen {
    /// A cell has loaded what another had stored.
    pub(crate) passed_on: bool,
    /// A cell was without a right when its thread tried again.
    faulted_again: bool,
    lost_with_holder: bool,
    lost_with_home: bool,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Action {
    Access(u32, Block, Do),
    TryAgain(u32),
    Deliver(u32, u32),
    Evict(u32, Block),
    Die,
    Hear(u32),
}

impl<P: Protocol + Clone> Bounds<P> {
    fn blocks(&self) -> impl Iterator<Item = Block> + use<P> {
        (0..self.blocks).map(Block)
    }

    /// Lets a cell do something, and puts what it says on its way.
    fn act(state: &mut State<P>, cell: u32, act: impl FnOnce(&mut P, &mut Machine)) {
        let lives: Vec<bool> = state.cells.iter().map(Option::is_some).collect();
        let Some((protocol, machine)) = &mut state.cells[cell as usize] else { return };
        act(protocol, machine);
        post(&mut state.network, cell, machine, |to| lives[to as usize]);
    }

    /// A thread loads or stores, or faults.
    fn access(state: &mut State<P>, cell: u32, block: Block, does: Do) {
        let (next, stored) = (state.next, state.stored[at(block)]);
        let Some((_, machine)) = &mut state.cells[cell as usize] else { return };
        machine.is_resumed = false;
        machine.waiting = None;
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
                machine.waiting = Some((block, does));
                Self::act(state, cell, |protocol, machine| match does {
                    Do::Load => protocol.on_read_fault(machine, block),
                    Do::Store => protocol.on_write_fault(machine, block),
                });
            }
        }
    }
}

impl<P: Protocol + Clone + Debug + Eq + Hash + Send + Sync + 'static> Model for Bounds<P> {
    type State = State<P>;
    type Action = Action;

    fn init_states(&self) -> Vec<State<P>> {
        let count = at(Block(self.blocks));
        let cell = |me| Some((self.protocol.clone(), Machine::new(CellId(me), self.homes, count)));
        vec![State {
            cells: (0..self.cells).map(cell).collect(),
            network: BTreeMap::new(),
            stored: vec![0; count],
            next: 1,
            accesses: 0,
            evictions: 0,
            spared: vec![false; count],
            to_hear: Vec::new(),
            mistake: None,
            has: Seen::default(),
        }]
    }

    fn actions(&self, state: &State<P>, actions: &mut Vec<Action>) {
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
        }
        if self.mortal.is_some_and(|mortal| state.cells[mortal as usize].is_some()) {
            actions.push(Action::Die);
        }
    }

    fn next_state(&self, last: &State<P>, action: Action) -> Option<State<P>> {
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
                if state.cells == last.cells && state.network == last.network {
                    return None;
                }
            }
            Action::Die => {
                let mortal = self.mortal?;
                let (_, machine) = state.cells[mortal as usize].take()?;
                let carried = |block: Block| {
                    let mut letters =
                        last.network.iter().filter(|((from, to), _)| mortal == *from || mortal == *to);
                    letters.any(|(_, letters)| {
                        letters.iter().any(|letter| letter.block == block && !letter.content.is_empty())
                    })
                };
                let waits = |block| machine.waiting.is_some_and(|(waits, _)| waits == block);
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
                // Nothing comes from the dead any more.
                state.network.remove(&(mortal, cell));
                Self::act(&mut state, cell, |protocol, machine| {
                    // The driver's part: what was homed there is gone, and every later access is told.
                    for block in self.blocks() {
                        if machine.home_of(block) == CellId(mortal) {
                            machine.lose(block, Loss::Home(CellId(mortal)));
                        }
                    }
                    protocol.on_peer_death(machine, CellId(mortal));
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
        let is_alive = self.mortal.is_none_or(|mortal| state.cells[mortal as usize].is_some());
        let is_lost =
            |block| state.cells.iter().flatten().any(|(_, machine)| machine.lost[at(block)].is_some());
        if self.blocks().any(|block| (is_alive || state.spared[at(block)]) && is_lost(block)) {
            state.mistake = Some("a block is lost that no dead cell had alone");
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always("nothing is said or found that cannot be", |_, state: &State<P>| {
                state.mistake.is_none()
            }),
            Property::always("one may store, or some may load", |model: &Self, state: &State<P>| {
                model.blocks().all(|block| {
                    let living = || state.cells.iter().flatten().map(|(_, machine)| machine);
                    let may_load = living().filter(|machine| machine.access(block).may_load()).count();
                    let may_store = living().any(|machine| machine.access(block).may_store());
                    !may_store || may_load == 1
                })
            }),
            Property::always(
                "whoever may load finds what was stored last",
                |model: &Self, state: &State<P>| {
                    let living = state.cells.iter().flatten();
                    living.map(|(_, machine)| machine).all(|machine| {
                        let readable = model.blocks().filter(|&block| machine.access(block).may_load());
                        readable.into_iter().all(|block| machine.found(block) == state.stored[at(block)])
                    })
                },
            ),
            Property::always("nobody waits for ever", |_, state: &State<P>| {
                let is_over = state.network.values().all(VecDeque::is_empty) && state.to_hear.is_empty();
                let waits = |machine: &Machine| machine.waiting.is_some() && !machine.is_resumed;
                !is_over || !state.cells.iter().flatten().any(|(_, machine)| waits(machine))
            }),
            Property::sometimes("what one stored, another loads", |_, state: &State<P>| state.has.passed_on),
            Property::sometimes("a right is gone before it was used", |_, state: &State<P>| {
                state.has.faulted_again
            }),
        ];
        if self.mortal.is_some() {
            properties.push(Property::sometimes("what only the dead had is lost", |_, state: &State<P>| {
                state.has.lost_with_holder
            }));
        }
        if self.mortal.is_some_and(|mortal| mortal < self.homes) {
            properties
                .push(Property::sometimes("what lived with the dead is lost", |_, state: &State<P>| {
                    state.has.lost_with_home
                }));
        }
        properties
    }
}

impl<P: Protocol + Clone + Debug + Eq + Hash + Send + Sync + 'static> Bounds<P> {
    pub(crate) fn look_at_all(self) {
        look_at_all(self, LIMIT);
    }

    /// One way through what is too wide to be looked at whole.
    pub(crate) fn walk(&self, seed: u64, steps: u32) -> State<P> {
        let mut dice = Dice::new(seed);
        let mut state = self.init_states().remove(0);
        let properties = self.properties();
        let always = properties.iter().filter(|property| property.expectation == Expectation::Always);
        for _ in 0..steps {
            let mut actions = Vec::new();
            self.actions(&state, &mut actions);
            if actions.is_empty() {
                break;
            }
            let action = actions.swap_remove(dice.index(actions.len()));
            let Some(next) = self.next_state(&state, action.clone()) else { continue };
            state = next;
            for property in always.clone() {
                let holds = (property.condition)(self, &state);
                assert!(holds, "seed {seed}: {} ({:?}) after {action:?}", property.name, state.mistake);
            }
        }
        state
    }
}

/// Cell 0 alone, home of every second block; the others are homed in cell 1. What others say is made up.
#[derive(Clone)]
pub(crate) struct Scene<P> {
    pub(crate) protocol: P,
    pub(crate) machine: Machine,
}

impl<P: Protocol> Scene<P> {
    pub(crate) fn of(protocol: P) -> Self {
        Self { protocol, machine: Machine::new(CellId(0), 2, 2) }
    }

    pub(crate) fn message(
        &mut self,
        from: u32,
        kind: u8,
        block: u64,
        word: u64,
        content: &[u8],
    ) -> Result<(), PeerError> {
        let message = Message { kind, block: Block(block), word, content };
        self.protocol.on_message(&mut self.machine, CellId(from), message)
    }
}
