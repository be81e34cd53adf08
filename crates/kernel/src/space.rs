//! A space on the host: a process with a stub in it, and memory that only its supervisor changes.
//!
//! Mappings are made within *stretches*: ranges of addresses where the process has mapped a page group's memory already, and has entries for no page.
//! To load a mapping there is one call of the host's kernel, from outside. Where there is no stretch yet, or not the one for this frame, the
//! mapper makes one first. A frame whose number leaves the same rest by 128 or by 16 as its page's gets a stretch with room for so many
//! neighbours, as far as no others are mapped there; any other gets one of its own. That is all that a kernel needs to know to be fast.
#![expect(unsafe_code, reason = "a signal to one thread of another process, which no crate sends")]

mod mapper;
mod stem;

use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering::{Release, SeqCst};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use thiserror::Error;

use self::mapper::{Mapper, Orders};
use self::stem::{Place, Stem};
use crate::frames::{Frame, Frames, GROUP_FRAMES};
use crate::host::{self, Rights, Shared};
use crate::stub;
use crate::stub::layout::*;
use crate::userfaultfd::{Entry, Userfaultfd, look, scan};

/// Pages of stretches, where frames are as their pages are: the most that can be, and what even small allocations have.
const STRETCHES: [u64; 2] = [GROUP_FRAMES as u64, 16];

/// No program has memory below: the host does not give it to everybody.
const LOWEST_PAGE: u64 = 16;

/// Where threads look before they ask their kernel to signal: for each page of messages, where its receiver has it, and its ring.
pub const TRANSLATIONS_ADDRESS: u64 = TRANSLATIONS;

/// Programs have no memory here or above.
pub const PROGRAMS_END: u64 = STUB_START;

/// Signals of the host that the stub handles: they stop a program's thread, but for the last.
pub(crate) const STOPPING: [libc::c_int; 8] = [
    libc::SIGSYS,
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
    INTERRUPT,
    MESSAGE,
];
/// By which the supervisor stops one.
pub(crate) const INTERRUPT: libc::c_int = libc::SIGUSR1;
/// By which it tells one that has a signal function to look into its ring.
pub(crate) const MESSAGE: libc::c_int = libc::SIGUSR2;

/// Why something cannot be done in a space.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum SpaceError {
    /// Its process has ended, or does not do what its code does: it was harmed from within, and is to be ended.
    #[error("the space is gone, or has harmed itself")]
    Gone,
    /// What was asked for is not an address of programs.
    #[error("no program has memory at this address")]
    BadAddress,
    /// The host refuses.
    #[error("the host does not {action}: {error}")]
    Host {
        /// What it does not do.
        action: &'static str,
        /// Why.
        error: Errno,
    },
}

fn host_error(action: &'static str) -> impl Fn(Errno) -> SpaceError {
    move |error| SpaceError::Host { action, error }
}

/// What all spaces have.
#[derive(Debug)]
pub struct Common {
    text: OwnedFd,
    version_file: OwnedFd,
    version: Shared,
    /// On which processors programs may run: all that whoever made this might, then.
    processors: CpuSet,
    stem: Mutex<Option<Stem>>,
}

impl Common {
    /// The stub's code and constants, once for all spaces.
    pub fn new() -> Result<Self, Errno> {
        use rustix::fs::{SealFlags, fcntl_add_seals};
        let file = host::memory(c"comb-stub", TEXT_BYTES)?;
        rustix::io::pwrite(&file, &stub::text(), 0)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE | SealFlags::SEAL)?;
        let version_file = host::memory(c"comb-version", PAGE_BYTES)?;
        let version = Shared::map(version_file.as_fd(), PAGE)?;
        Ok(Self {
            text: file,
            version_file,
            version,
            processors: sched_getaffinity(None)?,
            stem: Mutex::new(None),
        })
    }

    /// The number of the stem's process on the host, if there is one: it is made for the first space of a thread, and again when it was killed.
    pub fn stem(&self) -> Option<u32> {
        self.stem.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(Stem::number)
    }

    fn start_mapper(&self, orders: Orders, places: &[Place]) -> Result<(Mapper, OwnedFd), SpaceError> {
        let mut kept = self.stem.lock().unwrap_or_else(PoisonError::into_inner);
        let mut stem = match kept.take().filter(Stem::is_of_this_thread) {
            Some(stem) => stem,
            None => Stem::new(&self.text, &self.version_file)?,
        };
        let started = stem.start(orders, places)?;
        *kept = Some(stem);
        Ok(started)
    }

    /// Translations of another version do not hold any more.
    pub(crate) fn publish_version(&self, version: u64) {
        self.version.long(0).store(version, SeqCst);
    }
}

/// Where the threads of a kernel's spaces ring, and their kernel listens.
#[derive(Debug)]
pub struct Bell {
    pub(crate) file: OwnedFd,
    pub(crate) page: Arc<Shared>,
}

impl Bell {
    /// A silent one.
    pub fn new() -> Result<Self, Errno> {
        Self::of(host::memory(c"comb-bell", PAGE_BYTES)?)
    }

    /// One that somebody else has made.
    pub(crate) fn of(file: OwnedFd) -> Result<Self, Errno> {
        let page = Arc::new(Shared::map(file.as_fd(), 4096)?);
        Ok(Self { file, page })
    }
}

#[derive(Clone, Copy, Debug)]
struct Stretch {
    pages: u64,
    frame: Frame,
    rights: Rights,
    /// Which of its pages have something mapped, from the first on.
    mapped: u128,
}

/// A space's process.
#[derive(Debug)]
pub struct Space {
    mapper: Mapper,
    pub(crate) areas: Shared,
    areas_file: OwnedFd,
    userfaultfd: Userfaultfd,
    /// Open once somebody wants to know.
    pagemap: Option<OwnedFd>,
    /// By their first page.
    stretches: BTreeMap<u64, Stretch>,
    /// What is in its ports, by number, as the supervisor names it.
    ports: [u64; MOST_PORTS],
    next_port: usize,
    /// On which processors its programs may run.
    processors: CpuSet,
}

/// Where translations are in what orders and results are in.
const TRANSLATIONS_AT: usize = 2 * PAGE;

const AREAS_BYTES: u64 = AREA_BYTES * MOST_THREADS;

impl Space {
    /// A new one, without memory and threads.
    pub fn new(common: &Common, bell: &Bell) -> Result<Self, SpaceError> {
        // If it was the stem, which somebody has killed or which has narrower limits than this process by now, there is another the next time.
        Self::start(common, bell).or_else(|_| Self::start(common, bell))
    }

    fn start(common: &Common, bell: &Bell) -> Result<Self, SpaceError> {
        let orders = Orders::new()?;
        let areas_file = host::memory(c"comb-areas", AREAS_BYTES).map_err(host_error("give memory"))?;
        let areas = Shared::map(areas_file.as_fd(), usize::try_from(AREAS_BYTES).expect("it is small"))
            .map_err(host_error("map memory"))?;
        let entries = [TRANSLATIONS_WAIT, TRANSLATIONS_WAKE, TRANSLATIONS_END_OF_FUNCTION];
        for (at, address) in entries.into_iter().zip(stub::entries()) {
            orders.control.long(TRANSLATIONS_AT + at).store(address, Release);
        }
        let place = |address, bytes, rights, file: &OwnedFd, offset| Place {
            address,
            bytes,
            rights,
            file: file.as_raw_fd(),
            offset,
        };
        let places = [
            place(BELL, PAGE_BYTES, Rights::WRITE, &bell.file, 0),
            place(TRANSLATIONS, PAGE_BYTES, Rights::READ, &orders.file, 2 * PAGE_BYTES),
            place(AREAS, AREAS_BYTES, Rights::WRITE, &areas_file, 0),
        ];
        let (mapper, userfaultfd) = common.start_mapper(orders, &places)?;
        let userfaultfd = Userfaultfd::new(userfaultfd).map_err(host_error("tell of faults"))?;
        Ok(Self {
            mapper,
            areas,
            areas_file,
            userfaultfd,
            pagemap: None,
            stretches: BTreeMap::new(),
            ports: [0; MOST_PORTS],
            next_port: 0,
            processors: common.processors,
        })
    }

    /// Its process's number on the host.
    pub fn process(&self) -> u32 {
        self.mapper.number()
    }

    /// Ends when the process does.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.mapper.descriptor()
    }

    /// The memory of its threads' areas, for its kernel.
    pub fn areas(&self) -> BorrowedFd<'_> {
        self.areas_file.as_fd()
    }

    /// The stretch that a page is in.
    fn stretch(&self, page: u64) -> Option<(u64, Stretch)> {
        let (&first, &stretch) = self.stretches.range(..=page).next_back()?;
        (page < first + stretch.pages).then_some((first, stretch))
    }

    /// Makes frames visible at pages, all of one page group. There is nothing at these pages, or the same.
    pub fn map(
        &mut self,
        frames: &Frames,
        page: u64,
        frame: Frame,
        count: u32,
        rights: Rights,
    ) -> Result<(), SpaceError> {
        self.map_stored(frames, page, frame, count, rights, false)
    }

    /// The same; pages that are about to be stored to count as modified.
    pub(crate) fn map_stored(
        &mut self,
        frames: &Frames,
        page: u64,
        frame: Frame,
        count: u32,
        rights: Rights,
        is_stored: bool,
    ) -> Result<(), SpaceError> {
        let end = page.checked_add(u64::from(count)).ok_or(SpaceError::BadAddress)?;
        let hole = STUB_START / PAGE_BYTES..STUB_END / PAGE_BYTES;
        if page < LOWEST_PAGE || end > TOP / PAGE_BYTES || (page < hole.end && hole.start < end) {
            return Err(SpaceError::BadAddress);
        }
        let is_fitting = self.stretch(page).is_some_and(|(first, stretch)| {
            let at = page - first;
            end <= first + stretch.pages
                && u64::from(stretch.frame.0) + at == u64::from(frame.0)
                && stretch.rights == rights
        });
        if !is_fitting {
            self.make_stretch(frames, page, frame, u64::from(count), rights)?;
        }
        self.note(page, u64::from(count), true);
        let (mut start, end) = (page * PAGE_BYTES, end * PAGE_BYTES);
        let mut is_populated = false;
        while start < end {
            let (mapped, result) = self.userfaultfd.map(start, end - start, is_stored);
            start += mapped;
            match result {
                Ok(()) => break,
                Err(Errno::AGAIN) => {}
                Err(Errno::EXIST) => start += PAGE_BYTES,
                Err(Errno::FAULT) if !is_populated => {
                    frames.populate(frame, count).map_err(host_error("give memory"))?;
                    is_populated = true;
                }
                Err(Errno::SRCH) => return Err(SpaceError::Gone),
                Err(error) => return Err(host_error("map a frame")(error)),
            }
        }
        Ok(())
    }

    fn make_stretch(
        &mut self,
        frames: &Frames,
        page: u64,
        frame: Frame,
        count: u64,
        rights: Rights,
    ) -> Result<(), SpaceError> {
        let (mut first, mut end) = (page, page + count);
        let is_mapped = |page| {
            self.stretch(page).is_some_and(|(first, stretch)| stretch.mapped >> (page - first) & 1 != 0)
        };
        if let Some(size) = STRETCHES.into_iter().find(|size| page % size == u64::from(frame.0) % size) {
            while !first.is_multiple_of(size) && first > LOWEST_PAGE && !is_mapped(first - 1) {
                first -= 1;
            }
            while !end.is_multiple_of(size) && end < TOP / PAGE_BYTES && !is_mapped(end) {
                end += 1;
            }
        }
        let frame = Frame(frame.0 - u32::try_from(page - first).expect("less than a stretch"));
        let pages = end - first;
        assert!(
            frame.offset() / PAGE_BYTES + pages <= u64::from(GROUP_FRAMES),
            "what is mapped at once is of one page group"
        );
        let (start, bytes) = (first * PAGE_BYTES, pages * PAGE_BYTES);
        let group = frames.group(frame.group()).map_err(host_error("give memory"))?;
        let file = group.as_raw_fd().cast_unsigned().into();
        let flags = u64::from((libc::MAP_SHARED | libc::MAP_FIXED | libc::MAP_NORESERVE).cast_unsigned());
        let [map, protect] = [libc::SYS_mmap, libc::SYS_mprotect].map(libc::c_long::cast_unsigned);
        let (request, register) = self.userfaultfd.registration(start, bytes, ORDERS + ORDERS_REQUEST as u64);
        for (index, word) in request.into_iter().enumerate() {
            self.mapper.orders.control.long(ORDERS_REQUEST + index * 8).store(word, Release);
        }
        // Registered before anything is allowed: there is no moment in which a touch is not stopped.
        let calls = [
            [map, start, bytes, 0, flags, file, frame.offset(), start],
            register,
            [protect, start, bytes, rights.bits(), 0, 0, 0, 0],
        ];
        self.mapper.order("map a stretch", &calls)?;
        self.cut(first, end);
        self.stretches.insert(first, Stretch { pages, frame, rights, mapped: 0 });
        Ok(())
    }

    /// Remembers that something is mapped in a range, or nothing any more.
    fn note(&mut self, page: u64, count: u64, is_mapped: bool) {
        let (before, end) = (self.stretch(page).map_or(page, |(first, _)| first), page.saturating_add(count));
        for (&first, stretch) in self.stretches.range_mut(before..end.max(before + 1)) {
            let (from, to) = (first.max(page), (first + stretch.pages).min(end));
            if from < to {
                let bits = low_bits(to - from) << (from - first);
                stretch.mapped = if is_mapped { stretch.mapped | bits } else { stretch.mapped & !bits };
            }
        }
    }

    /// Stretches end where another begins.
    fn cut(&mut self, first: u64, end: u64) {
        let overlapping: Vec<(u64, Stretch)> = self
            .stretches
            .range(..end)
            .rev()
            .map(|(&start, &stretch)| (start, stretch))
            .take_while(|(start, stretch)| start + stretch.pages > first)
            .collect();
        for (start, stretch) in overlapping {
            self.stretches.remove(&start);
            if start < first {
                let mapped = stretch.mapped & low_bits(first - start);
                self.stretches.insert(start, Stretch { pages: first - start, mapped, ..stretch });
            }
            let after = start + stretch.pages;
            if after > end {
                let frame = Frame(stretch.frame.0 + u32::try_from(end - start).expect("less than a group"));
                let mapped = stretch.mapped >> (end - start);
                self.stretches.insert(end, Stretch { pages: after - end, frame, mapped, ..stretch });
            }
        }
    }

    /// Page groups, in ascending order, are about to be other memory: what is mapped of them from now on is not mapped where the old one was. Nothing of them
    /// is mapped now.
    pub(crate) fn forget_groups(&mut self, groups: &[u32]) {
        self.stretches.retain(|_, stretch| groups.binary_search(&stretch.frame.group()).is_err());
    }

    /// Where in a range there are stretches: between them is nothing, and there can be much of that.
    fn ranges(&self, page: u64, end: u64) -> Vec<(u64, u64)> {
        let before = self.stretch(page).map(|(first, stretch)| (first, stretch.pages));
        let within =
            self.stretches.range(page + 1..end.max(page + 1)).map(|(&first, stretch)| (first, stretch.pages));
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for (first, pages) in before.into_iter().chain(within) {
            let (first, last) = (first.max(page), (first + pages).min(end));
            match ranges.last_mut() {
                Some((_, end)) if *end == first => *end = last,
                _ => ranges.push((first, last)),
            }
        }
        ranges
    }

    /// Changes what threads may do in all stretches of a range. When it returns, they may not do any more what they may not.
    pub fn protect(
        &mut self,
        page: u64,
        count: u64,
        change: impl Fn(Rights) -> Rights,
    ) -> Result<(), SpaceError> {
        let end = page.checked_add(count).ok_or(SpaceError::BadAddress)?;
        let before = self.stretch(page).map(|(first, _)| first).unwrap_or(page);
        let changing: Vec<(u64, Stretch)> = self
            .stretches
            .range(before..end)
            .map(|(&first, &stretch)| (first, stretch))
            .filter(|(_, stretch)| change(stretch.rights) != stretch.rights)
            .collect();
        let mut calls: Vec<[u64; 8]> = Vec::new();
        for (first, stretch) in changing {
            let (start, last) = (first.max(page), (first + stretch.pages).min(end));
            let frame = Frame(stretch.frame.0 + u32::try_from(start - first).expect("less than a group"));
            let rights = change(stretch.rights);
            self.cut(start, last);
            let mapped = stretch.mapped >> (start - first) & low_bits(last - start);
            self.stretches.insert(start, Stretch { pages: last - start, frame, rights, mapped });
            let protect = libc::SYS_mprotect.cast_unsigned();
            let (address, bytes) = (start * PAGE_BYTES, (last - start) * PAGE_BYTES);
            match calls.last_mut() {
                Some(call) if call[1] + call[2] == address && call[3] == rights.bits() => call[2] += bytes,
                _ => calls.push([protect, address, bytes, rights.bits(), 0, 0, 0, 0]),
            }
        }
        for some in calls.chunks(MOST_ORDERS) {
            self.mapper.order("change what may be done with pages", some)?;
        }
        Ok(())
    }

    /// Takes away what is visible in a range, and tells which pages may have been modified: all that were mapped and for which the host's kernel does
    /// not say that they were not; and some that were not mapped.
    pub fn unmap(&mut self, page: u64, count: u64, modified: &mut dyn FnMut(u64)) -> Result<(), SpaceError> {
        let end = page.checked_add(count).ok_or(SpaceError::BadAddress)?;
        let ranges = self.ranges(page, end);
        let advice = u64::from(libc::MADV_DONTNEED.cast_unsigned());
        let call = |&(first, last): &(u64, u64)| {
            let (start, bytes) = (first * PAGE_BYTES, (last - first) * PAGE_BYTES);
            [libc::SYS_madvise.cast_unsigned(), start, bytes, advice, 0, 0, 0, 0]
        };
        for some in ranges.chunks(MOST_ORDERS) {
            self.mapper.order("take mappings away", &some.iter().map(call).collect::<Vec<_>>())?;
        }
        self.note(page, count, false);
        if self.pagemap.is_none() {
            let path = format!("/proc/{}/pagemap", self.process());
            let pagemap = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
            self.pagemap = Some(pagemap.map_err(host_error("show a process's pages"))?);
        }
        let pagemap = self.pagemap.as_ref().expect("just opened");
        let mut is_honest = true;
        for (first, last) in ranges {
            let mut at = first;
            let each = |first, pages, entry| match entry {
                Entry::Clean => {
                    (at..first).for_each(&mut *modified);
                    at = first + pages;
                }
                // What the mapper says does not count.
                Entry::Present => is_honest = false,
            };
            let (start, bytes) = (first * PAGE_BYTES, (last - first) * PAGE_BYTES);
            let seen = if self.userfaultfd.notes() {
                scan(pagemap, start, bytes, each)
            } else {
                look(pagemap, start, bytes, each)
            };
            seen.map_err(host_error("show a process's pages"))?;
            (at..last).for_each(&mut *modified);
        }
        if is_honest { Ok(()) } else { Err(SpaceError::Gone) }
    }

    /// Starts a thread in an area that has none. It is stopped, and will go on in the state that the area holds.
    pub(crate) fn start_thread(&mut self, number: u32) -> Result<u32, SpaceError> {
        let flags = libc::CLONE_VM
            | libc::CLONE_FS
            | libc::CLONE_FILES
            | libc::CLONE_SIGHAND
            | libc::CLONE_THREAD
            | libc::CLONE_SYSVSEM;
        let stack = AREAS + (u64::from(number) + 1) * AREA_BYTES - 64;
        let clone = libc::SYS_clone.cast_unsigned();
        let flags = u64::from(flags.cast_unsigned());
        let thread = self.mapper.order("start a thread", &[[clone, flags, stack, 0, 0, 0, 0, ANY]])?;
        // It has begun where the mapper is.
        let _ = sched_setaffinity(Pid::from_raw(thread.cast_signed()), &self.processors);
        Ok(thread)
    }

    /// Lets its threads signal one of another space's, by its ring, and know so: messages of this page are that page's there.
    pub(crate) fn translate(
        &mut self,
        page: u64,
        [to_page, name, version]: [u64; 3],
        areas: BorrowedFd<'_>,
        area: u32,
    ) -> Result<(), SpaceError> {
        let known = self.ports.iter().position(|port| *port == name);
        let port = known.unwrap_or(self.next_port);
        let address = PORTS + port as u64 * PAGE_BYTES;
        if known.is_none() {
            self.next_port = (port + 1) % MOST_PORTS;
            let flags = u64::from((libc::MAP_SHARED | libc::MAP_FIXED).cast_unsigned());
            let file = areas.as_raw_fd().cast_unsigned().into();
            let offset = u64::from(area) * AREA_BYTES + AREA_RING as u64;
            let map = libc::SYS_mmap.cast_unsigned();
            let call = [map, address, PAGE_BYTES, Rights::WRITE.bits(), flags, file, offset, address];
            self.mapper.order("map a ring", &[call])?;
            self.ports[port] = name;
        }
        let entry = usize::try_from(page % MOST_TRANSLATIONS).expect("it is small") * TRANSLATION_BYTES;
        let entry = TRANSLATIONS_AT + TRANSLATIONS_ENTRIES + entry;
        // It holds only when all of it is there.
        self.mapper.orders.control.long(entry + 24).store(u64::MAX, SeqCst);
        for (index, value) in [page, to_page, address].into_iter().enumerate() {
            self.mapper.orders.control.long(entry + index * 8).store(value, SeqCst);
        }
        self.mapper.orders.control.long(entry + 24).store(version, SeqCst);
        Ok(())
    }

    /// Has a thread run on this processor, if that is one of its space's; or on any of these.
    pub(crate) fn keep_on(&self, thread: u32, processor: Option<u32>) {
        let wanted = processor
            .map(|processor| processor as usize)
            .filter(|processor| *processor < CpuSet::MAX_CPU && self.processors.is_set(*processor));
        let mut set = CpuSet::new();
        match wanted {
            Some(processor) => set.set(processor),
            None => set = self.processors,
        }
        // The space can change the number of its thread, but not to that of a thread that is not its own.
        let is_own = std::path::Path::new(&format!("/proc/{}/task/{thread}", self.process())).exists();
        if is_own {
            let _ = sched_setaffinity(Pid::from_raw(thread.cast_signed()), &set);
        }
    }

    /// Takes a ring away that its threads could signal.
    pub(crate) fn close_port(&mut self, name: u64) -> Result<(), SpaceError> {
        let Some(port) = self.ports.iter().position(|port| *port == name) else { return Ok(()) };
        let (address, flags) =
            (PORTS + port as u64 * PAGE_BYTES, libc::MAP_PRIVATE | libc::MAP_FIXED | libc::MAP_ANONYMOUS);
        let map = libc::SYS_mmap.cast_unsigned();
        let flags = u64::from(flags.cast_unsigned());
        let call = [map, address, PAGE_BYTES, 0, flags, u64::MAX, 0, address];
        self.mapper.order("take a ring away", &[call])?;
        self.ports[port] = 0;
        Ok(())
    }

    /// Whether it is known which of its pages were modified. Otherwise all count as if they were.
    pub fn tells_what_was_modified(&self) -> bool {
        self.userfaultfd.notes()
    }

    /// Whether its process has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.mapper.has_ended()
    }

    /// Ends its process, with all that is in it: who uses it has found that it does not do what it is told.
    pub(crate) fn end(&mut self) {
        self.mapper.end();
    }

    /// Tells all pages of a range where something may have been mapped.
    pub(crate) fn all_stretches(&self, page: u64, count: u64, each: &mut dyn FnMut(u64)) {
        let end = page.saturating_add(count);
        for (&first, stretch) in self.stretches.range(..end) {
            (first.max(page)..(first + stretch.pages).min(end)).for_each(&mut *each);
        }
    }

    /// Stops a thread, wherever it is: it will say so itself.
    pub fn interrupt(&self, thread: u32) -> Result<(), SpaceError> {
        self.send(thread, INTERRUPT)
    }

    /// Has a thread look into its ring, if it has a signal function.
    pub(crate) fn tell_of_message(&self, thread: u32) -> Result<(), SpaceError> {
        self.send(thread, MESSAGE)
    }

    fn send(&self, thread: u32, signal: libc::c_int) -> Result<(), SpaceError> {
        // SAFETY: a signal to a thread of a process that is ours until it is waited for.
        let result = unsafe { libc::syscall(libc::SYS_tgkill, self.process(), thread, signal) };
        if result == 0 { Ok(()) } else { Err(SpaceError::Gone) }
    }
}

/// So many ones.
fn low_bits(count: u64) -> u128 {
    if count >= 128 { u128::MAX } else { (1 << count) - 1 }
}

/// Whether spaces can be had here, and tell which of their pages were modified: tried.
pub fn tells_what_was_modified() -> bool {
    let Ok((common, bell)) = Common::new().and_then(|common| Ok((common, Bell::new()?))) else {
        return false;
    };
    Space::new(&common, &bell).is_ok_and(|space| space.tells_what_was_modified())
}
