//! The program of a node: ordered update, and an application whose state is a hash of all that it was told.

use std::collections::VecDeque;

use comb_sim::{Actor, Boot, Disk, Effects, Input as Happening, Ticket};
use comb_types::{NodeId, Time};

use super::super::one_order::{Place, apply, hash};
use crate::order::{self, Config, Input, Level, Order, Snapshot};
use crate::transmit::To;
use crate::view::{Member, View};

/// What a scenario tells a node.
#[derive(Clone, Debug)]
pub(super) enum Command {
    Submit { level: Level, body: Vec<u8> },
    Freeze { round: u64 },
    Change { round: u64, view: View, cut: u64, holders: Vec<NodeId> },
    Install { view: View },
    Join { snapshot: Snapshot },
    Take { snapshot: Snapshot },
    Leave,
}

/// What a node tells the checkers.
#[derive(Clone, Debug)]
pub(super) enum Event {
    Submitted { number: u64, level: Level, hash: u64 },
    Delivered { position: u64, place: Place },
    Reached { number: u64, level: Level },
    Joined { position: u64, state: u64 },
    Position { round: u64, held: u64 },
    Flushed { round: u64 },
    Installed { view: View },
    Lagging,
    CaughtUp,
    NeedsSnapshot,
    Refused { from: NodeId, rule: &'static str },
}

pub(super) struct Replica {
    me: Member,
    config: Config,
    order: Option<Order>,
    /// The application's.
    state: u64,
    round: u64,
    /// Whose change it is in: what is fetched after the next freeze is still of this one.
    changing: u64,
    /// What is on its way to the disk: the positions of its records.
    writing: VecDeque<(Ticket, u64)>,
}

const LOG: &str = "log";

/// A record with its length and its hash before it, by which one that was torn is known.
fn frame(record: &[u8]) -> Vec<u8> {
    let length = u32::try_from(record.len()).expect("a record is short");
    [&length.to_le_bytes()[..], &hash(record).to_le_bytes(), record].concat()
}

/// The records of a log, up to the first that is not whole; and cuts off what follows.
fn read_log(disk: &mut Disk) -> Vec<Vec<u8>> {
    let Ok(log) = disk.read(LOG) else { return Vec::new() };
    let mut records = Vec::new();
    let mut rest = &log[..];
    while let Some((length, behind)) = rest.split_first_chunk()
        && let Some((sum, behind)) = behind.split_first_chunk()
        && let Some((record, behind)) = behind.split_at_checked(u32::from_le_bytes(*length) as usize)
        && hash(record) == u64::from_le_bytes(*sum)
    {
        records.push(record.to_vec());
        rest = behind;
    }
    let whole = log.len() - rest.len();
    disk.truncate(LOG, whole);
    records
}

impl Replica {
    /// In its first life a node is a founder. Later ones go on from their logs, if there are any, or must join.
    pub(super) fn boot(boot: &mut Boot<'_>, config: &Config, first: &View) -> Self {
        let me = Member { node: boot.node, incarnation: boot.incarnation };
        let order = if first.members.contains(&me) {
            Some(Order::founding(config.clone(), me, first.clone()))
        } else if config.has_log {
            let records = read_log(boot.disk);
            let records = records.iter().map(|record| &record[..]);
            let order = Order::restored(config.clone(), me, Snapshot::default(), records);
            Some(order.expect("a log without gaps"))
        } else {
            None
        };
        Self { me, config: config.clone(), order, state: 0, round: 0, changing: 0, writing: VecDeque::new() }
    }

    /// How far it is: the view of the last update that it holds, and its position.
    #[cfg(test)]
    pub(super) fn extent(&self) -> Option<(crate::view::ViewEpoch, u64)> {
        self.order.as_ref().map(|order| (order.last_epoch(), order.held()))
    }

    fn synced(&mut self, ticket: Ticket, effects: &mut Effects<'_, Event>) {
        if let Some((expected, position)) = self.writing.pop_front() {
            assert_eq!(expected, ticket, "the disk writes in order");
            self.feed(Input::Persisted { position }, effects);
        }
    }

    /// The state, for those who need it.
    pub(super) fn snapshot(&self) -> Option<Snapshot> {
        Some(self.order.as_ref()?.snapshot(self.state.to_le_bytes().to_vec()))
    }

    fn restore(&mut self, snapshot: &Snapshot) {
        self.state = u64::from_le_bytes(snapshot.state[..].try_into().expect("a state is eight bytes"));
    }

    fn command(&mut self, command: Command, effects: &mut Effects<'_, Event>) {
        let now = effects.now();
        if let Command::Join { snapshot } = &command {
            if self.order.is_none() {
                self.restore(snapshot);
                effects.tell(Event::Joined { position: snapshot.position, state: self.state });
                self.order = Some(Order::joining(self.config.clone(), self.me, snapshot.clone()));
            }
            return;
        }
        let Some(order) = &mut self.order else { return };
        let input = match command {
            Command::Submit { level, body } => {
                if let Ok(number) = order.submit(now, level, &body) {
                    effects.tell(Event::Submitted { number, level, hash: hash(&body) });
                }
                return;
            }
            Command::Freeze { round } => {
                self.round = round;
                Input::Freeze
            }
            // Of a round that this node has left behind.
            Command::Change { round, .. } if round != self.round => return,
            Command::Change { round, view, cut, holders } => {
                self.changing = round;
                Input::Change { view, cut, holders }
            }
            Command::Install { view } if view.epoch.0 == self.round => {
                let installed = Event::Installed { view: view.clone() };
                self.feed(Input::Install(view), effects);
                effects.tell(installed);
                return;
            }
            Command::Take { snapshot } if snapshot.position > order.delivered() => {
                self.restore(&snapshot);
                effects.tell(Event::Joined { position: snapshot.position, state: self.state });
                Input::Snapshot(snapshot)
            }
            Command::Install { .. } | Command::Take { .. } | Command::Join { .. } => return,
            Command::Leave => return effects.halt(),
        };
        self.feed(input, effects);
    }

    fn feed(&mut self, input: Input<'_>, effects: &mut Effects<'_, Event>) {
        let Some(order) = &mut self.order else { return };
        if let Err(error) = order.handle(effects.now(), input) {
            effects.tell(Event::Refused { from: error.from, rule: error.rule });
        }
    }

    fn poll(&mut self, effects: &mut Effects<'_, Event>) {
        let Some(order) = &mut self.order else { return };
        loop {
            let mut is_done = true;
            while let Some(cast) = order.poll_transmit() {
                is_done = false;
                match cast.to {
                    To::One(to) => effects.send(to, cast.bytes.to_vec()),
                    To::Others => order
                        .view()
                        .nodes()
                        .filter(|&to| to != self.me.node)
                        .for_each(|to| effects.send(to, cast.bytes.to_vec())),
                }
            }
            while let Some(event) = order.poll_event() {
                is_done = false;
                if let order::Event::Persist { position, bytes } = event {
                    effects.disk().append(LOG, &frame(&bytes)).expect("the disk has room");
                    self.writing.push_back((effects.disk().sync(), position));
                } else {
                    effects.tell(told(event, [self.round, self.changing], &mut self.state));
                }
            }
            if is_done {
                return;
            }
        }
    }
}

fn told(event: order::Event, [round, changing]: [u64; 2], state: &mut u64) -> Event {
    match event {
        order::Event::Delivered(delivery) => {
            Event::Delivered { position: delivery.position, place: apply(state, &delivery) }
        }
        order::Event::Reached { number, level } => Event::Reached { number, level },
        order::Event::Position(held) => Event::Position { round, held },
        order::Event::Flushed => Event::Flushed { round: changing },
        order::Event::Lagging { .. } => Event::Lagging,
        order::Event::CaughtUp { .. } => Event::CaughtUp,
        order::Event::NeedsSnapshot { .. } => Event::NeedsSnapshot,
        order::Event::Persist { .. } => unreachable!("it was written"),
        order::Event::PersistSnapshot { .. } => unreachable!("with a log, none is handed over here"),
    }
}

impl Actor for Replica {
    type Command = Command;
    type Event = Event;

    fn handle(&mut self, input: Happening<'_, Command>, effects: &mut Effects<'_, Event>) {
        match input {
            Happening::Message { from, bytes } => self.feed(Input::Message { from, bytes }, effects),
            Happening::Timeout => self.feed(Input::Timeout, effects),
            Happening::Command(command) => self.command(command, effects),
            Happening::Synced { ticket, .. } => self.synced(ticket, effects),
            Happening::Started => {}
        }
        self.poll(effects);
    }

    fn next_timeout(&self) -> Option<Time> {
        self.order.as_ref()?.next_timeout()
    }

    fn describe(message: &[u8]) -> String {
        Order::describe(message)
    }
}
