//! What every transport keeps, whatever carries it. One list of cases; each backend runs all of them.

use std::any::Any;
use std::time::{Duration, Instant};

use comb_net::transport::{SendError, Transport};

pub(crate) const SOON: Duration = Duration::from_secs(10);

/// Two connected ends, and what must live as long as they do.
pub(crate) struct Pair {
    pub(crate) a: Box<dyn Transport>,
    pub(crate) b: Box<dyn Transport>,
    pub(crate) keep: Box<dyn Any>,
}

impl Pair {
    pub(crate) fn new(a: impl Transport + 'static, b: impl Transport + 'static) -> Self {
        Self { a: Box::new(a), b: Box::new(b), keep: Box::new(()) }
    }
}

/// Runs every case on a new pair.
pub(crate) fn conforms(backend: &str, mut make: impl FnMut() -> Pair) {
    for (name, case) in CASES {
        println!("{backend}: {name}");
        case(make());
    }
}

type Case = (&'static str, fn(Pair));

const CASES: &[Case] = &[
    ("lengths and order", lengths_and_order),
    ("the limit holds to the byte", the_limit_holds_to_the_byte),
    ("parts are gathered", parts_are_gathered),
    ("idle is said only of the idle", idle_is_said_only_of_the_idle),
    ("a reader that does not read", a_reader_that_does_not_read),
    ("a close is seen behind the last message", a_close_is_seen_behind_the_last_message),
    ("counters", counters),
    ("two threads", two_threads),
];

/// The next message, however long it takes within reason.
pub(crate) fn next(transport: &mut dyn Transport) -> (u8, Vec<u8>) {
    within(transport, SOON).expect("a message was sent")
}

pub(crate) fn within(transport: &mut dyn Transport, limit: Duration) -> Option<(u8, Vec<u8>)> {
    let started = Instant::now();
    let mut got = None;
    while !transport.receive(&mut |kind, payload| got = Some((kind, payload.to_vec()))).unwrap() {
        if started.elapsed() > limit {
            return None;
        }
        // The other end may need this core.
        std::thread::yield_now();
    }
    got
}

fn pattern(bytes: usize, salt: usize) -> Vec<u8> {
    (0..bytes).map(|i| u8::try_from((i * 31 + i / 251 + salt) % 256).unwrap()).collect()
}

fn lengths_and_order(Pair { mut a, mut b, keep: _keep }: Pair) {
    for bytes in (0..200).chain([255, 256, 257, 511, 512, 1000, 1023, 1024]) {
        let message = pattern(bytes, bytes);
        let kind = u8::try_from(bytes % 256).unwrap();
        a.send(kind, &[&message]).unwrap();
        assert_eq!(next(&mut *b), (kind, message.clone()), "{bytes} bytes");
        b.send(kind, &[&message]).unwrap();
        assert_eq!(next(&mut *a), (kind, message), "{bytes} bytes back");
    }
    for round in 0..200_u8 {
        for number in 0..8 {
            a.send(number, &[&[round]]).unwrap();
        }
        for number in 0..8 {
            assert_eq!(next(&mut *b), (number, vec![round]));
        }
    }
}

fn the_limit_holds_to_the_byte(Pair { mut a, mut b, keep: _keep }: Pair) {
    let limit = a.capabilities().longest_message;
    let message = pattern(limit + 1, 5);
    let refused = SendError::TooLong { bytes: limit + 1, limit };
    assert_eq!(a.send(1, &[&message]), Err(refused));
    assert_eq!(a.send(1, &[&message[..limit / 2], &message[limit / 2..]]), Err(refused), "in parts too");
    a.send(2, &[&message[..limit]]).unwrap();
    assert_eq!(next(&mut *b), (2, message[..limit].to_vec()));
    assert_eq!(a.counters().sent, 1, "what was refused does not count as sent");
}

fn parts_are_gathered(Pair { mut a, mut b, keep: _keep }: Pair) {
    for bytes in [0, 1, 55, 56, 57, 64, 1000] {
        let message = pattern(bytes, 9);
        let (first, rest) = message.split_at(bytes / 3);
        a.send(9, &[first, &[], rest]).unwrap();
        assert_eq!(next(&mut *b), (9, message));
    }
    a.send(3, &[]).unwrap();
    assert_eq!(next(&mut *b), (3, Vec::new()), "of no parts at all");
}

fn idle_is_said_only_of_the_idle(Pair { mut a, mut b, keep: _keep }: Pair) {
    assert!(b.is_idle());
    for number in 0..100_u8 {
        a.send(number, &[&[number; 20]]).unwrap();
        let started = Instant::now();
        while b.is_idle() {
            assert!(started.elapsed() < SOON);
        }
        assert!(!b.is_idle(), "looking takes nothing away");
        assert_eq!(next(&mut *b), (number, vec![number; 20]));
        assert!(b.is_idle());
    }
}

fn a_reader_that_does_not_read(Pair { mut a, mut b, keep: _keep }: Pair) {
    let mut sent = 0_u32;
    let full = loop {
        match a.send(0, &[&sent.to_le_bytes(), &[0; 400]]) {
            Ok(()) => sent += 1,
            Err(SendError::Full) => break true,
            Err(error) => panic!("{error}"),
        }
        if sent == 20_000 {
            break false;
        }
    };
    let can_lose = a.capabilities().can_lose;
    assert!(full || can_lose, "who promises delivery must push back");
    assert_eq!(a.counters().refused, u64::from(full));
    let mut arrived = Vec::new();
    while let Some((_, message)) = within(&mut *b, Duration::from_millis(50)) {
        arrived.push(u32::from_le_bytes(message[..4].try_into().unwrap()));
    }
    assert!(arrived.is_sorted_by(|x, y| x < y), "in order and each once");
    if can_lose {
        assert!(!arrived.is_empty() && arrived.len() <= sent as usize);
    } else {
        assert_eq!(arrived.len(), sent as usize);
    }
    a.send(7, &[b"again"]).unwrap();
    assert_eq!(next(&mut *b), (7, b"again".to_vec()), "there is room again");
}

fn a_close_is_seen_behind_the_last_message(Pair { mut a, mut b, keep: _keep }: Pair) {
    a.send(1, &[b"last words"]).unwrap();
    a.close();
    a.close();
    assert_eq!(next(&mut *b), (1, b"last words".to_vec()));
    let started = Instant::now();
    while !b.peer_closed() {
        // One that sends again until all is there tells of its close only then.
        a.settle();
        assert_eq!(within(&mut *b, Duration::ZERO), None);
        assert!(started.elapsed() < SOON, "the close must be seen");
    }
    assert_eq!(b.cause().unwrap().to_string(), "it closed the channel");
    assert!(!a.peer_closed(), "the one who closed was not closed upon");
}

fn counters(Pair { mut a, mut b, keep: _keep }: Pair) {
    for number in 0..30 {
        a.send(number, &[b"x"]).unwrap();
        next(&mut *b);
        if number % 3 == 0 {
            b.send(number, &[b"y"]).unwrap();
            next(&mut *a);
        }
    }
    let (ours, theirs) = (a.counters(), b.counters());
    assert_eq!((ours.sent, ours.received, ours.refused, ours.dropped), (30, 10, 0, 0));
    assert_eq!((theirs.sent, theirs.received, theirs.refused, theirs.dropped), (10, 30, 0, 0));
}

fn two_threads(Pair { mut a, b, keep: _keep }: Pair) {
    const ROUNDS: u32 = 3_000;
    let mut b = b;
    let echo = std::thread::spawn(move || {
        for _ in 0..ROUNDS {
            let (kind, message) = next(&mut *b);
            b.send(kind, &[&message]).unwrap();
        }
    });
    for round in 0..ROUNDS {
        let message = pattern(round as usize % 300, round as usize);
        a.send(4, &[&message]).unwrap();
        assert_eq!(next(&mut *a), (4, message), "round {round}");
    }
    echo.join().unwrap();
}
