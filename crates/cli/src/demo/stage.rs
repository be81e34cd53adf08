//! What the demonstration plays on: a comb of its own, and the programs that it starts there.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use comb_host::control::{CellCondition, Killed, Reply, Request, Status};
use comb_host::dashboard::Place;
use comb_host::events::Following;
use comb_host::timeline::{Failure as Fault, Failures};
use comb_host::{RuntimeDirectory, signals};

use super::service::Addresses;
use super::{LIMIT, ask, has_checkpoint};
use crate::failure::Failure;
use crate::inject::programs::{Program, run_to_end};
use crate::{agent, host};

const BETWEEN_LOOKS: Duration = Duration::from_millis(5);

/// What a small program is to compute with.
pub(super) fn seed(cell: u32, number: u64) -> u64 {
    u64::from(cell) * 100 + number
}

/// A replica of the service.
pub(super) struct Replica {
    number: u32,
    program: Option<Program>,
    pub(super) address: SocketAddr,
}

/// See the [module](self).
pub(super) struct Stage {
    scratch: PathBuf,
    pub(super) directory: RuntimeDirectory,
    agent: Mutex<Option<Child>>,
}

impl Stage {
    pub(super) fn open() -> Result<Self, Failure> {
        let scratch = std::env::temp_dir().join(format!("comb-demo-{}", std::process::id()));
        std::fs::create_dir(&scratch)?;
        let stage = Self {
            directory: RuntimeDirectory::at(scratch.join("comb"))?,
            scratch: scratch.clone(),
            agent: Mutex::default(),
        };
        // Whoever has seen enough leaves nothing behind either: the agent ends with its standard input, and so with us.
        let told = signals::catch()?;
        let directory = stage.directory.clone();
        std::thread::spawn(move || {
            let mut waiting = [rustix::event::PollFd::new(told, rustix::event::PollFlags::IN)];
            while rustix::event::poll(&mut waiting, None).is_err() {}
            let _ = comb_host::control::ask(&directory, &Request::Down);
            let _ = std::fs::remove_dir_all(&scratch);
            std::process::exit(130);
        });
        Ok(stage)
    }

    /// `comb`, as the users of these cells call it.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("/proc/self/exe");
        command.arg0("comb").args(arguments).env("COMB_RUNTIME_DIR", self.directory.path()).process_group(0);
        command
    }

    /// One of our programs, in these cells.
    fn program(&self, options: &[&str], what: &[&str]) -> Result<Program, Failure> {
        let mut command = self.command(&["run"]);
        command.args(options).args(["--", "/proc/self/exe", "demo-program"]).args(what);
        Ok(Program::start(&mut command)?)
    }

    /// So many cells: how long that took.
    pub(super) fn up(&self, cells: u32) -> Result<Duration, Failure> {
        let began = Instant::now();
        self.directory.create()?;
        let mut command = self.command(&[
            "host",
            "run",
            "--cells",
            &cells.to_string(),
            "--end-with-stdin",
            "--dashboard",
            "127.0.0.1:0",
        ]);
        let mut agent = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let mut word = String::new();
        BufReader::new(agent.stdout.take().expect("piped")).read_line(&mut word)?;
        let is_ready = word.trim_end() == host::READY;
        *self.agent.lock().unwrap_or_else(PoisonError::into_inner) = Some(agent);
        if !is_ready {
            return Err(Failure::new("the agent did not start"));
        }
        match ask(&self.directory, &Request::AwaitUp)? {
            Reply::Up { .. } => Ok(began.elapsed()),
            _ => Err(agent::unexpected()),
        }
    }

    pub(super) fn dashboard(&self) -> String {
        Place::find(&self.directory).map(|place| place.url(true)).unwrap_or_default()
    }

    // ── programs ──

    pub(super) fn replicas(&self, count: u32) -> Result<Vec<Replica>, Failure> {
        let starting: Vec<(u32, Program)> = (0..count)
            .map(|number| Ok((number, self.replica(number, count, "new")?)))
            .collect::<Result<_, Failure>>()?;
        starting
            .into_iter()
            .map(|(number, mut program)| {
                let address = serves_at(&mut program)?;
                Ok(Replica { number, program: Some(program), address })
            })
            .collect()
    }

    fn replica(&self, number: u32, count: u32, how: &str) -> Result<Program, Failure> {
        let agent = self.directory.agent_socket();
        let agent = agent.to_str().ok_or_else(|| Failure::new("the temporary directory is no text"))?;
        let (cell, number, count) = ((number + 1).to_string(), number.to_string(), count.to_string());
        self.program(&["-n", "1", "--cells", &cell], &["kv", agent, &number, &count, "127.0.0.1:0", how])
    }

    pub(super) fn addresses(&self, replicas: &[Replica]) -> Addresses {
        Arc::new(Mutex::new(replicas.iter().map(|replica| replica.address).collect()))
    }

    /// A replica that has died comes in to the others.
    pub(super) fn come_back(
        &self,
        replicas: &mut [Replica],
        number: u32,
        addresses: &Addresses,
    ) -> Result<(), Failure> {
        let count = u32::try_from(replicas.len()).unwrap_or(u32::MAX);
        let replica = replicas
            .iter_mut()
            .find(|replica| replica.number == number)
            .ok_or_else(|| Failure::new("there is no such replica"))?;
        drop(replica.program.take());
        let mut program = self.replica(number, count, "join")?;
        replica.address = serves_at(&mut program)?;
        // It serves before it is one of them; then it says which view it is in.
        let since = Instant::now();
        while !program
            .line(LIMIT)
            .ok_or_else(|| Failure::new("the replica does not come in"))?
            .starts_with("view ")
        {
            if since.elapsed() > LIMIT {
                return Err(Failure::new("the replica does not come in"));
            }
        }
        replica.program = Some(program);
        addresses.lock().unwrap_or_else(PoisonError::into_inner)[number as usize] = replica.address;
        Ok(())
    }

    pub(super) fn heat(&self, steps: &str, pace_ms: &str) -> Result<Option<Program>, Failure> {
        let made = run_to_end(
            &mut self.command(&["region", "create", "progress", "--size", "64K", "--cell", "1"]),
            LIMIT,
        );
        if made.status != Some(0) {
            return Err(Failure::new(format!("the region could not be made: {}", made.describe())));
        }
        let saved = self.checkpoints();
        let saved = saved.to_str().ok_or_else(|| Failure::new("the temporary directory is no text"))?;
        let options = ["-n", "4", "--checkpoint", saved, "--restart"];
        self.program(&options, &["heat", steps, pace_ms, "progress"]).map(Some)
    }

    fn checkpoints(&self) -> PathBuf {
        self.scratch.join("heat")
    }

    pub(super) fn await_checkpoint(&self, limit: Duration) -> Result<(), Failure> {
        self.await_that(limit, "the parallel program makes no checkpoint", || {
            Ok(has_checkpoint(&self.checkpoints()))
        })
    }

    /// So many in each cell, by cell and number.
    pub(super) fn small(&self, cells: u32, of_each: u64) -> Result<BTreeMap<(u32, u64), Program>, Failure> {
        let mut programs = BTreeMap::new();
        for cell in 1..=cells {
            for number in 1..=of_each {
                let (of, with) = (cell.to_string(), seed(cell, number).to_string());
                programs
                    .insert((cell, number), self.program(&["-n", "1", "--cells", &of], &["small", &with])?);
            }
        }
        Ok(programs)
    }

    // ── how things are ──

    pub(super) fn tasks(&self) -> Result<usize, Failure> {
        match ask(&self.directory, &Request::Tasks)? {
            Reply::Tasks(tasks) => Ok(tasks.len()),
            _ => Err(agent::unexpected()),
        }
    }

    fn status(&self) -> Result<Status, Failure> {
        agent::status(&self.directory)
    }

    fn await_that(
        &self,
        limit: Duration,
        otherwise: &str,
        mut holds: impl FnMut() -> Result<bool, Failure>,
    ) -> Result<(), Failure> {
        let since = Instant::now();
        while !holds()? {
            if since.elapsed() > limit {
                return Err(Failure::new(otherwise));
            }
            std::thread::sleep(BETWEEN_LOOKS);
        }
        Ok(())
    }

    // ── the failure ──

    pub(super) fn kill(&self, cell: u32) -> Result<Killed, Failure> {
        match ask(&self.directory, &Request::Kill { cell, hold: false })? {
            Reply::Killed(killed) => Ok(killed),
            _ => Err(agent::unexpected()),
        }
    }

    /// Until the cell is one of the others again: how that went.
    pub(super) fn await_back(&self, cell: u32, limit: Duration) -> Result<Fault, Failure> {
        let (mut failures, mut following) = (Failures::default(), Following::of(&self.directory));
        self.await_that(limit, "the cell does not come back", || {
            while let Some(event) = following.next_event() {
                failures.take(&event);
            }
            Ok(failures.of(cell).is_some_and(Fault::is_over))
        })?;
        let is_up = |status: &Status| {
            status.cells.iter().any(|known| known.cell == cell && known.state == CellCondition::Up)
        };
        if !is_up(&self.status()?) {
            return Err(Failure::new("the cell was back, and is not any more"));
        }
        Ok(failures.of(cell).expect("just seen").clone())
    }

    /// Ends everything: how many processes and directories are left.
    pub(super) fn down(&self) -> Result<usize, Failure> {
        let before: Vec<u32> = {
            let status = self.status()?;
            status.cells.iter().map(|cell| cell.pid).chain([status.agent.pid]).collect()
        };
        let Reply::Down(_) = ask(&self.directory, &Request::Down)? else { return Err(agent::unexpected()) };
        if let Some(mut agent) = self.agent.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = agent.wait();
        }
        let lives = |pid: &&u32| comb_host::process::stat(**pid).is_some_and(|stat| stat.state != 'Z');
        Ok(before.iter().filter(lives).count() + usize::from(self.directory.path().exists()))
    }
}

/// A replica says where it serves.
fn serves_at(program: &mut Program) -> Result<SocketAddr, Failure> {
    let line = program.line(LIMIT).ok_or_else(|| Failure::new("a replica did not start"))?;
    let address = line.split_once(" serves ").and_then(|(_, address)| address.parse().ok());
    address.ok_or_else(|| Failure::new(format!("a replica says {line:?}")))
}

impl Drop for Stage {
    fn drop(&mut self) {
        if let Some(mut agent) = self.agent.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            // It ends everything with its standard input.
            drop(agent.stdin.take());
            let _ = agent.wait();
        }
        let _ = std::fs::remove_dir_all(&self.scratch);
    }
}
