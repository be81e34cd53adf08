//! Random C programs that have one outcome, whatever the interleaving of their threads, and no undefined behaviour.
//!
//! A compiler that instruments loads and stores is tested with them: built by it and by another compiler, at any
//! optimisation, on one machine or several, a program prints the same lines. The same seed gives the same program.
//!
//! A program is a handful of `pieces`, each with memory of its own, and phases with a barrier between them. In one phase a
//! piece is either written, each thread what it owns, or read by everybody; or it is changed in ways that commute. What a
//! thread reads goes into its hash, and what it writes comes from its hash: a wrong byte anywhere spreads to the end.

mod assembly;
mod expression;
mod flavour;
mod piece;
mod pieces;
mod world;

pub use assembly::program;
pub use world::Calls;
