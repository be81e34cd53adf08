//! What a frame looks like on the wire.

use super::PeerError;
use comb_types::Version;

/// Bytes in front of each piece of a message:
///
/// | bytes | content |
/// |---|---|
/// | 0 | version |
/// | 1 | flags: 1 = a piece of a message follows, 2 = send again from the acknowledged number, 4 = the message goes on in the
/// next piece |
/// | 2–3 | zero |
/// | 4–7 | sequence number of the piece, zero without one |
/// | 8–11 | acknowledged: the number expected next |
///
/// Numbers are little-endian.
pub const HEADER_BYTES: usize = 12;

const MESSAGE: u8 = 1;
const RESEND: u8 = 2;
const MORE: u8 = 4;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Header {
    /// `None`: the frame came only to acknowledge.
    pub(super) sequence: Option<u32>,
    pub(super) acknowledged: u32,
    /// The other end saw a gap, or has room again: do not wait for the timer.
    pub(super) resend: bool,
    /// The message goes on in the next piece.
    pub(super) more: bool,
}

impl Header {
    /// Writes a frame and returns its length.
    pub(super) fn write(self, piece: &[u8], into: &mut [u8]) -> usize {
        let end = HEADER_BYTES + piece.len();
        let flags = if self.sequence.is_some() { MESSAGE } else { 0 }
            | if self.resend { RESEND } else { 0 }
            | if self.more { MORE } else { 0 };
        into[..4].copy_from_slice(&[Version::CURRENT.0, flags, 0, 0]);
        into[4..8].copy_from_slice(&self.sequence.unwrap_or(0).to_le_bytes());
        into[8..12].copy_from_slice(&self.acknowledged.to_le_bytes());
        into[HEADER_BYTES..end].copy_from_slice(piece);
        end
    }

    /// Takes a frame apart. Nothing is known of its numbers yet but that they are numbers.
    pub(super) fn read(bytes: &[u8]) -> Result<(Header, &[u8]), PeerError> {
        let Some((header, piece)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
            return Err(PeerError::Truncated { bytes: bytes.len() });
        };
        let [version, flags, 0, 0, s0, s1, s2, s3, a0, a1, a2, a3] = *header else {
            return Err(PeerError::ReservedBits);
        };
        Version::CURRENT.accept(Version(version)).map_err(PeerError::Version)?;
        let sequence = u32::from_le_bytes([s0, s1, s2, s3]);
        let (has_message, more) = (flags & MESSAGE != 0, flags & MORE != 0);
        let meaningless = flags & !(MESSAGE | RESEND | MORE) != 0;
        if meaningless || (!has_message && (more || sequence != 0 || !piece.is_empty())) {
            return Err(PeerError::ReservedBits);
        }
        let header = Header {
            sequence: has_message.then_some(sequence),
            acknowledged: u32::from_le_bytes([a0, a1, a2, a3]),
            resend: flags & RESEND != 0,
            more,
        };
        Ok((header, piece))
    }
}
