//! What a launcher and its part on another host say to each other, over the part's standard input and output.
//!
//! ```text
//! launcher                                    part
//!     ◀──── GREETING ───────────────────────────
//!     ───── Sent … ────────────────────────────▶  writes files into a directory of their own, if any are sent
//!     ───── Gather: its plan ──────────────────▶  finds the program, makes its directory, a key and a door
//!     ◀──── Gathered: key, door ────────────────
//!     ───── Settle: keys and doors of all ─────▶  starts its agent
//!     ◀──── Settled ────────────────────────────
//!     ───── Start ─────────────────────────────▶  starts its components
//!     ───── Order … ───────────────────────────▶
//!     ◀──── Event … ────────────────────────────
//!     ───── end of input ──────────────────────▶  kills what still runs, removes its directory, ends
//! ```
//!
//! Each step is made by all parts before the next: no component runs where another one could not.

use std::ffi::OsString;
use std::io::{Error, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::crew::{Event, Order, Plan};

/// The first that a part says, so that nobody takes a login shell's chatter for it. The number is this conversation's version.
pub(super) const GREETING: &[u8] = b"comb-part 4\n";
/// A chunk of output or a plan: what is longer is none.
const LONGEST_BYTES: usize = 16 << 20;

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum ToPart {
    Sent(Sent),
    Gather { address: IpAddr, plan: Box<Plan> },
    Settle { host: String, hosts: Vec<Neighbour> },
    Start,
    Order(Order),
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum FromPart {
    Gathered {
        key: String,
        door: SocketAddr,
    },
    Settled,
    /// It cannot do what it was asked; why, for people.
    Refused(String),
    Event(Event),
}

/// What of a program's files is sent. Paths are below one directory.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum Sent {
    Directory {
        path: OsString,
        mode: u32,
    },
    /// Its bytes come next.
    File {
        path: OsString,
        mode: u32,
        length: u64,
    },
    Bytes(Vec<u8>),
    Link {
        path: OsString,
        target: OsString,
    },
}

/// A host of the task, as the others are to know it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Neighbour {
    pub(super) name: String,
    pub(super) key: String,
    pub(super) door: SocketAddr,
}

pub(super) fn write(to: &mut impl Write, message: &impl Serialize) -> std::io::Result<()> {
    let mut bytes = vec![0; 4];
    bytes = postcard::to_extend(message, bytes).map_err(Error::other)?;
    let length = u32::try_from(bytes.len() - 4).map_err(Error::other)?;
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    to.write_all(&bytes)?;
    to.flush()
}

/// The next message; nothing at the end.
pub(super) fn read<T: DeserializeOwned>(from: &mut impl Read) -> std::io::Result<Option<T>> {
    let mut length = [0; 4];
    match from.read_exact(&mut length) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
        outcome => outcome?,
    }
    let length = u32::from_le_bytes(length) as usize;
    let wrong = || Error::new(ErrorKind::InvalidData, "it says what is no message");
    if length > LONGEST_BYTES {
        return Err(wrong());
    }
    // Grows by what really comes.
    let mut bytes = Vec::new();
    from.take(length as u64).read_to_end(&mut bytes)?;
    if bytes.len() < length {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    postcard::from_bytes(&bytes).map(Some).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::How;

    #[test]
    fn messages_come_as_they_were_sent() {
        let all = [
            FromPart::Gathered { key: "k".into(), door: "10.0.0.1:7".parse().unwrap() },
            FromPart::Event(Event::Ended { rank: 3, process: 77, how: How::Killed(9) }),
        ];
        let mut bytes = Vec::new();
        all.iter().for_each(|message| write(&mut bytes, message).unwrap());
        let mut from = &bytes[..];
        assert_eq!(all.clone().map(Some), [(); 2].map(|()| read(&mut from).unwrap()));
        assert_eq!(read::<FromPart>(&mut from).unwrap(), None);
    }

    #[test]
    fn what_is_no_message_is_an_error() {
        for bytes in [&b"\x02\0\0\0\xff\xff"[..], b"\xff\xff\xff\xff", b"\x09\0\0\0\x01"] {
            assert!(read::<FromPart>(&mut &bytes[..]).is_err(), "{bytes:?}");
        }
    }
}
