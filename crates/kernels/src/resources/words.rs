//! What managers of different cells say to each other, as bytes.
//!
//! A message is a head and its content. The head says what it is, in which version, and how long; who asks shows by a key that it may. What came from
//! elsewhere is an allegation: it is decoded from a copy of limited length, all of which must be what it says.

use comb_kernel::objects::Tag;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{Allotment, Free, Running};

/// The version of all that is here.
pub const VERSION: u16 = 1;

/// No message is longer: a thousand kernels with their names fit.
pub const MOST_BYTES: u32 = 1 << 18;

const MAGIC: [u8; 4] = *b"csrm";
/// Magic, version, length, and the key.
const HEAD_BYTES: usize = 4 + 2 + 4 + 32;

/// What managers that may ask each other have in common.
#[derive(Clone)]
pub struct Key(pub [u8; 32]);

impl std::fmt::Debug for Key {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Key")
    }
}

impl Key {
    /// All of it is looked at, whatever the first difference is: how long it takes says nothing.
    fn is(&self, other: &[u8]) -> bool {
        let differences = self.0.iter().zip(other).fold(0, |all, (own, other)| all | (own ^ other));
        std::hint::black_box(differences) == 0 && other.len() == self.0.len()
    }
}

/// What one asks.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Question {
    /// What has your cell free?
    Free,
    /// What runs there?
    Running,
    /// Start this kernel.
    Take {
        /// One of those that the other knows by name.
        program: String,
        /// How.
        arguments: Vec<String>,
        /// What it is to have.
        allotment: Allotment,
    },
}

/// What it is answered.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Reply {
    /// So much.
    Free(Free),
    /// These.
    Running(Vec<Running>),
    /// It was started, and has this tag there.
    Taken(Tag),
    /// No, and why.
    Refused(String),
}

/// Why some bytes are no message of a manager's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum WordError {
    /// They do not begin as one does.
    #[error("that is no message of a manager")]
    NotOurs,
    /// Who sent it is of another version.
    #[error("it is of version {0}, and this is version {VERSION}")]
    Version(u16),
    /// Who sent it does not have the key.
    #[error("who sent it does not have the key")]
    Key,
    /// Longer than any is.
    #[error("{0} bytes are more than a message has")]
    TooLong(u32),
    /// The content is none, or not all of it.
    #[error("it does not say anything that can be understood")]
    NotUnderstood,
}

/// Makes a message of it.
pub fn encode<T: Serialize>(key: &Key, content: &T) -> Result<Vec<u8>, WordError> {
    let content = postcard::to_stdvec(content).map_err(|_| WordError::NotUnderstood)?;
    let length = u32::try_from(content.len()).unwrap_or(u32::MAX);
    if length > MOST_BYTES {
        return Err(WordError::TooLong(length));
    }
    Ok([&MAGIC[..], &VERSION.to_le_bytes(), &length.to_le_bytes(), &key.0, &content].concat())
}

/// What a message says, if these bytes are one. Nothing: they are the beginning of one. What is behind it is no part of it, and not right.
pub fn decode<T: DeserializeOwned>(key: &Key, bytes: &[u8]) -> Result<Option<T>, WordError> {
    let begins = bytes.len().min(MAGIC.len());
    if bytes[..begins] != MAGIC[..begins] {
        return Err(WordError::NotOurs);
    }
    if bytes.len() < HEAD_BYTES {
        return Ok(None);
    }
    let (head, content) = bytes.split_at(HEAD_BYTES);
    let version = u16::from_le_bytes([head[4], head[5]]);
    if version != VERSION {
        return Err(WordError::Version(version));
    }
    let length = u32::from_le_bytes([head[6], head[7], head[8], head[9]]);
    if length > MOST_BYTES {
        return Err(WordError::TooLong(length));
    }
    if !key.is(&head[10..]) {
        return Err(WordError::Key);
    }
    match content.len().cmp(&usize::try_from(length).expect("it is small")) {
        std::cmp::Ordering::Less => Ok(None),
        std::cmp::Ordering::Greater => Err(WordError::NotUnderstood),
        std::cmp::Ordering::Equal => match postcard::take_from_bytes(content) {
            Ok((content, [])) => Ok(Some(content)),
            _ => Err(WordError::NotUnderstood),
        },
    }
}

#[cfg(test)]
mod tests {
    use comb_kernel::objects::Locks;
    use proptest::prelude::*;

    use super::*;

    const KEY: Key = Key([7; 32]);

    fn question() -> impl Strategy<Value = Question> {
        let allotment = (any::<u32>(), any::<Vec<u8>>(), any::<u8>(), any::<u64>(), any::<bool>()).prop_map(
            |(groups, processor_shares, maximum_priority, network, locked)| {
                let locks = Locks { spaces: groups, ..Locks::default() };
                Allotment { groups, processor_shares, maximum_priority, network, locks, locked }
            },
        );
        let take = ("\\PC{0,20}", proptest::collection::vec("\\PC{0,9}", 0..4), allotment)
            .prop_map(|(program, arguments, allotment)| Question::Take { program, arguments, allotment });
        prop_oneof![Just(Question::Free), Just(Question::Running), take]
    }

    proptest! {
        #[test]
        fn what_was_said_is_understood_and_no_part_of_it_is(question in question()) {
            let bytes = encode(&KEY, &question).unwrap();
            prop_assert_eq!(decode(&KEY, &bytes), Ok(Some(question)));
            for length in 0..bytes.len() {
                prop_assert_eq!(decode::<Question>(&KEY, &bytes[..length]), Ok(None));
            }
            let more = [&bytes[..], &[0]].concat();
            prop_assert_eq!(decode::<Question>(&KEY, &more), Err(WordError::NotUnderstood));
            prop_assert_eq!(decode::<Question>(&Key([8; 32]), &bytes), Err(WordError::Key));
        }

        #[test]
        fn whatever_comes_is_understood_or_refused(
            question in question(),
            changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
            is_cut in any::<bool>(),
            reply in any::<Vec<u8>>(),
        ) {
            let mut bytes = encode(&KEY, &question).unwrap();
            for (at, value) in changes {
                let at = at.index(bytes.len());
                bytes[at] = value;
                if is_cut {
                    bytes.truncate(at + 1);
                }
            }
            if let Ok(Some(understood)) = decode::<Question>(&KEY, &bytes) {
                // It is what it says, and can be said again.
                let again = encode(&KEY, &understood).unwrap();
                prop_assert_eq!(decode(&KEY, &again), Ok(Some(understood)));
            }
            let head = [&bytes[..bytes.len().min(HEAD_BYTES)], &reply[..]].concat();
            let _ = decode::<Reply>(&KEY, &head);
        }
    }

    #[test]
    fn what_is_too_long_is_refused_before_it_is_there() {
        let long = Reply::Refused("x".repeat(MOST_BYTES as usize));
        assert!(matches!(encode(&KEY, &long), Err(WordError::TooLong(_))));
        let mut bytes = encode(&KEY, &Question::Free).unwrap();
        bytes[6..10].copy_from_slice(&(MOST_BYTES + 1).to_le_bytes());
        assert_eq!(decode::<Question>(&KEY, &bytes), Err(WordError::TooLong(MOST_BYTES + 1)));
        bytes[4] = 9;
        assert_eq!(decode::<Question>(&KEY, &bytes), Err(WordError::Version(9)));
        assert_eq!(decode::<Question>(&KEY, b"GET / HTTP/1.1"), Err(WordError::NotOurs));
    }
}
