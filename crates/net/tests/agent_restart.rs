//! An agent goes away and another takes its place: what its processes held is handed to the new one.

use std::path::Path;
use std::time::{Duration, Instant};

use comb_net::agent::{Limits, SameUser, Server};
use comb_net::{Access, Agent, RequestError};

const SOON: Duration = Duration::from_secs(20);

fn serve(path: &Path) -> Server {
    Server::bind(path, Box::new(SameUser), Limits::default()).unwrap()
}

/// Once the watcher locked its own book in the head of a loop and again in its body, and hung for ever: no end of a peer
/// was noticed any more, and the next close hung as well.
#[test]
fn channels_live_on_and_new_ones_can_be_opened() {
    let path = std::env::temp_dir().join(format!("comb-restart-{}.sock", std::process::id()));
    let first = serve(&path);
    let (alice, bob) = (Agent::connect(&path, "alice").unwrap(), Agent::connect(&path, "bob").unwrap());
    let (mut desk, mut bench) = (alice.endpoint("desk").unwrap(), bob.endpoint("bench").unwrap());
    let to_bob = desk.open("bob/bench").unwrap();
    let to_alice = bench.accept(SOON).unwrap();

    drop(first);
    desk.send(to_bob, 1, b"no agent").unwrap();
    assert_eq!(bench.receive_within(&mut [0; 8], SOON).unwrap().unwrap().bytes, 8);

    let second = serve(&path);
    let started = Instant::now();
    let held = loop {
        assert!(started.elapsed() < SOON, "the processes did not come back");
        match alice.list() {
            Ok(processes) if processes.iter().all(|known| known.channels == 1) && processes.len() == 2 => {
                break processes;
            }
            Ok(_) | Err(RequestError::AgentAway) => std::thread::sleep(Duration::from_millis(5)),
            Err(error) => panic!("{error}"),
        }
    };
    assert!(held.iter().all(|known| known.endpoints == 1), "{held:?}");

    let again = desk.open("bob/bench").unwrap();
    assert!(bench.accept(SOON).is_some());
    desk.close(again);
    bench.close(to_alice);
    assert!(desk.receive_within(&mut [0; 8], SOON).is_err(), "the end of the older channel is told");
    drop(second);
}

/// The agent after the first did not know of windows and rings that were open: their owner could hand out as much again.
#[test]
fn what_was_shared_counts_against_the_next_agents_limits_too() {
    let path = std::env::temp_dir().join(format!("comb-charges-{}.sock", std::process::id()));
    let limits = Limits { memory_bytes: 1 << 20, ..Limits::default() };
    let serve = || Server::bind(&path, Box::new(SameUser), limits).unwrap();
    let mut server = serve();
    let (alice, bob) = (Agent::connect(&path, "alice").unwrap(), Agent::connect(&path, "bob").unwrap());
    let (mut desk, mut bench) = (alice.endpoint("desk").unwrap(), bob.endpoint("bench").unwrap());
    let to_bob = desk.open("bob/bench").unwrap();
    let to_alice = bench.accept(SOON).unwrap();
    let kept = desk.make_window(to_bob, 600 << 10, Access::Put).unwrap();
    let withdrawn_away = desk.make_window(to_bob, 100 << 10, Access::Get).unwrap();
    let theirs = bench.window_numbered(to_alice, kept.number(), SOON).unwrap();
    let held = |agent: &Agent| {
        let listed = agent.list().ok()?;
        let mut listed: Vec<_> = listed
            .into_iter()
            .map(|known| (known.identity.name, known.channels, known.memory_bytes))
            .collect();
        listed.sort();
        Some(listed)
    };
    let wait_for = |what: &str, expected: &Vec<(String, u32, u64)>| {
        let started = Instant::now();
        while held(&alice).as_ref() != Some(expected) {
            assert!(started.elapsed() < SOON, "{what}: {:?}, not {expected:?}", held(&alice));
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    let mut expected = held(&alice).unwrap();
    for life in 0..3 {
        drop(server);
        // Nobody can be told.
        if life == 1 {
            drop(bench.window_numbered(to_alice, withdrawn_away.number(), SOON).unwrap());
        }
        server = serve();
        wait_for("all counts as before", &expected);
        let error = desk.make_window(to_bob, 400 << 10, Access::Put).unwrap_err().to_string();
        assert!(error.contains("limit of 1048576 bytes of shared memory"), "{error}");
        assert!(error.contains("--limits memory_bytes"), "{error}");
    }
    // One that is withdrawn while there is no agent does not come back with the next.
    drop(server);
    withdrawn_away.withdraw();
    server = serve();
    expected[0].2 -= 100 << 10;
    wait_for("the withdrawn one is not counted", &expected);
    // The window is the same as ever, and is given back to this agent as to the first.
    bench.put(&theirs, 8, b"restored").unwrap();
    let mut got = [0; 8];
    kept.read(8, &mut got).unwrap();
    assert_eq!(&got, b"restored");
    kept.withdraw();
    expected[0].2 -= 600 << 10;
    wait_for("the last one is given back", &expected);
    let again = desk.make_window(to_bob, 700 << 10, Access::Put).unwrap();
    drop((again, server));
}
