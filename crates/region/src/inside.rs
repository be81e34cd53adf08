//! Where a thread may not touch shared memory: for handlers of signals, which let it go on first.
//!
//! From before it has an engine until after it has given it up. While it drives, for a handler that came to wait would leave what it waits for to its
//! own thread. And while it waits for blocks, for it may keep what it has until it has the rest.

use std::cell::Cell;
use std::sync::atomic::{Ordering, compiler_fence};

thread_local! {
    /// How many reasons there are.
    static REASONS: Cell<u32> = const { Cell::new(0) };
}

pub(crate) fn begin() {
    REASONS.set(REASONS.get() + 1);
    compiler_fence(Ordering::SeqCst);
}

/// For each [`begin`].
pub(crate) fn end() {
    compiler_fence(Ordering::SeqCst);
    REASONS.set(REASONS.get() - 1);
}

/// Async-signal-safe in a thread that has begun before.
pub(crate) fn is_inside() -> bool {
    REASONS.get() > 0
}

/// From one to the other.
pub(crate) struct Inside(());

impl Inside {
    pub(crate) fn begin() -> Self {
        begin();
        Self(())
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        end();
    }
}
