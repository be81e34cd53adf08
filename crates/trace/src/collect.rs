//! Traces of many machines in one place: on each an *agent* that records, somewhere a *collector* that writes what they send into a
//! directory, one file for each recording. (Thesis §9.3)
//!
//! What is sent are the frames of a trace, compressed and with their checksums, each with its number in its recording. The collector
//! acknowledges them when they are on its disk, and until then the agent keeps them. A connection that is lost is made again, the
//! collector says how many frames it has, and the next one is sent: each is in the file once, whoever of the two was killed when.
//!
//! "If a trace agent loses contact with the collection servers it will suspend the local operation until the connection is re-established"
//! (Thesis §9.3): here it does when the loss lasts longer than its patience, when what waits to be acknowledged comes near to what may
//! wait, and when the collector has no room. Then the recording ends in order and the source is detached, which costs the recorded programs
//! nothing any more; when all has been delivered, another recording begins, whose head says from when on, and why, nothing was
//! recorded. Nothing here makes a recorded program wait.
//!
//! | module | question |
//! |---|---|
//! | `wire`, `refusal` | what do the two say to each other, and what if one of them is wrong? |
//! | `agent`, `buffer` | what does an agent do when? |
//! | `session`, `order` | what does a collector take from an agent? |
//! | `folder` | what of that is in which file? |
//! | `serving`, `running` | with which threads, clocks and streams? |
//!
//! Who may send is not decided here: whoever brings the streams knows at whose end they begin.

mod agent;
mod buffer;
mod folder;
mod order;
mod refusal;
mod running;
mod serving;
mod session;
#[cfg(test)]
mod simulation;
mod stream;
mod wire;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

pub use self::refusal::{PeerFault, Refusal};
pub use self::running::{AgentError, AgentEvent, Beginning, Farewell, run_agent};
pub use self::serving::{Collector, ServeError, ServeEvent, Served};
pub use self::stream::Stream;

/// The version of the protocol. Both sides say which ones they speak.
pub const VERSION: u16 = 1;

/// Each side says something at least so often,
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(1);

/// and takes the other for dead if it hears nothing for so long: several heartbeats, for a disk that is asked to write may take seconds.
const SILENCE_LIMIT: Duration = Duration::from_secs(10);

/// What is acknowledged is at most so old. As often, the disk is made to write.
const SYNC_INTERVAL: Duration = Duration::from_secs(1);

/// What a collector takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Agents at the same time. Each is a thread.
    pub most_agents: usize,
    /// The longest frame, and so what is held in memory for each agent. A full block of events is a megabyte at most, if it is not of the longest names.
    pub most_frame_bytes: usize,
    /// What all recordings in the directory may take of the disk.
    pub most_bytes: u64,
    /// What may come of one peer while the collector runs.
    pub most_peer_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { most_agents: 256, most_frame_bytes: 32 << 20, most_bytes: u64::MAX, most_peer_bytes: u64::MAX }
    }
}

/// What an agent holds, and for how long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AgentLimits {
    /// What is kept in memory until it is acknowledged. Recording is suspended when three quarters are used.
    pub buffer_bytes: usize,
    /// Recording goes on without a collector for so long, if the buffer suffices.
    pub patience: Duration,
    /// How long it tries to deliver what it has when it is stopped.
    pub farewell: Duration,
}

impl Default for AgentLimits {
    fn default() -> Self {
        Self { buffer_bytes: 64 << 20, patience: Duration::from_secs(30), farewell: Duration::from_secs(10) }
    }
}

/// Why a directory cannot be collected into.
#[derive(Debug, Error)]
pub enum OpenFolderError {
    /// Another collector does.
    #[error("{0}: another collector writes there")]
    InUse(PathBuf),
    /// It cannot be made or read.
    #[error("{path}: {error}")]
    Io {
        /// Where.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}
