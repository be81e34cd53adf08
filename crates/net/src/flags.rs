//! One channel's flag on a bell board: a sender writes the low byte of its count there after it posted; the receiver looks
//! at the ring while the flag says something else than what it has read.
//!
//! The order is everything. The receiver loads the flag, passes a fence, looks at the ring, and only then records what it
//! has read: a message that comes after the look changes the flag again, and one that the flag speaks of is there to be
//! seen. So while a receiver has demanded flags, and found every ring empty once after that, no message lies there without
//! its flag saying so, in rings of fewer than 256 slots. In a longer one 256 messages that come between two looks leave the
//! flag as it was: they are found by the look before a sleep, or in their channel's turn. That the board can be garbled by
//! any peer is another matter: see [`crate::bell`].

use crate::sync::{AtomicU8, Ordering, fence};

/// The sender's part, after it posted its message number `sent`.
#[inline]
pub(crate) fn raise(flag: &AtomicU8, sent: u32) {
    #[expect(clippy::cast_possible_truncation, reason = "the flag is the low byte")]
    flag.store(sent as u8, Ordering::Release);
}

/// The receiver's part, between its look at the flag, which may be of any kind, and that at the ring.
#[inline]
pub(crate) fn seen() {
    fence(Ordering::Acquire);
}

#[cfg(all(test, loom))]
mod tests {
    use super::*;
    use crate::attention;
    use crate::sync::Words;
    use crate::sync::plain::PlainWords;
    use std::sync::Arc;

    const ATTENTION: usize = 0;
    const RING: usize = 1;
    const MANY: u64 = 2;

    /// What may be done wrong.
    #[derive(Clone, Copy, PartialEq)]
    enum Mistake {
        None,
        /// The receiver looks at the ring, and then at the flag that it records.
        LooksFirst,
        /// It looks at the ring without a fence behind the flag.
        LooksWithoutFence,
        /// It demands flags and does not look at what came before.
        TrustsTheFlagsAtOnce,
        /// It demands flags without a fence.
        DemandsWithoutFence,
    }

    fn full_fence() {
        fence(Ordering::SeqCst);
    }

    /// Two messages come while a receiver begins to demand flags and looks only where they are up.
    fn demand_flags_while_messages_come(mistake: Mistake) {
        loom::model(move || {
            let (words, flag) = (PlainWords::new(2), Arc::new(AtomicU8::new(0)));
            let (theirs, their_flag) = (words.clone(), Arc::clone(&flag));
            let sender = loom::thread::spawn(move || {
                for message in 1..=2 {
                    theirs.word(RING).store(message.into(), Ordering::Release);
                    if attention::after_post(theirs.word(ATTENTION), full_fence) & MANY != 0 {
                        raise(&their_flag, message);
                    }
                }
            });
            let look = || words.word(RING).load(Ordering::Acquire);
            let fence = if mistake == Mistake::DemandsWithoutFence { || () } else { full_fence };
            attention::announce(words.word(ATTENTION), MANY, fence);
            let mut read = if mistake == Mistake::TrustsTheFlagsAtOnce { 0 } else { look() };
            let mut recorded = u8::try_from(read).expect("two");
            let mut look_where_flagged = || {
                let early = look();
                let shown = flag.load(Ordering::Relaxed);
                if shown == recorded {
                    return;
                }
                if mistake != Mistake::LooksWithoutFence {
                    seen();
                }
                let now = if mistake == Mistake::LooksFirst { early } else { look() };
                // As `Endpoint::poll_flagged`: what the flag says is old, or nonsense, if nothing came.
                recorded = if now > read { u8::try_from(now).expect("two") } else { shown };
                read = now;
            };
            look_where_flagged();
            sender.join().unwrap();
            look_where_flagged();
            look_where_flagged();
            assert_eq!(read, 2, "a message lies in the ring and its flag says that it was read");
        });
    }

    #[test]
    fn loom_no_message_lies_under_a_flag_that_says_read_and_every_wrong_order_is_found() {
        demand_flags_while_messages_come(Mistake::None);
        for mistake in [
            Mistake::LooksFirst,
            Mistake::LooksWithoutFence,
            Mistake::TrustsTheFlagsAtOnce,
            Mistake::DemandsWithoutFence,
        ] {
            let found = std::panic::catch_unwind(|| demand_flags_while_messages_come(mistake)).is_err();
            assert!(found, "loom must find mistake {}", mistake as u8);
        }
    }
}
