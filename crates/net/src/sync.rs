//! The one door to atomics, so that loom can stand in for them and explore their orderings.

#[cfg(loom)]
pub(crate) use loom::{
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, fence},
    },
    thread::yield_now,
    thread_local,
};
#[cfg(not(loom))]
pub(crate) use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, fence},
    },
    thread::yield_now,
    thread_local,
};

/// 64-bit words that one side of a channel writes and the other reads. The ring's algorithm is written against this
/// trait, so that the same code runs over sealed shared memory, over plain memory (miri) and over loom's atomics.
pub(crate) trait Words {
    /// The word at `index`. Panics beyond the end: indices come from our own geometry, never from a peer.
    fn word(&self, index: usize) -> &AtomicU64;

    /// The eight words of a slot, looked up at once.
    fn slot(&self, first: usize) -> &[AtomicU64; 8];

    /// Asks for the line of a slot, to write it. A hint.
    #[inline]
    fn ask_for_slot(&self, _first: usize) {}
}

impl<T: Words + ?Sized> Words for &T {
    fn word(&self, index: usize) -> &AtomicU64 {
        (**self).word(index)
    }
    fn slot(&self, first: usize) -> &[AtomicU64; 8] {
        (**self).slot(first)
    }
}

#[cfg(any(test, loom))]
pub(crate) mod plain {
    //! Words on the heap, for tests.

    use super::{AtomicU64, Words};

    #[derive(Clone)]
    pub(crate) struct PlainWords(std::sync::Arc<Vec<AtomicU64>>);

    impl PlainWords {
        pub(crate) fn new(count: usize) -> Self {
            Self(std::sync::Arc::new((0..count).map(|_| AtomicU64::new(0)).collect()))
        }
    }

    impl Words for PlainWords {
        fn word(&self, index: usize) -> &AtomicU64 {
            &self.0[index]
        }
        fn slot(&self, first: usize) -> &[AtomicU64; 8] {
            self.0[first..first + 8].try_into().expect("eight words")
        }
    }
}
