//! Work queues, and the completion queues that several of them share.

use std::collections::VecDeque;

use super::descriptor::{Completion, Descriptor, Side, WorkError, WorkId};
use super::interface::InterfaceKey;
use super::places::Place;

/// Names a completion queue. Stale for ever once that is removed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct QueueKey(pub(super) Place);

/// A posted descriptor.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) descriptor: Descriptor,
    /// The completion bit and the status. Errors are long and rare.
    pub(super) outcome: Option<Result<usize, Box<WorkError>>>,
    pub(super) immediate: Option<u32>,
}

/// One side of an interface. Descriptors are taken out in the order in which they were posted, whatever order they
/// complete in.
#[derive(Debug)]
pub(super) struct WorkQueue {
    entries: VecDeque<Entry>,
    /// The number of the first entry. Work is numbered as it is posted, and leaves in that order.
    first: u64,
    depth: usize,
    /// How many entries at the head are complete, as last counted.
    announced: usize,
    /// How many entries of the completion queue are about this queue. At most as many as descriptors were complete at
    /// once: one that was taken here and not there leaves its entry to the next.
    told: usize,
    /// How many entries at the head are handed to the channel, or complete without it.
    sent: usize,
    /// Bytes of the next that are handed to the channel.
    pub(super) sent_bytes: usize,
}

impl WorkQueue {
    pub(super) fn new(depth: usize) -> Self {
        Self { entries: VecDeque::new(), first: 0, depth, announced: 0, told: 0, sent: 0, sent_bytes: 0 }
    }

    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.entries.len() >= self.depth
    }

    #[inline(always)]
    pub(super) fn push(
        &mut self,
        descriptor: Descriptor,
        outcome: Option<Result<usize, Box<WorkError>>>,
    ) -> WorkId {
        let work = self.next();
        self.entries.push_back(Entry { descriptor, outcome, immediate: None });
        work
    }

    fn next(&self) -> WorkId {
        WorkId(self.first + self.entries.len() as u64)
    }

    /// The first descriptor that is not complete, with its number: for receives.
    #[inline]
    pub(super) fn first_open(&mut self) -> Option<(WorkId, &mut Entry)> {
        let number = self.first + self.announced as u64;
        let mut open = (number..).map(WorkId).zip(self.entries.range_mut(self.announced..));
        open.find(|(_, entry)| entry.outcome.is_none())
    }

    /// The first that is not handed to the channel yet, and how much of it is.
    #[inline]
    pub(super) fn first_unsent(&mut self) -> Option<(&mut Entry, &mut usize)> {
        while self.entries.get(self.sent).is_some_and(|entry| entry.outcome.is_some()) {
            self.sent += 1;
        }
        Some((self.entries.get_mut(self.sent)?, &mut self.sent_bytes))
    }

    /// The first that was not handed to the channel now is, whole.
    #[inline]
    pub(super) fn sent(&mut self) {
        self.sent += 1;
        self.sent_bytes = 0;
    }

    /// The first that is handed over and waits for the receiver's word.
    pub(super) fn first_unacknowledged(&mut self) -> Option<&mut Entry> {
        let handed_over = self.announced.min(self.sent)..self.sent;
        self.entries.range_mut(handed_over).find(|entry| entry.outcome.is_none())
    }

    #[inline]
    pub(super) fn entry(&mut self, work: WorkId) -> Option<&mut Entry> {
        let at = self.position(work)?;
        self.entries.get_mut(at)
    }

    #[inline]
    fn position(&self, work: WorkId) -> Option<usize> {
        usize::try_from(work.0.checked_sub(self.first)?).ok()
    }

    pub(super) fn is_complete(&self, work: WorkId) -> bool {
        // What was posted and is no longer there was taken, and only what is complete is taken.
        let posted = self.position(work).and_then(|at| self.entries.get(at));
        posted.map_or(work.0 < self.first, |entry| entry.outcome.is_some())
    }

    pub(super) fn open(&self) -> impl Iterator<Item = &Descriptor> {
        self.entries.iter().filter(|entry| entry.outcome.is_none()).map(|entry| &entry.descriptor)
    }

    pub(super) fn complete_all(&mut self, error: &WorkError) {
        self.sent_bytes = 0;
        for entry in self.entries.iter_mut().filter(|entry| entry.outcome.is_none()) {
            entry.outcome = Some(Err(Box::new(error.clone())));
        }
    }

    /// Counts the descriptors that can be taken.
    #[inline]
    pub(super) fn announce(&mut self) {
        while self.entries.get(self.announced).is_some_and(|entry| entry.outcome.is_some()) {
            self.announced += 1;
        }
    }

    /// How many entries the completion queue needs so that it tells of all that can be taken; they are counted as made.
    pub(super) fn tell(&mut self) -> usize {
        let new = self.announced.saturating_sub(self.told);
        self.told += new;
        new
    }

    /// An entry was taken out of the completion queue.
    pub(super) fn told_of(&mut self) {
        self.told -= 1;
    }

    /// Whether the completion queue has entries about this one.
    pub(super) fn is_told_of(&self) -> bool {
        self.told > 0
    }

    #[inline]
    pub(super) fn take(&mut self, interface: InterfaceKey, side: Side) -> Option<Completion> {
        // Looked at in every round of who spins, and nearer than the entries.
        if self.announced == 0 {
            return None;
        }
        let entry = self.entries.pop_front()?;
        let work = WorkId(self.first);
        self.first += 1;
        let outcome = entry.outcome?.map_err(|error| *error);
        self.announced = self.announced.saturating_sub(1);
        self.sent = self.sent.saturating_sub(1);
        Some(Completion { interface, side, work, outcome, immediate: entry.immediate })
    }
}

#[cfg(test)]
mod tests {
    use super::super::places::Places;
    use super::*;

    #[test]
    fn descriptors_leave_in_order_though_they_complete_out_of_order() {
        let mut queue = WorkQueue::new(3);
        let works: Vec<_> = (0..3).map(|_| queue.push(Descriptor::send(&[]), None)).collect();
        assert!(queue.is_full());
        let key = InterfaceKey(Places::default().add(|_| ()));
        queue.entry(works[1]).unwrap().outcome = Some(Ok(1));
        assert!(queue.is_complete(works[1]) && !queue.is_complete(works[0]));
        queue.announce();
        assert_eq!(queue.tell(), 0, "the head is not complete");
        assert_eq!(queue.take(key, Side::Send), None);
        queue.entry(works[0]).unwrap().outcome = Some(Ok(0));
        queue.announce();
        assert_eq!(queue.tell(), 2);
        assert_eq!(queue.take(key, Side::Send).unwrap().work, works[0]);
        queue.announce();
        assert_eq!(queue.tell(), 0, "told once");
        assert_eq!(queue.take(key, Side::Send).unwrap().work, works[1]);
        assert_eq!(queue.take(key, Side::Send), None);
        assert!(queue.is_complete(works[0]) && !queue.is_complete(works[2]));
    }
}
