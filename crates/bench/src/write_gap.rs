//! What a client that writes all the time sees of a fault: the longest time between two acknowledged writes around it, beside
//! etcd.
//!
//! The client is the same for both but for the words it speaks: one thread, one connection, one write at a time; on an error, or
//! after a second without an answer, it goes to the next replica. Replicas are processes of this machine, and the fault is the
//! end of one of them. What happens when a host ends, or a network is cut, is a matter of [`Service`]: of one whose
//! replicas are started by the agents of several hosts.

mod etcd;
mod replica;
mod replicas;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;

use etcd::{Etcd, Setting};
pub(crate) use replica::run as run_replica;
use replicas::Replicas;

/// As many as can lose one.
const REPLICAS: usize = 3;
/// After which a client gives an answer up.
const PATIENCE: Duration = Duration::from_secs(1);
/// Who was refused is refused at once the next time: asking without a pause only takes the time of those who recover.
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(1);
/// Before the fault, so that all is as always.
const BEFORE: Duration = Duration::from_millis(200);
/// What is looked at after it, at least: and until as many writes went well again.
const AFTER: Duration = Duration::from_millis(300);
const WRITES_AFTER: usize = 50;
/// A service that does not come back is none.
const LONGEST_GAP: Duration = Duration::from_secs(30);
const VALUE: &str = "01234567890123456789012345678901234567890123456789012345";

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// A row of the comparison.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Gap {
    pub(crate) claim: String,
    pub(crate) ours_ms: Option<f64>,
    pub(crate) peer: &'static str,
    pub(crate) theirs_ms: Option<f64>,
    /// Why one of them is.
    pub(crate) missing: Option<String>,
}

/// Harms both, a few times, or often enough for the hundredth part.
pub(crate) fn compare(full: bool) -> Vec<Gap> {
    let faults: &[Fault] = if full {
        &[Fault::None, Fault::LeaderOfClient, Fault::LeaderElsewhere, Fault::FollowerOfClient]
    } else {
        &[Fault::None, Fault::LeaderOfClient, Fault::FollowerOfClient]
    };
    let (our_count, their_count) = if full { (100, 100) } else { (5, 2) };
    let ours = Replicas::start().and_then(|mut service| all_gaps(&mut service, faults, our_count));
    let mut rows = Vec::new();
    for setting in [Setting::Default, Setting::Shortest] {
        let theirs = Etcd::start(setting).and_then(|mut service| all_gaps(&mut service, faults, their_count));
        let missing = ours.as_ref().err().or(theirs.as_ref().err()).map(ToString::to_string);
        for (number, fault) in faults.iter().enumerate() {
            for part in [50, 99] {
                let of = |gaps: &Outcome<Vec<Vec<f64>>>| {
                    let gaps = &gaps.as_ref().ok()?[number];
                    gaps.get(gaps.len() * part / 100).copied()
                };
                rows.push(Gap {
                    claim: format!("write gap, {}: p{part}", fault.in_words()),
                    ours_ms: of(&ours),
                    peer: setting.in_words(),
                    theirs_ms: of(&theirs),
                    missing: missing.clone(),
                });
            }
        }
    }
    rows
}

/// How a client says its writes.
#[derive(Clone, Copy, Debug)]
enum Words {
    /// A line, and one for an answer.
    Line,
    /// etcd's JSON gateway.
    Gateway,
}

/// A replicated service that can be harmed.
trait Service {
    fn words(&self) -> Words;
    /// How long a client waits for an answer before it asks another replica.
    fn patience(&self) -> Duration {
        PATIENCE
    }
    fn addresses(&self) -> Vec<SocketAddr>;
    /// Which replica orders the writes now.
    fn leader(&mut self) -> Outcome<usize>;
    /// Ends a replica at once.
    fn kill(&mut self, number: usize) -> Outcome<()>;
    /// Starts it anew, and waits until the service is whole.
    fn restart(&mut self, number: usize) -> Outcome<()>;
}

/// What is done, and where the client is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    /// Nothing: what a machine with other work to do does to a client that writes.
    None,
    /// The client's replica ends, which orders the writes.
    LeaderOfClient,
    /// The client's replica ends, which only follows.
    FollowerOfClient,
    /// The replica that orders the writes ends, and the client is at another.
    LeaderElsewhere,
}

impl Fault {
    fn in_words(self) -> &'static str {
        match self {
            Self::None => "no fault",
            Self::LeaderOfClient => "kill -9 of the leader, client there",
            Self::FollowerOfClient => "kill -9 of a follower, client there",
            Self::LeaderElsewhere => "kill -9 of the leader, client at a follower",
        }
    }
}

/// The gaps of so many faults of each kind, in milliseconds, from the least.
fn all_gaps(service: &mut dyn Service, faults: &[Fault], count: usize) -> Outcome<Vec<Vec<f64>>> {
    let mut all = Vec::new();
    for fault in faults {
        let gaps: Outcome<Vec<_>> =
            (0..count).map(|_| Ok(gap(service, *fault)?.as_secs_f64() * 1e3)).collect();
        let mut gaps = gaps?;
        gaps.sort_by(f64::total_cmp);
        all.push(gaps);
    }
    Ok(all)
}

fn gap(service: &mut dyn Service, fault: Fault) -> Outcome<Duration> {
    let leader = service.leader()?;
    let follower = (leader + 1) % REPLICAS;
    let (victim, client_at) = match fault {
        Fault::None => (None, leader),
        Fault::LeaderOfClient => (Some(leader), leader),
        Fault::FollowerOfClient => (Some(follower), follower),
        Fault::LeaderElsewhere => (Some(leader), follower),
    };
    let (over, acknowledged) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    let mut client = Client::new(service, client_at);
    let at = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                if client.write() {
                    acknowledged.lock().expect("no panic").push(Instant::now());
                }
            }
        });
        let watched = watch(service, victim, &acknowledged);
        over.store(true, Ordering::Relaxed);
        watched
    })?;
    let acknowledged = acknowledged.into_inner()?;
    let around = acknowledged.windows(2).filter(|pair| pair[1] > at);
    let longest = around.map(|pair| pair[1] - pair[0]).max();
    if let Some(victim) = victim {
        service.restart(victim)?;
    }
    longest.ok_or_else(|| "nothing was written".into())
}

/// Does the harm while the client writes, and says when. Returns when all is as before.
fn watch(
    service: &mut dyn Service,
    victim: Option<usize>,
    acknowledged: &Mutex<Vec<Instant>>,
) -> Outcome<Instant> {
    let writes_since = |at: Instant| {
        acknowledged.lock().map_or(0, |writes| writes.iter().rev().take_while(|write| **write > at).count())
    };
    let await_writes = |since: Instant, least: Duration| loop {
        std::thread::sleep(Duration::from_millis(5));
        if since.elapsed() >= least && writes_since(since) >= WRITES_AFTER {
            return Ok(());
        }
        if since.elapsed() > LONGEST_GAP {
            return Err("the service does not come back");
        }
    };
    await_writes(Instant::now(), BEFORE)?;
    let at = Instant::now();
    if let Some(victim) = victim {
        service.kill(victim)?;
    }
    await_writes(at, AFTER)?;
    Ok(at)
}

struct Client {
    words: Words,
    patience: Duration,
    addresses: Vec<SocketAddr>,
    turn: usize,
    connection: Option<BufReader<TcpStream>>,
    number: u64,
}

impl Client {
    fn new(service: &dyn Service, turn: usize) -> Self {
        let (words, patience, addresses) = (service.words(), service.patience(), service.addresses());
        Self { words, patience, addresses, turn, connection: None, number: 0 }
    }

    /// Whether a write was acknowledged.
    fn write(&mut self) -> bool {
        self.number += 1;
        let written = self.try_to_write();
        if written.is_err() {
            self.connection = None;
            self.turn += 1;
            std::thread::sleep(BETWEEN_ATTEMPTS);
        }
        written.is_ok()
    }

    fn try_to_write(&mut self) -> std::io::Result<()> {
        let address = self.addresses[self.turn % self.addresses.len()];
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => none.insert(connect(address, self.patience)?),
        };
        let key = format!("key-{}", self.number % 100);
        match self.words {
            Words::Line => {
                connection.get_mut().write_all(format!("put {key} {VALUE}\n").as_bytes())?;
                let mut answer = String::new();
                connection.read_line(&mut answer)?;
                if answer == "ok\n" { Ok(()) } else { Err(std::io::Error::other(answer)) }
            }
            Words::Gateway => {
                let body = serde_json::json!({ "key": base64(&key), "value": base64(VALUE) });
                post(connection, "/v3/kv/put", &body).map(|_| ())
            }
        }
    }
}

fn connect(address: SocketAddr, patience: Duration) -> std::io::Result<BufReader<TcpStream>> {
    let stream = TcpStream::connect_timeout(&address, patience)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(patience))?;
    Ok(BufReader::new(stream))
}

/// One question of a JSON gateway, over a connection that stays.
fn post(
    connection: &mut BufReader<TcpStream>,
    path: &str,
    body: &serde_json::Value,
) -> std::io::Result<serde_json::Value> {
    let body = body.to_string();
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: etcd\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    connection.get_mut().write_all(request.as_bytes())?;
    let (mut line, mut bytes, mut is_good) = (String::new(), 0, false);
    loop {
        line.clear();
        if connection.read_line(&mut line)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let head = line.trim_end().to_ascii_lowercase();
        if head.is_empty() {
            break;
        }
        is_good |= head.starts_with("http/1.1 200");
        if let Some(length) = head.strip_prefix("content-length:") {
            bytes = length.trim().parse().map_err(std::io::Error::other)?;
        }
    }
    let mut answer = vec![0; bytes];
    connection.read_exact(&mut answer)?;
    if !is_good {
        return Err(std::io::Error::other(String::from_utf8_lossy(&answer).into_owned()));
    }
    Ok(serde_json::from_slice(&answer)?)
}

/// As JSON carries bytes.
fn base64(text: &str) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut encoded = String::new();
    for three in text.as_bytes().chunks(3) {
        let bits = three.iter().fold(0_usize, |bits, byte| bits << 8 | usize::from(*byte))
            << (8 * (3 - three.len()));
        for digit in 0..4 {
            let is_there = digit <= three.len();
            encoded.push(if is_there { char::from(DIGITS[bits >> (18 - 6 * digit) & 63]) } else { '=' });
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_written_as_others_read_them() {
        let pairs = [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")];
        for (text, encoded) in pairs {
            assert_eq!(base64(text), encoded);
        }
    }
}
