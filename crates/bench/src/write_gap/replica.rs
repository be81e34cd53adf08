//! A replica of our service: a member of a group, in one thread, that waits for its group and its clients at once.
//!
//! A line `put KEY VALUE` is an update; `ok` says that a majority holds it and that it is applied here.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::time::Duration;

use comb_group::{Config, Event, Group, GroupOptions, Level, NodeId};
use comb_net::{Agent, EndpointOptions};
use rustix::event::{PollFd, PollFlags, epoll, poll};
use rustix::time::Timespec;

use crate::group_side::{names, say};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

struct Client {
    stream: TcpStream,
    /// Of a line that is not whole yet.
    begun: Vec<u8>,
    is_gone: bool,
}

struct Replica {
    group: Group,
    listener: TcpListener,
    clients: BTreeMap<u64, Client>,
    next_client: u64,
    /// Whose write has which number.
    waiting: BTreeMap<u64, u64>,
    values: BTreeMap<String, String>,
}

/// Runs a replica until it is killed: `new 0 of 3`, or `join 0 of 3` for one that comes back.
pub(crate) fn run(room: &Path, told: &str) -> Outcome<()> {
    let [how, number, "of", count] = told.split(' ').collect::<Vec<_>>()[..] else {
        return Err("which replica of how many?".into());
    };
    // It does not outlive who started it.
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    let (own, nodes) = (NodeId(number.parse()?), (0..count.parse()?).map(NodeId).collect::<Vec<_>>());
    let agent = Agent::connect(&room.join("agent"), &names(own.0, 1, 1).process(own))?;
    let endpoint = EndpointOptions { events: true, ..EndpointOptions::default() };
    let options = GroupOptions { names: names(own.0, 1, 1), config: Config::default(), endpoint };
    let group = match how {
        "new" => Group::configured(&agent, own, &nodes, options)?,
        _ => Group::joining(&agent, own, &nodes, options)?,
    };
    let listener = TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    say(&serde_json::json!({ "address": listener.local_addr()? }))?;
    let (clients, waiting, values) = Default::default();
    let mut replica = Replica { group, listener, clients, next_client: 0, waiting, values };
    loop {
        replica.turn()?;
    }
}

impl Replica {
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
                let text = String::from_utf8_lossy(&delivery.body);
                if let Some((key, value)) = text.split_once(' ') {
                    self.values.insert(key.to_owned(), value.to_owned());
                }
            }
            Event::Reached { number, .. } => {
                let client = self.waiting.remove(&number).and_then(|client| self.clients.get_mut(&client));
                if let Some(client) = client {
                    client.is_gone |= client.stream.write_all(b"ok\n").is_err();
                }
            }
            Event::WantsState => self.group.give_state(&serde_json::to_vec(&self.values)?),
            Event::Restore { state, .. } => self.values = serde_json::from_slice(&state)?,
            Event::View(view) => {
                let members: Vec<_> = view.nodes().map(|node| node.0).collect();
                say(&serde_json::json!({ "view": members }))?;
            }
            Event::Excluded { .. } => return Err("the group went on without this replica".into()),
            _ => {}
        }
        Ok(())
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
                let put = line.strip_prefix(b"put ").and_then(|put| put.strip_suffix(b"\n"));
                let submitted = put.map(|put| self.group.submit(Level::Majority, put));
                match submitted {
                    Some(Ok(number)) => drop(self.waiting.insert(number, name)),
                    _ => client.is_gone |= client.stream.write_all(b"sorry\n").is_err(),
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
                vec![PollFd::new(&events, PollFlags::IN), PollFd::new(&self.listener, PollFlags::IN)];
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
