//! A door between an event and who waits for it.

use std::os::fd::OwnedFd;

use rustix::event::epoll;

/// What the thread that attends waits for instead of an event: sockets are readable whether or not anybody drives, and it must not be woken by
/// what others are about to take. It is a set with the event in it, which says so once after it was opened.
pub(crate) struct Gate {
    pub(crate) set: OwnedFd,
    event: OwnedFd,
}

impl Gate {
    pub(crate) fn before(event: &OwnedFd) -> std::io::Result<Self> {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let event = event.try_clone()?;
        epoll::add(&set, &event, epoll::EventData::new_u64(0), epoll::EventFlags::empty())?;
        Ok(Self { set, event })
    }

    /// Says once that there is something, or as soon as there is.
    pub(crate) fn open(&self) {
        self.change(epoll::EventFlags::IN | epoll::EventFlags::ONESHOT);
    }

    pub(crate) fn close(&self) {
        self.change(epoll::EventFlags::empty());
    }

    fn change(&self, flags: epoll::EventFlags) {
        let changed = epoll::modify(&self.set, &self.event, epoll::EventData::new_u64(0), flags);
        debug_assert!(changed.is_ok(), "it is in the set");
    }
}
