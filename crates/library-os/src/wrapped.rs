//! What a program calls, and what it gets: the linker has `main`, `exit`, `pthread_create`, `open` and `fopen` lead here.

#![expect(unsafe_code, reason = "these are C's functions, of C's types")]

use std::ffi::{c_char, c_int, c_void};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::{files, machine, memory, program};

unsafe extern "C" {
    fn __real_main(count: c_int, words: *const *const c_char, environment: *const *const c_char) -> c_int;
    fn __real_exit(status: c_int) -> !;
    fn __real_open(path: *const c_char, flags: c_int, mode: libc::mode_t) -> c_int;
    fn __real_open64(path: *const c_char, flags: c_int, mode: libc::mode_t) -> c_int;
    fn __real_fopen(path: *const c_char, mode: *const c_char) -> *mut libc::FILE;
    fn __real_fopen64(path: *const c_char, mode: *const c_char) -> *mut libc::FILE;
    fn __real_pthread_create(
        thread: *mut libc::pthread_t,
        attributes: *const libc::pthread_attr_t,
        begins: extern "C" fn(*mut c_void) -> *mut c_void,
        argument: *mut c_void,
    ) -> c_int;
}

/// The program itself.
///
/// # Safety
///
/// Words and environment end with a null pointer, and are never given back.
pub(crate) unsafe fn main(
    count: c_int,
    words: *const *const c_char,
    environment: *const *const c_char,
) -> c_int {
    // SAFETY: the caller keeps what `main` wants.
    unsafe { __real_main(count, words, environment) }
}

/// Where a process begins.
#[unsafe(no_mangle)]
extern "C" fn __wrap_main(
    count: c_int,
    words: *const *const c_char,
    environment: *const *const c_char,
) -> c_int {
    if std::process::id() != 1 {
        let since = program::Usage::now();
        // SAFETY: they are those of the C library.
        let status = unsafe { main(count, words, environment) };
        program::flush();
        since.tell();
        return status;
    }
    std::hint::black_box(&crate::MARK);
    memory::set_up();
    machine::serve()
}

/// A program that ends itself, in whatever thread and function.
#[unsafe(no_mangle)]
extern "C" fn __wrap_exit(status: c_int) -> ! {
    if std::process::id() != 1 {
        // SAFETY: it takes any number.
        unsafe { __real_exit(status) }
    }
    program::over(program::Over::Exited(status))
}

/// A file, which may be the host's.
///
/// # Safety
///
/// As of `open`. (Where it is called without a mode, whatever stands in its place is not looked at.)
#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_open(path: *const c_char, flags: c_int, mode: libc::mode_t) -> c_int {
    // SAFETY: what the caller says of its arguments goes for these.
    unsafe { files::open(path, flags).unwrap_or_else(|| __real_open(path, flags, mode)) }
}

/// # Safety
///
/// As above.
#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_open64(path: *const c_char, flags: c_int, mode: libc::mode_t) -> c_int {
    // SAFETY: what the caller says of its arguments goes for these.
    unsafe { files::open(path, flags).unwrap_or_else(|| __real_open64(path, flags, mode)) }
}

/// # Safety
///
/// As of `fopen`.
#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_fopen(path: *const c_char, mode: *const c_char) -> *mut libc::FILE {
    // SAFETY: what the caller says of its arguments goes for these.
    unsafe { files::stream(path, mode).unwrap_or_else(|| __real_fopen(path, mode)) }
}

/// # Safety
///
/// As of `fopen`.
#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_fopen64(path: *const c_char, mode: *const c_char) -> *mut libc::FILE {
    // SAFETY: what the caller says of its arguments goes for these.
    unsafe { files::stream(path, mode).unwrap_or_else(|| __real_fopen64(path, mode)) }
}

/// Threads that were made, since the program began, with its first: each has the next processor for itself, if there are as many.
static THREADS: AtomicUsize = AtomicUsize::new(0);
/// Of the machine: whoever has one for itself sees no other.
static PROCESSORS: LazyLock<usize> =
    LazyLock::new(|| std::thread::available_parallelism().map_or(1, usize::from));

/// What a thread is to do, and where.
struct Thread {
    processor: usize,
    begins: extern "C" fn(*mut c_void) -> *mut c_void,
    argument: *mut c_void,
}

/// Where each of the program's threads begins.
extern "C" fn begin(thread: *mut c_void) -> *mut c_void {
    // SAFETY: it was boxed for this thread alone. All zeroes are an empty set, and a processor is within it.
    let thread = unsafe {
        let thread = Box::from_raw(thread.cast::<Thread>());
        let mut one: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(thread.processor, &mut one);
        libc::sched_setaffinity(0, size_of_val(&one), &raw const one);
        thread
    };
    let Thread { begins, argument, .. } = *thread;
    begins(argument)
}

/// # Safety
///
/// As of `pthread_create`.
#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_pthread_create(
    thread: *mut libc::pthread_t,
    attributes: *const libc::pthread_attr_t,
    begins: extern "C" fn(*mut c_void) -> *mut c_void,
    argument: *mut c_void,
) -> c_int {
    if !program::is_begun() {
        // SAFETY: what the caller says of its arguments goes for these.
        return unsafe { __real_pthread_create(thread, attributes, begins, argument) };
    }
    let processor = THREADS.fetch_add(1, Ordering::Relaxed) % *PROCESSORS;
    let bound = Box::into_raw(Box::new(Thread { processor, begins, argument }));
    // SAFETY: what the caller says of its arguments goes for these; a thread that does not begin leaves what was boxed for it.
    unsafe {
        let error = __real_pthread_create(thread, attributes, begin, bound.cast());
        if error != 0 {
            drop(Box::from_raw(bound));
        }
        error
    }
}
