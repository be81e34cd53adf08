//! A group whose members are on several hosts: here agents of one machine that know each other's keys, with addresses of the loopback.
//! What is said between hosts is sealed, over UDP; nobody but the agents tells of a death, and nobody at all of a host's.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use comb_net::agent::{Hosts, Limits, SameUser, Server};
use comb_net::hosts::{HostKey, KnownHosts};

use crate::group_side::{Task, host_name, monotonic_ns};
use crate::membership::{Members, OUTSTANDING, Outcome};

/// How many.
pub(crate) const HOSTS: u32 = 4;
/// All know where all listen before any does.
const PORT: u16 = 7072;
/// The detectors learn meanwhile how regularly the others answer.
const CALM: Duration = Duration::from_secs(5);

/// What was measured.
pub(crate) struct BetweenHosts {
    pub(crate) updates_per_second: f64,
    pub(crate) death_ms: f64,
    pub(crate) silence_ms: f64,
}

pub(crate) fn measure(members: u32) -> Outcome<BetweenHosts> {
    let mut group = Members::start_on("ours", members, HOSTS)?;
    let updates_per_second = group.load_for(members as usize, OUTSTANDING, 1.0)?.per_second;
    // The agents tell of a death: nobody need have learnt anything. But those that have fallen behind catch up first.
    std::thread::sleep(CALM / 2);
    let death_ms = group.kill_one()?;
    std::thread::sleep(CALM);
    let silence_ms = group.silence_last((members / HOSTS) as usize)?;
    group.end()?;
    Ok(BetweenHosts { updates_per_second, death_ms, silence_ms })
}

impl Members {
    /// Stops the last so many, as if their host had lost its power, and says how long it took until the last other one had
    /// a view without them, in milliseconds.
    fn silence_last(&mut self, count: usize) -> Outcome<f64> {
        let left = self.members.len() - count;
        let silent = self.members.split_off(left);
        self.tell(&Task::AwaitView { least: 0, most: left })?;
        self.hear()?;
        let at = monotonic_ns();
        silent.iter().try_for_each(crate::membership::Member::stop)?;
        let views = self.hear()?;
        let last = views.iter().filter_map(|view| view["view_ns"].as_u64()).max().ok_or("no view came")?;
        Ok(last.saturating_sub(at) as f64 / 1e6)
    }
}

/// An agent for each host, by a socket in the room.
pub(crate) fn agents(room: &Path, hosts: u32) -> Outcome<Vec<Server>> {
    let names: Vec<String> = (0..hosts).map(host_name).collect();
    let keys: Vec<HostKey> = names.iter().map(|_| HostKey::generate()).collect();
    let file: String =
        names.iter().zip(&keys).map(|(name, key)| format!("{name} = {}\n", key.public())).collect();
    let known = KnownHosts::parse(&file, Path::new("known_hosts"))?;
    let address = |host: usize| -> Outcome<SocketAddr> {
        let process = std::process::id();
        let ip = format!("127.{}.{}.{}", 128 + (process >> 13) % 100, (process >> 5) % 256, 1 + host);
        Ok(SocketAddr::new(ip.parse()?, PORT))
    };
    let mut agents = Vec::new();
    for (host, key) in keys.into_iter().enumerate() {
        let others = (0..names.len()).filter(|&other| other != host);
        let addresses: Outcome<BTreeMap<_, _>> =
            others.map(|other| Ok((names[other].clone(), address(other)?))).collect();
        let among = Hosts {
            name: names[host].clone(),
            key,
            known: known.clone(),
            listen: address(host)?,
            addresses: addresses?,
            plain: false,
            af_xdp: Vec::new(),
        };
        let among = (hosts > 1).then_some(among);
        let policy = Box::new(SameUser);
        agents.push(Server::bind_with(&room.join(&names[host]), policy, Limits::default(), among)?);
    }
    Ok(agents)
}
