//! A machine moves to another host, with memory, devices and root, and stands still only for the last of it. (Disco §7.3)
//!
//! ```text
//! who has it                                              who gets it
//!   offers it        ── offer ────────────────────────▶   looks at it; asks for the image if it has none like it
//!                    ── the image's files ────────────▶   an engine waits
//!   while it runs    ── root and memory, again what changed ▶
//!   it stands still  ── what has changed since, devices ──▶   has all of it: ready
//!   gives it away    ── run ──────────────────────────▶   writes down that it has it, and lets it run
//!   forgets it       ◀─ runs ──────────────────────────
//! ```
//!
//! Until it is given away it is at home where it was: whatever fails, it goes on there, and the half at the other end is dropped. From then on
//! its old home lets it stand still until it has heard what became of it, and asks for that again and again. Who gets it decides by one file
//! ([`record`]): it runs, or it never will. So no two ever run.
//!
//! What comes is looked at by both: each piece has a bound, and lies where it may.

use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;

use crate::engine::EngineError;
use crate::hardware::{Accelerator, Hardware};
use crate::names::Name;
use crate::qmp::QmpError;
use crate::snapshot::{Of, SnapshotError};

pub mod arriving;
pub mod files;
pub mod pages;
pub mod record;

use record::Token;

/// Of what is said here; only the same speak.
pub const VERSION: u32 = 1;

/// No piece is longer.
const MOST_PIECE_BYTES: usize = 256 << 10;

/// So much of memory or of a file goes at once.
pub(crate) const PART_BYTES: usize = 64 << 10;

/// A sentence is no longer.
const MOST_SENTENCE_BYTES: usize = 1000;

/// Between two things that are heard of who sends no more passes less.
pub(crate) const SILENCE_LIMIT: Duration = Duration::from_secs(30);

/// A way to another host, on which either end knows who the other is.
pub trait Passage: Send {
    /// Some of what comes, for which it waits so long, and fails with [`ErrorKind::TimedOut`]; nothing: no more will come.
    fn read(&mut self, buffer: &mut [u8], limit: Duration) -> io::Result<usize>;

    /// All of this goes. Whoever takes none of it for seconds is an error.
    fn write(&mut self, bytes: &[u8]) -> io::Result<()>;
}

/// Opens one, each time anew.
pub type Way = Box<dyn Fn() -> Result<Box<dyn Passage>, String> + Send>;

/// Why a machine has not moved.
#[derive(Debug, Error)]
pub enum MoveError {
    /// The other end says so.
    #[error("{0}")]
    Refused(String),
    /// There is no way.
    #[error("{0}")]
    NoWay(String),
    /// It was cut off.
    #[error("the way to it is lost: {0}")]
    Lost(io::Error),
    /// What comes makes no sense.
    #[error("what comes from the other host makes no sense: {0}")]
    Nonsense(String),
    /// The engine.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// This host, or what is on it.
    #[error("{0}: {1}")]
    Host(String, io::Error),
    /// Something here.
    #[error("{0}")]
    Here(String),
}

impl From<SnapshotError> for MoveError {
    fn from(error: SnapshotError) -> Self {
        Self::Here(error.to_string())
    }
}

impl From<QmpError> for MoveError {
    fn from(error: QmpError) -> Self {
        Self::Engine(error.into())
    }
}

/// What one is offered.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Offer {
    /// Of what is said.
    pub version: u32,
    /// What it is.
    pub what: What,
    /// The name of its image.
    pub image: String,
    /// The digest of that, in hexadecimal.
    pub digest: String,
}

/// Machines move, and snapshots are sent.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum What {
    /// A machine that runs.
    Machine(Box<Machine>),
    /// A machine that was saved.
    Snapshot {
        /// What it is called.
        name: String,
        /// What it is of.
        of: Of,
    },
}

/// A machine that runs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Machine {
    /// What it is called.
    pub name: String,
    /// This move.
    pub token: Token,
    /// Its hardware.
    pub hardware: Hardware,
    /// The engine's version: another's state is another's.
    pub engine: String,
    /// What its processors can do, where they are the host's.
    pub processor: Option<String>,
    /// Another takes its place when it fails.
    pub is_replaced: bool,
    /// … which is a clone.
    pub is_clone: bool,
    /// It is nobody's charge.
    pub is_outside: bool,
    /// How much of its host's memory it has to itself.
    pub used_bytes: u64,
}

/// What a processor can do, as far as a guest might have seen it.
pub fn processor(hardware: &Hardware) -> Option<String> {
    (hardware.accelerator == Accelerator::Kvm).then(|| {
        let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let line =
            |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned();
        let all = [line("model name"), line("flags")].concat();
        hexadecimal(ring::digest::digest(&ring::digest::SHA256, all.as_bytes()).as_ref())
    })
}

pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Offer {
    /// As it goes: who does not understand it can still read the version.
    fn text(&self) -> String {
        serde_json::to_string(self).expect("plain data")
    }

    /// What has come: an offer of which nothing is left that was not understood.
    pub fn read(text: &str) -> Result<Self, MoveError> {
        let value: Value =
            serde_json::from_str(text).map_err(|error| MoveError::Nonsense(error.to_string()))?;
        let version = value.get("version").and_then(Value::as_u64).unwrap_or_default();
        if version != u64::from(VERSION) {
            return Err(MoveError::Here(format!(
                "machines move between combs of one version, and these have {version} and {VERSION}: upgrade the older"
            )));
        }
        let offer: Self =
            serde_json::from_value(value.clone()).map_err(|error| MoveError::Nonsense(error.to_string()))?;
        if serde_json::to_value(&offer).expect("plain data") != value {
            return Err(MoveError::Here(
                "the other host's comb is another version: the machine has what this one does not know"
                    .into(),
            ));
        }
        offer.check()?;
        Ok(offer)
    }

    fn check(&self) -> Result<(), MoveError> {
        let nonsense = |why: String| Err(MoveError::Nonsense(why));
        let is_digest = self.digest.len() == 64 && self.digest.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !is_digest {
            return nonsense("a digest that is none".into());
        }
        let (name, hardware) = match &self.what {
            What::Machine(machine) => (&machine.name, &machine.hardware),
            What::Snapshot { name, of } => (name, &of.hardware),
        };
        for name in [name, &self.image] {
            if let Err(error) = name.parse::<Name>() {
                return nonsense(error.to_string());
            }
        }
        if !hardware.attached.is_empty() || hardware.watcher.is_some() {
            return nonsense("a machine with what is attached to its host".into());
        }
        let most = hardware.most_bytes;
        if !(1..=8).contains(&hardware.nodes) || most > 1 << 44 || most % (2 << 20) != 0 {
            return nonsense(format!("a machine of {} nodes and at most {most} bytes", hardware.nodes));
        }
        let (memory, processors) = (hardware.memory_bytes, hardware.processors);
        if !(1 << 20..=1 << 44).contains(&memory)
            || memory % (2 << 20) != 0
            || !(1..=64).contains(&processors)
        {
            return nonsense(format!("a machine of {memory} bytes and {processors} processors"));
        }
        Ok(())
    }
}

/// Has a machine be one that can be asked.
pub type Show<'a> = &'a mut dyn FnMut() -> io::Result<()>;

/// What a machine's line to its guest had under way.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Rest {
    /// Of what the guest says: the beginning of something.
    pub came: Vec<u8>,
    /// For the guest.
    pub goes: Vec<u8>,
    /// Programs that run for somebody.
    pub execs: Vec<u32>,
    /// No program has this number yet.
    pub next_exec: u32,
}

impl Rest {
    /// More than that is no rest.
    pub(crate) const MOST_BYTES: usize = comb_guest::frames::MOST_BYTES + 4;
    const MOST_EXECS: usize = 256;

    fn check(&self) -> Result<(), MoveError> {
        let is_short = self.came.len() <= Self::MOST_BYTES
            && self.goes.len() <= Self::MOST_BYTES
            && self.execs.len() <= Self::MOST_EXECS;
        if is_short { Ok(()) } else { Err(MoveError::Nonsense("a rest that is too long".into())) }
    }
}

/// What is said.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Word {
    /// See [`Offer`].
    Offer(String),
    /// What became of it?
    Ask(Token),
    /// The image, please, or it is here.
    Wants {
        /// It is not here.
        image: bool,
    },
    /// A file comes, in parts.
    File {
        /// Which of those that belong together.
        number: u32,
        /// Its length.
        bytes: u64,
    },
    /// That was all of it.
    FileEnds,
    /// An engine waits for it.
    Waits,
    /// It stands still, and this is under way.
    Rest(Rest),
    /// That was all.
    Last,
    /// Nothing of it is missing here.
    Ready,
    /// It is yours.
    Run,
    /// It runs here, or what was sent is here.
    Runs,
    /// It does not, and never will.
    Never,
    /// It is known that it runs.
    Thanks,
    /// It is not taken. A sentence for people.
    Refused(String),
}

/// What was heard.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Heard {
    /// A word.
    Word(Word),
    /// Of the engine's own.
    Memory(Vec<u8>),
    /// Of a file, or of the root.
    Part {
        /// From there.
        at: u64,
        /// This.
        bytes: Vec<u8>,
    },
}

const KIND_WORD: u8 = 0;
const KIND_MEMORY: u8 = 1;
const KIND_PART: u8 = 2;

/// In front of each piece: its kind, and its length.
const HEAD_BYTES: usize = 5;

/// One end of what two hosts say about a machine.
pub struct Talk {
    passage: Box<dyn Passage>,
    came: Vec<u8>,
    /// Of these have been taken.
    taken: usize,
    /// How much has gone.
    pub(crate) sent_bytes: u64,
}

impl Talk {
    /// Over this.
    pub fn new(passage: Box<dyn Passage>) -> Self {
        Self { passage, came: Vec::new(), taken: 0, sent_bytes: 0 }
    }

    fn send(&mut self, kind: u8, parts: [&[u8]; 2]) -> Result<(), MoveError> {
        let bytes = parts[0].len() + parts[1].len();
        assert!(bytes <= MOST_PIECE_BYTES, "what is sent is short");
        let mut piece = Vec::with_capacity(HEAD_BYTES + bytes);
        piece.push(kind);
        piece.extend(u32::try_from(bytes).expect("it is short").to_le_bytes());
        parts.iter().for_each(|part| piece.extend_from_slice(part));
        self.sent_bytes += piece.len() as u64;
        self.passage.write(&piece).map_err(MoveError::Lost)
    }

    /// Says a word.
    pub fn say(&mut self, word: &Word) -> Result<(), MoveError> {
        let said = postcard::to_allocvec(word).expect("plain data");
        self.send(KIND_WORD, [&said, &[]])
    }

    /// Offers something.
    pub fn offer(&mut self, offer: &Offer) -> Result<(), MoveError> {
        self.say(&Word::Offer(offer.text()))
    }

    /// Passes on what an engine says to an engine.
    pub(crate) fn pass_memory(&mut self, bytes: &[u8]) -> Result<(), MoveError> {
        self.send(KIND_MEMORY, [bytes, &[]])
    }

    /// Passes on a part of a file, or of a root.
    pub(crate) fn pass_part(&mut self, at: u64, bytes: &[u8]) -> Result<(), MoveError> {
        self.send(KIND_PART, [&at.to_le_bytes(), bytes])
    }

    /// What comes next, if it comes within so long.
    pub fn hear(&mut self, limit: Duration) -> Result<Option<Heard>, MoveError> {
        let until = Instant::now() + limit;
        loop {
            if let Some(heard) = self.take()? {
                return Ok(Some(heard));
            }
            let left = until.saturating_duration_since(Instant::now());
            self.came.drain(..std::mem::take(&mut self.taken));
            let had = self.came.len();
            self.came.resize(had + PART_BYTES, 0);
            let read = self.passage.read(&mut self.came[had..], left);
            self.came.truncate(had + read.as_ref().map_or(0, |read| *read));
            match read {
                Ok(0) => return Err(MoveError::Lost(ErrorKind::UnexpectedEof.into())),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::TimedOut => return Ok(None),
                Err(error) => return Err(MoveError::Lost(error)),
            }
        }
    }

    fn take(&mut self) -> Result<Option<Heard>, MoveError> {
        let came = &self.came[self.taken..];
        let Some(([kind, length @ ..], rest)) = came.split_first_chunk::<HEAD_BYTES>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*length) as usize;
        if length > MOST_PIECE_BYTES {
            return Err(MoveError::Nonsense(format!("a piece of {length} bytes")));
        }
        let Some(content) = rest.get(..length) else { return Ok(None) };
        let nonsense = || MoveError::Nonsense("a piece that says nothing".into());
        let heard = match *kind {
            KIND_WORD => {
                let (word, left) = postcard::take_from_bytes::<Word>(content).map_err(|_| nonsense())?;
                match &word {
                    _ if !left.is_empty() => return Err(nonsense()),
                    Word::Refused(why) => return Err(MoveError::Refused(plain(why))),
                    Word::Rest(rest) => rest.check()?,
                    _ => {}
                }
                Heard::Word(word)
            }
            KIND_MEMORY => Heard::Memory(content.to_vec()),
            KIND_PART => {
                let (at, bytes) = content.split_first_chunk().ok_or_else(nonsense)?;
                Heard::Part { at: u64::from_le_bytes(*at), bytes: bytes.to_vec() }
            }
            _ => return Err(nonsense()),
        };
        self.taken += HEAD_BYTES + length;
        Ok(Some(heard))
    }

    /// The next, which is to come within so long.
    pub fn next(&mut self, limit: Duration) -> Result<Heard, MoveError> {
        self.hear(limit)?.ok_or_else(|| {
            let why = format!("nothing came for {} s", limit.as_secs());
            MoveError::Lost(io::Error::new(ErrorKind::TimedOut, why))
        })
    }

    /// The next, which is to be a word.
    pub fn word(&mut self, limit: Duration) -> Result<Word, MoveError> {
        match self.next(limit)? {
            Heard::Word(word) => Ok(word),
            _ => Err(MoveError::Nonsense("a part of something instead of a word".into())),
        }
    }

    /// The next, which is to be this word.
    pub fn expect(&mut self, word: &Word, limit: Duration) -> Result<(), MoveError> {
        let heard = self.word(limit)?;
        if heard == *word {
            Ok(())
        } else {
            Err(MoveError::Nonsense(format!("{heard:?} instead of {word:?}")))
        }
    }

    /// Says why something is not taken, and takes what is under way, so that the other end hears it.
    pub fn refuse(&mut self, why: &MoveError) {
        let until = Instant::now() + Duration::from_secs(5);
        if self.say(&Word::Refused(plain(&why.to_string()))).is_ok() {
            while Instant::now() < until && self.next(Duration::from_secs(1)).is_ok() {}
        }
    }
}

/// A sentence that may be shown, from whomever.
fn plain(text: &str) -> String {
    let mut plain: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    while plain.len() > MOST_SENTENCE_BYTES {
        plain.pop();
    }
    plain
}

/// How a machine has moved.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Moved {
    /// To which host.
    pub host: String,
    /// How long it stood still, as its old home saw it, in microseconds.
    pub still_us: u64,
    /// From the beginning to the end, in microseconds.
    pub took_us: u64,
    /// How much went over.
    pub bytes: u64,
    /// Of this the image, which was not there.
    pub image_bytes: u64,
    /// Of this the root.
    pub root_bytes: u64,
}

#[cfg(test)]
mod tests;
