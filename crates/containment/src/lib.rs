//! What keeps a failure in its cell: hints become verdicts, the living recover between two barriers, and books say what the dead could
//! have damaged.
//!
//! | module | question | paper |
//! |---|---|---|
//! | [`alerts`] | has a cell failed, or does one say so that lies? | Hive §4.3 |
//! | [`recovery`] | when is everything cut off, discarded, and safe again? | Hive §4.3 |
//! | [`rights`] | who may store to which pages? | Hive §4.2 |
//! | [`frames`] | whose page frames does a cell use, and who uses its own? | Hive §5.4 |
//! | [`tree`] | which ancestor stored a page, wherever it lives? | Hive §5.3 |
//! | [`generations`] | has an object lost something since it was opened? | Hive §4.2 |
//! | [`dependencies`] | with which cells does a task die? | Hive §2, §5.6 |
//!
//! There is no clock, no thread, no socket and no memory here: the same machines run in cells, in simulations and in model checks.
#![cfg_attr(not(feature = "scenarios"), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod alerts;
pub mod dependencies;
#[cfg(test)]
#[path = "../../membership/src/exhaustive.rs"]
mod exhaustive;
pub mod frames;
pub mod generations;
pub mod recovery;
pub mod rights;
#[cfg(feature = "scenarios")]
pub mod scenario;
mod transmit;
pub mod tree;

pub use alerts::Alerts;
pub use comb_types::{CellId, Incarnation, Time};
pub use dependencies::{Dependencies, Reason};
pub use frames::{Frame, FrameTable};
pub use generations::{Generations, Opened, Stale};
pub use recovery::Recovery;
pub use rights::Rights;
pub use transmit::To;

// The README's example runs as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
