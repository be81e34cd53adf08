//! What tests of the engine's parts begin with.

use std::sync::{Arc, OnceLock};

use comb_coherence::Block;
use comb_memory::{Memory, MemoryOptions};

use super::Engine;
use crate::terms::{Allocation, Guard, Placement, Sharing, Terms};
use crate::wire::{self, Kind};

/// One heap for a process: each test has addresses of its own.
pub(crate) fn memory() -> Arc<Memory> {
    static MEMORY: OnceLock<Arc<Memory>> = OnceLock::new();
    let reserve = || Arc::new(Memory::reserve(MemoryOptions::default()).expect("a heap"));
    Arc::clone(MEMORY.get_or_init(reserve))
}

/// Component 0 of three, which are not there.
pub(crate) fn engine() -> Engine {
    Engine::new(memory(), None, 0, 3, false)
}

/// Of 300,000 bytes, made by component 0.
pub(crate) fn allocation(offset: u64, sharing: Sharing, guard: Guard) -> Allocation {
    let block_bytes = if guard == Guard::Mmu { 128 } else { 4096 };
    let terms = Terms { sharing, guard, block_bytes, placement: Placement::RoundRobin, ..Terms::default() };
    Allocation { offset, bytes: 300_000, generation: 7, creator: 0, terms, image: 0 }
}

/// A message to a block's home: a client wants to write.
pub(crate) const WANTS_TO_WRITE: u64 = 1;

/// Component 1 asks for something of a block of such an allocation.
pub(crate) fn ask(engine: &mut Engine, offset: u64, block: u64, wants: u64) {
    let head = wire::pack(&[7 << 32 | wants, offset, block, 0]);
    engine.take(1, Kind::Protocol as u8, &head).expect("what a client may ask");
}

/// One with a message that it has kept for a moment, for a thread that was just served.
pub(crate) fn owing(offset: u64) -> Engine {
    let mut engine = engine();
    engine.install(allocation(offset, Sharing::Stache, Guard::Page)).expect("installed");
    let address = engine.entries[&offset].shape.layout.address(Block(0));
    engine.served(1, address, &super::OWN);
    ask(&mut engine, offset, 0, WANTS_TO_WRITE);
    assert!(engine.is_owing());
    engine
}
