//! A quorum resource that is a file: for two nodes with a disk, or a shared file system, in common. (MSCS §7.7.2)
//!
//! The file holds the last epoch that was granted, and to whom. Whoever wants an epoch locks the file, looks whether a later
//! one is not granted already, and writes its own. So each epoch is granted once, whoever crashes when.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use comb_membership::{Member, ViewEpoch};
use rustix::fs::{FlockOperation, flock};

use crate::grant::{Answer, Grant};

/// A file that grants each epoch once.
#[derive(Debug)]
pub struct QuorumFile {
    path: PathBuf,
}

/// Why a quorum file could not be asked. Nothing was granted.
#[derive(Debug, thiserror::Error)]
pub enum QuorumFileError {
    /// The system refused.
    #[error("the quorum file {path}: {source}")]
    System {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// There is something else in it.
    #[error("{0} is no quorum file of this version; if it is to become one, remove it")]
    NotOurs(PathBuf),
}

impl QuorumFile {
    /// The file at `path`, which is made when it is first asked. On a shared file system, one whose locks work.
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// Whether `member` may go on alone with `epoch`: no other was granted this epoch, and nobody a later one. To be asked
    /// again gives the same answer. Waits for the disk.
    pub fn acquire(&self, epoch: ViewEpoch, member: Member) -> Result<bool, QuorumFileError> {
        let mut file = self.open().map_err(|source| self.system(source))?;
        // Gone with the descriptor, so with us however we end.
        flock(&file, FlockOperation::LockExclusive).map_err(|error| self.system(error.into()))?;
        let mut text = String::new();
        match file.read_to_string(&mut text) {
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
                return Err(QuorumFileError::NotOurs(self.path.clone()));
            }
            Err(error) => return Err(self.system(error)),
        }
        let wanted = Grant { epoch, member };
        match wanted.judge(&text).ok_or_else(|| QuorumFileError::NotOurs(self.path.clone()))? {
            Answer::Write => self.write(&mut file, wanted).map_err(|source| self.system(source))?,
            Answer::Granted => {}
            Answer::Refused => return Ok(false),
        }
        Ok(true)
    }

    fn open(&self) -> std::io::Result<File> {
        OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&self.path)
    }

    /// Every grant is written as a text of the same length: a torn write leaves no shorter file behind it.
    fn write(&self, file: &mut File, grant: Grant) -> std::io::Result<()> {
        let text = grant.to_string();
        file.seek(SeekFrom::Start(0))?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        // The name of a file that was just made.
        match self.path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            Some(folder) => File::open(folder)?.sync_all(),
            None => File::open(".")?.sync_all(),
        }
    }

    fn system(&self, source: std::io::Error) -> QuorumFileError {
        QuorumFileError::System { path: self.path.clone(), source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use comb_types::{Incarnation, NodeId};
    use std::sync::atomic::{AtomicU32, Ordering};

    /// A folder that goes with the test.
    struct Folder(PathBuf);

    impl Folder {
        fn new() -> Self {
            static COUNT: AtomicU32 = AtomicU32::new(0);
            let number = COUNT.fetch_add(1, Ordering::Relaxed);
            let path = std::env::temp_dir().join(format!("comb-quorum-{}-{number}", std::process::id()));
            std::fs::create_dir(&path).unwrap();
            Self(path)
        }

        fn file(&self) -> PathBuf {
            self.0.join("quorum")
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn member(node: u32) -> Member {
        Member { node: NodeId(node), incarnation: Incarnation(9) }
    }

    #[test]
    fn an_epoch_is_granted_once_and_no_earlier_one_afterwards() {
        let folder = Folder::new();
        let file = QuorumFile::new(&folder.file());
        let ask = |epoch, node| file.acquire(ViewEpoch(epoch), member(node)).unwrap();
        assert!(ask(5, 1));
        assert!(ask(5, 1), "asked again");
        assert!(!ask(5, 2));
        assert!(!ask(4, 2));
        assert!(ask(7, 2));
        assert!(!ask(5, 1));
        assert!(QuorumFile::new(&folder.file()).acquire(ViewEpoch(8), member(1)).unwrap());
        let last = u64::MAX;
        assert!(ask(last, 2));
        assert!(!ask(last, 1));
    }

    #[test]
    fn of_many_that_ask_at_once_one_is_granted() {
        let folder = Folder::new();
        for epoch in 1..20 {
            let granted = AtomicU32::new(0);
            std::thread::scope(|scope| {
                for node in 0..4 {
                    let (path, granted) = (folder.file(), &granted);
                    scope.spawn(move || {
                        let file = QuorumFile::new(&path);
                        if file.acquire(ViewEpoch(epoch), member(node)).unwrap() {
                            granted.fetch_add(1, Ordering::Relaxed);
                        }
                    });
                }
            });
            assert_eq!(granted.into_inner(), 1);
        }
    }

    /// Who reads the file holds others up, and what was written meanwhile counts.
    #[test]
    fn who_asks_waits_for_whoever_has_the_file() {
        let folder = Folder::new();
        let asked = QuorumFile::new(&folder.file());
        assert!(asked.acquire(ViewEpoch(1), member(1)).unwrap());
        let mut held = File::options().read(true).write(true).open(folder.file()).unwrap();
        flock(&held, FlockOperation::LockShared).unwrap();
        let asker = std::thread::spawn(move || asked.acquire(ViewEpoch(5), member(1)).unwrap());
        std::thread::sleep(std::time::Duration::from_millis(100));
        let other = Grant { epoch: ViewEpoch(5), member: member(2) };
        held.write_all(other.to_string().as_bytes()).unwrap();
        flock(&held, FlockOperation::Unlock).unwrap();
        assert!(!asker.join().unwrap(), "it was granted to another");
    }

    #[test]
    fn a_file_of_something_else_is_left_alone() {
        let folder = Folder::new();
        for content in [
            &b"my shopping list"[..],
            b"\xff\xfe",
            b"comb quorum 2\nepoch 1\n",
            b"comb quorum 1\nepoch -1\n",
            b"comb quorum 2\nepoch 1\nnode 1\nincarnation 1\n",
        ] {
            std::fs::write(folder.file(), content).unwrap();
            let error = QuorumFile::new(&folder.file()).acquire(ViewEpoch(5), member(1)).unwrap_err();
            assert!(error.to_string().contains("no quorum file of this version"), "{error}");
            assert_eq!(std::fs::read(folder.file()).unwrap(), content);
        }
        let nowhere = folder.0.join("no/such/folder");
        let error = QuorumFile::new(&nowhere).acquire(ViewEpoch(5), member(1)).unwrap_err();
        assert!(error.to_string().contains("no/such/folder"), "{error}");
    }
}
