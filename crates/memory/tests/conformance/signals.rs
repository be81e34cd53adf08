//! Faults among other signals.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use comb_memory::Access::{Invalid, ReadWrite};

use crate::Kind;
use crate::world::{Policy, World, begin};

static IN_HANDLER: AtomicUsize = AtomicUsize::new(0);
static WORLD: std::sync::OnceLock<&'static World> = std::sync::OnceLock::new();

/// A program's own handler, which touches memory that may not be here.
extern "C" fn on_user_signal(_signal: libc::c_int) {
    let world = WORLD.get().unwrap();
    let count = IN_HANDLER.fetch_add(1, Ordering::Relaxed) as u64;
    world.word(20 + count % 20).fetch_add(1, Ordering::Relaxed);
}

/// Signals come all the time, while memory is touched, while faults are served, while rights are taken away.
pub(crate) fn nested(kind: Kind) {
    const SIGNALS: usize = 2000;
    let world = begin(kind, 40, Invalid);
    assert!(WORLD.set(world).is_ok());
    // SAFETY: the handler does only what may be done in one.
    unsafe { libc::signal(libc::SIGUSR1, on_user_signal as *const () as libc::sighandler_t) };
    let is_over = AtomicBool::new(false);
    // SAFETY: has no preconditions.
    let toucher = unsafe { libc::pthread_self() };
    let mut stored = 0_u64;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // This thread takes rights away; it is not to be interrupted.
            block_user_signal();
            for _ in 0..SIGNALS {
                // SAFETY: the thread outlives this one.
                unsafe { libc::pthread_kill(toucher, libc::SIGUSR1) };
                world.take_all();
                std::thread::yield_now();
            }
            is_over.store(true, Ordering::Relaxed);
        });
        while !is_over.load(Ordering::Relaxed) {
            world.word(stored % 20).fetch_add(1, Ordering::Relaxed);
            stored += 1;
            world.forget_stops();
        }
    });
    world.set_all(ReadWrite);
    let sum = |blocks: std::ops::Range<u64>| blocks.map(|block| world.content(block)).sum::<u64>();
    assert_eq!(sum(0..20), stored);
    let handled = IN_HANDLER.load(Ordering::Relaxed);
    assert_eq!(sum(20..40), handled as u64);
    assert!(handled > 0);
}

static NOTED: AtomicUsize = AtomicUsize::new(0);

extern "C" fn note(_signal: libc::c_int) {
    NOTED.fetch_add(1, Ordering::SeqCst);
}

/// The thread is let go by a signal's handler that comes while it waits, and has blocked afterwards what it had before.
pub(crate) fn waiting(kind: Kind) {
    let world = begin(kind, 10, Invalid);
    world.policy(Policy::WaitWithSignals);
    // SAFETY: the handlers do only what may be done in one.
    unsafe {
        libc::signal(libc::SIGUSR1, note as *const () as libc::sighandler_t);
        libc::signal(libc::SIGUSR2, note as *const () as libc::sighandler_t);
    }
    block_user_signal();
    let before = crate::endings::blocked();
    // SAFETY: has no preconditions.
    let waiter = unsafe { libc::pthread_self() };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            world.until_somebody_waits();
            // The first is one that the thread has blocked itself; the second is not.
            for signal in [libc::SIGUSR1, libc::SIGUSR2] {
                // SAFETY: the thread outlives this one.
                unsafe { libc::pthread_kill(waiter, signal) };
            }
            while NOTED.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
            world.set(3..4, ReadWrite);
        });
        world.store(3, 1);
    });
    assert_eq!((NOTED.load(Ordering::SeqCst), crate::endings::blocked()), (1, before));
}

/// As Rust's library gives each thread. Two signal frames of a large processor leave a sixth of it.
const SHORT_STACK_BYTES: usize = 8192;

extern "C" fn store_on_short_stack(_signal: libc::c_int) {
    let above = std::hint::black_box([7_u8; 128]);
    WORLD.get().unwrap().store(3, 1);
    assert_eq!(above, [7; 128]);
    IN_HANDLER.fetch_add(1, Ordering::Relaxed);
}

extern "C" fn note_on_signal_stack(_signal: libc::c_int) {
    // Over whatever is at the top of it.
    std::hint::black_box([0xff_u8; 4096]);
    NOTED.fetch_add(1, Ordering::SeqCst);
}

/// A handler that runs on a short signal stack touches memory that is not here, and while that is waited for another handler is to
/// run on that stack. The fault is served elsewhere, and neither harms the other.
pub(crate) fn short_stack(kind: Kind) {
    let world = begin(kind, 10, Invalid);
    assert!(WORLD.set(world).is_ok());
    world.policy(Policy::WaitWithSignals);
    on_signal_stack(libc::SIGUSR1, store_on_short_stack);
    on_signal_stack(libc::SIGUSR2, note_on_signal_stack);
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let short = short_signal_stack();
            // SAFETY: have no preconditions.
            unsafe {
                tell.send(libc::pthread_self()).unwrap();
                libc::raise(libc::SIGUSR1);
            }
            assert_eq!(signal_stack().ss_sp, short);
        });
        let waiter = told.recv().unwrap();
        world.until_somebody_waits();
        // SAFETY: the thread is there until this one lets it go.
        unsafe { libc::pthread_kill(waiter, libc::SIGUSR2) };
        while NOTED.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        world.set(3..4, ReadWrite);
    });
    assert_eq!((world.content(3), IN_HANDLER.load(Ordering::Relaxed)), (1, 1));
}

fn on_signal_stack(signal: libc::c_int, handler: extern "C" fn(libc::c_int)) {
    // SAFETY: zeros are an action; the handlers do only what may be done in one.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_ONSTACK;
        assert_eq!(libc::sigaction(signal, &raw const action, std::ptr::null_mut()), 0);
    }
}

/// Gives this thread one, with nothing below it. Where it is.
fn short_signal_stack() -> *mut libc::c_void {
    const GUARD_BYTES: usize = 4096;
    let bytes = GUARD_BYTES + SHORT_STACK_BYTES;
    // SAFETY: a new mapping, which stays.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let room = libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
        assert_eq!(libc::mprotect(room, GUARD_BYTES, libc::PROT_NONE), 0);
        let start = room.wrapping_byte_add(GUARD_BYTES);
        let short = libc::stack_t { ss_sp: start, ss_flags: 0, ss_size: SHORT_STACK_BYTES };
        assert_eq!(libc::sigaltstack(&raw const short, std::ptr::null_mut()), 0);
        start
    }
}

fn signal_stack() -> libc::stack_t {
    // SAFETY: only asks.
    unsafe {
        let mut now: libc::stack_t = std::mem::zeroed();
        assert_eq!(libc::sigaltstack(std::ptr::null(), &raw mut now), 0);
        now
    }
}

fn block_user_signal() {
    // SAFETY: a set of our own, for this thread.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGUSR1);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
    }
}

pub(crate) fn errno(kind: Kind) {
    let world = begin(kind, 10, Invalid);
    let error = || std::io::Error::last_os_error().raw_os_error();
    // SAFETY: no such descriptor.
    unsafe { libc::close(-1) };
    assert_eq!(error(), Some(libc::EBADF));
    world.store(3, 1);
    assert_eq!(error(), Some(libc::EBADF));
    assert_eq!(world.stops(), [(3, true)]);
}
