//! What members say to each other during a regroup.

use alloc::vec::Vec;
use core::fmt;

use comb_types::NodeId;
use serde::{Deserialize, Serialize};

use super::Strength;
use crate::quorum::Basis;
use crate::view::{Member, View, ViewEpoch};

/// A zone holds 64 members; a view of more than this is a mistake or an attack.
pub const MOST_MEMBERS: usize = 256;

/// Orders the attempts of coordinators to bring one view to its end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub(super) struct Ballot {
    pub(super) number: u32,
    /// Its coordinator.
    pub(super) node: NodeId,
}

impl Ballot {
    /// Before all that a coordinator uses.
    pub(super) const NONE: Self = Self { number: 0, node: NodeId(0) };
}

impl fmt::Display for Ballot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.number, self.node.0)
    }
}

/// How a view could end.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub(super) struct Proposal {
    /// Its successor.
    pub(super) view: View,
    /// Up to this position, updates belong to the view that ends.
    pub(super) cut: u64,
    /// Who holds them all.
    pub(super) holders: Vec<NodeId>,
}

impl Proposal {
    /// Tells proposals apart that a faulty coordinator makes under one ballot. (FNV-1a: it keeps no secrets.)
    pub(super) fn digest(&self) -> u64 {
        let bytes = postcard::to_allocvec(self).expect("our own messages can be written");
        let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        bytes.iter().fold(0xcbf2_9ce4_8422_2325, mix)
    }
}

/// How a view ended.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub(super) struct Decision {
    /// Under which ballot a quorum accepted it.
    pub(super) ballot: Ballot,
    pub(super) proposal: Proposal,
    /// That quorum.
    pub(super) accepters: Vec<NodeId>,
    pub(super) basis: Basis,
}

/// What a member says when it freezes.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub(super) struct Promise {
    pub(super) position: u64,
    /// The proposal that it accepted last.
    pub(super) accepted: Option<(Ballot, Proposal)>,
    /// Whom it does not hear.
    pub(super) evidence: Vec<(NodeId, Strength)>,
    /// Whether this view is installed there. Only then do its proofs of death count.
    pub(super) installed: bool,
    /// Who the next view shall name: itself, or, of a member that has come back, its present life.
    pub(super) life: Member,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub(super) enum Body {
    /// To the coordinator: there is a reason for another view.
    Alarm {
        evidence: Vec<(NodeId, Strength)>,
        admit: Vec<Member>,
    },
    /// Activate: freeze, and promise to follow no lower ballot.
    Prepare {
        ballot: Ballot,
    },
    Promise {
        ballot: Ballot,
        promise: Promise,
    },
    /// A higher ballot was promised.
    Refuse {
        promised: Ballot,
    },
    /// Closing.
    Propose {
        ballot: Ballot,
        proposal: Proposal,
        basis: Basis,
    },
    /// To the coordinator, and in a small view to everybody, so that nobody has to believe the coordinator.
    Accept {
        ballot: Ballot,
        digest: u64,
    },
    /// Pruning.
    Decide(Decision),
    /// Cleanup one is over here.
    Flushed,
    /// Cleanup one is over everywhere.
    Install,
    /// Cleanup two is over here.
    Installed,
    /// Cleanup two is over everywhere.
    Settle,
    /// How did this view end?
    Ask,
    /// It ended so long ago that nobody here knows how. The group is in this view, and you are not in it.
    Gone {
        by: ViewEpoch,
    },
}

/// One message: about the end of the view of `epoch`, or, for cleanup, about its beginning.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub(super) struct Message {
    pub(super) sender: Member,
    pub(super) epoch: ViewEpoch,
    pub(super) body: Body,
}

/// Shows members by their numbers.
pub(super) struct Nodes<'a>(pub(super) &'a View);

impl fmt::Display for Nodes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("{")?;
        for (index, node) in self.0.nodes().enumerate() {
            write!(f, "{}{}", if index == 0 { "" } else { " " }, node.0)?;
        }
        f.write_str("}")
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.epoch)?;
        match &self.body {
            Body::Alarm { evidence, admit } => {
                write!(f, "alarm")?;
                evidence.iter().try_for_each(|(node, strength)| write!(f, ", {node} {strength:?}"))?;
                admit.iter().try_for_each(|member| write!(f, ", {} asks to come in", member.node))
            }
            Body::Prepare { ballot } => write!(f, "prepare for ballot {ballot}"),
            Body::Promise { ballot, promise } => {
                write!(f, "promise for ballot {ballot}, position {}", promise.position)?;
                if let Some((accepted, proposal)) = &promise.accepted {
                    write!(f, ", accepted {} under {accepted}", Nodes(&proposal.view))?;
                }
                promise.evidence.iter().try_for_each(|(node, strength)| write!(f, ", {node} is {strength:?}"))
            }
            Body::Refuse { promised } => write!(f, "refused: ballot {promised} was promised"),
            Body::Propose { ballot, proposal, .. } => {
                write!(f, "propose {} with cut {} under {ballot}", Nodes(&proposal.view), proposal.cut)
            }
            Body::Accept { ballot, .. } => write!(f, "accept under ballot {ballot}"),
            Body::Decide(decision) => {
                let proposal = &decision.proposal;
                write!(
                    f,
                    "decided: {} is {}, cut {}",
                    proposal.view.epoch,
                    Nodes(&proposal.view),
                    proposal.cut
                )
            }
            Body::Flushed => f.write_str("cleanup one is over here"),
            Body::Install => f.write_str("cleanup one is over everywhere: install"),
            Body::Installed => f.write_str("cleanup two is over here"),
            Body::Settle => f.write_str("cleanup two is over everywhere: settle"),
            Body::Ask => f.write_str("how did it end?"),
            Body::Gone { by } => write!(f, "it is long over: {by} is without you"),
        }
    }
}
