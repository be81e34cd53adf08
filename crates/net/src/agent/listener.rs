//! A socket at which local processes knock, and what happens when this process has no descriptor left to let them in.
//!
//! A listener that cannot accept stays readable: whoever waits for it by epoll would spin, and those who knock would
//! hang. So one descriptor is kept in reserve, to let each of them in for the moment that it takes to say why not. Where
//! even that fails, the listener is not looked at for a while.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// Long enough that a full machine is not kept busy by its refusals, short enough that nobody who waits gives up.
const PAUSE: Duration = Duration::from_millis(100);

/// Connections that the kernel keeps for us until we accept them.
const BACKLOG: i32 = 128;

/// A listening socket in an epoll set.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    token: u64,
    reserve: Option<OwnedFd>,
    paused_until: Option<Instant>,
}

impl Listener {
    /// Listens on `path`, where no file may be.
    pub fn bind(path: &Path) -> Result<OwnedFd, Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
        rustix::net::listen(&socket, BACKLOG)?;
        Ok(socket)
    }

    /// Watches a listening socket under that token.
    pub fn watch(socket: OwnedFd, epoll: &OwnedFd, token: u64) -> Result<Self, Errno> {
        epoll::add(epoll, &socket, epoll::EventData::new_u64(token), epoll::EventFlags::IN)?;
        Ok(Self { socket, token, reserve: reserve(), paused_until: None })
    }

    /// Lets one in; its socket does not block. One for whom there is no descriptor is given to `refuse` and hung up on.
    /// `None`: nobody was let in; wait for the listener again.
    pub fn accept(&mut self, epoll: &OwnedFd, refuse: impl FnOnce(&OwnedFd)) -> Option<OwnedFd> {
        let accept = || rustix::net::accept_with(&self.socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK);
        match accept() {
            Ok(socket) => return Some(socket),
            // Whoever knocked is gone already.
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => return None,
            Err(Errno::MFILE | Errno::NFILE) => {}
            Err(_) => return self.pause(epoll),
        }
        drop(self.reserve.take());
        match accept() {
            Ok(surplus) => {
                refuse(&surplus);
                drop(surplus);
                self.reserve = reserve();
                None
            }
            Err(_) => self.pause(epoll),
        }
    }

    fn pause(&mut self, epoll: &OwnedFd) -> Option<OwnedFd> {
        self.look_for(epoll, epoll::EventFlags::empty());
        self.paused_until = Some(Instant::now() + PAUSE);
        None
    }

    /// When [`Listener::resume`] is to be called.
    pub fn deadline(&self) -> Option<Instant> {
        self.paused_until
    }

    /// Looks at the socket again, if it is time.
    pub fn resume(&mut self, epoll: &OwnedFd, now: Instant) {
        if self.paused_until.is_some_and(|until| now >= until) {
            self.paused_until = None;
            self.reserve = self.reserve.take().or_else(reserve);
            self.look_for(epoll, epoll::EventFlags::IN);
        }
    }

    fn look_for(&self, epoll: &OwnedFd, events: epoll::EventFlags) {
        let changed =
            epoll::modify(epoll, self.socket.as_fd(), epoll::EventData::new_u64(self.token), events);
        debug_assert!(changed.is_ok(), "{changed:?}");
    }
}

/// Any descriptor does.
fn reserve() -> Option<OwnedFd> {
    rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).ok()
}
