//! What an event loop waits for: one descriptor for all channels of an endpoint.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{EventfdFlags, epoll};
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

/// What the set says of a socket to another host, which is level-triggered; of all else but the timer it says 0.
pub(crate) const SOCKET_EVENT: u64 = 1;

/// What the descriptor of [`crate::Endpoint::event_descriptor`], an epoll set, says of the timer of an endpoint that was armed, and of nothing
/// else.
pub const TIMER_EVENT: u64 = 2;

/// The epoll set of an endpoint with events, and what is in it besides its channels' events.
#[derive(Debug)]
pub(crate) struct Events {
    set: Arc<OwnedFd>,
    /// An eventfd, written by our watcher.
    news: OwnedFd,
    /// A peer that scribbles on the board can keep the others from writing their events. So an armed endpoint looks for
    /// itself after a while, as a sleeping one does.
    timer: OwnedFd,
}

/// Edge-triggered: one wake-up an event, nothing to be read back from a thousand descriptors.
fn add(set: &OwnedFd, descriptor: &OwnedFd, data: u64) -> Result<(), Errno> {
    let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
    epoll::add(set, descriptor, epoll::EventData::new_u64(data), flags)
}

fn event_in(set: &OwnedFd) -> Result<OwnedFd, Errno> {
    let event = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    add(set, &event, 0)?;
    Ok(event)
}

impl Events {
    pub(crate) fn create() -> Result<Self, Errno> {
        let set = Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC)?);
        let news = event_in(&set)?;
        let timer =
            timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        add(&set, &timer, TIMER_EVENT)?;
        Ok(Self { set, news, timer })
    }

    pub(crate) fn set(&self) -> &OwnedFd {
        &self.set
    }

    pub(crate) fn raise_news(&self) {
        // Fails only when the counter is full, and then nobody has looked at it anyway.
        let _ = rustix::io::write(&self.news, &1_u64.to_ne_bytes());
    }

    /// The set becomes readable after this time, come what may.
    pub(crate) fn start_timer(&self, after: Duration) {
        let never = Timespec { tv_sec: 0, tv_nsec: 0 };
        let it_value = Timespec::try_from(after).expect("a fraction of a second");
        let once = Itimerspec { it_interval: never, it_value };
        let set = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once);
        debug_assert!(set.is_ok(), "a timer of ours and a valid time");
    }

    /// One more channel's event.
    pub(crate) fn channel(&self) -> Result<ChannelEvent, Errno> {
        Ok(ChannelEvent { event: event_in(&self.set)?, set: Arc::clone(&self.set) })
    }
}

/// The eventfd of one channel, in its endpoint's epoll set. The peer has a copy of the descriptor, so closing ours does
/// not take it out of the set: a former peer could wake us for ever.
#[derive(Debug)]
pub(crate) struct ChannelEvent {
    event: OwnedFd,
    set: Arc<OwnedFd>,
}

impl ChannelEvent {
    pub(crate) fn descriptor(&self) -> &OwnedFd {
        &self.event
    }
}

impl Drop for ChannelEvent {
    fn drop(&mut self) {
        // It is in the set, and the set is open: this cannot fail.
        let _ = rustix::event::epoll::delete(&*self.set, &self.event);
    }
}
