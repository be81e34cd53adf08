//! Direct access: the sender names an offset in a window that the receiver made for it. (Thesis §2.3.6)
//!
//! A window is memory of its owner that one peer has mapped. A put is a copy into it, a get a copy out of it; the
//! owner takes no part, and neither does the agent after it handed the memory over. What the thesis found hard, an MMU
//! in the network interface, is here the process's own: the peer's mapping.
//!
//! **A window trusts its peer with the window's bytes and with nothing else.** What stands there is an allegation, and
//! it can change at any time: the owner reads it by copies, never through a reference. A window's size is sealed, so
//! that neither side can make the other fault.
//!
//! **Withdrawing.** Each window has an epoch word in its owner's control words: the window's epoch while it is open,
//! 0 afterwards. Every put and get looks at it first. A put that looked just before the owner withdrew lands in memory
//! that nobody reads any more; it can neither fault nor reach a later window of the same number, which is other memory
//! and has another epoch.
//!
//! [`own`] is the owner's side, [`remote`] the peer's.

mod notice;
mod own;
mod remote;

use std::os::fd::OwnedFd;

use crate::agent::RequestError;
use crate::agent::protocol::WindowTerms;
use crate::endpoint::{ChannelEnded, PostError};
use crate::segment::{Segment, SegmentError, SharedRange, Writers};
use crate::sync::{Ordering, Words};

pub use notice::PutNotice;
pub(crate) use own::Book;
pub use own::Window;
pub use remote::RemoteWindow;

/// What a window's peer may do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Put. And get: no MMU lets write what it does not let read.
    Put,
    /// Get only. The kernel refuses the peer any writable mapping. It also refuses the owner to give the memory back
    /// before both have let go of it: what the peer got before a withdrawal it may keep.
    Get,
}

impl Access {
    fn writers(self) -> Writers {
        match self {
            Self::Put => Writers::Both,
            Self::Get => Writers::Maker,
        }
    }
}

/// A window that a peer shares, as it comes through the agent.
#[derive(Debug)]
pub(crate) struct IncomingWindow {
    pub(crate) terms: WindowTerms,
    pub(crate) memory: OwnedFd,
}

/// Why there is no window. Nothing changed.
#[derive(Debug, thiserror::Error)]
pub enum WindowError {
    /// Ours: such a channel is not, or no longer, on this endpoint.
    #[error("there is no such channel on this endpoint (any more)")]
    NoChannel,
    /// Ours: the channel's peer is on another machine.
    #[error("the channel to {0} does not run over shared memory: windows need a peer on this machine")]
    NotLocal(String),
    /// Ours: a window without bytes.
    #[error("a window has at least one byte")]
    Empty,
    /// Ours: every number is in use.
    #[error("the channel has all of its {0} windows: withdraw one first")]
    NoNumber(usize),
    /// Ours: the window is open to this peer already.
    #[error("the window is open to {0} already")]
    OpenAlready(String),
    /// The peer shared none in time.
    #[error("{peer} shared no such window within {limit:?}: it makes one with Endpoint::make_window")]
    NoneCame {
        /// Who.
        peer: String,
        /// How long we waited.
        limit: std::time::Duration,
    },
    /// The peer is gone.
    #[error(transparent)]
    Ended(#[from] ChannelEnded),
    /// The agent did not hand it over: a limit, or it is away.
    #[error("the window was not handed over: {0}")]
    Request(#[from] RequestError),
    /// The memory could not be made here; or what the peer handed over is not what it said, and was not mapped.
    #[error(transparent)]
    Segment(#[from] SegmentError),
}

/// Why nothing was put, or nothing got.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AccessError {
    /// Ours: beyond the window's end.
    #[error(
        "{bytes} bytes at offset {offset} do not lie within window {window}, which has {window_bytes} bytes"
    )]
    Range {
        /// Its number.
        window: u32,
        /// As asked.
        offset: usize,
        /// As asked.
        bytes: usize,
        /// Its size.
        window_bytes: usize,
    },
    /// Ours: a put into a window that is for gets.
    #[error("window {window} of {peer} is read-only: its owner would have to make one with Access::Put")]
    Direction {
        /// Its number.
        window: u32,
        /// Whose it is.
        peer: String,
    },
    /// The owner withdrew it.
    #[error("{peer} withdrew window {window}: ask it for another, and drop this one")]
    Withdrawn {
        /// Its number.
        window: u32,
        /// Whose it was.
        peer: String,
    },
    /// The owner withdrew it and opened another under its number.
    #[error(
        "window {window} of {peer} is now another one: ours had epoch {ours}, now it is {now}. Take the new one \
         with Endpoint::window_numbered"
    )]
    Stale {
        /// Its number.
        window: u32,
        /// Whose it is.
        peer: String,
        /// The epoch we know.
        ours: u64,
        /// The epoch there is.
        now: u64,
    },
    /// No window is known by this number.
    #[error(
        "no window {0} is open here: take it with Endpoint::window_numbered, or wait until its owner made it"
    )]
    Unknown(u32),
    /// The channel that the window came over is closed or has ended.
    #[error("the channel to {0}, whose window it is, has ended")]
    Ended(String),
}

/// Why a put was not, or not quite, done.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotifyError {
    /// Nothing was put.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// The bytes are in the window, but the owner was not told. [`crate::Endpoint::notify`] tells it later.
    #[error("the bytes were put, but their owner was not told: {0}")]
    Post(#[from] PostError),
}

/// Copies into a window. A put of one aligned word is one store with release ordering: whoever sees it sees what was
/// put before it, which makes such a word a flag or a counter. (Compare Split-C's signalling stores, thesis §2.6)
#[inline]
fn copy_in(
    memory: &Segment,
    offset: usize,
    bytes: &[u8],
    copy: impl FnOnce(&SharedRange<'_>, &[u8]),
) -> Option<()> {
    if let Ok(word) = <[u8; 8]>::try_from(bytes)
        && offset.is_multiple_of(8)
    {
        if offset >= memory.len() || memory.len() - offset < 8 {
            return None;
        }
        memory.word(offset / 8).store(u64::from_le_bytes(word), Ordering::Release);
        return Some(());
    }
    copy(&memory.range(offset, bytes.len())?, bytes);
    Some(())
}

/// Copies out of a window; one aligned word by one load with acquire ordering.
#[inline]
fn copy_out(memory: &Segment, offset: usize, into: &mut [u8]) -> Option<()> {
    if into.len() == 8 && offset.is_multiple_of(8) && offset < memory.len() && memory.len() - offset >= 8 {
        into.copy_from_slice(&memory.word(offset / 8).load(Ordering::Acquire).to_le_bytes());
        return Some(());
    }
    memory.range(offset, into.len())?.copy_to(into);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn miri_copies_stay_within_the_memory_at_every_edge() {
        let (memory, _descriptor) = Segment::create("comb-test", 100, Writers::Both).unwrap();
        for (offset, bytes, fits) in [
            (0, 100, true),
            (1, 100, false),
            (92, 8, true),
            (96, 8, false),
            (104, 8, false),
            (100, 0, true),
            (101, 0, false),
            (usize::MAX, 1, false),
            (usize::MAX - 7, 8, false),
        ] {
            assert_eq!(
                copy_in(&memory, offset, &vec![7; bytes], |to, bytes| to.copy_from(bytes)).is_some(),
                fits,
                "put {bytes} at {offset}"
            );
            let got = copy_out(&memory, offset, &mut vec![0; bytes]).is_some();
            assert_eq!(got, fits, "get {bytes} at {offset}");
        }
    }

    #[test]
    fn miri_what_is_copied_in_comes_out_at_every_alignment() {
        let (memory, _descriptor) = Segment::create("comb-test", 256, Writers::Both).unwrap();
        for offset in 0..24 {
            for bytes in [1, 7, 8, 9, 16, 63, 64, 200] {
                let data: Vec<u8> = (0..bytes).map(|i| u8::try_from(i % 251).unwrap() ^ 0x5A).collect();
                copy_in(&memory, offset, &data, |to, bytes| to.copy_from(bytes)).unwrap();
                let mut back = vec![0; bytes];
                copy_out(&memory, offset, &mut back).unwrap();
                assert_eq!(back, data, "{bytes} at {offset}");
            }
        }
    }
}
