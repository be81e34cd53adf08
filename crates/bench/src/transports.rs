//! What the transports between hosts cost: round trips of 32 bytes, both ends spinning on a core each, over the loopback
//! and, where namespaces are allowed, over a virtual cable (veth), AF_XDP as well.
//!
//! All ways take turns in short blocks, so that what else the machine does hits all of them alike. Every round trip is
//! timed.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Barrier};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use comb_net::datagram::Session;
use comb_net::retransmit::Reliable;
use comb_net::seal::{Direction, SealKey, Suite};
use comb_net::transport::Transport;
use comb_net::udp::{self, UdpTransport};
use comb_types::ChannelId;
use rustix::net::{RecvFlags, SendFlags};
use serde_json::{Value, json};

use crate::side::pin;

const BLOCKS: usize = 40;
const ROUNDS: u32 = 100;
const MESSAGE: [u8; 32] = [7; 32];
/// Ends the echo.
const STOP: u8 = 0xff;
const DIRECTIONS: [Direction; 2] = [Direction::FromConnector, Direction::FromAcceptor];

/// One way of making round trips: a block of them, each timed.
struct Way {
    name: &'static str,
    block: Box<dyn FnMut() -> Vec<Duration>>,
    taken: Vec<Duration>,
}

impl Way {
    fn new(name: &'static str, block: impl FnMut() -> Vec<Duration> + 'static) -> Self {
        Self { name, block: Box::new(block), taken: Vec::new() }
    }

    /// Nanoseconds, at a tenth and at half of all round trips.
    fn quantiles(&mut self) -> [f64; 2] {
        self.taken.sort();
        [self.taken.len() / 10, self.taken.len() / 2].map(|at| self.taken[at].as_secs_f64() * 1e9)
    }
}

/// A JSON line a way; what cannot be measured here is said to be missing.
pub(crate) fn run(over: &str) -> Vec<Value> {
    let mut ways = match over {
        "loopback" => loopback(),
        _ => match veth::ways() {
            Ok(ways) => ways,
            Err(reason) => return vec![json!({"peer": over, "missing": reason})],
        },
    };
    for way in &mut ways {
        (way.block)();
    }
    for _ in 0..BLOCKS {
        for way in &mut ways {
            let taken = (way.block)();
            way.taken.extend(taken);
        }
    }
    let measured: Vec<(&str, [f64; 2])> = ways.iter_mut().map(|way| (way.name, way.quantiles())).collect();
    let median = |name: &str| measured.iter().find(|way| way.0 == name).map(|way| way.1[1]);
    measured
        .iter()
        .map(|(name, [p10, half])| {
            // What it stands on, of this very run: the placement of the cores changes between runs.
            let under = match *name {
                "xdp" => median("udp"),
                "xdp_aes" => median("udp_aes"),
                _ => median("raw"),
            };
            json!({"peer": over, "test": name, "bytes": 32, "median_ns": half, "p10_ns": p10, "beside": under})
        })
        .collect()
}

fn loopback() -> Vec<Way> {
    let pair = || {
        let any: SocketAddr = "127.0.0.1:0".parse().expect("an address");
        let ((a, at_a), (b, at_b)) = (udp::bind(any).expect("a socket"), udp::bind(any).expect("a socket"));
        udp::connect(&a, at_b).expect("loopback");
        udp::connect(&b, at_a).expect("loopback");
        [a, b]
    };
    vec![
        raw("raw", pair()),
        over_udp("udp", pair(), Suite::Plain),
        over_udp("udp_aes", pair(), Suite::Aes256Gcm),
        over_udp("udp_chacha", pair(), Suite::ChaCha20Poly1305),
        reliable_udp("udp_reliable", pair(), Suite::Aes256Gcm),
    ]
}

fn over_udp(name: &'static str, sockets: [OwnedFd; 2], suite: Suite) -> Way {
    let [a, b] = udp_ends(sockets, suite);
    transports(name, a, b)
}

/// What a channel between hosts is: it repeats what the network loses.
fn reliable_udp(name: &'static str, sockets: [OwnedFd; 2], suite: Suite) -> Way {
    let [a, b] = udp_ends(sockets, suite).map(|end| Reliable::over(Box::new(end)));
    transports(name, a, b)
}

fn udp_ends([a, b]: [OwnedFd; 2], suite: Suite) -> [UdpTransport; 2] {
    let end = |socket, end: usize| UdpTransport::new(socket, session(suite, end)).expect("a session");
    [end(a, 0), end(b, 1)]
}

fn session(suite: Suite, end: usize) -> Session {
    let key = |end: usize| SealKey::new(suite, DIRECTIONS[end], [DIRECTIONS[end] as u8 + 1; 32]);
    Session::new(ChannelId(1), key(end), key(1 - end))
}

/// Bare system calls on connected sockets: what there is to be had.
fn raw(name: &'static str, [a, b]: [OwnedFd; 2]) -> Way {
    Way::new(name, move || {
        let echo_socket = b.try_clone().expect("a descriptor");
        let echo = on_the_other_core(move || {
            let mut buffer = [0; 2048];
            loop {
                let came = receive_raw(&echo_socket, &mut buffer);
                if buffer[0] == STOP {
                    break;
                }
                send_raw(&echo_socket, &buffer[..came]);
            }
        });
        let mut buffer = [0; 2048];
        let taken = timed(|| {
            send_raw(&a, &MESSAGE);
            receive_raw(&a, &mut buffer);
        });
        send_raw(&a, &[STOP]);
        echo.join().expect("the echo");
        taken
    })
}

fn send_raw(socket: &OwnedFd, bytes: &[u8]) {
    let _ = rustix::net::send(socket, bytes, SendFlags::DONTWAIT);
}

fn receive_raw(socket: &OwnedFd, into: &mut [u8]) -> usize {
    loop {
        if let Ok((came, _)) = rustix::net::recv(socket, &mut *into, RecvFlags::DONTWAIT) {
            return came;
        }
        std::hint::spin_loop();
    }
}

fn transports(name: &'static str, mut a: impl Transport + 'static, b: impl Transport + 'static) -> Way {
    let mut b = Some(Box::new(b));
    Way::new(name, move || {
        let mut end = b.take().expect("it came back from the last block");
        let echo = on_the_other_core(move || {
            let mut buffer = [0; 2048];
            loop {
                let (kind, came) = receive(&mut *end, &mut buffer);
                if kind == STOP {
                    return end;
                }
                end.send(kind, &[&buffer[..came]]).expect("room");
            }
        });
        let mut buffer = [0; 2048];
        let taken = timed(|| {
            a.send(1, &[&MESSAGE]).expect("room");
            receive(&mut a, &mut buffer);
        });
        a.send(STOP, &[]).expect("room");
        b = Some(echo.join().expect("the echo"));
        taken
    })
}

fn receive(end: &mut impl Transport, into: &mut [u8]) -> (u8, usize) {
    let mut got = None;
    loop {
        let came = end.receive(&mut |kind, payload| {
            payload.copy_to(&mut into[..payload.len()]);
            got = Some((kind, payload.len()));
        });
        came.expect("a good peer");
        if let Some(got) = got {
            return got;
        }
        std::hint::spin_loop();
    }
}

/// Runs `echo` on the other core, and returns when both threads are on theirs. They wait for that asleep: at real-time
/// priority one that spins would keep the other from ever leaving its core.
fn on_the_other_core<T: Send + 'static>(echo: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    let meeting = Arc::new(Barrier::new(2));
    let ready = Arc::clone(&meeting);
    let thread = std::thread::spawn(move || {
        // Where there is one core only, the numbers mean little anyway.
        let _ = pin(1);
        ready.wait();
        echo()
    });
    meeting.wait();
    let _ = pin(0);
    thread
}

fn timed(mut round: impl FnMut()) -> Vec<Duration> {
    let one = |_| {
        let started = Instant::now();
        round();
        started.elapsed()
    };
    (0..ROUNDS).map(one).collect()
}

mod veth {
    use comb_net::xdp::{XdpTransport, XdpWire};

    use crate::namespaces::{ADDRESSES, Namespaces};

    use super::{OwnedFd, SocketAddr, Suite, Way, over_udp, raw, session, transports, udp};

    /// Two connected sockets, one at each end of the cable.
    fn pair(place: &Namespaces) -> [OwnedFd; 2] {
        let bind = |end: usize| {
            let local: SocketAddr = format!("{}:0", ADDRESSES[end]).parse().expect("an address");
            place.within(end, || udp::bind(local).expect("a socket"))
        };
        let ((a, at_a), (b, at_b)) = (bind(0), bind(1));
        udp::connect(&a, at_b).expect("the cable");
        udp::connect(&b, at_a).expect("the cable");
        [a, b]
    }

    pub(crate) fn ways() -> Result<Vec<Way>, String> {
        let place = Namespaces::make()?;
        // AF_XDP's program changes the way of all packets on the cable, so it has one of its own.
        let other = Namespaces::make().expect("one was made before");
        let xdp_pair = |suite: Suite, place: &Namespaces| {
            let [a, b] = pair(place);
            let end = |socket, end: usize| {
                let wire = place.within(end, || XdpWire::open(&socket).expect("AF_XDP"));
                XdpTransport::new(wire, session(suite, end))
            };
            (end(a, 0), end(b, 1))
        };
        let (a, b) = xdp_pair(Suite::Plain, &other);
        let third = Namespaces::make().expect("one was made before");
        let (c, d) = xdp_pair(Suite::Aes256Gcm, &third);
        // The namespaces live as long as the sockets in them.
        Ok(vec![
            raw("raw", pair(&place)),
            over_udp("udp", pair(&place), Suite::Plain),
            over_udp("udp_aes", pair(&place), Suite::Aes256Gcm),
            transports("xdp", a, b),
            transports("xdp_aes", c, d),
        ])
    }
}
