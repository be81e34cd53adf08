//! What a program says of circles and is told of them: names, addresses, terms, events, errors.

use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use comb_types::NodeId;
use serde::{Deserialize, Serialize};

use crate::multicast;
use crate::order::{Level, SubmitError};
use crate::view::Member;

/// The circle to which all members of the base group belong, and nobody else. It is [`Terms::default`].
pub const EVERYONE: &str = "everyone";
/// The longest name, in bytes.
pub const LONGEST_NAME: usize = 64;
/// There are no more at one time.
pub const MOST_CIRCLES: usize = 1 << 16;

/// How sure it is that what is said in a circle is heard.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Reliability {
    /// It is sent to each once. What the network loses, or a slow reader has no room for, is lost.
    Lossy,
    /// It spreads by gossip in the base group, and reaches everybody almost certainly, whatever becomes of its sender: see
    /// [`crate::multicast`]. What did not come is asked for again, and if nobody has it any more, [`Event::Missed`] says so.
    Epidemic,
    /// All get it, or nobody does, in the order of all updates of the base group; [`crate::stack::Event::Reached`] tells its
    /// sender. All of the base group's members carry it, so this is for what is rare.
    Atomic(Level),
}

/// In which order what is said in a circle is heard.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Ordering {
    /// As it comes.
    None,
    /// As each sender said it. (Of what is [`Reliability::Lossy`], what was overtaken is lost, and nothing comes twice.)
    Fifo,
    /// The same at all. Only what is [`Reliability::Atomic`] can be, and that always is.
    Total,
}

/// How much each member may say in a circle.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Flow {
    /// How much may be under way: not [`Reached`](crate::stack::Event::Reached), or still gossiped of. (Of what is
    /// [`Reliability::Lossy`], nobody knows.)
    pub outstanding: u32,
    /// In a second; a tenth of it at once. None: no limit.
    pub per_second: Option<u32>,
}

impl Default for Flow {
    fn default() -> Self {
        Self { outstanding: 256, per_second: None }
    }
}

/// On what terms a circle talks. Whoever founds it chooses; who comes later must ask for the same.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Terms {
    /// How sure it is to be heard.
    pub reliability: Reliability,
    /// In which order.
    pub ordering: Ordering,
    /// How much.
    pub flow: Flow,
}

impl Default for Terms {
    /// What the base group itself does.
    fn default() -> Self {
        Self::atomic(Level::Majority)
    }
}

impl Terms {
    /// One order, all or none.
    pub fn atomic(level: Level) -> Self {
        Self { reliability: Reliability::Atomic(level), ordering: Ordering::Total, flow: Flow::default() }
    }

    /// By gossip, in each sender's order.
    pub fn epidemic() -> Self {
        Self { reliability: Reliability::Epidemic, ordering: Ordering::Fifo, flow: Flow::default() }
    }

    /// Once, as it comes.
    pub fn lossy() -> Self {
        Self { reliability: Reliability::Lossy, ordering: Ordering::None, flow: Flow::default() }
    }

    /// Whether there can be such a circle.
    pub fn is_sound(&self) -> bool {
        let is_atomic = matches!(self.reliability, Reliability::Atomic(_));
        is_atomic == (self.ordering == Ordering::Total)
            && self.flow.outstanding > 0
            && self.flow.per_second != Some(0)
    }
}

/// Why something was not said, or a circle not joined or left. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CircleError {
    /// A name is of 1 to 64 bytes without a stroke, and not `everyone`.
    #[error(
        "that cannot be the name of a circle: 1 to {LONGEST_NAME} bytes without '/', and not {EVERYONE:?}"
    )]
    Name,
    /// Terms that contradict themselves: see [`Terms::is_sound`].
    #[error("no circle has such terms: a total order goes with atomic messages, and limits are not 0")]
    Terms,
    /// An address is a circle's name, or that, a stroke, and the number of a node.
    #[error("that is no address: say CIRCLE, or CIRCLE/NODE")]
    Address,
    /// Join it first, and wait for [`Event::Changed`].
    #[error("this member does not belong to that circle")]
    NotAMember,
    /// The node is not in the circle.
    #[error("{0} does not belong to that circle")]
    Nobody(NodeId),
    /// It will never fit a message.
    #[error("the message is too long")]
    TooLong,
    /// Too much of this member's is under way in this circle, or in the base group.
    #[error("too many messages are under way")]
    Full,
    /// The circle's terms allow so many in a second and no more.
    #[error("the circle's terms allow no more for {0:?}")]
    TooFast(Duration),
    /// This member is not in the base group.
    #[error("this member is not in the group")]
    Out,
}

impl From<SubmitError> for CircleError {
    fn from(error: SubmitError) -> Self {
        match error {
            SubmitError::TooLong => Self::TooLong,
            SubmitError::Full => Self::Full,
            SubmitError::Out => Self::Out,
        }
    }
}

impl From<multicast::SendError> for CircleError {
    fn from(error: multicast::SendError) -> Self {
        match error {
            multicast::SendError::TooLong => Self::TooLong,
            multicast::SendError::Full => Self::Full,
        }
    }
}

/// Why the group did not let a member into a circle.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Refusal {
    /// It is there on other terms: these.
    OtherTerms(Terms),
    /// There are [`MOST_CIRCLES`].
    TooMany,
}

/// What a member is told of its circles.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Event {
    /// A circle that this member belongs to, or has just left, has other members. All its members are told the same in the same order.
    Changed {
        /// Which circle.
        circle: String,
        /// Counts the circle's views: the position of the last update before it. Two changes by one change of the base
        /// view are one.
        since: u64,
        /// By node. Without this member if it has left.
        members: Vec<Member>,
    },
    /// Somebody said something in a circle that this member belongs to. Only members are heard.
    Told {
        /// Which circle.
        circle: String,
        /// Who said it.
        from: Member,
        /// Whether it was said to this member alone.
        is_to_one: bool,
        /// Its place in the order of all, if it has one.
        position: Option<u64>,
        /// What.
        body: Vec<u8>,
    },
    /// This member was not let in.
    Refused {
        /// Which circle.
        circle: String,
        /// Why.
        reason: Refusal,
    },
    /// What somebody said in circles that talk by gossip will never come, or not all of it: nobody who was asked has it any more.
    Missed {
        /// Who said it.
        from: Member,
        /// The first of its messages of that kind.
        first: u64,
        /// The last.
        last: u64,
    },
}

pub(super) fn is_name(name: &str) -> bool {
    (1..=LONGEST_NAME).contains(&name.len()) && !name.contains('/') && name != EVERYONE
}

/// A circle's name, and one of its nodes.
pub(super) fn parse(address: &str) -> Result<(&str, Option<NodeId>), CircleError> {
    let Some((name, node)) = address.split_once('/') else { return Ok((address, None)) };
    let number = node.parse().ok().filter(|_| !node.starts_with('+'));
    Ok((name, Some(NodeId(number.ok_or(CircleError::Address)?))))
}
