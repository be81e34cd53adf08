//! Built without links to other hosts (feature `hosts`): the same names, nobody behind them.

use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::broker::{Departure, Farewell};
use super::protocol::RemoteSession;
use super::server::Outbox;
use crate::transport::Transport;

/// There are no other hosts: it takes the feature `hosts`.
#[derive(Debug)]
pub struct Hosts {
    /// Where it would listen.
    pub listen: SocketAddr,
    never: Infallible,
}

/// Nobody comes.
pub trait Guests: Send + Sync + std::fmt::Debug {}

#[derive(Debug)]
pub(super) struct Links {
    pub(super) listener: TcpListener,
    never: Infallible,
}

impl Links {
    #[expect(clippy::needless_pass_by_value, reason = "as the real one")]
    pub(super) fn start(
        hosts: Hosts,
        _guests: Option<Arc<dyn Guests>>,
        _outbox: Outbox,
    ) -> Result<Self, std::io::Error> {
        match hosts.never {}
    }

    pub(super) fn depart(&self, _departure: Departure) {
        match self.never {}
    }

    pub(super) fn tell(&self, _farewell: Farewell) {
        match self.never {}
    }

    pub(super) fn open_door(&self) {
        match self.never {}
    }
}

impl RemoteSession {
    pub(crate) fn into_transport(self, _socket: OwnedFd) -> Result<Box<dyn Transport>, String> {
        Err("this program was built without links to other hosts".into())
    }
}
