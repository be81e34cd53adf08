//! Room for a protocol, where a fault's handler runs on a signal stack.
//!
//! Signal stacks have 8 KB as a rule. Where a handler that runs on one touches what is not here, the frames of two signals are there already, and
//! half a kilobyte is left for a protocol that wants many. So the fault is served on a stack of the pool. The frames stay where they
//! are: until all is done the thread has a signal stack of the pool as well, for signals that come meanwhile would start at the top of its own.
//!
//! Two things cannot be helped. If there is no room for the fault's frame itself, the kernel ends the process (SIGSEGV). And
//! stacks that are short without being the thread's signal stack are not known as such: those of small threads or coroutines, and
//! signal stacks under `SS_AUTODISARM`.

use std::ffi::c_void;

use super::Next;
use crate::syscalls::{Scratch, change_stack};

/// What is done on the other stack.
struct Job<'a> {
    work: &'a dyn Fn() -> Next,
    next: Next,
    own_stack: [usize; 3],
    other_stack: [usize; 3],
}

/// Does `work` where there is room for it: here, unless this is the thread's signal stack.
///
/// # Safety
/// `context` is of the signal that is being handled, and its handler blocks all signals that may come from elsewhere.
pub(super) unsafe fn with_room(context: *mut c_void, work: &dyn Fn() -> Next) -> Next {
    // SAFETY: the kernel's `stack_t` is three words, at this place.
    let own_stack =
        unsafe { (&raw const (*context.cast::<libc::ucontext_t>()).uc_stack).cast::<[usize; 3]>().read() };
    let [start, _, bytes] = own_stack;
    // The frame stands on the stack that this runs on.
    if context.addr().wrapping_sub(start) >= bytes {
        return work();
    }
    let Some(scratch) = Scratch::take() else { return work() };
    let mut job = Job { work, next: Next::Return, own_stack, other_stack: scratch.signal_stack() };
    // SAFETY: the pool's stack is nobody else's until it is given back.
    unsafe { on_stack(scratch.stack_top(), &raw mut job) };
    scratch.give_back();
    job.next
}

/// Calls [`do_job`] with the stack pointer there.
#[unsafe(naked)]
unsafe extern "C" fn on_stack(top: usize, job: *mut Job<'_>) {
    std::arch::naked_asm!(
        "push rbp",
        "mov rbp, rsp",
        "mov rsp, rdi",
        "mov rdi, rsi",
        "call {do_job}",
        "mov rsp, rbp",
        "pop rbp",
        "ret",
        do_job = sym do_job,
    );
}

/// The kernel changes a thread's signal stack only while the thread is not on it: here it is on neither.
extern "C" fn do_job(job: &mut Job<'_>) {
    change_stack(job.other_stack);
    job.next = (job.work)();
    change_stack(job.own_stack);
}
