//! The agent's process: one thread that sleeps until a command, a cell, or the end of a cell wakes it. Channels are
//! brokered beside it by [`comb_net::agent::Server`]; no message ever comes by here.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use comb_cell::Beginning;
use comb_cell::clock::{monotonic_ns, span};
use comb_cell::faults::Fault;
use comb_cell::heeding;
use comb_cell::hints::{MOST_TASKS as MOST_TASKS_TOLD, POLICY};
use comb_cell::journal;
use comb_cell::supervision::{Order, Recovered, Report, TaskHere};
use comb_net::agent::listener::Listener;
use comb_net::agent::protocol::{self, ProtocolError};
use comb_net::agent::{Limits, Server};
use comb_types::mechanism::Mechanism;
use rustix::event::epoll;
use rustix::io::Errno;

use crate::backing::Shown;
use crate::cell::{Again, Cell, Running};
use crate::cgroup::{self, Cgroup};
use crate::control::{AgentStatus, CellCondition, Down, MOST_RECOVERIES, Reply, Request, Status};
use crate::dashboard::{self, Dashboard};
use crate::events::{Events, What};
use crate::keeping::Keeping;
use crate::observations::{Injected, Observations};
use crate::state::{self, ProcessName, STATE_VERSION, State};
use crate::tasks::{self, MOST_TASKS, Seat, Task, TaskOrder, TaskRecord, Wanted};
use crate::waits::{Awaited, Wait};
use crate::waxing::Waxing;
use crate::{DirectoryError, RuntimeDirectory, marks, notify::Notify, process, remains, signals, waits};

mod commands;
mod connection;
mod ending;
mod failures;
mod hosts;
mod placing;
mod policy;
mod starting;
mod succeeding;

use connection::{CellConnection, user_of};

/// Told to end, a cell ends within a beat. What takes longer is stuck and is killed.
const END_LIMIT: Duration = Duration::from_secs(2);

/// A place that is not fit for another life of its cell by then is so for longer.
const DIAGNOSIS_LIMIT: Duration = Duration::from_secs(10);
const BETWEEN_DIAGNOSES: Duration = Duration::from_millis(20);
/// What becomes of tasks within so short a time is told together.
const TASKS_SETTLE: Duration = Duration::from_millis(5);
const NO_FAULTS: &str =
    "this agent was not started to have cells fail: only `comb inject` does that, with cells of its own";

/// The recovery master says within some milliseconds that a cell can be started again. It may have ended itself, though, or not know of all who have.
const WORD_LIMIT: Duration = Duration::from_secs(1);

/// A cell says four times in this time that it is still here.
const SILENCE_LIMIT: Duration = Duration::from_secs(4);

/// Commands that are asked at one time. Each is one process of a person or a script.
const MOST_COMMANDS: usize = 64;
/// Of each recovery that is remembered: all of them are to fit into one reply.
const MOST_REGIONS_REMEMBERED: usize = 2;
/// Connections of cells: as many more as there can be new lives beside old ones.
const MOST_CELL_CONNECTIONS: usize = 2 * crate::MOST_CELLS as usize;
/// A command asks, and a cell says hello, at once. A connection that says nothing holds a place that others could have.
const FIRST_WORD_LIMIT: Duration = Duration::from_secs(5);

/// What an agent is told when it is started.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where.
    pub directory: RuntimeDirectory,
    /// How many cells. An agent that takes over from a dead one takes its cells instead.
    pub cells: u32,
    /// Whether the end of standard input is the end of everything: whoever started us wants nothing to outlive it.
    pub end_with_stdin: bool,
    /// What its processes may hold.
    pub limits: Limits,
    /// Bytes of page frames that each cell may have; none: as many as the host has.
    pub memory_bytes: Option<u64>,
    /// Whether its cells are told to fail: for those who inject faults, and nobody else.
    pub faults: bool,
    /// Where its dashboard is.
    pub dashboard: dashboard::Wanted,
    /// Who may command besides its own user and root: see [`crate::federation::access::Access::parse`].
    pub allow: String,
}

/// Why an agent could not start or go on.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// Another one is there. Nothing changed.
    #[error("an agent is at work in {0} already")]
    AlreadyRunning(String),
    /// No directory.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// Channels cannot be brokered.
    #[error(transparent)]
    Start(#[from] comb_net::agent::server::StartError),
    /// The system refused.
    #[error("{doing}: {source}")]
    System {
        /// What was tried.
        doing: &'static str,
        /// Why not.
        source: std::io::Error,
    },
}

fn system<E: Into<std::io::Error>>(doing: &'static str) -> impl Fn(E) -> DaemonError {
    move |source| DaemonError::System { doing, source: source.into() }
}

/// Runs the agent until it is told to end. `ready` is called when it can be asked.
pub fn run(options: &Options, ready: impl FnOnce()) -> Result<(), DaemonError> {
    crate::held::hold();
    let directory = options.directory.clone();
    directory.create()?;
    let lock = remains::lock(&directory).map_err(system("cannot lock the runtime directory"))?;
    let Some(lock) = lock else { return Err(DaemonError::AlreadyRunning(directory.to_string())) };
    // The log comes next: from here on what goes wrong is written down.
    let log = File::options().create(true).append(true).open(directory.log_file());
    let log = log.map_err(system("cannot open the log"))?;
    rustix::stdio::dup2_stderr(&log).map_err(system("cannot lead stderr to the log"))?;
    std::env::set_current_dir("/").map_err(system("cannot change to /"))?;
    // A session of its own, so that no terminal's end is ours. One that leads a group already is run by hand.
    let _ = rustix::process::setsid();
    let _ = rustix::thread::set_name(c"comb-agent");
    raise_descriptor_limit();
    let told = signals::catch().map_err(system("cannot catch signals"))?;
    Daemon::start(options, lock, told)?.run(ready)
}

/// Two descriptors a channel and more: the usual 1024 are few, and every process may have as many as the hard limit.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
}

/// What an event is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Source {
    ControlListener,
    CellsListener,
    Stdin,
    Signal,
    /// A cell's process.
    Process(u32),
    /// A command's connection.
    Command(u64),
    /// A cell's connection.
    Cell(u64),
    /// A task's launcher.
    Task(u32),
    /// The policy's process.
    Policy,
    /// The dashboard's.
    Dashboard,
    /// The lines to other hosts.
    Hosts,
}

impl Source {
    fn token(self) -> u64 {
        let (kind, number) = match self {
            Self::ControlListener => (0, 0),
            Self::CellsListener => (1, 0),
            Self::Stdin => (2, 0),
            Self::Process(cell) => (3, u64::from(cell)),
            Self::Command(connection) => (4, connection),
            Self::Cell(connection) => (5, connection),
            Self::Signal => (6, 0),
            Self::Task(task) => (7, u64::from(task)),
            Self::Policy => (8, 0),
            Self::Dashboard => (9, 0),
            Self::Hosts => (10, 0),
        };
        kind << 56 | number
    }

    fn of(data: epoll::EventData) -> Option<Self> {
        let (kind, number) = (data.u64() >> 56, data.u64() & ((1 << 56) - 1));
        Some(match kind {
            0 => Self::ControlListener,
            1 => Self::CellsListener,
            2 => Self::Stdin,
            3 => Self::Process(u32::try_from(number).ok()?),
            4 => Self::Command(number),
            5 => Self::Cell(number),
            6 => Self::Signal,
            7 => Self::Task(u32::try_from(number).ok()?),
            8 => Self::Policy,
            9 => Self::Dashboard,
            10 => Self::Hosts,
            _ => return None,
        })
    }
}

/// A command's connection.
#[derive(Debug)]
struct Command {
    socket: OwnedFd,
    uid: u32,
    since: Instant,
    asked: bool,
}

/// Everything is being taken down.
#[derive(Debug, Default)]
struct Ending {
    /// Who asked; none if standard input ended or a signal came.
    connections: Vec<u64>,
    deadline: Option<Instant>,
    told: u32,
    killed: u32,
}

struct Daemon {
    directory: RuntimeDirectory,
    /// Held as long as the agent lives.
    _lock: File,
    server: Server,
    /// Second references for the cells' homes.
    keeping: Keeping,
    epoll: OwnedFd,
    control: Listener,
    cells_listener: Listener,
    next_connection: u64,
    commands: BTreeMap<u64, Command>,
    cell_connections: BTreeMap<u64, CellConnection>,
    cgroup: Option<Cgroup>,
    memory_bytes: Option<u64>,
    cells: Vec<Cell>,
    /// By their launchers' processes.
    tasks: BTreeMap<u32, Task>,
    /// When cells are told what has changed of them.
    tell_tasks_at: Option<Instant>,
    waits: Vec<Wait>,
    waxing: Waxing,
    /// The last, each with the cell that says so.
    recoveries: VecDeque<(u32, Recovered)>,
    events: Events,
    dashboard: Option<Dashboard>,
    /// None: no cell is ever told to fail.
    observations: Option<Observations>,
    ending: Option<Ending>,
    notify: Notify,
    /// Other hosts.
    abroad: hosts::Abroad,
}

fn say(what: impl std::fmt::Display) {
    journal::write("agent", what);
}

fn listen(path: &std::path::Path) -> Result<OwnedFd, Errno> {
    // We hold the lock: whoever listened here is dead.
    let _ = std::fs::remove_file(path);
    Listener::bind(path)
}

impl Daemon {
    fn start(options: &Options, lock: File, told: &OwnedFd) -> Result<Self, DaemonError> {
        let directory = options.directory.clone();
        let previous = state::read(&directory);
        let (federation, policy) =
            hosts::prepare(options).map_err(system("cannot speak with other hosts"))?;
        let is_for_others = federation.access.is_for_others();
        if is_for_others {
            // What is made from here on is nobody else's, whatever they can reach.
            rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
        }
        let server = Server::bind(&directory.agent_socket(), Box::new(policy), options.limits)?;
        let keeping = Keeping::begin(directory.path()).map_err(system("cannot keep second references"))?;
        let control = listen(&directory.control_socket()).map_err(system("cannot listen for commands"))?;
        let cells_listener = listen(&directory.cells_socket()).map_err(system("cannot listen for cells"))?;
        let cannot = system("cannot wait for events");
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(&cannot)?;
        let control = Listener::watch(control, &epoll, Source::ControlListener.token()).map_err(&cannot)?;
        let cells_listener =
            Listener::watch(cells_listener, &epoll, Source::CellsListener.token()).map_err(&cannot)?;
        let dashboard = Dashboard::open(&directory, options.dashboard)
            .map_err(system("the dashboard cannot listen (`comb up --dashboard` names another address)"))?;
        let mut daemon = Self {
            directory,
            _lock: lock,
            server,
            keeping,
            epoll,
            control,
            cells_listener,
            next_connection: 0,
            commands: BTreeMap::new(),
            cell_connections: BTreeMap::new(),
            cgroup: None,
            memory_bytes: options.memory_bytes,
            cells: Vec::new(),
            tasks: BTreeMap::new(),
            tell_tasks_at: None,
            waits: Vec::new(),
            waxing: Waxing::new(previous.as_ref().map_or(0, |previous| previous.policy)),
            recoveries: VecDeque::new(),
            events: Events::open(&options.directory),
            dashboard,
            observations: options.faults.then(Observations::default),
            ending: None,
            notify: Notify::from_environment(),
            abroad: hosts::Abroad::new(federation),
        };
        daemon.watch(daemon.abroad.federation.wake(), Source::Hosts).map_err(&cannot)?;
        daemon.watch(told, Source::Signal).map_err(&cannot)?;
        if options.end_with_stdin {
            daemon.watch(std::io::stdin(), Source::Stdin).map_err(&cannot)?;
        }
        let (has_cells, had_others) =
            (previous.is_some(), previous.as_ref().is_some_and(|previous| previous.has_others));
        match previous {
            Some(previous) => daemon.take_over(&previous).map_err(&cannot)?,
            None => daemon.begin(options.cells),
        }
        if had_others || !has_cells && options.cells == 0 {
            let resumed = daemon.resume_membership(has_cells);
            resumed.map_err(|why| system("cannot be a host of its comb")(std::io::Error::other(why)))?;
        }
        daemon.keeping.serve().map_err(system("cannot keep second references"))?;
        if is_for_others {
            daemon.directory.let_others_ask().map_err(system("cannot let others ask"))?;
        }
        Ok(daemon)
    }

    fn watch(&self, what: impl AsFd, source: Source) -> Result<(), Errno> {
        epoll::add(&self.epoll, what, epoll::EventData::new_u64(source.token()), epoll::EventFlags::IN)
    }

    /// With new cells.
    fn begin(&mut self, cells: u32) {
        let pid = std::process::id();
        self.cgroup = match common_cgroup() {
            Ok(cgroup) => Some(cgroup),
            Err(error) => {
                say(format_args!("no cgroups ({error}): {}", Mechanism::Cgroups.fallback()));
                None
            }
        };
        let text = format_args!("process {pid} starts {cells} cells in {}", self.directory);
        self.events.note(What::AgentBegan { pid, took_over: false }, text);
        self.cells = (1..=cells).map(Cell::new).collect();
        let together = Beginning::Together((1..=cells).collect());
        for index in 0..self.cells.len() {
            self.start_cell(index, &together);
        }
    }

    /// With the cells of a dead agent.
    fn take_over(&mut self, previous: &State) -> Result<(), Errno> {
        self.cgroup = previous.cgroup.clone().map(Cgroup::at);
        self.memory_bytes = previous.memory_bytes;
        if previous.faults {
            self.observations.get_or_insert_default();
        }
        for state in &previous.cells {
            let cell = Cell::restore(state, self.cgroup_of(state.cell).ok().flatten());
            if let Some(running) = &cell.running {
                self.watch(&running.process, Source::Process(cell.number))?;
                let known = || Ok((running.name.pid, ()));
                self.keeping.cell_begins((cell.number, cell.incarnation), known).expect("known already");
            }
            self.cells.push(cell);
        }
        let living = self.cells.iter().filter(|cell| cell.running.is_some()).count();
        let (pid, before) = (std::process::id(), previous.agent.pid);
        let text = format_args!("process {pid} takes over from process {before}: {living} cells live");
        self.events.note(What::AgentBegan { pid, took_over: true }, text);
        self.write_state();
        Ok(())
    }

    fn cgroup_of(&self, cell: u32) -> std::io::Result<Option<Cgroup>> {
        self.cgroup.as_ref().map(|parent| Cgroup::create(parent.path(), &format!("cell-{cell}"))).transpose()
    }

    fn start_cell(&mut self, index: usize, beginning: &Beginning) {
        let (number, incarnation) = (self.cells[index].number, self.cells[index].incarnation + 1);
        let spawned = self
            .cgroup_of(number)
            .and_then(|cgroup| {
                let (memory, faults) = (self.memory_bytes, self.observations.is_some());
                let life = (number, incarnation);
                let elsewhere = self.elsewhere_argument();
                self.keeping.cell_begins(life, || {
                    let running =
                        Running::spawn(&self.directory, life, cgroup, beginning, memory, faults, &elsewhere)?;
                    Ok((running.name.pid, running))
                })
            })
            .and_then(|running| {
                let watched = self.watch(&running.process, Source::Process(number));
                watched.inspect_err(|_| running.kill())?;
                Ok(running)
            });
        match spawned {
            Ok(running) => {
                let pid = running.name.pid;
                self.cells[index].begin(running, beginning);
                let text = format_args!("started cell {number} (process {pid}), incarnation {incarnation}");
                let what = What::CellStarted { cell: number, incarnation, pid };
                // That all begin has been said.
                match beginning {
                    Beginning::Together(_) => self.events.note_quietly(what, text),
                    Beginning::ComingIn(_) => self.events.note(what, text),
                }
                self.abroad.federation.life_begins(number, incarnation);
            }
            Err(error) => {
                let text = format_args!("cell {number} cannot be started: {error}");
                self.events.note(What::CellStaysDown { cell: number }, text);
                self.cells[index].ended = Some(format!("could not be started: {error}"));
            }
        }
        self.write_state();
    }

    fn write_state(&self) {
        let Some(agent) = ProcessName::of(std::process::id()) else { return };
        let state = State {
            version: STATE_VERSION,
            agent,
            cgroup: self.cgroup.as_ref().map(|cgroup| cgroup.path().to_owned()),
            cells: self.cells.iter().map(Cell::state).collect(),
            policy: self.waxing.incarnation,
            memory_bytes: self.memory_bytes,
            faults: self.observations.is_some(),
            has_others: self.abroad.federation.has_others(),
        };
        if let Err(error) = state::write(&self.directory, &state) {
            say(format_args!("cannot write {}: {error}", self.directory.state_file().display()));
        }
    }

    // ── the loop ──

    fn run(mut self, ready: impl FnOnce()) -> Result<(), DaemonError> {
        ready();
        let mut space = [std::mem::MaybeUninit::<epoll::Event>::uninit(); 64];
        loop {
            self.notify.tell_of_cells(self.cells.iter().map(Cell::is_up));
            let limit = self.next_deadline().map(|deadline| {
                let left = deadline.saturating_duration_since(Instant::now());
                left.try_into().expect("limits are seconds")
            });
            let sources: Vec<Source> = match epoll::wait(&self.epoll, &mut space, limit.as_ref()) {
                Ok((events, _)) => events.iter().filter_map(|event| Source::of(event.data)).collect(),
                Err(Errno::INTR) => continue,
                Err(error) => return Err(system("cannot wait for events")(error)),
            };
            for source in sources {
                match source {
                    Source::ControlListener => self.accept_command(),
                    Source::CellsListener => self.accept_cell(),
                    Source::Stdin => {
                        let _ = epoll::delete(&self.epoll, std::io::stdin());
                        say("whoever started this agent is gone");
                        self.end_all(None);
                    }
                    Source::Signal => self.hear_signal(),
                    Source::Process(cell) => self.look_for_end(cell),
                    Source::Command(connection) => self.hear_command(connection),
                    Source::Cell(connection) => self.hear_cell(connection),
                    Source::Task(task) => self.hear_task(task),
                    Source::Policy => self.look_for_end_of_policy(),
                    Source::Dashboard => self.look_for_end_of_dashboard(),
                    Source::Hosts => self.hear_hosts(),
                }
            }
            self.restart_those_that_wait();
            self.begin_what_is_due_abroad();
            self.answer_waits();
            self.start_policy();
            self.start_dashboard();
            self.drop_the_silent();
            self.restart_the_forgotten();
            self.tell_of_changed_tasks();
            self.note_those_that_are_up();
            if self.is_over() {
                return self.finish();
            }
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        let ending = self.ending.as_ref().and_then(|ending| ending.deadline);
        let pauses = [&self.control, &self.cells_listener].into_iter().filter_map(Listener::deadline);
        let silent = self.silent_since().map(|since| since + FIRST_WORD_LIMIT);
        let waiting = self.cells.iter().filter(|cell| matches!(cell.again, Again::WhenFit { .. }));
        let waiting = waiting.map(|_| Instant::now() + BETWEEN_DIAGNOSES);
        let policy = self.waxing.next_due().filter(|_| self.ending.is_none());
        let dashboard = self.dashboard.as_ref().and_then(Dashboard::next_due);
        let policy = policy.into_iter().chain(dashboard.filter(|_| self.ending.is_none()));
        let down = self.cells.iter().filter_map(|cell| match cell.again {
            Again::Unsaid { since } => Some(since + WORD_LIMIT),
            _ => None,
        });
        let waits =
            self.waits.iter().map(Wait::deadline).chain(self.tell_tasks_at).chain(self.next_due_abroad());
        waits.chain(waiting).chain(down).chain(ending).chain(pauses).chain(silent).chain(policy).min()
    }

    /// Since when whoever has been silent longest has been so.
    fn silent_since(&self) -> Option<Instant> {
        let commands = self.commands.values().filter(|command| !command.asked).map(|command| command.since);
        let cells = self.cell_connections.values().filter(|known| known.cell.is_none());
        commands.chain(cells.map(|known| known.since)).min()
    }

    /// Connections that have said nothing for too long make place for others.
    fn drop_the_silent(&mut self) {
        let now = Instant::now();
        self.control.resume(&self.epoll, now);
        self.cells_listener.resume(&self.epoll, now);
        if self.silent_since().is_none_or(|since| now < since + FIRST_WORD_LIMIT) {
            return;
        }
        let late = |since: Instant| now >= since + FIRST_WORD_LIMIT;
        self.commands.retain(|_, command| command.asked || !late(command.since));
        self.cell_connections.retain(|_, known| known.cell.is_some() || !late(known.since));
    }

    fn hear_signal(&mut self) {
        let Some(signal) = signals::take().map(signals::name) else { return };
        match &mut self.ending {
            None => {
                say(format_args!("was told to end ({signal})"));
                self.end_all(None);
            }
            // Said twice, it is meant: no cell gets more time.
            Some(ending) => ending.deadline = ending.deadline.map(|_| Instant::now()),
        }
    }

    fn answer_waits(&mut self) {
        let now = Instant::now();
        let mut answers = Vec::new();
        self.waits.retain(|wait| match wait.answer(&self.cells, now) {
            Some(reply) => {
                answers.push((wait.connection, reply));
                false
            }
            None => true,
        });
        for (connection, reply) in answers {
            self.reply(connection, &reply);
        }
    }

    // ── cells ──

    fn accept_cell(&mut self) {
        // A cell that is not let in knocks again at its next beat.
        let Some(socket) = self.cells_listener.accept(&self.epoll, |_| ()) else { return };
        if self.cell_connections.len() >= MOST_CELL_CONNECTIONS {
            return;
        }
        let Ok(who) = rustix::net::sockopt::socket_peercred(&socket) else { return };
        let Ok(pid) = u32::try_from(who.pid.as_raw_nonzero().get()) else { return };
        let connection = self.next_connection;
        self.next_connection += 1;
        if self.watch(&socket, Source::Cell(connection)).is_ok() {
            let since = Instant::now();
            let fresh =
                CellConnection { socket, pid, cell: None, since, unsent: Vec::new(), tasks: Vec::new() };
            self.cell_connections.insert(connection, fresh);
        }
    }

    fn hear_cell(&mut self, connection: u64) {
        // Bounded, so that one chatty cell does not keep the agent from the others.
        for _ in 0..64 {
            let Some(known) = self.cell_connections.get_mut(&connection) else { return };
            known.send_unsent();
            match protocol::receive::<Report>(&known.socket) {
                Ok((report, descriptors)) => {
                    if let Err(misbehaviour) = self.take(connection, report, descriptors) {
                        // A cell of an earlier agent, which died before it had written it down, belongs to nobody.
                        let known = self.cell_connections.get_mut(&connection);
                        if let Some(stray) = known.filter(|known| known.cell.is_none()) {
                            stray.tell(&Order::End);
                        }
                        say(format_args!(
                            "cut off process {}: {misbehaviour}",
                            self.cell_connections[&connection].pid
                        ));
                        return self.forget_cell(connection);
                    }
                }
                Err(ProtocolError::System(Errno::AGAIN)) => return,
                Err(_) => return self.forget_cell(connection),
            }
        }
    }

    fn forget_cell(&mut self, connection: u64) {
        let Some(gone) = self.cell_connections.remove(&connection) else { return };
        let lost = self.cells.iter_mut().find(|cell| Some(cell.number) == gone.cell);
        if let Some(cell) = lost.filter(|cell| cell.connection == Some(connection)) {
            cell.connection = None;
            self.tell_who_is_present();
        }
    }

    fn take(&mut self, connection: u64, report: Report, descriptors: Vec<OwnedFd>) -> Result<(), String> {
        let known = self.cell_connections.get_mut(&connection).ok_or("no such connection")?;
        if let Report::Hello { cell, incarnation, linked, is_member } = report {
            let index =
                self.cells.iter().position(|other| other.number == cell).ok_or("it is no cell of ours")?;
            let record = &mut self.cells[index];
            let ours = record.running.as_ref().is_some_and(|running| running.name.pid == known.pid);
            if !ours || record.incarnation != incarnation {
                return Err(format!("it says that it is cell {cell}, and is not"));
            }
            known.cell = Some(cell);
            record.connection = Some(connection);
            record.linked = linked.into_iter().filter(|&peer| peer <= crate::MOST_CELLS).collect();
            record.is_member = is_member;
            record.seen = Some(Instant::now());
            self.tell_who_is_present();
            self.tell_what_others_show(connection);
            self.tell_of_hints(Some(connection));
            self.tell_where_others_are(Some(connection));
            self.tell_of_tasks();
            return Ok(());
        }
        if let Report::Policy { incarnation } = report {
            if !self.waxing.hello(known.pid, incarnation, connection) {
                return Err("it says that it is the policy, and is not".to_owned());
            }
            known.cell = Some(POLICY.0);
            self.tell_what_others_show(connection);
            return Ok(());
        }
        if self.waxing.is_on(connection) {
            return self.hear_policy(&report, descriptors);
        }
        let cell = known.cell.ok_or("it did not say hello first")?;
        let Some(record) = self.cells.iter_mut().find(|other| other.number == cell) else { return Ok(()) };
        record.seen = Some(Instant::now());
        match report {
            Report::Hello { .. } | Report::Policy { .. } => {}
            Report::Linked { peer } => {
                if peer > crate::MOST_CELLS {
                    return Err(format!("it says that it has a channel to cell {peer}"));
                }
                record.linked.insert(peer);
                (record.is_member, record.is_stranded) = (true, false);
            }
            Report::Noticed { peer, at_ns, cause } => {
                record.linked.remove(&peer);
                let what = What::CellNoticed { cell: peer, by: cell, noticed_ns: at_ns };
                let text =
                    format_args!("cell {cell} has noticed that its channel to cell {peer} ended: {cause}");
                self.events.note_quietly(what, text);
                for wait in &mut self.waits {
                    wait.noticed(cell, peer, at_ns);
                }
            }
            Report::Alive { round_trips, last_round_trip_ns, received } => {
                record.round_trips = round_trips;
                record.last_round_trip_ns = last_round_trip_ns;
                record.received = received;
            }
            Report::Shows => {
                let file = descriptors.into_iter().next().ok_or("it shows nothing")?;
                record.shown =
                    Some(Shown::of(file).map_err(|error| format!("what it shows is no file: {error}"))?);
                self.tell_of_what_shows(cell);
            }
            Report::Injected { at_ns, refused } => {
                if let Some(observations) = &mut self.observations {
                    observations.injected(Injected { cell, at_ns, refused });
                }
            }
            Report::Failed { cell: suspect, incarnation, finding } => {
                self.take_vote(cell, (suspect, incarnation), &finding);
            }
            Report::Stranded { why } => {
                record.is_stranded = true;
                self.begin_anew_if_all_are_stranded(&why);
            }
            Report::Recovered(recovered) => self.take_recovered(cell, &recovered),
            Report::Restart { cell: which } => {
                let why = format!("cell {cell}, the recovery master, finds it fit");
                self.restart(which, &why);
                self.restart_abroad(which);
                // Lives that came and went between two views are in no cell's memory.
                let gone: Vec<u32> =
                    self.cells.iter().filter(|cell| cell.running.is_none()).map(|cell| cell.number).collect();
                gone.into_iter().for_each(|other| self.restart(other, &why));
            }
        }
        Ok(())
    }

    /// What cells show goes to each of the others, once more after each hello.
    fn tell_of_what_shows(&mut self, number: u32) {
        let Some(order) = self.cells.iter().find(|cell| cell.number == number).and_then(Cell::shows) else {
            return;
        };
        for known in self.cell_connections.values_mut() {
            if known.cell.is_some_and(|cell| cell != number) {
                known.tell_with(&order.0, Some(Arc::clone(&order.1)));
            }
        }
    }

    fn tell_what_others_show(&mut self, connection: u64) {
        let Some(known) = self.cell_connections.get_mut(&connection) else { return };
        let to = known.cell;
        for cell in self.cells.iter().filter(|cell| Some(cell.number) != to) {
            if let Some((order, file)) = cell.shows() {
                known.tell_with(&order, Some(file));
            }
        }
    }

    fn look_for_end(&mut self, number: u32) {
        let Ok(index) = self.index_of(number) else { return };
        let cell = &mut self.cells[index];
        let Some(running) = &cell.running else { return };
        let _ = epoll::delete(&self.epoll, &running.process);
        let (pid, killed_at_ns, connection) = (cell.pid, cell.killed_at_ns, cell.connection);
        let Some(how) = cell.take_end() else {
            // Not yet, whatever its descriptor says: look again.
            let _ = self.watch(
                &self.cells[index].running.as_ref().expect("as above").process,
                Source::Process(number),
            );
            return;
        };
        // What it shows goes before its frames are emptied: whoever reads these looks at that once more.
        self.cells[index].take_back();
        // Nobody waits for that here.
        drop(self.keeping.cell_ended(number));
        if self.cgroup.is_none() {
            marks::kill_all_in(&self.directory, number);
        }
        if let Some(connection) = connection {
            self.cell_connections.remove(&connection);
        }
        if self.ending.is_some() {
            return;
        }
        self.tasks.values().for_each(|task| task.lose(number));
        self.waxing.lose(self.cells.iter().filter(|cell| cell.is_up()).map(|cell| cell.number));
        let after = killed_at_ns.map(|killed| monotonic_ns().saturating_sub(killed));
        let after = after.map(|after| format!(" {} after the kill", span(after))).unwrap_or_default();
        let (incarnation, planned) = (self.cells[index].incarnation, self.cells[index].is_told_to_end);
        let text = format!("cell {number} (process {pid}) is gone{after}: {how}");
        let what = What::CellEnded { cell: number, incarnation, pid, killed_ns: killed_at_ns, how, planned };
        self.events.note(what, text);
        self.tell_others(number, &Order::Ended { cell: number, pid, killed_at_ns });
        self.tell_who_is_present();
        self.write_state();
        if self.cells[index].again == Again::AtItsEnd {
            self.restart(number, "the others have recovered from its end already");
        }
        self.begin_anew_if_all_are_stranded("nobody is left who could let them in");
        self.restart_if_none_is_left();
    }

    fn tell_who_is_present(&mut self) {
        if self.ending.is_none() {
            let cells = self.cells.iter().filter(|cell| cell.is_up()).map(|cell| cell.number).collect();
            self.tell_others(0, &Order::Peers { cells });
        }
    }

    /// Tells all cells but one.
    fn tell_others(&mut self, but: u32, order: &Order) {
        for known in self.cell_connections.values_mut() {
            if known.cell.is_some_and(|cell| cell != but) {
                known.tell(order);
            }
        }
    }
}

/// The cgroup that holds those of the cells, named so that no other agent of this boot has the same.
fn common_cgroup() -> std::io::Result<Cgroup> {
    if Mechanism::Cgroups.is_switched_off() {
        return Err(std::io::Error::other("switched off"));
    }
    let own = cgroup::own().ok_or_else(|| std::io::Error::other("cgroup v2 is not mounted"))?;
    let us =
        ProcessName::of(std::process::id()).ok_or_else(|| std::io::Error::other("/proc is not mounted"))?;
    Cgroup::create(&own, &format!("comb-{}-{}", us.pid, us.start_ticks))
}
