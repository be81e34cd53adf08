//! A seeded world for distributed protocols: many nodes in one thread, in virtual time, with a network, clocks and disks
//! that fail in every way that a test asks for.
//!
//! - An [`Actor`] is the program of a node: input and time in; messages and events out. What runs here runs on a real
//!   network too: the actor is a thin wrapper round the protocol.
//! - A [`World`] runs them. The same seed gives the same run, which [`World::trace_hash`] shows.
//! - A [`Fault`] is something that happens to nodes, links, clocks or disks, at a time that the test says or that
//!   [`Weather`] rolls.
//! - A [`Checker`] watches the events of all nodes, knows the truth about them, and says what must never be.
//!
//! The world knows no protocol.
#![forbid(unsafe_code)]

mod actor;
mod checker;
mod clock;
mod disk;
mod fault;
mod log;
mod network;
mod schedule;
mod trace;
mod truth;
mod world;

pub use actor::{Actor, Boot, Effects, Input};
pub use checker::{Checker, Failure};
pub use clock::Clock;
pub use disk::{Disk, DiskConditions, DiskError, Ticket};
pub use fault::{Fault, Weather};
pub use log::Line;
pub use network::{Link, Network};
pub use trace::Traffic;
pub use truth::{NodeTruth, Truth};
pub use world::World;

pub use comb_types::{Dice, NodeId, Time};
