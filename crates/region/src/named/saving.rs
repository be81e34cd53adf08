//! A region in files: all of it at one moment, or what has changed since the last time.
//!
//! The files are as those of a task's checkpoints, of one component: `0.N.pages`, and `current` names the valid one. A file that holds
//! changes alone names the one before it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::home::Filled;
use super::register::Entry;
use crate::pages_file::{CheckpointError, PAGE, Reader, Writer, current, file_of, name, system};

const MAGIC: [u8; 8] = *b"combreg2";
/// After so many files that hold changes alone, one holds all.
const LONGEST_CHAIN: u64 = 8;

/// What stands before the pages.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Head {
    name: String,
    bytes: u64,
    /// Of which region, among all that ever were: another of the same name begins anew.
    identity: (u32, u64, u32),
    number: u64,
    before: Option<u64>,
    pages: u64,
}

/// What a home remembers of a region's last checkpoint.
#[derive(Clone, Default, Debug)]
pub(crate) struct Saved {
    directory: PathBuf,
    number: u64,
    /// How many files hold what is there; 0: the next is to hold all.
    chain: u64,
}

impl Saved {
    /// Opens it; `None`: there is none.
    pub(crate) fn open(&self) -> Option<Result<Opened, CheckpointError>> {
        (self.chain > 0).then(|| {
            let opened = Opened::open(&self.directory)?;
            let is_ours = opened.chain.first() == Some(&self.number);
            let path = || file_of(&self.directory, 0, self.number);
            if is_ours {
                Ok(opened)
            } else {
                Err(CheckpointError::Damaged { path: path(), what: "another has taken its place" })
            }
        })
    }

    /// The next one holds all again.
    pub(crate) fn begin_anew(&mut self) {
        self.chain = self.chain.min(1) * LONGEST_CHAIN;
    }

    /// Where it is, for who comes after this home.
    pub(crate) fn place(&self) -> Option<&Path> {
        (self.chain > 0).then_some(&*self.directory)
    }
}

/// A checkpoint that is being written.
pub(crate) struct Saving {
    writer: Option<Writer>,
    saved: Saved,
    head: Head,
    block_bytes: u64,
    frame_bytes: u64,
    put: u64,
    /// What it holds, for who has to begin again.
    blocks: BTreeSet<u64>,
}

impl Saving {
    pub(crate) fn begin(directory: &Path, entry: &Entry, last: &Saved) -> Result<Self, CheckpointError> {
        std::fs::create_dir_all(directory).map_err(system("cannot make", directory))?;
        let there = current(directory).unwrap_or(0);
        let goes_on =
            last.directory == directory && last.number == there && (1..LONGEST_CHAIN).contains(&last.chain);
        let number = there.max(last.number) + 1;
        let chain = if goes_on { last.chain + 1 } else { 1 };
        let layout = entry.allocation.layout().expect("of a region that there is");
        let head = Head {
            name: entry.name.clone(),
            bytes: entry.allocation.bytes,
            identity: (entry.cell, entry.incarnation, entry.allocation.generation),
            number,
            before: goes_on.then_some(last.number),
            pages: 0,
        };
        Ok(Self {
            writer: None,
            saved: Saved { directory: directory.to_owned(), number, chain },
            head,
            block_bytes: layout.block_bytes() as u64,
            frame_bytes: layout.frame_bytes(),
            put: 0,
            blocks: BTreeSet::new(),
        })
    }

    /// Whether it is to hold all that was ever stored, and not changes alone.
    pub(crate) fn is_whole(&self) -> bool {
        self.head.before.is_none()
    }

    fn pages_of(&self, block: u64) -> u64 {
        let begin = block * self.block_bytes;
        ((begin + self.block_bytes).min(self.frame_bytes) - begin) / PAGE as u64
    }

    /// These blocks it will hold.
    pub(crate) fn announce(&mut self, blocks: BTreeSet<u64>) {
        self.head.pages = blocks.iter().map(|&block| self.pages_of(block)).sum();
        self.blocks = blocks;
    }

    pub(crate) fn put(&mut self, block: u64, content: &[u8]) -> Result<(), CheckpointError> {
        let pages = self.pages_of(block);
        let begin = block * self.block_bytes;
        let writer = self.writer()?;
        let places = (begin..begin + pages * PAGE as u64).step_by(PAGE);
        for (place, page) in places.zip(content.as_chunks::<PAGE>().0) {
            writer.put(place, page)?;
        }
        self.put += pages;
        Ok(())
    }

    fn writer(&mut self) -> Result<&mut Writer, CheckpointError> {
        if self.writer.is_none() {
            let path = file_of(&self.saved.directory, 0, self.saved.number);
            self.writer = Some(Writer::begin(path, MAGIC, &self.head)?);
        }
        Ok(self.writer.as_mut().expect("just made"))
    }

    /// It is valid from now on: what is to be remembered, its number, and how many pages it holds.
    pub(crate) fn finish(&mut self) -> Result<(Saved, u64, u64), CheckpointError> {
        self.writer()?;
        self.writer.take().expect("just made").finish()?;
        debug_assert_eq!(self.put, self.head.pages);
        let Saved { directory, number, chain } = &self.saved;
        name(directory, *number)?;
        let oldest = number + 1 - chain;
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            let file = entry.file_name();
            let old =
                file.to_str().and_then(|file| file.strip_prefix("0.")?.strip_suffix(".pages")?.parse().ok());
            if old.is_some_and(|old: u64| old < oldest) {
                // A file too much is no harm.
                let _ = std::fs::remove_file(entry.path());
            }
        }
        Ok((self.saved.clone(), *number, self.put))
    }

    /// What it was to hold.
    pub(crate) fn blocks(&self) -> BTreeSet<u64> {
        self.blocks.clone()
    }
}

/// A checkpoint that a region is to be made from.
pub(crate) struct Opened {
    directory: PathBuf,
    chain: Vec<u64>,
    bytes: u64,
}

impl Opened {
    pub(crate) fn open(directory: &Path) -> Result<Self, CheckpointError> {
        let mut number = current(directory)?;
        let mut chain = vec![number];
        let first = open(directory, number)?;
        let (bytes, mut before) = (first.head.bytes, first.head.before);
        while let Some(next) = before {
            let reader = open(directory, next)?;
            if next >= number || reader.head.bytes != bytes || reader.head.identity != first.head.identity {
                return Err(reader.damaged("it is of another region"));
            }
            number = next;
            chain.push(number);
            before = reader.head.before;
        }
        Ok(Self { directory: directory.to_owned(), chain, bytes })
    }

    /// How long the region was.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// As the last checkpoint of a region that is made from it.
    pub(crate) fn as_saved(&self) -> Saved {
        Saved { directory: self.directory.clone(), number: self.chain[0], chain: LONGEST_CHAIN }
    }

    /// Puts it all into a region that nobody has seen yet.
    pub(crate) fn fill(&self, into: &mut impl Filled) -> Result<(), CheckpointError> {
        for &number in self.chain.iter().rev() {
            let mut reader = open(&self.directory, number)?;
            while let Some((place, content)) = reader.next()? {
                if place % PAGE as u64 != 0 || place >= self.bytes {
                    return Err(reader.damaged("a page that is beyond the region"));
                }
                into.refill(place, &content);
            }
        }
        Ok(())
    }
}

fn open(directory: &Path, number: u64) -> Result<Reader<Head>, CheckpointError> {
    let reader = Reader::<Head>::open(file_of(directory, 0, number), MAGIC, |head| head.pages)?;
    if reader.head.number != number {
        return Err(reader.damaged("it is of another checkpoint"));
    }
    Ok(reader)
}
