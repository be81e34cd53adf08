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
