//! A kernel's process, and the line to it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, pidfd_open, waitid,
};

/// Who is told to stop has this long: it is the host that stops it.
const PATIENCE: Duration = Duration::from_secs(5);

/// The line of this process to its manager, who has started it: its standard input.
pub fn own_line() -> io::Result<UnixStream> {
    Ok(UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?))
}

#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    pub(super) line: UnixStream,
}

impl Process {
    /// Starts a program, whose standard input is the line. It is a process group of its own: should the manager end while it is stopped, the host ends it.
    pub(super) fn start(mut command: Command) -> io::Result<Self> {
        let (line, other) = UnixStream::pair()?;
        // Who does not take what it is sent must not stop its manager.
        line.set_nonblocking(true)?;
        let child = command.stdin(OwnedFd::from(other)).process_group(0).spawn()?;
        Ok(Self { child, line })
    }

    /// For who asks the host about it.
    pub(super) fn descriptor(&self) -> io::Result<OwnedFd> {
        Ok(pidfd_open(self.pid(), PidfdFlags::empty())?)
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// How it ended, if it has.
    pub(super) fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Stops it: when this returns, no thread of it runs. Or it has ended.
    pub(super) fn stop(&mut self) -> io::Result<()> {
        self.signal(Signal::STOP)?;
        let since = Instant::now();
        let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
        while waitid(WaitId::Pid(self.pid()), options)?.is_none() {
            if self.ended()?.is_some() {
                return Ok(());
            }
            if since.elapsed() > PATIENCE {
                self.go_on()?;
                return Err(Errno::TIMEDOUT.into());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Lets it go on.
    pub(super) fn go_on(&self) -> io::Result<()> {
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> io::Result<()> {
        match kill_process_group(self.pid(), signal) {
            Err(Errno::SRCH) => Ok(kill_process(self.pid(), signal)?),
            result => Ok(result?),
        }
    }

    /// Ends it, and waits until it has.
    pub(super) fn end(&mut self) -> io::Result<ExitStatus> {
        if let Some(status) = self.ended()? {
            return Ok(status);
        }
        let _ = kill_process_group(self.pid(), Signal::KILL);
        let _ = self.child.kill();
        self.child.wait()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.end();
    }
}
