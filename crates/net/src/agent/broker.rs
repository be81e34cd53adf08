//! What an agent decides. No socket and no clock: requests with their descriptors in, replies with theirs out.
//!
//! The broker believes nobody: names, seals, sizes and limits are checked here before anything reaches a peer. It
//! keeps one reference to every bell, because it hands them to each new peer; rings and windows only pass through.

mod remote;

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};

use comb_types::{ChannelId, EndpointId};

use super::policy::{Identity, Limits, Policy};
use super::protocol::{LONGEST_NAME, Listed, Reply, Request, Side, WindowTerms};
use crate::bell::Bell;
use crate::segment::{Segment, Writers};
use crate::shm::{GeometryError, WINDOWS};
use remote::{Remote, Stage};

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

/// Anything that can be said to people is a reason. `Refusal` itself is not `Display`, so that this is no cycle.
impl<T: std::fmt::Display> From<T> for Refusal {
    fn from(reason: T) -> Self {
        Self(reason.to_string())
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
    /// Whose opener left while the other host was being asked.
    orphans: BTreeMap<ChannelId, Elsewhere>,
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

    /// A connection ended: its endpoints and channels go, and the other ends are told.
    pub fn disconnect(&mut self, client: ClientId) -> Vec<Outgoing> {
        let mut out = Vec::new();
        let name = self.full_name(client);
        let owned: Vec<EndpointId> =
            self.endpoints.iter().filter(|(_, e)| e.owner == client).map(|(&id, _)| id).collect();
        for endpoint in owned {
            self.remove_endpoint(endpoint, &format!("{name} left"), &mut out);
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
        let said_hello = self.clients.get(&client).is_some_and(|c| c.name.is_some());
        if said_hello == matches!(request, Request::Hello { .. }) {
            return Err(Misbehaviour("a connection starts with one Hello".into()));
        }
        let number = match &request {
            Request::CreateEndpoint { request, .. }
            | Request::Open { request, .. }
            | Request::RestoreEndpoint { request, .. }
            | Request::ShareWindow { request, .. }
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
            Request::RestoreEndpoint { request, name, bell_channels, channels } => {
                self.restore_endpoint(client, request, name, bell_channels, &channels, descriptors)
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
                self.remove_channel(channel, &|(id, _)| id != client, &reason, &mut out);
                Ok(out)
            }
            Request::CloseEndpoint { endpoint } => {
                self.own_endpoint(client, endpoint)?;
                let name = self.full_name(client);
                let mut out = Vec::new();
                self.remove_endpoint(endpoint, &format!("{name} closed its endpoint"), &mut out);
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
        check_name(&name)?;
        let owned = self.endpoints.values().filter(|e| e.owner == client);
        if owned.clone().any(|e| e.name == name) {
            return Err(format!("this process has an endpoint {name:?} already").into());
        }
        if owned.count() >= self.limits.endpoints as usize {
            return Err(
                format!("the limit of {} endpoints a process is reached", self.limits.endpoints).into()
            );
        }
        if bell_channels == 0 || bell_channels > self.limits.channels {
            return Err(format!(
                "an endpoint takes 1 to {} channels, not {bell_channels}",
                self.limits.channels
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
        let reply = Reply::EndpointCreated { request, endpoint };
        Ok(vec![Outgoing { to: client, reply, descriptors: Vec::new() }])
    }

    /// An endpoint of a process that outlived the agent before. All of it or nothing.
    fn restore_endpoint(
        &mut self,
        client: ClientId,
        request: u32,
        name: String,
        bell_channels: u32,
        channels: &[(ChannelId, String)],
        descriptors: Vec<OwnedFd>,
    ) -> Outcome {
        let process = self.identity(client).ok_or("not connected")?.name;
        let own = format!("{process}/{name}");
        let mut ends_here = BTreeMap::new();
        for (channel, peer) in channels {
            self.may_restore(*channel, &own, peer)?;
            let ends: &mut u32 = ends_here.entry(*channel).or_default();
            *ends += 1;
            if *ends > 1 + u32::from(*peer == own) {
                return Err(format!("{channel} is named more often than it has ends").into());
            }
        }
        let held = self.clients[&client].channels as usize + channels.len();
        if held > self.limits.channels as usize {
            return Err(
                format!("this process's limit of {} channels is reached", self.limits.channels).into()
            );
        }
        let mut known =
            self.endpoints.iter().filter(|(_, e)| e.owner == client && e.name == name && e.restored);
        let (endpoint, out) = if let Some((&endpoint, _)) = known.next() {
            let reply = Reply::EndpointCreated { request, endpoint };
            (endpoint, vec![Outgoing { to: client, reply, descriptors: Vec::new() }])
        } else {
            let out = self.create_endpoint(client, request, name, bell_channels, descriptors)?;
            let Some(Reply::EndpointCreated { endpoint, .. }) = out.first().map(|out| &out.reply) else {
                return Err("an endpoint was not restored".into());
            };
            (*endpoint, out)
        };
        self.endpoints.get_mut(&endpoint).expect("just found or made").restored = true;
        for (channel, peer) in channels {
            let fresh = || Channel {
                ends: Vec::new(),
                pending: None,
                charged_bytes: Vec::new(),
                windows: Vec::new(),
                remote: None,
                half: Some((own.clone(), peer.clone())),
            };
            let entry = self.channels.entry(*channel).or_insert_with(fresh);
            entry.ends.push((client, endpoint));
            if entry.ends.len() == 2 {
                entry.half = None;
            }
        }
        let added = u32::try_from(channels.len()).expect("within the limit");
        self.clients.get_mut(&client).expect("identified above").channels += added;
        Ok(out)
    }

    /// A channel's number is easy to guess. Only who the other end names may claim what that one has restored, and
    /// nobody what was made here.
    fn may_restore(&self, channel: ChannelId, own: &str, peer: &str) -> Result<(), Refusal> {
        match self.channels.get(&channel).map(|entry| &entry.half) {
            None => Ok(()),
            Some(Some((restorer, named))) if own == named && peer == restorer => Ok(()),
            Some(_) => Err(format!("{channel} is not this endpoint's to restore").into()),
        }
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
            let reply = Reply::PeerGone { channel, reason };
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
                let reply = Reply::PeerGone { channel, reason };
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
        let reason: String = reason.chars().take(1000).collect();
        let name = self.full_name(client);
        self.remove_channel(channel, &|_| false, "", &mut Vec::new());
        let reply = Reply::Refused { request: Some(request), reason: format!("{name} refused: {reason}") };
        Ok(vec![Outgoing { to: opener, reply, descriptors: Vec::new() }])
    }

    fn share_window(
        &mut self,
        client: ClientId,
        request: u32,
        window: WindowTerms,
        descriptors: Vec<OwnedFd>,
    ) -> Outcome {
        self.own_endpoint(client, window.endpoint)?;
        self.end_of(client, window.channel)?;
        if self.channels[&window.channel].remote.is_some() {
            return Err("a window cannot be shared with another host".into());
        }
        if window.number as usize >= WINDOWS {
            return Err(format!("a side has at most {WINDOWS} windows on a channel").into());
        }
        let entry = &self.channels[&window.channel];
        let same = |(_, open): &(ClientId, WindowTerms)| {
            (open.endpoint, open.number) == (window.endpoint, window.number)
        };
        if entry.windows.iter().any(same) {
            return Err(format!("window {} of this channel is open already", window.number).into());
        }
        if entry.pending.is_some() {
            return Err("the peer has not taken the channel yet".into());
        }
        // Told apart by endpoint, because both ends can be one process's.
        let peer = entry.ends.iter().find(|(_, endpoint)| *endpoint != window.endpoint);
        let &(to, endpoint) =
            peer.ok_or("the channel has no other endpoint: it leads to itself, or is not restored yet")?;
        let [memory] = exactly(descriptors)?;
        let writers = if window.writable { Writers::Both } else { Writers::Maker };
        Segment::inspect(memory.as_fd(), window.bytes, writers)?;
        self.charge(client, window.bytes)?;
        self.channels.get_mut(&window.channel).expect("checked by end_of").windows.push((client, window));
        let shared = Reply::WindowShared { window: WindowTerms { endpoint, ..window } };
        let taken = Reply::WindowTaken { request };
        Ok(vec![
            Outgoing { to, reply: shared, descriptors: vec![memory] },
            Outgoing { to: client, reply: taken, descriptors: Vec::new() },
        ])
    }

    /// The peer's mapping may live on. What it still writes there is charged to it by its own cgroup, so the owner's
    /// account ends here. A window whose channel is gone was settled with the channel.
    fn withdraw_window(&mut self, client: ClientId, window: &WindowTerms) {
        let Some(entry) = self.channels.get_mut(&window.channel) else { return };
        let Some(at) = entry.windows.iter().position(|open| *open == (client, *window)) else { return };
        entry.windows.swap_remove(at);
        if let Some(client) = self.clients.get_mut(&client) {
            client.memory_bytes -= window.bytes;
        }
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
            return Err(format!("{} descriptors came where {expected} belong", with.len()).into());
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
            return Err(format!(
                "the limit of {limit} bytes of shared memory a process is reached: {} are in use and {bytes} were asked for",
                entry.memory_bytes
            )
            .into());
        }
        entry.memory_bytes = after;
        Ok(())
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

    fn remove_endpoint(&mut self, endpoint: EndpointId, reason: &str, out: &mut Vec<Outgoing>) {
        let Some(removed) = self.endpoints.remove(&endpoint) else { return };
        if let Some(owner) = self.clients.get_mut(&removed.owner) {
            owner.memory_bytes -= Bell::board_bytes(removed.bell_channels) as u64;
        }
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
            self.remove_channel(channel, &|(_, end)| end != endpoint, reason, out);
        }
    }

    /// Removes a channel and tells those of its ends that are to be told.
    fn remove_channel(
        &mut self,
        channel: ChannelId,
        is_told: &dyn Fn((ClientId, EndpointId)) -> bool,
        reason: &str,
        out: &mut Vec<Outgoing>,
    ) {
        let Some(removed) = self.channels.remove(&channel) else { return };
        let windows = removed.windows.iter().map(|(owner, window)| (*owner, window.bytes));
        for (client, bytes) in removed.charged_bytes.iter().copied().chain(windows) {
            if let Some(client) = self.clients.get_mut(&client) {
                client.memory_bytes -= bytes;
            }
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
                self.orphans.insert(channel, elsewhere);
            }
            Some(Remote { stage: Stage::Open, elsewhere }) => {
                self.farewells.push(Farewell { channel: elsewhere, reason: reason.to_owned() });
            }
            None => {}
        }
        for &(to, _) in removed.ends.iter().filter(|end| is_told(**end)) {
            let reason = reason.to_owned();
            let reply = match pending {
                Some(pending) => Reply::Refused { request: Some(pending.request), reason },
                None => Reply::PeerGone { channel, reason },
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
            return Err(format!("{whose} limit of {} channels is reached", self.limits.channels).into());
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
    <[OwnedFd; N]>::try_from(descriptors)
        .map_err(|_| Refusal(format!("{came} descriptors came where {N} belong")))
}

#[cfg(test)]
mod tests;
