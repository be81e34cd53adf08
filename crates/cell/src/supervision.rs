//! What a cell and its agent say to each other. One datagram a message, as in [`comb_net::agent::protocol`]: the
//! version first, then the message. Never in the way of messages between cells.

use serde::{Deserialize, Serialize};

use crate::clock::span;
use crate::faults::Fault;

/// From a cell to its agent.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Report {
    /// The first message of a connection, again after the agent was away.
    Hello {
        /// The cell's number.
        cell: u32,
        /// Which life of that cell it is.
        incarnation: u64,
        /// Cells that it has a channel to.
        linked: Vec<u32>,
        /// Whether it is one of those who agree: it is not when it waits to be let in.
        is_member: bool,
    },
    /// A channel to that cell is open.
    Linked {
        /// Whose.
        peer: u32,
    },
    /// The channel to that cell ended.
    Noticed {
        /// Whose.
        peer: u32,
        /// When the cell noticed, on `CLOCK_MONOTONIC`.
        at_ns: u64,
        /// Why it ended, for people.
        cause: String,
    },
    /// The file with what this cell shows to others, which comes along. Behind each hello.
    Shows,
    /// The cells agree that one of them has failed, as far as this one knows: it is to end, if most say so.
    Failed {
        /// Which.
        cell: u32,
        /// In which life, as it shows; 0: it has shown nothing to this one.
        incarnation: u64,
        /// What speaks for it, for people.
        finding: String,
    },
    /// A recovery is over here.
    Recovered(Recovered),
    /// The recovery master has found nothing wrong with a cell's place: it can be started again.
    Restart {
        /// Which.
        cell: u32,
    },
    /// Too few cells are left to agree on anything, or nobody lets this one in, for so long that it will stay so.
    Stranded {
        /// Why, for people.
        why: String,
    },
    /// The first message of the policy, which is no cell: the file with its hints is in [`Report::Shows`] behind it.
    Policy {
        /// Which life of it.
        incarnation: u64,
    },
    /// It is about to fail as it was told, or cannot.
    Injected {
        /// When, on `CLOCK_MONOTONIC`.
        at_ns: u64,
        /// Why it cannot.
        refused: Option<String>,
    },
    /// Now and then: still here.
    Alive {
        /// Heartbeats that came back, on all channels since the cell began.
        round_trips: u64,
        /// How long the last one took.
        last_round_trip_ns: u64,
        /// How many messages have come over the channel to each of the other cells, since that was opened.
        received: Vec<(u32, u64)>,
    },
}

/// When a cell came how far with a failure; on `CLOCK_MONOTONIC`. What did not happen has no time: who is told by the kernel that another is dead
/// raises no alert.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Steps {
    /// Something spoke for a failure here.
    pub hint_ns: Option<u64>,
    /// An alert was raised, here or by another who was heard.
    pub alert_ns: Option<u64>,
    /// Most have found the same.
    pub verdict_ns: Option<u64>,
    /// The dead have no rights here any more.
    pub cut_off_ns: Option<u64>,
    /// All have come to the first barrier.
    pub first_barrier_ns: Option<u64>,
    /// What the dead could have damaged here is thrown away.
    pub discarded_ns: Option<u64>,
    /// All have come to the second.
    pub second_barrier_ns: Option<u64>,
}

impl Steps {
    /// Without what was before that moment.
    pub(crate) fn from(self, at_ns: u64) -> Self {
        let late = |step: Option<u64>| step.filter(|&step| step >= at_ns);
        let Self { hint_ns, alert_ns, verdict_ns, .. } = self;
        Self { hint_ns: late(hint_ns), alert_ns: late(alert_ns), verdict_ns: late(verdict_ns), ..self }
    }
}

/// What a cell says of a recovery.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Recovered {
    /// Of the view that it began with, or began anew with.
    pub epoch: u64,
    /// Who is gone.
    pub dead: Vec<u32>,
    /// When this cell entered it, and when work went on; on `CLOCK_MONOTONIC`.
    pub entered_ns: u64,
    /// See above.
    pub resumed_ns: u64,
    /// How long it took here to take the dead's rights away, and to throw away what they could have damaged; the waits for others are not
    /// in it.
    pub fenced_ns: u64,
    /// Pages that the dead could have damaged, and that were thrown away.
    pub discarded_pages: u64,
    /// The regions that these were of.
    pub regions: Vec<String>,
    /// What came before and in between.
    pub steps: Steps,
}

/// A recovery, as people read it.
pub fn sentence(recovered: &Recovered) -> String {
    let Recovered { epoch, dead, entered_ns, resumed_ns, discarded_pages, regions, .. } = recovered;
    let names: Vec<String> = dead.iter().map(u32::to_string).collect();
    let took = span(resumed_ns.saturating_sub(*entered_ns));
    let of = if regions.is_empty() { String::new() } else { format!(" of {}", regions.join(", ")) };
    let names = names.join(", ");
    format!(
        "recovered from the end of cell {names} in {took} (view {epoch}): {discarded_pages} pages{of} discarded"
    )
}

/// From an agent to a cell.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Order {
    /// The cells that can be opened to.
    Peers {
        /// Their numbers.
        cells: Vec<u32>,
    },
    /// A cell's process was killed or has ended. Not the way by which cells notice: it only tells them the time from
    /// which to measure.
    Ended {
        /// Which.
        cell: u32,
        /// Its process.
        pid: u32,
        /// When the agent called for its end, on `CLOCK_MONOTONIC`; `None` if the agent did not.
        killed_at_ns: Option<u64>,
    },
    /// What another cell shows, in a file that comes along and can only be read.
    Shows {
        /// Which.
        cell: u32,
        /// Which life of it.
        incarnation: u64,
        /// Its process.
        pid: u32,
    },
    /// The policy's hints, in a file that comes along and can only be read.
    Hints {
        /// Which life of the policy.
        incarnation: u64,
    },
    /// The tasks that have components in the cell.
    Tasks {
        /// All of them.
        tasks: Vec<TaskHere>,
    },
    /// Fail so. Only cells that were started for it do.
    Inject(Fault),
    /// Close everything and end.
    End,
    /// End, and close nothing before: the others are to know from the kernel that it is gone, and what it had agreed to. Who only closes its channels may
    /// live on, and the last of two could not go on without it.
    Leave,
    /// Where the cells of the other hosts of this comb are, by the numbers that these hosts have: all of them, whether they run or not.
    Elsewhere {
        /// By their numbers.
        cells: Vec<CellElsewhere>,
    },
}

/// A cell of another host, as the agents tell each other.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CellElsewhere {
    /// Its number.
    pub cell: u32,
    /// The host, by the name that this host's agent has for it.
    pub host: String,
    /// Whether it can be opened to.
    pub is_up: bool,
    /// Whether anything is heard of its host's agent.
    pub is_host_heard: bool,
}

/// A task, as a cell knows it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct TaskHere {
    /// Its number.
    pub task: u32,
    /// Its components in all cells.
    pub components: u32,
    /// Cores that it wants for itself; 0: none.
    pub cores: u32,
    /// Whether its components want to run at the same time, and to wait together.
    pub is_gang: bool,
    /// Those in this cell.
    pub processes: Vec<u32>,
}

/// A cell's name with the agent: what peers open.
pub fn process_name(cell: u32) -> String {
    format!("cell-{cell}")
}

/// The endpoint that every cell has.
pub const WIRE: &str = "wire";

/// The cell behind an address such as `cell-3/wire`, or `beta:cell-3/wire` of another host: that is one of its cells only if
/// `host_of` says so.
pub fn cell_of_address<'a>(address: &str, host_of: impl FnOnce(u32) -> Option<&'a str>) -> Option<u32> {
    let (host, here) = address.split_once(':').map_or((None, address), |(host, here)| (Some(host), here));
    let cell = cell_of_local_address(here)?;
    (host_of(cell) == host).then_some(cell)
}

fn cell_of_local_address(address: &str) -> Option<u32> {
    let (process, endpoint) = address.split_once('/')?;
    if endpoint != WIRE {
        return None;
    }
    process.strip_prefix("cell-")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_lead_back_to_cells() {
        let host_of = |cell| (cell > 20).then_some("beta");
        assert_eq!(cell_of_address(&format!("{}/{WIRE}", process_name(12)), host_of), Some(12));
        assert_eq!(cell_of_address("beta:cell-21/wire", host_of), Some(21));
        let strange = ["cell-3", "cell-x/wire", "cell-3/desk", "3/wire", ""];
        let not_theirs = ["beta:cell-12/wire", "gamma:cell-21/wire", "cell-21/wire", ":cell-12/wire"];
        for address in strange.into_iter().chain(not_theirs) {
            assert_eq!(cell_of_address(address, host_of), None, "{address:?}");
        }
    }
}
