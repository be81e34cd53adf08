//! The key-value service of `examples/kv.rs`, as processes that are killed, stopped and started again by seed, while clients write
//! and read: what these saw could have happened one after the other.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use comb_group::{Event, Group, NodeId};
use comb_membership::Dice;
use comb_net::Agent;
use comb_net::agent::{Limits, SameUser, Server};
use kv_users::{Client, User, judge};
use rustix::process::{Pid, Signal, kill_process};

#[path = "../examples/kv.rs"]
#[expect(dead_code, reason = "its `main` is not called here")]
mod kv;
mod kv_users;
#[path = "../../net/tests/standing/mod.rs"]
mod standing;

const REPLICAS: usize = 5;
const CLIENTS: u32 = 4;
/// Each is two faults at once: five replicas go on without two.
const ROUNDS: u32 = 8;
const SOON: Duration = Duration::from_secs(60);
/// With it the test's own program is a replica, with arguments as the example has them.
const REPLICA: &str = "COMB_KV_REPLICA";

/// Not a test, but where the processes of the others begin.
#[test]
fn replica_process() {
    let Ok(arguments) = std::env::var(REPLICA) else { return };
    // It does not outlive who started it.
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    let arguments: Vec<String> = arguments.split(' ').map(str::to_owned).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(kv::replica(&arguments, kv::options())).expect("a replica runs for ever");
}

type Said = Arc<Mutex<Vec<(Duration, String)>>>;

struct Replica {
    process: Child,
    number: usize,
    address: SocketAddr,
    /// For whoever wants to know why a test failed.
    said: Said,
    began: Instant,
}

impl Drop for Replica {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("replica {}: {:#?}", self.number, self.said.lock());
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Replica {
    fn start(agent: &Path, number: usize, address: &str, how: &str, began: Instant) -> Self {
        // The agent may not have heard yet that the one of this name has ended.
        let deadline = Instant::now() + SOON;
        loop {
            if let Some(replica) = Self::try_to_start(agent, number, address, how, began) {
                return replica;
            }
            assert!(Instant::now() < deadline, "replica {number} does not start");
        }
    }

    fn try_to_start(agent: &Path, number: usize, address: &str, how: &str, began: Instant) -> Option<Self> {
        let mut process = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "replica_process", "--nocapture"])
            .env(REPLICA, format!("{} {number} {REPLICAS} {address} {how}", agent.display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let mut lines = BufReader::new(process.stdout.take().expect("piped")).lines().map_while(Result::ok);
        let Some(address) = lines.find_map(|line| line.split_once("serves ")?.1.parse().ok()) else {
            process.wait().expect("it has ended");
            return None;
        };
        let said = Said::default();
        let heard = Arc::clone(&said);
        std::thread::spawn(move || {
            lines.for_each(|line| heard.lock().expect("no panic").push((began.elapsed(), line)));
        });
        Some(Self { process, number, address, said, began })
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).expect("it was not waited for");
    }

    fn stop(&self) {
        standing::stop(Pid::from_child(&self.process));
    }
}

/// A service, and an agent for it.
struct Service {
    replicas: Vec<Replica>,
    agent: PathBuf,
    folder: PathBuf,
    _server: Server,
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Service {
    fn start(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("comb-kv-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let agent = folder.join("agent");
        let server = Server::bind(&agent, Box::new(SameUser), Limits::default()).expect("an agent");
        let began = Instant::now();
        let start = |number| Replica::start(&agent, number, "127.0.0.1:0", "new", began);
        let replicas = (0..REPLICAS).map(start).collect();
        Self { replicas, agent, folder, _server: server }
    }

    fn addresses(&self) -> Arc<Vec<SocketAddr>> {
        Arc::new(self.replicas.iter().map(|replica| replica.address).collect())
    }

    /// Another process, under the same address, that is to come in.
    fn restart(&mut self, number: usize) {
        let (address, began) = (self.replicas[number].address.to_string(), self.replicas[number].began);
        self.replicas[number] = Replica::start(&self.agent, number, &address, "join", began);
    }

    /// Waits until a replica serves.
    fn await_replica(&self, number: usize) {
        Client::new(&Arc::new(vec![self.replicas[number].address]), 0).insist("get nothing");
    }
}

/// Kills one replica, stops another, and lets both come back.
fn harm(service: &mut Service, dice: &mut Dice) {
    let count = u32::try_from(REPLICAS).expect("few");
    let killed = dice.below(count) as usize;
    let stopped = (killed + 1 + dice.below(count - 1) as usize) % REPLICAS;
    let pause = |dice: &mut Dice, most_ms| {
        std::thread::sleep(Duration::from_millis(u64::from(dice.below(most_ms))));
    };
    service.replicas[stopped].stop();
    pause(dice, 800);
    service.replicas[killed].signal(Signal::KILL);
    pause(dice, 800);
    service.restart(killed);
    pause(dice, 400);
    service.replicas[stopped].signal(Signal::CONT);
    service.await_replica(killed);
    service.await_replica(stopped);
}

#[test]
fn what_clients_saw_could_have_happened_one_after_the_other_whatever_happens_to_replicas() {
    let seed = std::env::var("COMB_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let mut service = Service::start("faults");
    let (addresses, began) = (service.addresses(), Instant::now());
    let (over, histories) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    (0..REPLICAS).for_each(|number| service.await_replica(number));
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let client = Client::new(&addresses, number as usize);
                let (over, histories) = (&over, &histories);
                scope.spawn(move || {
                    let history = User { number, seed, began, ..User::default() }.use_it(client, over);
                    histories.lock().expect("no panic").push(history);
                })
            })
            .collect();
        let mut dice = Dice::new(seed);
        for _ in 0..ROUNDS {
            if clients.iter().any(|client| client.is_finished()) {
                break;
            }
            harm(&mut service, &mut dice);
        }
        over.store(true, Ordering::Relaxed);
    });
    judge(&histories.into_inner().expect("no panic"), 10, &format!("seed {seed}"));
}

#[test]
fn a_request_is_done_once_however_often_it_is_asked_and_a_value_is_exchanged_only_for_the_old_one() {
    let mut service = Service::start("once");
    let mut client = Client::new(&service.addresses(), 0);
    assert_eq!(client.insist("me:1 put colour green"), "ok");
    assert_eq!(client.insist("me:2 cas colour green blue"), "ok");
    client.turn += 1;
    client.connection = None;
    assert_eq!(client.insist("me:2 cas colour green blue"), "ok", "at another replica, answered as before");
    assert_eq!(client.insist("you:1 cas colour green red"), "not");
    // Who comes in later knows it as well.
    service.replicas[2].signal(Signal::KILL);
    service.restart(2);
    service.await_replica(2);
    let mut client = Client::new(&Arc::new(vec![service.replicas[2].address]), 0);
    assert_eq!(client.insist("me:2 cas colour green blue"), "ok");
    assert!(client.ask("me:1 put colour green").expect("an answer").starts_with("sorry"), "that was before");
    assert_eq!(client.insist("get colour"), "is blue");
    assert_eq!(client.insist("get color"), "none");
    assert!(client.ask("put colour").expect("an answer").starts_with("sorry"));
}

/// It took any bytes for an empty state before, and would have answered from that.
#[test]
fn a_replica_that_is_handed_a_state_that_is_none_ends_and_says_so() {
    let folder = std::env::temp_dir().join(format!("comb-kv-garbage-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let server =
        Server::bind(&folder.join("agent"), Box::new(SameUser), Limits::default()).expect("an agent");
    let (own, options) = (NodeId(0), kv::options());
    let agent = Agent::connect(&folder.join("agent"), &options.names.process(own)).expect("the agent");
    let mut group = Group::configured(&agent, own, &[own], options).expect("a member");
    let mut replica = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "replica_process", "--nocapture"])
        .env(REPLICA, format!("{} 1 2 127.0.0.1:0 join", folder.join("agent").display()))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a process");
    let deadline = Instant::now() + SOON;
    let status = loop {
        group.poll();
        while let Some(event) = group.next_event() {
            if let Event::WantsState = event {
                group.give_state(&[0xff; 20]);
            }
        }
        if let Some(status) = replica.try_wait().expect("it is ours") {
            break status;
        }
        assert!(Instant::now() < deadline, "it goes on");
        group.wait(Duration::from_millis(5));
    };
    let mut said = String::new();
    replica.stderr.take().expect("piped").read_to_string(&mut said).expect("text");
    drop(server);
    std::fs::remove_dir_all(&folder).expect("ours");
    assert!(!status.success() && said.contains("the others' state"), "{status}: {said}");
}

/// Asks until the replica says that there are too few.
fn await_stuck(client: &mut Client) {
    let deadline = Instant::now() + SOON;
    loop {
        match client.ask("put colour red") {
            Ok(answer) if answer.contains("too few") => return,
            Ok(done) if !done.starts_with("sorry") => panic!("{done}"),
            other => assert!(Instant::now() < deadline, "{other:?}"),
        }
    }
}

#[test]
fn a_replica_that_has_lost_most_of_the_others_says_so_and_does_nothing() {
    let service = Service::start("alone");
    let mut client = Client::new(&Arc::new(vec![service.replicas[4].address]), 0);
    assert_eq!(client.insist("put colour green"), "ok");
    // None of them goes on without those that were killed before it.
    (0..3).for_each(|number| service.replicas[number].stop());
    (0..3).for_each(|number| service.replicas[number].signal(Signal::KILL));
    await_stuck(&mut client);
}

#[test]
fn a_part_that_was_too_small_goes_on_when_the_others_move_again() {
    let service = Service::start("paused");
    let mut client = Client::new(&Arc::new(vec![service.replicas[4].address]), 0);
    assert_eq!(client.insist("put colour green"), "ok");
    (0..3).for_each(|number| service.replicas[number].stop());
    await_stuck(&mut client);
    (0..3).for_each(|number| service.replicas[number].signal(Signal::CONT));
    assert_eq!(client.insist("put colour blue"), "ok");
    for replica in &service.replicas {
        let mut client = Client::new(&Arc::new(vec![replica.address]), 0);
        assert_eq!(client.insist("get colour"), "is blue");
    }
}
