//! Rings that senders owe to receivers that poll: such a one is woken only if it has not looked for a while.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Channels of this process whose peers may have to be woken.
static OWED: AtomicUsize = AtomicUsize::new(0);

#[inline]
pub(crate) fn rings_are_owed() -> bool {
    OWED.load(Ordering::Relaxed) != 0
}

/// Of one channel.
#[derive(Debug, Default)]
pub(crate) struct Owed(bool);

impl Owed {
    /// Something was posted, and the peer not woken.
    pub(crate) fn owe(&mut self) {
        if !std::mem::replace(&mut self.0, true) {
            OWED.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether it was owed. It is no more.
    pub(crate) fn is_settled(&mut self) -> bool {
        let was_owed = std::mem::take(&mut self.0);
        if was_owed {
            OWED.fetch_sub(1, Ordering::Relaxed);
        }
        was_owed
    }
}

impl Drop for Owed {
    fn drop(&mut self) {
        self.is_settled();
    }
}
