//! What has happened, for programs: a line of JSON each, in the file `events.jsonl` of the runtime directory. The agent alone writes it; whoever
//! wants to know reads it, and follows it when it grows. No agent is needed for that, and none is held up by a slow reader.
//!
//! A line is never changed. When the file is long it gets another name, and a new one begins; of those before, one is kept.

use std::fs::File;
use std::io::{BufRead, BufReader, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use comb_cell::clock::monotonic_ns;
use comb_cell::journal;
use comb_cell::supervision::Recovered;
use serde::{Deserialize, Serialize};

use crate::RuntimeDirectory;

/// A file that is longer gives way to the next: some ten thousand events.
const LONGEST_FILE_BYTES: u64 = 4 << 20;
/// What is read of a file's end to learn where its numbers stand. A line is shorter.
const LAST_LINES_BYTES: u64 = 64 << 10;

/// One thing that has happened.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Event {
    /// They count up. A gap: the ones between could not be written, for the disk was full.
    pub seq: u64,
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// The same on `CLOCK_MONOTONIC` of this host.
    pub at_ns: u64,
    /// What.
    #[serde(flatten)]
    pub what: What,
    /// The same for people.
    pub text: String,
}

/// What has happened.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum What {
    /// An agent is at work.
    AgentBegan {
        /// Its process.
        pid: u32,
        /// Whether there were cells, of an agent before it.
        took_over: bool,
    },
    /// The agent makes room for its successor.
    AgentLeft {
        /// Its process.
        pid: u32,
    },
    /// Everything is taken down.
    Ending,
    /// A cell's process runs.
    CellStarted {
        /// Which.
        cell: u32,
        /// Which life of it.
        incarnation: u64,
        /// Its process.
        pid: u32,
    },
    /// A cell is at work, and has a channel to every other.
    CellUp {
        /// Which.
        cell: u32,
        /// Which life of it.
        incarnation: u64,
    },
    /// Somebody has a cell fail: it is killed, or stopped.
    CellStruck {
        /// Which.
        cell: u32,
        /// Which life of it.
        incarnation: u64,
        /// Whether it is only stopped, so that it hangs.
        hangs: bool,
        /// When, on `CLOCK_MONOTONIC`: just before.
        struck_ns: u64,
    },
    /// A cell's channel to another ended, or it found that one wanting.
    CellNoticed {
        /// Of whom.
        cell: u32,
        /// Who.
        by: u32,
        /// When, on `CLOCK_MONOTONIC`.
        noticed_ns: u64,
    },
    /// Most have found a cell failed.
    CellCondemned {
        /// Which.
        cell: u32,
        /// Which life of it.
        incarnation: u64,
    },
    /// A cell's processes are gone.
    CellEnded {
        /// Which.
        cell: u32,
        /// Which life of it.
        incarnation: u64,
        /// Its process.
        pid: u32,
        /// When its end was called for, on `CLOCK_MONOTONIC`; none: nobody did.
        killed_ns: Option<u64>,
        /// How it ended.
        how: String,
        /// Whether it was told to, to be started anew: that is no failure.
        #[serde(default)]
        planned: bool,
    },
    /// A cell has recovered from the end of others.
    CellRecovered {
        /// Who.
        by: u32,
        /// How.
        #[serde(flatten)]
        recovered: Recovered,
    },
    /// A cell stays down.
    CellStaysDown {
        /// Which.
        cell: u32,
    },
    /// A cell gets no new tasks.
    CellDraining {
        /// Which.
        cell: u32,
    },
    /// A task has its places.
    TaskBegan {
        /// Which.
        task: u32,
        /// What is run.
        program: Vec<String>,
        /// Where, by rank.
        cells: Vec<u32>,
    },
    /// A task is over.
    TaskEnded {
        /// Which.
        task: u32,
    },
    /// The policy runs.
    PolicyBegan {
        /// Which life of it.
        incarnation: u64,
    },
    /// It does not.
    PolicyEnded {
        /// Which life of it.
        incarnation: u64,
    },
    /// Something else.
    Note,
}

impl What {
    /// The cell that it is about.
    pub fn cell(&self) -> Option<u32> {
        match self {
            Self::CellStarted { cell, .. }
            | Self::CellUp { cell, .. }
            | Self::CellStruck { cell, .. }
            | Self::CellNoticed { cell, .. }
            | Self::CellCondemned { cell, .. }
            | Self::CellEnded { cell, .. }
            | Self::CellStaysDown { cell }
            | Self::CellDraining { cell } => Some(*cell),
            Self::CellRecovered { by, .. } => Some(*by),
            _ => None,
        }
    }
}

/// The writer.
#[derive(Debug)]
pub(crate) struct Events {
    path: PathBuf,
    before: PathBuf,
    file: Option<File>,
    next: u64,
}

impl Events {
    /// Goes on where the agent before has ended.
    pub(crate) fn open(directory: &RuntimeDirectory) -> Self {
        let (path, before) = (directory.events_file(), directory.events_before_file());
        let last = last_number(&path).or_else(|| last_number(&before));
        let mut events = Self { path, before, file: None, next: last.map_or(1, |last| last + 1) };
        events.reopen();
        events
    }

    fn reopen(&mut self) {
        let file = File::options().create(true).append(true).mode(0o600).open(&self.path);
        self.file = file.ok();
    }

    /// Writes it down, and the sentence into the log.
    pub(crate) fn note(&mut self, what: What, text: impl std::fmt::Display) {
        let text = text.to_string();
        journal::write("agent", &text);
        self.note_quietly(what, text);
    }

    /// Writes it down. The log has it from somebody else, or would be flooded. A disk that is full stops nobody: the number is missing then.
    pub(crate) fn note_quietly(&mut self, what: What, text: impl std::fmt::Display) {
        let text = text.to_string();
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let at_ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        let event = Event { seq: self.next, at_ms, at_ns: monotonic_ns(), what, text };
        self.next += 1;
        let mut line = serde_json::to_vec(&event).expect("plain data");
        line.push(b'\n');
        if self.file.is_none() {
            self.reopen();
        }
        let Some(file) = &mut self.file else { return };
        let began = file.seek(SeekFrom::End(0)).unwrap_or(0);
        if file.write_all(&line).is_err() {
            // Half a line would spoil the next one.
            let _ = file.set_len(began);
        } else if began > LONGEST_FILE_BYTES {
            self.file = None;
            let _ = std::fs::rename(&self.path, &self.before);
        }
    }
}

fn last_number(path: &PathBuf) -> Option<u64> {
    let mut file = File::open(path).ok()?;
    let bytes = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(bytes.saturating_sub(LAST_LINES_BYTES))).ok()?;
    let lines = BufReader::new(file).lines().map_while(Result::ok);
    lines.filter_map(|line| serde_json::from_str::<Event>(&line).ok()).last().map(|event| event.seq)
}

/// A reader, from the beginning of what there is on.
#[derive(Debug)]
pub struct Following {
    path: PathBuf,
    reader: Option<BufReader<File>>,
    /// What has come of a line that is not whole yet.
    part: Vec<u8>,
}

impl Following {
    /// All that is kept, and what comes.
    pub fn of(directory: &RuntimeDirectory) -> Self {
        let before = File::open(directory.events_before_file()).ok().map(BufReader::new);
        Self { path: directory.events_file(), reader: before, part: Vec::new() }
    }

    /// The next one, if there is one yet. Lines that make no sense are passed over: they are of another version.
    pub fn next_event(&mut self) -> Option<Event> {
        loop {
            if self.reader.is_none() {
                self.reader = Some(BufReader::new(File::open(&self.path).ok()?));
            }
            let reader = self.reader.as_mut()?;
            let read = reader.read_until(b'\n', &mut self.part).ok()?;
            if self.part.ends_with(b"\n") {
                let event = serde_json::from_slice(&self.part);
                self.part.clear();
                match event {
                    Ok(event) => return Some(event),
                    Err(_) => continue,
                }
            }
            if read > 0 || self.is_the_last() {
                return None;
            }
            self.reader = None;
            self.part.clear();
        }
    }

    /// Whether nothing comes any more: everything was taken down.
    pub fn is_over(&self) -> bool {
        !self.path.exists()
    }

    fn is_the_last(&self) -> bool {
        let read = self.reader.as_ref().and_then(|reader| reader.get_ref().metadata().ok());
        // Where there is no next file yet, this one is what there is.
        let Ok(last) = std::fs::metadata(&self.path) else { return true };
        read.is_some_and(|read| (read.ino(), read.dev()) == (last.ino(), last.dev()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(name: &str) -> RuntimeDirectory {
        let path = std::env::temp_dir().join(format!("comb-events-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        let directory = RuntimeDirectory::at(path).unwrap();
        directory.create().unwrap();
        directory
    }

    fn all(following: &mut Following) -> Vec<u64> {
        std::iter::from_fn(|| following.next_event()).map(|event| event.seq).collect()
    }

    #[test]
    fn a_reader_finds_all_that_comes_and_the_next_agent_goes_on_counting() {
        let directory = directory("follow");
        let mut following = Following::of(&directory);
        assert_eq!(following.next_event(), None);
        let mut events = Events::open(&directory);
        events.note(What::Note, "one");
        let recovered = Recovered { epoch: 3, dead: vec![2], discarded_pages: 7, ..Recovered::default() };
        events.note(What::CellRecovered { by: 1, recovered: recovered.clone() }, "two");
        assert_eq!(following.next_event().unwrap().text, "one");
        let two = following.next_event().unwrap();
        assert_eq!((two.seq, two.what), (2, What::CellRecovered { by: 1, recovered }));
        drop(events);
        Events::open(&directory).note(What::Ending, "three");
        assert_eq!(all(&mut following), [3]);
        assert!(!following.is_over());
        assert!(directory.remove().unwrap() && following.is_over());
    }

    #[test]
    fn a_reader_goes_on_in_the_next_file() {
        let directory = directory("rotate");
        let mut events = Events::open(&directory);
        let mut following = Following::of(&directory);
        events.note(What::Note, "x".repeat(1000));
        assert_eq!(all(&mut following), [1]);
        let mut count = 1;
        while !directory.events_before_file().exists() {
            events.note(What::Note, "x".repeat(100_000));
            count += 1;
        }
        events.note(What::Note, "the first of the next file");
        let seen = all(&mut following);
        assert_eq!((seen[0], *seen.last().unwrap()), (2, count + 1));
        assert_eq!(all(&mut Following::of(&directory)), (1..=count + 1).collect::<Vec<_>>());
        directory.remove().unwrap();
    }

    /// What a full disk leaves of a line is taken away, and the reader sees by the numbers that something is missing.
    #[test]
    fn half_a_line_is_waited_for_and_what_makes_no_sense_is_passed_over() {
        let directory = directory("half");
        let mut events = Events::open(&directory);
        events.note(What::Note, "one");
        let whole = std::fs::read(directory.events_file()).unwrap();
        let mut file = File::options().append(true).open(directory.events_file()).unwrap();
        file.write_all(b"{\"seq\":9,\"kind\":\"of another version\"}\n").unwrap();
        file.write_all(&whole[..20]).unwrap();
        let mut following = Following::of(&directory);
        assert_eq!(all(&mut following), [1]);
        file.write_all(&whole[20..]).unwrap();
        assert_eq!(all(&mut following), [1], "the same once more");
        directory.remove().unwrap();
    }
}
