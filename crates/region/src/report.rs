//! Where a component's memory traffic comes from, for `comb run --report`: at which instructions its threads have waited, which words of
//! which blocks they missed, and what others took from it.
//!
//! A component records only when its launcher has said so; otherwise a miss costs one comparison more. All of it lies in tables of a fixed
//! size, made before the program begins: what finds no room is counted. At its end the component writes its [`Part`] where the launcher
//! reads it, and `comb run` makes one report of all parts.

mod blocks;
mod maps;
mod part;
mod waits;

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use comb_coherence::Access;

use self::blocks::Blocks;
pub use self::part::{AllocationPart, BlockPart, Kind, PART_VERSION, Part, Program, Site, Touch, Uncounted};
use self::waits::Waits;
use crate::terms::Allocation;

/// Instructions that miss, by kind: a program that has more of them is larger than any that we know.
const MOST_SITES: usize = 7168;
/// Of allocations whose callers are kept.
const MOST_ALLOCATIONS: usize = 4096;
/// Threads that are told apart.
const MOST_THREADS: usize = 1024;

/// A miss, as the engine knows it when it is over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Miss {
    pub(crate) address: u64,
    /// How many are wanted from there on; they may go on behind the block.
    pub(crate) bytes: u64,
    /// The instruction that loads or stores, or an address within the call that has asked for it.
    pub(crate) instruction: u64,
    pub(crate) kind: Kind,
    pub(crate) waited: Duration,
    /// Where the block begins, how long it is, and in which allocation it lies.
    pub(crate) block: u64,
    pub(crate) block_bytes: u32,
    pub(crate) allocation: u64,
    pub(crate) home: Option<u32>,
    pub(crate) thread: u64,
}

/// One of the component's threads.
#[derive(Clone, Copy, Debug, Default)]
struct Thread {
    has_missed: bool,
    synchronised: Duration,
}

/// What one component records.
pub(crate) struct Recorder {
    rank: u32,
    began: Instant,
    imports: bool,
    /// What the launcher reads.
    into: OwnedFd,
    sites: HashMap<(u64, Kind), Site>,
    blocks: Blocks,
    waits: Waits,
    threads: HashMap<u64, Thread>,
    bytes_in: u64,
    bytes_out: u64,
    allocations: Vec<AllocationPart>,
    uncounted: Uncounted,
}

impl Recorder {
    pub(crate) fn new(rank: u32, imports: bool, into: OwnedFd) -> Self {
        maps::prepare();
        Self {
            rank,
            began: Instant::now(),
            imports,
            into,
            sites: HashMap::with_capacity(MOST_SITES),
            blocks: Blocks::default(),
            waits: Waits::default(),
            threads: HashMap::with_capacity(MOST_THREADS),
            bytes_in: 0,
            bytes_out: 0,
            allocations: Vec::new(),
            uncounted: Uncounted::default(),
        }
    }

    /// A thread has waited for a block.
    pub(crate) fn miss(&mut self, miss: &Miss) {
        let waited_ns = nanoseconds(miss.waited);
        self.waits.add(waited_ns);
        if let Some(thread) = self.thread(miss.thread) {
            thread.has_missed = true;
        }
        let key = (miss.instruction, miss.kind);
        if self.sites.len() < MOST_SITES || self.sites.contains_key(&key) {
            let fresh = || Site::new(miss.instruction, miss.kind, miss.address);
            self.sites.entry(key).or_insert_with(fresh).add(waited_ns);
        } else {
            self.uncounted.misses_of_sites += 1;
        }
        if !self.blocks.missed(miss, waited_ns) {
            self.uncounted.misses_of_blocks += 1;
        }
    }

    /// A block's right was taken from this component, on account of what another one said.
    pub(crate) fn taken(&mut self, block: u64, block_bytes: u32, allocation: u64, left: Access, by: u32) {
        self.blocks.taken((block, block_bytes, allocation), left, by);
    }

    pub(crate) fn received(&mut self, bytes: usize) {
        self.bytes_in += bytes as u64;
    }

    pub(crate) fn sent(&mut self, bytes: usize) {
        self.bytes_out += bytes as u64;
    }

    /// A thread has waited at a lock or a barrier, or for something else that is not a block.
    pub(crate) fn synchronised(&mut self, waited: Duration, thread: u64) {
        if let Some(thread) = self.thread(thread) {
            thread.synchronised += waited;
        }
    }

    fn thread(&mut self, thread: u64) -> Option<&mut Thread> {
        if self.threads.len() >= MOST_THREADS && !self.threads.contains_key(&thread) {
            return None;
        }
        Some(self.threads.entry(thread).or_default())
    }

    /// Threads that work on shared memory. One that only waits for others, or serves them, is none of them; where none ever missed anything, the
    /// one that has made all this is.
    fn working(&self) -> (u32, Duration) {
        let all = || self.threads.values();
        match all().filter(|thread| thread.has_missed).count() {
            0 => (1, all().map(|thread| thread.synchronised).max().unwrap_or_default()),
            count => {
                let working = all().filter(|thread| thread.has_missed);
                (u32::try_from(count).unwrap_or(u32::MAX), working.map(|thread| thread.synchronised).sum())
            }
        }
    }

    /// This component has allocated that, and by whom it was told to.
    pub(crate) fn allocated(&mut self, allocation: &Allocation, start: u64) {
        // Of two at one address the later one is there.
        self.allocations.retain(|earlier| earlier.start != start);
        if self.allocations.len() < MOST_ALLOCATIONS {
            self.allocations
                .push(AllocationPart { callers: maps::callers(), ..described(allocation, start) });
        } else {
            self.uncounted.allocations += 1;
        }
    }

    /// Writes what there is to where the launcher reads it, in place of what was written before. `others`: allocations that are
    /// known here, and where they begin.
    pub(crate) fn hand_in<'a>(
        &self,
        others: impl Iterator<Item = (&'a Allocation, u64)>,
    ) -> std::io::Result<()> {
        let mut allocations = self.allocations.clone();
        for (allocation, start) in others.take(MOST_ALLOCATIONS) {
            if allocations.iter().all(|known| known.start != start) {
                allocations.push(described(allocation, start));
            }
        }
        let (threads, synchronised) = self.working();
        let part = Part {
            version: PART_VERSION,
            rank: self.rank,
            imports: self.imports,
            elapsed_ns: nanoseconds(self.began.elapsed()),
            threads,
            synchronised_ns: nanoseconds(synchronised),
            bytes_in: self.bytes_in,
            bytes_out: self.bytes_out,
            waits: self.waits.counts(),
            sites: self.sites.values().copied().collect(),
            blocks: self.blocks.parts(),
            allocations,
            programs: maps::programs(),
            uncounted: self.uncounted,
        };
        let bytes = postcard::to_stdvec(&part).map_err(std::io::Error::other)?;
        rustix::fs::ftruncate(&self.into, 0)?;
        let mut written = 0;
        while written < bytes.len() {
            written += rustix::io::pwrite(&self.into, &bytes[written..], written as u64)?;
        }
        Ok(())
    }
}

fn described(allocation: &Allocation, start: u64) -> AllocationPart {
    AllocationPart {
        start,
        bytes: allocation.bytes,
        block_bytes: allocation.terms.block_bytes,
        creator: allocation.creator,
        callers: Vec::new(),
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorder() -> Recorder {
        let into = rustix::fs::memfd_create("part", rustix::fs::MemfdFlags::CLOEXEC).expect("a file");
        Recorder::new(1, false, into)
    }

    fn read(recorder: &Recorder) -> Part {
        recorder.hand_in(std::iter::empty()).expect("written");
        let mut bytes = vec![0; 1 << 24];
        let length = rustix::io::pread(&recorder.into, &mut bytes, 0).expect("readable");
        Part::decode(&bytes[..length]).expect("as it was written")
    }

    fn miss(instruction: u64, address: u64, kind: Kind) -> Miss {
        Miss {
            address,
            bytes: 1,
            instruction,
            kind,
            waited: Duration::from_micros(20),
            block: address & !4095,
            block_bytes: 4096,
            allocation: 0x1000,
            home: Some(0),
            thread: 7,
        }
    }

    #[test]
    fn what_was_recorded_is_what_is_handed_in() {
        let mut recorder = recorder();
        (0..3).for_each(|_| recorder.miss(&miss(10, 0x2008, Kind::Write)));
        recorder.miss(&miss(10, 0x2008, Kind::Upgrade));
        recorder.miss(&miss(20, 0x2010, Kind::Read));
        recorder.taken(0x2000, 4096, 0x1000, Access::Invalid, 2);
        let mut part = read(&recorder);
        part.sites.sort_by_key(|site| (site.instruction, site.kind));
        let counts: Vec<_> =
            part.sites.iter().map(|site| (site.instruction, site.kind, site.count)).collect();
        assert_eq!(counts, [(10, Kind::Write, 3), (10, Kind::Upgrade, 1), (20, Kind::Read, 1)]);
        assert_eq!(part.sites[0].waited_ns, 60_000);
        let [block] = &part.blocks[..] else { panic!("one block: {:?}", part.blocks) };
        assert_eq!((block.reads, block.writes, block.upgrades, block.taken), (1, 3, 1, 1));
        assert_eq!((block.stored_words(), block.loaded_words()), (vec![1], vec![2]));
        assert_eq!(block.taken_by, [(2, 1)]);
        assert_eq!((part.threads, part.waits.iter().sum::<u64>()), (1, 5));
        assert!(!part.programs.is_empty(), "this program's own code is mapped");
        // A second time it says what there is then.
        recorder.miss(&miss(20, 0x2010, Kind::Read));
        assert_eq!(read(&recorder).blocks[0].reads, 2);
    }

    /// A thread that creates others and waits for their ends would make it look as if all had waited.
    #[test]
    fn who_only_waits_for_others_is_not_among_those_that_work() {
        let mut recorder = recorder();
        recorder.synchronised(Duration::from_secs(9), 1);
        recorder.synchronised(Duration::from_secs(2), 7);
        assert_eq!(read(&recorder).synchronised_ns, 9_000_000_000, "nobody else is known");
        recorder.miss(&miss(10, 0x2008, Kind::Write));
        let part = read(&recorder);
        assert_eq!((part.threads, part.synchronised_ns), (1, 2_000_000_000));
    }

    #[test]
    fn what_finds_no_room_is_counted() {
        let mut recorder = recorder();
        let most = MOST_SITES as u64;
        (0..most + 5).for_each(|number| recorder.miss(&miss(number, 0x2000, Kind::Read)));
        recorder.miss(&miss(0, 0x2000, Kind::Read));
        (0..blocks::MOST_BLOCKS as u64 + 2)
            .for_each(|number| recorder.miss(&miss(1, number << 12, Kind::Read)));
        let part = read(&recorder);
        assert_eq!(part.sites.len(), MOST_SITES);
        assert_eq!(part.uncounted.misses_of_sites, 5);
        assert_eq!(part.uncounted.misses_of_blocks, 2);
        let counted: u64 = part.sites.iter().map(|site| site.count).sum();
        assert_eq!(counted, most + 1 + blocks::MOST_BLOCKS as u64 + 2);
    }

    #[test]
    fn an_allocation_says_who_asked_for_it() {
        let mut recorder = recorder();
        let terms = crate::terms::Terms::default();
        let allocation = Allocation { offset: 0, bytes: 100, generation: 1, creator: 1, terms, image: 0 };
        recorder.allocated(&allocation, 0x1000_0000_0000);
        let part = read(&recorder);
        let callers = &part.allocations[0].callers;
        let is_ours = |address: &u64| {
            part.programs.iter().any(|program| (program.start..program.end).contains(address))
        };
        assert!(!callers.is_empty() && callers.iter().all(is_ours), "{callers:x?}");
    }
}
