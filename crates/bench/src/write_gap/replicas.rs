//! Our service: replicas as processes of this machine with one agent, or each on a host with an agent of its own.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use comb_net::agent::{Limits, SameUser, Server};

use super::network::Network;
use super::replica::{Said, Told, said};
use super::{Harm, LITTLE_PATIENCE, Outcome, PATIENCE, REPLICAS, Service, Words, host_agent};
use crate::room::Room;

const SOON: Duration = Duration::from_secs(60);
/// As replicas watch each other by default.
const PING: Duration = Duration::from_millis(100);
/// A member has learned how regularly two others answer.
const PINGS_UNTIL_CALM: u32 = 70;

/// How long is waited: by replicas for each other, and by the client for them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Times {
    ping: Duration,
    patience: Duration,
}

impl Times {
    pub(super) const DEFAULT: Self = Self { ping: PING, patience: PATIENCE };
    pub(super) const LITTLE_PATIENCE: Self = Self { ping: PING, patience: LITTLE_PATIENCE };
    /// A tenth of all times.
    pub(super) const SHORT: Self = Self { ping: Duration::from_millis(10), patience: LITTLE_PATIENCE };

    pub(super) fn in_words(self) -> &'static str {
        match self {
            Self::SHORT => ", our times a tenth, client waits 50 ms",
            Self::LITTLE_PATIENCE => ", client waits 50 ms",
            _ => "",
        }
    }
}

/// The view that a replica is in, as it says: its epoch and its members.
type Seen = (u64, Vec<u64>);

struct Replica {
    process: Child,
    address: SocketAddr,
    seen: Arc<Mutex<Seen>>,
    /// Of its host.
    agent: Option<Child>,
}

impl Replica {
    fn kill(&mut self) {
        for process in self.agent.iter_mut().chain([&mut self.process]) {
            // Both fail for one that has ended, which is as well.
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    fn seen(&self) -> Seen {
        self.seen.lock().expect("no panic").clone()
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Where the replicas are.
enum Place<'a> {
    Here { _agent: Server },
    Hosts(&'a mut Network),
}

pub(super) struct Replicas<'a> {
    replicas: Vec<Replica>,
    times: Times,
    room: Room,
    place: Place<'a>,
}

impl<'a> Replicas<'a> {
    pub(super) fn start(times: Times) -> Outcome<Self> {
        let room = Room::create()?;
        let agent = Server::bind(&room.agent(), Box::new(SameUser), Limits::default())?;
        Self::start_in(room, Place::Here { _agent: agent }, times)
    }

    pub(super) fn start_on(network: &'a mut Network, times: Times) -> Outcome<Self> {
        let room = Room::create()?;
        host_agent::make_keys(room.path())?;
        Self::start_in(room, Place::Hosts(network), times)
    }

    fn start_in(room: Room, place: Place<'a>, times: Times) -> Outcome<Self> {
        let mut service = Self { replicas: Vec::new(), times, room, place };
        let agents: Outcome<Vec<_>> = (0..REPLICAS).map(|number| service.start_agent(number)).collect();
        for (number, agent) in agents?.into_iter().enumerate() {
            let replica = service.start_replica(number, agent, false)?;
            service.replicas.push(replica);
        }
        service.await_whole()?;
        Ok(service)
    }

    fn command(&self, number: usize) -> Outcome<Command> {
        let program = std::env::current_exe()?;
        Ok(match &self.place {
            Place::Here { .. } => Command::new(program),
            Place::Hosts(network) => network.command(number, program),
        })
    }

    /// A side of ours: the process, and the lines that it says.
    fn spawn(
        &self,
        number: usize,
        side: &str,
        told: &str,
    ) -> Outcome<(Child, impl Iterator<Item = String> + use<>)> {
        let mut command = self.command(number)?;
        command.args(["bench-side", side, "--answer"]).arg(self.room.path()).arg(told);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let lines = BufReader::new(process.stdout.take().expect("piped")).lines().map_while(Result::ok);
        Ok((process, lines))
    }

    /// Returns when it can be asked; none where there is one for all.
    fn start_agent(&self, number: usize) -> Outcome<Option<Child>> {
        if let Place::Here { .. } = self.place {
            return Ok(None);
        }
        let (process, mut lines) = self.spawn(number, "host_agent", &number.to_string())?;
        lines.next().ok_or("an agent did not start")?;
        Ok(Some(process))
    }

    fn start_replica(&self, number: usize, agent: Option<Child>, is_back: bool) -> Outcome<Replica> {
        let is_on_host = agent.is_some();
        let listen = if is_on_host { Network::to_clients(number) } else { [127, 0, 0, 1].into() };
        let ping_ms = u64::try_from(self.times.ping.as_millis())?;
        let own = u32::try_from(number)?;
        let told = Told { own, is_on_host, is_back, listen, ping_ms };
        let (process, lines) = self.spawn(number, "replica", &serde_json::to_string(&told)?)?;
        let mut heard = lines.filter_map(|line| said(&line));
        let seen = Arc::new(Mutex::new(Seen::default()));
        let mut replica = Replica { process, address: ([0; 4], 0).into(), seen: Arc::clone(&seen), agent };
        let Some(Said::Serves(address)) = heard.next() else {
            return Err("a replica did not say where it serves".into());
        };
        replica.address = address;
        std::thread::spawn(move || {
            for said in heard {
                *seen.lock().expect("no panic") = match said {
                    Said::View(epoch, members) => (epoch, members),
                    Said::Out => Seen::default(),
                    Said::Serves(_) => continue,
                };
            }
        });
        Ok(replica)
    }

    fn await_views(&self, what: &str, mut so: impl FnMut(&[Seen]) -> bool) -> Outcome<()> {
        let deadline = Instant::now() + SOON;
        loop {
            let seen: Vec<_> = self.replicas.iter().map(Replica::seen).collect();
            if so(&seen) {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(format!("{what}: the replicas are in the views {seen:?}").into());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits until all are in one view.
    fn await_whole(&self) -> Outcome<()> {
        let is_whole =
            |seen: &[Seen]| seen.iter().all(|view| view.1.len() == REPLICAS && view.0 == seen[0].0);
        self.await_views("not all are in one view", is_whole)
    }
}

impl Service for Replicas<'_> {
    fn words(&self) -> Words {
        Words::Line
    }

    fn patience(&self) -> Duration {
        self.times.patience
    }

    /// Whoever is ended by the kernel's word needs none.
    fn calm(&self) -> Duration {
        match self.place {
            Place::Here { .. } => Duration::ZERO,
            Place::Hosts(_) => self.times.ping * PINGS_UNTIL_CALM,
        }
    }

    fn addresses(&self) -> Vec<SocketAddr> {
        self.replicas.iter().map(|replica| replica.address).collect()
    }

    /// The least member of a view orders it.
    fn leader(&mut self) -> Outcome<usize> {
        self.await_whole()?;
        Ok(0)
    }

    fn harm(&mut self, number: usize, harm: Harm) -> Outcome<()> {
        match &mut self.place {
            Place::Hosts(network) if harm == Harm::CutOff => network.cut_off(number)?,
            Place::Hosts(network) => {
                network.silence(number)?;
                self.replicas[number].kill();
            }
            Place::Here { .. } => self.replicas[number].process.kill()?,
        }
        Ok(())
    }

    fn heal(&mut self, number: usize, harm: Harm) -> Outcome<()> {
        // Else it might not have missed anything.
        let others = |seen: &[Seen]| {
            (0..REPLICAS)
                .filter(|&other| other != number)
                .all(|other| !seen[other].1.contains(&(number as u64)))
        };
        self.await_views("the others go on with the lost one", others)?;
        if harm == Harm::CutOff {
            if let Place::Hosts(network) = &mut self.place {
                network.put_back(number)?;
            }
            return self.await_whole();
        }
        if let Place::Hosts(network) = &mut self.place {
            network.start_anew(number)?;
        }
        let agent = self.start_agent(number)?;
        self.replicas[number] = self.start_replica(number, agent, true)?;
        self.await_whole()
    }
}
