//! Runs a broker over sockets: as a daemon on a path, or inside a process for tests and single programs.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use comb_types::ChannelId;
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, UCred};

use super::broker::{Broker, ClientId, Farewell, Outgoing};
use super::client::{Agent, ConnectError};
use super::credentials::{self, Fate};
use super::listener::Listener;
use super::policy::{Limits, Policy, SameUser, reached};
use super::protocol::{self, ProtocolError, Reply, Request};
use super::remote::{Guests, Hosts, Links};
use super::visitor::{Line, Visitor};

const WAKE: u64 = u64::MAX;
const LISTENER: u64 = u64::MAX - 1;
const DOOR: u64 = u64::MAX - 2;
/// Set beside a client's number: not its socket, but its process.
const PROCESS: u64 = 1 << 63;

/// A process that knocks says hello at once. A connection without a hello holds a place that others could have.
pub const HELLO_LIMIT: Duration = Duration::from_secs(5);

/// A process that is ending needs microseconds from the end of its sockets to its own. One that needs longer is none: its
/// main thread has ended and others go on.
const ENDING_LIMIT: Duration = Duration::from_secs(5);

/// An agent at work on its own thread. Dropping it ends the agent; channels live on.
#[derive(Debug)]
pub struct Server {
    outbox: Outbox,
    /// Where agents of other hosts find this one.
    door: Option<std::net::SocketAddr>,
    thread: Option<std::thread::JoinHandle<()>>,
    path: Option<PathBuf>,
}

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
    /// There are other hosts from now on, with whom else may come by their door.
    Open {
        hosts: Box<Hosts>,
        guests: Arc<dyn Guests>,
        answer: mpsc::Sender<Result<std::net::SocketAddr, std::io::Error>>,
    },
    /// The other hosts are others now.
    Know(Box<dyn Fn(&mut Links) + Send>),
}

impl std::fmt::Debug for Command {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Adopt(_) => "Adopt",
            Self::Stop => "Stop",
            Self::Arrived { .. } => "Arrived",
            Self::Visit(_) => "Visit",
            Self::EndedElsewhere(_) => "EndedElsewhere",
            Self::Open { .. } => "Open",
            Self::Know(_) => "Know",
        })
    }
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
        let listener = Listener::bind(path).map_err(system)?;
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
        let listener =
            listener.map(|socket| Listener::watch(socket, &epoll, LISTENER)).transpose().map_err(system)?;
        let (commands, inbox) = mpsc::channel();
        let outbox = Outbox { wake: Arc::new(wake), commands };
        let links = match hosts {
            None => None,
            Some(hosts) => {
                let address = hosts.listen;
                let links = Links::start(hosts, None, outbox.clone())
                    .map_err(|source| StartError::Door { address, source })?;
                // Told once of each arrival: a door that cannot be opened, for want of descriptors, must not keep us awake.
                let (door, data) = (links.listener.as_fd(), epoll::EventData::new_u64(DOOR));
                epoll::add(&epoll, door, data, epoll::EventFlags::IN | epoll::EventFlags::ET)
                    .map_err(system)?;
                Some(links)
            }
        };
        let door = links.as_ref().and_then(|links| links.listener.local_addr().ok());
        let run = Run {
            broker: Broker::new(policy, limits, random_number()),
            limits,
            connections: BTreeMap::new(),
            greeting: BTreeMap::new(),
            ending: BTreeMap::new(),
            processes: BTreeMap::new(),
            next_client: 0,
            epoll,
            listener,
            wake: Arc::clone(&outbox.wake),
            inbox,
            outbox: outbox.clone(),
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

    /// Opens a door for other hosts where there was none: their agents' questions for channels, and guests, come by it. Where it is.
    /// One that has a door keeps it.
    pub fn open_door(
        &mut self,
        hosts: Hosts,
        guests: Arc<dyn Guests>,
    ) -> Result<std::net::SocketAddr, std::io::Error> {
        let (answer, opened) = mpsc::channel();
        self.command(Command::Open { hosts: Box::new(hosts), guests, answer });
        let opened = opened.recv().map_err(|_| std::io::Error::other("the agent has ended"))?;
        let door = opened?;
        self.door = Some(door);
        Ok(door)
    }

    /// These are the other hosts from now on, with their addresses, and this is our key. Open channels go on.
    #[cfg(feature = "hosts")]
    pub fn know(
        &self,
        key: crate::hosts::HostKey,
        known: crate::hosts::KnownHosts,
        addresses: BTreeMap<String, std::net::SocketAddr>,
    ) {
        self.command(Command::Know(Box::new(move |links| {
            links.know(key.clone(), known.clone(), addresses.clone());
        })));
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
        // The kernel knows this process as both ends, and the one that will have the other end only when it speaks.
        rustix::net::sockopt::set_socket_passcred(&ours, true).map_err(ConnectError::System)?;
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

#[derive(Debug)]
struct Connection {
    socket: OwnedFd,
    uid: u32,
}

struct Run {
    broker: Broker,
    limits: Limits,
    connections: BTreeMap<ClientId, Connection>,
    /// Who has not said hello yet, and until when that is to come. Later numbers have later limits.
    greeting: BTreeMap<ClientId, Instant>,
    /// Who has hung up because its process is ending, and how long we wait for that end.
    ending: BTreeMap<ClientId, Instant>,
    /// Watched as well: a socket stays open for as long as a child that inherited it lives.
    processes: BTreeMap<ClientId, OwnedFd>,
    next_client: u64,
    epoll: OwnedFd,
    listener: Option<Listener>,
    wake: Arc<OwnedFd>,
    inbox: mpsc::Receiver<Command>,
    outbox: Outbox,
    links: Option<Links>,
    /// Who waits for what our processes say.
    visitors: BTreeMap<ChannelId, mpsc::Sender<Result<(), String>>>,
}

impl Run {
    fn run(mut self) {
        let mut space = [std::mem::MaybeUninit::<epoll::Event>::uninit(); 64];
        loop {
            let limit = self.next_deadline().map(|deadline| {
                let left = deadline.saturating_duration_since(Instant::now());
                left.try_into().expect("limits are seconds")
            });
            let ready: Vec<u64> = match epoll::wait(&self.epoll, &mut space, limit.as_ref()) {
                Ok((events, _)) => events.iter().map(|event| event.data.u64()).collect(),
                Err(Errno::INTR) => continue,
                Err(_) => return,
            };
            if limit.is_some() {
                self.look_at_the_clock();
            }
            for token in ready {
                match token {
                    WAKE => {
                        let _ = rustix::io::read(&*self.wake, &mut [0; 8]);
                        while let Ok(command) = self.inbox.try_recv() {
                            match command {
                                // Our own program's: it may start the process that is to have it later.
                                Command::Adopt(socket) => drop(self.adopt(socket)),
                                Command::Stop => return,
                                Command::Arrived { channel, outcome } => {
                                    let out = self.broker.arrived(channel, outcome);
                                    self.send_all(out);
                                }
                                Command::Visit(visitor) => self.visit(*visitor),
                                Command::Open { hosts, guests, answer } => {
                                    let _ = answer.send(self.open(*hosts, guests));
                                }
                                Command::Know(tell) => self.links.iter_mut().for_each(tell),
                                Command::EndedElsewhere(farewell) => {
                                    let out = self.broker.ended_elsewhere(&farewell);
                                    self.send_all(out);
                                }
                            }
                        }
                    }
                    LISTENER => {
                        let listener = self.listener.as_mut().expect("registered");
                        let arrived = listener.accept(&self.epoll, |surplus| refuse(surplus, &exhausted()));
                        if let Some(socket) = arrived {
                            self.welcome(socket);
                        }
                    }
                    DOOR => {
                        if let Some(links) = &self.links {
                            links.open_door();
                        }
                    }
                    process if process & PROCESS != 0 => self.look_for_end(ClientId(process & !PROCESS)),
                    client => self.serve(ClientId(client)),
                }
            }
        }
    }

    fn open(
        &mut self,
        hosts: Hosts,
        guests: Arc<dyn Guests>,
    ) -> Result<std::net::SocketAddr, std::io::Error> {
        if let Some(links) = &self.links {
            return links.listener.local_addr();
        }
        let outbox = self.outbox.clone();
        let links = Links::start(hosts, Some(guests), outbox)?;
        let data = epoll::EventData::new_u64(DOOR);
        // As at the beginning.
        epoll::add(&self.epoll, &links.listener, data, epoll::EventFlags::IN | epoll::EventFlags::ET)?;
        let address = links.listener.local_addr();
        self.links = Some(links);
        address
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

    fn next_deadline(&self) -> Option<Instant> {
        let greeting = self.greeting.first_key_value().map(|(_, until)| *until);
        let pause = self.listener.as_ref().and_then(Listener::deadline);
        greeting.into_iter().chain(pause).chain(self.ending.values().copied()).min()
    }

    fn look_at_the_clock(&mut self) {
        let now = Instant::now();
        if let Some(listener) = &mut self.listener {
            listener.resume(&self.epoll, now);
        }
        while let Some((&client, until)) = self.greeting.first_key_value()
            && now >= *until
        {
            self.dismiss(client, &format!("no hello came within {} s", HELLO_LIMIT.as_secs()));
        }
        let late: Vec<_> =
            self.ending.iter().filter(|(_, until)| now >= **until).map(|(&client, _)| client).collect();
        for client in late {
            self.disconnect(client);
        }
    }

    /// One that came to our listener.
    fn welcome(&mut self, socket: OwnedFd) {
        if let Some(client) = self.adopt(socket) {
            self.greeting.insert(client, Instant::now() + HELLO_LIMIT);
        }
    }

    fn adopt(&mut self, socket: OwnedFd) -> Option<ClientId> {
        match self.admit(&socket) {
            Ok((client, uid)) => {
                self.connections.insert(client, Connection { socket, uid });
                Some(client)
            }
            // Who is not let in is told why.
            Err(reason) => {
                refuse(&socket, &reason);
                None
            }
        }
    }

    fn admit(&mut self, socket: &OwnedFd) -> Result<(ClientId, u32), String> {
        let system = |error| match error {
            Errno::MFILE | Errno::NFILE => exhausted(),
            error => format!("the agent cannot take one more connection: {error}"),
        };
        let who = credentials::of_peer(socket).map_err(system)?;
        let Limits { connections, connections_per_user, .. } = self.limits;
        if self.connections.len() >= connections as usize {
            return Err(reached(&format!("this agent's limit of {connections} connections"), "connections"));
        }
        let same_user = self.connections.values().filter(|other| other.uid == who.uid).count();
        if same_user >= connections_per_user as usize {
            let limit = format!("the limit of {connections_per_user} connections of user {}", who.uid);
            return Err(reached(&limit, "connections_per_user"));
        }
        rustix::io::ioctl_fionbio(socket, true).map_err(system)?;
        let client = ClientId(self.next_client);
        self.next_client += 1;
        let data = epoll::EventData::new_u64(client.0);
        epoll::add(&self.epoll, socket, data, epoll::EventFlags::IN).map_err(system)?;
        self.broker.connect(client, who.pid, who.uid, who.process);
        self.watch_process(client);
        Ok((client, who.uid))
    }

    /// From now on the end of the client's process is told. Without it the socket's end tells.
    fn watch_process(&mut self, client: ClientId) {
        self.forget_process(client);
        let Some((_, process)) = self.broker.process(client) else { return };
        let data = epoll::EventData::new_u64(client.0 | PROCESS);
        if let Ok(process) = process.try_clone_to_owned()
            && epoll::add(&self.epoll, &process, data, epoll::EventFlags::IN).is_ok()
        {
            self.processes.insert(client, process);
        }
    }

    fn forget_process(&mut self, client: ClientId) {
        if let Some(process) = self.processes.remove(&client) {
            // By name, because peers have copies of it: its close alone does not take it out of the set.
            let _ = epoll::delete(&self.epoll, &process);
        }
    }

    fn serve(&mut self, client: ClientId) {
        // Bounded, so that one chatty process does not keep the agent from the others.
        for _ in 0..16 {
            let Some(connection) = self.connections.get(&client) else { return };
            let received = protocol::receive_from::<Request>(&connection.socket);
            if let Ok((_, _, Some(sender))) = &received
                && let Err(reason) = self.learn_process(client, *sender)
            {
                return self.dismiss(client, &reason);
            }
            match received {
                Ok((request, descriptors, _)) => match self.broker.handle(client, request, descriptors) {
                    Ok(out) => {
                        if self.broker.has_said_hello(client) {
                            self.greeting.remove(&client);
                        }
                        self.send_all(out);
                    }
                    Err(misbehaviour) => return self.dismiss(client, &misbehaviour.to_string()),
                },
                Err(ProtocolError::System(Errno::AGAIN)) => return,
                Err(ProtocolError::Ended) => return self.hang_up(client),
                Err(error) => return self.dismiss(client, &error.to_string()),
            }
        }
    }

    /// The first word of a connection that this program handed out says whose it is: a child's, most often.
    fn learn_process(&mut self, client: ClientId, sender: UCred) -> Result<(), String> {
        let Some(Connection { socket, uid }) = self.connections.get_mut(&client) else { return Ok(()) };
        let system = |error| format!("the kernel does not say whose connection this is: {error}");
        rustix::net::sockopt::set_socket_passcred(&*socket, false).map_err(system)?;
        let who = credentials::of_sender(&*socket, &sender).map_err(system)?;
        *uid = who.uid;
        self.broker.belongs_to(client, who.pid, who.uid, who.process);
        self.watch_process(client);
        Ok(())
    }

    fn dismiss(&mut self, client: ClientId, reason: &str) {
        if let Some(connection) = self.connections.get(&client) {
            refuse(&connection.socket, reason);
        }
        self.hang_up(client);
    }

    /// The connection is over. A process that is killed loses its sockets before it counts as ended: its peers are told
    /// when it does, so that they can see by then how it was, and do not take it for one that left.
    fn hang_up(&mut self, client: ClientId) {
        self.close_connection(client);
        if self.ending.contains_key(&client) {
            return;
        }
        let Some((pid, process)) = self.broker.process(client) else { return };
        if credentials::fate(pid, process) == Fate::Ending && self.processes.contains_key(&client) {
            self.ending.insert(client, Instant::now() + ENDING_LIMIT);
        } else {
            self.disconnect(client);
        }
    }

    fn close_connection(&mut self, client: ClientId) {
        if let Some(connection) = self.connections.remove(&client) {
            let _ = epoll::delete(&self.epoll, &connection.socket);
        }
        self.greeting.remove(&client);
    }

    fn look_for_end(&mut self, client: ClientId) {
        // Looked at, because the connection can have gone over to another process since the event.
        if self.processes.get(&client).is_some_and(credentials::has_ended) {
            self.disconnect(client);
        }
    }

    fn disconnect(&mut self, client: ClientId) {
        self.close_connection(client);
        self.ending.remove(&client);
        self.forget_process(client);
        let out = self.broker.disconnect(client);
        self.send_all(out);
    }

    fn send_all(&mut self, out: Vec<Outgoing>) {
        let mut deaf = Vec::new();
        for Outgoing { to, reply, descriptors } in out {
            let Some(Connection { socket, .. }) = self.connections.get(&to) else { continue };
            let borrowed: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
            // A client whose queue is full does not read what its agent says. Waiting for it would let one stuck
            // process stop all.
            match protocol::send(socket, &reply, &borrowed) {
                // Too many descriptors are under way to clients that do not read. It is not this one's fault.
                Ok(()) | Err(ProtocolError::System(Errno::TOOMANYREFS)) => {}
                Err(_) => deaf.push(to),
            }
        }
        for client in deaf {
            self.hang_up(client);
        }
        self.run_errands();
    }
}

/// Says why, and waits for nothing: whoever hears it is hung up on.
fn refuse(socket: &OwnedFd, reason: &str) {
    let _ = protocol::send(socket, &Reply::Refused { request: None, reason: reason.to_owned() }, &[]);
}

fn exhausted() -> String {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let limit = limit.map_or_else(|| "no limit".to_owned(), |limit| limit.to_string());
    format!(
        "the agent has no descriptor left (ulimit -n: {limit}): end programs that use it, or start it with more"
    )
}
