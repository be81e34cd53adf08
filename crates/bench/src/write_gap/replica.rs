//! A replica of our service: a member of a group, in one thread, that waits for its group and its clients at once.
//!
//! `put KEY VALUE` and `forget PREFIX` are updates; `ok` says that a majority holds it and that it is applied here. `keys PREFIX`
//! is answered with what is here. While its part of the group may not go on, and while it is out of the group, it refuses
//! updates; when the group has gone on without it, it comes in anew.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::path::Path;
use std::time::Duration;

use comb_group::{Config, Event, Group, GroupOptions, Level, NodeId};
use comb_membership::regroup::Timing;
use comb_net::{Agent, EndpointOptions};
use rustix::event::{PollFd, PollFlags, epoll, poll};
use rustix::time::Timespec;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::REPLICAS;
use crate::group_side::{host_name, names, say};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Who asks for much reads it.
const LONGEST_WRITE: Duration = Duration::from_secs(5);

/// What a replica is told.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Told {
    pub(super) own: u32,
    /// Each has a host of its own, or all have one.
    pub(super) is_on_host: bool,
    /// The group is there already.
    pub(super) is_back: bool,
    /// Where clients come.
    pub(super) listen: IpAddr,
    /// How often it asks the others whether they are there. All other times are in proportion.
    pub(super) ping_ms: u64,
}

impl Told {
    fn options(self) -> GroupOptions {
        let count = u32::try_from(REPLICAS).expect("few");
        let names = if self.is_on_host { names(self.own, count, count) } else { names(self.own, 1, 1) };
        let mut config = Config::default();
        let ping = Duration::from_millis(self.ping_ms);
        let share = ping.div_duration_f64(config.watching.ping);
        let Timing { resend, activate, patience } = config.regroup;
        let [resend, activate, patience] = [resend, activate, patience].map(|time| time.mul_f64(share));
        (config.watching.ping, config.regroup) = (ping, Timing { resend, activate, patience });
        let endpoint = EndpointOptions { events: true, ..EndpointOptions::default() };
        GroupOptions { names, config, endpoint }
    }
}

struct Client {
    stream: TcpStream,
    /// Of a line that is not whole yet.
    begun: Vec<u8>,
    is_gone: bool,
}

impl Client {
    fn answer(&mut self, line: &str) {
        self.is_gone |= self.stream.write_all(format!("{line}\n").as_bytes()).is_err();
    }

    /// More than a socket may take at once.
    fn answer_at_length(&mut self, line: &str) -> std::io::Result<()> {
        self.stream.set_nonblocking(false)?;
        self.stream.set_write_timeout(Some(LONGEST_WRITE))?;
        self.answer(line);
        self.stream.set_nonblocking(true)
    }

    /// It goes to another replica.
    fn refuse(&mut self) {
        self.answer("sorry");
    }
}

struct Replica<'a> {
    group: Group,
    listener: &'a TcpListener,
    clients: BTreeMap<u64, Client>,
    next_client: u64,
    /// Whose write has which number.
    waiting: BTreeMap<u64, u64>,
    values: BTreeMap<String, String>,
    /// Its part of the group may not go on.
    is_stuck: bool,
    /// The group has gone on without it.
    is_out: bool,
}

/// Runs a replica until it is killed.
pub(crate) fn run(room: &Path, told: &str) -> Outcome<()> {
    let told: Told = serde_json::from_str(told)?;
    // It does not outlive who started it.
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    let (own, nodes) = (NodeId(told.own), (0..).take(REPLICAS).map(NodeId).collect::<Vec<_>>());
    let agent = if told.is_on_host { host_name(told.own) } else { "agent".to_owned() };
    let agent = Agent::connect(&room.join(agent), &told.options().names.process(own))?;
    let listener = TcpListener::bind((told.listen, 0))?;
    listener.set_nonblocking(true)?;
    let mut group = match told.is_back {
        false => Group::configured(&agent, own, &nodes, told.options())?,
        true => Group::joining(&agent, own, &nodes, told.options())?,
    };
    say(&json!({ "address": listener.local_addr()? }))?;
    loop {
        Replica::new(group, &listener).run()?;
        say(&json!({ "view": [], "epoch": 0 }))?;
        group = Group::joining(&agent, own, &nodes, told.options())?;
    }
}

impl<'a> Replica<'a> {
    fn new(group: Group, listener: &'a TcpListener) -> Self {
        let (clients, waiting, values) = Default::default();
        Self { group, listener, clients, next_client: 0, waiting, values, is_stuck: false, is_out: false }
    }

    /// Returns when the group has gone on without it.
    fn run(mut self) -> Outcome<()> {
        while !self.is_out {
            self.turn()?;
        }
        Ok(())
    }

    fn turn(&mut self) -> Outcome<()> {
        self.hear_clients();
        self.group.poll();
        let mut is_idle = true;
        while let Some(event) = self.group.next_event() {
            is_idle = false;
            self.take(event)?;
        }
        self.clients.retain(|_, client| !client.is_gone);
        if is_idle { self.sleep() } else { Ok(()) }
    }

    fn take(&mut self, event: Event) -> Outcome<()> {
        match event {
            Event::Delivered(delivery) => {
                self.apply(&String::from_utf8_lossy(&delivery.body));
            }
            Event::Reached { number, .. } => {
                let client = self.waiting.remove(&number).and_then(|client| self.clients.get_mut(&client));
                client.into_iter().for_each(|client| client.answer("ok"));
            }
            Event::WantsState => self.group.give_state(&serde_json::to_vec(&self.values)?),
            Event::Restore { state, .. } => self.values = serde_json::from_slice(&state)?,
            Event::View(view) => {
                self.is_stuck = false;
                let members: Vec<_> = view.nodes().map(|node| node.0).collect();
                say(&json!({ "view": members, "epoch": view.epoch.0 }))?;
            }
            // What was not acknowledged yet may be, later; but who waits for it can go where it is sooner.
            Event::Stuck(_) => {
                self.is_stuck = true;
                let waiting = std::mem::take(&mut self.waiting);
                for client in waiting.values() {
                    self.clients.get_mut(client).into_iter().for_each(Client::refuse);
                }
            }
            Event::Excluded { .. } => self.is_out = true,
            _ => {}
        }
        Ok(())
    }

    fn apply(&mut self, update: &str) {
        match update.split(' ').collect::<Vec<_>>()[..] {
            ["put", key, value] => drop(self.values.insert(key.to_owned(), value.to_owned())),
            ["forget", prefix] => self.values.retain(|key, _| !key.starts_with(prefix)),
            _ => {}
        }
    }

    fn hear_clients(&mut self) {
        while let Ok((stream, _)) = self.listener.accept() {
            if stream.set_nonblocking(true).and_then(|()| stream.set_nodelay(true)).is_ok() {
                self.clients.insert(self.next_client, Client { stream, begun: Vec::new(), is_gone: false });
                self.next_client += 1;
            }
        }
        let mut part = [0; 4096];
        for (&name, client) in &mut self.clients {
            match client.stream.read(&mut part) {
                Ok(0) => client.is_gone = true,
                Ok(bytes) => client.begun.extend_from_slice(&part[..bytes]),
                Err(error) => client.is_gone |= error.kind() != std::io::ErrorKind::WouldBlock,
            }
            while let Some(end) = client.begun.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = client.begun.drain(..=end).collect();
                let line = String::from_utf8_lossy(&line[..end]);
                if let Some(prefix) = line.strip_prefix("keys ") {
                    let keys: Vec<_> = self.values.keys().filter(|key| key.starts_with(prefix)).collect();
                    client.is_gone |= client.answer_at_length(&json!(keys).to_string()).is_err();
                    continue;
                }
                if self.is_stuck {
                    client.refuse();
                    continue;
                }
                match self.group.submit(Level::Majority, line.as_bytes()) {
                    Ok(number) => drop(self.waiting.insert(number, name)),
                    Err(_) => client.refuse(),
                }
            }
        }
    }

    /// Until the group or a client has something to say.
    fn sleep(&mut self) -> Outcome<()> {
        let until = self.group.nothing_is_due_for().min(Duration::from_secs(1));
        let endpoint = self.group.endpoint();
        if endpoint.arm() {
            let events = endpoint.event_descriptor().expect("made with events");
            let mut sources =
                vec![PollFd::new(&events, PollFlags::IN), PollFd::new(self.listener, PollFlags::IN)];
            sources.extend(self.clients.values().map(|client| PollFd::new(&client.stream, PollFlags::IN)));
            // Which it was, the next turn sees; an interruption only makes it early.
            let _ = poll(&mut sources, Some(&Timespec::try_from(until)?));
            // Edge-triggered events stay in the set until they are taken.
            let mut space = [std::mem::MaybeUninit::<epoll::Event>::uninit(); 64];
            let _ = epoll::wait(events, &mut space, Some(&Timespec::default()));
        }
        endpoint.disarm();
        Ok(())
    }
}
