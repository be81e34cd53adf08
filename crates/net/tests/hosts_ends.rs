//! How channels between hosts end: real processes of one host die, and their peers on the other are told by the agents, not
//! by silence. The silence limit is longer than any test, so that nothing else can tell.

mod addresses;
mod room;
mod standing;

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use comb_net::agent::{Limits, SameUser, Server};
use comb_net::{Agent, Cause, ChannelEnded, Endpoint, EndpointOptions, Geometry, InProcess};
use room::Room;
use rustix::process::{Pid, Signal};

const SOON: Duration = Duration::from_secs(30);
/// Whoever returns before was told.
const FOR_EVER: Duration = Duration::from_secs(600);
const OPTIONS: EndpointOptions = EndpointOptions {
    channels: 64,
    events: true,
    sleeps_often: false,
    geometry: Geometry { slots: 64, payload_bytes: 20 << 10 },
    trap_wild_stores: false,
    silence_limit: Some(FOR_EVER),
    silence_limit_elsewhere: Duration::from_secs(10),
    looks_after: Duration::from_millis(100),
};

const ROLE: &str = "COMB_HOSTS_TEST_ROLE";
const PATH: &str = "COMB_HOSTS_TEST_PATH";

/// Not a test: what the processes of beta run, which are started with this test's name and a role.
#[test]
fn process_of_beta() {
    let Ok(role) = std::env::var(ROLE) else { return };
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
    let agent = Agent::connect(&PathBuf::from(std::env::var(PATH).unwrap()), "bob").unwrap();
    let mut endpoint = agent.endpoint_with("desk", OPTIONS).unwrap();
    match role.as_str() {
        "echo" => echo(endpoint),
        "opener" => {
            let key = endpoint.open("alpha:alice/desk").unwrap();
            endpoint.send(key, 0, b"hello").unwrap();
            echo(endpoint)
        }
        "leaver" => {
            endpoint.accept(SOON).expect("alice opens");
            // Nothing of it is dropped, so nobody says farewell.
            std::process::exit(0)
        }
        "parent" => {
            inherit();
            echo(endpoint)
        }
        other => panic!("no such role: {other}"),
    }
}

/// Leaves as its last word how many it has taken.
fn echo(mut endpoint: Endpoint) -> ! {
    let mut buffer = vec![0; 70_000];
    let mut taken = 0;
    loop {
        if let Ok(Some(got)) = endpoint.receive_within(&mut buffer, SOON) {
            taken += 1;
            endpoint.leave_word(taken);
            let _ = endpoint.send_within(got.channel, got.kind, &[&buffer[..got.bytes]], SOON);
        }
    }
}

/// Makes a child that has all our descriptors, sockets to the agent included, and outlives us.
#[expect(unsafe_code, reason = "a fork without exec has no safe wrapper")]
fn inherit() {
    // SAFETY: the child calls nothing but sleep and exit, which may be called after a fork.
    unsafe {
        if libc::fork() == 0 {
            libc::sleep(120);
            libc::_exit(0);
        }
    }
}

/// Another process; killed and reaped at the end whatever happens.
struct Process(Child);

impl Process {
    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    fn stop(&self) {
        standing::stop(Pid::from_child(&self.0));
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // With the child that it may have made; its group has its number for as long as either lives.
        let _ = rustix::process::kill_process_group(Pid::from_child(&self.0), Signal::KILL);
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Alice on alpha, whose agent is in this process, and Bob, a process of beta.
struct Scene {
    _alpha: InProcess,
    _beta: Server,
    alice: Endpoint,
    bob: Process,
}

fn scene(role: &str) -> Scene {
    static SCENES: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = SCENES.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("comb-hosts-ends-{}-{number}", std::process::id()));
    let room = Room::of(&["alpha", "beta"]);
    // Each is told where the other listens.
    let listen = addresses::own();
    let mut alpha = room.host("alpha", "127.0.0.1", &[]);
    alpha.listen = listen;
    let beta = room.host("beta", "127.0.0.1", &[("alpha", listen)]);
    let beta = Server::bind_with(&path, Box::new(SameUser), Limits::default(), Some(beta)).unwrap();
    alpha.addresses.insert("beta".into(), beta.door().unwrap());
    let alpha = InProcess::among(Box::new(SameUser), Limits::default(), alpha).unwrap();
    let alice = alpha.connect("alice").unwrap().endpoint_with("desk", OPTIONS).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["process_of_beta", "--exact", "--nocapture"]).stdout(Stdio::null());
    command.env(ROLE, role).env(PATH, &path).process_group(0);
    Scene { _alpha: alpha, _beta: beta, alice, bob: Process(command.spawn().unwrap()) }
}

impl Scene {
    /// Opens a channel to Bob as soon as he is there.
    fn open(&mut self) -> comb_net::ChannelKey {
        let started = std::time::Instant::now();
        loop {
            match self.alice.open("beta:bob/desk") {
                Ok(key) => return key,
                Err(error) => assert!(started.elapsed() < SOON, "{error}"),
            }
        }
    }

    fn end(&mut self) -> ChannelEnded {
        let mut buffer = [0; 100];
        loop {
            match self.alice.receive_within(&mut buffer, SOON) {
                Ok(got) => assert!(got.is_some(), "nobody told of the end"),
                Err(ended) => return ended,
            }
        }
    }
}

#[track_caller]
fn names_bob(ended: &ChannelEnded, pid: u32) {
    let Cause::Left(reason) = &ended.cause else { panic!("{ended}") };
    assert_eq!(*reason, format!("host beta: bob (process {pid}) ended"));
}

#[test]
fn a_killed_process_of_another_host_is_told_of() {
    let mut scene = scene("echo");
    let key = scene.open();
    scene.alice.send(key, 3, b"there?").unwrap();
    let got = scene.alice.receive_within(&mut [0; 100], SOON).unwrap().unwrap();
    assert_eq!((got.channel, got.kind, got.bytes), (key, 3, 6));
    scene.bob.kill();
    let ended = scene.end();
    assert_eq!((ended.channel, ended.peer.as_str()), (key, "beta:bob/desk"));
    names_bob(&ended, scene.bob.0.id());
    assert_eq!(ended.last_word, Some(1));
}

#[test]
fn a_killed_opener_is_told_of_and_what_it_said_before_is_delivered() {
    let mut scene = scene("opener");
    let key = scene.alice.accept(SOON).expect("bob opens");
    scene.bob.stop();
    scene.bob.kill();
    // Bob may have been stopped before he spoke.
    let mut said = 0;
    let ended = loop {
        match scene.alice.receive_within(&mut [0; 100], SOON) {
            Ok(got) => said += got.expect("nobody told of the end").bytes,
            Err(ended) => break ended,
        }
    };
    assert!(said == 0 || said == 5);
    assert_eq!((ended.channel, ended.peer.as_str()), (key, "beta:bob/desk"));
    names_bob(&ended, scene.bob.0.id());
}

#[test]
fn a_sender_that_waits_for_room_is_told_as_well() {
    let mut scene = scene("echo");
    let key = scene.open();
    scene.bob.stop();
    while scene.alice.send(key, 1, &[0; 60_000]).is_ok() {}
    let Scene { mut alice, mut bob, _alpha, _beta } = scene;
    let waiting = std::thread::spawn(move || {
        // What Bob acknowledged before he stood still can make room once more.
        let outcome = loop {
            let outcome = alice.send_within(key, 1, &[&[0; 60_000]], SOON);
            if outcome.is_err() {
                break outcome;
            }
        };
        (alice, outcome)
    });
    std::thread::sleep(Duration::from_millis(20));
    bob.kill();
    let (_alice, outcome) = waiting.join().unwrap();
    let Err(comb_net::PostError::Ended(ended)) = outcome else { panic!("{outcome:?}") };
    names_bob(&ended, bob.0.id());
}

/// A socket to the agent stays open for as long as anybody has it. A child that was forked and never ran another program
/// kept a dead process alive for its peers.
#[test]
fn a_child_that_inherited_its_sockets_does_not_keep_a_dead_process_alive() {
    let mut scene = scene("parent");
    let key = scene.open();
    scene.alice.send(key, 3, b"there?").unwrap();
    scene.alice.receive_within(&mut [0; 100], SOON).unwrap().unwrap();
    scene.bob.kill();
    names_bob(&scene.end(), scene.bob.0.id());
}

/// A member that its group had left out on another host dropped its endpoint and made it anew, to come in again; the agent refused
/// the name for as long as the last words to the others were under way.
#[test]
fn an_endpoint_whose_last_words_nobody_takes_can_be_made_anew_at_once() {
    let mut scene = scene("echo");
    scene.open();
    let carol = scene._alpha.connect("carol").unwrap();
    let mut desk = carol.endpoint_with("desk", OPTIONS).unwrap();
    let key = desk.open("beta:bob/desk").unwrap();
    scene.bob.stop();
    desk.send(key, 0, b"unread").unwrap();
    drop(desk);
    carol.endpoint_with("desk", OPTIONS).unwrap();
}

/// It may be gone before the agents' line stands.
#[test]
fn one_that_leaves_as_soon_as_it_has_the_channel_is_told_of() {
    for _ in 0..10 {
        let mut scene = scene("leaver");
        let opened = loop {
            match scene.alice.open("beta:bob/desk") {
                Err(error) if error.to_string().contains("no process") => {}
                Err(error) if error.to_string().contains("no endpoint") => {}
                opened => break opened,
            }
        };
        let pid = scene.bob.0.id();
        // The end can come before the answer; then it is the answer.
        match opened {
            Ok(_) => names_bob(&scene.end(), pid),
            Err(refusal) => {
                assert_eq!(refusal.to_string(), format!("host beta: bob (process {pid}) ended"));
            }
        }
    }
}
