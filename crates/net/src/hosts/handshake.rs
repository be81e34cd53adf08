//! How two hosts prove to each other who they are.

use super::pinned::{self, UnknownKey};
use super::secure_stream::{Records, read_records, write_records};
use super::{HostKey, KnownHosts, PublicKey, SecureStream, StreamError};
use crate::seal::{Direction, Suite};
use comb_types::{Version, VersionError};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, Connection, ServerConnection};
use std::collections::BTreeSet;
use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};
use thiserror::Error;

/// The first message in each direction: this, and the preferred suite. Further bytes are for versions to
/// come.
const HELLO: &[u8; 4] = b"comb";

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
        Self::accept_by(pinned::acceptor(key, known), socket, key, known, terms)
    }

    /// Lets in whoever is at the other end of `socket` and has a key. A host that `known` does not list has no name
    /// ([`peer`](SecureStream::peer) is empty): what it may say is the caller's to decide, by its key and its first word.
    pub fn accept_anybody(
        socket: TcpStream,
        key: &HostKey,
        known: &KnownHosts,
        terms: Terms,
    ) -> Result<SecureStream, ConnectError> {
        Self::accept_by(pinned::open_acceptor(key, known), socket, key, known, terms)
    }

    fn accept_by(
        config: rustls::ServerConfig,
        socket: TcpStream,
        key: &HostKey,
        known: &KnownHosts,
        terms: Terms,
    ) -> Result<SecureStream, ConnectError> {
        let session = ServerConnection::new(Arc::new(config)).map_err(ConnectError::Tls)?.into();
        let handshake = Handshake::new(key, known, terms);
        let mut stream = handshake.establish(session, socket)?;
        handshake.say_hello(&mut stream)?;
        handshake.hear_hello(&mut stream)?;
        Ok(stream)
    }
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
        let peer_key = peer_key.expect("no handshake completes without a key of this form");
        // Only who lets in strangers finds no name.
        let peer = self.known.name_of(&peer_key).unwrap_or_default().to_owned();
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
