//! The components of one host: their agent, their processes, and a thread that watches them.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{ErrorKind, IsTerminal, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::process::{ChildStderr, ChildStdin, ChildStdout, Command};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender, SyncSender, TryRecvError, TrySendError};
use std::time::Duration;

use comb_net::agent::{Hosts, Limits, SameUser, Server};
use rustix::event::{EventfdFlags, PollFd, PollFlags};
use rustix::fs::{Mode, OFlags};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use super::binding::Binding;
use super::confined::confine;
use super::guard::Guard;
use super::library::{self, LIBRARY_VARIABLE};
use super::place::Place;
use super::process::{Endowment, How, Process, raise_file_limit};
use super::spawn::Flow;
use super::tree::Tree;
use super::{LaunchError, frames, program, reports};
use crate::belonging::CELL_VARIABLE;
use crate::task::{Component, Description, Share, TASK_VARIABLE};

/// Taken from a component's output at once, and given to its input.
pub(super) const CHUNK_BYTES: usize = 64 << 10;
/// What a dead component's pipes can still hold. Who keeps on writing into them is not a component.
const MOST_LAST_CHUNKS: usize = 16;
/// While whoever takes our events has no room for more.
const BETWEEN_OFFERS: Duration = Duration::from_millis(5);

/// What one host is to run.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Plan {
    pub(super) program: OsString,
    /// Whether it is among the files that were sent here.
    pub(super) is_sent: bool,
    pub(super) arguments: Vec<OsString>,
    /// Set besides what the launcher on that host has.
    pub(super) environment: Vec<(OsString, OsString)>,
    /// Where components begin. `None`: where the launcher is, or the files that were sent.
    pub(super) directory: Option<OsString>,
    pub(super) bind: Option<Binding>,
    /// Whether components record where their memory traffic comes from.
    pub(super) reports: bool,
    /// Whether what components write comes as events, or goes where the launcher's goes.
    pub(super) captures: bool,
    pub(super) input: InputOfFirst,
    /// The cells that components belong to, from the first of this host on; none, if to no cells.
    pub(super) cells: Vec<InCell>,
    /// Whether components may signal and debug nobody but each other.
    pub(super) is_confined: bool,
    /// This host's ranks: the first, and how many.
    pub(super) first: u32,
    pub(super) count: u32,
    /// What all components are told, but for what differs.
    pub(super) description: Description,
}

/// How a component belongs to a cell of this host, with whatever it starts.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct InCell {
    /// The cgroup that it is born in, where there are cgroups.
    pub cgroup: Option<PathBuf>,
    /// Its mark, see [`crate::belonging`].
    pub mark: OsString,
}

/// What component 0 reads, if it is here. All others read nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum InputOfFirst {
    Nothing,
    /// What the launcher on this host would read.
    Inherited,
    /// What orders bring.
    Ordered,
}

/// One of a component's two outputs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Stream {
    /// Standard output.
    Output,
    /// Standard error.
    Error,
}

/// What happens to components.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum Event {
    Printed {
        rank: u32,
        stream: Stream,
        bytes: Vec<u8>,
    },
    Ended {
        rank: u32,
        process: u32,
        how: How,
    },
    /// What a component has recorded. Its end comes next.
    Reported {
        rank: u32,
        part: Vec<u8>,
    },
    /// The input that was ordered last was read. The next may come, or none is wanted any more.
    Read {
        wants_more: bool,
    },
    /// Nothing has happened to a component: whoever waits is to look around.
    Look,
    Began {
        rank: u32,
        process: u32,
    },
}

/// What is done to the components of a host.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum Order {
    Signal(i32),
    /// For component 0. Nothing is its end.
    Input(Vec<u8>),
}

/// A host's part of a task before it starts: what can go wrong has gone wrong before any component runs.
pub(super) struct Crew {
    plan: Plan,
    program: PathBuf,
    cores: Option<Vec<u32>>,
    frames: Option<OwnedFd>,
    // The agent ends before its directory.
    agent: Option<Server>,
    place: Place,
    /// What is this task's alone on this host, and goes with it.
    trees: Vec<Tree>,
}

impl Crew {
    pub(super) fn gather(plan: Plan) -> Result<Self, LaunchError> {
        let system = |doing| move |source: std::io::Error| LaunchError::System { doing, source };
        let mut directory = std::env::current_dir().map_err(system("there is no current directory"))?;
        if let Some(place) = &plan.directory {
            directory.push(place);
            if !directory.is_dir() {
                return Err(LaunchError::NoDirectory(directory));
            }
        }
        let set = plan.environment.iter().rfind(|(name, _)| name == "PATH").map(|(_, value)| value.clone());
        let program = program::find(&plan.program, &directory, set.or_else(|| std::env::var_os("PATH")))?;
        let cores = plan.bind.as_ref().map(Binding::cores).transpose().map_err(LaunchError::Cores)?;
        let shares = plan.description.share == Share::Auto && plan.count > 1;
        let frames = shares.then(frames::make).transpose();
        let frames = frames.map_err(|error| system("cannot make page frames (memfd)")(error.into()))?;
        raise_file_limit(1024 + 64 * plan.description.components.len() as u64);
        let place = Place::make().map_err(system("cannot make a directory for the agent's socket"))?;
        Ok(Self { plan, program, cores, frames, agent: None, place, trees: Vec::new() })
    }

    /// Takes directories over, which are removed when no component is left.
    pub(super) fn keep(&mut self, trees: impl IntoIterator<Item = Tree>) {
        self.trees.extend(trees);
    }

    /// Starts the agent: without others for a task of one host.
    pub(super) fn settle(&mut self, hosts: Option<Hosts>) -> Result<(), LaunchError> {
        let count = u32::try_from(self.plan.description.components.len()).unwrap_or(u32::MAX);
        let least = Limits::default();
        let limits = Limits {
            // A component may have endpoints of its own besides ours.
            channels: least.channels.max(count.saturating_mul(64)),
            // Address space more than memory: rings that are empty take little.
            memory_bytes: 1 << 40,
            connections: least.connections.max(count.saturating_mul(8)),
            connections_per_user: least.connections.max(count.saturating_mul(8)),
            ..least
        };
        let agent = Server::bind_with(&self.place.socket(), Box::new(SameUser), limits, hosts)?;
        self.agent = Some(agent);
        Ok(())
    }

    /// Starts all components. One that cannot be started is told of as one that ended.
    pub(super) fn start(self, events: SyncSender<Event>) -> Result<Watched, LaunchError> {
        let system = |source| LaunchError::System { doing: "cannot watch the components", source };
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let wake = Arc::new(wake.map_err(|error| system(error.into()))?);
        let (sender, orders) = mpsc::channel();
        let told = Arc::clone(&wake);
        let trees: Vec<_> = self.trees.iter().map(Tree::path).collect();
        let guard = Guard::start(&self.place.files(), self.place.path(), &trees).map_err(system)?;
        let (confined, was_confined) = mpsc::channel();
        let work = move || {
            let done = if self.plan.is_confined { confine() } else { Ok(()) };
            let is_ready = done.is_ok();
            // Whoever started us waits for it.
            let _ = confined.send(done);
            if !is_ready {
                return;
            }
            let mut watch = Watch::new(events, orders, told, guard);
            watch.start(&self);
            watch.run();
        };
        // The kernel kills the components when this thread ends, and with it when this process does.
        let thread = std::thread::Builder::new().name("comb-crew".into()).spawn(work).map_err(system)?;
        let cannot =
            |source| LaunchError::System { doing: "cannot confine the components (Landlock)", source };
        was_confined.recv().unwrap_or_else(|_| Err(ErrorKind::BrokenPipe.into())).map_err(cannot)?;
        Ok(Watched { orders: Some(sender), wake, thread: Some(thread) })
    }

    fn cell(&self, rank: u32) -> Option<&InCell> {
        self.plan.cells.get((rank - self.plan.first) as usize)
    }

    fn command(&self, rank: u32, report: Option<&OwnedFd>) -> Result<Command, String> {
        let description = Description {
            rank,
            agent: self.place.socket(),
            frames: self.frames.as_ref().map(AsRawFd::as_raw_fd),
            report: report.map(AsRawFd::as_raw_fd),
            ..self.plan.description.clone()
        };
        let description = serde_json::to_string(&description).map_err(|error| error.to_string())?;
        let mut command = Command::new(&self.program);
        command.args(&self.plan.arguments);
        command.envs(self.plan.environment.iter().map(|(name, value)| (name, value)));
        command.env(TASK_VARIABLE, description);
        if let Some(cell) = self.cell(rank) {
            command.env(CELL_VARIABLE, &cell.mark);
        }
        if !self.plan.environment.iter().any(|(name, _)| name == LIBRARY_VARIABLE)
            && std::env::var_os(LIBRARY_VARIABLE).is_none()
            && let Some(library) = library::find()
        {
            command.env(LIBRARY_VARIABLE, library);
        }
        if let Some(directory) = &self.plan.directory {
            command.current_dir(directory);
        }
        Ok(command)
    }

    fn start_one(&self, rank: u32, guard: &Guard) -> Result<(Process, Option<OwnedFd>), String> {
        let report = self.plan.reports.then(reports::make).transpose();
        let report = report.map_err(|error| format!("cannot make a file for its report (memfd): {error}"))?;
        let core = self.cores.as_ref().map(|cores| cores[(rank - self.plan.first) as usize % cores.len()]);
        let cgroup = self.cell(rank).and_then(|cell| cell.cgroup.as_ref());
        let cgroup = cgroup.map(|path| {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            rustix::fs::open(path, flags, Mode::empty())
                .map_err(|error| format!("its cell's {} cannot be opened: {error}", path.display()))
        });
        let cgroup = cgroup.transpose()?;
        // Only a terminal's own process group may read from it.
        let reads_terminal =
            rank == 0 && self.plan.input == InputOfFirst::Inherited && std::io::stdin().is_terminal();
        let input = match self.plan.input {
            InputOfFirst::Inherited if rank == 0 => Flow::Inherited,
            InputOfFirst::Ordered if rank == 0 => Flow::Piped,
            _ => Flow::Nothing,
        };
        let output = if self.plan.captures { Flow::Piped } else { Flow::Inherited };
        let endowment = Endowment {
            name: Some(self.plan.program.as_ref()),
            streams: [input, output, output],
            inherits: [self.frames.as_ref(), report.as_ref()].map(|descriptor| descriptor.map(AsFd::as_fd)),
            guard: Some(guard),
            cgroup: cgroup.as_ref(),
            core,
            has_group: !reads_terminal,
            at_our_end: Signal::KILL,
        };
        let process = Process::start(&self.command(rank, report.as_ref())?, &endowment);
        process.map(|process| (process, report)).map_err(|error| error.to_string())
    }
}

/// The components of this host, at work. Dropping it kills those that still run.
#[derive(Debug)]
pub(super) struct Watched {
    /// `None`: it is dropped.
    orders: Option<Sender<Order>>,
    wake: Arc<OwnedFd>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Watched {
    pub(super) fn order(&self, order: Order) {
        // Who has no component left needs no orders.
        let _ = self.orders.as_ref().map(|orders| orders.send(order));
        self.wake();
    }

    fn wake(&self) {
        let _ = rustix::io::write(&*self.wake, &1_u64.to_ne_bytes());
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.orders = None;
        self.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Running {
    rank: u32,
    process: Process,
    /// Into which it writes what it has recorded.
    report: Option<OwnedFd>,
    output: Option<ChildStdout>,
    error: Option<ChildStderr>,
}

struct Watch {
    running: Vec<Running>,
    events: SyncSender<Event>,
    /// What found no room. Meanwhile no output is taken.
    pending: VecDeque<Event>,
    orders: Receiver<Order>,
    /// Nobody gives orders any more, or wants to know of anything.
    is_abandoned: bool,
    wake: Arc<OwnedFd>,
    guard: Guard,
    input: Option<ChildStdin>,
    /// What component 0 has not taken of it.
    unread: Option<Vec<u8>>,
    ends_after_unread: bool,
    /// An event's bytes before they are one.
    buffer: Vec<u8>,
}

/// What a descriptor that is waited for belongs to.
enum Awaited {
    Orders,
    Input,
    Pipes(usize),
    End(usize),
}

impl Watch {
    fn new(events: SyncSender<Event>, orders: Receiver<Order>, wake: Arc<OwnedFd>, guard: Guard) -> Self {
        Self {
            running: Vec::new(),
            events,
            pending: VecDeque::new(),
            orders,
            is_abandoned: false,
            wake,
            guard,
            input: None,
            unread: None,
            ends_after_unread: false,
            buffer: vec![0; CHUNK_BYTES],
        }
    }

    fn start(&mut self, crew: &Crew) {
        for rank in crew.plan.first..crew.plan.first + crew.plan.count {
            match crew.start_one(rank, &self.guard) {
                Ok((mut process, report)) => {
                    self.pending.push_back(Event::Began { rank, process: process.id() });
                    let (input, output, error) =
                        (process.input.take(), process.output.take(), process.errors.take());
                    // Only our ends: a component's own are as it expects them.
                    let ours = [input.as_ref().map(AsFd::as_fd), output.as_ref().map(AsFd::as_fd)];
                    for pipe in ours.into_iter().chain([error.as_ref().map(AsFd::as_fd)]).flatten() {
                        let _ = rustix::io::ioctl_fionbio(pipe, true);
                    }
                    self.input = input.or(self.input.take());
                    self.running.push(Running { rank, process, report, output, error });
                }
                // The others would wait for it.
                Err(reason) => {
                    self.pending.push_back(Event::Ended { rank, process: 0, how: How::NotStarted(reason) });
                }
            }
        }
    }

    fn run(&mut self) {
        loop {
            self.offer();
            if self.running.is_empty() && self.pending.is_empty() {
                return;
            }
            let mut ended = Vec::new();
            for awaited in self.wait() {
                match awaited {
                    Awaited::Orders => self.obey(),
                    Awaited::Input => self.feed(),
                    Awaited::Pipes(index) => {
                        self.take_output(index);
                    }
                    Awaited::End(index) => ended.push(index),
                }
            }
            self.bury(ended);
        }
    }

    /// Gives events away until there is no room.
    fn offer(&mut self) {
        if self.is_abandoned {
            self.pending.clear();
        }
        while let Some(event) = self.pending.pop_front() {
            match self.events.try_send(event) {
                Ok(()) => {}
                Err(TrySendError::Full(event)) => return self.pending.push_front(event),
                // Nobody wants to know any more.
                Err(TrySendError::Disconnected(_)) => self.pending.clear(),
            }
        }
    }

    fn wait(&self) -> Vec<Awaited> {
        let mut awaited = vec![Awaited::Orders];
        let mut descriptors = vec![PollFd::new(&*self.wake, PollFlags::IN)];
        if let (Some(input), Some(_)) = (&self.input, &self.unread) {
            awaited.push(Awaited::Input);
            descriptors.push(PollFd::new(input, PollFlags::OUT));
        }
        for (index, running) in self.running.iter().enumerate() {
            awaited.push(Awaited::End(index));
            descriptors.push(PollFd::from_borrowed_fd(running.process.ended(), PollFlags::IN));
            let pipes = [running.output.as_ref().map(AsFd::as_fd), running.error.as_ref().map(AsFd::as_fd)];
            for pipe in pipes.into_iter().flatten().filter(|_| self.pending.is_empty()) {
                awaited.push(Awaited::Pipes(index));
                descriptors.push(PollFd::from_borrowed_fd(pipe, PollFlags::IN));
            }
        }
        let limit = (!self.pending.is_empty()).then(|| BETWEEN_OFFERS.try_into().expect("milliseconds"));
        // Interrupted is as good as nothing ready.
        let _ = rustix::event::poll(&mut descriptors, limit.as_ref());
        let ready = descriptors.iter().map(|descriptor| !descriptor.revents().is_empty());
        awaited.into_iter().zip(ready).filter_map(|(awaited, is_ready)| is_ready.then_some(awaited)).collect()
    }

    fn obey(&mut self) {
        let _ = rustix::io::read(&*self.wake, &mut [0; 8]);
        loop {
            let order = match self.orders.try_recv() {
                Ok(order) => order,
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => {
                    self.is_abandoned = true;
                    return self.running.iter().for_each(|running| running.process.signal(Signal::KILL));
                }
            };
            match order {
                Order::Signal(number) => {
                    if let Some(signal) = Signal::from_named_raw(number) {
                        // Who is in the terminal's group got a Ctrl-C from there already.
                        let told = |running: &&Running| signal != Signal::INT || running.process.has_group();
                        let told = self.running.iter().filter(told);
                        told.for_each(|running| running.process.signal(signal));
                    }
                }
                Order::Input(bytes) if bytes.is_empty() => {
                    self.ends_after_unread = true;
                    self.feed();
                }
                Order::Input(bytes) => {
                    self.unread.get_or_insert_default().extend(bytes);
                    self.feed();
                }
            }
        }
    }

    /// Gives component 0 of its input what it takes.
    fn feed(&mut self) {
        let mut wants_more = self.input.is_some();
        if let (Some(input), Some(unread)) = (&mut self.input, &mut self.unread) {
            while !unread.is_empty() {
                match input.write(unread) {
                    Ok(bytes) => drop(unread.drain(..bytes)),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    // It has closed it.
                    Err(_) => {
                        wants_more = false;
                        break;
                    }
                }
            }
        }
        if self.unread.take().is_some() {
            self.pending.push_back(Event::Read { wants_more });
        }
        if self.ends_after_unread || !wants_more {
            self.input = None;
        }
    }

    /// Takes a chunk of each output. Whether there may be more.
    fn take_output(&mut self, index: usize) -> bool {
        let running = &mut self.running[index];
        let rank = running.rank;
        let mut take = |stream, read: &mut dyn FnMut(&mut [u8]) -> std::io::Result<usize>| match read(
            &mut self.buffer,
        ) {
            Ok(0) => Some(false),
            Ok(bytes) => {
                let bytes = self.buffer[..bytes].to_vec();
                self.pending.push_back(Event::Printed { rank, stream, bytes });
                Some(true)
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => None,
            Err(_) => Some(false),
        };
        let mut more = false;
        if let Some(pipe) = &mut running.output {
            match take(Stream::Output, &mut |buffer| pipe.read(buffer)) {
                Some(true) => more = true,
                Some(false) => running.output = None,
                None => {}
            }
        }
        if let Some(pipe) = &mut running.error {
            match take(Stream::Error, &mut |buffer| pipe.read(buffer)) {
                Some(true) => more = true,
                Some(false) => running.error = None,
                None => {}
            }
        }
        more
    }

    /// Takes leave of components that have ended.
    fn bury(&mut self, mut ended: Vec<usize>) {
        ended.sort_unstable();
        let mut ends = Vec::new();
        for index in ended.into_iter().rev() {
            // What it wrote before it ended is heard before its end.
            for _ in 0..MOST_LAST_CHUNKS {
                if !self.take_output(index) {
                    break;
                }
            }
            let Running { rank, process, report, .. } = self.running.swap_remove(index);
            if let Some(part) = report.and_then(|report| reports::read(&report)) {
                self.pending.push_back(Event::Reported { rank, part });
            }
            if rank == 0 {
                self.input = None;
                if self.unread.take().is_some() {
                    self.pending.push_back(Event::Read { wants_more: false });
                }
            }
            let number = process.id();
            // Not later than its number is free.
            self.guard.forget(number);
            ends.push(Event::Ended { rank, process: number, how: process.bury() });
        }
        // Who was killed did not end because of the others; they may have because of it.
        ends.sort_by_key(|end| !matches!(end, Event::Ended { how: How::Killed(_), .. }));
        self.pending.extend(ends);
    }
}

/// What all components are told of each other when all are on this host.
pub(super) fn components_here(count: u32) -> Vec<Component> {
    (0..count).map(|_| Component { host: "localhost".to_owned() }).collect()
}
