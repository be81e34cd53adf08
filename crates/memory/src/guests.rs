//! Other processes of this host that have frames of this one mapped. Each has handed over a descriptor by which entries in its page tables are made,
//! marked against stores and found gone, without its help: any touch of a page without an entry is stopped there, and so is a store to a marked one.

use std::collections::BTreeMap;
use std::ops::Range;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::process::{Signal, pidfd_send_signal};

use crate::memory::MemoryError;
use crate::space::{PAGE_BYTES, index};
use crate::userfaultfd::Userfaultfd;

/// A guest whose mappings change all the time cannot be fenced in. It has so many tries, then it is killed.
const FENCING_TRIES: usize = 100_000;

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

    /// A guest is no more. It may not store any more, whatever it believes.
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
        if let Some(guest) = self.guests.get_mut(&number) {
            guest.is_dismissed = true;
        }
        self.forget_dead();
    }

    /// Guards of processes that are gone are closed: while one lives, that would let it store.
    pub fn forget_dead(&mut self) {
        self.guests.retain(|_, guest| {
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
                    return Err(MemoryError::from_frames("show frames to another process", source));
                }
            }
        }
        Ok(())
    }

    /// No guest may store to a range any more. When it returns, none does.
    pub fn revoke(&mut self, range: &Range<u64>) {
        let granted: Vec<u64> = self.writers.range(range.clone()).map(|(&at, _)| at).collect();
        for at in granted {
            let grant = self.writers.remove(&at).expect("just seen");
            for &number in &grant.to {
                self.fence(number, at, grant.bytes);
            }
        }
    }

    /// A guest may not store to a range. If that cannot be had, it ends.
    fn fence(&self, number: u32, at: u64, bytes: u64) {
        let Some(guest) = self.guests.get(&number) else { return };
        let address = guest.address + index(at);
        let fenced = protect(&guest.guard, address, index(bytes), true);
        if !matches!(fenced, Ok(()) | Err(Errno::SRCH)) {
            // If it has unmapped a part, the kernel says so and leaves the rest alone.
            for page in (0..index(bytes)).step_by(PAGE_BYTES) {
                guest.fence_page(address + page);
            }
        }
    }
}

impl Guest {
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
