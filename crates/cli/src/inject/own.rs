//! A comb of one's own: an agent and its cells in a directory that nobody else knows, and that are gone when whoever started them is.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use comb_cell::clock::monotonic_ns;
use comb_cell::faults::Fault;
use comb_cell::supervision::Recovered;
use comb_host::cgroup::Cgroup;
use comb_host::control::{self, CellCondition, Reply, Request, Status};
use comb_host::observations::Observations;
use comb_host::{RuntimeDirectory, process, remains};
use comb_region::named::{Ask, Mode, Wanted};

use super::programs::{Ended, LIMIT, run_to_end};
use crate::failure::Failure;
use crate::{agent, host};

/// Every cell of the comb.
pub(super) const CELLS: std::ops::RangeInclusive<u32> = 1..=4;
/// Of each cell's own region. As long as a spanning task reads there is something left that it has not read.
const REGION_BYTES: u64 = 4 << 20;
/// An agent answers from memory; one that is just being started takes a while to be there.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// Between two looks at how things are.
pub(super) const BETWEEN_LOOKS: Duration = Duration::from_millis(4);

/// What is to be cleared away however this process ends.
static PRESENT: Mutex<Option<(RuntimeDirectory, PathBuf)>> = Mutex::new(None);

/// This process is about to end: no comb is begun any more.
static IS_OVER: AtomicBool = AtomicBool::new(false);

/// Ends what there is, for who ends in a hurry, and lets nothing begin any more.
pub(super) fn clear_for_good() {
    IS_OVER.store(true, Ordering::SeqCst);
    clear();
}

/// What fails while this process is ended is nobody's concern: whoever ends it says how.
pub(super) fn stay_if_over() {
    if IS_OVER.load(Ordering::SeqCst) {
        stay();
    }
}

fn stay() -> ! {
    loop {
        std::thread::park();
    }
}

/// Ends what there is. Once more is no harm.
fn clear() {
    let present = PRESENT.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some((directory, saved)) = present else { return };
    let _ = control::ask_within(&directory, &Request::Down, Duration::from_secs(15));
    // An agent that was killed, or does not hear, has left everything.
    if directory.check().unwrap_or(false) {
        let _ = remains::clear(&directory);
    }
    let _ = std::fs::remove_dir_all(saved);
}

/// See the [module](self).
pub(super) struct Comb {
    pub(super) directory: RuntimeDirectory,
    /// Checkpoints of its regions: not there, for an agent leaves a directory that contains what it does not know.
    saved: PathBuf,
    agent: Mutex<Option<Child>>,
    seed: u64,
}

impl Comb {
    /// Begins: cells, each with a region of its own that is saved.
    pub(super) fn start(seed: u64) -> Result<Self, Failure> {
        let path = std::env::temp_dir().join(format!("comb-inject-{}", std::process::id()));
        let saved = path.with_extension("saved");
        let directory = RuntimeDirectory::at(path)?;
        let mut present = PRESENT.lock().unwrap_or_else(PoisonError::into_inner);
        if IS_OVER.load(Ordering::SeqCst) {
            drop(present);
            stay();
        }
        *present = Some((directory.clone(), saved.clone()));
        directory.create()?;
        drop(present);
        let comb = Self { directory, saved, agent: Mutex::default(), seed };
        comb.start_agent()?;
        match control::ask(&comb.directory, &Request::AwaitUp)? {
            Reply::Up { .. } => {}
            Reply::Refused(why) => return Err(Failure::new(why)),
            _ => return Err(agent::unexpected()),
        }
        CELLS.into_iter().try_for_each(|cell| comb.make_region(cell))?;
        Ok(comb)
    }

    /// The agent that was not there, or has been killed.
    pub(super) fn start_agent(&self) -> Result<(), Failure> {
        let mut command = Command::new("/proc/self/exe");
        let cells = CELLS.count().to_string();
        command.arg0("comb").args(["host", "--cells", &cells, "--faults", "--end-with-stdin"]);
        command.env("COMB_RUNTIME_DIR", self.directory.path());
        // What a terminal says to us is ours to pass on.
        command.process_group(0);
        let mut agent = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let mut word = String::new();
        BufReader::new(agent.stdout.take().expect("piped")).read_line(&mut word)?;
        if word.trim_end() != host::READY {
            let _ = agent.kill();
            let _ = agent.wait();
            return Err(Failure::new("the agent did not start"));
        }
        *self.agent.lock().unwrap_or_else(PoisonError::into_inner) = Some(agent);
        Ok(())
    }

    /// Its agent dies, and nobody else with it.
    pub(super) fn kill_agent(&self) {
        let agent = self.agent.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut agent) = agent {
            let _ = agent.kill();
            let _ = agent.wait();
        }
    }

    pub(super) fn region(cell: u32) -> String {
        format!("keep-{cell}")
    }

    /// By which the content is known of a cell's region.
    pub(super) fn seed_of(&self, cell: u32) -> u64 {
        self.seed.rotate_left(cell)
    }

    fn make_region(&self, cell: u32) -> Result<(), Failure> {
        let (name, seed) = (Self::region(cell), self.seed_of(cell).to_string());
        self.create(cell, &name, None)?;
        let ended = self.run(cell, &["fill", &name, &seed]);
        if ended.status != Some(0) {
            return Err(Failure::new(format!("region {name} could not be filled: {}", ended.said)));
        }
        Ask::at(self.directory.path(), cell)?.save(&name, &self.saved.join(&name))?;
        Ok(())
    }

    /// Makes a region, or a child of one.
    pub(super) fn create(&self, cell: u32, name: &str, parent: Option<&str>) -> Result<(), Failure> {
        let wanted = Wanted {
            name: name.to_owned(),
            bytes: parent.is_none().then_some(REGION_BYTES),
            block_bytes: 4096,
            migratory: false,
            mode: Mode::default(),
            sparse: false,
            from: None,
            parent: parent.map(str::to_owned),
            memory_home: None,
        };
        Ask::at(self.directory.path(), cell)?.create(&wanted)?;
        Ok(())
    }

    /// Removes a region, if its home is still the one that made it.
    pub(super) fn remove(&self, name: &str) {
        if let Ok((door, _)) = Ask::about(self.directory.path(), name) {
            let _ = door.remove(name, true);
        }
    }

    /// `comb`, as these cells' users call it.
    pub(super) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("/proc/self/exe");
        command.arg0("comb").args(arguments).env("COMB_RUNTIME_DIR", self.directory.path()).process_group(0);
        command
    }

    /// One of our programs, in these cells.
    pub(super) fn program(&self, components: usize, cells: &[u32], what: &[&str]) -> Command {
        let cells: Vec<String> = cells.iter().map(u32::to_string).collect();
        // Of the process that becomes it, which is born of this very program, whatever has been built since. Another's it may not look at: it is confined.
        let program = "/proc/self/exe";
        let mut command = self.command(&["run", "-n", &components.to_string(), "--cells", &cells.join(",")]);
        command.args(["--", program, "inject-program"]).args(what);
        command
    }

    /// One of our programs in a cell, from its beginning to its end.
    pub(super) fn run(&self, cell: u32, what: &[&str]) -> Ended {
        run_to_end(&mut self.program(1, &[cell], what), LIMIT)
    }

    // ── how things are ──

    pub(super) fn status(&self) -> Result<Status, Failure> {
        match control::ask_within(&self.directory, &Request::Status, ANSWER_LIMIT)? {
            Reply::Status(status) => Ok(status),
            Reply::Refused(why) => Err(Failure::new(why)),
            _ => Err(agent::unexpected()),
        }
    }

    fn observations(&self) -> Result<Observations, Failure> {
        match control::ask_within(&self.directory, &Request::Observe, ANSWER_LIMIT)? {
            Reply::Observed(observations) => Ok(observations),
            Reply::Refused(why) => Err(Failure::new(why)),
            _ => Err(agent::unexpected()),
        }
    }

    /// What cells have said of recoveries that are over, the oldest first.
    pub(super) fn recoveries(&self) -> Result<Vec<(u32, Recovered)>, Failure> {
        match control::ask_within(&self.directory, &Request::Recoveries, ANSWER_LIMIT)? {
            Reply::Recoveries(recoveries) => Ok(recoveries),
            Reply::Refused(why) => Err(Failure::new(why)),
            _ => Err(agent::unexpected()),
        }
    }

    pub(super) fn log(&self) -> String {
        std::fs::read_to_string(self.directory.log_file()).unwrap_or_default()
    }

    // ── failures ──

    /// Kills a cell as a machine dies: at once, and everything in it. When that was.
    pub(super) fn kill(&self, status: &Status, cell: u32) -> u64 {
        let process = status
            .cells
            .iter()
            .find(|known| known.cell == cell)
            .and_then(|known| process::open_number(known.pid));
        let cgroup =
            status.agent.cgroup.as_ref().map(|all| Cgroup::at(Path::new(all).join(format!("cell-{cell}"))));
        let at_ns = monotonic_ns();
        if let Some(process) = process {
            process::kill(&process);
        }
        cgroup.map(|cgroup| cgroup.kill());
        at_ns
    }

    /// Has a cell fail. When it did.
    pub(super) fn inject(&self, cell: u32, fault: Fault) -> Result<u64, Failure> {
        let asked_ns = monotonic_ns();
        match control::ask_within(&self.directory, &Request::Inject { cell, fault }, ANSWER_LIMIT)? {
            Reply::Injecting => {}
            Reply::Refused(why) => return Err(Failure::new(why)),
            _ => return Err(agent::unexpected()),
        }
        let since = Instant::now();
        loop {
            let seen = self.observations()?.injected;
            if let Some(injected) =
                seen.into_iter().rev().find(|seen| seen.cell == cell && seen.at_ns >= asked_ns)
            {
                return match injected.refused {
                    Some(why) => Err(Failure::new(format!("cell {cell} could not fail so: {why}"))),
                    None => Ok(injected.at_ns),
                };
            }
            if since.elapsed() > ANSWER_LIMIT {
                return Err(Failure::new(format!("cell {cell} has not heard that it is to fail")));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Whether a cell is there, in touch with all others.
pub(super) fn is_whole(status: &Status) -> bool {
    let others = u32::try_from(CELLS.count() - 1).expect("few");
    status.cells.iter().all(|cell| cell.state == CellCondition::Up && cell.channels == others)
}

impl Drop for Comb {
    fn drop(&mut self) {
        clear();
        if let Some(mut agent) = self.agent.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            // It ends with its standard input, should it have been deaf to all else.
            drop(agent.stdin.take());
            let _ = agent.wait();
        }
    }
}
