//! The mark that something has ended, and why: written once, by whoever finds out first.

use std::sync::PoisonError;

use crate::sync::{AtomicBool, Mutex, Ordering};

/// Whether it has ended, for one relaxed look, and the cause for who looks closer.
#[derive(Debug)]
pub(crate) struct Ending<C> {
    ended: AtomicBool,
    cause: Mutex<Option<C>>,
}

impl<C: Clone> Ending<C> {
    pub(crate) fn new() -> Self {
        Self { ended: AtomicBool::new(false), cause: Mutex::new(None) }
    }

    /// The first cause stays. It is there before the mark: who sees the mark finds it.
    pub(crate) fn end(&self, cause: C) {
        self.cause.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(cause);
        self.ended.store(true, Ordering::Release);
    }

    #[inline]
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Why. Messages that came before the end are visible to who looks at their ring after this, not before.
    pub(crate) fn cause(&self) -> Option<C> {
        self.cause.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(all(test, loom))]
mod tests {
    use super::*;
    use crate::sync::Words;
    use crate::sync::plain::PlainWords;
    use std::sync::Arc;

    type End = fn(&Ending<u32>, u32);

    /// Two find out at once while the endpoint looks.
    fn two_ends_at_once(end: End) {
        loom::model(move || {
            let ending = Arc::new(Ending::new());
            let enders = [1, 2].map(|cause| {
                let ending = Arc::clone(&ending);
                loom::thread::spawn(move || end(&ending, cause))
            });
            let seen = ending.has_ended().then(|| ending.cause().expect("who sees the mark finds the cause"));
            for ender in enders {
                ender.join().unwrap();
            }
            let cause = ending.cause();
            assert!(ending.has_ended() && cause.is_some());
            assert!(seen.is_none() || seen == cause, "the first cause stays");
        });
    }

    /// A peer sends its last message and ends; the endpoint tells of the end only if there is nothing left to read.
    fn last_message_then_end(told_too_early: fn(&Ending<u32>, &dyn Fn() -> bool) -> bool) {
        loom::model(move || {
            let (ending, ring) = (Arc::new(Ending::new()), PlainWords::new(1));
            let (their_ending, theirs) = (Arc::clone(&ending), ring.clone());
            let peer = loom::thread::spawn(move || {
                theirs.word(0).store(1, Ordering::Release);
                their_ending.end(1);
            });
            let is_idle = || ring.word(0).load(Ordering::Acquire) == 0;
            assert!(!told_too_early(&ending, &is_idle), "told of the end before its last message was read");
            peer.join().unwrap();
        });
    }

    #[test]
    fn loom_the_first_cause_stays_and_comes_before_the_mark() {
        two_ends_at_once(Ending::end);
        let mark_first: End = |ending, cause| {
            ending.ended.store(true, Ordering::Release);
            ending.cause.lock().unwrap().get_or_insert(cause);
        };
        let last_stays: End = |ending, cause| {
            *ending.cause.lock().unwrap() = Some(cause);
            ending.ended.store(true, Ordering::Release);
        };
        for broken in [mark_first, last_stays] {
            assert!(std::panic::catch_unwind(|| two_ends_at_once(broken)).is_err());
        }
    }

    #[test]
    fn loom_the_last_message_is_seen_before_the_end_and_the_other_order_is_found() {
        last_message_then_end(|ending, is_idle| ending.has_ended() && is_idle());
        let ring_first = || last_message_then_end(|ending, is_idle| is_idle() && ending.has_ended());
        assert!(std::panic::catch_unwind(ring_first).is_err());
    }
}
