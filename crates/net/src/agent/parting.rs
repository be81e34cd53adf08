//! Channels to other hosts that were closed while the peer had not yet acknowledged everything. Their endpoint is done
//! with them; the process's watcher sees them off, so that what they said last and the network loses is said again.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::protocol::Request;
use crate::transport::Transport;

/// A peer that does not look for so long gets what has reached its host, and no more.
const LIMIT: Duration = Duration::from_secs(1);
/// How often they are looked at: about what a message that is sent again takes.
pub(super) const INTERVAL: Duration = Duration::from_millis(1);

/// One channel, or all of one endpoint.
struct Parting {
    transports: Vec<Box<dyn Transport>>,
    /// For the agent, which tells the other host: not before the messages are there.
    request: Option<Request>,
    /// The name of their endpoint, if that is gone too: for the agent it is taken until then.
    endpoint: Option<String>,
    until: Instant,
}

pub(super) struct Partings {
    list: Mutex<Vec<Parting>>,
    wake: OwnedFd,
}

impl std::fmt::Debug for Partings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Partings").field("wake", &self.wake).finish_non_exhaustive()
    }
}

impl Partings {
    pub(super) fn new() -> Result<Self, rustix::io::Errno> {
        let flags = rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK;
        Ok(Self { list: Mutex::default(), wake: rustix::event::eventfd(0, flags)? })
    }

    /// Becomes readable when one is added.
    pub(super) fn wake(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    pub(super) fn add(
        &self,
        transports: Vec<Box<dyn Transport>>,
        request: Option<Request>,
        endpoint: Option<String>,
    ) {
        self.list().push(Parting { transports, request, endpoint, until: Instant::now() + LIMIT });
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list().is_empty()
    }

    /// Whether an endpoint of this name is gone, and the agent was not told yet.
    pub(super) fn has_endpoint(&self, name: &str) -> bool {
        // Where nobody drives them any more, nobody waits for them either.
        let latest = Instant::now() - LIMIT;
        self.list().iter().any(|it| it.endpoint.as_deref() == Some(name) && it.until > latest)
    }

    /// Sends what is due, and tells the agent of those that are done: before anybody sees that they are.
    pub(super) fn drive(&self, tell: impl Fn(&Request)) {
        let _ = rustix::io::read(&self.wake, &mut [0; 8]);
        let now = Instant::now();
        self.list().retain_mut(|parting| {
            parting.transports.retain_mut(|transport| !transport.settle());
            let done = parting.transports.is_empty() || parting.until <= now;
            if done {
                parting.request.iter().for_each(&tell);
            }
            !done
        });
    }

    fn list(&self) -> std::sync::MutexGuard<'_, Vec<Parting>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
