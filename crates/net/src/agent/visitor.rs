//! Somebody from another host at the door.

use std::os::fd::OwnedFd;
use std::sync::mpsc;

use super::policy::Identity;
use super::protocol::RemoteSession;

/// An endpoint that sleeps looks around every 100 ms, and four looks belong to a silence.
pub(crate) const SHORTEST_SILENCE_MS: u32 = 400;

/// A connected socket, and what was agreed for it.
pub(super) type Line = (RemoteSession, OwnedFd);

/// Who wants a channel to one of our processes.
#[derive(Debug)]
pub(super) struct Visitor {
    pub(super) host: String,
    pub(super) from: Identity,
    pub(super) from_endpoint: String,
    pub(super) to: String,
    pub(super) line: Line,
    pub(super) answer: mpsc::Sender<Result<(), String>>,
}
