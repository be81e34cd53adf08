//! What does not prove itself is counted, dropped, and does no harm to what comes behind it.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use comb_net::Cause;
use comb_net::datagram::{DEFAULT_LONGEST_MESSAGE, Session};
use comb_net::seal::{Direction, HEADER_BYTES, SealKey, Sealer, Suite};
use comb_net::transport::Transport;
use comb_net::udp::UdpTransport;
use comb_types::{ChannelId, Version};

use crate::conformance::{SOON, next, within};
use crate::{CHANNEL, session, sockets};

const SUITES: [Suite; 3] = [Suite::Plain, Suite::Aes256Gcm, Suite::ChaCha20Poly1305];

/// An end under attack, and the socket that its frames come from.
fn victim(suite: Suite) -> (OwnedFd, UdpTransport, Sealer) {
    let (attacker, socket) = sockets();
    let end = UdpTransport::new(socket, session(suite, Direction::FromAcceptor)).unwrap();
    (attacker, end, sealer(suite, CHANNEL, Version::CURRENT))
}

fn sealer(suite: Suite, channel: ChannelId, version: Version) -> Sealer {
    Sealer::new(SealKey::new(suite, Direction::FromConnector, [1; 32]), channel, version)
}

fn sealed(sealer: &mut Sealer, message: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; 70_000];
    let bytes = sealer.seal(1, 0, &[message], &mut frame).unwrap();
    frame.truncate(bytes);
    frame
}

fn throw(socket: &OwnedFd, frame: &[u8]) {
    rustix::net::send(socket, frame, rustix::net::SendFlags::empty()).unwrap();
}

fn drops(end: &mut UdpTransport, frames: u64) {
    let started = Instant::now();
    while end.counters().dropped < frames {
        assert_eq!(within(end, Duration::ZERO), None, "it must not be delivered");
        assert!(started.elapsed() < SOON, "dropped only {} of {frames}", end.counters().dropped);
    }
    assert_eq!(end.counters().dropped, frames);
}

#[test]
fn every_kind_of_garbage_is_counted_and_dropped() {
    for suite in SUITES {
        let (attacker, mut end, mut peer) = victim(suite);
        let genuine = sealed(&mut peer, b"genuine");
        throw(&attacker, &genuine);
        assert_eq!(next(&mut end), (1, b"genuine".to_vec()));

        throw(&attacker, &genuine);
        throw(&attacker, &[]);
        throw(&attacker, &genuine[..HEADER_BYTES - 1]);
        drops(&mut end, 3);
        let dropped = end.dropped();
        assert_eq!((dropped.replayed, dropped.truncated), (1, 2), "{suite:?}");

        throw(&attacker, &sealed(&mut peer, &[0; DEFAULT_LONGEST_MESSAGE + 1]));
        throw(&attacker, &sealed(&mut peer, &[0; 60_000]));
        throw(&attacker, &sealed(&mut sealer(suite, ChannelId(78), Version::CURRENT), b"of another"));
        throw(&attacker, &sealed(&mut sealer(suite, CHANNEL, Version(3)), b"of another version"));
        throw(&attacker, &sealed(&mut sealer(suite, CHANNEL, Version(0)), b"of no version"));
        drops(&mut end, 8);
        let dropped = end.dropped();
        assert_eq!((dropped.oversized, dropped.unknown_channel, dropped.version), (2, 1, 2), "{suite:?}");

        if suite != Suite::Plain {
            let good = sealed(&mut peer, b"flip one bit anywhere");
            for place in (0..good.len()).filter(|place| *place != 0 && !(4..8).contains(place)) {
                let mut bad = good.clone();
                bad[place] ^= 4;
                throw(&attacker, &bad);
                let before = end.counters().dropped;
                drops(&mut end, before + 1);
            }
        }
        throw(&attacker, &sealed(&mut peer, b"and the next"));
        assert_eq!(next(&mut end), (1, b"and the next".to_vec()), "{suite:?}");
        assert!(!end.peer_closed());
    }
}

#[test]
fn a_close_cannot_be_forged() {
    let (attacker, mut end, _) = victim(Suite::Aes256Gcm);
    let mut stranger = Sealer::new(
        SealKey::new(Suite::Aes256Gcm, Direction::FromConnector, [9; 32]),
        CHANNEL,
        Version::CURRENT,
    );
    let mut frame = [0; 64];
    let bytes = stranger.seal(0, 1, &[], &mut frame).unwrap();
    throw(&attacker, &frame[..bytes]);
    drops(&mut end, 1);
    assert!(!end.peer_closed());
}

#[test]
fn a_flood_of_garbage_does_not_hold_the_endpoint() {
    let (attacker, mut end, mut peer) = victim(Suite::Aes256Gcm);
    for _ in 0..200 {
        throw(&attacker, &[7; 100]);
    }
    throw(&attacker, &sealed(&mut peer, b"behind it"));
    assert!(end.is_idle(), "one look takes a bounded part of the flood");
    assert!(end.counters().dropped < 200);
    assert_eq!(next(&mut end), (1, b"behind it".to_vec()));
    assert_eq!(end.counters().dropped, 200);
}

#[test]
fn a_peer_that_vanished_is_found_by_its_silence_and_one_that_idles_is_not() {
    let limit = Duration::from_millis(200);
    let (a, b) = sockets();
    let end = |socket, direction| {
        let session = Session { silence_limit: Some(limit), ..session(Suite::Aes256Gcm, direction) };
        UdpTransport::new(socket, session).unwrap()
    };
    let (mut a, mut b) = (end(a, Direction::FromConnector), end(b, Direction::FromAcceptor));
    let started = Instant::now();
    while started.elapsed() < limit * 3 {
        assert!(a.is_idle() && b.is_idle());
        assert!(!a.peer_closed() && !b.peer_closed(), "heartbeats keep an idle channel");
    }
    // As by a crash: nothing is said.
    drop(b);
    let vanished = Instant::now();
    while !a.peer_closed() {
        a.is_idle();
        assert!(vanished.elapsed() < SOON);
    }
    assert!(vanished.elapsed() > limit / 2);
    assert_eq!(a.cause(), Some(Cause::Silent(limit)));
}
