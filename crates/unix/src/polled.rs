//! Descriptors of the host that are waited for.
#![expect(unsafe_code, reason = "a call on an array that the emulator has")]

/// Asks the host which of them are ready, now.
pub(crate) fn is_any_ready(descriptors: &mut [libc::pollfd]) -> bool {
    let count = libc::nfds_t::try_from(descriptors.len()).expect("few");
    // SAFETY: the array is as long as is said.
    unsafe { libc::poll(descriptors.as_mut_ptr(), count, 0) > 0 }
}
