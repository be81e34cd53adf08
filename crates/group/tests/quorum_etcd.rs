//! The quorum resource in etcd, beside a real one; and beside servers that answer nonsense, or nothing.
#![cfg(feature = "etcd")]

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use base64::Engine;
use comb_group::{QuorumEtcd, QuorumEtcdError};
use comb_membership::{Member, ViewEpoch};
use comb_types::{Incarnation, NodeId};
use proptest::prelude::*;

#[path = "../../net/tests/addresses/mod.rs"]
mod addresses;

const SOON: Duration = Duration::from_secs(60);

/// An etcd of our own, gone with the test.
struct Etcd {
    process: Child,
    folder: PathBuf,
    server: String,
}

impl Etcd {
    /// None where there is no etcd: `make setup-test` installs it.
    fn start() -> Option<Self> {
        let folder = std::env::temp_dir().join(format!("comb-etcd-{}", std::process::id()));
        std::fs::create_dir(&folder).expect("a folder");
        let log = std::fs::File::create(folder.join("log")).expect("a file");
        let server = addresses::own().to_string();
        let urls = [format!("http://{server}"), format!("http://{}", addresses::own())];
        let process = Command::new("etcd")
            .arg("--data-dir")
            .arg(folder.join("data"))
            .args(["--listen-client-urls", &urls[0], "--advertise-client-urls", &urls[0]])
            .args(["--listen-peer-urls", &urls[1], "--initial-advertise-peer-urls", &urls[1]])
            .args(["--initial-cluster", &format!("default={}", urls[1])])
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        match process {
            Ok(process) => Some(Self { process, folder, server }),
            Err(error) => {
                eprintln!("not tested: etcd cannot be started: {error}");
                None
            }
        }
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("etcd: {}", std::fs::read_to_string(self.folder.join("log")).unwrap_or_default());
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn member(node: u32) -> Member {
    Member { node: NodeId(node), incarnation: Incarnation(1) }
}

#[test]
fn an_epoch_is_granted_once_whoever_asks_how_often() {
    let Some(etcd) = Etcd::start() else { return };
    let quorum = QuorumEtcd::new(&etcd.server, "test", Duration::from_secs(2));
    let deadline = Instant::now() + SOON;
    while let Err(error) = quorum.acquire(ViewEpoch(1), member(0)) {
        assert!(Instant::now() < deadline, "{error}");
        std::thread::sleep(Duration::from_millis(50));
    }
    let ask = |epoch, node| quorum.acquire(ViewEpoch(epoch), member(node)).unwrap();
    assert!(ask(5, 1));
    assert!(ask(5, 1), "asked again");
    assert!(!ask(5, 2));
    assert!(!ask(4, 2));
    assert!(ask(6, 2));
    let other = QuorumEtcd::new(&etcd.server, "other", Duration::from_secs(2));
    assert!(other.acquire(ViewEpoch(5), member(2)).unwrap(), "another group");
    for epoch in 10..20 {
        let granted = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for node in 0..4 {
                let (quorum, granted) = (&quorum, &granted);
                scope.spawn(move || {
                    if quorum.acquire(ViewEpoch(epoch), member(node)).unwrap() {
                        granted.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(granted.into_inner(), 1, "epoch {epoch}");
    }
}

/// Answers one question with these bytes.
fn server_that_says(answer: &'static [u8]) -> String {
    server_that_answers(vec![answer.to_vec()])
}

/// Answers one question after the other.
fn server_that_answers(answers: Vec<Vec<u8>>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound").to_string();
    std::thread::spawn(move || {
        for (connection, answer) in listener.incoming().zip(answers) {
            let Ok(mut connection) = connection else { continue };
            let _ = connection.write_all(&answer);
            // All of the question is taken before the end: else the asker sees a reset, and not the answer.
            let _ = connection.shutdown(Shutdown::Write);
            let _ = connection.read_to_end(&mut Vec::new());
        }
    });
    address
}

#[test]
fn nonsense_and_silence_are_errors_and_grant_nothing() {
    let ask = |server: &str| {
        QuorumEtcd::new(server, "test", Duration::from_millis(300))
            .acquire(ViewEpoch(1), member(1))
            .unwrap_err()
    };
    for answer in [
        &b""[..],
        b"hello",
        b"HTTP/1.0 500 Oh\r\n\r\n{}",
        b"HTTP/1.0 200 OK\r\n\r\nnot json",
        b"HTTP/1.0 200 OK\r\n\r\n{\"kvs\":[{\"value\":\"Y29tYiBxdW9ydW0gMQ==\"}]}",
    ] {
        let error = ask(&server_that_says(answer));
        assert!(matches!(error, QuorumEtcdError::Answer { .. }), "{error}");
    }
    for answer in [
        &b"HTTP/1.0 200 OK\r\n\r\n{\"kvs\":[{\"value\":\"AAAA\",\"mod_revision\":\"7\"}]}"[..],
        b"HTTP/1.0 200 OK\r\n\r\n{\"kvs\":[{\"value\":\"\",\"mod_revision\":\"7\"}]}",
    ] {
        let error = ask(&server_that_says(answer));
        assert!(matches!(error, QuorumEtcdError::NotOurs(_)), "{error}");
    }
    assert!(matches!(ask(&server_that_says(b"HTTP\xff")), QuorumEtcdError::System { .. }));
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let error = ask(&silent.local_addr().expect("bound").to_string());
    assert!(matches!(error, QuorumEtcdError::System { .. }), "{error}");
    let nobody = addresses::own().to_string();
    assert!(ask(&nobody).to_string().contains(&nobody));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Another has the epoch, and whoever writes all the same comes too late. Bytes that were turned over on the way make an error of
    /// that, but never a grant.
    #[test]
    fn a_garbled_answer_grants_nothing(
        flips in prop::collection::vec((0_usize..2, any::<prop::sample::Index>(), 0_u32..8), 1..4),
        cut in any::<Option<prop::sample::Index>>(),
    ) {
        let kept = "comb quorum 1\nepoch 00000000000000000005\nnode 0000000002\nincarnation 00000000000000077777\n";
        let kept = base64::engine::general_purpose::STANDARD.encode(kept);
        let answer = |body: String| format!("HTTP/1.0 200 OK\r\n\r\n{body}").into_bytes();
        let mut answers = [
            answer(format!("{{\"kvs\":[{{\"value\":\"{kept}\",\"mod_revision\":\"7\"}}]}}")),
            answer("{\"header\":{\"revision\":\"8\"}}".to_owned()),
        ];
        for (which, at, bit) in flips {
            let at = at.index(answers[which].len());
            answers[which][at] ^= 1 << bit;
        }
        if let Some(cut) = cut {
            let length = cut.index(answers[0].len());
            answers[0].truncate(length);
        }
        let server = server_that_answers(answers.to_vec());
        let granted = QuorumEtcd::new(&server, "test", Duration::from_millis(300)).acquire(ViewEpoch(5), member(1));
        prop_assert!(!matches!(granted, Ok(true)), "{:?}", granted);
    }
}
