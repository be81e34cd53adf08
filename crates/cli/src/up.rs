//! `comb up`: starts the agent, which starts the cells; returns when all are connected.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use clap::Args;
use comb_cell::clock::span;
use comb_host::control::{self, Reply, Request};
use comb_host::dashboard::Place;
use comb_host::federation::{self, access::Access};
use comb_host::remains::{self, Found};
use comb_host::state_directory::StateDirectory;
use comb_host::{MOST_CELLS, RuntimeDirectory};
use comb_net::agent::Limits;
use comb_net::agent::policy::LimitsError;
use serde_json::json;

use crate::config::Config;
use crate::dashboard::Listen;
use crate::failure::{Failure, Kind, Outcome};
use crate::output::Output;
use crate::progress::Progress;
use crate::{agent, down, host, log};

/// What an agent needs to die, even on a busy machine.
const DYING_LIMIT: Duration = Duration::from_secs(3);

#[derive(Debug, Args)]
pub(crate) struct Up {
    /// How many cells to start (1 to 64) [default: 4]
    #[arg(long, short = 'n', value_name = "COUNT",
          value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_CELLS)))]
    cells: Option<u32>,
    /// Stay here and show the log; the cells end when this command does
    #[arg(long)]
    foreground: bool,
    /// What a process may hold at the agent, where that is not to be the default: KEY=NUMBER, separated by commas. Keys:
    /// endpoints, channels, memory_bytes, connections, connections_per_user
    #[arg(long, value_parser = known_limits)]
    limits: Option<String>,
    /// The most memory that each cell may have for regions, in bytes; K, M or G may follow [default: all that there is]
    #[arg(long, value_name = "BYTES", value_parser = crate::run::memory)]
    memory: Option<u64>,
    /// Where the dashboard listens; port 0 is any that is free; off: there is none [default: 127.0.0.1:0]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = Listen::read)]
    dashboard: Option<Listen>,
    /// Where metrics for Prometheus are served to whoever asks [default: nowhere; with a token they are at the dashboard's address]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = Listen::read)]
    metrics: Option<Listen>,
    /// Who may command these cells besides you and root: names or numbers of users, HOST:NUMBER for one of that host only, or `here`:
    /// of other hosts nobody but those who are listed with theirs
    #[arg(long, value_name = "USER,…", value_parser = known_access)]
    allow: Option<String>,
}

pub(crate) fn known_access(text: &str) -> Result<String, String> {
    Access::parse(text).map(|_| text.to_owned())
}

/// This host's comb goes on without it: cells of its own would have the same numbers.
fn refuse_if_a_member() -> Result<(), Failure> {
    let files = StateDirectory::from_environment();
    let Some(saved) = federation::saved(&files).map_err(Failure::new)? else { return Ok(()) };
    let others: Vec<&str> =
        saved.members.iter().map(|member| &*member.name).filter(|name| *name != saved.own).collect();
    Err(Failure::new(format!(
        "this host belongs to a comb with {}: `comb join` brings it back there, `comb leave` has it forget that ({files})",
        others.join(", ")
    )))
}

/// Read here already, so that a mistake is told before anything starts.
pub(crate) fn known_limits(text: &str) -> Result<String, LimitsError> {
    text.parse::<Limits>().map(|_| text.to_owned())
}

impl Up {
    pub(crate) fn run(self, output: Output, config: &Config) -> Outcome {
        let started = Instant::now();
        let directory = RuntimeDirectory::from_environment()?;
        loop {
            match remains::look(&directory)? {
                Found::Nothing => break,
                Found::Remains(_) => {
                    let cleared = down::describe(&remains::clear(&directory)?, &directory);
                    if output.is_json() {
                        output.warn(cleared);
                    } else {
                        writeln!(std::io::stdout(), "{cleared}")?;
                    }
                }
                Found::Agent => wait_unless_running(&directory, started)?,
            }
        }
        refuse_if_a_member()?;
        directory.create()?;
        let cells = self.cells.unwrap_or(config.cells);
        let progress = Progress::begin(output, format!("starting {}", down::cells(cells)));
        let mut process = self.start_agent(&directory, config)?;
        let answer = agent::ask(&directory, &Request::AwaitUp);
        drop(progress);
        match answer {
            Ok(Reply::Up { channels, agent_pid }) => {
                let took_ns = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
                let place = Place::find(&directory);
                let object = json!({
                    "cells": cells,
                    "channels": channels,
                    "took_ns": took_ns,
                    "agent": agent_pid,
                    "directory": directory.to_string(),
                    "dashboard": place.as_ref().map(|place| place.url(true)),
                });
                let page = place.map(|place| format!("dashboard: {}\n", place.url(true))).unwrap_or_default();
                let what_next = if self.foreground {
                    "Ctrl-C ends them"
                } else {
                    "`comb ps` shows them, `comb down` ends them"
                };
                let text = format!(
                    "{}\nagent: process {agent_pid}, in {directory}\n{page}{what_next}",
                    sentence(cells, channels, &span(took_ns))
                );
                output.tell(&object, text)?;
                if self.foreground {
                    show_log(&directory, output)?;
                    process.wait()?;
                }
                Ok(ExitCode::SUCCESS)
            }
            refused => {
                // Refused is here that a cell did not come up: nobody forbids to start cells.
                let failure = match refused.err().unwrap_or_else(agent::unexpected) {
                    failure if failure.kind() == Kind::Refused => failure.into_kind(Kind::Failed),
                    failure => failure,
                };
                let failure = with_last_words(&directory, &failure);
                // Half a set of cells is of no use to anybody.
                let _ = control::ask_within(&directory, &Request::Down, Duration::from_secs(15));
                Err(failure)
            }
        }
    }

    /// For an agent that is to have the cells of a comb with other hosts, or will hear which these are.
    pub(crate) fn for_joining(limits: Option<String>, memory: Option<u64>, allow: Option<String>) -> Self {
        let (dashboard, metrics) = (None, None);
        Self { cells: Some(0), foreground: false, limits, memory, dashboard, metrics, allow }
    }

    /// The agent, ready to be asked.
    pub(crate) fn start_agent(
        &self,
        directory: &RuntimeDirectory,
        config: &Config,
    ) -> Result<Child, Failure> {
        let mut command = Command::new("/proc/self/exe");
        let cells = self.cells.unwrap_or(config.cells);
        command.arg0("comb").args(["host", "run", "--cells", &cells.to_string()]);
        command.args(["--limits", &config.limits_with(self.limits.as_deref())]);
        if let Some(bytes) = self.memory.or(config.memory) {
            command.args(["--memory", &bytes.to_string()]);
        }
        let allow = self.allow.clone().or_else(|| config.allowed());
        if let Some(allow) = allow {
            command.args(["--allow", &allow]);
        }
        for (option, listen) in [("--dashboard", self.dashboard), ("--metrics", self.metrics)] {
            if let Some(listen) = listen {
                command.args([option, &listen.to_string()]);
            }
        }
        command.env("COMB_RUNTIME_DIR", directory.path()).stdin(Stdio::null());
        if self.foreground {
            // A pipe that ends with us, however we end.
            command.arg("--end-with-stdin").stdin(Stdio::piped());
        }
        let mut agent = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let mut word = String::new();
        let stdout = agent.stdout.take().expect("piped");
        BufReader::new(stdout).read_line(&mut word)?;
        if word.trim_end() == host::READY {
            return Ok(agent);
        }
        let mut why = String::new();
        agent.stderr.take().expect("piped").read_to_string(&mut why)?;
        let kind = Kind::of_code(agent.wait()?.code().unwrap_or(1));
        let why = why.trim().trim_start_matches("comb: ");
        let why = if why.is_empty() { "the agent did not start" } else { why };
        let failure = with_last_words(directory, &Failure::of(kind, why));
        if !matches!(remains::look(directory), Ok(Found::Agent)) {
            directory.remove()?;
        }
        Err(failure)
    }
}

fn sentence(cells: u32, channels: u32, took: &str) -> String {
    match (cells, channels) {
        (1, _) => format!("1 cell is up after {took}"),
        (2, _) => format!("2 cells are up, with a channel between them, after {took}"),
        _ => format!(
            "{cells} cells are up, each with a channel to each other ({channels} in all), after {took}"
        ),
    }
}

/// An agent that was killed just now still holds its lock, and answers no more.
fn wait_unless_running(directory: &RuntimeDirectory, started: Instant) -> Result<(), Failure> {
    let who = match agent::ask(directory, &Request::Status) {
        Ok(Reply::Status(status)) => {
            let cells = down::cells(u32::try_from(status.cells.len()).unwrap_or(u32::MAX));
            format!("an agent (process {}) with {cells}", status.agent.pid)
        }
        _ if started.elapsed() < DYING_LIMIT => {
            std::thread::sleep(Duration::from_millis(10));
            return Ok(());
        }
        _ => "an agent".to_owned(),
    };
    let text = format!(
        "{who} is running in {directory} already: `comb ps` shows it, `comb down` ends it; \
         `comb --name NAME up` starts another beside it"
    );
    Err(Failure::of(Kind::Refused, text))
}

/// A start that failed takes its log with it: what its last line has to say is said here.
pub(crate) fn with_last_words(directory: &RuntimeDirectory, failure: &Failure) -> Failure {
    let log = std::fs::read_to_string(directory.log_file()).unwrap_or_default();
    let text = failure.to_string().replace(": see `comb log`", "");
    let text = match last_words(&log) {
        Some(last) => format!("{text} (last in its log: {last})"),
        None => text,
    };
    Failure::of(failure.kind(), text)
}

/// A cell knows why it failed; its agent only knows that it did.
fn last_words(log: &str) -> Option<&str> {
    let mut lines = log.lines().rev().filter_map(|line| Some(line.split_once(' ')?.1));
    lines.clone().find(|line| !line.starts_with("agent: ")).or_else(|| lines.next())
}

fn show_log(directory: &RuntimeDirectory, output: Output) -> std::io::Result<()> {
    let mut out = std::io::stdout();
    out.flush()?;
    log::follow(&mut BufReader::new(File::open(directory.log_file())?), output, &mut out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_words_are_those_of_who_failed() {
        let log = "T agent: starts\nT cell 1: the name is taken\nT agent: cell 1 is gone: failed\n";
        assert_eq!(last_words(log), Some("cell 1: the name is taken"));
        assert_eq!(
            last_words("T agent: cell 1 cannot be started\n"),
            Some("agent: cell 1 cannot be started")
        );
        assert_eq!(last_words(""), None);
    }
}
