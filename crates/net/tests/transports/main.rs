//! One suite over every transport: shared memory, UDP sealed and plain, AF_XDP, and a network that does harm by seed.

mod conformance;
mod garbage;
mod lossy;
#[cfg(feature = "xdp")]
mod namespaces;
#[cfg(feature = "xdp")]
mod xdp;

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use comb_net::datagram::Session;
use comb_net::lossy::{Faults, Lossy};
use comb_net::retransmit::Reliable;
use comb_net::seal::{Direction, SealKey, Suite};
use comb_net::udp::{self, UdpTransport};
use comb_net::{Geometry, pair_for_tests};
use comb_types::ChannelId;
use conformance::{Pair, conforms};

pub(crate) const CHANNEL: ChannelId = ChannelId(77);

/// Two sockets that are connected to each other over the loopback.
pub(crate) fn sockets() -> (OwnedFd, OwnedFd) {
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let (a, at_a) = udp::bind(any).unwrap();
    let (b, at_b) = udp::bind(any).unwrap();
    udp::connect(&a, at_b).unwrap();
    udp::connect(&b, at_a).unwrap();
    (a, b)
}

/// One end's session; keys as a handshake would have derived them.
pub(crate) fn session(suite: Suite, direction: Direction) -> Session {
    let key = |direction| SealKey::new(suite, direction, [direction as u8 + 1; 32]);
    let other = match direction {
        Direction::FromConnector => Direction::FromAcceptor,
        Direction::FromAcceptor => Direction::FromConnector,
    };
    Session::new(CHANNEL, key(direction), key(other))
}

fn udp_pair(suite: Suite) -> (UdpTransport, UdpTransport) {
    let (a, b) = sockets();
    let end = |socket, direction| UdpTransport::new(socket, session(suite, direction)).unwrap();
    (end(a, Direction::FromConnector), end(b, Direction::FromAcceptor))
}

#[test]
fn shared_memory() {
    conforms("shared memory", || {
        let (a, b) = pair_for_tests(Geometry::default());
        Pair::new(a, b)
    });
}

#[test]
fn udp_sealed() {
    for suite in [Suite::Aes256Gcm, Suite::ChaCha20Poly1305] {
        conforms(&format!("{suite:?}"), || {
            let (a, b) = udp_pair(suite);
            Pair::new(a, b)
        });
    }
}

#[test]
fn udp_plain() {
    conforms("plain", || {
        let (a, b) = udp_pair(Suite::Plain);
        Pair::new(a, b)
    });
}

#[test]
fn reliable_over_udp() {
    conforms("reliable over UDP", || {
        let (a, b) = udp_pair(Suite::Aes256Gcm);
        Pair::new(Reliable::over(Box::new(a)), Reliable::over(Box::new(b)))
    });
}

#[test]
fn udp_up_to_the_longest_datagram() {
    let (a, b) = sockets();
    let long = |direction| Session { longest_message: usize::MAX, ..session(Suite::Aes256Gcm, direction) };
    let mut sender = UdpTransport::new(a, long(Direction::FromConnector)).unwrap();
    let mut receiver = UdpTransport::new(b, long(Direction::FromAcceptor)).unwrap();
    use comb_net::transport::Transport;
    assert_eq!(sender.capabilities().longest_message, 65_507 - 32);
    let message = vec![5; 65_507 - 32];
    sender.send(1, &[&message]).unwrap();
    assert_eq!(conformance::next(&mut receiver), (1, message));
}

#[test]
fn a_network_without_harm() {
    conforms("lossy without loss", || {
        let (a, b) = pair_for_tests(Geometry::default());
        Pair::new(Lossy::new(a, Faults::NONE, 1), Lossy::new(b, Faults::NONE, 2))
    });
    conforms("lossy without loss over UDP", || {
        let (a, b) = udp_pair(Suite::Aes256Gcm);
        Pair::new(Lossy::new(a, Faults::NONE, 1), Lossy::new(b, Faults::NONE, 2))
    });
}
