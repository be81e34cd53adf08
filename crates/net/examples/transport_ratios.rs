//! What the transports cost, as ratios within one run: round trips of 32 bytes, both ends spinning on a core each.
//!
//! ```text
//! cargo run --release -p comb-net --example transport_ratios                over the loopback
//! cargo run --release -p comb-net --example transport_ratios -- veth        AF_XDP as well, over a virtual cable (root)
//! ```
//!
//! All ways take turns in short blocks, so that what else the machine does hits all of them alike. Every round trip is
//! timed. Shown are the median and the fastest tenth: on a busy machine the latter is nearer to the truth.

use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use comb_net::datagram::Session;
use comb_net::seal::{Direction, SealKey, Suite};
use comb_net::transport::Transport;
use comb_net::udp::{self, UdpTransport};
use comb_types::ChannelId;

const BLOCKS: usize = 240;
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

    /// Microseconds, at a tenth and at half of all round trips.
    fn quantiles(&mut self) -> [f64; 2] {
        self.taken.sort();
        [self.taken.len() / 10, self.taken.len() / 2].map(|at| self.taken[at].as_secs_f64() * 1e6)
    }
}

fn main() {
    let mut ways = match std::env::args().nth(1).as_deref() {
        None => loopback(),
        Some("veth") => veth::ways(),
        Some(other) => {
            eprintln!("{other:?}: say veth, or nothing");
            std::process::exit(2);
        }
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
    let first = ways[0].quantiles();
    println!("{:<24} {:>21} {:>21}", "", "fastest tenth", "median");
    for way in &mut ways {
        let [tenth, half] = way.quantiles();
        println!(
            "{:<24} {tenth:8.2} µs   {:5.2} ×   {half:8.2} µs   {:5.2} ×",
            way.name,
            tenth / first[0],
            half / first[1]
        );
    }
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
        raw("raw UDP, spinning", pair()),
        over_udp("UDP plain", pair(), Suite::Plain),
        over_udp("UDP AES-256-GCM", pair(), Suite::Aes256Gcm),
        over_udp("UDP ChaCha20-Poly1305", pair(), Suite::ChaCha20Poly1305),
    ]
}

fn over_udp(name: &'static str, [a, b]: [OwnedFd; 2], suite: Suite) -> Way {
    let end = |socket, end: usize| UdpTransport::new(socket, session(suite, end)).expect("a session");
    transports(name, end(a, 0), end(b, 1))
}

fn session(suite: Suite, end: usize) -> Session {
    let key = |end: usize| SealKey::new(suite, DIRECTIONS[end], [DIRECTIONS[end] as u8 + 1; 32]);
    Session::new(ChannelId(1), key(end), key(1 - end))
}

/// Bare system calls on connected sockets: what there is to be had.
fn raw(name: &'static str, [a, b]: [OwnedFd; 2]) -> Way {
    Way::new(name, move || {
        let echo_socket = b.try_clone().expect("a descriptor");
        let echo = std::thread::spawn(move || {
            pin(1);
            let mut buffer = [0; 2048];
            loop {
                let came = receive_raw(&echo_socket, &mut buffer);
                if buffer[0] == STOP {
                    break;
                }
                send_raw(&echo_socket, &buffer[..came]);
            }
        });
        pin(0);
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

#[expect(unsafe_code, reason = "the opponent is the bare system call, through nothing of ours")]
fn send_raw(socket: &OwnedFd, bytes: &[u8]) {
    // SAFETY: the kernel reads `bytes.len()` bytes from `bytes` and keeps nothing.
    unsafe { libc::send(socket.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), libc::MSG_DONTWAIT) };
}

#[expect(unsafe_code, reason = "the opponent is the bare system call, through nothing of ours")]
fn receive_raw(socket: &OwnedFd, into: &mut [u8]) -> usize {
    loop {
        // SAFETY: the kernel writes at most `into.len()` bytes to `into`.
        let came = unsafe {
            libc::recv(socket.as_raw_fd(), into.as_mut_ptr().cast(), into.len(), libc::MSG_DONTWAIT)
        };
        if let Ok(came) = usize::try_from(came) {
            return came;
        }
        std::hint::spin_loop();
    }
}

fn transports(name: &'static str, mut a: impl Transport + 'static, b: impl Transport + 'static) -> Way {
    let mut b = Some(Box::new(b));
    Way::new(name, move || {
        let mut end = b.take().expect("it came back from the last block");
        let echo = std::thread::spawn(move || {
            pin(1);
            let mut buffer = [0; 2048];
            loop {
                let (kind, came) = receive(&mut *end, &mut buffer);
                if kind == STOP {
                    return end;
                }
                end.send(kind, &[&buffer[..came]]).expect("room");
            }
        });
        pin(0);
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

fn timed(mut round: impl FnMut()) -> Vec<Duration> {
    let one = |_| {
        let started = Instant::now();
        round();
        started.elapsed()
    };
    (0..ROUNDS).map(one).collect()
}

fn pin(core: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(core);
    // Where there is one core only, the numbers mean little anyway.
    let _ = rustix::thread::sched_setaffinity(None, &set);
}

#[cfg(feature = "xdp")]
#[path = "../tests/transports/namespaces.rs"]
mod namespaces;

#[cfg(not(feature = "xdp"))]
mod veth {
    pub(crate) fn ways() -> Vec<super::Way> {
        eprintln!("built without the feature xdp");
        std::process::exit(2);
    }
}

#[cfg(feature = "xdp")]
mod veth {
    use comb_net::xdp::{XdpTransport, XdpWire};

    use super::namespaces::{ADDRESSES, Namespaces};
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

    pub(crate) fn ways() -> Vec<Way> {
        let place = Namespaces::make().unwrap_or_else(|reason| {
            eprintln!("{reason}");
            std::process::exit(2);
        });
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
        vec![
            raw("raw UDP, spinning", pair(&place)),
            over_udp("UDP plain", pair(&place), Suite::Plain),
            over_udp("UDP AES-256-GCM", pair(&place), Suite::Aes256Gcm),
            transports("AF_XDP plain", a, b),
            transports("AF_XDP AES-256-GCM", c, d),
        ]
    }
}
