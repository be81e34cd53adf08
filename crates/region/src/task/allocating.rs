//! Memory for all components: asked for by one, known to all before anybody has its address.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{COLLECTIVE_BARRIER, Task};
use crate::engine::REFUSED_PROTOCOL;
use crate::heap::Heap;
use crate::runtime::Runtime;
use crate::synchronise::Combine;
use crate::terms::{Allocation, Placement, Terms};
use crate::waiting::Slot;
use crate::wire::Kind;

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

impl Task {
    /// Allocates memory that all components can use from when this returns: by its address, which is the same everywhere.
    /// It is zero. To be called by one; see [`Task::allocate_together`].
    pub fn allocate(&self, bytes: u64, terms: &Terms) -> Result<*mut u8, AllocateError> {
        self.check_size(bytes, terms)?;
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
                image: 0,
            };
            if let Err(why) = engine.install(allocation) {
                engine.heap.give_back(offset, span);
                return Err(AllocateError::Refused { rank: self.rank(), why: words(why) });
            }
            engine.record_allocated(&allocation);
            Ok(allocation)
        });
        let allocation = begun?;
        if let Some(refused) = self.make_known(&allocation) {
            self.free_at(allocation.offset);
            return Err(refused);
        }
        self.count_as_used(&allocation);
        self.take_large_frames(&allocation);
        Ok(pointer(allocation.offset))
    }

    /// All others are told at once; whoever waits for their answers waits for the slowest. The first that refuses.
    fn make_known(&self, allocation: &Allocation) -> Option<AllocateError> {
        let content = postcard::to_stdvec(allocation).expect("numbers");
        let runtime = self.runtime();
        let mut engine = runtime.enter();
        let asked: Vec<(u32, Arc<Slot>)> = engine
            .core
            .others()
            .into_iter()
            .map(|rank| {
                let answered = Arc::new(Slot::default());
                answered.begin(1);
                let token = engine.core.token(rank, &answered);
                engine.core.say(rank, Kind::Allocated, &[token, 0, 0, 0], &content);
                (rank, answered)
            })
            .collect();
        drop(engine);
        asked.iter().for_each(|(_, answered)| runtime.wait(answered));
        Runtime::leave(runtime.lock());
        asked.into_iter().find_map(|(rank, answered)| {
            let [outcome, _] = answered.values();
            (outcome != 0).then(|| AllocateError::Refused { rank, why: words(outcome) })
        })
    }

    /// The same for all: each component calls it, in the same order as the others, and all get the same.
    pub fn allocate_together(&self, bytes: u64, terms: &Terms) -> Result<*mut u8, AllocateError> {
        let turn = self.inner.allocated.fetch_add(1, Ordering::Relaxed);
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
        let allocation = {
            let engine = self.runtime().lock();
            let entry =
                engine.entries.get(&offset).filter(|entry| entry.shape.allocation.creator == self.rank());
            entry.ok_or(NotAllocated(address as usize))?.shape.allocation
        };
        self.free_at(offset);
        self.inner.used.fetch_sub(against_budget(&allocation), Ordering::Relaxed);
        Ok(())
    }

    /// The same in any component: it is freed where it was allocated.
    pub fn release(&self, address: *mut u8) -> Result<(), NotAllocated> {
        let not_allocated = NotAllocated(address as usize);
        let Some(owner) = self.owner(address) else { return Err(not_allocated) };
        if owner == self.rank() {
            return self.free(address);
        }
        let offset = address as u64 - comb_memory::HEAP_START as u64;
        let (_, [outcome, _]) = self.runtime().call(|engine, slot| {
            slot.begin(1);
            let token = engine.core.token(owner, slot);
            engine.core.say(owner, Kind::Release, &[token, offset, 0, 0], &[]);
        });
        if outcome == 0 { Ok(()) } else { Err(not_allocated) }
    }

    /// Whose addresses these are: what is allocated there, this component has allocated. None outside the task's heap.
    pub fn owner(&self, address: *const u8) -> Option<u32> {
        let offset = (address as u64).checked_sub(comb_memory::HEAP_START as u64)?;
        Some(Heap::owner(offset, self.count())).filter(|&owner| owner < self.count())
    }

    /// Whether the calling thread is in the middle of this library's own work, where a handler of a signal must not touch shared memory.
    /// Async-signal-safe in a thread that has called something else of the task before.
    pub fn is_inside() -> bool {
        crate::inside::is_inside()
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

    fn free_at(&self, offset: u64) {
        let runtime = self.runtime();
        // Everybody forgets it before its addresses are given out again.
        runtime.call(|engine, slot| engine.begin_to_free(offset, slot));
        runtime.lock().free(offset);
    }

    /// Memory of an earlier life is as much this component's as what it allocates now.
    pub(crate) fn count_as_used(&self, allocation: &Allocation) {
        self.inner.used.fetch_add(against_budget(allocation), Ordering::Relaxed);
    }

    fn check_size(&self, bytes: u64, terms: &Terms) -> Result<(), AllocateError> {
        if let Placement::At(rank) = terms.placement
            && rank >= self.count()
        {
            let none = format!("there is no component {rank} for it to live with, of {}", self.count());
            return Err(AllocateError::Terms(none));
        }
        if !terms.guard.suits(terms.sharing) {
            let many =
                format!("{:?} has many writers, whom {:?} does not tell apart", terms.sharing, terms.guard);
            return Err(AllocateError::Terms(many));
        }
        if terms.moves && !terms.sharing.may_move() {
            let stays = format!("with {:?}, blocks stay where they were born: no moves", terms.sharing);
            return Err(AllocateError::Terms(stays));
        }
        if !terms.sparse {
            let available = available_bytes();
            if bytes > available {
                return Err(AllocateError::TooLarge { bytes, available });
            }
        }
        let used = self.inner.used.load(Ordering::Relaxed);
        let budget = self.inner.budget;
        if budget > 0 && !terms.sparse && used + bytes > budget {
            return Err(AllocateError::Budget { bytes, used, budget });
        }
        Ok(())
    }
}

/// What is only reserved takes nothing from others.
fn against_budget(allocation: &Allocation) -> u64 {
    if allocation.terms.sparse { 0 } else { allocation.bytes }
}

fn words(refused: u64) -> &'static str {
    match refused {
        REFUSED_PROTOCOL => "it does not know the protocol: register it in each component",
        _ => "its system refuses",
    }
}

fn pointer(offset: u64) -> *mut u8 {
    comb_memory::pointer(comb_memory::HEAP_START as u64 + offset)
}

/// Memory and swap space that could be had now.
pub(crate) fn available_bytes() -> u64 {
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
