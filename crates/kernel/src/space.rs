//! A space on the host: a process with a stub in it, and memory that only its supervisor changes.
//!
//! Mappings are made within *stretches*: ranges of addresses where the process has mapped a page group's memory already, and has entries for no page.
//! To load a mapping there is one call of the host's kernel, from outside. Where there is no stretch yet, or not the one for this frame, the
//! mapper makes one first. A frame whose number leaves the same rest by 128 or by 16 as its page's gets a stretch with room for so many
//! neighbours, as far as no others are mapped there; any other gets one of its own. That is all that a kernel needs to know to be fast.
#![expect(unsafe_code, reason = "a process is made that is none of Rust's")]

use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release, SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::fs::tell;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid};
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use thiserror::Error;

use crate::frames::{Frame, Frames, GROUP_FRAMES};
use crate::host::{self, Rights, Shared};
use crate::scheduling::Class;
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

/// A mapper that does not do in this time what takes microseconds has been harmed by its own space, or starved.
const PATIENCE: Duration = Duration::from_secs(2);

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
        Ok(Self { text: file, version_file, version, processors: sched_getaffinity(None)? })
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
    process: OwnedFd,
    pid: Pid,
    /// Orders, hints, and translations.
    control: Shared,
    /// The same, whose position is what the mapper reports.
    reports: OwnedFd,
    sequence: u32,
    pub(crate) areas: Shared,
    areas_file: OwnedFd,
    userfaultfd: Userfaultfd,
    pagemap: OwnedFd,
    /// By their first page.
    stretches: BTreeMap<u64, Stretch>,
    /// What is in its ports, by number, as the supervisor names it.
    ports: [u64; MOST_PORTS],
    next_port: usize,
    is_harmed: bool,
    /// On which processors its programs may run.
    processors: CpuSet,
    /// On which its mapper does: that of the supervisor, who sleeps while it works. To wake somebody on another takes five times as long.
    mapper_processor: usize,
}

/// Where translations are in what orders and results are in.
const TRANSLATIONS_AT: usize = 2 * PAGE;

const AREAS_BYTES: u64 = AREA_BYTES * MOST_THREADS;

/// What the new process maps, and where.
struct Place {
    address: u64,
    bytes: u64,
    rights: Rights,
    file: RawFd,
    offset: u64,
}

/// What glibc has told the host's kernel of this thread, which the new process must take back: its memory goes.
struct Sequences {
    address: usize,
}

impl Sequences {
    fn of_this_thread() -> Option<Self> {
        // SAFETY: looks a symbol up.
        let offset = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_offset".as_ptr()) };
        if offset.is_null() {
            return None;
        }
        let thread: usize;
        // SAFETY: the symbol is glibc's, a number; the thread's pointer is in its own first word.
        unsafe {
            std::arch::asm!("mov {}, fs:[0]", out(reg) thread, options(nostack, pure, readonly));
            Some(Self { address: thread.wrapping_add_signed(*offset.cast::<isize>()) })
        }
    }

    fn forget(&self) {
        const UNREGISTER: libc::c_int = 1;
        const SIGNATURE: u32 = 0x5305_3053;
        // How long it is, is glibc's affair; the host's kernel refuses any other length.
        for bytes in (20..=512_u32).step_by(4) {
            // SAFETY: after this nobody writes to this thread's memory any more.
            if unsafe { libc::syscall(libc::SYS_rseq, self.address, bytes, UNREGISTER, SIGNATURE) } == 0 {
                return;
            }
        }
    }
}

/// In the new process: gives up all that it was, and becomes a mapper. No allocation, no lock: it is a copy of one thread of many.
fn become_mapper(
    parent: u32,
    places: &[Place],
    sequences: Option<&Sequences>,
    control: &Shared,
) -> Result<(), i32> {
    let call = |number: libc::c_long, a: u64, b: u64, c: u64, d: u64, e: u64, f: u64| {
        // SAFETY: what this process had is given up, call by call; what it maps is at addresses where it had nothing.
        let result = unsafe { libc::syscall(number, a, b, c, d, e, f) };
        if result < 0 {
            // SAFETY: the thread's own.
            return Err(unsafe { *libc::__errno_location() });
        }
        Ok(result.cast_unsigned())
    };
    let all = u64::MAX;
    let address = |value: &u64| std::ptr::from_ref(value).addr() as u64;
    call(libc::SYS_prctl, libc::PR_SET_PDEATHSIG as u64, libc::SIGKILL as u64, 0, 0, 0, 0)?;
    if call(libc::SYS_getppid, 0, 0, 0, 0, 0, 0)? != u64::from(parent) {
        return Err(libc::ESRCH);
    }
    call(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK as u64, address(&all), 0, 8, 0, 0)?;
    const ON_STACK: u64 = libc::SA_ONSTACK as u64 | libc::SA_SIGINFO as u64 | 0x0400_0000; // and with a way back
    let [stop, usual] = [[stub::handler(), ON_STACK, stub::handler(), u64::MAX], [0, 0, 0, 0]];
    for signal in 1..=64 {
        let action = if STOPPING.contains(&signal) { &stop } else { &usual };
        // Two of them cannot be changed.
        let _ = call(libc::SYS_rt_sigaction, signal as u64, action.as_ptr().addr() as u64, 0, 8, 0, 0);
    }
    call(libc::SYS_prctl, libc::PR_SET_NO_NEW_PRIVS as u64, 1, 0, 0, 0, 0)?;
    for place in places {
        let flags = (libc::MAP_SHARED | libc::MAP_FIXED_NOREPLACE | libc::MAP_NORESERVE) as u64;
        let file = place.file as u64;
        let got =
            call(libc::SYS_mmap, place.address, place.bytes, place.rights.bits(), flags, file, place.offset)?;
        if got != place.address {
            return Err(libc::EEXIST);
        }
    }
    let flags = (libc::O_CLOEXEC | libc::O_NONBLOCK | 1) as u64; // of user mode only
    let userfaultfd = call(libc::SYS_userfaultfd, flags, 0, 0, 0, 0, 0)?;
    control.long(4096 + RESULTS_VALUES).store(userfaultfd, Release);
    if let Some(sequences) = sequences {
        sequences.forget();
    }
    // SAFETY: the code was mapped there; nothing of this program is needed any more.
    unsafe { std::arch::asm!("jmp {}", in(reg) TEXT, options(noreturn)) }
}

impl Space {
    /// A new one, without memory and threads.
    pub fn new(common: &Common, bell: &Bell) -> Result<Self, SpaceError> {
        let control_file = host::memory(c"comb-orders", 3 * PAGE_BYTES).map_err(host_error("give memory"))?;
        let control = Shared::map(control_file.as_fd(), 3 * PAGE).map_err(host_error("map memory"))?;
        let areas_file = host::memory(c"comb-areas", AREAS_BYTES).map_err(host_error("give memory"))?;
        let areas = Shared::map(areas_file.as_fd(), usize::try_from(AREAS_BYTES).expect("it is small"))
            .map_err(host_error("map memory"))?;
        let place = |address, bytes, rights, file: &OwnedFd, offset| Place {
            address,
            bytes,
            rights,
            file: file.as_raw_fd(),
            offset,
        };
        let code = Rights { write: false, execute: true };
        let places = [
            place(TEXT, PAGE_BYTES, code, &common.text, 0),
            place(CONSTANTS, PAGE_BYTES, Rights::READ, &common.text, PAGE_BYTES),
            place(ORDERS, PAGE_BYTES, Rights::READ, &control_file, 0),
            place(RESULTS, PAGE_BYTES, Rights::WRITE, &control_file, PAGE_BYTES),
            place(BELL, PAGE_BYTES, Rights::WRITE, &bell.file, 0),
            place(TRANSLATIONS, PAGE_BYTES, Rights::READ, &control_file, 2 * PAGE_BYTES),
            place(VERSION, PAGE_BYTES, Rights::READ, &common.version_file, 0),
            place(AREAS, AREAS_BYTES, Rights::WRITE, &areas_file, 0),
        ];
        let entries = [TRANSLATIONS_WAIT, TRANSLATIONS_WAKE, TRANSLATIONS_END_OF_FUNCTION];
        for (at, address) in entries.into_iter().zip(stub::entries()) {
            control.long(TRANSLATIONS_AT + at).store(address, Release);
        }
        // The first orders are none, and there before anybody waits for them: that they are done shows that the mapper is there.
        let sequence = 1;
        let report = u32::try_from(control_file.as_raw_fd()).expect("descriptors are not negative");
        control.word(ORDERS_REPORT).store(report, Release);
        control.word(ORDERS_SEQUENCE).store(sequence, Release);
        let sequences = Sequences::of_this_thread();
        let parent = std::process::id();
        let mut descriptor: libc::c_int = -1;
        let flags = libc::CLONE_FILES | libc::CLONE_PIDFD | libc::SIGCHLD;
        // SAFETY: the new process has a copy of this thread's memory, and uses none of it that another thread could have held.
        let pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0, &raw mut descriptor, 0, 0) };
        if pid == 0 {
            let error = become_mapper(parent, &places, sequences.as_ref(), &control);
            // SAFETY: it has nothing to clean up.
            unsafe { libc::_exit(error.err().unwrap_or(0)) };
        }
        if pid < 0 {
            return Err(SpaceError::Host { action: "start a process", error: last_error() });
        }
        // SAFETY: the kernel has just put it there.
        let process = unsafe { OwnedFd::from_raw_fd(descriptor) };
        let pid = Pid::from_raw(i32::try_from(pid).expect("processes have small numbers"))
            .expect("it has a number");
        let unfinished = Unfinished(Some(process));
        let process = unfinished.0.as_ref().expect("not taken yet");
        wait_for_report(
            &control,
            &control_file,
            sequence,
            (process.as_fd(), pid.as_raw_nonzero().get().cast_unsigned()),
        )?;
        let userfaultfd = control.long(4096 + RESULTS_VALUES).load(Acquire);
        let userfaultfd = RawFd::try_from(userfaultfd).map_err(|_| SpaceError::Gone)?;
        // SAFETY: descriptors are shared with the new process, which has made this one and told nobody else.
        let userfaultfd = unsafe { OwnedFd::from_raw_fd(userfaultfd) };
        let userfaultfd = Userfaultfd::new(userfaultfd).map_err(host_error("tell of faults"))?;
        let pagemap = std::fs::File::open(format!("/proc/{}/pagemap", pid.as_raw_nonzero()))
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
            .map_err(host_error("show a process's pages"))?;
        let process = unfinished.finish();
        let pagemap = pagemap.into();
        let (stretches, mapper_processor) = (BTreeMap::new(), usize::MAX);
        Ok(Self {
            process,
            pid,
            control,
            reports: control_file,
            sequence,
            areas,
            areas_file,
            userfaultfd,
            pagemap,
            stretches,
            ports: [0; MOST_PORTS],
            next_port: 0,
            is_harmed: false,
            processors: common.processors,
            mapper_processor,
        })
    }

    /// Its process's number on the host.
    pub fn process(&self) -> u32 {
        self.pid.as_raw_nonzero().get().cast_unsigned()
    }

    /// Ends when the process does.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.process.as_fd()
    }

    /// The memory of its threads' areas, for its kernel.
    pub fn areas(&self) -> BorrowedFd<'_> {
        self.areas_file.as_fd()
    }

    /// Has the mapper make these calls, one after the other, each of which is to return what stands behind its arguments. What it reports, no program
    /// of the space can: the lower half of the last result.
    pub(crate) fn order(&mut self, action: &'static str, calls: &[[u64; 8]]) -> Result<u32, SpaceError> {
        assert!(calls.len() <= MOST_ORDERS, "as many as there is room for");
        for (index, call) in calls.iter().enumerate() {
            for (word, value) in call.iter().enumerate() {
                self.control.long(ORDERS_CALLS + index * ORDER_BYTES + word * 8).store(*value, Release);
            }
        }
        self.follow();
        self.sequence = self.sequence.wrapping_add(1);
        self.control.word(ORDERS_COUNT).store(u32::try_from(calls.len()).expect("a few"), Release);
        self.control.word(ORDERS_SEQUENCE).store(self.sequence, SeqCst);
        host::wake(self.control.word(ORDERS_SEQUENCE));
        let result = wait_for_report(
            &self.control,
            &self.reports,
            self.sequence,
            (self.process.as_fd(), self.process()),
        )?;
        // No error is as low as an address of a page.
        match i32::try_from(result.wrapping_neg()) {
            Ok(error @ 1..4096) => Err(SpaceError::Host { action, error: Errno::from_raw_os_error(error) }),
            _ => Ok(result),
        }
    }

    /// Has the mapper where the supervisor is.
    fn follow(&mut self) {
        let processor = sched_getcpu();
        if processor != self.mapper_processor {
            let mut set = CpuSet::new();
            set.set(processor);
            // Where this is not permitted, it takes longer.
            let _ = sched_setaffinity(Some(self.pid), &set);
            self.mapper_processor = processor;
        }
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
        let map = libc::SYS_mmap.cast_unsigned();
        // Registered before anything is allowed: there is no moment in which a touch is not stopped.
        self.order("map a stretch", &[[map, start, bytes, 0, flags, file, frame.offset(), start]])?;
        self.cut(first, end);
        self.userfaultfd.register(start, bytes).map_err(host_error("watch a stretch"))?;
        let protect = libc::SYS_mprotect.cast_unsigned();
        self.order("open a stretch", &[[protect, start, bytes, rights.bits(), 0, 0, 0, 0]])?;
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
            self.order("change what may be done with pages", some)?;
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
            self.order("take mappings away", &some.iter().map(call).collect::<Vec<_>>())?;
        }
        self.note(page, count, false);
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
                scan(&self.pagemap, start, bytes, each)
            } else {
                look(&self.pagemap, start, bytes, each)
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
        let thread = self.order("start a thread", &[[clone, flags, stack, 0, 0, 0, 0, ANY]])?;
        // It has begun where the mapper is.
        self.keep_on(thread, None);
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
            self.order("map a ring", &[call])?;
            self.ports[port] = name;
        }
        let entry = usize::try_from(page % MOST_TRANSLATIONS).expect("it is small") * TRANSLATION_BYTES;
        let entry = TRANSLATIONS_AT + TRANSLATIONS_ENTRIES + entry;
        // It holds only when all of it is there.
        self.control.long(entry + 24).store(u64::MAX, SeqCst);
        for (index, value) in [page, to_page, address].into_iter().enumerate() {
            self.control.long(entry + index * 8).store(value, SeqCst);
        }
        self.control.long(entry + 24).store(version, SeqCst);
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
        let thread = i32::try_from(thread).ok().and_then(Pid::from_raw);
        let is_own = thread.is_some_and(|thread| {
            std::path::Path::new(&format!(
                "/proc/{}/task/{}",
                self.pid.as_raw_nonzero(),
                thread.as_raw_nonzero()
            ))
            .exists()
        });
        if is_own {
            let _ = sched_setaffinity(thread, &set);
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
        self.order("take a ring away", &[call])?;
        self.ports[port] = 0;
        Ok(())
    }

    /// Whether it is known which of its pages were modified. Otherwise all count as if they were.
    pub fn tells_what_was_modified(&self) -> bool {
        self.userfaultfd.notes()
    }

    /// Whether its process has ended.
    pub(crate) fn has_ended(&self) -> bool {
        has_ended(self.process.as_fd())
    }

    /// Ends its process, with all that is in it: who uses it has found that it does not do what it is told.
    pub(crate) fn end(&mut self) {
        self.is_harmed = true;
        let _ = pidfd_send_signal(&self.process, Signal::KILL);
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
        let result =
            unsafe { libc::syscall(libc::SYS_tgkill, self.pid.as_raw_nonzero().get(), thread, signal) };
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

fn last_error() -> Errno {
    Errno::from_raw_os_error(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
}

/// Waits until the mapper has reported of these orders: the lower half of the last result. The word that it waits at is a hint, which programs of the space
/// can write as well.
fn wait_for_report(
    control: &Shared,
    reports: &OwnedFd,
    sequence: u32,
    (process, mapper): (BorrowedFd<'_>, u32),
) -> Result<u32, SpaceError> {
    let (done, awaited) = (control.word(4096 + RESULTS_DONE), control.word(ORDERS_AWAITED));
    let since = std::time::Instant::now();
    loop {
        awaited.swap(1, SeqCst);
        let seen = done.load(SeqCst);
        let report = tell(reports).map_err(host_error("tell a position"))?;
        if report >> 32 == u64::from(sequence & 0x7fff_ffff) {
            awaited.swap(0, AcqRel);
            return Ok(u32::try_from(report & 0xffff_ffff).expect("half of it"));
        }
        if !host::wait(done, seen, Some(Duration::from_millis(20))) {
            // Others do not let it have a processor. It runs nothing but orders.
            Class::STOPPING.apply(mapper);
        }
        if has_ended(process) || since.elapsed() > PATIENCE {
            return Err(SpaceError::Gone);
        }
    }
}

fn has_ended(process: BorrowedFd<'_>) -> bool {
    use rustix::event::{PollFd, PollFlags, poll};
    let mut ends = [PollFd::new(&process, PollFlags::IN)];
    poll(&mut ends, Some(&rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ended| ended > 0)
}

/// A process that is ended unless it turns out well.
struct Unfinished(Option<OwnedFd>);

impl Unfinished {
    fn finish(mut self) -> OwnedFd {
        self.0.take().expect("once")
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(process) = &self.0 {
            end_process(process);
        }
    }
}

fn end_process(process: &OwnedFd) {
    let _ = pidfd_send_signal(process, Signal::KILL);
    while let Err(Errno::INTR) = waitid(WaitId::PidFd(process.as_fd()), WaitIdOptions::EXITED) {}
}

impl Drop for Space {
    /// Nothing of it is visible any more: that it has ended can be heard of later, but for one that harmed itself.
    fn drop(&mut self) {
        if self.is_harmed {
            end_process(&self.process);
        } else {
            let _ = pidfd_send_signal(&self.process, Signal::KILL);
            bury();
            if let Ok(mut dying) = DYING.lock() {
                dying.extend(self.process.try_clone());
            }
        }
    }
}

/// Processes that are ending.
static DYING: Mutex<Vec<OwnedFd>> = Mutex::new(Vec::new());

/// Waits for those that have ended.
fn bury() {
    if let Ok(mut dying) = DYING.lock() {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        dying.retain(|process| matches!(waitid(WaitId::PidFd(process.as_fd()), options), Ok(None)));
    }
}
