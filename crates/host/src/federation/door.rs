//! How lines come to be: who comes by the door, and whom this host goes to. On threads of their own, with a limit for each step.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use comb_net::agent::Guests;
use comb_net::hosts::{ConnectError, HostKey, KnownHosts, SecureStream, Terms};

use super::line;
use super::shell::{self, Program, Shell};
use super::words::{self, Greeting, Join, Reception, Unheard};
use super::{Event, Queue};

const CONNECT_LIMIT: Duration = Duration::from_secs(2);
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(3);
/// Another host may have to be asked for numbers meanwhile.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// What a host hears, or works out, that is none of the comb's.
const UNKNOWN: &str =
    "it does not know this host's key: it takes a token (`comb token` there), or this host was put out";

fn terms() -> Terms {
    Terms { handshake_limit: HANDSHAKE_LIMIT, ..Terms::default() }
}

/// Somebody wants in.
#[derive(Debug)]
pub(crate) struct Knock {
    /// By what it has proved that it is itself.
    pub(crate) key: comb_net::hosts::PublicKey,
    /// Where it comes from.
    pub(crate) from: SocketAddr,
    pub(crate) join: Join,
    pub(crate) answer: mpsc::Sender<Reception>,
}

/// What stands behind the agent's door.
#[derive(Debug)]
pub(super) struct Door {
    pub(super) queue: Queue,
    /// While a token is open.
    pub(super) lets_strangers_in: Arc<AtomicBool>,
}

impl Guests for Door {
    fn may_strangers_enter(&self) -> bool {
        self.lets_strangers_in.load(Ordering::Acquire)
    }

    fn receive(&self, mut stream: SecureStream, first: &[u8]) {
        let host = stream.peer().to_owned();
        let reception = match words::read_opening(first) {
            // A stranger says a token's secret, and nothing else.
            Ok(Greeting::Line) if host.is_empty() => Reception::Refused(UNKNOWN.to_owned()),
            Ok(Greeting::Line) => Reception::Welcome,
            Ok(Greeting::Shell(_) | Greeting::Machine(_)) if host.is_empty() => {
                Reception::Refused(UNKNOWN.to_owned())
            }
            Ok(Greeting::Shell(wanted)) => return self.serve_program(stream, host, Program::Part, wanted),
            Ok(Greeting::Machine(wanted)) => {
                return self.serve_program(stream, host, Program::Machine, wanted);
            }
            Ok(Greeting::Join(join)) => {
                let Some(from) = stream.peer_address() else { return };
                let (answer, answered) = mpsc::channel();
                let knock = Knock { key: stream.peer_key(), from, join, answer };
                self.queue.tell(Event::Knocks(knock));
                let late = || Reception::Refused("its agent did not answer in time: try again".to_owned());
                answered.recv_timeout(ANSWER_LIMIT).unwrap_or_else(|_| late())
            }
            Err(unheard) => {
                let who = if host.is_empty() { "that comes in" } else { &host };
                self.queue.tell(Event::Unheard { why: unheard.of(who) });
                // The version in front of it says all that there is to say.
                Reception::Refused(unheard.of(who))
            }
        };
        if stream.send(&words::opening(&reception)).is_err() {
            return;
        }
        if reception == Reception::Welcome {
            return line::serve(stream, &host, false, &self.queue);
        }
        // The other end hangs up, so that our answer is not lost in a reset.
        let _ = stream.receive(Some(ANSWER_LIMIT));
    }
}

impl Door {
    /// A program for another host: where it may run, the agent's loop says.
    fn serve_program(&self, mut stream: SecureStream, host: String, program: Program, wanted: Shell) {
        let (answer, answered) = mpsc::channel();
        self.queue.tell(Event::Shell { host, program, wanted, answer });
        let late = || Err("its agent did not answer in time: try again".to_owned());
        let seat = answered.recv_timeout(ANSWER_LIMIT).unwrap_or_else(|_| late());
        match seat.and_then(|seat| shell::start(program, &seat)) {
            Ok(mut child) if stream.send(&words::opening(&Reception::Welcome)).is_err() => {
                let _ = child.kill();
                let _ = child.wait();
            }
            Ok(child) => shell::serve(stream, child),
            Err(why) => {
                let _ = stream.send(&words::opening(&Reception::Refused(why)));
                // The other end hangs up, so that our answer is not lost in a reset.
                let _ = stream.receive(Some(ANSWER_LIMIT));
            }
        }
    }
}

/// Where to go and whom to find there.
#[derive(Clone, Debug)]
pub(super) struct Way {
    pub(super) host: String,
    /// What people call it.
    pub(super) label: String,
    pub(super) address: SocketAddr,
    pub(super) key: HostKey,
    pub(super) known: KnownHosts,
}

impl Way {
    /// The session, and what the other host says to a greeting. A sentence if there is none.
    fn go(&self, greeting: &Greeting) -> Result<(SecureStream, Reception), String> {
        let Self { host, label, address, key, known } = self;
        let socket = TcpStream::connect_timeout(address, CONNECT_LIMIT)
            .map_err(|error| format!("its agent does not answer on {address}: {error}"))?;
        let connected = SecureStream::connect(socket, key, known, host, terms());
        let mut stream = connected.map_err(|error| match error {
            ConnectError::UnknownKey(unknown) if unknown.belongs_to.is_none() => {
                format!(
                    "on {address} is another host than was to be there: it has the key {}",
                    unknown.presented
                )
            }
            ConnectError::RefusedByPeer { .. } => UNKNOWN.to_owned(),
            error => error.to_string(),
        })?;
        let text = |error: comb_net::hosts::StreamError| error.to_string();
        stream.send(&words::opening(greeting)).map_err(text)?;
        let answer = stream.receive(Some(HANDSHAKE_LIMIT + ANSWER_LIMIT)).map_err(text)?;
        let answer = answer.ok_or("it hung up without an answer")?;
        let reception = words::read_opening(answer).map_err(|unheard: Unheard| unheard.of(label))?;
        Ok((stream, reception))
    }

    /// Opens a line and serves it until it ends, on a thread of its own.
    pub(super) fn dial(self, queue: Queue) {
        let tells = queue.clone();
        let host = self.host.clone();
        let work = move || match self.go(&Greeting::Line) {
            Ok((stream, Reception::Welcome)) => line::serve(stream, &self.host, true, &queue),
            Ok((_, Reception::Refused(why))) => queue.tell(Event::Unreached { host: self.host.clone(), why }),
            Ok((_, Reception::Admitted { .. })) => {
                let why = "it answered something else".to_owned();
                queue.tell(Event::Unreached { host: self.host.clone(), why });
            }
            Err(why) => queue.tell(Event::Unreached { host: self.host.clone(), why }),
        };
        if let Err(error) = std::thread::Builder::new().name("comb-line".into()).spawn(work) {
            tells.tell(Event::Unreached { host, why: error.to_string() });
        }
    }

    /// Asks to be let in, on a thread of its own; what comes of it is told.
    pub(super) fn join(self, join: Join, connection: u64, queue: Queue) {
        let tells = queue.clone();
        let work = move || {
            let outcome = match self.go(&Greeting::Join(join)) {
                Ok((_, Reception::Admitted { you, by, members })) => Ok((you, by, members)),
                Ok((_, Reception::Refused(why))) => Err(why),
                Ok((_, Reception::Welcome)) => Err("it answered something else".to_owned()),
                Err(why) => Err(why),
            };
            queue.tell(Event::Joined { connection, outcome });
        };
        if let Err(error) = std::thread::Builder::new().name("comb-join".into()).spawn(work) {
            tells.tell(Event::Joined { connection, outcome: Err(error.to_string()) });
        }
    }
}
