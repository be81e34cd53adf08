//! What the network says of packets that it could not deliver.
#![expect(unsafe_code, reason = "setsockopt of IP_RECVERR has no safe wrapper")]

use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd};

/// Lets a connected UDP socket hear that its peer's host or network cannot be reached ([`UdpSocket::take_error`], or the next call that
/// fails). By itself the kernel tells it of refused ports only, and holds all else for passing.
///
/// The errors are kept in a queue besides, which the caller empties (`MSG_ERRQUEUE`): it takes the room of messages.
pub fn hear_unreachable(socket: &UdpSocket) -> std::io::Result<()> {
    let (level, option) = match socket.local_addr()?.is_ipv4() {
        true => (libc::IPPROTO_IP, libc::IP_RECVERR),
        false => (libc::IPPROTO_IPV6, libc::IPV6_RECVERR),
    };
    let yes: libc::c_int = 1;
    #[expect(clippy::cast_possible_truncation, reason = "four bytes")]
    let length = size_of_val(&yes) as libc::socklen_t;
    // SAFETY: the descriptor is the socket's, which outlives the call; the kernel reads `length` bytes of `yes`.
    let outcome = unsafe {
        libc::setsockopt(socket.as_fd().as_raw_fd(), level, option, (&raw const yes).cast(), length)
    };
    if outcome == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}
