//! The owner's side of a window: making, reading, withdrawing.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use comb_types::EndpointId;

use super::{Access, AccessError, PutNotice, WindowError, copy_in, copy_out};
use crate::agent::Agent;
use crate::agent::protocol::{Request, WindowTerms};
use crate::channel::ChannelKey;
use crate::endpoint::Endpoint;
use crate::segment::Segment;
use crate::shm::WINDOWS;
use crate::sync::Words;
use crate::withdrawal;

/// The windows that an endpoint has open, also for the watcher, which tells of them to an agent that came back. The epoch
/// words say the same, but a peer can write those: what we do is never decided by what we read there.
#[derive(Debug, Default)]
pub(crate) struct Book {
    entries: Mutex<Entries>,
}

/// A window as the agent knows it, and its memory.
type Open = (WindowTerms, Arc<OwnedFd>);

#[derive(Debug, Default)]
struct Entries {
    /// By their numbers. `None`: a number that is taken, for a window that is not handed over yet.
    open: BTreeMap<(ChannelKey, u32), Option<Open>>,
    last_epoch: u64,
    endpoint: Option<EndpointId>,
}

impl Book {
    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Epochs count up over all windows of the endpoint, so that one names a window without its channel.
    fn next_epoch(&self) -> u64 {
        let mut entries = self.entries();
        entries.last_epoch += 1;
        entries.last_epoch
    }

    fn take_number(&self, channel: ChannelKey) -> Result<u32, WindowError> {
        let mut entries = self.entries();
        let most = u32::try_from(WINDOWS).expect("256");
        let free = (0..most).find(|&number| !entries.open.contains_key(&(channel, number)));
        let number = free.ok_or(WindowError::NoNumber(WINDOWS))?;
        entries.open.insert((channel, number), None);
        Ok(number)
    }

    fn release_number(&self, channel: ChannelKey, number: u32) {
        self.entries().open.remove(&(channel, number));
    }

    fn open(&self, channel: ChannelKey, terms: WindowTerms, descriptor: Arc<OwnedFd>) {
        self.entries().open.insert((channel, terms.number), Some((terms, descriptor)));
    }

    /// The endpoint's number with the agent, which changes when that comes back.
    pub(crate) fn set_endpoint(&self, endpoint: EndpointId) {
        self.entries().endpoint = Some(endpoint);
    }

    /// The terms of a window by the endpoint's present number.
    fn present_terms(&self, terms: WindowTerms) -> WindowTerms {
        WindowTerms { endpoint: self.entries().endpoint.unwrap_or(terms.endpoint), ..terms }
    }

    /// All windows, with their memory.
    pub(crate) fn all(&self) -> Vec<Open> {
        self.entries().open.values().flatten().cloned().collect()
    }

    /// Whether that window is still open. By its epoch, which no other one ever has.
    pub(crate) fn has(&self, terms: &WindowTerms) -> bool {
        let is_it = |open: &WindowTerms| {
            (open.channel, open.number, open.epoch) == (terms.channel, terms.number, terms.epoch)
        };
        self.entries().open.values().flatten().any(|(open, _)| is_it(open))
    }
}

/// Memory of ours that a peer may put into or get from. It stays open as long as this handle lives, or until
/// [`Window::withdraw`].
///
/// The peer may write a [`Access::Put`] window at any time: what is read is an allegation, to be checked after it was
/// copied.
#[derive(Debug)]
pub struct Window {
    memory: Segment,
    descriptor: Arc<OwnedFd>,
    access: Access,
    epoch: u64,
    openings: Vec<Opening>,
    book: Arc<Book>,
    agent: Agent,
}

/// To one peer.
#[derive(Debug)]
struct Opening {
    channel: ChannelKey,
    terms: WindowTerms,
    epoch_word: Segment,
}

impl Window {
    /// Its number on the channel that it was made for: what the peer takes it by.
    pub fn number(&self) -> u32 {
        self.openings.first().map_or(0, |opening| opening.terms.number)
    }

    /// Its number on a channel; `None` if it is not open to that peer.
    pub fn number_on(&self, channel: ChannelKey) -> Option<u32> {
        self.opening(channel).map(|opening| opening.terms.number)
    }

    fn opening(&self, channel: ChannelKey) -> Option<&Opening> {
        self.openings.iter().find(|opening| opening.channel == channel)
    }

    /// Its epoch: no other window of this endpoint ever has the same.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// What its peers may do.
    pub fn access(&self) -> Access {
        self.access
    }

    /// Its size in bytes.
    pub fn len(&self) -> usize {
        self.memory.len()
    }

    /// Never: a window has at least one byte.
    pub fn is_empty(&self) -> bool {
        self.memory.len() == 0
    }

    /// Copies out of the window. Eight bytes at a multiple of eight are read at once; anything else may be a mixture of
    /// old and new where the peer writes meanwhile.
    #[inline]
    pub fn read(&self, offset: usize, into: &mut [u8]) -> Result<(), AccessError> {
        copy_out(&self.memory, offset, into).ok_or_else(|| self.out_of_range(offset, into.len()))
    }

    /// Copies into the window; eight bytes at a multiple of eight at once, and after all that was written before.
    #[inline]
    pub fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), AccessError> {
        copy_in(&self.memory, offset, bytes, |to, bytes| to.copy_from(bytes))
            .ok_or_else(|| self.out_of_range(offset, bytes.len()))
    }

    /// The little-endian word at an offset: for flags and counters.
    #[inline]
    pub fn word(&self, offset: usize) -> Result<u64, AccessError> {
        let mut word = [0; 8];
        self.read(offset, &mut word)?;
        Ok(u64::from_le_bytes(word))
    }

    #[cold]
    fn out_of_range(&self, offset: usize, bytes: usize) -> AccessError {
        AccessError::Range { window: self.number(), offset, bytes, window_bytes: self.memory.len() }
    }

    /// Whether a notice that came over `channel` can be true of this window: its number, its epoch, its range. What was
    /// put is still to be read and checked.
    pub fn check(&self, channel: ChannelKey, notice: &PutNotice) -> Result<(), AccessError> {
        let opening = self.opening(channel).filter(|opening| opening.terms.number == notice.window);
        let opening = opening.ok_or(AccessError::Unknown(notice.window))?;
        if notice.epoch != opening.terms.epoch {
            return Err(AccessError::Unknown(notice.window));
        }
        let (offset, bytes) = (usize::try_from(notice.offset), usize::try_from(notice.bytes));
        let (offset, bytes) = (offset.unwrap_or(usize::MAX), bytes.unwrap_or(usize::MAX));
        match offset.checked_add(bytes) {
            Some(end) if end <= self.memory.len() => Ok(()),
            _ => Err(self.out_of_range(offset, bytes)),
        }
    }

    /// Closes the window: the peer's next put or get fails with [`AccessError::Withdrawn`]. One that is under way lands
    /// in memory that nobody reads. Dropping the handle does the same.
    pub fn withdraw(self) {
        drop(self);
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // The epochs first: who sees the memory emptied must not take it for a window's content.
        for opening in &self.openings {
            withdrawal::withdraw(opening.epoch_word.word(0));
        }
        if self.access == Access::Put {
            let punched = self.memory.punch(self.descriptor.as_fd());
            debug_assert!(punched.is_ok(), "{punched:?}");
        }
        for Opening { channel, terms, .. } in self.openings.drain(..) {
            // In this order: the agent hears of the next window of this number after it heard of this one's end.
            let window = self.book.present_terms(terms);
            self.agent.shared().tell(&Request::WithdrawWindow { window }, &[]);
            self.book.release_number(channel, terms.number);
        }
    }
}

impl Endpoint {
    /// Makes a window of zeros and hands it to the channel's peer. The agent counts its bytes against this process's
    /// limit until the window is withdrawn.
    pub fn make_window(
        &mut self,
        channel: ChannelKey,
        bytes: usize,
        access: Access,
    ) -> Result<Window, WindowError> {
        let mut window = self.unopened_window(bytes, access)?;
        self.extend_window(&mut window, channel)?;
        Ok(window)
    }

    /// A window that is open to nobody yet.
    pub(crate) fn unopened_window(&self, bytes: usize, access: Access) -> Result<Window, WindowError> {
        if bytes == 0 {
            return Err(WindowError::Empty);
        }
        let (memory, descriptor) = Segment::create("comb-window", bytes, access.writers())?;
        Ok(Window {
            memory,
            descriptor: Arc::new(descriptor),
            access,
            epoch: self.windows.next_epoch(),
            openings: Vec::new(),
            book: Arc::clone(&self.windows),
            agent: self.agent.clone(),
        })
    }

    /// Opens a window to one more peer, which from then on shares its bytes, and its mistakes, with the others: for the
    /// components of one task, which fail together. Strangers get a window each. The agent counts the bytes once more.
    pub fn extend_window(&mut self, window: &mut Window, channel: ChannelKey) -> Result<(), WindowError> {
        let found = self.channel(channel).ok_or(WindowError::NoChannel)?;
        let peer = || found.peer().to_owned();
        if window.opening(channel).is_some() {
            return Err(WindowError::OpenAlready(peer()));
        }
        let link = found.shm().ok_or_else(|| WindowError::NotLocal(peer()))?;
        let number = self.windows.take_number(channel)?;
        let terms = WindowTerms {
            channel: found.id(),
            endpoint: self.shared.id(),
            number,
            epoch: window.epoch,
            bytes: window.memory.len() as u64,
            writable: window.access == Access::Put,
        };
        let epoch_word = link.window_epoch(number);
        // Open before the peer can have it, so that it never takes a fresh window for a withdrawn one.
        withdrawal::open(epoch_word.word(0), window.epoch);
        // In the book before the agent has it: an agent that comes back is told of all that another knew.
        self.windows.open(channel, terms, Arc::clone(&window.descriptor));
        if let Err(error) = self.agent.shared().share_window(terms, window.descriptor.as_fd()) {
            withdrawal::withdraw(epoch_word.word(0));
            self.windows.release_number(channel, number);
            return Err(error.into());
        }
        window.openings.push(Opening { channel, terms, epoch_word });
        Ok(())
    }
}
