//! Accesses that look at the state table themselves, as compiled code does, for code that is not compiled so: system calls that are made in a
//! program's stead, careful copies, tests.
//!
//! Of memory with [`crate::Grain::Checked`], the MMU stops only who comes to a page first. Later whoever has no right reads the flag in every byte
//! of an invalid block, and nothing stops its stores: all code that touches it has to look. On memory that is guarded otherwise, or not at
//! all, these work too.
#![expect(unsafe_code, reason = "bytes of the state table")]

use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering, compiler_fence};

use crate::fault::{self, Verdict};
use crate::space::{SMALLEST_BLOCK_BYTES, state_address};
use crate::threads::{self, Need};

/// Every byte of an invalid block contains this, once its page is known to the MMU: a load that finds something else was right. (Blizzard §3.2)
pub const FLAG: u8 = 0xF1;

/// What is looked at together at most: who lowers a right waits for it.
pub const PIECE_BYTES: usize = 4096;

/// No address of a program lies behind.
const ADDRESSES_END: usize = 1 << 47;

/// How many heaps of this process may have memory that must be looked at. There is a state table then.
static CHECKED: AtomicUsize = AtomicUsize::new(0);

/// Whether this process has memory that not the MMU alone guards.
#[inline]
pub fn is_needed() -> bool {
    CHECKED.load(Ordering::Relaxed) != 0
}

pub(crate) fn begin() {
    CHECKED.fetch_add(1, Ordering::SeqCst);
}

pub(crate) fn end() {
    CHECKED.fetch_sub(1, Ordering::SeqCst);
}

/// A range that is to be accessed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// Its first byte.
    pub start: *const u8,
    /// Its length.
    pub bytes: usize,
    /// Whether it is to be stored to, and not only loaded.
    pub is_store: bool,
}

/// Does `accesses`, loads of a range or stores to it, while this thread has the right to all of it: see [`with_rights`].
#[inline]
pub fn with_right<R>(
    start: *const u8,
    bytes: usize,
    is_store: bool,
    accesses: impl FnOnce() -> R,
) -> Result<R, Verdict> {
    with_rights(&[Wanted { start, bytes, is_store }], accesses)
}

/// Does `accesses`, which touches these ranges and nothing else that is shared, while this thread has the rights to all of them. They are asked for
/// first; `accesses` may be done once and is short: it waits for nothing, and does not unwind.
///
/// An error where a range cannot be had: it is lost, or is nobody's. No signal's handler may run on this thread meanwhile that touches shared memory.
///
/// # Panics
/// If there are more ranges than [`threads::MOST_NOTED`], or one is longer than [`PIECE_BYTES`].
#[inline]
pub fn with_rights<R>(wanted: &[Wanted], accesses: impl FnOnce() -> R) -> Result<R, Verdict> {
    assert!(wanted.len() <= threads::MOST_NOTED, "{} ranges at once", wanted.len());
    if !is_needed() {
        return Ok(accesses());
    }
    let mut needs = [Need::default(); threads::MOST_NOTED];
    let mut count = 0;
    for &Wanted { start, bytes, is_store } in wanted {
        assert!(bytes <= PIECE_BYTES, "{bytes} bytes at once");
        let need = Need { start: start.addr(), bytes, is_store, is_looked_at: true };
        // What cannot be an address stops whoever touches it.
        if need.start.checked_add(bytes).is_some_and(|end| end <= ADDRESSES_END) {
            needs[count] = need;
            count += 1;
        }
    }
    let needs = &needs[..count];
    let done = threads::with_own(|thread| {
        // Among accesses of the thread's own that were looked at together: these are among them.
        if thread.is_pinned() {
            return Ok(accesses());
        }
        loop {
            thread.count_up();
            thread.note(needs);
            let Some(missing) = needs.iter().find_map(missing) else {
                let done = accesses();
                thread.count_up();
                return Ok(done);
            };
            thread.count_up();
            match fault::miss(missing) {
                Verdict::Retry => {}
                other => return Err(other),
            }
        }
    });
    done.unwrap_or(Err(Verdict::NotOurs))
}

/// Whether the table says that all of a range may be loaded or stored to.
#[inline]
pub(crate) fn is_allowed(need: &Need) -> bool {
    let most = u8::from(!need.is_store);
    let first = state_address(need.start);
    let last = state_address(need.start + need.bytes.max(1) - 1);
    // Not before what was to be looked at was noted.
    compiler_fence(Ordering::SeqCst);
    let are = (first..=last).all(|at| state(at).load(Ordering::Acquire) <= most);
    compiler_fence(Ordering::SeqCst);
    are
}

/// From where on a range may not be accessed, by what the table says.
pub(crate) fn missing(need: &Need) -> Option<Need> {
    if is_allowed(need) {
        return None;
    }
    let end = need.start + need.bytes.max(1);
    let pieces = need.start / SMALLEST_BLOCK_BYTES..=(end - 1) / SMALLEST_BLOCK_BYTES;
    pieces
        .map(|piece| (piece * SMALLEST_BLOCK_BYTES).max(need.start))
        .map(|start| Need { start, bytes: end - start, ..*need })
        .find(|rest| !is_allowed(&Need { bytes: 1, ..*rest }))
}

#[inline]
fn state(at: usize) -> &'static AtomicU8 {
    debug_assert!((state_address(0)..state_address(ADDRESSES_END)).contains(&at));
    // SAFETY: of the table, which is there as long as `is_needed`.
    unsafe { AtomicU8::from_ptr(std::ptr::with_exposed_provenance_mut(at)) }
}
