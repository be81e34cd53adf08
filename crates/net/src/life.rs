//! Whether the peer of a channel is still there. Written by the watcher, read by the endpoint when it is idle.

use std::sync::{Mutex, OnceLock, PoisonError};

use crate::ending::Ending;
use crate::ring::Breach;
use crate::window::IncomingWindow;

/// Why a channel ended.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Cause {
    /// The peer's process ended, by itself or killed.
    #[error("its process {0} ended")]
    Exited(u32),
    /// The peer closed, or its agent says that it left.
    #[error("{0}")]
    Left(String),
    /// The peer neither reads nor moves for longer than the endpoint's limit.
    #[error("it has been silent for more than {0:?}")]
    Silent(std::time::Duration),
    /// The peer broke a rule; what it sent is not used.
    #[error("it was cut off: {0}")]
    Breach(#[from] Breach),
}

/// One channel's life.
#[derive(Debug)]
pub(crate) struct Life {
    peer: String,
    ending: Ending<Cause>,
    /// Of a peer on another host whose process has ended, as its agent says.
    last_word: OnceLock<u128>,
    windows: Mutex<Vec<IncomingWindow>>,
}

impl Life {
    pub(crate) fn new(peer: String) -> Self {
        Self { peer, ending: Ending::new(), last_word: OnceLock::new(), windows: Mutex::default() }
    }

    /// `process/endpoint` of the peer.
    pub(crate) fn peer(&self) -> &str {
        &self.peer
    }

    /// To be said before the end is.
    pub(crate) fn leave_word(&self, word: u128) {
        let _ = self.last_word.set(word);
    }

    pub(crate) fn last_word(&self) -> Option<u128> {
        self.last_word.get().copied()
    }

    /// The first cause stays.
    pub(crate) fn end(&self, cause: Cause) {
        self.ending.end(cause);
    }

    #[inline]
    pub(crate) fn has_ended(&self) -> bool {
        self.ending.has_ended()
    }

    pub(crate) fn cause(&self) -> Option<Cause> {
        self.ending.cause()
    }

    /// A window that the peer shares; the endpoint maps it when it is asked to. One that was never asked for makes
    /// place for the next of its number: a peer that shares and withdraws for ever costs us [`crate::shm::WINDOWS`]
    /// descriptors at most.
    pub(crate) fn push_window(&self, window: IncomingWindow) {
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        windows.retain(|older| older.terms.number != window.terms.number);
        windows.push(window);
    }

    /// The oldest window that is `wanted`.
    pub(crate) fn take_window(&self, wanted: impl Fn(&IncomingWindow) -> bool) -> Option<IncomingWindow> {
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        let at = windows.iter().position(wanted)?;
        Some(windows.remove(at))
    }
}
