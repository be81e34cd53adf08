//! `comb down`: ends everything, whatever state it is in. Said twice, it does nothing the second time.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use comb_host::RuntimeDirectory;
use comb_host::control::{self, ControlError, Reply, Request};
use comb_host::process;
use comb_host::remains::{self, Cleared, Found};

use crate::agent::unexpected;
use crate::failure::{Failure, Outcome};

/// The agent kills cells that do not end within two seconds. One that takes longer itself is stuck.
const AGENT_LIMIT: Duration = Duration::from_secs(10);

/// What a killed agent needs to be gone, on all but the busiest machines.
const DYING_LIMIT: Duration = Duration::from_millis(500);

#[derive(Debug, Args)]
pub(crate) struct Down {}

impl Down {
    #[expect(clippy::unused_self, reason = "like all commands")]
    pub(crate) fn run(self) -> Outcome {
        let directory = RuntimeDirectory::from_environment()?;
        match remains::look(&directory)? {
            Found::Nothing => {
                // An empty directory of ours may be left from a start that failed.
                if directory.check()? {
                    directory.remove()?;
                }
                println!("nothing is running in {directory}");
            }
            Found::Remains(_) => println!("{}", describe(&remains::clear(&directory)?, &directory)),
            Found::Agent => end_agent(&directory)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn end_agent(directory: &RuntimeDirectory) -> Result<(), Failure> {
    let agent = comb_host::state::read(directory).map(|state| state.agent);
    let running = agent.and_then(comb_host::state::ProcessName::open);
    match control::ask_within(directory, &Request::Down, AGENT_LIMIT) {
        Ok(Reply::Down(down)) => {
            if let Some(running) = &running {
                process::wait_for_end(running, AGENT_LIMIT);
            }
            let killed =
                if down.killed == 0 { String::new() } else { format!(" and killed {}", down.killed) };
            println!("ended {}{killed}, and their agent", cells(down.ended));
            say_if_left(directory, down.directory_removed);
            Ok(())
        }
        Ok(Reply::Refused(reason)) => Err(Failure::new(reason)),
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
                    Found::Remains(_) => {
                        println!("{}", describe(&remains::clear(directory)?, directory));
                        Ok(())
                    }
                    Found::Nothing | Found::Agent => Err(error.into()),
                };
            };
            // One that was dying when we asked needs no help.
            if !process::wait_for_end(&running, DYING_LIMIT) {
                process::kill(&running);
                if !process::wait_for_end(&running, AGENT_LIMIT) {
                    return Err(Failure::new(format!("{error}, and does not end when it is killed")));
                }
                println!("{error}: killed it");
            }
            println!("{}", describe(&remains::clear(directory)?, directory));
            Ok(())
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
    let agent = cleared.agent_pid.map(|pid| format!(" (process {pid})")).unwrap_or_default();
    let ended = match cleared.ended_cells {
        0 => String::new(),
        count => format!(" and ended {} that still ran", cells(u32::try_from(count).unwrap_or(u32::MAX))),
    };
    format!("the agent{agent} was dead: cleared what it left in {directory}{ended}")
}

fn say_if_left(directory: &RuntimeDirectory, removed: bool) {
    if !removed {
        println!("{directory} stays: it holds files that are not ours");
    }
}
