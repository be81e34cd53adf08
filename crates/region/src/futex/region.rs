//! `futex` on words of named regions.
//!
//! Importers of a region share its page frames: the kernel itself knows who sleeps there. Who has copies is alone with them, and refused.

use std::time::{Duration, Instant};

use comb_memory::syscalls::FutexCall;
use rustix::io::Errno;

use super::{ANY, NOT_COVERED, after, at, load, refuse};
use crate::runtime;

/// As long as a sleeper may take to find out that its word is lost. Who is woken at the very end of a nap without a new value in the word sleeps
/// on: libc's mutexes and conditions change it before they wake.
const LONGEST_NAP: Duration = Duration::from_secs(1);

pub(super) fn perform(call: &FutexCall) -> Result<isize, Errno> {
    let FutexCall { address, operation, value, timeout, value3, .. } = *call;
    let is_imported = || runtime::of_homes().is_some_and(|runtime| runtime.lock().is_imported(address));
    let command = operation & libc::FUTEX_CMD_MASK;
    if !is_imported() {
        refuse(
            command,
            "is in a region that is lost, or attached by copies: only importers share its words",
            address,
        );
        return Err(Errno::NOSYS);
    }
    let is_wall_clock = operation & libc::FUTEX_CLOCK_REALTIME != 0;
    let (deadline, bits) = match command {
        libc::FUTEX_WAIT => (after(timeout)?, ANY),
        libc::FUTEX_WAIT_BITSET => (at(timeout, is_wall_clock)?, value3),
        libc::FUTEX_WAKE => return native(address, libc::FUTEX_WAKE_BITSET, value, None, ANY),
        libc::FUTEX_WAKE_BITSET => return native(address, libc::FUTEX_WAKE_BITSET, value, None, value3),
        other => {
            refuse(other, NOT_COVERED, address);
            return Err(Errno::NOSYS);
        }
    };
    // Nobody wakes those who sleep in what is lost.
    while is_imported() {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Err(Errno::TIMEDOUT);
        }
        let until = monotonic(left.unwrap_or(LONGEST_NAP).min(LONGEST_NAP));
        let done = native(address, libc::FUTEX_WAIT_BITSET, value, Some(until), bits)?;
        if done != -(libc::ETIMEDOUT as isize) {
            return Ok(done);
        }
    }
    Err(Errno::FAULT)
}

pub(super) fn monotonic(from_now: Duration) -> libc::timespec {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let nanoseconds = now.tv_nsec + i64::from(from_now.subsec_nanos());
    let seconds = now.tv_sec + from_now.as_secs().cast_signed() + nanoseconds / 1_000_000_000;
    libc::timespec { tv_sec: seconds, tv_nsec: nanoseconds % 1_000_000_000 }
}

/// The kernel's own, on a word that is made present before.
pub(super) fn native(
    address: usize,
    operation: i32,
    value: u32,
    until: Option<libc::timespec>,
    bits: u32,
) -> Result<isize, Errno> {
    let until = until.as_ref().map_or(0, |until| std::ptr::from_ref(until).expose_provenance());
    loop {
        load(address)?;
        let operation = operation.cast_unsigned() as usize;
        let arguments = [address, operation, value as usize, until, 0, bits as usize];
        #[expect(unsafe_code, reason = "the call as it stands")]
        // SAFETY: a word of shared memory, and a time that lives as long as the call.
        let done = unsafe { comb_memory::syscalls::raw(libc::SYS_futex, arguments) };
        // Taken away in between.
        if done != -(libc::EFAULT as isize) {
            return Ok(done);
        }
    }
}
