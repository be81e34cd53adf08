//! The other components of the task, and the channels to them: in order, and nothing is lost while a peer lives.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use comb_net::{Agent, ChannelEnded, ChannelKey, Endpoint, EndpointOptions, Geometry, PostError};

use crate::bundles::{Bundle, Opened};
use crate::task::{Description, JoinError};
use crate::wire::{self, HEAD_BYTES, Head, Kind, PART};

/// The name of each component's endpoint.
const ENDPOINT: &str = "memory";
/// A component that has not started after so long has failed to.
const START_LIMIT: Duration = Duration::from_secs(60);
const BETWEEN_KNOCKS: Duration = Duration::from_millis(2);
/// All that is read ahead at once; what is never used takes no memory.
const GEOMETRY: Geometry = Geometry { slots: 256, payload_bytes: 1 << 20 };
/// With so many components that this would be much: two of the longest messages.
const GEOMETRY_OF_MANY: Geometry = Geometry { slots: 64, payload_bytes: 160 << 10 };
const MANY: u32 = 16;
/// Who sends a longer one in parts lies: a block and what goes with it.
const LONGEST_BYTES: usize = (1 << 20) + HEAD_BYTES;

/// A component is gone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Gone {
    pub(crate) rank: u32,
    /// Why, for people.
    pub(crate) cause: String,
}

#[derive(Default)]
struct Peer {
    /// Somebody may still speak of it by its number.
    is_remembered: bool,
    channel: Option<ChannelKey>,
    /// The longest message that its channel takes.
    longest: usize,
    /// Kinds and messages that found no room.
    unsent: VecDeque<(u8, Vec<u8>)>,
    /// Of a message in parts, what has come.
    parts: Vec<u8>,
    /// It is on another host: messages go together.
    is_elsewhere: bool,
    bundle: Bundle,
}

/// A message as it came: its content is in the buffer of [`Peers::receive`].
pub(crate) struct Arrival {
    pub(crate) from: u32,
    pub(crate) kind: u8,
}

pub(crate) struct Peers {
    pub(crate) endpoint: Endpoint,
    own: u32,
    peers: Vec<Peer>,
    ranks: BTreeMap<ChannelKey, u32>,
    /// Peers with something unsent.
    waiting: Vec<u32>,
    /// Peers with messages that are about to be sent together.
    bundled: Vec<u32>,
    /// What has come together.
    opened: Opened,
    gone: Vec<Gone>,
    are_elsewhere: bool,
    are_guests: bool,
}

impl Peers {
    /// Connects to all others, and waits until they are there.
    pub(crate) fn join(description: &Description) -> Result<Self, JoinError> {
        let own = description.rank;
        let count = u32::try_from(description.components.len()).expect("checked");
        let agent = Agent::connect(&description.agent, &description.process(own))?;
        let options = EndpointOptions {
            channels: count.max(16),
            events: true,
            sleeps_often: true,
            geometry: if count > MANY { GEOMETRY_OF_MANY } else { GEOMETRY },
            ..EndpointOptions::default()
        };
        let endpoint = agent.endpoint_with(ENDPOINT, options)?;
        let peer = |rank| Peer { is_elsewhere: !description.is_here(rank), ..Peer::default() };
        let peers = (0..count).map(peer).collect();
        let mut joined = Self {
            endpoint,
            own,
            peers,
            ranks: BTreeMap::new(),
            waiting: Vec::new(),
            bundled: Vec::new(),
            opened: Opened::default(),
            gone: Vec::new(),
            are_elsewhere: (0..count).any(|rank| !description.is_here(rank)),
            are_guests: false,
        };
        let deadline = Instant::now() + START_LIMIT;
        for rank in 0..own {
            let channel = joined.open(&description.address(rank, ENDPOINT), rank, deadline)?;
            joined.install(rank, channel);
        }
        while joined.ranks.len() + 1 < count as usize {
            let left = deadline.saturating_duration_since(Instant::now());
            let channel = joined.endpoint.accept(left).ok_or_else(|| joined.missing())?;
            let from = joined.endpoint.peer(channel).unwrap_or_default().to_owned();
            // The agent vouches for addresses.
            match (own + 1..count).find(|&rank| description.address(rank, ENDPOINT) == from) {
                Some(rank) if joined.peers[rank as usize].channel.is_none() => joined.install(rank, channel),
                _ => joined.endpoint.close(channel),
            }
        }
        Ok(joined)
    }

    /// Whoever opens a channel is one more. This process is 0 among them.
    pub(crate) fn who_come(endpoint: Endpoint) -> Self {
        Self { are_guests: true, ..Self::none_yet(endpoint) }
    }

    /// For peers that this process goes to: see [`Peers::add`]. It is 0 among them.
    pub(crate) fn none_yet(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            own: 0,
            peers: vec![Peer::default()],
            ranks: BTreeMap::new(),
            waiting: Vec::new(),
            bundled: Vec::new(),
            opened: Opened::default(),
            gone: Vec::new(),
            are_elsewhere: false,
            are_guests: false,
        }
    }

    /// One more, by a number that nobody has now.
    pub(crate) fn add(&mut self, channel: ChannelKey) -> u32 {
        let is_free = |peer: &Peer| peer.channel.is_none() && !peer.is_remembered;
        let free = (1..self.peers.len()).find(|&rank| is_free(&self.peers[rank]));
        let rank = free.unwrap_or_else(|| {
            self.peers.push(Peer::default());
            self.peers.len() - 1
        });
        self.peers[rank] = Peer { is_remembered: true, ..Peer::default() };
        let rank = u32::try_from(rank).expect("fewer than channels");
        self.install(rank, channel);
        rank
    }

    /// A number of one who is gone may be another's.
    pub(crate) fn forget(&mut self, rank: u32) {
        self.peers[rank as usize].is_remembered = false;
    }

    pub(crate) fn admit(&mut self) {
        while let Some(channel) = self.endpoint.accept(Duration::ZERO) {
            self.add(channel);
        }
    }

    /// One component is alone.
    pub(crate) fn missing(&self) -> JoinError {
        let missing = |&rank: &u32| rank != self.own && self.peers[rank as usize].channel.is_none();
        #[expect(clippy::cast_possible_truncation, reason = "as many as ranks")]
        let first = (0..self.peers.len() as u32).find(missing);
        JoinError::Missing { rank: first.unwrap_or_default(), limit: START_LIMIT }
    }

    fn open(&mut self, address: &str, rank: u32, deadline: Instant) -> Result<ChannelKey, JoinError> {
        loop {
            match self.endpoint.open(address) {
                Ok(channel) => return Ok(channel),
                // It has not started yet.
                Err(_) if Instant::now() < deadline => std::thread::sleep(BETWEEN_KNOCKS),
                Err(error) => return Err(JoinError::Unreachable { rank, error }),
            }
        }
    }

    fn install(&mut self, rank: u32, channel: ChannelKey) {
        let peer = &mut self.peers[rank as usize];
        peer.channel = Some(channel);
        peer.longest = self.endpoint.longest_message(channel).unwrap_or(HEAD_BYTES);
        self.ranks.insert(channel, rank);
    }

    /// Whether some of them are on other hosts.
    pub(crate) fn are_elsewhere(&self) -> bool {
        self.are_elsewhere
    }

    /// Components of the task, this one too.
    pub(crate) fn count(&self) -> u32 {
        u32::try_from(self.peers.len()).expect("ranks are of 32 bits")
    }

    /// All others who live.
    pub(crate) fn others(&self) -> Vec<u32> {
        (0..self.count()).filter(|&rank| self.peers[rank as usize].channel.is_some()).collect()
    }

    pub(crate) fn lives(&self, rank: u32) -> bool {
        rank == self.own || self.peers.get(rank as usize).is_some_and(|peer| peer.channel.is_some())
    }

    /// Sends a message: now, or with others at the next [`Peers::flush`], or as soon as there is room. To whoever is gone it goes nowhere.
    #[inline]
    pub(crate) fn send(&mut self, to: u32, kind: Kind, head: &Head, content: &[u8]) {
        let head = wire::pack(head);
        if self.peers[to as usize].is_elsewhere {
            self.bundle(to, kind as u8, &head, content);
        } else {
            self.post(to, kind as u8, &head, content);
        }
    }

    #[inline]
    fn post(&mut self, to: u32, kind: u8, head: &[u8; HEAD_BYTES], content: &[u8]) {
        let peer = &mut self.peers[to as usize];
        let Some(channel) = peer.channel else { return };
        if peer.unsent.is_empty() && HEAD_BYTES + content.len() <= peer.longest {
            let sent = if content.is_empty() {
                self.endpoint.send(channel, kind, head)
            } else {
                self.endpoint.send_gathered(channel, kind, &[head, content])
            };
            if self.is_done(to, &sent) {
                return;
            }
        }
        self.keep(to, kind, head, content);
        self.send_kept();
    }

    fn bundle(&mut self, to: u32, kind: u8, head: &[u8; HEAD_BYTES], content: &[u8]) {
        let peer = &mut self.peers[to as usize];
        let was_empty = peer.bundle.is_empty();
        if peer.bundle.add(kind, head, content, peer.longest) {
            if was_empty {
                self.bundled.push(to);
            }
            return;
        }
        self.send_bundle(to);
        if Bundle::takes(content, self.peers[to as usize].longest) {
            self.bundle(to, kind, head, content);
        } else {
            self.post(to, kind, head, content);
        }
    }

    fn send_bundle(&mut self, to: u32) {
        let mut bundle = std::mem::take(&mut self.peers[to as usize].bundle);
        if !bundle.is_empty() {
            self.bundled.retain(|&other| other != to);
            let (kind, head, content) = bundle.message();
            self.post(to, kind, &head, content);
            bundle.clear();
        }
        self.peers[to as usize].bundle = bundle;
    }

    /// Sends what was to be sent together.
    #[inline]
    pub(crate) fn send_bundles(&mut self) {
        while let Some(&to) = self.bundled.last() {
            self.send_bundle(to);
        }
    }

    /// Keeps a message for later, in parts if it is too long for the channel.
    fn keep(&mut self, to: u32, kind: u8, head: &[u8; HEAD_BYTES], content: &[u8]) {
        let peer = &mut self.peers[to as usize];
        let each = peer.longest - HEAD_BYTES;
        let mut rest = content;
        while rest.len() > each {
            let (part, others) = rest.split_at(each);
            peer.unsent.push_back((kind | PART, [&head[..], part].concat()));
            rest = others;
        }
        peer.unsent.push_back((kind, [&head[..], rest].concat()));
        if !self.waiting.contains(&to) {
            self.waiting.push(to);
        }
    }

    /// Whether a message need not be sent again: it is on its way, or the peer is gone.
    fn is_done(&mut self, to: u32, sent: &Result<(), PostError>) -> bool {
        match sent {
            Ok(()) => true,
            Err(PostError::Full(_)) => false,
            Err(PostError::Ended(ended)) => {
                self.ended(ended);
                true
            }
            Err(PostError::NoChannel) => true,
            Err(error) => panic!("a message to component {to} cannot be sent: {error}"),
        }
    }

    /// Sends what was to be sent together, and what has waited for room. Whether all of it is on its way.
    pub(crate) fn flush(&mut self) -> bool {
        self.send_bundles();
        self.send_kept()
    }

    fn send_kept(&mut self) -> bool {
        let mut at = 0;
        while at < self.waiting.len() {
            let to = self.waiting[at];
            loop {
                let peer = &mut self.peers[to as usize];
                let (Some(channel), Some((kind, message))) = (peer.channel, peer.unsent.pop_front()) else {
                    break;
                };
                let sent = self.endpoint.send(channel, kind, &message);
                if !self.is_done(to, &sent) {
                    self.peers[to as usize].unsent.push_front((kind, message));
                    break;
                }
            }
            if self.peers[to as usize].unsent.is_empty() {
                self.waiting.swap_remove(at);
            } else {
                at += 1;
            }
        }
        self.waiting.is_empty()
    }

    /// Whether something waits for room.
    pub(crate) fn has_unsent(&self) -> bool {
        !self.waiting.is_empty()
    }

    fn ended(&mut self, ended: &ChannelEnded) {
        let Some(rank) = self.ranks.remove(&ended.channel) else { return };
        let peer = &mut self.peers[rank as usize];
        peer.channel = None;
        peer.unsent.clear();
        self.gone.push(Gone { rank, cause: ended.cause.to_string() });
    }

    /// Ends the channel to a peer that said what cannot be.
    pub(crate) fn cut(&mut self, rank: u32) {
        if self.opened.from == rank {
            self.opened.drop_rest();
        }
        let Some(channel) = self.peers[rank as usize].channel.take() else { return };
        self.ranks.remove(&channel);
        self.endpoint.close(channel);
    }

    /// Who is gone and was not told of yet.
    pub(crate) fn take_gone(&mut self) -> Option<Gone> {
        self.gone.pop()
    }

    /// Whether messages that came together are not taken yet.
    pub(crate) fn has_more(&self) -> bool {
        self.opened.has_more()
    }

    /// The next message, whole, in `buffer`.
    pub(crate) fn receive(&mut self, buffer: &mut Vec<u8>) -> Option<Arrival> {
        loop {
            // Also of one that is gone meanwhile: it has said them before.
            if let Some(kind) = self.opened.next(buffer) {
                return Some(Arrival { from: self.opened.from, kind });
            }
            let arrival = self.receive_whole(buffer)?;
            let is_bundle =
                arrival.kind == Kind::Together as u8 && self.peers[arrival.from as usize].is_elsewhere;
            if !is_bundle {
                return Some(arrival);
            }
            if !self.opened.open(arrival.from, buffer) {
                self.cut(arrival.from);
                let cause = "it sends together what are no messages".to_owned();
                self.gone.push(Gone { rank: arrival.from, cause });
            }
        }
    }

    fn receive_whole(&mut self, buffer: &mut Vec<u8>) -> Option<Arrival> {
        loop {
            let mut came = None;
            let polled = self.endpoint.poll_once(|delivery| {
                buffer.resize(delivery.payload.len(), 0);
                delivery.payload.copy_to(buffer);
                came = Some((delivery.channel, delivery.kind));
            });
            if let Err(ended) = polled {
                self.ended(&ended);
            }
            let (channel, kind) = came?;
            if self.are_guests && !self.ranks.contains_key(&channel) {
                self.admit();
            }
            let Some(&from) = self.ranks.get(&channel) else { continue };
            let parts = &mut self.peers[from as usize].parts;
            if kind & PART == 0 && parts.is_empty() {
                return Some(Arrival { from, kind });
            }
            // The head is the same in all parts.
            let new =
                if parts.is_empty() { &buffer[..] } else { buffer.get(HEAD_BYTES..).unwrap_or_default() };
            parts.extend_from_slice(new);
            if parts.len() > LONGEST_BYTES {
                self.cut(from);
                self.gone.push(Gone { rank: from, cause: "it sends a message without end".to_owned() });
            } else if kind & PART == 0 {
                std::mem::swap(buffer, parts);
                parts.clear();
                return Some(Arrival { from, kind });
            }
        }
    }
}
