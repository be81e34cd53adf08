//! Our service: replicas as processes of this machine, and one agent.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use comb_net::agent::{Limits, SameUser, Server};
use serde_json::Value;

use super::{Outcome, REPLICAS, Service, Words};
use crate::room::Room;

const SOON: Duration = Duration::from_secs(20);

struct Replica {
    process: Child,
    address: SocketAddr,
    /// The members of each view that it was in.
    views: Receiver<Vec<u64>>,
}

impl Drop for Replica {
    fn drop(&mut self) {
        // Both fail for one that has ended, which is as well.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub(super) struct Replicas {
    replicas: Vec<Replica>,
    room: Room,
    _server: Server,
}

impl Replicas {
    pub(super) fn start() -> Outcome<Self> {
        let room = Room::create()?;
        let server = Server::bind(&room.agent(), Box::new(SameUser), Limits::default())?;
        let replicas = (0..REPLICAS).map(|number| start(&room, "new", number)).collect::<Outcome<_>>()?;
        let service = Self { replicas, room, _server: server };
        service.await_whole()?;
        Ok(service)
    }

    /// Waits until all are in one view: each says every view that it comes to.
    fn await_whole(&self) -> Outcome<()> {
        let deadline = Instant::now() + SOON;
        for replica in &self.replicas {
            loop {
                let view = replica.views.recv_timeout(deadline.saturating_duration_since(Instant::now()))?;
                if view.len() == REPLICAS {
                    break;
                }
            }
        }
        Ok(())
    }
}

fn start(room: &Room, how: &str, number: usize) -> Outcome<Replica> {
    let mut process = Command::new(std::env::current_exe()?)
        .args(["bench-side", "replica", "--answer"])
        .arg(room.path())
        .arg(format!("{how} {number} of {REPLICAS}"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let lines = BufReader::new(process.stdout.take().expect("piped")).lines().map_while(Result::ok);
    let mut said = lines.filter_map(|line| serde_json::from_str::<Value>(&line).ok());
    let address = said.next().and_then(|said| said["address"].as_str()?.parse().ok());
    let address = address.ok_or("a replica did not say where it serves")?;
    let (tell, views) = mpsc::channel();
    std::thread::spawn(move || {
        for said in said {
            let members = said["view"].as_array().into_iter().flatten().filter_map(Value::as_u64).collect();
            let _ = tell.send(members);
        }
    });
    Ok(Replica { process, address, views })
}

impl Service for Replicas {
    fn words(&self) -> Words {
        Words::Line
    }

    fn addresses(&self) -> Vec<SocketAddr> {
        self.replicas.iter().map(|replica| replica.address).collect()
    }

    /// The least member of a view orders it.
    fn leader(&mut self) -> Outcome<usize> {
        Ok(0)
    }

    fn kill(&mut self, number: usize) -> Outcome<()> {
        Ok(self.replicas[number].process.kill()?)
    }

    fn restart(&mut self, number: usize) -> Outcome<()> {
        self.replicas[number] = start(&self.room, "join", number)?;
        self.await_whole()
    }
}
