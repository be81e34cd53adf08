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
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use comb_coherence::Block;
use comb_memory::{Grain, Layout};
use serde::{Deserialize, Serialize};

use crate::synchronise::Combine;
use crate::task::{Checkpoint, Task};
use crate::terms::Allocation;

const PAGE: usize = 4096;
const MAGIC: &[u8; 8] = b"combmem1";
/// After so many files that hold changes alone, one holds all.
const LONGEST_CHAIN: u64 = 8;

/// Why there is no checkpoint, or no beginning from one.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// Nobody said where.
    #[error("no directory for checkpoints was named: comb run --checkpoint DIRECTORY")]
    NoDirectory,
    /// The system refuses.
    #[error("{doing} {path}: {source}")]
    System {
        /// What was tried.
        doing: &'static str,
        /// With which file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// Another component has failed.
    #[error("component {0} could not write its part; the checkpoint before this one is still valid")]
    Other(u64),
    /// Another component has failed.
    #[error("component {0} could not read its part of the checkpoint")]
    OtherRead(u64),
    /// There is none.
    #[error("there is no checkpoint in {0}: the file `current` is missing")]
    Nothing(PathBuf),
    /// It is no checkpoint's file, or a damaged one.
    #[error("{path} is damaged: {what}")]
    Damaged {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        what: &'static str,
    },
    /// Of a task of another shape.
    #[error(
        "the checkpoint in {path} is of {found} components, and this task has {count}: start as many as then"
    )]
    Count {
        /// Where.
        path: PathBuf,
        /// Then.
        found: u32,
        /// Now.
        count: u32,
    },
}

fn system<'a>(doing: &'static str, path: &'a Path) -> impl FnOnce(std::io::Error) -> CheckpointError + 'a {
    move |source| CheckpointError::System { doing, path: path.to_owned(), source }
}

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

/// A number for a page's content: two lanes of multiply and fold.
fn fold(bytes: &[u8]) -> u64 {
    let mix = |lane: u64, word: u64| {
        let product = u128::from(lane ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835);
        #[expect(clippy::cast_possible_truncation, reason = "both halves are used")]
        let folded = product as u64 ^ (product >> 64) as u64;
        folded.rotate_left(23)
    };
    let (mut one, mut other) = (0x243F_6A88_85A3_08D3, 0x1319_8A2E_0370_7344);
    for pair in bytes.as_chunks::<16>().0 {
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|index| pair[at + index]));
        (one, other) = (mix(one, word(0)), mix(other, word(8)));
    }
    let rest = bytes.len() % 16;
    for &byte in &bytes[bytes.len() - rest..] {
        one = mix(one, u64::from(byte) + 1);
    }
    mix(one, other) ^ bytes.len() as u64
}

fn file_of(directory: &Path, rank: u32, number: u64) -> PathBuf {
    directory.join(format!("{rank}.{number}.pages"))
}

/// Writes, and makes a number of all that was written.
struct Summed<W> {
    to: W,
    sum: u64,
}

impl<W: Write> Summed<W> {
    fn put(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.sum = self.sum.rotate_left(1) ^ fold(bytes);
        self.to.write_all(bytes)
    }
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
        let (holdings, generation) = {
            let engine = self.runtime().lock();
            (engine.holdings(&own_pages), engine.generation)
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
            holdings,
            pages: changed.len() as u64,
        };
        let mut write = || -> std::io::Result<()> {
            let file = File::create(&path)?;
            let mut out = Summed { to: BufWriter::with_capacity(1 << 20, &file), sum: 0 };
            let head = postcard::to_stdvec(&head).map_err(std::io::Error::other)?;
            out.put(MAGIC)?;
            out.put(&(head.len() as u64).to_le_bytes())?;
            out.put(&head)?;
            for place in &changed {
                self.copy_page(place, &mut content);
                out.put(&place.frame.to_le_bytes())?;
                out.put(&content)?;
            }
            let sum = out.sum;
            out.to.write_all(&sum.to_le_bytes())?;
            out.to.flush()?;
            drop(out);
            file.sync_all()
        };
        write().map_err(system("cannot write", &path))?;
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
        let open = |rank, number| Part::open(directory, rank, number);
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
        {
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
        }
        let of_ours = |allocation: &&Allocation| allocation.creator == self.rank();
        own.holdings.allocations.iter().filter(of_ours).for_each(|allocation| self.count_as_used(allocation));
        let generations = own.holdings.generations();
        let mut chain = vec![number];
        while let Some(before) = open(self.rank(), chain[chain.len() - 1])?.head.before {
            chain.push(before);
        }
        let mut written = self.written();
        *written = Written { number, chain: chain.len() as u64, pages: BTreeMap::new() };
        for &number in chain.iter().rev() {
            let mut part = open(self.rank(), number)?;
            let then = part.head.holdings.generations();
            while let Some((frame, content)) = part.next()? {
                let of = then.range(..=frame).next_back();
                // What stood there then may have been freed since.
                let Some((offset, generation)) =
                    of.filter(|&(offset, generation)| generations.get(offset) == Some(generation))
                else {
                    continue;
                };
                self.runtime().lock().refill(*offset, frame, &content);
                written.pages.insert(frame, (*generation, fold(&content)));
            }
        }
        Ok(())
    }
}

/// The number of the checkpoint that is valid.
fn current(directory: &Path) -> Result<u64, CheckpointError> {
    let path = directory.join("current");
    let text = std::fs::read_to_string(&path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => CheckpointError::Nothing(directory.to_owned()),
        _ => system("cannot read", &path)(error),
    })?;
    text.trim().parse().map_err(|_| CheckpointError::Damaged { path, what: "it holds no number" })
}

/// From now on this one is valid.
fn name(directory: &Path, number: u64) -> Result<(), CheckpointError> {
    let (fresh, path) = (directory.join("current.new"), directory.join("current"));
    let write = || -> std::io::Result<()> {
        let mut file = File::create(&fresh)?;
        writeln!(file, "{number}")?;
        file.sync_all()?;
        std::fs::rename(&fresh, &path)?;
        File::open(directory)?.sync_all()
    };
    write().map_err(system("cannot write", &path))
}

/// A component's file, as it is read.
struct Part {
    path: PathBuf,
    from: BufReader<File>,
    head: Head,
    left: u64,
    sum: u64,
}

impl Part {
    fn open(directory: &Path, rank: u32, number: u64) -> Result<Self, CheckpointError> {
        let path = &file_of(directory, rank, number);
        let file = File::open(path).map_err(system("cannot read", path))?;
        let file_bytes = file.metadata().map_err(system("cannot read", path))?.len();
        let damaged = |what| CheckpointError::Damaged { path: path.clone(), what };
        let mut from = BufReader::with_capacity(1 << 20, file);
        let mut sum = 0_u64;
        let mut take = |bytes: &mut [u8]| {
            from.read_exact(bytes).map_err(|_| damaged("it ends too early"))?;
            sum = sum.rotate_left(1) ^ fold(bytes);
            Ok(())
        };
        let (mut magic, mut length) = ([0; 8], [0; 8]);
        take(&mut magic)?;
        if magic != *MAGIC {
            return Err(damaged("it is no part of a checkpoint"));
        }
        take(&mut length)?;
        let length =
            usize::try_from(u64::from_le_bytes(length)).ok().filter(|&length| length as u64 <= file_bytes);
        let mut head = vec![0; length.ok_or_else(|| damaged("its head has no length that could be"))?];
        take(&mut head)?;
        let head: Head = postcard::from_bytes(&head).map_err(|_| damaged("its head cannot be read"))?;
        let is_itself = (head.rank, head.number) == (rank, number);
        if !is_itself || rank >= head.count || head.before.is_some_and(|before| before >= number) {
            return Err(damaged("it is another component's, or of another checkpoint"));
        }
        let left = head.pages;
        Ok(Self { path: path.clone(), from, head, left, sum })
    }

    /// The next page; after the last, none, if all of them were as they were written.
    fn next(&mut self) -> Result<Option<(u64, Vec<u8>)>, CheckpointError> {
        let damaged = |what| CheckpointError::Damaged { path: self.path.clone(), what };
        let mut take =
            |bytes: &mut [u8]| self.from.read_exact(bytes).map_err(|_| damaged("it ends too early"));
        let mut frame = [0; 8];
        take(&mut frame)?;
        if self.left == 0 {
            return if u64::from_le_bytes(frame) == self.sum {
                Ok(None)
            } else {
                Err(damaged("its sum is wrong"))
            };
        }
        let mut content = vec![0; PAGE];
        take(&mut content)?;
        self.sum = (self.sum.rotate_left(1) ^ fold(&frame)).rotate_left(1) ^ fold(&content);
        self.left -= 1;
        Ok(Some((u64::from_le_bytes(frame), content)))
    }
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
        debug_assert!(self.layout.grain() == Grain::Pages || within == 0);
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
