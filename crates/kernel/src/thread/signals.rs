//! A thread's ring of signals, and the function that hears of them. (Cache Kernel §2.2)
//!
//! A thread that has no signal function looks into its ring itself. One that has is told by a signal of the host, whose handler in its space goes to the function
//! and, when that has ended and the ring is empty, back to where the thread was. Its supervisor has nothing to do with that but to send the first.

use super::*;

impl<'a> Area<'a> {
    /// Where its ring is, in every space that has it: the signals of messages, as their receiver's addresses.
    pub fn ring_address(number: u32) -> u64 {
        AREAS + u64::from(number) * AREA_BYTES + AREA_RING as u64
    }

    /// Names the function that hears of messages, or none. It begins with the message's address in `rdi` and with `rsi` as what it jumps to when it has ended; its stack is the
    /// thread's own, below what may be in use there, and all registers are its own, too: the thread has them back afterwards. Others' signals wait until it has
    /// ended. To be named before the thread's message pages are mapped: who signals the thread without its supervisor does not tell it.
    pub fn set_signal_function(self, address: Option<std::num::NonZeroU64>) {
        self.long(AREA_FUNCTION).store(address.map_or(0, std::num::NonZeroU64::get), Release);
    }

    /// Whether a thread has a signal function.
    pub(crate) fn has_signal_function(self) -> bool {
        self.long(AREA_FUNCTION).load(Acquire) != 0
    }

    /// Whether it has one, and will not look into its ring unless it is told to.
    pub(crate) fn is_to_be_told(self) -> bool {
        self.has_signal_function() && self.word(AREA_IN_FUNCTION).load(SeqCst) == 0
    }

    /// Puts a signal into its ring, and wakes it if it sleeps there. Whether there was room.
    pub(crate) fn signal(self, address: u64) -> bool {
        let tail = self.ring_long(RING_TAIL);
        loop {
            let at = tail.load(Acquire);
            let slot = self.slot(at % MOST_SIGNALS);
            if slot.load(Acquire) != 0 {
                return false;
            }
            if tail.compare_exchange(at, at.wrapping_add(1), SeqCst, SeqCst).is_ok() {
                slot.store(address, SeqCst);
                break;
            }
        }
        let sleeps = self.word(AREA_RING + RING_SLEEPS);
        if sleeps.load(SeqCst) != 0 {
            sleeps.store(0, SeqCst);
            host::wake(sleeps);
        }
        true
    }

    fn slot(self, number: u64) -> &'a std::sync::atomic::AtomicU64 {
        self.ring_long(RING_SLOTS + usize::try_from(number).expect("it is small") * 8)
    }

    fn ring_long(self, offset: usize) -> &'a std::sync::atomic::AtomicU64 {
        self.long(AREA_RING + offset)
    }

    /// Its ring, as it is: where the next is put, where the next is taken, and all places. Nothing: nobody has ever used it.
    pub(crate) fn signals(self) -> Vec<u64> {
        let [tail, head] = [RING_TAIL, RING_HEAD].map(|offset| self.ring_long(offset).load(Acquire));
        if tail == 0 && head == 0 {
            return Vec::new();
        }
        [tail, head].into_iter().chain((0..MOST_SIGNALS).map(|slot| self.slot(slot).load(Acquire))).collect()
    }

    /// Gives it a ring that another has had: signals of who was here are nobody's. Nothing: it was none.
    pub(crate) fn set_signals(self, signals: &[u64]) -> Option<()> {
        self.areas.copy_in(self.start() + AREA_RING, &[0; PAGE]);
        let Some((ends, slots)) = signals.split_at_checked(2) else {
            return signals.is_empty().then_some(());
        };
        if slots.len() as u64 != MOST_SIGNALS {
            return None;
        }
        for (number, value) in (0..).zip(slots) {
            self.slot(number).store(*value, Release);
        }
        self.ring_long(RING_HEAD).store(ends[1], Release);
        self.ring_long(RING_TAIL).store(ends[0], Release);
        Some(())
    }
}
