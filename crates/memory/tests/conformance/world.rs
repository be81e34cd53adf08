//! The process's memory, its handler, and what that has seen.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

use comb_memory::software::{FLAG, Wanted, with_right, with_rights};
use comb_memory::{
    Access, Block, Fault, Grain, Layout, Memory, MemoryOptions, Reason, Verdict, install, pointer,
};

use crate::Kind;

/// An allocation in the middle of nowhere, whose last block is not whole.
const OFFSET: u64 = 7 << 30;

pub(crate) struct World {
    pub(crate) memory: Memory,
    pub(crate) layout: Layout,
    /// One block is changed by one thread at a time.
    rights: Mutex<()>,
}

/// What the handler does with a thread that may not do what it did.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Policy {
    /// Gives it the right.
    Grant,
    /// Waits until somebody else has given it.
    Wait,
    /// As `Wait`, and lets signals come meanwhile.
    WaitWithSignals,
    /// Says that it is lost.
    Lose,
    /// Lets a thread go on that may, and takes block 3 from it meanwhile; gives it what it may not have, and takes block 60. Then as `Grant`.
    Rob,
}

const FLAGS: u64 = u64::from_ne_bytes([FLAG; 8]);

static WORLD: OnceLock<World> = OnceLock::new();
static POLICY: AtomicU64 = AtomicU64::new(Policy::Grant as u64);
/// A thread waits in the handler, and lets signals come.
static IS_WAITING: AtomicBool = AtomicBool::new(false);
/// Waiting is over, whatever rights there are.
static IS_OVER: AtomicBool = AtomicBool::new(false);

const LONGEST_LOG: usize = 1024;
/// Faults that the rights did not allow: twice the block's number, and one for stores.
static LOG: [AtomicU64; LONGEST_LOG] = [const { AtomicU64::new(0) }; LONGEST_LOG];
static LOGGED: AtomicUsize = AtomicUsize::new(0);
/// Faults that the rights did allow.
static REPAIRS: AtomicUsize = AtomicUsize::new(0);

/// An allocation of so many blocks, all of which begin with one right.
pub(crate) fn begin(kind: Kind, blocks: u64, initial: Access) -> &'static World {
    let memory =
        Memory::reserve(MemoryOptions { control: kind.control, ..MemoryOptions::default() }).unwrap();
    assert_eq!(memory.control(), kind.control);
    let bytes = blocks * u64::from(kind.block_bytes) - 100;
    let layout = Layout::new(OFFSET, bytes, kind.block_bytes, kind.grain).unwrap();
    assert_eq!(layout.blocks(), blocks);
    memory.guard(&layout, initial).unwrap();
    assert!(WORLD.set(World { memory, layout, rights: Mutex::new(()) }).is_ok(), "one a process");
    install(serve).unwrap();
    WORLD.get().unwrap()
}

fn serve(fault: Fault) -> Verdict {
    // What a protocol needs, about.
    std::hint::black_box([1_u8; 16 << 10]);
    let Some(world) = WORLD.get() else { return Verdict::NotOurs };
    let Some(block) = world.layout.block_at(fault.address) else { return Verdict::NotOurs };
    let is_allowed = || {
        let access = world.memory.access(&world.layout, block);
        if fault.is_store { access.may_store() } else { access.may_load() }
    };
    if is_allowed() {
        REPAIRS.fetch_add(1, Ordering::Relaxed);
        world.memory.repair(&world.layout, block).unwrap();
        if POLICY.load(Ordering::Relaxed) == Policy::Rob as u64 {
            world.set(3..4, Access::ReadOnly);
        }
        return Verdict::Retry;
    }
    let policy = POLICY.load(Ordering::Relaxed);
    if policy == Policy::Lose as u64 {
        return Verdict::Lost(Reason::Other("the test wants it so"));
    }
    if policy == Policy::Wait as u64 {
        while !is_allowed() && !IS_OVER.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        // At once, so that it comes together with whatever is done next.
        world.memory.repair(&world.layout, block).unwrap();
        return Verdict::Retry;
    }
    if policy == Policy::WaitWithSignals as u64 {
        fault.with_signals(|| {
            IS_WAITING.store(true, Ordering::SeqCst);
            while !is_allowed() {
                std::thread::yield_now();
            }
        });
        return Verdict::Retry;
    }
    let place = LOGGED.fetch_add(1, Ordering::Relaxed);
    if let Some(entry) = LOG.get(place) {
        entry.store(block.0 << 1 | u64::from(fault.is_store), Ordering::Relaxed);
    }
    let _one_at_a_time = world.rights.lock().unwrap();
    let access = if fault.is_store { Access::ReadWrite } else { Access::ReadOnly };
    if world.memory.access(&world.layout, block) > access {
        world.memory.set(&world.layout, block.0..block.0 + 1, access).unwrap();
    }
    if policy == Policy::Rob as u64 {
        world.policy(Policy::Grant);
        world.set(60..61, Access::ReadOnly);
    }
    Verdict::Retry
}

impl World {
    pub(crate) fn policy(&self, policy: Policy) {
        POLICY.store(policy as u64, Ordering::Relaxed);
    }

    /// Returns when a thread waits in the handler and lets signals come.
    pub(crate) fn until_somebody_waits(&self) {
        while !IS_WAITING.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
    }

    /// Lets go whoever waits in the handler. The caller has given all rights.
    pub(crate) fn stop_waiting(&self) {
        IS_OVER.store(true, Ordering::Relaxed);
    }

    pub(crate) fn set(&self, blocks: std::ops::Range<u64>, access: Access) {
        self.memory.set(&self.layout, blocks, access).unwrap();
    }

    pub(crate) fn set_all(&self, access: Access) {
        self.set(0..self.layout.blocks(), access);
    }

    /// For the time when another thread grants.
    pub(crate) fn take_all(&self) {
        let _one_at_a_time = self.rights.lock().unwrap();
        self.set_all(Access::Invalid);
    }

    /// So that the log does not run over.
    pub(crate) fn forget_stops(&self) {
        LOGGED.store(0, Ordering::Relaxed);
    }

    pub(crate) fn access(&self, block: u64) -> Access {
        self.memory.access(&self.layout, Block(block))
    }

    /// A block's memory, as programs have it.
    pub(crate) fn place(&self, block: u64) -> *mut u8 {
        pointer(self.layout.address(Block(block)) as u64)
    }

    /// The counter that a block contains, at its end: the last block ends early.
    pub(crate) fn word(&self, block: u64) -> &'static AtomicU64 {
        // SAFETY: shared memory, aligned, there as long as the process.
        unsafe { AtomicU64::from_ptr(self.place(block).add(16).cast()) }
    }

    /// As compiled code loads it: by itself, or once more with the right if it looks like a flag.
    pub(crate) fn load(&self, block: u64) -> u64 {
        let word = self.word(block);
        match word.load(Ordering::Relaxed) {
            FLAGS if self.layout.grain() == Grain::Checked => {
                self.with_right(word.as_ptr().cast(), 8, false, || word.load(Ordering::Relaxed))
            }
            value => value,
        }
    }

    pub(crate) fn store(&self, block: u64, value: u64) {
        let word = self.word(block);
        self.with_right(word.as_ptr().cast(), 8, true, || word.store(value, Ordering::Relaxed));
    }

    pub(crate) fn add(&self, block: u64, value: u64) {
        let word = self.word(block);
        self.with_right(word.as_ptr().cast(), 8, true, || word.fetch_add(value, Ordering::Relaxed));
    }

    /// The same value to the words of two blocks, which are looked for together.
    pub(crate) fn store_both(&self, blocks: [u64; 2], value: u64) {
        let words = blocks.map(|block| self.word(block));
        let wanted = words.map(|word| Wanted { start: word.as_ptr().cast(), bytes: 8, is_store: true });
        with_rights(&wanted, || words.iter().for_each(|word| word.store(value, Ordering::Relaxed)))
            .expect("it is allocated");
    }

    /// A byte of a block: it looks first, whatever it would find.
    pub(crate) fn load_byte(&self, block: u64, at: usize) -> u8 {
        let place = self.place(block).wrapping_add(at);
        // SAFETY: shared memory, of any value, there as long as the process.
        self.with_right(place, 1, false, || unsafe { place.read_volatile() })
    }

    pub(crate) fn store_byte(&self, block: u64, at: usize, value: u8) {
        let place = self.place(block).wrapping_add(at);
        // SAFETY: as above.
        self.with_right(place, 1, true, || unsafe { place.write_volatile(value) });
    }

    /// Accesses as the code of a program makes them over this kind of memory.
    fn with_right<R>(
        &self,
        place: *const u8,
        bytes: usize,
        is_store: bool,
        accesses: impl FnOnce() -> R,
    ) -> R {
        let is_looked_for = match self.layout.grain() {
            Grain::Checked => true,
            Grain::CheckedStores => is_store,
            Grain::Pages | Grain::Minipages => false,
        };
        if !is_looked_for {
            return accesses();
        }
        with_right(place, bytes, is_store, accesses).expect("it is allocated")
    }

    /// The same counter, as the protocol sees it.
    pub(crate) fn content(&self, block: u64) -> u64 {
        let mut content = [0; 24];
        self.memory.copy_out(&self.layout, Block(block), &mut content);
        u64::from_ne_bytes(content[16..].try_into().unwrap())
    }

    pub(crate) fn fill(&self, block: u64, value: u64) {
        let mut content = vec![0xee; self.layout.block_bytes()];
        content[16..24].copy_from_slice(&value.to_ne_bytes());
        self.memory.fill(&self.layout, Block(block), &content);
    }

    /// What was stopped since the last time, in order: block, and whether it was a store.
    pub(crate) fn stops(&self) -> Vec<(u64, bool)> {
        let count = LOGGED.swap(0, Ordering::Relaxed);
        assert!(count <= LONGEST_LOG);
        LOG[..count]
            .iter()
            .map(|entry| entry.load(Ordering::Relaxed))
            .map(|entry| (entry >> 1, entry & 1 == 1))
            .collect()
    }

    /// How often a thread was stopped since the last time although its right allowed what it did.
    pub(crate) fn repairs(&self) -> usize {
        REPAIRS.swap(0, Ordering::Relaxed)
    }

    /// What a load and then a store of a block meet, without changing what it contains.
    pub(crate) fn probe(&self, block: u64) -> Access {
        self.stops();
        let value = self.load(block);
        let after_load = self.stops();
        self.store(block, value);
        let after_store = self.stops();
        for stop in after_load.iter().chain(&after_store) {
            assert_eq!(stop.0, block);
        }
        match (after_load.len(), after_store.len()) {
            (0, 0) => Access::ReadWrite,
            (0, 1) => Access::ReadOnly,
            (1, 1) => Access::Invalid,
            other => panic!("{other:?} stops"),
        }
    }
}
