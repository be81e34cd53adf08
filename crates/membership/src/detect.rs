//! Who seems to have failed, and how sure that is. (Galaxy §8.5.1)
//!
//! Several detectors look at the same nodes in different ways, and none is always right: the gossip of [`crate::state`], which is
//! accurate and takes seconds; [`buddy`], which is fast and watches few; and whatever the [`environment`] shows. What they
//! say is [`Evidence`]. A [`Verdict`] weighs it, and says one of four words for a bad state. A [`Lookout`] is all of them together.

pub mod buddy;
pub mod environment;
pub mod lookout;
pub(crate) mod staleness;
pub mod verdict;

pub use environment::{Environment, Notice};
pub use lookout::Lookout;
pub use verdict::{Change, Verdict};

use comb_types::NodeId;

use crate::view::Member;

/// What can be said of a life of a node, in the order of its certainty.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Condition {
    /// Nothing speaks against it.
    Alive,
    /// Something does, and not enough.
    Suspected,
    /// We cannot reach it, but others hear it.
    Unreachable,
    /// The detectors agree that it is gone. If they are wrong, it says so itself.
    Failed,
    /// It was ended for certain, and this life of it cannot come back.
    Fenced,
}

/// How likely it is that a node has failed if one knows just this, in thousandths.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Confidence(u16);

impl Confidence {
    /// There is no doubt.
    pub const CERTAIN: Self = Self(1000);

    /// At most 1000.
    pub const fn per_mille(per_mille: u16) -> Self {
        assert!(per_mille <= 1000, "nothing is more than certain");
        Self(per_mille)
    }
}

/// What was seen.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Kind {
    /// Its version does not rise.
    Silence,
    /// It does not answer our pings.
    NoAnswer,
    /// A quorum of its buddies gets no answers.
    Buddies,
    /// Gossip has it from a quorum of its zone.
    Gossip,
    /// The network says that it cannot be reached.
    IcmpUnreachable,
    /// The link to it, or the port of its switch, is down.
    LinkDown,
    /// Its power has failed, or will within moments.
    PowerFailure,
    /// Its host's agent has seen its process end.
    ProcessExit,
    /// It was killed or cut off so that it can do nothing more.
    Fenced,
}

impl Kind {
    /// The confidence that a plug-in takes which does not know better.
    pub const fn usual_confidence(self) -> Confidence {
        Confidence::per_mille(match self {
            // A router that restarts says so of many that live.
            Self::IcmpUnreachable => 400,
            Self::Silence => 600,
            Self::NoAnswer => 600,
            // A node may have another link.
            Self::LinkDown => 800,
            // Some seconds may be left.
            Self::PowerFailure => 950,
            Self::Buddies | Self::Gossip => 995,
            Self::ProcessExit => 999,
            Self::Fenced => Confidence::CERTAIN.0,
        })
    }

    /// Whether it shows only that the way from us to it is broken, should it turn out that others hear it.
    pub const fn is_of_the_way(self) -> bool {
        matches!(self, Self::IcmpUnreachable | Self::LinkDown | Self::NoAnswer)
    }

    /// Whether it is no evidence any more once the node is heard of. What was seen of the process itself stays.
    const fn ends_with_life(self) -> bool {
        matches!(self, Self::Silence | Self::Buddies | Self::Gossip | Self::PowerFailure)
    }
}

/// Who saw it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Source {
    /// A detector of our own.
    Ourselves,
    /// Another node says so.
    Node(NodeId),
    /// A plug-in of the environment, as our driver counts them; its own word is the first, 0.
    PlugIn(u32),
}

impl Source {
    const fn is_plug_in(self) -> bool {
        matches!(self, Self::PlugIn(_))
    }
}

/// Something that speaks for a failure of a life of a node.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Evidence {
    /// Of whom.
    pub subject: Member,
    /// What was seen.
    pub kind: Kind,
    /// How sure it is.
    pub confidence: Confidence,
    /// Who saw it.
    pub source: Source,
}

impl Evidence {
    /// With the usual confidence.
    pub const fn new(subject: Member, kind: Kind, source: Source) -> Self {
        Self { subject, kind, confidence: kind.usual_confidence(), source }
    }

    /// Whether nothing that is heard of this life later can be true. Who is not certain of an end says no more than that it is likely.
    fn is_final(&self) -> bool {
        self.kind == Kind::Fenced && self.confidence == Confidence::CERTAIN
    }
}
