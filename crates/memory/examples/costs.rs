//! What it costs to stop a thread, to let it go on, and to change rights: a table of microseconds of processor time, for each way to do so.
//!
//! ```console
//! $ cargo run --release -p comb-memory --example costs
//! ```
#![expect(unsafe_code, reason = "loads and stores that the MMU stops")]

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, RwLock};

use comb_memory::Access::{self, Invalid, ReadOnly, ReadWrite};
use comb_memory::{
    Block, Control, Fault, Grain, Layout, Memory, MemoryOptions, Reason, Verdict, careful_copy_from, install,
    pointer,
};

const BLOCKS: u64 = 4096;
const ROUNDS: usize = 31;

struct Shared {
    memory: Memory,
    layout: Layout,
}

static SHARED: RwLock<Option<Arc<Shared>>> = RwLock::new(None);

/// What the handler does: 0 grants, 1 fills and grants, 2 says that it is lost.
static POLICY: AtomicU8 = AtomicU8::new(0);
static CONTENT: [u8; 4096] = [7; 4096];

fn serve(fault: Fault) -> Verdict {
    let policy = POLICY.load(Ordering::Relaxed);
    if policy == 2 {
        return Verdict::Lost(Reason::Other("measured"));
    }
    let shared = SHARED.read().unwrap();
    let Some(Shared { memory, layout }) = shared.as_deref() else { return Verdict::NotOurs };
    let Some(block) = layout.block_at(fault.address) else { return Verdict::NotOurs };
    let access = if fault.is_store { ReadWrite } else { ReadOnly };
    if memory.access(layout, block) <= access {
        memory.repair(layout, block).unwrap();
        return Verdict::Retry;
    }
    if policy == 1 {
        memory.deliver(layout, block, &CONTENT[..layout.block_bytes()], access).unwrap();
        return Verdict::Retry;
    }
    memory.set(layout, block.0..block.0 + 1, access).unwrap();
    Verdict::Retry
}

/// The median of many rounds of `measured`, each over `blocks` blocks, in microseconds a block; `prepare` is not counted.
fn median(blocks: u64, mut prepare: impl FnMut(), mut measured: impl FnMut()) -> f64 {
    let mut times: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            prepare();
            let begun = own_time();
            measured();
            (own_time() - begun) / blocks as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[ROUNDS / 2]
}

/// Microseconds that this thread has had a processor: others may want it too.
fn own_time() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

fn load(shared: &Shared, block: u64) {
    // SAFETY: shared memory of this process.
    unsafe { pointer(shared.layout.address(Block(block)) as u64).read_volatile() };
}

fn store(shared: &Shared, block: u64) {
    // SAFETY: shared memory of this process.
    unsafe { pointer(shared.layout.address(Block(block)) as u64).write_volatile(1) };
}

fn faults(shared: &Shared) {
    let all = |access| shared.memory.set(&shared.layout, 0..BLOCKS, access).unwrap();
    POLICY.store(2, Ordering::Relaxed);
    let delivery = median(
        BLOCKS,
        || all(Invalid),
        || {
            for block in 0..BLOCKS {
                let place = pointer(shared.layout.address(Block(block)) as u64);
                assert!(careful_copy_from(place, &mut [0]).is_err());
            }
        },
    );
    let each = |first: Access, policy, act: fn(&Shared, u64)| {
        POLICY.store(policy, Ordering::Relaxed);
        median(BLOCKS, || all(first), || (0..BLOCKS).for_each(|block| act(shared, block)))
    };
    println!("  a fault, nothing granted          {delivery:7.2}");
    println!("  a load that is granted            {:7.2}", each(Invalid, 0, load));
    println!("  a load that is filled and granted {:7.2}", each(Invalid, 1, load));
    POLICY.store(1, Ordering::Relaxed);
    let fresh = median(
        BLOCKS,
        || {
            all(Invalid);
            shared.memory.discard(&shared.layout, 0..BLOCKS).unwrap();
        },
        || (0..BLOCKS).for_each(|block| load(shared, block)),
    );
    println!("  the same, and its frame is new    {fresh:7.2}");
    println!("  a store that is granted           {:7.2}", each(Invalid, 0, store));
    println!("  a store to read-only, granted     {:7.2}", each(ReadOnly, 0, store));
}

fn changes(shared: &Shared) {
    let set = |blocks, access| shared.memory.set(&shared.layout, blocks, access).unwrap();
    println!("  changes of a batch of                   1      16     256");
    for (name, from, to) in [
        ("invalid to read-only", Invalid, ReadOnly),
        ("invalid to read-write", Invalid, ReadWrite),
        ("read-only to read-write", ReadOnly, ReadWrite),
        ("read-write to read-only", ReadWrite, ReadOnly),
        ("read-only to invalid", ReadOnly, Invalid),
        ("read-write to invalid", ReadWrite, Invalid),
    ] {
        let cost = |batch: u64| {
            let prepare = || {
                set(0..BLOCKS, Invalid);
                set(0..BLOCKS, from);
                if from == ReadWrite {
                    (0..BLOCKS).for_each(|block| store(shared, block));
                }
            };
            let measured = || {
                // What a batch is part of has the other right, so that protections cannot merge all into one mapping at once.
                let mut first = 0;
                while first < BLOCKS {
                    set(first..first + batch, to);
                    first += batch;
                }
            };
            median(BLOCKS, prepare, measured)
        };
        println!("  {name:33} {:7.2} {:7.2} {:7.2}", cost(1), cost(16), cost(256));
    }
}

fn report(control: Control, grain: Grain, block_bytes: u32) -> Result<(), Box<dyn std::error::Error>> {
    let memory = Memory::reserve(MemoryOptions { control, ..MemoryOptions::default() })?;
    let layout = Layout::new(0, BLOCKS * u64::from(block_bytes), block_bytes, grain)?;
    memory.guard(&layout, Invalid)?;
    let shared = Arc::new(Shared { memory, layout });
    *SHARED.write().unwrap() = Some(Arc::clone(&shared));
    println!("{control:?}, {grain:?} of {block_bytes} bytes: microseconds a block");
    faults(&shared);
    changes(&shared);
    *SHARED.write().unwrap() = None;
    println!();
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    install(serve)?;
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for company in [false, true] {
            if company {
                println!(
                    "== with another thread that runs: its processor is told of every right that is taken away\n"
                );
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            for control in [Control::Userfaultfd, Control::Protections] {
                report(control, Grain::Pages, 4096)?;
                report(control, Grain::Minipages, 128)?;
            }
        }
        is_over.store(true, Ordering::Relaxed);
        Ok(())
    })
}
