//! The program's side: a task's component, what it allocates and how it synchronises.

mod allocating;
mod calling;
mod description;
mod images;
mod joining;
mod present;
mod timed;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use comb_memory::{Memory, MemoryOptions, Verdict};
use rustix::io::Errno;

pub(crate) use self::allocating::available_bytes;
pub use self::allocating::{AllocateError, NotAllocated};
pub use self::description::*;
pub use self::joining::{Image, Joining};
pub use self::timed::{Deadline, Gathered, How};
use crate::checkpoint::{CheckpointError, OwnPage, Written};
use crate::counts::Counts;
use crate::covering;
use crate::engine::Engine;
use crate::invocation;
use crate::meeting::{Meetings, Outcome};
use crate::neighbours::{Meeting, Neighbours};
use crate::peers::Peers;
use crate::report::Recorder;
use crate::runtime::{self, Runtime, Whose};
use crate::synchronise::{Combine, Mode};
use crate::wire::Kind;

/// Why a component is not part of its task.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// What the launcher has left in the environment cannot be understood.
    #[error(transparent)]
    Description(#[from] DescriptionError),
    /// The agent is not there.
    #[error("the task's agent cannot be reached: {0}")]
    Agent(#[from] comb_net::ConnectError),
    /// The agent refuses the endpoint.
    #[error("the task's agent refuses: {0}")]
    Endpoint(#[from] comb_net::RequestError),
    /// One of the others cannot be reached.
    #[error("component {rank} cannot be reached: {error}")]
    Unreachable {
        /// Which.
        rank: u32,
        /// Why.
        error: comb_net::RequestError,
    },
    /// One of the others has not come.
    #[error(
        "component {rank} has not come within {limit:?}: does every component of the program join the task?"
    )]
    Missing {
        /// Which.
        rank: u32,
        /// How long it was waited for.
        limit: Duration,
    },
    /// There is no shared memory to be had.
    #[error(transparent)]
    Memory(#[from] comb_memory::MemoryError),
    /// Something else in this process serves faults.
    #[error(transparent)]
    Faults(#[from] comb_memory::InstallError),
    /// It was to go on from a checkpoint.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// Components must be of one build and lie at the same addresses.
    #[error(
        "the components are not alike: another build of the program, or code and variables at other addresses (are addresses randomised?)"
    )]
    NotAlike,
    /// Memory of the program cannot become shared.
    #[error("the program's memory at {start:#x} cannot be shared: {why}")]
    Image {
        /// Where it begins.
        start: usize,
        /// Why.
        why: String,
    },
    /// The system refuses a thread, or this process has joined already.
    #[error("{0}")]
    System(#[from] std::io::Error),
}

/// This process as a component of its task. All clones are one.
#[derive(Clone)]
pub struct Task {
    inner: Arc<Inner>,
}

struct Inner {
    runtime: Arc<Runtime>,
    rank: u32,
    count: u32,
    hosts: u32,
    spread: Spread,
    budget: u64,
    used: std::sync::atomic::AtomicU64,
    /// Where all components share page frames.
    meetings: Option<Meetings>,
    next_barrier: std::sync::atomic::AtomicU64,
    checkpoints: Option<Checkpoint>,
    written: Mutex<Written>,
    present: Mutex<present::Present>,
    /// Allocations of all together that were made, of an earlier life those that were asked for again.
    allocated: std::sync::atomic::AtomicUsize,
}

impl std::fmt::Debug for Task {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "component {} of {}", self.rank(), self.count())
    }
}

/// The barrier of [`Task::barrier`].
const TASKS_BARRIER: u64 = 0;
/// The barrier that all pass before they part.
const LAST_BARRIER: u64 = 1;
/// The barrier of what all do together: allocations.
const COLLECTIVE_BARRIER: u64 = 2;

impl Task {
    /// Joins the task that `comb run` started this process for; started otherwise, the program is a task of one component.
    /// Once a process: all threads share it.
    pub fn join() -> Result<Self, JoinError> {
        match Description::from_environment() {
            Err(DescriptionError::Missing) => Self::begin(None, false),
            description => Self::join_as(description?),
        }
    }

    /// Joins as told, not by the environment.
    pub fn join_as(description: Description) -> Result<Self, JoinError> {
        Self::begin(Some(description), false)
    }

    /// A program that is `compiled` for this has its own way with system calls, and is not warned of what ours does not cover.
    fn begin(description: Option<Description>, compiled: bool) -> Result<Self, JoinError> {
        let (rank, count) = description.as_ref().map_or((0, 1), |description| {
            (
                description.rank,
                u32::try_from(description.components.len()).expect("within 32 bits, as ranks are"),
            )
        });
        let frames = description.as_ref().and_then(|description| description.frames).map(inherited);
        // Where all components are on one host and may share page frames, that is all there is to it.
        let are_all_here =
            (0..count).all(|rank| description.as_ref().is_none_or(|description| description.is_here(rank)));
        let imports = are_all_here && (count == 1 || frames.is_some());
        let meeting = description.as_ref().and_then(Meeting::begin);
        let leads = meeting.as_ref().is_some_and(Meeting::leads);
        let (frames, of_lead) = if imports || leads { (frames, None) } else { (None, frames) };
        let memory = Arc::new(Memory::reserve(MemoryOptions { frames, ..MemoryOptions::default() })?);
        let peers = match &description {
            Some(description) if count > 1 => Some(Peers::join(description)?),
            _ => None,
        };
        invocation::learn();
        comb_memory::install(runtime::on_fault)?;
        if !imports {
            // Before this process gets any thread that serves.
            covering::cover(!compiled);
        }
        let mut engine = Engine::new(Arc::clone(&memory), peers, rank, count, imports);
        let report = description.as_ref().and_then(|description| description.report).map(inherited);
        engine.core.report = report.map(|into| Box::new(Recorder::new(rank, imports, into)));
        engine.core.copies.limit(description.as_ref().map_or(0, |description| description.copies_bytes));
        let meetings = (imports && count > 1)
            .then(|| Meetings::among(memory, rank, count, engine.synchronisation.unanswered()));
        let runtime = Runtime::start(engine, Whose::Task)?;
        let budget = description.as_ref().map_or(0, |description| description.memory_bytes);
        let hosts = description.as_ref().map_or(1, Description::hosts);
        let spread = description.as_ref().map_or(Spread::default(), |description| description.spread);
        let checkpoints = description.and_then(|description| description.checkpoint);
        let task = Self {
            inner: Arc::new(Inner {
                runtime,
                rank,
                count,
                hosts,
                spread,
                budget,
                used: std::sync::atomic::AtomicU64::new(0),
                meetings,
                next_barrier: std::sync::atomic::AtomicU64::new(COLLECTIVE_BARRIER + 1),
                checkpoints,
                written: Mutex::default(),
                present: Mutex::default(),
                allocated: std::sync::atomic::AtomicUsize::new(0),
            }),
        };
        if let Some(meeting) = meeting {
            task.meet(meeting.hand_over(of_lead));
        }
        if let Some(checkpoint) = task.checkpoints().filter(|checkpoint| checkpoint.restores) {
            task.restore(checkpoint)?;
        }
        task.barrier();
        Ok(task)
    }

    /// Components of one host become one to protocols, if on every host they can.
    fn meet(&self, neighbours: Result<Neighbours, Errno>) {
        let can = neighbours.is_ok();
        // Before it says so: a guest that has heard that all can may speak to its lead at once.
        self.runtime().lock().core.neighbours = neighbours.ok();
        let all_can = self.reduce(Combine::Least, &[u64::from(can)])[0] == 1;
        if !all_can {
            self.runtime().lock().core.neighbours = None;
        }
    }

    /// Which component this is, counted from 0.
    pub fn rank(&self) -> u32 {
        self.inner.rank
    }

    /// How many there are.
    pub fn count(&self) -> u32 {
        self.inner.count
    }

    /// Whether all components are on one host and share page frames, so that no load or store needs asking.
    pub fn imports(&self) -> bool {
        self.inner.runtime.lock().core.imports
    }

    /// On which components' memory this one has come to depend: were one of them to die, it would have lost something. Where page frames are
    /// shared, on all.
    pub fn dependencies(&self) -> Vec<u32> {
        let engine = self.runtime().lock();
        let others = (0..self.count()).filter(|&rank| rank != self.rank());
        others.filter(|&rank| engine.core.imports || engine.core.depends[rank as usize]).collect()
    }

    /// Where the program's threads are to begin, as the launcher was told.
    pub fn spread(&self) -> Spread {
        self.inner.spread
    }

    pub(crate) fn memory(&self) -> Arc<Memory> {
        Arc::clone(&self.inner.runtime.lock().core.memory)
    }

    pub(crate) fn runtime(&self) -> &Runtime {
        &self.inner.runtime
    }

    /// Makes a protocol of the program's own known by a number: for allocations with [`crate::Sharing::Own`]. Every component registers it, before
    /// any of them allocates. It gets one instance for each allocation, and its handlers run on whatever thread serves messages: they
    /// must not wait, and not touch shared memory but by [`comb_coherence::Tempest`].
    pub fn register(
        &self,
        number: u16,
        protocol: impl Fn() -> Box<dyn comb_coherence::Protocol + Send> + Send + Sync + 'static,
    ) {
        self.runtime().lock().factories.insert(number, Arc::new(protocol));
    }

    /// Whether this task has begun from a checkpoint: what it allocates together is what it had then, in the same order.
    pub fn restored(&self) -> bool {
        self.checkpoints().is_some_and(|checkpoint| checkpoint.restores)
    }

    pub(crate) fn checkpoints(&self) -> Option<&Checkpoint> {
        self.inner.checkpoints.as_ref()
    }

    pub(crate) fn written(&self) -> MutexGuard<'_, Written> {
        self.inner.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn own_pages(&self) -> Vec<OwnPage> {
        self.runtime().lock().own_pages()
    }

    /// Waits until every component has come here, one thread of each; what each stored before, all find after it.
    pub fn barrier(&self) {
        self.combine(TASKS_BARRIER, Combine::First, &[]);
    }

    /// The same, and combines what they bring.
    pub fn reduce(&self, combine: Combine, values: &[u64]) -> Vec<u64> {
        self.combine(TASKS_BARRIER, combine, values)
    }

    /// The sum of what all components bring, the same to the bit in all of them.
    pub fn sum(&self, value: f64) -> f64 {
        f64::from_bits(self.reduce(Combine::SumOfFloats, &[value.to_bits()])[0])
    }

    fn combine(&self, barrier: u64, combine: Combine, values: &[u64]) -> Vec<u64> {
        self.combine_among(barrier, 1, combine, values)
    }

    pub(crate) fn combine_among(
        &self,
        barrier: u64,
        threads: usize,
        combine: Combine,
        values: &[u64],
    ) -> Vec<u64> {
        self.publish();
        let runtime = self.runtime();
        if let Some(meetings) = &self.inner.meetings
            && let Outcome::Values(values) = meetings.meet(runtime, barrier, threads, (combine, values))
        {
            return values;
        }
        runtime.call(|engine, slot| {
            let Engine { synchronisation, core, .. } = engine;
            synchronisation.arrive(core, barrier, threads, (combine, values), slot);
        });
        if values.is_empty() { Vec::new() } else { runtime.lock().synchronisation.outcome(barrier).to_vec() }
    }

    /// A number for a barrier of the program's own: the same in all components that ask in the same order.
    pub(crate) fn next_barrier(&self) -> u64 {
        self.inner.next_barrier.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
    }

    /// Whoever synchronises with this thread from now on finds what it has stored before.
    pub fn publish(&self) {
        // Where page frames are shared, what is stored is there.
        if self.inner.meetings.is_some() {
            return;
        }
        self.runtime().call(Engine::begin_to_publish);
    }

    pub(crate) fn lock(&self, number: u64, mode: Mode) -> u64 {
        let (token, _) = self.runtime().call(|engine, slot| {
            let Engine { synchronisation, core, .. } = engine;
            synchronisation.lock(core, number, (mode, false), slot)
        });
        token
    }

    /// None: somebody has it, or waits for it.
    pub(crate) fn try_lock(&self, number: u64, mode: Mode) -> Option<u64> {
        let (token, [outcome, _]) = self.runtime().call(|engine, slot| {
            let Engine { synchronisation, core, .. } = engine;
            synchronisation.lock(core, number, (mode, true), slot)
        });
        (outcome == crate::synchronise::GRANTED).then_some(token)
    }

    pub(crate) fn unlock(&self, number: u64, token: u64) {
        self.publish();
        let mut engine = self.runtime().enter();
        let Engine { synchronisation, core, .. } = &mut *engine;
        synchronisation.unlock(core, number, token);
        Runtime::leave(engine);
    }

    pub(crate) fn await_condition(&self, lock: u64, condition: u64, token: u64) -> u64 {
        self.publish();
        let (token, _) = self.runtime().call(|engine, slot| {
            let Engine { synchronisation, core, .. } = engine;
            synchronisation.await_condition(core, (lock, condition), token, slot)
        });
        token
    }

    /// Lets so many go on that wait for a condition of a lock.
    pub fn notify(&self, lock: u64, condition: u64, how_many: u64) {
        let mut engine = self.runtime().enter();
        let Engine { synchronisation, core, .. } = &mut *engine;
        synchronisation.notify(core, (lock, condition), how_many);
        Runtime::leave(engine);
    }

    /// Waits until this thread has had the rights to all blocks of a range, at most [`comb_memory::LARGEST_BLOCK_BYTES`] of one allocation: a miss that
    /// the program's own code has found. The caller looks again, for somebody may have taken one since; not at once, as a rule. Of memory that needs
    /// no rights it returns immediately. An error where some of it is lost, or nothing is allocated there.
    ///
    /// No signal's handler may run on this thread meanwhile that touches shared memory.
    pub fn fetch(&self, address: *const u8, bytes: usize, to_store: bool) -> Result<(), Verdict> {
        self.fetch_for(address, bytes, to_store, 0)
    }

    /// The same, and says for whom: an address within the instruction that has looked or is about to access, such as the byte before the one that a call
    /// returns to. A report says which line that is.
    pub fn fetch_for(
        &self,
        address: *const u8,
        bytes: usize,
        to_store: bool,
        instruction: usize,
    ) -> Result<(), Verdict> {
        match self.runtime().fetch(address.addr(), bytes, to_store, instruction) {
            Verdict::Retry => Ok(()),
            other => Err(other),
        }
    }

    /// Asks for blocks before they are needed, and does not wait for them.
    pub fn prefetch(&self, address: *const u8, bytes: usize, to_store: bool) {
        let mut engine = self.runtime().enter();
        engine.prefetch(address as usize, bytes, to_store);
        Runtime::leave(engine);
    }

    /// Tells another component, or all others, that they will soon want to read this: blocks that live here or are here. Who believes it asks for
    /// them, and has a copy when it comes to read; what is stored meanwhile is found as ever. A hint, which does not wait. How many blocks were
    /// offered.
    pub fn push(&self, address: *const u8, bytes: usize, to: Option<u32>) -> usize {
        let mut engine = self.runtime().enter();
        let offered = engine.push(address as usize, bytes, to);
        Runtime::leave(engine);
        offered
    }

    /// Gives blocks that live here another home, of memory that [`Terms::moves`](crate::Terms::moves): for a program that knows better
    /// than the count of misses. It does not wait, and what others are about to do is done first. How many blocks are on their way.
    pub fn move_home(&self, address: *const u8, bytes: usize, to: u32) -> usize {
        let mut engine = self.runtime().enter();
        let moving = engine.move_home(address as usize, bytes, to);
        Runtime::leave(engine);
        moving
    }

    /// Where the block at an address lives, as far as this component knows. Of memory that it has never touched it may know nothing; where
    /// page frames are shared, nobody needs to know.
    pub fn home(&self, address: *const u8) -> Option<u32> {
        self.runtime().lock().home_at(address as usize)
    }

    /// What has happened to this component's memory since it joined.
    pub fn counts(&self) -> Counts {
        let engine = self.runtime().lock();
        Counts { copies_bytes: engine.core.copies.bytes(), ..engine.core.counts }
    }

    /// How often threads of this component have waited for a block.
    pub fn misses(&self) -> u64 {
        self.counts().misses
    }

    /// Hands in what was recorded for `comb run --report`. By itself that is done when the task's last clone is dropped: a program that ends without
    /// that says so here, and may say it again.
    pub fn hand_in_report(&self) {
        self.runtime().lock().hand_in_report();
    }

    /// Lets others be served now: for a program that computes for long without touching anything that it has to ask for. Without, a thread
    /// of Comb's does it, which has to be woken and needs a core.
    pub fn poll(&self) {
        self.runtime().poll();
    }

    /// Threads that check their accesses ([`comb_memory::threads::begin`]) look at the byte [`comb_net::MAIL_BYTE`] of this page of theirs often
    /// while they compute, and call [`Task::look_at_mail`] when it is not 0. The page is mapped anew.
    pub fn begin_to_poll(&self, page: usize) -> std::io::Result<()> {
        self.runtime().begin_to_poll(page)
    }

    /// Serves those who have left mail.
    pub fn look_at_mail(&self) {
        self.runtime().look_at_mail();
    }
}

impl Drop for Inner {
    /// The last to go waits for all others: what lives here may be needed until then.
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        self.runtime.call(|engine, slot| {
            let Engine { synchronisation, core, .. } = engine;
            synchronisation.arrive(core, LAST_BARRIER, 1, (Combine::First, &[]), slot);
        });
        let mut engine = self.runtime.enter();
        for rank in engine.core.others() {
            engine.core.say(rank, Kind::Bye, &[0; 4], &[]);
        }
        while engine.core.peers.as_mut().is_some_and(|peers| !peers.flush()) {}
        engine.hand_in_report();
        Runtime::leave(engine);
        self.runtime.stop();
    }
}

#[expect(unsafe_code, reason = "a descriptor by its number, as the launcher has said")]
fn inherited(descriptor: i32) -> std::os::fd::OwnedFd {
    use std::os::fd::FromRawFd;
    // SAFETY: the launcher has left it open for this process, and nobody else here knows of it; a process joins once.
    let descriptor = unsafe { std::os::fd::OwnedFd::from_raw_fd(descriptor) };
    // Programs that this one executes have no use for it.
    let _ = rustix::io::fcntl_setfd(&descriptor, rustix::io::FdFlags::CLOEXEC);
    descriptor
}
