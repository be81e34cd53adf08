//! News of every node reaches every node, and failures are seen.

use super::{Options, Report, Scenario, Watch};

/// See the module.
pub const SCENARIO: Scenario =
    Scenario { name: "gossip", about: "News of every node reaches every node, and failures are seen", run };

fn run(_options: Options, _watch: Watch) -> Result<Report, comb_sim::Failure> {
    Ok(Report { trace_hash: 0, virtual_time: std::time::Duration::ZERO, steps: 0, figures: Vec::new() })
}
