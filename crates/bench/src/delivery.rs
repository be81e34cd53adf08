//! From a load without a right to the first instruction of what serves it: Blizzard's *action invocation*.

use std::hint::black_box;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use comb_memory::{Access, Block, Fault, Grain, Layout, Memory, MemoryOptions, Verdict};
use serde_json::json;

const BLOCKS: u64 = 4096;

struct Shared {
    memory: Memory,
    layouts: [Layout; 2],
    started: Instant,
}

static SHARED: OnceLock<Shared> = OnceLock::new();
/// When it was called, in nanoseconds since the start.
static CALLED: AtomicU64 = AtomicU64::new(0);

fn since_start(shared: &Shared) -> u64 {
    u64::try_from(shared.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// Notes when, and grants.
fn serve(fault: Fault) -> Verdict {
    let Some(shared) = SHARED.get() else { return Verdict::NotOurs };
    CALLED.store(since_start(shared), Ordering::Relaxed);
    for layout in &shared.layouts {
        if let Some(block) = layout.block_at(fault.address) {
            let granted = shared.memory.set(layout, block.0..block.0 + 1, Access::ReadWrite);
            return if granted.is_ok() { Verdict::Retry } else { Verdict::NotOurs };
        }
    }
    Verdict::NotOurs
}

/// The medians, by grain, a JSON line each.
pub(crate) fn run() -> Result<(), Box<dyn std::error::Error>> {
    let memory = Memory::reserve(MemoryOptions::default())?;
    let layouts = [
        Layout::new(0, BLOCKS * 4096, 4096, Grain::Pages)?,
        Layout::new(1 << 30, BLOCKS * 128, 128, Grain::Minipages)?,
    ];
    for layout in &layouts {
        memory.guard(layout, Access::Invalid)?;
    }
    let shared = SHARED.get_or_init(|| Shared { memory, layouts, started: Instant::now() });
    comb_memory::install(serve)?;
    for (layout, name) in shared.layouts.iter().zip(["page", "mmu"]) {
        let (mut delivered, mut whole) = (Vec::new(), Vec::new());
        for block in 0..BLOCKS {
            let begun = since_start(shared);
            black_box(load(layout.address(Block(block))));
            whole.push(since_start(shared) - begun);
            delivered.push(CALLED.load(Ordering::Relaxed).saturating_sub(begun));
        }
        for (what, each) in [("delivered", &mut delivered), ("granted", &mut whole)] {
            each.sort_unstable();
            let median = each[each.len() / 2];
            println!("{}", json!({ "test": format!("fault {what}, {name}"), "unit": "ns", "value": median }));
        }
    }
    Ok(())
}

#[expect(unsafe_code, reason = "a load that the MMU stops")]
fn load(address: usize) -> u8 {
    // SAFETY: a block of this process's shared memory, which lives as long as the process.
    unsafe { comb_memory::pointer(address as u64).read_volatile() }
}
