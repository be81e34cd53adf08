//! What happens when: a queue in the order of time, and of first come for what happens at the same time.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use comb_types::Time;

#[derive(Debug)]
struct Entry<T> {
    at: Time,
    number: u64,
    what: T,
}

impl<T> Ord for Entry<T> {
    /// The earliest is the greatest, which is what a heap hands out.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<T> Eq for Entry<T> {}

#[derive(Debug)]
pub(crate) struct Schedule<T> {
    heap: BinaryHeap<Entry<T>>,
    number: u64,
}

impl<T> Default for Schedule<T> {
    fn default() -> Self {
        Self { heap: BinaryHeap::new(), number: 0 }
    }
}

impl<T> Schedule<T> {
    pub(crate) fn push(&mut self, at: Time, what: T) {
        self.number += 1;
        self.heap.push(Entry { at, number: self.number, what });
    }

    pub(crate) fn next_time(&self) -> Option<Time> {
        self.heap.peek().map(|entry| entry.at)
    }

    pub(crate) fn pop(&mut self) -> Option<(Time, T)> {
        self.heap.pop().map(|entry| (entry.at, entry.what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_at_one_time_happens_in_the_order_of_its_coming() {
        let mut schedule = Schedule::default();
        for (at, what) in [(3, 'd'), (1, 'a'), (2, 'b'), (2, 'c'), (1, 'A')] {
            schedule.push(Time::from_millis(at), what);
        }
        let order: String = std::iter::from_fn(|| schedule.pop()).map(|(_, what)| what).collect();
        assert_eq!(order, "aAbcd");
    }
}
