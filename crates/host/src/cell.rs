//! A cell, as its agent keeps it in its book.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use comb_cell::Beginning;
use comb_cell::supervision::Order;

use crate::backing::Shown;
use crate::cgroup::Cgroup;
use crate::control::{CellCondition, CellLoad, CellStatus};
use crate::state::{CellState, ProcessName};
use crate::{RuntimeDirectory, notify, process};

/// One number, over all its lives.
#[derive(Debug)]
pub(crate) struct Cell {
    pub(crate) number: u32,
    pub(crate) incarnation: u64,
    /// None: it has ended.
    pub(crate) running: Option<Running>,
    /// Of the present or last life.
    pub(crate) pid: u32,
    pub(crate) ended: Option<String>,
    /// Whether it has said hello on a connection that is open, and on which.
    pub(crate) connection: Option<u64>,
    /// Cells that it says it has a channel to.
    pub(crate) linked: BTreeSet<u32>,
    pub(crate) round_trips: u64,
    pub(crate) last_round_trip_ns: u64,
    /// Messages that have come from each of the others.
    pub(crate) received: Vec<(u32, u64)>,
    pub(crate) seen: Option<Instant>,
    /// When we killed it, on `CLOCK_MONOTONIC`.
    pub(crate) killed_at_ns: Option<u64>,
    /// What the others have found, if we end it for that.
    pub(crate) failing: Option<String>,
    /// Which of the others know that most find it failed.
    pub(crate) found_failed_by: BTreeSet<u32>,
    /// It is one of those who agree, as far as is known. Who is none waits to be let in by one.
    pub(crate) is_member: bool,
    /// It says that too few are left to agree on anything.
    pub(crate) is_stranded: bool,
    /// Somebody wants it down: it is not started by itself.
    pub(crate) is_held: bool,
    /// It gets no new tasks.
    pub(crate) is_draining: bool,
    /// That this life of it is up was noted.
    pub(crate) is_noted_up: bool,
    /// It is to end, in good order, and to be started anew.
    pub(crate) is_told_to_end: bool,
    pub(crate) again: Again,
    /// What it shows to the other cells.
    pub(crate) shown: Option<Shown>,
    /// When its last lives began, over all its lives.
    begun: Vec<Instant>,
}

/// What is known of another life of a cell.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Again {
    /// It runs, or stays down.
    Not,
    /// The others have recovered from its end, and it has not ended yet: as soon as it has.
    AtItsEnd,
    /// It is down, and nobody has said yet that it can be started.
    Unsaid { since: Instant },
    /// As soon as its place is fit for that.
    WhenFit { since: Instant, why: String },
    /// As soon as its host has reached the others of the comb.
    WhenReached,
}

/// A cell that has begun so often in so short a time fails for a reason that another beginning does not remove.
const MOST_BEGINNINGS: usize = 5;
const BEGINNINGS_WITHIN: Duration = Duration::from_secs(30);

/// A cell's process.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) name: ProcessName,
    pub(crate) process: OwnedFd,
    /// None: an earlier agent started it, and its status will not be told to us.
    child: Option<Child>,
    cgroup: Option<Cgroup>,
}

impl Running {
    /// Starts a process for that life of a cell. It is this very program, under another name for what it is to do.
    pub(crate) fn spawn(
        directory: &RuntimeDirectory,
        (cell, incarnation): (u32, u64),
        cgroup: Option<Cgroup>,
        beginning: &Beginning,
        memory_bytes: Option<u64>,
        faults: bool,
        elsewhere: &str,
    ) -> std::io::Result<Self> {
        // Not by its path: the program may have been replaced by a newer build since.
        let mut command = Command::new("/proc/self/exe");
        command.arg0("comb").arg("cell").arg("run").arg(cell.to_string());
        command.arg("--incarnation").arg(incarnation.to_string());
        let (how, cells) = match beginning {
            Beginning::Together(cells) => ("--together", cells),
            Beginning::ComingIn(cells) => ("--coming-in-to", cells),
        };
        let cells: Vec<String> = cells.iter().map(u32::to_string).collect();
        command.arg(how).arg(cells.join(","));
        if let Some(cgroup) = &cgroup {
            command.arg("--cgroup").arg(cgroup.path());
        }
        if let Some(bytes) = memory_bytes {
            command.arg("--memory").arg(bytes.to_string());
        }
        if faults {
            command.arg("--faults");
        }
        if !elsewhere.is_empty() {
            command.arg("--elsewhere").arg(elsewhere);
        }
        command.env("COMB_RUNTIME_DIR", directory.path()).env_remove(notify::VARIABLE);
        // Its session is made by the cell itself: what a terminal tells the agent's is not meant for cells.
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let mut child = command.spawn()?;
        // Not reaped yet, so that the number is still its own.
        let Some((process, name)) = process::open_number(child.id()).zip(ProcessName::of(child.id())) else {
            // Without descriptors left it lives, and nobody would know of it.
            let _ = child.kill();
            let _ = child.wait();
            return Err(std::io::Error::other("the new process cannot be watched"));
        };
        Ok(Self { name, process, child: Some(child), cgroup })
    }

    /// Takes over a process that an earlier agent started.
    pub(crate) fn adopt(name: ProcessName, cgroup: Option<Cgroup>) -> Option<Self> {
        Some(Self { name, process: name.open()?, child: None, cgroup })
    }

    /// Kills everything in the cell.
    pub(crate) fn kill(&self) {
        // Both: the process may not have moved into its cgroup yet.
        if let Some(cgroup) = &self.cgroup {
            cgroup.kill();
        }
        process::kill(&self.process);
    }

    /// Whether it has ended, and how.
    fn end(&mut self) -> Option<Option<ExitStatus>> {
        match &mut self.child {
            Some(child) => child.try_wait().ok().flatten().map(Some),
            // It may still be a child of this very process, which was another program then.
            None => {
                process::wait_for_end(&self.process, Duration::ZERO).then(|| process::reap(&self.process))
            }
        }
    }
}

/// How a process ended, for people.
fn how(status: Option<ExitStatus>) -> String {
    let Some(status) = status else { return "ended (an earlier agent started it: status unknown)".into() };
    match (status.code(), status.signal()) {
        (Some(0), _) => "ended by itself".into(),
        (Some(code), _) => format!("failed with status {code}: see `comb log`"),
        (None, Some(9)) => "killed by signal 9 (SIGKILL)".into(),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => "ended".into(),
    }
}

impl Cell {
    /// A cell that has never lived.
    pub(crate) fn new(number: u32) -> Self {
        Self {
            number,
            incarnation: 0,
            running: None,
            pid: 0,
            ended: None,
            connection: None,
            linked: BTreeSet::new(),
            round_trips: 0,
            last_round_trip_ns: 0,
            received: Vec::new(),
            seen: None,
            killed_at_ns: None,
            failing: None,
            found_failed_by: BTreeSet::new(),
            is_held: false,
            is_draining: false,
            is_noted_up: false,
            is_told_to_end: false,
            again: Again::Not,
            is_member: false,
            is_stranded: false,
            shown: None,
            begun: Vec::new(),
        }
    }

    /// The cell of that state, its process adopted if it still runs.
    pub(crate) fn restore(state: &CellState, cgroup: Option<Cgroup>) -> Self {
        let mut cell = Self::new(state.cell);
        cell.incarnation = state.incarnation;
        cell.ended.clone_from(&state.ended);
        cell.is_held = state.is_held;
        cell.is_draining = state.is_draining;
        cell.is_noted_up = true;
        // Who should have said that it can be started again may have said so to nobody.
        cell.again = Again::Unsaid { since: Instant::now() };
        // Until it says otherwise.
        cell.is_member = true;
        if let Some(name) = state.process {
            cell.pid = name.pid;
            cell.running = Running::adopt(name, cgroup);
            if cell.running.is_none() {
                cell.ended = Some("ended while no agent was there".into());
            }
        }
        cell
    }

    /// What the next agent has to know.
    pub(crate) fn state(&self) -> CellState {
        let (cell, incarnation) = (self.number, self.incarnation);
        CellState {
            cell,
            incarnation,
            process: self.running.as_ref().map(|running| running.name),
            ended: self.ended.clone(),
            is_held: self.is_held,
            is_draining: self.is_draining,
        }
    }

    /// A new life begins.
    pub(crate) fn begin(&mut self, running: Running, beginning: &Beginning) {
        let mut begun = std::mem::take(&mut self.begun);
        begun.push(Instant::now());
        begun.drain(..begun.len().saturating_sub(MOST_BEGINNINGS));
        let (incarnation, is_draining) = (self.incarnation + 1, self.is_draining);
        *self = Self { incarnation, begun, is_draining, ..Self::new(self.number) };
        self.pid = running.name.pid;
        self.running = Some(running);
        self.is_member = matches!(beginning, Beginning::Together(_));
    }

    /// If its process has ended: puts that into the book and returns how.
    pub(crate) fn take_end(&mut self) -> Option<String> {
        let running = self.running.as_mut()?;
        let status = running.end()?;
        if let Some(cgroup) = &running.cgroup {
            cgroup.kill();
            cgroup.remove();
        }
        let how = match (&self.failing, self.killed_at_ns) {
            (Some(finding), _) => format!("killed by its agent, for the others found it failed: {finding}"),
            (None, Some(_)) => "killed by its agent".to_owned(),
            (None, None) if self.is_told_to_end => "ended as it was told, to be started anew".to_owned(),
            (None, None) => how(status),
        };
        self.running = None;
        self.connection = None;
        self.linked.clear();
        self.ended = Some(how.clone());
        if self.again != Again::AtItsEnd {
            self.again = Again::Unsaid { since: Instant::now() };
        }
        Some(how)
    }

    /// Whether it may be started by itself.
    pub(crate) fn may_start_again(&self, now: Instant) -> Result<(), String> {
        let recently =
            self.begun.iter().filter(|begun| now.duration_since(**begun) < BEGINNINGS_WITHIN).count();
        if recently < MOST_BEGINNINGS {
            return Ok(());
        }
        Err(format!("it was started {recently} times within {} s", BEGINNINGS_WITHIN.as_secs()))
    }

    /// Its memory is nobody's any more: whoever still reads what it showed gets a bus error.
    pub(crate) fn take_back(&mut self) {
        if let Some(shown) = self.shown.take() {
            shown.take_back();
        }
    }

    /// What the other cells are told of what it shows.
    pub(crate) fn shows(&self) -> Option<(Order, Arc<OwnedFd>)> {
        let shown = self.shown.as_ref()?;
        let order = Order::Shows { cell: self.number, incarnation: self.incarnation, pid: self.pid };
        Some((order, shown.to_read()))
    }

    /// Whether the agent itself sees that it has failed.
    pub(crate) fn looks_failed(&self) -> bool {
        self.shown.as_ref().is_none_or(|shown| shown.has_failed(self.number, self.incarnation, self.pid))
    }

    pub(crate) fn is_up(&self) -> bool {
        self.running.is_some() && self.connection.is_some()
    }

    pub(crate) fn status(&self, all: &[Self]) -> CellStatus {
        let millis = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        let shown = self.shown.as_ref();
        let condition = shown.and_then(|shown| shown.condition(self.number, self.incarnation, self.pid));
        let stat = self.running.as_ref().and_then(|running| process::stat(running.name.pid));
        // A channel to a cell that has ended is none, even if this one has not noticed.
        let channels =
            all.iter().filter(|other| other.running.is_some() && self.linked.contains(&other.number));
        let state = match (&self.ended, self.is_up()) {
            (Some(how), _) => CellCondition::Ended(how.clone()),
            (None, true) => CellCondition::Up,
            (None, false) => CellCondition::Starting,
        };
        CellStatus {
            cell: self.number,
            incarnation: self.incarnation,
            state,
            pid: self.pid,
            channels: u32::try_from(channels.count()).unwrap_or(u32::MAX),
            uptime_ms: stat.map_or(0, |stat| millis(stat.uptime())),
            cpu_ms: stat.map_or(0, |stat| millis(stat.cpu())),
            memory_bytes: stat.map_or(0, |stat| stat.resident_bytes()),
            round_trips: self.round_trips,
            last_round_trip_ns: self.last_round_trip_ns,
            received: self.received.clone(),
            is_held: self.is_held,
            is_draining: self.is_draining,
            seen_ms_ago: self.seen.map(|seen| millis(seen.elapsed())),
            heeded: condition.as_ref().map(|seen| seen.load.heeded),
            load: condition.as_ref().map(CellLoad::of),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_told_in_words() {
        assert_eq!(how(Some(ExitStatus::from_raw(9))), "killed by signal 9 (SIGKILL)");
        assert_eq!(how(Some(ExitStatus::from_raw(6))), "killed by signal 6");
        assert_eq!(how(Some(ExitStatus::from_raw(0))), "ended by itself");
        assert_eq!(how(Some(ExitStatus::from_raw(1 << 8))), "failed with status 1: see `comb log`");
    }

    #[test]
    fn a_cell_whose_process_is_gone_is_restored_as_ended() {
        let process = Some(ProcessName { pid: std::process::id(), start_ticks: 1 });
        let state =
            CellState { cell: 3, incarnation: 2, process, ended: None, is_held: false, is_draining: false };
        let cell = Cell::restore(&state, None);
        assert!(cell.running.is_none());
        assert!(matches!(cell.status(&[]).state, CellCondition::Ended(how) if how.contains("no agent")));
    }
}
