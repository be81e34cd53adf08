//! What is known of a workload, as a file that people read and change.

use std::io::{self, Read, Write};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::ser::Formatter;
use thiserror::Error;

use super::variable::Variable;

/// What every such file says of itself, and its version.
const FORMAT: (&str, &str) = ("comb workload ", "1");

/// No model of ours is larger.
const MOST_BYTES: u64 = 16 << 20;

/// More users than anybody's machines have.
pub const MOST_SOURCES: u32 = 1 << 16;

/// Of what has no name, there are no more than so many for each open.
const MOST_FOR_EACH_OPEN: f64 = 1000.0;

/// Why a model cannot be read. Nothing has changed.
#[derive(Debug, Error)]
pub enum ModelFileError {
    /// It is something else.
    #[error("this is no workload model of comb")]
    Foreign,
    /// It was written by another version.
    #[error("this workload model has format '{0}', and this comb reads format '1'")]
    OtherFormat(String),
    /// Something in it is missing, unknown, or cannot be.
    #[error("the workload model is damaged: {0}")]
    Damaged(String),
    /// It could not be read at all.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// What every file of a model begins with: that it is one, and its version.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Format;

impl Serialize for Format {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{}{}", FORMAT.0, FORMAT.1))
    }
}

impl<'de> Deserialize<'de> for Format {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // It was looked at before all else.
        String::deserialize(deserializer).map(|_| Self)
    }
}

/// Which sessions there are: shares, of any sum. (Thesis §9.6.2: whole files, in order, and with jumps)
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kinds {
    /// No bytes are asked for: the session is for control.
    pub control: f64,
    /// It reads where there is nothing.
    pub read_nothing: f64,
    /// It reads a whole file.
    pub read_whole: f64,
    /// It reads a part in order.
    pub read_sequential: f64,
    /// It reads here and there.
    pub read_random: f64,
    /// It writes a whole file: a new one, or all of an old one anew.
    pub write_whole: f64,
    /// It writes a part in order.
    pub write_sequential: f64,
    /// It writes here and there.
    pub write_random: f64,
    /// It reads and writes, from the first byte to the last.
    pub both_whole: f64,
    /// It reads and writes a part in order.
    pub both_sequential: f64,
    /// It reads and writes here and there.
    pub both_random: f64,
}

impl Kinds {
    pub(super) const fn shares(&self) -> [f64; 11] {
        [
            self.control,
            self.read_nothing,
            self.read_whole,
            self.read_sequential,
            self.read_random,
            self.write_whole,
            self.write_sequential,
            self.write_random,
            self.both_whole,
            self.both_sequential,
            self.both_random,
        ]
    }
}

/// How often files are opened again: a process of Pitman and Yor. After n opens of k files the next is of one that was not opened before with
/// the chance (strength + k·discount) / (strength + n); else a file is taken as often as it was before, less the discount. By rank, popularity
/// falls off as Zipf's with exponent 1/discount among the less popular, and in the end the share `discount` of all files is opened once.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reuse {
    /// Above 0 and below 1.
    pub discount: f64,
    /// Not below 0.
    pub strength: f64,
}

/// New files: what comes of sessions that write a whole one. (Thesis §9.6.3)
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Births {
    /// Of those, the share that empties a file that was there before.
    pub truncating: f64,
    /// How long they become.
    pub bytes: Variable,
    /// In how many writes, as large as each other: what is written of a short file is short.
    pub operations: Variable,
    /// The share of new files that are emptied by an open, and thereby new again.
    pub overwritten: f64,
    /// After how long, from the end of the open.
    pub overwritten_ns: Variable,
    /// The share that is deleted.
    pub deleted: f64,
    /// After how long.
    pub deleted_ns: Variable,
}

/// How files lie in directories.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Directories {
    /// Of a directory: how many files it has.
    pub files: Variable,
    /// How many directories above it there are, and itself.
    pub depth: Variable,
}

/// A workload. Nothing in it tells a name. Times are in nanoseconds.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// What it is.
    pub format: Format,
    /// Where it comes from, in words.
    pub about: String,
    /// How many users there are, each active and silent in turn whatever the others do. More of them are more load, which does not smooth out.
    pub sources: u32,
    /// Two opens of a source that lie farther apart are of two periods of activity.
    pub silence_ns: u64,
    /// Files opened in a period of activity. It lasts for as long as they take: to draw its length and fill it would cut off the last gap, and
    /// make all gaps too short.
    pub active_opens: Variable,
    /// Between two opens of one period, from beginning to beginning.
    pub open_gap_ns: Variable,
    /// From the last open of a period to the first of the next.
    pub silent_ns: Variable,
    /// Which sessions there are.
    pub kinds: Kinds,
    /// For each open, opens that find nothing.
    pub failed_opens: f64,
    /// For each open, questions about a file by its path.
    pub path_questions: f64,
    /// Control operations in a session that moves nothing.
    pub control_operations: Variable,
    /// And how long it is open.
    pub control_open_ns: Variable,
    /// Reads and writes in a session that takes a part of a file in order.
    pub sequential_operations: Variable,
    /// And in one with jumps.
    pub random_operations: Variable,
    /// What a read asks for.
    pub read_bytes: Variable,
    /// What a write writes that is no part of a whole new file.
    pub write_bytes: Variable,
    /// From a read's end to the next read of its session.
    pub read_gap_ns: Variable,
    /// From a write's end to the next.
    pub write_gap_ns: Variable,
    /// How long a session that moves bytes is open besides.
    pub held_ns: Variable,
    /// Of sessions that read a whole file, the share that reads on and finds its end.
    pub end_reads: f64,
    /// Of sessions that write, the share that waits for the disk.
    pub synced_writes: f64,
    /// How long reads and writes take.
    pub data_service_ns: Variable,
    /// How long all else takes.
    pub other_service_ns: Variable,
    /// Size of a file that was there before, each counted once: which are popular is another matter.
    pub file_bytes: Variable,
    /// How often files are opened again.
    pub reuse: Reuse,
    /// New files.
    pub births: Births,
    /// How files lie in directories.
    pub directories: Directories,
}

#[derive(Deserialize)]
struct Probe {
    format: Option<String>,
}

impl Model {
    /// Reads a model that anybody may have written or changed.
    pub fn read(from: impl Read) -> Result<Self, ModelFileError> {
        let mut text = Vec::new();
        from.take(MOST_BYTES + 1).read_to_end(&mut text)?;
        if text.len() as u64 > MOST_BYTES {
            return Err(ModelFileError::Foreign);
        }
        match serde_json::from_slice::<Probe>(&text) {
            Ok(Probe { format: Some(format) }) => match format.strip_prefix(FORMAT.0) {
                Some(version) if version == FORMAT.1 => {}
                Some(version) => return Err(ModelFileError::OtherFormat(version.to_owned())),
                None => return Err(ModelFileError::Foreign),
            },
            // It began as a model does, and was cut off or changed.
            Err(error) if text.windows(FORMAT.0.len()).any(|window| window == FORMAT.0.as_bytes()) => {
                return Err(ModelFileError::Damaged(error.to_string()));
            }
            _ => return Err(ModelFileError::Foreign),
        }
        let model: Self =
            serde_json::from_slice(&text).map_err(|error| ModelFileError::Damaged(error.to_string()))?;
        model.check().map_err(ModelFileError::Damaged)?;
        Ok(model)
    }

    /// Writes it, a quantity a line.
    pub fn write(&self, mut to: impl Write) -> io::Result<()> {
        let mut serializer = serde_json::Serializer::with_formatter(&mut to, Lines::default());
        self.serialize(&mut serializer)?;
        to.write_all(b"\n")
    }

    /// All that is distributed.
    pub fn variables(&self) -> [(&'static str, &Variable); 21] {
        [
            ("active_opens", &self.active_opens),
            ("open_gap_ns", &self.open_gap_ns),
            ("silent_ns", &self.silent_ns),
            ("control_operations", &self.control_operations),
            ("control_open_ns", &self.control_open_ns),
            ("sequential_operations", &self.sequential_operations),
            ("random_operations", &self.random_operations),
            ("read_bytes", &self.read_bytes),
            ("write_bytes", &self.write_bytes),
            ("read_gap_ns", &self.read_gap_ns),
            ("write_gap_ns", &self.write_gap_ns),
            ("held_ns", &self.held_ns),
            ("data_service_ns", &self.data_service_ns),
            ("other_service_ns", &self.other_service_ns),
            ("file_bytes", &self.file_bytes),
            ("births.bytes", &self.births.bytes),
            ("births.operations", &self.births.operations),
            ("births.overwritten_ns", &self.births.overwritten_ns),
            ("births.deleted_ns", &self.births.deleted_ns),
            ("directories.files", &self.directories.files),
            ("directories.depth", &self.directories.depth),
        ]
    }

    /// Whether a workload can be made of it: of one that a program put together, [`super::generate`] takes it for granted.
    pub fn check(&self) -> Result<(), String> {
        for (name, variable) in self.variables() {
            if let Some(fault) = variable.fault() {
                return Err(format!("{name}: {fault}"));
            }
        }
        if !(1..=MOST_SOURCES).contains(&self.sources) {
            return Err(format!("sources are not between 1 and {MOST_SOURCES}"));
        }
        let shares = self.kinds.shares();
        let sum: f64 = shares.iter().sum();
        if shares.iter().any(|share| *share < 0.0 || share.is_nan()) || sum == 0.0 || !sum.is_finite() {
            return Err("kinds: shares are not below 0, and one of them is above".to_owned());
        }
        let Births { truncating, overwritten, deleted, .. } = self.births;
        for (name, share) in [
            ("end_reads", self.end_reads),
            ("synced_writes", self.synced_writes),
            ("births.truncating", truncating),
            ("births.overwritten", overwritten),
            ("births.deleted", deleted),
            ("births.overwritten and births.deleted together", overwritten + deleted),
        ] {
            if !(0.0..=1.0).contains(&share) {
                return Err(format!("{name}: a share is between 0 and 1"));
            }
        }
        for (name, times) in [("failed_opens", self.failed_opens), ("path_questions", self.path_questions)] {
            if !(0.0..=MOST_FOR_EACH_OPEN).contains(&times) {
                return Err(format!("{name} is not between 0 and {MOST_FOR_EACH_OPEN}"));
            }
        }
        let Reuse { discount, strength } = self.reuse;
        let can_be = discount > 0.0 && discount < 1.0 && (0.0..=1e15).contains(&strength);
        if !can_be {
            return Err("reuse: the discount is between 0 and 1, the strength not below 0".to_owned());
        }
        Ok(())
    }
}

/// JSON with a quantity a line: their points are for machines, and everything else is for people.
#[derive(Default)]
struct Lines {
    depth: usize,
}

/// From here on all is in one line.
const DEPTH_IN_ONE_LINE: usize = 2;

impl Lines {
    fn line<W: ?Sized + Write>(&self, to: &mut W, depth: usize) -> io::Result<()> {
        to.write_all(b"\n")?;
        (0..depth).try_for_each(|_| to.write_all(b"  "))
    }
}

impl Formatter for Lines {
    fn begin_object<W: ?Sized + Write>(&mut self, to: &mut W) -> io::Result<()> {
        self.depth += 1;
        to.write_all(b"{")
    }

    fn end_object<W: ?Sized + Write>(&mut self, to: &mut W) -> io::Result<()> {
        self.depth -= 1;
        if self.depth == 0 {
            self.line(to, 0)?;
        }
        to.write_all(b"}")
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, to: &mut W, is_first: bool) -> io::Result<()> {
        if !is_first {
            to.write_all(b",")?;
        }
        if self.depth < DEPTH_IN_ONE_LINE {
            self.line(to, self.depth)
        } else if is_first {
            Ok(())
        } else {
            to.write_all(b" ")
        }
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, to: &mut W) -> io::Result<()> {
        to.write_all(b": ")
    }
}
