//! What processes that have ended took.
#![expect(unsafe_code, reason = "a call that no crate wraps")]

use std::process::Child;

use rustix::io::Errno;
use rustix::process::{Pid, WaitId, WaitIdOptions, WaitOptions, getpid, set_child_subreaper, wait, waitid};

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

/// Processor time of this child alone, without that of its own children, once it has ended. It is not waited for yet.
pub(super) fn own_seconds(child: &Child) -> std::io::Result<f64> {
    let process = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH)?;
    waitid(WaitId::Pid(process), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)?;
    let ran = std::fs::read_to_string(format!("/proc/{}/schedstat", child.id()))?;
    let ran_ns = ran.split(' ').next().and_then(|word| word.parse::<u64>().ok());
    ran_ns.map(|ns| std::time::Duration::from_nanos(ns).as_secs_f64()).ok_or_else(|| {
        std::io::Error::other("/proc/PID/schedstat says nothing: the kernel lacks CONFIG_SCHED_INFO")
    })
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
