#![doc = include_str!("../README.md")]
#![expect(unsafe_code, reason = "an interface for C: pointers come from its caller, and names are exported")]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::sync::{Mutex, OnceLock, PoisonError};

use comb_region::{Combine, Guard, HeldLock, Lock, Placement, Sharing, Task, Terms};

/// `struct comb_terms`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CombTerms {
    block_bytes: c_uint,
    guard: c_uint,
    sharing: c_uint,
    placement: c_uint,
    at: c_uint,
    sparse: c_int,
}

thread_local! {
    static ERROR: RefCell<CString> = RefCell::default();
}

/// The task, until `comb_end`.
static TASK: Mutex<Option<Task>> = Mutex::new(None);
/// Locks that are held, by number and thread.
static HELD: Mutex<BTreeMap<(u64, std::thread::ThreadId), HeldLock>> = Mutex::new(BTreeMap::new());

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn failed(error: &dyn std::fmt::Display) -> c_int {
    let text = error.to_string().replace('\0', " ");
    ERROR.with_borrow_mut(|last| *last = CString::new(text).unwrap_or_default());
    -1
}

/// The task. A program that has none has made a mistake that no return value would tell it of.
fn task() -> Task {
    locked(&TASK).clone().unwrap_or_else(|| {
        eprintln!("comb: comb_init() has to be called first, and comb_end() last");
        std::process::abort()
    })
}

/// See comb.h.
#[unsafe(no_mangle)]
pub extern "C" fn comb_init() -> c_int {
    static AT_EXIT: OnceLock<()> = OnceLock::new();
    let mut task = locked(&TASK);
    if task.is_some() {
        return 0;
    }
    match Task::join() {
        Ok(joined) => *task = Some(joined),
        Err(error) => return failed(&error),
    }
    AT_EXIT.get_or_init(|| {
        // SAFETY: the function lives as long as the process.
        unsafe { libc::atexit(at_exit) };
    });
    0
}

extern "C" fn at_exit() {
    comb_end();
}

/// See comb.h.
#[unsafe(no_mangle)]
pub extern "C" fn comb_end() {
    let task = locked(&TASK).take();
    drop(task);
}

/// See comb.h.
#[unsafe(no_mangle)]
pub extern "C" fn comb_error() -> *const c_char {
    ERROR.with_borrow(|last| CStr::as_ptr(last))
}

/// See comb.h.
#[unsafe(no_mangle)]
pub extern "C" fn comb_rank() -> c_uint {
    task().rank()
}

/// See comb.h.
#[unsafe(no_mangle)]
pub extern "C" fn comb_count() -> c_uint {
    task().count()
}

impl CombTerms {
    fn understood(self) -> Result<Terms, String> {
        let guard = match self.guard {
            0 => Guard::Page,
            1 => Guard::Mmu,
            other => return Err(format!("there is no guard {other}")),
        };
        let sharing = match self.sharing {
            0 => Sharing::Stache,
            1 => Sharing::Migratory,
            2 => Sharing::Release,
            3 => Sharing::Update,
            other => return Err(format!("there is no sharing {other}")),
        };
        let placement = match self.placement {
            0 => Placement::FirstTouch,
            1 => Placement::RoundRobin,
            2 => Placement::At(self.at),
            other => return Err(format!("there is no placement {other}")),
        };
        let block_bytes = if self.block_bytes == 0 { Terms::default().block_bytes } else { self.block_bytes };
        Ok(Terms { block_bytes, guard, sharing, placement, sparse: self.sparse != 0 })
    }
}

/// # Safety
/// `terms` is null or points to terms.
unsafe fn terms(terms: *const CombTerms) -> Result<Terms, String> {
    // SAFETY: the caller's promise.
    unsafe { terms.as_ref() }.map_or_else(|| Ok(Terms::default()), |terms| terms.understood())
}

/// # Safety
/// As [`terms`].
unsafe fn allocate(
    wanted: *const CombTerms,
    allocate: impl FnOnce(&Task, &Terms) -> Result<*mut u8, comb_region::AllocateError>,
) -> *mut c_void {
    // SAFETY: the caller's promise.
    let outcome = unsafe { terms(wanted) }.map_err(|error| failed(&error));
    let outcome = outcome.and_then(|terms| allocate(&task(), &terms).map_err(|error| failed(&error)));
    outcome.map_or(std::ptr::null_mut(), <*mut u8>::cast)
}

/// See comb.h.
///
/// # Safety
/// `terms` is null or points to terms.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn comb_alloc(bytes: usize, terms: *const CombTerms) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { allocate(terms, |task, terms| task.allocate(bytes as u64, terms)) }
}

/// See comb.h.
///
/// # Safety
/// `terms` is null or points to terms.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn comb_alloc_together(bytes: usize, terms: *const CombTerms) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { allocate(terms, |task, terms| task.allocate_together(bytes as u64, terms)) }
}

/// See comb.h.
#[unsafe(no_mangle)]
pub extern "C" fn comb_free(memory: *mut c_void) -> c_int {
    match task().free(memory.cast()) {
        Ok(()) => 0,
        Err(error) => failed(&error),
    }
}

/// See comb.h.
#[unsafe(no_mangle)]
pub extern "C" fn comb_objects(memory: *const c_void) -> usize {
    task().objects(memory.cast())
}

/// See comb.h.
#[unsafe(no_mangle)]
pub extern "C" fn comb_object(memory: *const c_void, index: usize) -> *mut c_void {
    task().object(memory.cast(), index).map_or(std::ptr::null_mut(), <*mut u8>::cast)
}

/// See comb.h.
#[unsafe(no_mangle)]
pub extern "C" fn comb_barrier() {
    task().barrier();
}

fn combine(how: c_uint) -> Option<Combine> {
    Some(match how {
        0 => Combine::First,
        1 => Combine::Sum,
        2 => Combine::SumOfFloats,
        3 => Combine::Least,
        4 => Combine::Greatest,
        5 => Combine::LeastFloat,
        6 => Combine::GreatestFloat,
        _ => return None,
    })
}

/// See comb.h.
///
/// # Safety
/// `values` points to `count` values.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn comb_reduce(how: c_uint, values: *mut u64, count: usize) -> c_int {
    let Some(how) = combine(how) else {
        return failed(&format_args!("there is no way {how} to combine values"));
    };
    if count == 0 {
        task().barrier();
        return 0;
    }
    // SAFETY: the caller's promise.
    let values = unsafe { std::slice::from_raw_parts_mut(values, count) };
    values.copy_from_slice(&task().reduce(how, values));
    0
}

/// See comb.h.
#[unsafe(no_mangle)]
pub extern "C" fn comb_sum(value: f64) -> f64 {
    task().sum(value)
}

fn hold(lock: u64, held: HeldLock) {
    locked(&HELD).insert((lock, std::thread::current().id()), held);
}

/// See comb.h.
#[unsafe(no_mangle)]
pub extern "C" fn comb_lock(lock: u64) {
    hold(lock, Lock::new(&task(), lock).write());
}

/// See comb.h.
#[unsafe(no_mangle)]
pub extern "C" fn comb_read_lock(lock: u64) {
    hold(lock, Lock::new(&task(), lock).read());
}

/// See comb.h.
#[unsafe(no_mangle)]
pub extern "C" fn comb_try_lock(lock: u64) -> c_int {
    match Lock::new(&task(), lock).try_write() {
        Some(held) => {
            hold(lock, held);
            0
        }
        None => failed(&format_args!("lock {lock:#x} is held")),
    }
}

/// See comb.h.
#[unsafe(no_mangle)]
pub extern "C" fn comb_unlock(lock: u64) -> c_int {
    let held = locked(&HELD).remove(&(lock, std::thread::current().id()));
    match held {
        Some(held) => {
            drop(held);
            0
        }
        None => failed(&format_args!("this thread does not hold lock {lock:#x}")),
    }
}

/// See comb.h.
#[unsafe(no_mangle)]
pub extern "C" fn comb_wait(lock: u64, condition: u64) -> c_int {
    let held = locked(&HELD).remove(&(lock, std::thread::current().id()));
    match held {
        Some(held) => {
            hold(lock, held.wait(condition));
            0
        }
        None => failed(&format_args!("this thread does not hold lock {lock:#x}")),
    }
}

/// See comb.h.
#[unsafe(no_mangle)]
pub extern "C" fn comb_notify(lock: u64, condition: u64, how_many: u64) {
    task().notify(lock, condition, how_many);
}

/// See comb.h.
#[unsafe(no_mangle)]
pub extern "C" fn comb_prefetch(memory: *const c_void, bytes: usize, to_store: c_int) {
    task().prefetch(memory.cast(), bytes, to_store != 0);
}

/// See comb.h.
#[unsafe(no_mangle)]
pub extern "C" fn comb_poll() {
    task().poll();
}

/// See comb.h.
#[unsafe(no_mangle)]
pub extern "C" fn comb_publish() {
    task().publish();
}
