//! What a replay does: the operations of a trace, as far as they can be done again.

use super::descriptors::SlotId;
use super::order::At;
use crate::Operation;

/// A path below the sandbox, as an index of [`Plan::paths`](super::Plan).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct PathId(pub(super) u32);

/// Where in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Where {
    /// At its position, which was this one.
    Position(u64),
    /// There, and its position stays.
    Given(u64),
}

impl Where {
    pub(super) const fn offset(self) -> u64 {
        match self {
            Self::Position(offset) | Self::Given(offset) => offset,
        }
    }
}

/// What is done. No action holds anything that was in a file: a trace does not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Action {
    /// Opens a file; without a slot it is closed again, for the trace's open failed.
    Open {
        path: PathId,
        slot: Option<SlotId>,
        flags: u32,
        mode: u32,
    },
    /// Opens one that was open before anybody looked.
    Adopt {
        path: PathId,
        slot: SlotId,
    },
    /// Makes what somebody made whom the trace does not show.
    Appear {
        path: PathId,
        is_directory: bool,
        size: u64,
    },
    /// Another hold of a file that is open, to touch its pages by.
    Map {
        slot: SlotId,
        of: SlotId,
    },
    Close(SlotId),
    /// There are other descriptors for it.
    KeepOpen,
    Read {
        slot: SlotId,
        bytes: u64,
        at: Where,
    },
    Write {
        slot: SlotId,
        bytes: u64,
        at: Where,
    },
    /// Reads pages, as a touch of mapped memory does.
    Touch {
        slot: SlotId,
        bytes: u64,
        offset: u64,
    },
    /// From where it was then, if that matters.
    Seek {
        slot: SlotId,
        whence: u8,
        offset: i64,
        from: Option<u64>,
    },
    List {
        slot: SlotId,
        bytes: u64,
    },
    Status(PathId),
    StatusOfOpen(SlotId),
    Access(PathId),
    ReadLink(PathId),
    Touched(PathId),
    TouchedOpen(SlotId),
    FileSystem,
    Rename {
        from: PathId,
        to: PathId,
        flags: u32,
    },
    Delete(PathId),
    Link {
        from: PathId,
        to: PathId,
    },
    SymbolicLink(PathId),
    Make(PathId),
    MakeDirectory(PathId),
    RemoveDirectory(PathId),
    Truncate {
        path: PathId,
        bytes: u64,
    },
    TruncateOpen {
        slot: SlotId,
        bytes: u64,
    },
    Allocate {
        slot: SlotId,
        mode: u32,
        offset: u64,
        bytes: u64,
    },
    Lock {
        slot: SlotId,
        operation: u32,
    },
    Sync(SlotId),
    SyncAll,
    Advise {
        slot: SlotId,
        advice: u32,
        offset: u64,
        bytes: u64,
    },
    Duplicate(SlotId),
}

/// An operation of the trace that is done again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Step {
    pub(super) operation: Operation,
    pub(super) action: Action,
    /// Whether it is the trace's own, and not one that another needs.
    pub(super) is_recorded: bool,
    pub(super) process: u32,
    /// When it began, from the first one on.
    pub(super) start_ns: u64,
    /// What the trace's call returned.
    pub(super) result: i64,
    /// Where it stands in the trace.
    pub(super) number: u64,
    /// For whom it waits.
    pub(super) after: Box<[At]>,
}

impl Action {
    /// The open file that it is done with.
    pub(super) const fn slot(self) -> Option<SlotId> {
        match self {
            Self::Open { slot, .. } => slot,
            Self::Adopt { slot, .. }
            | Self::Map { slot, .. }
            | Self::Close(slot)
            | Self::Read { slot, .. }
            | Self::Write { slot, .. }
            | Self::Touch { slot, .. }
            | Self::Seek { slot, .. }
            | Self::List { slot, .. }
            | Self::StatusOfOpen(slot)
            | Self::TouchedOpen(slot)
            | Self::TruncateOpen { slot, .. }
            | Self::Allocate { slot, .. }
            | Self::Lock { slot, .. }
            | Self::Sync(slot)
            | Self::Advise { slot, .. }
            | Self::Duplicate(slot) => Some(slot),
            _ => None,
        }
    }

    /// The path that it is done with, if it is done with one.
    pub(super) const fn path(self) -> Option<PathId> {
        match self {
            Self::Open { path, .. }
            | Self::Adopt { path, .. }
            | Self::Appear { path, .. }
            | Self::Status(path)
            | Self::Access(path)
            | Self::ReadLink(path)
            | Self::Touched(path)
            | Self::Rename { from: path, .. }
            | Self::Delete(path)
            | Self::Link { to: path, .. }
            | Self::SymbolicLink(path)
            | Self::Make(path)
            | Self::MakeDirectory(path)
            | Self::RemoveDirectory(path)
            | Self::Truncate { path, .. } => Some(path),
            _ => None,
        }
    }

    /// Whether as many bytes must come of it as did then. What a directory's list holds depends on the file system; the rest has no bytes.
    pub(super) const fn has_bytes(self) -> bool {
        match self {
            Self::Read { .. } | Self::Write { .. } => true,
            // Where holes are depends on the file system.
            Self::Seek { whence, .. } => whence < 3,
            _ => false,
        }
    }
}
