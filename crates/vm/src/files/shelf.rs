//! A shelf on the host: a device's file with the content of all its editions, and a record of what lies where.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use comb_guest::files::{MAGIC, SLOTS};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::erofs::{BLOCK_BYTES, most_bytes};
use super::room::Extent;
use crate::names::Name;

/// In front of the first edition: what the device is, and its partitions.
const HEAD_BYTES: u64 = 1 << 20;

/// A device of memory has a multiple of this.
const GRAIN_BYTES: u64 = 2 << 20;

/// A guest has a page's worth of notes for each 64 pages of a device, so a large one is not had for nothing.
const MOST_BYTES: u64 = 32 << 30;

const SECTOR_BYTES: u64 = 512;

/// All shelves of a user.
#[derive(Clone, Debug)]
pub struct Shelves {
    directory: PathBuf,
}

/// One of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shelf {
    /// What it is called.
    pub name: Name,
    directory: PathBuf,
}

/// What a shelf has.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Record {
    /// How long the device is.
    pub device_bytes: u64,
    /// How long what an edition's entries are called may be.
    pub slot_bytes: u64,
    /// In which slot the last edition is.
    pub current: Option<u32>,
    /// Of each slot.
    pub editions: Vec<Option<Edition>>,
}

/// A shelf's content as it was brought out once.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Edition {
    /// The first is 1.
    pub number: u64,
    /// When: seconds since 1970.
    pub built_s: u64,
    /// Files, directories and links.
    pub entries: u64,
    /// Where each file lies, by its path.
    pub files: BTreeMap<Vec<u8>, Stored>,
}

/// Where a file lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Stored {
    /// Its length.
    pub bytes: u64,
    /// Its blocks, from the device's begin.
    pub extent: Extent,
}

/// Why something is not done with a shelf.
#[derive(Debug, Error)]
pub enum ShelfError {
    /// Nothing has this name.
    #[error("there are no files `{0}`: `comb vm files update {0} DIRECTORY` brings some out")]
    None(Name),
    /// A machine has it.
    #[error("a machine has the files `{0}`: `comb vm ls` shows which")]
    InUse(Name),
    /// Another machine writes it.
    #[error("another machine may write the files `{0}`: one may at a time")]
    HasWriter(Name),
    /// What is there is none.
    #[error("the files in {0} are broken: {1}")]
    Broken(PathBuf, String),
    /// It is too small.
    #[error(
        "`{name}` has no room for {what}: it has {room} MB in all, with its older editions. `comb vm files remove {name}`, and `update` with --room"
    )]
    NoRoom {
        /// Which.
        name: Name,
        /// For what.
        what: String,
        /// Of how much.
        room: u64,
    },
    /// Guests still see all editions that it can have.
    #[error("guests still have files open of each of the last {SLOTS} editions of `{0}`")]
    NoSlot(Name),
    /// What it is to be made of cannot be.
    #[error("{0}")]
    Alleged(String),
    /// The host.
    #[error("{0}: {1}")]
    Host(PathBuf, io::Error),
}

impl Shelves {
    /// Those in a directory, which is made when it is needed.
    pub fn at(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// All, by name.
    pub fn list(&self) -> Vec<Shelf> {
        let entries = std::fs::read_dir(&self.directory).into_iter().flatten();
        let names = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<Name>().ok());
        let mut shelves: Vec<Shelf> = names.filter_map(|name| self.open(&name).ok()).collect();
        shelves.sort_by(|one, other| one.name.cmp(&other.name));
        shelves
    }

    /// The one with this name.
    pub fn open(&self, name: &Name) -> Result<Shelf, ShelfError> {
        let shelf = Shelf { name: name.clone(), directory: self.directory.join(name.as_str()) };
        if !shelf.record_path().exists() {
            return Err(ShelfError::None(name.clone()));
        }
        Ok(shelf)
    }

    /// The one with this name; if there is none, one is made with so much room, for so many entries.
    pub fn open_or_make(&self, name: &Name, room_bytes: u64, entries: u64) -> Result<Shelf, ShelfError> {
        match self.open(name) {
            Err(ShelfError::None(_)) => {}
            opened => return opened,
        }
        let shelf = Shelf { name: name.clone(), directory: self.directory.join(name.as_str()) };
        let host = |error| ShelfError::Host(shelf.directory.clone(), error);
        let slot_bytes =
            (room_bytes / 32).max(2 * most_bytes(entries, entries / 4)).next_multiple_of(HEAD_BYTES);
        let device_bytes =
            (HEAD_BYTES + u64::from(SLOTS) * slot_bytes + room_bytes).next_multiple_of(GRAIN_BYTES);
        if device_bytes > MOST_BYTES {
            let most = MOST_BYTES >> 30;
            return Err(ShelfError::Alleged(format!(
                "files that machines have in common have at most {most} GB"
            )));
        }
        std::fs::create_dir_all(&shelf.directory).map_err(host)?;
        let made =
            File::options().create(true).truncate(true).write(true).open(shelf.device()).and_then(|device| {
                device.set_len(device_bytes)?;
                device.write_all_at(&head(name, device_bytes, slot_bytes), 0)
            });
        made.map_err(host)?;
        let editions = vec![None; SLOTS as usize];
        shelf.note(&Record { device_bytes, slot_bytes, current: None, editions })?;
        Ok(shelf)
    }

    /// Removes one that no machine has.
    pub fn remove(&self, name: &Name) -> Result<(), ShelfError> {
        let shelf = self.open(name)?;
        let _alone = shelf.lock("users", FlockOperation::NonBlockingLockExclusive, ShelfError::InUse)?;
        std::fs::remove_dir_all(&shelf.directory).map_err(|error| ShelfError::Host(shelf.directory, error))
    }
}

/// What the device is called, and partitions that reach from their slot's begin to the end.
fn head(name: &Name, device_bytes: u64, slot_bytes: u64) -> [u8; 512] {
    let mut head = [0; 512];
    let title = [MAGIC, name.as_str().as_bytes()].concat();
    head[..title.len()].copy_from_slice(&title);
    for slot in 0..SLOTS {
        let begin = HEAD_BYTES + u64::from(slot) * slot_bytes;
        let sectors = |bytes: u64| u32::try_from(bytes / SECTOR_BYTES).expect("less than 2 TB").to_le_bytes();
        let at = 446 + 16 * slot as usize;
        head[at + 4] = 0x83;
        head[at + 8..at + 12].copy_from_slice(&sectors(begin));
        head[at + 12..at + 16].copy_from_slice(&sectors(device_bytes - begin));
    }
    head[510..].copy_from_slice(&[0x55, 0xaa]);
    head
}

impl Record {
    /// Where a slot begins.
    pub fn slot_at(&self, slot: u32) -> u64 {
        HEAD_BYTES + u64::from(slot) * self.slot_bytes
    }

    /// Where content can be.
    pub fn content(&self) -> Extent {
        let block = block_of(self.slot_at(SLOTS));
        Extent { block, blocks: block_of(self.device_bytes) - block }
    }

    /// The last edition.
    pub fn edition(&self) -> Option<&Edition> {
        self.editions.get(self.current? as usize)?.as_ref()
    }
}

pub(super) fn block_of(bytes: u64) -> u32 {
    u32::try_from(bytes / BLOCK_BYTES).expect("a device is bounded")
}

impl Edition {
    /// How much all files have together.
    pub fn bytes(&self) -> u64 {
        self.files.values().map(|file| file.bytes).sum()
    }
}

impl Shelf {
    /// The file that is under machines' memory.
    pub fn device(&self) -> PathBuf {
        self.directory.join("device")
    }

    fn record_path(&self) -> PathBuf {
        self.directory.join("record")
    }

    /// What it has now.
    pub fn record(&self) -> Result<Record, ShelfError> {
        let broken = |why: &str| ShelfError::Broken(self.directory.clone(), why.to_owned());
        let bytes = std::fs::read(self.record_path()).map_err(|error| broken(&error.to_string()))?;
        let record: Record = postcard::from_bytes(&bytes).map_err(|error| broken(&error.to_string()))?;
        let has_current = record.current.is_none() || record.edition().is_some();
        let slots_end = record.slot_at(SLOTS);
        if record.editions.len() != SLOTS as usize || !has_current || slots_end > record.device_bytes {
            return Err(broken("its record contradicts itself"));
        }
        let length = std::fs::metadata(self.device()).map_err(|error| broken(&error.to_string()))?.len();
        if length != record.device_bytes {
            return Err(broken("its device has another length"));
        }
        Ok(record)
    }

    /// Has another record in place of what was, as a whole.
    pub(super) fn note(&self, record: &Record) -> Result<(), ShelfError> {
        let new = self.directory.join(".record.new");
        let bytes = postcard::to_stdvec(record).expect("plain data");
        let noted = File::create(&new).and_then(|mut file| {
            file.write_all(&bytes)?;
            file.sync_all()?;
            std::fs::rename(&new, self.record_path())
        });
        noted.map_err(|error| ShelfError::Host(new, error))
    }

    pub(super) fn lock(
        &self,
        what: &str,
        how: FlockOperation,
        taken: fn(Name) -> ShelfError,
    ) -> Result<File, ShelfError> {
        let path = self.directory.join(what);
        let file = File::options().create(true).truncate(false).write(true).open(&path);
        let file = file.map_err(|error| ShelfError::Host(path, error))?;
        flock(&file, how).map_err(|_| taken(self.name.clone()))?;
        Ok(file)
    }

    /// Keeps it from being removed, for as long as what this returns is there.
    pub(super) fn use_it(&self) -> Result<File, ShelfError> {
        self.lock("users", FlockOperation::NonBlockingLockShared, ShelfError::None)
    }

    /// Keeps others from writing it.
    pub(super) fn write_it(&self) -> Result<File, ShelfError> {
        self.lock("writer", FlockOperation::NonBlockingLockExclusive, ShelfError::HasWriter)
    }

    /// Where it is.
    pub fn directory(&self) -> &Path {
        &self.directory
    }
}
