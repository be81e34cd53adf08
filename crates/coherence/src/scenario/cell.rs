//! A cell: a protocol, its memory, a channel to each other cell, and a thread that loads and stores.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use comb_sim::channel::{Channel, HEAD};
use comb_sim::{Actor, Boot, Dice, Effects, Input, NodeId, Time};
use comb_types::CellId;

use crate::block::Block;
use crate::machine::{BLOCK_BYTES, Do, Letter, Machine, TELLS, at};
use crate::placement::{Pages, Policy, carry_out};
use crate::tempest::{Message, Protocol, Tempest};

pub(super) const BLOCKS: u64 = 12;
/// What was sent and not acknowledged is sent again after so long.
const AGAIN: Duration = Duration::from_millis(20);
/// Kind, block and word of a message.
const LEAST: usize = 17;
/// Such that threads that access at random make homes move.
const POLICY: Policy =
    Policy { hot_misses: 8, alone_percent: 50, stores_percent: 50, replica_percent: 10, most_moves: u8::MAX };
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
    /// It lives here now.
    Moved(Block),
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
    links: BTreeMap<NodeId, Channel>,
    cells: u32,
    dead: BTreeSet<NodeId>,
    /// Those of the dead of whom all have told what they know of homes.
    buried: BTreeSet<NodeId>,
    pages: Pages,
    /// What lived here when it was last looked.
    lives_here: BTreeSet<Block>,
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
        let mut machine = Machine::new(CellId(boot.node.0), cells, BLOCKS);
        (machine.homes_move, machine.misses) = (super::homes_move(which), Some(Vec::new()));
        Self {
            protocol: super::protocol(which).0,
            which,
            lives_here: machine.all().filter(|&block| machine.home_of(block) == machine.me).collect(),
            machine,
            pages: Pages::new(POLICY, 1),
            cells,
            links: BTreeMap::new(),
            dead: BTreeSet::new(),
            buried: BTreeSet::new(),
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
        self.thread == Thread::Rests && self.links.values().all(Channel::is_quiet)
    }

    fn hear(&mut self, from: NodeId, frame: &[u8], effects: &mut Effects<'_, Event>) {
        if self.dead.contains(&from) {
            return;
        }
        for message in self.links.entry(from).or_default().take(frame) {
            let (head, content) = message[1..].split_at(LEAST);
            let number = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("eight"));
            let message = Message { kind: head[0], block: Block(number(1)), word: number(9), content };
            if message.kind == TELLS {
                self.machine.is_told(CellId(from.0), content);
                self.bury(effects);
            } else if let Err(error) = self.protocol.on_message(&mut self.machine, CellId(from.0), message) {
                effects.tell(Event::Accused(from, error.to_string()));
            }
        }
    }

    fn written(&self, letter: &Letter) -> Vec<u8> {
        let numbers = [letter.block.0.to_le_bytes(), letter.word.to_le_bytes()].concat();
        [&[self.which, letter.kind][..], &numbers, &letter.content].concat()
    }

    pub(super) fn has_heard(&self, dead: NodeId) -> bool {
        self.buried.contains(&dead)
    }

    /// Whether it has given a block up, and whether it can still load it.
    pub(super) fn has(&self, block: Block) -> (bool, bool) {
        (self.machine.lost[at(block)].is_some(), self.machine.access(block).may_load())
    }

    fn hear_of(&mut self, dead: NodeId, effects: &mut Effects<'_, Event>) {
        self.is_parked = true;
        self.dead.insert(dead);
        self.links.remove(&dead);
        let lives = |cell: &u32| !self.dead.contains(&NodeId(*cell));
        let living = (0..self.cells).filter(lives).map(CellId).collect();
        self.machine.hears_of(CellId(dead.0), living);
        self.bury(effects);
    }

    fn bury(&mut self, effects: &mut Effects<'_, Event>) {
        let Some(dead) = self.machine.buries() else { return };
        let lost = self.machine.all().filter(|&block| self.machine.lost[at(block)].is_some());
        lost.for_each(|block| effects.tell(Event::Lost(block)));
        self.protocol.on_peer_death(&mut self.machine, dead);
        self.buried.insert(NodeId(dead.0));
    }

    fn any_block(&mut self) -> Block {
        Block(u64::from(self.dice.below(u32::try_from(BLOCKS).expect("few"))))
    }

    /// What a program, or who looks after it, does besides loading and storing.
    fn meddle(&mut self) {
        let (block, other) = (self.any_block(), CellId(self.dice.below(self.cells)));
        match self.dice.below(60) {
            0..3 => self.protocol.on_evict(&mut self.machine, block),
            3..12 => {
                self.protocol.on_move(&mut self.machine, block, other);
            }
            12..15 => self.protocol.on_push(&mut self.machine, block, other),
            _ => {}
        }
    }

    /// Does what had better be done with what was missed.
    fn place(&mut self) {
        let misses = self.machine.misses.as_mut().map(std::mem::take).unwrap_or_default();
        for (block, by, is_store) in misses {
            let home = self.machine.home(block);
            if home.cell != self.machine.me {
                continue;
            }
            if let Some((blocks, decided)) = self.pages.missed(block, home, by, is_store) {
                carry_out(&decided, blocks, self.protocol.as_mut(), &mut self.machine);
            }
        }
    }

    /// Tells what lives here that did not.
    fn look_at_homes(&mut self, effects: &mut Effects<'_, Event>) {
        for block in self.machine.all() {
            if self.machine.home_of(block) != self.machine.me {
                self.lives_here.remove(&block);
            } else if self.lives_here.insert(block) {
                effects.tell(Event::Moved(block));
            }
        }
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
        self.meddle();
        let place = Place { block: self.any_block(), byte: self.dice.index(BLOCK_BYTES) };
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
        self.place();
        self.look_at_homes(effects);
        for (to, letter) in std::mem::take(&mut self.machine.sent) {
            let to = NodeId(to.0);
            if !self.dead.contains(&to) {
                let message = self.written(&letter);
                let frame = self.links.entry(to).or_default().send(message);
                effects.send(to, frame);
            }
        }
        for (&to, link) in &mut self.links {
            if let Some(frame) = link.acknowledgement() {
                effects.send(to, frame);
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
            Input::Command(Command::Dead(dead)) => self.hear_of(dead, effects),
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
        let kind = message[0];
        let name = if kind == TELLS { "Tells".to_owned() } else { super::protocol(which).0.describe(kind) };
        let bytes = message.len() - LEAST;
        format!("{}: {name}, {}, {bytes} bytes", number(0), Block(number(HEAD + 2)))
    }

    fn next_timeout(&self) -> Option<Time> {
        let rests = self.thread == Thread::Rests && !self.is_over && !self.is_parked;
        let rests = rests.then_some(self.rests_until);
        [Some(self.send_again_at), rests].into_iter().flatten().min()
    }
}
