//! The program of a node: a whole member, and an application whose state is a hash of all that it was told.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use comb_sim::{Actor, Boot, Disk, Effects, Input as Happening, Ticket};
use comb_types::{NodeId, Time};

use super::super::one_order::{Place, apply, hash};
use super::disk_log::DiskLog;
use crate::detect::{Change, Kind};
use crate::join;
use crate::order::Level;
use crate::stack::{self, Config, Input, Stack};
use crate::transmit::To;
use crate::view::{Member, View, ViewEpoch};

#[derive(Clone, Debug)]
pub(super) enum Command {
    Submit { level: Level, body: Vec<u8> },
    Noticed(NodeId, Kind),
    Ended { life: Member, agreed: ViewEpoch },
}

/// What a node tells the checkers.
#[derive(Clone, Debug)]
pub(super) enum Event {
    Submitted {
        me: Member,
        number: u64,
        hash: u64,
    },
    Delivered {
        me: Member,
        position: u64,
        place: Place,
    },
    Reached {
        me: Member,
        number: u64,
        level: Level,
    },
    Restored {
        me: Member,
        position: u64,
        state: u64,
    },
    View {
        me: Member,
        view: View,
    },
    Condition(Change),
    Excluded,
    /// It went on from its log.
    Resumed,
    /// Its log was no good.
    Forgot,
    /// Its disk has no room: it has halted.
    DiskFull,
    Refused {
        from: NodeId,
        rule: &'static str,
    },
}

enum Write {
    Behind(Vec<u8>),
    Instead(Vec<Vec<u8>>),
}

/// The log and its records. One that is spoiled is given up.
fn open_log(disk: &mut Disk) -> (Option<DiskLog>, Vec<Vec<u8>>, bool) {
    match DiskLog::open(disk) {
        Ok((log, records)) => (Some(log), records, false),
        Err(_) => {
            DiskLog::remove(disk);
            let (log, records) = DiskLog::open(disk).expect("an empty log is not spoiled");
            (Some(log), records, true)
        }
    }
}

/// What each life has left for those who outlive it: see [`Stack::agreed`].
pub(super) type Words = Rc<RefCell<BTreeMap<Member, ViewEpoch>>>;

pub(super) struct GroupMember {
    me: Member,
    stack: Stack,
    words: Words,
    /// The application's.
    state: u64,
    log: Option<DiskLog>,
    /// The last record that was written, and the last that each synchronisation under way is for.
    written: Option<u64>,
    syncs: VecDeque<(Ticket, u64)>,
    /// What is to be told of the log.
    started: Option<Event>,
}

impl GroupMember {
    /// In its first life a node is a configured member; later ones must join, or go on from their logs if they have any.
    pub(super) fn boot(boot: &mut Boot<'_>, first: &View, has_log: bool, words: Words) -> Self {
        let me = Member { node: boot.node, incarnation: boot.incarnation };
        let join = join::Config { contacts: first.nodes().collect(), ..join::Config::default() };
        let mut config = Config { join, ..Config::default() };
        (config.watching.seed, config.watching.starting) = (boot.seed, Duration::ZERO);
        config.order.history_most = 64;
        config.order.tell_after = Duration::from_millis(1);
        (config.order.has_log, config.log.most_bytes) = (has_log, 4000);
        let (log, records, is_spoiled) = match has_log {
            true => open_log(boot.disk),
            false => (None, Vec::new(), false),
        };
        let now = boot.now;
        let stack = if first.members.contains(&me) {
            Ok(Stack::configured(config.clone(), me, first.clone(), now))
        } else {
            let records = records.iter().map(|record| &record[..]);
            Stack::resuming(config.clone(), me, now, records)
        };
        let started = match () {
            () if is_spoiled || stack.is_err() => Some(Event::Forgot),
            () => (!records.is_empty()).then_some(Event::Resumed),
        };
        let stack = stack.unwrap_or_else(|_| Stack::joining(config, me, now));
        Self { me: stack.me(), stack, words, state: 0, log, written: None, syncs: VecDeque::new(), started }
    }

    pub(super) fn stack(&self) -> &Stack {
        &self.stack
    }

    fn feed(&mut self, input: Input<'_>, effects: &mut Effects<'_, Event>) {
        if let Err(error) = self.stack.handle(effects.now(), input) {
            effects.tell(Event::Refused { from: error.from, rule: error.rule });
        }
    }

    fn poll(&mut self, effects: &mut Effects<'_, Event>) {
        loop {
            self.words.borrow_mut().insert(self.me, self.stack.agreed());
            let mut is_done = true;
            while let Some(cast) = self.stack.poll_transmit(effects.now()) {
                is_done = false;
                match cast.to {
                    To::One(to) => effects.send(to, cast.bytes.to_vec()),
                    To::Others => {
                        let view = self.stack.view();
                        for to in view.into_iter().flat_map(View::nodes).filter(|&to| to != self.me.node) {
                            effects.send(to, cast.bytes.to_vec());
                        }
                    }
                }
            }
            while let Some(event) = self.stack.poll_event() {
                is_done = false;
                self.happened(event, effects);
            }
            if is_done {
                break;
            }
        }
        // One synchronisation for all that was written meanwhile.
        if let Some(number) = self.written.take() {
            self.syncs.push_back((effects.disk().sync(), number));
        }
    }

    fn write(&mut self, disk: &mut Disk, number: u64, records: &Write) -> bool {
        let Some(log) = &mut self.log else { return false };
        self.written = Some(number);
        let written = match records {
            Write::Behind(record) => log.append(disk, record),
            Write::Instead(records) => log.replace(disk, records),
        };
        written.is_ok()
    }

    fn write_or_halt(&mut self, number: u64, records: &Write, effects: &mut Effects<'_, Event>) {
        if !self.write(effects.disk(), number, records) {
            effects.tell(Event::DiskFull);
            effects.halt();
        }
    }

    fn synced(&mut self, ticket: Ticket, effects: &mut Effects<'_, Event>) {
        // On a disk that is faster since, one may end before another that was asked for before it, and stands for both.
        let mut last = None;
        while let Some((_, number)) = self.syncs.pop_front_if(|(asked, _)| *asked <= ticket) {
            last = Some(number);
        }
        let Some(number) = last else { return };
        if let Some(log) = self.log.as_mut().filter(|_| self.syncs.is_empty()) {
            log.synced(effects.disk());
        }
        self.feed(Input::Persisted { number }, effects);
    }

    fn happened(&mut self, event: stack::Event, effects: &mut Effects<'_, Event>) {
        let me = self.me;
        match event {
            stack::Event::Delivered(delivery) => {
                let (position, place) = (delivery.position, apply(&mut self.state, &delivery));
                effects.tell(Event::Delivered { me, position, place });
            }
            stack::Event::Reached { number, level } => effects.tell(Event::Reached { me, number, level }),
            stack::Event::Restore { position, state } => {
                self.state = state.try_into().map_or(0, u64::from_le_bytes);
                effects.tell(Event::Restored { me, position, state: self.state });
            }
            stack::Event::WantsState => {
                let state = self.state.to_le_bytes();
                self.feed(Input::State(&state), effects);
            }
            stack::Event::View(view) => effects.tell(Event::View { me, view }),
            stack::Event::Excluded { .. } => {
                effects.tell(Event::Excluded);
                effects.halt();
            }
            // This scenario has no resource: nobody has it.
            stack::Event::Acquire { epoch, .. } => {
                self.feed(Input::Acquired { epoch, granted: false }, effects);
            }
            stack::Event::Condition(change) => effects.tell(Event::Condition(change)),
            stack::Event::Settled(_)
            | stack::Event::Stuck(_)
            | stack::Event::Entry { .. }
            | stack::Event::Circle(_)
            | stack::Event::Lagging(_)
            | stack::Event::CaughtUp(_) => {}
            stack::Event::Persist { number, bytes } => {
                self.write_or_halt(number, &Write::Behind(bytes), effects);
            }
            stack::Event::Replace { number, records } => {
                self.write_or_halt(number, &Write::Instead(records), effects);
            }
        }
    }
}

impl Actor for GroupMember {
    type Command = Command;
    type Event = Event;

    fn handle(&mut self, input: Happening<'_, Command>, effects: &mut Effects<'_, Event>) {
        match input {
            Happening::Message { from, bytes } => self.feed(Input::Message { from, bytes }, effects),
            Happening::Timeout => self.feed(Input::Timeout, effects),
            Happening::Command(Command::Noticed(node, kind)) => {
                self.feed(Input::Noticed(node, kind), effects);
            }
            Happening::Command(Command::Ended { life, agreed }) => {
                self.feed(Input::Ended { life, agreed }, effects);
            }
            Happening::Command(Command::Submit { level, body }) => {
                if let Ok(number) = self.stack.submit(effects.now(), level, &body) {
                    effects.tell(Event::Submitted { me: self.me, number, hash: hash(&*body) });
                }
            }
            Happening::Synced { ticket, .. } => self.synced(ticket, effects),
            Happening::Started => {
                if let Some(started) = self.started.take() {
                    effects.tell(started);
                }
            }
        }
        self.poll(effects);
    }

    fn next_timeout(&self) -> Option<Time> {
        self.stack.next_timeout()
    }

    fn describe(message: &[u8]) -> String {
        Stack::describe(NodeId(u32::MAX), message)
    }
}
