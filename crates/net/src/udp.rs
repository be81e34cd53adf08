//! The transport between machines that works everywhere: one connected UDP socket for each channel.
//!
//! The kernel finds the channel by the four numbers of the connection, so a frame for another never gets here, and it
//! keeps the frames that have come until they are read. A receiver asks without waiting, as often as it likes; who
//! wants to sleep puts [`crate::transport::Transport::readable`] into its epoll set.

use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};

use crate::datagram::{Datagrams, LONGEST_DATAGRAM, Session, Wire, fitting};
use crate::seal::{HEADER_BYTES, TAG_BYTES};
use crate::segmenting::send_in_frames_of;

/// Asked of the kernel for each direction: a window of 64 messages of the longest kind, and as much again for what it
/// charges beside the bytes. It may give less.
const SOCKET_BUFFER_BYTES: usize = 1 << 20;

/// Frames that are sent at once: the kernel takes no more than this.
const MOST_AT_ONCE: usize = 64;

/// One end of a channel over UDP.
pub type UdpTransport = Datagrams<UdpWire>;

impl UdpTransport {
    /// Uses a socket that is connected to the peer's.
    pub fn new(socket: OwnedFd, mut session: Session) -> Result<Self, Errno> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        session.longest_message = fitting(session.longest_message, HEADER_BYTES + TAG_BYTES);
        let frame_bytes = session.longest_message + HEADER_BYTES + TAG_BYTES;
        let whole_bytes = session.longest_message + session.send.overhead_bytes();
        let gathers = u16::try_from(whole_bytes).is_ok_and(|bytes| send_in_frames_of(&socket, bytes));
        let burst = if gathers { (LONGEST_DATAGRAM / frame_bytes).clamp(1, MOST_AT_ONCE) } else { 1 };
        let wire = UdpWire {
            socket,
            outgoing: vec![0; frame_bytes * burst].into(),
            frame_bytes,
            whole_bytes,
            kept: 0,
            is_gathering: false,
            // One byte more, so that a frame that is too long is seen to be, and not cut to size.
            incoming: vec![0; frame_bytes + 1].into(),
            came: 0,
        };
        Ok(Self::over(wire, session))
    }
}

/// A socket for one channel, bound to `local`; port 0 takes a free one.
pub fn bind(local: SocketAddr) -> Result<(OwnedFd, SocketAddr), Errno> {
    let family = match local {
        SocketAddr::V4(_) => rustix::net::AddressFamily::INET,
        SocketAddr::V6(_) => rustix::net::AddressFamily::INET6,
    };
    let socket = rustix::net::socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    // What the kernel gives by default is a wish that may be denied.
    let _ = sockopt::set_socket_recv_buffer_size(&socket, SOCKET_BUFFER_BYTES);
    let _ = sockopt::set_socket_send_buffer_size(&socket, SOCKET_BUFFER_BYTES);
    rustix::net::bind(&socket, &local)?;
    let bound = SocketAddr::try_from(rustix::net::getsockname(&socket)?).map_err(|_| Errno::AFNOSUPPORT)?;
    Ok((socket, bound))
}

/// Connects a socket to the peer's address: from now on the kernel lets nothing else through.
pub fn connect(socket: &OwnedFd, peer: SocketAddr) -> Result<(), Errno> {
    rustix::net::connect(socket, &peer)
}

/// A connected socket and the memory for what is sent at once, and for one frame that comes.
#[derive(Debug)]
pub struct UdpWire {
    socket: OwnedFd,
    outgoing: Box<[u8]>,
    /// The room of one frame.
    frame_bytes: usize,
    /// What the longest frame has, of which the kernel makes several of what is sent at once.
    whole_bytes: usize,
    /// Of frames that wait for others, each of them a whole one.
    kept: usize,
    is_gathering: bool,
    incoming: Box<[u8]>,
    came: usize,
}

impl UdpWire {
    /// Sends one or more frames.
    fn send(&self, frames: Range<usize>) -> Result<(), Errno> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        loop {
            match rustix::net::send(&self.socket, &self.outgoing[frames.clone()], flags) {
                Ok(_) => return Ok(()),
                // "Nobody has that port", about an earlier frame. Anyone on the way can say so; it is told once, and
                // whether the peer is there its silence decides.
                Err(Errno::CONNREFUSED | Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn send_kept(&mut self) -> Result<(), Errno> {
        let kept = std::mem::take(&mut self.kept);
        match self.send(0..kept) {
            // On this way frames cannot be sent at once, or are too long for it and have to be taken apart themselves.
            Err(Errno::INVAL | Errno::IO | Errno::MSGSIZE | Errno::OPNOTSUPP) => {
                send_in_frames_of(&self.socket, 0);
                let each = self.whole_bytes;
                let sent = (0..kept).step_by(each).try_for_each(|at| self.send(at..kept.min(at + each)));
                // With room for one, none is kept any more.
                self.outgoing = vec![0; self.frame_bytes].into();
                sent
            }
            sent => sent,
        }
    }
}

impl Wire for UdpWire {
    #[inline]
    fn space(&mut self) -> Option<&mut [u8]> {
        Some(&mut self.outgoing[self.kept..])
    }

    #[inline]
    fn transmit(&mut self, bytes: usize) -> Result<(), Errno> {
        self.kept += bytes;
        let has_room = self.kept + self.frame_bytes <= self.outgoing.len();
        if self.is_gathering && bytes == self.whole_bytes && has_room { Ok(()) } else { self.send_kept() }
    }

    fn gather(&mut self) {
        self.is_gathering = true;
    }

    fn release(&mut self) {
        self.is_gathering = false;
        if self.kept > 0 {
            // The protocol above sends again what is lost.
            let _ = self.send_kept();
        }
    }

    #[inline]
    fn fetch(&mut self) -> bool {
        match rustix::net::recv(&self.socket, &mut *self.incoming, RecvFlags::DONTWAIT) {
            Ok((_, came)) => {
                self.came = came.min(self.incoming.len());
                true
            }
            Err(_) => false,
        }
    }

    #[inline]
    fn frame(&mut self) -> &mut [u8] {
        &mut self.incoming[..self.came]
    }

    fn readable(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }
}
