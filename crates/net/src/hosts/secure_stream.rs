//! Messages between two hosts that have proved who they are.

use super::pinned::{self, UnknownKey};
use super::{HostKey, KnownHosts, PublicKey};
use crate::seal::{Direction, SECRET_BYTES, SealKey, Suite};
use comb_types::{ChannelId, Version, VersionError};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, Connection, ServerConnection};
use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};
use thiserror::Error;

/// The longest message. Agents exchange descriptions, not data.
pub const LONGEST_MESSAGE_BYTES: usize = 64 * 1024;

/// In front of each message: the version, and the length in four bytes, little-endian.
const HEADER_BYTES: usize = 5;

/// The first message in each direction: this, and the preferred suite. Further bytes are for versions to
/// come.
const HELLO: &[u8; 4] = b"comb";

const EXPORTER_LABEL: &[u8] = b"EXPORTER-comb-channel";

/// What one end brings to the handshake besides its key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Terms {
    /// How it would like the frames of channels to be sealed. The ends agree by [`Suite::agree`].
    pub suite: Suite,
    /// How long the handshake may take: a peer that connects and then says nothing must not hold a thread.
    pub handshake_limit: Duration,
    /// How long sending may stand still because the peer does not read.
    pub send_limit: Duration,
}

impl Default for Terms {
    fn default() -> Terms {
        Terms {
            suite: Suite::preferred(),
            handshake_limit: Duration::from_secs(5),
            send_limit: Duration::from_secs(5),
        }
    }
}

/// Why there is no link.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// We refused the other end.
    #[error(transparent)]
    UnknownKey(UnknownKey),
    /// The other end refused us.
    #[error("the other host refused us ({alert}); does its file of known hosts list our key, {ours}?")]
    RefusedByPeer {
        /// The key that it would have to list.
        ours: PublicKey,
        /// What it said.
        alert: String,
    },
    /// We have no common version.
    #[error("{0}")]
    Version(VersionError),
    /// It proved itself, and then did not speak like an agent.
    #[error("the other host does not speak as an agent does")]
    NotAnAgent,
    /// It is something that does not speak TLS as we do.
    #[error("no secure session with the other end: {0}")]
    Tls(rustls::Error),
    /// It took too long.
    #[error("the other end did not complete the handshake in time")]
    TimedOut,
    /// The network, or a peer that hung up.
    #[error("handshake: {0}")]
    Io(#[from] io::Error),
}

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
    session: Connection,
    socket: TcpStream,
    peer: String,
    peer_key: PublicKey,
    direction: Direction,
    version: Version,
    suite: Suite,
    /// The message that is arriving: its header and as much of its payload as came.
    incoming: Vec<u8>,
    taken: BTreeSet<ChannelId>,
}

impl SecureStream {
    /// Proves to the host at the other end of `socket` who we are, and that it is the one that `known` calls
    /// `expected`.
    pub fn connect(
        socket: TcpStream,
        key: &HostKey,
        known: &KnownHosts,
        expected: &str,
        terms: Terms,
    ) -> Result<SecureStream, ConnectError> {
        let config = Arc::new(pinned::connector(key, known, expected));
        // TLS wants a name here and uses it for certificates only; we have none.
        let name = ServerName::try_from("comb.invalid").expect("this is the form of a name");
        let session = ClientConnection::new(config, name).map_err(ConnectError::Tls)?.into();
        let handshake = Handshake::new(key, known, terms);
        let mut stream = handshake.establish(session, socket)?;
        // The accepting end speaks first. When it refuses us, nothing of ours is on the way then, so its
        // farewell is not lost in a connection reset.
        handshake.hear_hello(&mut stream)?;
        handshake.say_hello(&mut stream)?;
        Ok(stream)
    }

    /// Lets in whichever host of `known` is at the other end of `socket`. It is called
    /// [`peer`](SecureStream::peer).
    pub fn accept(
        socket: TcpStream,
        key: &HostKey,
        known: &KnownHosts,
        terms: Terms,
    ) -> Result<SecureStream, ConnectError> {
        let config = Arc::new(pinned::acceptor(key, known));
        let session = ServerConnection::new(config).map_err(ConnectError::Tls)?.into();
        let handshake = Handshake::new(key, known, terms);
        let mut stream = handshake.establish(session, socket)?;
        handshake.say_hello(&mut stream)?;
        handshake.hear_hello(&mut stream)?;
        Ok(stream)
    }

    /// The name of the host at the other end.
    pub fn peer(&self) -> &str {
        &self.peer
    }

    /// The key by which it proved itself.
    pub fn peer_key(&self) -> PublicKey {
        self.peer_key
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
    fn receive_of(
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

enum Records {
    Came,
    Ended,
}

/// Waits for some bytes of the peer and feeds them to the session.
fn read_records(
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
fn write_records(session: &mut Connection, socket: &mut TcpStream) -> Result<(), StreamError> {
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

/// What leads to a stream.
struct Handshake<'a> {
    key: &'a HostKey,
    known: &'a KnownHosts,
    terms: Terms,
    deadline: Instant,
}

impl Handshake<'_> {
    fn new<'a>(key: &'a HostKey, known: &'a KnownHosts, terms: Terms) -> Handshake<'a> {
        Handshake { key, known, terms, deadline: Instant::now() + terms.handshake_limit }
    }

    /// Completes the handshake of TLS. If that succeeds, this end has found the other's key in its file.
    fn establish(
        &self,
        mut session: Connection,
        mut socket: TcpStream,
    ) -> Result<SecureStream, ConnectError> {
        socket.set_nodelay(true)?;
        socket.set_write_timeout(Some(self.terms.send_limit))?;
        let refused = |error| self.failure(error);
        while session.is_handshaking() {
            write_records(&mut session, &mut socket).map_err(refused)?;
            match read_records(&mut session, &mut socket, Some(self.deadline)).map_err(refused)? {
                Records::Came => {}
                Records::Ended => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            }
        }
        // The connecting end has the last word of the handshake.
        write_records(&mut session, &mut socket).map_err(refused)?;
        let presented = session.peer_certificates().and_then(|presented| presented.first());
        let peer_key = presented.and_then(|presented| PublicKey::from_spki(presented));
        let peer_key = peer_key.expect("no handshake completes without a key that was found in the file");
        let peer = self.known.name_of(&peer_key).expect("as above").to_owned();
        let direction = match session {
            Connection::Client(_) => Direction::FromConnector,
            Connection::Server(_) => Direction::FromAcceptor,
        };
        Ok(SecureStream {
            session,
            socket,
            peer,
            peer_key,
            direction,
            version: Version::CURRENT,
            suite: self.terms.suite,
            incoming: Vec::new(),
            taken: BTreeSet::new(),
        })
    }

    fn say_hello(&self, stream: &mut SecureStream) -> Result<(), ConnectError> {
        let hello = [HELLO, &[self.terms.suite as u8][..]].concat();
        // Always in our own version, which is how the other end learns it.
        let settled = std::mem::replace(&mut stream.version, Version::CURRENT);
        let sent = stream.send(&hello);
        stream.version = settled;
        sent.map_err(|error| self.failure(error))
    }

    fn hear_hello(&self, stream: &mut SecureStream) -> Result<(), ConnectError> {
        let heard = stream.receive_of(None, Some(self.deadline)).map_err(|error| self.failure(error))?;
        let hello = heard.and_then(|hello| hello.strip_prefix(HELLO)).and_then(|rest| rest.first());
        let theirs = Suite::from_byte(*hello.ok_or(ConnectError::NotAnAgent)?);
        let version = Version(stream.incoming[0]);
        stream.version = Version::CURRENT.accept(version).map_err(ConnectError::Version)?;
        // A suite that we do not know is of a later version; what both of us know is the safe one.
        stream.suite = theirs.map_or(Suite::ChaCha20Poly1305, |theirs| theirs.agree(self.terms.suite));
        Ok(())
    }

    /// What it means that the stream failed before it was one.
    fn failure(&self, error: StreamError) -> ConnectError {
        match error {
            StreamError::Tls(rustls::Error::AlertReceived(alert)) => {
                ConnectError::RefusedByPeer { ours: self.key.public(), alert: format!("{alert:?}") }
            }
            StreamError::Tls(error) => match pinned::unknown_key(&error) {
                Some(unknown) => ConnectError::UnknownKey(unknown),
                None => ConnectError::Tls(error),
            },
            StreamError::Io(error) => ConnectError::Io(error),
            StreamError::TimedOut => ConnectError::TimedOut,
            StreamError::Truncated => ConnectError::Io(io::ErrorKind::UnexpectedEof.into()),
            StreamError::TooLong { .. } | StreamError::WrongVersion { .. } => ConnectError::NotAnAgent,
        }
    }
}
