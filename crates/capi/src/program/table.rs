//! The table itself, and those of its functions that are about memory.

use std::ffi::{c_char, c_int, c_long, c_uint, c_void};

use comb_memory::threads::{self, Thread};
use comb_region::{Guard, Placement, Terms};

use super::{VERSION, calls, deadline, failed, joining, locks, task};
use crate::comb_error;

/// `struct comb_program`.
#[repr(C)]
#[derive(Debug)]
pub struct Program {
    join: unsafe extern "C" fn(*const joining::TermsOfProgram, *mut joining::Place) -> c_int,
    error: extern "C" fn() -> *const c_char,
    thread_begin: unsafe extern "C" fn(*mut Thread),
    thread_end: extern "C" fn(*mut Thread),
    fetch: extern "C" fn(*mut c_void, usize, c_int, *mut c_void),
    allocate: extern "C" fn(usize, c_int, c_int) -> *mut c_void,
    object: extern "C" fn(*mut c_void, usize) -> *mut c_void,
    release: extern "C" fn(*mut c_void) -> c_int,
    futex: unsafe extern "C" fn(*mut u32, c_int, u32, *const libc::timespec, c_int) -> c_long,
    lock: unsafe extern "C" fn(u64, c_int, *const libc::timespec, c_int) -> c_int,
    unlock: extern "C" fn(u64) -> c_int,
    wait: unsafe extern "C" fn(u64, u64, *const libc::timespec, c_int) -> c_int,
    notify: extern "C" fn(u64, u64, u64) -> c_int,
    barrier: extern "C" fn(u64, c_uint) -> c_int,
    call: unsafe extern "C" fn(
        c_uint,
        c_uint,
        *const c_void,
        usize,
        *mut c_void,
        usize,
        *mut usize,
        *mut c_int,
    ) -> c_long,
    next: unsafe extern "C" fn(*mut calls::CombIncoming) -> c_int,
    answer: unsafe extern "C" fn(*mut calls::CombIncoming, c_long, *const c_void, usize, c_int),
    publish: extern "C" fn(),
    end: extern "C" fn(c_int),
    owner: extern "C" fn(*const c_void) -> c_uint,
    is_inside: extern "C" fn() -> c_int,
    poll: extern "C" fn(),
    map_present: extern "C" fn(),
}

static PROGRAM: Program = Program {
    join: joining::join,
    error: comb_error,
    thread_begin,
    thread_end,
    fetch,
    allocate,
    object,
    release,
    futex,
    lock: locks::lock,
    unlock: locks::unlock,
    wait: locks::wait,
    notify: locks::notify,
    barrier,
    call: calls::call,
    next: calls::next,
    answer: calls::answer,
    publish,
    end,
    owner,
    is_inside,
    poll,
    map_present,
};

/// See `comb_program.h`.
#[unsafe(no_mangle)]
pub extern "C" fn comb_program(version: c_uint) -> *const Program {
    if version == VERSION { &raw const PROGRAM } else { std::ptr::null() }
}

/// The MMU stops threads whichever they are: only of those that check, somebody needs to know.
///
/// # Safety
/// `thread` begins as `struct comb_thread` does, and stays until [`thread_end`].
unsafe extern "C" fn thread_begin(thread: *mut Thread) {
    if !joining::threads_check() {
        return;
    }
    // SAFETY: the caller's promise.
    if let Err(error) = unsafe { threads::begin(thread) } {
        eprintln!("comb: {error}");
        std::process::abort()
    }
}

extern "C" fn thread_end(_thread: *mut Thread) {
    if joining::threads_check() {
        threads::end();
    }
}

extern "C" fn fetch(address: *mut c_void, bytes: usize, is_store: c_int, instruction: *mut c_void) {
    // It is where the call returns to: the byte before that is the call's.
    let instruction = instruction.addr().saturating_sub(1);
    if task().fetch_for(address.cast(), bytes, is_store != 0, instruction).is_err() {
        touch(address.cast(), is_store != 0);
    }
}

/// What is not there, or is lost: the access itself says so, as it would without checks. It changes nothing, in one instruction.
fn touch(byte: *mut u8, to_store: bool) {
    // SAFETY: the caller is about to access this byte in the same way.
    unsafe {
        if to_store {
            std::arch::asm!("lock or byte ptr [{}], 0", in(reg) byte, options(nostack));
        } else {
            std::arch::asm!("test byte ptr [{}], 0", in(reg) byte, options(nostack, readonly));
        }
    }
}

extern "C" fn allocate(bytes: usize, home: c_int, objects: c_int) -> *mut c_void {
    let Ok(objects) = u32::try_from(objects) else {
        failed(&format_args!("there are no objects of {objects} bytes"));
        return std::ptr::null_mut();
    };
    let placement = u32::try_from(home).map_or(Placement::FirstTouch, Placement::At);
    let terms = Terms { placement, ..joining::terms() };
    let terms = match (objects, terms.guard) {
        (0, _) => terms,
        (_, guard) => {
            // Who checks needs no addresses of its own for each.
            let guard = if guard == Guard::Page { Guard::Mmu } else { guard };
            Terms { guard, block_bytes: objects.checked_next_power_of_two().unwrap_or(0).max(128), ..terms }
        }
    };
    match task().allocate(bytes as u64, &terms) {
        Ok(memory) => memory.cast(),
        Err(error) => {
            failed(&error);
            std::ptr::null_mut()
        }
    }
}

extern "C" fn object(memory: *mut c_void, index: usize) -> *mut c_void {
    task().object(memory.cast(), index).map_or(std::ptr::null_mut(), <*mut u8>::cast)
}

extern "C" fn release(memory: *mut c_void) -> c_int {
    task().release(memory.cast()).map_or_else(|error| failed(&error), |()| 0)
}

unsafe extern "C" fn futex(
    word: *mut u32,
    operation: c_int,
    value: u32,
    until: *const libc::timespec,
    is_realtime: c_int,
) -> c_long {
    let wait = match operation & libc::FUTEX_CMD_MASK {
        // SAFETY: the caller's promise.
        libc::FUTEX_WAIT => Some(unsafe { deadline(until, is_realtime) }),
        libc::FUTEX_WAKE => None,
        _ => return -c_long::from(libc::ENOSYS),
    };
    task().futex(word, wait, value) as c_long
}

extern "C" fn barrier(number: u64, threads: c_uint) -> c_int {
    locks::barrier(number, threads)
}

extern "C" fn publish() {
    task().publish();
}

extern "C" fn end(status: c_int) {
    match super::TASK.get() {
        Some(task) => task.end(status),
        // SAFETY: ends the process.
        None => unsafe { libc::_exit(status) },
    }
}

extern "C" fn poll() {
    task().look_at_mail();
}

extern "C" fn map_present() {
    task().map_present();
}

extern "C" fn owner(address: *const c_void) -> c_uint {
    task().owner(address.cast()).unwrap_or(c_uint::MAX)
}

extern "C" fn is_inside() -> c_int {
    c_int::from(comb_region::Task::is_inside())
}
