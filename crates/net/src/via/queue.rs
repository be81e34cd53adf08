//! Work queues, and the completion queues that several of them share.

use std::collections::VecDeque;

use super::descriptor::{Completion, Descriptor, Side, WorkError, WorkId};
use super::interface::InterfaceKey;

/// Names a completion queue.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct QueueKey(pub(super) u32);

/// A posted descriptor.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) work: WorkId,
    pub(super) descriptor: Descriptor,
    /// The completion bit and the status.
    pub(super) outcome: Option<Result<usize, WorkError>>,
    pub(super) immediate: Option<u32>,
    /// Bytes handed to the channel so far, and whether that is all.
    pub(super) sent_bytes: usize,
    pub(super) sent: bool,
}

/// One side of an interface. Descriptors are taken out in the order in which they were posted, whatever order they
/// complete in.
#[derive(Debug)]
pub(super) struct WorkQueue {
    entries: VecDeque<Entry>,
    next: u64,
    depth: usize,
    /// How many entries at the head are complete and in the completion queue already.
    announced: usize,
    /// How many entries at the head are handed to the channel, or complete without it.
    sent: usize,
}

impl WorkQueue {
    pub(super) fn new(depth: usize) -> Self {
        Self { entries: VecDeque::new(), next: 0, depth, announced: 0, sent: 0 }
    }

    pub(super) fn is_full(&self) -> bool {
        self.entries.len() >= self.depth
    }

    pub(super) fn push(
        &mut self,
        descriptor: Descriptor,
        outcome: Option<Result<usize, WorkError>>,
    ) -> WorkId {
        let work = WorkId(self.next);
        self.next += 1;
        self.entries.push_back(Entry {
            work,
            descriptor,
            outcome,
            immediate: None,
            sent_bytes: 0,
            sent: false,
        });
        work
    }

    /// The first descriptor that is not complete: for receives.
    pub(super) fn first_open(&mut self) -> Option<&mut Entry> {
        self.entries.range_mut(self.announced..).find(|entry| entry.outcome.is_none())
    }

    /// The first that is not handed to the channel yet.
    pub(super) fn first_unsent(&mut self) -> Option<&mut Entry> {
        let waits = |entry: &Entry| entry.outcome.is_none() && !entry.sent;
        self.sent += self.entries.range(self.sent..).take_while(|entry| !waits(entry)).count();
        self.entries.get_mut(self.sent)
    }

    /// The first that is handed over and waits for the receiver's word.
    pub(super) fn first_unacknowledged(&mut self) -> Option<&mut Entry> {
        self.entries.range_mut(self.announced..).find(|entry| entry.outcome.is_none() && entry.sent)
    }

    pub(super) fn entry(&mut self, work: WorkId) -> Option<&mut Entry> {
        let at = self.position(work)?;
        self.entries.get_mut(at)
    }

    /// Work is numbered as it is posted, and leaves in that order.
    fn position(&self, work: WorkId) -> Option<usize> {
        usize::try_from(work.0.checked_sub(self.entries.front()?.work.0)?).ok()
    }

    pub(super) fn is_complete(&self, work: WorkId) -> bool {
        // What was posted and is no longer there was taken, and only what is complete is taken.
        let posted = self.position(work).and_then(|at| self.entries.get(at));
        posted.map_or(work.0 < self.next, |entry| entry.outcome.is_some())
    }

    pub(super) fn open(&self) -> impl Iterator<Item = &Descriptor> {
        self.entries.iter().filter(|entry| entry.outcome.is_none()).map(|entry| &entry.descriptor)
    }

    pub(super) fn complete_all(&mut self, error: &WorkError) {
        for entry in self.entries.iter_mut().filter(|entry| entry.outcome.is_none()) {
            entry.outcome = Some(Err(error.clone()));
        }
    }

    /// How many more descriptors can be taken than when this was last asked.
    pub(super) fn announce(&mut self) -> usize {
        let new =
            self.entries.iter().skip(self.announced).take_while(|entry| entry.outcome.is_some()).count();
        self.announced += new;
        new
    }

    pub(super) fn take(&mut self, interface: InterfaceKey, side: Side) -> Option<Completion> {
        let outcome = self.entries.front()?.outcome.clone()?;
        let entry = self.entries.pop_front()?;
        self.announced = self.announced.saturating_sub(1);
        self.sent = self.sent.saturating_sub(1);
        Some(Completion { interface, side, work: entry.work, outcome, immediate: entry.immediate })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_leave_in_order_though_they_complete_out_of_order() {
        let mut queue = WorkQueue::new(3);
        let works: Vec<_> = (0..3).map(|_| queue.push(Descriptor::send(&[]), None)).collect();
        assert!(queue.is_full());
        let key = InterfaceKey { index: 0 };
        queue.entry(works[1]).unwrap().outcome = Some(Ok(1));
        assert!(queue.is_complete(works[1]) && !queue.is_complete(works[0]));
        assert_eq!(queue.announce(), 0, "the head is not complete");
        assert_eq!(queue.take(key, Side::Send), None);
        queue.entry(works[0]).unwrap().outcome = Some(Ok(0));
        assert_eq!(queue.announce(), 2);
        assert_eq!(queue.take(key, Side::Send).unwrap().work, works[0]);
        assert_eq!(queue.announce(), 0, "told once");
        assert_eq!(queue.take(key, Side::Send).unwrap().work, works[1]);
        assert_eq!(queue.take(key, Side::Send), None);
        assert!(queue.is_complete(works[0]) && !queue.is_complete(works[2]));
    }
}
