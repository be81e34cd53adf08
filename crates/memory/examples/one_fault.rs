//! A block that lives elsewhere: the first load stops its thread, the handler brings the content, and the load goes on as if nothing had
//! been. The first store stops it once more.
#![expect(unsafe_code, reason = "loads and stores that the MMU stops")]

use std::sync::OnceLock;

use comb_memory::{
    Access, Block, Fault, Grain, HEAP_START, Layout, Memory, MemoryOptions, Verdict, install, pointer,
};

struct Shared {
    memory: Memory,
    layout: Layout,
}

static SHARED: OnceLock<Shared> = OnceLock::new();

/// Runs on the thread that was stopped, as a protocol would.
fn serve(fault: Fault) -> Verdict {
    let Some(Shared { memory, layout }) = SHARED.get() else { return Verdict::NotOurs };
    let Some(block) = layout.block_at(fault.address) else { return Verdict::NotOurs };
    let kind = if fault.is_store { "store to" } else { "load from" };
    println!("stopped: {kind} {block}, which is {:?}", memory.access(layout, block));
    let access = if fault.is_store { Access::ReadWrite } else { Access::ReadOnly };
    if memory.access(layout, block) == Access::Invalid {
        memory.fill(layout, block, b"what another cell has stored");
    }
    memory.set(layout, block.0..block.0 + 1, access).expect("there is memory");
    Verdict::Retry
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let memory = Memory::reserve(MemoryOptions::default())?;
    let layout = Layout::new(0, 1 << 20, 4096, Grain::Pages)?;
    memory.guard(&layout, Access::Invalid)?;
    println!("{} blocks from {HEAP_START:#x} on, guarded by {:?}", layout.blocks(), memory.control());
    assert!(SHARED.set(Shared { memory, layout }).is_ok());
    install(serve)?;

    let place = pointer(layout.address(Block(3)) as u64);
    // SAFETY: shared memory, which lives as long as the process.
    let first = unsafe { place.read_volatile() };
    println!("loaded {:?}", char::from(first));
    // SAFETY: as above.
    unsafe { place.write_volatile(b'W') };

    let Shared { memory, layout } = SHARED.get().expect("set above");
    memory.set(layout, 3..4, Access::Invalid)?;
    let mut content = [0; 28];
    memory.copy_out(layout, Block(3), &mut content);
    println!("taken back: {:?}", std::str::from_utf8(&content)?);
    Ok(())
}
