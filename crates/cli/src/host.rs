//! `comb host`: the agent, and the hosts of the comb.

mod hosts;

use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use comb_host::control::{CellCondition, CellStatus, Reply, Request};
use comb_host::dashboard::Wanted;
use comb_host::events::{Following, What};
use comb_host::{MOST_CELLS, RuntimeDirectory, daemon};
use comb_net::agent::Limits;
use serde_json::json;

use crate::config::Config;
use crate::dashboard::Listen;
use crate::failure::{Failure, Kind, Outcome};
use crate::output::Output;
use crate::{agent, down};

pub(crate) use self::hosts::within_comb;

/// Another program begins within milliseconds.
const SUCCESSION_LIMIT: Duration = Duration::from_secs(10);

/// What the agent writes to standard output when it can be asked.
pub(crate) const READY: &str = "ready";

/// The agent, or what there is to see of hosts
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Host {
    #[command(subcommand)]
    command: Option<HostCommand>,
    #[command(flatten)]
    agent: Agent,
}

#[derive(Debug, Subcommand)]
enum HostCommand {
    /// List the hosts, their agents and policies
    #[command(visible_alias = "list")]
    Ls,
    /// Have the agent become this very comb, such as a newer one that was just installed; its cells live on
    Restart,
    /// Put a host out that is gone for good, or not to be trusted
    Rm {
        /// Its name, as `comb host ls` shows it
        name: String,
    },
    /// Have this host prove itself by a new key
    RotateKey {
        /// Though hosts that are away do not hear of it, and have to be joined anew
        #[arg(long)]
        force: bool,
    },
    #[command(hide = true)]
    Shell {
        /// Where.
        name: String,
        /// What: a part of a task, and nothing else.
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
    /// Be the agent: `comb up` runs it; by hand it takes over the cells of an agent that died
    Run(Agent),
}

impl Host {
    pub(crate) fn run(self, output: Output, config: &Config) -> Outcome {
        match self.command {
            Some(HostCommand::Ls) => hosts::list(output, config),
            Some(HostCommand::Rm { name }) => hosts::remove(&name, output),
            Some(HostCommand::RotateKey { force }) => hosts::rotate_key(force, output),
            Some(HostCommand::Shell { name, words }) => hosts::run_there(&name, &words),
            Some(HostCommand::Restart) => restart(output),
            Some(HostCommand::Run(agent)) => agent.run(config),
            None => self.agent.run(config),
        }
    }
}

/// Until the next agent is at work.
fn restart(output: Output) -> Outcome {
    let directory = RuntimeDirectory::from_environment()?;
    let before = agent::status(&directory)?;
    // By its path: a program that was replaced is not the one that is to come.
    let program = std::env::current_exe()?;
    let path = program.to_string_lossy();
    let program = path.strip_suffix(" (deleted)").map_or_else(|| program.clone(), std::path::PathBuf::from);
    let began = Instant::now();
    let mut following = Following::of(&directory);
    while following.next_event().is_some() {}
    let Reply::Done = agent::ask(&directory, &Request::Succeed { program })? else {
        return Err(agent::unexpected());
    };
    loop {
        while let Some(event) = following.next_event() {
            match event.what {
                What::AgentBegan { took_over: true, .. } => {
                    let after = agent::status(&directory)?;
                    let lives = |cell: &&CellStatus| !matches!(cell.state, CellCondition::Ended(_));
                    let up = after.cells.iter().filter(lives).count();
                    let took_ns = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
                    let object =
                        json!({ "agent": after.agent.pid, "cells": after.cells.len(), "took_ns": took_ns });
                    let took = comb_cell::clock::span(took_ns);
                    let cells = down::cells(u32::try_from(up).unwrap_or(u32::MAX));
                    let pid = after.agent.pid;
                    output.tell(
                        &object,
                        format!("the agent (process {pid}) has taken over {cells} after {took}"),
                    )?;
                    return Ok(ExitCode::SUCCESS);
                }
                What::Note if event.text.contains("cannot be the next agent") => {
                    return Err(Failure::new(event.text));
                }
                _ => {}
            }
        }
        if began.elapsed() > SUCCESSION_LIMIT {
            let pid = before.agent.pid;
            let text =
                format!("no agent has followed process {pid}: `comb log` says why, `comb host` starts one");
            return Err(Failure::of(Kind::NoAnswer, text));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Where things are to listen: as a flag says, or the configuration.
fn listening(dashboard: Option<Listen>, metrics: Option<Listen>, config: &Config) -> Wanted {
    let configured = Some(config.dashboard.listen).filter(|_| config.dashboard.enabled);
    Wanted {
        listen: dashboard.map_or(configured, |Listen(address)| address),
        metrics: metrics.map_or(config.metrics.listen, |Listen(address)| address),
    }
}

#[derive(Debug, Args)]
struct Agent {
    /// How many cells to start, if there are none to take over.
    #[arg(long, value_parser = clap::value_parser!(u32).range(0..=i64::from(MOST_CELLS)))]
    cells: Option<u32>,
    /// Take everything down when standard input ends.
    #[arg(long)]
    end_with_stdin: bool,
    /// What its processes may hold.
    #[arg(long)]
    limits: Option<Limits>,
    /// Bytes of page frames that each cell may have.
    #[arg(long)]
    memory: Option<u64>,
    /// Where the dashboard listens, or off.
    #[arg(long, value_parser = Listen::read)]
    dashboard: Option<Listen>,
    /// Where metrics are served besides, or off.
    #[arg(long, value_parser = Listen::read)]
    metrics: Option<Listen>,
    /// Have cells fail when they are told to.
    #[arg(long, hide = true)]
    faults: bool,
    /// Who may command besides this user and root.
    #[arg(long, default_value = "")]
    allow: String,
}

impl Agent {
    fn run(self, config: &Config) -> Outcome {
        let directory = RuntimeDirectory::from_environment()?;
        let Self { cells, end_with_stdin, limits, memory, dashboard, metrics, faults, allow } = self;
        let (cells, limits) = (cells.unwrap_or(config.cells), limits.unwrap_or(config.limits));
        let options = daemon::Options {
            directory,
            cells,
            end_with_stdin,
            limits,
            memory_bytes: memory.or(config.memory),
            faults,
            dashboard: listening(dashboard, metrics, config),
            allow: if allow.is_empty() { config.allowed().unwrap_or_default() } else { allow },
        };
        daemon::run(&options, || {
            // It may be gone by now; standard input tells of that.
            let _ = writeln!(std::io::stdout(), "{READY}");
            // Whoever waited for that word must not wait for more.
            if let Ok(nowhere) = std::fs::File::options().write(true).open("/dev/null") {
                let _ = rustix::stdio::dup2_stdout(nowhere);
            }
        })?;
        Ok(ExitCode::SUCCESS)
    }
}
