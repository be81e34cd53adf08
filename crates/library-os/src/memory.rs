//! The machine's memory: all of it the program's, in one piece, and there before the program begins.

#![expect(unsafe_code, reason = "the C library's own memory is set by its calls")]

use std::ffi::c_int;
use std::fs;
use std::sync::{Arc, Mutex};

use crate::program;

/// Of what the machine has free, so much is left to its kernel; in bytes, and as a part.
const LEFT_BYTES: u64 = 24 << 20;
const LEFT_PART: u64 = 16;

/// A thread's stack is there as a whole as well.
const STACK_BYTES: usize = 1 << 20;

/// From `malloc.h`, for `mallopt`.
const M_TRIM_THRESHOLD: c_int = -1;
const M_MMAP_MAX: c_int = -4;
const M_ARENA_MAX: c_int = -8;

unsafe extern "C" {
    fn pthread_setattr_default_np(attributes: *const libc::pthread_attr_t) -> c_int;
}

/// How the kernel maps it: by large pages, all at once. To be called before there is a thread.
pub(crate) fn set_up() {
    // SAFETY: settings of the allocator, of whom nobody else asks for anything now.
    unsafe {
        libc::mallopt(M_MMAP_MAX, 0);
        libc::mallopt(M_TRIM_THRESHOLD, c_int::MAX);
        libc::mallopt(M_ARENA_MAX, 1);
        let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
        libc::pthread_attr_init(&raw mut attributes);
        libc::pthread_attr_setstacksize(&raw mut attributes, STACK_BYTES);
        pthread_setattr_default_np(&raw const attributes);
    }
}

/// Takes what there is: from now on nothing is mapped, unmapped or missing. To be called when there is a `/sys`.
pub(crate) fn take() {
    let _ = fs::write("/sys/kernel/mm/transparent_hugepage/enabled", "always");
    // SAFETY: what is allocated is given back, and stays the allocator's; what is mapped from now on is there at once.
    unsafe {
        libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE);
    }
    stacks();
    let free = rustix::system::sysinfo();
    let free = (free.freeram as u64) * u64::from(free.mem_unit);
    let wanted = free.saturating_sub(LEFT_BYTES.max(free / LEFT_PART));
    // SAFETY: as above. The compiler knows both calls, and would make neither.
    unsafe {
        libc::free(std::hint::black_box(libc::malloc(usize::try_from(wanted).unwrap_or(0))));
    }
}

/// Has stacks for as many threads as there are processors, and one for the program itself: those of threads that are over are kept for others.
fn stacks() {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let gate = Arc::new(Mutex::new(()));
    let closed = gate.lock();
    let begin = |bytes| {
        let gate = Arc::clone(&gate);
        std::thread::Builder::new().stack_size(bytes).spawn(move || drop(gate.lock()))
    };
    let sizes = std::iter::repeat_n(STACK_BYTES, threads).chain([program::STACK_BYTES]);
    let all: Vec<_> = sizes.filter_map(|bytes| begin(bytes).ok()).collect();
    drop(closed);
    for thread in all {
        let _ = thread.join();
    }
}
