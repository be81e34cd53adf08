//! The home's side of memory that other processes of its host import: frames, and who may do what with them.
//!
//! The home has a descriptor by which the kernel marks pages in the importer's mappings, and acts without the importer's help:
//!
//! | importers may | frames | marks |
//! |---|---|---|
//! | load and store | there | none, of those to whom a store was granted |
//! | load | there, or not yet | on every page of an opened extent |
//! | nothing | taken out of the file; the content is kept aside | the same |
//!
//! An extent is opened before any page of it gets a frame, for a page with a frame and without a mark would let stores through. What was
//! never opened costs nothing: there a touch is stopped because there is no frame.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::process::{Signal, pidfd_send_signal};

use crate::frames::Frames;
use crate::memory::MemoryError;
use crate::space::{PAGE_BYTES, index};
use crate::userfaultfd::Userfaultfd;

/// Pages that are marked together.
const EXTENT_BYTES: u64 = 2 << 20;
/// An importer whose mappings change all the time cannot be fenced in. It has so many tries, then it is killed.
const FENCING_TRIES: usize = 100_000;

/// Frames that others import. Offsets count from their beginning; ranges are of whole pages.
#[derive(Debug)]
pub struct Exports {
    frames: Frames,
    bytes: u64,
    /// Extents with frames, or that had some.
    opened: BTreeSet<u64>,
    importers: BTreeMap<u32, Importer>,
    /// By the beginning of what was granted: to whom.
    writers: BTreeMap<u64, Grant>,
    /// What nobody may see, by its place.
    aside: BTreeMap<u64, Box<[u8]>>,
}

#[derive(Debug)]
struct Grant {
    bytes: u64,
    to: Vec<u32>,
}

#[derive(Debug)]
struct Importer {
    guard: Userfaultfd,
    /// Where it has the first frame.
    address: usize,
    process: OwnedFd,
    /// It has said goodbye, or was cut off. While its process lives, its pages stay marked.
    is_dismissed: bool,
}

/// Why an importer is not let in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the descriptor that was handed over does not guard the importer's memory: {0}")]
pub struct NoGuard(Errno);

impl Exports {
    /// Makes frames for so many bytes, which are whole pages. They cost nothing until they are touched.
    pub fn create(bytes: u64) -> Result<Self, MemoryError> {
        let frames = Frames::create_of(bytes)?;
        Ok(Self {
            frames,
            bytes,
            opened: BTreeSet::new(),
            importers: BTreeMap::new(),
            writers: BTreeMap::new(),
            aside: BTreeMap::new(),
        })
    }

    /// What importers map.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.frames.file()
    }

    /// Guards a new importer's memory, which begins at `address` there. Its number is its own among those that live.
    pub fn admit(
        &mut self,
        number: u32,
        guard: OwnedFd,
        address: usize,
        process: OwnedFd,
    ) -> Result<(), NoGuard> {
        let guard = Userfaultfd::of_another(guard);
        // Of memory that is not registered as it should be, the kernel refuses this.
        let end = address + index(self.bytes) - PAGE_BYTES;
        for page in [address, end] {
            protect(&guard, page, PAGE_BYTES, true).map_err(NoGuard)?;
        }
        let importer = Importer { guard, address, process, is_dismissed: false };
        for range in runs(self.opened.iter().copied()) {
            let (at, bytes) = self.span(&(range.start..range.end.min(self.bytes)));
            protect(&importer.guard, importer.address + at, bytes, true).map_err(NoGuard)?;
        }
        self.importers.insert(number, importer);
        Ok(())
    }

    /// An importer is no more. It may not store any more, whatever it believes.
    pub fn dismiss(&mut self, number: u32) {
        let granted: Vec<u64> =
            self.writers.iter().filter(|(_, grant)| grant.to.contains(&number)).map(|(&at, _)| at).collect();
        for at in granted {
            let grant = self.writers.get_mut(&at).expect("just seen");
            grant.to.retain(|&to| to != number);
            let bytes = grant.bytes;
            if grant.to.is_empty() {
                self.writers.remove(&at);
            }
            self.fence(number, at, bytes);
        }
        if let Some(importer) = self.importers.get_mut(&number) {
            importer.is_dismissed = true;
        }
        self.forget_dead();
    }

    /// Guards of processes that are gone are closed: while one lives, that would let it store.
    pub fn forget_dead(&mut self) {
        self.importers.retain(|_, importer| {
            let lives = || protect(&importer.guard, importer.address, PAGE_BYTES, true) != Err(Errno::SRCH);
            !importer.is_dismissed || lives()
        });
    }

    /// Memory that the frames take.
    pub fn resident_bytes(&self) -> u64 {
        rustix::fs::fstat(self.frames.file())
            .map_or(0, |status| u64::try_from(status.st_blocks).unwrap_or(0) * 512)
    }

    /// How many processes may look at the frames, be it that they were dismissed.
    pub fn importers(&self) -> usize {
        self.importers.len()
    }

    /// How many pieces importers may store to.
    pub fn grants(&self) -> usize {
        self.writers.len()
    }

    /// Gives pages frames, of zeros where there were none.
    pub fn populate(&mut self, range: Range<u64>) -> Result<(), MemoryError> {
        self.open(&range);
        self.frames
            .populate(range.start, index(range.end - range.start))
            .map_err(|source| MemoryError::from_frames("make frames for other cells", source))
    }

    /// Lets an importer store to a piece. The same piece is always granted whole.
    pub fn grant(&mut self, number: u32, range: Range<u64>) -> Result<(), MemoryError> {
        self.populate(range.clone())?;
        let (at, bytes) = self.span(&range);
        let Some(importer) = self.importers.get(&number).filter(|importer| !importer.is_dismissed) else {
            return Ok(());
        };
        // Before it holds: what was granted is never forgotten.
        let grant = self.writers.entry(range.start).or_insert(Grant { bytes: bytes as u64, to: Vec::new() });
        if !grant.to.contains(&number) {
            grant.to.push(number);
        }
        // Who is gone, or has unmapped it, stores nothing.
        let _ = protect(&importer.guard, importer.address + at, bytes, false);
        Ok(())
    }

    /// Nobody may store to a range any more. When it returns, nobody does.
    pub fn revoke(&mut self, range: &Range<u64>) {
        let granted: Vec<u64> = self.writers.range(range.clone()).map(|(&at, _)| at).collect();
        for at in granted {
            let grant = self.writers.remove(&at).expect("just seen");
            for &number in &grant.to {
                self.fence(number, at, grant.bytes);
            }
        }
    }

    /// Nobody may see a piece any more: its content is kept aside.
    pub fn take(&mut self, range: &Range<u64>) -> Result<(), MemoryError> {
        self.revoke(range);
        let mut content = vec![0; index(range.end - range.start)].into_boxed_slice();
        self.copy_out(range.start, &mut content);
        self.frames
            .punch(range.start, range.end - range.start)
            .map_err(|source| MemoryError::System { action: "take frames away", source })?;
        self.aside.insert(range.start, content);
        Ok(())
    }

    /// What is kept aside of a piece is of no use any more.
    pub fn drop_aside(&mut self, at: u64) {
        self.aside.remove(&at);
    }

    /// Bytes that are kept aside.
    pub fn aside_bytes(&self) -> usize {
        self.aside.values().map(|content| content.len()).sum()
    }

    /// A piece that was taken may be seen again, with what is kept aside of it.
    pub fn put_back(&mut self, range: &Range<u64>) {
        if let Some(content) = self.aside.remove(&range.start) {
            self.open(range);
            self.frames.copy_in(range.start, &content);
        }
    }

    /// What stands at a place, seen by importers or kept aside.
    ///
    /// # Panics
    /// If it is beyond the frames, or goes from a piece that was taken into another.
    pub fn copy_out(&mut self, at: u64, into: &mut [u8]) {
        if let Some((begin, content)) = self.kept_aside(at) {
            let from = index(at - begin);
            into.copy_from_slice(&content[from..from + into.len()]);
            return;
        }
        // To look at a page gives it a frame.
        self.open(&(at..at + into.len() as u64));
        self.frames.copy_out(at, into);
    }

    /// Changes what stands at a place.
    ///
    /// # Panics
    /// As [`Exports::copy_out`].
    pub fn copy_in(&mut self, at: u64, content: &[u8]) {
        if let Some((begin, kept)) = self.kept_aside(at) {
            let from = index(at - begin);
            kept[from..from + content.len()].copy_from_slice(content);
            return;
        }
        self.open(&(at..at + content.len() as u64));
        self.frames.copy_in(at, content);
    }

    /// The content of a piece that was taken is this.
    pub fn keep_aside(&mut self, at: u64, content: &[u8]) {
        self.aside.insert(at, content.into());
    }

    fn kept_aside(&mut self, at: u64) -> Option<(u64, &mut [u8])> {
        let (&begin, content) = self.aside.range_mut(..=at).next_back()?;
        (at < begin + content.len() as u64).then_some((begin, content))
    }

    /// Marks the extents of a range in every importer, before anything there gets a frame.
    fn open(&mut self, range: &Range<u64>) {
        for extent in range.start / EXTENT_BYTES..range.end.div_ceil(EXTENT_BYTES) {
            if !self.opened.insert(extent) {
                continue;
            }
            let at = extent * EXTENT_BYTES;
            let bytes = EXTENT_BYTES.min(self.bytes - at);
            let numbers: Vec<u32> = self.importers.keys().copied().collect();
            for number in numbers {
                self.fence(number, at, bytes);
            }
        }
    }

    /// An importer may not store to a range. If that cannot be had, it ends.
    fn fence(&self, number: u32, at: u64, bytes: u64) {
        let Some(importer) = self.importers.get(&number) else { return };
        let address = importer.address + index(at);
        let fenced = protect(&importer.guard, address, index(bytes), true);
        if !matches!(fenced, Ok(()) | Err(Errno::SRCH)) {
            // If it has unmapped a part, the kernel says so and leaves the rest alone.
            for page in (0..index(bytes)).step_by(PAGE_BYTES) {
                importer.fence_page(address + page);
            }
        }
    }

    fn span(&self, range: &Range<u64>) -> (usize, usize) {
        assert!(range.start < range.end && range.end <= self.bytes, "{range:?} of {} bytes", self.bytes);
        (index(range.start), index(range.end - range.start))
    }
}

impl Importer {
    fn fence_page(&self, address: usize) {
        let mut fenced = protect(&self.guard, address, PAGE_BYTES, true);
        while !is_fenced(fenced) {
            let _ = pidfd_send_signal(&self.process, Signal::KILL);
            // Its memory is gone some microseconds later; no thread of it runs any more.
            std::thread::yield_now();
            fenced = protect(&self.guard, address, PAGE_BYTES, true);
        }
    }
}

/// No process, or nothing of ours in it: nobody stores.
fn is_fenced(outcome: Result<(), Errno>) -> bool {
    matches!(outcome, Ok(()) | Err(Errno::SRCH | Errno::NOENT))
}

fn protect(guard: &Userfaultfd, address: usize, bytes: usize, is_protected: bool) -> Result<(), Errno> {
    let mut outcome = Ok(());
    for _ in 0..FENCING_TRIES {
        outcome = guard.try_write_protect(address, bytes, is_protected);
        if !matches!(outcome, Err(Errno::AGAIN | Errno::INTR)) {
            break;
        }
    }
    outcome
}

/// Extents that are neighbours, as ranges of bytes.
fn runs(extents: impl Iterator<Item = u64>) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for extent in extents {
        let (start, end) = (extent * EXTENT_BYTES, (extent + 1) * EXTENT_BYTES);
        match runs.last_mut() {
            Some(last) if last.end == start => last.end = end,
            _ => runs.push(start..end),
        }
    }
    runs
}
