//! What the emulator asks of the supervisor below it: spaces, threads, page mappings, frames, and the events that threads raise.
//!
//! The emulator decides everything that a UNIX kernel decides; a machine only carries it out. (The cache kernel, §2.1 and §2.3.)

use std::fmt::Debug;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::time::{Duration, Instant};

/// Bytes in a page and in a frame.
pub const PAGE_BYTES: u64 = 4096;

/// A number of a page-sized piece of the memory that the machine has granted. It proves nothing about who uses the piece.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Frame(pub u32);

/// What a program may do with a mapped page. As on the processor, a page that may be written or executed may also be read.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Rights {
    /// Loads succeed.
    pub read: bool,
    /// Stores succeed.
    pub write: bool,
    /// Instructions are fetched.
    pub execute: bool,
}

impl Rights {
    /// No access at all.
    pub const NONE: Rights = Rights { read: false, write: false, execute: false };
    /// Loads only.
    pub const READ: Rights = Rights { read: true, write: false, execute: false };
    /// Loads and stores.
    pub const READ_WRITE: Rights = Rights { read: true, write: true, execute: false };

    /// Whether any access is left.
    pub fn any(self) -> bool {
        self.read || self.write || self.execute
    }

    /// The same without stores.
    pub fn without_write(self) -> Rights {
        Rights { read: self.read || self.write, write: false, execute: self.execute }
    }

    /// Whether an access of this kind succeeds.
    pub fn permits(self, access: Access) -> bool {
        match access {
            Access::Read => self.any(),
            Access::Write => self.write,
            Access::Execute => self.execute,
        }
    }
}

/// The kind of an access to memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// A load.
    Read,
    /// A store.
    Write,
    /// A fetch of an instruction.
    Execute,
}

/// The registers of a thread in user mode. Segment selectors are not here: they are the ones of a 64-bit Linux program.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[expect(missing_docs, reason = "named as the processor's manual names them")]
pub struct Registers {
    pub r15: u64,
    pub r14: u64,
    pub r13: u64,
    pub r12: u64,
    pub rbp: u64,
    pub rbx: u64,
    pub r11: u64,
    pub r10: u64,
    pub r9: u64,
    pub r8: u64,
    pub rax: u64,
    pub rcx: u64,
    pub rdx: u64,
    pub rsi: u64,
    pub rdi: u64,
    pub rip: u64,
    pub rflags: u64,
    pub rsp: u64,
    pub fs_base: u64,
    pub gs_base: u64,
}

/// What a machine reports. A thread that is named here is stopped, until `Machine::resume`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event<T> {
    /// The thread made a system call: the number is in `rax`, and `rip` is behind the two bytes of the instruction.
    Call {
        /// Who.
        thread: T,
    },
    /// The thread touched a page that is not mapped for this kind of access.
    Fault {
        /// Who.
        thread: T,
        /// The byte that was touched.
        address: u64,
        /// How.
        access: Access,
    },
    /// The processor refused an instruction; the number is of the signal that Linux raises for it (`SIGFPE`, `SIGILL`, `SIGTRAP`,
    /// `SIGBUS`, or `SIGSEGV` where no page is to blame).
    Exception {
        /// Who.
        thread: T,
        /// The signal.
        signal: i32,
        /// The signal's `si_code`.
        code: i32,
        /// The address that goes with it, most often `rip`.
        address: u64,
    },
    /// The thread was stopped because of `Machine::interrupt`.
    Interrupted {
        /// Who.
        thread: T,
    },
    /// At least one of the polled descriptors has a non-zero `revents`.
    Ready,
    /// The moment that was given has come.
    Timeout,
}

/// A supervisor, as the emulator uses it.
///
/// Everything is called from one thread. Threads of programs run at the same time as the emulator, on other processors, so that
/// what is in a frame may change under the emulator's eyes; only the emulator changes mappings.
pub trait Machine {
    /// An address space that is loaded.
    type Space: Copy + Eq + Ord + Debug;
    /// A thread that is loaded.
    type Thread: Copy + Eq + Ord + Debug;

    /// The addresses that programs may use, both ends on a page's boundary. Outside of them the machine may have things of its own.
    fn addresses(&self) -> Range<u64>;

    /// Where frame 0 is in the emulator's own memory; frame `n` is `n` pages behind it. It stays the same forever. Only the frames
    /// that were granted may be touched.
    fn memory(&self) -> NonNull<u8>;

    /// More frames, or `None` when there are no more for this emulator. Both ends of the range are multiples of 16;
    /// what is in the frames is not defined. The emulator suballocates them itself. (The cache kernel, §3.)
    fn grant(&mut self) -> Option<Range<u32>>;

    /// A space in which nothing is mapped.
    fn load_space(&mut self) -> Option<Self::Space>;

    /// Ends the space, whose threads have all been ended before. Its frames are no longer reachable when this returns.
    fn end_space(&mut self, space: Self::Space);

    /// Maps `count` pages from page number `page` on to as many frames from `frame` on, in place of what was mapped there. The
    /// machine may forget a mapping at any time: the emulator maps it again at the next fault.
    fn map(&mut self, space: Self::Space, page: u64, frame: Frame, count: u64, rights: Rights);

    /// Takes the right to store from what is mapped among these pages, so that `rights` are left, which are the same for all of them;
    /// what is not mapped stays so. To unmap them is right, too, and costs more faults. No store goes through any more when this
    /// returns, on any processor.
    fn forbid_writes(&mut self, space: Self::Space, page: u64, count: u64, rights: Rights);

    /// Nothing is mapped at these pages when this returns, on any processor; only then may the frames be used for something else.
    fn unmap(&mut self, space: Self::Space, page: u64, count: u64);

    /// A stopped thread with these registers, and the vector state that a Linux program begins with.
    fn load_thread(&mut self, space: Self::Space, registers: &Registers) -> Option<Self::Thread>;

    /// A stopped thread with a copy of all registers, vector state included, of another stopped thread, in this or another space.
    fn fork_thread(&mut self, of: Self::Thread, space: Self::Space) -> Option<Self::Thread>;

    /// The registers of a stopped thread, to be read and changed.
    fn registers(&mut self, thread: Self::Thread) -> &mut Registers;

    /// The vector state of a stopped thread in the form of a Linux signal frame: an XSAVE image in the standard form with
    /// `FP_XSTATE_MAGIC1` and its sizes in bytes 464 to 512, and `FP_XSTATE_MAGIC2` behind it.
    fn vector_state(&mut self, thread: Self::Thread) -> Vec<u8>;

    /// Sets the vector state from such an image, which comes from the program and may hold anything. False, and nothing is changed,
    /// if the processor would not take it.
    fn set_vector_state(&mut self, thread: Self::Thread, image: &[u8]) -> bool;

    /// Lets a stopped thread run.
    fn resume(&mut self, thread: Self::Thread);

    /// Stops a running thread soon: its next event is `Interrupted`, or another one that was under way already, after which no
    /// `Interrupted` needs to follow. Nothing happens to a stopped thread.
    fn interrupt(&mut self, thread: Self::Thread);

    /// Ends a thread, running or stopped. No event of it comes afterwards, and it touches no memory when this returns.
    fn end_thread(&mut self, thread: Self::Thread);

    /// How much a thread is preferred from now on, 0 for not at all to 31 for most. A machine may ignore it.
    fn prefer(&mut self, thread: Self::Thread, priority: u8) {
        let _ = (thread, priority);
    }

    /// From now on, `next_event` looks at its descriptors soon after something has come there, also while programs run. A machine that looks often anyway may
    /// ignore it.
    fn watch(&mut self, descriptor: BorrowedFd<'_>) {
        let _ = descriptor;
    }

    /// How much time of the processors a thread has used so far, in user mode and for what it made the machine do. It never becomes less.
    fn used(&mut self, thread: Self::Thread) -> Duration;

    /// Waits for the next event, until the given moment or forever. `revents` of the descriptors (of the host, for `poll`) is set
    /// when the event is `Ready`.
    fn next_event(&mut self, until: Option<Instant>, descriptors: &mut [libc::pollfd])
    -> Event<Self::Thread>;
}
