//! How a window's owner takes it back from a peer that may be using it at this moment.
//!
//! The owner poisons the window's epoch word and then empties the memory. A get copies first and looks at the epoch
//! afterwards: if it is still the window's, nothing of what was copied is the emptiness that came later. A put looks
//! first: one that looked in time lands in memory that nobody reads any more.

use crate::sync::{AtomicU64, Ordering, fence};

/// The owner's part: from now on the word names this window. Comes before the peer can have it.
pub(crate) fn open(word: &AtomicU64, epoch: u64) {
    word.store(epoch, Ordering::SeqCst);
}

/// The owner's part: no put or get that begins after this succeeds. Empty the memory after this, not before.
pub(crate) fn withdraw(word: &AtomicU64) {
    word.store(0, Ordering::SeqCst);
    // The memory is emptied by a system call, whose stores no release store of ours would order.
    fence(Ordering::SeqCst);
}

/// Before a put: whether it may begin.
#[inline]
pub(crate) fn is_open(word: &AtomicU64, epoch: u64) -> bool {
    word.load(Ordering::Acquire) == epoch
}

/// After a get: whether what was copied is the window's content.
#[inline]
pub(crate) fn was_open(word: &AtomicU64, epoch: u64) -> bool {
    // An acquiring load would keep back what follows it; what came before it is what matters here.
    fence(Ordering::Acquire);
    word.load(Ordering::Relaxed) == epoch
}

#[cfg(all(test, loom))]
mod tests {
    use super::*;
    use crate::sync::Words;
    use crate::sync::plain::PlainWords;

    const EPOCH: usize = 0;
    const MEMORY: usize = 1;
    const OURS: u64 = 5;
    const CONTENT: u64 = 7;

    type Get = fn(&PlainWords) -> Option<u64>;

    fn get(words: &PlainWords) -> Option<u64> {
        let copied = words.word(MEMORY).load(Ordering::Relaxed);
        was_open(words.word(EPOCH), OURS).then_some(copied)
    }

    /// A get while the owner withdraws and empties the window.
    fn get_while_it_is_withdrawn(get: Get, withdraw: fn(&AtomicU64)) {
        loom::model(move || {
            let words = PlainWords::new(2);
            words.word(MEMORY).store(CONTENT, Ordering::Relaxed);
            open(words.word(EPOCH), OURS);
            let theirs = words.clone();
            let peer = loom::thread::spawn(move || get(&theirs));
            withdraw(words.word(EPOCH));
            words.word(MEMORY).store(0, Ordering::Relaxed);
            let got = peer.join().unwrap();
            assert_ne!(got, Some(0), "the emptied memory passed for the window's content");
            assert!(!is_open(words.word(EPOCH), OURS));
        });
    }

    #[test]
    fn loom_an_emptied_window_never_passes_for_content_and_a_missing_fence_is_found() {
        get_while_it_is_withdrawn(get, withdraw);
        let broken = |get: Get, withdraw: fn(&AtomicU64)| {
            std::panic::catch_unwind(|| get_while_it_is_withdrawn(get, withdraw)).is_err()
        };
        let acquiring_load: Get = |words| {
            let copied = words.word(MEMORY).load(Ordering::Relaxed);
            is_open(words.word(EPOCH), OURS).then_some(copied)
        };
        assert!(broken(acquiring_load, withdraw), "an acquiring load lets the copy be taken after it");
        let look_first: Get =
            |words| is_open(words.word(EPOCH), OURS).then(|| words.word(MEMORY).load(Ordering::Relaxed));
        assert!(broken(look_first, withdraw), "a get that looks first copies the emptied memory");
        assert!(
            broken(get, |word| word.store(0, Ordering::SeqCst)),
            "memory emptied without a fence is seen first"
        );
    }
}
