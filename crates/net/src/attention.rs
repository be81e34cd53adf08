//! The word by which a receiver says that it has to be told: it sleeps, has too many channels to look at, or waits for
//! events.
//!
//! A receiver announces that, passes a fence, and only then looks at its rings for the last time. A sender posts, passes
//! a fence, and only then looks at this word. So at least one of them sees the other: both cannot have looked too early.
//! Without either fence a processor may do the look before the store, and a message would lie there while its receiver
//! sleeps.

use crate::sync::{AtomicU64, Ordering};

/// The receiver's part: from now on senders see `bit`. Look at the rings after this, not before.
pub(crate) fn announce(word: &AtomicU64, bit: u64, fence: impl FnOnce()) {
    word.fetch_or(bit, Ordering::SeqCst);
    fence();
}

/// The receiver needs no telling any more.
pub(crate) fn withdraw(word: &AtomicU64, bit: u64) {
    word.fetch_and(!bit, Ordering::SeqCst);
}

/// The sender's part, after it posted: what the receiver has announced.
#[inline]
pub(crate) fn after_post(word: &AtomicU64, fence: impl FnOnce()) -> u64 {
    fence();
    word.load(Ordering::Relaxed)
}

/// The sender's part, after it posted to a receiver that polls: instead of waking it. It is still owed that, see [`is_unread`].
pub(crate) fn raise_mail(mail: &AtomicU64) {
    mail.fetch_or(1, Ordering::SeqCst);
}

/// The receiver's part, before it looks at its rings: all is there that was posted before the mail was raised that it takes.
#[inline]
pub(crate) fn take_mail(mail: &AtomicU64) {
    if mail.load(Ordering::Relaxed) != 0 {
        mail.swap(0, Ordering::SeqCst);
    }
}

/// The sender's part, some time after it raised the mail: whether it has to wake the receiver after all. Who has taken the mail has
/// looked at its rings since.
pub(crate) fn is_unread(mail: &AtomicU64, word: &AtomicU64, bit: u64) -> bool {
    mail.load(Ordering::SeqCst) != 0 && word.load(Ordering::SeqCst) & bit != 0
}

#[cfg(all(test, loom))]
mod tests {
    use super::*;
    use crate::sync::Words;
    use crate::sync::plain::PlainWords;

    const ATTENTION: usize = 0;
    const MESSAGE: usize = 1;
    const FUTEX: usize = 2;
    const ASLEEP: u64 = 1;

    /// A receiver that goes to sleep while a sender posts. The kernel's part is one comparison: a receiver sleeps only if
    /// the futex word is still what it was before the announcement.
    fn go_to_sleep_while_a_message_comes(receivers: fn(), senders: fn()) {
        loom::model(move || {
            let words = PlainWords::new(3);
            let theirs = words.clone();
            let sender = loom::thread::spawn(move || {
                theirs.word(MESSAGE).store(1, Ordering::Release);
                if after_post(theirs.word(ATTENTION), senders) & ASLEEP != 0 {
                    theirs.word(FUTEX).fetch_add(1, Ordering::SeqCst);
                    return true;
                }
                false
            });
            let before = words.word(FUTEX).load(Ordering::SeqCst);
            announce(words.word(ATTENTION), ASLEEP, receivers);
            let idle = words.word(MESSAGE).load(Ordering::Acquire) == 0;
            let sleeps = idle && words.word(FUTEX).load(Ordering::SeqCst) == before;
            let woken = sender.join().unwrap();
            // One who sleeps before the word changes is woken by the change.
            assert!(!sleeps || woken, "asleep with a message, and nobody comes");
            withdraw(words.word(ATTENTION), ASLEEP);
            assert_eq!(words.word(MESSAGE).load(Ordering::Acquire), 1);
        });
    }

    /// A receiver looks at its mail once, and then computes for long or, if there was some, reads and goes to sleep; meanwhile a sender
    /// posts. `looks_again`: some time later. `takes_late`: the mail is taken behind the last look at the rings.
    fn poll_once_while_a_message_comes(looks_again: bool, takes_late: bool) {
        const MAIL: usize = 3;
        const POLLED: u64 = 2;
        loom::model(move || {
            let words = PlainWords::new(4);
            words.word(ATTENTION).store(ASLEEP | POLLED, Ordering::SeqCst);
            words.word(MAIL).store(1, Ordering::SeqCst);
            let theirs = words.clone();
            let sender = loom::thread::spawn(move || {
                theirs.word(MESSAGE).store(1, Ordering::Release);
                let seen = after_post(theirs.word(ATTENTION), full_fence);
                if seen & POLLED != 0 {
                    raise_mail(theirs.word(MAIL));
                    return looks_again && is_unread(theirs.word(MAIL), theirs.word(ATTENTION), ASLEEP);
                }
                seen & ASLEEP != 0
            });
            // Raised by another.
            withdraw(words.word(ATTENTION), ASLEEP | POLLED);
            if !takes_late {
                take_mail(words.word(MAIL));
            }
            announce(words.word(ATTENTION), ASLEEP | POLLED, full_fence);
            let read = words.word(MESSAGE).load(Ordering::Acquire) != 0;
            if takes_late {
                take_mail(words.word(MAIL));
            }
            let woken = sender.join().unwrap();
            assert!(read || woken, "it computes on, and nobody comes");
        });
    }

    #[test]
    fn loom_who_does_not_poll_is_woken_in_the_end() {
        poll_once_while_a_message_comes(true, false);
        let broken = |looks_again, takes_late| {
            std::panic::catch_unwind(|| poll_once_while_a_message_comes(looks_again, takes_late)).is_err()
        };
        assert!(broken(false, false), "loom must see that a sender that only raises the mail is not enough");
        assert!(broken(true, true), "loom must see that mail taken too late may be unread");
    }

    fn full_fence() {
        loom::sync::atomic::fence(Ordering::SeqCst);
    }

    #[test]
    fn loom_nobody_sleeps_over_a_message_and_a_missing_fence_is_found() {
        go_to_sleep_while_a_message_comes(full_fence, full_fence);
        let broken = |receivers: fn(), senders: fn()| {
            std::panic::catch_unwind(|| go_to_sleep_while_a_message_comes(receivers, senders)).is_err()
        };
        assert!(broken(full_fence, || ()), "loom must see that a sender without a fence looks too early");
        assert!(broken(|| (), full_fence), "loom must see that a receiver without a fence looks too early");
    }
}
