//! Does what a plan says, with several threads, and compares what comes of it with what came of it then.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::order::At;
use super::perform::{OpenFiles, Performer};
use super::plan::Plan;
use super::sandbox::Sandbox;
use super::step::{Action, Step};
use crate::Operation;

/// So many differences are named.
const MOST_NAMED: usize = 16;

/// As often somebody looks whether who they wait for is done, before they sleep: most waits are for one call.
const LOOKS_BEFORE_SLEEP: u32 = 20;

/// How fast a trace is replayed.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Pace {
    /// Each operation as soon as those before it are done.
    AsFastAsPossible,
    /// Each not before its time, counted from the beginning: 1 is as it was, 2 twice as fast. Pauses between operations are part of what a
    /// system is used for, and long ones are no accident. (Thesis §9.7)
    Timed {
        /// How many times faster.
        speed: f64,
    },
}

/// What came of an operation: bytes moved, or the number of an error.
pub type Outcome = Result<u64, i32>;

/// An operation that came out differently.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    /// Which.
    pub operation: Operation,
    /// With what, below the sandbox.
    pub path: Vec<u8>,
    /// When it began in the trace, from its first operation on.
    pub start_ns: u64,
    /// What came of it then.
    pub recorded: Outcome,
    /// And here.
    pub replayed: Outcome,
    number: u64,
}

/// How often something was done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Done {
    /// As often.
    pub count: u64,
    /// The bytes that it moved.
    pub bytes: u64,
}

/// How a replay went.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Summary {
    /// By operation.
    pub done: BTreeMap<Operation, Done>,
    /// Bytes that were read; pages that were touched apart.
    pub read_bytes: u64,
    /// Bytes that were written.
    pub written_bytes: u64,
    /// How long it took.
    pub elapsed: Duration,
    /// And how long it had taken.
    pub recorded: Duration,
    /// The most that an operation began behind its time, if they have one.
    pub latest: Duration,
    /// How many operations came out differently.
    pub differences: u64,
    /// By operation, by the error that it failed with then, and by the one that it failed with here: without an error it came out with other
    /// bytes.
    pub differences_by_error: BTreeMap<(Operation, Option<i32>, Option<i32>), u64>,
    /// The first of them, in the order of the trace.
    pub first_differences: Vec<Difference>,
}

impl Summary {
    fn add(&mut self, other: Self) {
        for (operation, done) in other.done {
            let sum = self.done.entry(operation).or_default();
            sum.count += done.count;
            sum.bytes += done.bytes;
        }
        self.read_bytes += other.read_bytes;
        self.written_bytes += other.written_bytes;
        self.latest = self.latest.max(other.latest);
        self.differences += other.differences;
        for (kind, count) in other.differences_by_error {
            *self.differences_by_error.entry(kind).or_default() += count;
        }
        self.first_differences.extend(other.first_differences);
        self.first_differences.sort_by_key(|difference| difference.number);
        self.first_differences.truncate(MOST_NAMED);
    }
}

/// Replays a plan in a sandbox that was prepared for it. Once: afterwards the sandbox is as the trace left it.
pub fn replay(plan: &Plan, sandbox: &Sandbox, pace: Pace) -> Summary {
    let limit = getrlimit(Resource::Nofile);
    // As many open files as this process may have at all: the trace's were those of several.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    let open = OpenFiles::of(plan);
    let progress: Vec<Progress> = plan.workers.iter().map(|_| Progress::default()).collect();
    let began = Instant::now();
    let mut summary = Summary { recorded: Duration::from_nanos(plan.recorded_ns), ..Summary::default() };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..plan.workers.len())
            .map(|worker| {
                let (open, progress) = (&open, &progress[..]);
                scope.spawn(move || {
                    Worker { plan, progress, began, pace }.run(worker, Performer::new(plan, sandbox, open))
                })
            })
            .collect();
        for worker in workers {
            match worker.join() {
                Ok(part) => summary.add(part),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
    });
    summary.elapsed = began.elapsed();
    let _ = setrlimit(Resource::Nofile, limit);
    summary
}

/// How many steps a worker has done, and from which on somebody is to be woken.
struct Progress {
    done: AtomicU32,
    /// The first step of all that are slept for: who gets done with an earlier one wakes nobody.
    wanted: AtomicU32,
    lock: Mutex<()>,
    more: Condvar,
}

/// Nobody sleeps.
const NONE: u32 = u32::MAX;

impl Default for Progress {
    fn default() -> Self {
        Self {
            done: AtomicU32::new(0),
            wanted: AtomicU32::new(NONE),
            lock: Mutex::default(),
            more: Condvar::new(),
        }
    }
}

impl Progress {
    fn is_past(&self, position: u32) -> bool {
        self.done.load(Ordering::SeqCst) > position
    }

    fn wait(&self, position: u32) {
        for _ in 0..LOOKS_BEFORE_SLEEP {
            if self.is_past(position) {
                return;
            }
            thread::yield_now();
        }
        let mut lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            // Said before the last look: whoever gets done after it sees that somebody sleeps.
            self.wanted.fetch_min(position, Ordering::SeqCst);
            if self.is_past(position) {
                return;
            }
            lock = self.more.wait(lock).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn set(&self, done: u32) {
        self.done.store(done, Ordering::SeqCst);
        if self.wanted.load(Ordering::SeqCst) < done {
            let _lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
            // All are woken, and who has to sleep on says so again.
            self.wanted.store(NONE, Ordering::SeqCst);
            self.more.notify_all();
        }
    }
}

/// Whoever ends, however that comes about, is waited for by nobody.
struct Ending<'a>(&'a Progress);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.set(u32::MAX);
    }
}

#[derive(Clone, Copy)]
struct Worker<'a> {
    plan: &'a Plan,
    progress: &'a [Progress],
    began: Instant,
    pace: Pace,
}

impl Worker<'_> {
    fn run(self, worker: usize, mut performer: Performer<'_>) -> Summary {
        let own = &self.progress[worker];
        let _ending = Ending(own);
        let mut summary = Summary::default();
        for (step, done) in self.plan.workers[worker].iter().zip(1..) {
            self.keep_pace(step, &mut summary);
            for At { worker, position } in &step.after {
                self.progress[usize::from(*worker)].wait(*position);
            }
            let result = performer.perform(step.action);
            own.set(done);
            if step.is_recorded {
                self.account(step, result, &mut summary);
            }
        }
        summary
    }

    fn keep_pace(self, step: &Step, summary: &mut Summary) {
        let Pace::Timed { speed } = self.pace else { return };
        let due = step.start_ns as f64 / speed.max(f64::MIN_POSITIVE);
        // Longer than anybody lives is for ever, and a conversion must not fail.
        let due = Duration::from_secs_f64((due / 1e9).min(1e9));
        let elapsed = self.began.elapsed();
        match due.checked_sub(elapsed) {
            Some(left) => thread::sleep(left),
            None => summary.latest = summary.latest.max(elapsed - due),
        }
    }

    fn account(self, step: &Step, result: Result<u64, Errno>, summary: &mut Summary) {
        let done = summary.done.entry(step.operation).or_default();
        done.count += 1;
        if let Ok(bytes) = result {
            match step.action {
                Action::Read { .. } => summary.read_bytes += bytes,
                Action::Write { .. } => summary.written_bytes += bytes,
                _ => {}
            }
            if matches!(step.action, Action::Read { .. } | Action::Write { .. } | Action::Touch { .. }) {
                done.bytes += bytes;
            }
        }
        let recorded = u64::try_from(step.result)
            .map_err(|_| i32::try_from(step.result.saturating_neg()).unwrap_or(i32::MAX));
        let replayed = result.map_err(Errno::raw_os_error);
        let is_same = match (recorded, replayed) {
            (Ok(then), Ok(now)) => then == now || !step.action.has_bytes(),
            (Err(then), Err(now)) => then == now,
            _ => false,
        };
        if !is_same {
            summary.differences += 1;
            let errors = (step.operation, recorded.err(), replayed.err());
            *summary.differences_by_error.entry(errors).or_default() += 1;
            if summary.first_differences.len() < MOST_NAMED {
                let path = step.action.path().or_else(|| Some(self.plan.slot(step.action.slot()?).path));
                let path = path.map_or_else(Vec::new, |path| self.plan.path(path).to_vec());
                let (operation, start_ns, number) = (step.operation, step.start_ns, step.number);
                summary.first_differences.push(Difference {
                    operation,
                    path,
                    start_ns,
                    recorded,
                    replayed,
                    number,
                });
            }
        }
    }
}
