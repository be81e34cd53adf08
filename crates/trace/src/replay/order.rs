//! What has to wait for what, and who does it.
//!
//! Every operation is done by one of a few threads, and each of those does its operations in the order of the trace. What one thread does
//! waits for others only where both deal with the same thing, of which there are three kinds: a name, a file's content, an open file. Each
//! can be used together with others, or alone: a name is used alone by who makes, renames or deletes it, and together by who uses anything
//! below it; content is used alone by who writes; an open file is used alone by who moves its position. Who uses something alone waits for
//! all who used it before, who uses it together for the last one who used it alone. The order is the trace's, that is, that in which
//! operations ended: what had to be there when one began had ended before.
//!
//! All waits lead back in that order, so the first operation that is not done never waits: there is no deadlock, however few threads there are.

use std::collections::HashMap;

use foldhash::fast::RandomState;

/// The place of an operation: by whom it is done, and as which of theirs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct At {
    pub(super) worker: u16,
    pub(super) position: u32,
}

/// What operations deal with.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Thing {
    Name(u32),
    Content(u32),
    Open(u32),
}

#[derive(Default)]
struct Use {
    alone: Option<At>,
    /// Since then, of each worker the last.
    together: Vec<At>,
}

/// Who waits for whom.
#[derive(Default)]
pub(super) struct Order {
    uses: HashMap<Thing, Use, RandomState>,
    /// Of each worker, up to where it has waited for each other one.
    waited: Vec<Vec<u32>>,
    waits: Vec<At>,
}

impl Order {
    /// The next operation uses this.
    pub(super) fn touch(&mut self, by: At, thing: Thing, alone: bool) {
        let known = self.uses.entry(thing).or_default();
        self.waits.extend(known.alone);
        if alone {
            self.waits.append(&mut known.together);
            known.alone = Some(by);
        } else if let Some(own) = known.together.iter_mut().find(|at| at.worker == by.worker) {
            *own = by;
        } else {
            known.together.push(by);
        }
    }

    /// It waits for this one, too.
    pub(super) fn wait_for(&mut self, at: At) {
        self.waits.push(at);
    }

    /// For whom it waits in the end: nobody for whom its worker has not waited before.
    pub(super) fn take(&mut self, by: At) -> Box<[At]> {
        let worker = usize::from(by.worker);
        if self.waited.len() <= worker {
            self.waited.resize_with(worker + 1, Vec::new);
        }
        let waited = &mut self.waited[worker];
        self.waits.retain(|at| at.worker != by.worker);
        // The latest of each worker first: it makes the others needless.
        self.waits.sort_unstable_by_key(|at| std::cmp::Reverse(at.position));
        let mut needed = Vec::new();
        for at in self.waits.drain(..) {
            let other = usize::from(at.worker);
            if waited.len() <= other {
                waited.resize(other + 1, 0);
            }
            if waited[other] <= at.position {
                waited[other] = at.position + 1;
                needed.push(at);
            }
        }
        needed.into_boxed_slice()
    }
}

/// Which thread of the replay does what a thread of the trace did.
pub(super) struct Workers {
    most: u16,
    of_thread: HashMap<u32, u16, RandomState>,
    /// Of each worker, how many living threads it stands for.
    threads: Vec<u32>,
}

impl Workers {
    pub(super) fn new(most: u16) -> Self {
        Self { most: most.max(1), of_thread: HashMap::default(), threads: Vec::new() }
    }

    /// Who does what this thread did: one who does nothing else if there is one, or may be one more.
    pub(super) fn of(&mut self, thread: u32) -> u16 {
        if let Some(&known) = self.of_thread.get(&thread) {
            return known;
        }
        let least = (0..).zip(&self.threads).min_by_key(|(_, threads)| **threads);
        let worker = match least {
            Some((worker, 0)) => worker,
            Some((worker, _)) if self.threads.len() >= usize::from(self.most) => worker,
            _ => {
                self.threads.push(0);
                u16::try_from(self.threads.len() - 1).expect("workers are few")
            }
        };
        self.threads[usize::from(worker)] += 1;
        self.of_thread.insert(thread, worker);
        worker
    }

    /// A thread of the trace has ended.
    pub(super) fn end(&mut self, thread: u32) {
        if let Some(worker) = self.of_thread.remove(&thread) {
            self.threads[usize::from(worker)] -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(worker: u16, position: u32) -> At {
        At { worker, position }
    }

    fn waits(order: &mut Order, by: At, things: &[(Thing, bool)]) -> Vec<At> {
        for &(thing, alone) in things {
            order.touch(by, thing, alone);
        }
        order.take(by).into_vec()
    }

    #[test]
    fn who_uses_something_alone_waits_for_all_and_all_wait_for_them() {
        let mut order = Order::default();
        let file = Thing::Content(1);
        assert!(waits(&mut order, at(0, 0), &[(file, true)]).is_empty());
        assert_eq!(waits(&mut order, at(1, 0), &[(file, false)]), [at(0, 0)]);
        assert_eq!(waits(&mut order, at(2, 0), &[(file, false)]), [at(0, 0)]);
        assert!(waits(&mut order, at(2, 1), &[(file, false)]).is_empty(), "it has waited");
        let mut all = waits(&mut order, at(0, 1), &[(file, true)]);
        all.sort_by_key(|at| at.worker);
        assert_eq!(all, [at(1, 0), at(2, 1)]);
        assert!(waits(&mut order, at(3, 0), &[(Thing::Open(1), true)]).is_empty(), "something else");
    }

    #[test]
    fn workers_are_used_again_and_shared_when_there_are_too_few() {
        let mut workers = Workers::new(2);
        assert_eq!((workers.of(10), workers.of(11), workers.of(10)), (0, 1, 0));
        workers.end(11);
        assert_eq!(workers.of(12), 1);
        assert_eq!(workers.of(13), 0);
        assert_eq!(workers.of(14), 1, "who stands for fewest");
    }
}
