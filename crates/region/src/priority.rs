//! The thread that attends comes before those that compute: whoever waits for it, in another component, has nothing else to do.
#![expect(unsafe_code, reason = "a system call that no crate of ours wraps")]

/// As little nice to others as there is. A thread that shares its core as one like others has to wait, once it has had a little more than its part,
/// for the next tick of the clock, which is milliseconds away; that it asks for short slices (`sched_setattr`) changes nothing about it. Not real
/// time: where components are more than cores, their threads would take them from all who compute.
const NICENESS: libc::c_int = -20;

/// Gives this thread a core soon after it wants one. Where that is not allowed, and it takes a privilege, it is a thread like others.
pub(crate) fn come_first() {
    // SAFETY: of this thread alone.
    unsafe {
        let this = libc::id_t::try_from(libc::gettid()).unwrap_or(0);
        libc::setpriority(libc::PRIO_PROCESS, this, NICENESS);
    }
}
