//! An endpoint: a process's handle into the network. Many channels, one place to look. (Thesis §2.3.1)
//!
//! All of it belongs to one thread at a time (`&mut self`): there is no lock on the way of a message. What other
//! threads have to say to it — a new channel, a dead peer — the watcher leaves in [`EndpointShared`] and raises
//! `news`.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use comb_types::{ChannelId, EndpointId};

use crate::agent::client::{Agent, RequestError};
use crate::agent::protocol::{Request, Side};
use crate::bell::Bell;
use crate::channel::{Channel, ChannelKey, Link};
use crate::events::{ChannelEvent, Events};
use crate::fence::Fences;
use crate::flagged::Flagged;
use crate::life::{Cause, Life};
use crate::news::News;
use crate::paced::Paced;
use crate::payload::Payload;
use crate::processor::pauses_between_looks;
use crate::quench::Backlogs;
use crate::shm::{Geometry, OwnSide};
use crate::transport::{Transport, TransportCounters};
use crate::waiting::Spin;

/// Beyond so many channels the endpoint no longer looks at each, but at the flags on its bell board: 16 rings are 16
/// cache lines, about what one look at the board costs.
pub(crate) const CHANNELS_LOOKED_AT: usize = 16;

/// A spinning endpoint looks whether peers have closed once in so many empty polls, which is every few microseconds:
/// the word that tells is on another cache line than the ring.
const IDLE_POLLS_BETWEEN_LOOKS: u32 = 256;
/// A look visits every channel: with many it is rarer, so that it stays a small part of the polls.
const IDLE_POLLS_PER_CHANNEL: usize = 16;
/// The number of channels that the agent does not know of. Its own count from 1.
const ATTACHED: ChannelId = ChannelId(0);

/// How an endpoint is to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EndpointOptions {
    /// The most channels it can have.
    pub channels: u32,
    /// Whether channels carry an eventfd, for event loops ([`Endpoint::arm`]). Costs two descriptors a channel. Channels to
    /// other hosts need it.
    pub events: bool,
    /// The size of our side of each channel.
    pub geometry: Geometry,
    /// Whether it sleeps as soon as nothing comes, because others want its core: the members of a group are more than there are
    /// cores. It does not spin then, and going to sleep is cheaper by some microseconds and an interrupt of another core; each message
    /// to it costs its sender some nanoseconds more, and wakes it.
    pub sleeps_often: bool,
    /// Whether the peers' rings are mapped read-only, so that a wild store into one is a SIGSEGV here at once, instead
    /// of a garbled message to ourselves later. Round trips of a kilobyte take up to 1.6 times as long (see
    /// `docs/papers/unet.md`).
    pub trap_wild_stores: bool,
    /// A peer that leaves messages unread for so long, and whose endpoint does not move meanwhile, is taken for dead
    /// ([`Cause::Silent`]). An endpoint moves when its program polls, waits or receives: choose a limit well above the
    /// longest time that a healthy peer computes between two polls. Found while this endpoint itself is polled or
    /// waits. `None`: only the end of its process is its end.
    pub silence_limit: Option<Duration>,
    /// The same for channels that this endpoint opens to other hosts, where `silence_limit` says nothing: when such a host is gone,
    /// nobody tells of its processes' ends.
    pub silence_limit_elsewhere: Duration,
    /// After so long an endpoint that is armed becomes readable though nothing has come, to look for what no event tells: a peer that
    /// scribbles where others note that they have written can keep their events from us.
    pub looks_after: Duration,
}

impl Default for EndpointOptions {
    fn default() -> Self {
        Self {
            channels: 3968,
            events: false,
            sleeps_often: false,
            geometry: Geometry::default(),
            trap_wild_stores: false,
            silence_limit: None,
            silence_limit_elsewhere: crate::remote::SILENCE_LIMIT,
            looks_after: crate::bell::LONGEST_SLEEP,
        }
    }
}

impl EndpointOptions {
    fn fences(&self) -> Fences {
        if self.sleeps_often { Fences::Full } else { Fences::of_this_process() }
    }
}

/// What an endpoint, its watcher and its agent share.
#[derive(Debug)]
pub(crate) struct EndpointShared {
    id: AtomicU32,
    name: String,
    options: EndpointOptions,
    bell: Bell,
    /// Handed to the agent, and again after it was restarted.
    bell_descriptor: Option<OwnedFd>,
    news: News,
    /// Of an endpoint with events.
    events: Option<Events>,
    places: Mutex<Places>,
    /// The windows that we made.
    windows: Arc<crate::window::Book>,
}

#[derive(Debug, Default)]
struct Places {
    taken: Vec<bool>,
    incoming: Vec<Incoming>,
    /// The endpoint is gone: nothing comes in any more.
    closed: bool,
}

/// A channel that a peer opened, ready for use.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(crate) channel: ChannelId,
    pub(crate) index: u32,
    pub(crate) peer: String,
    pub(crate) link: Link,
    pub(crate) life: Arc<Life>,
    pub(crate) event: Option<ChannelEvent>,
}

impl EndpointShared {
    pub(crate) fn create(name: &str, options: EndpointOptions) -> Result<(Self, OwnedFd), RequestError> {
        let (bell, descriptor) = Bell::create(options.channels, options.fences())?;
        let events =
            if options.events { Some(Events::create().map_err(RequestError::System)?) } else { None };
        let shared = Self {
            id: AtomicU32::new(0),
            name: name.to_owned(),
            options,
            bell,
            bell_descriptor: None,
            news: News::new(),
            events,
            places: Mutex::default(),
            windows: Arc::default(),
        };
        Ok((shared, descriptor))
    }

    pub(crate) fn with_bell(mut self, descriptor: OwnedFd) -> Self {
        self.bell_descriptor = Some(descriptor);
        self
    }

    pub(crate) fn id(&self) -> EndpointId {
        EndpointId(self.id.load(Ordering::Relaxed))
    }

    pub(crate) fn set_id(&self, id: EndpointId) {
        self.id.store(id.0, Ordering::Relaxed);
        self.windows.set_endpoint(id);
    }

    pub(crate) fn windows(&self) -> &crate::window::Book {
        &self.windows
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn options(&self) -> EndpointOptions {
        self.options
    }

    pub(crate) fn bell_descriptor(&self) -> BorrowedFd<'_> {
        self.bell_descriptor.as_ref().expect("given when the endpoint was registered").as_fd()
    }

    /// The endpoint is to look here; it is woken if it sleeps.
    pub(crate) fn raise_news(&self) {
        self.news.raise();
        self.bell.wake();
        if let Some(events) = &self.events {
            events.raise_news();
        }
    }

    pub(crate) fn has_news(&self, ordering: Ordering) -> bool {
        self.news.are_raised(ordering)
    }

    #[inline]
    pub(crate) fn bell(&self) -> &Bell {
        &self.bell
    }

    pub(crate) fn event_set(&self) -> Option<&OwnedFd> {
        self.events.as_ref().map(Events::set)
    }

    /// The event descriptor becomes readable after this time, come what may.
    pub(crate) fn start_event_timer(&self, after: Duration) {
        if let Some(events) = &self.events {
            events.start_timer(after);
        }
    }

    fn places(&self) -> std::sync::MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn take_index(&self) -> Result<u32, RequestError> {
        let mut places = self.places();
        let free = places.taken.iter().position(|taken| !taken);
        let index = free.unwrap_or(places.taken.len());
        if index >= self.options.channels as usize {
            return Err(RequestError::NoPlace(self.options.channels));
        }
        if index == places.taken.len() {
            places.taken.push(true);
        } else {
            places.taken[index] = true;
        }
        Ok(u32::try_from(index).expect("at most the options' channels"))
    }

    pub(crate) fn release_index(&self, index: u32) {
        self.places().taken[index as usize] = false;
    }

    /// Our side of one more channel: memory, what the handshake says of it, its descriptor, and its eventfd.
    pub(crate) fn new_side(&self) -> Result<(OwnSide, Side, OwnedFd, Option<ChannelEvent>), RequestError> {
        let event = self.events.as_ref().map(Events::channel).transpose().map_err(RequestError::System)?;
        let (own, ring) = OwnSide::create(self.options.geometry, self.options.trap_wild_stores)?;
        let bell_index = self.take_index()?;
        let side = Side {
            geometry: self.options.geometry,
            bell_index,
            event: event.is_some(),
            asymmetric_fences: self.options.fences() == Fences::Asymmetric,
        };
        Ok((own, side, ring, event))
    }

    /// Leaves a channel for the endpoint to find; gives it back if the endpoint is gone.
    pub(crate) fn push_incoming(&self, incoming: Incoming) -> Result<(), Box<Incoming>> {
        let mut places = self.places();
        if places.closed {
            return Err(Box::new(incoming));
        }
        places.incoming.push(incoming);
        drop(places);
        self.raise_news();
        Ok(())
    }
}

/// A channel is done with. What had come before was delivered; what was under way is lost.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the channel to {peer} ended: {cause}")]
pub struct ChannelEnded {
    /// Which one it was.
    pub channel: ChannelKey,
    /// `process/endpoint` of the peer.
    pub peer: String,
    /// Why.
    pub cause: Cause,
    /// What the peer left last by [`Endpoint::leave_word`], if its process has ended, as its kernel says. Nothing comes after it.
    pub last_word: Option<u128>,
}

/// Why nothing was sent.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PostError {
    /// No room now. Poll, then try again, or use [`Endpoint::send_within`].
    #[error("no room: {0} has not read enough yet")]
    Full(String),
    /// No such channel, or no longer.
    #[error("there is no such channel on this endpoint (any more)")]
    NoChannel,
    /// The message can never be sent here.
    #[error("a message of {bytes} bytes is longer than this channel's limit of {limit}")]
    TooLong {
        /// Its length.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The kind belongs to a layer above the channel; nothing was sent.
    #[error("kind {0:#04x} is reserved: applications' messages are of kinds 0x00 to 0x7f")]
    ReservedKind(u8),
    /// The channel has ended.
    #[error(transparent)]
    Ended(#[from] ChannelEnded),
    /// The operating system refused.
    #[error("the network refused the message: {0}")]
    System(rustix::io::Errno),
}

/// A message as [`Endpoint::poll`] hands it over.
#[derive(Clone, Copy, Debug)]
pub struct Delivery<'a> {
    /// Whence.
    pub channel: ChannelKey,
    /// The sender's word for what it is.
    pub kind: u8,
    /// Its bytes.
    pub payload: Payload<'a>,
}

/// A message as [`Endpoint::receive`] copied it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Received {
    /// Whence.
    pub channel: ChannelKey,
    /// The sender's word for what it is.
    pub kind: u8,
    /// How many bytes it has. If more than the buffer took, the rest is lost.
    pub bytes: usize,
}

/// A process's handle into the network: many channels, one place to look. It belongs to one thread at a time.
#[derive(Debug)]
pub struct Endpoint {
    pub(crate) agent: Agent,
    pub(crate) shared: Arc<EndpointShared>,
    pub(crate) channels: Vec<Option<Channel>>,
    live: usize,
    /// How many of them lead to other hosts. These raise no flags and ring no bell.
    pub(crate) remote: usize,
    /// Whose turn it is.
    pub(crate) turn: usize,
    /// The place of the channel that was sent to last.
    pub(crate) awaited: usize,
    /// The epoch of the next channel: keys of earlier ones are stale.
    epoch: u32,
    spin: Spin,
    pub(crate) ended: Vec<ChannelEnded>,
    arrived: Vec<ChannelKey>,
    idle_polls: u32,
    /// An idle poll whose number has none of these bits looks around.
    look_mask: u32,
    pauses: bool,
    pub(crate) looks: u32,
    pub(crate) polls: u32,
    /// What peers see of our moving; see [`crate::silence`].
    pub(crate) ticks: u64,
    pub(crate) flagged: Flagged,
    /// Of an endpoint that watches them.
    pub(crate) backlogs: Option<Box<Backlogs>>,
    /// The windows that we made.
    pub(crate) windows: Arc<crate::window::Book>,
    /// Whether there was ever a channel whose peer cannot ring the bell.
    pub(crate) has_silent: bool,
    /// When the timer of its events fires, as far as it was set.
    pub(crate) timer_at: Option<Instant>,
}

impl Endpoint {
    pub(crate) fn new(agent: Agent, shared: Arc<EndpointShared>) -> Self {
        Self {
            windows: Arc::clone(&shared.windows),
            agent,
            shared,
            channels: Vec::new(),
            live: 0,
            remote: 0,
            turn: 0,
            awaited: 0,
            epoch: 0,
            spin: Spin::default(),
            ended: Vec::new(),
            arrived: Vec::new(),
            idle_polls: 0,
            look_mask: IDLE_POLLS_BETWEEN_LOOKS - 1,
            pauses: pauses_between_looks(),
            looks: 0,
            polls: 0,
            ticks: 0,
            flagged: Flagged::default(),
            backlogs: None,
            has_silent: false,
            timer_at: None,
        }
    }

    /// Its name within the process.
    pub fn name(&self) -> &str {
        self.shared.name()
    }

    /// `process/endpoint`: what a peer opens.
    pub fn address(&self) -> String {
        format!("{}/{}", self.agent.name(), self.shared.name())
    }

    /// Makes a channel of a transport that was set up by other means; `peer` is what errors call its other end.
    pub fn attach(&mut self, peer: &str, transport: Box<dyn Transport>) -> Result<ChannelKey, RequestError> {
        let index = self.shared.take_index()?;
        self.has_silent = true;
        Ok(self.install(Incoming {
            channel: ATTACHED,
            index,
            peer: peer.to_owned(),
            link: Link::Other(Paced::over(transport)),
            life: Arc::new(Life::new(peer.to_owned())),
            event: None,
        }))
    }

    /// Puts retransmission under every channel that can lose and has none yet. Both ends must do so before the first
    /// message.
    pub(crate) fn make_reliable(&mut self) {
        self.channels.iter_mut().flatten().for_each(Channel::make_reliable);
    }

    /// Bytes of the longest message that the channel takes.
    pub fn longest_message(&self, channel: ChannelKey) -> Option<usize> {
        self.channel(channel).map(|channel| channel.capabilities().longest_message)
    }

    /// Waits for a peer to open a channel to us.
    pub fn accept(&mut self, limit: Duration) -> Option<ChannelKey> {
        let started = Instant::now();
        loop {
            self.look_at_news();
            if !self.arrived.is_empty() {
                return Some(self.arrived.remove(0));
            }
            let left = limit.checked_sub(started.elapsed())?;
            self.sleep_while(left, |this| !this.shared.has_news(Ordering::Acquire));
        }
    }

    pub(crate) fn install(&mut self, mut incoming: Incoming) -> ChannelKey {
        if self.shared.options.silence_limit.is_some()
            && let Link::Shm(link) = &mut incoming.link
        {
            link.watch_silence();
            self.shared.bell.demand_credit(true);
        }
        let index = incoming.index as usize;
        if self.channels.len() <= index {
            self.channels.resize_with(index + 1, || None);
        }
        self.epoch = self.epoch.wrapping_add(1);
        let key = ChannelKey { index: incoming.index, epoch: self.epoch };
        self.remote += usize::from(matches!(incoming.link, Link::Other(_)));
        self.channels[index] = Some(Channel::new(
            key,
            incoming.channel,
            incoming.peer,
            incoming.link,
            incoming.life,
            incoming.event,
        ));
        self.live += 1;
        if let Some(backlogs) = &mut self.backlogs {
            backlogs.open(key);
        }
        let polls = u32::try_from(self.channels.len() * IDLE_POLLS_PER_CHANNEL).unwrap_or(u32::MAX >> 1);
        self.look_mask = polls.next_power_of_two().max(IDLE_POLLS_BETWEEN_LOOKS) - 1;
        // Not "exactly one more": places can be filled out of order, and then that number is never met.
        if self.channels.len() > CHANNELS_LOOKED_AT && !self.flagged.is_demanded() {
            self.flagged.demand(&self.shared.bell, self.channels.len());
        }
        // Its peer may have raised the flag before the channel was here, and the flag be taken for nothing.
        self.flagged.look_at(index);
        key
    }

    /// The live channels.
    pub fn channels(&self) -> impl Iterator<Item = ChannelKey> + '_ {
        self.channels.iter().flatten().map(Channel::key)
    }

    /// `process/endpoint` of a channel's peer.
    pub fn peer(&self, channel: ChannelKey) -> Option<&str> {
        self.channel(channel).map(Channel::peer)
    }

    /// What the channel counted, and how full its send queue is. (Thesis §2.7.4)
    pub fn counters(&self, channel: ChannelKey) -> Option<TransportCounters> {
        self.channel(channel).map(|channel| channel.counters())
    }

    pub(crate) fn channel(&self, key: ChannelKey) -> Option<&Channel> {
        self.channels.get(key.index as usize)?.as_ref().filter(|channel| channel.key() == key)
    }

    #[inline]
    pub(crate) fn channel_mut(&mut self, key: ChannelKey) -> Option<&mut Channel> {
        self.channels.get_mut(key.index as usize)?.as_mut().filter(|channel| channel.key() == key)
    }

    #[inline]
    pub(crate) fn spin(&mut self, mut ready: impl FnMut(&mut Self) -> bool) -> bool {
        if self.shared.options.sleeps_often {
            return ready(self);
        }
        let mut spin = self.spin;
        let came = spin.until(|| ready(self));
        self.spin = spin;
        came
    }

    pub(crate) fn learn(&mut self, waited: Duration) {
        self.spin.learn(waited);
    }

    // ── news, ends ──

    /// Now and then even if every poll finds a message: one busy peer must not hide that another came, left or died.
    /// Before the poll, because an end that is told after it would take the place of a message.
    #[inline]
    pub(crate) fn before_poll(&mut self) -> Result<(), ChannelEnded> {
        self.polls = self.polls.wrapping_add(1);
        if self.is_due(self.polls) { self.look_around() } else { Ok(()) }
    }

    /// Whether the poll of this number looks around: a quarter as often as idle ones, for each of these is a message.
    #[inline]
    pub(crate) fn is_due(&self, poll: u32) -> bool {
        poll & (self.look_mask << 2 | 3) == 0
    }

    /// The next poll that finds nothing looks around.
    pub(crate) fn look_soon(&mut self) {
        self.idle_polls = u32::MAX;
    }

    #[inline]
    pub(crate) fn when_idle(&mut self) -> Result<(), ChannelEnded> {
        if self.pauses {
            std::hint::spin_loop();
        }
        self.idle_polls = self.idle_polls.wrapping_add(1);
        let look = self.idle_polls & self.look_mask == 0;
        if look || self.shared.has_news(Ordering::Relaxed) || !self.ended.is_empty() {
            self.look_around()
        } else {
            Ok(())
        }
    }

    #[cold]
    fn look_around(&mut self) -> Result<(), ChannelEnded> {
        self.tick();
        if self.flagged.is_demanded() {
            // A peer may have wiped the demand.
            self.shared.bell.keep_demanding_flags();
        }
        if self.shared.options.silence_limit.is_some() {
            self.shared.bell.demand_credit(true);
        }
        self.look_at_news();
        self.look_for_silence();
        self.look_for_ends();
        if self.ended.is_empty() { Ok(()) } else { Err(self.ended.remove(0)) }
    }

    /// New channels.
    pub(crate) fn look_at_news(&mut self) {
        if self.shared.news.take() {
            let incoming = std::mem::take(&mut self.shared.places().incoming);
            for channel in incoming {
                let key = self.install(channel);
                self.arrived.push(key);
            }
        }
    }

    /// Channels whose peer died or closed. What came before the end is delivered before the end is told.
    fn look_for_ends(&mut self) {
        let over: Vec<_> = self
            .channels
            .iter_mut()
            .flatten()
            .filter_map(|channel| {
                channel.cause().filter(|_| channel.is_idle()).map(|cause| (channel.key(), cause))
            })
            .collect();
        for (key, cause) in over {
            let ended = self.end_channel(key, cause);
            self.ended.extend(ended);
        }
    }

    /// Whether a call of `poll` would have something to say.
    pub(crate) fn has_something(&mut self) -> bool {
        self.has(|channel| !channel.is_idle())
    }

    /// The same, without what the sockets in the set of events tell of.
    pub(crate) fn has_something_untold(&mut self) -> bool {
        // Sockets of channels that were attached are in no set.
        if self.has_silent { self.has_something() } else { self.has(Channel::has_untold) }
    }

    fn has(&mut self, is_there: impl Fn(&mut Channel) -> bool) -> bool {
        if self.shared.has_news(Ordering::Acquire) || !self.ended.is_empty() {
            return true;
        }
        let mut channels = self.channels.iter_mut().flatten();
        let found = channels.find_map(|channel| {
            (is_there(channel) || channel.cause().is_some()).then(|| channel.key().index as usize)
        });
        // Its flag may have been lost: the next poll is to find it, not the one whose turn it is.
        found.inspect(|&index| self.flagged.look_at(index)).is_some()
    }

    pub(crate) fn end_channel(&mut self, key: ChannelKey, cause: Cause) -> Option<ChannelEnded> {
        let mut channel = self.take_channel(key)?;
        channel.close();
        self.forget(channel.id());
        Some(channel.ended(cause))
    }

    fn take_channel(&mut self, key: ChannelKey) -> Option<Channel> {
        self.channel(key)?;
        let channel = self.channels[key.index as usize].take()?;
        self.live -= 1;
        self.forget_backlog(key);
        if channel.is_remote() {
            self.remote -= 1;
            if self.remote == 0 {
                // Nothing was recorded of what was read while each channel was looked at.
                self.flagged.look_at_all(self.channels.len());
            }
        }
        // Nobody needs to be told of a channel that has come and gone.
        self.arrived.retain(|arrived| *arrived != key);
        self.agent.shared().unwatch_channel(channel.id(), channel.life());
        self.shared.release_index(key.index);
        Some(channel)
    }

    /// The agent hears that a channel is gone. Of one that it never made there is nothing to hear.
    fn forget(&self, channel: ChannelId) {
        if channel != ATTACHED {
            self.agent.shared().close_channel(channel);
        }
    }

    /// Leaves a word for those who have channels to this endpoint: they find it in [`ChannelEnded`] when this process has
    /// ended. It takes the place of the one before, costs some stores, and is kept by the memory, so it counts from the moment that this
    /// returns, however the process ends.
    pub fn leave_word(&self, word: u128) {
        self.shared.bell().leave_word(word);
    }

    /// Closes a channel. The peer reads what we sent before and is then told.
    pub fn close(&mut self, channel: ChannelKey) {
        if let Some(mut channel) = self.take_channel(channel) {
            channel.close();
            let id = channel.id();
            match self.unsettled(channel) {
                Some(transport) => self.agent.shared().see_off(
                    vec![transport],
                    (id != ATTACHED).then_some(Request::CloseChannel { channel: id }),
                ),
                None => self.forget(id),
            }
        }
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.shared.places().closed = true;
        // What came and was never looked at has a peer too, who is to be told.
        self.shared.news.raise();
        self.look_at_news();
        let mut unsettled = Vec::new();
        for mut channel in std::mem::take(&mut self.channels).into_iter().flatten() {
            channel.close();
            self.agent.shared().unwatch_channel(channel.id(), channel.life());
            unsettled.extend(self.unsettled(channel));
        }
        self.agent.shared().forget_endpoint(&self.shared, unsettled);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A peer that takes the cheap fence for one who has not paid for both might not see that it sleeps.
    #[test]
    fn who_goes_to_sleep_cheaply_tells_its_peers_to_pay() {
        for sleeps_often in [false, true] {
            let options = EndpointOptions { sleeps_often, channels: 4, ..EndpointOptions::default() };
            let (shared, _bell) = EndpointShared::create("desk", options).expect("memory");
            let (_own, side, ..) = shared.new_side().expect("memory");
            let fences = shared.bell.fences();
            assert_eq!(side.asymmetric_fences, fences == Fences::Asymmetric);
            assert!(!(sleeps_often && side.asymmetric_fences));
        }
    }
}
