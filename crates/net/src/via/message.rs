//! What two interfaces say to each other over their channel. All of it is decoded from bytes that a peer wrote.

use super::interface::Reliability;
use crate::kinds;
use crate::payload::Payload;

pub(super) const CONNECT: u8 = *kinds::VIRTUAL_INTERFACE.start();
pub(super) const ACCEPTED: u8 = CONNECT + 1;
pub(super) const REFUSED: u8 = CONNECT + 2;
pub(super) const DATA: u8 = CONNECT + 3;
/// The oldest message that was not acknowledged is in the receiver's memory.
pub(super) const ACKNOWLEDGED: u8 = CONNECT + 4;
/// The sender of this has broken the connection; one byte says why.
pub(super) const BROKEN: u8 = CONNECT + 5;
/// A whole message, without immediate data: its bytes and nothing else, so that up to 56 of them are one slot.
pub(super) const WHOLE: u8 = CONNECT + 6;

/// Of these messages. The channel's own version is agreed on with the agent.
const VERSION: u8 = 2;

/// `CONNECT`: the version and the reliability.
pub(super) fn encode_connect(reliability: Reliability) -> [u8; 2] {
    [VERSION, reliability.code()]
}

pub(super) fn decode_connect(content: &[u8]) -> Result<Reliability, &'static str> {
    match *content {
        [VERSION, code] => Reliability::from_code(code).ok_or("a request of unknown reliability"),
        _ => Err("a request of another version or length"),
    }
}

/// Before the bytes of each fragment of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct DataHeader {
    /// Bytes of the whole message.
    pub(super) total: u32,
    /// Where the fragment belongs.
    pub(super) offset: u32,
    pub(super) immediate: Option<u32>,
    /// The bytes were written into a window before; only the notice comes.
    pub(super) written: bool,
}

pub(super) const DATA_HEADER_BYTES: usize = 16;
const HAS_IMMEDIATE: u32 = 1;
const WRITTEN: u32 = 2;

impl DataHeader {
    pub(super) fn encode(self) -> [u8; DATA_HEADER_BYTES] {
        let flags = u32::from(self.immediate.is_some()) * HAS_IMMEDIATE + u32::from(self.written) * WRITTEN;
        let mut bytes = [0; DATA_HEADER_BYTES];
        let words = [self.total, self.offset, self.immediate.unwrap_or(0), flags];
        for (chunk, word) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(words) {
            *chunk = word.to_le_bytes();
        }
        bytes
    }

    /// The header of a fragment, which stands before its bytes.
    pub(super) fn decode(content: &Payload<'_>) -> Result<Self, &'static str> {
        if content.len() < DATA_HEADER_BYTES {
            return Err("a fragment without a whole header");
        }
        // Copied first, then checked: the peer may be writing the original.
        let mut header = [0; DATA_HEADER_BYTES];
        content.copy_to(&mut header);
        let (words, _) = header.as_chunks::<4>();
        let [total, offset, immediate, flags] = [0, 1, 2, 3].map(|index| u32::from_le_bytes(words[index]));
        if flags > HAS_IMMEDIATE + WRITTEN {
            return Err("a fragment with unknown flags");
        }
        let immediate = (flags & HAS_IMMEDIATE != 0).then_some(immediate);
        Ok(Self { total, offset, immediate, written: flags & WRITTEN != 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn headers_survive_their_way(
            total in any::<u32>(), offset in any::<u32>(), immediate in any::<Option<u32>>(), written: bool,
        ) {
            let header = DataHeader { total, offset, immediate, written };
            let mut message = header.encode().to_vec();
            message.extend(b"rest");
            prop_assert_eq!(DataHeader::decode(&Payload::Private(&message)), Ok(header));
        }

        #[test]
        fn no_bytes_do_harm(content in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = DataHeader::decode(&Payload::Private(&content));
            let _ = decode_connect(&content);
        }
    }
}
