//! A log in a redb database: one file, whose transactions are there wholly or not at all.

use std::path::{Path, PathBuf};

use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};

use crate::log::{Log, LogError};

/// Records by their numbers, each with its checksum before it: redb does not look at its own when it reads.
const RECORDS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("comb log 1");

/// A log in a file of its own.
pub struct LogRedb {
    path: PathBuf,
    database: Database,
    /// The number of the next record.
    next: u64,
    /// What was not committed yet: whether all that is there goes, and what comes then.
    is_replaced: bool,
    pending: Vec<Vec<u8>>,
}

impl std::fmt::Debug for LogRedb {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LogRedb at {}", self.path.display())
    }
}

/// Any spoiled byte changes it. (FNV-1a: it keeps no secrets.)
fn checksum(number: u64, record: &[u8]) -> u64 {
    let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    let start = number.to_le_bytes().iter().fold(0xcbf2_9ce4_8422_2325, mix);
    record.iter().fold(start, mix)
}

impl LogRedb {
    /// The log at `path`, which is made if there is none. Nobody else may have it open. All of it is read, and its checksums are
    /// looked at. Where redb's own tables are spoiled, redb may panic instead of saying so.
    pub fn open(path: &Path) -> Result<Self, LogError> {
        let mut database = Database::create(path).map_err(|error| failed(path, error))?;
        // It would mend what is spoiled by forgetting it.
        if !database.check_integrity().map_err(|error| failed(path, error))? {
            return Err(spoiled(path, "its checksums are wrong"));
        }
        Ok(Self { path: path.to_owned(), database, next: 0, is_replaced: false, pending: Vec::new() })
    }

    fn read_all(&self) -> Result<Vec<(u64, Vec<u8>)>, LogError> {
        let failed = |error: redb::Error| failed(&self.path, error);
        let transaction = self.database.begin_read().map_err(|error| failed(error.into()))?;
        let table = match transaction.open_table(RECORDS) {
            Ok(table) => table,
            Err(redb::TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
            Err(error) => return Err(failed(error.into())),
        };
        let mut records = Vec::new();
        for entry in table.iter().map_err(|error| failed(error.into()))? {
            let (number, value) = entry.map_err(|error| failed(error.into()))?;
            let (number, value) = (number.value(), value.value());
            let whole = value
                .split_first_chunk()
                .filter(|(sum, record)| u64::from_le_bytes(**sum) == checksum(number, record));
            let Some((_, record)) = whole else {
                return Err(spoiled(&self.path, &format!("record {number} is not what was written")));
            };
            let expected = records.last().map(|(last, _): &(u64, _)| last + 1);
            if expected.is_some_and(|expected| expected != number) {
                return Err(spoiled(&self.path, &format!("a record is missing before {number}")));
            }
            records.push((number, record.to_vec()));
        }
        Ok(records)
    }

    fn commit(&mut self) -> Result<(), redb::Error> {
        let transaction = self.database.begin_write()?;
        {
            let mut table = transaction.open_table(RECORDS)?;
            if self.is_replaced {
                table.retain(|_, _| false)?;
            }
            for (number, record) in (self.next..).zip(&self.pending) {
                let value = [&checksum(number, record).to_le_bytes()[..], record].concat();
                table.insert(number, &value[..])?;
            }
        }
        transaction.commit()?;
        Ok(())
    }
}

fn failed(path: &Path, error: impl Into<redb::Error>) -> LogError {
    let path = path.to_owned();
    match error.into() {
        redb::Error::Io(source) if source.kind() == std::io::ErrorKind::StorageFull => {
            LogError::Full { path }
        }
        redb::Error::Corrupted(what) => LogError::Spoiled { path, what },
        other => LogError::Storage { path, source: Box::new(other) },
    }
}

fn spoiled(path: &Path, what: &str) -> LogError {
    LogError::Spoiled { path: path.to_owned(), what: what.to_owned() }
}

impl Log for LogRedb {
    fn read(&mut self) -> Result<Vec<Vec<u8>>, LogError> {
        let records = self.read_all()?;
        self.next = records.last().map_or(0, |(last, _)| last + 1);
        Ok(records.into_iter().map(|(_, record)| record).collect())
    }

    fn append(&mut self, record: &[u8]) -> Result<(), LogError> {
        self.pending.push(record.to_vec());
        Ok(())
    }

    fn replace(&mut self, records: &[Vec<u8>]) -> Result<(), LogError> {
        self.is_replaced = true;
        self.pending = records.to_vec();
        Ok(())
    }

    fn sync(&mut self) -> Result<(), LogError> {
        if !self.is_replaced && self.pending.is_empty() {
            return Ok(());
        }
        self.commit().map_err(|error| failed(&self.path, error))?;
        self.next += self.pending.len() as u64;
        self.is_replaced = false;
        self.pending.clear();
        Ok(())
    }
}
