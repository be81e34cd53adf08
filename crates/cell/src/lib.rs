//! A cell's supervisor: the process that acts for the cell.
//!
//! It connects to its host's agent as `cell-N`, has one endpoint, `wire`, and a channel to every other cell of the
//! host: it opens to the lower numbers and is opened to by the higher. On each it keeps a heartbeat going. When a
//! channel ends it says which cell is gone, why, and how long after the kill it noticed. Between messages it sleeps.
//!
//! [`shown`] is what it lets all others read of it, [`hints`] what it is told from outside how to use what it has; it need not listen.
//!
//! [`supervision`] is what a cell and its agent say to each other, [`supervisor`] is the process, [`notice`] measures,
//! [`journal`] writes lines to the log, [`clock`] reads the clock that all processes of a host share, [`faults`] makes a cell fail as it is told.

pub mod calls;
pub mod clock;
mod containing;
pub mod faults;
mod heartbeat;
pub mod heeding;
pub mod hints;
pub mod journal;
pub mod links;
mod missed;
pub mod notice;
pub mod procedures;
pub mod shown;
pub mod superior;
pub mod supervision;
pub mod supervisor;
pub mod watch;

pub use supervisor::{Beginning, CellOptions, SupervisorError, run};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
