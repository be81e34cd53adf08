//! Descriptors of the host that are waited for.
#![expect(unsafe_code, reason = "a call on an array that the emulator has")]

use std::time::Duration;

/// Asks the host which of them are ready, now.
pub(crate) fn is_any_ready(descriptors: &mut [libc::pollfd]) -> bool {
    wait(descriptors, Duration::ZERO)
}

/// Waits until one of them is, and not longer than this.
pub(crate) fn wait(descriptors: &mut [libc::pollfd], limit: Duration) -> bool {
    let count = libc::nfds_t::try_from(descriptors.len()).expect("few");
    let limit = libc::timespec {
        tv_sec: limit.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: limit.subsec_nanos().into(),
    };
    // SAFETY: the array is as long as is said, and the time lives.
    unsafe { libc::ppoll(descriptors.as_mut_ptr(), count, &raw const limit, std::ptr::null()) > 0 }
}
