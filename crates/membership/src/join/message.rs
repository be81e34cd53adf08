//! What joiners and sponsors say to each other.

use alloc::vec::Vec;
use core::fmt;

use comb_types::{Incarnation, NodeId};
use serde::{Deserialize, Serialize};

use crate::view::{Member, View};

/// A reference to a snapshot says where it is and what it must hash to.
pub(super) const MOST_SNAPSHOT_BYTES: usize = 1024;

#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub(super) enum Body {
    /// Is there a group? None of my lives since that one has said anything in a view. And if not, will you promise me that you are in none?
    Hello { member: Member, since: Incarnation, wants_word: bool },
    /// There is, and I would let you in.
    Offer { snapshot: Vec<u8> },
    /// I am in none, and have given my word on that to this life, and to no other.
    Alone { word: Option<Member> },
    /// I have the snapshot: let me in.
    Petition { member: Member, since: Incarnation },
    /// You are in.
    Welcome { view: View, cut: u64, holders: Vec<NodeId> },
}

impl fmt::Display for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hello { wants_word: false, .. } => f.write_str("hello, is there a group?"),
            Self::Hello { wants_word: true, .. } => {
                f.write_str("hello, is there a group? If not, I found one")
            }
            Self::Offer { .. } => f.write_str("there is: a snapshot of it"),
            Self::Alone { word: None } => f.write_str("not here"),
            Self::Alone { word: Some(member) } => write!(f, "not here, {} has my word", member.node),
            Self::Petition { .. } => f.write_str("let me in"),
            Self::Welcome { view, cut, .. } => {
                write!(f, "you are in {} with {} members, cut {cut}", view.epoch, view.members.len())
            }
        }
    }
}
