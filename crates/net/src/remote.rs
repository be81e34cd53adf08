//! Channels to other hosts, as an endpoint has them. What carries their messages rings no bell: the endpoint waits for
//! their sockets, and for the time when something has to be sent again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use comb_types::ChannelId;
use rustix::event::{PollFd, PollFlags, epoll};
use rustix::time::Timespec;

use crate::agent::client::RequestError;
use crate::bell::LONGEST_SLEEP;
use crate::channel::{Channel, ChannelKey, Link};
use crate::endpoint::{Endpoint, EndpointShared, Incoming};
use crate::events::SOCKET_EVENT;
use crate::life::Life;
use crate::paced::Paced;
use crate::transport::{Capabilities, Transport};
use crate::waiting::LONGEST_SLEEP_WITHOUT_BELL;

/// When the other host itself is gone nobody tells of a process's end, only its silence does; so there is a limit even if
/// the options name none (`silence_limit_elsewhere`). Long, because who computes for so long without polling is silent too.
pub(crate) const SILENCE_LIMIT: Duration = Duration::from_secs(10);

/// News and the ends of peers raise no event where a sender waits for room on one channel; it looks for them so often.
const LONGEST_WAIT_FOR_ROOM: Duration = Duration::from_millis(5);

fn timespec(fraction: Duration) -> Timespec {
    Timespec { tv_sec: 0, tv_nsec: i64::from(fraction.subsec_nanos()) }
}

impl EndpointShared {
    /// A channel of ours to another host, in a place of its own and waited for.
    pub(crate) fn remote_channel(
        &self,
        channel: ChannelId,
        life: Arc<Life>,
        transport: Box<dyn Transport>,
    ) -> Result<Incoming, RequestError> {
        let set = self.event_set().ok_or(RequestError::NeedsEvents)?;
        if let Some(readable) = transport.readable() {
            // Level-triggered: a look takes a bounded number of frames, and what it left must wake the next wait. Its
            // close takes the socket out of the set.
            let data = epoll::EventData::new_u64(SOCKET_EVENT);
            epoll::add(set, readable, data, epoll::EventFlags::IN).map_err(RequestError::System)?;
        }
        let index = self.take_index()?;
        let peer = life.peer().to_owned();
        Ok(Incoming { channel, index, peer, link: Link::Other(Paced::over(transport)), life, event: None })
    }
}

impl Endpoint {
    /// What a channel promises.
    pub fn capabilities(&self, channel: ChannelKey) -> Option<Capabilities> {
        self.channel(channel).map(Channel::capabilities)
    }

    /// Sleeps until one of the sockets or a peer on this host says something.
    pub(crate) fn wait_for_events(&mut self, limit: Duration) {
        let shared = Arc::clone(&self.shared);
        let Some(set) = shared.event_set() else { return };
        self.tick();
        shared.bell().demand_events(false);
        if !self.has_something() {
            let limit = timespec(self.until_timers(limit.min(LONGEST_SLEEP)));
            let mut space = [std::mem::MaybeUninit::uninit(); 16];
            // Which it was, the next poll sees; an interruption only makes it early.
            let _ = epoll::wait(set, &mut space, Some(&limit));
        }
        shared.bell().demand_no_events();
        self.tick();
        self.look_soon();
    }

    /// No longer than this, because then a channel has something to do.
    pub(crate) fn until_timers(&self, limit: Duration) -> Duration {
        if self.remote == 0 {
            return limit;
        }
        let timers = self.channels.iter().flatten().filter_map(Channel::next_timeout);
        timers.min().map_or(limit, |at| limit.min(at.saturating_duration_since(Instant::now())))
    }

    /// Sleeps until a channel that rings no bell says something, which may be that there is room.
    pub(crate) fn sleep_for_room(&mut self, key: ChannelKey, limit: Duration) {
        self.tick();
        self.keep_up();
        let limit = self.until_timers(limit.min(LONGEST_WAIT_FOR_ROOM));
        match self.channel(key).map(Channel::readable) {
            Some(Some(readable)) => {
                let mut waiting = [PollFd::new(&readable, PollFlags::IN)];
                // An interruption only makes it early.
                let _ = rustix::event::poll(&mut waiting, Some(&timespec(limit)));
            }
            _ => std::thread::sleep(limit.min(LONGEST_SLEEP_WITHOUT_BELL)),
        }
        self.tick();
        self.look_soon();
    }

    /// What is left of a closed channel: its transport, if messages of ours may still have to be sent again.
    pub(crate) fn unsettled(&self, channel: Channel) -> Option<Box<dyn Transport>> {
        let transport = channel.into_unsettled()?;
        if let (Some(set), Some(readable)) = (self.shared.event_set(), transport.readable()) {
            // It lives on without us, and what it hears is nothing to wake for. One that was attached is not in the set.
            let _ = epoll::delete(set, readable);
        }
        Some(transport)
    }

    /// For loops that wait for something else: our heartbeats go on meanwhile, on each channel to another host, whatever
    /// the others have for us.
    pub(crate) fn keep_up(&mut self) {
        if self.remote > 0 {
            self.channels.iter_mut().flatten().for_each(Channel::hear);
        }
    }
}
