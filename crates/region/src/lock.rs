//! Locks, conditions and barriers of a task's threads, in whatever component they are.

use crate::synchronise::{Combine, Mode};
use crate::task::Task;

/// A lock that all components know by its number. First come, first served. Whoever has it finds what all who had it before have stored.
///
/// Each lock lives with one component. Of those that live with the same one, a component has or waits for 65,536 at once at most.
#[derive(Clone, Debug)]
pub struct Lock {
    task: Task,
    number: u64,
    guarded: Option<(usize, usize)>,
}

/// A lock that this holds; dropped, it is free again.
#[derive(Debug)]
pub struct HeldLock {
    lock: Lock,
    token: u64,
}

impl Lock {
    /// The lock with this number: an address, or whatever the program's components agree on.
    pub fn new(task: &Task, number: u64) -> Self {
        Self { task: task.clone(), number, guarded: None }
    }

    /// What it guards comes with it: whoever gets the lock asks for all of it at once.
    #[must_use]
    pub fn guarding(mut self, address: *const u8, bytes: usize) -> Self {
        self.guarded = Some((address as usize, bytes));
        self
    }

    /// Waits for it, to have it alone.
    pub fn write(&self) -> HeldLock {
        self.granted(self.task.lock(self.number, Mode::Write), true)
    }

    /// Waits for it, to have it beside others who only read.
    pub fn read(&self) -> HeldLock {
        self.granted(self.task.lock(self.number, Mode::Read), false)
    }

    /// Has it alone if it is free.
    pub fn try_write(&self) -> Option<HeldLock> {
        self.task.try_lock(self.number, Mode::Write).map(|token| self.granted(token, true))
    }

    fn granted(&self, token: u64, to_store: bool) -> HeldLock {
        if let Some((address, bytes)) = self.guarded {
            self.task.prefetch(address as *const u8, bytes, to_store);
        }
        HeldLock { lock: self.clone(), token }
    }
}

impl HeldLock {
    /// Gives the lock back until the condition is notified, then has it again, alone. As with all conditions: look again whether it holds.
    #[must_use]
    pub fn wait(mut self, condition: u64) -> Self {
        self.token = self.lock.task.await_condition(self.lock.number, condition, self.token);
        self
    }

    /// Lets one go on that waits for the condition, as soon as it gets the lock.
    pub fn notify_one(&self, condition: u64) {
        self.lock.task.notify(self.lock.number, condition, 1);
    }

    /// Lets all go on that wait for it, one after the other.
    pub fn notify_all(&self, condition: u64) {
        self.lock.task.notify(self.lock.number, condition, u64::MAX);
    }
}

impl Drop for HeldLock {
    fn drop(&mut self) {
        self.lock.task.unlock(self.lock.number, self.token);
    }
}

/// A barrier for several threads of each component.
#[derive(Debug)]
pub struct Barrier {
    task: Task,
    number: u64,
    threads: usize,
}

impl Barrier {
    /// One that `threads` of each component come to. All components make their barriers in the same order.
    pub fn new(task: &Task, threads: usize) -> Self {
        Self { task: task.clone(), number: task.next_barrier(), threads: threads.max(1) }
    }

    /// Waits until all are there.
    pub fn wait(&self) {
        self.task.combine_among(self.number, self.threads, Combine::First, &[]);
    }

    /// The same, and combines what they bring.
    pub fn reduce(&self, combine: Combine, values: &[u64]) -> Vec<u64> {
        self.task.combine_among(self.number, self.threads, combine, values)
    }
}
