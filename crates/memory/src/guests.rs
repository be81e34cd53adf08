//! Other processes of this host that have frames of this one mapped. Each has handed over a descriptor by which entries in its page tables are made,
//! marked against stores and found gone, without its help: any touch of a page without an entry is stopped there, and so is a store to a marked one.

use std::collections::BTreeMap;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Signal, pidfd_send_signal};

use crate::memory::MemoryError;
use crate::space::{PAGE_BYTES, index};
use crate::userfaultfd::Userfaultfd;

/// A guest whose mappings change cannot be fenced in until they have changed: the kernel says EAGAIN. What a program does to its own memory takes
/// microseconds; who moves what is guarded never gets done with it (see [`Userfaultfd::open_guard`]). It has so long, then it is killed.
const FENCE_LIMIT: Duration = Duration::from_millis(20);

/// Who may load and store to which of some frames, outside this process. Ranges count from the first frame.
#[derive(Debug, Default)]
pub struct Guests {
    guests: BTreeMap<u32, Guest>,
    /// By the beginning of what was granted: to whom.
    writers: BTreeMap<u64, Grant>,
}

#[derive(Debug)]
struct Grant {
    bytes: u64,
    to: Vec<u32>,
}

#[derive(Debug)]
struct Guest {
    guard: Userfaultfd,
    /// Where it has the first frame.
    address: usize,
    process: OwnedFd,
    /// It has said goodbye, or was cut off. While its process lives, its pages stay marked.
    is_dismissed: bool,
}

/// Why a guest is not let in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the descriptor that was handed over does not guard the importer's memory: {0}")]
pub struct NoGuard(Errno);

impl Guests {
    /// A new guest has the first frame at `address`. Its number is its own among those that live. What it has mapped there, it has registered with
    /// the descriptor, or will have before anything of it is shown.
    pub fn admit(&mut self, number: u32, guard: OwnedFd, address: usize, process: OwnedFd) {
        let guard = Userfaultfd::of_another(guard);
        self.guests.insert(number, Guest { guard, address, process, is_dismissed: false });
    }

    /// Whether pages of a guest are guarded: of memory that is not registered as it should be, the kernel refuses to mark them.
    pub(crate) fn check(&self, number: u32, pages: [u64; 2]) -> Result<(), NoGuard> {
        let guest = &self.guests[&number];
        pages.into_iter().try_for_each(|at| {
            protect(&guest.guard, guest.address + index(at), PAGE_BYTES, true).map_err(NoGuard)
        })
    }

    /// Forgets a guest that was not let in.
    pub(crate) fn turn_away(&mut self, number: u32) {
        self.guests.remove(&number);
    }

    /// What second references are made of: each guest's number, its guard and its process, and where it has the first frame.
    pub fn guards(&self) -> impl Iterator<Item = (u32, BorrowedFd<'_>, BorrowedFd<'_>, usize)> {
        self.guests
            .iter()
            .map(|(&number, guest)| (number, guest.guard.as_fd(), guest.process.as_fd(), guest.address))
    }

    /// How many there are, be it that they were dismissed.
    pub fn len(&self) -> usize {
        self.guests.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.guests.is_empty()
    }

    /// Whether there is such a guest.
    pub fn has(&self, number: u32) -> bool {
        self.guests.contains_key(&number)
    }

    /// How many pieces guests may store to.
    pub fn grants(&self) -> usize {
        self.writers.len()
    }

    /// The beginnings of what a guest may store to.
    pub fn granted_to(&self, number: u32) -> impl Iterator<Item = u64> + '_ {
        self.writers.iter().filter(move |(_, grant)| grant.to.contains(&number)).map(|(&at, _)| at)
    }

    /// A guest is no more. It may not store any more, whatever it believes.
    pub fn dismiss(&mut self, number: u32) {
        let mut runs = Runs::default();
        self.writers.retain(|&at, grant| {
            if grant.to.contains(&number) {
                grant.to.retain(|&to| to != number);
                runs.add(&self.guests, number, at..at + grant.bytes);
            }
            !grant.to.is_empty()
        });
        runs.fence(&self.guests);
        if let Some(guest) = self.guests.get_mut(&number) {
            guest.is_dismissed = true;
        }
        self.forget_dead();
    }

    /// Nobody may store, nor is shown anything, any more.
    pub(crate) fn dismiss_all(&mut self) {
        self.revoke(&(0..u64::MAX));
        self.guests.values_mut().for_each(|guest| guest.is_dismissed = true);
        self.forget_dead();
    }

    /// Guards of processes that are gone are closed: while one lives, that would let it store. Who moves guarded memory is ended.
    pub fn forget_dead(&mut self) {
        self.guests.retain(|_, guest| {
            // Of no page: that changes nothing, and is told whether mappings change.
            if protect(&guest.guard, guest.address, 0, true) == Err(Errno::AGAIN) {
                guest.end();
            }
            let lives = || protect(&guest.guard, guest.address, PAGE_BYTES, true) != Err(Errno::SRCH);
            !guest.is_dismissed || lives()
        });
    }

    /// Lets a guest load a range, all of which has frames.
    pub fn show(&self, number: u32, range: &Range<u64>) -> Result<(), MemoryError> {
        self.enter(number, range, true)
    }

    /// Lets a guest store to a piece, which has frames. The same piece is always granted whole.
    pub fn grant(&mut self, number: u32, range: &Range<u64>) -> Result<(), MemoryError> {
        if self.guests.get(&number).is_none_or(|guest| guest.is_dismissed) {
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
    fn enter(&self, number: u32, range: &Range<u64>, is_protected: bool) -> Result<(), MemoryError> {
        let guest = self.guests.get(&number).filter(|guest| !guest.is_dismissed);
        let Some(Guest { guard, address, .. }) = guest else { return Ok(()) };
        let (at, bytes) = (index(range.start), index(range.end - range.start));
        let (address, mut done, mut patience) = (address + at, 0, Patience::default());
        while done < bytes {
            let page = address + done;
            match guard.try_map(page, bytes - done, is_protected) {
                (Ok(()), _) => break,
                (Err(Errno::AGAIN), mapped) if mapped > 0 || patience.lasts() => done += mapped,
                (Err(Errno::EXIST), _) => {
                    if !is_protected {
                        let _ = protect(guard, page, PAGE_BYTES, false);
                    }
                    done += PAGE_BYTES;
                }
                // Who is gone, or has unmapped it, does nothing there.
                (Err(Errno::SRCH | Errno::NOENT | Errno::AGAIN), _) => break,
                (Err(source), _) => {
                    return Err(MemoryError::from_frames("show frames to another process", source));
                }
            }
        }
        Ok(())
    }

    /// No guest may store to a range any more. When it returns, none does.
    pub fn revoke(&mut self, range: &Range<u64>) {
        let mut runs = Runs::default();
        for (at, grant) in self.writers.extract_if(range.clone(), |_, _| true) {
            for &number in &grant.to {
                runs.add(&self.guests, number, at..at + grant.bytes);
            }
        }
        runs.fence(&self.guests);
    }
}

/// Pieces that lie in a row, of one guest each: to fence one of a thousand pages takes the kernel a tenth of what a thousand of one take.
#[derive(Default)]
struct Runs(Vec<(u32, Range<u64>)>);

impl Runs {
    /// Pieces come in the order of their places.
    fn add(&mut self, guests: &BTreeMap<u32, Guest>, number: u32, piece: Range<u64>) {
        match self.0.iter_mut().find(|(of, _)| *of == number) {
            Some((_, run)) if run.end == piece.start => run.end = piece.end,
            Some((_, run)) => fence(guests, number, &std::mem::replace(run, piece)),
            None => self.0.push((number, piece)),
        }
    }

    fn fence(self, guests: &BTreeMap<u32, Guest>) {
        self.0.into_iter().for_each(|(number, run)| fence(guests, number, &run));
    }
}

/// A guest may not store to a range. If that cannot be had, it ends.
fn fence(guests: &BTreeMap<u32, Guest>, number: u32, range: &Range<u64>) {
    let Some(guest) = guests.get(&number) else { return };
    let (address, bytes) = (guest.address + index(range.start), index(range.end - range.start));
    match protect(&guest.guard, address, bytes, true) {
        Ok(()) | Err(Errno::SRCH) => {}
        // It has unmapped a part: the kernel says so, and leaves the rest alone.
        Err(Errno::NOENT) => guest.fence_pages(address, bytes),
        Err(_) => guest.end(),
    }
}

impl Guest {
    fn fence_pages(&self, address: usize, bytes: usize) {
        for page in (address..address + bytes).step_by(PAGE_BYTES) {
            match protect(&self.guard, page, PAGE_BYTES, true) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(Errno::SRCH) => return,
                Err(_) => return self.end(),
            }
        }
    }

    /// Returns when no thread of it runs any more, however long that takes: until then it could store.
    fn end(&self) {
        let _ = pidfd_send_signal(&self.process, Signal::KILL);
        while self.guard.try_write_protect(self.address, PAGE_BYTES, true) != Err(Errno::SRCH) {
            // Its memory is gone some microseconds later.
            std::thread::yield_now();
        }
    }
}

fn protect(guard: &Userfaultfd, address: usize, bytes: usize, is_protected: bool) -> Result<(), Errno> {
    let mut patience = Patience::default();
    loop {
        match guard.try_write_protect(address, bytes, is_protected) {
            Err(Errno::AGAIN | Errno::INTR) if patience.lasts() => {}
            outcome => return outcome,
        }
    }
}

/// How long somebody is waited for whose mappings change: the clock is read only when they do.
#[derive(Default)]
struct Patience(Option<Instant>);

impl Patience {
    fn lasts(&mut self) -> bool {
        std::thread::yield_now();
        self.0.get_or_insert_with(Instant::now).elapsed() < FENCE_LIMIT
    }
}

/// Which pages of a file have something, a bit each. Takes memory for the parts that have.
#[derive(Debug, Default)]
pub struct Pages(BTreeMap<u64, [u64; (EXTENT_PAGES / 64) as usize]>);

/// Pages that are noted together.
const EXTENT_PAGES: u64 = 512;

impl Pages {
    /// Whether a page has it.
    pub fn has(&self, page: u64) -> bool {
        let (extent, word, bit) = place(page);
        self.0.get(&extent).is_some_and(|bits| bits[word] & bit != 0)
    }

    /// From now on these pages have it, or have it not.
    pub fn note(&mut self, pages: Range<u64>, has: bool) {
        for page in pages {
            let (extent, word, bit) = place(page);
            if has {
                self.0.entry(extent).or_default()[word] |= bit;
            } else if let Some(bits) = self.0.get_mut(&extent) {
                bits[word] &= !bit;
            }
        }
    }

    /// No page of a range has it any more, however long that is.
    pub fn forget(&mut self, pages: Range<u64>) {
        let whole = pages.start.div_ceil(EXTENT_PAGES)..pages.end / EXTENT_PAGES;
        if whole.is_empty() {
            return self.note(pages, false);
        }
        self.note(pages.start..whole.start * EXTENT_PAGES, false);
        self.note(whole.end * EXTENT_PAGES..pages.end, false);
        self.0.retain(|extent, _| !whole.contains(extent));
    }
}

/// Where a page is noted.
fn place(page: u64) -> (u64, usize, u64) {
    let within = page % EXTENT_PAGES;
    (page / EXTENT_PAGES, index(within / 64), 1 << (within % 64))
}
