//! Harm by seed, and what makes it good.

use std::time::{Duration, Instant};

use comb_net::lossy::{Faults, Harm, Lossy};
use comb_net::reliable::{Config, GoBackN, Input, SendError};
use comb_net::retransmit::{LONGEST_MESSAGE, Reliable};
use comb_net::seal::Suite;
use comb_net::transport::Transport;
use comb_net::{Geometry, InProcess, Payload, pair_for_tests};
use comb_types::Time;

use crate::conformance::SOON;
use crate::udp_pair;

const BAD: Faults = Faults {
    lost_per_mille: 100,
    doubled_per_mille: 50,
    delayed_per_mille: 100,
    reordered_per_mille: 50,
    longest_delay: 40,
};

type Wire = Lossy<Box<dyn Transport>>;

fn wires(faults: Faults, seed: u64) -> (Wire, Wire) {
    let (a, b) = pair_for_tests(Geometry { slots: 256, payload_bytes: 64 << 10 });
    (Lossy::new(a, faults, seed), Lossy::new(b, faults, !seed))
}

/// One end of a reliable channel over a bad network, with messages numbered as they should arrive.
struct End {
    wire: Wire,
    channel: GoBackN,
    frame: Vec<u8>,
    sent: u32,
    delivered: u32,
}

impl End {
    fn new(wire: Wire) -> Self {
        let channel = GoBackN::new(Config { window: 16, longest_message_bytes: 64, ..Config::default() });
        let frame = vec![0; channel.longest_frame()];
        Self { wire, channel, frame, sent: 0, delivered: 0 }
    }

    fn step(&mut self, now: Time, messages: u32) {
        while self.sent < messages {
            let padding = [0; 40];
            match self.channel.send(&[&self.sent.to_le_bytes(), &padding[..self.sent as usize % 40]]) {
                Ok(()) => self.sent += 1,
                Err(SendError::WindowFull) => break,
                Err(error) => panic!("{error}"),
            }
        }
        let (channel, delivered) = (&mut self.channel, &mut self.delivered);
        while self
            .wire
            .receive(&mut |_, frame| {
                let frame = frame.to_vec();
                let message = channel.handle(now, Input::Frame { bytes: &frame, room: true });
                if let Some(message) = message.expect("only the network misbehaves") {
                    let number = u32::from_le_bytes(message[..4].try_into().unwrap());
                    assert_eq!(number, *delivered, "each once and in order");
                    assert_eq!(message.len(), 4 + number as usize % 40);
                    *delivered += 1;
                }
            })
            .unwrap()
        {}
        if self.channel.next_timeout().is_some_and(|due| due <= now) {
            self.channel.handle(now, Input::Timeout).unwrap();
        }
        while let Some(bytes) = self.channel.poll_transmit(now, &mut self.frame) {
            // Refused for want of room is one more way of getting lost.
            let _ = self.wire.send(0, &[&self.frame[..bytes]]);
        }
        while self.channel.poll_event().is_some() {}
    }
}

fn run(seed: u64, messages: u32) -> (Harm, Harm, u64) {
    let (a, b) = wires(BAD, seed);
    let (mut a, mut b) = (End::new(a), End::new(b));
    let mut now = Time::ZERO;
    let mut steps = 0;
    while a.delivered < messages || b.delivered < messages {
        a.step(now, messages);
        b.step(now, messages);
        now = now.saturating_add(Duration::from_micros(20));
        steps += 1;
        assert!(steps < 1_000_000, "seed {seed} got stuck at {} and {}", a.delivered, b.delivered);
    }
    (a.wire.harm(), b.wire.harm(), steps)
}

#[test]
fn go_back_n_makes_every_harm_good() {
    let mut all = Harm::default();
    for seed in 0..300 {
        let (harm, _, _) = run(seed, 150);
        all.lost += harm.lost;
        all.doubled += harm.doubled;
        all.delayed += harm.delayed;
        all.reordered += harm.reordered;
    }
    let Harm { lost, doubled, delayed, reordered } = all;
    assert!(lost > 1000 && doubled > 500 && delayed > 1000 && reordered > 500, "it was tried: {all:?}");
}

/// Lengths from nothing to the longest, so that most messages travel in pieces. `None`: no more.
fn long_message(number: u64, seed: u64) -> Option<Vec<u8>> {
    let bytes = match (number * 7 + seed) % 5 {
        0 => number,
        1 => 1300 + number * 11 % 200,
        2 => LONGEST_MESSAGE as u64 - number,
        _ => number * 997 % 9000,
    };
    let filler = u8::try_from((number + seed) % 251).unwrap();
    (number < 40).then(|| vec![filler; usize::try_from(bytes).unwrap()])
}

/// What channels between hosts are, on a network that does everything wrong: long messages and a farewell.
#[test]
fn long_messages_and_the_close_behind_them_survive_every_harm() {
    for seed in 0..20 {
        let (a, b) = udp_pair(Suite::Plain);
        let mut a = Reliable::over(Box::new(Lossy::new(a, BAD, seed)));
        let mut b = Reliable::over(Box::new(Lossy::new(b, BAD, !seed)));
        assert_eq!(a.capabilities().longest_message, LONGEST_MESSAGE);
        let (mut sent, mut arrived) = (0, 0);
        let mut closed = false;
        let started = Instant::now();
        while !b.peer_closed() {
            assert!(started.elapsed() < SOON, "seed {seed} got stuck at {arrived} of {sent}");
            match long_message(sent, seed) {
                Some(message) => sent += u64::from(a.send(7, &[&message]).is_ok()),
                None if !closed => {
                    closed = true;
                    a.close();
                }
                None => drop(a.settle()),
            }
            let mut take = |kind, payload: Payload<'_>| {
                let due = long_message(arrived, seed).expect("no more were sent");
                assert_eq!((kind, payload.len()), (7, due.len()), "seed {seed}: message {arrived}");
                assert!(payload.to_vec() == due, "seed {seed}: message {arrived}");
                arrived += 1;
            };
            while b.receive(&mut take).unwrap() {}
        }
        assert_eq!((sent, arrived), (40, 40), "seed {seed}");
        assert!(a.settle());
    }
}

/// Whoever closes has no more interest in the channel, and the network has lost some of what was said. The process's
/// watcher says it again, even if the whole endpoint or the process's agent is dropped.
#[test]
fn what_was_said_before_a_close_arrives_though_nobody_polls_any_more() {
    for (seed, drop_all) in (0..5).flat_map(|seed| [(seed, false), (seed, true)]) {
        let agent = InProcess::start();
        let mut alice = agent.connect("alice").unwrap().endpoint("desk").unwrap();
        let mut bob = agent.connect("bob").unwrap().endpoint("desk").unwrap();
        let (a, b) = udp_pair(Suite::Plain);
        let faults = Faults { lost_per_mille: 200, ..Faults::NONE };
        let end = |wire, seed| Box::new(Reliable::over(Box::new(Lossy::new(wire, faults, seed))));
        let to_bob = alice.attach("bob", end(a, seed)).unwrap();
        bob.attach("alice", end(b, !seed)).unwrap();
        for number in 0..8 {
            alice.send(to_bob, 1, &[number; 2000]).unwrap();
        }
        // On a thread of its own: who drops the last endpoint waits for the watcher, and that for Bob.
        let closing = std::thread::spawn(move || {
            if drop_all {
                drop(alice);
                return None;
            }
            alice.close(to_bob);
            Some(alice)
        });
        let mut buffer = [0; 2000];
        for number in 0..8 {
            let got = bob.receive_within(&mut buffer, SOON).unwrap();
            assert!(got.is_some() && buffer == [number; 2000], "seed {seed}: message {number} is lost");
        }
        assert!(bob.receive_within(&mut buffer, SOON).is_err(), "seed {seed}: then he is told");
        closing.join().unwrap();
    }
}

#[test]
fn the_same_seed_does_the_same_harm_and_another_does_not() {
    assert_eq!(run(7, 300), run(7, 300));
    assert_ne!(run(7, 300), run(8, 300));
}

#[test]
fn harm_is_in_proportion() {
    let faults = Faults { lost_per_mille: 250, ..Faults::NONE };
    let (mut a, mut b) = wires(faults, 3);
    let mut arrived = 0;
    for _ in 0..10_000 {
        a.send(0, &[b"x"]).unwrap();
        while b.receive(&mut |_, _| arrived += 1).unwrap() {}
    }
    assert_eq!(a.harm().lost + arrived, 10_000);
    assert!((2300..2700).contains(&a.harm().lost), "{:?}", a.harm());
    assert!(a.capabilities().can_lose);
}
