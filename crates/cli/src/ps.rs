//! `comb ps`: the cells and their agent.

use std::process::ExitCode;

use clap::Args;
use comb_cell::clock::span;
use comb_host::RuntimeDirectory;
use comb_host::control::{CellCondition, CellStatus, Status, WaxStatus};
use comb_host::federation::words::{CellState, CellWord};
use comb_host::federation::{HostCondition, HostStatus};
use serde::Serialize;
use serde_json::{Value, json};

use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::{agent, table};

#[derive(Debug, Args)]
pub(crate) struct Ps {
    /// Those of all your combs
    #[arg(long)]
    all: bool,
}

impl Ps {
    pub(crate) fn run(self, output: Output) -> Outcome {
        if self.all {
            return all(output);
        }
        let directory = RuntimeDirectory::from_environment()?;
        let status = agent::status(&directory)?;
        output.show(&listed(&status)?, || text(&status, output))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// A cell, and which comb it is of.
#[derive(Debug, Serialize)]
struct Of<'a> {
    comb: Option<&'a str>,
    directory: &'a str,
    #[serde(flatten)]
    cell: &'a CellStatus,
}

/// All combs of this user. One whose agent is dead or stuck is told of, and hides no other.
fn all(output: Output) -> Outcome {
    const STATE: usize = 3;
    let mut rows = vec![[&["COMB"], &HEADING[..]].concat().into_iter().map(String::from).collect::<Vec<_>>()];
    let mut combs = Vec::new();
    for (name, directory) in RuntimeDirectory::all()? {
        match agent::status(&directory) {
            Ok(status) => combs.push((name.map(|name| name.to_string()), directory.to_string(), status)),
            Err(failure) => output.warn(failure),
        }
    }
    let mut cells = Vec::new();
    for (name, directory, status) in &combs {
        let up = up(status);
        let comb = name.as_deref().unwrap_or("-");
        rows.extend(status.cells.iter().map(|cell| [vec![comb.to_owned()], row(cell, up)].concat()));
        cells.extend(status.cells.iter().map(|cell| Of { comb: name.as_deref(), directory, cell }));
    }
    output.show(&cells, || match combs.len() {
        0 => "no comb is running: `comb up` starts one\n".to_owned(),
        _ => table::painted(&rows, output, |column, text| {
            table::state_colour(text).filter(|_| column == STATE)
        }),
    })?;
    Ok(ExitCode::SUCCESS)
}

const HEADING: [&str; 9] =
    ["CELL", "PID", "STATE", "CHANNELS", "UPTIME", "CPU", "MEMORY", "ROUND TRIPS", "SEEN"];

fn up(status: &Status) -> usize {
    status.cells.iter().filter(|cell| cell.state == CellCondition::Up).count()
}

fn text(status: &Status, output: Output) -> String {
    const STATE: usize = 2;
    if status.hosts.len() > 1 {
        return text_of_hosts(status, output);
    }
    let mut rows = vec![HEADING.map(String::from).to_vec()];
    let up = up(status);
    rows.extend(status.cells.iter().map(|cell| row(cell, up)));
    let agent = &status.agent;
    let ended = status.cells.iter().filter(|cell| matches!(cell.state, CellCondition::Ended(_))).count();
    let ended = if ended == 0 { String::new() } else { format!(", {ended} ended") };
    format!(
        "{}agent: process {}, up {}, CPU {}, memory {}; {up} cells up{ended}; {}\n",
        table::painted(&rows, output, |column, text| table::state_colour(text).filter(|_| column == STATE)),
        agent.pid,
        millis(agent.uptime_ms),
        cpu(agent.cpu_ms),
        table::bytes(agent.memory_bytes),
        agent.directory,
    ) + &status.wax.as_ref().map_or_else(|| "wax: does not run at this moment\n".to_owned(), wax)
}

/// All cells, by number: this host's with all that is known of them, those of other hosts as these said last.
fn listed(status: &Status) -> Result<Vec<Value>, Failure> {
    let is_here = |host: &&HostStatus| host.condition == HostCondition::Here;
    let own = status.hosts.iter().find(is_here).map(|host| host.name.as_str());
    let mut cells = Vec::new();
    for cell in &status.cells {
        let mut cell = serde_json::to_value(cell)?;
        if let Some(own) = own {
            cell["host"] = json!(own);
        }
        cells.push(cell);
    }
    for host in status.hosts.iter().filter(|host| !is_here(host)) {
        for cell in &host.cells {
            let mut cell = serde_json::to_value(cell)?;
            cell["host"] = json!(host.name);
            cell["host_condition"] = serde_json::to_value(host.condition)?;
            cells.push(cell);
        }
    }
    cells.sort_by_key(|cell| cell["cell"].as_u64());
    Ok(cells)
}

/// The cells of all hosts, as each said last of its own.
fn text_of_hosts(status: &Status, output: Output) -> String {
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
        table::painted(&rows, output, |column, text| table::state_colour(text).filter(|_| column == 3)),
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
pub(crate) fn cpu(count: u64) -> String {
    if count == 0 { "<10 ms".to_owned() } else { millis(count) }
}

/// A span given in milliseconds.
pub(crate) fn millis(count: u64) -> String {
    match count {
        0..1000 => format!("{count} ms"),
        _ => span(count.saturating_mul(1_000_000)),
    }
}
