//! Asking the agent, and saying why there is no answer.

use std::collections::BTreeSet;
use std::time::Duration;

use comb_host::RuntimeDirectory;
use comb_host::control::{self, ControlError, Reply, Request, Status};
use comb_host::remains::{self, Found};

use crate::failure::{Failure, Kind};

/// An agent answers from memory. One that takes longer is stopped or stuck.
const STATUS_LIMIT: Duration = Duration::from_secs(5);
/// What the agent itself waits for: cells, which it gives up on long before.
const ACTION_LIMIT: Duration = Duration::from_secs(60);

/// Asks, and waits for the reply. A refusal is a failure.
pub(crate) fn ask(directory: &RuntimeDirectory, request: &Request) -> Result<Reply, Failure> {
    directory.check_to_ask()?;
    let limit = if *request == Request::Status { STATUS_LIMIT } else { ACTION_LIMIT };
    match control::ask_within(directory, request, limit) {
        Ok(Reply::Refused(reason)) => Err(Failure::of(Kind::Refused, reason)),
        Ok(reply) => Ok(reply),
        Err(ControlError::NoAgent(_)) => Err(absent(directory)),
        Err(error @ ControlError::Silent(_)) => {
            let text = format!("{error}: is it stopped? `comb down` ends it and its cells");
            Err(Failure::of(Kind::NoAnswer, text))
        }
        Err(error) => Err(error.into()),
    }
}

/// How things are.
pub(crate) fn status(directory: &RuntimeDirectory) -> Result<Status, Failure> {
    match ask(directory, &Request::Status)? {
        Reply::Status(status) => Ok(status),
        _ => Err(unexpected()),
    }
}

/// That there are cells of these numbers, dead or alive; else which there are.
pub(crate) fn check_cells(directory: &RuntimeDirectory, wanted: &[u32]) -> Result<(), Failure> {
    let status = status(directory)?;
    let elsewhere = status.hosts.iter().flat_map(|host| host.cells.iter().map(|cell| cell.cell));
    let there: BTreeSet<u32> = status.cells.iter().map(|cell| cell.cell).chain(elsewhere).collect();
    let there: Vec<u32> = there.into_iter().collect();
    match wanted.iter().find(|cell| !there.contains(cell)) {
        None => Ok(()),
        Some(missing) => Err(no_cell(*missing, &there)),
    }
}

fn no_cell(missing: u32, there: &[u32]) -> Failure {
    let is_row = there.windows(2).all(|pair| pair[1] == pair[0] + 1);
    Failure::not_found(match (there.first(), there.last()) {
        (Some(only), _) if there.len() == 1 => {
            format!("there is no cell {missing}: the only one is cell {only}")
        }
        (Some(first), Some(last)) if is_row => {
            format!("there is no cell {missing}: they are numbered from {first} to {last}")
        }
        _ => {
            let there: Vec<String> = there.iter().map(u32::to_string).collect();
            format!("there is no cell {missing}: there are {}", there.join(", "))
        }
    })
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
            let text = match living {
                0 => format!(
                    "the agent (process {pid}) in {directory} is dead: `comb down` clears what it left"
                ),
                _ => format!(
                    "the agent (process {pid}) in {directory} is dead; {living} of its cells still run. \
                     `comb host` takes them over, `comb down` ends them"
                ),
            };
            Failure::of(Kind::NotRunning, text)
        }
        Err(error) => error.into(),
        Ok(_) => ControlError::NoAgent(directory.to_string()).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_names_a_cell_that_is_not_there_hears_which_are() {
        let said = |there: &[u32]| no_cell(9, there).to_string();
        assert!(said(&[1]).ends_with("the only one is cell 1"));
        assert!(said(&[1, 2, 3]).ends_with("numbered from 1 to 3"));
        assert!(said(&[1, 3, 4]).ends_with("there are 1, 3, 4"));
    }
}
