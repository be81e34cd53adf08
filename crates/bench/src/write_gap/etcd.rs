//! etcd: three members on this machine's loopback.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;

use super::{Outcome, PATIENCE, REPLICAS, Service, Words, connect, post};

const SOON: Duration = Duration::from_secs(60);

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

pub(super) struct Etcd {
    setting: Setting,
    members: Vec<Member>,
    folder: PathBuf,
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.members.clear();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Etcd {
    /// An error where there is none.
    pub(super) fn start(setting: Setting) -> Outcome<Self> {
        let folder = setting.folder();
        std::fs::create_dir_all(&folder)?;
        let mut etcd = Self { setting, members: Vec::new(), folder };
        let addresses = free_addresses(2 * REPLICAS)?;
        let (clients, peers) = addresses.split_at(REPLICAS);
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
        // It does not outlive us, however we end.
        Ok(Command::new("setpriv")
            .args([
                "--pdeathsig",
                "KILL",
                "etcd",
                "--name",
                &number.to_string(),
                "--log-level",
                "error",
                "--data-dir",
            ])
            .arg(self.folder.join(number.to_string()))
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &cluster.join(",")])
            .args(self.setting.arguments())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?)
    }

    /// Whom each member takes for the leader.
    fn leaders(&self) -> Outcome<Vec<(String, String)>> {
        let ask = |member: &Member| -> Outcome<(String, String)> {
            let status = post(&mut connect(member.client, PATIENCE)?, "/v3/maintenance/status", &json!({}))?;
            let text = |value: &serde_json::Value| value.as_str().unwrap_or("0").to_owned();
            Ok((text(&status["header"]["member_id"]), text(&status["leader"])))
        };
        self.members.iter().map(ask).collect()
    }

    /// Waits until all have the same leader, who is one of them.
    fn await_whole(&self) -> Outcome<usize> {
        let deadline = Instant::now() + SOON;
        loop {
            if let Ok(leaders) = self.leaders()
                && leaders.iter().all(|(_, leader)| *leader == leaders[0].1)
                && let Some(leader) = leaders.iter().position(|(member, leader)| member == leader)
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

impl Service for Etcd {
    fn words(&self) -> Words {
        Words::Gateway
    }

    fn patience(&self) -> Duration {
        if self.setting == Setting::Shortest { Duration::from_millis(50) } else { PATIENCE }
    }

    fn addresses(&self) -> Vec<SocketAddr> {
        self.members.iter().map(|member| member.client).collect()
    }

    fn leader(&mut self) -> Outcome<usize> {
        self.await_whole()
    }

    fn kill(&mut self, number: usize) -> Outcome<()> {
        Ok(self.members[number].process.kill()?)
    }

    fn restart(&mut self, number: usize) -> Outcome<()> {
        self.members[number].process.wait()?;
        let peers: Vec<_> = self.members.iter().map(|member| member.peer).collect();
        self.members[number].process = self.spawn(number, self.members[number].client, &peers)?;
        self.await_whole().map(|_| ())
    }
}
