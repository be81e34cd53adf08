//! Coherence of memory that is shared at block grain: what each cell may do with each block, and how that changes.
//!
//! A [`Protocol`] decides, and acts through [`Tempest`], the paper's four mechanisms: active
//! messages, bulk transfer, memory management, and access control at block grain. (Blizzard §3)
//!
//! | module | question |
//! |---|---|
//! | [`tempest`] | what may a protocol do, and when is it called? |
//! | [`directory`] | who holds copies of a block, in a byte a block? |
//! | [`stache`] | how does one writer or many readers have a block, and everybody sees the same order? |
//! | [`release`] | how do many write a block at once, and everybody sees it who synchronises? |
//! | [`placement`] | where had a page better live? (Disco §4.2.3) |
//! | [`homes`] | where does a block live that has moved? |
//!
//! There is no clock, no thread, no socket and no memory here: the same machines run in cells, in simulations and in model checks.
#![cfg_attr(not(feature = "scenarios"), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod block;
pub mod cells;
mod diff;
pub mod directory;
#[cfg(test)]
#[path = "../../membership/src/exhaustive.rs"]
mod exhaustive;
pub mod homes;
#[cfg(test)]
mod litmus;
#[cfg(any(test, feature = "scenarios"))]
mod machine;
pub mod placement;
pub mod release;
#[cfg(feature = "scenarios")]
pub mod scenario;
#[cfg(test)]
mod scene;
pub mod stache;
pub mod tempest;

pub use block::{Access, Block};
pub use cells::Cells;
pub use comb_types::CellId;
pub use homes::{Home, Homes};
pub use tempest::{Content, Loss, Message, PeerError, Protocol, Tempest};
