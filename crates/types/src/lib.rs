//! Ids, epochs, versions and names of mechanisms that every part of Comb shares. No dependencies; no allocation but in the frame of fuzz tests.
//!
//! Each number has its own type, because a channel's index passed where an endpoint's is meant is a fault that no
//! checksum finds.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(feature = "std")]
extern crate std;

mod dice;
#[cfg(feature = "std")]
pub mod fuzz;
mod ids;
pub mod mechanism;
mod time;
mod version;

pub use dice::Dice;
pub use ids::{CellId, ChannelId, EndpointId, Epoch, Incarnation, NodeId, WindowId};
pub use mechanism::Mechanism;
pub use time::*;
pub use version::{Version, VersionError};
