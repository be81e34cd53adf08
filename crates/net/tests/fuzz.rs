//! Mutates every byte that a peer can write, for a bounded time. Whatever stands there: no crash, no hang, the damaged
//! channel ends with a breach or works on, and other channels of the same endpoint lose nothing.
//!
//! `COMB_FUZZ_SECONDS` is the time of each test (2), `COMB_FUZZ_SEED` replays one. A failure prints its seed.
#![expect(clippy::cast_possible_truncation, reason = "random numbers and fillers, cut on purpose")]

mod evil_peer;

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use comb_net::agent::protocol::{
    self, Framing, LONGEST_MESSAGE, ProtocolError, RemoteSession, Reply, Request, Side, WindowTerms,
};
use comb_net::agent::{Identity, RequestError};
use comb_net::retransmit::{Agreement, Reliable};
use comb_net::transport::{Capabilities, SendError, Transport};
use comb_net::{
    Agent, Breach, Cause, ChannelKey, Delivery, Endpoint, EndpointOptions, Geometry, InProcess, Payload,
    PostError, TransportCounters, kinds,
};
use comb_types::fuzz::Fuzz;
use comb_types::{ChannelId, Dice, EndpointId};
use evil_peer::{
    BOTH, CLOSED, CONSUMED, DESCRIPTOR, EvilChannel, EvilPeer, MAGIC, Memory, PAGE, QUENCH, board_bytes,
    good_ring, pack,
};
use rustix::fs::SealFlags;

/// What is slower than this hangs.
const HANG: Duration = Duration::from_secs(20);

/// What is drawn by chance.
trait Chance {
    fn next(&mut self) -> u64;

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn chance(&mut self, one_in: usize) -> bool {
        self.below(one_in) == 0
    }

    /// A number that is more often at the edge of something than chance would have it.
    fn word(&mut self) -> u64 {
        match self.below(8) {
            0 => 0,
            1 => u64::MAX,
            2 => 1 << self.below(64),
            3 => self.next() & 0xFF,
            4 => u64::from(u32::MAX) - self.next() % 100,
            5 => self.next() % 200,
            _ => self.next(),
        }
    }

    fn number(&mut self) -> u32 {
        self.word() as u32
    }

    fn bytes(&mut self, most: usize) -> Vec<u8> {
        let length = self.below(most + 1);
        (0..length).map(|_| self.next() as u8).collect()
    }
}

impl Chance for Dice {
    fn next(&mut self) -> u64 {
        self.roll()
    }
}

impl Chance for Fuzz {
    fn next(&mut self) -> u64 {
        self.dice.roll()
    }
}

/// The one whose memory is scribbled on, with an honest friend on the same endpoint.
struct Victim {
    agent: InProcess,
    endpoint: Endpoint,
    friend: Endpoint,
    to_friend: ChannelKey,
    to_victim: ChannelKey,
    sent: u64,
    received: u64,
    answered: u64,
}

impl Victim {
    fn new(channels: usize) -> Self {
        let agent = InProcess::start();
        let mut endpoint = agent.connect("victim").unwrap().endpoint("desk").unwrap();
        let mut friend = agent.connect("friend").unwrap().endpoint("desk").unwrap();
        let to_victim = friend.open("victim/desk").unwrap();
        let to_friend = endpoint.accept(HANG).unwrap();
        // Enough others that the endpoint goes by the flags on its board.
        for _ in 1..channels {
            friend.open("victim/desk").unwrap();
            endpoint.accept(HANG).unwrap();
        }
        Self { agent, endpoint, friend, to_friend, to_victim, sent: 0, received: 0, answered: 0 }
    }

    /// Checked traffic with the friend both ways, while the victim polls all. Returns why other channels ended.
    fn live(&mut self, messages: u64) -> Vec<(ChannelKey, Cause)> {
        let mut ended = Vec::new();
        let goal = self.answered + messages;
        let started = Instant::now();
        let mut buffer = [0; 3000];
        while self.answered < goal {
            assert!(started.elapsed() < HANG, "the friend's messages do not get through");
            let filler = vec![self.sent as u8; [0, 40, 60, 1500][(self.sent % 4) as usize]];
            match self.friend.send_gathered(self.to_victim, 7, &[&self.sent.to_le_bytes(), &filler]) {
                Ok(()) => self.sent += 1,
                Err(PostError::Full(_)) => {}
                Err(other) => panic!("the friend cannot send: {other}"),
            }
            let (key, mut answers) = (self.to_friend, Vec::new());
            let expected = &mut self.received;
            let outcome = self.endpoint.poll(|delivery: Delivery<'_>| {
                // Everything is read, the enemy's messages too.
                let bytes = delivery.payload.to_vec();
                if delivery.channel == key {
                    assert_eq!(delivery.kind, 7);
                    assert_eq!(bytes[..8], expected.to_le_bytes(), "in order");
                    assert!(bytes[8..].iter().all(|&byte| byte == *expected as u8), "unharmed");
                    answers.push(*expected);
                    *expected += 1;
                }
            });
            if let Err(end) = outcome {
                assert_ne!(end.channel, key, "the friend is blamed: {end}");
                ended.push((end.channel, end.cause));
            }
            for answer in answers {
                self.endpoint.send_within(key, 8, &[&answer.to_le_bytes()], HANG).unwrap();
                let got = self.friend.receive_within(&mut buffer, HANG).unwrap().expect("just sent");
                assert_eq!((got.kind, &buffer[..8]), (8, &self.answered.to_le_bytes()[..]));
                self.answered += 1;
            }
        }
        ended
    }
}

/// A few stores into the memory of a channel that the enemy may write.
fn scribble(fuzz: &mut impl Chance, mallory: &EvilPeer, enemy: &mut EvilChannel) {
    for _ in 0..=fuzz.below(4) {
        match fuzz.below(9) {
            // Its own board, which the victim reads after each send.
            8 => {
                let (word, value) = (fuzz.below(mallory.bell().words()), fuzz.word());
                mallory.bell().store([word, 0][fuzz.below(2)], value);
            }
            // A header, mostly right.
            0..=2 => {
                let sequence = if fuzz.chance(4) { fuzz.number() } else { enemy.sent.wrapping_add(1) };
                let length = [fuzz.next() as u8, 8, 56, 57, DESCRIPTOR, 254][fuzz.below(6)];
                let acknowledged = if fuzz.chance(2) { 0 } else { fuzz.word() as u16 };
                let content = fuzz.word();
                enemy.post(sequence, length, fuzz.next() as u8, acknowledged, content);
                if sequence == enemy.sent.wrapping_add(1) {
                    enemy.sent += 1;
                }
            }
            // A payload descriptor.
            3 => {
                let descriptor = u64::from(fuzz.number()) | u64::from(fuzz.number()) << 32;
                enemy.post(enemy.sent + 1, DESCRIPTOR, 1, 0, descriptor);
                enemy.sent += 1;
            }
            // Control words: magic, geometry, count, wants-credit, closed, tick, window epochs.
            4 => {
                let word = [0, 1, CONSUMED, 16, CLOSED, 32, QUENCH, 64, 64 + 255][fuzz.below(9)];
                let value = fuzz.word();
                if word != CLOSED || fuzz.chance(8) {
                    enemy.own.store(word, value);
                }
            }
            // Any word of its own segment.
            5 => {
                let (word, value) = (fuzz.below(enemy.own.words()), fuzz.word());
                enemy.own.store(word, value);
            }
            // The victim's ring, which the victim never reads back.
            6 => {
                let (word, value) = (fuzz.below(enemy.theirs.words()), fuzz.word());
                enemy.theirs.store(word, value);
            }
            // The victim's board: attention, futex word, flags.
            _ => {
                let word =
                    if fuzz.chance(2) { [0, 8][fuzz.below(2)] } else { fuzz.below(enemy.their_bell.words()) };
                let value = fuzz.word();
                enemy.their_bell.store(word, value);
            }
        }
    }
}

/// What may become of a damaged channel.
fn is_a_just_end(cause: &Cause) -> bool {
    matches!(cause, Cause::Breach(breach) if breach.to_string().starts_with("rule broken: "))
        || matches!(cause, Cause::Left(_))
}

fn shared_memory(name: &str, channels: usize) {
    let mut fuzz = Fuzz::start(name, 2);
    let mut victim = Victim::new(channels);
    let mallory = EvilPeer::connect(&victim.agent, "mallory");
    while fuzz.goes_on() {
        let mut enemy = mallory.open("victim/desk");
        let key = victim.endpoint.accept(HANG).unwrap();
        let mut ended = None;
        for _ in 0..50 {
            scribble(&mut fuzz, &mallory, &mut enemy);
            for _ in 0..fuzz.below(3) {
                let length = [4, 56, 100][fuzz.below(3)];
                match victim.endpoint.send(key, 1, &vec![1; length]) {
                    Ok(()) | Err(PostError::Full(_) | PostError::NoChannel) => {}
                    Err(PostError::Ended(end)) => {
                        assert!(is_a_just_end(&end.cause), "{end}");
                        ended = Some(end.cause);
                    }
                    Err(other) => panic!("{other}"),
                }
            }
            for (channel, cause) in victim.live(1) {
                assert_eq!(channel, key, "another than the damaged channel ended: {cause}");
                assert!(is_a_just_end(&cause), "{cause}");
                ended = Some(cause);
            }
            // A garbled board costs time, but nobody sleeps for ever on it.
            if fuzz.chance(16) {
                victim.endpoint.wait(Duration::from_micros(50));
            }
            if ended.is_some() {
                break;
            }
        }
        victim.endpoint.close(key);
    }
    // The friend's channels are all there.
    assert_eq!(victim.endpoint.channels().count(), channels);
    victim.live(100);
}

#[test]
fn what_a_peer_writes_into_shared_memory() {
    shared_memory("shared memory", 1);
}

#[test]
fn what_a_peer_writes_into_shared_memory_of_an_endpoint_with_many_channels() {
    shared_memory("shared memory, many channels", 20);
}

/// As a channel that stays: from a victim that opened it, with messages that are mostly right.
#[test]
fn a_peer_that_is_mostly_right() {
    let mut fuzz = Fuzz::start("mostly right", 2);
    let mut victim = Victim::new(1);
    let mallory = EvilPeer::connect(&victim.agent, "mallory");
    while fuzz.goes_on() {
        let opened = std::thread::scope(|scope| {
            let opening = scope.spawn(|| victim.endpoint.open("mallory/desk").unwrap());
            let enemy = mallory.accept();
            (opening.join().unwrap(), enemy)
        });
        let (key, mut enemy) = opened;
        let mut ends = Vec::new();
        for _ in 0..300 {
            enemy.send(fuzz.next());
            if fuzz.chance(100) {
                let bit = 1 << fuzz.below(64);
                let slot = enemy.slot();
                let before = enemy.own.load(slot);
                enemy.own.store(slot, before ^ bit);
            }
            ends.extend(victim.live(1));
            if !ends.is_empty() {
                break;
            }
        }
        for (channel, cause) in ends {
            assert_eq!(channel, key);
            assert!(is_a_just_end(&cause), "{cause}");
        }
        victim.endpoint.close(key);
        // What is told of the end.
        while !matches!(mallory.hear().0, Reply::PeerGone { .. }) {}
    }
}

// ── the agent ──

/// A datagram with descriptors; whether the agent still listens.
fn tell(socket: &OwnedFd, bytes: &[u8], with: &[BorrowedFd<'_>]) -> bool {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(16))];
    let mut ancillary = rustix::net::SendAncillaryBuffer::new(&mut space);
    if !with.is_empty() {
        assert!(ancillary.push(rustix::net::SendAncillaryMessage::ScmRights(with)));
    }
    let parts = [std::io::IoSlice::new(bytes)];
    let flags = rustix::net::SendFlags::NOSIGNAL;
    rustix::net::sendmsg(socket, &parts, &mut ancillary, flags).is_ok()
}

fn any_name(fuzz: &mut impl Chance) -> String {
    match fuzz.below(6) {
        0 => String::from_utf8_lossy(&fuzz.bytes(200)).into_owned(),
        1 => "victim/desk".into(),
        2 => "friend".into(),
        3 => "mallory".into(),
        4 => "x".repeat(fuzz.below(30_000)),
        _ => "desk".into(),
    }
}

fn any_geometry(fuzz: &mut impl Chance) -> Geometry {
    if fuzz.chance(3) {
        Geometry { slots: fuzz.number(), payload_bytes: fuzz.number() }
    } else {
        Geometry::default()
    }
}

fn any_window(fuzz: &mut impl Chance, channel: ChannelId, endpoint: EndpointId) -> WindowTerms {
    let number = if fuzz.chance(2) { fuzz.number() % 4 } else { fuzz.number() };
    let bytes = if fuzz.chance(4) { fuzz.next() } else { 4096 };
    WindowTerms { channel, endpoint, number, epoch: fuzz.next(), bytes, writable: fuzz.chance(2) }
}

fn any_session(fuzz: &mut impl Chance) -> RemoteSession {
    RemoteSession {
        wire_channel: ChannelId(fuzz.number()),
        version: fuzz.next() as u8 % 4,
        suite: fuzz.next() as u8 % 4,
        connector: fuzz.chance(2),
        send_secret: [fuzz.next() as u8; 32],
        receive_secret: [fuzz.next() as u8; 32],
        framing: Framing {
            longest_frame: fuzz.number(),
            longest_message: fuzz.number(),
            window: fuzz.number(),
        },
        af_xdp: fuzz.chance(2),
        silence_limit_ms: fuzz.number(),
    }
}

fn any_side(fuzz: &mut impl Chance) -> Side {
    Side {
        geometry: any_geometry(fuzz),
        bell_index: if fuzz.chance(2) { 0 } else { fuzz.number() },
        event: fuzz.chance(4),
        asymmetric_fences: fuzz.chance(2),
    }
}

fn any_request(fuzz: &mut impl Chance, channels: &[ChannelId], endpoint: EndpointId) -> Request {
    let request = fuzz.number();
    let channel =
        if fuzz.chance(3) { ChannelId(fuzz.number()) } else { channels[fuzz.below(channels.len())] };
    let endpoint = if fuzz.chance(4) { EndpointId(fuzz.number()) } else { endpoint };
    let bell_channels = if fuzz.chance(4) { fuzz.number() } else { 64 };
    match fuzz.below(16) {
        0 => Request::Hello { name: any_name(fuzz) },
        1 => Request::CreateEndpoint { request, name: any_name(fuzz), bell_channels },
        2 | 3 => {
            let to = if fuzz.chance(2) { "victim/desk".into() } else { any_name(fuzz) };
            Request::Open { request, endpoint, to, side: any_side(fuzz) }
        }
        4 | 5 => Request::Accept { channel, side: any_side(fuzz) },
        6 => Request::Refuse { channel, reason: any_name(fuzz) },
        7 => Request::ShareWindow { request, window: any_window(fuzz, channel, endpoint) },
        8 => Request::CloseChannel { channel },
        9 => Request::CloseEndpoint { endpoint },
        10 => {
            let restored = (0..fuzz.below(4)).map(|_| (channels[fuzz.below(channels.len())], any_name(fuzz)));
            let channels = restored.collect();
            let geometry = any_geometry(fuzz);
            Request::RestoreEndpoint { request, name: any_name(fuzz), bell_channels, channels, geometry }
        }
        11 => Request::WithdrawWindow { window: any_window(fuzz, channel, endpoint) },
        12 => {
            let to = if fuzz.chance(2) { "there:victim/desk".into() } else { any_name(fuzz) };
            Request::OpenRemote { request, endpoint, to, silence_limit_ms: fuzz.number() }
        }
        13 => Request::AcceptRemote { channel },
        14 => Request::RestoreWindow { request, window: any_window(fuzz, channel, endpoint) },
        _ => Request::List { request },
    }
}

/// Descriptors that mean something to an agent, and some that do not.
struct Things {
    memories: Vec<Memory>,
    others: Vec<OwnedFd>,
}

impl Things {
    fn new() -> Self {
        let (reader, writer) = std::io::pipe().unwrap();
        let memories = vec![
            good_ring(Geometry::default()),
            Memory::create(board_bytes(64), BOTH),
            Memory::create(4096, BOTH | SealFlags::FUTURE_WRITE),
            Memory::create(4096, SealFlags::empty()),
        ];
        let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
        Self { memories, others: vec![reader.into(), writer.into(), event] }
    }

    fn some(&self, fuzz: &mut impl Chance) -> Vec<BorrowedFd<'_>> {
        let count = if fuzz.chance(8) { fuzz.below(12) } else { fuzz.below(3) };
        (0..count)
            .map(|_| match fuzz.below(3) {
                0 => self.others[fuzz.below(self.others.len())].as_fd(),
                _ => self.memories[fuzz.below(self.memories.len())].fd.as_fd(),
            })
            .collect()
    }
}

/// A datagram that once was valid.
fn mutated(fuzz: &mut impl Chance, bytes: &mut Vec<u8>) {
    for _ in 0..fuzz.below(4) {
        match fuzz.below(4) {
            0 if !bytes.is_empty() => {
                let at = fuzz.below(bytes.len());
                bytes[at] = fuzz.next() as u8;
            }
            1 => bytes.truncate(fuzz.below(bytes.len() + 1)),
            2 => bytes.extend(fuzz.bytes(64)),
            _ => {
                let at = fuzz.below(bytes.len() + 1);
                bytes.insert(at, fuzz.next() as u8);
            }
        }
    }
}

#[test]
fn what_a_client_says_to_its_agent() {
    let mut fuzz = Fuzz::start("agent requests", 2);
    let mut victim = Victim::new(1);
    let things = Things::new();
    while fuzz.goes_on() {
        let mallory = EvilPeer::connect(&victim.agent, "mallory");
        let enemy = mallory.open("victim/desk");
        victim.endpoint.accept(HANG).unwrap();
        // Its own, the neighbours of its own in the agent's counting, and the friend's among them.
        let channels: Vec<_> = (0..12).map(|back| ChannelId(enemy.id.0.wrapping_sub(back))).collect();
        rustix::io::ioctl_fionbio(&mallory.socket, true).unwrap();
        for _ in 0..30 {
            let mut bytes = match fuzz.below(4) {
                0 => fuzz.bytes(300),
                _ => {
                    let request = any_request(&mut fuzz, &channels, mallory.endpoint);
                    protocol::encode(&request).unwrap_or_else(|_| vec![1; LONGEST_MESSAGE + 1])
                }
            };
            if fuzz.chance(3) {
                mutated(&mut fuzz, &mut bytes);
            }
            if fuzz.chance(200) {
                bytes.resize(LONGEST_MESSAGE + 1 + fuzz.below(50_000), 0);
            }
            if !tell(&mallory.socket, &bytes, &things.some(&mut fuzz)) {
                break;
            }
            while let Ok((reply, descriptors)) = protocol::receive::<Reply>(&mallory.socket) {
                drop((reply, descriptors));
            }
            for (channel, cause) in victim.live(1) {
                assert_ne!(channel, victim.to_friend, "{cause}");
            }
        }
        drop((enemy, mallory));
        // The agent serves on: it answers, and it lets the name go.
        let started = Instant::now();
        loop {
            assert!(started.elapsed() < HANG, "the agent does not let the enemy go");
            let listed = victim.endpoint_agent().list().expect("the agent answers");
            if !listed.iter().any(|process| process.identity.name == "mallory") {
                break;
            }
            std::thread::yield_now();
        }
        let waiting: Vec<_> = victim.endpoint.channels().filter(|key| *key != victim.to_friend).collect();
        for key in waiting {
            victim.endpoint.close(key);
        }
    }
    victim.live(100);
}

impl Victim {
    fn endpoint_agent(&mut self) -> Agent {
        // A fresh name: the victim's own connection is inside its endpoint.
        self.agent.connect(&format!("asker-{}", self.answered)).unwrap()
    }
}

fn any_reply(fuzz: &mut impl Chance, request: u32, channels: &[ChannelId], endpoint: EndpointId) -> Reply {
    let request = if fuzz.chance(4) { fuzz.number() } else { request };
    let channel =
        if fuzz.chance(4) { ChannelId(fuzz.number()) } else { channels[fuzz.below(channels.len())] };
    let endpoint = if fuzz.chance(4) { EndpointId(fuzz.number()) } else { endpoint };
    let who = Identity {
        name: any_name(fuzz),
        pid: if fuzz.chance(2) { std::process::id() } else { fuzz.number() },
        uid: 0,
    };
    let bell_channels = if fuzz.chance(4) { fuzz.number() } else { 64 };
    match fuzz.below(12) {
        0 => Reply::Welcome { you: who },
        1 => Reply::EndpointCreated { request, endpoint },
        2 | 3 => {
            let (from_endpoint, side) = (any_name(fuzz), any_side(fuzz));
            Reply::Offer { channel, endpoint, from: who, from_endpoint, side, bell_channels }
        }
        4 => Reply::Opened { request, channel, peer: who, side: any_side(fuzz), bell_channels },
        5 => Reply::Refused { request: Some(request), reason: any_name(fuzz) },
        6 => Reply::WindowShared { window: any_window(fuzz, channel, endpoint) },
        7 => Reply::PeerGone { channel, reason: any_name(fuzz), last_word: Some(u128::MAX) },
        8 => Reply::WindowTaken { request },
        9 => Reply::RemoteOpened { request, channel, session: any_session(fuzz) },
        10 => {
            let (from, session) = (any_name(fuzz), any_session(fuzz));
            Reply::RemoteOffer { channel, endpoint, from, session }
        }
        _ => Reply::Listing { request, processes: Vec::new(), cut: fuzz.chance(2) },
    }
}

/// The agent is the enemy. It can refuse everything, but it cannot crash a process, nor hold it.
#[test]
fn what_an_agent_says_to_a_client() {
    let mut fuzz = Fuzz::start("agent replies", 2);
    let mut victim = Victim::new(1);
    while fuzz.goes_on() {
        let (ours, theirs) = rustix::net::socketpair(
            rustix::net::AddressFamily::UNIX,
            rustix::net::SocketType::SEQPACKET,
            rustix::net::SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        let seed = fuzz.next();
        let agent = std::thread::spawn(move || evil_agent(&ours, seed));
        // Connecting, making an endpoint and opening end somehow, soon.
        if let Ok(process) = Agent::over(theirs, "client") {
            process.set_answer_limit(Duration::from_millis(20));
            let options = EndpointOptions { channels: 64, ..EndpointOptions::default() };
            if let Ok(mut endpoint) = process.endpoint_with("desk", options) {
                for _ in 0..3 {
                    match endpoint.open("any/body") {
                        Ok(key) => drop((endpoint.send(key, 1, b"hello"), endpoint.windows(key))),
                        Err(RequestError::AgentAway) => break,
                        Err(_) => {}
                    }
                    let _ = endpoint.receive(&mut [0; 64]);
                    let _ = endpoint.accept(Duration::ZERO);
                }
                let _ = process.list();
            }
        }
        agent.join().unwrap();
        victim.live(1);
    }
}

/// Answers each request with something, often with what could be right, until the client is gone.
fn evil_agent(socket: &OwnedFd, seed: u64) {
    let mut fuzz = Dice::new(seed);
    let things = Things::new();
    let process =
        rustix::process::pidfd_open(rustix::process::getpid(), rustix::process::PidfdFlags::empty()).unwrap();
    let channels: Vec<_> = (0..4).map(ChannelId).collect();
    let endpoint = EndpointId(9);
    let mut asked = 0;
    let limit = Some(HANG);
    rustix::net::sockopt::set_socket_timeout(socket, rustix::net::sockopt::Timeout::Recv, limit).unwrap();
    // A client that has nobody to talk to gives up by itself.
    for _ in 0..200 {
        let request = match protocol::receive::<Request>(socket) {
            Ok((request, _)) => request,
            Err(ProtocolError::Ended) => return,
            Err(error) => panic!("the client hangs: {error}"),
        };
        let right = match &request {
            Request::Hello { name } => {
                Some(Reply::Welcome { you: Identity { name: name.clone(), pid: 1, uid: 0 } })
            }
            Request::CreateEndpoint { request, .. } => {
                asked = *request;
                Some(Reply::EndpointCreated { request: *request, endpoint })
            }
            Request::Open { request, .. } | Request::List { request } => {
                asked = *request;
                None
            }
            _ => None,
        };
        for _ in 0..fuzz.below(4) {
            let reply = any_reply(&mut fuzz, asked, &channels, endpoint);
            let Ok(mut bytes) = protocol::encode(&reply) else { continue };
            if fuzz.chance(20) {
                mutated(&mut fuzz, &mut bytes);
            }
            // What belongs to an offer, or anything.
            let with = if fuzz.chance(2) {
                vec![things.memories[0].fd.as_fd(), things.memories[1].fd.as_fd(), process.as_fd()]
            } else {
                things.some(&mut fuzz)
            };
            if matches!(request, Request::Hello { .. }) && !fuzz.chance(10) {
                break;
            }
            if !tell(socket, &bytes, &with) {
                return;
            }
        }
        if let Some(reply) = right
            && (!fuzz.chance(20) || matches!(request, Request::Hello { .. }))
            && protocol::send(socket, &reply, &[]).is_err()
        {
            return;
        }
        if matches!(request, Request::Hello { .. }) && fuzz.chance(20) {
            // Hangs up on the first word.
            return;
        }
    }
}

/// What was handed over at the handshake: each wrong in one of many ways, or right.
#[test]
fn what_a_peer_hands_over_at_the_handshake() {
    let mut fuzz = Fuzz::start("handshakes", 2);
    let mut victim = Victim::new(1);
    let mallory = EvilPeer::connect(&victim.agent, "mallory");
    let mut outcomes = BTreeMap::<bool, u64>::new();
    while fuzz.goes_on() {
        let geometry = any_geometry(&mut fuzz);
        let size = geometry.check().map_or(PAGE * 4, Geometry::segment_bytes).min(1 << 22);
        let size = if fuzz.chance(4) { PAGE * (1 + fuzz.below(16)) } else { size };
        let seals =
            if fuzz.chance(4) { SealFlags::from_bits_truncate(fuzz.next() as u32 & 0x1F) } else { BOTH };
        // A write seal needs that nothing is mapped writable; the test's own mapping is.
        let ring = Memory::create(size, seals - SealFlags::WRITE);
        if !fuzz.chance(4) {
            ring.store(0, MAGIC);
            ring.store(1, pack(geometry));
        }
        let side = Side { event: fuzz.chance(8), ..any_side(&mut fuzz) };
        mallory.ask_open("victim/desk", Side { geometry, ..side }, &[ring.fd.as_fd()]);
        let opened = loop {
            match mallory.hear().0 {
                Reply::Opened { .. } => break true,
                Reply::Refused { reason, .. } => {
                    assert!(!reason.is_empty());
                    break false;
                }
                _ => {}
            }
        };
        *outcomes.entry(opened).or_default() += 1;
        if opened {
            let key = victim.endpoint.accept(HANG).unwrap();
            let _ = victim.endpoint.send(key, 1, b"hello");
            victim.live(1);
            victim.endpoint.close(key);
        }
        victim.live(1);
    }
    println!("opened or not: {outcomes:?}");
}

/// Of a kind.
type Frame = (u8, Vec<u8>);

/// A network that delivers what the enemy wrote.
#[derive(Clone, Default)]
struct Enemy {
    frames: Arc<Mutex<VecDeque<Frame>>>,
}

const FRAME_BYTES: usize = 200;

impl Enemy {
    fn frames(&self) -> std::sync::MutexGuard<'_, VecDeque<Frame>> {
        self.frames.lock().unwrap()
    }
}

impl Transport for Enemy {
    fn capabilities(&self) -> Capabilities {
        Capabilities { longest_message: FRAME_BYTES, can_lose: true }
    }

    fn send(&mut self, _: u8, parts: &[&[u8]]) -> Result<(), SendError> {
        assert!(parts.concat().len() <= FRAME_BYTES, "the network's limit holds");
        Ok(())
    }

    fn receive(&mut self, sink: &mut dyn FnMut(u8, Payload<'_>)) -> Result<bool, Breach> {
        let Some((kind, frame)) = self.frames().pop_front() else { return Ok(false) };
        sink(kind, Payload::Private(&frame));
        Ok(true)
    }

    fn is_idle(&mut self) -> bool {
        self.frames().is_empty()
    }

    fn close(&mut self) {}

    fn peer_closed(&self) -> bool {
        false
    }

    fn counters(&self) -> TransportCounters {
        TransportCounters::default()
    }
}

/// A frame that is mostly one of the protocol's, with numbers about where they should be.
fn any_frame(fuzz: &mut impl Chance, expected: u32, sent: u32) -> Frame {
    let kind = if fuzz.chance(50) { fuzz.next() as u8 } else { *kinds::CHANNEL.start() };
    if fuzz.chance(20) {
        return (kind, fuzz.bytes(FRAME_BYTES * 2));
    }
    let sequence = if fuzz.chance(10) { fuzz.number() } else { expected };
    let acknowledged = match fuzz.below(10) {
        0 => fuzz.number(),
        _ => fuzz.below(sent as usize + 1) as u32,
    };
    let mut flags = [1, 1, 5, 5, 5, 2, 0, 3][fuzz.below(8)];
    let bytes = match flags {
        5 => FRAME_BYTES - 12,
        1 | 3 => fuzz.below(FRAME_BYTES - 11),
        _ => 0,
    };
    if fuzz.chance(40) {
        flags = fuzz.next() as u8;
    }
    let sequence = if flags & 1 == 0 { 0 } else { sequence };
    let mut frame = vec![1, flags, 0, 0];
    frame.extend(sequence.to_le_bytes());
    frame.extend(acknowledged.to_le_bytes());
    frame.resize(12 + bytes, 7);
    if fuzz.chance(60) {
        mutated(fuzz, &mut frame);
    }
    (kind, frame)
}

/// Frames of a peer on another host, which has the keys: they are messages within the limit, or a breach, or nothing.
#[test]
fn what_a_peer_says_in_frames_that_are_sent_until_they_are_acknowledged() {
    let mut fuzz = Fuzz::start("frames between hosts", 2);
    let (mut delivered, mut breaches, mut longest) = (0_u64, 0_u64, 0);
    while fuzz.goes_on() {
        let limit = 1 + fuzz.below(1500);
        let (window, silence_limit) = (8, HANG);
        let agreement = Agreement { window, longest_message: limit, silence_limit };
        let enemy = Enemy::default();
        let Ok(mut victim) = Reliable::agreed(Box::new(enemy.clone()), agreement) else {
            assert!(limit >= 8 * (FRAME_BYTES - 12), "this fits the window");
            continue;
        };
        let (mut expected, mut sent) = (0_u32, 0_u32);
        for _ in 0..200 {
            match fuzz.below(8) {
                0..=3 => {
                    let (kind, frame) = any_frame(&mut fuzz, expected, sent);
                    // Whether it is taken the enemy can only guess.
                    expected = expected.wrapping_add(u32::from(frame.len() > 12 && !fuzz.chance(10)));
                    enemy.frames().push_back((kind, frame));
                }
                4 => {
                    let message = vec![1; fuzz.below(limit + 10)];
                    match victim.send(1, &[&message]) {
                        Ok(()) => sent += 1,
                        Err(SendError::TooLong { .. }) => assert!(message.len() > limit),
                        Err(_) => {}
                    }
                }
                5 => drop((victim.is_idle(), victim.has_room(), victim.next_timeout())),
                6 => drop(victim.next_length()),
                _ => {
                    let outcome = victim.receive(&mut |_, payload| {
                        assert!(payload.len() <= limit, "longer than agreed");
                        longest = payload.len().max(longest);
                        delivered += 1;
                    });
                    if outcome.is_err() {
                        breaches += 1;
                        break;
                    }
                }
            }
            assert!(victim.counters().outstanding <= window);
        }
        victim.close();
        victim.settle();
    }
    println!("{delivered} messages of up to {longest} bytes, {breaches} breaches");
    assert!(delivered > 0 && breaches > 0 && longest > FRAME_BYTES, "it was tried");
}
