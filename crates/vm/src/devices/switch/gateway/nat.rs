//! The networks that this host's user reaches, by a process that speaks for the guests: an engine without a machine, whose translation of addresses in user space needs
//! no privilege.
#![expect(unsafe_code, reason = "a descriptor that is inherited is made by a call that has no safe form")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};

use super::super::addresses::Network;
use super::stream::Stream;
use crate::children;
use crate::hardware::QEMU;

/// That process, which ends with this.
pub struct Nat {
    child: Child,
    /// To it.
    pub stream: Stream,
}

impl Nat {
    /// For guests of this network.
    pub fn start(network: Network) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        // SAFETY: a copy of a descriptor is a new one, of nobody else's, and is inherited.
        let theirs = unsafe { OwnedFd::from_raw_fd(libc::fcntl(theirs.as_raw_fd(), libc::F_DUPFD, 3)) };
        let [gateway, resolver, first] =
            [network.gateway(), network.resolver(), network.address(0)].map(|address| address.to_string());
        let mut command = Command::new(QEMU);
        command.args(["-no-user-config", "-nodefaults", "-machine", "none", "-display", "none"]);
        command.args([
            "-netdev",
            &format!("stream,id=subnet,server=off,addr.type=fd,addr.str={}", theirs.as_raw_fd()),
        ]);
        command.args(["-netdev", "hubport,id=port-0,hubid=0,netdev=subnet"]);
        let user = format!(
            "user,id=outside,net={}/24,host={gateway},dns={resolver},dhcpstart={first},ipv6=off",
            network.base()
        );
        command.args(["-netdev", &user, "-netdev", "hubport,id=port-1,hubid=0,netdev=outside"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        children::bind(&mut command, None)?;
        let child = command.spawn()?;
        Ok(Self { child, stream: Stream::new(ours)? })
    }
}

impl AsFd for Nat {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl Drop for Nat {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
