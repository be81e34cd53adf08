//! A quorum resource in etcd: for two nodes that have no disk in common, but a third place.
//!
//! One key holds the last grant. It is read, judged, and written only if nobody else has written it meanwhile. This speaks etcd's
//! JSON gateway (v3, etcd 3.4 and newer) over plain HTTP, one connection a question.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use comb_membership::{Member, ViewEpoch};
use serde_json::{Value, json};

use crate::grant::{Answer, Grant};

/// An answer that is longer is none that we asked for.
const LONGEST_ANSWER: u64 = 64 << 10;

/// A key in etcd that grants each epoch once.
#[derive(Clone, Debug)]
pub struct QuorumEtcd {
    server: String,
    key: String,
    limit: Duration,
}

/// Why etcd could not be asked. Whether the epoch was granted is then not known: ask again.
#[derive(Debug, thiserror::Error)]
pub enum QuorumEtcdError {
    /// It was not reached, or did not answer in time.
    #[error("etcd at {server}: {source}")]
    System {
        /// Where.
        server: String,
        /// Why.
        source: std::io::Error,
    },
    /// It answered something that it should not.
    #[error("etcd at {server} answered {answer:?}")]
    Answer {
        /// Where.
        server: String,
        /// What, its first part.
        answer: String,
    },
    /// The key holds something else.
    #[error("etcd's key {0} holds no grant of this version; if it is to hold one, delete it")]
    NotOurs(String),
}

impl QuorumEtcd {
    /// The key of `group` at `server`, `host:port`. No question takes longer than `limit`.
    pub fn new(server: &str, group: &str, limit: Duration) -> Self {
        Self { server: server.to_owned(), key: format!("comb/quorum/{group}"), limit }
    }

    /// Whether `member` may go on alone with `epoch`, as [`crate::QuorumFile::acquire`] has it.
    pub fn acquire(&self, epoch: ViewEpoch, member: Member) -> Result<bool, QuorumEtcdError> {
        let wanted = Grant { epoch, member };
        let deadline = Instant::now() + self.limit;
        loop {
            let (kept, revision) = self.read(deadline)?;
            match wanted.judge(&kept).ok_or_else(|| QuorumEtcdError::NotOurs(self.key.clone()))? {
                Answer::Granted => return Ok(true),
                Answer::Refused => return Ok(false),
                Answer::Write if self.write(wanted, &revision, deadline)? => return Ok(true),
                // Somebody was faster: look again.
                Answer::Write => {}
            }
        }
    }

    /// What the key holds, and its revision: nothing and 0 if there is none.
    fn read(&self, deadline: Instant) -> Result<(String, String), QuorumEtcdError> {
        let answer = self.ask("/v3/kv/range", &json!({ "key": STANDARD.encode(&self.key) }), deadline)?;
        let Some(found) = answer["kvs"].get(0) else { return Ok((String::new(), "0".to_owned())) };
        let text = found["value"].as_str().and_then(|value| STANDARD.decode(value).ok());
        let text = text.and_then(|bytes| String::from_utf8(bytes).ok()).filter(|text| !text.is_empty());
        let revision = found["mod_revision"].as_str();
        match (text, revision) {
            (Some(text), Some(revision)) => Ok((text, revision.to_owned())),
            (None, _) => Err(QuorumEtcdError::NotOurs(self.key.clone())),
            (_, None) => Err(self.nonsense(&answer.to_string())),
        }
    }

    /// Writes the grant if the key has this revision still.
    fn write(&self, grant: Grant, revision: &str, deadline: Instant) -> Result<bool, QuorumEtcdError> {
        let key = STANDARD.encode(&self.key);
        let question = json!({
            "compare": [{ "key": key, "target": "MOD", "result": "EQUAL", "mod_revision": revision }],
            "success": [{ "requestPut": { "key": key, "value": STANDARD.encode(grant.to_string()) } }],
        });
        let answer = self.ask("/v3/kv/txn", &question, deadline)?;
        // What is false is left out of etcd's JSON.
        match &answer["succeeded"] {
            Value::Bool(succeeded) => Ok(*succeeded),
            Value::Null if answer["header"].is_object() => Ok(false),
            _ => Err(self.nonsense(&answer.to_string())),
        }
    }

    fn ask(&self, path: &str, question: &Value, deadline: Instant) -> Result<Value, QuorumEtcdError> {
        let text = self.exchange(path, &question.to_string(), deadline);
        let text = text.map_err(|source| QuorumEtcdError::System { server: self.server.clone(), source })?;
        let (head, body) = text.split_once("\r\n\r\n").ok_or_else(|| self.nonsense(&text))?;
        let is_good = head.split(' ').nth(1) == Some("200");
        let answer = is_good.then(|| serde_json::from_str(body).ok()).flatten();
        answer.ok_or_else(|| self.nonsense(&text))
    }

    /// One question by HTTP 1.0, whose answer ends with the connection.
    fn exchange(&self, path: &str, question: &str, deadline: Instant) -> std::io::Result<String> {
        let left = || {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                Err(std::io::ErrorKind::TimedOut.into())
            } else {
                Ok::<_, std::io::Error>(left)
            }
        };
        let address = self.server.to_socket_addrs()?.next().ok_or(std::io::ErrorKind::NotFound)?;
        let mut connection = TcpStream::connect_timeout(&address, left()?)?;
        connection.set_write_timeout(Some(left()?))?;
        write!(
            connection,
            "POST {path} HTTP/1.0\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{question}",
            self.server,
            question.len(),
        )?;
        let (mut answer, mut part) = (Vec::new(), [0; 4096]);
        loop {
            connection.set_read_timeout(Some(left()?))?;
            match connection.read(&mut part)? {
                0 => break,
                bytes => answer.extend_from_slice(&part[..bytes]),
            }
            if answer.len() as u64 > LONGEST_ANSWER {
                return Err(std::io::Error::other("an answer that is too long"));
            }
        }
        String::from_utf8(answer).map_err(|_| std::io::ErrorKind::InvalidData.into())
    }

    fn nonsense(&self, answer: &str) -> QuorumEtcdError {
        QuorumEtcdError::Answer { server: self.server.clone(), answer: answer.chars().take(300).collect() }
    }
}
