//! The process that serves a machine's disk.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use thiserror::Error;

use super::DiskOf;
use crate::children;
use crate::devices::disk::Writes;

/// A disk's process serves by then, or has ended.
const BEGIN_LIMIT: Duration = Duration::from_secs(20);

/// How soon that is seen.
const BETWEEN_LOOKS: Duration = Duration::from_millis(2);

/// One that ends is started again, not more often than this.
const BETWEEN_STARTS: Duration = Duration::from_secs(1);

/// A disk is not served.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct DiskError(String);

/// The process that serves a disk, which is started again when it ends, and ends with this.
#[derive(Debug)]
pub struct DiskServer {
    arguments: Vec<OsString>,
    program: PathBuf,
    cgroup: Option<PathBuf>,
    child: Child,
    started: Instant,
    /// How often it was started again.
    pub restarts: u32,
}

impl DiskServer {
    /// Serves a disk at a socket, by this program, which is called with `vm-disk`, and what the disk is.
    pub fn start(
        program: &Path,
        disk: &DiskOf,
        socket: &Path,
        cgroup: Option<&Path>,
    ) -> Result<Self, DiskError> {
        let failed = |error: io::Error| DiskError(format!("{}: {error}", disk.base.display()));
        let mut arguments: Vec<OsString> = ["vm-disk", "--socket"].map(OsString::from).to_vec();
        arguments.extend([socket.into(), "--base".into(), disk.base.clone().into()]);
        match &disk.writes {
            Writes::Temporary => arguments.push("--temporary".into()),
            Writes::Exclusive => arguments.push("--exclusive".into()),
            Writes::Refused => arguments.push("--read-only".into()),
            Writes::Overlay(path) => arguments.extend(["--overlay".into(), path.clone().into()]),
        }
        let mut child = spawn(program, &arguments, cgroup, Stdio::piped()).map_err(failed)?;
        let started = Instant::now();
        while UnixStream::connect(socket).is_err() {
            if let Some(status) = child.try_wait().map_err(failed)? {
                let mut said = String::new();
                let _ = child.stderr.take().map(|errors| errors.take(1 << 16).read_to_string(&mut said));
                let last = said.lines().rev().find(|line| !line.is_empty());
                let why = last.map_or_else(|| format!("it ended: {status}"), |line| strip(line).to_owned());
                return Err(DiskError(why));
            }
            if started.elapsed() > BEGIN_LIMIT {
                let _ = child.kill().and_then(|()| child.wait());
                return Err(DiskError(format!("{} is not served", disk.base.display())));
            }
            std::thread::sleep(BETWEEN_LOOKS);
        }
        let (program, cgroup) = (program.to_owned(), cgroup.map(Path::to_owned));
        Ok(Self { arguments, program, cgroup, child, started, restarts: 0 })
    }

    /// The process.
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// Starts it again if it has ended. The machine waits for its disk meanwhile.
    pub fn look(&mut self) {
        let has_ended = !matches!(self.child.try_wait(), Ok(None));
        if has_ended && self.started.elapsed() >= BETWEEN_STARTS {
            self.started = Instant::now();
            let started = spawn(&self.program, &self.arguments, self.cgroup.as_deref(), Stdio::null());
            if let Ok(child) = started {
                self.child = child;
                self.restarts += 1;
            }
        }
    }
}

fn spawn(program: &Path, arguments: &[OsString], cgroup: Option<&Path>, errors: Stdio) -> io::Result<Child> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors);
    children::bind(&mut command, cgroup)?;
    command.spawn()
}

/// A message without the name of who says it.
fn strip(line: &str) -> &str {
    line.strip_prefix("comb-vm-disk: ").unwrap_or(line)
}

impl Drop for DiskServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
