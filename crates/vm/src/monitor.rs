//! A machine's monitor: the process that has its engine, looks after its guest, and does what its user asks.

mod attachments;
mod clients;
mod leaving;

use std::fs::{DirBuilder, File};
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use comb_guest::frames::{Frames, framed};
use comb_guest::wire::{Become, Ended, FromGuest, MemoryShown, SERIAL_BYTES, ToGuest, VERSION};
use rustix::event::{PollFd, PollFlags};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use self::attachments::Attachments;
use self::clients::{Clients, push};
use self::leaving::Leaving;
use crate::affinity::Processors;
use crate::attached::{Devices, DiskError};
use crate::control::{Answer, Ask, Machines, SOCKET, Shown, State};
use crate::engine::{Engine, EngineError};
use crate::files::machine::{Heard, MachineFiles, Use};
use crate::files::shelf::ShelfError;
use crate::hardware::{Backing, Hardware, Root, Under};
use crate::image::Image;
use crate::memory::Memory;
use crate::moving::{MoveError, Rest, Show, Way};
use crate::names::Name;
use crate::reading;
use crate::segment::Segment;
use crate::snapshot::{Snapshot, root_in, state_in};
use crate::subnets::{JoinError, Subnets};
use crate::template::Template;
use crate::user_mode::GAVE_UP;

/// How often a guest is asked whether it is well.
const BETWEEN_PINGS: Duration = Duration::from_millis(100);

/// How often it is looked which cores a machine was given.
const BETWEEN_LOOKS_AT_CORES: Duration = Duration::from_millis(500);

/// A guest that has not answered for so long hangs. Many on few processors are slow, and none is for as long.
const HANGS_AFTER: Duration = Duration::from_secs(10);

/// A guest that is not at work by then has not begun, on whatever host.
const BEGIN_LIMIT: Duration = Duration::from_secs(300);

/// What is to take a machine's place begins so often in a row, with so much between, before it is given up.
const MOST_FAILED: u32 = 10;
const BETWEEN_BEGINNINGS: Duration = Duration::from_millis(300);

/// What a console says is kept up to this; then it begins anew.
const MOST_LOG_BYTES: u64 = 4 << 20;

/// What somebody who comes to the console sees of what was there before.
const RECENT_BYTES: usize = 4096;

/// What is for a guest, or a user, that takes nothing, up to this.
const MOST_WAITING_BYTES: usize = 1 << 20;

/// What a machine is to be.
#[derive(Clone, Debug)]
pub struct Order {
    /// What it is called.
    pub name: Name,
    /// What it begins from.
    pub image: Image,
    /// Where it continues, if it does not boot.
    pub beginning: Beginning,
    /// Its hardware.
    pub hardware: Hardware,
    /// Another takes its place when it fails.
    pub is_replaced: bool,
    /// Those that it may join.
    pub subnets: Subnets,
    /// Files that it has in common with others.
    pub files: Vec<Use>,
    /// It is to have cores of the host's for itself: each processor stays on one.
    pub has_cores: bool,
    /// Memory that it has in common with others.
    pub segments: Vec<Arc<Segment>>,
    /// What its guest may read of the host's, if it is a program that is alone: files below this directory.
    pub reads: Option<PathBuf>,
}

impl Order {
    /// A machine that is nobody's to replace, and has nothing besides its hardware.
    pub fn new(name: Name, image: Image, beginning: Beginning, hardware: Hardware, subnets: Subnets) -> Self {
        let (files, segments) = (Vec::new(), Vec::new());
        let (is_replaced, has_cores, reads) = (false, false, None);
        Self { name, image, beginning, hardware, is_replaced, subnets, files, has_cores, segments, reads }
    }
}

/// Where a machine begins.
#[derive(Clone, Debug)]
pub enum Beginning {
    /// At its processors' first instruction.
    Boot,
    /// Where a template stood, on whose memory its own lies.
    Template(Template),
    /// Where another stood, whose memory is its own now.
    Snapshot(Snapshot),
    /// Where it stands on another host, from which it comes; whoever takes its place begins there.
    Arriving(Box<Beginning>),
}

/// How a machine has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum End {
    /// It was told to, or its guest wanted to.
    Stopped,
    /// Its user wanted that at once.
    Killed,
    /// Its guest's kernel has given up.
    Panicked,
    /// Its guest did not answer any more.
    Hung,
    /// Its engine is gone.
    Lost,
    /// It is another host's now.
    Moved,
    /// Its guest does not see what it was given, or is of another version.
    Blind,
}

/// Why a monitor has no machine.
#[derive(Debug, Error)]
pub enum MonitorError {
    /// Something of that name runs.
    #[error("a machine `{0}` runs already")]
    Exists(Name),
    /// The engine, or the guest.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A disk.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// Its place on a subnet.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// Files that it is to have.
    #[error(transparent)]
    Shelf(#[from] ShelfError),
    /// The guest does not have them.
    #[error("{0}")]
    Files(String),
    /// It has not come.
    #[error(transparent)]
    Move(#[from] MoveError),
    /// It is to run nowhere.
    #[error("{0}")]
    NoSeat(String),
    /// The host.
    #[error("{0}: {1}")]
    Host(PathBuf, io::Error),
}

/// What a monitor tells whoever has started it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Told {
    /// It has an engine: this process.
    Engine(u32),
    /// Its guest is at work.
    Begun,
    /// Its machine has ended so, and another takes its place.
    Replaced(End),
}

/// Where a machine is to run: in a cell, whose cgroup it ends with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seat {
    /// Which.
    pub cell: u32,
    /// Where there are cgroups.
    pub cgroup: Option<PathBuf>,
}

/// Who has a machine run.
pub trait User {
    /// Where the next one is to run that takes a machine's place, or the first; nothing: outside of all cells. An error: nowhere.
    fn seat(&mut self, replaced: u32) -> Result<Option<Seat>, String>;

    /// Something has come of it.
    fn tell(&mut self, told: Told);

    /// How another host is reached, as the comb calls it.
    fn way_to(&mut self, host: &str) -> Way {
        let why = format!("there is no host {host}");
        Box::new(move || Err(why.clone()))
    }

    /// Has an engine take up the machine that comes from another host, over this root: what its line to the guest had under way. It is shown before anybody hears
    /// that it has come.
    fn receive(&mut self, _engine: &mut Engine, _root: &Path, _show: Show<'_>) -> Result<Rest, MoveError> {
        Err(MoveError::Here("nothing comes".into()))
    }
}

/// Runs a machine until it ends.
pub fn run(machines: &Machines, order: &Order, user: &mut dyn User) -> Result<End, MonitorError> {
    let directory = machines.directory_of(&order.name);
    let host = |path: &PathBuf| {
        let path = path.clone();
        move |error| MonitorError::Host(path, error)
    };
    DirBuilder::new().recursive(true).mode(0o700).create(&directory).map_err(host(&directory))?;
    let lock = directory.join("lock");
    let held = File::create(&lock).map_err(host(&lock))?;
    flock(&held, FlockOperation::NonBlockingLockExclusive)
        .map_err(|_| MonitorError::Exists(order.name.clone()))?;
    // A monitor that was killed has left it.
    let socket = directory.join(SOCKET);
    // One that is on its way is nobody's to ask yet.
    let hidden = matches!(order.beginning, Beginning::Arriving(_)).then(|| directory.join("arriving"));
    let bound = hidden.as_ref().unwrap_or(&socket);
    let _ = std::fs::remove_file(&socket);
    let _ = std::fs::remove_file(bound);
    let listener = UnixListener::bind(bound).map_err(host(bound))?;
    listener.set_nonblocking(true).map_err(host(&socket))?;
    let log = directory.join("console.log");
    let log = File::options().create(true).truncate(true).write(true).open(&log).map_err(host(&log))?;
    let mut clients = Clients::new(listener);
    clients.hidden = hidden.map(|hidden| (hidden, socket));
    let ended = run_all(order, user, &directory, &mut clients, &log);
    clients.push_all();
    let _ = std::fs::remove_dir_all(&directory);
    // The last one leaves nothing.
    let _ = directory.parent().map(std::fs::remove_dir);
    ended
}

/// Runs a machine, and those that take its place.
fn run_all(
    order: &Order,
    user: &mut dyn User,
    directory: &Path,
    clients: &mut Clients,
    log: &File,
) -> Result<End, MonitorError> {
    let (mut replaced, mut failed, mut port) = (0, 0, None);
    loop {
        let seat = user.seat(replaced).map_err(MonitorError::NoSeat)?;
        let cgroup = seat.as_ref().and_then(|seat| seat.cgroup.as_deref());
        let begun = Attachments::begin(order, directory, cgroup, port).and_then(|attachments| {
            port = attachments.number();
            Monitor::new(order, seat, attachments, clients, log, replaced, user)
        });
        let mut monitor = match begun {
            Ok(monitor) => monitor,
            // One that takes another's place may be in a cell that goes meanwhile.
            Err(_) if replaced > 0 && failed < MOST_FAILED => {
                failed += 1;
                std::thread::sleep(BETWEEN_BEGINNINGS);
                continue;
            }
            Err(error) => return Err(error),
        };
        failed = 0;
        user.tell(Told::Engine(monitor.engine.process()));
        let end = monitor.watch(user);
        if let Some(why) = monitor.files.why_not() {
            return Err(MonitorError::Files(why));
        }
        if !order.is_replaced || matches!(end, End::Stopped | End::Killed | End::Moved | End::Blind) {
            return Ok(end);
        }
        user.tell(Told::Replaced(end));
        replaced += 1;
    }
}

/// What becomes ready.
#[derive(Clone, Copy)]
enum Ready {
    Engine,
    Agent,
    Console,
    Door,
    Client(u32),
    Leaving,
}

/// A machine that runs, and its monitor's part.
struct Monitor<'a> {
    order: &'a Order,
    seat: Option<Seat>,
    clients: &'a mut Clients,
    log: &'a File,
    replaced: u32,
    engine: Engine,
    attachments: Attachments,
    started: Instant,
    begun: Option<Instant>,
    state: State,
    /// Until when it may take to end.
    stops_by: Option<Instant>,
    end: Option<End>,
    agent_goes: Vec<u8>,
    /// Over a serial line: of what may be on the way, so much was not read yet, or may not be said yet.
    unheard: usize,
    console_goes: Vec<u8>,
    recent: Vec<u8>,
    /// When the last question was asked, and the last answer came.
    asked: Instant,
    answered: Instant,
    pings: u64,
    /// Of times between answers.
    longest_gap: Duration,
    gaps: Vec<Duration>,
    guest: MemoryShown,
    memory: Memory,
    /// Of a machine that is to have cores for itself; and when it was last looked which.
    processors: Option<Processors>,
    looked: Instant,
    next_exec: u32,
    files: MachineFiles,
    are_segments_seen: bool,
    /// The file under its root.
    root: PathBuf,
    leaving: Option<Leaving>,
}

/// So many times between answers are remembered, to know the usual one.
const MOST_GAPS: usize = 256;

impl<'a> Monitor<'a> {
    fn new(
        order: &'a Order,
        seat: Option<Seat>,
        mut attachments: Attachments,
        clients: &'a mut Clients,
        log: &'a File,
        replaced: u32,
        user: &mut dyn User,
    ) -> Result<Self, MonitorError> {
        let started = Instant::now();
        let files = MachineFiles::new(&order.files)?;
        let cgroup = seat.as_ref().and_then(|seat| seat.cgroup.as_deref());
        let has_company = !order.segments.is_empty();
        let devices = Devices { has_company, ..attachments.devices().clone() };
        let over = |root| Backing { ram: None, root: Root::Memory(root), under: Under::Private, devices };
        let beginning = match &order.beginning {
            Beginning::Arriving(then) if replaced > 0 => then,
            beginning => beginning,
        };
        let backing = match beginning {
            Beginning::Boot | Beginning::Arriving(_) => over(order.image.directory.join("root")),
            Beginning::Template(template) => template.backing(),
            Beginning::Snapshot(snapshot) => over(snapshot.root()),
        };
        let waits = !matches!(beginning, Beginning::Boot);
        let mut engine = Engine::start(&order.hardware, &order.image, &backing, waits, cgroup)?;
        let (Root::Memory(root) | Root::Drive(root)) = &backing.root;
        let mut rest = Rest::default();
        match beginning {
            Beginning::Boot => {}
            Beginning::Template(template) => engine.take_up(&template.state(), true)?,
            Beginning::Snapshot(snapshot) => engine.take_up(&snapshot.state(), false)?,
            Beginning::Arriving(_) => rest = user.receive(&mut engine, root, &mut || clients.show())?,
        }
        attachments.attach(&mut engine)?;
        for (number, segment) in order.segments.iter().enumerate() {
            segment.plug(&mut engine, number)?;
        }
        for line in [&engine.agent, &engine.console] {
            line.set_nonblocking(true).map_err(|error| EngineError::Host("a line to the engine", error))?;
        }
        let memory = Memory::of(&order.hardware, &mut engine.qmp).map_err(EngineError::from)?;
        let mut processors = || Processors::of(engine.process(), &mut engine.qmp).map_err(EngineError::from);
        let processors = if order.has_cores { Some(processors()?) } else { None };
        let mut monitor = Self {
            order,
            seat,
            clients,
            log,
            replaced,
            engine,
            attachments,
            started,
            begun: None,
            state: State::Begins,
            stops_by: None,
            end: None,
            agent_goes: rest.goes,
            unheard: SERIAL_BYTES,
            console_goes: Vec::new(),
            recent: Vec::new(),
            asked: started,
            answered: started,
            pings: 0,
            longest_gap: Duration::ZERO,
            gaps: Vec::new(),
            guest: MemoryShown::default(),
            memory,
            processors,
            looked: started,
            files,
            are_segments_seen: false,
            next_exec: rest.next_exec.max(1),
            root: root.clone(),
            leaving: None,
        };
        monitor.engine.came.push(&rest.came);
        if matches!(beginning, Beginning::Arriving(_)) {
            // It was at work where it comes from.
            (monitor.begun, monitor.answered, monitor.state) =
                (Some(Instant::now()), Instant::now(), State::Up);
            user.tell(Told::Begun);
        }
        // Whoever had them run has no line to them any more.
        for exec in rest.execs {
            monitor.tell_guest(&ToGuest::Signal { exec, signal: libc::SIGKILL });
        }
        let (name, network) = (order.name.to_string(), monitor.attachments.network());
        let who = Become { name, seed: random(), time_ns: now_ns(), network };
        monitor.tell_guest(&ToGuest::Become(who));
        Ok(monitor)
    }

    /// Looks after the machine until it ends.
    fn watch(&mut self, user: &mut dyn User) -> End {
        while self.end.is_none() {
            let ready = self.wait();
            for ready in ready {
                match ready {
                    Ready::Engine => self.hear_engine(),
                    Ready::Agent => self.hear_guest(user),
                    Ready::Console => self.hear_console(),
                    Ready::Door => self.clients.accept(),
                    Ready::Client(number) => self.hear_client(number, user),
                    Ready::Leaving => self.serve_leaving(user),
                }
            }
            self.look_at_clock();
            for said in self.attachments.look(self.order, &mut self.engine) {
                self.tell_guest(&said);
            }
            if !self.stands_still() {
                self.push_to_guest();
            }
            let _ = push(&mut self.engine.console, &mut self.console_goes);
            self.clients.push_all();
        }
        if self.stops_by.is_some() && matches!(self.end, Some(End::Panicked | End::Hung | End::Lost)) {
            // It was to end: nobody takes its place.
            self.end = Some(End::Stopped);
        }
        let why = self.why_programs_end();
        for client in self.clients.lines.values_mut() {
            if client.exec.take().is_some() {
                client.say(&Answer::Ended(Ended::NotRun(why.clone())));
            }
        }
        self.end_of_leaving(self.end.unwrap_or(End::Lost))
    }

    fn wait(&self) -> Vec<Ready> {
        let out = |goes: &[u8]| if goes.is_empty() { PollFlags::IN } else { PollFlags::IN | PollFlags::OUT };
        let mut awaited: Vec<(Ready, BorrowedFd<'_>, PollFlags)> = vec![
            (Ready::Engine, self.engine.qmp.line().as_fd(), PollFlags::IN),
            (Ready::Agent, self.engine.agent.as_fd(), out(&self.agent_goes[..self.room_to_guest()])),
            (Ready::Console, self.engine.console.as_fd(), out(&self.console_goes)),
            (Ready::Door, self.clients.listener.as_fd(), PollFlags::IN),
        ];
        if let Some(leaving) = &self.leaving {
            awaited.push((Ready::Leaving, leaving.wake(), PollFlags::IN));
        }
        for (&number, client) in &self.clients.lines {
            awaited.push((Ready::Client(number), client.stream.as_fd(), out(&client.goes)));
        }
        let mut polled: Vec<PollFd<'_>> = awaited
            .iter()
            .map(|&(_, descriptor, flags)| PollFd::from_borrowed_fd(descriptor, flags))
            .collect();
        let limit = BETWEEN_PINGS.try_into().expect("it is short");
        let _ = rustix::event::poll(&mut polled, Some(&limit));
        let is_ready = |(_, polled): &(_, &PollFd<'_>)| !polled.revents().is_empty();
        awaited.iter().zip(&polled).filter(is_ready).map(|(awaited, _)| awaited.0).collect()
    }

    fn look_at_clock(&mut self) {
        let now = Instant::now();
        if self.stops_by.is_some_and(|until| now >= until) {
            self.end = Some(End::Stopped);
        }
        // A guest that takes nothing is not asked more and more.
        let is_idle = self.agent_goes.is_empty() && !self.stands_still();
        if self.begun.is_some() && now >= self.asked + BETWEEN_PINGS && is_idle {
            self.asked = now;
            self.pings += 1;
            self.tell_guest(&ToGuest::Ping { number: self.pings });
        }
        if let Some(processors) = &mut self.processors
            && now >= self.looked + BETWEEN_LOOKS_AT_CORES
        {
            self.looked = now;
            processors.follow();
        }
        if self.state == State::Begins && now >= self.started + BEGIN_LIMIT {
            self.end = Some(End::Hung);
        }
        if self.state == State::Up && now >= self.answered + HANGS_AFTER {
            self.state = State::Hangs;
            if self.order.is_replaced {
                self.end = Some(End::Hung);
            }
        }
    }

    fn tell_guest(&mut self, said: &ToGuest) {
        self.agent_goes.extend(framed(said));
    }

    /// How much of what is to be said may go now.
    fn room_to_guest(&self) -> usize {
        let all = self.agent_goes.len();
        if self.engine.is_serial() { SERIAL_BYTES.saturating_sub(self.unheard).min(all) } else { all }
    }

    fn push_to_guest(&mut self) {
        let rest = self.agent_goes.split_off(self.room_to_guest());
        let before = self.agent_goes.len();
        let _ = push(&mut self.engine.agent, &mut self.agent_goes);
        if self.engine.is_serial() {
            self.unheard += before - self.agent_goes.len();
        }
        self.agent_goes.extend(rest);
    }

    fn hear_engine(&mut self) {
        loop {
            match self.engine.qmp.poll_event() {
                Ok(Some(event)) => match event.name.as_str() {
                    "GUEST_PANICKED" => self.end = Some(End::Panicked),
                    "SHUTDOWN" if self.end.is_none() => self.end = Some(End::Stopped),
                    "STOP" => self.stood_still(),
                    "RESUME" => self.went_on(),
                    _ => self.memory.hear(&event),
                },
                Ok(None) => return,
                Err(_) => {
                    let ended = self.engine.ended();
                    self.end.get_or_insert(match ended {
                        Some(status) if status.success() => End::Stopped,
                        Some(status) if status.code() == Some(GAVE_UP) => End::Panicked,
                        _ => End::Lost,
                    });
                    return;
                }
            }
        }
    }

    fn hear_console(&mut self) {
        let mut some = [0; 16_384];
        while let Ok(read) = self.engine.console.read(&mut some) {
            if read == 0 {
                return;
            }
            let said = &some[..read];
            let mut log = self.log;
            if log.stream_position().unwrap_or(0) > MOST_LOG_BYTES {
                let _ = log.set_len(0).and_then(|()| log.rewind());
            }
            let _ = log.write_all(said);
            self.recent.extend_from_slice(said);
            let old = self.recent.len().saturating_sub(RECENT_BYTES);
            self.recent.drain(..old);
            for client in self.clients.lines.values_mut().filter(|client| client.has_console) {
                client.say(&Answer::Console(said.to_vec()));
            }
        }
    }

    fn hear_guest(&mut self, user: &mut dyn User) {
        let mut some = [0; 32_768];
        while let Ok(read) = self.engine.agent.read(&mut some) {
            if read == 0 {
                return;
            }
            self.engine.came.push(&some[..read]);
            loop {
                match self.engine.came.take() {
                    Ok(Some(said)) => self.believe(said, user),
                    Ok(None) => break,
                    Err(_) => {
                        // It is no agent of ours any more: as good as none.
                        self.engine.came = Frames::default();
                        return;
                    }
                }
            }
        }
    }

    fn believe(&mut self, said: FromGuest, user: &mut dyn User) {
        let now = Instant::now();
        match said {
            FromGuest::Became { version, .. } if version != VERSION && self.begun.is_none() => {
                self.end = Some(End::Blind);
            }
            FromGuest::Became { is_seeded, .. } => {
                // Whoever has another's random numbers is not at work.
                if is_seeded && self.begun.is_none() {
                    let names: Vec<String> =
                        self.order.segments.iter().map(|segment| segment.name.to_string()).collect();
                    if names.is_empty() {
                        self.are_segments_seen = true;
                    } else {
                        self.tell_guest(&ToGuest::Segments { names });
                    }
                    self.attach_files();
                    self.look_whether_begun(user);
                }
            }
            FromGuest::Segments { missing } if missing.is_empty() => {
                self.are_segments_seen = true;
                self.look_whether_begun(user);
            }
            FromGuest::Segments { .. } => self.end = Some(End::Blind),
            // Who takes no answers gets none.
            FromGuest::File { .. } if self.agent_goes.len() > MOST_WAITING_BYTES => {}
            FromGuest::File { number, path, at } => {
                let found = reading::read(self.order.reads.as_deref(), &path, at);
                self.tell_guest(&ToGuest::File { number, found });
            }
            FromGuest::Pong { number, memory } if number == self.pings => {
                if self.pings > 1 {
                    let gap = now - self.answered;
                    self.longest_gap = self.longest_gap.max(gap);
                    if self.gaps.len() == MOST_GAPS {
                        self.gaps.remove(0);
                    }
                    self.gaps.push(gap);
                }
                self.answered = now;
                self.guest = memory;
                if self.state == State::Hangs {
                    self.state = State::Up;
                }
            }
            FromGuest::Pong { .. } => {}
            FromGuest::Output { exec, bytes, .. } if self.files.is_asking(exec) => self.files.note(&bytes),
            FromGuest::Ended { exec, how } if self.files.is_asking(exec) => {
                if let Heard { client: Some(client), answer } = self.files.ended(&how)
                    && let Some(client) = self.clients.lines.get_mut(&client)
                {
                    client.say(&answer);
                }
                self.ask_about_files();
                self.look_whether_begun(user);
            }
            FromGuest::Output { exec, is_error, bytes } => {
                self.tell_user(exec, &Answer::Output { is_error, bytes });
            }
            FromGuest::Hears { bytes } => self.unheard = self.unheard.saturating_sub(bytes as usize),
            FromGuest::Taken { exec, bytes } => self.tell_user(exec, &Answer::Taken(bytes)),
            FromGuest::Ended { exec, how } => {
                self.tell_user(exec, &Answer::Ended(how));
                for client in self.clients.lines.values_mut().filter(|client| client.exec == Some(exec)) {
                    client.exec = None;
                }
            }
        }
    }

    /// Gives the guest what it is to have in common with others.
    fn attach_files(&mut self) {
        self.files.plug(&mut self.engine);
        self.ask_about_files();
    }

    /// Has the guest do the next thing that is to be done with such files.
    fn ask_about_files(&mut self) {
        let exec = self.next_exec;
        if let Some(command) = self.files.next(exec) {
            self.next_exec = self.next_exec.wrapping_add(1);
            self.tell_guest(&ToGuest::Exec { exec, command });
            self.tell_guest(&ToGuest::Input { exec, bytes: Vec::new() });
        }
    }

    fn want_files(&mut self, shelf: &str, show: Option<bool>, client: u32) -> Option<Answer> {
        let wanted = self.files.want(shelf, show, client);
        self.ask_about_files();
        wanted.err().map(Answer::Refused)
    }

    fn look_whether_begun(&mut self, user: &mut dyn User) {
        if self.files.why_not().is_some() {
            self.end = Some(End::Lost);
        } else if self.begun.is_none() && self.are_segments_seen && self.files.are_seen() {
            let now = Instant::now();
            self.begun = Some(now);
            self.answered = now;
            self.state = State::Up;
            user.tell(Told::Begun);
        }
    }

    fn tell_user(&mut self, exec: u32, answer: &Answer) {
        for client in self.clients.lines.values_mut().filter(|client| client.exec == Some(exec)) {
            client.say(answer);
        }
    }

    fn hear_client(&mut self, number: u32, user: &mut dyn User) {
        let Some(client) = self.clients.lines.get_mut(&number) else { return };
        let mut some = [0; 32_768];
        let mut asked = Vec::new();
        loop {
            match client.stream.read(&mut some) {
                Ok(0) => client.is_gone = true,
                Ok(read) => {
                    client.came.push(&some[..read]);
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => client.is_gone = true,
            }
            break;
        }
        loop {
            match client.came.take() {
                Ok(Some(ask)) => asked.push(ask),
                Ok(None) => break,
                Err(_) => {
                    client.is_gone = true;
                    break;
                }
            }
        }
        let (is_gone, exec) = (client.is_gone, client.exec);
        for ask in asked {
            let answer = self.serve(number, ask, user);
            if let (Some(answer), Some(client)) = (answer, self.clients.lines.get_mut(&number)) {
                client.say(&answer);
            }
        }
        // What the engine said while it was asked.
        self.hear_engine();
        if let (true, Some(exec)) = (is_gone, exec) {
            // Whoever wanted it is not there any more.
            self.tell_guest(&ToGuest::Signal { exec, signal: libc::SIGKILL });
        }
    }

    fn serve(&mut self, number: u32, ask: Ask, user: &mut dyn User) -> Option<Answer> {
        let exec = self.clients.lines.get(&number).and_then(|client| client.exec);
        let is_full = self.agent_goes.len() > MOST_WAITING_BYTES;
        match (ask, exec) {
            (Ask::Show, _) => Some(Answer::Shown(Box::new(self.shown()))),
            (Ask::Exec(_), _) if self.begun.is_none() => {
                Some(Answer::Refused("the guest has not begun yet".into()))
            }
            (Ask::Exec(_), _) if self.state != State::Up => {
                Some(Answer::Refused(format!("the guest does not answer: it is {}", self.state.as_str())))
            }
            (Ask::Exec(_) | Ask::Input(_), _) if is_full => {
                Some(Answer::Refused("the guest takes nothing".into()))
            }
            (Ask::Exec(command), None) => {
                let exec = self.next_exec;
                self.next_exec = self.next_exec.wrapping_add(1);
                self.clients.lines.get_mut(&number)?.exec = Some(exec);
                self.tell_guest(&ToGuest::Exec { exec, command });
                None
            }
            (Ask::Input(bytes), Some(exec)) => {
                self.tell_guest(&ToGuest::Input { exec, bytes });
                None
            }
            (Ask::Input(bytes), None) => {
                if self.clients.lines.get(&number)?.has_console
                    && self.console_goes.len() < MOST_WAITING_BYTES
                {
                    self.console_goes.extend(bytes);
                }
                None
            }
            (Ask::Taken(bytes), Some(exec)) => {
                self.tell_guest(&ToGuest::Taken { exec, bytes });
                None
            }
            (Ask::Signal(signal), Some(exec)) => {
                self.tell_guest(&ToGuest::Signal { exec, signal });
                None
            }
            (Ask::Taken(_) | Ask::Signal(_), None) => None,
            (Ask::Exec(_), Some(_)) => Some(Answer::Refused("a program runs on this line already".into())),
            (Ask::Console, _) => {
                let recent = self.recent.clone();
                let client = self.clients.lines.get_mut(&number)?;
                client.has_console = true;
                Some(Answer::Console(recent))
            }
            (Ask::Stop { limit_ms }, _) => {
                self.state = State::Stops;
                self.stops_by = Some(Instant::now() + Duration::from_millis(limit_ms));
                self.tell_guest(&ToGuest::PowerOff);
                Some(Answer::Done)
            }
            (Ask::Kill, _) => {
                self.end = Some(End::Killed);
                Some(Answer::Done)
            }
            (Ask::Migrate { host }, _) => self.leave(number, &host, user),
            (Ask::Keep, _) => Some(self.keep()),
            (Ask::Snapshot { .. }, _) if !self.order.hardware.attached.is_empty() => {
                let why = "it has disks or a network, which are not saved: only a machine without them is";
                Some(Answer::Refused(why.into()))
            }
            (Ask::ShowFiles { shelf, is_brought_out }, _) => {
                self.want_files(&shelf, Some(is_brought_out), number)
            }
            (Ask::LeaveFiles { shelf }, _) => self.want_files(&shelf, None, number),
            (Ask::Snapshot { .. }, _) if !self.order.files.is_empty() => Some(Answer::Refused(
                "it has files in common with others (--files), and is not saved with those yet".into(),
            )),
            (Ask::Snapshot { .. }, _) if self.leaving.is_some() => {
                Some(Answer::Refused("it moves to another host".into()))
            }
            (Ask::Snapshot { .. }, _) if !self.order.segments.is_empty() => {
                Some(Answer::Refused("it has memory in common with others, which goes on without it".into()))
            }
            (Ask::Snapshot { directory }, _) => {
                let state = self.engine.save(&state_in(&directory), false);
                let saved = state.and_then(|()| match self.order.image.root_bytes {
                    0 => std::fs::write(root_in(&directory), "")
                        .map_err(|error| EngineError::Host("a root", error)),
                    _ => self.engine.save_root(&root_in(&directory)),
                });
                let goes_on = self.engine.go_on();
                // It stood still meanwhile, and is not to be blamed for it.
                self.answered = Instant::now();
                Some(
                    saved
                        .and(goes_on)
                        .map_or_else(|error| Answer::Refused(error.to_string()), |()| Answer::Done),
                )
            }
            (Ask::SetMemory { bytes }, _) => {
                let asked = self.memory.set(bytes, &mut self.engine.qmp);
                Some(asked.map_or_else(|error| Answer::Refused(error.to_string()), |()| Answer::Done))
            }
        }
    }

    fn shown(&mut self) -> Shown {
        let micros = |duration: Duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let mut gaps = self.gaps.clone();
        gaps.sort();
        let memory = self.memory.has(&mut self.engine.qmp);
        Shown {
            name: self.order.name.to_string(),
            image: self.order.image.name.to_string(),
            is_clone: matches!(self.order.beginning, Beginning::Template(_) | Beginning::Snapshot(_)),
            state: self.state,
            engine: self.engine.process(),
            monitor: std::process::id(),
            hardware: self.order.hardware.clone(),
            cell: self.seat.as_ref().map(|seat| seat.cell),
            begun_us: self.begun.map(|begun| micros(begun - self.started)),
            age_ms: micros(self.started.elapsed()) / 1000,
            replaced: self.replaced,
            memory,
            guest: self.guest,
            address: self.attachments.network().map(|network| network.address),
            disk_servers: self.attachments.servers().0,
            disk_restarts: self.attachments.servers().1,
            longest_gap_us: micros(self.longest_gap),
            usual_gap_us: micros(gaps.get(gaps.len() / 2).copied().unwrap_or_default()),
            files: self.files.shown(),
        }
    }
}

fn random() -> [u8; 32] {
    let mut seed = [0; 32];
    let read = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut seed));
    read.expect("a host has random numbers");
    seed
}

fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(0)
}
