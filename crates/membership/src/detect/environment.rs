//! What the world around the nodes shows of them. (Galaxy §8.5.1, environmental failure detectors)

use alloc::collections::BTreeMap;
use core::time::Duration;

use comb_types::{NodeId, Time};

use super::{Confidence, Kind};

/// [`Notices`] says so often what is still so: often enough for one that was passed over to count before the verdict has forgotten it.
const BETWEEN_SAYINGS: Duration = Duration::from_secs(5);

/// What a plug-in says of a node. It knows nodes, and not which life of one is a member: who drives it does, and what is said of a
/// node that is no member concerns nobody.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Notice {
    /// This speaks for its failure. It counts for half a minute, or until it is said to be over; said again, it counts on. (The end of a
    /// process counts until it is said to be over.)
    Seen {
        /// Whose.
        node: NodeId,
        /// What was seen.
        kind: Kind,
        /// How sure it is.
        confidence: Confidence,
    },
    /// That is so no more: the link is up again, the power is back.
    Over {
        /// Of which node.
        node: NodeId,
        /// What was seen of it before.
        kind: Kind,
    },
}

/// A detector of one kind of device, for instance: errors of ICMP; the state of links; an uninterruptible power supply that runs on
/// its battery; a switch that says by SNMP which port went down.
///
/// It is polled in the thread of the member that it is a part of, often, and must not wait for its device. What is still so it says
/// again, more often than every half a minute: so a plug-in whose device has fallen silent is forgotten. What one plug-in says of a
/// node counts once, by what it is surest of: see `ALGORITHM.md` for what a plug-in that errs can do.
pub trait Environment {
    /// The next notice. It is asked until there is none, and then again whenever the member has something to do.
    fn poll_notice(&mut self, now: Time) -> Option<Notice>;

    /// When it wants to be asked again even if nothing else happens; none if it needs not.
    fn next_timeout(&self) -> Option<Time> {
        None
    }
}

/// The simplest of them, and the memory of others: it is told what is so, and says it until it is over.
#[derive(Clone, Debug, Default)]
pub struct Notices {
    said: BTreeMap<(NodeId, Kind), Said>,
    /// When the next is to be said.
    due: Option<Time>,
}

#[derive(Clone, Copy, Debug)]
struct Said {
    /// None: it is over, which is to be said once.
    confidence: Option<Confidence>,
    again_at: Time,
}

impl Notices {
    /// Nothing speaks against anybody.
    pub fn new() -> Self {
        Self::default()
    }

    /// This speaks for a node's failure, from now on.
    pub fn seen(&mut self, node: NodeId, kind: Kind, confidence: Confidence) {
        let is_known = |said: &Said| said.confidence == Some(confidence);
        if !self.said.get(&(node, kind)).is_some_and(is_known) {
            self.say(node, kind, Some(confidence));
        }
    }

    /// It does so no more.
    pub fn over(&mut self, node: NodeId, kind: Kind) {
        if self.said.get(&(node, kind)).is_some_and(|said| said.confidence.is_some()) {
            self.say(node, kind, None);
        }
    }

    /// Either of the two.
    pub fn set(&mut self, node: NodeId, kind: Kind, confidence: Option<Confidence>) {
        match confidence {
            Some(confidence) => self.seen(node, kind, confidence),
            None => self.over(node, kind),
        }
    }

    fn say(&mut self, node: NodeId, kind: Kind, confidence: Option<Confidence>) {
        self.said.insert((node, kind), Said { confidence, again_at: Time::ZERO });
        self.due = Some(Time::ZERO);
    }
}

impl Environment for Notices {
    fn poll_notice(&mut self, now: Time) -> Option<Notice> {
        self.due.filter(|due| *due <= now)?;
        let next = self.said.iter_mut().find(|(_, said)| said.again_at <= now);
        let notice = next.map(|(&(node, kind), said)| {
            said.again_at = now.saturating_add(BETWEEN_SAYINGS);
            match said.confidence {
                Some(confidence) => Notice::Seen { node, kind, confidence },
                None => Notice::Over { node, kind },
            }
        });
        if let Some(Notice::Over { node, kind }) = notice {
            self.said.remove(&(node, kind));
        }
        self.due = self.said.values().map(|said| said.again_at).min();
        notice
    }

    fn next_timeout(&self) -> Option<Time> {
        self.due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    const NODE: NodeId = NodeId(5);
    const SURE: Confidence = Confidence::per_mille(800);

    fn said(notices: &mut Notices, second: u64) -> Vec<Notice> {
        core::iter::from_fn(|| notices.poll_notice(Time::from_millis(second * 1000))).collect()
    }

    #[test]
    fn what_is_so_is_said_again_and_again_and_what_is_over_once() {
        let mut notices = Notices::new();
        assert_eq!((notices.next_timeout(), said(&mut notices, 0)), (None, Vec::new()));
        let seen = |confidence| Notice::Seen { node: NODE, kind: Kind::LinkDown, confidence };
        notices.over(NODE, Kind::LinkDown);
        assert_eq!(said(&mut notices, 1), [], "it never was");
        for _ in 0..3 {
            notices.seen(NODE, Kind::LinkDown, SURE);
        }
        assert_eq!(said(&mut notices, 1), [seen(SURE)]);
        assert_eq!(notices.next_timeout(), Some(Time::from_millis(6000)));
        notices.seen(NODE, Kind::LinkDown, SURE);
        assert_eq!(said(&mut notices, 5), []);
        assert_eq!(said(&mut notices, 6), [seen(SURE)]);
        let less = Confidence::per_mille(300);
        notices.set(NODE, Kind::LinkDown, Some(less));
        assert_eq!(said(&mut notices, 6), [seen(less)], "it is said at once when it is another");
        notices.set(NODE, Kind::LinkDown, None);
        assert_eq!(said(&mut notices, 7), [Notice::Over { node: NODE, kind: Kind::LinkDown }]);
        assert_eq!((said(&mut notices, 30), notices.next_timeout()), (Vec::new(), None));
    }

    #[test]
    fn kinds_and_nodes_are_told_apart() {
        let mut notices = Notices::new();
        for (node, kind) in [(1, Kind::LinkDown), (1, Kind::PowerFailure), (2, Kind::LinkDown)] {
            notices.seen(NodeId(node), kind, SURE);
        }
        assert_eq!(said(&mut notices, 0).len(), 3);
        notices.over(NodeId(1), Kind::LinkDown);
        assert_eq!(said(&mut notices, 0), [Notice::Over { node: NodeId(1), kind: Kind::LinkDown }]);
        assert_eq!(said(&mut notices, 5).len(), 2);
    }
}
