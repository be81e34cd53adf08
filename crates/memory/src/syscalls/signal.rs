//! What a stopped system call does to its thread: SIGSYS, and its handler.
//!
//! A thread's signal stack may be as small as 8 KB, and the signal's frame takes up to half of that. While the call is dealt with,
//! faults are served in a signal of their own. So the handler moves the frame away and changes over to a stack of the pool: the kernel then
//! finds the signal stack unused and starts the next signal at its top. At the end all goes back.
//!
//! That stack is in use where the call was made by another signal's handler that runs on it. Then the thread has a signal stack of the pool
//! while the call is dealt with, and gets its own back when it is on that again.
#![expect(unsafe_code, reason = "a signal handler, its frame, and the stack under it")]
#![expect(clippy::cast_possible_truncation, reason = "registers are as long as a pointer here")]

use std::io;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};

use super::bounce::BAD_ADDRESS;
use super::copy::{give, load_words};
use super::filter::OURS;
use super::perform::{self, Call};
use super::scratch::Scratch;
use super::stub::raw;

/// What the kernel calls `SYS_SECCOMP`: a filter stopped the call.
const STOPPED_BY_FILTER: i32 = 1;
/// Of the kernel's context before the place where processor state begins, and of what it says of the signal.
const CONTEXT_BYTES: usize = 304;
const INFORMATION_BYTES: usize = 128;
/// Marks, in the area of 512 bytes that every processor has, that more follows, and how much.
const EXTENDED: u32 = 0x4650_5853;
const EXTENDED_AT: usize = 464;

/// Nobody blocks these: the kernel kills a thread that is stopped with its signal blocked.
pub(super) const KEPT: u64 = bit(libc::SIGSYS) | bit(libc::SIGSEGV) | bit(libc::SIGBUS);

const fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// The action for SIGSYS that the program believes to have: handler, flags, restorer, mask, as the kernel takes them.
static ACTION: [AtomicUsize; 4] = [const { AtomicUsize::new(0) }; 4];
/// Whose memory this is. A child by `vfork` works in it for a while.
static OWNER: AtomicI32 = AtomicI32::new(0);
static INSTALLED: AtomicBool = AtomicBool::new(false);

/// Where a call's arguments are.
const ARGUMENTS: [i32; 6] =
    [libc::REG_RDI, libc::REG_RSI, libc::REG_RDX, libc::REG_R10, libc::REG_R8, libc::REG_R9];

/// A stopped call's registers, as they will be when it goes on.
pub(super) struct Context(*mut libc::ucontext_t);

impl Context {
    fn call(&self) -> Call {
        // SAFETY: the context of a signal that is being handled, or its copy; nobody else has it.
        let registers = unsafe { &(*self.0).uc_mcontext.gregs };
        let register = |index: i32| registers[index as usize].cast_unsigned() as usize;
        Call { number: register(libc::REG_RAX), arguments: ARGUMENTS.map(register) }
    }

    fn set_result(&mut self, result: isize) {
        // SAFETY: as above.
        unsafe { (*self.0).uc_mcontext.gregs[libc::REG_RAX as usize] = result as i64 };
    }

    /// Has the thread make its call once more, by its own instruction and without these arguments. Gives back the "result" that does it.
    pub(super) fn make_again_without(&mut self, arguments: impl Iterator<Item = usize>) -> isize {
        const INSTRUCTION_BYTES: i64 = 2;
        // SAFETY: as above.
        let registers = unsafe { &mut (*self.0).uc_mcontext.gregs };
        for index in arguments {
            registers[ARGUMENTS[index] as usize] = 0;
        }
        registers[libc::REG_RIP as usize] -= INSTRUCTION_BYTES;
        registers[libc::REG_RAX as usize] as isize
    }

    /// The signals that are blocked when the thread goes on. Those blocked now would be forgotten.
    pub(super) fn mask(&self) -> u64 {
        // SAFETY: the kernel's mask is 64 bits at this place.
        unsafe { (&raw const (*self.0).uc_sigmask).cast::<u64>().read() }
    }

    pub(super) fn set_mask(&mut self, mask: u64) {
        // SAFETY: as above.
        unsafe { (&raw mut (*self.0).uc_sigmask).cast::<u64>().write(mask) };
    }

    /// The thread's signal stack, if the call was made on it. One that the kernel takes down for each handler is not
    /// there now, and nothing starts on it.
    fn stack_in_use(&self) -> Option<[usize; 3]> {
        const TAKEN_DOWN: usize = 1 << 31;
        // SAFETY: as above.
        let (stack, at) = unsafe {
            let stack = (&raw const (*self.0).uc_stack).cast::<[usize; 3]>().read();
            (stack, (*self.0).uc_mcontext.gregs[libc::REG_RSP as usize].cast_unsigned() as usize)
        };
        let [start, flags, bytes] = stack;
        let is_in_use = at > start && at - start <= bytes && flags & TAKEN_DOWN == 0;
        is_in_use.then_some(stack)
    }

    /// The signal stack when the thread goes on: address, flags, bytes.
    pub(super) fn set_stack(&mut self, stack: [usize; 3]) {
        // SAFETY: the kernel's `stack_t` is three words at this place, the second with four bytes of nothing.
        unsafe { (&raw mut (*self.0).uc_stack).cast::<[usize; 3]>().write(stack) };
    }
}

/// Installs the handler, once a process.
pub(super) fn install() -> io::Result<()> {
    if INSTALLED.load(Ordering::Acquire) {
        return Ok(());
    }
    // SAFETY: a zeroed action is one.
    let (mut action, mut before): (libc::sigaction, libc::sigaction) = unsafe { std::mem::zeroed() };
    action.sa_sigaction = entry as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
    // SAFETY: the handler is one for SA_SIGINFO, and keeps to what a handler may do.
    if unsafe { libc::sigaction(libc::SIGSYS, &raw const action, &raw mut before) } != 0 {
        return Err(io::Error::last_os_error());
    }
    ACTION[0].store(before.sa_sigaction, Ordering::Relaxed);
    ACTION[1].store(before.sa_flags.cast_unsigned() as usize, Ordering::Relaxed);
    OWNER.store(process(), Ordering::Relaxed);
    INSTALLED.store(true, Ordering::Release);
    // SAFETY: unblocks signals of this thread.
    unsafe {
        let mut signals: libc::sigset_t = std::mem::zeroed();
        for signal in [libc::SIGSYS, libc::SIGSEGV, libc::SIGBUS] {
            libc::sigaddset(&raw mut signals, signal);
        }
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const signals, std::ptr::null_mut());
    }
    Ok(())
}

/// `rt_sigaction`. Handlers do not block our signals. Of SIGSYS, the program has its say for those that are not ours, and ours stay ours.
pub(super) fn set_action(call: &Call) -> isize {
    let [signal, new, old, size, ..] = call.arguments;
    let mut action = [0; 4];
    if new != 0 && load_words(new, &mut action).is_none() {
        return BAD_ADDRESS;
    }
    action[3] &= !(KEPT as usize);
    let mut before = [0_usize; 4];
    if signal == libc::SIGSYS as usize && size == 8 {
        change_our_action(new != 0, &action, &mut before);
    } else {
        let new = if new == 0 { 0 } else { action.as_ptr() as usize };
        let result = call.with([signal, new, before.as_mut_ptr() as usize, size, 0, 0]);
        if result < 0 {
            return result;
        }
    }
    let before = before.map(usize::to_ne_bytes);
    if old != 0 && !give(before.as_flattened(), old) { BAD_ADDRESS } else { 0 }
}

fn change_our_action(is_new: bool, action: &[usize; 4], before: &mut [usize; 4]) {
    for (place, word) in before.iter_mut().zip(&ACTION) {
        *place = word.load(Ordering::Relaxed);
    }
    // A child by vfork or posix_spawn takes all handlers down before it becomes another program, in our memory.
    let is_childs = || action[0] == libc::SIG_DFL && OWNER.load(Ordering::Relaxed) != process();
    if is_new && !is_childs() {
        for (word, &value) in ACTION.iter().zip(action) {
            word.store(value, Ordering::Relaxed);
        }
    }
}

fn process() -> i32 {
    // SAFETY: cannot fail.
    let process = unsafe { raw(libc::SYS_getpid, [0; 6]) };
    i32::try_from(process).unwrap_or(-1)
}

/// The handler. It may use any register: all of them come back with the frame.
#[unsafe(naked)]
extern "C" fn entry(_: i32, _: *mut libc::siginfo_t, _: *mut libc::ucontext_t) {
    std::arch::naked_asm!(
        "mov rbx, rsp",
        "mov rdi, rsp",
        "and rsp, -16",
        "call {prepare}",
        "test rax, rax",
        "jz 2f",
        "mov r12, rax",
        // The scratch's first word: its stack.
        "mov rsp, [rax]",
        "mov rdi, rax",
        "call {perform}",
        // From here on a signal starts below the frame's place again.
        "mov rsp, rbx",
        "and rsp, -16",
        "mov rdi, r12",
        "mov rsi, rbx",
        "call {finish}",
        "2:",
        "mov rsp, rbx",
        "ret",
        prepare = sym prepare,
        perform = sym perform_on_its_stack,
        finish = sym finish,
    );
}

/// Moves the frame away. None where there is nothing more to do.
extern "C" fn prepare(
    frame: usize,
    information: *mut libc::siginfo_t,
    context: *mut libc::ucontext_t,
) -> Option<&'static mut Scratch> {
    // SAFETY: the kernel gives both to a handler.
    let is_ours =
        unsafe { (*information).si_code == STOPPED_BY_FILTER && (*information).si_errno == i32::from(OURS) };
    if !is_ours {
        pass_on(information, context);
        return None;
    }
    let mut registers = Context(context);
    let Some(scratch) = Scratch::take() else {
        registers.set_result(-(libc::ENOMEM as isize));
        return None;
    };
    // SAFETY: this signal's frame.
    let end = unsafe { frame_end(frame, context) };
    // SAFETY: from the stack pointer at the handler's entry, all of it is there.
    if unsafe { scratch.keep_frame(frame, end - frame) } {
        scratch.interrupted_stack = registers.stack_in_use();
        if scratch.interrupted_stack.is_some() {
            // No signal may start at that stack's top between here and when there is another.
            change_mask(libc::SIG_SETMASK, u64::MAX);
        }
        return Some(scratch);
    }
    // A processor with more state than there is room for: then on this stack, as it is.
    let result = perform::perform(scratch, &registers.call(), &mut registers);
    registers.set_result(result);
    scratch.give_back();
    None
}

/// Where the frame ends: behind the processor's state, which is the last of it.
///
/// # Safety
/// Both are of a signal that is being handled, on its stack.
unsafe fn frame_end(frame: usize, context: *mut libc::ucontext_t) -> usize {
    // SAFETY: by the caller; where the kernel saved state it says how much.
    unsafe {
        // The kernel's structure has it behind the registers. musl's has no name for that word.
        let state = (&raw const (*context).uc_mcontext.gregs).add(1).cast::<*const u8>().read();
        if state.is_null() {
            return frame + 8 + CONTEXT_BYTES + INFORMATION_BYTES;
        }
        let words = state.add(EXTENDED_AT).cast::<u32>();
        let bytes = if words.read() == EXTENDED { words.add(1).read() as usize } else { 512 };
        state as usize + bytes
    }
}

extern "C" fn perform_on_its_stack(scratch: &mut Scratch) {
    // Behind the address that the handler returns to.
    let mut registers = Context((scratch.frame() + 8) as *mut libc::ucontext_t);
    if scratch.interrupted_stack.is_some() {
        change_stack(scratch.signal_stack());
        change_mask(libc::SIG_SETMASK, registers.mask());
    }
    let result = perform::perform(scratch, &registers.call(), &mut registers);
    registers.set_result(result);
}

extern "C" fn finish(scratch: &'static mut Scratch, frame: usize) {
    if let Some(stack) = scratch.interrupted_stack.take() {
        // We are on it: from now on signals start below.
        change_stack(stack);
    }
    // SAFETY: the place it was taken from; the stack pointer is below.
    unsafe { scratch.restore_frame(frame) };
    scratch.give_back();
}

/// The thread's signal stack from now on: address, flags, bytes.
pub(crate) fn change_stack(stack: [usize; 3]) {
    // SAFETY: memory that is mapped for as long as it is the signal stack.
    unsafe { raw(libc::SYS_sigaltstack, [stack.as_ptr() as usize, 0, 0, 0, 0, 0]) };
}

fn change_mask(how: i32, mask: u64) {
    // SAFETY: eight bytes, as the kernel takes them. The frame brings the program's mask back.
    unsafe { raw(libc::SYS_rt_sigprocmask, [how as usize, (&raw const mask) as usize, 0, 8, 0, 0]) };
}

/// A SIGSYS that is not ours goes to the program's action.
fn pass_on(information: *mut libc::siginfo_t, context: *mut libc::ucontext_t) {
    let [handler, flags] = [0, 1].map(|index: usize| ACTION[index].load(Ordering::Relaxed));
    match handler {
        libc::SIG_IGN => {}
        libc::SIG_DFL => {
            // SAFETY: a zeroed action is the default. What stopped us stops us again as soon as we are back, or is
            // sent again, and then ends the process as it would have without us.
            unsafe {
                let default = [0_usize; 4];
                let signal = libc::SIGSYS as usize;
                raw(libc::SYS_rt_sigaction, [signal, default.as_ptr() as usize, 0, 8, 0, 0]);
                libc::raise(libc::SIGSYS);
            }
        }
        handler if flags & libc::SA_SIGINFO as usize != 0 => {
            // SAFETY: installed by the program as a handler of this kind.
            unsafe {
                let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::ucontext_t) =
                    std::mem::transmute(handler);
                handler(libc::SIGSYS, information, context);
            }
        }
        handler => {
            // SAFETY: as above.
            unsafe {
                let handler: extern "C" fn(i32) = std::mem::transmute(handler);
                handler(libc::SIGSYS);
            }
        }
    }
}
