//! A TAP device: frames go to the network of the host and come from there, in whichever namespace the switch is. What is left undone in them stays so.
#![expect(unsafe_code, reason = "what a TAP device is to be is said by ioctls")]

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

use super::super::offloads::HEADER;
use super::super::subnet::LONGEST_FRAME;

/// Where TAP devices are made.
pub const DEVICE: &str = "/dev/net/tun";

/// A TAP device.
pub struct Tap {
    file: File,
    frame: Vec<u8>,
}

/// What the kernel is told of a device (`struct ifreq`).
#[repr(C)]
struct Request {
    name: [u8; libc::IFNAMSIZ],
    flags: libc::c_short,
    rest: [u8; 22],
}

impl Tap {
    /// The device of this name; it is made if there is none.
    pub fn open(name: &str) -> io::Result<Self> {
        let mut request = Request { name: [0; libc::IFNAMSIZ], flags: 0, rest: [0; 22] };
        if name.is_empty() || name.len() >= libc::IFNAMSIZ {
            return Err(io::Error::new(ErrorKind::InvalidInput, "such a name is none for a device"));
        }
        request.name[..name.len()].copy_from_slice(name.as_bytes());
        let flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
        request.flags = libc::c_short::try_from(flags).map_err(io::Error::other)?;
        let file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(DEVICE)?;
        let header = libc::c_int::try_from(HEADER).map_err(io::Error::other)?;
        let undone = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
        // SAFETY: the kernel reads and writes a `struct ifreq`, which `request` is, only during the call.
        checked(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) })?;
        // SAFETY: the kernel reads one number, only during the call.
        checked(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETVNETHDRSZ, &raw const header) })?;
        // SAFETY: the number itself is the argument.
        checked(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETOFFLOAD, libc::c_ulong::from(undone)) })?;
        Ok(Self { file, frame: vec![0; LONGEST_FRAME] })
    }

    /// Sends a frame with its header, if the host takes it.
    pub fn send(&mut self, header: &[u8; HEADER], frame: &[u8]) -> bool {
        self.file.write_vectored(&[IoSlice::new(header), IoSlice::new(frame)]).is_ok()
    }

    /// The next frame that came, if there is one, with its header.
    pub fn receive(&mut self) -> Option<([u8; HEADER], &mut [u8])> {
        let mut header = [0; HEADER];
        let mut parts = [IoSliceMut::new(&mut header), IoSliceMut::new(&mut self.frame)];
        let length = self.file.read_vectored(&mut parts).ok()?.checked_sub(HEADER)?;
        Some((header, &mut self.frame[..length]))
    }
}

fn checked(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

impl AsFd for Tap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
