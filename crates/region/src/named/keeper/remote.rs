//! A home's keeper in another process.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use comb_net::agent::protocol::{self, ProtocolError};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::sockopt::Timeout;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::{KeepError, Keeper, Reference, Reply, Request, Taken};

/// An agent answers at once.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// The agent, as one life of a cell knows it. It is asked for the first time when something is to be kept.
#[derive(Debug)]
pub struct RemoteKeeper {
    path: PathBuf,
    cell: u32,
    incarnation: u64,
    /// None: it is to be called, be it again.
    socket: Mutex<Option<OwnedFd>>,
    has_begun_anew: AtomicBool,
}

impl RemoteKeeper {
    /// The keeper at work in a runtime directory, be it there yet or not.
    pub fn new(runtime: &Path, cell: u32, incarnation: u64) -> Self {
        let (socket, has_begun_anew) = (Mutex::new(None), AtomicBool::new(false));
        Self { path: super::socket(runtime), cell, incarnation, socket, has_begun_anew }
    }

    /// What earlier lives of the cell have left: frames, emptied, each before the guards of those who have it mapped.
    pub fn take(&self) -> Result<Vec<Taken>, KeepError> {
        let mut socket = self.socket();
        let mut all = Vec::new();
        let mut reply = self.ask(&mut socket, &Request::Take, &[])?;
        while let (Reply::Taken(reference), descriptors) = reply {
            all.push((reference, descriptors));
            let further = socket.as_ref().map(protocol::receive::<Reply>);
            reply = further.unwrap_or(Err(ProtocolError::Ended)).inspect_err(|_| *socket = None)?;
        }
        self.done(reply.0).map(|()| all)
    }

    fn socket(&self) -> MutexGuard<'_, Option<OwnedFd>> {
        self.socket.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn call(&self) -> Result<OwnedFd, KeepError> {
        let call = || -> Result<OwnedFd, Errno> {
            let socket = rustix::net::socket_with(
                AddressFamily::UNIX,
                SocketType::SEQPACKET,
                SocketFlags::CLOEXEC,
                None,
            )?;
            rustix::net::connect(&socket, &SocketAddrUnix::new(&self.path)?)?;
            rustix::net::sockopt::set_socket_timeout(&socket, Timeout::Recv, Some(ANSWER_LIMIT))?;
            rustix::net::sockopt::set_socket_timeout(&socket, Timeout::Send, Some(ANSWER_LIMIT))?;
            Ok(socket)
        };
        let socket = call().map_err(|source| KeepError::Away { path: self.path.clone(), source })?;
        let hello = Request::Hello { cell: self.cell, incarnation: self.incarnation };
        protocol::send(&socket, &hello, &[])?;
        self.done(protocol::receive::<Reply>(&socket)?.0)?;
        Ok(socket)
    }

    fn ask(
        &self,
        socket: &mut Option<OwnedFd>,
        request: &Request,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(Reply, Vec<OwnedFd>), KeepError> {
        let connected = match socket.take() {
            Some(socket) if !has_hung_up(&socket) => socket,
            _ => {
                let socket = self.call()?;
                self.has_begun_anew.store(true, Ordering::Release);
                socket
            }
        };
        protocol::send(&connected, request, descriptors)?;
        let answer = protocol::receive::<Reply>(&connected)?;
        *socket = Some(connected);
        Ok(answer)
    }

    fn done(&self, reply: Reply) -> Result<(), KeepError> {
        match reply {
            Reply::Done => Ok(()),
            Reply::Refused(why) => Err(KeepError::Refused(why)),
            Reply::Taken(_) => Err(ProtocolError::Refused.into()),
        }
    }
}

impl Keeper for RemoteKeeper {
    fn keep(&self, reference: Reference, descriptors: &[BorrowedFd<'_>]) -> Result<(), KeepError> {
        let answer = self.ask(&mut self.socket(), &Request::Keep(reference), descriptors)?;
        self.done(answer.0)
    }

    fn release(&self, region: u64) {
        // One that does not hear of it keeps a little longer what is of no use: until the process ends, or this home does.
        let _ = self.ask(&mut self.socket(), &Request::Release { region }, &[]);
    }

    fn has_begun_anew(&self) -> bool {
        let mut socket = self.socket();
        if socket.as_ref().is_some_and(has_hung_up) {
            *socket = self.call().ok();
            if socket.is_some() {
                self.has_begun_anew.store(true, Ordering::Release);
            }
        }
        self.has_begun_anew.swap(false, Ordering::AcqRel)
    }
}

fn has_hung_up(socket: &OwnedFd) -> bool {
    let mut waiting = [PollFd::new(socket, PollFlags::empty())];
    let polled = rustix::event::poll(&mut waiting, Some(&Timespec::default()));
    polled.is_ok() && waiting[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
}
