//! Who takes places at an agent, and does not use them, or brings more than belongs there: the agent lets go of it, says
//! why, and serves the others.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use comb_net::agent::protocol::{self, ProtocolError, Reply, Request};
use comb_net::agent::{Limits, SameUser, Server};
use comb_net::{Agent, ConnectError, Endpoint};
use rustix::net::{AddressFamily, SendAncillaryBuffer, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const SOON: Duration = Duration::from_secs(30);

#[track_caller]
fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < SOON, "not within {SOON:?}: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// One at a time, because descriptors are counted.
static ALONE: Mutex<()> = Mutex::new(());

struct Scene {
    path: PathBuf,
    _alone: MutexGuard<'static, ()>,
}

impl Scene {
    fn new(name: &str) -> Self {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let path = std::env::temp_dir().join(format!("comb-places-{}-{name}", std::process::id()));
        Self { path, _alone: alone }
    }

    fn serve(&self, limits: Limits) -> Server {
        Server::bind(&self.path, Box::new(SameUser), limits).unwrap()
    }

    fn connect(&self, name: &str) -> Result<Agent, ConnectError> {
        Agent::connect(&self.path, name)
    }

    /// A connection on which nothing is said.
    fn silent(&self) -> OwnedFd {
        let flags = SocketFlags::CLOEXEC;
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        let timeout = rustix::net::sockopt::Timeout::Recv;
        rustix::net::sockopt::set_socket_timeout(&socket, timeout, Some(SOON)).unwrap();
        rustix::net::connect(&socket, &SocketAddrUnix::new(&self.path).unwrap()).unwrap();
        socket
    }
}

fn send_bytes(socket: &OwnedFd, bytes: &[u8], with: &[BorrowedFd<'_>]) -> bool {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(64))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !with.is_empty() {
        assert!(ancillary.push(rustix::net::SendAncillaryMessage::ScmRights(with)));
    }
    let parts = [std::io::IoSlice::new(bytes)];
    rustix::net::sendmsg(socket, &parts, &mut ancillary, SendFlags::NOSIGNAL).is_ok()
}

/// What the agent says before it hangs up.
#[track_caller]
fn farewell(socket: &OwnedFd) -> String {
    let reason = match protocol::receive::<Reply>(socket) {
        Ok((Reply::Refused { request: None, reason }, _)) => reason,
        other => panic!("no farewell: {other:?}"),
    };
    assert!(matches!(protocol::receive::<Reply>(socket), Err(ProtocolError::Ended)));
    reason
}

#[test]
fn connections_are_limited_in_all_and_for_each_user_and_the_refused_know_why() {
    let scene = Scene::new("limits");
    let user = rustix::process::getuid().as_raw();
    for (limits, words) in [
        (Limits { connections: 3, ..Limits::default() }, "limit of 3 connections is reached".to_owned()),
        (
            Limits { connections_per_user: 3, ..Limits::default() },
            format!("limit of 3 connections of user {user} is reached"),
        ),
    ] {
        let server = scene.serve(limits);
        let mut held: Vec<_> = (0..3).map(|n| scene.connect(&format!("held-{n}")).unwrap()).collect();
        // Often: the refusal must come through whichever of both sides is faster.
        for _ in 0..50 {
            let error = scene.connect("alice").unwrap_err();
            assert!(matches!(&error, ConnectError::Refused(reason) if reason.contains(&words)), "{error}");
            assert!(error.to_string().contains("comb up --limits connections"), "{error}");
        }
        // Who was let in is served, and a place that is given back is another's.
        assert_eq!(held[0].list().unwrap().len(), 3);
        held.pop();
        wait_until("a place is free", || scene.connect("alice").is_ok());
        drop(server);
    }
}

/// Whoever connected and said nothing held its place for ever.
#[test]
fn a_connection_without_a_hello_gives_its_place_back() {
    let scene = Scene::new("silent");
    let _server = scene.serve(Limits { connections: 2, ..Limits::default() });
    let silent = [scene.silent(), scene.silent()];
    assert!(scene.connect("alice").is_err(), "all places are taken");
    for socket in &silent {
        let reason = farewell(socket);
        assert!(reason.contains("no hello came within"), "{reason}");
    }
    let alice = scene.connect("alice").unwrap();
    // One that says a little is no better off; one that said hello may be silent.
    let socket = scene.silent();
    assert!(send_bytes(&socket, &[1], &[]));
    assert!(farewell(&socket).contains("no message"));
    let socket = scene.silent();
    let refused = protocol::encode(&Request::Hello { name: "alice".into() }).unwrap();
    assert!(send_bytes(&socket, &refused, &[]));
    assert!(matches!(protocol::receive::<Reply>(&socket), Ok((Reply::Refused { .. }, _))), "it is taken");
    let reason = farewell(&socket);
    assert!(reason.contains("no hello came within"), "a refused hello is none: {reason}");
    assert_eq!(alice.list().unwrap().len(), 1);
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn descriptors_that_nobody_asked_for_are_closed() {
    let scene = Scene::new("descriptors");
    let server = scene.serve(Limits::default());
    let alice = scene.connect("alice").unwrap();
    alice.list().unwrap();
    let before = descriptors();
    let any = std::fs::File::open("/dev/zero").unwrap();
    let hello = protocol::encode(&Request::Hello { name: "mallory".into() }).unwrap();
    let list = protocol::encode(&Request::List { request: 1 }).unwrap();
    for count in [1, 8, 9, 12, 30, 64] {
        // With what needs none, with what is no message, and with nothing.
        for (bytes, words) in
            [(&list[..], ""), (&[1, 0xEE][..], "no message"), (&[1; protocol::LONGEST_MESSAGE + 1], "limits")]
        {
            let socket = scene.silent();
            assert!(send_bytes(&socket, &hello, &[]));
            assert!(matches!(protocol::receive::<Reply>(&socket), Ok((Reply::Welcome { .. }, _))));
            assert!(send_bytes(&socket, bytes, &vec![any.as_fd(); count]));
            if words.is_empty() && count <= 8 {
                assert!(matches!(protocol::receive::<Reply>(&socket), Ok((Reply::Listing { .. }, _))));
            } else {
                let reason = farewell(&socket);
                assert!(reason.contains(if count > 8 { "limits" } else { words }), "{reason}");
            }
            drop(socket);
            wait_until("mallory's name is free", || alice.list().unwrap().len() == 1);
        }
    }
    drop(any);
    wait_until("all that mallory sent is closed", || descriptors() < before + 1);
    drop((alice, server));
}

// ── an agent without descriptors ──

const PATH: &str = "COMB_PLACES_TEST_PATH";
const FEW: &str = "COMB_PLACES_TEST_DESCRIPTORS";

/// Not a test: an agent in a process of its own, whose limit is low.
#[test]
fn agent_process() {
    let Ok(path) = std::env::var(PATH) else { return };
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL)).unwrap();
    let few = std::env::var(FEW).unwrap().parse().unwrap();
    setrlimit(Resource::Nofile, Rlimit { current: Some(few), ..getrlimit(Resource::Nofile) }).unwrap();
    let _server = Server::bind(Path::new(&path), Box::new(SameUser), Limits::default()).unwrap();
    loop {
        std::thread::sleep(SOON);
    }
}

struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An agent that could not accept looked at its listener again and again, on a core of its own, and nobody who knocked
/// was told anything.
#[test]
fn an_agent_without_descriptors_says_so_and_takes_others_when_it_can() {
    let scene = Scene::new("exhausted");
    // A process with an endpoint costs three: each number of those that are left over meets another lack.
    for few in [48, 49, 50] {
        exhaust(&scene, few);
    }
}

fn exhaust(scene: &Scene, few: usize) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["agent_process", "--exact", "--nocapture"]).stdout(Stdio::null());
    command.env(PATH, &scene.path).env(FEW, few.to_string());
    let process = Process(command.spawn().unwrap());
    wait_until("the agent is there", || scene.connect("first").is_ok());
    let mut held: Vec<(Agent, Endpoint)> = Vec::new();
    let mut without_desk = Vec::new();
    let reason = loop {
        assert!(held.len() < few, "a place costs the agent more than a descriptor");
        match scene.connect(&format!("held-{}-{}", held.len(), without_desk.len())) {
            Ok(agent) => match agent.endpoint("desk") {
                Ok(desk) => held.push((agent, desk)),
                // The agent had descriptors for the connection, and none for the board.
                Err(error) => {
                    assert!(error.to_string().contains("ulimit -n"), "{error}");
                    without_desk.push(agent);
                }
            },
            Err(error) => break error.to_string(),
        }
    };
    assert!(reason.contains("ulimit -n"), "{reason}");
    for _ in 0..50 {
        let silent = scene.silent();
        let reason = farewell(&silent);
        assert!(reason.contains("ulimit -n"), "{reason}");
    }
    // Those whom it knows are served: they and their descriptors. A new one is, as soon as there is room.
    let known = held.len();
    assert!(known > 4, "the test is about more than a few: {known}");
    let listed = held[0].0.list().unwrap().len();
    assert!(listed >= known, "{listed} of {known}");
    held.truncate(known - 3);
    wait_until("there is room again", || {
        scene.connect("late").is_ok_and(|agent| {
            agent.endpoint("desk").is_ok_and(|mut desk| desk.open("held-0-0/desk").is_ok())
        })
    });
    drop(process);
    std::fs::remove_file(&scene.path).unwrap();
}
