//! Programs as processes of their own.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Stdio};

use rustix::process::{Pid, PidfdFlags, Signal};

use super::{Life, Runs, Started};
use crate::wire::{Command, Ended};

pub(super) struct Processes;

struct Process {
    child: Child,
    descriptor: OwnedFd,
}

impl Runs for Processes {
    fn start(&mut self, command: &Command) -> Result<Started, String> {
        let [name, arguments @ ..] = &command.arguments[..] else { return Err("no program is named".into()) };
        let mut starts = std::process::Command::new(OsStr::from_bytes(name));
        starts.args(arguments.iter().map(|argument| OsStr::from_bytes(argument)));
        for variable in &command.environment {
            let Some(at) = variable.iter().position(|&byte| byte == b'=') else { continue };
            starts.env(OsStr::from_bytes(&variable[..at]), OsStr::from_bytes(&variable[at + 1..]));
        }
        let directory = if command.directory.is_empty() { b"/" } else { &command.directory[..] };
        starts.current_dir(OsStr::from_bytes(directory)).process_group(0);
        starts.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let name = String::from_utf8_lossy(name);
        let fails = |error: io::Error| format!("{name}: {error}");
        let mut child = starts.spawn().map_err(fails)?;
        let number = Pid::from_child(&child);
        let descriptor =
            rustix::process::pidfd_open(number, PidfdFlags::empty()).map_err(|error| fails(error.into()))?;
        let input = OwnedFd::from(child.stdin.take().expect("it is piped"));
        let output = OwnedFd::from(child.stdout.take().expect("it is piped"));
        let errors = OwnedFd::from(child.stderr.take().expect("it is piped"));
        for pipe in [&input, &output, &errors] {
            rustix::io::ioctl_fionbio(pipe, true).map_err(|error| fails(error.into()))?;
        }
        let outputs = [output, errors].map(File::from);
        Ok(Started { life: Box::new(Process { child, descriptor }), input: input.into(), outputs })
    }
}

impl Life for Process {
    fn end(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    fn ended(&mut self) -> io::Result<Option<Ended>> {
        let status = self.child.try_wait()?;
        Ok(status.map(|status| {
            status.code().map_or_else(|| Ended::Killed(status.signal().unwrap_or(0)), Ended::Exited)
        }))
    }

    fn signal(&mut self, signal: Signal) {
        let _ = rustix::process::pidfd_send_signal(&self.descriptor, signal);
    }

    fn kill(&mut self) {
        // It leads a group of its own.
        let _ = rustix::process::kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.wait();
    }
}
