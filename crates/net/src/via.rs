//! Virtual interfaces: VIA's pairs of work queues, over one endpoint. (Thesis §3.3.6, §3.4)
//!
//! A virtual interface is a send queue and a receive queue of descriptors. A descriptor names spans of registered
//! memory, from which a message is gathered or over which it is scattered. Posting one only begins the work; that it
//! is done shows in the descriptor, which is then taken from the head of its queue, or learnt from a completion queue
//! that many interfaces share. So a thread never gives up control to complete an operation (§3.4.1).
//!
//! ```text
//!   post ─▶ send queue ──┐                        ┌── receive queue ◀─ post
//!                        ├── channel ── channel ──┤
//!   take ◀─ completed ───┘                        └──── completed ─▶ take
//! ```
//!
//! Two places differ from a network interface in hardware. Nothing moves by itself: work is done in
//! [`Interfaces::progress`] and whatever waits. And memory for RDMA is a [`crate::Window`], made for the interface's
//! one peer: protection is the MMU's, and neither an RDMA write nor an RDMA read needs the peer to do anything. Between
//! hosts there are no windows, and so no RDMA.
//!
//! An interface is there until it is removed, with or without a connection; so are registrations and completion queues.
//! What is removed needs no room any more. A completion queue cannot overflow: see [`Interfaces::new_queue`].
//!
//! A message is copied twice on its way: out of registered memory into the channel, and out of the channel into the
//! registered memory of the descriptor that takes it.
//!
//! Reliability is agreed on when a pair is made; see [`Reliability`]. RDMA reads are refused on an unreliable
//! interface: their queue could fill up, and then requests would be lost (§3.4.4).

mod descriptor;
mod engine;
mod interface;
mod interfaces;
mod memory;
mod message;
mod mover;
mod places;
mod queue;

pub use descriptor::{Completion, Descriptor, Loss, Side, Span, WorkError, WorkId};
pub use interface::{InterfaceKey, InterfaceOptions, Reliability};
pub use interfaces::{Interfaces, PairError, SubmitError};
pub use memory::{MemoryError, MemoryHandle, Tag};
pub use queue::QueueKey;
