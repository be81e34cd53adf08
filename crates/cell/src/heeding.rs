//! A cell takes hints, and shows what it has to do, so that there can be some.
//!
//! A thread of its own does both: what it does may take long, and the cell's loop has to come round. It looks at the hints twenty times a second, and
//! follows them within `limits`. Where the policy is gone, stands still, or says what cannot be read, everything is as if there were none: tasks
//! run, wherever they like.

mod limits;
mod processes;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use comb_memory::careful::{CarefulError, Peer};
use comb_region::named::home::{ClockHand, HomeMemory};
use comb_types::Incarnation;

use self::limits::{LONGEST_WAIT, MOST_GIVEN_BACK, Pulse, Seldom, Turn};
use self::processes::Bound;
use crate::hints::{self, Cores, Heard, POLICY, TaskHint};
use crate::shown::{Heeded, Load, Others, Shown, TaskShown};
use crate::supervision::TaskHere;

pub use self::processes::cgroup_of;

/// From one look at the hints to the next.
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);
/// What is shown of the cell's load is not older than this and a look.
const BETWEEN_MEASURINGS: Duration = Duration::from_millis(200);
/// The same of a cell without tasks, whose load changes little.
const AT_REST: Duration = Duration::from_millis(500);

/// What the thread is told.
enum Told {
    /// The policy publishes hints.
    Policy(Peer),
    /// There are these tasks in the cell.
    Tasks(Vec<TaskHere>),
}

/// What the thread has measured.
#[derive(Clone, Copy, Debug, Default)]
struct Measured {
    used_ns: u64,
    frame_bytes: u64,
    load: Load,
}

/// The loop's side.
#[derive(Debug)]
pub(crate) struct Heeding {
    told: Sender<Told>,
    measured: Arc<Mutex<Option<Measured>>>,
    is_recovering: Arc<AtomicBool>,
    cgroup: Option<PathBuf>,
    /// What the cell may have; 0: no limit.
    most_bytes: u64,
}

/// Who hears hints, and what it follows them with.
pub(crate) struct Ears {
    pub(crate) cell: u32,
    pub(crate) cgroup: Option<PathBuf>,
    pub(crate) most_bytes: u64,
    pub(crate) hand: ClockHand,
    pub(crate) others: Others,
}

impl Heeding {
    pub(crate) fn begin(ears: Ears) -> std::io::Result<Self> {
        let Ears { cell, cgroup, most_bytes, hand, others } = ears;
        let (told, hears) = mpsc::channel();
        let (measured, is_recovering) = (Arc::default(), Arc::default());
        let thread = Listener {
            cell,
            cgroup: cgroup.clone(),
            hand,
            others,
            measured: Arc::clone(&measured),
            is_recovering: Arc::clone(&is_recovering),
            begun: Instant::now(),
            policy: None,
            pulse: Pulse::default(),
            heard: Heard::default(),
            tasks: BTreeMap::new(),
            givings: Seldom::givings(),
            heeded: Heeded::default(),
            next_measuring: Instant::now(),
        };
        std::thread::Builder::new().name("comb-hints".to_owned()).spawn(move || {
            let run = std::panic::AssertUnwindSafe(|| thread.run(&hears));
            // Tasks that wait would wait for ever.
            if std::panic::catch_unwind(run).is_err() {
                std::process::abort();
            }
        })?;
        Ok(Self { told, measured, is_recovering, cgroup, most_bytes })
    }

    /// The policy's hints are there.
    pub(crate) fn policy(&self, incarnation: u64, file: impl std::os::fd::AsFd) -> Result<(), CarefulError> {
        let policy = match Peer::map(file, POLICY, Incarnation(incarnation)) {
            // It has ended meanwhile.
            Err(CarefulError::BusError { .. }) => return Ok(()),
            mapped => mapped?,
        };
        let _ = self.told.send(Told::Policy(policy));
        Ok(())
    }

    /// These tasks have components in the cell.
    pub(crate) fn tasks(&self, tasks: Vec<TaskHere>, shown: &Shown) {
        let rows: Vec<TaskShown> = tasks
            .iter()
            .map(|here| TaskShown {
                task: here.task,
                components: here.components,
                cores: here.cores,
                is_gang: here.is_gang.into(),
            })
            .collect();
        shown.set_tasks(&rows);
        let _ = self.told.send(Told::Tasks(tasks));
    }

    /// Shows what was measured last, if there is something new. The loop alone stores to what is watched: who waits for another thread there would seem to hang.
    pub(crate) fn show(&self, shown: &Shown) {
        let Some(measured) = self.measured.try_lock().ok().and_then(|mut measured| measured.take()) else {
            return;
        };
        shown.update(|face| {
            (face.used_ns, face.frame_bytes) = (measured.used_ns, measured.frame_bytes);
            face.most_bytes = self.most_bytes;
        });
        shown.set_load(measured.load);
    }

    /// A recovery begins, or is over. Processes give back what they alone have within it, so all have to run.
    pub(crate) fn recovering(&self, is_recovering: bool) {
        let was = self.is_recovering.swap(is_recovering, Ordering::SeqCst);
        if is_recovering
            && !was
            && let Some(cgroup) = &self.cgroup
        {
            processes::thaw_all(cgroup);
        }
    }
}

/// A task here, and what has been made of it.
#[derive(Debug)]
struct Task {
    here: TaskHere,
    turn: Turn,
    pagings: Seldom,
    bindings: Seldom,
    bound: Bound,
}

/// The thread's side.
struct Listener {
    cell: u32,
    cgroup: Option<PathBuf>,
    hand: ClockHand,
    others: Others,
    measured: Arc<Mutex<Option<Measured>>>,
    is_recovering: Arc<AtomicBool>,
    begun: Instant,
    policy: Option<Peer>,
    pulse: Pulse,
    heard: Heard,
    tasks: BTreeMap<u32, Task>,
    givings: Seldom,
    heeded: Heeded,
    next_measuring: Instant,
}

impl Listener {
    fn run(mut self, hears: &Receiver<Told>) {
        loop {
            match hears.recv_timeout(self.pause()) {
                Ok(Told::Policy(policy)) => (self.policy, self.pulse) = (Some(policy), Pulse::default()),
                Ok(Told::Tasks(tasks)) => self.take_tasks(tasks),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return self.let_all_go(),
            }
            self.hear();
            self.heed();
            let now = Instant::now();
            if now >= self.next_measuring {
                self.next_measuring = now + BETWEEN_MEASURINGS;
                self.measure();
            }
        }
    }

    fn pause(&self) -> Duration {
        // Hints are about tasks; that it is to give memory back can wait.
        let has_hints = self.policy.is_some() && !self.tasks.is_empty();
        if has_hints || self.tasks.values().any(|task| task.turn.waits()) {
            let dues = self.tasks.values().filter_map(|task| task.turn.next_due());
            let soonest = dues.map(|due| due.saturating_sub(self.begun.elapsed())).min();
            return soonest.unwrap_or(LONGEST_WAIT).min(BETWEEN_LOOKS);
        }
        if self.tasks.is_empty() { AT_REST } else { BETWEEN_MEASURINGS }
    }

    fn take_tasks(&mut self, tasks: Vec<TaskHere>) {
        let mut before = std::mem::take(&mut self.tasks);
        for here in tasks {
            let task = before.remove(&here.task);
            let fresh = |here: TaskHere| Task {
                here,
                turn: Turn::default(),
                pagings: Seldom::pagings(),
                bindings: Seldom::bindings(),
                bound: Bound::default(),
            };
            let task = match task {
                Some(task) => Task { here, ..task },
                None => fresh(here),
            };
            self.tasks.insert(task.here.task, task);
        }
        for number in before.into_keys() {
            if let Some(cgroup) = self.cgroup_of(number) {
                processes::freeze(&cgroup, false);
            }
        }
    }

    /// Reads the hints. Without a policy that lives there are none.
    fn hear(&mut self) {
        let Some(policy) = &self.policy else { return };
        let round = match hints::hear(policy, self.cell) {
            Ok(heard) => {
                let round = heard.round;
                self.heard = heard;
                Some(round)
            }
            // It is gone, or says so.
            Err(CarefulError::BusError { .. } | CarefulError::CutOff { .. }) => {
                self.policy = None;
                None
            }
            // It changes all the time, or makes no sense at this moment.
            Err(_) => None,
        };
        if self.policy.is_none() || !self.pulse.take(self.begun.elapsed(), round) {
            self.heard = Heard::default();
        }
        self.others.prefer(&self.heard.own);
    }

    fn heed(&mut self) {
        if !self.is_recovering() {
            self.give_back();
        }
        let allowed = processes::allowed();
        let wanted = self.tasks.values().map(|task| (task.here.task, task.here.cores)).collect();
        let cores = limits::cores(&self.heard.tasks, &wanted, &allowed);
        let numbers: Vec<u32> = self.tasks.keys().copied().collect();
        for number in numbers {
            self.bind(number, cores.get(&number), &allowed);
            let hint = self.heard.tasks.get(&number).copied().unwrap_or_default();
            self.take_turn(number, hint);
        }
    }

    fn is_recovering(&self) -> bool {
        self.is_recovering.load(Ordering::SeqCst)
    }

    /// The clock hand.
    fn give_back(&mut self) {
        let bytes = self.heard.own.give_back_bytes.min(MOST_GIVEN_BACK);
        if bytes > 0 && self.givings.is_time(self.begun.elapsed()) {
            self.heeded.given_back_bytes += self.hand.give_back(bytes);
        }
    }

    /// Space sharing.
    fn bind(&mut self, number: u32, cores: Option<&Cores>, allowed: &Cores) {
        let (now, cgroup) = (self.begun.elapsed(), self.cgroup_of(number));
        let Some(task) = self.tasks.get_mut(&number) else { return };
        let Some(cores) = cores else { return task.bound.release(allowed) };
        if task.bindings.is_time(now) && task.bound.bind(&processes_of(&task.here, cgroup), cores, allowed) {
            self.heeded.bindings += 1;
        }
    }

    /// Gang scheduling, and the swapper, who takes only what waits.
    fn take_turn(&mut self, number: u32, hint: TaskHint) {
        let (now, cgroup) = (self.begun.elapsed(), self.cgroup_of(number));
        let (begun, is_recovering) = (self.begun, &self.is_recovering);
        let is_recovering = || is_recovering.load(Ordering::SeqCst);
        let Some(task) = self.tasks.get_mut(&number) else { return };
        let Some(cgroup) = cgroup.filter(|_| task.here.is_gang) else { return };
        let waited = task.turn.waits();
        let waits = task.turn.take(now, (hint.waits || hint.swap) && !is_recovering());
        if waits != waited {
            processes::freeze(&cgroup, waits);
            self.heeded.waits += u64::from(waits);
        }
        // It has begun meanwhile, and let go all that waited before this.
        if waits && is_recovering() {
            processes::freeze(&cgroup, false);
        }
        if waits && hint.swap && task.pagings.is_time(now) {
            let until = task.turn.next_due().unwrap_or(now);
            let goes_on = || begun.elapsed() < until && !is_recovering();
            let processes = processes_of(&task.here, Some(cgroup));
            let paged = processes.iter().map(|&process| processes::page_out(process, goes_on));
            self.heeded.paged_out_bytes += paged.sum::<u64>();
        }
    }

    fn cgroup_of(&self, task: u32) -> Option<PathBuf> {
        self.cgroup.as_ref().map(|cell| cgroup_of(cell, task))
    }

    fn measure(&mut self) {
        let memory = self.hand.memory();
        let HomeMemory { idle_bytes, reserved_bytes, .. } = memory;
        let mut load = Load { idle_bytes, reserved_bytes, heeded: self.heeded, ..Load::default() };
        for task in self.tasks.values() {
            let processes = processes_of(&task.here, self.cgroup_of(task.here.task));
            load.processes += processes.len() as u64;
            load.task_bytes += processes.iter().map(|&process| processes::resident(process).1).sum::<u64>();
        }
        let measured = Measured { used_ns: self.used_ns(), frame_bytes: memory.frame_bytes, load };
        *self.measured.lock().unwrap_or_else(PoisonError::into_inner) = Some(measured);
    }

    /// Of everything in the cell; where there are no cgroups, of the supervisor.
    fn used_ns(&self) -> u64 {
        let of_cgroup = self.cgroup.as_ref().and_then(|cgroup| {
            let stat = std::fs::read_to_string(cgroup.join("cpu.stat")).ok()?;
            let used = stat.lines().find_map(|line| line.strip_prefix("usage_usec "))?;
            used.parse::<u64>().ok()?.checked_mul(1000)
        });
        of_cgroup.unwrap_or_else(|| {
            let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
            let nanos = i128::from(used.tv_sec) * 1_000_000_000 + i128::from(used.tv_nsec);
            u64::try_from(nanos).unwrap_or(0)
        })
    }

    /// The cell ends, in good order.
    fn let_all_go(&mut self) {
        if let Some(cgroup) = &self.cgroup {
            processes::thaw_all(cgroup);
        }
    }
}

/// By the kernel's word; where there are no cgroups, by the agent's.
fn processes_of(here: &TaskHere, cgroup: Option<PathBuf>) -> Vec<u32> {
    cgroup.and_then(|cgroup| processes::of_cgroup(&cgroup)).unwrap_or_else(|| here.processes.clone())
}
