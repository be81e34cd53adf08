//! The program's side: a task's component, what it allocates and how it synchronises.

mod description;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use comb_memory::{Memory, MemoryOptions};

pub use self::description::*;
use crate::checkpoint::{CheckpointError, OwnPage, Written};
use crate::covering;
use crate::engine::{Engine, REFUSED_FULL, REFUSED_PROTOCOL};
use crate::peers::Peers;
use crate::runtime::{self, Runtime};
use crate::synchronise::{Combine, Mode};
use crate::terms::{Allocation, Placement, Terms};
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
    /// The system refuses a thread, or this process has joined already.
    #[error("{0}")]
    System(#[from] std::io::Error),
}

/// Why nothing was allocated.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AllocateError {
    /// Nothing of it can be had.
    #[error("terms that make no sense: {0}")]
    Terms(String),
    /// More than there is.
    #[error(
        "{bytes} bytes are more than memory and swap space have left ({available}); ask for less, or for a sparse allocation \
         if most of it will never be touched"
    )]
    TooLarge {
        /// Asked for.
        bytes: u64,
        /// Memory and swap space that is free.
        available: u64,
    },
    /// More than this component may have.
    #[error(
        "{bytes} bytes would pass this component's budget of {budget}, of which {used} are used (comb run --memory)"
    )]
    Budget {
        /// Asked for.
        bytes: u64,
        /// What was allocated before.
        used: u64,
        /// The limit.
        budget: u64,
    },
    /// The addresses are used up.
    #[error("this component's slice of the heap has no {0} bytes in a row left")]
    Full(u64),
    /// Another component cannot take part.
    #[error("component {rank} cannot map it: {why}")]
    Refused {
        /// Which.
        rank: u32,
        /// Why.
        why: &'static str,
    },
}

/// Memory that this component has not allocated, or has given back already.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0:#x} is not the beginning of memory that this component has allocated")]
pub struct NotAllocated(pub usize);

/// This process as a component of its task. All clones are one.
#[derive(Clone)]
pub struct Task {
    inner: Arc<Inner>,
}

struct Inner {
    runtime: Arc<Runtime>,
    rank: u32,
    count: u32,
    budget: u64,
    used: std::sync::atomic::AtomicU64,
    next_barrier: std::sync::atomic::AtomicU64,
    checkpoints: Option<Checkpoint>,
    written: Mutex<Written>,
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
            Err(DescriptionError::Missing) => Self::begin(None),
            description => Self::join_as(description?),
        }
    }

    /// Joins as told, not by the environment.
    pub fn join_as(description: Description) -> Result<Self, JoinError> {
        Self::begin(Some(description))
    }

    fn begin(description: Option<Description>) -> Result<Self, JoinError> {
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
        let frames = frames.filter(|_| imports);
        let memory = Arc::new(Memory::reserve(MemoryOptions { frames, ..MemoryOptions::default() })?);
        let peers = match &description {
            Some(description) if count > 1 => Some(Peers::join(description)?),
            _ => None,
        };
        comb_memory::install(runtime::on_fault)?;
        if !imports {
            // Before this process gets any thread that serves.
            covering::cover();
        }
        let engine = Engine::new(Arc::clone(&memory), peers, rank, count, imports);
        let runtime = Runtime::start(engine)?;
        let budget = description.as_ref().map_or(0, |description| description.memory_bytes);
        let checkpoints = description.and_then(|description| description.checkpoint);
        let task = Self {
            inner: Arc::new(Inner {
                runtime,
                rank,
                count,
                budget,
                used: std::sync::atomic::AtomicU64::new(0),
                next_barrier: std::sync::atomic::AtomicU64::new(COLLECTIVE_BARRIER + 1),
                checkpoints,
                written: Mutex::default(),
                allocated: std::sync::atomic::AtomicUsize::new(0),
            }),
        };
        if let Some(checkpoint) = task.checkpoints().filter(|checkpoint| checkpoint.restores) {
            task.restore(checkpoint)?;
        }
        task.barrier();
        Ok(task)
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

    /// Allocates memory that all components can use from when this returns: by its address, which is the same everywhere.
    /// It is zero. To be called by one; see [`Task::allocate_together`].
    pub fn allocate(&self, bytes: u64, terms: &Terms) -> Result<*mut u8, AllocateError> {
        self.check_size(bytes, terms)?;
        let mut refused = None;
        let runtime = self.runtime();
        let (begun, _) = runtime.call(|engine, slot| {
            slot.begin(0);
            let layout = terms.layout(0, bytes).map_err(|error| AllocateError::Terms(error.to_string()))?;
            let span = layout.span();
            let offset = engine.heap.take(span).ok_or(AllocateError::Full(span))?;
            engine.generation += 1;
            let allocation = Allocation {
                offset,
                bytes,
                generation: engine.generation,
                creator: self.rank(),
                terms: *terms,
            };
            if let Err(why) = engine.install(allocation) {
                engine.heap.give_back(offset, span);
                return Err(AllocateError::Refused { rank: self.rank(), why: words(why) });
            }
            Ok(allocation)
        });
        let allocation = begun?;
        let others = runtime.lock().core.others();
        let content = postcard::to_stdvec(&allocation).expect("numbers");
        for rank in others {
            let (_, [outcome, _]) = runtime.call(|engine, slot| {
                slot.begin(1);
                let token = engine.core.token(rank, slot);
                engine.core.say(rank, Kind::Allocated, &[token, 0, 0, 0], &content);
            });
            if outcome != 0 {
                refused = Some(AllocateError::Refused { rank, why: words(outcome) });
                break;
            }
        }
        if let Some(refused) = refused {
            self.free_at(allocation.offset);
            return Err(refused);
        }
        self.inner.used.fetch_add(bytes, std::sync::atomic::Ordering::Relaxed);
        Ok(pointer(allocation.offset))
    }

    /// The same for all: each component calls it, in the same order as the others, and all get the same.
    pub fn allocate_together(&self, bytes: u64, terms: &Terms) -> Result<*mut u8, AllocateError> {
        let turn = self.inner.allocated.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        if let Some(earlier) = self.allocated_before(turn, bytes, terms) {
            return earlier;
        }
        let allocated = if self.rank() == 0 { Some(self.allocate(bytes, terms)) } else { None };
        let address = match &allocated {
            Some(Ok(address)) => *address as u64,
            _ => 0,
        };
        let outcome = self.combine(COLLECTIVE_BARRIER, Combine::First, &[address]);
        let allocated = match (allocated, outcome[0]) {
            (Some(allocated), _) => allocated,
            (None, 0) => Err(AllocateError::Refused { rank: 0, why: "it has got nothing" }),
            (None, address) => Ok(comb_memory::pointer(address)),
        };
        if let Ok(address) = allocated {
            self.runtime().lock().together.push(address as u64 - comb_memory::HEAP_START as u64);
        }
        allocated
    }

    /// What was allocated together at this turn in the life that the checkpoint is of.
    fn allocated_before(
        &self,
        turn: usize,
        bytes: u64,
        terms: &Terms,
    ) -> Option<Result<*mut u8, AllocateError>> {
        let engine = self.runtime().lock();
        let offset = *engine.together.get(turn)?;
        let Some(entry) = engine.entries.get(&offset) else {
            return Some(Err(AllocateError::Terms(
                "what was allocated here has been freed before the checkpoint".to_owned(),
            )));
        };
        let allocation = entry.shape.allocation;
        if (allocation.bytes, &allocation.terms) != (bytes, terms) {
            let then = format!(
                "at this turn the checkpoint has {} bytes by {:?}",
                allocation.bytes, allocation.terms
            );
            return Some(Err(AllocateError::Terms(then)));
        }
        Some(Ok(pointer(offset)))
    }

    /// Gives back what [`Task::allocate`] gave, in the component that allocated it. Nobody may use it any more.
    pub fn free(&self, address: *mut u8) -> Result<(), NotAllocated> {
        let offset = (address as u64).wrapping_sub(comb_memory::HEAP_START as u64);
        let bytes = {
            let engine = self.runtime().lock();
            let entry =
                engine.entries.get(&offset).filter(|entry| entry.shape.allocation.creator == self.rank());
            entry.ok_or(NotAllocated(address as usize))?.shape.allocation.bytes
        };
        self.free_at(offset);
        self.inner.used.fetch_sub(bytes, std::sync::atomic::Ordering::Relaxed);
        Ok(())
    }

    /// How many objects are in memory that was allocated with [`crate::Guard::Mmu`], or blocks in other memory.
    pub fn objects(&self, memory: *const u8) -> usize {
        self.layout(memory).map_or(0, |layout| usize::try_from(layout.blocks()).unwrap_or(usize::MAX))
    }

    /// Where an object of such memory is: a block of its own, with rights of its own.
    pub fn object(&self, memory: *const u8, index: usize) -> Option<*mut u8> {
        let layout = self.layout(memory)?;
        let block = comb_coherence::Block(index as u64);
        (block.0 < layout.blocks()).then(|| comb_memory::pointer(layout.address(block) as u64))
    }

    fn layout(&self, memory: *const u8) -> Option<comb_memory::Layout> {
        let offset = (memory as u64).checked_sub(comb_memory::HEAP_START as u64)?;
        Some(self.runtime().lock().entries.get(&offset)?.shape.layout)
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

    fn free_at(&self, offset: u64) {
        let runtime = self.runtime();
        // Everybody forgets it before its addresses are given out again.
        runtime.call(|engine, slot| {
            let others = engine.core.others();
            slot.begin(u32::try_from(others.len()).expect("as many as ranks"));
            for rank in others {
                let token = engine.core.token(rank, slot);
                engine.core.say(rank, Kind::Freed, &[token, offset, 0, 0], &[]);
            }
        });
        let mut engine = runtime.lock();
        let span = engine.entries[&offset].shape.layout.span();
        engine.remove(offset);
        engine.heap.give_back(offset, span);
    }

    /// Memory of an earlier life is as much this component's as what it allocates now.
    pub(crate) fn count_as_used(&self, bytes: u64) {
        self.inner.used.fetch_add(bytes, std::sync::atomic::Ordering::Relaxed);
    }

    fn check_size(&self, bytes: u64, terms: &Terms) -> Result<(), AllocateError> {
        if let Placement::At(rank) = terms.placement
            && rank >= self.count()
        {
            let none = format!("there is no component {rank} for it to live with, of {}", self.count());
            return Err(AllocateError::Terms(none));
        }
        if !terms.sparse {
            let available = available_bytes();
            if bytes > available {
                return Err(AllocateError::TooLarge { bytes, available });
            }
        }
        let used = self.inner.used.load(std::sync::atomic::Ordering::Relaxed);
        let budget = self.inner.budget;
        if budget > 0 && !terms.sparse && used + bytes > budget {
            return Err(AllocateError::Budget { bytes, used, budget });
        }
        Ok(())
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
        self.runtime().call(Engine::begin_to_publish);
    }

    pub(crate) fn lock(&self, number: u64, mode: Mode) -> (u64, bool) {
        let (token, [outcome, _]) = self.runtime().call(|engine, slot| {
            let Engine { synchronisation, core, .. } = engine;
            synchronisation.lock(core, number, mode, slot)
        });
        (token, outcome == crate::synchronise::GRANTED)
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

    /// Asks for blocks before they are needed, and does not wait for them.
    pub fn prefetch(&self, address: *const u8, bytes: usize, to_store: bool) {
        let mut engine = self.runtime().enter();
        engine.prefetch(address as usize, bytes, to_store);
        Runtime::leave(engine);
    }

    /// Lets others be served now: for a program that computes for long without touching anything that it has to ask for. Without, a thread
    /// of Comb's does it, which has to be woken and needs a core.
    pub fn poll(&self) {
        self.runtime().poll();
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

fn words(refused: u64) -> &'static str {
    match refused {
        REFUSED_FULL => "it has no room for it",
        REFUSED_PROTOCOL => "it does not know the protocol: register it in each component",
        _ => "its system refuses",
    }
}

fn pointer(offset: u64) -> *mut u8 {
    comb_memory::pointer(comb_memory::HEAP_START as u64 + offset)
}

/// Memory and swap space that could be had now.
fn available_bytes() -> u64 {
    let info = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let of = |name: &str| -> Option<u64> {
        let line = info.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.trim_start_matches(':').trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
    };
    match (of("MemAvailable"), of("SwapFree")) {
        (Some(memory), swap) => memory + swap.unwrap_or(0),
        _ => u64::MAX,
    }
}
