//! A node that runs chitchat, with its server, its failure detector and its message format as they are.
//!
//! chitchat's state machine is private to it, and reached only through its server, a task of tokio's that reads
//! `tokio::time::Instant`. So each node has a runtime of its own whose clock stands still and is moved on to the world's
//! time before each input: time passes for a node as the world lets it, also when the node stutters. The runtime does nothing
//! between inputs. chitchat rolls its dice by `rand::rng()`, which takes no seed: **two runs of one seed differ**.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Poll, Waker};
use std::time::Duration;

use async_trait::async_trait;
use chitchat::transport::{RecvOutcome, SendOutcome, Socket, Transport, UdpSocket};
use chitchat::{
    ChitchatConfig, ChitchatEnvelope, ChitchatHandle, ChitchatId, FailureDetectorConfig, NodeState,
    ProtocolVersion,
};
use comb_sim::{Actor, Boot, Effects, Input, NodeId, Time};
use tokio::runtime::Runtime;
use tokio::sync::watch;

use crate::member::{self, Member, View};

/// How often a node gossips. chitchat has no default: this is what its own tests and Quickwit take.
const GOSSIP_INTERVAL: Duration = Duration::from_secs(1);

/// tokio's timers fire at the first whole millisecond that is not before them.
const TIMER_GRAIN: Duration = Duration::from_millis(1);

/// Turns that the server gets for each input. It needs one, and another for each budget of tokio's that it uses up, which
/// takes a dozen missed rounds of gossip.
const TURNS: usize = 6;

/// What a world of chitchat nodes runs with.
#[derive(Clone)]
pub struct Settings {
    pub failure_detector: FailureDetectorConfig,
    pub version: ProtocolVersion,
}

/// chitchat's own defaults, and the format that its documentation asks for unless all nodes are known to be new.
pub fn default_settings() -> Settings {
    Settings { failure_detector: FailureDetectorConfig::default(), version: ProtocolVersion::V0 }
}

/// Twice the threshold at which a node counts as failed, for a network that loses much, and compressed digests.
pub fn tuned_settings() -> Settings {
    let phi_threshold = 2.0 * FailureDetectorConfig::default().phi_threshold;
    Settings {
        failure_detector: FailureDetectorConfig { phi_threshold, ..FailureDetectorConfig::default() },
        version: ProtocolVersion::V1,
    }
}

fn id(node: NodeId) -> ChitchatId {
    ChitchatId::new(format!("node-{}", node.0), 1_700_000_000, member::address(node).into())
}

fn node_of(address: SocketAddr) -> NodeId {
    match address {
        SocketAddr::V4(address) => member::node(address),
        SocketAddr::V6(_) => unreachable!("nodes have addresses of version 4"),
    }
}

/// What is between the server of a node and the world.
#[derive(Default)]
struct Mail {
    inbox: VecDeque<RecvOutcome>,
    outbox: Vec<(SocketAddr, ChitchatEnvelope)>,
    reader: Option<Waker>,
}

/// The server's socket. What it sends waits until the world takes it.
#[derive(Clone, Default)]
struct Mailbox(Arc<Mutex<Mail>>);

impl Mailbox {
    fn open(&self) -> MutexGuard<'_, Mail> {
        self.0.lock().expect("one thread, which has not panicked")
    }

    fn deliver(&self, message: RecvOutcome) {
        let mut mail = self.open();
        mail.inbox.push_back(message);
        if let Some(reader) = mail.reader.take() {
            reader.wake();
        }
    }
}

#[async_trait]
impl Socket for Mailbox {
    fn local_addr(&self) -> anyhow::Result<SocketAddr> {
        anyhow::bail!("nobody asks")
    }

    async fn send(&mut self, to: SocketAddr, envelope: ChitchatEnvelope) -> anyhow::Result<SendOutcome> {
        self.open().outbox.push((to, envelope));
        // Its length is not known before the codec has it; the server does not look.
        Ok(SendOutcome { num_bytes_sent: 0 })
    }

    async fn recv(&mut self) -> anyhow::Result<RecvOutcome> {
        std::future::poll_fn(|context| {
            let mut mail = self.open();
            match mail.inbox.pop_front() {
                Some(message) => Poll::Ready(Ok(message)),
                None => {
                    mail.reader = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }
}

#[async_trait]
impl Transport for Mailbox {
    async fn open(&self, _: SocketAddr) -> anyhow::Result<Box<dyn Socket>> {
        Ok(Box::new(self.clone()))
    }
}

/// Turns messages into bytes and back. chitchat's format is private as well, but its UDP socket writes and reads it: a
/// message goes through one on this machine's loopback.
pub struct Codec {
    runtime: Runtime,
    theirs: UdpSocket,
    theirs_address: SocketAddr,
    ours: std::net::UdpSocket,
    ours_address: SocketAddr,
    buffer: Vec<u8>,
}

impl Codec {
    pub fn new() -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let loopback = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0).into();
        let theirs = runtime.block_on(UdpSocket::open(loopback))?;
        let theirs_address = theirs.local_addr()?;
        let ours = std::net::UdpSocket::bind(loopback)?;
        // Nobody else's datagrams are taken for messages.
        ours.connect(theirs_address)?;
        let ours_address = ours.local_addr()?;
        Ok(Self { runtime, theirs, theirs_address, ours, ours_address, buffer: vec![0; 1 << 16] })
    }

    fn encode(&mut self, envelope: ChitchatEnvelope) -> Vec<u8> {
        let sent = self.runtime.block_on(self.theirs.send(self.ours_address, envelope));
        let bytes = sent.expect("a datagram on loopback").num_bytes_sent;
        let received = self.ours.recv(&mut self.buffer).expect("the datagram that was just sent");
        assert_eq!(received, bytes);
        self.buffer[..received].to_vec()
    }

    fn decode(&mut self, bytes: &[u8]) -> ChitchatEnvelope {
        self.ours.send(bytes).expect("a datagram on loopback");
        let received = self.runtime.block_on(self.theirs.recv()).expect("the datagram that was just sent");
        assert_eq!(received.from_addr, self.ours_address, "a stranger sends to {}", self.theirs_address);
        received.envelope
    }
}

pub struct ChitchatNode {
    node: NodeId,
    settings: Settings,
    mailbox: Mailbox,
    codec: Arc<Mutex<Codec>>,
    server: Option<Server>,
    /// Where the runtime's clock stands.
    clock: Time,
    next_gossip: Time,
    live: BTreeSet<NodeId>,
}

struct Server {
    // Dropped before its runtime.
    handle: ChitchatHandle,
    live: watch::Receiver<BTreeMap<ChitchatId, NodeState>>,
    runtime: Runtime,
}

impl ChitchatNode {
    pub fn new(boot: &Boot<'_>, settings: Settings, codec: Arc<Mutex<Codec>>) -> Self {
        Self {
            node: boot.node,
            settings,
            mailbox: Mailbox::default(),
            codec,
            server: None,
            clock: boot.now,
            next_gossip: Time::MAX,
            live: BTreeSet::new(),
        }
    }

    fn start(&mut self, now: Time) -> anyhow::Result<()> {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
        let config = ChitchatConfig {
            chitchat_id: id(self.node),
            cluster_id: "comb".into(),
            gossip_interval: GOSSIP_INTERVAL,
            listen_addr: member::address(self.node).into(),
            seed_nodes: vec![member::address(NodeId(0)).to_string()],
            failure_detector_config: self.settings.failure_detector.clone(),
            marked_for_deletion_grace_period: Duration::from_secs(60 * 15),
            catchup_callback: None,
            extra_liveness_predicate: None,
            protocol_version: self.settings.version,
        };
        let (handle, live) = runtime.block_on(async {
            let handle = chitchat::spawn_chitchat(config, Vec::new(), &self.mailbox).await?;
            let live = handle.with_chitchat(|chitchat| chitchat.live_nodes_watcher()).await;
            anyhow::Ok((handle, live))
        })?;
        self.server = Some(Server { handle, live, runtime });
        self.clock = now;
        self.next_gossip = now.saturating_add(GOSSIP_INTERVAL).saturating_add(TIMER_GRAIN);
        Ok(())
    }

    /// Lets the server do what it has to until now.
    fn run(&mut self, now: Time) {
        let Some(server) = &self.server else { return };
        let passed = now.since(self.clock);
        self.clock = now.max(self.clock);
        server.runtime.block_on(async {
            if !passed.is_zero() {
                tokio::time::advance(passed).await;
            }
            for _ in 0..TURNS {
                tokio::task::yield_now().await;
            }
        });
        assert!(self.mailbox.open().inbox.is_empty(), "the server has taken what came");
        while self.next_gossip <= now {
            self.next_gossip = self.next_gossip.saturating_add(GOSSIP_INTERVAL);
        }
    }

    fn tell_changes(&mut self, effects: &mut Effects<'_, View>) {
        let Some(server) = &mut self.server else { return };
        if !server.live.has_changed().expect("the server runs") {
            return;
        }
        let live: BTreeSet<_> =
            server.live.borrow_and_update().keys().map(|id| node_of(id.gossip_advertise_addr)).collect();
        for &gone in self.live.difference(&live) {
            effects.tell(View::Down(gone));
        }
        for &new in live.difference(&self.live) {
            effects.tell(View::Up(new));
        }
        self.live = live;
    }
}

impl Actor for ChitchatNode {
    type Command = ();
    type Event = View;

    fn handle(&mut self, input: Input<'_, ()>, effects: &mut Effects<'_, View>) {
        let codec = Arc::clone(&self.codec);
        let mut codec = codec.lock().expect("one thread, which has not panicked");
        match input {
            Input::Started => self.start(effects.now()).expect("chitchat starts"),
            Input::Message { from, bytes } => {
                let from_addr = member::address(from).into();
                let envelope = codec.decode(bytes);
                self.mailbox.deliver(RecvOutcome { from_addr, envelope, num_bytes_received: bytes.len() });
            }
            _ => {}
        }
        self.run(effects.now());
        self.tell_changes(effects);
        let outbox = std::mem::take(&mut self.mailbox.open().outbox);
        for (to, envelope) in outbox {
            effects.send(node_of(to), codec.encode(envelope));
        }
    }

    fn next_timeout(&self) -> Option<Time> {
        Some(self.next_gossip)
    }
}

impl Member for ChitchatNode {
    fn listed(&self) -> Vec<NodeId> {
        let Some(server) = &self.server else { return Vec::new() };
        let live = |chitchat: &mut chitchat::Chitchat| {
            chitchat.live_nodes().map(|id| node_of(id.gossip_advertise_addr)).collect::<Vec<_>>()
        };
        let mut live = server.runtime.block_on(server.handle.with_chitchat(live));
        live.retain(|&node| node != self.node);
        live
    }

    fn errors(&self) -> u64 {
        // chitchat's server logs them; what its own program broke would have ended this one.
        0
    }
}
