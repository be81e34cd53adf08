//! What is so, whoever believes what.

use comb_types::{Incarnation, NodeId, Time};

use crate::network::Network;

/// What is so with one node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeTruth {
    /// Whether it runs. A paused node runs.
    pub is_up: bool,
    /// Which of its lives this is, or was.
    pub incarnation: Incarnation,
    /// Since when it is up, or down.
    pub since: Time,
    /// Whether it stands still now.
    pub is_paused: bool,
}

/// What the world knows and the nodes cannot.
#[derive(Clone, Copy, Debug)]
pub struct Truth<'a> {
    /// The time of the world.
    pub now: Time,
    /// Every node, by number.
    pub nodes: &'a [NodeTruth],
    /// The network.
    pub network: &'a Network,
}

impl Truth<'_> {
    /// One node.
    pub fn node(&self, node: NodeId) -> NodeTruth {
        self.nodes[node.0 as usize]
    }

    /// Whether a life is over, or not there yet.
    pub fn is_dead(&self, node: NodeId, incarnation: Incarnation) -> bool {
        let truth = self.node(node);
        !truth.is_up || truth.incarnation != incarnation
    }

    /// The nodes that are up.
    pub fn up(&self) -> impl Iterator<Item = NodeId> + '_ {
        let nodes = (0..).map(NodeId).zip(self.nodes);
        nodes.filter(|(_, truth)| truth.is_up).map(|(node, _)| node)
    }
}
