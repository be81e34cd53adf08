#![doc = include_str!("../README.md")]
#![expect(unsafe_code, reason = "an interface for C: pointers come from its caller, and names are exported")]

mod program;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::io::Write;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, Once, PoisonError};

use comb_region::named::{Attaching, Region};
use comb_region::task::Share;
use comb_region::{Combine, Guard, HeldLock, Lock, Placement, Sharing, Task, Terms};

pub use program::{Program, comb_program};

/// What `enum comb_guard` calls them; the number is the place.
pub const GUARDS: [(&str, Guard); 2] = [("COMB_PAGE", Guard::Page), ("COMB_MMU", Guard::Mmu)];

/// What `enum comb_sharing` calls them.
pub const SHARINGS: [(&str, Sharing); 4] = [
    ("COMB_STACHE", Sharing::Stache),
    ("COMB_MIGRATORY", Sharing::Migratory),
    ("COMB_RELEASE", Sharing::Release),
    ("COMB_UPDATE", Sharing::Update),
];

/// What `enum comb_placement` calls them. `comb_terms.at` is the rank of the last.
pub const PLACEMENTS: [(&str, Placement); 3] = [
    ("COMB_FIRST_TOUCH", Placement::FirstTouch),
    ("COMB_ROUND_ROBIN", Placement::RoundRobin),
    ("COMB_AT", Placement::At(0)),
];

/// What `enum comb_combine` calls them.
pub const COMBINES: [(&str, Combine); 7] = [
    ("COMB_FIRST", Combine::First),
    ("COMB_SUM", Combine::Sum),
    ("COMB_SUM_OF_DOUBLES", Combine::SumOfFloats),
    ("COMB_LEAST", Combine::Least),
    ("COMB_GREATEST", Combine::Greatest),
    ("COMB_LEAST_DOUBLE", Combine::LeastFloat),
    ("COMB_GREATEST_DOUBLE", Combine::GreatestFloat),
];

/// They travel in one message: as many as a block of the largest size holds.
const MOST_VALUES: usize = 65536 / 8;
/// A condition travels beside eight bits of something else.
const CONDITIONS: u64 = 1 << 56;

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
    moves: c_int,
}

thread_local! {
    static ERROR: RefCell<CString> = RefCell::default();
}

/// The task, until `comb_end`.
static TASK: Mutex<Option<Task>> = Mutex::new(None);
/// Locks that are held, by number and thread.
static HELD: Mutex<BTreeMap<(u64, libc::pthread_t), Held>> = Mutex::new(BTreeMap::new());

/// Named regions that are attached, by their address, and how often.
static REGIONS: Mutex<BTreeMap<usize, Vec<Region>>> = Mutex::new(BTreeMap::new());

struct Held {
    lock: HeldLock,
    is_alone: bool,
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn failed(error: &dyn std::fmt::Display) -> c_int {
    let text = error.to_string().replace('\0', " ");
    // A thread at its very end has no such text any more.
    let _ = ERROR.try_with(|last| *last.borrow_mut() = CString::new(text).unwrap_or_default());
    -1
}

const NO_TASK: &str = "this process is part of no task: comb_init() comes first, and comb_end() last";

/// The task, for what can fail.
fn joined() -> Result<Task, c_int> {
    locked(&TASK).clone().ok_or_else(|| failed(&NO_TASK))
}

/// The task. A program that has none has made a mistake that no return value would tell it of.
fn task() -> Task {
    locked(&TASK).clone().unwrap_or_else(|| {
        eprintln!("comb: {NO_TASK}");
        std::process::abort()
    })
}

fn status(outcome: Result<(), c_int>) -> c_int {
    outcome.err().unwrap_or(0)
}

/// See comb.h.
#[unsafe(no_mangle)]
pub extern "C" fn comb_init() -> c_int {
    static AT_EXIT: Once = Once::new();
    let mut task = locked(&TASK);
    if task.is_some() {
        return 0;
    }
    match Task::join() {
        Ok(joined) => *task = Some(joined),
        Err(error) => return failed(&error),
    }
    AT_EXIT.call_once(|| {
        // SAFETY: the function lives as long as the process.
        unsafe { on_exit(at_exit, std::ptr::null_mut()) };
    });
    0
}

unsafe extern "C" {
    /// glibc's `atexit` that tells how the process ends.
    fn on_exit(function: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
}

extern "C" fn at_exit(status: c_int, _: *mut c_void) {
    if status == 0 {
        return comb_end();
    }
    give_regions_back();
    // Who has failed does not wait for the others, who may wait for what never comes: they end with it.
    if let Some(task) = locked(&TASK).take() {
        task.hand_in_report();
        std::mem::forget(task);
    }
}

/// See comb.h.
#[unsafe(no_mangle)]
pub extern "C" fn comb_end() {
    let task = locked(&TASK).take();
    let held = std::mem::take(&mut *locked(&HELD));
    drop(held);
    give_regions_back();
    drop(task);
}

/// What only this process has of them would be lost with it.
fn give_regions_back() {
    let regions = std::mem::take(&mut *locked(&REGIONS));
    drop(regions);
}

/// See comb.h.
#[unsafe(no_mangle)]
pub extern "C" fn comb_error() -> *const c_char {
    ERROR.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
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

/// See comb.h.
///
/// # Safety
/// `ranks` points to room for `room` numbers, or `room` is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn comb_dependencies(ranks: *mut c_uint, room: usize) -> usize {
    let dependencies = task().dependencies();
    let written = if ranks.is_null() { 0 } else { room.min(dependencies.len()) };
    // SAFETY: the caller's promise, and not more than there are.
    unsafe { std::ptr::copy_nonoverlapping(dependencies.as_ptr(), ranks, written) };
    dependencies.len()
}

type OnLoss = extern "C" fn(address: *mut c_void, reason: *const c_char, is_store: c_int);

/// What the program wants to be called, or null. The threads that read it are in a signal handler.
static ON_LOSS: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// See comb.h.
#[unsafe(no_mangle)]
pub extern "C" fn comb_on_loss(on_loss: Option<OnLoss>) -> c_int {
    static IS_OURS: Mutex<bool> = Mutex::new(false);
    let mut is_ours = locked(&IS_OURS);
    *is_ours = *is_ours || comb_memory::set_loss_hook(lost);
    if !*is_ours {
        return failed(&"another part of this process has said already what is called on a loss");
    }
    ON_LOSS.store(on_loss.map_or(std::ptr::null_mut(), |on_loss| on_loss as *mut c_void), Ordering::Release);
    0
}

fn lost(fault: comb_memory::Fault, reason: comb_memory::Reason) {
    let on_loss = ON_LOSS.load(Ordering::Acquire);
    if on_loss.is_null() {
        return;
    }
    // SAFETY: it was made of such a function.
    let on_loss = unsafe { std::mem::transmute::<*mut c_void, OnLoss>(on_loss) };
    // A handler of signals allocates nothing. The last byte stays zero.
    let mut text = [0_u8; 256];
    let _ = write!(&mut text[..255], "{reason}");
    let address = std::ptr::with_exposed_provenance_mut(fault.address);
    on_loss(address, text.as_ptr().cast(), c_int::from(fault.is_store));
}

fn named<T: Copy>(names: &[(&str, T)], number: c_uint) -> Option<T> {
    names.get(number as usize).map(|&(_, what)| what)
}

impl CombTerms {
    fn understood(self) -> Result<Terms, String> {
        let guard = named(&GUARDS, self.guard).ok_or_else(|| format!("there is no guard {}", self.guard))?;
        let sharing =
            named(&SHARINGS, self.sharing).ok_or_else(|| format!("there is no sharing {}", self.sharing))?;
        let placement = match named(&PLACEMENTS, self.placement) {
            Some(Placement::At(_)) => Placement::At(self.at),
            Some(placement) => placement,
            None => return Err(format!("there is no placement {}", self.placement)),
        };
        let block_bytes = if self.block_bytes == 0 { Terms::default().block_bytes } else { self.block_bytes };
        Ok(Terms { block_bytes, guard, sharing, placement, sparse: self.sparse != 0, moves: self.moves != 0 })
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
    let outcome = outcome.and_then(|terms| allocate(&joined()?, &terms).map_err(|error| failed(&error)));
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
    status(joined().and_then(|task| task.free(memory.cast()).map_err(|error| failed(&error))))
}

/// What `enum comb_attaching` calls them.
pub const ATTACHING: [(&str, c_uint); 2] = [("COMB_TO_READ", TO_READ), ("COMB_BY_COPIES", BY_COPIES)];
const TO_READ: c_uint = 1;
const BY_COPIES: c_uint = 2;

/// See comb.h.
///
/// # Safety
/// `name` is a string; `bytes` is null or points to room for a size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn comb_attach(name: *const c_char, how: c_uint, bytes: *mut usize) -> *mut c_void {
    let attach = || -> Result<*mut c_void, c_int> {
        if name.is_null() || how & !(TO_READ | BY_COPIES) != 0 {
            return Err(failed(&format_args!("comb_attach() needs a name, and knows no way {how}")));
        }
        // SAFETY: the caller's promise.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
        let share = if how & BY_COPIES != 0 { Share::Copy } else { Share::Auto };
        let attaching = Attaching { only_to_read: how & TO_READ != 0, share, runtime: None };
        let region = joined()?.attach(&name, &attaching).map_err(|error| failed(&error))?;
        let (address, length) = (region.as_ptr(), region.bytes());
        locked(&REGIONS).entry(address as usize).or_default().push(region);
        // SAFETY: the caller's promise.
        if let Some(bytes) = unsafe { bytes.as_mut() } {
            *bytes = usize::try_from(length).unwrap_or(usize::MAX);
        }
        Ok(address.cast())
    };
    attach().unwrap_or(std::ptr::null_mut())
}

/// See comb.h.
#[unsafe(no_mangle)]
pub extern "C" fn comb_detach(region: *mut c_void) -> c_int {
    let mut regions = locked(&REGIONS);
    let Some(attached) = regions.get_mut(&(region as usize)) else {
        return failed(&format_args!("{region:p} is not the beginning of a region that is attached"));
    };
    let last = attached.pop();
    if attached.is_empty() {
        regions.remove(&(region as usize));
    }
    drop(regions);
    drop(last);
    0
}

/// See comb.h.
///
/// # Safety
/// `to` has room for so many bytes, and they do not overlap with those at `from`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn comb_load(to: *mut c_void, from: *const c_void, bytes: usize) -> c_int {
    if bytes == 0 {
        return 0;
    }
    // SAFETY: the caller's promise; any bytes are bytes.
    let to = unsafe { std::slice::from_raw_parts_mut(to.cast::<u8>(), bytes) };
    status(comb_memory::careful_copy_from(from.cast(), to).map_err(|lost| failed(&lost)))
}

/// See comb.h.
///
/// # Safety
/// There are so many bytes at `from`, and they do not overlap with those at `to`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn comb_store(to: *mut c_void, from: *const c_void, bytes: usize) -> c_int {
    if bytes == 0 {
        return 0;
    }
    // SAFETY: the caller's promise.
    let from = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), bytes) };
    status(comb_memory::careful_copy_to(from, to.cast()).map_err(|lost| failed(&lost)))
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

/// See comb.h.
///
/// # Safety
/// `values` points to `count` values.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn comb_reduce(how: c_uint, values: *mut u64, count: usize) -> c_int {
    let Some(combine) = named(&COMBINES, how) else {
        return failed(&format_args!("there is no way {how} to combine values"));
    };
    if count > MOST_VALUES {
        return failed(&format_args!("{count} values are too many: at most {MOST_VALUES} at once"));
    }
    if values.is_null() && count > 0 {
        return failed(&format_args!("there are no {count} values at NULL"));
    }
    let task = match joined() {
        Ok(task) => task,
        Err(status) => return status,
    };
    if count == 0 {
        task.barrier();
        return 0;
    }
    // SAFETY: the caller's promise.
    let own = unsafe { std::slice::from_raw_parts(values, count) }.to_vec();
    let all = task.reduce(combine, &own);
    // SAFETY: as above. No reference is kept meanwhile: the values may be in shared memory.
    unsafe { std::ptr::copy_nonoverlapping(all.as_ptr(), values, all.len().min(count)) };
    0
}

/// See comb.h.
#[unsafe(no_mangle)]
pub extern "C" fn comb_sum(value: f64) -> f64 {
    task().sum(value)
}

fn this_thread() -> libc::pthread_t {
    // SAFETY: has no preconditions.
    unsafe { libc::pthread_self() }
}

fn holds(lock: u64) -> bool {
    locked(&HELD).contains_key(&(lock, this_thread()))
}

fn hold(number: u64, lock: HeldLock, is_alone: bool) {
    locked(&HELD).insert((number, this_thread()), Held { lock, is_alone });
}

fn not_held(lock: u64) -> c_int {
    failed(&format_args!("this thread does not hold lock {lock:#x}"))
}

fn acquire(number: u64, is_alone: bool, get: impl FnOnce(&Lock) -> Option<HeldLock>) -> c_int {
    if holds(number) {
        return failed(&format_args!("this thread holds lock {number:#x} already"));
    }
    status(joined().and_then(|task| {
        let lock = get(&Lock::new(&task, number))
            .ok_or_else(|| failed(&format_args!("somebody holds lock {number:#x}, or waits for it")))?;
        hold(number, lock, is_alone);
        Ok(())
    }))
}

/// See comb.h.
#[unsafe(no_mangle)]
pub extern "C" fn comb_lock(lock: u64) -> c_int {
    acquire(lock, true, |lock| Some(lock.write()))
}

/// See comb.h.
#[unsafe(no_mangle)]
pub extern "C" fn comb_read_lock(lock: u64) -> c_int {
    acquire(lock, false, |lock| Some(lock.read()))
}

/// See comb.h.
#[unsafe(no_mangle)]
pub extern "C" fn comb_try_lock(lock: u64) -> c_int {
    acquire(lock, true, Lock::try_write)
}

/// See comb.h.
#[unsafe(no_mangle)]
pub extern "C" fn comb_unlock(lock: u64) -> c_int {
    // Others of this process may come for theirs while this one is given back.
    let held = locked(&HELD).remove(&(lock, this_thread()));
    held.map_or_else(
        || not_held(lock),
        |held| {
            drop(held.lock);
            0
        },
    )
}

fn check_condition(condition: u64) -> Result<(), c_int> {
    if condition < CONDITIONS {
        return Ok(());
    }
    Err(failed(&format_args!("there is no condition {condition:#x}: numbers are less than 2 to the 56")))
}

/// See comb.h.
#[unsafe(no_mangle)]
pub extern "C" fn comb_wait(lock: u64, condition: u64) -> c_int {
    if let Err(status) = check_condition(condition) {
        return status;
    }
    let key = (lock, this_thread());
    let held = {
        let mut all = locked(&HELD);
        if all.get(&key).is_some_and(|held| !held.is_alone) {
            return failed(&format_args!("lock {lock:#x} is held beside others: comb_lock() has it alone"));
        }
        all.remove(&key)
    };
    match held {
        Some(held) => {
            hold(lock, held.lock.wait(condition), true);
            0
        }
        None => not_held(lock),
    }
}

/// See comb.h.
#[unsafe(no_mangle)]
pub extern "C" fn comb_notify(lock: u64, condition: u64, how_many: u64) -> c_int {
    status(check_condition(condition).and_then(|()| {
        joined()?.notify(lock, condition, how_many);
        Ok(())
    }))
}

/// See comb.h.
#[unsafe(no_mangle)]
pub extern "C" fn comb_checkpoint() -> c_int {
    status(joined().and_then(|task| task.checkpoint().map(drop).map_err(|error| failed(&error))))
}

/// See comb.h.
#[unsafe(no_mangle)]
pub extern "C" fn comb_restored() -> c_int {
    c_int::from(task().restored())
}

/// See comb.h.
#[unsafe(no_mangle)]
pub extern "C" fn comb_prefetch(memory: *const c_void, bytes: usize, to_store: c_int) {
    task().prefetch(memory.cast(), bytes, to_store != 0);
}

/// `COMB_ALL`: to all others.
const ALL: c_uint = c_uint::MAX;

/// See comb.h.
#[unsafe(no_mangle)]
pub extern "C" fn comb_push(memory: *const c_void, bytes: usize, to: c_uint) -> usize {
    task().push(memory.cast(), bytes, (to != ALL).then_some(to))
}

/// See comb.h.
#[unsafe(no_mangle)]
pub extern "C" fn comb_move_home(memory: *const c_void, bytes: usize, to: c_uint) -> usize {
    task().move_home(memory.cast(), bytes, to)
}

/// See comb.h.
#[unsafe(no_mangle)]
pub extern "C" fn comb_home(memory: *const c_void) -> c_uint {
    task().home(memory.cast()).unwrap_or(ALL)
}

/// See comb.h.
#[unsafe(no_mangle)]
pub extern "C" fn comb_misses() -> u64 {
    task().misses()
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
