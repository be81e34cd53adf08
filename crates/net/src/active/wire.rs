//! How active messages look on a channel.
//!
//! Every message begins with one word: the handler's (or region's) number, how many requests of the peer this message
//! also acknowledges, how many argument words follow, and flags. Arguments and data come after it, little endian. A
//! request with four arguments and nothing else is 40 bytes and goes into one slot, one cache line.

use crate::kinds;
use crate::ring::Breach;

/// Calls a request handler.
pub(super) const REQUEST: u8 = *kinds::ACTIVE.start();
/// Completes a request, and calls a reply handler.
pub(super) const REPLY: u8 = REQUEST + 1;
/// Completes requests that got no reply.
pub(super) const ACKNOWLEDGEMENT: u8 = REQUEST + 2;
/// A fragment of a block, for a region.
pub(super) const STORE: u8 = REQUEST + 3;
/// Asks for a fragment of a region.
pub(super) const GET: u8 = REQUEST + 4;
/// Brings it; completes the asking request.
pub(super) const GOT: u8 = REQUEST + 5;

/// Argument words of one message: "up to four words of arguments".
pub const ARGUMENTS: usize = 4;

/// The first word.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Head {
    /// Handler or region.
    pub(super) number: u16,
    /// Requests of the receiver that this message completes, besides the one that a reply answers.
    pub(super) completes: u16,
    pub(super) arguments: u8,
    /// Of a store: no fragment follows.
    pub(super) last: bool,
}

impl Head {
    #[inline]
    pub(super) fn pack(self) -> u64 {
        u64::from(self.number)
            | u64::from(self.completes) << 16
            | u64::from(self.arguments) << 32
            | u64::from(self.last) << 40
    }

    /// Handler and arguments, if that is all that is said, as in nearly every message.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "fields of one word, cut out on purpose")]
    pub(super) fn unpack_plain(word: u64) -> Option<(u16, u8)> {
        let (number, arguments) = (word as u16, (word >> 32) as u8);
        let is_plain = word & !0xFF_0000_FFFF == 0 && usize::from(arguments) <= ARGUMENTS;
        is_plain.then_some((number, arguments))
    }

    /// Checks that nothing else is set and that no more arguments are alleged than there can be.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "fields of one word, cut out on purpose")]
    pub(super) fn unpack(word: u64) -> Result<Self, Breach> {
        if word >> 41 != 0 {
            return Err(Breach::Form("an active message has bits set that mean nothing"));
        }
        let head = Self {
            number: word as u16,
            completes: (word >> 16) as u16,
            arguments: (word >> 32) as u8,
            last: word >> 40 & 1 != 0,
        };
        if usize::from(head.arguments) > ARGUMENTS {
            return Err(Breach::Form("an active message has more than four arguments"));
        }
        Ok(head)
    }
}

/// A message that is to be sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message<'a> {
    pub(super) kind: u8,
    pub(super) head: Head,
    pub(super) words: &'a [u64],
    pub(super) data: &'a [u8],
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_first_word_means_one_thing_or_nothing(word in any::<u64>()) {
            if let Ok(head) = Head::unpack(word) {
                prop_assert_eq!(head.pack(), word);
            } else {
                prop_assert_eq!(Head::unpack_plain(word), None);
            }
        }

        #[test]
        fn what_is_packed_is_unpacked(
            number: u16,
            completes in prop_oneof![Just(0), Just(1), any::<u16>()],
            arguments in 0..=4_u8,
            last: bool,
        ) {
            let head = Head { number, completes, arguments, last };
            prop_assert_eq!(Head::unpack(head.pack()), Ok(head));
            let plain = (completes == 0 && !last).then_some((number, arguments));
            prop_assert_eq!(Head::unpack_plain(head.pack()), plain);
        }
    }
}
