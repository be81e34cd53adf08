//! How messages are written: a version, the protocol that they belong to, and the message itself by postcard.
//!
//! What comes from a peer is an allegation. [`decode`] makes sure that it is a message of its type and nothing behind it;
//! whether it may be true is for the machine to judge, which says a [`PeerError`] if not, changes nothing, and goes on.

use alloc::vec::Vec;

use comb_types::NodeId;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Of the messages. There has been no other yet; a message of another is refused. (`stack/tests/recorded_v1.txt` has one of each kind: a
/// later version has to read them too.)
pub const VERSION: u8 = 1;

/// Which protocol a message belongs to: its second byte.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Protocol {
    /// [`crate::state`].
    State = 1,
    /// [`crate::detect`].
    Detect = 2,
    /// [`crate::regroup`].
    Regroup = 3,
    /// [`crate::join`].
    Join = 4,
    /// [`crate::order`].
    Order = 5,
    /// [`crate::multicast`].
    Multicast = 6,
    /// [`crate::circles`].
    Circles = 7,
    /// [`crate::mscs`].
    Mscs = 8,
    /// [`crate::snapshot`].
    Snapshot = 9,
}

impl Protocol {
    const ALL: [Self; 9] = [
        Self::State,
        Self::Detect,
        Self::Regroup,
        Self::Join,
        Self::Order,
        Self::Multicast,
        Self::Circles,
        Self::Mscs,
        Self::Snapshot,
    ];
}

/// What a peer sent and may not send. Nothing has changed by it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{from} broke a rule: {rule}")]
pub struct PeerError {
    /// Who.
    pub from: NodeId,
    /// Which.
    pub rule: &'static str,
}

impl PeerError {
    /// `from` broke `rule`.
    pub fn new(from: NodeId, rule: &'static str) -> Self {
        Self { from, rule }
    }
}

/// Writes a message.
pub fn encode<M: Serialize>(protocol: Protocol, message: &M) -> Vec<u8> {
    let start = alloc::vec![VERSION, protocol as u8];
    postcard::to_extend(message, start).expect("our own messages can be written")
}

/// Which protocol a message is for.
pub fn protocol(from: NodeId, bytes: &[u8]) -> Result<Protocol, PeerError> {
    let [version, protocol, ..] = bytes else {
        return Err(PeerError::new(from, "a message without an envelope"));
    };
    if *version != VERSION {
        return Err(PeerError::new(from, "a message of another version"));
    }
    let known = Protocol::ALL.into_iter().find(|known| *known as u8 == *protocol);
    known.ok_or(PeerError::new(from, "a message of an unknown protocol"))
}

/// Reads a message of `expected`.
pub fn decode<M: DeserializeOwned>(from: NodeId, expected: Protocol, bytes: &[u8]) -> Result<M, PeerError> {
    decode_borrowed(from, expected, bytes)
}

/// [`decode`] for a message that refers to its bytes.
pub fn decode_borrowed<'a, M: Deserialize<'a>>(
    from: NodeId,
    expected: Protocol,
    bytes: &'a [u8],
) -> Result<M, PeerError> {
    if protocol(from, bytes)? != expected {
        return Err(PeerError::new(from, "a message of another protocol"));
    }
    match postcard::take_from_bytes(&bytes[2..]) {
        Ok((message, [])) => Ok(message),
        Ok(_) => Err(PeerError::new(from, "a message with something behind it")),
        Err(_) => Err(PeerError::new(from, "a message that cannot be read")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FROM: NodeId = NodeId(3);

    fn rule(bytes: &[u8]) -> &'static str {
        decode::<u32>(FROM, Protocol::State, bytes).expect_err("refused").rule
    }

    #[test]
    fn what_is_written_is_read() {
        let bytes = encode(Protocol::State, &77_u32);
        assert_eq!(decode(FROM, Protocol::State, &bytes), Ok(77_u32));
    }

    #[test]
    fn what_is_no_message_is_refused_with_its_reason() {
        let good = encode(Protocol::State, &77_u32);
        assert_eq!(rule(&[VERSION]), "a message without an envelope");
        assert_eq!(rule(&[VERSION + 1, good[1], good[2]]), "a message of another version");
        assert_eq!(rule(&[VERSION, 200, good[2]]), "a message of an unknown protocol");
        assert_eq!(rule(&encode(Protocol::Join, &77_u32)), "a message of another protocol");
        assert_eq!(rule(&good[..2]), "a message that cannot be read");
        assert_eq!(rule(&[&good[..], &[0]].concat()), "a message with something behind it");
    }
}
