//! The network as memory: each client has a channel to the driver, whose messages are packets. (Cache Kernel §2.2, §4.3)
//!
//! A [`Network`] is the kernel that has the interface, a [`Wire`]. A client's message goes out as a packet to the port that its kind names; a packet that comes in for the port of a
//! client is a message to it, whose kind is the port that it came from. A program's messages it is signalled of.
//!
//! Each client may use so many bytes of the network in a period, both ways. One that has used more is disconnected until the period is over: what it sends stays where it is, and
//! what comes for it is dropped, as for one that does not take what came before. Only the packet that exceeds the quota still passes.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use comb_kernel::calls::Calls;
use comb_kernel::supervisor::CallError;
use comb_net::{ChannelKey, Endpoint, PostError};
use thiserror::Error;

use crate::communication::marshal::Marshal;
use crate::communication::{Channel, ChannelError, Place, SendError};

pub use self::managed::Ports;

mod managed;

/// A packet, without what the wire puts around it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Packet {
    /// Whose it is to be.
    pub to: u32,
    /// Whose it was.
    pub from: u32,
    /// What it says.
    pub content: Vec<u8>,
}

impl Packet {
    /// Bytes of its header.
    pub const HEADER_BYTES: usize = 8;

    /// As bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(Self::HEADER_BYTES + self.content.len());
        (self.to, self.from).put(&mut bytes);
        bytes.extend_from_slice(&self.content);
        bytes
    }

    /// From bytes that came from somewhere.
    pub fn from_bytes(mut bytes: &[u8]) -> Option<Self> {
        let (to, from) = Marshal::take(&mut bytes)?;
        Some(Self { to, from, content: bytes.to_vec() })
    }

    fn bytes(&self) -> u64 {
        (Self::HEADER_BYTES + self.content.len()) as u64
    }
}

/// Why a wire does not carry anything any more.
#[derive(Debug, Error)]
#[error("the network: {0}")]
pub struct WireError(pub String);

/// An interface to a network. Packets may be lost.
pub trait Wire {
    /// Whether it took a packet. If not, it may later.
    fn send(&mut self, packet: &Packet) -> Result<bool, WireError>;

    /// The next packet that has come.
    fn receive(&mut self) -> Result<Option<Packet>, WireError>;
}

/// A channel of `comb-net`.
#[derive(Debug)]
pub struct NetWire {
    endpoint: Endpoint,
    channel: ChannelKey,
    buffer: Vec<u8>,
}

impl NetWire {
    /// One of an endpoint that is for nothing else.
    pub fn new(endpoint: Endpoint, channel: ChannelKey) -> Self {
        Self { endpoint, channel, buffer: vec![0; Packet::HEADER_BYTES + 4096] }
    }
}

impl Wire for NetWire {
    fn send(&mut self, packet: &Packet) -> Result<bool, WireError> {
        match self.endpoint.send(self.channel, 0, &packet.to_bytes()) {
            Ok(()) => Ok(true),
            Err(PostError::Full(_)) => Ok(false),
            Err(error) => Err(WireError(error.to_string())),
        }
    }

    fn receive(&mut self) -> Result<Option<Packet>, WireError> {
        loop {
            let received = self.endpoint.receive(&mut self.buffer);
            let Some(received) = received.map_err(|error| WireError(error.to_string()))? else {
                return Ok(None);
            };
            // What is longer than any packet, or is none, was not sent by a network.
            if let Some(packet) = self.buffer.get(..received.bytes).and_then(Packet::from_bytes) {
                return Ok(Some(packet));
            }
        }
    }
}

/// What of the network a client may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Quota {
    /// Bytes in a period, with headers.
    pub bytes: u64,
}

/// What was counted of a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Packets that went out.
    pub sent: u64,
    /// Packets that it was given.
    pub received: u64,
    /// Packets that came for it and that it was not given.
    pub dropped: u64,
    /// How often it has used more than it may.
    pub disconnections: u64,
    /// What it has used of the network in all, with headers.
    pub bytes: u64,
}

#[derive(Debug)]
struct Client {
    channel: Channel,
    place: Option<Place>,
    quota: Quota,
    used: u64,
    is_connected: bool,
    /// Somebody else has disconnected it, until he connects it again.
    is_held: bool,
    /// Taken, and not yet out.
    next: Option<Packet>,
    ended: Option<ChannelError>,
    counts: Counts,
}

/// Why a network cannot go on.
#[derive(Debug, Error)]
pub enum NetworkError {
    /// The interface.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The supervisor.
    #[error("the supervisor: {0}")]
    Calls(#[from] CallError),
}

/// The driver of an interface, and its clients by their ports.
#[derive(Debug)]
pub struct Network<W> {
    wire: W,
    clients: BTreeMap<u32, Client>,
    period: Duration,
    ends: Instant,
}

impl<W: Wire> Network<W> {
    /// An interface whose clients' quotas are of such periods.
    pub fn new(wire: W, period: Duration, now: Instant) -> Self {
        assert!(!period.is_zero(), "a period takes time");
        Self { wire, clients: BTreeMap::new(), period, ends: now + period }
    }

    /// Connects a client: the driver's end of its channel, and where its program has it if it is one. Whoever had the port has it no more.
    pub fn connect(&mut self, port: u32, channel: Channel, place: Option<Place>, quota: Quota) {
        let client = Client {
            channel,
            place,
            quota,
            used: 0,
            is_connected: true,
            is_held: false,
            next: None,
            ended: None,
            counts: Counts::default(),
        };
        self.clients.insert(port, client);
    }

    /// Disconnects a client for good: what was counted of it.
    pub fn disconnect(&mut self, port: u32) -> Option<Counts> {
        self.clients.remove(&port).map(|client| client.counts)
    }

    /// What was counted of a client.
    pub fn counts(&self, port: u32) -> Option<Counts> {
        self.clients.get(&port).map(|client| client.counts)
    }

    /// Whether a client is connected now.
    pub fn is_connected(&self, port: u32) -> bool {
        self.clients.get(&port).is_some_and(Client::is_served)
    }

    /// Clients whose channel has ended, and why.
    pub fn ended(&self) -> impl Iterator<Item = (u32, ChannelError)> {
        self.clients.iter().filter_map(|(port, client)| Some((*port, client.ended?)))
    }

    /// The interface.
    pub fn wire(&mut self) -> &mut W {
        &mut self.wire
    }

    /// When the period is over.
    pub fn next_timeout(&self) -> Instant {
        self.ends
    }

    /// Moves what there is to move: whether there was anything.
    pub fn turn(&mut self, now: Instant, calls: &mut dyn Calls) -> Result<bool, NetworkError> {
        if let Some(late) = now.checked_duration_since(self.ends) {
            let periods = 1 + late.as_nanos() / self.period.as_nanos();
            self.ends += self.period.saturating_mul(u32::try_from(periods).unwrap_or(u32::MAX));
            for client in self.clients.values_mut() {
                (client.used, client.is_connected) = (0, true);
            }
        }
        let mut any = false;
        for (port, client) in &mut self.clients {
            any |= client.transmit(*port, &mut self.wire)?;
        }
        // One turn is not for ever, whatever comes in.
        for _ in 0..MOST_PACKETS_IN_A_TURN {
            let Some(packet) = self.wire.receive()? else { break };
            any = true;
            if let Some(client) = self.clients.get_mut(&packet.to) {
                client.receive(&packet, calls)?;
            }
        }
        Ok(any)
    }
}

/// Those that come in while packets go out are more than a client has places for, and few enough to look at the others soon.
const MOST_PACKETS_IN_A_TURN: usize = 256;

impl Client {
    fn is_served(&self) -> bool {
        self.is_connected && !self.is_held && self.ended.is_none()
    }

    fn uses(&mut self, bytes: u64) {
        self.counts.bytes = self.counts.bytes.saturating_add(bytes);
        self.used = self.used.saturating_add(bytes);
        if self.used > self.quota.bytes && self.is_connected {
            self.is_connected = false;
            self.counts.disconnections += 1;
        }
    }

    fn transmit(&mut self, port: u32, wire: &mut impl Wire) -> Result<bool, WireError> {
        let mut any = false;
        for _ in 0..self.channel.shape().places() {
            if !self.is_served() {
                break;
            }
            let packet = match self.next.take() {
                Some(packet) => packet,
                None => match self.channel.receive() {
                    Ok(Some(message)) => Packet { to: message.kind, from: port, content: message.bytes },
                    Ok(None) => break,
                    Err(error) => {
                        self.ended = Some(error);
                        break;
                    }
                },
            };
            if !wire.send(&packet)? {
                self.next = Some(packet);
                break;
            }
            any = true;
            self.counts.sent += 1;
            self.uses(packet.bytes());
        }
        Ok(any)
    }

    fn receive(&mut self, packet: &Packet, calls: &mut dyn Calls) -> Result<(), CallError> {
        if !self.is_served() {
            self.counts.dropped += 1;
            return Ok(());
        }
        match self.channel.send(packet.from, &packet.content) {
            Ok(at) => {
                self.counts.received += 1;
                self.uses(packet.bytes());
                if let Some(place) = &self.place {
                    match place.signal(calls, at) {
                        // Who is not loaded finds it when it is.
                        Ok(_) | Err(CallError::Refused(_)) => {}
                        Err(error) => return Err(error),
                    }
                }
            }
            Err(SendError::Full | SendError::TooLong(..) | SendError::Channel(ChannelError::NotOpen)) => {
                self.counts.dropped += 1;
            }
            Err(SendError::Channel(error)) => {
                self.counts.dropped += 1;
                self.ended = Some(error);
            }
        }
        Ok(())
    }
}
