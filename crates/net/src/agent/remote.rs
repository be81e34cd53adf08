//! Channels between hosts: how one host's agent asks another's, and what both hand to their processes.
//!
//! ```text
//! opener      agent of alpha                                  agent of beta             accepter
//!   ─ OpenRemote ▶  may it leave? a UDP socket
//!                   ══ TLS, both prove their host keys ══════▶
//!                   ── Ask: who, whom, UDP port ─────────────▶ a UDP socket, connected;
//!                                                              may it enter? ─ RemoteOffer ▶ installs it
//!                                                              ◀───────────── AcceptRemote ─
//!                   ◀───────────────── Opened: UDP port ──────
//!                   connects its socket
//!   ◀ RemoteOpened
//!   ◀═══════════════ frames, sealed with keys of that TLS session, without the agents ═════▶
//! ```
//!
//! Each channel has a TLS session of its own, for the time of this exchange: a milliseconds' affair, after which no agent
//! is needed. The first of them with a host stays as a line for news (`correspondence`): an agent that sees a process
//! die tells the other, whose process hears of it. Nothing depends on it: when it breaks, or an agent ends, open channels
//! go on, and what ends them is a farewell of the peer, or its silence.
//!
//! Questions run on threads of their own, with a limit for each step: a host that does not answer holds up nobody else.

mod correspondence;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use comb_types::{ChannelId, Version};
use serde::{Deserialize, Serialize};

use super::broker::{Departure, Farewell};
use super::policy::Identity;
use super::protocol::{self, Framing, RemoteSession};
use super::server::{Command, Outbox};
use super::visitor::{Line, SHORTEST_SILENCE_MS, Visitor};
use crate::datagram::{self, Session};
use crate::hosts::{HostKey, KnownHosts, SecureStream, Terms};
use crate::retransmit::{self, Agreement, Reliable};
use crate::seal::{Direction, SECRET_BYTES, SealKey, Suite};
use crate::transport::Transport;
use crate::udp::{self, UdpTransport};
use correspondence::Correspondence;

// Together below the ten seconds that a process waits for its agent.
const CONNECT_LIMIT: Duration = Duration::from_secs(2);
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(3);
const ANSWER_LIMIT: Duration = Duration::from_secs(4);
/// What our own process may take to accept; shorter than the asking side waits for it.
const ACCEPT_LIMIT: Duration = Duration::from_secs(3);

/// What we propose. The asked host takes it or leaves it.
fn framing() -> Framing {
    let number = |bytes| u32::try_from(bytes).expect("a packet, and some of them");
    Framing {
        longest_frame: number(datagram::DEFAULT_LONGEST_MESSAGE),
        longest_message: number(retransmit::LONGEST_MESSAGE),
        window: retransmit::WINDOW,
    }
}

/// Visitors whom we listen to at one time, known or not. Each is a thread for the time of a handshake.
const MOST_VISITORS: usize = 64;

/// The other hosts, and who we are among them.
#[derive(Debug)]
pub struct Hosts {
    /// What the others call us; for messages to people.
    pub name: String,
    /// By what we prove it.
    pub key: HostKey,
    /// By what the others prove who they are.
    pub known: KnownHosts,
    /// Where to listen for their agents. Frames use the same address, and ports that the system chooses.
    pub listen: SocketAddr,
    /// Where their agents listen.
    pub addresses: BTreeMap<String, SocketAddr>,
    /// Frames neither encrypted nor proved (agents still prove themselves to each other). Only for a network that is
    /// trusted wholly; all hosts must agree. The agent says so on its standard error when it starts.
    pub plain: bool,
    /// Interfaces whose first queue processes may take for a channel, past the kernel's protocols (AF_XDP): the first
    /// channel that asks has it until it ends, the others use UDP. Name only interfaces with one queue for incoming
    /// packets; what comes by another queue is not seen. The processes need the privileges for it, too.
    pub af_xdp: Vec<String>,
}

/// Who else comes through the door of an agent, besides processes' channels: agents with something else to say, and, while they are
/// let in, hosts that nobody knows.
pub trait Guests: Send + Sync + std::fmt::Debug {
    /// Whether a host that is not known may come in to say its first word.
    fn may_strangers_enter(&self) -> bool;

    /// One has come, and its first word was this, which is no question for a channel. On a thread of its own, for as long as it takes.
    fn receive(&self, stream: SecureStream, first: &[u8]);
}

/// What the first word of a guest begins with. A question begins with its version, which is no letter for long.
pub const GUEST: &[u8; 5] = b"hosts";

/// The first word between two agents.
#[derive(PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Ask {
    from: Identity,
    from_endpoint: String,
    to: String,
    wire_channel: ChannelId,
    udp_port: u16,
    framing: Framing,
    silence_limit_ms: u32,
    plain: bool,
    /// Whether the connection is to stay open as a line for news.
    stay: bool,
}

/// The second and last.
#[derive(PartialEq, Eq, Debug, Serialize, Deserialize)]
enum Answer {
    Opened { udp_port: u16 },
    Refused(String),
}

/// The agent's side of it: a listening socket and threads that report to the server.
#[derive(Debug)]
pub(super) struct Links {
    hosts: Arc<Hosts>,
    guests: Option<Arc<dyn Guests>>,
    outbox: Outbox,
    pub(super) listener: TcpListener,
    visitors: Arc<AtomicUsize>,
    correspondence: Correspondence,
}

impl Drop for Links {
    fn drop(&mut self) {
        self.correspondence.end();
    }
}

impl Links {
    pub(super) fn start(
        hosts: Hosts,
        guests: Option<Arc<dyn Guests>>,
        outbox: Outbox,
    ) -> Result<Self, std::io::Error> {
        let listener = TcpListener::bind(hosts.listen)?;
        listener.set_nonblocking(true)?;
        if hosts.plain {
            eprintln!(
                "comb: WARNING: host {} does not seal its channels (Hosts::plain): whoever is on its network can read, \
                 change and forge the messages of all channels to other hosts",
                hosts.name
            );
        }
        let (visitors, correspondence) = (Arc::default(), Correspondence::new());
        Ok(Self { hosts: Arc::new(hosts), guests, outbox, listener, visitors, correspondence })
    }

    /// From now on these are the others, and this is who we are. Channels that are open go on; lines with hosts that are no more
    /// among them end.
    pub(super) fn know(&mut self, key: HostKey, known: KnownHosts, addresses: BTreeMap<String, SocketAddr>) {
        let before: BTreeSet<&str> = self.hosts.known.iter().map(|(name, _)| name).collect();
        let gone = before.into_iter().filter(|host| known.keys_of(host).next().is_none());
        gone.for_each(|host| self.correspondence.forget(host));
        let Hosts { name, listen, plain, af_xdp, .. } = &*self.hosts;
        let (name, listen, plain, af_xdp) = (name.clone(), *listen, *plain, af_xdp.clone());
        self.hosts = Arc::new(Hosts { name, key, known, listen, addresses, plain, af_xdp });
    }

    /// Asks the other host; the outcome comes as a command.
    pub(super) fn depart(&self, departure: Departure) {
        let (hosts, outbox) = (Arc::clone(&self.hosts), self.outbox.clone());
        let channel = departure.channel;
        let correspondence = self.correspondence.clone();
        let work = move || {
            let stay = !correspondence.reaches(&departure.host);
            let (outcome, stream) = match ask(&hosts, &departure, stay) {
                Ok((line, stream)) => (Ok(line), Some(stream)),
                Err(reason) => (Err(format!("host {}: {reason}", departure.host)), None),
            };
            outbox.send(Command::Arrived { channel, outcome });
            match stream {
                Some(stream) if stay => correspondence.serve(stream, &outbox),
                // Its end is not of interest any more.
                Some(stream) => drop(stream.close()),
                None => {}
            }
        };
        if let Err(error) = std::thread::Builder::new().name("comb-ask".into()).spawn(work) {
            let outcome = Err(format!("no thread to ask the other host: {error}"));
            self.outbox.send(Command::Arrived { channel, outcome });
        }
    }

    /// Tells another host, now or when it is reached again.
    pub(super) fn tell(&self, farewell: Farewell) {
        self.correspondence.tell(farewell);
    }

    /// Lets everyone in who is at the door, and listens to each on a thread.
    pub(super) fn open_door(&self) {
        while let Ok((socket, _)) = self.listener.accept() {
            if self.visitors.fetch_add(1, Ordering::Relaxed) >= MOST_VISITORS {
                self.visitors.fetch_sub(1, Ordering::Relaxed);
                continue;
            }
            let (hosts, outbox) = (Arc::clone(&self.hosts), self.outbox.clone());
            let visitors = Arc::clone(&self.visitors);
            let correspondence = self.correspondence.clone();
            let guests = self.guests.clone();
            let work = move || {
                // A stranger, or one who hung up: that side knows why, and here nobody asked.
                let staying = receive_visitor(&hosts, guests.as_deref(), &outbox, socket).ok().flatten();
                visitors.fetch_sub(1, Ordering::Relaxed);
                match (staying, guests) {
                    (Some((stream, None)), _) => correspondence.serve(stream, &outbox),
                    (Some((stream, Some(first))), Some(guests)) => guests.receive(stream, &first),
                    _ => {}
                }
            };
            if std::thread::Builder::new().name("comb-visitor".into()).spawn(work).is_err() {
                self.visitors.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }
}

fn terms() -> Terms {
    Terms { handshake_limit: HANDSHAKE_LIMIT, ..Terms::default() }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn local_socket(ip: IpAddr) -> Result<(OwnedFd, u16), String> {
    let (socket, bound) =
        udp::bind(SocketAddr::new(ip, 0)).map_err(|error| format!("a UDP socket: {error}"))?;
    Ok((socket, bound.port()))
}

/// The opener's side.
fn ask(hosts: &Hosts, departure: &Departure, stay: bool) -> Result<(Line, SecureStream), String> {
    let Departure { channel, host, to, from, from_endpoint, silence_limit_ms } = departure;
    let address = hosts.addresses.get(host).ok_or("this agent knows no address for it")?;
    let socket = TcpStream::connect_timeout(address, CONNECT_LIMIT)
        .map_err(|error| format!("its agent does not answer on {address}: {error}"))?;
    let (here, there) = (socket.local_addr().map_err(text)?.ip(), socket.peer_addr().map_err(text)?.ip());
    let (line, udp_port) = local_socket(here)?;
    let mut stream = SecureStream::connect(socket, &hosts.key, &hosts.known, host, terms()).map_err(text)?;
    let question = Ask {
        from: from.clone(),
        from_endpoint: from_endpoint.clone(),
        to: to.clone(),
        wire_channel: *channel,
        udp_port,
        framing: framing(),
        silence_limit_ms: *silence_limit_ms,
        plain: hosts.plain,
        stay,
    };
    stream.send(&protocol::encode(&question).map_err(text)?).map_err(text)?;
    let answer = stream.receive(Some(ANSWER_LIMIT)).map_err(text)?.ok_or("it hung up without an answer")?;
    match protocol::decode(answer).map_err(text)? {
        Answer::Refused(reason) => Err(reason),
        Answer::Opened { udp_port } => {
            udp::connect(&line, SocketAddr::new(there, udp_port)).map_err(text)?;
            let session = session(&mut stream, &question, true, hosts.may_take_queue(here))?;
            Ok(((session, line), stream))
        }
    }
}

/// A session that is to stay; of a guest with its first word.
type Staying = Option<(SecureStream, Option<Vec<u8>>)>;

/// The accepter's side.
fn receive_visitor(
    hosts: &Hosts,
    guests: Option<&dyn Guests>,
    outbox: &Outbox,
    socket: TcpStream,
) -> Result<Staying, String> {
    // What the listener is, its children need not be.
    socket.set_nonblocking(false).map_err(text)?;
    let (here, there) = (socket.local_addr().map_err(text)?.ip(), socket.peer_addr().map_err(text)?.ip());
    let accept = match guests {
        Some(guests) if guests.may_strangers_enter() => SecureStream::accept_anybody,
        _ => SecureStream::accept,
    };
    let mut stream = accept(socket, &hosts.key, &hosts.known, terms()).map_err(text)?;
    let question = stream.receive(Some(HANDSHAKE_LIMIT)).map_err(text)?.ok_or("no question")?;
    if guests.is_some() && question.starts_with(GUEST) {
        let first = question.to_vec();
        return Ok(Some((stream, Some(first))));
    }
    let question = question.to_vec();
    if stream.peer().is_empty() {
        return Err("a stranger asks for a channel".into());
    }
    let question: Ask = protocol::decode(&question).map_err(text)?;
    let stay = question.stay;
    let answer = match admit(hosts, outbox, &mut stream, question, here, there) {
        Ok(udp_port) => Answer::Opened { udp_port },
        Err(reason) => Answer::Refused(reason),
    };
    stream.send(&protocol::encode(&answer).map_err(text)?).map_err(text)?;
    if stay && matches!(answer, Answer::Opened { .. }) {
        return Ok(Some((stream, None)));
    }
    // The other end hangs up, so that our answer is not lost in a reset.
    let _ = stream.receive(Some(ANSWER_LIMIT));
    Ok(None)
}

fn admit(
    hosts: &Hosts,
    outbox: &Outbox,
    stream: &mut SecureStream,
    question: Ask,
    here: IpAddr,
    there: IpAddr,
) -> Result<u16, String> {
    if question.plain != hosts.plain {
        let (plain, sealed) = if hosts.plain {
            (hosts.name.as_str(), stream.peer())
        } else {
            (stream.peer(), hosts.name.as_str())
        };
        return Err(format!(
            "{plain} does not seal its channels (Hosts::plain) and {sealed} does: both must do the same"
        ));
    }
    if question.silence_limit_ms < SHORTEST_SILENCE_MS {
        return Err(format!("a silence limit below {SHORTEST_SILENCE_MS} ms ends channels for nothing"));
    }
    let (line, udp_port) = local_socket(here)?;
    udp::connect(&line, SocketAddr::new(there, question.udp_port)).map_err(text)?;
    let session = session(stream, &question, false, hosts.may_take_queue(here))?;
    session.agreement().check(session.framing.longest_frame as usize).map_err(text)?;
    let (answer, verdict) = mpsc::channel();
    outbox.send(Command::Visit(Box::new(Visitor {
        host: stream.peer().to_owned(),
        from: question.from,
        from_endpoint: question.from_endpoint,
        to: question.to,
        line: (session, line),
        answer,
    })));
    match verdict.recv_timeout(ACCEPT_LIMIT) {
        Ok(verdict) => verdict.map(|()| udp_port),
        Err(_) => Err("the process there did not answer in time".into()),
    }
}

/// Both ends come to the same: from what was asked, and from the TLS session.
fn session(
    stream: &mut SecureStream,
    question: &Ask,
    connector: bool,
    af_xdp: bool,
) -> Result<RemoteSession, String> {
    let Ask { wire_channel, framing, silence_limit_ms, plain, .. } = *question;
    let (suite, [send_secret, receive_secret]) = if plain {
        (Suite::Plain, [[0; SECRET_BYTES]; 2])
    } else {
        let (send, receive) = stream.channel_keys(wire_channel).map_err(text)?;
        (stream.suite(), [*send.secret(), *receive.secret()])
    };
    Ok(RemoteSession {
        wire_channel,
        version: stream.version().0,
        suite: suite as u8,
        connector,
        send_secret,
        receive_secret,
        framing,
        af_xdp,
        silence_limit_ms,
    })
}

#[cfg(feature = "xdp")]
impl Hosts {
    fn may_take_queue(&self, local: IpAddr) -> bool {
        crate::xdp::interface_with(local).is_some_and(|interface| self.af_xdp.contains(&interface))
    }
}

#[cfg(not(feature = "xdp"))]
impl Hosts {
    fn may_take_queue(&self, _local: IpAddr) -> bool {
        false
    }
}

/// AF_XDP if it is allowed and can be had at once, else UDP. The two ends of a channel may differ.
fn transport(socket: OwnedFd, session: Session, fast: bool) -> Result<Box<dyn Transport>, rustix::io::Errno> {
    #[cfg(feature = "xdp")]
    if fast {
        return crate::xdp::fastest(socket, session);
    }
    let _ = fast;
    Ok(Box::new(UdpTransport::new(socket, session)?))
}

impl RemoteSession {
    /// For the process: the channel's own end.
    pub(crate) fn into_transport(self, socket: OwnedFd) -> Result<Box<dyn Transport>, String> {
        let agreement = self.agreement();
        let fast = self.af_xdp;
        let transport = transport(socket, self.into_session()?, fast)
            .map_err(|error| format!("the channel's socket: {error}"))?;
        Ok(Box::new(Reliable::agreed(transport, agreement).map_err(text)?))
    }

    fn agreement(&self) -> Agreement {
        let Framing { longest_message, window, .. } = self.framing;
        Agreement {
            window,
            longest_message: longest_message as usize,
            silence_limit: Duration::from_millis(self.silence_limit_ms.into()),
        }
    }

    fn into_session(self) -> Result<Session, String> {
        let suite = Suite::from_byte(self.suite).ok_or("the agent named a suite that we do not know")?;
        let (ours, theirs) = if self.connector {
            (Direction::FromConnector, Direction::FromAcceptor)
        } else {
            (Direction::FromAcceptor, Direction::FromConnector)
        };
        Ok(Session {
            channel: self.wire_channel,
            send: SealKey::new(suite, ours, self.send_secret),
            receive: SealKey::new(suite, theirs, self.receive_secret),
            version: Version(self.version),
            longest_message: self.framing.longest_frame as usize,
            silence_limit: Some(Duration::from_millis(self.silence_limit_ms.into())),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ask and answer of version 1 as they were recorded. A later version must still read them.
    const ASK_V1: &[u8] = b"\x01\x05alice\xd2\x09\xe8\x07\x04desk\x08bob/desk\x4d\xc0\xb8\x02\xf8\x0a\x80\x80\x04\x80\x01\x90\x4e\x00\x01";
    const OPENED_V1: &[u8] = b"\x01\x00\xd2\x09";
    const REFUSED_V1: &[u8] = b"\x01\x01\x02no";

    #[test]
    fn recorded_questions_and_answers_are_still_read() {
        let ask: Ask = protocol::decode(ASK_V1).unwrap();
        assert_eq!(protocol::encode(&ask).unwrap(), ASK_V1);
        let expected = Ask {
            from: Identity { name: "alice".into(), pid: 1234, uid: 1000 },
            from_endpoint: "desk".into(),
            to: "bob/desk".into(),
            wire_channel: ChannelId(77),
            udp_port: 40_000,
            framing: Framing { longest_frame: 1400, longest_message: 65_536, window: 128 },
            silence_limit_ms: 10_000,
            plain: false,
            stay: true,
        };
        assert_eq!(ask, expected);
        for (recorded, expected) in
            [(OPENED_V1, Answer::Opened { udp_port: 1234 }), (REFUSED_V1, Answer::Refused("no".into()))]
        {
            assert_eq!(protocol::decode::<Answer>(recorded).unwrap(), expected);
            assert_eq!(protocol::encode(&expected).unwrap(), recorded);
        }
    }
}
