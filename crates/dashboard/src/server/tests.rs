//! The server as others find it: over a socket, by whoever knows how to connect.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use super::*;

const LIMIT: Duration = Duration::from_secs(20);

/// A server of a comb that was never started: it has a directory, and nobody in it.
struct Scene {
    directory: RuntimeDirectory,
    address: SocketAddr,
    metrics: SocketAddr,
    thread: Option<std::thread::JoinHandle<Result<(), DashboardError>>>,
}

impl Scene {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("comb-served-{}-{number}", std::process::id()));
        let directory = RuntimeDirectory::at(path).unwrap();
        directory.create().unwrap();
        // As an agent has it that was killed.
        std::fs::write(directory.events_file(), "").unwrap();
        let [listener, metrics] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let (address, metrics_at) = (listener.local_addr().unwrap(), metrics.local_addr().unwrap());
        let (token, view_token) = ("a11".to_owned(), "5ee".to_owned());
        let options =
            Options { directory: directory.clone(), listener, metrics: Some(metrics), token, view_token };
        let thread = Some(std::thread::spawn(move || run(options)));
        Self { directory, address, metrics: metrics_at, thread }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream
    }

    /// A whole request as a browser makes it, and all of the answer.
    fn ask(&self, line: &str, headers: &[&str]) -> (u16, String) {
        let mut stream = self.connect();
        let mut request = format!("{line} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n", self.address);
        for header in headers {
            request += &format!("{header}\r\n");
        }
        stream.write_all((request + "\r\n").as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let status = answer.split(' ').nth(1).and_then(|word| word.parse().ok());
        (status.unwrap_or_else(|| panic!("no answer to {line}: {answer:?}")), answer)
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.directory.remove().unwrap();
        let ended = self.thread.take().unwrap().join();
        if !std::thread::panicking() {
            ended.unwrap().unwrap();
        }
    }
}

const ACT: &str = "Authorization: Bearer a11";
const SEE: &str = "Authorization: Bearer 5ee";

#[test]
fn the_page_is_for_all_and_what_it_shows_for_who_knows_the_token() {
    let scene = Scene::new();
    let (status, page) = scene.ask("GET /", &[]);
    assert_eq!(status, 200);
    assert!(page.contains("<!doctype html>") && !page.contains("a11"), "{page}");
    for header in ["content-security-policy: default-src 'none'", "x-content-type-options: nosniff"] {
        assert!(page.contains(header), "{header}");
    }
    for line in ["GET /api/state", "GET /api/stream", "GET /metrics", "POST /api/cells/1/kill"] {
        assert_eq!(scene.ask(line, &[]).0, 401, "{line}");
        assert_eq!(scene.ask(line, &["Authorization: Bearer a12"]).0, 401, "{line}");
    }
    let (status, state) = scene.ask("GET /api/state", &[ACT]);
    assert_eq!(status, 200);
    assert!(state.contains("\"may_act\":true") && state.contains("no agent is running"), "{state}");
    assert!(scene.ask("GET /api/state", &[SEE]).1.contains("\"may_act\":false"));
    assert!(scene.ask("GET /metrics", &[SEE]).1.contains("\ncomb_agent_up 0\n"));
}

#[test]
fn only_who_may_act_does_and_no_other_site() {
    let scene = Scene::new();
    let kill = "POST /api/cells/1/kill";
    assert_eq!(scene.ask(kill, &[SEE]).0, 403);
    assert_eq!(scene.ask(kill, &[ACT, "Origin: http://evil.example"]).0, 403);
    assert_eq!(scene.ask(kill, &[ACT, "Sec-Fetch-Site: cross-site"]).0, 403);
    // With a GET nothing is ever done.
    assert_eq!(scene.ask("GET /api/cells/1/kill", &[ACT]).0, 405);
    // A browser asks before it sends the header for another site, and is told nothing that would let it.
    let (status, answer) = scene.ask(
        "OPTIONS /api/cells/1/kill",
        &["Origin: http://evil.example", "Access-Control-Request-Headers: authorization"],
    );
    assert!(status == 405 && !answer.to_lowercase().contains("access-control-allow"), "{answer}");
    let (status, answer) = scene.ask(kill, &[ACT]);
    assert!(status == 502 && answer.contains("no agent is running"), "{answer}");
    assert_eq!(scene.ask("POST /api/cells/one/kill", &[ACT]).0, 404);
    assert_eq!(scene.ask("POST /api/cells/1/paint", &[ACT]).0, 404);
}

#[test]
fn a_name_of_somebody_elses_that_leads_here_finds_nothing() {
    let scene = Scene::new();
    let mut stream = scene.connect();
    let request =
        format!("GET /api/state HTTP/1.1\r\nHost: evil.example\r\n{ACT}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 421 "), "{answer}");
}

#[test]
fn metrics_have_an_address_without_a_token_where_that_is_wanted() {
    let scene = Scene::new();
    let mut stream = TcpStream::connect(scene.metrics).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: any.example\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("comb_build_info{"), "{answer}");
    let mut stream = TcpStream::connect(scene.metrics).unwrap();
    stream.write_all(b"GET /api/state HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 404 "), "nothing else is there: {answer}");
}

/// Reads until a text has come.
fn read_until(stream: &mut TcpStream, text: &str) -> String {
    let (mut all, mut piece, since) = (Vec::new(), [0; 4096], Instant::now());
    loop {
        let said = String::from_utf8_lossy(&all).into_owned();
        if said.contains(text) {
            return said;
        }
        assert!(since.elapsed() < LIMIT, "no {text:?} in {said}");
        match stream.read(&mut piece).unwrap() {
            0 => panic!("it ended without {text:?}: {said}"),
            bytes => all.extend_from_slice(&piece[..bytes]),
        }
    }
}

#[test]
fn a_stream_tells_states_and_what_happens_and_goes_on_where_it_broke_off() {
    let scene = Scene::new();
    let event = |seq: u64, text: &str| {
        let line = json!({ "seq": seq, "at_ms": 1, "at_ns": 1, "kind": "note", "text": text });
        let mut file = std::fs::File::options().append(true).open(scene.directory.events_file()).unwrap();
        writeln!(file, "{line}").unwrap();
    };
    event(1, "the first");
    let ask = |last: &str| {
        let mut stream = scene.connect();
        let request = format!("GET /api/stream HTTP/1.1\r\nHost: {}\r\n{ACT}\r\n{last}\r\n", scene.address);
        stream.write_all(request.as_bytes()).unwrap();
        stream
    };
    let mut stream = ask("");
    let said = read_until(&mut stream, "event: state");
    assert!(said.contains("text/event-stream") && said.contains("the first"), "{said}");
    event(2, "the second");
    read_until(&mut stream, "the second");
    drop(stream);
    event(3, "the third");
    let mut stream = ask("Last-Event-ID: 2\r\n");
    let said = read_until(&mut stream, "the third");
    assert!(!said.contains("the second") && said.contains("id: 3"), "{said}");
    let directory = scene.directory.clone();
    directory.remove().unwrap();
    read_until(&mut stream, "event: bye");
}

/// Numbers that look random and are the same each time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % sides
    }
}

#[test]
fn whatever_comes_in_the_server_goes_on_and_nothing_is_done_or_told() {
    let scene = Scene::new();
    let whole = [
        format!("GET /api/state HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer b22\r\n\r\n", scene.address),
        format!(
            "POST /api/cells/1/kill HTTP/1.1\r\nHost: {}\r\nContent-Length: 4\r\n\r\nabcd",
            scene.address
        ),
        format!(
            "GET /%2e%2e/%00 HTTP/1.1\r\nHost: {}\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
            scene.address
        ),
        "GET / HTTP/1.1\r\nHost: \u{1f41d}\r\nHost: b\r\n\r\n".to_owned(),
    ];
    let mut dice = Dice(7);
    for round in 0..600 {
        let mut bytes = whole[dice.roll(whole.len())].clone().into_bytes();
        for _ in 0..dice.roll(12) {
            let (at, byte) = (dice.roll(bytes.len()), u8::try_from(dice.roll(256)).unwrap());
            match dice.roll(3) {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                _ => drop(bytes.remove(at)),
            }
        }
        if dice.roll(10) == 0 {
            bytes.extend(std::iter::repeat_n(b'x', 40_000));
        }
        let mut stream = scene.connect();
        // It may hang up before it has read everything.
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let said = String::from_utf8_lossy(&answer);
        assert!(!said.contains("\"cells\"") && !said.contains("\"done\""), "round {round}: {said}");
    }
    assert_eq!(scene.ask("GET /api/state", &[ACT]).0, 200);
}

/// Anybody on the machine can connect, and say nothing.
#[test]
fn connections_that_say_nothing_keep_nobody_out_for_long() {
    let scene = Scene::new();
    let _silent: Vec<TcpStream> = (0..200).map(|_| scene.connect()).collect();
    assert_eq!(scene.ask("GET /api/state", &[ACT]).0, 200);
}
