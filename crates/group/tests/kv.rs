//! The key-value service of `examples/kv.rs`, as processes that are killed, stopped and started again by seed, while clients write
//! and read: what these saw could have happened one after the other.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use comb_membership::scenario::linearizable::{Action, Operation, is_linearizable};
use comb_membership::{Dice, Time};
use comb_net::agent::{Limits, SameUser, Server};
use rustix::process::{Pid, Signal, kill_process};

#[path = "../examples/kv.rs"]
#[expect(dead_code, reason = "its `main` is not called here")]
mod kv;

const REPLICAS: usize = 5;
const CLIENTS: u32 = 4;
const KEYS: u32 = 4;
/// Each is two faults at once: five replicas go on without two.
const ROUNDS: u32 = 8;
/// Of each client: a slow machine has its faults with fewer, and would have nothing to judge.
const LEAST_REQUESTS: u64 = 300;
/// What a client waits for an answer.
const PATIENCE: Duration = Duration::from_secs(2);
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
    runtime.block_on(kv::replica(&arguments)).expect("a replica runs for ever");
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
}

/// A client: one connection, to the next replica when one fails.
struct Client {
    addresses: Arc<Vec<SocketAddr>>,
    turn: usize,
    connection: Option<BufReader<TcpStream>>,
}

impl Client {
    fn new(addresses: &Arc<Vec<SocketAddr>>, turn: usize) -> Self {
        Self { addresses: Arc::clone(addresses), turn, connection: None }
    }

    /// Asks one replica once. An error means that the request may have been done.
    fn ask(&mut self, request: &str) -> std::io::Result<String> {
        let answer = self.try_to_ask(request);
        let is_served = answer.as_ref().is_ok_and(|answer| !answer.starts_with("sorry"));
        if !is_served {
            self.connection = None;
            self.turn += 1;
            std::thread::sleep(Duration::from_millis(2));
        }
        answer
    }

    fn try_to_ask(&mut self, request: &str) -> std::io::Result<String> {
        let address = self.addresses[self.turn % self.addresses.len()];
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => {
                let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                none.insert(BufReader::new(stream))
            }
        };
        connection.get_mut().write_all(format!("{request}\n").as_bytes())?;
        let mut answer = String::new();
        connection.read_line(&mut answer)?;
        match answer.trim_end() {
            lost if lost.is_empty() || lost.starts_with("lost") => {
                Err(std::io::ErrorKind::ConnectionAborted.into())
            }
            answer => Ok(answer.to_owned()),
        }
    }

    /// Asks until it is answered.
    fn insist(&mut self, request: &str) -> String {
        let deadline = Instant::now() + SOON;
        loop {
            match self.ask(request) {
                Ok(answer) if !answer.starts_with("sorry") => return answer,
                other => assert!(Instant::now() < deadline, "{request}: {other:?}"),
            }
        }
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

/// What was done to each key.
type History = Vec<Vec<Operation<u64>>>;

/// What the client knows to have been there after its operation.
fn last_seen(operation: &Operation<u64>) -> Option<u64> {
    match operation.action {
        Action::Write(value) | Action::Exchange { new: value, done: Some(true), .. } => Some(value),
        Action::Read(seen) => seen,
        Action::Exchange { .. } => None,
    }
}

/// Writes, exchanges and reads until it is told to stop.
fn use_it(number: u32, mut client: Client, seed: u64, began: Instant, over: &AtomicBool) -> History {
    let now = || Time::ZERO.saturating_add(began.elapsed());
    let mut dice = Dice::new(seed.wrapping_add(u64::from(number)));
    let mut history = vec![Vec::new(); KEYS as usize];
    let mut request = 0_u64;
    while !over.load(Ordering::Relaxed) || request < LEAST_REQUESTS {
        request += 1;
        let key = dice.below(KEYS);
        // No value is written twice.
        let value = u64::from(number) << 32 | request;
        let (writes, exchanges) = (dice.happens(400_000), dice.happens(400_000));
        // Of what this client saw there last, which may still be there.
        let old = history[key as usize].iter().rev().find_map(last_seen).filter(|_| exchanges);
        // Some are asked again until they are answered, and are done once all the same; others are asked once.
        let is_numbered = dice.happens(900_000);
        let text = match old {
            _ if !writes => format!("get {key}"),
            None => format!("put {key} {value}"),
            Some(old) => format!("cas {key} {old} {value}"),
        };
        let asked = now();
        let answer = if is_numbered {
            Some(client.insist(&format!("client-{number}:{request} {text}")))
        } else {
            client.ask(&text).ok()
        };
        let answered = now();
        let ended = answer.is_some().then_some(answered);
        let exchange = |done| old.map(|old| Action::Exchange { old, new: value, done });
        let action = match (writes, answer.as_deref()) {
            (_, Some(refused)) if refused.starts_with("sorry") => continue,
            (true, None) => exchange(None).unwrap_or(Action::Write(value)),
            (true, Some("ok")) => exchange(Some(true)).unwrap_or(Action::Write(value)),
            (true, Some("not")) => exchange(Some(false)).expect("a put is always done"),
            (false, None) => continue,
            (false, Some("none")) => Action::Read(None),
            (false, Some(read)) => {
                let value = read.strip_prefix("is ").and_then(|value| value.parse().ok());
                Action::Read(Some(value.expect("a value that was written")))
            }
            (true, Some(other)) => panic!("{text}: {other}"),
        };
        history[key as usize].push(Operation { action, began: asked, ended });
        std::thread::sleep(Duration::from_micros(u64::from(dice.below(2000))));
    }
    history
}

/// Kills one replica, stops another, and lets both come back.
fn harm(service: &mut Service, dice: &mut Dice) {
    let count = u32::try_from(REPLICAS).expect("few");
    let killed = dice.below(count) as usize;
    let stopped = (killed + 1 + dice.below(count - 1) as usize) % REPLICAS;
    let pause = |dice: &mut Dice, most_ms| {
        std::thread::sleep(Duration::from_millis(u64::from(dice.below(most_ms))));
    };
    service.replicas[stopped].signal(Signal::STOP);
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
                    let history = use_it(number, client, seed, began, over);
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
    let histories = histories.into_inner().expect("no panic");
    for key in 0..KEYS as usize {
        let operations: Vec<_> = histories.iter().flat_map(|history| history[key].clone()).collect();
        let count = |what: fn(&Action<u64>) -> bool| operations.iter().filter(|o| what(&o.action)).count();
        let writes = count(|action| matches!(action, Action::Write(_)));
        let [exchanged, not] = [
            count(|action| matches!(action, Action::Exchange { done: Some(true), .. })),
            count(|action| matches!(action, Action::Exchange { done: Some(false), .. })),
        ];
        let all = operations.len();
        eprintln!("key {key}: {all} operations, {writes} writes, {exchanged} exchanges, {not} in vain");
        assert!(writes.min(exchanged).min(not) > 10, "too little was done for a judgement");
        assert!(is_linearizable(&operations), "seed {seed}: key {key} has no order");
    }
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
    (0..3).for_each(|number| service.replicas[number].signal(Signal::STOP));
    (0..3).for_each(|number| service.replicas[number].signal(Signal::KILL));
    await_stuck(&mut client);
}

#[test]
fn a_part_that_was_too_small_goes_on_when_the_others_move_again() {
    let service = Service::start("paused");
    let mut client = Client::new(&Arc::new(vec![service.replicas[4].address]), 0);
    assert_eq!(client.insist("put colour green"), "ok");
    (0..3).for_each(|number| service.replicas[number].signal(Signal::STOP));
    await_stuck(&mut client);
    (0..3).for_each(|number| service.replicas[number].signal(Signal::CONT));
    assert_eq!(client.insist("put colour blue"), "ok");
    for replica in &service.replicas {
        let mut client = Client::new(&Arc::new(vec![replica.address]), 0);
        assert_eq!(client.insist("get colour"), "is blue");
    }
}
