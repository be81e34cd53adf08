//! The measurement with services that are made for it.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use super::*;

/// Three addresses of one store.
struct Store {
    addresses: Vec<SocketAddr>,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    values: Mutex<BTreeMap<String, String>>,
    /// Acknowledged from now on, and not kept.
    is_forgetful: AtomicBool,
    /// Nothing is acknowledged.
    is_mute: AtomicBool,
    /// Somebody waits for that to end.
    is_waited_for: AtomicBool,
}

impl Store {
    fn start() -> Self {
        let shared = Arc::new(Shared::default());
        let serve = |_| {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
            let (address, shared) = (listener.local_addr().expect("bound"), Arc::clone(&shared));
            // They end with the test's process.
            std::thread::spawn(move || {
                for stream in listener.incoming().map_while(Result::ok) {
                    let shared = Arc::clone(&shared);
                    std::thread::spawn(move || shared.serve(&stream));
                }
            });
            address
        };
        Self { addresses: (0..REPLICAS).map(serve).collect(), shared }
    }
}

impl Shared {
    fn serve(&self, mut stream: &TcpStream) {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            while self.is_mute.load(Ordering::Relaxed) {
                self.is_waited_for.store(true, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(1));
            }
            let mut values = self.values.lock().expect("no panic");
            let answer = match line.split(' ').collect::<Vec<_>>()[..] {
                ["put", _, _] if self.is_forgetful.load(Ordering::Relaxed) => "ok".to_owned(),
                ["put", key, value] => {
                    values.insert(key.to_owned(), value.to_owned());
                    "ok".to_owned()
                }
                ["get", key] => values.get(key).map_or("none".to_owned(), |value| format!("is {value}")),
                _ => "what?".to_owned(),
            };
            if writeln!(stream, "{answer}").is_err() {
                return;
            }
        }
    }
}

/// How long the store is mute when its host ends.
const MUTE: Duration = Duration::from_millis(120);

impl Service for Store {
    fn words(&self) -> Words {
        Words::Line
    }

    fn patience(&self) -> Duration {
        PATIENCE
    }

    fn addresses(&self) -> Vec<SocketAddr> {
        self.addresses.clone()
    }

    fn leader(&mut self) -> Outcome<usize> {
        Ok(0)
    }

    fn harm(&mut self, _: usize, harm: Harm) -> Outcome<()> {
        match harm {
            Harm::ProcessEnds => self.shared.is_forgetful.store(true, Ordering::Relaxed),
            _ => {
                self.shared.is_mute.store(true, Ordering::Relaxed);
                // Who asks has seen all answers before.
                while !self.shared.is_waited_for.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(1));
                }
                std::thread::sleep(MUTE);
                self.shared.is_mute.store(false, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    fn heal(&mut self, _: usize, _: Harm) -> Outcome<()> {
        Ok(())
    }
}

#[test]
fn a_gap_is_as_long_as_the_service_is_mute() {
    let mut store = Store::start();
    let found = gap(&mut store, Fault::leader_of_client(Harm::HostEnds), 1);
    let found = found.expect("all is kept").expect("the client stays");
    assert!(found >= MUTE, "{found:?}");
}

#[test]
fn a_service_that_loses_what_it_acknowledged_is_found_out() {
    let mut store = Store::start();
    let found = gap(&mut store, Fault::leader_of_client(Harm::ProcessEnds), 1);
    let error = found.expect_err("writes are missing").to_string();
    assert!(error.contains("acknowledged writes"), "{error}");
}

/// Keys come again after some rounds, but what was written in one is not what another must find.
#[test]
fn a_service_that_keeps_only_what_was_written_rounds_ago_is_found_out() {
    let mut store = Store::start();
    gap(&mut store, Fault::NONE, 1).expect("all is kept");
    let found = gap(&mut store, Fault::leader_of_client(Harm::ProcessEnds), 9);
    let error = found.expect_err("the values are of the first round").to_string();
    assert!(error.contains("acknowledged writes"), "{error}");
}
