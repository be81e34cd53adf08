//! What models and tests do with machines: letters on their way between some, one alone among peers who are made up, a random way
//! through what can happen.

use core::fmt::Debug;
use std::collections::{BTreeMap, VecDeque};
use std::vec::Vec;

use comb_types::{CellId, Dice};
use stateright::{Expectation, Model};

use crate::block::Block;
use crate::machine::{Letter, Machine, at};
use crate::tempest::{Message, PeerError, Protocol};

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

/// What a driver does when all have told it what there is to be told about a death.
pub(crate) fn bury(protocol: &mut impl Protocol, machine: &mut Machine) {
    if let Some(dead) = machine.buries() {
        protocol.on_peer_death(machine, dead);
    }
}

/// One way through a model that is too wide to be looked at whole. `mistake` says more of a state in which a property does not hold.
pub(crate) fn walk<M: Model>(
    model: &M,
    seed: u64,
    steps: u32,
    mistake: impl Fn(&M::State) -> Option<&'static str>,
) -> M::State
where
    M::Action: Clone + Debug,
{
    let mut dice = Dice::new(seed);
    let mut state = model.init_states().remove(0);
    let properties = model.properties();
    let always = properties.iter().filter(|property| property.expectation == Expectation::Always);
    for _ in 0..steps {
        let mut actions = Vec::new();
        model.actions(&state, &mut actions);
        if actions.is_empty() {
            break;
        }
        let action = actions.swap_remove(dice.index(actions.len()));
        let Some(next) = model.next_state(&state, action.clone()) else { continue };
        state = next;
        for property in always.clone() {
            let holds = (property.condition)(model, &state);
            assert!(holds, "seed {seed}: {} ({:?}) after {action:?}", property.name, mistake(&state));
        }
    }
    state
}

impl Letter {
    pub(crate) fn message(&self) -> Message<'_> {
        Message { kind: self.kind, block: self.block, word: self.word, content: &self.content }
    }
}

impl Machine {
    /// Whether its thread waits, and nobody has told it to go on.
    pub(crate) fn is_stuck(&self) -> bool {
        self.waiting.is_some() && !self.is_resumed
    }

    /// A block's content as a number.
    pub(crate) fn found(&self, block: Block) -> u32 {
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
