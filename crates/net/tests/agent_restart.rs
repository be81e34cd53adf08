//! An agent goes away and another takes its place: what its processes held is handed to the new one.

use std::path::Path;
use std::time::{Duration, Instant};

use comb_net::agent::{Limits, SameUser, Server};
use comb_net::{Agent, RequestError};

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
