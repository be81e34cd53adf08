//! A record's sequence word: how its owner changes the content while others read it.
//!
//! It is odd while the content changes, and each change leaves it larger. Whoever finds the same even number before its copy and after it has a copy of one
//! moment. There is one owner at a time: the caller sees to that.

use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Changes a record's words. `change` stores to them with any ordering.
#[inline]
pub(super) fn changing(sequence: &AtomicU64, change: impl FnOnce()) {
    // Only an owner that is out of its mind leaves it odd: then too, the next number is a larger one.
    let odd = sequence.load(Ordering::Relaxed) | 1;
    sequence.store(odd, Ordering::Relaxed);
    // Who sees a store of the change sees that the number is odd.
    fence(Ordering::Release);
    change();
    // Who sees this number sees all of the change.
    sequence.store(odd.wrapping_add(1), Ordering::Release);
}
