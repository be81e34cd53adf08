//! Runs a broker over sockets: as a daemon on a path, or inside a process for tests and single programs.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};

use comb_types::ChannelId;
use rustix::event::epoll;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::broker::{Broker, ClientId, Farewell, Outgoing};
use super::client::{Agent, ConnectError};
use super::credentials;
use super::policy::{Limits, Policy, SameUser};
use super::protocol::{self, ProtocolError, Reply, Request};
use super::remote::{Hosts, Links};
use super::visitor::{Line, Visitor};

const WAKE: u64 = u64::MAX;
const LISTENER: u64 = u64::MAX - 1;
const DOOR: u64 = u64::MAX - 2;
/// Set beside a client's number: not its socket, but its process.
const PROCESS: u64 = 1 << 63;

/// An agent at work on its own thread. Dropping it ends the agent; channels live on.
#[derive(Debug)]
pub struct Server {
    outbox: Outbox,
    /// Where agents of other hosts find this one.
    door: Option<std::net::SocketAddr>,
    thread: Option<std::thread::JoinHandle<()>>,
    path: Option<PathBuf>,
}

#[derive(Debug)]
#[cfg_attr(not(feature = "hosts"), expect(dead_code, reason = "without other hosts nobody asks or answers"))]
pub(super) enum Command {
    Adopt(OwnedFd),
    Stop,
    /// What became of a question to another host.
    Arrived {
        channel: ChannelId,
        outcome: Result<Line, String>,
    },
    /// Another host asks.
    Visit(Box<Visitor>),
    /// Another host tells.
    EndedElsewhere(Farewell),
}

/// How other threads speak to the agent's.
#[derive(Clone, Debug)]
pub(super) struct Outbox {
    wake: Arc<OwnedFd>,
    commands: mpsc::Sender<Command>,
}

impl Outbox {
    /// An agent that has ended hears nothing.
    pub(super) fn send(&self, command: Command) {
        let _ = self.commands.send(command);
        let _ = rustix::io::write(&*self.wake, &1_u64.to_ne_bytes());
    }
}

/// Why an agent could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An agent listens there.
    #[error("an agent is at work on {0} already")]
    InUse(PathBuf),
    /// The system refused.
    #[error("cannot listen on {path}: {source}")]
    System {
        /// Where.
        path: PathBuf,
        /// Why.
        source: rustix::io::Errno,
    },
    /// The door for other hosts.
    #[error("cannot listen for other hosts on {address}: {source}")]
    Door {
        /// Where.
        address: std::net::SocketAddr,
        /// Why.
        source: std::io::Error,
    },
}

impl Server {
    /// Starts an agent that listens on a path. A socket left behind by a dead agent is replaced.
    pub fn bind(path: &Path, policy: Box<dyn Policy>, limits: Limits) -> Result<Self, StartError> {
        Self::bind_with(path, policy, limits, None)
    }

    /// The same, for a machine that belongs to others.
    pub fn bind_with(
        path: &Path,
        policy: Box<dyn Policy>,
        limits: Limits,
        hosts: Option<Hosts>,
    ) -> Result<Self, StartError> {
        let system = |source| StartError::System { path: path.to_owned(), source };
        let address = SocketAddrUnix::new(path).map_err(system)?;
        if connect_socket(path).is_ok() {
            return Err(StartError::InUse(path.to_owned()));
        }
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(system(
                    rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::IO),
                ));
            }
            _ => {}
        }
        let listener = socket().map_err(system)?;
        rustix::net::bind(&listener, &address).map_err(system)?;
        rustix::net::listen(&listener, 128).map_err(system)?;
        let mut server = Self::start(Some(listener), policy, limits, hosts, path)?;
        server.path = Some(path.to_owned());
        Ok(server)
    }

    fn start(
        listener: Option<OwnedFd>,
        policy: Box<dyn Policy>,
        limits: Limits,
        hosts: Option<Hosts>,
        path: &Path,
    ) -> Result<Self, StartError> {
        let system = |source| StartError::System { path: path.to_owned(), source };
        let wake = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).map_err(system)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(system)?;
        let watch = |fd: BorrowedFd<'_>, token| {
            epoll::add(&epoll, fd, epoll::EventData::new_u64(token), epoll::EventFlags::IN).map_err(system)
        };
        watch(wake.as_fd(), WAKE)?;
        if let Some(listener) = &listener {
            watch(listener.as_fd(), LISTENER)?;
        }
        let (commands, inbox) = mpsc::channel();
        let outbox = Outbox { wake: Arc::new(wake), commands };
        let links = match hosts {
            None => None,
            Some(hosts) => {
                let address = hosts.listen;
                let links = Links::start(hosts, outbox.clone())
                    .map_err(|source| StartError::Door { address, source })?;
                watch(links.listener.as_fd(), DOOR)?;
                Some(links)
            }
        };
        let door = links.as_ref().and_then(|links| links.listener.local_addr().ok());
        let run = Run {
            broker: Broker::new(policy, limits, random_number()),
            connections: BTreeMap::new(),
            processes: BTreeMap::new(),
            next_client: 0,
            epoll,
            listener,
            wake: Arc::clone(&outbox.wake),
            inbox,
            links,
            visitors: BTreeMap::new(),
        };
        let thread = std::thread::Builder::new()
            .name("comb-agent".into())
            .spawn(move || run.run())
            .map_err(|_| system(rustix::io::Errno::AGAIN))?;
        Ok(Self { outbox, door, thread: Some(thread), path: None })
    }

    /// Where agents of other hosts find this one, if it has a door for them.
    pub fn door(&self) -> Option<std::net::SocketAddr> {
        self.door
    }

    fn command(&self, command: Command) {
        self.outbox.send(command);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            let _ = std::fs::remove_file(path);
        }
        self.command(Command::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Stands where errors name a path.
const IN_PROCESS: &str = "(within the process)";

/// An agent within this process, for tests and for programs whose processes are its children.
#[derive(Debug)]
pub struct InProcess {
    server: Server,
}

impl InProcess {
    /// Starts one with the default policy and limits.
    pub fn start() -> Self {
        Self::with(Box::new(SameUser), Limits::default())
    }

    /// Starts one.
    pub fn with(policy: Box<dyn Policy>, limits: Limits) -> Self {
        let server = Server::start(None, policy, limits, None, Path::new(IN_PROCESS));
        Self { server: server.expect("a thread and three descriptors") }
    }

    /// Starts one that belongs to other hosts.
    pub fn among(policy: Box<dyn Policy>, limits: Limits, hosts: Hosts) -> Result<Self, StartError> {
        Ok(Self { server: Server::start(None, policy, limits, Some(hosts), Path::new(IN_PROCESS))? })
    }

    /// Where agents of other hosts find this one, if it has a door for them.
    pub fn door(&self) -> Option<std::net::SocketAddr> {
        self.server.door()
    }

    /// Connects as a process of that name.
    pub fn connect(&self, name: &str) -> Result<Agent, ConnectError> {
        Agent::over(self.socket()?, name)
    }

    /// A connected socket, to be handed to a child process, which uses it with [`Agent::over`].
    pub fn socket(&self) -> Result<OwnedFd, ConnectError> {
        let (ours, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .map_err(ConnectError::System)?;
        self.server.command(Command::Adopt(ours));
        Ok(theirs)
    }
}

fn socket() -> Result<OwnedFd, rustix::io::Errno> {
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
}

/// Connects to the agent that listens on `path`.
pub(crate) fn connect_socket(path: &Path) -> Result<OwnedFd, rustix::io::Errno> {
    let socket = socket()?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

fn random_number() -> u32 {
    use std::hash::{BuildHasher, Hasher};
    // Randomly seeded by the standard library; unpredictability is not needed, only distance between two lives.
    let seed = std::collections::hash_map::RandomState::new().build_hasher().finish();
    u32::try_from(seed >> 32).expect("32 bits are left")
}

struct Run {
    broker: Broker,
    connections: BTreeMap<ClientId, OwnedFd>,
    /// Watched too: a socket stays open for as long as a child that inherited it lives.
    processes: BTreeMap<ClientId, OwnedFd>,
    next_client: u64,
    epoll: OwnedFd,
    listener: Option<OwnedFd>,
    wake: Arc<OwnedFd>,
    inbox: mpsc::Receiver<Command>,
    links: Option<Links>,
    /// Who waits for what our processes say.
    visitors: BTreeMap<ChannelId, mpsc::Sender<Result<(), String>>>,
}

impl Run {
    fn run(mut self) {
        let mut space = [std::mem::MaybeUninit::<epoll::Event>::uninit(); 64];
        loop {
            let ready: Vec<u64> = match epoll::wait(&self.epoll, &mut space, None) {
                Ok((events, _)) => events.iter().map(|event| event.data.u64()).collect(),
                Err(rustix::io::Errno::INTR) => continue,
                Err(_) => return,
            };
            for token in ready {
                match token {
                    WAKE => {
                        let _ = rustix::io::read(&*self.wake, &mut [0; 8]);
                        while let Ok(command) = self.inbox.try_recv() {
                            match command {
                                Command::Adopt(socket) => self.adopt(socket),
                                Command::Stop => return,
                                Command::Arrived { channel, outcome } => {
                                    let out = self.broker.arrived(channel, outcome);
                                    self.send_all(out);
                                }
                                Command::Visit(visitor) => self.visit(*visitor),
                                Command::EndedElsewhere(farewell) => {
                                    let out = self.broker.ended_elsewhere(&farewell);
                                    self.send_all(out);
                                }
                            }
                        }
                    }
                    LISTENER => {
                        let listener = self.listener.as_ref().expect("registered");
                        if let Ok(socket) = rustix::net::accept_with(listener, SocketFlags::CLOEXEC) {
                            self.adopt(socket);
                        }
                    }
                    DOOR => {
                        if let Some(links) = &self.links {
                            links.open_door();
                        }
                    }
                    process if process & PROCESS != 0 => self.drop_client(ClientId(process & !PROCESS)),
                    client => self.serve(ClientId(client)),
                }
            }
        }
    }

    fn visit(&mut self, visitor: Visitor) {
        let Visitor { host, from, from_endpoint, to, line, answer } = visitor;
        match self.broker.offer_remote(&host, &from, &from_endpoint, &to, line) {
            Ok((channel, out)) => {
                self.visitors.insert(channel, answer);
                self.send_all(out);
            }
            // Who has stopped waiting does not hear it.
            Err(reason) => drop(answer.send(Err(reason))),
        }
    }

    /// What the broker wants said to other hosts.
    fn run_errands(&mut self) {
        for departure in self.broker.take_departures() {
            match &self.links {
                Some(links) => links.depart(departure),
                None => {
                    let reason = format!("host {}: this agent has no links to other hosts", departure.host);
                    let out = self.broker.arrived(departure.channel, Err(reason));
                    self.send_all(out);
                }
            }
        }
        for (channel, verdict) in self.broker.take_verdicts() {
            if let Some(answer) = self.visitors.remove(&channel) {
                let _ = answer.send(verdict);
            }
        }
        for farewell in self.broker.take_farewells() {
            if let Some(links) = &self.links {
                links.tell(farewell);
            }
        }
    }

    fn adopt(&mut self, socket: OwnedFd) {
        // A peer that is gone already, or whose user the kernel does not tell, is nobody to us.
        let Ok(who) = credentials::of_peer(&socket) else { return };
        if rustix::io::ioctl_fionbio(&socket, true).is_err() {
            return;
        }
        let client = ClientId(self.next_client);
        self.next_client += 1;
        let data = epoll::EventData::new_u64(client.0);
        if epoll::add(&self.epoll, &socket, data, epoll::EventFlags::IN).is_ok() {
            if let Ok(process) = who.process.try_clone() {
                let data = epoll::EventData::new_u64(client.0 | PROCESS);
                // Without it the socket's end tells.
                if epoll::add(&self.epoll, &process, data, epoll::EventFlags::IN).is_ok() {
                    self.processes.insert(client, process);
                }
            }
            self.broker.connect(client, who.pid, who.uid, who.process);
            self.connections.insert(client, socket);
        }
    }

    fn serve(&mut self, client: ClientId) {
        // Bounded, so that one chatty process does not keep the agent from the others.
        for _ in 0..16 {
            let Some(socket) = self.connections.get(&client) else { return };
            match protocol::receive::<Request>(socket) {
                Ok((request, descriptors)) => match self.broker.handle(client, request, descriptors) {
                    Ok(out) => self.send_all(out),
                    Err(misbehaviour) => return self.dismiss(client, &misbehaviour.to_string()),
                },
                Err(ProtocolError::System(rustix::io::Errno::AGAIN)) => return,
                Err(ProtocolError::Ended) => return self.drop_client(client),
                Err(error) => return self.dismiss(client, &error.to_string()),
            }
        }
    }

    fn dismiss(&mut self, client: ClientId, reason: &str) {
        let reply = Reply::Refused { request: None, reason: reason.to_owned() };
        if let Some(socket) = self.connections.get(&client) {
            let _ = protocol::send(socket, &reply, &[]);
        }
        self.drop_client(client);
    }

    fn drop_client(&mut self, client: ClientId) {
        if let Some(socket) = self.connections.remove(&client) {
            let _ = epoll::delete(&self.epoll, &socket);
        }
        if let Some(process) = self.processes.remove(&client) {
            // Peers have copies of it, so that its close alone does not take it out of the set.
            let _ = epoll::delete(&self.epoll, &process);
        }
        let out = self.broker.disconnect(client);
        self.send_all(out);
    }

    fn send_all(&mut self, out: Vec<Outgoing>) {
        let mut deaf = Vec::new();
        for Outgoing { to, reply, descriptors } in out {
            let Some(socket) = self.connections.get(&to) else { continue };
            let borrowed: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
            // A client whose queue is full does not read what its agent says. Waiting for it would let one stuck
            // process stop all.
            match protocol::send(socket, &reply, &borrowed) {
                // Too many descriptors are under way to clients that do not read. It is not this one's fault.
                Ok(()) | Err(ProtocolError::System(rustix::io::Errno::TOOMANYREFS)) => {}
                Err(_) => deaf.push(to),
            }
        }
        for client in deaf {
            self.drop_client(client);
        }
        self.run_errands();
    }
}
