//! The program of a node, and what it can do to the world.

use std::fmt;

use comb_types::{Incarnation, NodeId, Time};

use crate::disk::{Disk, DiskError, Ticket};

/// The program of a node. One value of it lives from a start to a crash; what shall outlive that is on its disk.
///
/// It is driven as a protocol is: [`Actor::handle`] is called for every input, and at [`Actor::next_timeout`] even if
/// nothing came. It has no other way to act than the [`Effects`] that it is given, and no other time.
pub trait Actor {
    /// What a scenario tells it to do.
    type Command: Clone;
    /// What it tells the checkers.
    type Event: fmt::Debug;

    /// Takes one input. `effects.now()` is this node's own clock.
    fn handle(&mut self, input: Input<'_, Self::Command>, effects: &mut Effects<'_, Self::Event>);

    /// When it wants to be called next, by its own clock.
    fn next_timeout(&self) -> Option<Time>;

    /// A message in words, for the log.
    fn describe(message: &[u8]) -> String {
        format!("{} bytes", message.len())
    }
}

/// What happens to a node.
#[derive(Debug)]
pub enum Input<'a, C> {
    /// It starts: the first input of a life.
    Started,
    /// A message came.
    Message {
        /// Whence, as the network says. Nobody here can lie about that; a message's content can.
        from: NodeId,
        /// Its bytes.
        bytes: &'a [u8],
    },
    /// The time that [`Actor::next_timeout`] said has come.
    Timeout,
    /// The scenario wants something.
    Command(C),
    /// A [`Disk::sync`] ended.
    Synced {
        /// Which one.
        ticket: Ticket,
        /// Whether what was written before it will survive a crash.
        outcome: Result<(), DiskError>,
    },
}

/// What a node starts with.
#[derive(Debug)]
pub struct Boot<'a> {
    /// Which node.
    pub node: NodeId,
    /// Which of its lives: 1 is the first.
    pub incarnation: Incarnation,
    /// The time, by its own clock.
    pub now: Time,
    /// For its own dice: another for every node and life, the same in every run of this seed.
    pub seed: u64,
    /// What its former lives have left.
    pub disk: &'a mut Disk,
}

/// What a node does while it handles an input.
#[derive(Debug)]
pub struct Effects<'a, E> {
    pub(crate) now: Time,
    pub(crate) disk: &'a mut Disk,
    pub(crate) sends: &'a mut Vec<(NodeId, Vec<u8>)>,
    pub(crate) events: &'a mut Vec<E>,
    pub(crate) halted: bool,
}

impl<E> Effects<'_, E> {
    /// The time, by this node's clock.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Sends a message, which may never arrive.
    pub fn send(&mut self, to: NodeId, message: Vec<u8>) {
        self.sends.push((to, message));
    }

    /// Tells the checkers.
    pub fn tell(&mut self, event: E) {
        self.events.push(event);
    }

    /// This node's disk.
    pub fn disk(&mut self) -> &mut Disk {
        self.disk
    }

    /// Ends this life: nothing more is handled until the node is started again.
    pub fn halt(&mut self) {
        self.halted = true;
    }
}
