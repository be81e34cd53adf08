//! What is said to an engine about its machine: QEMU's machine protocol, JSON line by line.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use serde_json::{Value, json};
use thiserror::Error;

use crate::engine::ANSWER_LIMIT;

/// A line that is longer is none of an engine's.
const MOST_LINE_BYTES: usize = 4 << 20;

/// Events that nobody has taken; those before are forgotten.
const MOST_EVENTS: usize = 1024;

/// Why something was not done.
#[derive(Debug, Error)]
pub enum QmpError {
    /// The engine says so.
    #[error("the engine refuses {command}: {why}")]
    Refused {
        /// What.
        command: String,
        /// In its words.
        why: String,
    },
    /// It has no such protocol.
    #[error(
        "user-mode Linux cannot do that (`{0}`): it needs QEMU, which `comb vm clone` and `comb vm run` take"
    )]
    Unspoken(String),
    /// It is gone, or does not answer.
    #[error("the engine does not answer {command}: {error}")]
    Gone {
        /// What.
        command: String,
        /// As the host says.
        error: io::Error,
    },
}

/// Something has happened to the machine.
#[derive(Clone, PartialEq, Debug)]
pub struct Event {
    /// What.
    pub name: String,
    /// The engine's details.
    pub data: Value,
}

/// A line to an engine.
#[derive(Debug)]
pub struct Qmp {
    line: UnixStream,
    is_spoken: bool,
    came: Vec<u8>,
    events: VecDeque<Event>,
    /// What is asked has a number, by which an answer that came too late is known.
    asked: u64,
}

impl Qmp {
    /// Over this, to an engine that has just begun or is about to.
    pub fn new(line: UnixStream, limit: Duration) -> Result<Self, QmpError> {
        let mut qmp = Self { is_spoken: true, ..Self::unspoken(line) };
        let until = Instant::now() + limit;
        let gone = |error| QmpError::Gone { command: "a greeting".into(), error };
        while qmp.next(until).map_err(gone)?.get("QMP").is_none() {}
        qmp.call("qmp_capabilities", &json!({}), limit)?;
        Ok(qmp)
    }

    /// Over a line on which nobody says a word: it shows when an engine has ended that has no protocol.
    pub(crate) fn unspoken(line: UnixStream) -> Self {
        Self { line, is_spoken: false, came: Vec::new(), events: VecDeque::new(), asked: 0 }
    }

    /// Whether the engine has a protocol.
    pub(crate) fn is_spoken(&self) -> bool {
        self.is_spoken
    }

    /// The line, to wait for events.
    pub fn line(&self) -> &UnixStream {
        &self.line
    }

    /// Has something done, and waits no longer for its answer.
    pub fn call(&mut self, command: &str, arguments: &Value, limit: Duration) -> Result<Value, QmpError> {
        if !self.is_spoken {
            return Err(QmpError::Unspoken(command.into()));
        }
        let gone = |error| QmpError::Gone { command: command.into(), error };
        let until = Instant::now() + limit;
        self.asked += 1;
        let mut said = json!({ "execute": command, "arguments": arguments, "id": self.asked }).to_string();
        said.push('\n');
        self.line
            .set_write_timeout(Some(limit))
            .and_then(|()| self.line.write_all(said.as_bytes()))
            .map_err(gone)?;
        loop {
            let mut answer = self.next(until).map_err(gone)?;
            if answer.get("id").is_some_and(|id| *id != self.asked) {
                continue;
            }
            if let Some(value) = answer.get_mut("return") {
                return Ok(value.take());
            }
            if let Some(error) = answer.get("error") {
                let why = error.get("desc").and_then(Value::as_str).unwrap_or("it does not say why");
                return Err(QmpError::Refused { command: command.into(), why: why.into() });
            }
            self.note(&answer);
        }
    }

    /// Gives it a descriptor, which it knows by this name then.
    pub fn give(&mut self, name: &str, descriptor: BorrowedFd<'_>) -> Result<(), QmpError> {
        let gone = |error| QmpError::Gone { command: "getfd".into(), error };
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut with = SendAncillaryBuffer::new(&mut space);
        let descriptors = [descriptor];
        assert!(with.push(SendAncillaryMessage::ScmRights(&descriptors)), "there is room for one");
        // It comes with a byte that says nothing, before the line that asks for it.
        let byte = [IoSlice::new(b" ")];
        let sent = rustix::net::sendmsg(&self.line, &byte, &mut with, SendFlags::NOSIGNAL);
        sent.map_err(|error| gone(error.into()))?;
        self.call("getfd", &json!({ "fdname": name }), ANSWER_LIMIT)?;
        Ok(())
    }

    /// What has happened, if something has.
    pub fn poll_event(&mut self) -> io::Result<Option<Event>> {
        while self.events.is_empty() {
            match self.next(Instant::now()) {
                Ok(said) => self.note(&said),
                Err(error) if error.kind() == ErrorKind::TimedOut => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        Ok(self.events.pop_front())
    }

    fn note(&mut self, said: &Value) {
        let Some(name) = said.get("event").and_then(Value::as_str) else { return };
        if self.events.len() >= MOST_EVENTS {
            self.events.pop_front();
        }
        let data = said.get("data").cloned().unwrap_or(Value::Null);
        self.events.push_back(Event { name: name.to_owned(), data });
    }

    /// The next line.
    fn next(&mut self, until: Instant) -> io::Result<Value> {
        let mut looked = 0;
        loop {
            if let Some(end) = self.came[looked..].iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.came.drain(..=looked + end).collect();
                return serde_json::from_slice(&line)
                    .map_err(|error| io::Error::new(ErrorKind::InvalidData, error));
            }
            looked = self.came.len();
            if looked > MOST_LINE_BYTES {
                return Err(io::Error::new(ErrorKind::InvalidData, "a line without an end"));
            }
            let left = until.saturating_duration_since(Instant::now());
            self.line.set_nonblocking(left.is_zero())?;
            if !left.is_zero() {
                self.line.set_read_timeout(Some(left))?;
            }
            let mut some = [0; 16_384];
            let read = self.line.read(&mut some);
            self.line.set_nonblocking(false)?;
            match read {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(read) => self.came.extend_from_slice(&some[..read]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Err(ErrorKind::TimedOut.into()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    /// An engine that says these lines, each but the first when something was said to it, and ends.
    fn engine(says: &'static [&'static str]) -> UnixStream {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        std::thread::spawn(move || {
            for (number, line) in says.iter().enumerate() {
                theirs.write_all(line.as_bytes()).unwrap();
                if number + 1 < says.len() {
                    let _ = theirs.read(&mut [0; 4096]);
                }
            }
        });
        ours
    }

    #[test]
    fn an_answer_is_found_among_events_which_are_kept() {
        let mut qmp = Qmp::new(
            engine(&[
                "{\"QMP\": {\"version\": {}}}\n",
                "{\"return\": {}}\n",
                "{\"return\": \"late\", \"id\": 1}\n{\"event\": \"STOP\"}\n{\"event\": \"BALLOON_CHANGE\", \"data\": {\"actual\": 7}}\n{\"return\": {\"status\": \"paused\"}}\n",
                "{\"error\": {\"class\": \"GenericError\", \"desc\": \"no such device\"}}\n",
                "{\"return\": ",
            ]),
            LIMIT,
        )
        .unwrap();
        assert_eq!(qmp.call("query-status", &json!({}), LIMIT).unwrap()["status"], "paused");
        let error = qmp.call("balloon", &json!({ "value": 1 }), LIMIT).unwrap_err();
        assert_eq!(error.to_string(), "the engine refuses balloon: no such device");
        assert_eq!(qmp.poll_event().unwrap().unwrap().name, "STOP");
        let event = qmp.poll_event().unwrap().unwrap();
        assert_eq!((event.name.as_str(), event.data["actual"].as_u64()), ("BALLOON_CHANGE", Some(7)));
        let error = qmp.call("query-status", &json!({}), LIMIT).unwrap_err();
        assert!(matches!(error, QmpError::Gone { .. }), "{error}");
    }

    #[test]
    fn what_is_no_engine_is_an_error() {
        for says in [&["nonsense\n"][..], &[""], &["{\"QMP\": {}}\n", "[]\n{\"return\"\n"]] {
            assert!(matches!(Qmp::new(engine(says), LIMIT), Err(QmpError::Gone { .. })), "{says:?}");
        }
    }
}
