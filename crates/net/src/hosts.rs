//! The link between the agents of two hosts: who is there, and a private line to it.
//!
//! Each host has a key pair (ed25519); that is all its identity. There are no certificates, no authorities
//! and no dates that run out: an administrator writes the public keys of the hosts that belong together into
//! a file, and a host whose key is not in the file is refused. It is TLS 1.3 with raw public keys (RFC 7250),
//! both ends prove themselves, nothing older is spoken and no session is resumed.
//!
//! ```text
//! HostKey::generate() ─ save ─► /etc/comb/host.key        (0600; a wider mode is refused)
//!            └ public() ──────► "ed25519:9f3c…"           goes into the others' files, one line each:
//!                               alpha = ed25519:9f3c…     KnownHosts::load("/etc/comb/known_hosts")
//! ```
//!
//! A [`SecureStream`] carries messages between agents: set-up, not data. What data needs, keys for each
//! channel, is derived from the session (RFC 5705) without another exchange: [`SecureStream::channel_keys`].
//! Two programs that have more to say than messages make a [`ByteStream`] of it.

mod byte_stream;
mod handshake;
mod host_key;
mod known_hosts;
mod pinned;
mod secure_stream;
#[cfg(test)]
mod tests;

pub use byte_stream::ByteStream;
pub use handshake::{ConnectError, Terms};
pub use host_key::{BadKey, HostKey, KeyFileError, PublicKey};
pub use known_hosts::{KnownHosts, KnownHostsError, Problem};
pub use pinned::UnknownKey;
pub use secure_stream::{KeysTaken, LONGEST_MESSAGE_BYTES, SecureStream, StreamError};
