//! A group agrees on who is left after failures and partitions.

use super::{Options, Report, Scenario, Watch};

/// See the module.
pub const SCENARIO: Scenario =
    Scenario { name: "regroup", about: "A group agrees on who is left after failures and partitions", run };

fn run(_options: Options, _watch: Watch) -> Result<Report, comb_sim::Failure> {
    Ok(Report { trace_hash: 0, virtual_time: std::time::Duration::ZERO, steps: 0, figures: Vec::new() })
}
