//! What is seen of a comb at one moment. It is what `GET /api/state` answers: names and units are a promise to whoever reads it.

use comb_host::timeline::Failure;
use serde::Serialize;

/// All there is to see.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Snapshot {
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// The comb's name.
    pub comb: String,
    /// Of the program.
    pub version: String,
    /// Whether who asks may act.
    pub may_act: bool,
    /// Its hosts.
    pub hosts: Vec<Host>,
    /// By number.
    pub cells: Vec<Cell>,
    /// How much cells say to each other.
    pub edges: Vec<Edge>,
    /// Who may store to whose memory.
    pub rights: Vec<Right>,
    /// What runs.
    pub tasks: Vec<Task>,
    /// Memory with a name.
    pub regions: Vec<Region>,
    /// The newest first.
    pub failures: Vec<Failure>,
    /// The policy; none: it does not run.
    pub wax: Option<Wax>,
    /// Why nothing is seen; none: it is.
    pub trouble: Option<String>,
}

/// A machine.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Host {
    /// Its name.
    pub host: String,
    /// `up`, `away`, or `lost`.
    pub state: &'static str,
    /// Where others reach it; none: nowhere.
    pub address: Option<String>,
    /// Whether it is the one that is asked.
    pub is_this: bool,
    /// Its agent's process.
    pub agent_pid: u32,
    /// Processor time of its agent.
    pub agent_cpu_ms: u64,
    /// Resident memory of its agent.
    pub agent_bytes: u64,
    /// Processors.
    pub cores: u32,
    /// How many processes ran or wanted to, over the last minute.
    pub load: f64,
    /// Memory.
    pub memory_bytes: u64,
    /// What of it is free.
    pub free_bytes: u64,
}

/// A cell.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Cell {
    /// Its number.
    pub cell: u32,
    /// Where it is.
    pub host: String,
    /// Which life of it.
    pub incarnation: u64,
    /// `starting`, `up`, `draining`, `drained`, `recovering`, `ended`, `held`, or `lost`.
    pub state: &'static str,
    /// Of one that has ended: how.
    pub why: String,
    /// Its process.
    pub pid: u32,
    /// For how long it has been running.
    pub uptime_ms: u64,
    /// Of one processor, since the last look.
    pub cpu_share: Option<f64>,
    /// What it has.
    pub memory: Memory,
    /// Tasks with components in it.
    pub tasks: Vec<u32>,
    /// Open channels to other cells.
    pub channels: u32,
    /// Heartbeats that came back.
    pub round_trips: u64,
    /// How long the last one took.
    pub last_round_trip_ns: u64,
    /// When it was heard of.
    pub seen_ms_ago: Option<u64>,
}

/// A cell's memory.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Memory {
    /// Page frames of regions that live in it, and what processes of tasks have in it.
    pub own_bytes: u64,
    /// Of regions that live elsewhere, and that its processes use.
    pub imported_bytes: u64,
    /// Its page frames of regions that live elsewhere.
    pub loaned_bytes: u64,
    /// What it should have at most; 0: no limit.
    pub most_bytes: u64,
    /// Resident memory of the cell's own process.
    pub supervisor_bytes: u64,
}

/// What one cell says to another.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Edge {
    /// Who.
    pub from: u32,
    /// To whom.
    pub to: u32,
    /// Since the last look.
    pub messages_per_s: f64,
}

/// Processes of one cell can store to memory of another.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Right {
    /// Whose processes.
    pub holder: u32,
    /// Whose memory.
    pub home: u32,
    /// How much of it, in blocks of their regions, which are pages unless said otherwise.
    pub pages: u64,
}

/// A task.
#[derive(Clone, Debug, Serialize)]
pub struct Task {
    /// Its number.
    pub task: u32,
    /// What runs.
    pub program: String,
    /// How many.
    pub components: usize,
    /// In which cells they are.
    pub cells: Vec<u32>,
    /// With which cells it fails.
    pub depends_on: Vec<Dependence>,
    /// Since when, in seconds since 1970.
    pub since_s: u64,
    /// How often it was started again.
    pub restarts: u32,
}

/// Why a task fails with a cell.
#[derive(Clone, Debug, Serialize)]
pub struct Dependence {
    /// Which.
    pub cell: u32,
    /// In words.
    pub why: String,
}

/// A named region.
#[derive(Clone, Debug, Serialize)]
pub struct Region {
    /// Its name.
    pub region: String,
    /// Where it lives.
    pub cell: u32,
    /// How long it is.
    pub bytes: u64,
    /// How much memory it takes; none: its cell does not answer.
    pub resident_bytes: Option<u64>,
    /// Who may do what, as of files.
    pub mode: String,
    /// Processes that have it.
    pub users: Option<u32>,
    /// Blocks of which nobody has the content any more.
    pub lost_blocks: Option<u64>,
    /// How often somebody had to ask for a block.
    pub misses: Option<u64>,
    /// The same since the last look.
    pub misses_per_s: Option<f64>,
}

/// The policy.
#[derive(Clone, Debug, Serialize)]
pub struct Wax {
    /// Its process.
    pub pid: u32,
    /// Which life of it.
    pub incarnation: u64,
    /// How often it has decided.
    pub decisions: u64,
    /// From which cells it would allocate, the best first.
    pub prefer: Vec<u32>,
}
