//! The part of a frame that everyone can read.

use comb_types::ChannelId;

/// Bytes in front of the payload.
pub const HEADER_BYTES: usize = 16;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Header {
    pub(super) version: u8,
    pub(super) suite: u8,
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) channel: ChannelId,
    pub(super) counter: u64,
}

impl Header {
    pub(super) fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&[self.version, self.suite, self.kind, self.flags]);
        bytes[4..8].copy_from_slice(&self.channel.0.to_le_bytes());
        bytes[8..].copy_from_slice(&self.counter.to_le_bytes());
        bytes
    }

    pub(super) fn from_bytes(bytes: &[u8; HEADER_BYTES]) -> Header {
        let [version, suite, kind, flags, t0, t1, t2, t3, c0, c1, c2, c3, c4, c5, c6, c7] = *bytes;
        Header {
            version,
            suite,
            kind,
            flags,
            channel: ChannelId(u32::from_le_bytes([t0, t1, t2, t3])),
            counter: u64::from_le_bytes([c0, c1, c2, c3, c4, c5, c6, c7]),
        }
    }
}

/// The channel that a frame says it belongs to, to find its [`Opener`](super::Opener); `None` if it is too
/// short to say. Nothing is proved by it.
pub fn channel_of(frame: &[u8]) -> Option<ChannelId> {
    frame.first_chunk().map(|header| Header::from_bytes(header).channel)
}
