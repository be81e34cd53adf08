//! Descriptors: what is to be done, with which memory, and how it went.

use super::interface::InterfaceKey;
use super::memory::{MemoryError, MemoryHandle};
use crate::life::Cause;
use crate::window::AccessError;

/// A piece of registered memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// Which registration.
    pub memory: MemoryHandle,
    /// Where in it.
    pub offset: usize,
    /// How much of it.
    pub bytes: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Operation {
    Send,
    Receive,
    /// Into or from a peer's window, by its number.
    Write {
        window: u32,
        offset: usize,
    },
    Read {
        window: u32,
        offset: usize,
    },
}

/// The spans of a descriptor. Most have one, and posting those allocates nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Spans {
    One(Span),
    Several(Box<[Span]>),
}

/// One piece of work for a queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Descriptor {
    pub(super) operation: Operation,
    spans: Spans,
    pub(super) immediate: Option<u32>,
}

impl Descriptor {
    #[inline(always)]
    fn new(operation: Operation, spans: &[Span]) -> Self {
        let spans = match spans {
            [one] => Spans::One(*one),
            several => Spans::Several(several.into()),
        };
        Self { operation, spans, immediate: None }
    }

    #[inline]
    pub(super) fn spans(&self) -> &[Span] {
        match &self.spans {
            Spans::One(one) => std::slice::from_ref(one),
            Spans::Several(several) => several,
        }
    }

    /// Sends one message, gathered from the spans in their order.
    #[inline(always)]
    pub fn send(spans: &[Span]) -> Self {
        Self::new(Operation::Send, spans)
    }

    /// Takes one message, scattered over the spans in their order. It may be shorter than they are.
    #[inline(always)]
    pub fn receive(spans: &[Span]) -> Self {
        Self::new(Operation::Receive, spans)
    }

    /// Writes the spans into a window of the peer's, which does nothing for it. The peer learns of it only from
    /// immediate data, for which it must have a receive descriptor.
    pub fn rdma_write(spans: &[Span], window: u32, offset: usize) -> Self {
        Self::new(Operation::Write { window, offset }, spans)
    }

    /// Reads from a window of the peer's into the spans. One that fails may have written them nevertheless: the peer can
    /// withdraw the window while it is read.
    pub fn rdma_read(spans: &[Span], window: u32, offset: usize) -> Self {
        Self::new(Operation::Read { window, offset }, spans)
    }

    /// Sends 32 bits along, which arrive in the peer's completion. Nothing on receives and RDMA reads.
    #[must_use]
    pub fn with_immediate(mut self, immediate: u32) -> Self {
        self.immediate = Some(immediate);
        self
    }

    /// Bytes in its spans.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.spans().iter().fold(0, |sum, span| sum.saturating_add(span.bytes))
    }
}

/// One of the two queues of an interface.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Side {
    /// Sends and RDMA.
    Send,
    /// Receives.
    Receive,
}

/// Names a posted descriptor within its queue; counts up from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WorkId(pub u64);

/// A descriptor that is done with, as it is taken out of its queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Completion {
    /// Whose.
    pub interface: InterfaceKey,
    /// Which queue.
    pub side: Side,
    /// Which descriptor.
    pub work: WorkId,
    /// The bytes that were moved, or why not.
    pub outcome: Result<usize, WorkError>,
    /// What the sender sent along, in a receive descriptor.
    pub immediate: Option<u32>,
}

/// Why a descriptor's work was not done.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WorkError {
    /// Ours: a span that the interface may not use. Nothing was moved.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// Ours or the peer's: the message is longer than the descriptor that was to take it. Nothing of it was kept.
    #[error("a message of {bytes} bytes came for a receive descriptor of {room}: post longer ones")]
    TooLong {
        /// The message's length.
        bytes: usize,
        /// The descriptor's.
        room: usize,
    },
    /// Ours: a message of 4 GB or more.
    #[error("{0} bytes are too many for one message: stay below 4 GB")]
    Beyond(usize),
    /// The peer's window was not accessible. The connection goes on. The spans of an RDMA read may hold anything now, and
    /// of an RDMA write of several spans the first may have been written.
    #[error("remote memory: {0}")]
    Access(#[from] AccessError),
    /// Ours: an RDMA read on an unreliable interface. (Thesis §3.4.4)
    #[error("RDMA reads need an interface of Reliability::Delivery or Reception")]
    Unreliable,
    /// The connection is gone, and this work with it: it may have been done or not.
    #[error("the connection to {peer} is lost: {loss}")]
    Lost {
        /// `process/endpoint`.
        peer: String,
        /// Why.
        loss: Loss,
    },
}

/// Why a connection broke.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Loss {
    /// A message came on a reliable interface, and no receive descriptor was there: the receiver's fault.
    #[error("a message found no receive descriptor")]
    NoDescriptor,
    /// A message came on a reliable interface that was longer than the receive descriptor.
    #[error("a message was longer than the receive descriptor")]
    TooLong,
    /// The receive descriptor's memory could not be used.
    #[error("a message found a receive descriptor whose memory cannot be used")]
    Memory,
    /// We closed it.
    #[error("it was disconnected here")]
    Disconnected,
    /// The channel ended.
    #[error("{0}")]
    Ended(Cause),
    /// The peer sent what no interface sends. It is cut off.
    #[error("the peer broke a rule: {0}")]
    Breach(&'static str),
}
