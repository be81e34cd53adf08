//! A replica of our service, which is the one of `comb-group`'s example, in a process of its own.

use std::io::Read;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use comb_group::GroupOptions;
use comb_membership::regroup::Timing;
use serde::{Deserialize, Serialize};

use super::REPLICAS;
use crate::group_side::{host_name, names};

#[path = "../../../group/examples/kv.rs"]
#[expect(dead_code, reason = "its `main` is not called here")]
mod kv;

/// What a replica is told.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Told {
    pub(super) own: u32,
    /// Each has a host of its own, or all have one.
    pub(super) is_on_host: bool,
    /// The group is there already.
    pub(super) is_back: bool,
    /// Where clients come.
    pub(super) listen: IpAddr,
    /// How often it asks the others whether they are there. All other times are in proportion.
    pub(super) ping_ms: u64,
}

impl Told {
    /// The example's, but for where the others are, and for how often they are asked.
    fn options(self) -> GroupOptions {
        let count = u32::try_from(REPLICAS).expect("few");
        let names = if self.is_on_host { names(self.own, count, count) } else { names(self.own, 1, 1) };
        let mut options = GroupOptions { names, ..kv::options() };
        let config = &mut options.config;
        let ping = Duration::from_millis(self.ping_ms);
        let share = ping.div_duration_f64(config.watching.ping);
        let Timing { resend, activate, patience } = config.regroup;
        let [resend, activate, patience] = [resend, activate, patience].map(|time| time.mul_f64(share));
        (config.watching.ping, config.regroup) = (ping, Timing { resend, activate, patience });
        options
    }
}

/// Runs a replica until it is killed.
pub(crate) fn run(room: &Path, told: &str) -> Result<(), Box<dyn std::error::Error>> {
    let told: Told = serde_json::from_str(told)?;
    // It does not outlive who started it.
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    let agent = if told.is_on_host { host_name(told.own) } else { "agent".to_owned() };
    let arguments = [
        room.join(agent).to_str().ok_or("a room whose name is no text")?.to_owned(),
        told.own.to_string(),
        REPLICAS.to_string(),
        SocketAddr::new(told.listen, 0).to_string(),
        if told.is_back { "join" } else { "new" }.to_owned(),
    ];
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(kv::replica(&arguments, told.options()))
}

/// Runs a replica of the example as it is, for ever, with its arguments: `AGENT NUMBER COUNT ADDRESS new|join`.
pub fn run_plainly(arguments: &[String]) -> Result<(), Box<dyn std::error::Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(kv::replica(arguments, kv::options()))
}

/// What a replica says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Said {
    Serves(SocketAddr),
    /// The epoch of its view, and the members.
    View(u64, Vec<u64>),
    /// The group has gone on without it.
    Out,
}

/// None for what says nothing that has to be known here.
pub(super) fn said(line: &str) -> Option<Said> {
    if let Some((_, address)) = line.split_once(" serves ") {
        return Some(Said::Serves(address.parse().ok()?));
    }
    if let Some(view) = line.strip_prefix("view ") {
        let (epoch, members) = view.split_once(": ")?;
        return Some(Said::View(epoch.parse().ok()?, serde_json::from_str(members).ok()?));
    }
    line.starts_with("the group has gone on without").then_some(Said::Out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_replica_says_is_understood() {
        let address = "127.0.0.1:7400".parse().expect("an address");
        assert_eq!(said("replica 0 serves 127.0.0.1:7400"), Some(Said::Serves(address)));
        assert_eq!(said("view 17: [0, 2]"), Some(Said::View(17, vec![0, 2])));
        let out = "the group has gone on without this replica, which comes in again";
        assert_eq!(said(out), Some(Said::Out));
        assert_eq!(said("view of the sea"), None);
    }
}
