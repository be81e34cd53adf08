//! The hosts of the comb: which there are, and what is done to them.

use std::process::ExitCode;

use comb_cell::clock::span;
use comb_host::RuntimeDirectory;
use comb_host::control::{CellCondition, Reply, Request, Status};
use comb_host::federation::words::CellState;
use comb_host::federation::{self, HostCondition, HostStatus, shell};
use comb_host::state_directory::StateDirectory;
use comb_region::launch;
use serde::Serialize;
use serde_json::json;

use crate::config::Config;
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::{agent, ps, table};

/// This host: its agent, its policy, its cells, and what it knows of others, all of one moment.
#[derive(Debug, Serialize)]
struct Here<'a> {
    host: &'a str,
    #[serde(flatten)]
    status: &'a Status,
}

/// Another one, as it said last.
#[derive(Debug, Serialize)]
struct There<'a> {
    host: &'a str,
    #[serde(flatten)]
    status: &'a HostStatus,
}

pub(super) fn list(output: Output, config: &Config) -> Outcome {
    let directory = RuntimeDirectory::from_environment()?;
    let status = agent::status(&directory)?;
    let machine = || rustix::system::uname().nodename().to_string_lossy().into_owned();
    let own = status.hosts.iter().find(|host| host.condition == HostCondition::Here);
    let host = own.map(|own| own.name.clone()).or_else(|| config.hosts.name.clone()).unwrap_or_else(machine);
    let mut hosts = vec![serde_json::to_value(Here { host: &host, status: &status })?];
    for other in status.hosts.iter().filter(|other| other.condition != HostCondition::Here) {
        hosts.push(serde_json::to_value(There { host: &other.name, status: other })?);
    }
    output.show(&hosts, || {
        if status.hosts.len() > 1 { all(&status.hosts, output) } else { alone(&host, &status) }
    })?;
    Ok(ExitCode::SUCCESS)
}

fn alone(host: &str, status: &Status) -> String {
    let heading = ["HOST", "AGENT", "CELLS", "UPTIME", "CPU", "MEMORY", "WAX", "DIRECTORY"];
    let up = status.cells.iter().filter(|cell| cell.state == CellCondition::Up).count();
    let agent = &status.agent;
    let row = vec![
        host.to_owned(),
        agent.pid.to_string(),
        format!("{up} of {} up", status.cells.len()),
        ps::millis(agent.uptime_ms),
        ps::cpu(agent.cpu_ms),
        table::bytes(agent.memory_bytes),
        status.wax.as_ref().map_or_else(|| "-".to_owned(), |wax| wax.pid.to_string()),
        agent.directory.clone(),
    ];
    table::format(&[heading.map(String::from).to_vec(), row])
}

fn all(hosts: &[HostStatus], output: Output) -> String {
    const STATE: usize = 2;
    let heading = ["HOST", "ADDRESS", "STATE", "SINCE", "CELLS", "UP", "KEY"];
    let mut rows = vec![heading.map(String::from).to_vec()];
    rows.extend(hosts.iter().map(|host| {
        let is_seen = matches!(host.condition, HostCondition::Here | HostCondition::Up);
        let up = host.cells.iter().filter(|cell| cell.state == CellState::Up).count();
        let last = host.first + host.count - 1;
        let key = host.fingerprint.strip_prefix("ed25519:").unwrap_or(&host.fingerprint);
        vec![
            host.name.clone(),
            host.address.clone(),
            host.condition.to_string(),
            span(host.for_ms.saturating_mul(1_000_000)),
            if host.count == 1 { host.first.to_string() } else { format!("{}-{last}", host.first) },
            if is_seen { up.to_string() } else { "-".to_owned() },
            key.get(..16).unwrap_or(key).to_owned(),
        ]
    }));
    let troubles =
        hosts.iter().filter_map(|host| Some(format!("{}: {}\n", host.name, host.trouble.as_ref()?)));
    let colour = |column, text: &str| table::state_colour(text).filter(|_| column == STATE);
    table::painted(&rows, output, colour) + &troubles.collect::<String>()
}

/// What `comb run` has for a shell where its hosts are those of this comb.
pub(super) fn run_there(name: &str, words: &[String]) -> Outcome {
    if words.last().is_none_or(|word| word != shell::PART) {
        let text = format!("an agent starts parts of tasks, `comb {}`, and nothing else", shell::PART);
        return Err(Failure::usage(text));
    }
    let status = shell::run(&StateDirectory::from_environment(), name).map_err(Failure::new)?;
    Ok(ExitCode::from(u8::try_from(status).unwrap_or(u8::MAX)))
}

/// The shell and the addresses of hosts that are all of this comb, where nothing else was said.
pub(crate) fn within_comb(hosts: &[launch::Host], shell: &str) -> Option<(Vec<launch::Host>, String)> {
    if shell != launch::DEFAULT_SHELL || hosts.is_empty() {
        return None;
    }
    let saved = federation::saved(&StateDirectory::from_environment()).ok()??;
    let own = std::env::current_exe().ok()?;
    let of = |host: &launch::Host| {
        let member = saved.members.iter().find(|member| member.name == host.name)?;
        Some(launch::Host { address: host.address.or(Some(member.address.ip())), ..host.clone() })
    };
    let hosts: Option<Vec<launch::Host>> = hosts.iter().map(of).collect();
    Some((hosts?, format!("{} host shell {{host}} --", own.to_str()?)))
}

pub(super) fn remove(name: &str, output: Output) -> Outcome {
    let directory = RuntimeDirectory::from_environment()?;
    match agent::ask(&directory, &Request::RemoveHost { name: name.to_owned() })? {
        Reply::HostRemoved { told } => {
            let others =
                if told == 1 { "1 other host was".to_owned() } else { format!("{told} other hosts were") };
            let text = format!("host {name} is out, and its key is not accepted any more; {others} told");
            output.tell(&json!({ "host": name, "told": told }), text)?;
            Ok(ExitCode::SUCCESS)
        }
        _ => Err(agent::unexpected()),
    }
}

pub(super) fn rotate_key(force: bool, output: Output) -> Outcome {
    let directory = RuntimeDirectory::from_environment()?;
    match agent::ask(&directory, &Request::RotateKey { force })? {
        Reply::KeyRotated { fingerprint, told, missed } => {
            let mut text =
                format!("this host's key is {fingerprint} from now on; known to {told} other hosts");
            if !missed.is_empty() {
                text += &format!(
                    "\nnot to {}: each has to put this host out (`comb host rm`) and let it in anew",
                    missed.join(", ")
                );
            }
            output.tell(&json!({ "fingerprint": fingerprint, "told": told, "missed": missed }), text)?;
            Ok(ExitCode::SUCCESS)
        }
        _ => Err(agent::unexpected()),
    }
}
