//! The signals' handlers, and those that were there before.

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use rustix::io::Errno;

use super::Next;
use crate::kernel::{self, Protection};
use crate::space::{PAGE_BYTES, index};

/// What faults come as.
const SIGNALS: [c_int; 2] = [libc::SIGBUS, libc::SIGSEGV];

/// What a thread's own instructions raise: blocked, these would end the process.
const SYNCHRONOUS: [c_int; 6] =
    [libc::SIGBUS, libc::SIGSEGV, libc::SIGSYS, libc::SIGTRAP, libc::SIGILL, libc::SIGFPE];

/// A page fault, among the processor's traps; and in its error code, a store.
const TRAP_PAGE_FAULT: i64 = 14;
const ERROR_IS_STORE: i64 = 1 << 1;

/// The kernel's set of signals.
pub(super) type Mask = u64;

/// What was done about [`SIGNALS`] before there was a handler of ours.
type Actions = [libc::sigaction; 2];

static PREVIOUS: OnceLock<Actions> = OnceLock::new();
/// Before that of [`install_landings`].
static PREVIOUS_OF_LANDINGS: OnceLock<Actions> = OnceLock::new();
/// A word that a child by `fork` finds to be zero.
static OWN: AtomicPtr<AtomicU32> = AtomicPtr::new(std::ptr::null_mut());

/// Of whom, and why.
pub(super) struct Interrupted {
    pub(super) address: usize,
    pub(super) is_store: bool,
    /// Where the thread was.
    pub(super) instruction: usize,
    /// The processor's word, not somebody's `kill`.
    pub(super) is_fault: bool,
    /// The same, or another of the processor's complaints: about an address that cannot be one, it does not say which.
    is_raised: bool,
    /// Which signals the thread has blocked itself.
    pub(super) blocked: Mask,
    pub(super) context: *mut c_void,
}

impl Interrupted {
    /// As [`land_in_careful_read`].
    pub(super) fn land_in_careful_read(&self) -> bool {
        // SAFETY: the context of the signal that is being handled.
        unsafe { land_in_careful_read(self.context) }
    }

    /// Lets a thread that was moving a system call's bytes go on where it says that the address is bad. Whether it was one.
    pub(super) fn land_in_system_call(&self) -> bool {
        if !self.is_raised {
            return false;
        }
        // SAFETY: the context of the signal that is being handled.
        let registers = unsafe { &mut (*self.context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
        let instruction = &mut registers[libc::REG_RIP as usize];
        let Some(landing) = crate::syscalls::landing(index(instruction.cast_unsigned())) else {
            return false;
        };
        *instruction = landing.cast_signed() as i64;
        true
    }
}

type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

pub(super) fn install(by_segmentation: bool) -> Result<(), Errno> {
    mark_own_process()?;
    // Before any signal can come that is to be handed on.
    let _ = PREVIOUS.set(actions());
    // SIGBUS of the heap needs room for a protocol, which is on the thread's own stack. SIGSEGV may mean that there is none left.
    handle(libc::SIGBUS, on_signal, 0)?;
    handle(libc::SIGSEGV, on_signal, if by_segmentation { 0 } else { libc::SA_ONSTACK })
}

/// For a process without a heap: a handler that knows the careful read's instructions, and hands all else on. It needs a few hundred bytes
/// of stack, so it runs where the thread wants signals to be handled.
pub(super) fn install_landings() -> Result<(), Errno> {
    let _ = PREVIOUS_OF_LANDINGS.set(actions());
    SIGNALS.into_iter().try_for_each(|signal| handle(signal, on_signal_to_land, libc::SA_ONSTACK))
}

/// What is done now.
fn actions() -> Actions {
    SIGNALS.map(|signal| {
        // SAFETY: zeros are an action; this only asks.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &raw mut action);
            action
        }
    })
}

/// From now on SIGSEGV is handled on the thread's own stack.
pub(super) fn leave_alternate_stack() {
    // It was installed before: this changes a flag.
    let _ = handle(libc::SIGSEGV, on_signal, 0);
}

fn handle(signal: c_int, handler: Handler, flags: c_int) -> Result<(), Errno> {
    // SAFETY: zeros are an action.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER | flags;
    // SAFETY: a set of our own. The handler does only what may be done in one.
    let done = unsafe {
        libc::sigfillset(&raw mut action.sa_mask);
        for synchronous in SYNCHRONOUS {
            libc::sigdelset(&raw mut action.sa_mask, synchronous);
        }
        libc::sigaction(signal, &raw const action, std::ptr::null_mut())
    };
    if done == 0 { Ok(()) } else { Err(Errno::from_raw_os_error(last_error())) }
}

fn last_error() -> i32 {
    // SAFETY: the thread's own word.
    unsafe { *libc::__errno_location() }
}

extern "C" fn on_signal(signal: c_int, information: *mut libc::siginfo_t, context: *mut c_void) {
    let error = last_error();
    // SAFETY: the kernel gives both to a handler with SA_SIGINFO; the address is there for these signals, and is whatever it is for those
    // that somebody sends.
    let interrupted = unsafe {
        let registers = &(*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs;
        let is_page_fault = registers[libc::REG_TRAPNO as usize] == TRAP_PAGE_FAULT;
        Interrupted {
            address: (*information).si_addr().addr(),
            is_store: registers[libc::REG_ERR as usize] & ERROR_IS_STORE != 0,
            instruction: index(registers[libc::REG_RIP as usize].cast_unsigned()),
            is_fault: (*information).si_code > 0 && is_page_fault,
            is_raised: (*information).si_code > 0,
            blocked: *interrupted_mask(context),
            context,
        }
    };
    if let Next::Chain = super::serve(&interrupted) {
        // SAFETY: what this handler was given.
        unsafe { chain(PREVIOUS.get(), signal, information, context) };
    }
    // SAFETY: the thread's own word.
    unsafe { *libc::__errno_location() = error };
}

extern "C" fn on_signal_to_land(signal: c_int, information: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: what this handler was given.
    unsafe {
        if !land_in_careful_read(context) {
            let error = last_error();
            chain(PREVIOUS_OF_LANDINGS.get(), signal, information, context);
            *libc::__errno_location() = error;
        }
    }
}

/// Lets a thread that was stopped where it reads a peer's memory go on where that says so. Whether it was there. What the kernel says about the reason
/// is not asked for: a file cut short, failed hardware and a mapping that is gone are all the same to who reads.
///
/// # Safety
/// `context` is that of the signal that is being handled.
unsafe fn land_in_careful_read(context: *mut c_void) -> bool {
    // SAFETY: the caller's promise.
    let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    let is_store = registers[libc::REG_TRAPNO as usize] == TRAP_PAGE_FAULT
        && registers[libc::REG_ERR as usize] & ERROR_IS_STORE != 0;
    // There it stores to memory of our own alone: that this is bad is nobody else's fault.
    if is_store {
        return false;
    }
    let instruction = &mut registers[libc::REG_RIP as usize];
    let Some(landing) = crate::careful::landing(index(instruction.cast_unsigned())) else { return false };
    *instruction = landing.cast_signed() as i64;
    true
}

/// Does what would have been done without us.
///
/// # Safety
/// The arguments are those of the signal's handler.
unsafe fn chain(
    previous: Option<&Actions>,
    signal: c_int,
    information: *mut libc::siginfo_t,
    context: *mut c_void,
) {
    let which = usize::from(signal == libc::SIGSEGV);
    let previous = previous.map(|previous| previous[which]);
    let handler = previous.map_or(libc::SIG_DFL, |action| action.sa_sigaction);
    if handler == libc::SIG_DFL || handler == libc::SIG_IGN {
        // SAFETY: the kernel's own field.
        let was_sent = unsafe { (*information).si_code } <= 0;
        if handler == libc::SIG_IGN && was_sent {
            return;
        }
        set_default(signal);
        if was_sent {
            // SAFETY: has no preconditions.
            unsafe { libc::raise(signal) };
        }
        // Otherwise the thread does it again, and dies of it.
        return;
    }
    let Some(action) = previous else { return };
    // As the kernel would have blocked signals for it. When our own handler returns, the thread has what it had.
    // SAFETY: the context of this signal; the handler is the previous owner's, of the type that its flags say.
    unsafe {
        let mut mask = *interrupted_mask(context) | *(&raw const action.sa_mask).cast::<Mask>();
        if action.sa_flags & libc::SA_NODEFER == 0 {
            mask |= 1 << (signal - 1);
        }
        block(mask);
        if action.sa_flags & libc::SA_SIGINFO != 0 {
            let handler: Handler = std::mem::transmute(handler);
            handler(signal, information, context);
        } else {
            let handler: extern "C" fn(c_int) = std::mem::transmute(handler);
            handler(signal);
        }
    }
}

fn set_default(signal: c_int) {
    let default = [0_usize; 4];
    // As in `block`.
    // SAFETY: zeros are the default action, as the kernel takes it.
    unsafe {
        let arguments = [signal as usize, default.as_ptr() as usize, 0, size_of::<Mask>(), 0, 0];
        crate::syscalls::raw(libc::SYS_rt_sigaction, arguments);
    }
}

/// The process ends as if nobody had handled the fault.
pub(super) fn die_of_bus_error() -> ! {
    set_default(libc::SIGBUS);
    // SAFETY: neither has preconditions. SIGBUS is not blocked in the handler, and nobody handles it any more.
    unsafe {
        libc::raise(libc::SIGBUS);
        libc::abort()
    }
}

/// The signals that the interrupted thread has blocked: the kernel writes a word of them, not all of libc's.
///
/// # Safety
/// `context` is a handler's.
unsafe fn interrupted_mask(context: *mut c_void) -> *const Mask {
    // SAFETY: the caller's promise.
    unsafe { (&raw const (*context.cast::<libc::ucontext_t>()).uc_sigmask).cast() }
}

/// Blocks these signals and no others; says which were before.
pub(super) fn block(mask: Mask) -> Mask {
    // SIGSYS stays: the kernel ends who is to be stopped with it blocked.
    let mask: Mask = mask & !(1 << (libc::SIGSYS - 1));
    let mut before: Mask = 0;
    let (new, old) = (&raw const mask, &raw mut before);
    // Not to be stopped itself: an alternate stack that this may run on has no room for one signal more.
    // SAFETY: two words of the size that is given.
    unsafe {
        crate::syscalls::raw(
            libc::SYS_rt_sigprocmask,
            [libc::SIG_SETMASK as usize, new as usize, old as usize, size_of::<Mask>(), 0, 0],
        )
    };
    before
}

fn mark_own_process() -> Result<(), Errno> {
    let page = kernel::reserve(PAGE_BYTES, Protection::LoadsAndStores)?;
    // SAFETY: just mapped; a child is to find zeros.
    unsafe { kernel::advise(page, PAGE_BYTES, libc::MADV_WIPEONFORK) }?;
    let word: *mut AtomicU32 = std::ptr::with_exposed_provenance_mut(page);
    // SAFETY: just mapped, and it stays.
    unsafe { (*word).store(1, Ordering::Relaxed) };
    OWN.store(word, Ordering::Release);
    Ok(())
}

/// Whether this is the process that installed the handlers. A child by `fork` has them too, and none of the memory.
pub(super) fn is_own_process() -> bool {
    let word = OWN.load(Ordering::Acquire);
    // SAFETY: set once, to a page that stays.
    !word.is_null() && unsafe { (*word).load(Ordering::Relaxed) } == 1
}
