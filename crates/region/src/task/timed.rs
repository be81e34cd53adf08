//! What waits no longer than until a deadline, as the functions of pthreads do: locks, conditions, words. And barriers of threads.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use comb_memory::syscalls::FutexCall;

use super::Task;
use crate::engine::Engine;
use crate::futex;
use crate::synchronise::{GRANTED, LAST, Mode};

/// A time of one of the two clocks that programs wait by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Deadline {
    /// Since 1970; whoever sets that clock meanwhile does not change how long is waited.
    Realtime(Duration),
    /// Since the host was started.
    Monotonic(Duration),
}

impl Deadline {
    /// On the clock that we wait by. None: never.
    fn instant(self) -> Option<Instant> {
        let (time, now) = match self {
            Self::Realtime(time) => (time, SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()),
            Self::Monotonic(time) => {
                let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
                let part = |part: i64| u64::try_from(part).unwrap_or_default();
                (time, Duration::from_secs(part(now.tv_sec)) + Duration::from_nanos(part(now.tv_nsec)))
            }
        };
        Instant::now().checked_add(time.saturating_sub(now))
    }
}

/// What has become of a thread that came to a barrier of threads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gathered {
    /// All have come, and another one was the last.
    Others,
    /// This thread was the last.
    Last,
    /// Others wait there for another number of threads.
    Misfit,
}

impl Task {
    /// Waits for a lock, for ever or until a deadline; what it is given back with. None: it is late.
    pub fn lock_until(&self, number: u64, mode: How, deadline: Option<Deadline>) -> Option<u64> {
        let begin = |engine: &mut Engine, slot: &_| {
            let Engine { synchronisation, core, .. } = engine;
            synchronisation.lock(core, number, (mode.into(), false), slot)
        };
        let (token, [outcome, _]) = self.wait_for(deadline, begin, number);
        (outcome == GRANTED).then_some(token)
    }

    /// Has a lock if that needs no waiting.
    pub fn lock_now(&self, number: u64, mode: How) -> Option<u64> {
        self.try_lock(number, mode.into())
    }

    /// Gives back what was locked by such a token.
    pub fn unlock_token(&self, number: u64, token: u64) {
        self.unlock(number, token);
    }

    /// Gives a lock back until its condition is notified, for ever or until a deadline, and has it again then: by another token. Whether it was notified.
    pub fn wait_until(
        &self,
        (lock, condition): (u64, u64),
        token: u64,
        deadline: Option<Deadline>,
    ) -> (u64, bool) {
        self.publish();
        let begin = |engine: &mut Engine, slot: &_| {
            let Engine { synchronisation, core, .. } = engine;
            synchronisation.await_condition(core, (lock, condition), token, slot)
        };
        let (token, [outcome, _]) = self.wait_for(deadline, begin, lock);
        (token, outcome == GRANTED)
    }

    fn wait_for(
        &self,
        deadline: Option<Deadline>,
        begin: impl FnOnce(&mut Engine, &std::sync::Arc<crate::waiting::Slot>) -> u64,
        lock: u64,
    ) -> (u64, [u64; 2]) {
        let Some(deadline) = deadline.and_then(Deadline::instant) else {
            return self.runtime().call(begin);
        };
        self.runtime().call_until(deadline, begin, |engine, &token| {
            let Engine { synchronisation, core, .. } = engine;
            synchronisation.is_late(core, lock, token);
        })
    }

    /// Waits until so many threads, of whatever components, have come to a barrier.
    pub fn gather(&self, barrier: u64, threads: u32) -> Gathered {
        self.publish();
        let (_, [outcome, _]) = self.runtime().call(|engine, slot| {
            let Engine { synchronisation, core, .. } = engine;
            synchronisation.gather(core, barrier, u64::from(threads), slot);
        });
        match outcome {
            GRANTED => Gathered::Others,
            LAST => Gathered::Last,
            _ => Gathered::Misfit,
        }
    }

    /// `FUTEX_WAIT` and `FUTEX_WAKE` on a word of the task's memory, for threads of all components: as the kernel's, with a negative error number.
    pub fn futex(&self, word: *const u32, wait: Option<Option<Deadline>>, value: u32) -> isize {
        let timeout = wait.flatten().and_then(Deadline::instant).map(|at| {
            let left = at.saturating_duration_since(Instant::now());
            (left.as_secs().cast_signed(), i64::from(left.subsec_nanos()))
        });
        let operation = if wait.is_some() { libc::FUTEX_WAIT } else { libc::FUTEX_WAKE };
        if self.inner.meetings.is_some() || self.count() == 1 {
            return futex::of_kernel(word, operation, value, timeout);
        }
        let address = word as usize;
        futex::on_futex(FutexCall { address, operation, value, timeout, value2: 0, address2: 0, value3: 0 })
    }
}

/// How a lock is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum How {
    /// Alone.
    Alone,
    /// Beside others, in turn with those who want it alone.
    Shared,
    /// Beside others who have it, whoever else waits.
    SharedAtOnce,
}

impl From<How> for Mode {
    fn from(how: How) -> Self {
        match how {
            How::Alone => Self::Write,
            How::Shared => Self::Read,
            How::SharedAtOnce => Self::ReadBeside,
        }
    }
}
