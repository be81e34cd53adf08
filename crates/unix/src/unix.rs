//! The emulator as a whole: its tables, and the loop that serves what the machine reports.

use crate::descriptors::{Kind, OpenFile, Table};
use crate::errno::Errno;
use crate::exec::Invocation;
use crate::futexes::Futexes;
use crate::host;
use crate::locks::Locks;
use crate::machine::{Event, Machine, Registers};
use crate::objects::FileName;
use crate::paths::Mounts;
use crate::pipes::Pipe;
use crate::processes::{INIT, Process, Processes, State, Thread, Where, first_actions, first_limits};
use crate::scheduling::Scheduler;
use crate::sharing::Sharing;
use crate::signals::{Pending, information, of_fault};
use crate::spaces::{Memory, Refusal, SpaceNumber};
use crate::waiting::{Id, Key, Progress, Stop, Wakes};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::rc::{Rc, Weak};
use std::time::{Duration, Instant};

/// What is run, and what it sees.
#[derive(Debug)]
pub struct Options {
    /// The directory of the host that programs see as `/`. They reach nothing outside of it.
    pub root: PathBuf,
    /// Where the first program starts, as seen from that root.
    pub working_directory: PathBuf,
    /// The first program, as a path from the root, and its arguments. The first is its own name.
    pub arguments: Vec<OsString>,
    /// The environment, each `NAME=value`.
    pub environment: Vec<OsString>,
    /// What the program finds as its descriptors 0, 1 and 2. Those of the emulator itself, where none is given.
    pub standard: [Option<OwnedFd>; 3],
    /// How many bytes of idle processes' memory may be on disk while others need it: in a file without a name where temporary files are.
    pub swap: u64,
    /// Memory that is shared with programs of other cells, if there is any.
    pub sharing: Option<Sharing>,
    /// Numbers of signals, one byte each, that the user sends to the programs in the foreground, such as by a key.
    pub signals: Option<OwnedFd>,
}

/// The sooner of two moments that there may be.
fn sooner(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    one.into_iter().chain(other).min()
}

/// As people know an error of UNIX.
fn said(error: i32) -> std::io::Error {
    std::io::Error::from_raw_os_error(error)
}

/// How the first program ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExitStatus {
    /// It said so itself, with this number.
    Exited(i32),
    /// By this signal.
    Killed(i32),
}

/// The first program could not be started.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StartError {
    /// The root is not a directory that can be used.
    #[error("the root cannot be used: {}", said(*.0))]
    Root(i32),
    /// There is no such working directory below the root.
    #[error("the working directory cannot be used: {}", said(*.0))]
    WorkingDirectory(i32),
    /// The program is not there or cannot be run.
    #[error("the program cannot be run: {}", said(*.0))]
    Program(i32),
    /// What is to be shared with other cells cannot be.
    #[error("the shared memory cannot be had: {}", said(*.0))]
    Sharing(i32),
    /// The machine has no room.
    #[error("the machine has no room for a first program")]
    Machine,
}

/// Who makes a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Caller {
    pub(crate) thread: Id,
    pub(crate) process: Id,
    pub(crate) space: SpaceNumber,
}

/// An emulator of Linux with its processes.
pub struct Unix<M: Machine> {
    pub(crate) memory: Memory<M>,
    pub(crate) threads: BTreeMap<Id, Thread<M>>,
    pub(crate) processes: Processes,
    pub(crate) by_machine: BTreeMap<M::Thread, Id>,
    pub(crate) futexes: Futexes,
    pub(crate) locks: Locks,
    pub(crate) mounts: Mounts,
    pub(crate) fifos: BTreeMap<FileName, Weak<Pipe>>,
    pub(crate) on_the_way: crate::passing::OnTheWay,
    pub(crate) wakes: Rc<Wakes>,
    pub(crate) scheduler: Scheduler,
    pub(crate) unsupported: BTreeMap<(u64, u64), u64>,
    pub(crate) last_id: Id,
    pub(crate) last_number: u64,
    /// The program whose end is the end of all.
    pub(crate) first: Id,
    pub(crate) end: Option<i32>,
    /// The process group that the user's signals go to.
    pub(crate) foreground: Id,
    pub(crate) began: Instant,
    pub(crate) began_at: Duration,
    pub(crate) boot_id: String,
    user: u32,
    signals: Option<OwnedFd>,
}

impl<M: Machine> Unix<M> {
    /// An emulator with its first program loaded, which runs when `run` is called.
    pub fn new(machine: M, options: Options) -> Result<Self, StartError> {
        use std::os::unix::ffi::OsStrExt;
        let mounts =
            Mounts::new(options.root.as_os_str().as_bytes()).map_err(|error| StartError::Root(error.0))?;
        let mut random = [0u8; 16];
        host::random(&mut random);
        let hexadecimal: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let boot_id = format!(
            "{}-{}-{}-{}-{}",
            &hexadecimal[..8],
            &hexadecimal[8..12],
            &hexadecimal[12..16],
            &hexadecimal[16..20],
            &hexadecimal[20..]
        );
        let mut unix = Unix {
            memory: Memory::new(machine, options.swap),
            threads: BTreeMap::new(),
            processes: BTreeMap::new(),
            by_machine: BTreeMap::new(),
            futexes: Futexes::default(),
            locks: Locks::default(),
            mounts,
            fifos: BTreeMap::new(),
            on_the_way: BTreeMap::new(),
            wakes: Rc::default(),
            scheduler: Scheduler::default(),
            unsupported: BTreeMap::new(),
            last_id: INIT,
            last_number: 0,
            first: 2,
            end: None,
            foreground: 2,
            began: Instant::now(),
            began_at: host::clock(libc::CLOCK_REALTIME).unwrap_or_default(),
            boot_id,
            user: host::identity()[0],
            signals: options.signals,
        };
        if let Some(sharing) = options.sharing {
            let Unix { memory, mounts, .. } = &mut unix;
            let make = |name: &[u8], bytes| mounts.make_shared(name, bytes);
            memory.begin_sharing(sharing, make).map_err(|error| StartError::Sharing(error.0))?;
        }
        let arguments: Vec<Vec<u8>> = options.arguments.into_iter().map(OsString::into_vec).collect();
        let environment = options.environment.into_iter().map(OsString::into_vec).collect();
        let call = Invocation { arguments, environment };
        unix.begin(options.working_directory.as_os_str().as_bytes(), options.standard, call)?;
        Ok(unix)
    }

    fn begin(
        &mut self,
        directory: &[u8],
        standard: [Option<OwnedFd>; 3],
        call: Invocation,
    ) -> Result<(), StartError> {
        let machine_error = |_: Errno| StartError::Machine;
        let space = self.memory.new_space().map_err(machine_error)?;
        let id = self.new_id().map_err(machine_error)?;
        self.first = id;
        self.foreground = id;
        let mut table = Table::default();
        for (at, given) in standard.into_iter().enumerate() {
            let given = given.or_else(|| host::standard(at as RawFd));
            if let Some(given) = given {
                let file = self.standard_file(given).map_err(machine_error)?;
                table.set(at as i32, file, false, 3).map_err(machine_error)?;
            }
        }
        let root = self.new_file(Kind::Text(Vec::new()), 0);
        let process = Process {
            id,
            parent: INIT,
            group: id,
            session: id,
            space,
            table: Rc::new(RefCell::new(table)),
            place: Rc::new(RefCell::new(Where { directory: root, mask: 0o022 })),
            actions: first_actions(),
            pending: Pending::default(),
            threads: vec![id],
            ended: None,
            exit_signal: libc::SIGCHLD,
            halted: false,
            news: None,
            executed: false,
            executable: Vec::new(),
            arguments: Vec::new(),
            environment: Vec::new(),
            limits: first_limits(),
            alarm: None,
            parting: false,
            begun: Instant::now(),
            used: crate::usage::Used::default(),
        };
        self.processes.insert(id, process);
        let machine_space = self.memory.space(space).machine;
        let machine = self
            .memory
            .machine
            .load_thread(machine_space, &Registers::default())
            .ok_or(StartError::Machine)?;
        self.threads.insert(id, Thread::new(id, machine));
        self.by_machine.insert(machine, id);
        let who = Caller { thread: id, process: id, space };
        let directory = [b"/", directory].concat();
        let place = self
            .open(who, libc::AT_FDCWD, &directory, libc::O_PATH | libc::O_DIRECTORY, 0)
            .map_err(|error| StartError::WorkingDirectory(error.0))?;
        self.process(id).place.borrow_mut().directory = place;
        let path = call.arguments.first().cloned().unwrap_or_default();
        let file = self.open(who, libc::AT_FDCWD, &path, libc::O_RDONLY, 0);
        file.and_then(|file| self.start(who, file, &path, call)).map_err(|error| StartError::Program(error.0))
    }

    fn standard_file(&mut self, host: OwnedFd) -> Result<Rc<OpenFile>, Errno> {
        let stat = host::stat(host.as_raw_fd())?;
        let kind = match stat.st_mode & libc::S_IFMT {
            libc::S_IFREG => Kind::Regular { host, name: (stat.st_dev, stat.st_ino) },
            _ => Kind::Stream { host },
        };
        Ok(self.new_file(kind, libc::O_RDWR))
    }

    /// Runs until the first program has ended; then all others end, too.
    pub fn run(&mut self) -> ExitStatus {
        let first = self.first;
        self.leave(first);
        loop {
            self.settle();
            if let Some(status) = self.end {
                self.end_all();
                self.tell_end();
                return if status & 0x7f == 0 {
                    ExitStatus::Exited(status >> 8)
                } else {
                    ExitStatus::Killed(status & 0x7f)
                };
            }
            self.serve_one();
        }
    }

    /// The calls that programs made and that there are not, with how often: by name, and by the request for those that have many.
    pub fn unsupported(&self) -> Vec<(String, u64)> {
        let shown = |number: u64, detail: u64| match crate::names::name(number) {
            Some(name) if detail > 0 => format!("{name}({detail:#x})"),
            Some(name) => name.to_owned(),
            None => format!("call {number}"),
        };
        self.unsupported.iter().map(|(&(number, detail), &count)| (shown(number, detail), count)).collect()
    }

    /// The machine below, to be asked about what only it knows.
    pub fn machine(&self) -> &M {
        &self.memory.machine
    }

    /// How many pages of idle processes went to disk so far, and how many came back.
    pub fn swapped(&self) -> [u64; 2] {
        self.memory.swap.moved
    }

    /// Frames that hold something now, and frames that the machine has granted.
    pub fn frames(&self) -> (u64, u64) {
        (self.memory.frames.held(), self.memory.frames.granted())
    }

    fn end_all(&mut self) {
        loop {
            let lasts =
                self.processes.values().find(|process| process.ended.is_none()).map(|process| process.id);
            match lasts {
                Some(id) => self.end_process(id, libc::SIGKILL),
                None => return,
            }
        }
    }

    /// Waits for one event and serves it.
    fn serve_one(&mut self) {
        let now = Instant::now();
        let mut until = self.next_alarm();
        let mut polled: Vec<libc::pollfd> = Vec::new();
        polled.extend(self.signals_to_poll());
        let own = polled.len();
        if let Some(shared) = &self.memory.shared {
            polled.extend(shared.polled());
            until = sooner(until, shared.next_timeout());
        }
        let own = own..polled.len();
        for thread in self.threads.values() {
            let State::Waiting(wait) = &thread.state else { continue };
            until = sooner(until, wait.until);
            polled.extend(wait.descriptors.iter().map(|&(fd, events)| libc::pollfd {
                fd,
                events,
                revents: 0,
            }));
        }
        let ageing = self.scheduler.next(self.threads.values().any(|thread| thread.state == State::Running));
        until = sooner(until, ageing);
        match self.memory.machine.next_event(until.map(|until| until.max(now)), &mut polled) {
            Event::Call { thread } => self.serve_call(thread),
            Event::Fault { thread, address, access } => self.serve_fault(thread, address, access),
            Event::Exception { thread, signal, code, address } => {
                if let Some(id) = self.stopped(thread) {
                    self.force(id, of_fault(signal, code, address));
                    self.leave(id);
                }
            }
            Event::Interrupted { thread } => {
                if let Some(id) = self.stopped(thread) {
                    self.leave(id);
                }
            }
            Event::Ready => {
                self.serve_shared(polled[own].iter().any(|polled| polled.revents != 0));
                self.serve_ready(&polled);
            }
            Event::Timeout => {}
        }
        self.age();
    }

    /// The descriptor by which the user's signals come.
    pub(crate) fn signals_to_poll(&self) -> Option<libc::pollfd> {
        let fd = self.signals.as_ref()?.as_raw_fd();
        Some(libc::pollfd { fd, events: libc::POLLIN, revents: 0 })
    }

    /// The thread that the machine reports, which is stopped now.
    fn stopped(&mut self, machine: M::Thread) -> Option<Id> {
        let id = *self.by_machine.get(&machine)?;
        self.thread_mut(id).state = State::Stopped;
        Some(id)
    }

    fn serve_call(&mut self, machine: M::Thread) {
        let Some(id) = self.stopped(machine) else { return };
        let registers = *self.registers(id);
        let arguments =
            [registers.rdi, registers.rsi, registers.rdx, registers.r10, registers.r8, registers.r9];
        let thread = self.thread_mut(id);
        thread.call = (registers.rax, arguments);
        thread.progress = Progress::default();
        self.make_call(id);
    }

    /// Makes the call of a thread, for the first time or again.
    fn make_call(&mut self, id: Id) {
        let Some(who) = self.caller(id) else { return };
        let (number, arguments) = self.thread(id).call;
        let outcome = self.perform(who, number, arguments);
        // A call may have ended the thread, or given it the number of its process.
        match outcome {
            Ok(value) => self.return_from_call(id, value),
            Err(Stop::Error(error)) => self.return_from_call(id, (-i64::from(error.0)) as u64),
            Err(Stop::Wait(wait)) => {
                let Some(thread) = self.threads.get_mut(&id) else { return };
                thread.progress.begun = true;
                thread.state = State::Waiting(wait);
                self.interrupt_wait(id);
            }
            Err(Stop::Gone) => {
                let id = if self.threads.contains_key(&id) { id } else { who.process };
                if self.threads.get(&id).is_some_and(|thread| thread.state == State::Stopped) {
                    self.leave(id);
                }
            }
        }
    }

    fn return_from_call(&mut self, id: Id, value: u64) {
        if self.threads.contains_key(&id) {
            self.registers_mut(id).rax = value;
            self.leave(id);
        }
    }

    /// Gives a waiting thread the result of its call.
    pub(crate) fn complete(&mut self, id: Id, value: u64) {
        self.forget_wait(id);
        self.return_from_call(id, value);
    }

    /// A thread waits for nothing any more.
    pub(crate) fn forget_wait(&mut self, id: Id) {
        self.futexes.remove(id);
        if let Some(thread) = self.threads.get_mut(&id)
            && matches!(thread.state, State::Waiting(_))
        {
            thread.state = State::Stopped;
        }
    }

    fn serve_fault(&mut self, machine: M::Thread, address: u64, access: crate::machine::Access) {
        if let Some(id) = self.stopped(machine) {
            self.resolve_fault(id, address, access);
        }
    }

    /// Lets a stopped thread go on that faulted, with a page or with a signal, now or when the page has come.
    pub(crate) fn resolve_fault(&mut self, id: Id, address: u64, access: crate::machine::Access) {
        let Some(who) = self.caller(id) else { return };
        match self.memory.fault(who.space, address, access) {
            Ok(()) => {}
            Err(Refusal::Elsewhere(wanted)) => return self.wait_for_page(id, wanted, (address, access)),
            Err(refusal) => self.refuse(id, refusal, address, access),
        }
        self.leave(id);
    }

    fn serve_ready(&mut self, polled: &[libc::pollfd]) {
        if let Some(signals) = &self.signals
            && polled.first().is_some_and(|first| first.fd == signals.as_raw_fd() && first.revents != 0)
        {
            let mut numbers = [0u8; 64];
            match host::read_stream(signals.as_raw_fd(), &mut numbers) {
                Ok(count @ 1..) => {
                    for &number in &numbers[..count as usize] {
                        self.signal_foreground(i32::from(number));
                    }
                }
                _ => self.signals = None,
            }
        }
        let ready = |wait: &crate::waiting::Wait| {
            wait.descriptors.iter().any(|&(descriptor, events)| {
                polled
                    .iter()
                    .any(|polled| polled.fd == descriptor && polled.events == events && polled.revents != 0)
            })
        };
        self.again(ready);
    }

    fn signal_foreground(&mut self, signal: i32) {
        if !(1..=crate::signals::SIGNALS).contains(&signal) {
            return;
        }
        let group = self.foreground;
        let meant: Vec<Id> = self
            .processes
            .values()
            .filter(|process| process.group == group)
            .map(|process| process.id)
            .collect();
        for process in meant {
            // One more of the same signal is no loss.
            let _ = self.post(process, None, information(signal, libc::SI_KERNEL));
        }
    }

    /// Makes the calls again of those whose wait is like this.
    fn again(&mut self, mut concerned: impl FnMut(&crate::waiting::Wait) -> bool) {
        let chosen: Vec<Id> = self
            .threads
            .iter()
            .filter(|(_, thread)| matches!(&thread.state, State::Waiting(wait) if concerned(wait)))
            .map(|(&id, _)| id)
            .collect();
        for id in chosen {
            // An earlier one may have changed what this one waits for, or ended it.
            if let Some(thread) = self.threads.get_mut(&id)
                && matches!(thread.state, State::Waiting(_))
            {
                thread.state = State::Stopped;
                self.make_call(id);
            }
        }
    }

    /// Serves all that has become possible: those who waited for something that changed, and times that have come.
    fn settle(&mut self) {
        let now = Instant::now();
        self.ring_alarms(now);
        self.serve_shared(false);
        self.again(|wait| wait.until.is_some_and(|until| until <= now));
        loop {
            let changed: Vec<Key> = self.wakes.take();
            if changed.is_empty() || self.end.is_some() {
                return;
            }
            self.again(|wait| wait.keys.iter().any(|key| changed.contains(key)));
        }
    }

    /// Who a thread is, if it is still there.
    pub(crate) fn caller(&self, id: Id) -> Option<Caller> {
        let process = self.threads.get(&id)?.process;
        Some(Caller { thread: id, process, space: self.process(process).space })
    }

    pub(crate) fn registers(&mut self, id: Id) -> &Registers {
        self.registers_mut(id)
    }

    pub(crate) fn registers_mut(&mut self, id: Id) -> &mut Registers {
        let machine = self.thread(id).machine;
        self.memory.machine.registers(machine)
    }

    /// The user that all programs run as.
    pub(crate) fn user(&self) -> u32 {
        self.user
    }

    /// A number for a pipe, an open file or the like.
    pub(crate) fn new_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    pub(crate) fn new_file(&mut self, kind: Kind, flags: i32) -> Rc<OpenFile> {
        let number = self.new_number();
        Rc::new(OpenFile {
            number,
            kind,
            flags: Cell::new(flags),
            position: Cell::new(0),
            used: Cell::new(0),
        })
    }
}
