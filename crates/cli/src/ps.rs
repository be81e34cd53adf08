//! `comb ps`: the cells and their agent.

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use comb_cell::clock::span;
use comb_host::RuntimeDirectory;
use comb_host::control::{self, CellCondition, CellStatus, ControlError, Reply, Request, Status};
use comb_host::remains::{self, Found};

use crate::cell::unexpected;
use crate::failure::{Failure, Outcome};
use crate::table;

#[derive(Debug, Args)]
pub(crate) struct Ps {
    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
}

impl Ps {
    pub(crate) fn run(self) -> Outcome {
        let directory = RuntimeDirectory::from_environment()?;
        let status = status(&directory)?;
        let mut out = std::io::stdout().lock();
        if self.json {
            writeln!(out, "{}", serde_json::to_string_pretty(&status)?)?;
        } else {
            write!(out, "{}", text(&status))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Asks the agent. One that died and left its cells is said to have.
fn status(directory: &RuntimeDirectory) -> Result<Status, Failure> {
    match control::ask(directory, &Request::Status) {
        Ok(Reply::Status(status)) => Ok(status),
        Ok(other) => Err(unexpected(other)),
        Err(ControlError::NoAgent(_)) => Err(without_agent(directory)),
        Err(error) => Err(error.into()),
    }
}

/// Why there is nobody to ask.
pub(crate) fn without_agent(directory: &RuntimeDirectory) -> Failure {
    match remains::look(directory) {
        Ok(Found::Remains(Some(state))) => {
            let living = state.cells.iter().filter_map(|cell| cell.process?.open()).count();
            let pid = state.agent.pid;
            Failure::new(match living {
                0 => format!(
                    "the agent (process {pid}) in {directory} is dead: `comb down` clears what it left"
                ),
                _ => format!(
                    "the agent (process {pid}) in {directory} is dead; {living} of its cells still run. \
                     `comb host` takes them over, `comb down` ends them"
                ),
            })
        }
        Err(error) => error.into(),
        Ok(_) => ControlError::NoAgent(directory.to_string()).into(),
    }
}

fn text(status: &Status) -> String {
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
        millis(agent.cpu_ms),
        table::bytes(agent.memory_bytes),
        agent.directory,
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
        row.push(millis(cell.cpu_ms));
        row.push(table::bytes(cell.memory_bytes));
        row.push(cell.round_trips.to_string());
    }
    row.push(cell.seen_ms_ago.map_or_else(nothing, |ago| format!("{} ago", millis(ago))));
    row
}

/// A span given in milliseconds. The kernel counts processor time in steps of 10 ms: less is not shown as nothing.
fn millis(count: u64) -> String {
    match count {
        0..1000 => format!("{count} ms"),
        _ => span(count.saturating_mul(1_000_000)),
    }
}
