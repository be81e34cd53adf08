//! Which threads are preferred: those that wait much over those that compute much. (The cache kernel, §2.3: the emulator adjusts
//! priorities at intervals, and the supervisor does the rest.)

use crate::machine::Machine;
use crate::processes::State;
use crate::unix::Unix;
use crate::waiting::Id;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How often priorities are looked at. Longer than a burst of work for a key that was pressed, shorter than a user's patience.
const INTERVAL: Duration = Duration::from_millis(100);
/// Where a thread begins, between the two ends.
const FIRST_PRIORITY: u8 = 16;
const MOST_PRIORITY: u8 = 31;

/// The priorities of all threads that do not have the first one.
#[derive(Default)]
pub(crate) struct Scheduler {
    next: Option<Instant>,
    priorities: BTreeMap<Id, u8>,
}

/// The priority after an interval in which the thread was seen to run or to wait.
fn aged(priority: u8, ran: bool) -> u8 {
    if ran { priority.saturating_sub(2) } else { (priority + 1).min(MOST_PRIORITY) }
}

impl Scheduler {
    /// When priorities are to be looked at again; never while nothing runs.
    pub(crate) fn next(&mut self, anything_runs: bool) -> Option<Instant> {
        if !anything_runs {
            self.next = None;
            return None;
        }
        Some(*self.next.get_or_insert_with(|| Instant::now() + INTERVAL))
    }
}

impl<M: Machine> Unix<M> {
    /// Adjusts priorities, if it is time.
    pub(crate) fn age(&mut self) {
        if self.scheduler.next.is_none_or(|next| next > Instant::now()) {
            return;
        }
        self.scheduler.next = None;
        self.scheduler.priorities.retain(|id, _| self.threads.contains_key(id));
        for (&id, thread) in &self.threads {
            let before = self.scheduler.priorities.get(&id).copied().unwrap_or(FIRST_PRIORITY);
            let after = aged(before, thread.state == State::Running);
            if after != before {
                self.scheduler.priorities.insert(id, after);
                self.memory.machine.prefer(thread.machine, after);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_computes_falls_behind_who_waits() {
        let (mut computes, mut waits) = (FIRST_PRIORITY, FIRST_PRIORITY);
        for _ in 0..40 {
            computes = aged(computes, true);
            waits = aged(waits, false);
        }
        assert_eq!((computes, waits), (0, MOST_PRIORITY));
    }
}
