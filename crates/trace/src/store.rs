//! Where traces are kept for analysis: tables that any engine reads.
//!
//! A star: two tables of facts, `trace` with an operation a row and `instance` with a session a row, whose numbers point into small tables
//! that say what they mean: `operation`, `file`, `file_type`, `process`, `user`, `machine`, `time`. (Thesis §9.4) Each table is a folder of
//! Parquet files, one for each recording, as engines for one machine and for many want it.

mod loading;
mod schema;
mod table;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use thiserror::Error;

use self::loading::Loaded;
pub use self::loading::calendar;
pub use self::schema::{INSTANCE, Kind, TABLES, TRACE, TableSchema, named};
pub use self::table::{Sink, TableReader, TableWriter};

use crate::trace_file::TraceFileError;

/// The folder of a trace's directory that has the tables.
pub const TABLES_FOLDER: &str = "tables";

/// The ending of a recording's file.
pub const RECORDING_ENDING: &str = "trace";

/// Why tables cannot be made or read.
#[derive(Debug, Error)]
pub enum StoreError {
    /// There is nothing to read.
    #[error("{0}: no recording (*.trace) and no tables in it; comb trace record makes one")]
    Nothing(PathBuf),
    /// A recording cannot be read at all.
    #[error("{path}: {error}")]
    Recording {
        /// Which.
        path: PathBuf,
        /// Why.
        error: TraceFileError,
    },
    /// A table is not one of ours, or damaged.
    #[error("{path}: {error}")]
    Table {
        /// Which.
        path: PathBuf,
        /// Why.
        error: String,
    },
    /// It could not be written or read.
    #[error("{path}: {error}")]
    Io {
        /// What.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

/// The recordings in a directory, in the order of their names.
pub fn recordings(directory: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let failed = |error| StoreError::Io { path: directory.to_path_buf(), error };
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|ending| ending == RECORDING_ENDING) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Makes the tables of all recordings in a directory, if they are not there or of others. `progress` is told each recording
/// before it is read. Returns what was found wrong with recordings of which a part is good.
pub fn ensure_tables(
    directory: &Path,
    progress: &mut dyn FnMut(&Path),
) -> Result<Vec<(PathBuf, TraceFileError)>, StoreError> {
    let recordings = recordings(directory)?;
    let tables = directory.join(TABLES_FOLDER);
    let complete = tables.join(COMPLETE);
    let made = fs::read_to_string(&complete).ok();
    let has = |line: &str| made.as_deref().is_some_and(|made| made.lines().take(2).any(|made| made == line));
    let [columns, source] = [line_of_columns(), line_of_recordings(&recordings)];
    match (recordings.is_empty(), made.is_some(), has(&columns)) {
        (true, false, _) => Err(StoreError::Nothing(directory.to_path_buf())),
        (true, true, false) => {
            let error =
                "another version of Comb made these tables, and there are no recordings to make them of";
            Err(StoreError::Table { path: complete, error: error.to_owned() })
        }
        (true, true, true) => Ok(Vec::new()),
        (false, _, true) if has(&source) => Ok(Vec::new()),
        (false, ..) => make_tables(&recordings, &tables, &format!("{columns}\n{source}\n"), progress),
    }
}

/// Says what the tables are made of, and which files they are, each with its length and checksum: it is written last. Who reads a table
/// looks there first, for the library that reads Parquet takes it amiss if a file is damaged.
const COMPLETE: &str = "complete";

/// Its first line: tables of other columns are of another version.
fn line_of_columns() -> String {
    format!("columns {:08x}", crc32fast::hash(format!("{TABLES:?}").as_bytes()))
}

/// Its second: of other recordings, or of these when there was less in them, the tables are other tables.
fn line_of_recordings(recordings: &[PathBuf]) -> String {
    let mut sum = crc32fast::Hasher::new();
    for path in recordings {
        let status = fs::metadata(path).ok();
        let status = status.map(|status| (status.len(), status.modified().ok()));
        sum.update(format!("{:?} {status:?}\n", path.file_name()).as_bytes());
    }
    format!("recordings {:08x}", sum.finalize())
}

/// A line for a file: checksum, length, and its name within the folder of all tables.
fn line_of(tables: &Path, name: &str) -> Result<String, StoreError> {
    let path = tables.join(name);
    let failed = |error| StoreError::Io { path: path.clone(), error };
    let mut file = File::open(&path).map_err(failed)?;
    let (mut sum, mut bytes) = (crc32fast::Hasher::new(), 0_u64);
    let mut piece = vec![0; 1 << 20];
    loop {
        match file.read(&mut piece).map_err(failed)? {
            0 => break,
            read => {
                sum.update(&piece[..read]);
                bytes += read as u64;
            }
        }
    }
    Ok(format!("{:08x} {bytes} {name}\n", sum.finalize()))
}

fn write_complete(tables: &Path, source: &str) -> Result<(), StoreError> {
    let mut lines = source.to_owned();
    for table in TABLES {
        let folder = tables.join(table.name);
        let failed = |error| StoreError::Io { path: folder.clone(), error };
        let mut names = Vec::new();
        for entry in fs::read_dir(&folder).map_err(failed)? {
            names.push(entry.map_err(failed)?.file_name().to_string_lossy().into_owned());
        }
        names.sort();
        for name in names {
            lines.push_str(&line_of(tables, &format!("{}/{name}", table.name))?);
        }
    }
    let path = tables.join(COMPLETE);
    let written = File::create(&path).and_then(|mut file| {
        file.write_all(lines.as_bytes())?;
        file.sync_all()
    });
    written.map_err(|error| StoreError::Io { path, error })
}

/// The files of a table, each as it was written: all of it is read once to see that. One that is missing, changed or damaged is an error.
pub fn checked_files(tables: &Path, table: &str) -> Result<Vec<PathBuf>, StoreError> {
    let path = tables.join(COMPLETE);
    let lines = fs::read_to_string(&path).map_err(|error| StoreError::Io { path: path.clone(), error })?;
    let mut files = Vec::new();
    for line in lines.lines() {
        let name = line.splitn(3, ' ').nth(2).unwrap_or_default();
        let is_ours =
            name.split_once('/').is_some_and(|(folder, file)| folder == table && !file.contains('/'));
        if !is_ours {
            continue;
        }
        if line_of(tables, name)?.trim_end() != line {
            let error = "it is not as it was written; remove the folder of tables, and comb trace store makes them again".to_owned();
            return Err(StoreError::Table { path: tables.join(name), error });
        }
        files.push(tables.join(name));
    }
    Ok(files)
}

fn make_tables(
    recordings: &[PathBuf],
    tables: &Path,
    source: &str,
    progress: &mut dyn FnMut(&Path),
) -> Result<Vec<(PathBuf, TraceFileError)>, StoreError> {
    let failed = |error| StoreError::Io { path: tables.to_path_buf(), error };
    match fs::remove_dir_all(tables) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => fs::create_dir_all(tables).map_err(failed)?,
    }
    let (mut loaded, mut seconds) = (Loaded::default(), BTreeSet::new());
    let mut damaged = Vec::new();
    for (number, path) in recordings.iter().enumerate() {
        progress(path);
        let file = File::open(path).map_err(|error| StoreError::Io { path: path.clone(), error })?;
        let recording = BufReader::with_capacity(1 << 20, file);
        match loading::load(recording, tables, number, &mut loaded, &mut seconds)? {
            Ok(()) => {}
            Err(error) if error.leaves_good_part() => damaged.push((path.clone(), error)),
            Err(error) => return Err(StoreError::Recording { path: path.clone(), error }),
        }
    }
    loading::write_shared(tables)?;
    write_complete(tables, source)?;
    Ok(damaged)
}
