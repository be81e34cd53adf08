//! The signals by which people and service managers end a program, as something that an event loop can wait for.
//!
//! A handler, and not a blocked signal with a `signalfd`: a mask is inherited by the cells that the agent starts, and a
//! handler is not.
#![expect(unsafe_code, reason = "installs a signal handler")]

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering};

use rustix::event::{EventfdFlags, eventfd};
use rustix::process::Signal;

/// The last one that came and was not taken; 0 for none.
static CAME: AtomicI32 = AtomicI32::new(0);
/// Never closed: a handler can run until the process ends.
static WAKE: OnceLock<OwnedFd> = OnceLock::new();

/// Interrupts anything anywhere: it stores one number and writes one word.
extern "C" fn handle(signal: libc::c_int) {
    CAME.store(signal, Ordering::SeqCst);
    let Some(wake) = WAKE.get() else { return };
    let one = 1_u64;
    // SAFETY: `errno` belongs to this thread, and is put back as whoever was interrupted left it; `write` may be called
    // in a handler, and reads eight bytes that live on this stack.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        libc::write(wake.as_raw_fd(), (&raw const one).cast(), size_of_val(&one));
        *errno = before;
    }
}

/// From now on SIGTERM, SIGINT and SIGHUP no longer end this process: the descriptor becomes readable, and
/// [`take`] says which one came. One that is ignored stays so: whoever started us wanted that, as `nohup` does.
pub fn catch() -> std::io::Result<&'static OwnedFd> {
    let fresh = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    let wake = WAKE.get_or_init(|| fresh);
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
        // SAFETY: all zeros are a valid `sigaction`; the handler does only what a handler may.
        let outcome = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            if libc::sigaction(signal, std::ptr::null(), &raw mut action) == 0
                && action.sa_sigaction == libc::SIG_IGN
            {
                continue;
            }
            action = std::mem::zeroed();
            let handler: extern "C" fn(libc::c_int) = handle;
            action.sa_sigaction = handler as usize;
            action.sa_flags = libc::SA_RESTART;
            libc::sigaction(signal, &raw const action, std::ptr::null_mut())
        };
        if outcome != 0 {
            return Err(std::io::Error::last_os_error());
        }
    }
    Ok(wake)
}

/// The signal that came.
pub fn take() -> Option<Signal> {
    if let Some(wake) = WAKE.get() {
        let _ = rustix::io::read(wake, &mut [0; 8]);
    }
    match CAME.swap(0, Ordering::SeqCst) {
        0 => None,
        number => Signal::from_named_raw(number),
    }
}

/// What people call it.
pub fn name(signal: Signal) -> &'static str {
    match signal {
        Signal::TERM => "SIGTERM",
        Signal::INT => "SIGINT",
        _ => "SIGHUP",
    }
}
