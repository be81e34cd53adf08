//! A process's connection to its agent, and its watcher: one thread that sleeps until the agent says something or a
//! peer's process ends. It is never on the way of a message.

mod book;
mod restore;

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use comb_types::{ChannelId, EndpointId};
use rustix::event::epoll;
use rustix::time::Timespec;

use super::parting::{self, Partings};
use super::policy::Identity;
use super::protocol::{self, Listed, ProtocolError, RemoteSession, Reply, Request, Side, WindowTerms};
use super::server::connect_socket;
use crate::channel::Link;
use crate::endpoint::{Endpoint, EndpointOptions, EndpointShared, Incoming};
use crate::fence::Fences;
use crate::life::Life;
use crate::shm::{AdoptError, PeerSide, ShmLink};
use crate::transport::Transport;
use book::Book;

/// An agent answers from memory: what takes longer is an agent or a peer that is stopped or gone.
pub const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// How often a process knocks at the door of an agent that went away.
const RECONNECT_INTERVAL: Duration = Duration::from_millis(50);

const STOP: u64 = u64::MAX;
const SOCKET: u64 = u64::MAX - 1;
const PARTING: u64 = u64::MAX - 2;

/// Why there is no connection to an agent.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Nobody listens.
    #[error("no agent answers on {path}: {source}. Is one running? (`comb up` starts one)")]
    Unreachable {
        /// Where.
        path: PathBuf,
        /// Why.
        source: rustix::io::Errno,
    },
    /// The agent said no.
    #[error("the agent refused the connection: {0}")]
    Refused(String),
    /// It spoke something else.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// The system refused.
    #[error("cannot set up the connection to the agent: {0}")]
    System(rustix::io::Errno),
}

/// Why a request to the agent was not done. Nothing changed.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The agent or the peer said no.
    #[error("{0}")]
    Refused(String),
    /// The agent is away. Channels that are open go on; ask again when it is back.
    #[error("the agent is away; open channels go on without it")]
    AgentAway,
    /// The agent is there, but an answer did not come in time: the peer, or the agent itself, is stopped or overloaded.
    #[error("{whose} did not answer within {limit:?}; it may be stopped or overloaded")]
    NoAnswer {
        /// The peer's address, or the agent.
        whose: String,
        /// How long it was waited for ([`Agent::set_answer_limit`]).
        limit: Duration,
    },
    /// What the peer handed over was not acceptable. It is told so.
    #[error("the peer's side of the channel was refused: {0}")]
    Adopt(#[from] AdoptError),
    /// Our own side could not be made.
    #[error(transparent)]
    Segment(#[from] crate::segment::SegmentError),
    /// A geometry outside the limits.
    #[error(transparent)]
    Geometry(#[from] crate::shm::GeometryError),
    /// Channels to other hosts are waited for by events.
    #[error("an endpoint for channels between hosts is to be made with EndpointOptions::events")]
    NeedsEvents,
    /// The endpoint has no free place for one more channel.
    #[error("the endpoint has all of its {0} channels; make it with more (EndpointOptions::channels)")]
    NoPlace(u32),
    /// The system refused.
    #[error("the system refused: {0}")]
    System(rustix::io::Errno),
}

/// A process's connection to its agent. Cheap to clone; the connection ends with the last clone and the last
/// endpoint made by it.
#[derive(Clone, Debug)]
pub struct Agent {
    connection: Arc<Connection>,
}

#[derive(Debug)]
struct Connection {
    shared: Arc<Shared>,
    stop: OwnedFd,
    watcher: Option<std::thread::JoinHandle<()>>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        let _ = rustix::io::write(&self.stop, &1_u64.to_ne_bytes());
        if let Some(watcher) = self.watcher.take() {
            let _ = watcher.join();
        }
    }
}

/// What the process's threads and its watcher share.
#[derive(Debug)]
pub(crate) struct Shared {
    name: String,
    /// Where to find the agent again; `None` for an agent in a process, which does not come back.
    path: Option<PathBuf>,
    /// `None` while the agent is away.
    socket: Mutex<Option<Arc<OwnedFd>>>,
    waiting: Mutex<Waiting>,
    book: Mutex<Book>,
    epoll: OwnedFd,
    answer_limit: Mutex<Duration>,
    partings: Partings,
}

#[derive(Debug, Default)]
struct Waiting {
    next: u32,
    answers: BTreeMap<u32, Asked>,
}

impl Waiting {
    fn fresh_number(&mut self) -> u32 {
        self.next = self.next.wrapping_add(1);
        self.next
    }
}

#[derive(Debug)]
struct Asked {
    answer: mpsc::Sender<Answer>,
    purpose: Purpose,
}

/// What the watcher does with an answer before it passes it on.
#[derive(Debug)]
enum Purpose {
    /// Nothing.
    Reply,
    /// Takes the endpoint into the book. Not the thread that asked: a peer's offer to the new endpoint can come right
    /// behind the answer, and finds it then.
    Create(Arc<EndpointShared>),
    /// Watches the channel, for that endpoint and by that address.
    Open(Arc<EndpointShared>, String),
}

/// The answer to a request. An opened channel is watched already when it comes.
pub(crate) enum Answer {
    Reply(Reply),
    Opened { channel: ChannelId, peer: PeerSide, life: Arc<Life> },
    RemoteOpened { channel: ChannelId, transport: Box<dyn Transport>, life: Arc<Life> },
    Refused(String),
    AgentAway,
}

impl Answer {
    fn into_result(self) -> Result<Self, RequestError> {
        match self {
            Self::Refused(reason) => Err(RequestError::Refused(reason)),
            Self::AgentAway => Err(RequestError::AgentAway),
            answer => Ok(answer),
        }
    }
}

/// What the agent was asked and has not answered yet.
#[derive(Debug)]
pub(crate) struct Question {
    number: u32,
    inbox: mpsc::Receiver<Answer>,
    /// Whose answer it is.
    whose: String,
    limit: Duration,
    asked_at: Instant,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic elsewhere leaves these books consistent: each change is one insertion or removal.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Agent {
    /// Connects to the agent that listens on `path`, as the process of that name.
    pub fn connect(path: &Path, name: &str) -> Result<Self, ConnectError> {
        let socket = connect_socket(path)
            .map_err(|source| ConnectError::Unreachable { path: path.to_owned(), source })?;
        Self::start(socket, name, Some(path.to_owned()))
    }

    /// Uses a socket that is connected to an agent already.
    pub fn over(socket: OwnedFd, name: &str) -> Result<Self, ConnectError> {
        Self::start(socket, name, None)
    }

    fn start(socket: OwnedFd, name: &str, path: Option<PathBuf>) -> Result<Self, ConnectError> {
        let system = ConnectError::System;
        limit_waiting(&socket).map_err(system)?;
        hello(&socket, name)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(system)?;
        let stop = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).map_err(system)?;
        epoll::add(&epoll, &stop, epoll::EventData::new_u64(STOP), epoll::EventFlags::IN).map_err(system)?;
        epoll::add(&epoll, &socket, epoll::EventData::new_u64(SOCKET), epoll::EventFlags::IN)
            .map_err(system)?;
        let partings = Partings::new().map_err(system)?;
        epoll::add(&epoll, partings.wake(), epoll::EventData::new_u64(PARTING), epoll::EventFlags::IN)
            .map_err(system)?;
        let shared = Arc::new(Shared {
            name: name.to_owned(),
            path,
            socket: Mutex::new(Some(Arc::new(socket))),
            waiting: Mutex::default(),
            book: Mutex::default(),
            epoll,
            answer_limit: Mutex::new(ANSWER_LIMIT),
            partings,
        });
        let for_watcher = Arc::clone(&shared);
        let watcher = std::thread::Builder::new()
            .name("comb-watcher".into())
            .spawn(move || for_watcher.watch())
            .map_err(|_| ConnectError::System(rustix::io::Errno::AGAIN))?;
        Ok(Self { connection: Arc::new(Connection { shared, stop, watcher: Some(watcher) }) })
    }

    /// The name that this process gave.
    pub fn name(&self) -> &str {
        &self.connection.shared.name
    }

    /// How long requests wait for their answer; [`ANSWER_LIMIT`] unless set. An opened channel's answer comes from the
    /// peer's process, which needs a core for a moment.
    pub fn set_answer_limit(&self, limit: Duration) {
        *lock(&self.connection.shared.answer_limit) = limit;
    }

    /// Makes an endpoint with the default options.
    pub fn endpoint(&self, name: &str) -> Result<Endpoint, RequestError> {
        self.endpoint_with(name, EndpointOptions::default())
    }

    /// Makes an endpoint. If this process has just dropped one of that name, and what it said last to another host is still under
    /// way, waits for that: a second at most.
    pub fn endpoint_with(&self, name: &str, options: EndpointOptions) -> Result<Endpoint, RequestError> {
        options.geometry.check()?;
        while self.connection.shared.partings.has_endpoint(name) {
            std::thread::sleep(parting::INTERVAL);
        }
        let (shared, bell) = EndpointShared::create(name, options)?;
        let shared = Arc::new(shared.with_bell(bell));
        let request = |request| Request::CreateEndpoint {
            request,
            name: name.to_owned(),
            bell_channels: options.channels,
        };
        let purpose = Purpose::Create(Arc::clone(&shared));
        match self.connection.shared.ask(request, &[shared.bell_descriptor()], purpose)? {
            Answer::Reply(Reply::EndpointCreated { .. }) => Ok(Endpoint::new(self.clone(), shared)),
            _ => Err(something_else()),
        }
    }

    /// The processes that the agent knows.
    pub fn list(&self) -> Result<Vec<Listed>, RequestError> {
        match self.connection.shared.ask(|request| Request::List { request }, &[], Purpose::Reply)? {
            Answer::Reply(Reply::Listing { processes, .. }) => Ok(processes),
            _ => Err(something_else()),
        }
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.connection.shared
    }
}

/// An answer to another question than ours.
pub(crate) fn something_else() -> RequestError {
    RequestError::Refused("the agent answered something else".into())
}

/// The agent may be stopped: then neither its full queue nor its missing answer may hold us for ever.
fn limit_waiting(socket: &OwnedFd) -> Result<(), rustix::io::Errno> {
    use rustix::net::sockopt::{Timeout, set_socket_timeout};
    set_socket_timeout(socket, Timeout::Recv, Some(ANSWER_LIMIT))?;
    set_socket_timeout(socket, Timeout::Send, Some(ANSWER_LIMIT))
}

/// Introduces ourselves and waits for the welcome.
fn hello(socket: &OwnedFd, name: &str) -> Result<Identity, ConnectError> {
    match protocol::send(socket, &Request::Hello { name: name.to_owned() }, &[]) {
        // It hung up without a hello, and said why.
        Ok(()) | Err(ProtocolError::Ended) => {}
        Err(error) => return Err(error.into()),
    }
    let reply = protocol::receive::<Reply>(socket).map_err(|error| match error {
        ProtocolError::System(rustix::io::Errno::AGAIN) => {
            ConnectError::Refused(format!("it did not answer within {ANSWER_LIMIT:?}"))
        }
        error => error.into(),
    })?;
    match reply.0 {
        Reply::Welcome { you } => Ok(you),
        Reply::Refused { reason, .. } => Err(ConnectError::Refused(reason)),
        _ => Err(ConnectError::Refused("it answered something else".into())),
    }
}

impl Shared {
    /// Asks for a channel: our side goes to the agent, the peer's comes back in [`Answer::Opened`].
    pub(crate) fn begin_opening(
        &self,
        endpoint: &Arc<EndpointShared>,
        to: &str,
        side: Side,
        descriptors: &[&OwnedFd],
    ) -> Result<Question, RequestError> {
        let id = endpoint.id();
        let request = |request| Request::Open { request, endpoint: id, to: to.to_owned(), side };
        let descriptors: Vec<_> = descriptors.iter().map(|fd| fd.as_fd()).collect();
        self.put(request, &descriptors, Purpose::Open(Arc::clone(endpoint), to.to_owned()))
    }

    /// Asks for a channel to another host, which comes in [`Answer::RemoteOpened`].
    pub(crate) fn begin_opening_elsewhere(
        &self,
        endpoint: &Arc<EndpointShared>,
        to: &str,
        silence_limit_ms: u32,
    ) -> Result<Question, RequestError> {
        let (id, to) = (endpoint.id(), to.to_owned());
        let purpose = Purpose::Open(Arc::clone(endpoint), to.clone());
        let request = |request| Request::OpenRemote { request, endpoint: id, to, silence_limit_ms };
        self.put(request, &[], purpose)
    }

    /// Hands a window to a channel's peer, and waits until it is on its way.
    pub(crate) fn share_window(
        &self,
        window: WindowTerms,
        memory: BorrowedFd<'_>,
    ) -> Result<(), RequestError> {
        match self.ask(|request| Request::ShareWindow { request, window }, &[memory], Purpose::Reply)? {
            Answer::Reply(Reply::WindowTaken { .. }) => Ok(()),
            _ => Err(something_else()),
        }
    }

    /// Tells the agent something that it does not answer. An agent that is away learns it when it is back, from what
    /// we then restore.
    pub(crate) fn tell(&self, request: &Request, descriptors: &[BorrowedFd<'_>]) {
        if let Some(socket) = self.socket() {
            let _ = protocol::send(&*socket, request, descriptors);
        }
    }

    /// Forgets a channel: the watcher no longer watches for it.
    pub(crate) fn forget_channel(&self, channel: ChannelId, life: &Arc<Life>) {
        self.unwatch_channel(channel, life);
        self.close_channel(channel);
    }

    /// Tells the agent that we have no such channel any more.
    pub(crate) fn close_channel(&self, channel: ChannelId) {
        self.tell(&Request::CloseChannel { channel }, &[]);
    }

    /// The watcher no longer watches for it; the agent learns of it otherwise.
    pub(crate) fn unwatch_channel(&self, channel: ChannelId, life: &Arc<Life>) {
        lock(&self.book).forget(&self.epoll, channel, life);
    }

    /// Sees closed channels off; then the agent is told.
    pub(crate) fn see_off(&self, unsettled: Vec<Box<dyn Transport>>, request: Option<Request>) {
        self.partings.add(unsettled, request, None);
    }

    /// Forgets an endpoint, but not what its channels still have to say.
    pub(crate) fn forget_endpoint(&self, endpoint: &Arc<EndpointShared>, unsettled: Vec<Box<dyn Transport>>) {
        // By identity: while the agent is coming back, its number may just be changing.
        lock(&self.book).endpoints.retain(|_, known| !Arc::ptr_eq(known, endpoint));
        let request = Request::CloseEndpoint { endpoint: endpoint.id() };
        if unsettled.is_empty() {
            self.tell(&request, &[]);
        } else {
            self.partings.add(unsettled, Some(request), Some(endpoint.name().to_owned()));
        }
    }

    fn socket(&self) -> Option<Arc<OwnedFd>> {
        lock(&self.socket).clone()
    }

    fn ask(
        &self,
        request: impl FnOnce(u32) -> Request,
        descriptors: &[BorrowedFd<'_>],
        purpose: Purpose,
    ) -> Result<Answer, RequestError> {
        let question = self.put(request, descriptors, purpose)?;
        let answer = self.answer(&question, question.limit);
        answer.unwrap_or_else(|| self.give_up(&question))
    }

    /// Puts a question to the agent.
    fn put(
        &self,
        request: impl FnOnce(u32) -> Request,
        descriptors: &[BorrowedFd<'_>],
        purpose: Purpose,
    ) -> Result<Question, RequestError> {
        let socket = self.socket().ok_or(RequestError::AgentAway)?;
        let whose = match &purpose {
            Purpose::Open(_, to) => to.clone(),
            Purpose::Reply | Purpose::Create(_) => "the agent".to_owned(),
        };
        let (answer, inbox) = mpsc::channel();
        let number = {
            let mut waiting = lock(&self.waiting);
            let number = waiting.fresh_number();
            waiting.answers.insert(number, Asked { answer, purpose });
            number
        };
        let limit = *lock(&self.answer_limit);
        if let Err(error) = protocol::send(&*socket, &request(number), descriptors) {
            lock(&self.waiting).answers.remove(&number);
            return Err(match error {
                ProtocolError::TooLong { .. } => RequestError::Refused(error.to_string()),
                ProtocolError::System(rustix::io::Errno::AGAIN) => {
                    RequestError::NoAnswer { whose: "the agent".to_owned(), limit: ANSWER_LIMIT }
                }
                _ => RequestError::AgentAway,
            });
        }
        Ok(Question { number, inbox, whose, limit, asked_at: Instant::now() })
    }

    /// The answer, if it comes within `wait`. If the time for it is over, that is the answer.
    pub(crate) fn answer(&self, question: &Question, wait: Duration) -> Option<Result<Answer, RequestError>> {
        let left = question.limit.saturating_sub(question.asked_at.elapsed());
        match question.inbox.recv_timeout(wait.min(left)) {
            Ok(answer) => Some(answer.into_result()),
            Err(_) if wait < left => None,
            Err(_) => Some(self.give_up(question)),
        }
    }

    /// Waits no longer. The watcher may have taken the question in this very moment: its answer is under way, and must not be
    /// lost, for it may be a channel.
    fn give_up(&self, question: &Question) -> Result<Answer, RequestError> {
        let Question { number, inbox, whose, limit, .. } = question;
        let no_answer = || RequestError::NoAnswer { whose: whose.clone(), limit: *limit };
        if lock(&self.waiting).answers.remove(number).is_some() {
            return Err(no_answer());
        }
        inbox.recv().map_err(|_| no_answer())?.into_result()
    }

    /// Nobody wants the answer any more.
    pub(crate) fn abandon(&self, question: &Question) {
        if let Ok(Answer::Opened { channel, life, .. } | Answer::RemoteOpened { channel, life, .. }) =
            self.give_up(question)
        {
            self.forget_channel(channel, &life);
        }
    }

    // ── the watcher ──

    fn watch(&self) {
        let mut space = [std::mem::MaybeUninit::<epoll::Event>::uninit(); 32];
        loop {
            let away = self.socket().is_none();
            let limit = match away && self.path.is_some() {
                _ if !self.partings.is_empty() => Some(parting::INTERVAL),
                true => Some(RECONNECT_INTERVAL),
                false => None,
            };
            let limit = limit.map(|limit| Timespec { tv_sec: 0, tv_nsec: limit.subsec_nanos().into() });
            let ready: Vec<u64> = match epoll::wait(&self.epoll, &mut space, limit.as_ref()) {
                Ok((events, _)) => events.iter().map(|event| event.data.u64()).collect(),
                Err(rustix::io::Errno::INTR) => continue,
                Err(_) => return,
            };
            for token in ready {
                match token {
                    STOP => return self.see_all_off(),
                    SOCKET => self.hear(),
                    PARTING => {}
                    process => lock(&self.book).process_ended(&self.epoll, process),
                }
            }
            self.drive_partings();
            if self.socket().is_none() {
                self.reconnect();
            }
        }
    }

    fn drive_partings(&self) {
        self.partings.drive(|request| self.tell(request, &[]));
    }

    /// The last endpoint is gone, and what it said last is to arrive.
    fn see_all_off(&self) {
        while !self.partings.is_empty() {
            self.drive_partings();
            std::thread::sleep(parting::INTERVAL);
        }
    }

    fn hear(&self) {
        let Some(socket) = self.socket() else { return };
        match protocol::receive::<Reply>(&*socket) {
            Ok((reply, descriptors)) => self.take(reply, descriptors),
            Err(_) => self.agent_left(&socket),
        }
    }

    fn agent_left(&self, socket: &OwnedFd) {
        let _ = epoll::delete(&self.epoll, socket);
        *lock(&self.socket) = None;
        for (_, asked) in std::mem::take(&mut lock(&self.waiting).answers) {
            let _ = asked.answer.send(Answer::AgentAway);
        }
    }

    fn take(&self, reply: Reply, descriptors: Vec<OwnedFd>) {
        match reply {
            Reply::EndpointCreated { request, endpoint } => {
                let asked = lock(&self.waiting).answers.remove(&request);
                let Some(Asked { answer, purpose: Purpose::Create(shared) }) = asked else {
                    // Whoever asked has given up.
                    return self.tell(&Request::CloseEndpoint { endpoint }, &[]);
                };
                shared.set_id(endpoint);
                lock(&self.book).endpoints.insert(endpoint, shared);
                let _ = answer.send(Answer::Reply(reply));
            }
            Reply::Listing { request, .. } | Reply::WindowTaken { request } => {
                if let Some(asked) = lock(&self.waiting).answers.remove(&request) {
                    let _ = asked.answer.send(Answer::Reply(reply));
                }
            }
            Reply::Refused { request: Some(request), reason } => {
                if let Some(Asked { answer, purpose }) = lock(&self.waiting).answers.remove(&request) {
                    let _ = answer.send(Answer::Refused(reason));
                    if let Purpose::Open(endpoint, _) = purpose {
                        endpoint.raise_news();
                    }
                }
            }
            Reply::Opened { request, channel, peer, side, bell_channels } => {
                self.opened(request, channel, |endpoint, address| {
                    let (side, process) = split_descriptors(&side, bell_channels, descriptors)?;
                    let process = (peer.pid, process);
                    let life = lock(&self.book).watch(&self.epoll, channel, endpoint, address, process)?;
                    Ok((Answer::Opened { channel, peer: side, life: Arc::clone(&life) }, life))
                });
            }
            Reply::Offer { channel, endpoint, from, from_endpoint, side, bell_channels } => {
                let peer = format!("{}/{from_endpoint}", from.name);
                if let Err(reason) =
                    self.offered(channel, endpoint, &from, &peer, &side, bell_channels, descriptors)
                {
                    self.tell(&Request::Refuse { channel, reason }, &[]);
                }
            }
            Reply::RemoteOpened { request, channel, session } => {
                self.opened(request, channel, |endpoint, address| {
                    let transport = transport(session, descriptors)?;
                    let life = lock(&self.book).watch_elsewhere(channel, endpoint, address)?;
                    Ok((Answer::RemoteOpened { channel, transport, life: Arc::clone(&life) }, life))
                });
            }
            Reply::RemoteOffer { channel, endpoint, from, session } => {
                let answer = match self.offered_remotely(channel, endpoint, from, session, descriptors) {
                    Ok(()) => Request::AcceptRemote { channel },
                    Err(reason) => Request::Refuse { channel, reason },
                };
                self.tell(&answer, &[]);
            }
            Reply::WindowShared { window: terms } => {
                // An agent that is not what it should be crashes nobody, and costs no more descriptors than there are windows.
                let is_one = (terms.number as usize) < crate::shm::WINDOWS;
                if let (true, Ok([memory])) = (is_one, <[OwnedFd; 1]>::try_from(descriptors)) {
                    lock(&self.book).push_window(terms, memory);
                }
            }
            Reply::PeerGone { channel, reason, last_word } => {
                lock(&self.book).peer_gone(&self.epoll, channel, &reason, last_word);
            }
            Reply::Welcome { .. } | Reply::Refused { request: None, .. } => {}
        }
    }

    /// Answers who asked for the channel with what `take` makes of it, once it is watched. The agent hears of a channel
    /// that nobody has.
    fn opened(
        &self,
        request: u32,
        channel: ChannelId,
        take: impl FnOnce(&Arc<EndpointShared>, String) -> Result<(Answer, Arc<Life>), String>,
    ) {
        let asked = lock(&self.waiting).answers.remove(&request);
        let Some(Asked { answer, purpose: Purpose::Open(endpoint, address) }) = asked else {
            // Whoever asked has given up.
            return self.close_channel(channel);
        };
        match take(&endpoint, address) {
            Ok((opened, life)) => {
                if answer.send(opened).is_err() {
                    self.forget_channel(channel, &life);
                }
            }
            Err(reason) => {
                self.close_channel(channel);
                let _ = answer.send(Answer::Refused(reason));
            }
        }
        // Who opens without waiting may sleep.
        endpoint.raise_news();
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of one message")]
    fn offered(
        &self,
        channel: ChannelId,
        endpoint: EndpointId,
        from: &Identity,
        peer: &str,
        side: &Side,
        bell_channels: u32,
        descriptors: Vec<OwnedFd>,
    ) -> Result<(), String> {
        let shared = lock(&self.book).endpoints.get(&endpoint).cloned().ok_or("the endpoint was closed")?;
        let (peer_side, process) = split_descriptors(side, bell_channels, descriptors)?;
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let (own, own_side, ring, event) = shared.new_side().map_err(|error| text(&error))?;
        let index = own_side.bell_index;
        // The original stays in the endpoint's epoll set under its own number; the agent gets a copy.
        let sent_event = match event.as_ref().map(|event| event.descriptor().try_clone()).transpose() {
            Ok(copy) => copy,
            Err(error) => {
                shared.release_index(index);
                return Err(text(&error));
            }
        };
        let accepted = ShmLink::new(&own, peer_side).map_err(|error| text(&error)).and_then(|link| {
            let process = (from.pid, process);
            let life = lock(&self.book).watch(&self.epoll, channel, &shared, peer.to_owned(), process)?;
            Ok((link, life))
        });
        let (link, life) = accepted.inspect_err(|_| shared.release_index(index))?;
        let mut with = vec![ring.as_fd()];
        with.extend(sent_event.as_ref().map(AsFd::as_fd));
        // The agent first: once the endpoint has the channel, it may ask the agent for more on it, such as a window.
        self.tell(&Request::Accept { channel, side: own_side }, &with);
        let (peer, link) = (peer.to_owned(), Link::Shm(link));
        let incoming = Incoming { channel, index, peer, link, life: Arc::clone(&life), event };
        if let Err(mut homeless) = shared.push_incoming(incoming) {
            // The endpoint was closed in this moment. Too late to refuse: the opener is told that it was closed.
            homeless.link.close();
            self.forget_channel(channel, &life);
        }
        Ok(())
    }

    fn offered_remotely(
        &self,
        channel: ChannelId,
        endpoint: EndpointId,
        from: String,
        session: RemoteSession,
        descriptors: Vec<OwnedFd>,
    ) -> Result<(), String> {
        let shared = lock(&self.book).endpoints.get(&endpoint).cloned().ok_or("the endpoint was closed")?;
        let transport = transport(session, descriptors)?;
        let life = lock(&self.book).watch_elsewhere(channel, &shared, from)?;
        let incoming = shared.remote_channel(channel, Arc::clone(&life), transport);
        let pushed = incoming.map_err(|error| error.to_string()).and_then(|incoming| {
            shared.push_incoming(incoming).map_err(|_| "the endpoint was closed".to_owned())
        });
        pushed.inspect_err(|_| self.unwatch_channel(channel, &life))
    }
}

/// A channel's socket and what was agreed for it.
fn transport(session: RemoteSession, descriptors: Vec<OwnedFd>) -> Result<Box<dyn Transport>, String> {
    let [socket] = <[OwnedFd; 1]>::try_from(descriptors).map_err(|_| "the socket is missing")?;
    session.into_transport(socket)
}

/// Ring, eventfd if announced, bell, process: as the agent sends them.
fn split_descriptors(
    side: &Side,
    bell_channels: u32,
    descriptors: Vec<OwnedFd>,
) -> Result<(PeerSide, OwnedFd), String> {
    let mut descriptors = descriptors.into_iter();
    let mut next =
        || descriptors.next().ok_or("descriptors are missing: has this process none left (ulimit -n)?");
    let segment = next()?;
    let event = if side.event { Some(next()?) } else { None };
    let (bell, process) = (next()?, next()?);
    let fences = if side.asymmetric_fences { Fences::Asymmetric } else { Fences::Full };
    let peer = PeerSide {
        segment,
        geometry: side.geometry,
        bell,
        bell_channels,
        bell_index: side.bell_index,
        event,
        fences,
    };
    Ok((peer, process))
}
