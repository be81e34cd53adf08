//! What a process and its agent say to each other: one datagram a message, the version first, descriptors beside it.
//!
//! Everything that comes in is decoded from bytes that a stranger wrote. A datagram that does not decode ends that
//! connection with a reason, and nothing else.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use comb_types::{ChannelId, EndpointId, Version, VersionError};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, UCred,
};
use serde::{Deserialize, Serialize};

use super::policy::Identity;
use crate::shm::Geometry;

/// No message is longer; a listing says when it was cut.
pub const LONGEST_MESSAGE: usize = 32 << 10;
/// Names of processes and endpoints.
pub const LONGEST_NAME: usize = 128;
/// Channels in one message that restores an endpoint: two longest names each, and it is still no too long message.
pub const MOST_RESTORED: usize = 100;
const MOST_DESCRIPTORS: usize = 8;

/// One side of a channel, as the other gets to know it. Goes with its descriptors: ring, and eventfd if `event`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Side {
    /// Size of the ring.
    pub geometry: Geometry,
    /// The flag on the maker's own bell board that the other side is to raise.
    pub bell_index: u32,
    /// Whether an eventfd follows the ring.
    pub event: bool,
    /// Whether the maker's process has registered for membarrier.
    pub asymmetric_fences: bool,
}

/// A window, as its owner, the agent and the peer speak of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct WindowTerms {
    /// Whose peer gets it.
    pub channel: ChannelId,
    /// The owner's endpoint on the way to the agent, the peer's on the way from it: both can be one process's.
    pub endpoint: EndpointId,
    /// The owner's number for it on the channel.
    pub number: u32,
    /// Which window of that number.
    pub epoch: u64,
    /// Its size.
    pub bytes: u64,
    /// Whether the peer may write it.
    pub writable: bool,
}

/// How the messages of a channel between hosts become frames, each sent until it is acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Framing {
    /// Bytes that a frame carries.
    pub longest_frame: u32,
    /// Bytes of the longest message, which travels in several frames.
    pub longest_message: u32,
    /// Frames on their way without an acknowledgement.
    pub window: u32,
}

/// What two hosts agreed on for one channel. Goes with its socket, which is connected to the other host's.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteSession {
    /// The channel's number in frames; each agent has a number of its own for it besides.
    pub wire_channel: ChannelId,
    /// As the agents' handshake settled it.
    pub version: u8,
    /// How frames are sealed.
    pub suite: u8,
    /// Whether our side opened it.
    pub connector: bool,
    /// What we seal with.
    pub send_secret: [u8; 32],
    /// What the peer seals with.
    pub receive_secret: [u8; 32],
    /// How messages become frames.
    pub framing: Framing,
    /// Whether the process may take a queue of the network interface for it (AF_XDP). The other end need not know.
    pub af_xdp: bool,
    /// A peer that is silent for longer is taken for dead.
    pub silence_limit_ms: u32,
}

impl std::fmt::Debug for RemoteSession {
    /// Keeps the secrets out of logs.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RemoteSession").field("wire_channel", &self.wire_channel).finish_non_exhaustive()
    }
}

/// From a process to its agent.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Request {
    /// The first message of a connection.
    Hello {
        /// The name that peers use.
        name: String,
    },
    /// Makes an endpoint. With the bell board.
    CreateEndpoint {
        /// For the answer.
        request: u32,
        /// Its name within the process.
        name: String,
        /// Flags on the board.
        bell_channels: u32,
    },
    /// Opens a channel. With the descriptors of `side`.
    Open {
        /// For the answer.
        request: u32,
        /// Ours.
        endpoint: EndpointId,
        /// `process/endpoint`.
        to: String,
        /// Our side.
        side: Side,
    },
    /// Takes an offered channel. With the descriptors of `side`.
    Accept {
        /// As offered.
        channel: ChannelId,
        /// Our side.
        side: Side,
    },
    /// Does not take it.
    Refuse {
        /// As offered.
        channel: ChannelId,
        /// A sentence for people.
        reason: String,
    },
    /// Hands a window to the peer of a channel. With its memory.
    ShareWindow {
        /// For the answer.
        request: u32,
        /// What; `endpoint` is the owner's.
        window: WindowTerms,
    },
    /// A channel is done with.
    CloseChannel {
        /// Which.
        channel: ChannelId,
    },
    /// An endpoint is done with, and its channels.
    CloseEndpoint {
        /// Which.
        endpoint: EndpointId,
    },
    /// After the agent came back: what this process still holds. With the bell board. Said again for an endpoint that
    /// was restored already, it adds channels.
    RestoreEndpoint {
        /// For the answer.
        request: u32,
        /// Its name within the process.
        name: String,
        /// Flags on the board.
        bell_channels: u32,
        /// Its channels: number, and the peer's `process/endpoint`.
        channels: Vec<(ChannelId, String)>,
        /// The size of its ring for each: they count against the process's limit again.
        geometry: Geometry,
    },
    /// What is there?
    List {
        /// For the answer.
        request: u32,
    },
    /// A window is withdrawn: it no longer counts against the owner's limit.
    WithdrawWindow {
        /// As it was shared.
        window: WindowTerms,
    },
    /// Opens a channel to another host.
    OpenRemote {
        /// For the answer.
        request: u32,
        /// Ours.
        endpoint: EndpointId,
        /// `host:process/endpoint`.
        to: String,
        /// Of both sides.
        silence_limit_ms: u32,
    },
    /// Has taken an offered channel from another host.
    AcceptRemote {
        /// As offered.
        channel: ChannelId,
    },
    /// After the agent came back: a window that the peer has already. With its memory. It counts against the owner's limit
    /// again.
    RestoreWindow {
        /// For the answer.
        request: u32,
        /// What; `endpoint` is the owner's, by its new number.
        window: WindowTerms,
    },
}

/// From an agent to a process.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Reply {
    /// The connection is good.
    Welcome {
        /// As the agent sees the process.
        you: Identity,
    },
    /// An endpoint was made or restored.
    EndpointCreated {
        /// As asked.
        request: u32,
        /// Its number from now on.
        endpoint: EndpointId,
    },
    /// A peer opens a channel to us. With: the descriptors of `side`, the peer's bell board, its process.
    Offer {
        /// Its number.
        channel: ChannelId,
        /// Ours.
        endpoint: EndpointId,
        /// Who.
        from: Identity,
        /// The peer's endpoint.
        from_endpoint: String,
        /// The peer's side.
        side: Side,
        /// Flags on the peer's board.
        bell_channels: u32,
    },
    /// The peer took our channel. Descriptors as with `Offer`.
    Opened {
        /// As asked.
        request: u32,
        /// Its number.
        channel: ChannelId,
        /// Who.
        peer: Identity,
        /// The peer's side.
        side: Side,
        /// Flags on the peer's board.
        bell_channels: u32,
    },
    /// Not done; nothing changed.
    Refused {
        /// As asked; none if it was no request that is answered.
        request: Option<u32>,
        /// A sentence for people.
        reason: String,
    },
    /// The peer of a channel shares a window with us. With its memory.
    WindowShared {
        /// What; `endpoint` is ours.
        window: WindowTerms,
    },
    /// The peer of a channel is gone.
    PeerGone {
        /// Which.
        channel: ChannelId,
        /// A sentence for people.
        reason: String,
        /// What its endpoint left on its board, if its process has ended.
        last_word: Option<u128>,
    },
    /// Answer to `List`.
    Listing {
        /// As asked.
        request: u32,
        /// A line each.
        processes: Vec<Listed>,
        /// Whether more are there than fit.
        cut: bool,
    },
    /// Our window went to the peer.
    WindowTaken {
        /// As asked.
        request: u32,
    },
    /// A process on another host opens a channel to us. With its socket.
    RemoteOffer {
        /// Its number.
        channel: ChannelId,
        /// Ours.
        endpoint: EndpointId,
        /// `host:process/endpoint` of the opener.
        from: String,
        /// As the two agents agreed.
        session: RemoteSession,
    },
    /// The other host took our channel. With its socket.
    RemoteOpened {
        /// As asked.
        request: u32,
        /// Its number.
        channel: ChannelId,
        /// As the two agents agreed.
        session: RemoteSession,
    },
}

/// A process in a listing.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Listed {
    /// Who.
    pub identity: Identity,
    /// Its endpoints.
    pub endpoints: u32,
    /// Its channels.
    pub channels: u32,
    /// Shared memory that it handed out.
    pub memory_bytes: u64,
}

/// Why nothing sensible came out of a connection.
#[derive(Debug, thiserror::Error)]
pub enum ProtocolError {
    /// The connection ended.
    #[error("the connection ended")]
    Ended,
    /// The system refused.
    #[error("the connection failed: {0}")]
    System(#[from] rustix::io::Errno),
    /// Another version.
    #[error(transparent)]
    Version(#[from] VersionError),
    /// Bytes that are no message.
    #[error("the other side sent {bytes} bytes that are no message of this protocol")]
    Undecodable {
        /// How many.
        bytes: usize,
    },
    /// Ours: a message that does not fit.
    #[error("a message of {bytes} bytes is beyond the protocol's {LONGEST_MESSAGE}")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// The agent refused what was asked of it; the connection goes on.
    #[error("the agent refused the request")]
    Refused,
    /// Data or descriptors were cut off.
    #[error("the other side sent a message beyond the protocol's limits")]
    Truncated,
}

/// Bytes of one message, the version first.
pub fn encode(message: &impl Serialize) -> Result<Vec<u8>, ProtocolError> {
    let bytes = postcard::to_extend(message, vec![Version::CURRENT.0]).expect("plain data always encodes");
    if bytes.len() > LONGEST_MESSAGE {
        return Err(ProtocolError::TooLong { bytes: bytes.len() });
    }
    Ok(bytes)
}

/// One message from the bytes of a datagram.
pub fn decode<T: for<'a> Deserialize<'a>>(bytes: &[u8]) -> Result<T, ProtocolError> {
    let (&version, rest) = bytes.split_first().ok_or(ProtocolError::Ended)?;
    Version::CURRENT.accept(Version(version))?;
    match postcard::take_from_bytes(rest) {
        Ok((message, [])) => Ok(message),
        _ => Err(ProtocolError::Undecodable { bytes: bytes.len() }),
    }
}

/// Sends one message with its descriptors.
pub fn send(
    socket: impl AsFd,
    message: &impl Serialize,
    descriptors: &[BorrowedFd<'_>],
) -> Result<(), ProtocolError> {
    let bytes = encode(message)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(descriptors)), "at most {MOST_DESCRIPTORS}");
    }
    loop {
        let parts = [IoSlice::new(&bytes)];
        match rustix::net::sendmsg(&socket, &parts, &mut ancillary, SendFlags::NOSIGNAL) {
            Ok(_) => return Ok(()),
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::PIPE | rustix::io::Errno::CONNRESET) => return Err(ProtocolError::Ended),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Receives one message with its descriptors; waits if the socket does.
pub fn receive<T: for<'a> Deserialize<'a>>(socket: impl AsFd) -> Result<(T, Vec<OwnedFd>), ProtocolError> {
    receive_from(socket).map(|(message, descriptors, _)| (message, descriptors))
}

/// As [`receive`], with who sent it, as the kernel vouches for it, if the socket asks for that (SO_PASSCRED).
pub(crate) fn receive_from<T: for<'a> Deserialize<'a>>(
    socket: impl AsFd,
) -> Result<(T, Vec<OwnedFd>, Option<UCred>), ProtocolError> {
    let mut bytes = vec![0; LONGEST_MESSAGE + 1];
    let mut space =
        [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS), ScmCredentials(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        let mut parts = [IoSliceMut::new(&mut bytes)];
        match rustix::net::recvmsg(&socket, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Ok(received) => break received,
            // Said once, to whom hangs up before it has read all from us. What it said itself can still be read.
            Err(rustix::io::Errno::INTR | rustix::io::Errno::CONNRESET) => {}
            Err(error) => return Err(error.into()),
        }
    };
    // Taken first, so that they are closed whatever else is wrong.
    let (mut descriptors, mut sender) = (Vec::new(), None);
    for message in ancillary.drain() {
        match message {
            RecvAncillaryMessage::ScmRights(rights) => descriptors.extend(rights),
            RecvAncillaryMessage::ScmCredentials(credentials) => sender = Some(credentials),
            _ => {}
        }
    }
    if received.bytes == 0 {
        return Err(ProtocolError::Ended);
    }
    let mut cut = received.flags.contains(rustix::net::ReturnFlags::TRUNC);
    if received.flags.contains(rustix::net::ReturnFlags::CTRUNC) {
        // There was space for more: then it is this process that has no descriptor left. The message counts, without
        // any, so that it is answered; a connection does not end for that.
        cut |= descriptors.len() >= MOST_DESCRIPTORS;
        descriptors.clear();
    }
    if cut || received.bytes > LONGEST_MESSAGE || descriptors.len() > MOST_DESCRIPTORS {
        return Err(ProtocolError::Truncated);
    }
    Ok((decode(&bytes[..received.bytes])?, descriptors, sender))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The first message of version 1 as it was recorded. A later version must still read it.
    const HELLO_V1: &[u8] = b"\x01\x00\x05alice";

    #[test]
    fn recorded_messages_are_still_read() {
        let hello: Request = decode(HELLO_V1).unwrap();
        assert_eq!(hello, Request::Hello { name: "alice".into() });
        assert_eq!(encode(&hello).unwrap(), HELLO_V1);
    }

    #[test]
    fn another_version_is_refused_by_its_number() {
        let mut bytes = HELLO_V1.to_vec();
        bytes[0] = 3;
        let error = decode::<Request>(&bytes).unwrap_err().to_string();
        assert!(error.contains("version 3"), "{error}");
    }

    #[test]
    fn a_message_with_something_behind_it_is_refused() {
        let mut bytes = HELLO_V1.to_vec();
        bytes.push(0);
        assert!(matches!(decode::<Request>(&bytes), Err(ProtocolError::Undecodable { .. })));
    }

    proptest! {
        #[test]
        fn no_bytes_do_harm(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = decode::<Request>(&bytes);
            let _ = decode::<Reply>(&bytes);
            let mut versioned = bytes;
            versioned.insert(0, 1);
            let _ = decode::<Request>(&versioned);
            let _ = decode::<Reply>(&versioned);
        }
    }
}
