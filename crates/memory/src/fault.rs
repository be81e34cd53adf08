//! What stops a thread at shared memory, and who lets it go on.
//!
//! The kernel's word comes as SIGBUS (userfaultfd) or SIGSEGV (protections), to the thread itself. Signals whose address is neither in the
//! heap nor in an image are handed to whoever had them before.
#![expect(unsafe_code, reason = "signal handlers, and the registers of the thread that they interrupt")]

mod careful;
mod message;
mod places;
mod room;
mod signals;
mod whence;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use comb_coherence::tempest::Loss;
use rustix::io::Errno;

pub use self::careful::{LostAt, careful_copy_from, careful_copy_to};
pub use self::places::{Place, name_place};
use self::signals::Interrupted;
use self::whence::{Whence, Where};
use crate::images;
use crate::threads::{self, Need};

/// What stopped a thread.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// What it was about to load or store.
    pub address: usize,
    /// Whether to store. What loads and then stores (`lock xadd`) stores, also if it finds nothing to store (`cmpxchg`).
    pub is_store: bool,
    /// How many bytes from there on it would like to have at once: one, of a thread that was stopped by the MMU.
    pub bytes: usize,
    /// The thread has looked itself, and was not stopped; or it was stopped among accesses that it had looked at.
    pub is_by_software: bool,
    /// What the thread has blocked itself; none where it was not interrupted.
    blocked: Option<signals::Mask>,
    /// The instruction that was about to; 0 where that is not known.
    pub instruction: usize,
}

impl Fault {
    /// Lets signals come that the thread had not blocked, while it waits for long. In a handler all are blocked, and come when it
    /// returns: a thread that waits for another cell could not even be interrupted from the keyboard.
    ///
    /// Their handlers may touch shared memory: whoever serves that must not need what is held during `wait`.
    pub fn with_signals<R>(&self, wait: impl FnOnce() -> R) -> R {
        let Some(blocked) = self.blocked else { return wait() };
        let before = signals::block(blocked);
        let done = wait();
        signals::block(before);
        done
    }
}

/// What is to become of a thread that was stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It tries again: it may now, or it will be stopped again.
    Retry,
    /// There is no allocation. Whoever had the signal before gets it; in the end the process dies of a wild address.
    NotOurs,
    /// What was there is gone for ever. A careful copy ends with an error; anything else ends the process.
    Lost(Reason),
}

/// Why something is lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// With a cell.
    Loss(Loss),
    /// As the text says.
    Other(&'static str),
}

impl From<Loss> for Reason {
    fn from(loss: Loss) -> Self {
        Self::Loss(loss)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Loss(loss) => loss.fmt(f),
            Self::Other(text) => f.write_str(text),
        }
    }
}

/// Why faults cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// A process has one handler.
    #[error("faults of shared memory are served in this process already")]
    Installed,
    /// The kernel refused.
    #[error("cannot handle the signals of faults: {0}")]
    System(Errno),
}

static HANDLER: OnceLock<fn(Fault) -> Verdict> = OnceLock::new();
static LOSS_HOOK: OnceLock<fn(Fault, Reason)> = OnceLock::new();
/// Threads are stopped by SIGSEGV too: by protections.
static BY_SEGMENTATION: AtomicBool = AtomicBool::new(false);
/// Whether a handler of this process, ours or the one that is handed what we do not know, lets careful reads land.
static LANDS: Mutex<bool> = Mutex::new(false);

/// Serves this process's faults in the heap from now on: `handler` runs on the thread that was stopped, in a signal handler that
/// blocks all signals but those of faults. It runs on the thread's own stack, or where that is its signal stack on one of ours with 256 KB, may touch
/// shared memory itself (and is called again), and must not panic. `errno` is kept.
///
/// Whoever wants SIGBUS or SIGSEGV for other addresses installs a handler before: it is called for those. One that is installed after takes
/// them all away.
pub fn install(handler: fn(Fault) -> Verdict) -> Result<(), InstallError> {
    let mut lands = LANDS.lock().unwrap_or_else(PoisonError::into_inner);
    HANDLER.set(handler).map_err(|_| InstallError::Installed)?;
    signals::install(BY_SEGMENTATION.load(Ordering::SeqCst)).map_err(InstallError::System)?;
    *lands = true;
    Ok(())
}

/// Sees to it that this process survives careful reads of memory that is gone: by the heap's handler if there is one, else by one of their own,
/// which a heap's may follow.
pub(crate) fn install_landings() -> Result<(), Errno> {
    let mut lands = LANDS.lock().unwrap_or_else(PoisonError::into_inner);
    if !*lands {
        signals::install_landings()?;
        *lands = true;
    }
    Ok(())
}

/// Calls `hook` on a thread that touches what is lost, before the process ends; it may end the thread's work in another way and not return. Set once;
/// whether it was.
pub fn set_loss_hook(hook: fn(Fault, Reason)) -> bool {
    LOSS_HOOK.set(hook).is_ok()
}

/// A thread has looked, and may not do what it is about to: as if it had been stopped, but for the signal.
pub(crate) fn miss(need: Need) -> Verdict {
    let Need { start, bytes, is_store, .. } = need;
    let of_task = || HANDLER.get().filter(|_| images::place(start).is_some() && signals::is_own_process());
    of_task().map_or(Verdict::NotOurs, |handler| {
        handler(Fault {
            address: start,
            is_store,
            bytes,
            is_by_software: true,
            blocked: None,
            instruction: 0,
        })
    })
}

/// Faults come as SIGSEGV: its handler needs room, which alternate stacks do not have. Threads whose stacks overflow die without a word.
pub(crate) fn serve_segmentation_faults() {
    BY_SEGMENTATION.store(true, Ordering::SeqCst);
    if HANDLER.get().is_some() {
        signals::leave_alternate_stack();
    }
}

/// What a signal's handler is to do.
enum Next {
    Return,
    /// Hand it to whoever had it before.
    Chain,
}

fn serve(interrupted: &Interrupted) -> Next {
    if interrupted.land_in_careful_read() {
        return Next::Return;
    }
    let is_shared = interrupted.is_fault && images::place(interrupted.address).is_some();
    match HANDLER.get().filter(|_| is_shared) {
        // SAFETY: the context of this very signal, whose handler blocks all others but those of faults.
        Some(&handler) => unsafe {
            room::with_room(interrupted.context, &|| serve_in_heap(interrupted, handler))
        },
        None if interrupted.land_in_system_call() => Next::Return,
        None => Next::Chain,
    }
}

fn serve_in_heap(interrupted: &Interrupted, handler: fn(Fault) -> Verdict) -> Next {
    let of = |need: Need| Fault {
        address: need.start,
        is_store: need.is_store,
        bytes: need.bytes,
        is_by_software: need.is_looked_at,
        blocked: Some(interrupted.blocked),
        instruction: interrupted.instruction,
    };
    let need =
        Need { start: interrupted.address, bytes: 1, is_store: interrupted.is_store, is_looked_at: false };
    let fault = of(need);
    let whence = Whence { instruction: interrupted.instruction };
    let kind = if fault.is_store { "store to" } else { "load from" };
    if !signals::is_own_process() {
        if interrupted.land_in_system_call() {
            return Next::Return;
        }
        message::say(&format_args!(
            "comb: {kind} {:#x} in a child by fork, which has none of the shared memory\n{}{whence}",
            fault.address,
            Where(fault.address)
        ));
        return Next::Chain;
    }
    match threads::serve(need, |need| handler(of(need))) {
        Verdict::Retry => Next::Return,
        // A system call that is given a bad address fails; it ends nobody.
        Verdict::NotOurs | Verdict::Lost(_) if interrupted.land_in_system_call() => Next::Return,
        Verdict::NotOurs => {
            message::say(&format_args!(
                "comb: {kind} {:#x}, where nothing is allocated in the shared heap\n{whence}",
                fault.address
            ));
            Next::Chain
        }
        Verdict::Lost(reason) => {
            // SAFETY: the context of this very signal.
            if unsafe { careful::land(interrupted.context, fault.address, reason) } {
                return Next::Return;
            }
            if let Some(hook) = LOSS_HOOK.get() {
                hook(fault, reason);
            }
            let (address, place) = (fault.address, Where(fault.address));
            if fault.is_store {
                message::say(&format_args!(
                    "comb: a store to {address:#x} was stopped: {reason}\n{place}{whence}"
                ));
            } else {
                message::say(&format_args!(
                    "comb: what was stored at {address:#x} is lost: {reason}\n{place}{whence}"
                ));
            }
            signals::die_of_bus_error()
        }
    }
}
