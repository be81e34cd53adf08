//! The *stem*: a process with nothing in it but the stub, of which those of spaces are copies. It is a mapper as theirs are, and all that it is ever ordered is to copy
//! itself. What is copied is a few pages; were each a copy of the supervisor, it would take the longer the more memory that has.
//!
//! A copy is no child of the stem's but of the thread that made the stem, and ends with it: so what one thread's stem starts is that thread's, as if the thread
//! had made the copy of itself. It has the stem's code, filter and signal handlers, and nothing that the stem or another space writes.
#![expect(unsafe_code, reason = "a process is made that is none of Rust's")]

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::Ordering::AcqRel;

use rustix::io::Errno;
use rustix::process::Pid;
use rustix::thread::gettid;

use super::mapper::{Mapper, Orders};
use super::{STOPPING, SpaceError};
use crate::host::Rights;
use crate::stub;
use crate::stub::layout::*;

/// What a new process maps, and where.
pub(super) struct Place {
    pub(super) address: u64,
    pub(super) bytes: u64,
    pub(super) rights: Rights,
    pub(super) file: RawFd,
    pub(super) offset: u64,
}

impl Place {
    /// The arguments of the call that does so.
    fn arguments(&self, flags: libc::c_int) -> [u64; 6] {
        let flags = flags | libc::MAP_SHARED | libc::MAP_NORESERVE;
        let [flags, file] = [flags, self.file].map(|number| u64::from(number.cast_unsigned()));
        [self.address, self.bytes, self.rights.bits(), flags, file, self.offset]
    }
}

/// Where a mapper with these orders has them, and where it says that it has followed them.
pub(super) fn places_of(orders: &Orders) -> [Place; 2] {
    let file = orders.file.as_raw_fd();
    [
        Place { address: ORDERS, bytes: PAGE_BYTES, rights: Rights::READ, file, offset: 0 },
        Place { address: RESULTS, bytes: PAGE_BYTES, rights: Rights::WRITE, file, offset: PAGE_BYTES },
    ]
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
fn become_mapper(parent: u32, places: &[Place], sequences: Option<&Sequences>) -> Result<(), i32> {
    let call = |number: libc::c_long, [a, b, c, d, e, f]: [u64; 6]| {
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
    call(libc::SYS_prctl, [libc::PR_SET_PDEATHSIG as u64, libc::SIGKILL as u64, 0, 0, 0, 0])?;
    if call(libc::SYS_getppid, [0; 6])? != u64::from(parent) {
        return Err(libc::ESRCH);
    }
    call(libc::SYS_rt_sigprocmask, [libc::SIG_SETMASK as u64, address(&all), 0, 8, 0, 0])?;
    const ON_STACK: u64 = libc::SA_ONSTACK as u64 | libc::SA_SIGINFO as u64 | 0x0400_0000; // and with a way back
    let [stop, usual] = [[stub::handler(), ON_STACK, stub::handler(), u64::MAX], [0, 0, 0, 0]];
    for signal in 1..=64 {
        let action = if STOPPING.contains(&signal) { &stop } else { &usual };
        // Two of them cannot be changed.
        let _ = call(libc::SYS_rt_sigaction, [signal as u64, action.as_ptr().addr() as u64, 0, 8, 0, 0]);
    }
    call(libc::SYS_prctl, [libc::PR_SET_NO_NEW_PRIVS as u64, 1, 0, 0, 0, 0])?;
    for place in places {
        if call(libc::SYS_mmap, place.arguments(libc::MAP_FIXED_NOREPLACE))? != place.address {
            return Err(libc::EEXIST);
        }
    }
    if let Some(sequences) = sequences {
        sequences.forget();
    }
    // SAFETY: the code was mapped there; nothing of this program is needed any more.
    unsafe { std::arch::asm!("jmp {}", in(reg) TEXT, options(noreturn)) }
}

fn last_error() -> Errno {
    Errno::from_raw_os_error(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
}

/// Descriptors are shared with the stem and with what it starts: a mapper maps what is told by number, and reports by one.
const FLAGS: libc::c_int = libc::CLONE_FILES | libc::SIGCHLD;

/// The stem of a thread.
#[derive(Debug)]
pub(super) struct Stem {
    mapper: Mapper,
    /// That made it.
    thread: Pid,
}

impl Stem {
    /// One that has these, and orders.
    pub(super) fn new(text: &OwnedFd, version: &OwnedFd) -> Result<Self, SpaceError> {
        let mut orders = Orders::new()?;
        let place = |address, rights, file: &OwnedFd, offset| Place {
            address,
            bytes: PAGE_BYTES,
            rights,
            file: file.as_raw_fd(),
            offset,
        };
        let [first, second] = places_of(&orders);
        let places = [
            place(TEXT, Rights { write: false, execute: true }, text, 0),
            place(CONSTANTS, Rights::READ, text, PAGE_BYTES),
            place(VERSION, Rights::READ, version, 0),
            first,
            second,
        ];
        orders.begin_first();
        let (sequences, parent) = (Sequences::of_this_thread(), std::process::id());
        // SAFETY: the new process has a copy of this thread's memory, and uses none of it that another thread could have held.
        let pid = unsafe { libc::syscall(libc::SYS_clone, FLAGS, 0, 0, 0, 0) };
        if pid == 0 {
            let error = become_mapper(parent, &places, sequences.as_ref());
            // SAFETY: it has nothing to clean up.
            unsafe { libc::_exit(error.err().unwrap_or(0)) };
        }
        let pid = i32::try_from(pid).ok().filter(|pid| *pid > 0).and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| SpaceError::Host { action: "start a process", error: last_error() })?;
        let mapper = Mapper::of(pid, orders)?;
        mapper.finish("start a process")?;
        Ok(Self { mapper, thread: gettid() })
    }

    /// Its process's number on the host.
    pub(super) fn number(&self) -> u32 {
        self.mapper.number()
    }

    /// Whether what it starts is the calling thread's.
    pub(super) fn is_of_this_thread(&self) -> bool {
        self.thread == gettid()
    }

    /// Starts the mapper of a space, which has these orders and places, and its userfaultfd.
    pub(super) fn start(
        &mut self,
        mut orders: Orders,
        places: &[Place],
    ) -> Result<(Mapper, OwnedFd), SpaceError> {
        let number = |number: libc::c_long| number.cast_unsigned();
        let flag = |flag: libc::c_int| u64::from(flag.cast_unsigned());
        let flags = flag(FLAGS | libc::CLONE_PARENT | libc::CLONE_PARENT_SETTID);
        let parent = u64::from(std::process::id());
        let mut calls = vec![
            // The stem goes no further, for it gets another result; its copy does, until it has orders of its own, which go on in the same way.
            [number(libc::SYS_clone), flags, UNFINISHED, RESULTS + RESULTS_STARTED as u64, 0, 0, 0, 0],
            [number(libc::SYS_prctl), flag(libc::PR_SET_PDEATHSIG), flag(libc::SIGKILL), 0, 0, 0, 0, 0],
            [number(libc::SYS_getppid), 0, 0, 0, 0, 0, 0, parent],
        ];
        for place in places.iter().chain(&places_of(&orders)) {
            let [a, b, c, d, e, f] = place.arguments(libc::MAP_FIXED);
            calls.push([number(libc::SYS_mmap), a, b, c, d, e, f, place.address]);
        }
        let of_user_mode = flag(libc::O_CLOEXEC | libc::O_NONBLOCK | 1);
        calls.push([number(libc::SYS_userfaultfd), of_user_mode, 0, 0, 0, 0, 0, ANY]);
        orders.continue_from(&self.mapper, &calls);
        let ordered = self.mapper.order("start a process", &calls);
        if ordered.is_err() {
            // After this it starts nothing. If it has before, that has what it needs.
            self.mapper.end_now();
        }
        let started = self.mapper.orders.control.word(PAGE + RESULTS_STARTED).swap(0, AcqRel);
        let Some(pid) = Pid::from_raw(started.cast_signed()) else {
            return Err(ordered.err().unwrap_or(SpaceError::Gone));
        };
        let mut mapper = Mapper::of(pid, orders)?;
        mapper.processor = self.mapper.processor;
        let userfaultfd = mapper.finish("tell of faults")?;
        let userfaultfd = RawFd::try_from(userfaultfd).map_err(|_| SpaceError::Gone)?;
        // SAFETY: descriptors are shared with the new process, which has made this one and told nobody else.
        Ok((mapper, unsafe { OwnedFd::from_raw_fd(userfaultfd) }))
    }
}
