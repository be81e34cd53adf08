//! What a command of this host needs to speak to other hosts of the comb by itself: the book of hosts as it was written down, and this
//! host's key.

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use comb_net::hosts::{ConnectError, HostKey, KnownHosts, SecureStream, Terms};

use super::members::{Key, Member, Saved};
use crate::state_directory::StateDirectory;

const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// The book of hosts as it was written down. To be opened anew for each session: hosts come and go, and change their keys.
#[derive(Debug)]
pub struct Book {
    files: StateDirectory,
    saved: Saved,
}

impl Book {
    /// Reads it. A sentence if this host knows no other.
    pub fn open(files: &StateDirectory) -> Result<Self, String> {
        let saved = super::saved(files)?;
        let saved = saved.ok_or("this host belongs to no comb with others: `comb token`, `comb join`")?;
        Ok(Self { files: files.clone(), saved })
    }

    /// What this host is called.
    pub fn own(&self) -> &str {
        &self.saved.own
    }

    /// The host of that name. A sentence if there is none.
    pub fn member(&self, host: &str) -> Result<&Member, String> {
        let member = self.saved.members.iter().find(|member| member.name == host);
        member.ok_or_else(|| format!("there is no host {host} in this comb: `comb host ls` shows them"))
    }

    /// A session with whoever listens on that port of a host, and proves itself by the host's key; without a port, with its agent.
    pub fn connect(&self, host: &str, port: Option<u16>) -> Result<SecureStream, String> {
        let member = self.member(host)?;
        let address = SocketAddr::new(member.address.ip(), port.unwrap_or(member.address.port()));
        let socket = TcpStream::connect_timeout(&address, CONNECT_LIMIT)
            .map_err(|error| format!("host {host} does not answer on {address}: {error}"))?;
        let session = SecureStream::connect(socket, &self.key()?, &self.known(), host, Terms::default());
        session.map_err(|error| match error {
            ConnectError::RefusedByPeer { ours, .. } => format!(
                "host {host} does not know this host's key, {ours}: it takes a token (`comb token` there, `comb join` here), or \
                 this host was put out"
            ),
            ConnectError::UnknownKey(unknown) => format!(
                "on {address} is another host than {host}: it has the key {}, and `comb host ls` shows which it should have",
                unknown.presented
            ),
            error => format!("host {host}: {error}"),
        })
    }

    /// A session with the host that has connected, if it is one of the comb.
    pub fn accept(&self, socket: TcpStream) -> Result<SecureStream, String> {
        let session = SecureStream::accept(socket, &self.key()?, &self.known(), Terms::default());
        session.map_err(|error| match error {
            ConnectError::UnknownKey(unknown) => format!(
                "it has the key {}, which is that of no host of this comb: it takes a token (`comb token` here, `comb join` there)",
                unknown.presented
            ),
            ConnectError::RefusedByPeer { .. } => "it does not know this host's key".to_owned(),
            error => error.to_string(),
        })
    }

    fn key(&self) -> Result<HostKey, String> {
        HostKey::load(&self.files.key_file()).map_err(|error| error.to_string())
    }

    /// All hosts of the comb, and this one: its own programs may speak to each other.
    fn known(&self) -> KnownHosts {
        let keys = self.saved.members.iter().flat_map(|member| {
            let keys = [Some(member.key), member.next_key].into_iter().flatten();
            keys.map(|Key(key)| (member.name.as_str(), key))
        });
        KnownHosts::of(&self.files.hosts_file(), keys)
    }
}
