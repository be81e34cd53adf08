//! Endpoints, channels and agents that end while others are in the middle of something.

use std::collections::BTreeSet;
use std::sync::mpsc;
use std::time::Duration;

use comb_net::agent::protocol::{self, Reply, Request};
use comb_net::{Agent, Cause, Endpoint, EndpointOptions, Geometry, InProcess, PostError, RequestError};

const SOON: Duration = Duration::from_secs(20);
/// Longer than any test may take: whoever returns before was told.
const FOR_EVER: Duration = Duration::from_secs(600);

/// Runs work in a thread of its own; fails the test if it does not end soon.
fn ends_soon<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> impl FnOnce() -> T {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || sender.send(work()));
    move || receiver.recv_timeout(SOON).expect("it hangs")
}

fn endpoint(agent: &InProcess, name: &str) -> Endpoint {
    agent.connect(name).unwrap().endpoint("desk").unwrap()
}

#[test]
fn peers_in_the_middle_of_posting_are_told_that_the_endpoint_is_gone() {
    let agent = InProcess::start();
    let mut hub = endpoint(&agent, "hub");
    let posting: Vec<_> = (0..3)
        .map(|number| {
            let mut peer = endpoint(&agent, &format!("peer-{number}"));
            let key = peer.open("hub/desk").unwrap();
            ends_soon(move || {
                loop {
                    // Small ones and large ones.
                    for bytes in [8, 3000] {
                        if let Err(error) = peer.send_within(key, 1, &[&vec![7; bytes]], FOR_EVER) {
                            return error;
                        }
                    }
                }
            })
        })
        .collect();
    let mut received = 0;
    while received < 10_000 {
        received +=
            hub.poll(|delivery| assert!(delivery.payload.to_vec().iter().all(|&byte| byte == 7))).unwrap();
    }
    drop(hub);
    for told in posting {
        let error = told();
        assert!(
            matches!(&error, PostError::Ended(end) if end.peer == "hub/desk" && matches!(end.cause, Cause::Left(_))),
            "{error}"
        );
    }
}

#[test]
fn a_request_that_waits_for_an_agent_that_ends_is_told_so() {
    let agent = InProcess::start();
    let process = agent.connect("alice").unwrap();
    process.set_answer_limit(FOR_EVER);
    let mut alice = process.endpoint("desk").unwrap();
    // A peer that does not answer, so that the request waits.
    let socket = agent.socket().unwrap();
    let say = |request: &Request, with: &[std::os::fd::BorrowedFd<'_>]| {
        protocol::send(&socket, request, with).unwrap();
    };
    say(&Request::Hello { name: "mallory".into() }, &[]);
    let board = rustix::fs::memfd_create(
        "comb-test",
        rustix::fs::MemfdFlags::CLOEXEC | rustix::fs::MemfdFlags::ALLOW_SEALING,
    )
    .unwrap();
    rustix::fs::ftruncate(&board, 4096).unwrap();
    let seals = rustix::fs::SealFlags::SHRINK | rustix::fs::SealFlags::GROW | rustix::fs::SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&board, seals).unwrap();
    let create = Request::CreateEndpoint { request: 1, name: "desk".into(), bell_channels: 8 };
    say(&create, &[std::os::fd::AsFd::as_fd(&board)]);
    for _ in 0..2 {
        protocol::receive::<Reply>(&socket).unwrap();
    }
    let told = ends_soon(move || alice.open("mallory/desk").map(drop));
    assert!(matches!(protocol::receive::<Reply>(&socket).unwrap().0, Reply::Offer { .. }));
    drop(agent);
    assert!(matches!(told(), Err(RequestError::AgentAway)));
    assert!(matches!(process.list(), Err(RequestError::AgentAway)));
}

/// Sleeping on many channels: each wakes, each is found, each end is told.
#[test]
fn one_who_waits_on_many_channels_misses_none() {
    let agent = InProcess::start();
    let mut hub = endpoint(&agent, "hub");
    let small = Geometry { slots: 8, payload_bytes: 0 };
    let options = EndpointOptions { geometry: small, ..EndpointOptions::default() };
    let mut spokes = agent.connect("spokes").unwrap().endpoint_with("desk", options).unwrap();
    let keys: Vec<_> = (0..40).map(|_| spokes.open("hub/desk").unwrap()).collect();
    for _ in &keys {
        hub.accept(SOON).unwrap();
    }
    let talking = ends_soon(move || {
        for round in 0..400_usize {
            let key = keys[round * 7 % keys.len()];
            spokes.send_within(key, 1, &[&round.to_le_bytes()], SOON).unwrap();
            // The answer comes only to a question that was heard: so the other side often sleeps when one comes.
            assert_eq!(spokes.receive_within(&mut [0; 8], SOON).unwrap().expect("an answer").channel, key);
        }
        for key in keys {
            spokes.close(key);
        }
        spokes
    });
    let mut buffer = [0; 8];
    for round in 0..400 {
        let got = hub.receive_within(&mut buffer, SOON).unwrap().expect("a question");
        assert_eq!(usize::from_le_bytes(buffer), round);
        hub.send(got.channel, 2, b"yes").unwrap();
    }
    let mut ended = BTreeSet::new();
    while ended.len() < 40 {
        let end = hub.receive_within(&mut buffer, SOON).expect_err("only ends are left");
        assert!(ended.insert(end.channel), "{end} is told twice");
    }
    talking();
    assert_eq!(hub.channels().count(), 0);
}

/// A place is taken again and again; no key is ever valid twice, and no message of an earlier tenant comes through.
#[test]
fn a_place_that_is_taken_again_starts_clean() {
    let agent = InProcess::start();
    let mut alice = endpoint(&agent, "alice");
    let mut bob = endpoint(&agent, "bob");
    let mut keys = BTreeSet::new();
    let mut buffer = [0; 8];
    for round in 0..300_u64 {
        let key = alice.open("bob/desk").unwrap();
        let back = bob.accept(SOON).unwrap();
        assert!(keys.insert(key), "{key:?} was valid before");
        // Left unread: the next tenant must not find it.
        alice.send(key, 1, &u64::MAX.to_le_bytes()).unwrap();
        bob.send(back, 1, &round.to_le_bytes()).unwrap();
        let got = alice.receive_within(&mut buffer, SOON).unwrap().unwrap();
        assert_eq!((got.channel, u64::from_le_bytes(buffer)), (key, round));
        alice.close(key);
        bob.close(back);
        for stale in &keys {
            assert_eq!(alice.send(*stale, 1, b"x"), Err(PostError::NoChannel));
        }
    }
}

/// Several threads of several processes open, close, list and leave at once, each to the others: no two of the locks
/// behind this wait for each other.
#[test]
fn everybody_opens_to_everybody_and_nobody_waits_for_ever() {
    fn restless(agents: &[Agent], number: usize) {
        for round in 0..40 {
            let own = &agents[number % agents.len()];
            let mut endpoint = own.endpoint(&format!("e-{number}")).unwrap();
            for step in 0..4 {
                let other = (number + step + 1) % 6;
                let to = format!("{}/e-{other}", agents[other % agents.len()].name());
                match endpoint.open(&to) {
                    Ok(key) if (round + step) % 2 == 0 => endpoint.close(key),
                    Ok(key) => drop(endpoint.send(key, 1, b"hello")),
                    // Its thread is between two endpoints, or has just closed this one.
                    Err(RequestError::Refused(_)) => {}
                    Err(error) => panic!("{to}: {error}"),
                }
                let _ = endpoint.receive(&mut [0; 64]);
            }
            assert!(own.list().unwrap().len() >= agents.len());
        }
    }
    let agent = InProcess::start();
    let agents: Vec<_> = (0..3).map(|number| agent.connect(&format!("p-{number}")).unwrap()).collect();
    let threads: Vec<_> = (0..6)
        .map(|number| {
            let agents = agents.clone();
            ends_soon(move || restless(&agents, number))
        })
        .collect();
    for thread in threads {
        thread();
    }
    // Nothing is left on the agent's book.
    let started = std::time::Instant::now();
    while agents[0].list().unwrap().iter().any(|listed| (listed.channels, listed.memory_bytes) != (0, 0)) {
        assert!(started.elapsed() < SOON, "left: {:?}", agents[0].list());
        std::thread::yield_now();
    }
}
