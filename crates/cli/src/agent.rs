//! Asking the agent, and saying why there is no answer.

use std::time::Duration;

use comb_host::RuntimeDirectory;
use comb_host::control::{self, ControlError, Reply, Request};
use comb_host::remains::{self, Found};

use crate::failure::Failure;

/// An agent answers from memory. One that takes longer is stopped or stuck.
const STATUS_LIMIT: Duration = Duration::from_secs(5);
/// What the agent itself waits for: cells, which it gives up on long before.
const ACTION_LIMIT: Duration = Duration::from_secs(60);

/// Asks, and waits for the reply. A refusal is a failure.
pub(crate) fn ask(directory: &RuntimeDirectory, request: &Request) -> Result<Reply, Failure> {
    directory.check_to_ask()?;
    let limit = if *request == Request::Status { STATUS_LIMIT } else { ACTION_LIMIT };
    match control::ask_within(directory, request, limit) {
        Ok(Reply::Refused(reason)) => Err(Failure::new(reason)),
        Ok(reply) => Ok(reply),
        Err(ControlError::NoAgent(_)) => Err(absent(directory)),
        Err(error @ ControlError::Silent(_)) => {
            Err(Failure::new(format!("{error}: is it stopped? `comb down` ends it and its cells")))
        }
        Err(error) => Err(error.into()),
    }
}

/// A reply to something else than was asked: the agent is of another build.
pub(crate) fn unexpected() -> Failure {
    Failure::new("the agent answered something else: is it of another version? `comb down` ends it")
}

/// Why there is nobody to ask. An agent that died and left its cells is said to have.
fn absent(directory: &RuntimeDirectory) -> Failure {
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
