//! Views: who belongs to a group, as all of its members agree.

use alloc::vec::Vec;
use core::fmt;

use comb_types::{Incarnation, NodeId};
use serde::{Deserialize, Serialize};

/// Counts the views of a group, and is the fencing token: whoever acts for a group says in which view, and what comes from an
/// older one is refused. It never comes round, so it is wider than a [`comb_types::Epoch`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct ViewEpoch(pub u64);

impl fmt::Display for ViewEpoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "view {}", self.0)
    }
}

/// One life of one node. A node that comes back is another member.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Member {
    /// Which node.
    pub node: NodeId,
    /// Which of its lives.
    pub incarnation: Incarnation,
}

/// The members of a group, as agreed.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct View {
    /// Which view.
    pub epoch: ViewEpoch,
    /// Ordered by node, each node once, at least one.
    pub members: Vec<Member>,
    /// Whose half survives when the group falls into two halves. One of the members. (MSCS §7.7.2)
    pub tie_breaker: NodeId,
}

impl View {
    /// The first view of a group.
    pub fn founded_by(founder: Member) -> Self {
        Self { epoch: ViewEpoch(1), members: alloc::vec![founder], tie_breaker: founder.node }
    }

    /// Whether it is one: what a peer calls a view may be anything. The first is view 1, and no
    /// group comes to half of all epochs.
    pub fn is_sound(&self) -> bool {
        let may_be = (1..=u64::MAX / 2).contains(&self.epoch.0);
        may_be && self.members.is_sorted_by(|a, b| a.node < b.node) && self.contains(self.tie_breaker)
    }

    /// The member that lives at a node.
    pub fn member(&self, node: NodeId) -> Option<Member> {
        let place = self.members.binary_search_by_key(&node, |member| member.node).ok()?;
        Some(self.members[place])
    }

    /// Whether the node is in it.
    pub fn contains(&self, node: NodeId) -> bool {
        self.member(node).is_some()
    }

    /// Who numbers the updates of this view.
    pub fn sequencer(&self) -> NodeId {
        self.members[0].node
    }

    /// The nodes in it.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.members.iter().map(|member| member.node)
    }
}
