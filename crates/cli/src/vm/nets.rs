//! `comb vm nets`, and the hidden processes that serve disks and subnets.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Args;
use comb_vm::devices::{disk, switch};
use comb_vm::subnets::Subnets;
use serde_json::{Map, Value, json};

use crate::failure::Outcome;
use crate::output::Output;
use crate::table;

/// `comb vm-disk`.
#[derive(Debug, Args)]
pub(crate) struct VmDisk {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

impl VmDisk {
    pub(crate) fn run(self) -> ExitCode {
        disk::command::run(self.arguments.into_iter())
    }
}

/// `comb vm-switch`.
#[derive(Debug, Args)]
pub(crate) struct VmSwitch {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

impl VmSwitch {
    pub(crate) fn run(self) -> ExitCode {
        switch::command::run(self.arguments.into_iter())
    }
}

pub(super) fn list(subnets: &Subnets, output: Output) -> Outcome {
    let mut ports = Vec::new();
    for name in subnets.names() {
        // One that has just ended is not shown.
        let Ok(said) = subnets.ask(&name, "counters") else { continue };
        let Ok(counters) = serde_json::from_str::<Map<String, Value>>(&said) else { continue };
        ports.extend(counters.into_iter().map(|(port, counters)| (name.to_string(), port, counters)));
    }
    let objects: Vec<Value> = ports
        .iter()
        .map(|(subnet, port, counters)| json!({ "subnet": subnet, "port": port, "counters": counters }))
        .collect();
    output.show(&objects, || {
        if ports.is_empty() {
            return "there are no subnets: `comb vm run IMAGE --net SUBNET` begins one\n".to_owned();
        }
        let heading = ["SUBNET", "PORT", "SENT", "RECEIVED", "LOST", "REFUSED"];
        let mut rows = vec![heading.map(String::from).to_vec()];
        rows.extend(ports.iter().map(|(subnet, port, counters)| {
            let count = |name: &str| counters[name].as_u64().unwrap_or(0);
            let amount =
                |frames: &str, bytes: &str| format!("{} in {}", table::bytes(count(bytes)), count(frames));
            let refused = ["forged", "malformed", "excess", "damaged", "sent_away"].map(count);
            vec![
                subnet.clone(),
                port.clone(),
                amount("sent", "sent_bytes"),
                amount("received", "received_bytes"),
                count("lost").to_string(),
                refused.iter().sum::<u64>().to_string(),
            ]
        }));
        table::format(&rows)
    })?;
    Ok(ExitCode::SUCCESS)
}
