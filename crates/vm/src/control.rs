//! What is asked of a machine's monitor, and how: over a socket in the machine's directory.

use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use comb_guest::frames::{Frames, framed};
use comb_guest::wire::{Command, Ended, MemoryShown};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::hardware::Hardware;
use crate::memory::Has;
use crate::moving::Moved;
use crate::names::Name;

/// The socket in a machine's directory.
pub(crate) const SOCKET: &str = "control";

/// A monitor that has not said by then how its machine is does not answer: one that saves it may be as long.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// What has come is read, however late it is.
const LEAST_WAIT: Duration = Duration::from_millis(1);

/// To a monitor.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Ask {
    /// How is it?
    Show,
    /// Run a program in the guest. What follows on this line is about that.
    Exec(Command),
    /// For its standard input; nothing: it has ended.
    Input(Vec<u8>),
    /// So much of its output has been taken.
    Taken(u32),
    /// Send it a signal.
    Signal(i32),
    /// From now on this line is the machine's console.
    Console,
    /// End in good order, or at once after so many milliseconds.
    Stop {
        /// So many.
        limit_ms: u64,
    },
    /// End at once.
    Kill,
    /// Save all of it as it is now, in a directory, and go on.
    Snapshot {
        /// Which is there, and empty.
        directory: PathBuf,
    },
    /// Move to another host.
    Migrate {
        /// As the comb calls it.
        host: String,
    },
    /// It was given to another host, which does not say what became of it: it is not there, and goes on here.
    Keep,
    /// Have so much memory from now on.
    SetMemory {
        /// In bytes.
        bytes: u64,
    },
    /// Have the guest see the last edition of a shelf that it has, and leave older ones.
    ShowFiles {
        /// Which.
        shelf: String,
        /// What was changed here is in it.
        is_brought_out: bool,
    },
    /// Have the guest leave editions of a shelf that nobody has open.
    LeaveFiles {
        /// Of which.
        shelf: String,
    },
}

/// From a monitor.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Answer {
    /// So.
    Shown(Box<Shown>),
    /// It is done, or begun.
    Done,
    /// It is not. A sentence for people.
    Refused(String),
    /// The program has written.
    Output {
        /// To its standard error.
        is_error: bool,
        /// What.
        bytes: Vec<u8>,
    },
    /// So much of its input has been taken.
    Taken(u32),
    /// It is over.
    Ended(Ended),
    /// The console has.
    Console(Vec<u8>),
    /// What is done meanwhile, or is in the way of it: a sentence for people.
    Told(String),
    /// It has moved.
    Moved(Moved),
}

/// How a machine is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum State {
    /// The guest has not said yet that it is there.
    Begins,
    /// The guest answers.
    Up,
    /// It does not.
    Hangs,
    /// It has been told to end.
    Stops,
    /// It stands still, and is about to be another host's.
    Moves,
    /// It stands still: another host has it, or not, and does not answer.
    Unsure,
}

impl State {
    /// As people read it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Begins => "starting",
            Self::Up => "up",
            Self::Hangs => "hung",
            Self::Stops => "stopping",
            Self::Moves => "moving",
            Self::Unsure => "unsure",
        }
    }
}

/// A machine, as its monitor shows it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Shown {
    /// What it is called.
    pub name: String,
    /// From which image.
    pub image: String,
    /// Whether it is a clone.
    pub is_clone: bool,
    /// How it is.
    pub state: State,
    /// The engine's process.
    pub engine: u32,
    /// The monitor's.
    pub monitor: u32,
    /// What it was made with.
    pub hardware: Hardware,
    /// The cell whose charge it is.
    pub cell: Option<u32>,
    /// From its start until the guest was at work, in microseconds, if it is.
    pub begun_us: Option<u64>,
    /// Since its start, in milliseconds.
    pub age_ms: u64,
    /// How often another has taken its place.
    pub replaced: u32,
    /// What it has, as its engine says.
    pub memory: Has,
    /// What the guest says of its memory.
    pub guest: MemoryShown,
    /// Its address on its subnet, if it is on one.
    pub address: Option<[u8; 4]>,
    /// The processes that serve its disks.
    pub disk_servers: Vec<u32>,
    /// How often one of them was started again.
    pub disk_restarts: u32,
    /// The longest between two answers of the guest's, in microseconds, and how many there were.
    pub longest_gap_us: u64,
    /// The usual time between two, in microseconds.
    pub usual_gap_us: u64,
    /// What it has in common with others.
    pub files: Vec<crate::files::machine::FilesShown>,
}

/// Why a monitor did not do what was asked.
#[derive(Debug, Error)]
pub enum AskError {
    /// There is none.
    #[error("there is no machine `{0}`: `comb vm ls` shows those that there are")]
    None(Name),
    /// It says why.
    #[error("{0}")]
    Refused(String),
    /// It has gone.
    #[error("the monitor of `{0}` has gone: {1}")]
    Gone(Name, io::Error),
    /// It is there, and says nothing.
    #[error("the monitor of `{0}` does not answer: `comb vm kill {0}` ends both")]
    Silent(Name),
}

/// The directories of machines.
#[derive(Clone, Debug)]
pub struct Machines {
    directory: PathBuf,
}

impl Machines {
    /// Those in a directory, which is made when it is needed.
    pub fn at(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// Where they all are.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Of one.
    pub fn directory_of(&self, name: &Name) -> PathBuf {
        self.directory.join(name.as_str())
    }

    /// The names of all that have a directory: those that run, and those that somebody has killed with their monitor.
    pub fn names(&self) -> Vec<Name> {
        let entries = std::fs::read_dir(&self.directory).into_iter().flatten();
        let mut names: Vec<Name> =
            entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
        names.sort();
        names
    }

    /// A line to the monitor of one.
    pub fn reach(&self, name: &Name) -> Result<Line, AskError> {
        let socket = self.directory_of(name).join(SOCKET);
        let stream = UnixStream::connect(socket).map_err(|_| AskError::None(name.clone()))?;
        Ok(Line { name: name.clone(), stream, came: Frames::default() })
    }

    /// All that run, as their monitors show them; nothing of those that do not answer in time.
    pub fn show_all(&self) -> Vec<(Name, Option<Shown>)> {
        let asked = |name: Name| {
            let mut line = self.reach(&name).ok()?;
            line.say(&Ask::Show).ok()?;
            Some((name, line))
        };
        let asked: Vec<(Name, Line)> = self.names().into_iter().filter_map(asked).collect();
        let until = Instant::now() + ANSWER_LIMIT;
        let left = || until.saturating_duration_since(Instant::now()).max(LEAST_WAIT);
        let shown = |(name, mut line): (Name, Line)| match line.shown(left()) {
            Ok(shown) => Some((name, Some(shown))),
            Err(AskError::Silent(_)) => Some((name, None)),
            // It has just ended.
            Err(_) => None,
        };
        asked.into_iter().filter_map(shown).collect()
    }
}

/// A line to a monitor.
#[derive(Debug)]
pub struct Line {
    name: Name,
    stream: UnixStream,
    came: Frames,
}

impl Line {
    /// The socket, to wait for answers.
    pub fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// Asks for something.
    pub fn say(&mut self, ask: &Ask) -> Result<(), AskError> {
        self.stream.write_all(&framed(ask)).map_err(|error| AskError::Gone(self.name.clone(), error))
    }

    /// The next answer, if it has been read already.
    pub fn take(&mut self) -> Result<Option<Answer>, AskError> {
        let strange =
            |error| AskError::Gone(self.name.clone(), io::Error::new(ErrorKind::InvalidData, error));
        self.came.take().map_err(strange)
    }

    /// The next answer, for which it waits as long as is said; nothing: it has not come.
    pub fn hear(&mut self, limit: Option<Duration>) -> Result<Option<Answer>, AskError> {
        let gone = |name: &Name, error| AskError::Gone(name.clone(), error);
        loop {
            if let Some(answer) = self.take()? {
                return Ok(Some(answer));
            }
            self.stream.set_read_timeout(limit).map_err(|error| gone(&self.name, error))?;
            let mut some = [0; 32_768];
            match self.stream.read(&mut some) {
                Ok(0) => return Err(gone(&self.name, ErrorKind::UnexpectedEof.into())),
                Ok(read) => self.came.push(&some[..read]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(gone(&self.name, error)),
            }
        }
    }

    /// Asks for something that has one answer, however long it takes.
    pub fn ask(&mut self, ask: &Ask) -> Result<Answer, AskError> {
        self.say(ask)?;
        self.answer(None)
    }

    /// Asks for something that is answered at once by whoever is well.
    pub fn ask_soon(&mut self, ask: &Ask) -> Result<Answer, AskError> {
        self.say(ask)?;
        self.answer(Some(ANSWER_LIMIT))
    }

    fn answer(&mut self, limit: Option<Duration>) -> Result<Answer, AskError> {
        match self.hear(limit)? {
            Some(Answer::Refused(why)) => Err(AskError::Refused(why)),
            Some(answer) => Ok(answer),
            None => Err(AskError::Silent(self.name.clone())),
        }
    }

    /// How the machine is.
    pub fn show(&mut self) -> Result<Shown, AskError> {
        self.say(&Ask::Show)?;
        self.shown(ANSWER_LIMIT)
    }

    fn shown(&mut self, limit: Duration) -> Result<Shown, AskError> {
        match self.answer(Some(limit))? {
            Answer::Shown(shown) => Ok(*shown),
            _ => Err(AskError::Gone(self.name.clone(), ErrorKind::InvalidData.into())),
        }
    }

    /// Ends the machine at once; whether its monitor did not answer, and was ended for that.
    pub fn kill(&mut self) -> Result<bool, AskError> {
        match self.ask_soon(&Ask::Kill) {
            Err(AskError::Silent(name)) => {
                let gone = |error: rustix::io::Errno| AskError::Gone(name.clone(), error.into());
                let monitor = rustix::net::sockopt::socket_peercred(&self.stream).map_err(gone)?.pid;
                // What it has started ends with it.
                rustix::process::kill_process(monitor, rustix::process::Signal::KILL).map_err(gone)?;
                Ok(true)
            }
            asked => asked.map(|_| false),
        }
    }
}

/// How much memory of the host's a process and those that it has started have to themselves, and of what they share with others their part, in bytes.
pub fn proportional_bytes(process: u32) -> Option<u64> {
    let others = started_by(process).into_iter().filter_map(proportional_bytes);
    Some(bytes_of(process)? + others.sum::<u64>())
}

/// What a process has started.
pub(crate) fn started_by(process: u32) -> Vec<u32> {
    let text = std::fs::read_to_string(format!("/proc/{process}/task/{process}/children"));
    text.unwrap_or_default().split_whitespace().filter_map(|number| number.parse().ok()).collect()
}

fn bytes_of(process: u32) -> Option<u64> {
    let path = Path::new("/proc").join(process.to_string()).join("smaps_rollup");
    let text = std::fs::read_to_string(path).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}
