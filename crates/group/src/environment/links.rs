//! Interfaces of this host that have no link.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use comb_membership::detect::Kind;
use comb_membership::detect::environment::{Environment, Notice, Notices};
use comb_types::{NodeId, Time};

use super::netlink::Netlink;

/// Each look is a question to the kernel, and its answer.
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

/// Looks whether the interfaces that carry to other nodes are up. A node to which none does any more cannot be reached; it, or this
/// member, will have to go. (Galaxy §8.5.1)
#[derive(Debug)]
pub struct Links {
    netlink: Netlink,
    /// An interface, and to whom it carries.
    carries: Vec<(String, Vec<NodeId>)>,
    notices: Notices,
    next_look: Time,
}

impl Links {
    /// It watches none yet. Interfaces are those that this thread sees now (a thread can change that).
    pub fn new() -> io::Result<Self> {
        let (carries, notices) = (Vec::new(), Notices::new());
        Ok(Self { netlink: Netlink::open()?, carries, notices, next_look: Time::ZERO })
    }

    /// This interface carries to these nodes. A node to which several carry is cut off when all of them are down; an interface that is
    /// not there is down.
    pub fn watch(&mut self, interface: &str, nodes: impl IntoIterator<Item = NodeId>) {
        self.carries.push((interface.to_owned(), nodes.into_iter().collect()));
    }

    fn look(&mut self, now: Time) {
        self.next_look = now.saturating_add(BETWEEN_LOOKS);
        let mut is_cut_off: BTreeMap<NodeId, bool> = BTreeMap::new();
        for (interface, nodes) in &self.carries {
            // Of what the kernel does not say, nothing is said.
            let is_down = self.netlink.is_up(interface) == Some(false);
            for &node in nodes {
                *is_cut_off.entry(node).or_insert(true) &= is_down;
            }
        }
        for (node, is_cut_off) in is_cut_off {
            let confidence = is_cut_off.then(|| Kind::LinkDown.usual_confidence());
            self.notices.set(node, Kind::LinkDown, confidence);
        }
    }
}

impl Environment for Links {
    fn poll_notice(&mut self, now: Time) -> Option<Notice> {
        if now >= self.next_look {
            self.look(now);
        }
        self.notices.poll_notice(now)
    }

    fn next_timeout(&self) -> Option<Time> {
        let look = (!self.carries.is_empty()).then_some(self.next_look);
        [look, self.notices.next_timeout()].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_cut_off_on_all_ways_is_and_who_is_not_is_not() {
        let mut links = Links::new().expect("the kernel answers");
        assert_eq!(links.next_timeout(), None);
        // The loopback may be down in a container; then there is no second way.
        let is_up = links.netlink.is_up("lo") == Some(true);
        links.watch("no-such-one", [NodeId(1), NodeId(2)]);
        links.watch("lo", [NodeId(2)]);
        assert_eq!(links.next_timeout(), Some(Time::ZERO));
        let said = std::iter::from_fn(|| links.poll_notice(Time::ZERO));
        let cut_off = said.filter_map(|notice| match notice {
            Notice::Seen { node, kind: Kind::LinkDown, .. } => Some(node.0),
            _ => None,
        });
        assert_eq!(cut_off.collect::<Vec<_>>(), if is_up { vec![1] } else { vec![1, 2] });
        assert_eq!(links.next_timeout(), Some(Time::from_millis(100)));
    }
}
