//! Other processes of this host that have frames of this one mapped. Each has handed over a descriptor by which entries in its page tables are made,
//! marked against stores and found gone, without its help: any touch of a page without an entry is stopped there, and so is a store to a marked one.
#![expect(unsafe_code, reason = "a list of descriptors that others own")]

use std::collections::BTreeMap;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Signal, pidfd_send_signal};

use crate::memory::MemoryError;
use crate::space::{PAGE_BYTES, index};
use crate::userfaultfd::Userfaultfd;

/// A guest whose mappings change cannot be fenced in until they have changed: the kernel says EAGAIN. What a program does to its own memory takes
/// microseconds; who moves what is guarded never gets done with it (see [`Userfaultfd::open_guard`]). It has so long, then it is killed.
const FENCE_LIMIT: Duration = Duration::from_millis(20);

/// Killed, a process is gone within a millisecond, unless the kernel is busy for it, or another process has the same memory.
const END_LIMIT: Duration = Duration::from_secs(1);

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
    /// It cannot be fenced, nor be ended. Nothing is granted to it.
    is_stray: bool,
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
        self.guests.insert(number, Guest { guard, address, process, is_dismissed: false, is_stray: false });
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

    /// Whether some guest may store to a page.
    pub(crate) fn may_store_to(&self, page: u64) -> bool {
        let before = self.writers.range(..=page).next_back();
        before.is_some_and(|(&at, grant)| page < at + grant.bytes)
    }

    /// Bytes that guests may store to.
    pub fn granted_bytes(&self) -> u64 {
        self.writers.values().map(|grant| grant.bytes).sum()
    }

    /// The beginnings of what a guest may store to.
    pub fn granted_to(&self, number: u32) -> impl Iterator<Item = u64> + '_ {
        self.writers.iter().filter(move |(_, grant)| grant.to.contains(&number)).map(|(&at, _)| at)
    }

    /// A guest is no more. It may not store any more, whatever it believes; but for what is returned: see [`Guests::revoke`].
    #[must_use = "there it may store still"]
    pub fn dismiss(&mut self, number: u32) -> Vec<Range<u64>> {
        let mut runs = Runs::default();
        self.writers.retain(|&at, grant| {
            if grant.to.contains(&number) {
                grant.to.retain(|&to| to != number);
                runs.add(&mut self.guests, number, at..at + grant.bytes);
            }
            !grant.to.is_empty()
        });
        let unfenced = runs.fence(&mut self.guests);
        if let Some(guest) = self.guests.get_mut(&number) {
            guest.is_dismissed = true;
        }
        self.forget_dead();
        unfenced
    }

    /// Nobody may store, nor is shown anything, any more.
    pub(crate) fn dismiss_all(&mut self) {
        // Whatever cannot be revoked is taken away with all frames.
        let _ = self.revoke(&(0..u64::MAX));
        self.guests.values_mut().for_each(|guest| guest.is_dismissed = true);
        self.forget_dead();
    }

    /// Guards of processes that are gone are closed: while one lives, that would let it store. Who moves guarded memory is ended.
    pub fn forget_dead(&mut self) {
        self.guests.retain(|_, guest| {
            // Of no page: that changes nothing, and is told whether mappings change.
            if protect(&guest.guard, guest.address, 0, true) == Err(Errno::AGAIN) {
                guest.kill();
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
        let Some(Guest { guard, address, process, .. }) = guest else { return Ok(()) };
        let _watched = Watched::begin(process);
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

    /// No guest may store to a range any more. When it returns, none does, but for what is returned: who can store there can be neither fenced nor ended, and
    /// whoever has the frames takes them away.
    #[must_use = "there somebody may store still"]
    pub fn revoke(&mut self, range: &Range<u64>) -> Vec<Range<u64>> {
        let mut runs = Runs::default();
        for (at, grant) in self.writers.extract_if(range.clone(), |_, _| true) {
            for &number in &grant.to {
                runs.add(&mut self.guests, number, at..at + grant.bytes);
            }
        }
        let mut unfenced = runs.fence(&mut self.guests);
        if !unfenced.is_empty() {
            self.give_strays_up(&mut unfenced);
        }
        unfenced
    }

    /// What else was granted to who could not be fenced is to be taken away as well.
    fn give_strays_up(&mut self, unfenced: &mut Vec<Range<u64>>) {
        let is_stray = |number: &u32| self.guests.get(number).is_some_and(|guest| guest.is_stray);
        self.writers.retain(|&at, grant| {
            let before = grant.to.len();
            grant.to.retain(|number| !is_stray(number));
            if grant.to.len() < before {
                unfenced.push(at..at + grant.bytes);
            }
            !grant.to.is_empty()
        });
    }
}

/// Pieces that lie in a row, of one guest each: to fence one of a thousand pages takes the kernel a fraction of what a thousand of one take.
#[derive(Default)]
struct Runs {
    open: Vec<(u32, Range<u64>)>,
    unfenced: Vec<Range<u64>>,
}

impl Runs {
    /// Pieces come in the order of their places.
    fn add(&mut self, guests: &mut BTreeMap<u32, Guest>, number: u32, piece: Range<u64>) {
        match self.open.iter_mut().find(|(of, _)| *of == number) {
            Some((_, run)) if run.end == piece.start => run.end = piece.end,
            Some((_, run)) => {
                let run = std::mem::replace(run, piece);
                self.fence_one(guests, number, run);
            }
            None => self.open.push((number, piece)),
        }
    }

    /// What could not be fenced.
    fn fence(mut self, guests: &mut BTreeMap<u32, Guest>) -> Vec<Range<u64>> {
        for (number, run) in std::mem::take(&mut self.open) {
            self.fence_one(guests, number, run);
        }
        self.unfenced
    }

    fn fence_one(&mut self, guests: &mut BTreeMap<u32, Guest>, number: u32, run: Range<u64>) {
        let Some(guest) = guests.get_mut(&number) else { return };
        if !guest.is_fenced(&run) && !guest.is_ended() {
            (guest.is_stray, guest.is_dismissed) = (true, true);
            self.unfenced.push(run);
        }
    }
}

impl Guest {
    /// Whether it may not store to a range any more.
    fn is_fenced(&self, range: &Range<u64>) -> bool {
        let _watched = Watched::begin(&self.process);
        let (address, bytes) = (self.address + index(range.start), index(range.end - range.start));
        match protect(&self.guard, address, bytes, true) {
            Ok(()) | Err(Errno::SRCH) => true,
            // It has unmapped a part: the kernel says so, and leaves the rest alone.
            Err(Errno::NOENT) => (address..address + bytes).step_by(PAGE_BYTES).all(|page| {
                let fenced = protect(&self.guard, page, PAGE_BYTES, true);
                matches!(fenced, Ok(()) | Err(Errno::NOENT | Errno::SRCH))
            }),
            Err(_) => false,
        }
    }

    fn kill(&self) {
        let _ = pidfd_send_signal(&self.process, Signal::KILL);
    }

    /// Kills it. Whether no thread runs any more that has its memory.
    fn is_ended(&self) -> bool {
        self.kill();
        let since = Instant::now();
        while since.elapsed() < END_LIMIT {
            if self.guard.try_write_protect(self.address, PAGE_BYTES, true) == Err(Errno::SRCH) {
                return true;
            }
            std::thread::yield_now();
        }
        false
    }
}

/// Whose page tables this process is changing at this moment, and since when. The kernel may have it wait there without end: for memory that their
/// process wants, say, and cannot have.
static WATCHED: Mutex<Vec<(Instant, RawFd)>> = Mutex::new(Vec::new());

struct Watched(RawFd);

impl Watched {
    /// The descriptor of a process, which outlives this.
    fn begin(process: &OwnedFd) -> Self {
        let process = process.as_raw_fd();
        watched().push((Instant::now(), process));
        Self(process)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let mut watched = watched();
        if let Some(at) = watched.iter().position(|&(_, process)| process == self.0) {
            watched.swap_remove(at);
        }
    }
}

fn watched() -> MutexGuard<'static, Vec<(Instant, RawFd)>> {
    WATCHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Kills those for whom somebody in this process has been waiting for so long in the kernel, to change what they may load and store: then the waiting ends.
/// Called now and then, by a thread that does not wait itself. How many.
pub fn end_who_keeps_waiting(limit: Duration) -> usize {
    let watched = watched();
    let stuck = watched.iter().filter(|(since, _)| since.elapsed() >= limit);
    stuck
        .map(|&(_, process)| {
            // SAFETY: whoever has put it there takes it away first, which it cannot while this has the list.
            let process = unsafe { BorrowedFd::borrow_raw(process) };
            let _ = pidfd_send_signal(process, Signal::KILL);
        })
        .count()
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

    /// The first page that has it, from this one on.
    pub fn first_from(&self, page: u64) -> Option<u64> {
        let (first, within) = (page / EXTENT_PAGES, page % EXTENT_PAGES);
        self.0.range(first..).find_map(|(&extent, bits)| {
            let begin = if extent == first { within } else { 0 };
            let has = |page: &u64| bits[index(page / 64)] >> (page % 64) & 1 == 1;
            (begin..EXTENT_PAGES).find(has).map(|page| extent * EXTENT_PAGES + page)
        })
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

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    use rustix::process::{Pid, PidfdFlags, pidfd_open};

    use super::*;

    #[test]
    fn the_next_page_that_has_something_is_found() {
        let mut pages = Pages::default();
        assert_eq!(pages.first_from(0), None);
        for page in [3, 511, 512, 5000] {
            pages.note(page..page + 1, true);
        }
        for (from, first) in [(0, 3), (3, 3), (4, 511), (512, 512), (513, 5000)] {
            assert_eq!(pages.first_from(from), Some(first));
        }
        assert_eq!(pages.first_from(5001), None);
    }

    #[test]
    fn who_is_waited_for_in_the_kernel_is_ended() {
        let mut stuck = Command::new("sleep").arg("60").spawn().unwrap();
        let process = pidfd_open(Pid::from_child(&stuck), PidfdFlags::empty()).unwrap();
        let waits = std::thread::spawn(move || {
            let _watched = Watched::begin(&process);
            stuck.wait().unwrap().signal()
        });
        assert_eq!(end_who_keeps_waiting(Duration::from_secs(60)), 0);
        while end_who_keeps_waiting(Duration::ZERO) == 0 {
            std::thread::yield_now();
        }
        assert_eq!(waits.join().unwrap(), Some(libc::SIGKILL));
        assert_eq!(end_who_keeps_waiting(Duration::ZERO), 0);
    }
}
