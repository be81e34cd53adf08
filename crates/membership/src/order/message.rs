//! What is said for ordered update: a head by postcard, and behind it, up to the message's end, entries with their bodies.
//!
//! The bodies are not copied when a message is read: the entries say where they lie.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

use comb_types::NodeId;
use serde::{Deserialize, Serialize};

use super::body::Body;
use super::history::Held;
use super::{Level, Progress};
use crate::view::{Member, View, ViewEpoch};
use crate::wire::{PeerError, Protocol, VERSION, protocol};

/// The most that a message adds to the only update in it: an envelope, six numbers of ten bytes, and an entry's own.
pub(super) const MOST_OVERHEAD_BYTES: usize = 128;

/// What a member has, and knows of the others.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub(super) struct Known {
    /// It acknowledges every position up to this.
    pub held: u64,
    /// See [`Progress`].
    pub committed: u64,
    /// See [`Progress`].
    pub stable: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum Head {
    /// To the sequencer: updates of its sender, their numbers without a gap. An acknowledgement rides along.
    Submit { epoch: ViewEpoch, known: Known, first_number: u64 },
    /// From the sequencer to all: updates with their positions, or none, and how far everything is.
    Batch { epoch: ViewEpoch, first: u64, progress: Progress, answer: bool },
    /// To the sequencer.
    Ack { epoch: ViewEpoch, known: Known },
    /// "I lack these." In a view, or on the way into it.
    Fetch { epoch: ViewEpoch, first: u64, last: u64 },
    /// The answer: updates that may come from older views.
    Copies { epoch: ViewEpoch, first: u64 },
    /// The other answer: "what I keep begins here".
    Trimmed { epoch: ViewEpoch, first: u64 },
}

impl Head {
    pub(super) fn epoch(&self) -> ViewEpoch {
        match *self {
            Self::Submit { epoch, .. }
            | Self::Batch { epoch, .. }
            | Self::Ack { epoch, .. }
            | Self::Fetch { epoch, .. }
            | Self::Copies { epoch, .. }
            | Self::Trimmed { epoch, .. } => epoch,
        }
    }

    /// Writes the message, without entries.
    pub(super) fn write(&self) -> Vec<u8> {
        append(alloc::vec![VERSION, Protocol::Order as u8], self)
    }

    /// Writes the message with entries behind its head.
    pub(super) fn write_with(&self, entries: &[u8]) -> (Arc<[u8]>, usize) {
        let mut bytes = Vec::with_capacity(MOST_OVERHEAD_BYTES + entries.len());
        bytes.extend([VERSION, Protocol::Order as u8]);
        bytes = append(bytes, self);
        let head_bytes = bytes.len();
        bytes.extend_from_slice(entries);
        (bytes.into(), head_bytes)
    }

    /// Reads the head; where the entries begin is said too.
    pub(super) fn read(from: NodeId, bytes: &[u8]) -> Result<(Self, usize), PeerError> {
        if protocol(from, bytes)? != Protocol::Order {
            return Err(PeerError::new(from, "a message of another protocol"));
        }
        let (head, entries) = postcard::take_from_bytes(&bytes[2..])
            .map_err(|_| PeerError::new(from, "a message that cannot be read"))?;
        let has_entries = matches!(head, Self::Submit { .. } | Self::Batch { .. } | Self::Copies { .. });
        if !entries.is_empty() && !has_entries {
            return Err(PeerError::new(from, "a message with something behind it"));
        }
        Ok((head, bytes.len() - entries.len()))
    }
}

impl fmt::Display for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let epoch = self.epoch();
        match self {
            Self::Submit { known, first_number, .. } => {
                write!(f, "{epoch}: my updates from number {first_number}; I hold {}", known.held)
            }
            Self::Batch { first, progress, .. } => {
                let Progress { committed, stable, last, .. } = progress;
                write!(
                    f,
                    "{epoch}: positions from {first}; committed {committed}, held by all {stable}, last {last}"
                )
            }
            Self::Ack { known, .. } => write!(f, "{epoch}: I hold {}", known.held),
            Self::Fetch { first, last, .. } => write!(f, "{epoch}: I lack {first} to {last}"),
            Self::Copies { first, .. } => write!(f, "{epoch}: copies from {first}"),
            Self::Trimmed { first, .. } => write!(f, "{epoch}: I keep nothing before {first}"),
        }
    }
}

/// In a [`Head::Submit`].
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(super) struct Submitted<'a> {
    pub level: Level,
    pub body: &'a [u8],
}

/// In a [`Head::Batch`]. The sender is its place among the members of the view: shorter than its name.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(super) struct Ordered<'a> {
    pub place: u32,
    pub number: u64,
    pub body: &'a [u8],
}

/// In [`Head::Copies`], and in the log.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(super) struct Copied<'a> {
    pub epoch: ViewEpoch,
    pub sender: Member,
    pub number: u64,
    pub body: &'a [u8],
}

/// Writes one more entry, or any other part of a message.
pub(super) fn append<T: Serialize>(bytes: Vec<u8>, part: &T) -> Vec<u8> {
    postcard::to_extend(part, bytes).expect("our own messages can be written")
}

/// Reads all entries from `start` on. `entry` is given each, and where its body lies.
fn read_entries<'a, T: Deserialize<'a>>(
    from: NodeId,
    message: &'a [u8],
    start: usize,
    body_bytes: impl Fn(&T) -> usize,
    mut entry: impl FnMut(T, Range<usize>) -> Result<(), PeerError>,
) -> Result<(), PeerError> {
    let mut rest = &message[start..];
    while !rest.is_empty() {
        let (read, behind) = postcard::take_from_bytes::<T>(rest)
            .map_err(|_| PeerError::new(from, "an entry that cannot be read"))?;
        let end = message.len() - behind.len();
        let place = end - body_bytes(&read)..end;
        entry(read, place)?;
        rest = behind;
    }
    Ok(())
}

pub(super) fn read_submitted(
    from: NodeId,
    message: &Arc<[u8]>,
    start: usize,
) -> Result<Vec<(Level, Body)>, PeerError> {
    let mut all = Vec::new();
    read_entries(
        from,
        message,
        start,
        |entry: &Submitted<'_>| entry.body.len(),
        |entry, place| {
            all.push((entry.level, Body::within(message, place)));
            Ok(())
        },
    )?;
    Ok(all)
}

pub(super) fn read_ordered(
    from: NodeId,
    view: &View,
    message: &Arc<[u8]>,
    start: usize,
) -> Result<Vec<Held>, PeerError> {
    let mut all = Vec::new();
    read_entries(
        from,
        message,
        start,
        |entry: &Ordered<'_>| entry.body.len(),
        |entry, place| {
            let sender = view.members.get(entry.place as usize);
            let &sender = sender.ok_or(PeerError::new(from, "an update from nobody"))?;
            let body = Body::within(message, place);
            all.push(Held { epoch: view.epoch, sender, number: entry.number, body });
            Ok(())
        },
    )?;
    Ok(all)
}

pub(super) fn read_copied(from: NodeId, message: &Arc<[u8]>, start: usize) -> Result<Vec<Held>, PeerError> {
    let mut all = Vec::new();
    read_entries(
        from,
        message,
        start,
        |entry: &Copied<'_>| entry.body.len(),
        |entry, place| {
            let body = Body::within(message, place);
            all.push(Held { epoch: entry.epoch, sender: entry.sender, number: entry.number, body });
            Ok(())
        },
    )?;
    Ok(all)
}
