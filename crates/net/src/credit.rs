//! How a sender that waits for room hears that there is some.
//!
//! A receiver announces its count of consumed messages rarely, for the word is a cache line that the sender has to
//! fetch. A sender that waits says so, passes a fence (on its way to sleep, see [`crate::attention`]) and looks at the
//! count for the last time. A receiver announces, passes a fence, and looks whether the sender waits. So either the
//! sender sees the count or the receiver sees the sender, and wakes it. A receiver that finds nothing to read announces
//! what it still owes: else a sender that said it a moment too late would wait for the next message to be read.

use crate::sync::{AtomicU64, Ordering};

/// The sender waits for room, or to be let go on: announce every message, and ring its bell.
pub(crate) const ROOM: u64 = 1;
/// The sender judges silence by what is unread: announce every message, but do not ring.
pub(crate) const EVERY_COUNT: u64 = 2;

/// The sender's part: what it wants from now on.
pub(crate) fn want(word: &AtomicU64, wanted: u64) {
    word.store(wanted, Ordering::SeqCst);
}

/// What the sender wants; seen early or late, which [`announce`] makes good.
#[inline]
pub(crate) fn wanted(word: &AtomicU64) -> u64 {
    word.load(Ordering::Relaxed)
}

/// The receiver's part: announces its count, or lets the sender go on, in a word of its own; then says whether the sender
/// waits for room and is to be woken.
#[inline]
pub(crate) fn announce(word: &AtomicU64, value: u64, wants: &AtomicU64, fence: impl FnOnce()) -> bool {
    word.store(value, Ordering::Release);
    fence();
    wanted(wants) & ROOM != 0
}

/// The count as the peer last announced it: an allegation.
#[inline]
pub(crate) fn announced(count: &AtomicU64) -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "counts wrap at 32 bits")]
    let count = count.load(Ordering::Acquire) as u32;
    count
}

#[cfg(all(test, loom))]
mod tests {
    use super::*;
    use crate::attention;
    use crate::sync::plain::PlainWords;
    use crate::sync::{Words, fence};

    const COUNT: usize = 0;
    const WANTS: usize = 1;
    const ATTENTION: usize = 2;
    const FUTEX: usize = 3;
    const ASLEEP: u64 = 1;

    /// A receiver as in `ShmLink`: announces what is wanted when it has read, and all it owes when there is no more.
    fn read_one_message(words: &PlainWords, between: fn(), pays_when_idle: bool) -> bool {
        let mut woke = false;
        let mut give = || {
            if announce(words.word(COUNT), 1, words.word(WANTS), between)
                && attention::after_post(words.word(ATTENTION), full_fence) & ASLEEP != 0
            {
                words.word(FUTEX).fetch_add(1, Ordering::SeqCst);
                woke = true;
            }
        };
        if wanted(words.word(WANTS)) != 0 || pays_when_idle {
            give();
        }
        woke
    }

    /// A sender whose ring is full goes to sleep while the receiver reads the last message.
    fn wait_for_room_while_it_is_made(receivers: fn(), senders: fn(), pays_when_idle: bool) {
        loom::model(move || {
            let words = PlainWords::new(4);
            let theirs = words.clone();
            let receiver = loom::thread::spawn(move || read_one_message(&theirs, receivers, pays_when_idle));
            want(words.word(WANTS), ROOM);
            let before = words.word(FUTEX).load(Ordering::SeqCst);
            attention::announce(words.word(ATTENTION), ASLEEP, senders);
            let stuck = announced(words.word(COUNT)) == 0;
            let sleeps = stuck && words.word(FUTEX).load(Ordering::SeqCst) == before;
            let woken = receiver.join().unwrap();
            assert!(!sleeps || woken, "everything is read, and the sender waits for room");
            assert_eq!(announced(words.word(COUNT)), 1);
        });
    }

    fn full_fence() {
        fence(Ordering::SeqCst);
    }

    #[test]
    fn loom_a_sender_never_waits_for_room_that_is_there_and_a_missing_fence_or_debt_is_found() {
        wait_for_room_while_it_is_made(full_fence, full_fence, true);
        let broken = |receivers: fn(), senders: fn(), pays_when_idle| {
            let model = move || wait_for_room_while_it_is_made(receivers, senders, pays_when_idle);
            std::panic::catch_unwind(model).is_err()
        };
        assert!(
            broken(|| (), full_fence, true),
            "a receiver without a fence looks too early whether it is wanted"
        );
        assert!(broken(full_fence, || (), true), "a sender without a fence looks too early at the count");
        assert!(
            broken(full_fence, full_fence, false),
            "a receiver that keeps its count leaves the sender asleep"
        );
    }
}
