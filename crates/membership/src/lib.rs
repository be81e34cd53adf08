//! Who is up, and what was agreed: membership and ordered update, as pure state machines.
//!
//! | module | question | paper |
//! |---|---|---|
//! | [`state`] | what does every node say of itself? | Galaxy §8.5.1 |
//! | [`detect`] | who seems to have failed, and how sure is that? | Galaxy §8.5.1 |
//! | [`regroup`] | who belongs to the group now? | MSCS §7.7.2 |
//! | [`join`] | how does a node come in? | MSCS §7.7.1 |
//! | [`order`] | what was agreed, in which order? | MSCS §7.8 |
//! | [`multicast`] | how does a message reach thousands, almost certainly? | Galaxy §8.5.2 |
//! | [`circles`] | how do thousands of small groups live on one? | Galaxy §8.5, §8.8 |
//! | [`snapshot`] | how does a member get the state that it lacks? | |
//! | [`stack`] | how do views and ordered update make one member? | |
//! | [`mscs`] | what did the classic way cost? | MSCS, ch. 7 |
//!
//! Every machine is driven in one way: an input and the time go in by `handle`; messages, events and the next timeout come
//! out by `poll_transmit`, `poll_event` and `next_timeout`. There is no clock, no thread and no socket here, and no
//! randomness but from a [`comb_types::Dice`] that the driver seeds.
#![cfg_attr(not(feature = "scenarios"), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod circles;
pub mod detect;
#[cfg(test)]
mod exhaustive;
pub mod join;
pub mod mscs;
pub mod multicast;
pub mod order;
pub mod quorum;
pub mod regroup;
#[cfg(feature = "scenarios")]
pub mod scenario;
pub mod snapshot;
pub mod stack;
pub mod state;
mod transmit;
pub mod view;
pub mod wire;

pub use comb_types::{Dice, Incarnation, NodeId, Time};
pub use transmit::{Cast, To, Transmit};
pub use view::{Member, View, ViewEpoch};
pub use wire::PeerError;
