//! `comb ps`: the cells and their agent.

use std::process::ExitCode;

use clap::Args;
use comb_cell::clock::span;
use comb_host::RuntimeDirectory;
use comb_host::control::{CellCondition, CellStatus, Status, WaxStatus};

use crate::failure::Outcome;
use crate::output::Output;
use crate::{agent, table};

#[derive(Debug, Args)]
pub(crate) struct Ps {}

impl Ps {
    #[expect(clippy::unused_self, reason = "like all commands")]
    pub(crate) fn run(self, output: Output) -> Outcome {
        let directory = RuntimeDirectory::from_environment()?;
        let status = agent::status(&directory)?;
        output.show(&status.cells, || text(&status, output))?;
        Ok(ExitCode::SUCCESS)
    }
}

fn text(status: &Status, output: Output) -> String {
    const STATE: usize = 2;
    let heading = ["CELL", "PID", "STATE", "CHANNELS", "UPTIME", "CPU", "MEMORY", "ROUND TRIPS", "SEEN"];
    let mut rows = vec![heading.map(String::from).to_vec()];
    let up = status.cells.iter().filter(|cell| cell.state == CellCondition::Up).count();
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
