//! A node of the classic way in the seeded world: the machine, and the wait for the processor before each message.

use std::collections::VecDeque;

use comb_sim::{Actor, Boot, Effects, Input as SimInput};

use super::load::Load;
use crate::mscs::{self, Discovery, Event, Input, Kind, Mscs, NodeSet};
use crate::view::Member;
use crate::{Dice, NodeId, Time};

/// How the nodes of a world start.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// Who runs from the beginning, in its first life. All others join.
    pub(super) members: NodeSet,
    pub(super) configured: NodeSet,
    pub(super) discovery: Discovery,
    pub(super) load: Load,
}

/// What a node has sent.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Sent {
    pub(super) heartbeats: u64,
    pub(super) regroup: u64,
    pub(super) calls: u64,
}

pub(super) struct Node {
    pub(super) mscs: Mscs,
    pub(super) sent: Sent,
    load: Load,
    dice: Dice,
    waiting: VecDeque<(NodeId, Vec<u8>)>,
    wakes_at: Option<Time>,
}

#[derive(Clone, Debug)]
pub(super) enum Command {
    /// Only tests have clusters of two that fall apart.
    #[cfg(test)]
    OwnQuorumResource,
    Update(Vec<u8>),
}

impl Node {
    pub(super) fn start(boot: &Boot<'_>, plan: Plan) -> Self {
        let me = Member { node: boot.node, incarnation: boot.incarnation };
        let mscs = if boot.incarnation.0 == 1 && plan.members.contains(boot.node) {
            Mscs::member(boot.now, me, plan.members)
        } else {
            Mscs::joining(boot.now, me, plan.configured, plan.discovery)
        };
        let dice = Dice::new(boot.seed);
        let (sent, waiting) = (Sent::default(), VecDeque::new());
        Self { mscs, sent, load: plan.load, dice, waiting, wakes_at: None }
    }

    fn feed(&mut self, input: Input<'_>, effects: &mut Effects<'_, Event>) {
        let outcome = self.mscs.handle(effects.now(), input);
        assert!(outcome.is_ok(), "nobody lies here: {outcome:?}");
        while let Some(transmit) = self.mscs.poll_transmit() {
            match mscs::kind(&transmit.bytes) {
                Some(Kind::Heartbeat) => self.sent.heartbeats += 1,
                Some(Kind::Regroup) => self.sent.regroup += 1,
                _ => self.sent.calls += 1,
            }
            effects.send(transmit.to, transmit.bytes);
        }
        while let Some(event) = self.mscs.poll_event() {
            if let Event::Halted(_) = event {
                effects.halt();
            }
            effects.tell(event);
        }
    }

    fn wake_up(&mut self, effects: &mut Effects<'_, Event>) {
        if self.wakes_at.is_some_and(|time| effects.now() >= time) {
            self.wakes_at = None;
            for (from, bytes) in std::mem::take(&mut self.waiting) {
                self.feed(Input::Message { from, bytes: &bytes }, effects);
            }
        }
    }
}

impl Actor for Node {
    type Command = Command;
    type Event = Event;

    fn handle(&mut self, input: SimInput<'_, Command>, effects: &mut Effects<'_, Event>) {
        self.wake_up(effects);
        match input {
            SimInput::Message { from, bytes } => match mscs::kind(bytes) {
                Some(Kind::Heartbeat) => self.feed(Input::Message { from, bytes }, effects),
                kind => {
                    self.waiting.push_back((from, bytes.to_vec()));
                    if self.wakes_at.is_none() {
                        let wait = self.load.wake_up(&mut self.dice, kind, bytes.len());
                        self.wakes_at = Some(effects.now().saturating_add(wait));
                    }
                }
            },
            #[cfg(test)]
            SimInput::Command(Command::OwnQuorumResource) => {
                self.feed(Input::QuorumResource(true), effects);
            }
            SimInput::Command(Command::Update(data)) => self.feed(Input::Update(&data), effects),
            SimInput::Started | SimInput::Timeout | SimInput::Synced { .. } => {
                self.feed(Input::Timeout, effects);
            }
        }
    }

    fn next_timeout(&self) -> Option<Time> {
        [self.mscs.next_timeout(), self.wakes_at].into_iter().flatten().min()
    }

    fn describe(message: &[u8]) -> String {
        mscs::describe(message).unwrap_or_else(|| format!("{} bytes", message.len()))
    }
}
