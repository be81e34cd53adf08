//! Which counters have been seen.

/// How far a frame may be overtaken and still be taken. Networks reorder by a few frames; the rest is for
/// receivers that read several queues. 128 bytes for each channel.
const WINDOW: u64 = 1024;
const WORD_BITS: u64 = u64::BITS as u64;
const WORDS: usize = (WINDOW / WORD_BITS) as usize;

/// One bit for each of the last [`WINDOW`] counters, in a ring.
#[derive(Debug, Default)]
pub(super) struct ReplayWindow {
    /// One more than the largest counter accepted.
    next: u64,
    seen: [u64; WORDS],
}

impl ReplayWindow {
    /// Whether `counter` is new; from then on it is not. Only for counters of frames that have proved
    /// themselves.
    pub(super) fn accept(&mut self, counter: u64) -> bool {
        if counter < self.next {
            if self.next - counter > WINDOW || *self.word(counter) & bit(counter) != 0 {
                return false;
            }
        } else {
            // The places of counters that now leave the window are those of the ones that enter it. Each
            // counter enters once, so this is constant time in the long run.
            for entering in self.next.max(counter.saturating_sub(WINDOW - 1))..=counter {
                *self.word(entering) &= !bit(entering);
            }
            self.next = counter + 1;
        }
        *self.word(counter) |= bit(counter);
        true
    }

    fn word(&mut self, counter: u64) -> &mut u64 {
        let word = counter / WORD_BITS % WORDS as u64;
        &mut self.seen[usize::try_from(word).expect("one of a few words")]
    }
}

fn bit(counter: u64) -> u64 {
    1 << (counter % WORD_BITS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_edges_of_the_window() {
        let mut window = ReplayWindow::default();
        assert!(window.accept(0));
        assert!(!window.accept(0));
        assert!(window.accept(1024));
        assert!(!window.accept(0), "0 has just left the window, seen or not");
        assert!(window.accept(1), "1 is the last in it");
        assert!(!window.accept(1));
        assert!(!window.accept(1024));
        // A jump over the whole ring leaves nothing of before.
        assert!(window.accept(1_000_000));
        assert!((1_000_000 - 1023..1_000_000).all(|counter| window.accept(counter)));
        assert!(!window.accept(1_000_000 - 1024));
    }

    proptest! {
        #[test]
        fn behaves_like_a_set(steps in prop::collection::vec((0u64..3000, any::<bool>()), 0..2000)) {
            let mut window = ReplayWindow::default();
            let mut seen = BTreeSet::new();
            let mut around = 0u64;
            for (distance, jumps) in steps {
                let counter = (around + distance).saturating_sub(1500);
                if jumps {
                    around = around.max(counter);
                }
                let largest = seen.last().copied();
                let too_old = largest.is_some_and(|largest| counter + WINDOW <= largest);
                prop_assert_eq!(window.accept(counter), !too_old && seen.insert(counter), "{}", counter);
            }
        }
    }
}
