//! A cell: a protocol, its memory, a channel to each other cell, and a thread that loads and stores.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use comb_sim::{Actor, Boot, Dice, Effects, Input, NodeId, Time};
use comb_types::CellId;

use super::link::{HEAD, Link};
use crate::block::Block;
use crate::machine::{BLOCK_BYTES, Do, Letter, Machine, at};
use crate::tempest::{Message, Protocol, Tempest};

pub(super) const BLOCKS: u64 = 12;
/// What was sent and not acknowledged is sent again after so long.
const AGAIN: Duration = Duration::from_millis(20);
/// Kind, block and word of a message.
const LEAST: usize = 17;
/// So long a thread rests from one access to the next, in the mean.
const REST: Duration = Duration::from_millis(2);

/// One byte of one block.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Place {
    pub(super) block: Block,
    pub(super) byte: usize,
}

/// Who may use which byte. It is perfect: that locks work is not at stake here.
pub(super) type Locks = Rc<RefCell<BTreeMap<Place, NodeId>>>;

#[derive(Clone, Debug)]
pub(super) enum Command {
    /// Somebody is dead: all are told, and their threads stand still until all have heard.
    Dead(NodeId),
    /// All have heard.
    GoOn,
    /// Nothing new is begun.
    Rest,
}

/// What a cell tells the checkers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Event {
    Loaded(Place, u8),
    Stored(Place, u8),
    Synced(Place),
    Lost(Block),
    Accused(NodeId, String),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Thread {
    Rests,
    Tries(Place, Do),
    Syncs(Place),
}

pub(super) struct Cell {
    protocol: Box<dyn Protocol>,
    /// Which protocol, for whoever reads the log.
    which: u8,
    machine: Machine,
    links: BTreeMap<NodeId, Link>,
    dead: BTreeSet<NodeId>,
    thread: Thread,
    /// The bytes of a block that others store into meanwhile need no lock.
    needs_locks: bool,
    locks: Locks,
    dice: Dice,
    rests_until: Time,
    send_again_at: Time,
    /// Stands still until all have heard of a death.
    is_parked: bool,
    is_over: bool,
    number: u8,
}

impl Cell {
    pub(super) fn boot(boot: &Boot<'_>, cells: u32, which: u8, needs_locks: bool, locks: &Locks) -> Self {
        Self {
            protocol: super::protocol(which).0,
            which,
            machine: Machine::new(CellId(boot.node.0), cells, BLOCKS),
            links: BTreeMap::new(),
            dead: BTreeSet::new(),
            thread: Thread::Rests,
            needs_locks,
            locks: Rc::clone(locks),
            dice: Dice::new(boot.seed),
            rests_until: boot.now,
            send_again_at: boot.now,
            is_parked: false,
            is_over: false,
            number: 0,
        }
    }

    /// Whether nothing of it is under way.
    pub(super) fn is_quiet(&self) -> bool {
        self.thread == Thread::Rests && self.links.values().all(Link::is_quiet)
    }

    fn hear(&mut self, from: NodeId, frame: &[u8], effects: &mut Effects<'_, Event>) {
        if self.dead.contains(&from) {
            return;
        }
        for message in self.links.entry(from).or_default().take(frame) {
            let (head, content) = message[1..].split_at(LEAST);
            let number = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("eight"));
            let message = Message { kind: head[0], block: Block(number(1)), word: number(9), content };
            if let Err(error) = self.protocol.on_message(&mut self.machine, CellId(from.0), message) {
                effects.tell(Event::Accused(from, error.to_string()));
            }
        }
    }

    fn written(&self, letter: &Letter) -> Vec<u8> {
        let numbers = [letter.block.0.to_le_bytes(), letter.word.to_le_bytes()].concat();
        [&[self.which, letter.kind][..], &numbers, &letter.content].concat()
    }

    pub(super) fn has_heard(&self, dead: NodeId) -> bool {
        self.dead.contains(&dead)
    }

    fn bury(&mut self, dead: NodeId, effects: &mut Effects<'_, Event>) {
        self.is_parked = true;
        self.dead.insert(dead);
        self.links.remove(&dead);
        self.machine.lose_homed_in(CellId(dead.0));
        let lost = self.machine.all().filter(|&block| self.machine.home_of(block) == CellId(dead.0));
        lost.for_each(|block| effects.tell(Event::Lost(block)));
        self.protocol.on_peer_death(&mut self.machine, CellId(dead.0));
    }

    /// Loads or stores, or faults.
    fn access(&mut self, effects: &mut Effects<'_, Event>) {
        let Thread::Tries(place, does) = self.thread else { return };
        self.machine.wakes();
        let access = self.machine.access(place.block);
        let content = &mut self.machine.content[at(place.block)][place.byte];
        if self.machine.lost[at(place.block)].is_some() {
            effects.tell(Event::Lost(place.block));
            return self.rest(effects.now(), place);
        }
        match does {
            Do::Store if access.may_store() => {
                self.number = self.number.wrapping_add(1);
                // Another than any that is still about.
                let writer = u8::try_from(self.machine.me.0 % 8).expect("small");
                *content = self.number.wrapping_mul(8).wrapping_add(writer);
                effects.tell(Event::Stored(place, *content));
                self.thread = Thread::Syncs(place);
                self.protocol.on_sync(&mut self.machine);
            }
            Do::Load if access.may_load() => {
                effects.tell(Event::Loaded(place, *content));
                self.rest(effects.now(), place);
            }
            _ => {
                self.machine.waits(place.block, does);
                match does {
                    Do::Load => self.protocol.on_read_fault(&mut self.machine, place.block),
                    Do::Store => self.protocol.on_write_fault(&mut self.machine, place.block),
                }
            }
        }
    }

    fn rest(&mut self, now: Time, place: Place) {
        self.thread = Thread::Rests;
        self.locks.borrow_mut().remove(&place);
        self.rests_until = now.saturating_add(self.dice.between(Duration::ZERO..2 * REST));
    }

    /// The thread's next access.
    fn begin(&mut self, effects: &mut Effects<'_, Event>) {
        let now = effects.now();
        if self.thread != Thread::Rests || self.is_parked || self.is_over || now < self.rests_until {
            return;
        }
        self.rests_until = now.saturating_add(REST);
        if self.dice.below(20) == 0 {
            let block = Block(u64::from(self.dice.below(u32::try_from(BLOCKS).expect("few"))));
            self.protocol.on_evict(&mut self.machine, block);
        }
        let block = Block(u64::from(self.dice.below(u32::try_from(BLOCKS).expect("few"))));
        let place = Place { block, byte: self.dice.index(BLOCK_BYTES) };
        let me = NodeId(self.machine.me.0);
        if self.needs_locks && *self.locks.borrow_mut().entry(place).or_insert(me) != me {
            return;
        }
        self.thread = Thread::Tries(place, if self.dice.below(2) == 0 { Do::Store } else { Do::Load });
        self.access(effects);
    }

    /// What follows from what was done: until nothing does.
    fn go_on(&mut self, effects: &mut Effects<'_, Event>) {
        self.begin(effects);
        while !self.is_parked {
            let (is_resumed, is_synced) = (self.machine.is_resumed, self.machine.is_synced);
            (self.machine.is_resumed, self.machine.is_synced) = (false, false);
            if is_synced && let Thread::Syncs(place) = self.thread {
                effects.tell(Event::Synced(place));
                self.rest(effects.now(), place);
            } else if is_resumed {
                self.access(effects);
            } else {
                break;
            }
        }
        for (to, letter) in std::mem::take(&mut self.machine.sent) {
            let to = NodeId(to.0);
            if !self.dead.contains(&to) {
                let message = self.written(&letter);
                let frame = self.links.entry(to).or_default().send(message);
                effects.send(to, frame);
            }
        }
        for (&to, link) in &mut self.links {
            if link.owes {
                effects.send(to, link.acknowledgement());
            }
        }
        if effects.now() >= self.send_again_at {
            self.send_again_at = effects.now().saturating_add(AGAIN);
            for (&to, link) in &self.links {
                link.again().into_iter().for_each(|frame| effects.send(to, frame));
            }
        }
    }
}

impl Actor for Cell {
    type Command = Command;
    type Event = Event;

    fn handle(&mut self, input: Input<'_, Command>, effects: &mut Effects<'_, Event>) {
        match input {
            Input::Message { from, bytes } => self.hear(from, bytes, effects),
            Input::Command(Command::Dead(dead)) => self.bury(dead, effects),
            Input::Command(Command::GoOn) => self.is_parked = false,
            Input::Command(Command::Rest) => self.is_over = true,
            Input::Started | Input::Timeout | Input::Synced { .. } => {}
        }
        self.go_on(effects);
    }

    fn describe(frame: &[u8]) -> String {
        let number = |at: usize| u64::from_le_bytes(frame[at..at + 8].try_into().expect("eight"));
        let Some((&which, message)) = frame[HEAD..].split_first() else {
            return format!("all taken up to {}", number(8));
        };
        let (kind, bytes) = (super::protocol(which).0.describe(message[0]), message.len() - LEAST);
        format!("{}: {kind}, {}, {bytes} bytes", number(0), Block(number(HEAD + 2)))
    }

    fn next_timeout(&self) -> Option<Time> {
        let rests = self.thread == Thread::Rests && !self.is_over && !self.is_parked;
        let rests = rests.then_some(self.rests_until);
        [Some(self.send_again_at), rests].into_iter().flatten().min()
    }
}
