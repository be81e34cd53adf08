//! What members say to each other about circles, besides what goes through the order of all.

use alloc::string::String;

use comb_types::NodeId;
use serde::{Deserialize, Serialize};

use super::table::CircleId;
use crate::view::Member;
use crate::wire::{PeerError, Protocol, decode_borrowed};

/// From one member to another.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum Message<'a> {
    /// In a lossy circle: the how manieth of its sender's there, and what it says.
    Say { circle: CircleId, number: u64, is_to_one: bool, body: &'a [u8] },
    /// "I was told that I shall not get these; have you got them?"
    Recover { sender: Member, first: u64, last: u64 },
    /// "Here is one."
    Recovered { sender: Member, number: u64, body: &'a [u8] },
    /// "That was all I have of these."
    NoMore { sender: Member, first: u64, last: u64 },
}

/// What a multicast message carries.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Carried<'a> {
    pub circle: CircleId,
    pub to: Option<NodeId>,
    /// The sender had been told everything up to this position: who has not does not know yet who is in the circle.
    pub since: u64,
    pub body: &'a [u8],
}

pub(super) fn read(from: NodeId, bytes: &[u8]) -> Result<Message<'_>, PeerError> {
    decode_borrowed(from, Protocol::Circles, bytes)
}

/// A message in words.
pub fn describe(from: NodeId, bytes: &[u8]) -> String {
    match read(from, bytes) {
        Ok(Message::Say { circle, number, .. }) => alloc::format!("message {number} in circle {}", circle.0),
        Ok(Message::Recover { sender, first, last }) => {
            alloc::format!("who has {first} to {last} of {}?", sender.node)
        }
        Ok(Message::Recovered { sender, number, .. }) => {
            alloc::format!("here is {number} of {}", sender.node)
        }
        Ok(Message::NoMore { sender, first, last }) => {
            alloc::format!("no more of {first} to {last} of {}", sender.node)
        }
        Err(error) => error.rule.into(),
    }
}
