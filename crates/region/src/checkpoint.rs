//! A task's shared memory in files, from which it can begin again.
//!
//! All components come to it together. Each writes the pages that live with it, and of those only what has changed since the last time;
//! every few times it writes all of them, so that no chain of files gets long. When all have written, component 0 names the checkpoint in
//! the file `current`, at once and for all: until then the one before is valid.
//!
//! What has changed is told by a 64-bit number made of a page's content. Two contents with the same number are taken for one; that
//! happens by chance once in 10¹⁹ changes.
//!
//! Of a component `R`, checkpoint `N` is the file `R.N.pages`: a head, then the pages, each behind its place in the heap, then the
//! number of all that. Registers, stacks and private memory are not in it: a program asks [`Task::restored`] whether it has begun before.

use std::collections::BTreeMap;
use std::path::Path;

use comb_coherence::Block;
use comb_memory::{Grain, Layout};
use serde::{Deserialize, Serialize};

pub use crate::pages_file::CheckpointError;
use crate::pages_file::{PAGE, Reader, Writer, current, file_of, fold, name, system};
use crate::synchronise::Combine;
use crate::task::{Checkpoint, Task};
use crate::terms::Allocation;

const MAGIC: &[u8; 8] = b"combmem3";
/// After so many files that hold changes alone, one holds all.
const LONGEST_CHAIN: u64 = 8;

/// What stands before the pages.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Head {
    count: u32,
    rank: u32,
    number: u64,
    /// The file that this one changes.
    before: Option<u64>,
    /// The last allocation's of this component, be it freed since: pages of older files are not to be taken for those of a later one.
    generation: u32,
    /// Who had memory for whom, by rank; empty if each component had its own. Then pages are in other parts than where they are to live now.
    leads: Vec<u32>,
    holdings: Holdings,
    pages: u64,
}

/// What a component remembers of its last checkpoint.
#[derive(Debug, Default)]
pub(crate) struct Written {
    number: u64,
    /// How many files hold what is in memory; 0 if the next is to hold all.
    chain: u64,
    /// The number of each page's content, by its place; and which allocation's it was.
    pages: BTreeMap<u64, (u32, u64)>,
}

impl Task {
    /// Writes all shared memory that lives with this component, while all others do the same: every component calls it, one thread of
    /// each, and none stores meanwhile. No lock may be held. How many pages this one has written.
    pub fn checkpoint(&self) -> Result<u64, CheckpointError> {
        let place = self.checkpoints().ok_or(CheckpointError::NoDirectory)?.directory.clone();
        // All take the same number, and none that is in use: not by an earlier task's that is valid still.
        let last = self.written().number.max(current(&place).unwrap_or(0));
        let number = self.reduce(Combine::Greatest, &[last])[0] + 1;
        let outcome = self.write_part(&place, number);
        let first_failed = self.first_failed(&outcome);
        if first_failed != u64::MAX {
            // Not all have this file, and so none builds on it.
            self.written().chain = 0;
        }
        let pages = outcome?;
        if first_failed != u64::MAX {
            return Err(CheckpointError::Other(first_failed));
        }
        let named = if self.rank() == 0 { name(&place, number) } else { Ok(()) };
        let is_named = self.reduce(Combine::First, &[u64::from(named.is_ok())])[0] == 1;
        named?;
        if !is_named {
            return Err(CheckpointError::Other(0));
        }
        self.tidy(&place, number);
        Ok(pages)
    }

    /// The least rank of those that have failed, or `u64::MAX`. All components come to it.
    fn first_failed<T>(&self, outcome: &Result<T, CheckpointError>) -> u64 {
        let failed = outcome.as_ref().err().map_or(u64::MAX, |error| {
            // Said now: another may end the task as soon as it knows, before this one's program has told why.
            eprintln!("comb: component {}: {error}", self.rank());
            u64::from(self.rank())
        });
        self.reduce(Combine::Least, &[failed])[0]
    }

    fn write_part(&self, directory: &Path, number: u64) -> Result<u64, CheckpointError> {
        std::fs::create_dir_all(directory).map_err(system("cannot make", directory))?;
        let mut written = self.written();
        let is_whole = written.chain == 0 || written.chain >= LONGEST_CHAIN;
        let before = (!is_whole).then_some(written.number);
        if is_whole {
            written.pages.clear();
        }
        let mut changed = Vec::new();
        let mut content = vec![0; PAGE];
        let mut pages = BTreeMap::new();
        let own_pages = self.own_pages();
        let (holdings, generation, leads) = {
            let engine = self.runtime().lock();
            (engine.holdings(&own_pages), engine.generation, engine.leads())
        };
        for place in own_pages {
            self.copy_page(&place, &mut content);
            let sum = fold(&content);
            pages.insert(place.frame, (place.generation, sum));
            let known =
                written.pages.get(&place.frame).filter(|(generation, _)| *generation == place.generation);
            // What no file has content for is zero in the next life.
            let is_known =
                known.map_or_else(|| content.iter().all(|&byte| byte == 0), |&(_, was)| was == sum);
            if !is_known {
                changed.push(place);
            }
        }
        let path = file_of(directory, self.rank(), number);
        let head = Head {
            count: self.count(),
            rank: self.rank(),
            number,
            before,
            generation,
            leads,
            holdings,
            pages: changed.len() as u64,
        };
        let mut writer = Writer::begin(path, *MAGIC, &head)?;
        for place in &changed {
            self.copy_page(place, &mut content);
            writer.put(place.frame, &content)?;
        }
        writer.finish()?;
        *written = Written { number, chain: if is_whole { 1 } else { written.chain + 1 }, pages };
        Ok(changed.len() as u64)
    }

    /// Loads a page as a thread of the program does: what another component has alone comes home.
    fn copy_page(&self, page: &OwnPage, into: &mut [u8]) {
        let bytes = page.layout.block_bytes().min(PAGE);
        into.fill(0);
        for at in (0..PAGE).step_by(bytes) {
            let Some(address) = page.address_at(at as u64) else { continue };
            // Of a task: what lives here is lost with it, and so is who asks.
            let copied = comb_memory::careful_copy_from(
                comb_memory::pointer(address as u64),
                &mut into[at..at + bytes],
            );
            if copied.is_err() {
                into[at..at + bytes].fill(0);
            }
        }
    }

    /// Removes what no valid checkpoint needs.
    fn tidy(&self, directory: &Path, number: u64) {
        let oldest = number + 1 - self.written().chain;
        let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
        for entry in entries {
            let name = entry.file_name();
            let Some(numbers) = name.to_str().and_then(|name| name.strip_suffix(".pages")) else { continue };
            let Some((rank, old)) = numbers.split_once('.') else { continue };
            let Ok(rank) = rank.parse::<u32>() else { continue };
            // Those of a larger task that wrote here before are nobody's.
            let is_own = rank == self.rank() || (self.rank() == 0 && rank >= self.count());
            if is_own && old.parse::<u64>().is_ok_and(|old| old < oldest || old > number) {
                // A file too much is no harm.
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }

    /// Fills what was allocated before from the last checkpoint: all components, or none.
    pub(crate) fn restore(&self, checkpoint: &Checkpoint) -> Result<(), CheckpointError> {
        let outcome = self.read_part(&checkpoint.directory);
        let first_failed = self.first_failed(&outcome);
        outcome?;
        if first_failed == u64::MAX { Ok(()) } else { Err(CheckpointError::OtherRead(first_failed)) }
    }

    fn read_part(&self, directory: &Path) -> Result<(), CheckpointError> {
        let number = current(directory)?;
        let count = self.count();
        let open = |rank, number| open_part(directory, rank, number);
        // Before files are looked for that a smaller task has never had.
        let found = open(0, number)?.head.count;
        if found != count {
            return Err(CheckpointError::Count { path: directory.to_owned(), found, count });
        }
        // What was allocated by whom is in everybody's part, and what lived where only in that component's.
        let heads: Vec<Head> =
            (0..count).map(|rank| open(rank, number).map(|part| part.head)).collect::<Result<_, _>>()?;
        let own = &heads[self.rank() as usize];
        let damaged = |what| CheckpointError::Damaged { path: file_of(directory, self.rank(), number), what };
        let is_in_its_part = {
            let mut engine = self.runtime().lock();
            for allocation in &own.holdings.allocations {
                engine
                    .reinstall(*allocation)
                    .map_err(|()| damaged("its allocations cannot be made again"))?;
            }
            for head in &heads {
                for (offset, extents) in &head.holdings.homes {
                    extents.iter().for_each(|&extent| engine.rehome(*offset, extent, head.rank));
                }
            }
            engine.together.clone_from(&own.holdings.together);
            engine.generation = own.generation;
            // Where all share the page frames, it does not matter who fills them.
            engine.core.imports || own.leads == engine.leads()
        };
        let of_ours = |allocation: &&Allocation| allocation.creator == self.rank();
        own.holdings.allocations.iter().filter(of_ours).for_each(|allocation| self.count_as_used(allocation));
        let generations = own.holdings.generations();
        let mut written = self.written();
        *written = Written { number, ..Written::default() };
        let parts = if is_in_its_part { self.rank()..self.rank() + 1 } else { 0..count };
        for rank in parts {
            let mut chain = vec![number];
            while let Some(before) = open(rank, chain[chain.len() - 1])?.head.before {
                chain.push(before);
            }
            if is_in_its_part {
                written.chain = chain.len() as u64;
            }
            for &number in chain.iter().rev() {
                let mut part = open(rank, number)?;
                let then = part.head.holdings.generations();
                while let Some((frame, content)) = part.next()? {
                    let of = then.range(..=frame).next_back();
                    // What stood there then may have been freed since.
                    let Some((offset, generation)) =
                        of.filter(|&(offset, generation)| generations.get(offset) == Some(generation))
                    else {
                        continue;
                    };
                    if self.runtime().lock().refill(*offset, frame, &content) {
                        written.pages.insert(frame, (*generation, fold(&content)));
                    }
                }
            }
        }
        Ok(())
    }
}

/// A component's file.
fn open_part(directory: &Path, rank: u32, number: u64) -> Result<Reader<Head>, CheckpointError> {
    let reader = Reader::<Head>::open(file_of(directory, rank, number), *MAGIC, |head| head.pages)?;
    let head = &reader.head;
    let is_itself = (head.rank, head.number) == (rank, number);
    if !is_itself || rank >= head.count || head.before.is_some_and(|before| before >= number) {
        return Err(reader.damaged("it is another component's, or of another checkpoint"));
    }
    Ok(reader)
}

/// A page that lives with this component.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnPage {
    /// Where its content is among the page frames.
    pub(crate) frame: u64,
    pub(crate) layout: Layout,
    pub(crate) generation: u32,
}

impl OwnPage {
    /// The allocation that it is of.
    pub(crate) fn offset(&self) -> u64 {
        self.layout.offset()
    }

    /// Which block it is in; of those smaller than a page, the first in it.
    pub(crate) fn block(&self) -> u64 {
        (self.frame - self.layout.offset()) / self.layout.block_bytes() as u64
    }

    /// Where threads find what stands so far behind its beginning.
    fn address_at(&self, at: u64) -> Option<usize> {
        let behind = self.frame - self.layout.offset() + at;
        let block_bytes = self.layout.block_bytes() as u64;
        let block = behind / block_bytes;
        let within = usize::try_from(behind % block_bytes).ok()?;
        debug_assert!(self.layout.grain() != Grain::Minipages || within == 0);
        (block < self.layout.blocks()).then(|| self.layout.address(Block(block)) + within)
    }
}

/// What stands in a component's part besides pages.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Holdings {
    /// All that is allocated, by anybody.
    pub(crate) allocations: Vec<Allocation>,
    /// Which of them were allocated together, in their order.
    pub(crate) together: Vec<u64>,
    /// Extents of each allocation that live with this component, where no rule says so.
    pub(crate) homes: Vec<(u64, Vec<u64>)>,
}

impl Holdings {
    fn generations(&self) -> BTreeMap<u64, u32> {
        self.allocations.iter().map(|allocation| (allocation.offset, allocation.generation)).collect()
    }
}
