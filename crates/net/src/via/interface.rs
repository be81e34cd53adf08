//! One virtual interface: its options and its state.

use std::collections::BTreeMap;

use super::descriptor::{Descriptor, Loss, Operation, Side, WorkError, WorkId};
use super::memory::{Memory, Tag};
use super::places::Place;
use super::queue::{QueueKey, WorkQueue};
use crate::channel::ChannelKey;
use crate::window::RemoteWindow;

/// Names a virtual interface of its [`crate::via::Interfaces`]. Stale for ever once that is removed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct InterfaceKey(pub(super) Place);

/// What a connection promises. Both ends must want the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reliability {
    /// A message that finds no receive descriptor, or one too short, is dropped and counted. A send is complete when
    /// the message is on its way.
    Unreliable,
    /// Such a message breaks the connection, with an error on both ends. A send is complete when the message is on its
    /// way.
    Delivery,
    /// As `Delivery`, and a send is complete only when the receiver has the message in its memory.
    Reception,
}

impl Reliability {
    pub(super) fn code(self) -> u8 {
        match self {
            Self::Unreliable => 0,
            Self::Delivery => 1,
            Self::Reception => 2,
        }
    }

    pub(super) fn from_code(code: u8) -> Option<Self> {
        [Self::Unreliable, Self::Delivery, Self::Reception].get(usize::from(code)).copied()
    }
}

/// How an interface is to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InterfaceOptions {
    /// Only memory of this tag is for this interface.
    pub tag: Tag,
    /// What its connection is to promise.
    pub reliability: Reliability,
    /// Descriptors that each queue holds, complete ones too.
    pub depth: usize,
    /// Where completed sends are told of, if anywhere.
    pub send_queue: Option<QueueKey>,
    /// Where completed receives are told of, if anywhere.
    pub receive_queue: Option<QueueKey>,
}

impl InterfaceOptions {
    /// Reliable delivery, 1024 descriptors a queue, no completion queue.
    pub fn new(tag: Tag) -> Self {
        Self { tag, reliability: Reliability::Delivery, depth: 1024, send_queue: None, receive_queue: None }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum State {
    Idle,
    /// We asked for a connection.
    Asked(ChannelKey),
    Connected(ChannelKey),
    /// The peer said no; the sentence is for people.
    Refused(String),
    Broken(WorkError),
}

/// A message of which more is to come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Assembly {
    pub(super) total: usize,
    pub(super) received: usize,
    /// The receive descriptor; `None` for a message that is dropped.
    pub(super) into: Option<WorkId>,
    pub(super) immediate: Option<u32>,
}

#[derive(Debug)]
pub(super) struct Interface {
    pub(super) key: InterfaceKey,
    pub(super) options: InterfaceOptions,
    pub(super) state: State,
    pub(super) peer: String,
    pub(super) sends: WorkQueue,
    pub(super) receives: WorkQueue,
    pub(super) assembly: Option<Assembly>,
    pub(super) dropped: u64,
    pub(super) windows: BTreeMap<u32, RemoteWindow>,
    /// Whether it is on the list of those whose work waits for room.
    pub(super) waits: bool,
}

impl Interface {
    pub(super) fn new(key: InterfaceKey, options: InterfaceOptions) -> Self {
        Self {
            key,
            options,
            state: State::Idle,
            peer: String::new(),
            sends: WorkQueue::new(options.depth),
            receives: WorkQueue::new(options.depth),
            assembly: None,
            dropped: 0,
            windows: BTreeMap::new(),
            waits: false,
        }
    }

    #[inline]
    pub(super) fn queue(&mut self, side: Side) -> &mut WorkQueue {
        match side {
            Side::Send => &mut self.sends,
            Side::Receive => &mut self.receives,
        }
    }

    /// The channel while there is one.
    #[inline]
    pub(super) fn channel(&self) -> Option<ChannelKey> {
        match self.state {
            State::Asked(channel) | State::Connected(channel) => Some(channel),
            _ => None,
        }
    }

    #[inline]
    pub(super) fn is_connected(&self) -> bool {
        matches!(self.state, State::Connected(_))
    }

    /// Where completions of a queue are told of.
    #[inline]
    pub(super) fn completion_queue(&self, side: Side) -> Option<QueueKey> {
        match side {
            Side::Send => self.options.send_queue,
            Side::Receive => self.options.receive_queue,
        }
    }

    /// What is wrong with a descriptor from the start.
    #[inline(always)]
    pub(super) fn examine(&self, memory: &Memory, descriptor: &Descriptor) -> Result<(), WorkError> {
        memory.check(self.options.tag, descriptor.spans())?;
        let bytes = descriptor.bytes();
        if u32::try_from(bytes).is_err() {
            return Err(WorkError::Beyond(bytes));
        }
        let read = matches!(descriptor.operation, Operation::Read { .. });
        if read && self.options.reliability == Reliability::Unreliable {
            return Err(WorkError::Unreliable);
        }
        Ok(())
    }

    /// Everything that is outstanding completes with an error that names the peer.
    pub(super) fn lose(&mut self, loss: Loss) {
        let error = WorkError::Lost { peer: self.peer.clone(), loss };
        self.sends.complete_all(&error);
        self.receives.complete_all(&error);
        self.assembly = None;
        self.windows.clear();
        self.state = State::Broken(error);
    }
}
