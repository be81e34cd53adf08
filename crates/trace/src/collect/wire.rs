//! What the two sides say to each other.
//!
//! Each begins with what tells the protocol from others; then come messages, framed as everything else of this crate is. The first of an agent
//! says which versions it speaks, and has the same form in all of them.

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::refusal::{PeerFault, Refusal};
use crate::framing::{self, HEAD_BYTES};

/// What each side begins with.
pub(super) const MAGIC: &[u8] = b"comb collect";

/// No message is longer, but one with a frame in it.
const MOST_CONTROL_BYTES: usize = 1024;

/// No machine's name is longer.
pub(super) const MOST_NAME_BYTES: usize = 255;

/// Who an agent is, as it says.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Hello {
    /// The versions of the protocol that it speaks.
    pub(super) lowest: u16,
    pub(super) highest: u16,
    /// Its machine's name. An allegation: who is allowed to connect was decided before.
    pub(super) machine: String,
}

/// Which recording an agent wants to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Open {
    /// The recording's number. Who does not know it cannot write to the recording: it is drawn at random.
    pub(super) recording: u64,
    /// When it began: for its file's name.
    pub(super) began_wall_ns: u64,
    /// So many of its frames were acknowledged before.
    pub(super) acknowledged: u64,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Message {
    /// An agent's first.
    Hello(Hello),
    /// A collector's first, if it takes the agent: the version that both go on with, and the longest frame that it takes.
    Welcome { version: u16, most_frame_bytes: u64 },
    /// An agent's, before frames.
    Open(Open),
    /// The collector has so many frames of the recording; the next one is to be sent.
    Opened { frames: u64 },
    /// A frame, and how many there are before it in the recording.
    Frame { sequence: u64, frame: Vec<u8> },
    /// The first so many frames are on the disk.
    Acknowledged { frames: u64 },
    /// The collector takes no more; its last.
    Refused(Refusal),
    /// Either side's, if it has nothing else to say.
    Alive,
}

const HELLO: u8 = 1;
const WELCOME: u8 = 2;
const OPEN: u8 = 3;
const OPENED: u8 = 4;
const FRAME: u8 = 5;
const ACKNOWLEDGED: u8 = 6;
const REFUSED: u8 = 7;
const ALIVE: u8 = 8;

impl Message {
    /// As bytes.
    pub(super) fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Hello(hello) => packed(HELLO, hello),
            Self::Welcome { version, most_frame_bytes } => packed(WELCOME, &(version, most_frame_bytes)),
            Self::Open(open) => packed(OPEN, open),
            Self::Opened { frames } => packed(OPENED, frames),
            Self::Frame { sequence, frame } => frame_message(*sequence, frame),
            Self::Acknowledged { frames } => packed(ACKNOWLEDGED, frames),
            Self::Refused(refusal) => packed(REFUSED, refusal),
            Self::Alive => packed(ALIVE, &()),
        }
    }

    fn of(kind: u8, body: &[u8]) -> Result<Self, PeerFault> {
        Ok(match kind {
            HELLO => Self::Hello(unpacked(body)?),
            WELCOME => {
                let (version, most_frame_bytes) = unpacked(body)?;
                Self::Welcome { version, most_frame_bytes }
            }
            OPEN => Self::Open(unpacked(body)?),
            OPENED => Self::Opened { frames: unpacked(body)? },
            FRAME => {
                let (sequence, frame) = body.split_first_chunk().ok_or(PeerFault::Damaged)?;
                Self::Frame { sequence: u64::from_le_bytes(*sequence), frame: frame.to_vec() }
            }
            ACKNOWLEDGED => Self::Acknowledged { frames: unpacked(body)? },
            REFUSED => Self::Refused(unpacked(body)?),
            ALIVE => Self::Alive,
            _ => return Err(PeerFault::Kind),
        })
    }
}

/// A message with a frame that stays where it is.
pub(super) fn frame_message(sequence: u64, frame: &[u8]) -> Vec<u8> {
    framing::framed(FRAME, |mut bytes| {
        bytes.reserve(8 + frame.len());
        bytes.extend_from_slice(&sequence.to_le_bytes());
        bytes.extend_from_slice(frame);
        bytes
    })
}

fn packed(kind: u8, value: &impl Serialize) -> Vec<u8> {
    framing::framed(kind, |bytes| postcard::to_extend(value, bytes).expect("a message can be encoded"))
}

fn unpacked<T: DeserializeOwned>(body: &[u8]) -> Result<T, PeerFault> {
    match postcard::take_from_bytes(body) {
        Ok((value, [])) => Ok(value),
        _ => Err(PeerFault::Damaged),
    }
}

/// What has come of messages. It grows as bytes come, and not as they claim.
#[derive(Default)]
pub(super) struct Incoming {
    bytes: Vec<u8>,
    /// Up to here they have been read.
    read: usize,
    has_greeted: bool,
    /// The longest frame that may come now; 0 for none.
    pub(super) most_frame_bytes: usize,
}

impl Incoming {
    /// Takes more of them.
    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.read);
        self.read = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// The next message, if all of it is there.
    pub(super) fn next(&mut self) -> Result<Option<Message>, PeerFault> {
        if !self.has_greeted {
            let here = self.bytes.len().min(MAGIC.len());
            if self.bytes[..here] != MAGIC[..here] {
                return Err(PeerFault::Foreign);
            }
            if here < MAGIC.len() {
                return Ok(None);
            }
            self.has_greeted = true;
            self.read = here;
        }
        let rest = &self.bytes[self.read..];
        let Some((kind, length)) = framing::claimed(rest) else { return Ok(None) };
        let most = match kind {
            FRAME if self.most_frame_bytes == 0 => return Err(PeerFault::Turn),
            FRAME => self.most_frame_bytes.saturating_add(8),
            HELLO..=ALIVE => MOST_CONTROL_BYTES,
            _ => return Err(PeerFault::Kind),
        };
        if length > most {
            return Err(PeerFault::Size);
        }
        let Some(message) = rest.get(..HEAD_BYTES + length) else { return Ok(None) };
        let (kind, body) = framing::unframed(message).ok_or(PeerFault::Damaged)?;
        let message = Message::of(kind, body)?;
        self.read += HEAD_BYTES + length;
        Ok(Some(message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Message> {
        vec![
            Message::Hello(Hello { lowest: 1, highest: 2, machine: "one".to_owned() }),
            Message::Welcome { version: 1, most_frame_bytes: 1 << 26 },
            Message::Open(Open { recording: u64::MAX, began_wall_ns: 5, acknowledged: 0 }),
            Message::Opened { frames: 7 },
            Message::Frame { sequence: 8, frame: b"a frame".to_vec() },
            Message::Acknowledged { frames: 9 },
            Message::Refused(Refusal::Fault(PeerFault::Gap)),
            Message::Alive,
        ]
    }

    #[test]
    fn messages_are_read_as_they_were_written_however_they_are_cut() {
        let bytes: Vec<u8> = MAGIC.iter().copied().chain(all().iter().flat_map(Message::bytes)).collect();
        for piece in 1..40 {
            let mut incoming = Incoming { most_frame_bytes: 100, ..Incoming::default() };
            let mut read = Vec::new();
            for bytes in bytes.chunks(piece) {
                incoming.add(bytes);
                while let Some(message) = incoming.next().unwrap() {
                    read.push(message);
                }
            }
            assert_eq!(read, all());
        }
    }

    #[test]
    fn who_speaks_otherwise_is_told_so() {
        let fault = |bytes: &[u8]| {
            let mut incoming = Incoming { most_frame_bytes: 100, ..Incoming::default() };
            incoming.add(bytes);
            incoming.next().unwrap_err()
        };
        let behind = |message: &[u8]| [MAGIC, message].concat();
        assert_eq!(fault(b"GET / HTTP/1.1"), PeerFault::Foreign);
        assert_eq!(fault(b"comb collecT"), PeerFault::Foreign);
        assert_eq!(fault(&behind(&[99; 9])), PeerFault::Kind);
        // As soon as it is claimed, and not when it has come.
        assert_eq!(fault(&behind(&[FRAME, 109, 0, 0, 0, 0, 0, 0, 0])), PeerFault::Size);
        assert_eq!(fault(&behind(&[HELLO, 0, 0, 0, 1, 0, 0, 0, 0])), PeerFault::Size);
        let mut message = Message::Alive.bytes();
        message[5] ^= 1;
        assert_eq!(fault(&behind(&message)), PeerFault::Damaged);
        let long = framing::framed(OPENED, |bytes| [&bytes[..], &[1, 1]].concat());
        assert_eq!(fault(&behind(&long)), PeerFault::Damaged);
        let mut incoming = Incoming::default();
        incoming.add(&behind(&frame_message(0, b"x")));
        assert_eq!(incoming.next(), Err(PeerFault::Turn), "before it may come");
    }
}
