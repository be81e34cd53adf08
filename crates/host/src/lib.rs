//! The agent of a host: starts cells, introduces them to each other, notices their ends at once, kills.
//!
//! [`daemon`] is the process, [`control`] what `comb` commands ask of it, [`RuntimeDirectory`] where it is
//! found, [`federation`] the other hosts of the comb, [`keeping`] holds second references for the cells' homes, [`remains`] what a dead agent leaves and how it is cleared, [`process`], [`cgroup`] and
//! [`signals`] the system's side.

mod backing;
mod cell;
pub mod cgroup;
pub mod control;
pub mod daemon;
pub mod dashboard;
pub mod events;
pub mod federation;
mod held;
pub mod keeping;
mod marks;
mod notify;
pub mod observations;
pub mod process;
pub mod remains;
pub mod signals;
pub mod state;
pub mod state_directory;
pub mod tasks;
pub mod timeline;
mod waits;
mod waxing;

pub use comb_net::agent::comb_name::{BadName, CombName};
pub use comb_net::agent::runtime_directory::{DirectoryError, RuntimeDirectory};

/// The most cells on one host: a channel between every two of them is 2016 channels.
pub const MOST_CELLS: u32 = 64;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
