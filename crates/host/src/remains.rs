//! What is left in a runtime directory whose agent is dead: cells that live on for a while, cgroups, files.

use std::fs::File;
use std::time::Duration;

use rustix::fs::FlockOperation;

use crate::cgroup::Cgroup;
use crate::state::{self, State};
use crate::{DirectoryError, RuntimeDirectory, marks, process};

/// Killed processes are gone within milliseconds, unless the machine is very busy.
const END_LIMIT: Duration = Duration::from_secs(10);

/// What is there.
#[derive(Debug)]
pub enum Found {
    /// No directory, or an empty one.
    Nothing,
    /// An agent is at work.
    Agent,
    /// An agent was; here is what it wrote down, if it came to that.
    Remains(Option<State>),
}

/// What was cleared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cleared {
    /// The dead agent's process number, if it was written down.
    pub agent_pid: Option<u32>,
    /// Cells that still ran.
    pub ended_cells: usize,
    /// Whether the directory is gone. Files that are not ours keep it.
    pub directory_removed: bool,
}

/// Looks, and changes nothing.
pub fn look(directory: &RuntimeDirectory) -> Result<Found, DirectoryError> {
    if !directory.check()? {
        return Ok(Found::Nothing);
    }
    match File::open(directory.lock_file()) {
        // A lock that we get is given back at once, with the file.
        Ok(file) if !try_lock(&file) => Ok(Found::Agent),
        Err(_) if !directory.state_file().exists() => Ok(Found::Nothing),
        _ => Ok(Found::Remains(state::read(directory))),
    }
}

/// The lock that an agent holds as long as it lives. `None`: another one does.
pub fn lock(directory: &RuntimeDirectory) -> std::io::Result<Option<File>> {
    let file = File::options().create(true).append(true).open(directory.lock_file())?;
    // More than once: somebody who only looks holds it for a moment.
    for _ in 0..10 {
        if try_lock(&file) {
            return Ok(Some(file));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(None)
}

fn try_lock(file: &File) -> bool {
    rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive).is_ok()
}

/// Ends the cells of a dead agent and removes everything. Never called while an agent lives there.
pub fn clear(directory: &RuntimeDirectory) -> Result<Cleared, DirectoryError> {
    let state = state::read(directory);
    let mut ended_cells = 0;
    if let Some(state) = &state {
        for name in state.cells.iter().filter_map(|cell| cell.process) {
            let Some(running) = name.open() else { continue };
            ended_cells += 1;
            process::kill(&running);
            process::wait_for_end(&running, END_LIMIT);
        }
        if let Some(cgroup) = &state.cgroup {
            remove_cgroups(&Cgroup::at(cgroup.clone()));
        } else {
            marks::kill_all(directory);
        }
    }
    let directory_removed = directory.remove()?;
    Ok(Cleared { agent_pid: state.map(|state| state.agent.pid), ended_cells, directory_removed })
}

/// Removes an agent's cgroup and those of its cells. What is in them is killed.
pub fn remove_cgroups(parent: &Cgroup) {
    for child in parent.children() {
        remove_cgroup(&child);
    }
    remove_cgroup(parent);
}

fn remove_cgroup(cgroup: &Cgroup) {
    if cgroup.remove() {
        return;
    }
    cgroup.kill();
    // What was just killed is in it for some moments more.
    for _ in 0..200 {
        if cgroup.remove() {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
