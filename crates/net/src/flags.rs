//! One channel's flag on a bell board: a sender raises it after it posted, the receiver takes it before it looks.
//!
//! The order is everything. A message that comes after the look raises the flag again, because the flag was down by
//! then; one that came before the flag was taken is seen by the look. So while a receiver has demanded flags, and looked
//! at every ring once after that, no message lies there without its flag up or its ring about to be looked at. That the
//! board can be garbled by any peer is another matter: see [`crate::bell`].

use crate::sync::{AtomicU8, Ordering};

/// The sender's part, after it posted.
#[inline]
pub(crate) fn raise(flag: &AtomicU8) {
    #[cfg(not(loom))]
    flag.store(1, Ordering::Release);
    // Loom lets a store slip in between the two halves of another thread's swap, which no processor does.
    #[cfg(loom)]
    flag.swap(1, Ordering::Release);
}

/// The receiver's part: look at the ring after this, not before.
#[inline]
pub(crate) fn take(flag: &AtomicU8) -> bool {
    // A full fence: the look at the ring stays behind it.
    flag.swap(0, Ordering::SeqCst) != 0
}

#[cfg(all(test, loom))]
mod tests {
    use super::*;
    use crate::attention;
    use crate::sync::plain::PlainWords;
    use crate::sync::{Words, fence};
    use std::sync::Arc;

    const ATTENTION: usize = 0;
    const RING: usize = 1;
    const MANY: u64 = 2;

    /// What a receiver may do wrong.
    #[derive(Clone, Copy, PartialEq)]
    enum Mistake {
        None,
        /// It looks at the ring, and then lowers the flag.
        LooksFirst,
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
                    theirs.word(RING).store(message, Ordering::Release);
                    if attention::after_post(theirs.word(ATTENTION), full_fence) & MANY != 0 {
                        raise(&their_flag);
                    }
                }
            });
            let look = || words.word(RING).load(Ordering::Acquire);
            let fence = if mistake == Mistake::DemandsWithoutFence { || () } else { full_fence };
            attention::announce(words.word(ATTENTION), MANY, fence);
            let mut seen = if mistake == Mistake::TrustsTheFlagsAtOnce { 0 } else { look() };
            let mut look_where_flagged = || {
                if mistake == Mistake::LooksFirst {
                    let early = look();
                    seen = if take(&flag) { early } else { seen };
                } else if take(&flag) {
                    seen = look();
                }
            };
            look_where_flagged();
            sender.join().unwrap();
            look_where_flagged();
            assert_eq!(seen, 2, "a message lies in the ring and no flag is up");
        });
    }

    #[test]
    fn loom_no_message_lies_under_a_lowered_flag_and_every_wrong_order_is_found() {
        demand_flags_while_messages_come(Mistake::None);
        for mistake in [Mistake::LooksFirst, Mistake::TrustsTheFlagsAtOnce, Mistake::DemandsWithoutFence] {
            let found = std::panic::catch_unwind(|| demand_flags_while_messages_come(mistake)).is_err();
            assert!(found, "loom must find mistake {}", mistake as u8);
        }
    }
}
