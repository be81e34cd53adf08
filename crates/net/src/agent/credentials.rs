//! Who is at the other end of a local socket, according to the kernel.
#![expect(unsafe_code, reason = "SO_PEERPIDFD is newer than the wrappers")]

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::UCred;
use rustix::process::{Pid, PidfdFlags};

use crate::mechanism::Mechanism;

/// What the kernel vouches for.
#[derive(Debug)]
pub struct Credentials {
    /// The process that connected.
    pub pid: u32,
    /// Its user, then.
    pub uid: u32,
    /// That user's group, then.
    pub gid: u32,
    /// The process itself, whoever gets its number later.
    pub process: OwnedFd,
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
pub fn of_peer(socket: impl AsFd) -> Result<Credentials, Errno> {
    let socket = socket.as_fd();
    let told = rustix::net::sockopt::socket_peercred(socket)?;
    let process = if Mechanism::SocketPidfd.is_switched_off() {
        pidfd_by_number(socket, told.pid)?
    } else {
        socket_pidfd(socket).or_else(|_| pidfd_by_number(socket, told.pid))?
    };
    let pid = u32::try_from(told.pid.as_raw_nonzero().get()).map_err(|_| Errno::SRCH)?;
    Ok(Credentials { pid, uid: told.uid.as_raw(), gid: told.gid.as_raw(), process })
}

/// As the kernel vouches for whoever sent a message on the socket.
pub(crate) fn of_sender(socket: impl AsFd, sender: &UCred) -> Result<Credentials, Errno> {
    let process = pidfd_by_number(socket, sender.pid)?;
    let pid = u32::try_from(sender.pid.as_raw_nonzero().get()).map_err(|_| Errno::SRCH)?;
    Ok(Credentials { pid, uid: sender.uid.as_raw(), gid: sender.gid.as_raw(), process })
}

/// The number could have been taken by a new process; but not while the one that connected still holds the socket.
fn pidfd_by_number(socket: impl AsFd, pid: Pid) -> Result<OwnedFd, Errno> {
    let process = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
    let mut waiting = [PollFd::new(&socket, PollFlags::empty())];
    rustix::event::poll(&mut waiting, Some(&rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 }))?;
    if waiting[0].revents().contains(PollFlags::HUP) { Err(Errno::SRCH) } else { Ok(process) }
}

/// How far a process has come on its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    Living,
    /// It is being taken apart: its sockets may be closed, and its descriptor does not say so yet.
    Ending,
    Ended,
}

pub(crate) fn has_ended(process: impl AsFd) -> bool {
    let mut waiting = [PollFd::new(&process, PollFlags::IN)];
    let at_once = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut waiting, Some(&at_once)).is_ok_and(|ready| ready > 0)
}

/// Asks the kernel. A process that `/proc` hides from us counts as ending.
pub(crate) fn fate(pid: u32, process: BorrowedFd<'_>) -> Fate {
    let ending = std::fs::read_to_string(format!("/proc/{pid}/stat")).map_or(true, |text| is_ending(&text));
    // Asked last: while it has not ended, the number is its own.
    if has_ended(process) {
        Fate::Ended
    } else if ending {
        Fate::Ending
    } else {
        Fate::Living
    }
}

/// From the line of proc(5): the kernel sets this flag before it closes the first descriptor of a dying process.
fn is_ending(stat: &str) -> bool {
    const PF_EXITING: u32 = 0x4;
    // The name in front is what the program chose, parentheses and blanks included. State is the third field, the flags
    // are the ninth.
    let after_name = stat.rsplit_once(')').map_or("", |(_, after)| after);
    let flags = after_name.split_ascii_whitespace().nth(6).and_then(|flags| flags.parse::<u32>().ok());
    flags.is_none_or(|flags| flags & PF_EXITING != 0)
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
        // A process that another test is just starting has a copy for a moment.
        let started = std::time::Instant::now();
        let refused = loop {
            match pidfd_by_number(&one, pid) {
                Err(refused) => break refused,
                Ok(_) => assert!(started.elapsed().as_secs() < 20, "a hung-up socket vouches for nobody"),
            }
        };
        assert_eq!(refused, Errno::SRCH);
    }

    /// A zombie is what a killed process is until it is reaped: the flag is set, and its descriptor says so.
    #[test]
    fn a_process_lives_and_has_ended() {
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let pid = child.id();
        let process = rustix::process::pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).unwrap();
        assert_eq!(fate(pid, process.as_fd()), Fate::Living);
        child.kill().unwrap();
        rustix::event::poll(&mut [PollFd::new(&process, PollFlags::IN)], None).unwrap();
        assert!(is_ending(&std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap()), "not reaped yet");
        assert_eq!(fate(pid, process.as_fd()), Fate::Ended);
        child.wait().unwrap();
        assert_eq!(fate(pid, process.as_fd()), Fate::Ended);
    }

    #[test]
    fn the_flag_is_found_whatever_the_program_calls_itself() {
        for name in ["comb", "a) R 9 9 9 9 9 9", "new\nline"] {
            for (flags, ending) in [(4_194_560_u32, false), (4_194_564, true)] {
                let stat = format!("42 ({name}) S 1 2 3 0 -1 {flags} 100 0 0 0 250");
                assert_eq!(is_ending(&stat), ending, "{stat}");
            }
        }
        assert!(is_ending(""), "a process of which nothing is said");
    }
}
