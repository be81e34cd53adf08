//! Which thread runs next.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Debug;
use std::time::Duration;

use comb_kernel::objects::Tag;

/// Decides for the threads of a kernel.
pub trait Scheduler: Debug {
    /// A thread can run. It could not before, or has just run.
    fn ready(&mut self, thread: Tag, priority: u8);

    /// The one that runs now. It is ready no more.
    fn next(&mut self) -> Option<Tag>;

    /// Whether one that has run for so long is to give way to those that are ready.
    fn gives_way(&self, thread: Tag, priority: u8, ran: Duration) -> bool;

    /// A thread is there no more.
    fn forget(&mut self, thread: Tag);
}

/// How long a thread runs while others wait that are as important.
const SLICE: Duration = Duration::from_millis(10);

/// One after the other of those with the highest priority.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RoundRobin {
    ready: BTreeMap<u8, VecDeque<Tag>>,
}

impl Scheduler for RoundRobin {
    fn ready(&mut self, thread: Tag, priority: u8) {
        self.ready.entry(priority).or_default().push_back(thread);
    }

    fn next(&mut self) -> Option<Tag> {
        let mut highest = self.ready.last_entry()?;
        let next = highest.get_mut().pop_front();
        if highest.get().is_empty() {
            highest.remove();
        }
        next
    }

    fn gives_way(&self, _: Tag, priority: u8, ran: Duration) -> bool {
        self.ready
            .last_key_value()
            .is_some_and(|(highest, _)| *highest > priority || *highest == priority && ran >= SLICE)
    }

    fn forget(&mut self, thread: Tag) {
        for queue in self.ready.values_mut() {
            queue.retain(|other| *other != thread);
        }
        self.ready.retain(|_, queue| !queue.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_come_first_and_those_as_high_take_turns() {
        let mut scheduler = RoundRobin::default();
        for (thread, priority) in [(1, 5), (2, 5), (3, 7), (4, 1)] {
            scheduler.ready(Tag(thread), priority);
        }
        assert!(scheduler.gives_way(Tag(9), 6, Duration::ZERO));
        assert_eq!(scheduler.next(), Some(Tag(3)));
        assert!(!scheduler.gives_way(Tag(3), 7, SLICE));
        assert_eq!(scheduler.next(), Some(Tag(1)));
        assert!(!scheduler.gives_way(Tag(1), 5, Duration::ZERO) && scheduler.gives_way(Tag(1), 5, SLICE));
        scheduler.ready(Tag(1), 5);
        assert_eq!(scheduler.next(), Some(Tag(2)));
        scheduler.forget(Tag(1));
        assert_eq!([scheduler.next(), scheduler.next()], [Some(Tag(4)), None]);
    }
}
