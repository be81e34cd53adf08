//! `comb cell kill`, `comb cell start`, and the hidden `comb cell run`, which is a cell.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use comb_cell::clock::span;
use comb_cell::{Beginning, CellOptions, journal};
use comb_host::RuntimeDirectory;
use comb_host::control::{Killed, Reply, Request};

use crate::agent;
use crate::failure::Outcome;

#[derive(Debug, Args)]
pub(crate) struct Cell {
    #[command(subcommand)]
    command: CellCommand,
}

#[derive(Debug, Subcommand)]
enum CellCommand {
    /// Kill a cell, as a crash would, and see who notices
    Kill {
        /// Its number, as `comb ps` shows it
        #[arg(value_parser = number)]
        cell: u32,
        /// Leave it down, until `comb cell start`; else it is started again as soon as the others have recovered
        #[arg(long)]
        hold: bool,
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
    pub(crate) fn run(self) -> Outcome {
        let directory = RuntimeDirectory::from_environment()?;
        match self.command {
            CellCommand::Kill { cell, hold } => kill(&directory, cell, hold),
            CellCommand::Start { cell } => start(&directory, cell),
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

fn kill(directory: &RuntimeDirectory, cell: u32, hold: bool) -> Outcome {
    match agent::ask(directory, &Request::Kill { cell, hold })? {
        Reply::Killed(killed) => {
            println!("{}", sentence(&killed));
            let all = killed.noticed.len() >= killed.peers as usize;
            Ok(if all { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        _ => Err(agent::unexpected()),
    }
}

fn sentence(killed: &Killed) -> String {
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
    format!("cell {cell} (process {pid}) killed; {when}{went_on}")
}

fn start(directory: &RuntimeDirectory, cell: u32) -> Outcome {
    match agent::ask(directory, &Request::Start { cell })? {
        Reply::Started { pid, incarnation, channels, channels_expected, took_ns } => {
            let took = span(took_ns);
            println!(
                "cell {cell} is up again (process {pid}, incarnation {incarnation}); \
                 {channels} of {channels_expected} channels open after {took}"
            );
            Ok(if channels >= channels_expected { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        _ => Err(agent::unexpected()),
    }
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
        assert_eq!(sentence(&killed), "cell 2 (process 1234) killed; 3 of 3 peers noticed within 0.9 ms");
        killed.noticed.clear();
        assert!(sentence(&killed).ends_with("none of its 3 peers has noticed: see `comb log`"));
        killed.peers = 0;
        assert!(sentence(&killed).ends_with("it had no peers to notice"));
    }
}
