//! `comb cell`: what is seen of cells and done to them; and the hidden `comb cell run`, which is one.

mod changing;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use comb_cell::clock::span;
use comb_cell::{Beginning, CellOptions, journal};
use comb_host::RuntimeDirectory;
use comb_host::control::{CellCondition, Killed, Reply, Request};
use serde_json::json;

use crate::agent;
use crate::failure::{Failure, Kind, Outcome};
use crate::output::Output;
use crate::progress::Progress;

#[derive(Debug, Args)]
pub(crate) struct Cell {
    #[command(subcommand)]
    command: CellCommand,
}

#[derive(Debug, Subcommand)]
enum CellCommand {
    /// List the cells, with their memory and who may store to it
    #[command(visible_alias = "list")]
    Ls,
    /// Kill a cell, as a crash would, and see who notices
    Kill {
        /// Its number, as `comb ps` shows it
        #[arg(value_parser = number)]
        cell: u32,
        /// Leave it down, until `comb cell start`; else it is started again as soon as the others have recovered
        #[arg(long)]
        hold: bool,
    },
    /// Stop a cell, so that it hangs, and see how the others find that
    Hang {
        /// Its number, as `comb ps` shows it
        #[arg(value_parser = number)]
        cell: u32,
    },
    /// Give a cell no new tasks, and say what still depends on it
    Drain {
        /// Its number, as `comb ps` shows it
        #[arg(value_parser = number)]
        cell: u32,
        /// Give it tasks again
        #[arg(long, conflicts_with = "wait")]
        undo: bool,
        /// Wait until nothing depends on it, for so many seconds at most (exit status 6 if something still does)
        #[arg(long, value_name = "SECONDS", value_parser = crate::run::limit)]
        wait: Option<Duration>,
    },
    /// End cells in good order and start them anew, one at a time
    Restart {
        /// Their numbers, as `comb ps` shows them
        #[arg(value_parser = number, required_unless_present = "all")]
        cells: Vec<u32>,
        /// All, one after the other: the next when the one before is back
        #[arg(long, conflicts_with = "cells")]
        all: bool,
        /// Before each, wait until nothing depends on it, for so many seconds at most; else what depends on it is lost
        #[arg(long, value_name = "SECONDS", value_parser = crate::run::limit)]
        wait: Option<Duration>,
        /// Save the regions that live in each before, in directories of their names there; its next life has them again
        #[arg(long, value_name = "DIR")]
        save: Option<PathBuf>,
    },
    /// Start more cells beside those that there are
    Add {
        /// How many
        #[arg(default_value_t = 1)]
        count: u32,
    },
    /// Start a cell that has ended, under its old name
    Start {
        /// Its number, as `comb ps` shows it
        #[arg(value_parser = number)]
        cell: u32,
    },
    #[command(hide = true)]
    Run {
        cell: u32,
        #[arg(long)]
        incarnation: u64,
        #[arg(long)]
        cgroup: Option<PathBuf>,
        #[arg(long, value_delimiter = ',')]
        together: Vec<u32>,
        #[arg(long, value_delimiter = ',')]
        coming_in_to: Vec<u32>,
        #[arg(long)]
        memory: Option<u64>,
        #[arg(long)]
        faults: bool,
        /// Cells of other hosts: NUMBER=HOST.
        #[arg(long, value_delimiter = ',', value_parser = elsewhere)]
        elsewhere: Vec<(u32, String)>,
    },
}

fn number(text: &str) -> Result<u32, &'static str> {
    text.parse().map_err(|_| "say a cell's number, such as 2: `comb ps` shows them")
}

fn elsewhere(text: &str) -> Result<(u32, String), String> {
    let (cell, host) = text.split_once('=').ok_or("NUMBER=HOST")?;
    Ok((cell.parse().map_err(|_| "NUMBER=HOST")?, host.to_owned()))
}

impl Cell {
    /// The agent starts cells, and nobody else does.
    pub(crate) fn is_part(&self) -> bool {
        matches!(self.command, CellCommand::Run { .. })
    }

    pub(crate) fn run(self, output: Output) -> Outcome {
        let directory = RuntimeDirectory::from_environment()?;
        match self.command {
            CellCommand::Kill { cell, hold } => kill(&directory, cell, hold, output),
            CellCommand::Start { cell } => start(&directory, cell, output),
            CellCommand::Ls => changing::list(&directory, output),
            CellCommand::Hang { cell } => changing::hang(&directory, cell, output),
            CellCommand::Drain { cell, undo, wait } => changing::drain(&directory, cell, undo, wait, output),
            CellCommand::Restart { cells, all, wait, save } => {
                let cells = if all { None } else { Some(cells) };
                changing::restart(&directory, cells, changing::Before { wait, save }, output)
            }
            CellCommand::Add { count } => changing::add(&directory, count, output),
            CellCommand::Run {
                cell,
                incarnation,
                cgroup,
                together,
                coming_in_to,
                memory,
                faults,
                elsewhere,
            } => {
                let beginning = if coming_in_to.is_empty() {
                    Beginning::Together(together)
                } else {
                    Beginning::ComingIn(coming_in_to)
                };
                let options = CellOptions {
                    number: cell,
                    incarnation,
                    agent_socket: directory.agent_socket(),
                    cells_socket: directory.cells_socket(),
                    cgroup,
                    beginning,
                    most_bytes: memory,
                    faults,
                    elsewhere: elsewhere.into_iter().collect(),
                };
                if let Err(error) = comb_cell::run(options) {
                    // Its stderr is the log.
                    journal::write(&format!("cell {cell}"), error);
                    return Ok(ExitCode::FAILURE);
                }
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}

fn kill(directory: &RuntimeDirectory, cell: u32, hold: bool, output: Output) -> Outcome {
    agent::check_cells(directory, &[cell])?;
    match agent::ask(directory, &Request::Kill { cell, hold })? {
        Reply::Killed(killed) => {
            output.tell(&killed, sentence(&killed, "killed"))?;
            let all = killed.noticed.len() >= killed.peers as usize;
            Ok(if all { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        _ => Err(agent::unexpected()),
    }
}

pub(crate) fn sentence(killed: &Killed, what: &str) -> String {
    let Killed { cell, pid, peers, noticed, recovered } = killed;
    let peer = if *peers == 1 { "peer" } else { "peers" };
    let when = match noticed.last() {
        Some((_, slowest)) => {
            format!("{} of {peers} {peer} noticed within {}", noticed.len(), span(*slowest))
        }
        None if *peers == 0 => "it had no peers to notice".to_owned(),
        None => format!("none of its {peers} {peer} has noticed: see `comb log`"),
    };
    let went_on = match recovered.last() {
        Some(slowest) => {
            let pages: u64 = recovered.iter().map(|known| known.discarded_pages).sum();
            let pages = if pages == 1 { "1 page".to_owned() } else { format!("{pages} pages") };
            format!("; at work again after {}, {pages} discarded", span(slowest.resumed_ns))
        }
        None => String::new(),
    };
    format!("cell {cell} (process {pid}) {what}; {when}{went_on}")
}

fn start(directory: &RuntimeDirectory, cell: u32, output: Output) -> Outcome {
    agent::check_cells(directory, &[cell])?;
    let is_up = |status: &comb_host::control::CellStatus| {
        status.cell == cell && !matches!(status.state, CellCondition::Ended(_))
    };
    // Whoever asks for what is so is refused; what cannot be done of what is not so has failed.
    let kind = if agent::status(directory)?.cells.iter().any(is_up) { Kind::Refused } else { Kind::Failed };
    let progress = Progress::begin(output, format!("starting cell {cell}"));
    let answer = agent::ask(directory, &Request::Start { cell });
    drop(progress);
    let refused = |failure: Failure| match failure.kind() {
        Kind::Refused => failure.into_kind(kind),
        _ => failure,
    };
    tell_started(cell, &answer.map_err(refused)?, output)
}

/// That a cell is up again. It has failed if not all channels are there.
fn tell_started(cell: u32, reply: &Reply, output: Output) -> Outcome {
    let Reply::Started { pid, incarnation, channels, channels_expected, took_ns } = reply else {
        return Err(agent::unexpected());
    };
    let object = json!({
        "cell": cell,
        "pid": pid,
        "incarnation": incarnation,
        "channels": channels,
        "channels_expected": channels_expected,
        "took_ns": took_ns,
    });
    let took = span(*took_ns);
    let text = format!(
        "cell {cell} is up again (process {pid}, incarnation {incarnation}); \
         {channels} of {channels_expected} channels open after {took}"
    );
    output.tell(&object, text)?;
    Ok(if channels >= channels_expected { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kill_is_told_with_the_slowest_peer() {
        let mut killed = Killed {
            cell: 2,
            pid: 1234,
            peers: 3,
            noticed: vec![(1, 400_000), (4, 450_000), (3, 900_000)],
            recovered: Vec::new(),
        };
        assert_eq!(
            sentence(&killed, "killed"),
            "cell 2 (process 1234) killed; 3 of 3 peers noticed within 0.9 ms"
        );
        killed.noticed.clear();
        assert!(sentence(&killed, "killed").ends_with("none of its 3 peers has noticed: see `comb log`"));
        killed.peers = 0;
        assert!(sentence(&killed, "killed").ends_with("it had no peers to notice"));
    }
}
