//! `comb down`: ends everything, whatever state it is in. Said twice, it does nothing the second time.

use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use comb_host::RuntimeDirectory;
use comb_host::control::{self, ControlError, Reply, Request};
use comb_host::process;
use comb_host::remains::{self, Cleared, Found};
use serde::Serialize;

use crate::agent::unexpected;
use crate::failure::{Failure, Kind, Outcome};
use crate::output::Output;
use crate::progress::Progress;

/// The agent kills cells that do not end within two seconds. One that takes longer itself is stuck.
const AGENT_LIMIT: Duration = Duration::from_secs(10);

/// What a killed agent needs to be gone, on all but the busiest machines.
const DYING_LIMIT: Duration = Duration::from_millis(500);

#[derive(Debug, Args)]
pub(crate) struct Down {
    /// Those of all your combs
    #[arg(long)]
    all: bool,
}

impl Down {
    pub(crate) fn run(self, output: Output) -> Outcome {
        if self.all {
            return end_all(output);
        }
        let directory = RuntimeDirectory::from_environment()?;
        let progress = Progress::begin(output, "ending the cells");
        let ended = end(&directory)?;
        drop(progress);
        ended.tell(&directory, output)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// What there was, and what became of it.
#[derive(Debug, Default, Serialize)]
struct Ended {
    directory: String,
    /// Which agent, if there was one.
    agent: Option<u32>,
    was: Was,
    /// Cells that ended as told.
    ended: u32,
    /// Cells that had to be killed.
    killed: u32,
    /// The directory is gone.
    removed: bool,
}

/// How the agent was.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Was {
    #[default]
    NotThere,
    Running,
    /// It had to be killed.
    Stuck,
    Dead,
}

impl Ended {
    fn tell(&self, directory: &RuntimeDirectory, output: Output) -> std::io::Result<()> {
        output.tell(self, self.sentence())?;
        if self.was == Was::Running && !self.removed && !output.is_json() {
            output.warn(format_args!("{directory} stays: it holds files that are not ours"));
        }
        Ok(())
    }

    fn sentence(&self) -> String {
        let Self { directory, ended, killed, .. } = self;
        match self.was {
            Was::NotThere => format!("nothing is running in {directory}"),
            Was::Running => {
                let killed = if *killed == 0 { String::new() } else { format!(" and killed {killed}") };
                format!("ended {}{killed}, and their agent", cells(*ended))
            }
            Was::Dead => describe_dead(self.agent, *killed, directory),
            Was::Stuck => {
                let after = describe_dead(self.agent, *killed, directory);
                format!("the agent in {directory} does not answer: killed it\n{after}")
            }
        }
    }

    fn cleared(cleared: &Cleared, directory: &RuntimeDirectory) -> Self {
        Self {
            directory: directory.to_string(),
            agent: cleared.agent_pid,
            was: Was::Dead,
            killed: u32::try_from(cleared.ended_cells).unwrap_or(u32::MAX),
            removed: !directory.path().exists(),
            ..Self::default()
        }
    }
}

/// All combs of this user. What keeps one from ending keeps no other.
fn end_all(output: Output) -> Outcome {
    let combs = RuntimeDirectory::all()?;
    let (mut all, mut failed) = (Vec::new(), None);
    for (_, directory) in &combs {
        match end(directory) {
            Ok(ended) if output.is_json() => all.push(ended),
            Ok(ended) => ended.tell(directory, output)?,
            Err(failure) => {
                output.warn(format_args!("{directory}: {failure}"));
                failed = Some(failure);
            }
        }
    }
    if output.is_json() {
        output.show(&all, String::new)?;
    } else if combs.is_empty() {
        writeln!(std::io::stdout(), "nothing is running")?;
    }
    match failed {
        None => Ok(ExitCode::SUCCESS),
        Some(failure) => Err(failure),
    }
}

/// Ends whatever there is.
fn end(directory: &RuntimeDirectory) -> Result<Ended, Failure> {
    match remains::look(directory)? {
        Found::Nothing => {
            // An empty directory of ours may be left from a start that failed.
            let removed = directory.check()? && directory.remove()?;
            Ok(Ended { directory: directory.to_string(), removed, ..Ended::default() })
        }
        Found::Remains(_) => Ok(Ended::cleared(&remains::clear(directory)?, directory)),
        Found::Agent => end_agent(directory),
    }
}

fn end_agent(directory: &RuntimeDirectory) -> Result<Ended, Failure> {
    let agent = comb_host::state::read(directory).map(|state| state.agent);
    let running = agent.and_then(comb_host::state::ProcessName::open);
    match control::ask_within(directory, &Request::Down, AGENT_LIMIT) {
        Ok(Reply::Down(down)) => {
            if let Some(running) = &running {
                process::wait_for_end(running, AGENT_LIMIT);
            }
            Ok(Ended {
                directory: directory.to_string(),
                agent: agent.map(|agent| agent.pid),
                was: Was::Running,
                ended: down.ended,
                killed: down.killed,
                removed: down.directory_removed,
            })
        }
        Ok(Reply::Refused(reason)) => Err(Failure::of(Kind::Refused, reason)),
        Ok(_) => Err(unexpected()),
        Err(error @ (ControlError::Silent(_) | ControlError::NoAgent(_) | ControlError::Protocol(_))) => {
            let Some(running) = running else {
                // It died between our looking for it and our asking. What it was starting in that moment holds its lock until it has begun.
                let since = Instant::now();
                let mut found = remains::look(directory)?;
                while matches!(found, Found::Agent) && since.elapsed() < DYING_LIMIT {
                    std::thread::sleep(Duration::from_millis(2));
                    found = remains::look(directory)?;
                }
                return match found {
                    Found::Remains(_) => Ok(Ended::cleared(&remains::clear(directory)?, directory)),
                    Found::Nothing | Found::Agent => Err(error.into()),
                };
            };
            // One that was dying when we asked needs no help.
            let mut was = Was::Dead;
            if !process::wait_for_end(&running, DYING_LIMIT) {
                process::kill(&running);
                if !process::wait_for_end(&running, AGENT_LIMIT) {
                    let text = format!("{error}, and does not end when it is killed");
                    return Err(Failure::of(Kind::NoAnswer, text));
                }
                was = Was::Stuck;
            }
            Ok(Ended { was, ..Ended::cleared(&remains::clear(directory)?, directory) })
        }
        Err(error) => Err(error.into()),
    }
}

/// So many cells, in words.
pub(crate) fn cells(count: u32) -> String {
    if count == 1 { "1 cell".into() } else { format!("{count} cells") }
}

/// What was cleared, as a sentence.
pub(crate) fn describe(cleared: &Cleared, directory: &RuntimeDirectory) -> String {
    let ended_cells = u32::try_from(cleared.ended_cells).unwrap_or(u32::MAX);
    describe_dead(cleared.agent_pid, ended_cells, &directory.to_string())
}

fn describe_dead(agent: Option<u32>, ended_cells: u32, directory: &str) -> String {
    let agent = agent.map(|pid| format!(" (process {pid})")).unwrap_or_default();
    let ended = match ended_cells {
        0 => String::new(),
        count => format!(" and ended {} that still ran", cells(count)),
    };
    format!("the agent{agent} was dead: cleared what it left in {directory}{ended}")
}
