//! Real processes that are killed, stopped, or lose their agent: whoever waits for them is told by name, whoever does not
//! notices nothing, and nothing of them stays.
//!
//! `COMB_SOAK_SECONDS` makes the killing last longer; `COMB_FUZZ_SEED` replays it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use comb_net::agent::{Limits, SameUser, Server};
use comb_net::{Agent, Cause, ChannelKey, Endpoint, EndpointOptions, PostError, RequestError};
use rustix::process::{Pid, Signal};

mod standing;

const SOON: Duration = Duration::from_secs(30);
/// Longer than any test may take: whoever returns before was told, and did not just run out of time.
const FOR_EVER: Duration = Duration::from_secs(600);

const ROLE: &str = "COMB_DEATH_TEST_ROLE";
const PATH: &str = "COMB_DEATH_TEST_PATH";
const NAME: &str = "COMB_DEATH_TEST_NAME";

// ── processes ──

/// Not a test: what the other processes run, which are started with this test's name and a role.
#[test]
fn other_process() {
    let Ok(role) = std::env::var(ROLE) else { return };
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
    let path = PathBuf::from(std::env::var(PATH).unwrap());
    let agent = Agent::connect(&path, &std::env::var(NAME).unwrap()).unwrap();
    let endpoint = agent.endpoint("desk").unwrap();
    match role.as_str() {
        "talker" => talk(endpoint),
        "echo" => echo(endpoint),
        "deaf" => loop {
            std::thread::sleep(SOON);
        },
        other => panic!("no such role: {other}"),
    }
}

/// Opens channels to the three survivors and talks on them until it is killed.
fn talk(mut endpoint: Endpoint) -> ! {
    let mut talk = Talk::default();
    for number in 0..3 {
        talk.begin(endpoint.open(&format!("survivor-{number}/desk")).unwrap());
    }
    loop {
        // The opener comes and goes as it likes.
        talk.turn(&mut endpoint, |end| assert!(end.peer.starts_with("opener/"), "the survivors live: {end}"));
    }
}

/// Leaves as its last word how many it has taken.
fn echo(mut endpoint: Endpoint) -> ! {
    let mut buffer = vec![0; 4096];
    let mut taken = 0;
    loop {
        if let Ok(Some(got)) = endpoint.receive_within(&mut buffer, SOON) {
            taken += 1;
            endpoint.leave_word(taken);
            let _ = endpoint.send_within(got.channel, got.kind, &[&buffer[..got.bytes]], SOON);
        }
    }
}

/// Another process; killed and reaped at the end whatever happens.
struct Process {
    child: Child,
}

impl Process {
    fn start(role: &str, name: &str, path: &Path) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["other_process", "--exact", "--nocapture"]).stdout(Stdio::null());
        command.env(ROLE, role).env(PATH, path).env(NAME, name);
        Self { child: command.spawn().unwrap() }
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn stop(&self) {
        standing::stop(self.pid());
    }

    fn go_on(&self) {
        rustix::process::kill_process(self.pid(), Signal::CONT).unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[track_caller]
fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < SOON, "not within {SOON:?}: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// An agent in a directory of its own, and what this process held before it. One scene at a time, because it counts.
struct Scene {
    server: Option<Server>,
    directory: PathBuf,
    descriptors: usize,
    _alone: MutexGuard<'static, ()>,
}

static ALONE: Mutex<()> = Mutex::new(());

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// What the descriptors of this process are, to say what was left.
fn open_files() -> Vec<PathBuf> {
    let entries = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    entries.filter_map(|entry| std::fs::read_link(entry.path()).ok()).collect()
}

fn mappings() -> usize {
    std::fs::read_to_string("/proc/self/maps")
        .unwrap()
        .lines()
        .filter(|line| line.contains("memfd:comb-"))
        .count()
}

impl Scene {
    fn new(name: &str) -> Self {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let descriptors = descriptors();
        let directory = std::env::temp_dir().join(format!("comb-death-{}-{name}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        let mut scene = Self { server: None, directory, descriptors, _alone: alone };
        scene.start_agent();
        scene
    }

    fn path(&self) -> PathBuf {
        self.directory.join("agent")
    }

    fn start_agent(&mut self) {
        self.server = Some(Server::bind(&self.path(), Box::new(SameUser), Limits::default()).unwrap());
    }

    fn connect(&self, name: &str) -> Agent {
        Agent::connect(&self.path(), name).unwrap()
    }

    /// Opens as soon as the other process is there.
    fn open(&self, endpoint: &mut Endpoint, to: &str) -> ChannelKey {
        let mut opened = None;
        wait_until(to, || {
            opened = endpoint.open(to).ok();
            opened.is_some()
        });
        opened.unwrap()
    }

    /// Everything that the test made is gone, and so is everything that it caused.
    fn end(mut self) {
        self.server = None;
        assert_eq!(std::fs::read_dir(&self.directory).unwrap().count(), 0, "files are left");
        std::fs::remove_dir(&self.directory).unwrap();
        assert_eq!(mappings(), 0, "shared memory is still mapped");
        // Fewer, if a thread of the scene before closed its last one after this scene had counted.
        assert!(descriptors() <= self.descriptors, "more than {}: {:?}", self.descriptors, open_files());
        let children = std::fs::read_to_string("/proc/thread-self/children").unwrap_or_default();
        assert_eq!(children, "", "processes are left");
    }
}

// ── checked traffic ──

/// Message `number` of a stream: its number, then bytes that follow from it; lengths on both sides of the slot's limit.
#[expect(clippy::cast_possible_truncation, reason = "filler, cut on purpose")]
fn message(number: u64) -> Vec<u8> {
    let filler = [0, 8, 48, 49, 200, 1000, 2500][(number % 7) as usize];
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.extend((0..filler).map(|i: u64| (number.wrapping_mul(31).wrapping_add(i)) as u8));
    bytes
}

/// The channels of one endpoint, each carrying numbered messages both ways.
#[derive(Default)]
struct Talk {
    /// Sent and received.
    streams: BTreeMap<ChannelKey, (u64, u64)>,
    turns: u64,
}

impl Talk {
    fn begin(&mut self, key: ChannelKey) {
        self.streams.entry(key).or_default();
    }

    /// Sends and receives a little on every channel. Panics if a message is missing, doubled or changed.
    fn turn(&mut self, endpoint: &mut Endpoint, mut ended: impl FnMut(&comb_net::ChannelEnded)) {
        self.turns += 1;
        // Now and then a sender that waits, so that a death also meets one.
        let patience = if self.turns.is_multiple_of(64) { Duration::from_millis(20) } else { Duration::ZERO };
        let keys: Vec<_> = self.streams.keys().copied().collect();
        for key in keys {
            let number = self.streams[&key].0;
            match endpoint.send_within(key, 1, &[&message(number)], patience) {
                Ok(()) => self.streams.get_mut(&key).unwrap().0 += 1,
                Err(PostError::Full(_)) => {}
                // Told to the receiver too if something is still to be received.
                Err(PostError::Ended(end)) => {
                    ended(&end);
                    if !endpoint.channels().any(|live| live == key) {
                        self.streams.remove(&key);
                    }
                }
                Err(other) => panic!("{other}"),
            }
        }
        let mut buffer = [0; 4096];
        for _ in 0..32 {
            match endpoint.receive(&mut buffer) {
                Ok(Some(got)) => {
                    // A channel that came just now, if it is not known.
                    let stream = self.streams.entry(got.channel).or_default();
                    assert!(
                        buffer[..got.bytes] == message(stream.1),
                        "message {} of {:?}",
                        stream.1,
                        got.channel
                    );
                    stream.1 += 1;
                }
                Ok(None) => {
                    endpoint.wait(Duration::from_millis(1));
                    return;
                }
                Err(end) => {
                    ended(&end);
                    self.streams.remove(&end.channel);
                }
            }
        }
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

fn number_from(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// What the survivors show of themselves.
#[derive(Default)]
struct Progress {
    stop: AtomicBool,
    /// Messages from friends, by survivor.
    among_friends: [AtomicU64; 3],
    /// Messages from victims, by survivor.
    from_victims: [AtomicU64; 3],
    /// Channels to victims that have not ended, by survivor.
    open_to_victims: [AtomicU64; 3],
    /// The victim that has not been killed yet, counted from 1; 0 for none.
    living: AtomicU64,
}

/// Gives the endpoint back at the end: who stops first must not look like a death to the others.
fn survive(mut endpoint: Endpoint, number: usize, progress: &Progress) -> Endpoint {
    let mut talk = Talk::default();
    let friend = endpoint.open(&format!("survivor-{}/desk", (number + 1) % 3)).unwrap();
    talk.begin(friend);
    let mut from_ended_victims = 0;
    while !progress.stop.load(Ordering::Relaxed) {
        while let Some(key) = endpoint.accept(Duration::ZERO) {
            talk.begin(key);
        }
        let received = |talk: &Talk, key| talk.streams.get(&key).map_or(0, |stream: &(u64, u64)| stream.1);
        let before: BTreeMap<_, _> = talk.streams.keys().map(|&key| (key, received(&talk, key))).collect();
        let mut ended = Vec::new();
        talk.turn(&mut endpoint, |end| ended.push(end.clone()));
        for end in ended {
            assert!(end.peer.starts_with("victim-"), "a survivor lost {}: {}", end.peer, end.cause);
            assert!(matches!(end.cause, Cause::Exited(_)), "it was killed, and did not leave: {end}");
            let living = progress.living.load(Ordering::SeqCst);
            assert!(living == 0 || end.peer != format!("victim-{}/desk", living - 1), "it lives: {end}");
            if !talk.streams.contains_key(&end.channel) {
                from_ended_victims += before.get(&end.channel).copied().unwrap_or(0);
            }
        }
        let (mut friends, mut victims, mut open) = (0, from_ended_victims, 0);
        for (&key, stream) in &talk.streams {
            match endpoint.peer(key) {
                Some(peer) if peer.starts_with("survivor-") => friends += stream.1,
                _ => {
                    victims += stream.1;
                    open += 1;
                }
            }
        }
        progress.among_friends[number].store(friends, Ordering::Relaxed);
        progress.from_victims[number].store(victims, Ordering::Relaxed);
        progress.open_to_victims[number].store(open, Ordering::Relaxed);
    }
    assert_eq!(endpoint.channels().count(), 2, "one friend on each side, no dead");
    endpoint
}

/// Opens channels to the victim of the round all the time. It is told at once that there is nobody, that the victim left,
/// or that it is gone; never by running out of time.
fn keep_opening(agent: &Agent, round: &AtomicU64, progress: &Progress) -> Endpoint {
    let mut endpoint = agent.endpoint("desk").unwrap();
    while !progress.stop.load(Ordering::Relaxed) {
        let victim = format!("victim-{}", round.load(Ordering::Relaxed));
        match endpoint.open(&format!("{victim}/desk")) {
            Ok(key) => {
                let _ = endpoint.send(key, 1, &message(0));
                endpoint.close(key);
            }
            Err(RequestError::Refused(reason)) => assert!(reason.contains(&victim), "{reason}"),
            Err(other) => panic!("{other}"),
        }
        let _ = endpoint.receive(&mut [0; 4096]);
    }
    endpoint
}

#[test]
fn kills_at_random_points_hurt_nobody_else() {
    let scene = Scene::new("kills");
    let seed = number_from("COMB_FUZZ_SEED").unwrap_or(0x5eed_0001).max(1);
    let lasting = Duration::from_secs(number_from("COMB_SOAK_SECONDS").unwrap_or(0));
    println!("COMB_FUZZ_SEED={seed}");
    let mut random = Random(seed);
    let progress = Arc::new(Progress::default());
    let round = Arc::new(AtomicU64::new(0));
    let agents: Vec<_> = (0..3).map(|number| scene.connect(&format!("survivor-{number}"))).collect();
    // All doors are there before anybody knocks.
    let endpoints: Vec<_> = agents.iter().map(|agent| agent.endpoint("desk").unwrap()).collect();
    drop(agents);
    let mut threads: Vec<_> = endpoints
        .into_iter()
        .enumerate()
        .map(|(number, endpoint)| {
            let progress = Arc::clone(&progress);
            std::thread::spawn(move || survive(endpoint, number, &progress))
        })
        .collect();
    let opener = scene.connect("opener");
    threads.push({
        let (round, progress) = (Arc::clone(&round), Arc::clone(&progress));
        std::thread::spawn(move || keep_opening(&opener, &round, &progress))
    });
    let all = |counts: &[AtomicU64; 3]| counts.each_ref().map(|count| count.load(Ordering::Relaxed));
    let started = Instant::now();
    while round.load(Ordering::Relaxed) < 12 || started.elapsed() < lasting {
        let number = round.load(Ordering::Relaxed);
        let heard = all(&progress.from_victims);
        progress.living.store(number + 1, Ordering::SeqCst);
        let mut victim = Process::start("talker", &format!("victim-{number}"), &scene.path());
        let alive = || threads.iter().all(|thread| !thread.is_finished());
        if random.below(3) > 0 {
            wait_until("the victim talks to all three", || {
                assert!(alive(), "a survivor failed, seed {seed}, round {number}");
                all(&progress.from_victims).iter().zip(heard).all(|(now, before)| now > &(before + 100))
            });
        }
        std::thread::sleep(Duration::from_micros(random.below(20_000)));
        progress.living.store(0, Ordering::SeqCst);
        victim.kill();
        let friends = all(&progress.among_friends);
        wait_until("the survivors let the dead go and talk on", || {
            assert!(alive(), "a survivor failed, seed {seed}, round {number}");
            all(&progress.open_to_victims) == [0; 3]
                && all(&progress.among_friends).iter().zip(friends).all(|(now, before)| now > &(before + 100))
        });
        round.fetch_add(1, Ordering::Relaxed);
    }
    progress.stop.store(true, Ordering::Relaxed);
    let endpoints: Vec<_> =
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| panic!("seed {seed}"))).collect();
    drop(endpoints);
    scene.end();
}

/// A dying process's sockets close before its descriptor says that it has ended. The agent's word that it left came first
/// in one of a dozen kills, and the channel's end was put down to its own will.
#[test]
fn a_killed_process_never_seems_to_have_left() {
    let scene = Scene::new("cause");
    let agent = scene.connect("alice");
    let mut alice = agent.endpoint("desk").unwrap();
    let kills = number_from("COMB_KILLS").unwrap_or(40);
    for number in 0..kills {
        let name = format!("victim-{number}");
        let mut victim = Process::start("echo", &name, &scene.path());
        let key = scene.open(&mut alice, &format!("{name}/desk"));
        let more: Vec<_> = (0..3).map(|_| scene.open(&mut alice, &format!("{name}/desk"))).collect();
        let pid = victim.child.id();
        victim.child.kill().unwrap();
        for _ in 0..=more.len() {
            let ended = alice.receive_within(&mut [0; 8], SOON).unwrap_err();
            assert_eq!(ended.cause, Cause::Exited(pid), "kill {number}: {ended}");
            assert!(ended.channel == key || more.contains(&ended.channel));
        }
        victim.kill();
        wait_until("the name is free", || {
            agent.list().unwrap().iter().all(|listed| listed.identity.name != name)
        });
    }
    // Who opens to a process that is killed meanwhile is told that it ended.
    let mut victim = Process::start("echo", "last", &scene.path());
    let key = scene.open(&mut alice, "last/desk");
    victim.stop();
    agent.set_answer_limit(FOR_EVER);
    let mut opener = agent.endpoint("opener").unwrap();
    let opening = Waiting::on(move || opener.open("last/desk").unwrap_err().to_string());
    let pid = victim.child.id();
    wait_until("the offer is on the book", || {
        agent.list().unwrap().iter().any(|listed| listed.identity.name == "last" && listed.channels == 2)
    });
    victim.kill();
    assert_eq!(opening.told(), format!("last (process {pid}) ended"));
    assert_eq!(alice.receive_within(&mut [0; 8], SOON).unwrap_err().channel, key);
    drop((alice, agent));
    scene.end_soon();
}

#[test]
fn what_the_dead_left_last_is_found_and_of_the_living_nothing() {
    let scene = Scene::new("word");
    let agent = scene.connect("alice");
    let mut alice = agent.endpoint("desk").unwrap();
    let mut echo = Process::start("echo", "echo", &scene.path());
    let key = scene.open(&mut alice, "echo/desk");
    for _ in 0..3 {
        alice.send(key, 1, b"there?").unwrap();
        alice.receive_within(&mut [0; 8], SOON).unwrap().expect("an echo");
    }
    echo.kill();
    let ended = alice.receive_within(&mut [0; 8], SOON).unwrap_err();
    assert_eq!(ended.last_word, Some(3), "{ended}");
    let living = scene.connect("living").endpoint("desk").unwrap();
    living.leave_word(7);
    let key = scene.open(&mut alice, "living/desk");
    drop(living);
    let ended = alice.receive_within(&mut [0; 8], SOON).unwrap_err();
    assert_eq!((ended.channel, ended.last_word), (key, None), "it may say something else tomorrow: {ended}");
    drop((alice, agent));
    scene.end_soon();
}

/// Runs something that waits in a thread of its own; `told` gets its result, or fails the test if there is none soon.
struct Waiting<T>(mpsc::Receiver<T>);

impl<T: Send + 'static> Waiting<T> {
    fn on(work: impl FnOnce() -> T + Send + 'static) -> Self {
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || sender.send(work()));
        Self(receiver)
    }

    #[track_caller]
    fn told(self) -> T {
        self.0.recv_timeout(SOON).expect("whoever waits for the dead is told")
    }
}

#[test]
fn everybody_who_waits_for_the_dead_is_told_its_name() {
    let scene = Scene::new("waiting");
    let mut victim = Process::start("deaf", "victim", &scene.path());
    let agent = scene.connect("alice");
    agent.set_answer_limit(FOR_EVER);
    let mut endpoints: Vec<Endpoint> = ["receiver", "sender", "sleeper"]
        .map(|name| agent.endpoint_with(name, EndpointOptions::default()).unwrap())
        .into();
    let keys: Vec<_> = endpoints.iter_mut().map(|endpoint| scene.open(endpoint, "victim/desk")).collect();
    let mut opener = agent.endpoint("opener").unwrap();
    victim.stop();
    let (mut sleeper, mut sender, mut receiver) =
        (endpoints.pop().unwrap(), endpoints.pop().unwrap(), endpoints.pop().unwrap());
    let to_victim = keys[1];
    let receiving = Waiting::on(move || receiver.receive_within(&mut [0; 8], FOR_EVER).unwrap_err());
    let sending = Waiting::on(move || {
        loop {
            if let Err(error) = sender.send_within(to_victim, 0, &[&[0; 1000]], FOR_EVER) {
                return error;
            }
        }
    });
    let sleeping = Waiting::on(move || {
        loop {
            sleeper.wait(FOR_EVER);
            if let Err(ended) = sleeper.poll(|_| ()) {
                return ended;
            }
        }
    });
    let opening = Waiting::on(move || opener.open("victim/desk").unwrap_err().to_string());
    // The offer waits in the stopped victim's queue.
    let list = agent.list().unwrap();
    assert!(list.iter().any(|listed| listed.identity.name == "victim"), "{list:?}");
    victim.kill();
    assert_eq!(receiving.told().peer, "victim/desk");
    let error = sending.told();
    assert!(matches!(&error, PostError::Ended(ended) if ended.peer == "victim/desk"), "{error}");
    assert_eq!(sleeping.told().peer, "victim/desk");
    let error = opening.told();
    assert!(error.contains("victim"), "{error}");
    // Their threads drop what they held after they have told.
    drop(agent);
    wait_until("all is unmapped", || mappings() == 0);
    wait_until("all is closed", || descriptors() <= scene.descriptors + 4);
    scene.end_soon();
}

impl Scene {
    /// As [`Scene::end`], for tests whose last threads are just ending.
    fn end_soon(mut self) {
        self.server = None;
        let before = self.descriptors;
        let started = Instant::now();
        while descriptors() > before && started.elapsed() < SOON {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.end();
    }
}

#[test]
fn an_agent_comes_and_goes_and_channels_stay() {
    let mut scene = Scene::new("agent");
    let (one, two) = (scene.connect("alice"), scene.connect("bob"));
    // More than one message can restore.
    let desk = "d".repeat(128);
    let (alice_address, bob_address) = (format!("alice/{desk}"), format!("bob/{desk}"));
    let mut alice = one.endpoint(&desk).unwrap();
    let mut bob = two.endpoint(&desk).unwrap();
    let keys: Vec<_> = (0..250).map(|_| alice.open(&bob_address).unwrap()).collect();
    let theirs: Vec<_> = keys.iter().map(|_| bob.accept(SOON).unwrap()).collect();
    let mut elsewhere = one.endpoint("elsewhere").unwrap();
    let mut echo = Process::start("echo", "echo", &scene.path());
    let to_echo = scene.open(&mut elsewhere, "echo/desk");
    let mut buffer = [0; 64];
    let channels_of = |agent: &Agent, name: &str| {
        agent.list().ok().and_then(|list| {
            list.iter().find(|listed| listed.identity.name == name).map(|listed| listed.channels)
        })
    };
    for life in 0..3_u64 {
        scene.server = None;
        for (number, &key) in keys.iter().enumerate() {
            alice.send(key, 1, &(life * 1000 + number as u64).to_le_bytes()).unwrap();
        }
        let mut seen = vec![false; keys.len()];
        for _ in &keys {
            let got = bob.receive_within(&mut buffer, SOON).unwrap().expect("channels need no agent");
            let number = u64::from_le_bytes(buffer[..8].try_into().unwrap()) - life * 1000;
            assert!(!std::mem::replace(&mut seen[usize::try_from(number).unwrap()], true));
            assert!(theirs.contains(&got.channel));
        }
        wait_until("alice knows that it is away", || {
            matches!(alice.open(&bob_address), Err(RequestError::AgentAway))
        });
        scene.start_agent();
        wait_until("everything is known again", || {
            channels_of(&one, "alice") == Some(251)
                && channels_of(&one, "bob") == Some(250)
                && channels_of(&one, "echo") == Some(1)
        });
        // New channels work, and so does their end.
        let fresh = alice.open(&bob_address).unwrap();
        let back = bob.accept(SOON).unwrap();
        bob.send(back, 2, b"new").unwrap();
        assert_eq!(alice.receive_within(&mut buffer, SOON).unwrap().unwrap().channel, fresh);
        alice.close(fresh);
        assert_eq!(bob.receive_within(&mut buffer, SOON).unwrap_err().channel, back);
        elsewhere.send(to_echo, 3, b"echo").unwrap();
        assert_eq!(elsewhere.receive_within(&mut buffer, SOON).unwrap().unwrap().bytes, 4);
    }
    // Restored channels end as others do: by a close, by a death, and with an endpoint.
    alice.close(keys[7]);
    assert_eq!(bob.receive_within(&mut buffer, SOON).unwrap_err().peer, alice_address);
    wait_until("the agent knows of the close", || channels_of(&one, "bob") == Some(249));
    // A death needs no agent to be told.
    scene.server = None;
    let pid = echo.child.id();
    echo.kill();
    let ended = elsewhere.receive_within(&mut buffer, SOON).unwrap_err();
    assert_eq!((ended.peer.as_str(), ended.cause), ("echo/desk", Cause::Exited(pid)));
    scene.start_agent();
    wait_until("what is left is known again", || {
        channels_of(&one, "alice") == Some(249) && channels_of(&one, "bob") == Some(249)
    });
    drop(alice);
    for _ in 0..249 {
        assert_eq!(bob.receive_within(&mut buffer, SOON).unwrap_err().peer, alice_address);
    }
    wait_until("the agent knows of the end", || channels_of(&two, "bob") == Some(0));
    drop((bob, elsewhere, one, two));
    scene.end();
}

/// Channels open and close while the agent dies and comes back: what was under way when it died is given up by both sides,
/// and nothing stays on the new agent's book that nobody has any more.
#[test]
fn an_agent_that_comes_and_goes_among_busy_openers_ends_with_a_clean_book() {
    let mut scene = Scene::new("restarts");
    let stop = Arc::new(AtomicBool::new(false));
    let (one, two) = (scene.connect("alice"), scene.connect("bob"));
    let opened = Arc::new(AtomicU64::new(0));
    let opening = {
        let (one, stop, opened) = (one.clone(), Arc::clone(&stop), Arc::clone(&opened));
        std::thread::spawn(move || {
            let mut alice = one.endpoint("desk").unwrap();
            let mut keys = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                match alice.open("bob/desk") {
                    Ok(key) => {
                        opened.fetch_add(1, Ordering::Relaxed);
                        keys.push(key);
                    }
                    // Away, or back, but bob is not yet.
                    Err(RequestError::AgentAway | RequestError::Refused(_)) => {}
                    Err(other) => panic!("{other}"),
                }
                if keys.len() > 5 {
                    alice.close(keys.remove(0));
                }
                let _ = alice.receive(&mut [0; 8]);
            }
            for key in keys {
                alice.close(key);
            }
            alice
        })
    };
    let accepting = {
        let (two, stop) = (two.clone(), Arc::clone(&stop));
        std::thread::spawn(move || {
            let mut bob = two.endpoint("desk").unwrap();
            // Until every channel is told to have ended, those whose opener gave up among them.
            while !stop.load(Ordering::Relaxed) || bob.channels().count() > 0 {
                let _ = bob.receive_within(&mut [0; 8], Duration::from_millis(1));
                while bob.accept(Duration::ZERO).is_some() {}
            }
            bob
        })
    };
    for _ in 0..6 {
        let before = opened.load(Ordering::Relaxed);
        wait_until("channels are opened", || opened.load(Ordering::Relaxed) > before + 20);
        scene.server = None;
        scene.start_agent();
    }
    let before = opened.load(Ordering::Relaxed);
    // Two, because one can have been opened by the agent before, and be counted only now.
    wait_until("channels are opened after the last restart", || opened.load(Ordering::Relaxed) > before + 1);
    stop.store(true, Ordering::Relaxed);
    let alice = Waiting::on(move || opening.join().unwrap()).told();
    let bob = Waiting::on(move || accepting.join().unwrap()).told();
    wait_until("nobody's channels are on the book", || {
        // The last channel may have been opened by the agent before: then this one is still to be found.
        let list = match one.list() {
            Err(RequestError::AgentAway) => return false,
            list => list.unwrap(),
        };
        list.len() == 2 && list.iter().all(|listed| (listed.endpoints, listed.channels) == (1, 0))
    });
    drop((alice, bob, one, two));
    scene.end_soon();
}

#[test]
fn a_stopped_peer_is_silent_and_a_slow_one_is_not() {
    let scene = Scene::new("silence");
    let limit = Duration::from_millis(300);
    let options = EndpointOptions { silence_limit: Some(limit), ..EndpointOptions::default() };
    let echo = Process::start("echo", "echo", &scene.path());
    let agent = scene.connect("alice");
    let mut alice = agent.endpoint_with("desk", options).unwrap();
    let mut sender = agent.endpoint_with("sender", options).unwrap();
    let to_echo = scene.open(&mut alice, "echo/desk");
    let sending_to_echo = scene.open(&mut sender, "echo/desk");
    let mut buffer = [0; 64];
    alice.send(to_echo, 1, b"hello").unwrap();
    assert_eq!(alice.receive_within(&mut buffer, SOON).unwrap().unwrap().bytes, 5);
    // It sleeps, and has nothing to read: not silent, however long.
    assert_eq!(alice.receive_within(&mut buffer, limit * 4), Ok(None));
    echo.stop();
    assert_eq!(alice.receive_within(&mut buffer, limit * 4), Ok(None), "stopped, but owes nothing");
    alice.send(to_echo, 1, b"hello?").unwrap();
    let ended = alice.receive_within(&mut buffer, SOON).unwrap_err();
    assert_eq!((ended.peer.as_str(), &ended.cause), ("echo/desk", &Cause::Silent(limit)));
    let error = loop {
        if let Err(error) = sender.send_within(sending_to_echo, 0, &[b"anybody?"], SOON) {
            break error;
        }
    };
    assert!(matches!(&error, PostError::Ended(ended) if ended.cause == Cause::Silent(limit)), "{error}");
    // Who opens to it is told that there is no answer, and by whom.
    agent.set_answer_limit(limit);
    let error = alice.open("echo/desk").unwrap_err().to_string();
    assert!(error.contains("echo/desk did not answer within 300ms"), "{error}");
    // When it goes on, the late answers do no harm, and it can be talked to again.
    echo.go_on();
    agent.set_answer_limit(SOON);
    let again = alice.open("echo/desk").unwrap();
    alice.send(again, 1, b"back").unwrap();
    assert_eq!(alice.receive_within(&mut buffer, SOON).unwrap().unwrap().bytes, 4);
    drop((alice, sender, agent, echo));
    scene.end();
}

/// A reader that takes one message in a while, never finds its ring empty, and needs many times the limit for all: each
/// message that it takes shows that it moves.
#[test]
fn a_slow_reader_is_not_declared_dead() {
    let scene = Scene::new("slow");
    let limit = Duration::from_secs(2);
    let options = EndpointOptions { silence_limit: Some(limit), ..EndpointOptions::default() };
    let agent = scene.connect("alice");
    let mut alice = agent.endpoint_with("desk", options).unwrap();
    let mut bob = agent.endpoint("slow").unwrap();
    let to_bob = alice.open("alice/slow").unwrap();
    bob.accept(SOON).unwrap();
    let messages = 12_u32;
    for number in 0..messages {
        alice.send(to_bob, 1, &number.to_le_bytes()).unwrap();
    }
    let reader = std::thread::spawn(move || {
        let mut buffer = [0; 4];
        for number in 0..messages {
            std::thread::sleep(limit / 5);
            assert_eq!(bob.receive(&mut buffer).unwrap().unwrap().bytes, 4);
            assert_eq!(u32::from_le_bytes(buffer), number);
        }
        bob
    });
    while !reader.is_finished() {
        assert_eq!(alice.receive_within(&mut [0; 8], limit / 10), Ok(None), "the slow reader lives");
    }
    drop(reader.join().unwrap());
    drop((alice, agent));
    scene.end();
}

/// A peer that waits for something else leaves messages unread for many times the limit: its tick shows that it moves.
#[test]
fn a_peer_that_moves_and_does_not_read_is_not_declared_dead() {
    let scene = Scene::new("elsewhere");
    let limit = Duration::from_secs(2);
    let options = EndpointOptions { silence_limit: Some(limit), ..EndpointOptions::default() };
    let agent = scene.connect("alice");
    let mut alice = agent.endpoint_with("desk", options).unwrap();
    let mut bob = agent.endpoint("elsewhere").unwrap();
    let to_bob = alice.open("alice/elsewhere").unwrap();
    bob.accept(SOON).unwrap();
    alice.send(to_bob, 1, b"unread").unwrap();
    let waiter = std::thread::spawn(move || {
        assert_eq!(bob.accept(limit * 3), None, "nobody else opens");
        bob
    });
    while !waiter.is_finished() {
        assert_eq!(alice.receive_within(&mut [0; 8], limit / 10), Ok(None), "who waits elsewhere lives");
    }
    drop(waiter.join().unwrap());
    drop((alice, agent));
    scene.end();
}

/// Every descriptor and every mapping of channels that came and went is gone while the process goes on.
#[test]
fn channels_that_come_and_go_leave_nothing() {
    let scene = Scene::new("churn");
    let (agent, other) = (scene.connect("alice"), scene.connect("bob"));
    for events in [false, true] {
        let options = EndpointOptions { events, ..EndpointOptions::default() };
        let mut alice = agent.endpoint_with("desk", options).unwrap();
        let mut keys = Vec::new();
        let mut held = None;
        for round in 0..20 {
            // The last owner leaves in three ways: it closes, its endpoint is dropped, or it is dropped unseen.
            let mut bob = other.endpoint_with("chair", options).unwrap();
            keys.push(alice.open("bob/chair").unwrap());
            if round % 3 != 2 {
                let key = bob.accept(SOON).unwrap();
                bob.send(key, 0, b"x").unwrap();
                if round % 3 == 0 {
                    bob.close(key);
                }
            }
            assert!(alice.open("nobody/here").is_err());
            drop(bob);
            let mut buffer = [0; 8];
            loop {
                match alice.receive_within(&mut buffer, SOON) {
                    Ok(got) => assert!(got.is_some(), "the end is told"),
                    Err(ended) => break assert_eq!(ended.channel, *keys.last().unwrap()),
                }
            }
            // The watcher and the agent let go a moment later.
            let before = *held.get_or_insert_with(|| {
                std::thread::sleep(Duration::from_millis(50));
                (descriptors(), mappings())
            });
            wait_until("nothing is left of the channel", || {
                descriptors() <= before.0 && mappings() <= before.1
            });
        }
    }
    drop((agent, other));
    scene.end();
}
