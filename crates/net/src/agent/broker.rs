//! What an agent decides. No socket and no clock: requests with their descriptors in, replies with theirs out.
//!
//! The broker believes nobody: names, seals, sizes and limits are checked here before anything reaches a peer. It
//! keeps one reference to every bell, because it hands them to each new peer; rings and windows only pass through.
//!
//! `windows` is what it decides about windows, `restore` what it believes processes that outlived the agent before.

mod remote;
mod restore;
mod windows;

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use comb_types::{ChannelId, EndpointId};

use super::credentials;
use super::policy::{Identity, Limits, Policy, reached};
use super::protocol::{LONGEST_NAME, Listed, Reply, Request, Side, WindowTerms};
use crate::bell::Bell;
use crate::segment::{Segment, Writers};
use crate::shm::GeometryError;
use remote::{Remote, Stage};
use restore::Restored;

pub use remote::{Departure, Elsewhere, Farewell, Verdict};

/// A connection, as the server counts them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ClientId(pub u64);

/// Something to be sent.
#[derive(Debug)]
pub struct Outgoing {
    /// To whom.
    pub to: ClientId,
    /// What.
    pub reply: Reply,
    /// With what.
    pub descriptors: Vec<OwnedFd>,
}

/// A client that broke the protocol: it is told why and its connection ends.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct Misbehaviour(pub String);

/// Why one request was refused. The connection goes on.
struct Refusal(String);

/// What those are told who lose a peer.
#[derive(Clone, Copy)]
struct Parting<'a> {
    reason: &'a str,
    last_word: Option<u128>,
}

impl<'a> From<&'a str> for Parting<'a> {
    fn from(reason: &'a str) -> Self {
        Self { reason, last_word: None }
    }
}

/// Longer reasons are not for people. A reason can quote what was asked for, and an answer that does not fit in a message
/// would end the connection.
const LONGEST_REASON: usize = 1000;

/// Anything that can be said to people is a reason. `Refusal` itself is not `Display`, so that this is no cycle.
impl<T: std::fmt::Display> From<T> for Refusal {
    fn from(reason: T) -> Self {
        Self(reason.to_string().chars().take(LONGEST_REASON).collect())
    }
}

#[derive(Debug)]
struct Client {
    /// `None` until it has said hello.
    name: Option<String>,
    pid: u32,
    uid: u32,
    process: OwnedFd,
    channels: u32,
    memory_bytes: u64,
}

#[derive(Debug)]
struct Endpoint {
    owner: ClientId,
    name: String,
    bell: OwnedFd,
    bell_channels: u32,
    /// Whether it came back with its process after this agent's start: then more of its channels may follow.
    restored: bool,
}

/// A channel and its ends; the second is missing while it is only offered, or not restored yet.
#[derive(Debug)]
struct Channel {
    ends: Vec<(ClientId, EndpointId)>,
    /// The opener's request while it waits for an answer, and the memory that each end has charged.
    pending: Option<Pending>,
    charged_bytes: Vec<(ClientId, u64)>,
    /// While only one end has been restored: its own address, and the one that may claim the other end.
    half: Option<(String, String)>,
    /// As their owners shared them; charged too.
    windows: Vec<(ClientId, WindowTerms)>,
    /// Set if the other end is on another host.
    remote: Option<Remote>,
}

#[derive(Debug)]
struct Pending {
    request: u32,
    accepter: (ClientId, EndpointId),
}

/// The agent's book.
pub struct Broker {
    policy: Box<dyn Policy>,
    limits: Limits,
    clients: BTreeMap<ClientId, Client>,
    endpoints: BTreeMap<EndpointId, Endpoint>,
    channels: BTreeMap<ChannelId, Channel>,
    next_number: u32,
    departures: Vec<Departure>,
    verdicts: Vec<Verdict>,
    farewells: Vec<Farewell>,
    /// Of channels whose opener left while the other host was being asked: what that is told if it says yes.
    orphans: BTreeMap<ChannelId, Farewell>,
}

impl std::fmt::Debug for Broker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Broker").field("clients", &self.clients).finish_non_exhaustive()
    }
}

type Outcome = Result<Vec<Outgoing>, Refusal>;

impl Broker {
    /// A broker with nothing in its book. `first_number` should be random: processes that restore their channels
    /// after an agent's restart bring numbers of the agent before.
    pub fn new(policy: Box<dyn Policy>, limits: Limits, first_number: u32) -> Self {
        Self {
            policy,
            limits,
            clients: BTreeMap::new(),
            endpoints: BTreeMap::new(),
            channels: BTreeMap::new(),
            next_number: first_number,
            departures: Vec::new(),
            verdicts: Vec::new(),
            farewells: Vec::new(),
            orphans: BTreeMap::new(),
        }
    }

    /// A process connected; the kernel vouches for the rest.
    pub fn connect(&mut self, client: ClientId, pid: u32, uid: u32, process: OwnedFd) {
        let fresh = Client { name: None, pid, uid, process, channels: 0, memory_bytes: 0 };
        let before = self.clients.insert(client, fresh);
        assert!(before.is_none(), "the server numbers connections once");
    }

    /// The connection has gone over to another process, before it said anything.
    pub fn belongs_to(&mut self, client: ClientId, pid: u32, uid: u32, process: OwnedFd) {
        if let Some(known) = self.clients.get_mut(&client).filter(|known| known.name.is_none()) {
            (known.pid, known.uid, known.process) = (pid, uid, process);
        }
    }

    /// Whether a client has introduced itself.
    pub fn has_said_hello(&self, client: ClientId) -> bool {
        self.clients.get(&client).is_some_and(|known| known.name.is_some())
    }

    /// A client's process: its number, and its descriptor.
    pub fn process(&self, client: ClientId) -> Option<(u32, BorrowedFd<'_>)> {
        self.clients.get(&client).map(|known| (known.pid, known.process.as_fd()))
    }

    /// A connection ended: its endpoints and channels go, and the other ends are told. Of a process that is ending it is
    /// to be said when it has ended: peers take the word of an earlier call for a farewell.
    pub fn disconnect(&mut self, client: ClientId) -> Vec<Outgoing> {
        let mut out = Vec::new();
        let ended = self.process(client).is_some_and(|(_, process)| credentials::has_ended(process));
        let reason = format!("{} {}", self.full_name(client), if ended { "ended" } else { "left" });
        let owned: Vec<EndpointId> =
            self.endpoints.iter().filter(|(_, e)| e.owner == client).map(|(&id, _)| id).collect();
        for endpoint in owned {
            // One that lives may still say something else.
            let board = self.endpoints[&endpoint].bell.as_fd();
            let last_word = if ended { Bell::last_word_on(board) } else { None };
            self.remove_endpoint(endpoint, Parting { reason: &reason, last_word }, &mut out);
        }
        self.clients.remove(&client);
        out
    }

    /// One request. `Err`: the client broke the protocol; the server tells it so and calls [`Broker::disconnect`].
    pub fn handle(
        &mut self,
        client: ClientId,
        request: Request,
        descriptors: Vec<OwnedFd>,
    ) -> Result<Vec<Outgoing>, Misbehaviour> {
        if self.has_said_hello(client) == matches!(request, Request::Hello { .. }) {
            return Err(Misbehaviour("a connection starts with one Hello".into()));
        }
        let number = match &request {
            Request::CreateEndpoint { request, .. }
            | Request::Open { request, .. }
            | Request::RestoreEndpoint { request, .. }
            | Request::ShareWindow { request, .. }
            | Request::RestoreWindow { request, .. }
            | Request::OpenRemote { request, .. }
            | Request::List { request } => Some(*request),
            _ => None,
        };
        let outcome = self.dispatch(client, request, descriptors);
        Ok(outcome.unwrap_or_else(|Refusal(reason)| {
            vec![Outgoing {
                to: client,
                reply: Reply::Refused { request: number, reason },
                descriptors: Vec::new(),
            }]
        }))
    }

    fn dispatch(&mut self, client: ClientId, request: Request, descriptors: Vec<OwnedFd>) -> Outcome {
        match request {
            Request::Hello { name } => self.hello(client, name),
            Request::CreateEndpoint { request, name, bell_channels } => {
                self.create_endpoint(client, request, name, bell_channels, descriptors)
            }
            Request::RestoreEndpoint { request, name, bell_channels, channels, geometry } => {
                let restored = Restored { name, bell_channels, channels: &channels, geometry };
                self.restore_endpoint(client, request, restored, descriptors)
            }
            Request::RestoreWindow { request, window } => {
                self.restore_window(client, request, window, descriptors)
            }
            Request::Open { request, endpoint, to, side } => {
                self.open(client, request, endpoint, &to, side, descriptors)
            }
            Request::Accept { channel, side } => self.accept(client, channel, side, descriptors),
            Request::Refuse { channel, reason } => self.refuse(client, channel, &reason),
            Request::ShareWindow { request, window } => {
                self.share_window(client, request, window, descriptors)
            }
            Request::WithdrawWindow { window } => {
                self.withdraw_window(client, &window);
                Ok(Vec::new())
            }
            Request::CloseChannel { channel } => {
                self.end_of(client, channel)?;
                let name = self.full_name(client);
                let mut out = Vec::new();
                let reason = format!("{name} closed the channel");
                self.remove_channel(channel, &|(id, _)| id != client, reason[..].into(), &mut out);
                Ok(out)
            }
            Request::CloseEndpoint { endpoint } => {
                self.own_endpoint(client, endpoint)?;
                let name = self.full_name(client);
                let mut out = Vec::new();
                let reason = format!("{name} closed its endpoint");
                self.remove_endpoint(endpoint, reason[..].into(), &mut out);
                Ok(out)
            }
            Request::List { request } => Ok(vec![self.list(client, request)]),
            Request::OpenRemote { request, endpoint, to, silence_limit_ms } => {
                self.open_remote(client, request, endpoint, &to, silence_limit_ms)
            }
            Request::AcceptRemote { channel } => self.accept_remote(client, channel),
        }
    }

    fn hello(&mut self, client: ClientId, name: String) -> Outcome {
        check_name(&name)?;
        if self.clients.values().any(|other| other.name.as_ref() == Some(&name)) {
            return Err(format!("the name {name:?} is taken by another process on this agent").into());
        }
        self.clients.get_mut(&client).ok_or("not connected")?.name = Some(name);
        let you = self.identity(client).expect("just named");
        Ok(vec![Outgoing { to: client, reply: Reply::Welcome { you }, descriptors: Vec::new() }])
    }

    fn create_endpoint(
        &mut self,
        client: ClientId,
        request: u32,
        name: String,
        bell_channels: u32,
        descriptors: Vec<OwnedFd>,
    ) -> Outcome {
        let endpoint = self.insert_endpoint(client, name, bell_channels, descriptors)?;
        let reply = Reply::EndpointCreated { request, endpoint };
        Ok(vec![Outgoing { to: client, reply, descriptors: Vec::new() }])
    }

    fn insert_endpoint(
        &mut self,
        client: ClientId,
        name: String,
        bell_channels: u32,
        descriptors: Vec<OwnedFd>,
    ) -> Result<EndpointId, Refusal> {
        check_name(&name)?;
        let owned = self.endpoints.values().filter(|e| e.owner == client);
        if owned.clone().any(|e| e.name == name) {
            return Err(format!("this process has an endpoint {name:?} already").into());
        }
        if owned.count() >= self.limits.endpoints as usize {
            let limit = format!("the limit of {} endpoints a process", self.limits.endpoints);
            return Err(reached(&limit, "endpoints").into());
        }
        if bell_channels == 0 || bell_channels > self.limits.channels {
            let most = self.limits.channels;
            return Err(format!(
                "an endpoint takes 1 to {most} channels (Limits::channels), not {bell_channels}"
            )
            .into());
        }
        let [bell] = exactly(descriptors)?;
        let bytes = Bell::board_bytes(bell_channels) as u64;
        Segment::inspect(bell.as_fd(), bytes, Writers::Both)?;
        self.charge(client, bytes)?;
        let endpoint = EndpointId(self.fresh_number());
        let restored = false;
        self.endpoints.insert(endpoint, Endpoint { owner: client, name, bell, bell_channels, restored });
        Ok(endpoint)
    }

    fn open(
        &mut self,
        client: ClientId,
        request: u32,
        endpoint: EndpointId,
        to: &str,
        side: Side,
        descriptors: Vec<OwnedFd>,
    ) -> Outcome {
        self.own_endpoint(client, endpoint)?;
        let (target, accepter, name) = self.find(to)?;
        let from = self.identity(client).ok_or("not connected")?;
        let peer = self.identity(target).ok_or("not connected")?;
        self.policy.may_open(&from, &peer, name).map_err(Refusal)?;
        self.has_place(client, "this process's")?;
        self.has_place(target, "the peer's")?;
        let charged = Self::check_side(&side, &descriptors)?;
        // What can fail comes before what changes the book.
        let descriptors = self.with_bell_and_process(client, endpoint, descriptors)?;
        self.charge(client, charged)?;
        let channel = ChannelId(self.fresh_number());
        for party in [client, target] {
            self.clients.get_mut(&party).expect("looked up above").channels += 1;
        }
        self.channels.insert(
            channel,
            Channel {
                ends: vec![(client, endpoint)],
                pending: Some(Pending { request, accepter: (target, accepter) }),
                charged_bytes: vec![(client, charged)],
                windows: Vec::new(),
                remote: None,
                half: None,
            },
        );
        let opener = &self.endpoints[&endpoint];
        let reply = Reply::Offer {
            channel,
            endpoint: accepter,
            from,
            from_endpoint: opener.name.clone(),
            side,
            bell_channels: opener.bell_channels,
        };
        Ok(vec![Outgoing { to: target, reply, descriptors }])
    }

    fn accept(
        &mut self,
        client: ClientId,
        channel: ChannelId,
        side: Side,
        descriptors: Vec<OwnedFd>,
    ) -> Outcome {
        let Some(entry) = self.channels.get(&channel) else {
            // The opener left, or gave up, before the answer. The accepter holds a channel that nobody is on.
            let reason = "the offer is no longer there".to_owned();
            let reply = Reply::PeerGone { channel, reason, last_word: None };
            return Ok(vec![Outgoing { to: client, reply, descriptors: Vec::new() }]);
        };
        let Some(pending) = &entry.pending else { return Err("the channel was accepted already".into()) };
        if pending.accepter.0 != client {
            return Err("the channel was offered to somebody else".into());
        }
        let (request, accepter) = (pending.request, pending.accepter);
        let opener = entry.ends[0].0;
        let taken = Self::check_side(&side, &descriptors).and_then(|bytes| {
            let descriptors = self.with_bell_and_process(client, accepter.1, descriptors)?;
            self.charge(client, bytes)?;
            Ok((bytes, descriptors))
        });
        let (charged, descriptors) = match taken {
            Ok(taken) => taken,
            Err(Refusal(reason)) => {
                // Both are told: the accepter thought it had the channel.
                let mut out = self.refuse(client, channel, &reason)?;
                let reply = Reply::PeerGone { channel, reason, last_word: None };
                out.push(Outgoing { to: client, reply, descriptors: Vec::new() });
                return Ok(out);
            }
        };
        let entry = self.channels.get_mut(&channel).expect("looked up above");
        entry.pending = None;
        entry.ends.push(accepter);
        entry.charged_bytes.push((client, charged));
        let reply = Reply::Opened {
            request,
            channel,
            peer: self.identity(client).ok_or("not connected")?,
            side,
            bell_channels: self.endpoints[&accepter.1].bell_channels,
        };
        Ok(vec![Outgoing { to: opener, reply, descriptors }])
    }

    fn refuse(&mut self, client: ClientId, channel: ChannelId, reason: &str) -> Outcome {
        let entry = self.channels.get(&channel).ok_or("the offer is no longer there")?;
        if entry.remote.is_some() {
            return self.refuse_remote(client, channel, reason);
        }
        let Some(pending) = &entry.pending else { return Err("the channel was accepted already".into()) };
        if pending.accepter.0 != client {
            return Err("the channel was offered to somebody else".into());
        }
        let (request, opener) = (pending.request, entry.ends[0].0);
        let Refusal(reason) = reason.into();
        let name = self.full_name(client);
        self.remove_channel(channel, &|_| false, "".into(), &mut Vec::new());
        let reply = Reply::Refused { request: Some(request), reason: format!("{name} refused: {reason}") };
        Ok(vec![Outgoing { to: opener, reply, descriptors: Vec::new() }])
    }

    fn list(&self, client: ClientId, request: u32) -> Outgoing {
        const MOST_LISTED: usize = 150;
        let processes: Vec<Listed> = self
            .clients
            .iter()
            .filter_map(|(&id, c)| {
                let identity = self.identity(id)?;
                let endpoints = self.endpoints.values().filter(|e| e.owner == id).count();
                Some(Listed {
                    identity,
                    endpoints: u32::try_from(endpoints).unwrap_or(u32::MAX),
                    channels: c.channels,
                    memory_bytes: c.memory_bytes,
                })
            })
            .take(MOST_LISTED + 1)
            .collect();
        let cut = processes.len() > MOST_LISTED;
        let processes = processes.into_iter().take(MOST_LISTED).collect();
        Outgoing { to: client, reply: Reply::Listing { request, processes, cut }, descriptors: Vec::new() }
    }

    /// Checks the ring that comes with a side; what it will charge.
    fn check_side(side: &Side, with: &[OwnedFd]) -> Result<u64, Refusal> {
        let geometry = side.geometry.check().map_err(|error: GeometryError| error)?;
        let expected = 1 + usize::from(side.event);
        if with.len() != expected {
            return Err(wrong_count(with.len(), expected));
        }
        let bytes = geometry.segment_bytes() as u64;
        Segment::inspect(with[0].as_fd(), bytes, Writers::Both)?;
        Ok(bytes)
    }

    fn charge(&mut self, client: ClientId, bytes: u64) -> Result<(), Refusal> {
        let limit = self.limits.memory_bytes;
        let entry = self.clients.get_mut(&client).ok_or("not connected")?;
        let after = entry.memory_bytes.saturating_add(bytes);
        if after > limit {
            let held = entry.memory_bytes;
            let limit = format!("the limit of {limit} bytes of shared memory a process");
            let limit = reached(&limit, "memory_bytes");
            return Err(format!("{limit}: {held} are in use and {bytes} were asked for").into());
        }
        entry.memory_bytes = after;
        Ok(())
    }

    fn discharge(&mut self, client: ClientId, bytes: u64) {
        if let Some(client) = self.clients.get_mut(&client) {
            client.memory_bytes -= bytes;
        }
    }

    fn with_bell_and_process(
        &self,
        client: ClientId,
        endpoint: EndpointId,
        mut descriptors: Vec<OwnedFd>,
    ) -> Result<Vec<OwnedFd>, Refusal> {
        descriptors.push(self.endpoints[&endpoint].bell.try_clone()?);
        descriptors.push(self.clients[&client].process.try_clone()?);
        Ok(descriptors)
    }

    fn own_endpoint(&self, client: ClientId, endpoint: EndpointId) -> Result<(), Refusal> {
        match self.endpoints.get(&endpoint) {
            Some(found) if found.owner == client => Ok(()),
            _ => Err(format!("{endpoint} is not this process's").into()),
        }
    }

    fn end_of(&self, client: ClientId, channel: ChannelId) -> Result<(), Refusal> {
        match self.channels.get(&channel) {
            Some(found) if found.ends.iter().any(|(id, _)| *id == client) => Ok(()),
            _ => Err(format!("{channel} is not this process's").into()),
        }
    }

    fn remove_endpoint(&mut self, endpoint: EndpointId, parting: Parting<'_>, out: &mut Vec<Outgoing>) {
        let Some(removed) = self.endpoints.remove(&endpoint) else { return };
        self.discharge(removed.owner, Bell::board_bytes(removed.bell_channels) as u64);
        let touched: Vec<ChannelId> = self
            .channels
            .iter()
            .filter(|(_, c)| {
                c.ends.iter().any(|(_, e)| *e == endpoint)
                    || c.pending.as_ref().is_some_and(|p| p.accepter.1 == endpoint)
            })
            .map(|(&id, _)| id)
            .collect();
        for channel in touched {
            self.remove_channel(channel, &|(_, end)| end != endpoint, parting, out);
        }
    }

    /// Removes a channel and tells those of its ends that are to be told.
    fn remove_channel(
        &mut self,
        channel: ChannelId,
        is_told: &dyn Fn((ClientId, EndpointId)) -> bool,
        parting: Parting<'_>,
        out: &mut Vec<Outgoing>,
    ) {
        let Some(removed) = self.channels.remove(&channel) else { return };
        let Parting { reason, last_word } = parting;
        let windows = removed.windows.iter().map(|(owner, window)| (*owner, window.bytes));
        for (client, bytes) in removed.charged_bytes.iter().copied().chain(windows) {
            self.discharge(client, bytes);
        }
        let pending = removed.pending.as_ref();
        for &(client, _) in removed.ends.iter().chain(pending.map(|p| &p.accepter)) {
            if let Some(client) = self.clients.get_mut(&client) {
                client.channels -= 1;
            }
        }
        match removed.remote {
            Some(Remote { stage: Stage::Offered, .. }) => {
                self.verdicts.push((channel, Err(reason.to_owned())));
            }
            Some(Remote { stage: Stage::Asked(_), elsewhere }) => {
                // Said now it could come before the question.
                self.orphans
                    .insert(channel, Farewell { channel: elsewhere, reason: reason.to_owned(), last_word });
            }
            Some(Remote { stage: Stage::Open, elsewhere }) => {
                self.farewells.push(Farewell { channel: elsewhere, reason: reason.to_owned(), last_word });
            }
            None => {}
        }
        for &(to, _) in removed.ends.iter().filter(|end| is_told(**end)) {
            let reason = reason.to_owned();
            let reply = match pending {
                Some(pending) => Reply::Refused { request: Some(pending.request), reason },
                None => Reply::PeerGone { channel, reason, last_word },
            };
            out.push(Outgoing { to, reply, descriptors: Vec::new() });
        }
    }

    /// The process and endpoint that an address on this host names.
    fn find<'a>(&self, to: &'a str) -> Result<(ClientId, EndpointId, &'a str), Refusal> {
        let (process, name) =
            to.split_once('/').ok_or_else(|| format!("{to:?} is no address: say process/endpoint"))?;
        let target = self
            .clients
            .iter()
            .find(|(_, c)| c.name.as_deref() == Some(process))
            .map(|(&id, _)| id)
            .ok_or_else(|| format!("no process {process:?} is known to this agent"))?;
        let (&accepter, _) = self
            .endpoints
            .iter()
            .find(|(_, e)| e.owner == target && e.name == name)
            .ok_or_else(|| format!("process {process:?} has no endpoint {name:?}"))?;
        Ok((target, accepter, name))
    }

    fn has_place(&self, client: ClientId, whose: &str) -> Result<(), Refusal> {
        if self.clients[&client].channels >= self.limits.channels {
            let limit = format!("{whose} limit of {} channels", self.limits.channels);
            return Err(reached(&limit, "channels").into());
        }
        Ok(())
    }

    fn identity(&self, client: ClientId) -> Option<Identity> {
        let entry = self.clients.get(&client)?;
        Some(Identity { name: entry.name.clone()?, pid: entry.pid, uid: entry.uid })
    }

    fn full_name(&self, client: ClientId) -> String {
        self.identity(client).map_or_else(
            || "a process without a name".to_owned(),
            |who| format!("{} (process {})", who.name, who.pid),
        )
    }

    fn fresh_number(&mut self) -> u32 {
        loop {
            let number = self.next_number;
            self.next_number = self.next_number.wrapping_add(1);
            if !self.channels.contains_key(&ChannelId(number))
                && !self.endpoints.contains_key(&EndpointId(number))
            {
                return number;
            }
        }
    }
}

fn check_name(name: &str) -> Result<(), Refusal> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.len() > LONGEST_NAME || !name.chars().all(plain) {
        return Err(format!(
            "{:?} is no name: 1 to {LONGEST_NAME} letters, digits, '-', '_' and '.'",
            name.chars().take(LONGEST_NAME).collect::<String>()
        )
        .into());
    }
    Ok(())
}

fn exactly<const N: usize>(descriptors: Vec<OwnedFd>) -> Result<[OwnedFd; N], Refusal> {
    let came = descriptors.len();
    <[OwnedFd; N]>::try_from(descriptors).map_err(|_| wrong_count(came, N))
}

fn wrong_count(came: usize, expected: usize) -> Refusal {
    let hint = if came == 0 { ": were they sent, the agent has none left (ulimit -n)" } else { "" };
    Refusal(format!("{came} descriptors came where {expected} belong{hint}"))
}

#[cfg(test)]
mod tests;
