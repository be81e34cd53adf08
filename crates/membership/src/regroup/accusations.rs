//! Who has raised a false alarm, and of whom.
//!
//! A cell that "broadcasts the same alert twice but is voted down … both times is considered corrupt" (Hive §4.3): a detector that is
//! broken would else stop everybody again and again. An alarm was false if both its source and its subject are in the view that follows.
//! After the second of the same subject, that member's word about it counts no more for a while, neither here nor with itself; about
//! others it does, and nobody leaves for it. Another life of either begins anew. It is for a while because sound detectors err, too, if
//! seldom: were it for ever, in the end nobody would be heard.

use core::time::Duration;

use comb_types::NodeId;

use super::{Regroup, Strength};
use crate::view::{Member, View};

/// After so many false alarms of one member about one other, the next is not heard.
const MOST_FALSE_ALARMS: u8 = 2;
/// What lies further back than this counts no more.
const FORGIVEN_AFTER: Duration = Duration::from_secs(600);

impl Regroup {
    /// A member says something bad of another. Whether anybody should act on it.
    pub(super) fn accuses(&mut self, accuser: NodeId, accused: NodeId) -> bool {
        self.accusations.insert((accuser, accused));
        let count = |(one, other): (NodeId, NodeId)| {
            let pair = (self.view.member(one)?, self.view.member(other)?);
            let &(count, last) = self.false_alarms.get(&pair)?;
            (self.now.since(last) < FORGIVEN_AFTER).then_some(count)
        };
        count((accuser, accused)).is_none_or(|count| count < MOST_FALSE_ALARMS)
    }

    /// Whether this member's own detector is believed. What it is sure of always counts.
    pub(super) fn trusts_detector(&mut self, accused: NodeId, strength: Strength) -> bool {
        self.accuses(self.me.node, accused) || strength > Strength::Suspected
    }

    /// The view has ended: which alarms were false?
    pub(super) fn count_false_alarms(&mut self, next: &View) {
        let stays = |node: NodeId| {
            let member = self.view.member(node)?;
            (next.member(node) == Some(member)).then_some(member)
        };
        for (accuser, accused) in core::mem::take(&mut self.accusations) {
            if let (Some(accuser), Some(accused)) = (stays(accuser), stays(accused)) {
                let (count, last) = self.false_alarms.entry((accuser, accused)).or_insert((0, self.now));
                let former = if self.now.since(*last) < FORGIVEN_AFTER { *count } else { 0 };
                (*count, *last) = (former.saturating_add(1), self.now);
            }
        }
        let is_member = |member: &Member| next.members.contains(member);
        self.false_alarms.retain(|(accuser, accused), _| is_member(accuser) && is_member(accused));
    }
}
