//! The collector's directory: one file for each recording, which a reader finds good up to its end at any time.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::order::Order;
use super::refusal::Refusal;
use super::wire::Open;
use super::{Limits, OpenFolderError};
use crate::framing::{FrameReader, FramingFault};
use crate::store::{RECORDING_ENDING, calendar};
use crate::trace_file::{FORMAT, write_magic};

/// A file takes at least so much of a disk: who makes many empty ones uses it up, too.
const LEAST_FILE_BYTES: u64 = 4096;

/// Of a machine's name, so much is in a file's.
const MOST_NAME_CHARACTERS: usize = 64;

/// The directory, and who writes what in it.
pub(super) struct Folder {
    directory: PathBuf,
    /// Locked for as long as this is there: two collectors in one directory would both go on with the same file.
    lock: File,
    limits: Limits,
    books: Mutex<Books>,
}

#[derive(Default)]
struct Books {
    /// What all recordings take.
    bytes: u64,
    /// What each peer has sent since the collector began.
    bytes_of_peers: HashMap<String, u64>,
    holders: HashMap<u64, Arc<Holder>>,
}

/// The right to write to a recording: the last one who asked for it has it. (The agent that comes back through a new connection is
/// often here before the old one is known to be dead.)
#[derive(Default)]
struct Holder {
    /// Held while something is written.
    is_revoked: Mutex<bool>,
}

/// A recording's file, to be written to by one session.
pub(super) struct RecordingFile<'a> {
    folder: &'a Folder,
    holder: Arc<Holder>,
    recording: u64,
    peer: String,
    file: File,
    pub(super) path: PathBuf,
    bytes: u64,
}

impl Folder {
    pub(super) fn open(directory: &Path, limits: Limits) -> Result<Self, OpenFolderError> {
        let failed = |error| OpenFolderError::Io { path: directory.to_path_buf(), error };
        fs::create_dir_all(directory).map_err(failed)?;
        let lock = File::open(directory).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => return Err(OpenFolderError::InUse(directory.to_path_buf())),
            Err(fs::TryLockError::Error(error)) => return Err(failed(error)),
        }
        let mut bytes = 0_u64;
        for entry in fs::read_dir(directory).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            if entry.path().extension().is_some_and(|ending| ending == RECORDING_ENDING) {
                bytes += entry.metadata().map_err(failed)?.len().max(LEAST_FILE_BYTES);
            }
        }
        let books = Mutex::new(Books { bytes, ..Books::default() });
        Ok(Self { directory: directory.to_path_buf(), lock, limits, books })
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Whether there is room for anything of this peer.
    pub(super) fn has_room(&self, peer: &str) -> Result<(), Refusal> {
        self.has_room_for(peer, LEAST_FILE_BYTES, &self.books())
    }

    fn has_room_for(&self, peer: &str, bytes: u64, books: &Books) -> Result<(), Refusal> {
        let of_peer = books.bytes_of_peers.get(peer).copied().unwrap_or(0);
        let has_room = books.bytes.saturating_add(bytes) <= self.limits.most_bytes
            && of_peer.saturating_add(bytes) <= self.limits.most_peer_bytes;
        if has_room { Ok(()) } else { Err(Refusal::Full) }
    }

    /// Makes room, if there is some.
    fn reserve(&self, peer: &str, bytes: u64) -> Result<(), Refusal> {
        let mut books = self.books();
        self.has_room_for(peer, bytes, &books)?;
        books.bytes += bytes;
        *books.bytes_of_peers.entry(peer.to_owned()).or_default() += bytes;
        Ok(())
    }

    fn give_back(&self, peer: &str, bytes: u64) {
        let mut books = self.books();
        books.bytes = books.bytes.saturating_sub(bytes);
        if let Some(of_peer) = books.bytes_of_peers.get_mut(peer) {
            *of_peer = of_peer.saturating_sub(bytes);
        }
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Finds a recording and reads how far it is good, or makes its file. Who wrote to it before, does no longer.
    pub(super) fn recording(
        &self,
        machine: &str,
        open: Open,
        peer: &str,
    ) -> Result<(RecordingFile<'_>, Order), (Refusal, Option<io::Error>)> {
        let holder = Arc::new(Holder::default());
        // Until it is open: who comes next must not find it half read, and cut off what is written meanwhile.
        let own = Arc::clone(&holder);
        let _held = own.hold().expect("nobody knows it yet");
        let before = self.books().holders.insert(open.recording, Arc::clone(&holder));
        if let Some(before) = before {
            before.revoke();
        }
        let release = |refusal| {
            self.release(open.recording, &holder);
            refusal
        };
        let trouble = |error: io::Error| {
            release(if is_full(&error) { (Refusal::Full, None) } else { (Refusal::Trouble, Some(error)) })
        };
        let found = self.find(open.recording).map_err(trouble)?;
        let (file, path, bytes, order) = match found {
            Some(path) => {
                let (file, bytes, order) = resumed(&path, open.acknowledged).map_err(trouble)?;
                (file, path, bytes, order)
            }
            None if open.acknowledged > 0 => return Err(release((Refusal::Lost, None))),
            None => {
                self.reserve(peer, LEAST_FILE_BYTES).map_err(|refusal| release((refusal, None)))?;
                let path = self.directory.join(file_name(machine, open));
                let made = make(&path, &self.lock);
                let (file, bytes) = made.map_err(|error| {
                    self.give_back(peer, LEAST_FILE_BYTES);
                    trouble(error)
                })?;
                (file, path, bytes, Order::default())
            }
        };
        if order.frames() < open.acknowledged {
            return Err(release((Refusal::Lost, None)));
        }
        let (recording, peer) = (open.recording, peer.to_owned());
        Ok((RecordingFile { folder: self, holder, recording, peer, file, path, bytes }, order))
    }

    fn find(&self, recording: u64) -> io::Result<Option<PathBuf>> {
        let ending = ending_of(recording);
        for entry in fs::read_dir(&self.directory)? {
            let entry = entry?;
            if entry.file_name().as_encoded_bytes().ends_with(ending.as_bytes()) {
                return Ok(Some(entry.path()));
            }
        }
        Ok(None)
    }

    fn release(&self, recording: u64, holder: &Arc<Holder>) {
        let mut books = self.books();
        if books.holders.get(&recording).is_some_and(|held| Arc::ptr_eq(held, holder)) {
            books.holders.remove(&recording);
        }
    }
}

impl Holder {
    /// Waits for what is being written; nothing is after it.
    fn revoke(&self) {
        *self.is_revoked.lock().unwrap_or_else(PoisonError::into_inner) = true;
    }

    fn hold(&self) -> Result<MutexGuard<'_, bool>, Refusal> {
        let is_revoked = self.is_revoked.lock().unwrap_or_else(PoisonError::into_inner);
        if *is_revoked { Err(Refusal::TakenOver) } else { Ok(is_revoked) }
    }
}

impl RecordingFile<'_> {
    /// Writes a frame whole, or not at all.
    pub(super) fn write(&mut self, frame: &[u8]) -> Result<(), (Refusal, Option<io::Error>)> {
        let _held = self.holder.hold().map_err(|refusal| (refusal, None))?;
        let bytes = frame.len() as u64;
        self.folder.reserve(&self.peer, bytes).map_err(|refusal| (refusal, None))?;
        let Err(error) = self.file.write_all_at(frame, self.bytes) else {
            self.bytes += bytes;
            return Ok(());
        };
        self.folder.give_back(&self.peer, bytes);
        // Half a frame is of no use. If not even that can be done, whoever opens the file next cuts it off.
        let _ = self.file.set_len(self.bytes);
        Err(if is_full(&error) { (Refusal::Full, None) } else { (Refusal::Trouble, Some(error)) })
    }

    /// Brings to the disk what was written.
    pub(super) fn sync(&self) -> Result<(), (Refusal, Option<io::Error>)> {
        self.file.sync_data().map_err(|error| (Refusal::Trouble, Some(error)))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Not by the close alone: a process that another thread is about to start has the descriptor, too, until it executes its program.
        let _ = self.lock.unlock();
    }
}

impl Drop for RecordingFile<'_> {
    fn drop(&mut self) {
        self.folder.release(self.recording, &self.holder);
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// A new file, which is there after a power cut, too.
fn make(path: &Path, directory: &File) -> io::Result<(File, u64)> {
    let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
    let made = write_magic(&mut file).and_then(|bytes| {
        file.sync_all()?;
        directory.sync_all()?;
        Ok(bytes)
    });
    if made.is_err() {
        let _ = fs::remove_file(path);
    }
    Ok((file, made?))
}

/// A file that is there, cut off behind the last frame that is good. Nothing is cut off if less is left than was acknowledged: then the disk
/// or somebody damaged it, and it is kept as it is.
fn resumed(path: &Path, acknowledged: u64) -> io::Result<(File, u64, Order)> {
    let mut file = OpenOptions::new().read(true).write(true).open(path)?;
    let length = file.metadata()?.len();
    if length < FORMAT.magic.len() as u64 {
        // Nothing was ever acknowledged of it, or it is lost.
        if acknowledged == 0 {
            file.set_len(0)?;
            write_magic(&mut file)?;
        }
        return Ok((file, FORMAT.magic.len() as u64, Order::default()));
    }
    let (good_bytes, order) = good_part(&file)?;
    if order.frames() >= acknowledged {
        file.set_len(good_bytes)?;
        // What is told to be here must be on the disk, whoever wrote it.
        file.sync_all()?;
    }
    Ok((file, good_bytes, order))
}

fn good_part(file: &File) -> io::Result<(u64, Order)> {
    let mut order = Order::default();
    let mut reader = match FrameReader::new(BufReader::with_capacity(1 << 20, file), FORMAT) {
        Ok(reader) => reader,
        Err(FramingFault::Io(error)) => return Err(error),
        Err(_) => return Err(io::Error::new(io::ErrorKind::InvalidData, "it is no trace of comb")),
    };
    loop {
        let good_bytes = reader.good_bytes();
        match reader.next_frame() {
            Ok(Some((kind, body))) if order.take_checked(kind, &body).is_ok() => {}
            Err(FramingFault::Io(error)) => return Err(error),
            _ => return Ok((good_bytes, order)),
        }
    }
}

/// After machine and time, for people, and with the recording's number, by which it is found.
fn file_name(machine: &str, open: Open) -> String {
    let second =
        i64::try_from(open.began_wall_ns / 1_000_000_000).expect("64 bits of nanoseconds are fewer seconds");
    let [_, second, minute, hour, _, day, month, year] = calendar(second);
    let machine = harmless(machine);
    let ending = ending_of(open.recording);
    format!("{machine}-{year:04}{month:02}{day:02}-{hour:02}{minute:02}{second:02}{ending}")
}

fn ending_of(recording: u64) -> String {
    format!("-{recording:016x}.{RECORDING_ENDING}")
}

/// A machine's name as a part of a file's: no paths, nothing hidden, nothing that a shell or a terminal takes for more than a letter.
fn harmless(machine: &str) -> String {
    let letter = |letter: char| {
        if letter.is_ascii_alphanumeric() || matches!(letter, '-' | '.') { letter } else { '_' }
    };
    let name: String = machine.chars().take(MOST_NAME_CHARACTERS).map(letter).collect();
    match name.trim_start_matches(['.', '-']) {
        "" => "unnamed".to_owned(),
        name => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_s_name_leads_nowhere() {
        assert_eq!(harmless("../../etc/x"), "_.._etc_x");
        assert_eq!(harmless("/etc/passwd"), "_etc_passwd");
        assert_eq!(harmless(".hidden"), "hidden");
        assert_eq!(harmless("-rf"), "rf");
        assert_eq!(harmless(""), "unnamed");
        assert_eq!(harmless(".."), "unnamed");
        assert_eq!(harmless("a\0b\n\u{1b}[2Jé"), "a_b___2J_");
        assert_eq!(harmless(&"x".repeat(300)).len(), MOST_NAME_CHARACTERS);
        assert_eq!(harmless("node-07.example.org"), "node-07.example.org");
        let open = Open { recording: 255, began_wall_ns: u64::MAX, acknowledged: 0 };
        assert_eq!(file_name("one", open), "one-25540721-233433-00000000000000ff.trace");
    }
}
