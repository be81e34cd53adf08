//! A snapshot as a stream of entries, each with its whole path.

use std::io::{self, Read};

use thiserror::Error;

use super::block::{Record, read_block};
use super::{END, End, Entry, FORMAT, HEAD, Head};
use crate::framing::{FrameReader, FramingFault};

/// Why a snapshot cannot be read, or not any further.
#[derive(Debug, Error)]
pub enum SnapshotFileError {
    /// It is something else.
    #[error("this is no snapshot of comb")]
    Foreign,
    /// It was written by another version.
    #[error("this snapshot has format {0:?}, and this comb reads format '1'")]
    OtherFormat(char),
    /// It ends in the middle; what came before is good.
    #[error("the snapshot was cut off after {good_bytes} bytes; what came before is good")]
    Cut {
        /// How much is good.
        good_bytes: u64,
    },
    /// A frame is not as it was written; what came before is good.
    #[error("the snapshot is damaged after {good_bytes} bytes ({what}); what came before is good")]
    Damaged {
        /// How much is good.
        good_bytes: u64,
        /// In what way.
        what: String,
    },
    /// It could not be read at all.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl SnapshotFileError {
    /// Whether what has been read so far counts all the same.
    pub const fn leaves_good_part(&self) -> bool {
        matches!(self, Self::Cut { .. } | Self::Damaged { .. })
    }
}

impl From<FramingFault> for SnapshotFileError {
    fn from(fault: FramingFault) -> Self {
        match fault {
            FramingFault::Foreign => Self::Foreign,
            FramingFault::OtherFormat(version) => Self::OtherFormat(version),
            FramingFault::Cut { good_bytes } => Self::Cut { good_bytes },
            FramingFault::Damaged { good_bytes, what } => Self::Damaged { good_bytes, what },
            FramingFault::Io(error) => Self::Io(error),
        }
    }
}

/// A directory that has not ended.
struct Level {
    /// How much of the path is its own.
    path_bytes: usize,
    /// What of it is still to come.
    files: u64,
    directories: u64,
}

/// Reads a snapshot entry by entry.
pub struct SnapshotReader<R> {
    frames: FrameReader<R>,
    head: Head,
    records: std::vec::IntoIter<Record>,
    levels: Vec<Level>,
    path: Vec<u8>,
    end: Option<End>,
}

impl<R: Read> SnapshotReader<R> {
    /// Begins, if it is a snapshot: its head is read.
    pub fn new(from: R) -> Result<Self, SnapshotFileError> {
        let mut frames = FrameReader::new(from, FORMAT)?;
        let good_bytes = frames.good_bytes();
        let head = match frames.next_frame()? {
            Some((HEAD, body)) => postcard::from_bytes(&body).ok(),
            _ => None,
        };
        let head = head.ok_or_else(|| SnapshotFileError::Damaged {
            good_bytes,
            what: "it does not begin as a snapshot does".to_owned(),
        })?;
        let records = Vec::new().into_iter();
        Ok(Self { frames, head, records, levels: Vec::new(), path: Vec::new(), end: None })
    }

    /// Of what machine it is.
    pub const fn head(&self) -> &Head {
        &self.head
    }

    /// How it ended, when all of it has been read.
    pub const fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    /// The next file or directory; `None` after the last.
    pub fn next_entry(&mut self) -> Result<Option<Entry>, SnapshotFileError> {
        loop {
            if let Some(record) = self.records.next() {
                return self.placed(&record).map(Some);
            }
            if self.end.is_some() {
                return Ok(None);
            }
            match self.frames.next_frame()? {
                Some((HEAD, _)) => return Err(self.damaged("it begins twice")),
                Some((END, _)) if !self.levels.is_empty() => {
                    return Err(self.damaged("it ends within a directory"));
                }
                Some((END, body)) => {
                    let end = postcard::from_bytes(&body);
                    self.end = Some(end.map_err(|_| self.damaged("its end cannot be understood"))?);
                }
                Some((_, block)) => {
                    let records = read_block(&block);
                    let corrupt = |error| self.damaged(&format!("a block of records: {error}"));
                    self.records = records.map_err(corrupt)?.into_iter();
                }
                None => return Ok(None),
            }
        }
    }

    /// Gives a record the path that follows from those before it.
    fn placed(&mut self, record: &Record) -> Result<Entry, SnapshotFileError> {
        let depth = u32::try_from(self.levels.len()).unwrap_or(u32::MAX);
        if let Some(level) = self.levels.last_mut() {
            let left = if record.directory.is_some() { &mut level.directories } else { &mut level.files };
            let Some(fewer) = left.checked_sub(1) else {
                return Err(self.damaged("a directory holds more than it says"));
            };
            *left = fewer;
            self.path.truncate(level.path_bytes);
            if self.path.last() != Some(&b'/') {
                self.path.push(b'/');
            }
        } else {
            self.path.clear();
        }
        self.path.extend_from_slice(&record.name);
        if let Some(directory) = record.directory {
            let (files, directories) = (directory.files, directory.directories);
            self.levels.push(Level { path_bytes: self.path.len(), files, directories });
        }
        while self.levels.last().is_some_and(|level| level.files == 0 && level.directories == 0) {
            self.levels.pop();
        }
        Ok(Entry {
            path: self.path.clone(),
            depth,
            attributes: record.attributes,
            directory: record.directory,
        })
    }

    fn damaged(&self, what: &str) -> SnapshotFileError {
        SnapshotFileError::Damaged { good_bytes: self.frames.good_bytes(), what: what.to_owned() }
    }
}
