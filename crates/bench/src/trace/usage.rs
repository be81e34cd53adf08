//! What processes that have ended took.
#![expect(unsafe_code, reason = "a call that no crate wraps")]

use rustix::io::Errno;
use rustix::process::{WaitOptions, getpid, set_child_subreaper, wait};

/// From now on this process is the parent of all whose own has ended: perf trace ends without waiting for what it has started, and what nobody
/// waits for is in nobody's account.
pub(super) fn adopt() -> std::io::Result<()> {
    Ok(set_child_subreaper(Some(getpid()))?)
}

/// Waits for all of those.
pub(super) fn wait_for_adopted() -> std::io::Result<()> {
    loop {
        match wait(WaitOptions::empty()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::CHILD) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

fn children() -> libc::rusage {
    // SAFETY: all zeros are a valid `rusage`, and the call fills it.
    unsafe {
        let mut usage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage);
        usage
    }
}

/// Processor time of all children that have been waited for, and of theirs.
pub(super) fn children_seconds() -> f64 {
    let usage = children();
    #[expect(clippy::cast_precision_loss, reason = "seconds")]
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

/// The most memory that any of them had.
pub(super) fn largest_child_bytes() -> u64 {
    u64::try_from(children().ru_maxrss).unwrap_or(0) * 1024
}
