//! What `comb` commands ask of the agent: one request, one reply, one connection. The framing is that of
//! [`comb_net::agent::protocol`]; who asks is checked by the kernel's word: the agent's own user, or root.

use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use comb_cell::faults::Fault;
use comb_cell::shown::{Condition, Heeded};
use comb_cell::supervision::Recovered;
use comb_net::agent::protocol::{self, ProtocolError};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use serde::{Deserialize, Serialize};

use crate::RuntimeDirectory;
use crate::federation::HostStatus;
use crate::observations::Observations;
use crate::tasks::{Seat, TaskRecord, Wanted};

/// The longest that a reply may take: the agent gives up waiting for cells long before.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// Recoveries that the agent remembers: what fits into one reply.
pub const MOST_RECOVERIES: usize = 64;

/// From a command.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Request {
    /// How are things?
    Status,
    /// Answered when all cells are up and connected, or one of them failed.
    AwaitUp,
    /// Kill a cell; answered when its peers have noticed.
    Kill {
        /// Which.
        cell: u32,
        /// It is to stay down until somebody starts it.
        hold: bool,
    },
    /// Start a cell that has ended; answered when it is connected.
    Start {
        /// Which.
        cell: u32,
    },
    /// Stop a cell's process, so that it hangs; answered when its peers have noticed.
    Hang {
        /// Which.
        cell: u32,
    },
    /// A cell gets no new tasks, or gets them again.
    Drain {
        /// Which.
        cell: u32,
        /// The former.
        drain: bool,
    },
    /// End a cell in good order and start it anew; answered when it is connected.
    Restart {
        /// Which.
        cell: u32,
    },
    /// More cells, beside those that there are; answered when all are connected.
    Add {
        /// How many.
        cells: u32,
    },
    /// Become another program, in the same process: a newer agent. The cells live on.
    Succeed {
        /// Its path.
        program: PathBuf,
    },
    /// Where can a task's components run? Who asks keeps the connection for as long as the task lives: see [`crate::tasks`].
    Place(Wanted),
    /// The same of a task that runs, and that an agent before this one has placed.
    Resume(TaskRecord),
    /// Which tasks are there?
    Tasks,
    /// Have a task told to end.
    EndTask {
        /// Its launcher's process.
        task: u32,
        /// By which signal.
        signal: i32,
    },
    /// What have cells said of recoveries, lately?
    Recoveries,
    /// Have a cell fail. Refused by an agent that was not started for that.
    Inject {
        /// Which.
        cell: u32,
        /// How.
        fault: Fault,
    },
    /// Which cells have failed lately as they were told? Refused as above.
    Observe,
    /// End all cells and the agent; answered when everything is gone.
    Down,
    /// A token for hosts that are to come in. The first opens this agent's door.
    Token {
        /// For how long it counts.
        ttl_s: u64,
        /// For how many hosts.
        uses: u32,
        /// Where to listen; none: everywhere, at the usual port.
        listen: Option<std::net::SocketAddr>,
        /// By which address others reach this host; none: what is found.
        address: Option<std::net::IpAddr>,
        /// What this host is called from now on; none: as the machine.
        name: Option<String>,
    },
    /// Have this host belong to a comb. Its agent has no cells yet.
    Join(WantedJoin),
    /// End all cells and the agent, and belong to no comb any more.
    Leave,
    /// Put another host out.
    RemoveHost {
        /// Its name.
        name: String,
    },
    /// Prove this host by a new key.
    RotateKey {
        /// Though some cannot be told.
        force: bool,
    },
}

/// How a host wants to come in.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct WantedJoin {
    /// What another host gave.
    pub token: String,
    /// Where that is, if not where the token says.
    pub address: Option<std::net::SocketAddr>,
    /// How many cells it brings.
    pub cells: u32,
    /// What it is to be called; none: as the machine, or nearly so.
    pub name: Option<String>,
    /// Where to listen; none: everywhere, at the usual port.
    pub listen: Option<std::net::SocketAddr>,
    /// By which address others reach it; none: the one that it comes from.
    pub own_address: Option<std::net::IpAddr>,
}

/// From the agent.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Reply {
    /// As asked.
    Status(Status),
    /// All cells are up.
    Up {
        /// Channels between them.
        channels: u32,
        /// The agent.
        agent_pid: u32,
    },
    /// A cell was killed.
    Killed(Killed),
    /// A cell was started.
    Started {
        /// Its new process.
        pid: u32,
        /// Its new life.
        incarnation: u64,
        /// Channels that are open.
        channels: u32,
        /// Channels that belong there.
        channels_expected: u32,
        /// From the request to the last channel.
        took_ns: u64,
    },
    /// So many cells more, the first of that number.
    Added {
        /// Which.
        first: u32,
        /// How many.
        count: u32,
        /// From the request to the last channel.
        took_ns: u64,
    },
    /// It was said to the cell, or the agent is on its way out.
    Done,
    /// Here.
    Placed {
        /// By rank.
        seats: Vec<Seat>,
    },
    /// These, by number.
    Tasks(Vec<TaskRecord>),
    /// Its launcher was told.
    TaskTold,
    /// The last [`MOST_RECOVERIES`], each with the cell that says so.
    Recoveries(Vec<(u32, Recovered)>),
    /// The cell was told.
    Injecting,
    /// What there was to see.
    Observed(Observations),
    /// Everything is down.
    Down(Down),
    /// Not done, or not as asked. A sentence for people.
    Refused(String),
    /// Here.
    Token {
        /// One word.
        token: String,
        /// What this host is called.
        host: String,
    },
    /// It belongs to the comb.
    Joined {
        /// What it is called there.
        name: String,
        /// Who let it in.
        by: String,
        /// The first number of its cells.
        first: u32,
        /// How many it has.
        count: u32,
        /// How many hosts there are.
        hosts: u32,
    },
    /// It is out.
    HostRemoved {
        /// So many others were told as well.
        told: u32,
    },
    /// There is a new key.
    KeyRotated {
        /// Its public half.
        fingerprint: String,
        /// So many others know it.
        told: u32,
        /// These do not.
        missed: Vec<String>,
    },
}

/// All there is to see.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Status {
    /// The agent.
    pub agent: AgentStatus,
    /// The cells, by number.
    pub cells: Vec<CellStatus>,
    /// The policy; none: it does not run at this moment.
    pub wax: Option<WaxStatus>,
    /// The hosts of the comb, this one first; none if others were never to come in.
    pub hosts: Vec<HostStatus>,
}

/// The policy's line.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct WaxStatus {
    /// Its process.
    pub pid: u32,
    /// Which life of it.
    pub incarnation: u64,
    /// How long it has been running.
    pub uptime_ms: u64,
    /// Processor time used.
    pub cpu_ms: u64,
    /// Resident memory.
    pub memory_bytes: u64,
    /// How often it has decided.
    pub decisions: u64,
    /// From which cells it would allocate, the best first.
    pub prefer: Vec<u32>,
    /// Which cells will do, as far as it says.
    pub acceptable: Vec<u32>,
}

/// The agent's line.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AgentStatus {
    /// Its process.
    pub pid: u32,
    /// How long it has been running.
    pub uptime_ms: u64,
    /// Processor time used.
    pub cpu_ms: u64,
    /// Resident memory.
    pub memory_bytes: u64,
    /// Its runtime directory.
    pub directory: String,
    /// The cgroup of its cells; none where cgroups cannot be written.
    pub cgroup: Option<String>,
}

/// A cell's line.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CellStatus {
    /// Its number.
    pub cell: u32,
    /// Which life of it.
    pub incarnation: u64,
    /// How it is.
    pub state: CellCondition,
    /// Its process; of an ended cell, the last.
    pub pid: u32,
    /// Open channels to other cells.
    pub channels: u32,
    /// How long it has been running.
    pub uptime_ms: u64,
    /// Processor time used.
    pub cpu_ms: u64,
    /// Resident memory, shared included.
    pub memory_bytes: u64,
    /// Heartbeats that came back.
    pub round_trips: u64,
    /// How long the last one took, sleep and wake-up included.
    pub last_round_trip_ns: u64,
    /// When it was heard of last.
    pub seen_ms_ago: Option<u64>,
    /// What it has done at the policy's word; none: it cannot be seen.
    pub heeded: Option<Heeded>,
    /// What it has to do; none: it cannot be seen.
    pub load: Option<CellLoad>,
    /// Messages that have come from each of the others, as long as there is a channel.
    pub received: Vec<(u32, u64)>,
    /// Whether it stays down when it ends.
    pub is_held: bool,
    /// Whether it gets no new tasks.
    pub is_draining: bool,
}

/// What a cell has to do, as it shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CellLoad {
    /// Processor time that everything in it has used.
    pub used_ns: u64,
    /// Bytes of page frames that it has.
    pub frame_bytes: u64,
    /// Bytes that it should have at most; 0: no limit.
    pub most_bytes: u64,
    /// Bytes of its page frames that nobody may store to.
    pub idle_bytes: u64,
    /// Bytes of page frames that are promised to regions, or loaned.
    pub reserved_bytes: u64,
    /// Bytes that processes of tasks have in it for themselves.
    pub task_bytes: u64,
    /// Processes of tasks.
    pub processes: u64,
}

impl CellLoad {
    pub(crate) fn of(seen: &Condition) -> Self {
        let Condition { face, load, .. } = seen;
        Self {
            used_ns: face.used_ns,
            frame_bytes: face.frame_bytes,
            most_bytes: face.most_bytes,
            idle_bytes: load.idle_bytes,
            reserved_bytes: load.reserved_bytes,
            task_bytes: load.task_bytes,
            processes: load.processes,
        }
    }
}

/// How a cell is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CellCondition {
    /// Its process runs and has not said hello yet.
    Starting,
    /// At work.
    Up,
    /// No longer, and how that came.
    Ended(String),
}

/// A killed cell, and who noticed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Killed {
    /// Which.
    pub cell: u32,
    /// Its process.
    pub pid: u32,
    /// Cells that had a channel to it.
    pub peers: u32,
    /// Those that noticed: number, and nanoseconds from just before the killing system call until the cell's endpoint
    /// returned the error. Fastest first.
    pub noticed: Vec<(u32, u64)>,
    /// Those that have gone on, fastest first.
    pub recovered: Vec<WentOn>,
}

/// A cell that has recovered from another's end.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct WentOn {
    /// Which.
    pub cell: u32,
    /// When it entered the recovery: nanoseconds after the killing system call.
    pub entered_ns: u64,
    /// When it went on.
    pub resumed_ns: u64,
    /// Pages that it has discarded.
    pub discarded_pages: u64,
}

/// What was taken down.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Down {
    /// Cells that ended as told.
    pub ended: u32,
    /// Cells that had to be killed.
    pub killed: u32,
    /// Whether the directory is gone. Files that are not ours keep it.
    pub directory_removed: bool,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// Nobody listens.
    #[error("no agent is running in {0}: `comb up` starts one")]
    NoAgent(String),
    /// It does not want to.
    #[error("{0}")]
    Refused(String),
    /// It does not answer in time.
    #[error("the agent in {0} does not answer")]
    Silent(String),
    /// The connection broke, or something else was spoken.
    #[error("the agent did not answer as it should: {0}")]
    Protocol(#[from] ProtocolError),
    /// The system refused.
    #[error("cannot ask the agent: {0}")]
    System(#[from] rustix::io::Errno),
}

/// A socket of the kind that commands, cells and agent use.
pub(crate) fn socket(flags: SocketFlags) -> Result<OwnedFd, rustix::io::Errno> {
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC | flags, None)
}

/// Asks the agent and waits for its reply.
pub fn ask(directory: &RuntimeDirectory, request: &Request) -> Result<Reply, ControlError> {
    ask_within(directory, request, ANSWER_LIMIT)
}

/// As [`ask`], with a limit of one's own.
pub fn ask_within(
    directory: &RuntimeDirectory,
    request: &Request,
    limit: Duration,
) -> Result<Reply, ControlError> {
    ask_on(&socket(SocketFlags::empty())?, directory, request, limit)
}

/// The same by a socket that may be kept.
pub(crate) fn ask_on(
    socket: &OwnedFd,
    directory: &RuntimeDirectory,
    request: &Request,
    limit: Duration,
) -> Result<Reply, ControlError> {
    use rustix::io::Errno;
    let address = SocketAddrUnix::new(directory.control_socket())?;
    match rustix::net::connect(socket.as_fd(), &address) {
        Err(Errno::NOENT | Errno::CONNREFUSED) => return Err(ControlError::NoAgent(directory.to_string())),
        connected => connected?,
    }
    use rustix::net::sockopt::{Timeout, set_socket_timeout};
    set_socket_timeout(socket, Timeout::Recv, Some(limit))?;
    match protocol::send(socket, request, &[]) {
        // It hung up without a question, and said why.
        Ok(()) | Err(ProtocolError::Ended) => {}
        Err(error) => return Err(error.into()),
    }
    match protocol::receive::<Reply>(socket) {
        Ok((reply, _)) => Ok(reply),
        Err(ProtocolError::System(Errno::AGAIN)) => Err(ControlError::Silent(directory.to_string())),
        Err(error) => Err(error.into()),
    }
}
