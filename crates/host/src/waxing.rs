//! The policy's process, as the agent has it in its book: Wax, or whatever program somebody has in its place. (Hive §3.2)
//!
//! It depends on all cells. When one ends, so does it; when the others have recovered and all that are starting are up, it is started anew, and builds its
//! picture from what they show. Nothing depends on it.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use comb_cell::hints::{self, CellHint, Heard, INCARNATION_VARIABLE, POLICY};
use comb_cell::supervision::Order;
use comb_memory::careful::Peer;
use comb_types::Incarnation;

use crate::backing::Shown;
use crate::cgroup::Cgroup;
use crate::control::WaxStatus;
use crate::state::ProcessName;
use crate::{RuntimeDirectory, process};

/// Another program in Wax's place, with its arguments; `none`: there is to be no policy.
pub(crate) const COMMAND_VARIABLE: &str = "COMB_WAX";
/// Cells that have not said by then that they have recovered are waited for no longer.
const RECOVERY_LIMIT: Duration = Duration::from_secs(2);
/// One that ends by itself is not started again at once, and the longer not the sooner it ends.
const SHORTEST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Who has lived so long has not failed at its beginning.
const LONG: Duration = Duration::from_secs(10);
/// What can be put right by itself is so within this.
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Waxing {
    pub(crate) incarnation: u64,
    running: Option<Running>,
    /// Cells that have not recovered from the end of another.
    awaited: BTreeSet<u32>,
    not_before: Instant,
    until: Instant,
    pause: Duration,
}

#[derive(Debug)]
struct Running {
    child: Child,
    name: ProcessName,
    process: OwnedFd,
    since: Instant,
    cgroup: Option<Cgroup>,
    connection: Option<u64>,
    hints: Option<(Shown, Option<Peer>)>,
    /// We have ended it.
    is_killed: bool,
}

impl Waxing {
    pub(crate) fn new(incarnation: u64) -> Self {
        let now = Instant::now();
        Self {
            incarnation,
            running: None,
            awaited: BTreeSet::new(),
            not_before: now,
            until: now,
            pause: SHORTEST_PAUSE,
        }
    }

    /// When it could be started; none: it runs.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        if self.running.is_some() || !is_wanted() {
            return None;
        }
        Some(self.not_before.max(Instant::now() + BETWEEN_LOOKS))
    }

    /// Whether it is to be started now, as far as this knows.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        let has_recovered = self.awaited.is_empty() || now >= self.until;
        self.running.is_none() && is_wanted() && now >= self.not_before && has_recovered
    }

    /// Starts it: the descriptor by which its end is seen.
    pub(crate) fn start(
        &mut self,
        directory: &RuntimeDirectory,
        parent: Option<&Cgroup>,
    ) -> std::io::Result<&OwnedFd> {
        self.incarnation += 1;
        self.not_before = Instant::now() + self.pause;
        let mut command = command();
        command.env(INCARNATION_VARIABLE, self.incarnation.to_string());
        command.env("COMB_RUNTIME_DIR", directory.path()).stdin(Stdio::null()).stdout(Stdio::null());
        let mut child = command.spawn()?;
        let Some((process, name)) = process::open_number(child.id()).zip(ProcessName::of(child.id())) else {
            let _ = child.kill();
            let _ = child.wait();
            return Err(std::io::Error::other("the new process cannot be watched"));
        };
        // Where there are cgroups, it leaves nothing behind, whatever program it is.
        let cgroup = parent.and_then(|parent| Cgroup::create(parent.path(), "wax").ok());
        if let Some(cgroup) = &cgroup {
            let _ = std::fs::write(cgroup.path().join("cgroup.procs"), name.pid.to_string());
        }
        let since = Instant::now();
        let running =
            Running { child, name, process, since, cgroup, connection: None, hints: None, is_killed: false };
        Ok(&self.running.insert(running).process)
    }

    /// Whether a process that has connected is the policy's, in this life. From now on that is its connection.
    pub(crate) fn hello(&mut self, pid: u32, incarnation: u64, connection: u64) -> bool {
        let ours = self.running.as_mut().filter(|running| running.name.pid == pid && !running.is_killed);
        let Some(running) = ours.filter(|_| incarnation == self.incarnation) else { return false };
        running.connection = Some(connection);
        true
    }

    pub(crate) fn is_on(&self, connection: u64) -> bool {
        self.running.as_ref().is_some_and(|running| running.connection == Some(connection))
    }

    /// It has handed over its hints.
    pub(crate) fn shows(&mut self, file: OwnedFd) -> Result<(), String> {
        let Some(running) = &mut self.running else { return Ok(()) };
        let shown = Shown::of(file).map_err(|error| format!("its hints are no file: {error}"))?;
        let policy = Peer::map(shown.to_read(), POLICY, Incarnation(self.incarnation));
        let policy = policy.map_err(|error| format!("its hints cannot be looked at: {error}"))?;
        running.hints = Some((shown, Some(policy)));
        Ok(())
    }

    /// What cells are told of it.
    pub(crate) fn order(&self) -> Option<(Order, Arc<OwnedFd>)> {
        let (shown, _) = self.running.as_ref()?.hints.as_ref()?;
        Some((Order::Hints { incarnation: self.incarnation }, shown.to_read()))
    }

    fn heard(&self) -> Option<Heard> {
        let (_, policy) = self.running.as_ref()?.hints.as_ref()?;
        hints::hear(policy.as_ref()?, 0).ok()
    }

    /// What it says to who is in no cell.
    pub(crate) fn advice(&self) -> Option<CellHint> {
        self.heard().map(|heard| heard.own)
    }

    /// A cell has ended: the policy ends with it, and these are to recover before it is started again.
    pub(crate) fn lose(&mut self, living: impl Iterator<Item = u32>) {
        self.awaited = living.collect();
        self.until = Instant::now() + RECOVERY_LIMIT;
        self.end();
    }

    pub(crate) fn recovered(&mut self, cell: u32) {
        self.awaited.remove(&cell);
    }

    /// Ends it.
    pub(crate) fn end(&mut self) {
        let Some(running) = &mut self.running else { return };
        running.is_killed = true;
        if let Some(cgroup) = &running.cgroup {
            cgroup.kill();
        }
        process::kill(&running.process);
        // From now on nobody takes what it has said for hints.
        if let Some((shown, _)) = running.hints.take() {
            shown.take_back();
        }
    }

    /// Its process has ended, as its descriptor says: how, in words, and the connection that it had. `None`: not yet.
    pub(crate) fn take_end(&mut self) -> Option<(String, Option<u64>)> {
        let running = self.running.as_mut()?;
        let status = running.child.try_wait().ok().flatten()?;
        let (is_killed, connection) = (running.is_killed, running.connection);
        let lived = running.since.elapsed();
        self.end();
        if let Some(cgroup) = self.running.take().and_then(|running| running.cgroup) {
            cgroup.remove();
        }
        if is_killed || lived >= LONG {
            self.pause = SHORTEST_PAUSE;
            self.not_before = Instant::now();
        } else {
            self.pause = (self.pause * 2).min(LONGEST_PAUSE);
            self.not_before = Instant::now() + self.pause;
        }
        let how = if is_killed { "it depends on every cell".to_owned() } else { status.to_string() };
        Some((how, connection))
    }

    pub(crate) fn process(&self) -> Option<&OwnedFd> {
        self.running.as_ref().map(|running| &running.process)
    }

    pub(crate) fn status(&self) -> Option<WaxStatus> {
        let pid = self.running.as_ref()?.name.pid;
        let stat = process::stat(pid)?;
        let millis = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        let Heard { round, own, .. } = self.heard().unwrap_or_default();
        Some(WaxStatus {
            pid,
            incarnation: self.incarnation,
            uptime_ms: millis(stat.uptime()),
            cpu_ms: millis(stat.cpu()),
            memory_bytes: stat.resident_bytes(),
            decisions: round,
            prefer: own.prefer,
            acceptable: own.acceptable.into_iter().collect(),
        })
    }
}

fn is_wanted() -> bool {
    std::env::var(COMMAND_VARIABLE).as_deref() != Ok("none")
}

fn command() -> Command {
    let other = std::env::var(COMMAND_VARIABLE).unwrap_or_default();
    let mut words = other.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or("/proc/self/exe"));
    if other.is_empty() {
        command.arg0("comb").arg("wax");
    }
    command.args(words).env_remove(crate::notify::VARIABLE);
    command
}
