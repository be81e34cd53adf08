//! The machines of this crate in the seeded world, for tests, for `cargo xtask sim` and for `comb sim`.

pub use comb_sim::scenario::{Options, Report, Scenario, Watch};
pub use comb_sim::{Failure, Line};

pub mod circles;
pub mod gossip;
pub mod group;
pub mod mscs;
mod one_order;
pub mod order;
pub mod regroup;

/// All there are.
pub const ALL: &[Scenario] = &[
    gossip::SCENARIO,
    regroup::SCENARIO,
    order::SCENARIO,
    group::SCENARIO,
    group::silence::SCENARIO,
    group::WITH_LOGS,
    circles::SCENARIO,
    mscs::SCENARIO,
];
