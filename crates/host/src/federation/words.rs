//! What the agents of a comb's hosts say to each other. Set-up and news only: no message of a program ever comes by here.
//!
//! A connection begins with a greeting and its answer, which have the version in front: `hosts`, two bytes, and the rest. Same or
//! neighbouring versions speak, by the lower; others get a sentence. Behind that come words, each with a bound on all that is in it.
//! A host speaks of itself and of its own cells; what it says of others is a lie, and it is cut off for it.

use comb_net::agent::remote::GUEST;
use serde::{Deserialize, Serialize};

use super::members::{Key, MOST_HOSTS, Member};
use super::shell::Shell;
use crate::MOST_CELLS;

#[cfg(test)]
mod tests;

/// What this build speaks.
pub const PROTOCOL: u16 = 1;

/// No word is longer, though the line would carry it.
pub const LONGEST_WORD: usize = 32 << 10;
/// Sentences for people, such as how a cell ended.
const LONGEST_SENTENCE: usize = 1000;
/// Peers that have noticed or recovered, in an answer.
const MOST_PEERS: usize = MOST_CELLS as usize;

/// The first word of who connects.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Greeting {
    /// A host of the comb opens a line.
    Line,
    /// A host wants to belong to the comb, or to hear that it does.
    Join(Join),
    /// A part of a task is to run here.
    Shell(Shell),
    /// A machine, or what was saved of one, comes here.
    Machine(Shell),
}

/// Who wants in.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Join {
    /// The secret of a token; none: its key is known.
    pub secret: Option<String>,
    /// What it wants to be called.
    pub name: String,
    /// Whether it is to be called so and not otherwise.
    pub is_name_meant: bool,
    /// Where its agent listens; with an address that is unspecified, at the one that it comes from.
    pub address: std::net::SocketAddr,
    /// How many cells it brings.
    pub cells: u32,
}

/// The answer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Reception {
    /// To a line: go on.
    Welcome,
    /// To who wants in: it is, under this name, and these are all.
    Admitted {
        /// Its name.
        you: String,
        /// The name of who says so.
        by: String,
        /// All hosts, both of them as well.
        members: Vec<Member>,
    },
    /// No, and why.
    Refused(String),
}

/// What is said on a line.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Word {
    /// Still here.
    Beat,
    /// Who belongs to the comb, as far as the speaker knows, and who was put out.
    Members {
        /// All hosts.
        members: Vec<Member>,
        /// With their former names.
        out: Vec<(String, Key)>,
    },
    /// How the speaker's cells are.
    Cells {
        /// Rises with each on a line.
        counter: u64,
        /// All that it has.
        cells: Vec<CellWord>,
    },
    /// Something is to be done. It is answered.
    Ask {
        /// Of the question.
        number: u64,
        /// Which user of the speaker's host wants it; none: its agent.
        uid: Option<u32>,
        /// What.
        ask: Asked,
    },
    /// It is done, or not.
    Answer {
        /// Of the question.
        number: u64,
        /// A sentence if not.
        answer: Result<Answered, String>,
    },
    /// The speaker proves itself by the key from now on that it has told of.
    Switched,
    /// The speaker leaves the comb for good.
    Leave,
}

/// What a host may ask of another: this, and nothing else.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Asked {
    /// Kill a cell.
    Kill {
        /// Which.
        cell: u32,
        /// Whether it is to stay down.
        hold: bool,
    },
    /// Start one that has ended.
    Start {
        /// Which.
        cell: u32,
    },
    /// All have recovered from that cell's end: it can be started again.
    Restart {
        /// Which.
        cell: u32,
    },
    /// Numbers for the cells of a host that comes in.
    Numbers {
        /// How many.
        count: u32,
    },
    /// A host is to be put out.
    PutOut {
        /// Which.
        name: String,
    },
    /// The speaker is about to prove itself by this key.
    NextKey(Key),
}

/// What comes of that.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Answered {
    /// It is done, and that is all.
    Done,
    /// A cell was killed.
    Killed(KilledWord),
    /// A cell was started.
    Started {
        /// Its process.
        pid: u32,
        /// Its life.
        incarnation: u64,
        /// Channels that are open.
        channels: u32,
        /// Channels that belong there.
        channels_expected: u32,
        /// From the request to the last channel.
        took_ns: u64,
    },
    /// From this number on.
    Numbers {
        /// The first.
        first: u32,
    },
}

/// A cell was killed on another host.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct KilledWord {
    /// Its process.
    pub pid: u32,
    /// Cells of its host that had a channel to it.
    pub peers: u32,
    /// Those that noticed, and after how many nanoseconds.
    pub noticed: Vec<(u32, u64)>,
    /// Those that have gone on: when they entered the recovery, when they resumed, and what they discarded.
    pub recovered: Vec<(u32, u64, u64, u64)>,
}

/// One cell of the speaker's.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CellWord {
    /// Its number.
    pub cell: u32,
    /// Which life of it.
    pub incarnation: u64,
    /// How it is.
    pub state: CellState,
    /// Whether it is one of those who agree, and can go on: it can let others in.
    pub is_member: bool,
    /// Its process.
    pub pid: u32,
    /// Open channels to other cells.
    pub channels: u32,
    /// How long it has been running.
    pub uptime_ms: u64,
    /// Processor time used.
    pub cpu_ms: u64,
    /// Resident memory.
    pub memory_bytes: u64,
    /// Heartbeats that came back.
    pub round_trips: u64,
}

/// How a cell of another host is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CellState {
    /// Its process runs and has not said hello yet.
    Starting,
    /// At work.
    Up,
    /// No longer, and how that came.
    Ended(String),
    /// It begins when its host reaches those who could let it in.
    Waiting,
}

/// What a host may not say, for people.
pub type Lie = String;

/// Why a greeting or its answer is not one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Unheard {
    /// The other end speaks this protocol, which is too far from ours.
    Version(u16),
    /// It means nothing.
    Senseless,
}

impl Unheard {
    /// For people, of the host called so.
    pub fn of(&self, host: &str) -> String {
        match self {
            Self::Version(theirs) => {
                let older = if *theirs < PROTOCOL { host } else { "this one" };
                format!("host {host} runs protocol {theirs}, this one {PROTOCOL}: upgrade {older}")
            }
            Self::Senseless => format!("host {host} does not speak as an agent of a comb does"),
        }
    }
}

/// A greeting, or the answer to one, as it goes over.
pub fn opening(of: &impl Serialize) -> Vec<u8> {
    opening_of(PROTOCOL, of)
}

/// The same in another version's name, for tests of what that comes to.
pub fn opening_of(version: u16, of: &impl Serialize) -> Vec<u8> {
    let rest = postcard::to_allocvec(of).expect("plain data");
    [&GUEST[..], &version.to_le_bytes(), &rest].concat()
}

/// Reads one.
pub fn read_opening<T: for<'a> Deserialize<'a>>(bytes: &[u8]) -> Result<T, Unheard> {
    let rest = bytes.strip_prefix(GUEST).ok_or(Unheard::Senseless)?;
    let (version, rest) = rest.split_first_chunk().ok_or(Unheard::Senseless)?;
    let version = u16::from_le_bytes(*version);
    if version == 0 || version.abs_diff(PROTOCOL) > 1 {
        return Err(Unheard::Version(version));
    }
    if rest.len() > LONGEST_WORD {
        return Err(Unheard::Senseless);
    }
    postcard::from_bytes(rest).map_err(|_| Unheard::Senseless)
}

impl Word {
    /// As it goes over.
    pub fn bytes(&self) -> Vec<u8> {
        postcard::to_allocvec(self).expect("plain data")
    }

    /// What has come, from the host with these cells.
    pub fn read(bytes: &[u8]) -> Result<Self, Lie> {
        if bytes.len() > LONGEST_WORD {
            return Err(format!("a word of {} bytes", bytes.len()));
        }
        let word: Self = postcard::from_bytes(bytes).map_err(|_| "a word that means nothing".to_owned())?;
        word.check()?;
        Ok(word)
    }

    /// Whether all that is in it is within its bounds. What it is about is looked at by who acts on it.
    fn check(&self) -> Result<(), Lie> {
        let sentence = |text: &str| {
            if text.len() > LONGEST_SENTENCE || text.chars().any(char::is_control) {
                return Err("a sentence that is none".to_owned());
            }
            Ok(())
        };
        let no_more = |count: usize, most: usize, of: &str| {
            if count > most { Err(format!("{count} {of}")) } else { Ok(()) }
        };
        let cell = |cell: u32| {
            if (1..=MOST_CELLS).contains(&cell) { Ok(()) } else { Err(format!("a cell {cell}")) }
        };
        match self {
            Self::Beat | Self::Switched | Self::Leave => Ok(()),
            Self::Members { members, out } => {
                no_more(members.len(), MOST_HOSTS, "hosts")?;
                no_more(out.len(), 2 * MOST_HOSTS, "hosts that were put out")?;
                out.iter().try_for_each(|(name, _)| sentence(name))?;
                members.iter().try_for_each(Member::check)
            }
            Self::Cells { cells, .. } => {
                no_more(cells.len(), MOST_CELLS as usize, "cells")?;
                cells.iter().try_for_each(|of| {
                    cell(of.cell)?;
                    match &of.state {
                        CellState::Ended(how) => sentence(how),
                        CellState::Starting | CellState::Up | CellState::Waiting => Ok(()),
                    }
                })
            }
            Self::Ask { ask, .. } => match ask {
                Asked::Kill { cell: of, .. } | Asked::Start { cell: of } | Asked::Restart { cell: of } => {
                    cell(*of)
                }
                Asked::Numbers { count } => cell(*count),
                Asked::PutOut { name } => sentence(name),
                Asked::NextKey(_) => Ok(()),
            },
            Self::Answer { answer, .. } => match answer {
                Err(why) => sentence(why),
                Ok(Answered::Killed(killed)) => no_more(
                    killed.noticed.len().max(killed.recovered.len()),
                    MOST_PEERS,
                    "cells that noticed",
                ),
                Ok(Answered::Numbers { first }) => cell(*first),
                Ok(Answered::Done | Answered::Started { .. }) => Ok(()),
            },
        }
    }
}

/// A sentence that may be said: neither too long nor with what moves a terminal's cursor.
pub fn plain(text: &str) -> String {
    let mut plain: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    while plain.len() > LONGEST_SENTENCE {
        plain.pop();
    }
    plain
}
