//! The program of a node: a whole member, and an application whose state is a hash of all that it was told.

use std::time::Duration;

use comb_sim::{Actor, Boot, Effects, Input as Happening};
use comb_types::{NodeId, Time};

use super::super::one_order::{Place, apply, hash};
use crate::detect::{Change, Kind};
use crate::join;
use crate::order::Level;
use crate::stack::{self, Config, Input, Stack};
use crate::transmit::To;
use crate::view::{Member, View};

#[derive(Clone, Debug)]
pub(super) enum Command {
    Submit { level: Level, body: Vec<u8> },
    Noticed(NodeId, Kind),
}

/// What a node tells the checkers.
#[derive(Clone, Debug)]
pub(super) enum Event {
    Submitted { me: Member, number: u64, hash: u64 },
    Delivered { me: Member, position: u64, place: Place },
    Reached { me: Member, number: u64, level: Level },
    Restored { me: Member, position: u64, state: u64 },
    View { me: Member, view: View },
    Condition(Change),
    Excluded,
    Refused { from: NodeId, rule: &'static str },
}

pub(super) struct GroupMember {
    me: Member,
    stack: Stack,
    /// The application's.
    state: u64,
}

impl GroupMember {
    /// In its first life a node is a configured member; later ones must join.
    pub(super) fn boot(boot: &Boot<'_>, first: &View) -> Self {
        let me = Member { node: boot.node, incarnation: boot.incarnation };
        let join = join::Config { contacts: first.nodes().collect(), ..join::Config::default() };
        let mut config = Config { join, ..Config::default() };
        (config.watching.seed, config.watching.starting) = (boot.seed, Duration::ZERO);
        config.order.history_most = 64;
        config.order.tell_after = Duration::from_millis(1);
        let stack = if first.members.contains(&me) {
            Stack::configured(config, me, first.clone(), boot.now)
        } else {
            Stack::joining(config, me, boot.now)
        };
        Self { me, stack, state: 0 }
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
                return;
            }
        }
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
            stack::Event::Acquire { epoch } => self.feed(Input::Acquired { epoch, granted: false }, effects),
            stack::Event::Condition(change) => effects.tell(Event::Condition(change)),
            stack::Event::Settled(_)
            | stack::Event::Stuck(_)
            | stack::Event::Entry { .. }
            | stack::Event::Lagging(_)
            | stack::Event::CaughtUp(_) => {}
            stack::Event::Persist { .. } => unreachable!("this scenario has no log"),
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
            Happening::Command(Command::Submit { level, body }) => {
                if let Ok(number) = self.stack.submit(effects.now(), level, &body) {
                    effects.tell(Event::Submitted { me: self.me, number, hash: hash(&*body) });
                }
            }
            Happening::Started | Happening::Synced { .. } => {}
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
