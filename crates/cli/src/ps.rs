//! `comb ps`: the cells and their agent.

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use comb_cell::clock::span;
use comb_host::RuntimeDirectory;
use comb_host::control::{CellCondition, CellStatus, Reply, Request, Status, WaxStatus};
use comb_host::federation::words::{CellState, CellWord};
use comb_host::federation::{HostCondition, HostStatus};

use crate::failure::Outcome;
use crate::{agent, table};

#[derive(Debug, Args)]
pub(crate) struct Ps {
    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
}

impl Ps {
    pub(crate) fn run(self) -> Outcome {
        let directory = RuntimeDirectory::from_environment()?;
        let Reply::Status(status) = agent::ask(&directory, &Request::Status)? else {
            return Err(agent::unexpected());
        };
        let mut out = std::io::stdout().lock();
        if self.json {
            writeln!(out, "{}", serde_json::to_string_pretty(&status)?)?;
        } else {
            write!(out, "{}", text(&status))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn text(status: &Status) -> String {
    if status.hosts.len() > 1 {
        return text_of_hosts(status);
    }
    let heading = ["CELL", "PID", "STATE", "CHANNELS", "UPTIME", "CPU", "MEMORY", "ROUND TRIPS", "SEEN"];
    let mut rows = vec![heading.map(String::from).to_vec()];
    let up = status.cells.iter().filter(|cell| cell.state == CellCondition::Up).count();
    rows.extend(status.cells.iter().map(|cell| row(cell, up)));
    let agent = &status.agent;
    let ended = status.cells.iter().filter(|cell| matches!(cell.state, CellCondition::Ended(_))).count();
    let ended = if ended == 0 { String::new() } else { format!(", {ended} ended") };
    format!(
        "{}agent: process {}, up {}, CPU {}, memory {}; {up} cells up{ended}; {}\n",
        table::format(&rows),
        agent.pid,
        millis(agent.uptime_ms),
        cpu(agent.cpu_ms),
        table::bytes(agent.memory_bytes),
        agent.directory,
    ) + &status.wax.as_ref().map_or_else(|| "wax: does not run at this moment\n".to_owned(), wax)
}

/// The cells of all hosts, as each said last of its own.
fn text_of_hosts(status: &Status) -> String {
    let heading = ["CELL", "HOST", "PID", "STATE", "CHANNELS", "UPTIME", "CPU", "MEMORY", "ROUND TRIPS"];
    let mut cells: Vec<(&HostStatus, &CellWord)> =
        status.hosts.iter().flat_map(|host| host.cells.iter().map(move |cell| (host, cell))).collect();
    cells.sort_by_key(|(_, cell)| cell.cell);
    let is_seen = |host: &HostStatus| matches!(host.condition, HostCondition::Here | HostCondition::Up);
    let is_up = |(host, cell): &&(&HostStatus, &CellWord)| is_seen(host) && cell.state == CellState::Up;
    let up = cells.iter().filter(is_up).count();
    let mut rows = vec![heading.map(String::from).to_vec()];
    rows.extend(cells.iter().map(|(host, cell)| {
        let mut row = vec![cell.cell.to_string(), host.name.clone(), cell.pid.to_string()];
        let state = match &cell.state {
            _ if !is_seen(host) => host.condition.to_string(),
            CellState::Up => "up".to_owned(),
            CellState::Starting => "starting".to_owned(),
            CellState::Waiting => "waits for other hosts".to_owned(),
            CellState::Ended(how) if how.starts_with("ended") => how.clone(),
            CellState::Ended(how) => format!("ended: {how}"),
        };
        row.push(state);
        if is_seen(host) && matches!(cell.state, CellState::Up | CellState::Starting) {
            row.push(format!("{} of {}", cell.channels, up.saturating_sub(1)));
            row.extend([millis(cell.uptime_ms), cpu(cell.cpu_ms), table::bytes(cell.memory_bytes)]);
            row.push(cell.round_trips.to_string());
        } else {
            row.extend((0..5).map(|_| "-".to_owned()));
        }
        row
    }));
    let agent = &status.agent;
    let hosts = status.hosts.len();
    let away: Vec<String> = status
        .hosts
        .iter()
        .filter(|host| !is_seen(host))
        .map(|host| format!("host {} is {} for {}\n", host.name, host.condition, millis(host.for_ms)))
        .collect();
    format!(
        "{}{}agent: process {}, up {}, CPU {}, memory {}; {up} cells up on {} of {hosts} hosts; {}\n",
        table::format(&rows),
        away.concat(),
        agent.pid,
        millis(agent.uptime_ms),
        cpu(agent.cpu_ms),
        table::bytes(agent.memory_bytes),
        hosts - away.len(),
        agent.directory,
    )
}

fn wax(wax: &WaxStatus) -> String {
    format!(
        "wax: process {}, incarnation {}, up {}, CPU {}, memory {}; {} decisions\n",
        wax.pid,
        wax.incarnation,
        millis(wax.uptime_ms),
        cpu(wax.cpu_ms),
        table::bytes(wax.memory_bytes),
        wax.decisions,
    )
}

fn row(cell: &CellStatus, up: usize) -> Vec<String> {
    let nothing = || "-".to_owned();
    let state = match &cell.state {
        CellCondition::Up => "up".to_owned(),
        CellCondition::Starting => "starting".to_owned(),
        CellCondition::Ended(how) if how.starts_with("ended") => how.clone(),
        CellCondition::Ended(how) => format!("ended: {how}"),
    };
    let mut row = vec![cell.cell.to_string(), cell.pid.to_string(), state];
    if matches!(cell.state, CellCondition::Ended(_)) {
        row.extend((0..5).map(|_| nothing()));
    } else {
        row.push(format!("{} of {}", cell.channels, up.saturating_sub(1)));
        row.push(millis(cell.uptime_ms));
        row.push(cpu(cell.cpu_ms));
        row.push(table::bytes(cell.memory_bytes));
        row.push(cell.round_trips.to_string());
    }
    row.push(cell.seen_ms_ago.map_or_else(nothing, |ago| format!("{} ago", millis(ago))));
    row
}

/// The kernel counts processor time in steps of 10 ms: less is not nothing.
fn cpu(count: u64) -> String {
    if count == 0 { "<10 ms".to_owned() } else { millis(count) }
}

/// A span given in milliseconds.
fn millis(count: u64) -> String {
    match count {
        0..1000 => format!("{count} ms"),
        _ => span(count.saturating_mul(1_000_000)),
    }
}
