//! System calls on shared memory.
//!
//! A thread that loads or stores where it has no right is stopped and served. A system call is not: the kernel gives it
//! EFAULT, and a datagram that was being received is lost. [`cover`] closes that gap for the whole process, also for libc's own calls
//! and for those that stand in a program as a bare `syscall` instruction:
//!
//! 1. A seccomp filter (`filter`) stops calls that were given an address of the heap, and calls whose addresses lie one step
//!    further (an array of buffers, a message header). All others go on as they did, past a few instructions in the kernel.
//! 2. Its signal's handler (`signal`) works on a stack of its own (`scratch`), so that a thread's small signal stack is free for
//!    the faults that are served meanwhile.
//! 3. What the kernel would read is copied to private memory first, what it wrote there is copied to its place after
//!    (`bounce`, `vectored`); those copies are plain loads and stores, which stop and are served like any others
//!    (`copy`). Which argument is what is said by `table` and `meaning`.
//! 4. The call is made again from a page that the filter lets through (`stub`). So are this crate's own calls on heap
//!    addresses: see [`raw`].
//!
//! # What must hold
//! - The handler of SIGSEGV and SIGBUS asks [`landing`] about every fault that it cannot serve, whatever the address. Else a bad
//!   address given to a system call ends the process, where EFAULT is due.
//! - No thread blocks SIGSYS, SIGSEGV or SIGBUS, for the kernel kills who is stopped with one of them blocked. `rt_sigprocmask`
//!   and `rt_sigaction` are stopped for that, and leave the three out.
//!
//! # What is not covered
//! What has addresses inside structures that only a driver or a rare call knows (`ioctl`, `bpf`, `futex_waitv`), and strings of `execve` in shared memory
//! where the array that names them is private; and images ([`crate::images`]): programs whose addresses are fixed start others that have variables
//! of their own there, the filter, and no handler. Those give EFAULT if the thread has no right at that moment. Rings of
//! `io_uring` are refused at set-up, with a message; so is what would change the heap's mappings behind our back.

mod arm;
mod bounce;
mod copy;
mod filter;
mod futex;
mod meaning;
mod perform;
mod ranges;
mod refuse;
mod report;
mod scratch;
mod signal;
mod stub;
mod table;
mod vectored;

use std::ops::Range;
use std::sync::OnceLock;

pub use self::copy::{landing, load, store};
pub use self::stub::raw;
pub(crate) use self::{scratch::Scratch, signal::change_stack};

/// The addresses that are shared memory. Multiples of 4 GiB, for the filter looks at the upper half of an address only.
pub const SHARED: Range<usize> = 0x1000_0000_0000..0x2fe0_0000_0000;

/// What the rest of the process does for system calls. They are called on the thread that made the call, outside its
/// signal handler's stack but within the signal: they may not allocate or take locks that the program may hold.
#[derive(Clone, Copy, Default, Debug)]
pub struct Hooks {
    /// Does a `futex` on a shared word, wherever that is homed; gives back what the call would (negative: an error
    /// number). Without it, the word's page is fetched and the call is made as it stands, which wakes threads of this host only.
    pub futex: Option<fn(FutexCall) -> isize>,
}

/// A `futex` on a shared word.
#[derive(Clone, Copy, Debug)]
pub struct FutexCall {
    /// The word.
    pub address: usize,
    /// `FUTEX_WAIT` and so on, with its flags.
    pub operation: i32,
    /// What it is compared with, or how many are woken.
    pub value: u32,
    /// Seconds and nanoseconds, for operations that wait. Relative or absolute as the operation says.
    pub timeout: Option<(i64, i64)>,
    /// The fourth argument, for operations that take a number there.
    pub value2: u32,
    /// The second word.
    pub address2: usize,
    /// The last argument.
    pub value3: u32,
}

/// What [`cover`] achieved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Coverage {
    /// Whether calls with arrays of buffers and message headers are covered. They are not for code at an address that is
    /// the same in every process (a program that is not position independent, or address randomisation switched off): programs
    /// that this one starts inherit the filter but not its handler, and there it would stop and kill them.
    pub vectored: bool,
}

/// Why system calls on shared memory are not covered. Nothing was changed, except that the process may have lost the
/// right to gain privileges by `execve`.
#[derive(Debug, thiserror::Error)]
pub enum CoverError {
    /// The page that re-issues calls cannot be had.
    #[error(
        "cannot map the page at {0:#x} that re-issues system calls: {1}; something else is mapped there, or executable memory is forbidden"
    )]
    Stub(usize, std::io::Error),
    /// This process's mappings cannot be read.
    #[error("cannot read /proc/self/maps, needed to know whose system calls to cover: {0}")]
    Mappings(std::io::Error),
    /// The signal's handler cannot be installed.
    #[error("cannot install a handler for SIGSYS: {0}")]
    Signal(std::io::Error),
    /// The kernel refuses the filter.
    #[error(
        "the kernel refuses a seccomp filter: {0}; is it built with CONFIG_SECCOMP_FILTER, and does the container allow seccomp(2)?"
    )]
    Filter(std::io::Error),
    /// A thread could not be stopped and served, but would be killed.
    #[error(
        "thread {0} blocks SIGSYS, SIGSEGV or SIGBUS: cover system calls before it starts, or let it unblock them"
    )]
    Blocked(String),
    /// A thread has a filter of its own.
    #[error("thread {0} has a seccomp filter that others lack: cover system calls before it installs that")]
    ThreadDiffers(i64),
    /// A ring exists, and what it reads and writes nobody sees.
    #[error(
        "this process already has an io_uring, whose transfers to shared memory would fail unseen: cover system calls before it is made"
    )]
    IoUring,
}

static HOOKS: OnceLock<Hooks> = OnceLock::new();

/// Makes system calls work on shared memory, for all threads that there are and will be. May be called again when more libraries
/// were loaded: code far from what was there before is not covered until then. The first call's hooks hold.
///
/// Call it while no other thread makes threads: one that is just being made blocks all signals, which is waited for, but not
/// without a gap.
///
/// The process gives up gaining privileges by `execve` (`no_new_privs`), for the kernel asks for that. Programs that it starts inherit
/// the filter, which does nothing there.
pub fn cover(hooks: Hooks) -> Result<Coverage, CoverError> {
    let _ = HOOKS.set(hooks);
    arm::arm()
}

/// Whether an address belongs to shared memory.
fn is_shared(address: usize) -> bool {
    SHARED.contains(&address)
}

fn hooks() -> Hooks {
    HOOKS.get().copied().unwrap_or_default()
}
