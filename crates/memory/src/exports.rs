//! The home's side of memory that other processes of its host import: frames, and who may do what with them.
//!
//! The home has a descriptor by which it makes and marks entries in the importer's page tables, and needs no help of the importer's:
//!
//! | importers may | frames | entries |
//! |---|---|---|
//! | load and store | there | unmarked, of those to whom a store was granted |
//! | load | there, or not yet | marked, or none until it was asked for |
//! | nothing | taken out of the file; the content is kept aside | none |
//!
//! Any touch of a page without an entry is stopped, whether there is a frame or not: what was not shown is not seen, and no store goes through
//! that was not granted.

use std::collections::BTreeMap;
use std::ops::Range;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::process::{Signal, pidfd_send_signal};

use crate::frames::Frames;
use crate::memory::MemoryError;
use crate::space::{PAGE_BYTES, index};
use crate::userfaultfd::Userfaultfd;

const PAGE: u64 = PAGE_BYTES as u64;

/// Pages whose presence is noted together.
const EXTENT_BYTES: u64 = 2 << 20;
const EXTENT_PAGES: u64 = EXTENT_BYTES / PAGE_BYTES as u64;
/// Who touches a page is shown its neighbours that have frames, as the kernel does it with files.
const AROUND_BYTES: u64 = 64 << 10;
/// An importer whose mappings change all the time cannot be fenced in. It has so many tries, then it is killed.
const FENCING_TRIES: usize = 100_000;

/// Frames that others import. Offsets count from their beginning; ranges are of whole pages.
#[derive(Debug)]
pub struct Exports {
    frames: Frames,
    bytes: u64,
    /// Which pages have frames, a bit each, by extent.
    present: BTreeMap<u64, [u64; (EXTENT_PAGES / 64) as usize]>,
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
            present: BTreeMap::new(),
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
        self.importers.insert(number, Importer { guard, address, process, is_dismissed: false });
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

    /// Lets an importer load a range, which gets frames of zeros where it has none, and what is around and has some: where that ends.
    pub fn show(&mut self, number: u32, range: Range<u64>) -> Result<u64, MemoryError> {
        let around = self.around(&range);
        self.populate(range)?;
        let end = around.end;
        self.enter(number, around, true)?;
        Ok(end)
    }

    /// Lets an importer store to a piece. The same piece is always granted whole.
    pub fn grant(&mut self, number: u32, range: Range<u64>) -> Result<(), MemoryError> {
        self.populate(range.clone())?;
        if self.importers.get(&number).is_none_or(|importer| importer.is_dismissed) {
            return Ok(());
        }
        let bytes = range.end - range.start;
        // Before it holds: what was granted is never forgotten.
        let grant = self.writers.entry(range.start).or_insert(Grant { bytes, to: Vec::new() });
        if !grant.to.contains(&number) {
            grant.to.push(number);
        }
        self.enter(number, range, false)
    }

    /// Makes entries for pages with frames. Where there are some, they are unmarked or left as they are.
    fn enter(&self, number: u32, range: Range<u64>, is_protected: bool) -> Result<(), MemoryError> {
        let importer = self.importers.get(&number).filter(|importer| !importer.is_dismissed);
        let Some(Importer { guard, address, .. }) = importer else { return Ok(()) };
        let (at, bytes) = self.span(&range);
        let (address, mut done, mut tries) = (address + at, 0, 0);
        while done < bytes {
            let page = address + done;
            match guard.try_map(page, bytes - done, is_protected) {
                (Ok(()), _) => break,
                (Err(Errno::AGAIN), mapped) if tries < FENCING_TRIES => {
                    tries += usize::from(mapped == 0);
                    done += mapped;
                }
                (Err(Errno::EXIST), _) => {
                    if !is_protected {
                        let _ = protect(guard, page, PAGE_BYTES, false);
                    }
                    done += PAGE_BYTES;
                }
                // Who is gone, or has unmapped it, does nothing there.
                (Err(Errno::SRCH | Errno::NOENT | Errno::AGAIN), _) => break,
                (Err(source), _) => {
                    return Err(MemoryError::from_frames("show frames to another cell", source));
                }
            }
        }
        Ok(())
    }

    /// Gives pages frames, of zeros where there were none.
    fn populate(&mut self, range: Range<u64>) -> Result<(), MemoryError> {
        let mut pages = range.start / PAGE..range.end.div_ceil(PAGE);
        if pages.all(|page| self.is_present(page)) {
            return Ok(());
        }
        self.frames
            .populate(range.start, index(range.end - range.start))
            .map_err(|source| MemoryError::from_frames("make frames for other cells", source))?;
        self.note(&range, true);
        Ok(())
    }

    fn is_present(&self, page: u64) -> bool {
        let (extent, word, bit) = place(page);
        self.present.get(&extent).is_some_and(|bits| bits[word] & bit != 0)
    }

    fn note(&mut self, range: &Range<u64>, is_present: bool) {
        for page in range.start / PAGE..range.end.div_ceil(PAGE) {
            let (extent, word, bit) = place(page);
            let bits = self.present.entry(extent).or_default();
            bits[word] = if is_present { bits[word] | bit } else { bits[word] & !bit };
        }
    }

    /// A range, with the pages on both sides that have frames, as far as the next multiples of what is shown together.
    fn around(&self, range: &Range<u64>) -> Range<u64> {
        let least = range.start / AROUND_BYTES * AROUND_BYTES;
        let most = range.end.next_multiple_of(AROUND_BYTES).min(self.bytes);
        let has_frame = |&page: &u64| self.is_present(page);
        let (first, end) = (range.start / PAGE, range.end.div_ceil(PAGE));
        let before = (least / PAGE..first).rev().take_while(has_frame).last();
        let behind = (end..most / PAGE).take_while(has_frame).last();
        before.unwrap_or(first) * PAGE..behind.map_or(end, |last| last + 1) * PAGE
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
        self.note(range, false);
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
            self.note(range, true);
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
        self.note(&(at..at + into.len() as u64), true);
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
        self.note(&(at..at + content.len() as u64), true);
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

/// Where a page's presence is noted.
fn place(page: u64) -> (u64, usize, u64) {
    let within = page % EXTENT_PAGES;
    (page / EXTENT_PAGES, index(within / 64), 1 << (within % 64))
}
