//! etcd: three members on this machine's loopback, or each on a host.

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;

use super::client::{connect, post};
use super::network::Network;
use super::{Harm, LITTLE_PATIENCE, Outcome, PATIENCE, REPLICAS, Service, Words};
use crate::room::Folder;

const SOON: Duration = Duration::from_secs(60);
/// Where members listen, each on its host.
const CLIENT_PORT: u16 = 2379;
const PEER_PORT: u16 = 2380;

/// How it is set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Setting {
    /// As it comes: a heartbeat each 100 ms, an election after 1 s, and all on a disk.
    Default,
    /// As short as its manual allows for members whose round trip takes less than a millisecond: a heartbeat about as long as
    /// that, and ten times that until an election. A member that has lost its leader leaves a client without an answer for
    /// seconds, so that client waits but a little longer than an election takes. And in memory, as our replicas have it.
    Shortest,
}

impl Setting {
    pub(super) fn in_words(self) -> &'static str {
        match self {
            Self::Default => "etcd",
            Self::Shortest => "etcd, shortest times",
        }
    }

    fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Default => &[],
            Self::Shortest => &["--heartbeat-interval", "1", "--election-timeout", "10"],
        }
    }

    fn folder(self) -> PathBuf {
        let place = match self {
            Self::Default => std::env::temp_dir(),
            Self::Shortest => PathBuf::from("/dev/shm"),
        };
        place.join(format!("comb-bench-etcd-{}", std::process::id()))
    }
}

struct Member {
    process: Child,
    client: SocketAddr,
    peer: SocketAddr,
}

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub(super) struct Etcd<'a> {
    setting: Setting,
    members: Vec<Member>,
    folder: Folder,
    /// None: all are on this machine.
    network: Option<&'a mut Network>,
}

impl<'a> Etcd<'a> {
    /// An error where there is none.
    pub(super) fn start(setting: Setting) -> Outcome<Self> {
        let addresses = free_addresses(2 * REPLICAS)?;
        let (clients, peers) = addresses.split_at(REPLICAS);
        Self::start_at(setting, clients, peers, None)
    }

    pub(super) fn start_on(network: &'a mut Network, setting: Setting) -> Outcome<Self> {
        let at = |host: fn(usize) -> IpAddr, port| move |number| SocketAddr::new(host(number), port);
        let clients: Vec<_> = (0..REPLICAS).map(at(Network::to_clients, CLIENT_PORT)).collect();
        let peers: Vec<_> = (0..REPLICAS).map(at(Network::among_hosts, PEER_PORT)).collect();
        Self::start_at(setting, &clients, &peers, Some(network))
    }

    fn start_at(
        setting: Setting,
        clients: &[SocketAddr],
        peers: &[SocketAddr],
        network: Option<&'a mut Network>,
    ) -> Outcome<Self> {
        let mut etcd =
            Self { setting, members: Vec::new(), folder: Folder::create(setting.folder())?, network };
        for number in 0..REPLICAS {
            let process = etcd.spawn(number, clients[number], peers)?;
            etcd.members.push(Member { process, client: clients[number], peer: peers[number] });
        }
        etcd.await_whole()?;
        Ok(etcd)
    }

    fn spawn(&self, number: usize, client: SocketAddr, peers: &[SocketAddr]) -> Outcome<Child> {
        let (client, peer) = (format!("http://{client}"), format!("http://{}", peers[number]));
        let cluster: Vec<_> =
            peers.iter().enumerate().map(|(number, peer)| format!("{number}=http://{peer}")).collect();
        let mut command = match &self.network {
            Some(network) => network.command(number, "etcd"),
            None => {
                // It does not outlive us, however we end.
                let mut command = Command::new("setpriv");
                command.args(["--pdeathsig", "KILL", "etcd"]);
                command
            }
        };
        Ok(command
            .args(["--name", &number.to_string(), "--log-level", "error", "--data-dir"])
            .arg(self.folder.path().join(number.to_string()))
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &cluster.join(",")])
            .args(self.setting.arguments())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?)
    }

    /// What each member takes for itself, the leader and the term.
    fn states(&self) -> Outcome<Vec<[String; 3]>> {
        let ask = |member: &Member| -> Outcome<[String; 3]> {
            let status = post(&mut connect(member.client, PATIENCE)?, "/v3/maintenance/status", &json!({}))?;
            let text = |value: &serde_json::Value| value.as_str().unwrap_or("0").to_owned();
            Ok([&status["header"]["member_id"], &status["leader"], &status["raftTerm"]].map(text))
        };
        self.members.iter().map(ask).collect()
    }

    /// Waits until all have the same leader, who is one of them, in one term: who was cut off and comes back has a later one, and
    /// makes the others elect anew.
    fn await_whole(&self) -> Outcome<usize> {
        let deadline = Instant::now() + SOON;
        loop {
            if let Ok(states) = self.states()
                && states.iter().all(|state| state[1..] == states[0][1..])
                && let Some(leader) = states.iter().position(|[member, leader, _]| member == leader)
            {
                return Ok(leader);
            }
            if Instant::now() > deadline {
                return Err("the members of etcd do not agree on a leader".into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// All at once, so that none is given twice.
fn free_addresses(count: usize) -> Outcome<Vec<SocketAddr>> {
    let listeners: Result<Vec<_>, _> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0")).collect();
    Ok(listeners?.iter().map(TcpListener::local_addr).collect::<Result<_, _>>()?)
}

impl Service for Etcd<'_> {
    fn words(&self) -> Words {
        Words::Gateway
    }

    fn patience(&self) -> Duration {
        if self.setting == Setting::Shortest { LITTLE_PATIENCE } else { PATIENCE }
    }

    fn addresses(&self) -> Vec<SocketAddr> {
        self.members.iter().map(|member| member.client).collect()
    }

    fn leader(&mut self) -> Outcome<usize> {
        self.await_whole()
    }

    fn harm(&mut self, number: usize, harm: Harm) -> Outcome<()> {
        match &self.network {
            Some(network) if harm == Harm::CutOff => return network.cut_off(number),
            Some(network) => network.silence(number)?,
            None => {}
        }
        Ok(self.members[number].process.kill()?)
    }

    fn heal(&mut self, number: usize, harm: Harm) -> Outcome<()> {
        match &mut self.network {
            Some(network) if harm == Harm::CutOff => {
                network.put_back(number)?;
                return self.await_whole().map(drop);
            }
            _ => drop(self.members[number].process.wait()?),
        }
        if let Some(network) = &mut self.network {
            network.start_anew(number)?;
        }
        let peers: Vec<_> = self.members.iter().map(|member| member.peer).collect();
        self.members[number].process = self.spawn(number, self.members[number].client, &peers)?;
        self.await_whole().map(drop)
    }
}
