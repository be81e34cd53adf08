//! The end of a task whose program has one beginning and one end: component 0 says that it is over.
//!
//! First all are told, and take nobody's end for a failure any more; when all know that, they end, and component 0 last. None waits for its own
//! threads, wherever they are: as with `exit` in a process.
#![expect(unsafe_code, reason = "a process ends from any of its threads")]

use std::sync::Arc;

use super::{Engine, Mistake};
use crate::waiting::Slot;
use crate::wire::{Head, Kind};

/// Of component 0 alone.
const FIRST: u32 = 0;

impl Engine {
    /// The slot ends when all others know.
    pub(crate) fn say_that_it_ends(&mut self, slot: &Arc<Slot>) {
        self.hand_in_report();
        let others = self.core.others();
        slot.begin(u32::try_from(others.len()).expect("as many as ranks"));
        for rank in others {
            let token = self.core.token(rank, slot);
            self.parted.insert(rank);
            self.core.say(rank, Kind::End, &[token, 0, 0, 0], &[]);
        }
    }

    /// All know.
    pub(crate) fn let_all_end(&mut self) {
        for rank in self.core.others() {
            self.core.say(rank, Kind::End, &[0, 1, 0, 0], &[]);
        }
    }

    pub(super) fn take_end(&mut self, from: u32, head: &Head) -> Result<(), Mistake> {
        let [token, all_know, ..] = *head;
        if from != FIRST || (all_know == 1) != self.is_ending {
            return Err(Mistake::Nonsense);
        }
        if self.is_ending {
            end_now(0);
        }
        self.is_ending = true;
        self.hand_in_report();
        self.parted.extend(self.core.others());
        self.core.say(from, Kind::Known, &[token, 0, 0, 0], &[]);
        Ok(())
    }

    /// One is gone. Is it the one that all end with, this one does not wait to be told once more.
    pub(super) fn end_with(&self, gone: u32) {
        if self.is_ending && gone == FIRST {
            end_now(0);
        }
    }
}

/// This process is over: no exit handlers, for other threads are in the middle of what those would need.
pub(crate) fn end_now(status: i32) -> ! {
    // SAFETY: ends the process, from any thread and from handlers of signals.
    unsafe { libc::_exit(status) }
}

#[cfg(test)]
mod tests {
    use crate::engine::scene::memory;
    use crate::engine::{Engine, Mistake};
    use crate::wire::{self, Kind};

    #[test]
    fn only_component_0_ends_a_task_and_not_before_it_has_said_so() {
        let mut engine = Engine::new(memory(), None, 1, 3, false);
        let end = |all_know: u64| wire::pack(&[1, all_know, 0, 0]);
        assert_eq!(engine.take(2, Kind::End as u8, &end(0)), Err(Mistake::Nonsense));
        assert_eq!(engine.take(0, Kind::End as u8, &end(1)), Err(Mistake::Nonsense));
        assert!(!engine.is_ending);
        assert_eq!(engine.take(0, Kind::End as u8, &end(0)), Ok(()));
        assert!(engine.is_ending);
        assert_eq!(engine.take(0, Kind::End as u8, &end(0)), Err(Mistake::Nonsense), "twice");
    }
}
