//! Starting a component's process, and ending it with all that it started.
#![expect(unsafe_code, reason = "what a new process does before its program begins")]

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};

use rustix::io::FdFlags;
use rustix::process::{Pid, PidfdFlags, Signal};
use rustix::thread::CpuSet;
use serde::{Deserialize, Serialize};

use super::guard::{self, Guard};

/// How a component ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum How {
    /// By itself, with this status.
    Exited(i32),
    /// By a signal.
    Killed(i32),
    /// It never began.
    NotStarted(String),
    /// Its host does not answer any more. Whether it still runs there is not known.
    Lost(String),
}

impl From<ExitStatus> for How {
    fn from(status: ExitStatus) -> Self {
        match status.signal() {
            Some(signal) => Self::Killed(signal),
            None => Self::Exited(status.code().unwrap_or(1)),
        }
    }
}

/// A process of which nobody has taken the status yet, so that its number is its own.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    ended: OwnedFd,
    has_group: bool,
}

/// What a component gets besides what its [`Command`] says.
pub(super) struct Endowment<'a> {
    /// Stay open in the program.
    pub(super) inherits: [Option<BorrowedFd<'a>>; 2],
    /// To be told when it begins.
    pub(super) guard: Option<&'a Guard>,
    /// The file that it writes itself into, to belong to a cell.
    pub(super) cgroup: Option<&'a OwnedFd>,
    /// The one core that it runs on.
    pub(super) core: Option<u32>,
    /// Whether it leads a process group, which can be ended as a whole.
    pub(super) has_group: bool,
    /// Sent to it when the thread that starts it ends, however that ends.
    pub(super) at_our_end: Signal,
}

impl Process {
    /// Starts it. The calling thread is to live as long as the process shall.
    pub(super) fn start(mut command: Command, endowment: &Endowment<'_>) -> std::io::Result<Self> {
        let launcher = rustix::process::getpid();
        let Endowment { has_group, at_our_end, .. } = *endowment;
        let inherits = endowment.inherits.map(|descriptor| descriptor.map(|open| open.as_raw_fd()));
        let cgroup = endowment.cgroup.map(|procs| procs.as_raw_fd());
        let words = endowment.guard.and_then(Guard::words).map(|words| words.as_raw_fd());
        let cores = endowment.core.map(|core| {
            let mut cores = CpuSet::new();
            cores.set(core as usize);
            cores
        });
        if has_group {
            command.process_group(0);
        }
        let before_its_program = move || {
            rustix::process::set_parent_process_death_signal(Some(at_our_end))?;
            // Who has ended before that line was not heard of.
            if rustix::process::getppid() != Some(launcher) {
                return Err(rustix::io::Errno::SRCH.into());
            }
            if let Some(procs) = cgroup {
                // SAFETY: it is borrowed until `start` returns, which is after this.
                let procs = unsafe { BorrowedFd::borrow_raw(procs) };
                rustix::io::write(procs, b"0")?;
            }
            if let Some(cores) = &cores {
                rustix::thread::sched_setaffinity(None, cores)?;
            }
            for descriptor in inherits.into_iter().flatten() {
                // SAFETY: it is borrowed until `start` returns, which is after this; and this process has a copy.
                let descriptor = unsafe { BorrowedFd::borrow_raw(descriptor) };
                rustix::io::fcntl_setfd(descriptor, FdFlags::empty())?;
            }
            if let Some(words) = words {
                // SAFETY: the same.
                guard::announce(unsafe { BorrowedFd::borrow_raw(words) })?;
            }
            Ok(())
        };
        // SAFETY: between fork and exec only system calls are made: nothing allocates or takes a lock.
        let started = unsafe { command.pre_exec(before_its_program) }.spawn();
        if let (Err(_), Some(guard)) = (&started, endowment.guard) {
            guard.give_up();
        }
        let mut child = started?;
        if let Some(guard) = endowment.guard {
            guard.watch(child.id());
        }
        match rustix::process::pidfd_open(pid(&child), PidfdFlags::empty()) {
            Ok(ended) => Ok(Self { child, ended, has_group }),
            Err(error) => {
                // Nobody would learn of its end.
                let _ = child.kill();
                let _ = child.wait();
                Err(error.into())
            }
        }
    }

    pub(super) fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it leads a group of its own; otherwise it is in ours.
    pub(super) fn has_group(&self) -> bool {
        self.has_group
    }

    /// Readable when the process has ended.
    pub(super) fn ended(&self) -> BorrowedFd<'_> {
        self.ended.as_fd()
    }

    /// Signals the process, with its group if it has one.
    pub(super) fn signal(&self, signal: Signal) {
        // Its number is its own, and its group's: nobody has taken its status.
        let _ = match self.has_group {
            true => rustix::process::kill_process_group(pid(&self.child), signal),
            false => rustix::process::kill_process(pid(&self.child), signal),
        };
    }

    /// Takes the status of a process that has ended, and ends what is left of its group.
    pub(super) fn bury(mut self) -> How {
        if self.has_group {
            self.signal(Signal::KILL);
        }
        match self.child.wait() {
            Ok(status) => status.into(),
            Err(error) => How::Lost(error.to_string()),
        }
    }
}

fn pid(child: &Child) -> Pid {
    Pid::from_child(child)
}

/// Lets this process have as many open files as it may, up to a number that is enough for a task of so many components.
pub(super) fn raise_file_limit(enough: u64) {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < enough) {
        limit.current = Some(limit.maximum.map_or(enough, |maximum| maximum.min(enough)));
        let _ = setrlimit(Resource::Nofile, limit);
    }
}
