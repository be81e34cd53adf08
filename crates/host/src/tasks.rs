//! Tasks, as the agent has them in its book: which components of whose program run in which cells.
//!
//! Whoever launches a task is the parent of its components and lives outside of all cells. It asks for places, puts each component into its cell's
//! cgroup, says which process that is, and keeps its connection for as long as the task lives: by it the agent tells of cells that are lost, and
//! that somebody wants the task to end. A launcher that finds the agent gone looks for the next one, and says again what it has.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use comb_cell::hints::{self, CellHint};
use comb_cell::supervision::TaskHere;
use comb_net::agent::protocol::{self, ProtocolError};
use rustix::event::{PollFd, PollFlags};
use rustix::net::SocketFlags;
use serde::{Deserialize, Serialize};

use crate::RuntimeDirectory;
use crate::control::{self, ControlError, Reply, Request};
use crate::process;

/// Tasks of one agent. Each is a command of a person or a script.
pub(crate) const MOST_TASKS: usize = 1024;
/// Processes of one task that one cell is told of: it hears of all tasks in one message.
const MOST_TOLD: usize = 64;
/// The longest that places take to be found.
const PLACES_LIMIT: Duration = Duration::from_secs(10);

/// What a launcher wants places for.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Wanted {
    /// The launcher's process, by which the task is called.
    pub task: u32,
    /// What is run.
    pub program: Vec<String>,
    /// How many components.
    pub components: u32,
    /// The cells that will do; none: any.
    pub cells: Vec<u32>,
    /// How often it has been started again.
    pub restarts: u32,
    /// Cores that it wants for itself, as far as there are others left; 0: none.
    pub cores: u32,
    /// Whether its components are to run at the same time, and to wait together while it is others' turn.
    pub gang: bool,
}

/// Where a component is to run, or runs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Seat {
    /// In which cell.
    pub cell: u32,
    /// The cgroup in which a process belongs to that cell, where there are cgroups.
    pub cgroup: Option<PathBuf>,
    /// Which process it is; 0: none yet.
    pub process: u32,
}

/// A task, as `comb task` shows it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TaskRecord {
    /// What was wanted.
    pub wanted: Wanted,
    /// By rank.
    pub seats: Vec<Seat>,
    /// When it was started, in seconds since 1970.
    pub since_s: u64,
}

/// From a launcher, behind its request for places.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum TaskWord {
    Began { rank: u32, process: u32 },
}

/// To a launcher.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum TaskOrder {
    /// Somebody wants it to end by this signal.
    End {
        /// Which.
        signal: i32,
    },
    /// A cell is lost, and with it all that ran in it.
    CellLost {
        /// Which.
        cell: u32,
    },
}

/// A task in the agent's book.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) record: TaskRecord,
    socket: OwnedFd,
    /// By rank: to end them with their cell, where there are no cgroups.
    processes: BTreeMap<u32, OwnedFd>,
}

impl Task {
    pub(crate) fn new(record: TaskRecord, socket: OwnedFd) -> Self {
        let mut task = Self { record, socket, processes: BTreeMap::new() };
        let known: Vec<(u32, u32)> =
            (0..).zip(&task.record.seats).map(|(rank, seat)| (rank, seat.process)).collect();
        for (rank, process) in known.into_iter().filter(|(_, process)| *process != 0) {
            task.began(rank, process);
        }
        task
    }

    fn began(&mut self, rank: u32, process: u32) {
        let Some(seat) = self.record.seats.get_mut(rank as usize) else { return };
        seat.process = process;
        if let Some(descriptor) = process::open_number(process) {
            self.processes.insert(rank, descriptor);
        }
    }

    /// Takes what its launcher says. `false`: that is gone.
    pub(crate) fn hear(&mut self) -> bool {
        loop {
            match protocol::receive::<TaskWord>(&self.socket) {
                Ok((TaskWord::Began { rank, process }, _)) => self.began(rank, process),
                Err(ProtocolError::System(rustix::io::Errno::AGAIN)) => return true,
                Err(_) => return false,
            }
        }
    }

    /// What a cell is told of it; none if it has no component there.
    pub(crate) fn in_cell(&self, cell: u32) -> Option<TaskHere> {
        let TaskRecord { wanted, seats, .. } = &self.record;
        let here = seats.iter().filter(|seat| seat.cell == cell);
        let count = here.clone().count();
        (count > 0).then(|| TaskHere {
            task: wanted.task,
            components: u32::try_from(seats.len()).unwrap_or(u32::MAX),
            cores: wanted.cores,
            is_gang: wanted.gang,
            processes: here
                .map(|seat| seat.process)
                .filter(|&process| process != 0)
                .take(MOST_TOLD)
                .collect(),
        })
    }

    pub(crate) fn tell(&self, order: &TaskOrder) {
        // A launcher that does not read learns of it by the ends of its components.
        let _ = protocol::send(&self.socket, order, &[]);
    }

    /// A cell is lost: what of this task ran in it ends. Its launcher is told in any case: regions that the task uses may have been there.
    pub(crate) fn lose(&self, cell: u32) {
        for (rank, seat) in (0..).zip(&self.record.seats).filter(|(_, seat)| seat.cell == cell) {
            if seat.process != 0
                && let Some(descriptor) = self.processes.get(&rank)
            {
                process::kill(descriptor);
            }
        }
        self.tell(&TaskOrder::CellLost { cell });
    }
}

/// Deals components to cells: neighbours on one cell, so that few cells are depended on, and to each cell as many as to any other. `load` is how many
/// components each cell has already, `hint` what the policy says of cells to take.
pub(crate) fn deal(components: u32, load: &BTreeMap<u32, usize>, hint: Option<&CellHint>) -> Vec<u32> {
    let mut chosen = hints::order(load, hint);
    chosen.truncate(components as usize);
    chosen.sort_unstable();
    if chosen.is_empty() {
        return Vec::new();
    }
    let (count, cells) = (components as usize, chosen.len());
    (0..count).map(|rank| chosen[rank * cells / count]).collect()
}

pub(crate) fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// A launcher's side: places that were given, for as long as this lives.
#[derive(Debug)]
pub struct Places {
    directory: RuntimeDirectory,
    socket: Option<OwnedFd>,
    record: TaskRecord,
}

impl Places {
    /// Asks the agent for places.
    pub fn ask(directory: &RuntimeDirectory, wanted: &Wanted) -> Result<Self, ControlError> {
        let (socket, reply) = hold(directory, &Request::Place(wanted.clone()))?;
        match reply {
            Reply::Placed { seats } => {
                let record = TaskRecord { wanted: wanted.clone(), seats, since_s: now_s() };
                Ok(Self { directory: directory.clone(), socket: Some(socket), record })
            }
            Reply::Refused(why) => Err(ControlError::Refused(why)),
            _ => Err(ControlError::Protocol(ProtocolError::Ended)),
        }
    }

    /// Where each component is to run, by rank.
    pub fn seats(&self) -> &[Seat] {
        &self.record.seats
    }

    /// A component runs.
    pub fn began(&mut self, rank: u32, process: u32) {
        if let Some(seat) = self.record.seats.get_mut(rank as usize) {
            seat.process = process;
        }
        if let Some(socket) = &self.socket {
            let _ = protocol::send(socket, &TaskWord::Began { rank, process }, &[]);
        }
    }

    /// Waits for what the agent has to say, for so long at most, and no longer than until something else can be read.
    pub fn hear(&mut self, limit: Duration, until: impl AsFd) -> Option<TaskOrder> {
        let Some(socket) = &self.socket else {
            let limit = limit.min(Duration::from_millis(200)).try_into().ok()?;
            let _ = rustix::event::poll(&mut [PollFd::new(&until, PollFlags::IN)], Some(&limit));
            self.find_again();
            return None;
        };
        let limit = limit.try_into().ok()?;
        let mut waiting = [PollFd::new(socket, PollFlags::IN), PollFd::new(&until, PollFlags::IN)];
        let came = rustix::event::poll(&mut waiting, Some(&limit));
        if came.is_err() || waiting[0].revents().is_empty() {
            return None;
        }
        match protocol::receive::<TaskOrder>(socket) {
            Ok((order, _)) => Some(order),
            Err(ProtocolError::System(rustix::io::Errno::AGAIN)) => None,
            Err(_) => {
                self.socket = None;
                None
            }
        }
    }

    /// An agent that has been started anew is told what there is.
    fn find_again(&mut self) {
        if let Ok((socket, Reply::Placed { .. })) =
            hold(&self.directory, &Request::Resume(self.record.clone()))
        {
            self.socket = Some(socket);
        }
    }
}

/// Asks, and keeps the connection.
fn hold(directory: &RuntimeDirectory, request: &Request) -> Result<(OwnedFd, Reply), ControlError> {
    let socket = control::socket(SocketFlags::empty())?;
    let reply = control::ask_on(&socket, directory, request, PLACES_LIMIT)?;
    rustix::io::ioctl_fionbio(socket.as_fd(), true)?;
    Ok((socket, reply))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_cells_are_depended_on_and_none_is_overloaded() {
        let load = |loads: &[(u32, usize)]| loads.iter().copied().collect::<BTreeMap<_, _>>();
        assert_eq!(deal(1, &load(&[(1, 2), (2, 0), (3, 1)]), None), [2]);
        assert_eq!(deal(2, &load(&[(1, 2), (2, 0), (3, 1)]), None), [2, 3]);
        assert_eq!(deal(4, &load(&[(1, 0), (2, 0), (3, 0), (4, 0)]), None), [1, 2, 3, 4]);
        assert_eq!(deal(5, &load(&[(1, 0), (2, 0)]), None), [1, 1, 1, 2, 2]);
        assert!(deal(3, &BTreeMap::new(), None).is_empty());
    }
}
