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

/// How often a thread of this process was woken whose wait was over.
static WOKEN: AtomicU64 = AtomicU64::new(0);

/// A number that changes whenever a thread that slept is told that its wait is over: it wants a core from now on.
pub(crate) fn woken() -> u64 {
    WOKEN.load(Ordering::Relaxed)
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

    /// One of the things has happened. Whether it was the last, and the thread has slept.
    pub(crate) fn happened(&self) -> bool {
        self.awaited.fetch_sub(1, Ordering::Relaxed) == 1 && self.tell([0, 0])
    }

    /// The wait is over, with this.
    pub(crate) fn end(&self, values: [u64; 2]) {
        self.tell(values);
    }

    /// The same, and says whether the thread has slept.
    pub(crate) fn tell(&self, values: [u64; 2]) -> bool {
        for (to, value) in self.values.iter().zip(values) {
            to.store(value, Ordering::Relaxed);
        }
        let sleeps = self.state.swap(DONE, Ordering::AcqRel) == SLEEPS;
        if sleeps {
            WOKEN.fetch_add(1, Ordering::Relaxed);
            let _ = futex::wake(&self.state, futex::Flags::PRIVATE, 1);
        }
        sleeps
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// Who attends leaves its core to the one that it has woken.
    #[test]
    fn a_sleeper_that_is_woken_is_counted() {
        let slot = Arc::new(Slot::default());
        slot.begin(1);
        let before = woken();
        let sleeper = std::thread::spawn({
            let slot = Arc::clone(&slot);
            move || {
                while !slot.is_done() {
                    slot.sleep(None);
                }
            }
        });
        while slot.state.load(Ordering::Acquire) != SLEEPS {
            std::thread::yield_now();
        }
        slot.happened();
        sleeper.join().expect("it wakes");
        assert_ne!(woken(), before);
    }
}
