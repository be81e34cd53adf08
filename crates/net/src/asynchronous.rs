//! An endpoint for programs that run on tokio: nothing spins and nothing blocks a thread. Costs a wake-up through the
//! kernel for each message that is waited for; programs for which that is too slow poll an [`Endpoint`] themselves.
//!
//! For channels that the agent made, within a machine and to other hosts. One that was attached to the endpoint by hand
//! raises no event: what comes over it is seen a tenth of a second later.

use std::os::fd::OwnedFd;
use std::time::Duration;

use tokio::io::unix::AsyncFd;

use crate::agent::RequestError;
use crate::channel::ChannelKey;
use crate::endpoint::{ChannelEnded, Endpoint, PostError, Received};
use crate::events::SOCKET_EVENT;

/// Edges taken by one system call.
const EDGES: usize = 16;

/// Why nothing was received.
#[derive(Debug, thiserror::Error)]
pub enum ReceiveError {
    /// One channel ended, which is said once.
    #[error(transparent)]
    Ended(#[from] ChannelEnded),
    /// The runtime refused, or is going down.
    #[error("cannot wait for messages: {0}")]
    Runtime(#[from] std::io::Error),
}

/// Why nothing was sent.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// It cannot be sent.
    #[error(transparent)]
    Post(#[from] PostError),
    /// The runtime refused, or is going down.
    #[error("cannot wait for room: {0}")]
    Runtime(#[from] std::io::Error),
}

/// Tells a runtime when an endpoint has something: for those who drive one and wait for more than its messages.
#[derive(Debug)]
pub struct Readiness(AsyncFd<OwnedFd>);

impl Readiness {
    /// Of an endpoint made with [`crate::EndpointOptions::events`], within a runtime.
    ///
    /// # Panics
    /// If the endpoint has no events, or there is no runtime.
    pub fn of(endpoint: &Endpoint) -> std::io::Result<Self> {
        let descriptor = endpoint.event_descriptor().expect("EndpointOptions::events was not set");
        #[expect(
            deprecated,
            reason = "what replaces it is unsafe, and an OwnedFd that stays put is what it asks for"
        )]
        let readiness = AsyncFd::new(descriptor.try_clone_to_owned()?)?;
        Ok(Self(readiness))
    }

    /// Waits until that endpoint, which [`Endpoint::arm`] has found idle, may have something, and disarms it. Cancelled, it
    /// stays armed, which costs its peers' messages an event each until it is polled and waited for again.
    pub async fn wake_up(&self, endpoint: &mut Endpoint) -> std::io::Result<()> {
        let mut ready = self.0.readable().await?;
        // Takes the edges of the channels' descriptors, so that the next one is seen. A socket to another host has none: it
        // is there in every look until it is read, which is what comes next.
        let mut space = [std::mem::MaybeUninit::uninit(); EDGES];
        let at_once = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        while rustix::event::epoll::wait(ready.get_inner(), &mut space, Some(&at_once)).is_ok_and(
            |(events, _)| {
                events.len() == EDGES && events.iter().all(|event| event.data.u64() != SOCKET_EVENT)
            },
        ) {}
        ready.clear_ready();
        endpoint.disarm();
        Ok(())
    }
}

/// See the [module](self).
#[derive(Debug)]
pub struct AsyncEndpoint {
    endpoint: Endpoint,
    readiness: Readiness,
}

impl AsyncEndpoint {
    /// Takes over an endpoint made with [`crate::EndpointOptions::events`], within a runtime.
    ///
    /// # Panics
    /// If the endpoint has no events, or there is no runtime.
    pub fn new(endpoint: Endpoint) -> std::io::Result<Self> {
        let readiness = Readiness::of(&endpoint)?;
        Ok(Self { endpoint, readiness })
    }

    /// The endpoint, for what does not wait.
    pub fn endpoint(&mut self) -> &mut Endpoint {
        &mut self.endpoint
    }

    /// Opens a channel to `process/endpoint`. The agent answers from memory; this blocks for that long.
    pub fn open(&mut self, to: &str) -> Result<ChannelKey, RequestError> {
        self.endpoint.open(to)
    }

    /// The next channel that a peer opened.
    pub async fn accept(&mut self) -> std::io::Result<ChannelKey> {
        loop {
            if let Some(channel) = self.endpoint.accept(Duration::ZERO) {
                return Ok(channel);
            }
            self.endpoint.arm();
            if let Some(channel) = self.endpoint.accept(Duration::ZERO) {
                self.endpoint.disarm();
                return Ok(channel);
            }
            self.wake_up().await?;
        }
    }

    /// Copies the next message into `buffer`. Cancelled, it has taken nothing.
    pub async fn recv(&mut self, buffer: &mut [u8]) -> Result<Received, ReceiveError> {
        loop {
            if let Some(received) = self.endpoint.receive(buffer)? {
                return Ok(received);
            }
            if self.endpoint.arm() {
                self.wake_up().await?;
            } else {
                self.endpoint.disarm();
            }
        }
    }

    /// Sends one message; waits for room if it has to. Cancelled, it has sent nothing. What comes meanwhile stays where
    /// it is: two that only send to each other both wait.
    pub async fn send(&mut self, channel: ChannelKey, kind: u8, message: &[u8]) -> Result<(), SendError> {
        loop {
            match self.endpoint.send(channel, kind, message) {
                Err(PostError::Full(_)) => {}
                outcome => return Ok(outcome?),
            }
            self.endpoint.want_credit(channel, true);
            self.endpoint.arm();
            // The room may have come before we said that we want it.
            let outcome = match self.endpoint.send(channel, kind, message) {
                Err(PostError::Full(_)) => self.wake_up().await.map(|()| None),
                outcome => Ok(Some(outcome)),
            };
            self.endpoint.want_credit(channel, false);
            // A peer that has fallen silent makes no room; its channel refuses the next attempt and says why.
            self.endpoint.look_for_silence();
            if let Some(outcome) = outcome? {
                self.endpoint.disarm();
                return Ok(outcome?);
            }
        }
    }

    async fn wake_up(&mut self) -> std::io::Result<()> {
        self.readiness.wake_up(&mut self.endpoint).await
    }
}
