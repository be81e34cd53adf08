//! Handlers of a program's own, on a signal stack as short as Rust's and libc's, that use memory which is not here.
#![expect(unsafe_code, reason = "signal stacks, handlers, and system calls on raw memory are what is tested")]

mod components;

use std::ffi::c_int;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use comb_region::task::Share;
use comb_region::{Placement, Task, Terms};
use components::Case;

const CASES: &[Case] =
    &[("touches", |task| on_a_short_stack(task, touch)), ("calls", |task| on_a_short_stack(task, call))];

#[test]
fn component() {
    components::run(CASES);
}

const PAGE: usize = 4096;
const PAGES: usize = 20;
/// What `SIGSTKSZ` is. Two signal frames of a processor with AVX-512 leave 1,400 bytes of it.
const STACK_BYTES: usize = 8192;

static MEMORY: AtomicPtr<AtomicU32> = AtomicPtr::new(null_mut());
static ROUND: AtomicUsize = AtomicUsize::new(0);
static PIPE: [AtomicU32; 2] = [const { AtomicU32::new(0) }; 2];
static DONE: AtomicU32 = AtomicU32::new(0);

/// The next page that nobody has touched here.
fn next_page() -> &'static AtomicU32 {
    let page = ROUND.fetch_add(1, Ordering::Relaxed);
    // SAFETY: an allocation of so many pages, which stays.
    unsafe { &*MEMORY.load(Ordering::Relaxed).byte_add(page % PAGES * PAGE) }
}

extern "C" fn touch(_: c_int) {
    let word = next_page();
    let before = word.load(Ordering::Relaxed);
    word.store(before + 1, Ordering::Relaxed);
    DONE.fetch_add(before, Ordering::Relaxed);
}

extern "C" fn call(_: c_int) {
    let [from, to] = [0, 1].map(|end: usize| PIPE[end].load(Ordering::Relaxed).cast_signed());
    let mut came = 0_u32;
    // SAFETY: four bytes of an allocation, and a word of our own.
    let count = unsafe {
        libc::write(to, next_page().as_ptr().cast(), 4) + libc::read(from, (&raw mut came).cast(), 4)
    };
    // SAFETY: whoever does that checks the word, at which nobody sleeps.
    let woken = unsafe { libc::syscall(libc::SYS_futex, next_page().as_ptr(), libc::FUTEX_WAKE, 1) };
    DONE.fetch_add(u32::from((count, woken) == (8, 0)) * came, Ordering::Relaxed);
}

/// In all components but the first, which has the memory, each on a signal stack with nothing below it.
fn on_a_short_stack(task: &Task, handler: extern "C" fn(c_int)) {
    let terms = Terms { placement: Placement::At(0), ..Terms::default() };
    let memory: *mut AtomicU32 =
        task.allocate_together((PAGES * PAGE) as u64, &terms).expect("allocated").cast();
    if task.rank() == 0 {
        for page in 0..PAGES {
            // SAFETY: within the allocation.
            unsafe { &*memory.byte_add(page * PAGE) }.store(7, Ordering::Relaxed);
        }
    }
    task.barrier();
    for rank in 1..task.count() {
        if rank == task.rank() {
            MEMORY.store(memory, Ordering::Relaxed);
            std::thread::spawn(move || raise_often(handler)).join().unwrap();
        }
        task.barrier();
    }
}

fn raise_often(handler: extern "C" fn(c_int)) {
    const TIMES: u32 = 8;
    // SAFETY: a new mapping whose first page nobody may touch; a handler that does only what may be done in one.
    unsafe {
        let mut ends = [0; 2];
        assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
        PIPE.iter().zip(ends).for_each(|(end, pipe)| end.store(pipe.cast_unsigned(), Ordering::Relaxed));
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let room =
            libc::mmap(null_mut(), PAGE + STACK_BYTES, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
        assert_eq!(libc::mprotect(room, PAGE, libc::PROT_NONE), 0);
        let short = libc::stack_t { ss_sp: room.wrapping_byte_add(PAGE), ss_flags: 0, ss_size: STACK_BYTES };
        let mut before: libc::stack_t = std::mem::zeroed();
        assert_eq!(libc::sigaltstack(&raw const short, &raw mut before), 0);
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_ONSTACK;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &raw const action, null_mut()), 0);
        (0..TIMES).for_each(|_| assert_eq!(libc::raise(libc::SIGUSR1), 0));
        let mut after: libc::stack_t = std::mem::zeroed();
        assert_eq!(libc::sigaltstack(&raw const before, &raw mut after), 0);
        assert_eq!((after.ss_sp, after.ss_size), (short.ss_sp, STACK_BYTES), "it is what it was");
    }
    assert_eq!(DONE.load(Ordering::Relaxed), 7 * TIMES);
}

/// Rust's library gives each thread 8 KB. The fault's frame came on top of the signal's, and the engine's work on top of that.
#[test]
fn a_handler_on_a_short_signal_stack_touches_what_is_elsewhere() {
    components::pass("touches", 2, Share::Copy);
    components::pass_by_protections("touches", 2);
}

#[test]
fn a_handler_on_a_short_signal_stack_makes_calls_on_what_is_elsewhere() {
    components::pass("calls", 2, Share::Copy);
    components::pass_by_protections("calls", 2);
}
