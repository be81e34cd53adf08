//! Wax: sees what all cells show, and hints how resources could be used better. (Hive §3.2)
//!
//! | module | question |
//! |---|---|
//! | [`mod@decide`] | what is to be hinted, of all that is seen? |
//! | [`looking`] | what is seen? |
//! | [`wax`] | how does a program become the policy of an agent's cells, and go on? |
//! | [`moving`] | which machine is to have how much memory, of all that guests say? |
//! | [`mover`] | who asks them, and tells their monitors? |
//!
//! What hints are, and who follows which how far, is in [`comb_cell::hints`] and [`comb_cell::heeding`].

pub mod decide;
pub mod looking;
pub mod mover;
pub mod moving;
pub mod wax;

pub use self::decide::{CellState, Picture, TaskState, decide};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
