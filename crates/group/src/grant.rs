//! What a quorum resource keeps: the last epoch that it granted, and to whom.

use std::fmt;

use comb_membership::{Member, ViewEpoch};
use comb_types::{Incarnation, NodeId};

/// A name that says what this is, for whoever finds it.
const FIRST_LINE: &str = "comb quorum 1";

/// The right of one member to go on alone with one epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Grant {
    pub(crate) epoch: ViewEpoch,
    pub(crate) member: Member,
}

/// What becomes of a wish.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    /// It is granted once it is written in the place of what is there.
    Write,
    /// It was granted before.
    Granted,
    /// This epoch, or a later one, was granted to another.
    Refused,
}

impl Grant {
    /// What becomes of this wish, where `kept` is what was granted last, or nothing. None if that cannot be read.
    pub(crate) fn judge(self, kept: &str) -> Option<Answer> {
        if kept.is_empty() {
            return Some(Answer::Write);
        }
        let kept = Self::read(kept)?;
        Some(match () {
            () if kept.epoch < self.epoch => Answer::Write,
            () if kept == self => Answer::Granted,
            () => Answer::Refused,
        })
    }

    fn read(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        if lines.next()? != FIRST_LINE {
            return None;
        }
        let epoch = lines.next()?.strip_prefix("epoch ")?.parse().ok()?;
        let node = lines.next()?.strip_prefix("node ")?.parse().ok()?;
        let incarnation = lines.next()?.strip_prefix("incarnation ")?.parse().ok()?;
        let member = Member { node: NodeId(node), incarnation: Incarnation(incarnation) };
        Some(Self { epoch: ViewEpoch(epoch), member })
    }
}

/// Always of the same length.
impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Member { node, incarnation } = self.member;
        writeln!(f, "{FIRST_LINE}")?;
        writeln!(f, "epoch {:020}\nnode {:010}\nincarnation {:020}", self.epoch.0, node.0, incarnation.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn grant(epoch: u64, node: u32, incarnation: u64) -> Grant {
        let member = Member { node: NodeId(node), incarnation: Incarnation(incarnation) };
        Grant { epoch: ViewEpoch(epoch), member }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again_and_a_later_epoch_alone_takes_its_place(
            kept: (u64, u32, u64), wanted: (u64, u32, u64),
        ) {
            let (kept, wanted) = (grant(kept.0, kept.1, kept.2), grant(wanted.0, wanted.1, wanted.2));
            let text = kept.to_string();
            prop_assert_eq!(kept.judge(&text), Some(Answer::Granted));
            let expected = match () {
                () if kept == wanted => Answer::Granted,
                () if kept.epoch < wanted.epoch => Answer::Write,
                () => Answer::Refused,
            };
            prop_assert_eq!(wanted.judge(&text), Some(expected));
        }

        /// A disk or a stranger may leave anything where a grant is kept. It grants nothing, and nothing is written in its place.
        #[test]
        fn what_is_no_grant_says_nothing(
            kept: (u64, u32, u64), at: prop::sample::Index, byte: u8, cut: prop::sample::Index, is_cut: bool,
        ) {
            let kept = grant(kept.0, kept.1, kept.2);
            let mut bytes = kept.to_string().into_bytes();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            if is_cut {
                bytes.truncate(cut.index(bytes.len()).max(1));
            }
            if let Ok(text) = String::from_utf8(bytes) {
                match Grant::read(&text) {
                    None => prop_assert_eq!(kept.judge(&text), None),
                    // A number has changed, or is shorter.
                    Some(read) => prop_assert_eq!(read.judge(&text), Some(Answer::Granted)),
                }
            }
        }

        #[test]
        fn any_text_is_judged(text: String) {
            prop_assert_eq!(grant(1, 1, 1).judge(&text).is_some(), text.is_empty());
        }
    }
}
