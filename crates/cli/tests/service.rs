//! The agent as a service manager runs it: in the foreground, told of by datagrams, killed and begun again, ended by SIGTERM.

use std::os::unix::net::UnixDatagram;
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use self::cells::{Comb, LIMIT};

#[expect(dead_code, reason = "other tests need more of it")]
mod cells;

/// A service manager's socket; every datagram that came.
struct Manager {
    socket: UnixDatagram,
    heard: Vec<String>,
}

impl Manager {
    fn new(comb: &mut Comb) -> Self {
        let path = comb.scratch.join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        comb.variables.push(("NOTIFY_SOCKET", path.into()));
        Self { socket, heard: Vec::new() }
    }

    /// Waits for a datagram with that line in it.
    #[track_caller]
    fn await_line(&mut self, line: &str) {
        while !self.heard.iter().any(|word| word.lines().any(|one| one == line)) {
            let mut bytes = [0; 500];
            let length = self.socket.recv(&mut bytes).unwrap_or_else(|error| {
                panic!("waited for {line}, heard {:?}: {error}", self.heard);
            });
            self.heard.push(String::from_utf8(bytes[..length].to_vec()).unwrap());
        }
    }
}

fn host(comb: &Comb) -> Child {
    let mut command = comb.command(&["host", "--cells", "2"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

fn send(signal: Signal, process: &Child) {
    kill_process(Pid::from_child(process), signal).unwrap();
}

fn pids(status: &Value) -> Vec<u64> {
    status["cells"].as_array().unwrap().iter().map(|cell| cell["pid"].as_u64().unwrap()).collect()
}

#[test]
fn a_service_manager_is_told_when_it_can_be_asked_how_many_are_up_and_when_it_ends() {
    let mut comb = Comb::new("notify");
    let mut manager = Manager::new(&mut comb);
    let mut agent = host(&comb);
    manager.await_line("READY=1");
    assert_eq!(manager.heard.len(), 1, "that is the first word: {:?}", manager.heard);
    assert_eq!(pids(&comb.status()).len(), 2, "it can be asked");
    manager.await_line("STATUS=2 of 2 cells are up");

    // A cell is no service manager's business, and says nothing to it in the agent's place.
    let cell = comb.status()["cells"][0]["pid"].as_u64().unwrap();
    let environment = std::fs::read(format!("/proc/{cell}/environ")).unwrap();
    assert!(!String::from_utf8_lossy(&environment).contains("NOTIFY_SOCKET"));

    send(Signal::TERM, &agent);
    manager.await_line("STOPPING=1");
    assert_eq!(agent.wait().unwrap().code(), Some(0));
    assert!(!comb.directory().exists());
}

#[test]
fn an_agent_that_was_killed_is_begun_again_by_whoever_runs_it_and_has_the_same_cells() {
    let mut comb = Comb::new("begun-again");
    let mut manager = Manager::new(&mut comb);
    let mut first = host(&comb);
    manager.await_line("STATUS=2 of 2 cells are up");
    let before = pids(&comb.status());
    send(Signal::KILL, &first);
    first.wait().unwrap();

    manager.heard.clear();
    let mut second = host(&comb);
    manager.await_line("READY=1");
    manager.await_line("STATUS=2 of 2 cells are up");
    assert_eq!(pids(&comb.status()), before);
    send(Signal::TERM, &second);
    assert_eq!(second.wait().unwrap().code(), Some(0));
}
