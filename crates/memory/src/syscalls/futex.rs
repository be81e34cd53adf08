//! `futex` on a shared word.

use super::bounce::Moved;
use super::copy::{load_words, touch_store};
use super::meaning::is_address;
use super::perform::{Call, untold};
use super::scratch::Scratch;
use super::{FutexCall, hooks, is_shared};

const WAIT: i32 = 0;
const LOCK_PI: i32 = 6;
const WAIT_BITSET: i32 = 9;
const WAIT_REQUEUE_PI: i32 = 11;
const LOCK_PI2: i32 = 13;
const WAKE: i32 = 1;
const REQUEUE: i32 = 3;
const COMPARE_REQUEUE: i32 = 4;
const WAKE_OPERATION: i32 = 5;
const COMPARE_REQUEUE_PI: i32 = 12;
const WAKE_BITSET: i32 = 10;
/// Without `FUTEX_PRIVATE_FLAG` and `FUTEX_CLOCK_REALTIME`.
pub(super) const OPERATION: i32 = 0x7f;

/// Operations whose fourth argument is a time.
pub(super) const WAITS: [i32; 5] = [WAIT, LOCK_PI, WAIT_BITSET, WAIT_REQUEUE_PI, LOCK_PI2];
/// Operations whose fifth argument is a word.
pub(super) const HAS_SECOND_WORD: [i32; 5] =
    [REQUEUE, COMPARE_REQUEUE, WAKE_OPERATION, WAIT_REQUEUE_PI, COMPARE_REQUEUE_PI];

/// Whether the fourth argument is a time.
pub(super) fn waits(operation: i32) -> bool {
    WAITS.contains(&(operation & OPERATION))
}

/// Whether the fifth argument is a word.
pub(super) fn has_second_word(operation: i32) -> bool {
    HAS_SECOND_WORD.contains(&(operation & OPERATION))
}

/// By the hook, if there is one; else as the kernel does it, on the page that is here.
#[expect(clippy::cast_possible_truncation, reason = "these arguments are 32 bits")]
pub(super) fn futex(scratch: &mut Scratch, call: &Call) -> isize {
    let mut arguments = call.arguments;
    let [address, operation, value, time, address2, value3] = arguments;
    let operation = operation as i32;
    let waits = waits(operation);
    let mut timeout = None;
    if waits && time != 0 {
        let mut parts = [0; 2];
        if load_words(time, &mut parts).is_none() {
            return super::bounce::BAD_ADDRESS;
        }
        let [seconds, nanoseconds] = parts.map(|part| part.cast_signed() as i64);
        timeout = Some((seconds, nanoseconds));
    }
    if let Some(hook) = hooks().futex
        && is_shared(address)
    {
        let value2 = if waits { 0 } else { time as u32 };
        return hook(FutexCall {
            address,
            operation,
            value: value as u32,
            timeout,
            value2,
            address2,
            value3: value3 as u32,
        });
    }
    if waits && is_shared(time) {
        match Moved::in_whole(scratch, time, 16, false) {
            Ok(moved) => arguments[3] = moved.private_address(),
            Err(error) => return error,
        }
    }
    // Of operations that change the word in the kernel a load is not enough.
    let reads = [WAIT, WAIT_BITSET, WAKE, WAKE_BITSET, REQUEUE, COMPARE_REQUEUE];
    if !reads.contains(&(operation & OPERATION)) {
        for (index, word) in [(0, address), (4, address2)] {
            let _ = is_shared(word) && is_address(call, index) && touch_store(word);
        }
    }
    untold(call, arguments, 0b1_0001)
}
