//! What an agent writes down for the one that comes after it.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::RuntimeDirectory;

/// Of this file. Another version's file is not read.
pub const STATE_VERSION: u32 = 1;

/// The file `agent.json`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct State {
    /// [`STATE_VERSION`].
    pub version: u32,
    /// The agent that wrote it.
    pub agent: ProcessName,
    /// The cgroup that holds the cells' cgroups, if there is one.
    pub cgroup: Option<PathBuf>,
    /// All cells, ended ones too.
    pub cells: Vec<CellState>,
    /// Lives that the policy has had.
    #[serde(default)]
    pub policy: u64,
    /// Bytes of page frames that each cell may have, if that was said.
    #[serde(default)]
    pub memory_bytes: Option<u64>,
    /// Whether cells are told to fail.
    #[serde(default)]
    pub faults: bool,
    /// Whether its host belongs to a comb with others.
    #[serde(default)]
    pub has_others: bool,
}

/// One process, once and for all: its number is given again, but not with the same start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ProcessName {
    /// Its number.
    pub pid: u32,
    /// When it started, in clock ticks since boot.
    pub start_ticks: u64,
}

impl ProcessName {
    /// Of a process that runs now, or is not reaped yet.
    pub fn of(pid: u32) -> Option<Self> {
        Some(Self { pid, start_ticks: crate::process::stat(pid)?.start_ticks })
    }

    /// Its descriptor, if it still runs.
    pub fn open(self) -> Option<std::os::fd::OwnedFd> {
        crate::process::open(self.pid, self.start_ticks)
    }
}

/// One cell.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CellState {
    /// Its number.
    pub cell: u32,
    /// Its present or last life.
    pub incarnation: u64,
    /// Its process; none if it has ended.
    pub process: Option<ProcessName>,
    /// How it ended.
    pub ended: Option<String>,
    /// Whether somebody wants it down.
    #[serde(default)]
    pub is_held: bool,
    /// Whether it gets no new tasks.
    #[serde(default)]
    pub is_draining: bool,
}

/// Reads what the last agent wrote. `None`: there was none, or its file makes no sense.
pub fn read(directory: &RuntimeDirectory) -> Option<State> {
    let text = std::fs::read(directory.state_file()).ok()?;
    serde_json::from_slice(&text).ok().filter(|state: &State| state.version == STATE_VERSION)
}

/// Writes it whole or not at all.
pub fn write(directory: &RuntimeDirectory, state: &State) -> std::io::Result<()> {
    let path = directory.state_file();
    let fresh = path.with_extension("json.new");
    std::fs::write(&fresh, serde_json::to_vec_pretty(state).expect("plain data"))?;
    std::fs::rename(fresh, path)
}
