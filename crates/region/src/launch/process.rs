//! Starting a component's process, and ending it with all that it started.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus};

use rustix::io::FdFlags;
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions};
use rustix::thread::CpuSet;
use serde::{Deserialize, Serialize};

use super::guard::{self, Guard};
use super::spawn::{Flow, Spawned, spawn};

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
    number: Pid,
    ended: OwnedFd,
    has_group: bool,
    /// Where it is piped: until somebody takes it.
    pub(super) input: Option<ChildStdin>,
    pub(super) output: Option<ChildStdout>,
    pub(super) errors: Option<ChildStderr>,
}

/// What a component gets besides what its [`Command`] says.
pub(super) struct Endowment<'a> {
    /// The program's name, as it is told itself; else that of the command.
    pub(super) name: Option<&'a OsStr>,
    /// Its input, output and errors.
    pub(super) streams: [Flow; 3],
    /// Stay open in the program.
    pub(super) inherits: [Option<BorrowedFd<'a>>; 2],
    /// To be told when it begins.
    pub(super) guard: Option<&'a Guard>,
    /// The cgroup that it is born in, to belong to a cell.
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
    pub(super) fn start(command: &Command, endowment: &Endowment<'_>) -> std::io::Result<Self> {
        let launcher = rustix::process::getpid();
        let Endowment { has_group, at_our_end, name, streams, inherits, .. } = *endowment;
        let words = endowment.guard.and_then(Guard::words);
        let cores = endowment.core.map(|core| {
            let mut cores = CpuSet::new();
            cores.set(core as usize);
            cores
        });
        let before_its_program = || {
            if has_group {
                rustix::process::setpgid(None, None)?;
            }
            rustix::process::set_parent_process_death_signal(Some(at_our_end))?;
            // Who has ended before that line was not heard of.
            if rustix::process::getppid() != Some(launcher) {
                return Err(rustix::io::Errno::SRCH.into());
            }
            if let Some(cores) = &cores {
                rustix::thread::sched_setaffinity(None, cores)?;
            }
            for descriptor in inherits.into_iter().flatten() {
                rustix::io::fcntl_setfd(descriptor, FdFlags::empty())?;
            }
            if let Some(words) = words {
                guard::announce(words)?;
            }
            Ok(())
        };
        let cgroup = endowment.cgroup.map(AsFd::as_fd);
        let started = spawn(command, name, streams, cgroup, before_its_program);
        if let (Err(_), Some(guard)) = (&started, endowment.guard) {
            guard.give_up();
        }
        let Spawned { process: number, pipes: [input, output, errors] } = started?;
        if let Some(guard) = endowment.guard {
            guard.watch(id(number));
        }
        match rustix::process::pidfd_open(number, PidfdFlags::empty()) {
            Ok(ended) => {
                let (input, output, errors) =
                    (input.map(Into::into), output.map(Into::into), errors.map(Into::into));
                Ok(Self { number, ended, has_group, input, output, errors })
            }
            Err(error) => {
                // Nobody would learn of its end.
                let _ = rustix::process::kill_process(number, Signal::KILL);
                let _ = rustix::process::waitpid(Some(number), WaitOptions::empty());
                Err(error.into())
            }
        }
    }

    pub(super) fn id(&self) -> u32 {
        id(self.number)
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
            true => rustix::process::kill_process_group(self.number, signal),
            false => rustix::process::kill_process(self.number, signal),
        };
    }

    /// Takes the status of a process that has ended, and ends what is left of its group.
    pub(super) fn bury(self) -> How {
        if self.has_group {
            self.signal(Signal::KILL);
        }
        // It waits for nothing that we hold.
        drop(self.input);
        match rustix::process::waitpid(Some(self.number), WaitOptions::empty()) {
            Ok(Some((_, status))) => ExitStatus::from_raw(status.as_raw()).into(),
            Ok(None) => How::Lost("it has not ended".to_owned()),
            Err(error) => How::Lost(error.to_string()),
        }
    }
}

fn id(number: Pid) -> u32 {
    number.as_raw_nonzero().get().unsigned_abs()
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
