#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod actor;
pub mod channel;
mod checker;
mod clock;
mod disk;
mod fault;
pub mod linearizable;
mod log;
mod network;
pub mod scenario;
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
