//! From a source into a file: fetch, write down, and say how it is going.

use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use thiserror::Error;

use crate::codec::Encoder;
use crate::event::Event;
use crate::machine;
use crate::privacy::Privacy;
use crate::source::{Counters, Source};
use crate::trace_file::{Frame, Head, Moment, framed, write_magic};

/// What is written is at most so old: as much is lost if the recorder is killed.
const WRITE_INTERVAL: Duration = Duration::from_secs(1);

/// How long it sleeps between two looks, when there is much to do, and when there is little. The ring holds half a million events.
const SHORTEST_SLEEP: Duration = Duration::from_millis(2);
const LONGEST_SLEEP: Duration = Duration::from_millis(64);

/// If so many events came since the last look, the next one is sooner; if fewer than the other, later.
const MANY: usize = 16_384;
const FEW: usize = 2_048;

/// Why a recording ended before its time. What was written until then is good.
#[derive(Debug, Error)]
pub enum RecordError {
    /// There is no room any more.
    #[error("{path}: no room is left; the trace ends here, and all before is good")]
    Full {
        /// Where.
        path: PathBuf,
    },
    /// It could not be written.
    #[error("{path}: {error}")]
    Io {
        /// Where.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Whoever takes it elsewhere has as much waiting as may wait.
    #[error("what is recorded is not taken away as fast as it comes")]
    Behind,
}

/// How a recording went, or how it is going.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Summary {
    /// Events that were written.
    pub written: u64,
    /// What the source counted.
    pub counters: Counters,
    /// How long the file is.
    pub bytes: u64,
    /// How much time the source has taken from those that it looks at, if there is somebody to tell.
    pub time_taken: Option<Duration>,
}

/// Where frames go.
pub trait Output {
    /// Takes a frame whole, or not at all.
    fn put(&mut self, frame: &[u8]) -> Result<(), RecordError>;
    /// How much it has taken.
    fn bytes(&self) -> u64;
}

/// A file that always ends with a whole frame.
pub struct TraceFile {
    file: File,
    path: PathBuf,
    bytes: u64,
}

impl TraceFile {
    /// Makes a new file; one that is there already stays as it is, and is an error.
    pub fn create(path: &Path) -> Result<Self, RecordError> {
        let failed = |error| RecordError::Io { path: path.to_path_buf(), error };
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(failed)?;
        }
        let mut file = File::create_new(path).map_err(failed)?;
        let bytes = write_magic(&mut file).map_err(failed)?;
        Ok(Self { file, path: path.to_path_buf(), bytes })
    }
}

impl Output for TraceFile {
    fn put(&mut self, frame: &[u8]) -> Result<(), RecordError> {
        let Err(error) = self.file.write_all(frame) else {
            self.bytes += frame.len() as u64;
            return Ok(());
        };
        // Half a frame is of no use. If not even that can be done, readers see a cut.
        let _ = self.file.set_len(self.bytes);
        let _ = self.file.seek(SeekFrom::Start(self.bytes));
        Err(match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                RecordError::Full { path: self.path.clone() }
            }
            _ => RecordError::Io { path: self.path.clone(), error },
        })
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// Writes down what a source sees.
pub struct Recorder<O> {
    source: Box<dyn Source>,
    output: O,
    encoder: Encoder,
    privacy: Privacy,
    written: u64,
    last_written: Instant,
    sleep: Duration,
}

impl<O: Output> Recorder<O> {
    /// Begins a trace: its head is written.
    pub fn new(
        source: Box<dyn Source>,
        mut output: O,
        privacy: Privacy,
        mut head: Head,
    ) -> Result<Self, RecordError> {
        (head.machine, head.kernel) = machine::names();
        source.name().clone_into(&mut head.mechanism);
        head.lacks = source.lacks();
        head.are_names_hashed = privacy.hides();
        head.users = if privacy.hides() { Vec::new() } else { machine::users() };
        head.mounts = machine::mounts();
        if privacy.hides() {
            // A program's name stays; what it was given may name anything.
            head.command.truncate(1);
            for word in &mut head.command {
                *word = word.rsplit(|&byte| byte == b'/').next().unwrap_or_default().to_vec();
            }
        }
        for mount in &mut head.mounts {
            mount.place = privacy.path(&mount.place).into_owned();
        }
        for (_, _, path) in head.processes.iter_mut().flat_map(|process| &mut process.open) {
            *path = privacy.path(path).into_owned();
        }
        head.began = machine::now();
        if let Some(suspension) = &head.suspension {
            head.lacks.push(format!(
                "what happened in the {:.1} s before it began, for recording was suspended: {}",
                suspension.silence(&head.began).as_secs_f64(),
                suspension.cause
            ));
        }
        output.put(&framed(&Frame::Head(Box::new(head))))?;
        Ok(Self {
            source,
            output,
            encoder: Encoder::default(),
            privacy,
            written: 0,
            last_written: Instant::now(),
            sleep: SHORTEST_SLEEP,
        })
    }

    /// The source, to be told whom to look at.
    pub fn source(&mut self) -> &mut dyn Source {
        &mut *self.source
    }

    /// Fetches what there is, and writes what is due. Returns how long nothing needs to be done.
    pub fn step(&mut self) -> Result<Duration, RecordError> {
        let mut fetched = 0;
        loop {
            let Self { source, encoder, privacy, .. } = self;
            let room = crate::codec::MOST_EVENTS - encoder.len();
            let new =
                source.fetch(room, &mut |event: &Event, texts| match privacy.texts(event.operation, texts) {
                    None => encoder.add(event, texts),
                    Some(hidden) => encoder.add(event, &hidden),
                });
            fetched += new;
            if !self.encoder.is_full() {
                break;
            }
            self.write_block()?;
        }
        if self.last_written.elapsed() >= WRITE_INTERVAL {
            self.write_block()?;
            let moment = self.moment();
            self.output.put(&framed(&Frame::Moment(moment)))?;
            self.last_written = Instant::now();
        }
        self.sleep = match fetched {
            MANY.. => self.sleep / 2,
            ..FEW => self.sleep * 2,
            _ => self.sleep,
        }
        .clamp(SHORTEST_SLEEP, LONGEST_SLEEP);
        Ok(self.sleep)
    }

    /// Writes all that has been seen, and that the recording ends here.
    pub fn finish(mut self) -> Result<Summary, RecordError> {
        self.end()
    }

    /// As [`Self::finish`]. Nothing more may be recorded, but if it failed, the summary can still be had.
    pub(crate) fn end(&mut self) -> Result<Summary, RecordError> {
        self.step()?;
        self.write_block()?;
        let moment = self.moment();
        self.output.put(&framed(&Frame::End(moment)))?;
        Ok(self.summary())
    }

    /// How it is going.
    pub fn summary(&self) -> Summary {
        Summary {
            written: self.written,
            counters: self.source.counters(),
            bytes: self.output.bytes(),
            time_taken: self.source.time_taken(),
        }
    }

    fn write_block(&mut self) -> Result<(), RecordError> {
        let events = self.encoder.len() as u64;
        if let Some(block) = self.encoder.take() {
            self.output.put(&framed(&Frame::Events(block)))?;
            self.written += events;
        }
        Ok(())
    }

    fn moment(&self) -> Moment {
        let Counters { recorded, lost, foreign } = self.source.counters();
        Moment { recorded, lost, foreign, ..machine::now() }
    }
}
