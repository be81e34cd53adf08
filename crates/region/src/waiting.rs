//! How a thread waits for what the engine is to do: it drives the engine itself for a while, as whoever waits does, then sleeps.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use rustix::io::Errno;
use rustix::thread::futex;

/// What one thread waits for.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    state: AtomicU32,
    /// What came with the end of the wait.
    values: [AtomicU64; 2],
    /// How many things are still to happen.
    awaited: AtomicU32,
}

const WAITS: u32 = 0;
const SLEEPS: u32 = 1;
const DONE: u32 = 2;

impl Slot {
    /// For one more wait, until so many things have happened.
    pub(crate) fn begin(&self, awaited: u32) {
        self.awaited.store(awaited, Ordering::Relaxed);
        self.state.store(if awaited == 0 { DONE } else { WAITS }, Ordering::Release);
    }

    #[inline]
    pub(crate) fn is_done(&self) -> bool {
        self.state.load(Ordering::Acquire) == DONE
    }

    /// One of the things has happened.
    pub(crate) fn happened(&self) {
        if self.awaited.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.end([0, 0]);
        }
    }

    /// The wait is over, with this.
    pub(crate) fn end(&self, values: [u64; 2]) {
        for (to, value) in self.values.iter().zip(values) {
            to.store(value, Ordering::Relaxed);
        }
        if self.state.swap(DONE, Ordering::AcqRel) == SLEEPS {
            let _ = futex::wake(&self.state, futex::Flags::PRIVATE, 1);
        }
    }

    pub(crate) fn values(&self) -> [u64; 2] {
        [0, 1].map(|index: usize| self.values[index].load(Ordering::Relaxed))
    }

    /// Sleeps until the wait is over, at most so long, or until a signal's handler has run. Somebody else drives meanwhile.
    pub(crate) fn sleep(&self, limit: Option<Duration>) {
        let _ = self.sleep_as_told(limit);
    }

    /// The same, and says why the kernel let it go on: EINTR and the like. Without a limit it goes on sleeping after signals' handlers that are to
    /// restart system calls, as the kernel does it.
    pub(crate) fn sleep_as_told(&self, limit: Option<Duration>) -> Result<(), Errno> {
        if self.state.compare_exchange(WAITS, SLEEPS, Ordering::AcqRel, Ordering::Acquire) == Err(DONE) {
            return Ok(());
        }
        let limit = limit.map(|limit| futex::Timespec {
            tv_sec: limit.as_secs().min(3600).cast_signed(),
            tv_nsec: limit.subsec_nanos().into(),
        });
        let slept = futex::wait(&self.state, futex::Flags::PRIVATE, SLEEPS, limit.as_ref());
        let _ = self.state.compare_exchange(SLEEPS, WAITS, Ordering::AcqRel, Ordering::Acquire);
        slept
    }
}
