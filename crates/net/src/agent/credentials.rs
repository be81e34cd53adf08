//! Who is at the other end of a local socket, according to the kernel.
#![expect(unsafe_code, reason = "SO_PEERPIDFD is newer than the wrappers")]

use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags};

use crate::mechanism::Mechanism;

/// What the kernel vouches for.
#[derive(Debug)]
pub(crate) struct Credentials {
    pub(crate) pid: u32,
    pub(crate) uid: u32,
    pub(crate) process: OwnedFd,
}

/// Since Linux 6.5; not in every libc.
const SO_PEERPIDFD: libc::c_int = 77;

pub(crate) fn kernel_has_socket_pidfd() -> bool {
    std::os::unix::net::UnixStream::pair().is_ok_and(|(one, _two)| socket_pidfd(&one).is_ok())
}

fn socket_pidfd(socket: impl AsFd) -> Result<OwnedFd, Errno> {
    let mut fd: libc::c_int = -1;
    let mut length = libc::socklen_t::try_from(size_of_val(&fd)).expect("four bytes");
    // SAFETY: `fd` and `length` are valid for writing and say their true size.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PEERPIDFD,
            (&raw mut fd).cast(),
            &raw mut length,
        )
    };
    if result != 0 {
        return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::NOTSUP));
    }
    // SAFETY: the kernel has just made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Asks the kernel. The process descriptor is of the process that connected, not of a later one with its number.
pub(crate) fn of_peer(socket: impl AsFd) -> Result<Credentials, Errno> {
    let socket = socket.as_fd();
    let told = rustix::net::sockopt::socket_peercred(socket)?;
    let process = if Mechanism::SocketPidfd.is_switched_off() {
        pidfd_by_number(socket, told.pid)?
    } else {
        socket_pidfd(socket).or_else(|_| pidfd_by_number(socket, told.pid))?
    };
    let pid = u32::try_from(told.pid.as_raw_nonzero().get()).map_err(|_| Errno::SRCH)?;
    Ok(Credentials { pid, uid: told.uid.as_raw(), process })
}

/// The number could have been taken by a new process; but not while the one that connected still holds the socket.
fn pidfd_by_number(socket: impl AsFd, pid: Pid) -> Result<OwnedFd, Errno> {
    let process = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
    let mut waiting = [PollFd::new(&socket, PollFlags::empty())];
    rustix::event::poll(&mut waiting, Some(&rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 }))?;
    if waiting[0].revents().contains(PollFlags::HUP) { Err(Errno::SRCH) } else { Ok(process) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mechanism::runs_again_without;

    /// Only a descriptor from the socket itself is had of a peer that hung up: by its number it could be anybody.
    #[test]
    fn without_socket_pidfd_the_number_is_asked() {
        let (one, two) = std::os::unix::net::UnixStream::pair().unwrap();
        drop(two);
        let of_one_who_hung_up = of_peer(&one).map(drop);
        let test = "agent::credentials::tests::without_socket_pidfd_the_number_is_asked";
        if runs_again_without(Mechanism::SocketPidfd, test) && kernel_has_socket_pidfd() {
            assert_eq!(of_one_who_hung_up, Ok(()));
        } else {
            assert_eq!(of_one_who_hung_up, Err(Errno::SRCH));
            let (one, _two) = std::os::unix::net::UnixStream::pair().unwrap();
            assert_eq!(of_peer(&one).unwrap().pid, std::process::id());
        }
    }

    #[test]
    fn both_ways_name_this_process() {
        let (one, _two) = std::os::unix::net::UnixStream::pair().unwrap();
        let told = of_peer(&one).unwrap();
        assert_eq!(told.pid, std::process::id());
        let pid = rustix::process::getpid();
        assert!(pidfd_by_number(&one, pid).is_ok());
        drop(_two);
        assert_eq!(
            pidfd_by_number(&one, pid).unwrap_err(),
            Errno::SRCH,
            "a hung-up socket vouches for nobody"
        );
    }
}
