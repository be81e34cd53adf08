//! The virtual subnet: guests' network devices come to ports by vhost-user, and what one sends is copied once, into the memory of whom it is for. (Disco
//! §4.2.6)
//!
//! A packet has no longest length but IP's: what TCP sends goes as one, up to 64 KiB, with its checksum left undone, and only for a receiver that does not
//! take it so it is finished and cut. A port has one address, and says to be no other. Ports are served in turn, each as much as the others; what comes for a
//! port without buffers is lost, and keeps nobody waiting.

pub mod addresses;
pub mod command;
pub mod control;
pub mod frames;
pub mod gateway;
pub mod offloads;
pub mod running;
pub mod segments;
pub mod subnet;

use std::collections::HashMap;
use std::mem;
use std::sync::Arc;
use std::time::Instant;

use virtio_bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_bindings::virtio_net::VIRTIO_NET_F_MRG_RXBUF;

use super::backend::{Chain, Device, Fault, Memory, Offer, Port, Ports, Ring, Turn};
use frames::Frame;
use gateway::Gateway;
use offloads::{Features, HEADER, RECEIVERS, SENDERS, Undone};
use subnet::{DESCRIPTOR_COST, FRAME_COST, PortId, Subnet, Way};

/// The ring with buffers for what comes, and the one with what is sent.
const RECEIVING: usize = 0;
const SENDING: usize = 1;
/// As large as QEMU makes them at most.
const RING_SIZE: u16 = 1024;

/// What the switch watches besides its front-ends: what is asked of it, and from here on those of its ports that are reached otherwise.
const CONTROL: u32 = 0;
const OTHERWISE: u32 = 1;

/// All ports, and who is there.
struct Switch {
    began: Instant,
    subnet: Subnet,
    /// The port of each socket.
    sockets: Vec<PortId>,
    /// Who is at a port.
    here: HashMap<PortId, Port>,
    /// At which port a front-end is.
    at: HashMap<Port, PortId>,
    /// What is at ports that no front-end comes to: the gateway, and engines whose machine's memory is nobody else's.
    otherwise: HashMap<PortId, Gateway>,
    /// Whether somebody asks something of the switch itself.
    is_asked: bool,
    /// Receivers that are to be told.
    have_news: Vec<Port>,
    /// A frame that can not go from memory to memory.
    whole: Vec<u8>,
}

impl Device for Switch {
    fn connected(&mut self, front_end: Port, socket: usize) -> Option<Offer> {
        let port = *self.sockets.get(socket)?;
        if self.here.contains_key(&port) {
            return None;
        }
        self.here.insert(port, front_end);
        self.at.insert(front_end, port);
        let features = SENDERS | RECEIVERS | 1 << VIRTIO_NET_F_MRG_RXBUF;
        Some(Offer { features, rings: 2, ring_size: RING_SIZE, configuration: Vec::new(), keepsake: None })
    }

    fn serve(&mut self, ports: &mut Ports, front_end: Port, ring: usize) -> Turn {
        let Some(&port) = self.at.get(&front_end) else { return Turn::Done };
        let Some(served) = ports.ring(front_end, ring) else { return Turn::Done };
        served.disarm();
        if ring != SENDING {
            return Turn::Done;
        }
        let memory = Arc::clone(served.memory());
        let turn = self.serve_sender(ports, port, front_end, &memory);
        self.tell_receivers(ports);
        turn
    }

    fn ready(&mut self, ports: &mut Ports, name: u32) -> Turn {
        if name == CONTROL {
            self.is_asked = true;
            return Turn::Done;
        }
        let port = (name - OTHERWISE) as PortId;
        let Some(mut gateway) = self.otherwise.remove(&port) else { return Turn::Done };
        let turn = self.serve_gateway(ports, port, &mut gateway);
        gateway.flush();
        self.otherwise.insert(port, gateway);
        self.tell_receivers(ports);
        turn
    }

    fn disconnected(&mut self, front_end: Port, why: Result<(), Fault>) {
        let Some(port) = self.at.remove(&front_end) else { return };
        self.here.remove(&port);
        self.subnet.counters(port).sent_away += u64::from(why.is_err());
    }
}

impl Switch {
    /// Without ports, and without a gateway.
    fn new() -> Self {
        Self {
            began: Instant::now(),
            subnet: Subnet::default(),
            sockets: Vec::new(),
            here: HashMap::new(),
            at: HashMap::new(),
            otherwise: HashMap::new(),
            is_asked: false,
            have_news: Vec::new(),
            whole: Vec::new(),
        }
    }

    fn serve_sender(&mut self, ports: &mut Ports, port: PortId, front_end: Port, memory: &Memory) -> Turn {
        let Some(features) = ports.get(front_end).map(|sender| sender.features()) else { return Turn::Done };
        self.subnet.begin_turn(port, ports.others_wait());
        let mut turn = Turn::Again;
        while self.subnet.has_turn(port) {
            let Some(ring) = ports.ring(front_end, SENDING) else { return Turn::Done };
            let Some(chain) = ring.take() else {
                turn = if ring.rearm() { Turn::Again } else { Turn::Done };
                break;
            };
            let index = chain.head_index();
            self.pass_on_sent(ports, port, features, chain, memory);
            if let Some(ring) = ports.ring(front_end, SENDING) {
                ring.put(index, 0);
            }
        }
        if let Some(ring) = ports.ring(front_end, SENDING) {
            ring.notify();
            self.subnet.counters(port).damaged += u64::from(ring.is_broken());
        }
        turn
    }

    fn serve_gateway(&mut self, ports: &mut Ports, port: PortId, gateway: &mut Gateway) -> Turn {
        self.subnet.begin_turn(port, ports.others_wait());
        while self.subnet.has_turn(port) {
            let Some((header, bytes)) = gateway.receive() else { return Turn::Done };
            self.pass_on(ports, port, SENDERS, Frame::whole(header, bytes));
        }
        Turn::Again
    }

    fn pass_on_sent(
        &mut self,
        ports: &mut Ports,
        port: PortId,
        features: Features,
        chain: Chain,
        memory: &Memory,
    ) {
        let (frame, descriptors) = Frame::sent(chain, memory);
        self.subnet.charge(port, descriptors as i64 * DESCRIPTOR_COST);
        match frame {
            Ok(frame) => self.pass_on(ports, port, features, frame),
            Err(refused) => self.subnet.refuse(port, refused),
        }
    }

    /// Passes a frame on that came in at this port, from a sender with these features.
    fn pass_on(&mut self, ports: &mut Ports, from: PortId, features: Features, mut frame: Frame<'_>) {
        let length = frame.length();
        let undone = Undone::check(&frame.header, features, frame.head(), length);
        let (way, undone) = match (self.subnet.way(from, frame.head(), length), undone) {
            (Ok(way), Ok(undone)) => (way, undone),
            (Err(refused), _) | (_, Err(refused)) => return self.subnet.refuse(from, refused),
        };
        self.subnet.charge(from, FRAME_COST);
        if way == Way::All && !self.subnet.may_reach_all(from, self.began.elapsed()) {
            self.subnet.counters(from).excess += 1;
            return;
        }
        let counters = self.subnet.counters(from);
        counters.sent += 1;
        counters.sent_bytes += length as u64;
        counters.unknown += u64::from(way == Way::Nowhere);
        let receivers = match way {
            Way::One(to) => to..to + 1,
            Way::All => 0..self.subnet.ports().len(),
            Way::Nowhere => 0..0,
        };
        for to in receivers.filter(|to| *to != from) {
            self.subnet.charge(from, FRAME_COST + length as i64);
            self.give(ports, to, undone, &mut frame);
        }
    }

    /// Gives a frame to a port, or loses it.
    fn give(&mut self, ports: &mut Ports, to: PortId, undone: Undone, frame: &mut Frame<'_>) {
        let mut is_given = false;
        if let Some(gateway) = self.otherwise.get_mut(&to) {
            frame.copy_to(&mut self.whole);
            is_given = gateway.send(undone, &mut self.whole);
        } else if let Some(&front_end) = self.here.get(&to)
            && let Some(receiver) = ports.get(front_end)
        {
            let features = receiver.features();
            if let Some(ring) = ports.ring(front_end, RECEIVING).filter(|ring| ring.is_running()) {
                is_given = give_to_guest(ring, features, undone, frame, &mut self.whole);
                self.subnet.counters(to).damaged += u64::from(ring.is_broken());
                if !self.have_news.contains(&front_end) {
                    self.have_news.push(front_end);
                }
            }
        }
        let counters = self.subnet.counters(to);
        if is_given {
            counters.received += 1;
            counters.received_bytes += frame.length() as u64;
        } else {
            counters.lost += 1;
        }
    }

    fn tell_receivers(&mut self, ports: &mut Ports) {
        for front_end in mem::take(&mut self.have_news) {
            if let Some(ring) = ports.ring(front_end, RECEIVING) {
                ring.notify();
            }
        }
        self.otherwise.values_mut().for_each(Gateway::flush);
    }
}

/// Puts a frame into a guest's buffers, as it is if its driver takes it so.
fn give_to_guest(
    ring: &mut Ring,
    features: Features,
    undone: Undone,
    frame: &mut Frame<'_>,
    whole: &mut Vec<u8>,
) -> bool {
    let are_merged = features & 1 << VIRTIO_NET_F_MRG_RXBUF != 0;
    if features & 1 << VIRTIO_F_VERSION_1 == 0 {
        false
    } else if undone.is_taken_by(features) {
        frame.put(ring, are_merged, undone)
    } else {
        frame.copy_to(whole);
        segments::finish(whole, undone, |piece| {
            Frame::whole([0; HEADER], piece).put(ring, are_merged, Undone::Nothing)
        })
    }
}
