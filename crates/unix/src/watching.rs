//! A thread that wakes the emulator when something comes from another cell while programs run: who listens to a bell does not hear a socket.

use comb_kernel::thread::{MOST_RINGERS, Ringer};
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// If a thread has this number, it is looked at in vain.
const NOBODY: u32 = MOST_RINGERS - 1;

/// Watches until it is dropped.
#[derive(Debug)]
pub(crate) struct Watch {
    watched: Arc<OwnedFd>,
    /// The thread ends when the other end of this is closed.
    _end: std::io::PipeWriter,
}

impl Watch {
    /// Watches nothing yet, and will ring this bell.
    pub(crate) fn new(bell: Ringer) -> Result<Self, Errno> {
        let watched = Arc::new(epoll::create(CreateFlags::CLOEXEC)?);
        let failed = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
        let (end, own) = std::io::pipe().map_err(failed)?;
        epoll::add(&*watched, &end, EventData::new_u64(1), EventFlags::HUP)?;
        let watching = Arc::clone(&watched);
        let watch = move || {
            let _end = end;
            let mut events = [const { std::mem::MaybeUninit::<Event>::uninit() }; 1];
            loop {
                match epoll::wait(&*watching, &mut events, None) {
                    Ok((events, _)) if events.iter().all(|event| event.data.u64() == 0) => bell.ring(NOBODY),
                    Err(Errno::INTR) => {}
                    _ => return,
                }
            }
        };
        std::thread::Builder::new().name("watch".to_owned()).spawn(watch).map_err(failed)?;
        Ok(Self { watched, _end: own })
    }

    /// Watches this, too: it knocks once for whatever comes, not for what is left there.
    pub(crate) fn add(&self, descriptor: BorrowedFd<'_>) -> Result<(), Errno> {
        let flags = EventFlags::IN | EventFlags::RDHUP | EventFlags::ET;
        epoll::add(self.watched.as_fd(), descriptor, EventData::new_u64(0), flags)
    }
}
