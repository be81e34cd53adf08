//! What an application holds: an endpoint with its memory, its interfaces and its completion queues.

use std::time::{Duration, Instant};

use super::descriptor::{Completion, Descriptor, Loss, Operation, Side, WorkError, WorkId};
use super::engine::Engine;
use super::interface::{InterfaceKey, InterfaceOptions, State};
use super::memory::{Backing, MemoryError, MemoryHandle, Tag};
use super::message;
use super::places::Place;
use super::queue::QueueKey;
use crate::agent::RequestError;
use crate::channel::ChannelKey;
use crate::endpoint::{ChannelEnded, Delivery, Endpoint, PostError};
use crate::window::{Access, Window, WindowError};

/// With messages that wait for room in a channel, we do not sleep longer: its reader does not wake us.
const RETRY_INTERVAL: Duration = Duration::from_millis(1);

/// Messages taken in by one call of [`Interfaces::progress`] from one channel.
const TURN_MESSAGES: usize = 16;

/// Why a pair was not made. The interface can try again.
#[derive(Debug, thiserror::Error)]
pub enum PairError {
    /// Ours: no such interface.
    #[error("there is no such interface here")]
    NoInterface,
    /// Ours: it has a connection.
    #[error("the interface is connected already: disconnect it first")]
    Connected,
    /// No channel was made.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The request could not be sent.
    #[error(transparent)]
    Post(#[from] PostError),
    /// The peer said no; or we did, because it wants another reliability.
    #[error("the connection with {peer} was refused: {reason}")]
    Refused {
        /// `process/endpoint`.
        peer: String,
        /// A sentence for people.
        reason: String,
    },
    /// Nobody answered, or nobody asked, in time.
    #[error("no peer within {0:?}")]
    TimedOut(Duration),
    /// The peer went away meanwhile.
    #[error(transparent)]
    Lost(WorkError),
}

/// Why a descriptor was not posted. What is wrong with the descriptor itself shows in its completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SubmitError {
    /// No such interface.
    #[error("there is no such interface here")]
    NoInterface,
    /// Only receives may be posted before there is a connection.
    #[error("the interface is not connected: only receives can be posted before")]
    NotConnected,
    /// The queue has as many descriptors as it may.
    #[error("the queue holds {0} descriptors already: take completed ones out")]
    Full(usize),
    /// A receive on the send queue, or the reverse.
    #[error("the descriptor belongs into the other queue")]
    WrongQueue,
}

/// Virtual interfaces over one endpoint. See the [module](super).
///
/// Work goes on in [`Interfaces::progress`] and in the functions that wait; an application that does neither neither
/// sends nor receives.
#[derive(Debug)]
pub struct Interfaces {
    // Before the endpoint, so that windows are withdrawn before their channels close.
    engine: Engine,
    endpoint: Endpoint,
}

impl Interfaces {
    /// Takes an endpoint over: what comes on it is for virtual interfaces.
    pub fn new(mut endpoint: Endpoint) -> Self {
        // All three levels of reliability speak of what finds no descriptor, not of what the network loses.
        endpoint.make_reliable();
        Self { endpoint, engine: Engine::default() }
    }

    // ── memory ──

    /// A tag that nothing else has.
    pub fn new_tag(&mut self) -> Tag {
        self.engine.memory.new_tag()
    }

    /// Registers private memory. [`Interfaces::deregister`] gives it back.
    pub fn register(&mut self, memory: Vec<u8>, tag: Tag) -> MemoryHandle {
        self.engine.memory.register(Backing::Private(memory), tag)
    }

    /// Makes and registers a window for RDMA by this interface's peer: what no other peer can reach. The handle serves
    /// in descriptors like any other.
    pub fn register_window(
        &mut self,
        interface: InterfaceKey,
        bytes: usize,
        access: Access,
    ) -> Result<MemoryHandle, WindowError> {
        let found = self.engine.interfaces.get(interface.0);
        let found = found.ok_or(WindowError::NoChannel)?;
        let channel = found.channel().ok_or(WindowError::NoChannel)?;
        let window = self.endpoint.make_window(channel, bytes, access)?;
        Ok(self.engine.memory.register(Backing::Window(window), found.options.tag))
    }

    /// The number of a registered window: what the peer names it by.
    pub fn window_number(&self, memory: MemoryHandle) -> Option<u32> {
        self.engine.memory.window(memory).map(Window::number)
    }

    /// Takes a window that the interface's peer registered, so that RDMA can name it; waits for it.
    pub fn take_window(
        &mut self,
        interface: InterfaceKey,
        number: u32,
        limit: Duration,
    ) -> Result<(), WindowError> {
        let found = self.engine.interfaces.get_mut(interface.0);
        let found = found.ok_or(WindowError::NoChannel)?;
        let channel = found.channel().ok_or(WindowError::NoChannel)?;
        let window = self.endpoint.window_numbered(channel, number, limit)?;
        found.windows.insert(number, window);
        Ok(())
    }

    /// Ends a registration; a window is withdrawn with it. The private memory comes back.
    pub fn deregister(&mut self, memory: MemoryHandle) -> Result<Vec<u8>, MemoryError> {
        if self.engine.uses(memory) {
            return Err(MemoryError::InUse);
        }
        match self.engine.memory.deregister(memory)? {
            Backing::Private(bytes) => Ok(bytes),
            Backing::Window(window) => {
                window.withdraw();
                Ok(Vec::new())
            }
        }
    }

    /// Private registered memory as it is, without a copy; `None` for windows and stale handles. Content is complete where
    /// a completed descriptor says so.
    pub fn memory(&self, memory: MemoryHandle) -> Option<&[u8]> {
        self.engine.memory.whole(memory)
    }

    /// As [`Interfaces::memory`], to be written; not what is being sent, or the message is any mixture.
    pub fn memory_mut(&mut self, memory: MemoryHandle) -> Option<&mut [u8]> {
        self.engine.memory.whole_mut(memory)
    }

    /// Copies out of registered memory.
    pub fn read(&self, memory: MemoryHandle, offset: usize, into: &mut [u8]) -> Result<(), MemoryError> {
        self.engine.memory.read(memory, offset, into)
    }

    /// Copies into registered memory. Not into what is being sent: the message is then any mixture.
    pub fn write(&mut self, memory: MemoryHandle, offset: usize, from: &[u8]) -> Result<(), MemoryError> {
        self.engine.memory.write(memory, offset, from)
    }

    // ── interfaces ──

    /// Makes a completion queue. It cannot overflow: it holds at most one entry for each descriptor that the queues which
    /// share it hold, and these are bounded ([`InterfaceOptions::depth`]).
    pub fn new_queue(&mut self) -> QueueKey {
        self.engine.new_queue()
    }

    /// Ends a completion queue. Interfaces that told it of their work tell nobody from now on.
    pub fn remove_queue(&mut self, queue: QueueKey) {
        self.engine.remove_queue(queue);
    }

    /// Makes an interface without a connection. Receives can be posted at once, so that the peer's first message finds
    /// one. It is there until [`Interfaces::remove_interface`].
    pub fn new_interface(&mut self, options: InterfaceOptions) -> InterfaceKey {
        self.engine.new_interface(options)
    }

    /// Ends an interface, and its connection as [`Interfaces::disconnect`] does. What is in its queues is not told of any
    /// more; memory that only its descriptors named can be deregistered. Its key is stale from now on.
    pub fn remove_interface(&mut self, interface: InterfaceKey) {
        self.engine.remove_interface(interface);
        self.engine.transmit(&mut self.endpoint);
    }

    fn unconnected(&self, interface: InterfaceKey) -> Result<Place, PairError> {
        let found = self.engine.interfaces.get(interface.0).ok_or(PairError::NoInterface)?;
        if found.channel().is_some() { Err(PairError::Connected) } else { Ok(interface.0) }
    }

    /// Connects to an interface of `process/endpoint` that accepts.
    pub fn connect(&mut self, interface: InterfaceKey, to: &str, limit: Duration) -> Result<(), PairError> {
        self.unconnected(interface)?;
        let channel = self.endpoint.open(to)?;
        self.connect_over(interface, channel, limit)
    }

    /// As [`Interfaces::connect`], over a channel that the endpoint has already and that nothing else uses. It is closed
    /// with the connection, or when there is none.
    pub fn connect_over(
        &mut self,
        interface: InterfaceKey,
        channel: ChannelKey,
        limit: Duration,
    ) -> Result<(), PairError> {
        let place = self.unconnected(interface)?;
        let until = Instant::now() + limit;
        let to = self.endpoint.peer(channel).ok_or(PostError::NoChannel)?.to_owned();
        let request = message::encode_connect(self.engine.interfaces[place].options.reliability);
        self.endpoint
            .post(channel, message::CONNECT, &request)
            .inspect_err(|_| self.endpoint.close(channel))?;
        self.engine.bind(place, channel, to.clone(), State::Asked(channel));
        loop {
            self.progress();
            match &self.engine.interfaces[place].state {
                State::Connected(_) => return Ok(()),
                State::Refused(reason) => {
                    return Err(PairError::Refused { peer: to, reason: reason.clone() });
                }
                State::Broken(error) => return Err(PairError::Lost(error.clone())),
                State::Asked(_) | State::Idle => {}
            }
            if !self.wait_until(until) {
                self.engine.interfaces[place].state = State::Idle;
                self.engine.close(channel);
                self.progress();
                return Err(PairError::TimedOut(limit));
            }
        }
    }

    /// Waits for a peer that connects, and accepts it if it wants the same reliability; says who it is.
    pub fn accept(&mut self, interface: InterfaceKey, limit: Duration) -> Result<String, PairError> {
        let place = self.unconnected(interface)?;
        let until = Instant::now() + limit;
        let (channel, wanted) = loop {
            self.progress();
            if let Some(request) = self.engine.requests.pop_front() {
                break request;
            }
            if !self.wait_until(until) {
                return Err(PairError::TimedOut(limit));
            }
        };
        let peer = self.endpoint.peer(channel).unwrap_or("a peer that left").to_owned();
        let offered = self.engine.interfaces[place].options.reliability;
        if wanted != offered {
            let reason = format!("one side wants {wanted:?} reliability, the other {offered:?}");
            self.engine.tell(channel, message::REFUSED, reason.as_bytes());
            self.engine.close(channel);
            self.progress();
            return Err(PairError::Refused { peer, reason });
        }
        self.engine.bind(place, channel, peer.clone(), State::Connected(channel));
        self.engine.tell(channel, message::ACCEPTED, &[]);
        self.progress();
        Ok(peer)
    }

    /// Ends the connection. What is outstanding completes with [`Loss::Disconnected`]; the peer reads what was sent
    /// before, and then learns of the end.
    pub fn disconnect(&mut self, interface: InterfaceKey) {
        if self.engine.interfaces.get(interface.0).is_some_and(|found| found.channel().is_some()) {
            self.engine.break_connection(interface.0, Loss::Disconnected, false);
            self.progress();
        }
    }

    /// Messages that came on an unreliable interface and found no receive descriptor that fits.
    pub fn dropped(&self, interface: InterfaceKey) -> Option<u64> {
        self.engine.interfaces.get(interface.0).map(|found| found.dropped)
    }

    /// `process/endpoint` of the peer, also of a lost one.
    pub fn peer(&self, interface: InterfaceKey) -> Option<&str> {
        let found = self.engine.interfaces.get(interface.0);
        found.map(|found| found.peer.as_str()).filter(|peer| !peer.is_empty())
    }

    // ── work ──

    /// Posts a send or RDMA. It begins at once, as far as the channel has room.
    #[inline(always)]
    pub fn post_send(
        &mut self,
        interface: InterfaceKey,
        descriptor: Descriptor,
    ) -> Result<WorkId, SubmitError> {
        if descriptor.operation == Operation::Receive {
            return Err(SubmitError::WrongQueue);
        }
        let work = self.submit(interface, Side::Send, descriptor)?;
        self.engine.transmit_work(interface.0, &mut self.endpoint);
        Ok(work)
    }

    /// Posts a receive: room for one message.
    #[inline(always)]
    pub fn post_receive(
        &mut self,
        interface: InterfaceKey,
        descriptor: Descriptor,
    ) -> Result<WorkId, SubmitError> {
        if descriptor.operation != Operation::Receive {
            return Err(SubmitError::WrongQueue);
        }
        self.submit(interface, Side::Receive, descriptor)
    }

    // Inlined, and what it calls: a descriptor that is passed through memory is written in words and read back in
    // pairs of them, and each such copy waits for the store buffer.
    #[inline(always)]
    fn submit(
        &mut self,
        interface: InterfaceKey,
        side: Side,
        descriptor: Descriptor,
    ) -> Result<WorkId, SubmitError> {
        let Engine { interfaces, memory, .. } = &mut self.engine;
        let found = interfaces.get_mut(interface.0).ok_or(SubmitError::NoInterface)?;
        if found.queue(side).is_full() {
            return Err(SubmitError::Full(found.options.depth));
        }
        let broken = match (&found.state, side) {
            (State::Connected(_), _) | (_, Side::Receive) => None,
            (State::Broken(error), Side::Send) => Some(error.clone()),
            _ => return Err(SubmitError::NotConnected),
        };
        let wrong = broken.or_else(|| found.examine(memory, &descriptor).err());
        let failed = wrong.is_some();
        let work = found.queue(side).push(descriptor, wrong.map(|error| Err(Box::new(error))));
        if failed {
            self.engine.announce(interface.0, side);
        }
        Ok(work)
    }

    /// Whether a posted descriptor is complete: its completion bit.
    pub fn is_complete(&self, interface: InterfaceKey, side: Side, work: WorkId) -> bool {
        self.engine.is_complete(interface, side, work)
    }

    /// Takes the descriptor at the head of a queue out, if it is complete.
    #[inline]
    pub fn take_done(&mut self, interface: InterfaceKey, side: Side) -> Option<Completion> {
        let found = self.engine.interfaces.get_mut(interface.0)?;
        found.queue(side).take(interface, side)
    }

    /// As [`Interfaces::take_done`], but works and waits until there is one.
    pub fn done_within(
        &mut self,
        interface: InterfaceKey,
        side: Side,
        limit: Duration,
    ) -> Option<Completion> {
        self.until_some(limit, |this| this.take_done(interface, side))
    }

    /// Takes the next completed descriptor of all the queues that share this completion queue.
    pub fn take_from(&mut self, queue: QueueKey) -> Option<Completion> {
        self.engine.take_from(queue)
    }

    /// As [`Interfaces::take_from`], but works and waits until there is one.
    pub fn from_queue_within(&mut self, queue: QueueKey, limit: Duration) -> Option<Completion> {
        self.until_some(limit, |this| this.take_from(queue))
    }

    fn until_some<T>(
        &mut self,
        limit: Duration,
        mut attempt: impl FnMut(&mut Self) -> Option<T>,
    ) -> Option<T> {
        // The clock is not asked for what is there already.
        let mut until = None;
        loop {
            if let Some(done) = attempt(self) {
                return Some(done);
            }
            let came = self.progress();
            let now = Instant::now();
            let until = *until.get_or_insert(now + limit);
            // A peer that never stops sending does not keep us here beyond the limit.
            let over = if came == 0 { !self.wait_until(until) } else { now >= until };
            if over {
                return attempt(self);
            }
        }
    }

    /// Takes in what came, sends what has room, and returns how many messages came. Never waits.
    #[inline]
    pub fn progress(&mut self) -> usize {
        let Self { endpoint, engine } = self;
        let came = match poll(endpoint, |delivery| engine.deliver(&delivery)) {
            Ok(came) => came,
            Err(ended) => {
                engine.channel_ended(ended.channel, Loss::Ended(ended.cause));
                1
            }
        };
        engine.transmit(endpoint);
        came
    }

    /// Waits for something to do; `false` when the time is over.
    fn wait_until(&mut self, until: Instant) -> bool {
        let left = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero());
        let Some(left) = left else { return false };
        let limit = if self.engine.has_unsent() { left.min(RETRY_INTERVAL) } else { left };
        self.endpoint.wait(limit);
        true
    }
}

/// As [`Endpoint::poll`]. With one channel, which is the most common case, it looks for a second message only where there
/// is one.
#[inline]
fn poll(endpoint: &mut Endpoint, mut deliver: impl FnMut(Delivery<'_>)) -> Result<usize, ChannelEnded> {
    if !matches!(endpoint.channels[..], [Some(_)]) {
        return endpoint.poll(deliver);
    }
    let mut came = 0;
    while came < TURN_MESSAGES && endpoint.take_one(&mut deliver)? {
        came += 1;
    }
    if came == 0 {
        endpoint.when_idle()?;
    }
    Ok(came)
}
