//! What tests of the engine's parts begin with.

use std::sync::{Arc, OnceLock};

use comb_memory::{Memory, MemoryOptions};

use super::Engine;
use crate::terms::{Allocation, Guard, Placement, Sharing, Terms};

/// Component 0 of three, which are not there. One heap for a process: each test has addresses of its own.
pub(crate) fn engine() -> Engine {
    static MEMORY: OnceLock<Arc<Memory>> = OnceLock::new();
    let reserve = || Arc::new(Memory::reserve(MemoryOptions::default()).expect("a heap"));
    Engine::new(Arc::clone(MEMORY.get_or_init(reserve)), None, 0, 3, false)
}

/// Of 300,000 bytes, made by component 0.
pub(crate) fn allocation(offset: u64, sharing: Sharing, guard: Guard) -> Allocation {
    let block_bytes = if guard == Guard::Mmu { 128 } else { 4096 };
    let terms = Terms { sharing, guard, block_bytes, placement: Placement::RoundRobin, ..Terms::default() };
    Allocation { offset, bytes: 300_000, generation: 7, creator: 0, terms }
}
