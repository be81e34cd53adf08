//! Hosts that know each other's keys.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;

use comb_net::agent::Hosts;
use comb_net::hosts::{HostKey, KnownHosts};

/// The keys of a room, and what each host knows of it.
pub(crate) struct Room {
    keys: BTreeMap<&'static str, HostKey>,
    pub(crate) known: KnownHosts,
}

impl Room {
    pub(crate) fn of(names: &[&'static str]) -> Self {
        let keys: BTreeMap<_, _> = names.iter().map(|name| (*name, HostKey::generate())).collect();
        let file: String = keys.iter().map(|(name, key)| format!("{name} = {}\n", key.public())).collect();
        Self { keys, known: KnownHosts::parse(&file, Path::new("known_hosts")).unwrap() }
    }

    pub(crate) fn host(&self, name: &str, address: &str, others: &[(&str, SocketAddr)]) -> Hosts {
        Hosts {
            name: name.to_owned(),
            key: self.keys[name].clone(),
            known: self.known.clone(),
            listen: format!("{address}:0").parse().unwrap(),
            addresses: others.iter().map(|(name, at)| ((*name).to_owned(), *at)).collect(),
            plain: false,
            af_xdp: Vec::new(),
        }
    }
}
