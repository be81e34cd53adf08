//! Looks at the comb about once a second while somebody watches, and at its events all the time that somebody does.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use comb_host::RuntimeDirectory;
use comb_host::control::{self, CellCondition, CellStatus, ControlError, Reply, Request, Status};
use comb_host::events::{Event, Following};
use comb_host::federation::words::CellState;
use comb_host::federation::{HostCondition, HostStatus};
use comb_host::tasks::TaskRecord;
use comb_host::timeline::Failures;
use comb_region::named::{Ask, Register, Status as RegionStatus};
use tokio::sync::{broadcast, watch};

use crate::dependencies;
use crate::snapshot::{Cell, Dependence, Edge, Host, Memory, Region, Right, Snapshot, Task, Wax};

/// From one look to the next, if nothing has happened.
const BETWEEN_LOOKS: Duration = Duration::from_secs(1);
/// From one look for events to the next.
const BETWEEN_EVENTS: Duration = Duration::from_millis(25);
/// Behind an event, so that what comes with it is seen as well.
const BEHIND_AN_EVENT: Duration = Duration::from_millis(60);
/// While nobody watches.
const AT_REST: Duration = Duration::from_millis(200);
/// An agent answers from memory.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// Rates are of at least so long.
const SHORTEST_RATE: Duration = Duration::from_millis(200);

/// What watchers are given.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// The state last seen. It may be acted on by whom it is shown to, until the server says otherwise.
    pub(crate) state: watch::Sender<Arc<Snapshot>>,
    /// What happens.
    pub(crate) events: broadcast::Sender<Arc<Event>>,
    /// Whoever begins to watch says so, and does not wait for the next look.
    pub(crate) begins: mpsc::Sender<()>,
}

/// Runs in a thread of its own until nothing is left to look at.
pub(crate) fn run(directory: &RuntimeDirectory, seen: &Seen, beginnings: &mpsc::Receiver<()>) {
    let mut looker = Looker::new(directory.clone());
    let mut next_look = Instant::now();
    loop {
        let watchers = seen.state.receiver_count() + seen.events.receiver_count();
        let mut has_happened = false;
        while let Some(event) = looker.next_event() {
            has_happened = true;
            let _ = seen.events.send(Arc::new(event));
        }
        let now = Instant::now();
        if has_happened {
            next_look = next_look.min(now + BEHIND_AN_EVENT);
        }
        if watchers > 0 && now >= next_look {
            seen.state.send_replace(Arc::new(looker.look_without_events()));
            next_look = Instant::now() + BETWEEN_LOOKS;
        }
        if looker.following.is_over() && !directory.control_socket().exists() {
            return;
        }
        let pause = if watchers > 0 { BETWEEN_EVENTS } else { AT_REST };
        if beginnings.recv_timeout(pause).is_ok() {
            while beginnings.try_recv().is_ok() {}
            next_look = Instant::now();
        }
    }
}

/// One look, for those who do not go on looking. Rates are not known then.
pub fn look(directory: &RuntimeDirectory) -> Snapshot {
    Looker::new(directory.clone()).look()
}

/// What counters said when they were looked at last.
#[derive(Debug, Default)]
struct Before {
    at: Option<Instant>,
    /// Processor time, by cell and life.
    used_ns: BTreeMap<(u32, u64), u64>,
    /// Messages, by whom they were received and from whom, in that life of the receiver.
    received: BTreeMap<(u32, u64, u32), u64>,
    misses: BTreeMap<String, u64>,
}

/// Who looks again and again.
#[derive(Debug)]
pub struct Looker {
    directory: RuntimeDirectory,
    following: Following,
    failures: Failures,
    before: Before,
    /// The rates of then, for looks that come too soon.
    rates: Before,
    over: Duration,
}

impl Looker {
    /// Of a comb that is there, was, or will be.
    pub fn new(directory: RuntimeDirectory) -> Self {
        let (before, rates) = (Before::default(), Before::default());
        let following = Following::of(&directory);
        Self { directory, following, failures: Failures::default(), before, rates, over: Duration::ZERO }
    }

    /// What has happened since it was asked last, one at a time.
    pub fn next_event(&mut self) -> Option<Event> {
        let event = self.following.next_event()?;
        self.failures.take(&event);
        Some(event)
    }

    /// What there is to see now. Rates are known from the second look on.
    pub fn look(&mut self) -> Snapshot {
        while self.next_event().is_some() {}
        self.look_without_events()
    }

    fn look_without_events(&mut self) -> Snapshot {
        let at_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let mut snapshot = Snapshot {
            at_ms: u64::try_from(at_ms).unwrap_or(u64::MAX),
            comb: name_of(&self.directory),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            may_act: true,
            failures: self.failures.all().rev().cloned().collect(),
            ..Snapshot::default()
        };
        match self.ask(&Request::Status).zip_with(self.ask(&Request::Tasks)) {
            Ok((Reply::Status(status), Reply::Tasks(tasks))) => self.fill(&mut snapshot, &status, &tasks),
            Ok(_) => snapshot.trouble = Some("the agent is of another version".to_owned()),
            Err(error) => {
                snapshot.trouble = Some(error.to_string());
                snapshot.hosts.push(Host { state: "away", ..this_host() });
            }
        }
        snapshot
    }

    fn ask(&self, request: &Request) -> Result<Reply, ControlError> {
        control::ask_within(&self.directory, request, ANSWER_LIMIT)
    }

    fn fill(&mut self, snapshot: &mut Snapshot, status: &Status, tasks: &[TaskRecord]) {
        let own = status.hosts.iter().find(|host| host.condition == HostCondition::Here);
        let host = Host {
            host: own.map_or_else(|| this_host().host, |own| own.name.clone()),
            address: own.map(|own| own.address.clone()),
            state: "up",
            agent_pid: status.agent.pid,
            agent_cpu_ms: status.agent.cpu_ms,
            agent_bytes: status.agent.memory_bytes,
            ..this_host()
        };
        let entries = Register::of(self.directory.path()).all().unwrap_or_default();
        let homes: BTreeSet<u32> = entries.iter().map(|entry| entry.cell).collect();
        let living = status.cells.iter().filter(|cell| cell.state == CellCondition::Up);
        let mut regions: Vec<(u32, RegionStatus)> = Vec::new();
        for cell in living.filter(|cell| homes.contains(&cell.cell)) {
            // One that is dying says nothing.
            let report = Ask::at(self.directory.path(), cell.cell).and_then(|door| door.report());
            regions.extend(report.unwrap_or_default().into_iter().map(|status| (cell.cell, status)));
        }
        let in_cell = |process: u32| {
            let seats = tasks.iter().flat_map(|task| &task.seats);
            seats.clone().find(|seat| seat.process == process).map(|seat| seat.cell)
        };
        self.count(status, &regions);
        for cell in &status.cells {
            let mut memory = Memory { supervisor_bytes: cell.memory_bytes, ..Memory::default() };
            if let Some(load) = cell.load {
                (memory.own_bytes, memory.most_bytes) = (load.frame_bytes + load.task_bytes, load.most_bytes);
            }
            for (home, region) in &regions {
                let is_elsewhere = *home != cell.cell;
                let uses_it = region.processes.iter().any(|&process| in_cell(process) == Some(cell.cell));
                if is_elsewhere && uses_it {
                    memory.imported_bytes += region.resident_bytes;
                }
                if is_elsewhere && region.memory_home == Some(cell.cell) {
                    memory.loaned_bytes += region.resident_bytes;
                }
            }
            let here = |task: &&TaskRecord| task.seats.iter().any(|seat| seat.cell == cell.cell);
            let tasks: Vec<u32> = tasks.iter().filter(here).map(|task| task.wanted.task).collect();
            let has_regions = homes.contains(&cell.cell);
            snapshot.cells.push(Cell {
                cell: cell.cell,
                host: host.host.clone(),
                incarnation: cell.incarnation,
                state: state_of(cell, &tasks, has_regions),
                why: if let CellCondition::Ended(how) = &cell.state { how.clone() } else { String::new() },
                pid: cell.pid,
                uptime_ms: cell.uptime_ms,
                cpu_share: self.cpu_share(cell),
                memory,
                tasks,
                channels: cell.channels,
                round_trips: cell.round_trips,
                last_round_trip_ns: cell.last_round_trip_ns,
                seen_ms_ago: cell.seen_ms_ago,
            });
        }
        snapshot.hosts.push(host);
        for other in status.hosts.iter().filter(|other| other.condition != HostCondition::Here) {
            elsewhere(snapshot, other);
        }
        snapshot.cells.sort_by_key(|cell| cell.cell);
        snapshot.edges = self.edges(status);
        snapshot.rights = rights(&regions);
        snapshot.tasks = tasks.iter().map(|task| shown(task, &regions)).collect();
        snapshot.regions = entries
            .iter()
            .map(|entry| {
                let state =
                    regions.iter().find(|(_, state)| state.name == entry.name).map(|(_, state)| state);
                Region {
                    region: entry.name.clone(),
                    cell: entry.cell,
                    bytes: entry.allocation.bytes,
                    resident_bytes: state.map(|state| state.resident_bytes),
                    mode: entry.mode.to_string(),
                    users: state.map(|state| state.importers + state.copiers),
                    lost_blocks: state.map(|state| state.lost),
                    misses: state.map(|state| state.misses),
                    misses_per_s: self.rate(self.rates.misses.get(&entry.name)),
                }
            })
            .collect();
        snapshot.wax = status.wax.as_ref().map(|wax| Wax {
            pid: wax.pid,
            incarnation: wax.incarnation,
            decisions: wax.decisions,
            prefer: wax.prefer.clone(),
        });
    }

    /// Compares counters with those of the last look that is long enough ago.
    fn count(&mut self, status: &Status, regions: &[(u32, RegionStatus)]) {
        let now = Instant::now();
        let over = self.before.at.map(|at| now.duration_since(at));
        if over.is_some_and(|over| over < SHORTEST_RATE) {
            return;
        }
        let mut counted = Before { at: Some(now), ..Before::default() };
        for cell in &status.cells {
            let life = (cell.cell, cell.incarnation);
            if let Some(load) = cell.load {
                counted.used_ns.insert(life, load.used_ns);
            }
            for &(from, count) in &cell.received {
                counted.received.insert((cell.cell, cell.incarnation, from), count);
            }
        }
        counted.misses = regions.iter().map(|(_, region)| (region.name.clone(), region.misses)).collect();
        self.over = over.unwrap_or_default();
        self.rates = Before {
            at: over.map(|_| now),
            used_ns: grown(&counted.used_ns, &self.before.used_ns),
            received: grown(&counted.received, &self.before.received),
            misses: grown(&counted.misses, &self.before.misses),
        };
        self.before = counted;
    }

    fn rate(&self, grown: Option<&u64>) -> Option<f64> {
        self.rates.at?;
        #[expect(clippy::cast_precision_loss, reason = "a rate, of a second")]
        let rate = *grown? as f64 / self.over.as_secs_f64();
        Some((rate * 1000.0).round() / 1000.0)
    }

    fn cpu_share(&self, cell: &CellStatus) -> Option<f64> {
        let used_ns = self.rate(self.rates.used_ns.get(&(cell.cell, cell.incarnation)))?;
        Some((used_ns / 1e5).round() / 1e4)
    }

    fn edges(&self, status: &Status) -> Vec<Edge> {
        let mut edges = Vec::new();
        for cell in &status.cells {
            for &(from, _) in &cell.received {
                let key = (cell.cell, cell.incarnation, from);
                let messages_per_s = self.rate(self.rates.received.get(&key)).unwrap_or(0.0);
                edges.push(Edge { from, to: cell.cell, messages_per_s });
            }
        }
        edges
    }
}

/// By how much counters have grown that were there before.
fn grown<K: Ord + Clone>(now: &BTreeMap<K, u64>, before: &BTreeMap<K, u64>) -> BTreeMap<K, u64> {
    let grown = |(key, count): (&K, &u64)| Some((key.clone(), count.saturating_sub(*before.get(key)?)));
    now.iter().filter_map(grown).collect()
}

/// Two answers, or the first error.
trait Both<T, E> {
    fn zip_with(self, other: Result<T, E>) -> Result<(T, T), E>;
}

impl<T, E> Both<T, E> for Result<T, E> {
    fn zip_with(self, other: Self) -> Result<(T, T), E> {
        Ok((self?, other?))
    }
}

/// What a comb is called: by the last word of its directory, which has its name, or that of its user.
fn name_of(directory: &RuntimeDirectory) -> String {
    let file =
        directory.path().file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    match file.strip_prefix("comb-") {
        Some(user) if user.bytes().all(|byte| byte.is_ascii_digit()) => "comb".to_owned(),
        Some(name) => name.to_owned(),
        None => file,
    }
}

fn state_of(cell: &CellStatus, tasks: &[u32], has_regions: bool) -> &'static str {
    match (&cell.state, cell.is_draining, cell.is_held) {
        (CellCondition::Ended(_), _, true) => "held",
        (CellCondition::Ended(_), _, false) => "ended",
        (CellCondition::Starting, ..) => "starting",
        (CellCondition::Up, true, _) if tasks.is_empty() && !has_regions => "drained",
        (CellCondition::Up, true, _) => "draining",
        (CellCondition::Up, false, _) => "up",
    }
}

/// Another host, and its cells, as it said last.
fn elsewhere(snapshot: &mut Snapshot, other: &HostStatus) {
    let is_seen = other.condition == HostCondition::Up;
    let state = match other.condition {
        HostCondition::Here | HostCondition::Up => "up",
        HostCondition::Away => "away",
        HostCondition::Lost | HostCondition::CutOff => "lost",
    };
    let (host, address) = (other.name.clone(), Some(other.address.clone()));
    snapshot.hosts.push(Host { host, address, state, ..Host::default() });
    for cell in &other.cells {
        let (state, why) = match &cell.state {
            _ if !is_seen => ("lost", format!("its host is {}", other.condition)),
            CellState::Up => ("up", String::new()),
            CellState::Starting => ("starting", String::new()),
            CellState::Waiting => ("starting", "it waits for other hosts".to_owned()),
            CellState::Ended(how) => ("ended", how.clone()),
        };
        snapshot.cells.push(Cell {
            cell: cell.cell,
            host: other.name.clone(),
            incarnation: cell.incarnation,
            state,
            why,
            pid: cell.pid,
            uptime_ms: cell.uptime_ms,
            memory: Memory { supervisor_bytes: cell.memory_bytes, ..Memory::default() },
            channels: cell.channels,
            round_trips: cell.round_trips,
            ..Cell::default()
        });
    }
}

fn rights(regions: &[(u32, RegionStatus)]) -> Vec<Right> {
    let mut rights: BTreeMap<(u32, u32), u64> = BTreeMap::new();
    for (home, region) in regions {
        for &(holder, pages) in &region.held {
            *rights.entry((holder, *home)).or_default() += pages;
        }
    }
    rights.into_iter().map(|((holder, home), pages)| Right { holder, home, pages }).collect()
}

fn shown(task: &TaskRecord, regions: &[(u32, RegionStatus)]) -> Task {
    let (depends, words) = dependencies::of(task, regions);
    let depends_on = depends.cells().map(|cell| {
        let why: Vec<&str> =
            words.iter().filter(|(of, _)| *of == cell.0).map(|(_, why)| why.as_str()).collect();
        Dependence { cell: cell.0, why: why.join("; ") }
    });
    let cells: BTreeSet<u32> = task.seats.iter().map(|seat| seat.cell).collect();
    Task {
        task: task.wanted.task,
        program: task.wanted.program.join(" "),
        components: task.seats.len(),
        cells: cells.into_iter().collect(),
        depends_on: depends_on.collect(),
        since_s: task.since_s,
        restarts: task.wanted.restarts,
    }
}

/// What the kernel says of this machine.
fn this_host() -> Host {
    let info = rustix::system::sysinfo();
    let unit = u64::from(info.mem_unit);
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    #[expect(clippy::cast_precision_loss, reason = "a load is of some dozens")]
    let load = info.loads[0] as f64 / 65_536.0;
    Host {
        host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        is_this: true,
        cores: u32::try_from(cores).unwrap_or(u32::MAX),
        load: (load * 100.0).round() / 100.0,
        memory_bytes: info.totalram * unit,
        free_bytes: comb_host::process::available_bytes().unwrap_or(info.freeram * unit),
        ..Host::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_grown_counts_and_what_is_new_does_not() {
        let (before, now) = (BTreeMap::from([(1, 10), (2, 20)]), BTreeMap::from([(1, 15), (2, 3), (3, 9)]));
        assert_eq!(grown(&now, &before), BTreeMap::from([(1, 5), (2, 0)]));
    }

    #[test]
    fn a_comb_is_called_by_its_name_and_one_without_is_a_comb() {
        let called = |path: &str| name_of(&RuntimeDirectory::at(path).unwrap());
        assert_eq!(
            [called("/run/comb"), called("/tmp/comb-1000"), called("/run/comb-lab")],
            ["comb", "comb", "lab"]
        );
    }

    #[test]
    fn without_an_agent_there_is_something_to_see_and_it_says_so() {
        let path = std::env::temp_dir().join(format!("comb-nobody-{}", std::process::id()));
        let snapshot = look(&RuntimeDirectory::at(path).unwrap());
        assert!(snapshot.trouble.is_some_and(|trouble| trouble.contains("no agent")), "it says what to do");
        assert_eq!(snapshot.hosts[0].state, "away");
    }
}
