//! Calls between components, as C has them.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_long, c_uint, c_void};
use std::sync::Mutex;

use comb_region::{Answer, CallError};

use super::{TASK, locked, task};

/// `struct comb_incoming`.
#[repr(C)]
#[derive(Debug)]
pub(super) struct CombIncoming {
    from: c_uint,
    service: c_uint,
    content: *const c_void,
    content_bytes: usize,
    room: usize,
    number: u64,
}

/// What calls came with, until they are answered; by their numbers. In words, for they are aligned for anything in C.
static CONTENTS: Mutex<BTreeMap<u64, Box<[u128]>>> = Mutex::new(BTreeMap::new());

/// See `comb_program.h`.
///
/// # Safety
/// `content` points to so many bytes, `out` to room for so many, and `out_bytes` and `error_number` each are null or point to a number.
pub(super) unsafe extern "C" fn call(
    rank: c_uint,
    service: c_uint,
    content: *const c_void,
    content_bytes: usize,
    out: *mut c_void,
    room: usize,
    out_bytes: *mut usize,
    error_number: *mut c_int,
) -> c_long {
    // SAFETY: the caller's promise.
    let content = unsafe { bytes(content, content_bytes) };
    let room = if out.is_null() { 0 } else { room };
    let answer = match task().call(rank, service, content, room) {
        Ok(answer) => answer,
        Err(error) => {
            let error = match error {
                CallError::NoComponent(_) => libc::ENXIO,
                CallError::Over(_) => libc::ESHUTDOWN,
                CallError::TooLong(_) => libc::EMSGSIZE,
            };
            Answer { result: -1, error, content: Vec::new() }
        }
    };
    let length = answer.content.len().min(room);
    // SAFETY: the caller's promise, and not more than there is room for.
    unsafe {
        if length > 0 {
            std::ptr::copy_nonoverlapping(answer.content.as_ptr(), out.cast(), length);
        }
        if let Some(out_bytes) = out_bytes.as_mut() {
            *out_bytes = length;
        }
        if let Some(error_number) = error_number.as_mut() {
            *error_number = answer.error;
        }
    }
    answer.result
}

/// # Safety
/// There are so many bytes at `start`.
unsafe fn bytes<'a>(start: *const c_void, count: usize) -> &'a [u8] {
    if count == 0 || start.is_null() {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(start.cast(), count) }
}

/// See `comb_program.h`.
///
/// # Safety
/// `incoming` points to room for a call.
pub(super) unsafe extern "C" fn next(incoming: *mut CombIncoming) -> c_int {
    let Some(task) = TASK.get() else { return -1 };
    let came = task.next_call();
    let length = came.content.len();
    let mut words = vec![0_u128; length.div_ceil(size_of::<u128>())].into_boxed_slice();
    let content = words.as_mut_ptr();
    // SAFETY: as many words as the bytes need.
    unsafe { std::ptr::copy_nonoverlapping(came.content.as_ptr(), content.cast(), length) };
    locked(&CONTENTS).insert(came.number, words);
    // SAFETY: the caller's promise.
    unsafe {
        incoming.write(CombIncoming {
            from: came.from,
            service: came.service,
            content: content.cast_const().cast(),
            content_bytes: length,
            room: came.room,
            number: came.number,
        });
    }
    0
}

/// See `comb_program.h`.
///
/// # Safety
/// `incoming` points to what [`next`] has given, and there are so many bytes at `out`.
pub(super) unsafe extern "C" fn answer(
    incoming: *mut CombIncoming,
    result: c_long,
    out: *const c_void,
    out_bytes: usize,
    error_number: c_int,
) {
    // SAFETY: the caller's promise.
    let (number, room) = unsafe { ((*incoming).number, (*incoming).room) };
    // The content may be that of the call itself: it goes after that.
    // SAFETY: the caller's promise.
    let content = unsafe { bytes(out, out_bytes.min(room)) }.to_vec();
    locked(&CONTENTS).remove(&number);
    task().answer_call(number, Answer { result, error: error_number, content });
}
