//! What the processes of all nodes have in common: the pages, and the words by which they understand each other. Set up before there are any, at one address in all.

#![expect(unsafe_code, reason = "memory that several processes use")]

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering};

use rustix::fs::MemfdFlags;

use super::{PAGES, Use};

pub(super) const PAGE_BYTES: usize = 4096;
/// As many as there are bits for.
pub(super) const NODES: usize = 8;

/// One word of ours, which is one at the beginning and has no other meaning, then one for each node.
const WORDS: usize = 1 + NODES;

#[derive(Default)]
struct Misses {
    loads: AtomicU32,
    stores: AtomicU32,
}

#[derive(Default)]
struct Told {
    loads: AtomicU8,
    stores: AtomicU8,
    /// Who has a copy, or is to make one.
    replicas: AtomicU8,
    /// Who has one that is to go.
    going: AtomicU8,
    /// Somebody has copies taken away.
    is_held: AtomicU8,
    misses: [Misses; NODES],
    /// How often the process of each node has stored.
    stored: [AtomicU64; NODES],
    /// Linux's number of the node in which a process sees it, and one more.
    seen: [AtomicU32; NODES],
}

#[derive(Default)]
pub(super) struct Shared {
    /// The pages themselves, and the file that they are of.
    pages: AtomicPtr<u8>,
    file: AtomicU32,
    round: AtomicU32,
    done: [AtomicU32; NODES],
    processes: [AtomicU32; NODES],
    stale: AtomicU32,
    told: [Told; PAGES],
}

fn mapped(bytes: usize, flags: libc::c_int, file: libc::c_int) -> io::Result<*mut u8> {
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping, wherever there is room.
    let found = unsafe { libc::mmap(null_mut(), bytes, rights, libc::MAP_SHARED | flags, file, 0) };
    if found == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(found.cast()) }
}

impl Shared {
    pub(super) fn new() -> io::Result<&'static Self> {
        let own = mapped(size_of::<Self>(), libc::MAP_ANONYMOUS, -1)?.cast::<Self>();
        let file: OwnedFd = rustix::fs::memfd_create("pages", MemfdFlags::CLOEXEC)?;
        rustix::fs::ftruncate(&file, (PAGES * PAGE_BYTES) as u64)?;
        let pages = mapped(PAGES * PAGE_BYTES, 0, file.as_raw_fd())?;
        // SAFETY: it is mapped for as long as the process lives, begins a page and is all zeroes, which these atomics may be.
        let shared = unsafe { &*own };
        shared.pages.store(pages, Ordering::Relaxed);
        shared.file.store(u32::try_from(file.as_raw_fd()).expect("a descriptor"), Ordering::Relaxed);
        // Processes map it again whenever a copy goes.
        std::mem::forget(file);
        Ok(shared)
    }

    pub(super) fn page(&self, index: usize) -> *mut u8 {
        self.pages.load(Ordering::Relaxed).wrapping_add(index * PAGE_BYTES)
    }

    /// Which page an address is in, if in any.
    pub(super) fn page_at(&self, address: usize) -> Option<usize> {
        let index = address.checked_sub(self.page(0).addr())? / PAGE_BYTES;
        (index < PAGES).then_some(index)
    }

    pub(super) fn file(&self) -> libc::c_int {
        libc::c_int::try_from(self.file.load(Ordering::Relaxed)).expect("a descriptor")
    }

    fn at(&self, page: usize, word: usize) -> &AtomicU64 {
        assert!(page < PAGES && word < WORDS);
        // SAFETY: a word of a page, which is mapped for as long as the process lives; who has no right to it waits for it in a signal's handler.
        unsafe { &*self.page(page).cast::<AtomicU64>().add(word) }
    }

    pub(super) fn word(&self, page: usize, word: usize) -> u64 {
        self.at(page, word).load(Ordering::Acquire)
    }

    pub(super) fn set_word(&self, page: usize, word: usize, value: u64) {
        self.at(page, word).store(value, Ordering::Release);
    }

    pub(super) fn tell(&self, uses: &[Use; PAGES]) {
        for (told, used) in self.told.iter().zip(uses) {
            told.loads.store(used.loads, Ordering::Relaxed);
            told.stores.store(used.stores, Ordering::Relaxed);
        }
    }

    /// Whether a node is to load and to store.
    pub(super) fn told(&self, page: usize, node: usize) -> (bool, bool) {
        let is_set = |bits: &AtomicU8| bits.load(Ordering::Relaxed) & 1 << node != 0;
        (is_set(&self.told[page].loads), is_set(&self.told[page].stores))
    }

    pub(super) fn begin(&self, round: u32) {
        self.round.store(round, Ordering::Release);
    }

    pub(super) fn round(&self) -> u32 {
        self.round.load(Ordering::Acquire)
    }

    pub(super) fn has_done(&self, node: usize, round: u32) {
        self.done[node].store(round, Ordering::Release);
    }

    pub(super) fn done(&self, node: usize) -> u32 {
        self.done[node].load(Ordering::Acquire)
    }

    pub(super) fn set_process(&self, node: usize, process: u32) {
        self.processes[node].store(process, Ordering::Release);
    }

    pub(super) fn process(&self, node: usize) -> u32 {
        self.processes[node].load(Ordering::Acquire)
    }

    pub(super) fn missed(&self, page: usize, node: usize, is_store: bool) {
        let misses = &self.told[page].misses[node];
        let count = if is_store { &misses.stores } else { &misses.loads };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// Loads and stores since they were taken last.
    pub(super) fn take_misses(&self, page: usize, node: usize) -> (u32, u32) {
        let misses = &self.told[page].misses[node];
        (misses.loads.swap(0, Ordering::Relaxed), misses.stores.swap(0, Ordering::Relaxed))
    }

    pub(super) fn replicas(&self, page: usize) -> u8 {
        self.told[page].replicas.load(Ordering::Acquire)
    }

    pub(super) fn set_replicas(&self, page: usize, nodes: u8) {
        self.told[page].replicas.store(nodes, Ordering::Release);
    }

    /// None has a right to a copy any more. Who had one.
    pub(super) fn withdraw(&self, page: usize) -> u8 {
        let had = self.told[page].replicas.swap(0, Ordering::AcqRel);
        self.told[page].going.fetch_or(had, Ordering::AcqRel);
        had
    }

    /// Those whose copies are not gone yet.
    pub(super) fn going(&self, page: usize) -> u8 {
        self.told[page].going.load(Ordering::Acquire)
    }

    pub(super) fn is_gone(&self, page: usize, node: usize) {
        self.told[page].going.fetch_and(!(1 << node), Ordering::AcqRel);
    }

    /// Whether nobody else has copies of this page taken away.
    pub(super) fn hold(&self, page: usize) -> bool {
        self.told[page].is_held.swap(1, Ordering::AcqRel) == 0
    }

    pub(super) fn let_go(&self, page: usize) {
        self.told[page].is_held.store(0, Ordering::Release);
    }

    pub(super) fn has_stored(&self, page: usize, node: usize, times: u64) {
        self.told[page].stored[node].store(times, Ordering::Release);
    }

    pub(super) fn stored(&self, page: usize, node: usize) -> u64 {
        self.told[page].stored[node].load(Ordering::Acquire)
    }

    pub(super) fn sees(&self, page: usize, node: usize, at: Option<u32>) {
        self.told[page].seen[node].store(at.map_or(0, |at| at + 1), Ordering::Relaxed);
    }

    pub(super) fn seen(&self, page: usize, node: usize) -> Option<u32> {
        self.told[page].seen[node].load(Ordering::Relaxed).checked_sub(1)
    }

    pub(super) fn is_stale(&self) {
        self.stale.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn stale(&self) -> u32 {
        self.stale.load(Ordering::Relaxed)
    }
}
