//! Messages between two hosts that have proved who they are.

use super::PublicKey;
use crate::seal::{Direction, SECRET_BYTES, SealKey, Suite};
use comb_types::{ChannelId, Version};
use rustls::Connection;
use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};
use thiserror::Error;

/// The longest message. Agents exchange descriptions, not data.
pub const LONGEST_MESSAGE_BYTES: usize = 64 * 1024;

/// In front of each message: the version, and the length in four bytes, little-endian.
const HEADER_BYTES: usize = 5;

const EXPORTER_LABEL: &[u8] = b"EXPORTER-comb-channel";

/// Why a message was not sent or received. The stream is finished, but for a message that was too long to be
/// sent and for one that has not been received yet.
#[derive(Debug, Error)]
pub enum StreamError {
    /// The stream ended without a farewell or within a message: the peer died, the network failed, or
    /// somebody cut the stream. What came before is genuine.
    #[error("the stream was cut off")]
    Truncated,
    /// Sending: the caller's fault, and nothing was sent. Receiving: the peer's.
    #[error("a message of {bytes} bytes is longer than the {LONGEST_MESSAGE_BYTES} that are allowed")]
    TooLong {
        /// Its alleged length.
        bytes: usize,
    },
    /// The peer's fault: the handshake settled on a version.
    #[error("the peer sent a message of version {alleged} after the handshake settled on {agreed}")]
    WrongVersion {
        /// What the message says.
        alleged: u8,
        /// What was agreed.
        agreed: u8,
    },
    /// Receiving: nothing complete came in time. What did come is kept: receive again. Sending: the peer does
    /// not read, and has perhaps the beginning of the message.
    #[error("the peer took too long")]
    TimedOut,
    /// The peer broke the rules of TLS, or somebody on the way changed its bytes.
    #[error("secure session: {0}")]
    Tls(#[from] rustls::Error),
    /// The network.
    #[error("secure stream: {0}")]
    Io(#[from] io::Error),
}

/// The keys of this channel have been taken before.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("{0} has had its keys: a second sealer with them would use each nonce twice")]
pub struct KeysTaken(pub ChannelId);

/// A link to the agent of another host. Blocking, for one thread; the peer's name is proved.
///
/// What the peer says is still an allegation: this type shows who said it.
pub struct SecureStream {
    pub(super) session: Connection,
    pub(super) socket: TcpStream,
    pub(super) peer: String,
    pub(super) peer_key: PublicKey,
    pub(super) direction: Direction,
    pub(super) version: Version,
    pub(super) suite: Suite,
    /// The message that is arriving: its header and as much of its payload as came.
    pub(super) incoming: Vec<u8>,
    pub(super) taken: BTreeSet<ChannelId>,
}

impl SecureStream {
    /// The name of the host at the other end; empty for a stranger, whom only
    /// [`accept_anybody`](SecureStream::accept_anybody) lets in.
    pub fn peer(&self) -> &str {
        &self.peer
    }

    /// The key by which it proved itself.
    pub fn peer_key(&self) -> PublicKey {
        self.peer_key
    }

    /// Where the other end is, as the network says.
    pub fn peer_address(&self) -> Option<std::net::SocketAddr> {
        self.socket.peer_addr().ok()
    }

    /// Our own address, as that host sees it.
    pub fn own_address(&self) -> Option<std::net::SocketAddr> {
        self.socket.local_addr().ok()
    }

    /// What both ends speak.
    pub fn version(&self) -> Version {
        self.version
    }

    /// How the frames of channels are sealed.
    pub fn suite(&self) -> Suite {
        self.suite
    }

    /// Sends one message.
    pub fn send(&mut self, message: &[u8]) -> Result<(), StreamError> {
        let bytes = message.len();
        let length = u32::try_from(bytes).ok().filter(|_| bytes <= LONGEST_MESSAGE_BYTES);
        let length = length.ok_or(StreamError::TooLong { bytes })?;
        let mut header = [self.version.0; HEADER_BYTES];
        header[1..].copy_from_slice(&length.to_le_bytes());
        self.write(&header)?;
        self.write(message)?;
        self.flush()?;
        Ok(())
    }

    /// Waits for the next message, for ever or for `limit`. `None`: the peer said farewell.
    pub fn receive(&mut self, limit: Option<Duration>) -> Result<Option<&[u8]>, StreamError> {
        // A limit of nothing asks for what is there already, but the system knows no wait of zero.
        let deadline = limit.map(|limit| Instant::now() + limit.max(SHORTEST_WAIT));
        self.receive_of(Some(self.version), deadline)
    }

    /// Says farewell, so that the other end can tell this from a death. Receive before what the peer still
    /// has to say: hanging up on unread bytes resets the connection, and what we sent last may be lost with
    /// it.
    pub fn close(mut self) -> Result<(), StreamError> {
        self.session.send_close_notify();
        self.flush()?;
        Ok(())
    }

    /// The keys for the frames of one channel with this peer, `(send, receive)`: what one end sends with, the
    /// other receives with. Derived from this session, channel, direction, suite and version (RFC 5705), so
    /// no two of them share a key, and both ends come to the same without another word.
    ///
    /// A channel gets its keys once. When they are used up, go on with a new channel.
    pub fn channel_keys(&mut self, channel: ChannelId) -> Result<(SealKey, SealKey), KeysTaken> {
        if !self.taken.insert(channel) {
            return Err(KeysTaken(channel));
        }
        let other_way = match self.direction {
            Direction::FromConnector => Direction::FromAcceptor,
            Direction::FromAcceptor => Direction::FromConnector,
        };
        Ok((self.derive(channel, self.direction), self.derive(channel, other_way)))
    }

    fn derive(&self, channel: ChannelId, direction: Direction) -> SealKey {
        let mut context = [0, 0, 0, 0, direction as u8, self.suite as u8, self.version.0];
        context[..4].copy_from_slice(&channel.0.to_le_bytes());
        let secret = self
            .session
            .export_keying_material([0; SECRET_BYTES], EXPORTER_LABEL, Some(&context))
            .expect("the handshake is complete");
        SealKey::new(self.suite, direction, secret)
    }

    /// Completes the message that is arriving. Of which version it must be is open only while that is not
    /// settled.
    pub(super) fn receive_of(
        &mut self,
        agreed: Option<Version>,
        deadline: Option<Instant>,
    ) -> Result<Option<&[u8]>, StreamError> {
        if message_bytes(&self.incoming).is_some_and(|bytes| self.incoming.len() == HEADER_BYTES + bytes) {
            // The one that was handed out by the last call.
            self.incoming.clear();
        }
        if !self.fill(HEADER_BYTES, deadline)? {
            return Ok(None);
        }
        let alleged = self.incoming[0];
        if let Some(Version(agreed)) = agreed.filter(|agreed| agreed.0 != alleged) {
            return Err(StreamError::WrongVersion { alleged, agreed });
        }
        let bytes = message_bytes(&self.incoming).expect("the header is complete");
        if bytes > LONGEST_MESSAGE_BYTES {
            return Err(StreamError::TooLong { bytes });
        }
        // Within a message a farewell is no farewell; `fill` says so.
        self.fill(HEADER_BYTES + bytes, deadline)?;
        Ok(Some(&self.incoming[HEADER_BYTES..]))
    }

    /// Waits until `incoming` is `bytes` long. `false`: the peer said farewell before the message began.
    fn fill(&mut self, bytes: usize, deadline: Option<Instant>) -> Result<bool, StreamError> {
        while self.incoming.len() < bytes {
            let have = self.incoming.len();
            self.incoming.resize(bytes, 0);
            let read = self.session.reader().read(&mut self.incoming[have..]);
            self.incoming.truncate(have + read.as_ref().map_or(0, |read| *read));
            match read {
                Ok(0) if have == 0 => return Ok(false),
                Ok(0) => return Err(StreamError::Truncated),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return Err(StreamError::Truncated);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    // `Ended` as well: the session then tells a farewell from a cut, in the next round.
                    read_records(&mut self.session, &mut self.socket, deadline)?;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }

    fn write(&mut self, mut bytes: &[u8]) -> Result<(), StreamError> {
        // The session takes what fits its own buffer, so send that off in between.
        while !bytes.is_empty() {
            let taken = self.session.writer().write(bytes)?;
            bytes = &bytes[taken..];
            if !bytes.is_empty() {
                self.flush()?;
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), StreamError> {
        write_records(&mut self.session, &mut self.socket)
    }
}

impl AsFd for SecureStream {
    /// To wait for with others. Messages may be waiting inside when it is not readable: receive with a limit
    /// of nothing until that times out.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl std::fmt::Debug for SecureStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let SecureStream { peer, peer_key, direction, version, suite, .. } = self;
        f.debug_struct("SecureStream")
            .field("peer", peer)
            .field("peer_key", peer_key)
            .field("direction", direction)
            .field("version", version)
            .field("suite", suite)
            .finish_non_exhaustive()
    }
}

pub(super) enum Records {
    Came,
    Ended,
}

/// Waits for some bytes of the peer and feeds them to the session.
pub(super) fn read_records(
    session: &mut Connection,
    socket: &mut TcpStream,
    deadline: Option<Instant>,
) -> Result<Records, StreamError> {
    let limit = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
    // Asked before each read, not only of the system: a peer that sends a byte now and then must not get more
    // time by it.
    if limit.is_some_and(|limit| limit.is_zero()) {
        return Err(StreamError::TimedOut);
    }
    socket.set_read_timeout(limit)?;
    let read = uninterrupted(|| session.read_tls(socket))?;
    let processed = session.process_new_packets();
    if processed.is_err() {
        // Tell the peer why; it cannot be helped if that fails.
        let _ = session.write_tls(socket);
    }
    processed?;
    Ok(if read == 0 { Records::Ended } else { Records::Came })
}

const SHORTEST_WAIT: Duration = Duration::from_millis(1);

/// Sends whatever the session wants to say.
pub(super) fn write_records(session: &mut Connection, socket: &mut TcpStream) -> Result<(), StreamError> {
    while session.wants_write() {
        uninterrupted(|| session.write_tls(socket))?;
    }
    Ok(())
}

fn uninterrupted(mut call: impl FnMut() -> io::Result<usize>) -> Result<usize, StreamError> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // Linux says the first when a socket's time limit has passed, other systems the second.
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                return Err(StreamError::TimedOut);
            }
            result => return Ok(result?),
        }
    }
}

/// The alleged length of the message that `incoming` begins with, once its header is complete.
fn message_bytes(incoming: &[u8]) -> Option<usize> {
    let [_version, l0, l1, l2, l3] = *incoming.first_chunk::<HEADER_BYTES>()?;
    usize::try_from(u32::from_le_bytes([l0, l1, l2, l3])).ok()
}
