//! A client that writes all the time: one thread, one connection, one write at a time. It speaks to ours and to etcd alike, but for
//! the words.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use super::{Outcome, Service};

/// Who was refused is refused at once the next time: asking without a pause only takes the time of those who recover.
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(1);
/// How long a question that is no write may take.
const SOON: Duration = Duration::from_secs(10);
/// Keys are used again by the next round but so many, so that what the replicas hold does not grow.
const ROUNDS: u32 = 8;
/// A reader asks for so many keys before it reads the answers: as many as find room in a socket.
const AT_A_TIME: usize = 200;

/// How a client says what it wants.
#[derive(Clone, Copy, Debug)]
pub(super) enum Words {
    /// A line, and one for an answer.
    Line,
    /// etcd's JSON gateway.
    Gateway,
}

/// What is written around one fault: keys that no round near has, with values that no other round has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Round(pub(super) u32);

impl Round {
    /// What all of its keys begin with.
    fn prefix(self) -> String {
        format!("{}-", self.0 % ROUNDS)
    }

    /// 56 bytes.
    fn value(self) -> String {
        format!("{:056}", self.0)
    }
}

pub(super) struct Client {
    words: Words,
    patience: Duration,
    addresses: Vec<SocketAddr>,
    /// The replica that it is at.
    at: Arc<AtomicUsize>,
    connection: Option<BufReader<TcpStream>>,
    round: Round,
    /// How many keys it has tried to write.
    number: u64,
}

impl Client {
    pub(super) fn new(service: &dyn Service, at: usize, round: Round) -> Self {
        let (words, patience, addresses) = (service.words(), service.patience(), service.addresses());
        let at = Arc::new(AtomicUsize::new(at));
        Self { words, patience, addresses, at, connection: None, round, number: 0 }
    }

    /// Where it is, for whoever watches it.
    pub(super) fn place(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.at)
    }

    /// Writes a key that nobody has written in this round, and says which if that was acknowledged. If not, it may be written all the same.
    pub(super) fn write(&mut self) -> Option<String> {
        self.number += 1;
        let key = format!("{}{}", self.round.prefix(), self.number);
        if self.try_to_write(&key).is_ok() {
            return Some(key);
        }
        self.connection = None;
        self.at.store((self.at.load(Ordering::Relaxed) + 1) % self.addresses.len(), Ordering::Relaxed);
        std::thread::sleep(BETWEEN_ATTEMPTS);
        None
    }

    fn try_to_write(&mut self, key: &str) -> std::io::Result<()> {
        let address = self.addresses[self.at.load(Ordering::Relaxed)];
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => none.insert(connect(address, self.patience)?),
        };
        let value = self.round.value();
        match self.words {
            Words::Line => say(connection, &format!("put {key} {value}")),
            Words::Gateway => {
                let body = json!({ "key": base64(key), "value": base64(&value) });
                post(connection, "/v3/kv/put", &body).map(|_| ())
            }
        }
    }
}

impl Words {
    /// Of these keys of a round those that a replica lacks, or of which it has another round's value.
    pub(super) fn lacking(self, at: SocketAddr, round: Round, keys: &[String]) -> Outcome<usize> {
        let mut connection = connect(at, SOON)?;
        let (prefix, value) = (round.prefix(), round.value());
        if let Self::Line = self {
            let (held, mut lacking) = (format!("is {value}\n"), 0);
            for some in keys.chunks(AT_A_TIME) {
                let questions: String = some.iter().map(|key| format!("get {key}\n")).collect();
                connection.get_mut().write_all(questions.as_bytes())?;
                for _ in some {
                    let mut answer = String::new();
                    connection.read_line(&mut answer)?;
                    if !answer.starts_with("is ") && answer != "none\n" {
                        return Err(format!("a replica answers {answer:?}").into());
                    }
                    lacking += usize::from(answer != held);
                }
            }
            return Ok(lacking);
        }
        let body = json!({ "key": base64(&prefix), "range_end": base64(&behind(&prefix)) });
        let answer = post(&mut connection, "/v3/kv/range", &body)?;
        let pairs = answer["kvs"].as_array().into_iter().flatten();
        let held: BTreeSet<&str> = pairs
            .filter(|pair| pair["value"] == base64(&value))
            .filter_map(|pair| pair["key"].as_str())
            .collect();
        Ok(keys.iter().filter(|key| !held.contains(base64(key).as_str())).count())
    }
}

/// The first text behind all that begin so.
fn behind(prefix: &str) -> String {
    let mut behind = prefix.to_owned();
    let last = behind.pop().and_then(|last| char::from_u32(u32::from(last) + 1));
    behind.extend(last);
    behind
}

/// What is to be done, and the word that it was.
fn say(connection: &mut BufReader<TcpStream>, line: &str) -> std::io::Result<()> {
    connection.get_mut().write_all(format!("{line}\n").as_bytes())?;
    let mut answer = String::new();
    connection.read_line(&mut answer)?;
    if answer == "ok\n" { Ok(()) } else { Err(std::io::Error::other(answer)) }
}

pub(super) fn connect(address: SocketAddr, patience: Duration) -> std::io::Result<BufReader<TcpStream>> {
    let stream = TcpStream::connect_timeout(&address, patience)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(patience))?;
    Ok(BufReader::new(stream))
}

/// One question of a JSON gateway, over a connection that stays.
pub(super) fn post(
    connection: &mut BufReader<TcpStream>,
    path: &str,
    body: &Value,
) -> std::io::Result<Value> {
    let body = body.to_string();
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: etcd\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    connection.get_mut().write_all(request.as_bytes())?;
    let (mut line, mut bytes, mut is_good, mut is_in_chunks) = (String::new(), 0, false, false);
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
        is_in_chunks |= head == "transfer-encoding: chunked";
        if let Some(length) = head.strip_prefix("content-length:") {
            bytes = length.trim().parse().map_err(std::io::Error::other)?;
        }
    }
    let mut answer = vec![0; bytes];
    connection.read_exact(&mut answer)?;
    while is_in_chunks {
        line.clear();
        connection.read_line(&mut line)?;
        let bytes = usize::from_str_radix(line.trim(), 16).map_err(std::io::Error::other)?;
        // An empty line follows each, and the last is empty itself.
        let mut chunk = vec![0; bytes + 2];
        connection.read_exact(&mut chunk)?;
        answer.extend_from_slice(&chunk[..bytes]);
        is_in_chunks = bytes > 0;
    }
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

    #[test]
    fn what_begins_so_lies_before_what_is_behind() {
        assert_eq!(behind("7-"), "7.");
        assert!("7-99" < behind("7-").as_str() && "70-1" > behind("7-").as_str());
    }
}
