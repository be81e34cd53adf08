//! How closely a member watches the others, and with what certainty; and what is seen of them from outside.

use alloc::vec::Vec;
use core::time::Duration;

use comb_types::{NodeId, Time};

use super::Stack;
use crate::detect::{Evidence, Notice, Source, buddy, lookout};
use crate::state::{self, Distance};
use crate::view::Member;

/// More than this would only cost pings.
const MOST_BUDDIES: usize = 16;

/// So many doubters are remembered of each node.
const MOST_DOUBTERS: usize = 16;

/// One gap in a hundred is as rare as what a detector can still learn from.
const MOST_FALSE_SUSPICIONS: u32 = 10_000_000;

/// How a member watches the others. The numbers and the zones are the same for all members; all else may differ.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Watching {
    /// From one ping to the next. A member that is silent for four or more of them is suspected: how many, is learned from how
    /// regularly the others answer.
    pub ping: Duration,
    /// From one round of gossip to the next.
    pub gossip: Duration,
    /// How much longer members of a first view may be silent: they are started one after the other.
    pub starting: Duration,
    /// No node has this number or a greater one.
    pub most_nodes: u32,
    /// For the dice.
    pub seed: u64,
    /// How often a detector may err: of a billion gaps between two signs of life, how many may be so long that their node is
    /// suspected. With fewer, silence is known later, and it is no error more often. (Gossip and pings learn from the gaps that
    /// they see how long that is.)
    pub false_suspicions_per_billion: u32,
    /// How many others ping each member. The sequencer pings all besides.
    pub buddies: usize,
    /// How many of those who ping a member must get no answers for it to have failed. (A single one suspects it, which costs one that
    /// answers others nothing but a new view.) Where there are fewer, all of them.
    pub buddies_that_agree: usize,
    /// How many nodes must have missed a node in gossip for it to have failed; in a small zone, most of those that are not suspected.
    pub doubters_that_agree: usize,
    /// Nodes that gossip of each other one by one: those whose numbers divided by this are the same. Of others they know how each
    /// zone stands. At most 64.
    pub zone_size: u32,
    /// Gossip goes more often to near nodes.
    pub distance: Distance,
}

impl Default for Watching {
    /// Whoever is pinged ten times a second spends less than a thousandth of its core on it, and its silence is known after half a
    /// second.
    fn default() -> Self {
        Self {
            ping: Duration::from_millis(100),
            gossip: Duration::from_secs(1),
            starting: Duration::from_secs(10),
            most_nodes: 1 << 16,
            seed: 0,
            false_suspicions_per_billion: 1000,
            buddies: 3,
            buddies_that_agree: 2,
            doubters_that_agree: 8,
            zone_size: 64,
            distance: Distance::default(),
        }
    }
}

/// Why nobody can watch so. Nothing was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WatchingError {
    /// It would do nothing else.
    #[error("Watching::ping and Watching::gossip are a millisecond at least")]
    TooOften,
    /// There is no such share.
    #[error("Watching::false_suspicions_per_billion is 1 to {MOST_FALSE_SUSPICIONS}")]
    FalseSuspicions,
    /// Nobody would watch, or nobody could agree.
    #[error(
        "Watching::buddies is 1 to {MOST_BUDDIES}, and so many or fewer of them agree (Watching::buddies_that_agree)"
    )]
    Buddies,
    /// So many are never heard of.
    #[error("Watching::doubters_that_agree is 1 to {MOST_DOUBTERS}")]
    Doubters,
    /// A zone is a word of bits.
    #[error("Watching::zone_size is 1 to 64")]
    ZoneSize,
}

impl Watching {
    /// Whether it can be done. [`Stack`] supposes that.
    pub fn check(&self) -> Result<(), WatchingError> {
        let shortest = Duration::from_millis(1);
        match () {
            () if self.ping < shortest || self.gossip < shortest => Err(WatchingError::TooOften),
            () if !(1..=MOST_FALSE_SUSPICIONS).contains(&self.false_suspicions_per_billion) => {
                Err(WatchingError::FalseSuspicions)
            }
            () if !(1..=MOST_BUDDIES).contains(&self.buddies) => Err(WatchingError::Buddies),
            () if !(1..=self.buddies).contains(&self.buddies_that_agree) => Err(WatchingError::Buddies),
            () if !(1..=MOST_DOUBTERS).contains(&self.doubters_that_agree) => Err(WatchingError::Doubters),
            () if !(1..=64).contains(&self.zone_size) => Err(WatchingError::ZoneSize),
            () => Ok(()),
        }
    }

    pub(super) fn gossip(&self, me: Member, contacts: Vec<NodeId>) -> state::Config {
        state::Config {
            interval: self.gossip,
            most_nodes: self.most_nodes,
            false_suspicions_per_billion: self.false_suspicions_per_billion,
            quorum: self.doubters_that_agree,
            zone_size: self.zone_size,
            distance: self.distance.clone(),
            // Views tell it sooner, and 32 processes that all tell the same at once hold each other up.
            is_urgent: false,
            ..state::Config::new(me, contacts, self.seed)
        }
    }

    pub(super) fn pings(&self, me: Member) -> buddy::Config {
        buddy::Config {
            interval: self.ping,
            most_nodes: self.most_nodes,
            false_suspicions_per_billion: self.false_suspicions_per_billion,
            observers: self.buddies,
            quorum: self.buddies_that_agree,
            ..buddy::Config::new(me, self.seed ^ 1)
        }
    }
}

impl Stack {
    /// What is said of a node concerns the life that is a member. Nobody has to tell this member of itself.
    pub(super) fn noticed(&mut self, now: Time, source: Source, notice: Notice) {
        let (Notice::Seen { node, .. } | Notice::Over { node, .. }) = notice;
        let member = self.regroup().and_then(|regroup| regroup.view().member(node));
        let Some(subject) = member.filter(|member| member.node != self.me.node) else { return };
        let input = match notice {
            Notice::Seen { kind, confidence, .. } => {
                lookout::Input::Evidence(Evidence { subject, kind, confidence, source })
            }
            Notice::Over { kind, .. } => lookout::Input::Over { subject, kind, source },
        };
        self.tell_lookout(now, input);
    }
}
