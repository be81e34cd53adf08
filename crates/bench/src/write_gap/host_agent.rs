//! The agent of a host, as a process of its own: it can be killed with its host.

use std::collections::BTreeMap;
use std::io::Read;
use std::net::SocketAddr;
use std::path::Path;

use comb_net::agent::{Hosts, Limits, SameUser, Server};
use comb_net::hosts::{HostKey, KnownHosts};

use super::network::Network;
use super::{Outcome, REPLICAS};
use crate::group_side::{host_name, say};

const KNOWN: &str = "known_hosts";
/// All know where all listen before any does.
const PORT: u16 = 7073;

/// Makes the keys of all hosts, where [`run`] finds them.
pub(super) fn make_keys(room: &Path) -> Outcome<()> {
    let mut known = String::new();
    for host in (0..).take(REPLICAS).map(host_name) {
        let key = HostKey::generate();
        key.save(&room.join(format!("{host}.key")))?;
        known += &format!("{host} = {}\n", key.public());
    }
    Ok(std::fs::write(room.join(KNOWN), known)?)
}

/// Runs the agent of a host, which is told by its number, until standard input ends.
pub(crate) fn run(room: &Path, told: &str) -> Result<(), Box<dyn std::error::Error>> {
    let own: u32 = told.parse()?;
    let at = |host: u32| SocketAddr::new(Network::among_hosts(host as usize), PORT);
    let others = (0..).take(REPLICAS).filter(|&host| host != own);
    let addresses: BTreeMap<_, _> = others.map(|host| (host_name(host), at(host))).collect();
    let among = Hosts {
        name: host_name(own),
        key: HostKey::load(&room.join(format!("{}.key", host_name(own))))?,
        known: KnownHosts::load(&room.join(KNOWN))?,
        listen: at(own),
        addresses,
        plain: false,
        af_xdp: Vec::new(),
    };
    let socket = room.join(host_name(own));
    let _server = Server::bind_with(&socket, Box::new(SameUser), Limits::default(), Some(among))?;
    say(&serde_json::json!({ "is_ready": true }))?;
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    Ok(())
}
