//! The message that tells a window's owner what was put.

use crate::kinds;

/// What a peer says that it put. An allegation: [`crate::Window::check`] says whether it can be true.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PutNotice {
    /// The window's number on the channel that the notice came over.
    pub window: u32,
    /// Which window of that number.
    pub epoch: u64,
    /// Where.
    pub offset: u64,
    /// How much.
    pub bytes: u64,
}

/// Four little-endian words: number, epoch, offset, bytes.
const NOTICE_BYTES: usize = 32;

impl PutNotice {
    /// The notice in a received message; `None` if it is another kind of message, or not whole.
    pub fn decode(kind: u8, content: &[u8]) -> Option<Self> {
        let content: &[u8; NOTICE_BYTES] = content.try_into().ok()?;
        if kind != kinds::PUT_NOTICE {
            return None;
        }
        let (words, _) = content.as_chunks::<8>();
        let [window, epoch, offset, bytes] = [0, 1, 2, 3].map(|index| u64::from_le_bytes(words[index]));
        Some(Self { window: u32::try_from(window).ok()?, epoch, offset, bytes })
    }

    pub(super) fn encode(&self) -> [u8; NOTICE_BYTES] {
        let mut content = [0; NOTICE_BYTES];
        let words = [u64::from(self.window), self.epoch, self.offset, self.bytes];
        for (chunk, word) in content.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *chunk = word.to_le_bytes();
        }
        content
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_notice_survives_its_way(window in any::<u32>(), epoch in any::<u64>(), offset in any::<u64>()) {
            let notice = PutNotice { window, epoch, offset, bytes: 9 };
            prop_assert_eq!(PutNotice::decode(kinds::PUT_NOTICE, &notice.encode()), Some(notice));
            prop_assert_eq!(PutNotice::decode(0, &notice.encode()), None);
        }

        #[test]
        fn no_bytes_do_harm(kind in any::<u8>(), content in prop::collection::vec(any::<u8>(), 0..70)) {
            let _ = PutNotice::decode(kind, &content);
        }
    }
}
