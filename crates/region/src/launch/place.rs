//! A directory of a task's own for as long as its launcher lives: the agent's socket is in it.

use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::FlockOperation;

/// What all of them begin with.
const PREFIX: &str = "comb-run-";
/// Locked while the launcher lives, however it ends.
const LOCK: &str = "lock";
const SOCKET: &str = "agent.sock";
/// As they are removed: without its lock nobody would know that the rest may go.
const FILES: [&str; 3] = [SOCKET, crate::neighbours::SOCKET, LOCK];
/// What a socket's address takes.
const LONGEST_SOCKET_BYTES: usize = 107;
/// Directories that somebody else made to be in the way.
const MOST_TRIES: u32 = 10_000;

/// Removed when it is dropped. What is left behind where a launcher and its guard were killed, the next one removes.
#[derive(Debug)]
pub(super) struct Place {
    path: PathBuf,
    _lock: File,
}

impl Place {
    /// Makes one in `$XDG_RUNTIME_DIR`, or in `/tmp` where that is not set or too long for a socket's address.
    pub(super) fn make() -> std::io::Result<Self> {
        let xdg = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let longest = format!("/{PREFIX}{0}-{0}/{SOCKET}", u32::MAX).len();
        let fits = |path: &PathBuf| {
            path.is_absolute()
                && path.is_dir()
                && path.as_os_str().as_bytes().len() + longest <= LONGEST_SOCKET_BYTES
        };
        Self::make_in(&xdg.filter(fits).unwrap_or_else(|| PathBuf::from("/tmp")))
    }

    fn make_in(base: &Path) -> std::io::Result<Self> {
        sweep(base);
        // No two of one process have the same name, even one after the other.
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        for _ in 0..MOST_TRIES {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let path = base.join(format!("{PREFIX}{}-{number}", std::process::id()));
            match std::fs::DirBuilder::new().mode(0o700).create(&path) {
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => continue,
                outcome => outcome?,
            }
            // Another launcher that sweeps may lock it first, and removes it then.
            if let Some(lock) = File::create(path.join(LOCK)).ok().filter(own) {
                return Ok(Self { path, _lock: lock });
            }
        }
        Err(std::io::Error::from(std::io::ErrorKind::AlreadyExists))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// All that is ever in it.
    pub(super) fn files(&self) -> [PathBuf; 3] {
        FILES.map(|file| self.path.join(file))
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.path.join(SOCKET)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

/// Locks it, if nobody else has and its name still leads to it.
fn own(lock: &File) -> bool {
    rustix::fs::flock(lock, FlockOperation::NonBlockingLockExclusive).is_ok()
        && lock.metadata().is_ok_and(|found| found.nlink() > 0)
}

fn remove(path: &Path) {
    for file in FILES {
        let _ = std::fs::remove_file(path.join(file));
    }
    let _ = std::fs::remove_dir(path);
}

/// Removes what launchers of this user left that were killed.
fn sweep(base: &Path) {
    let user = rustix::process::geteuid().as_raw();
    for entry in std::fs::read_dir(base).into_iter().flatten().flatten() {
        if !entry.file_name().as_bytes().starts_with(PREFIX.as_bytes()) {
            continue;
        }
        let path = entry.path();
        let ours = std::fs::symlink_metadata(&path).is_ok_and(|found| found.is_dir() && found.uid() == user);
        // Held until it is removed: whoever begins there meanwhile goes elsewhere.
        let lock = File::open(path.join(LOCK)).ok().filter(|lock| ours && own(lock));
        if lock.is_some() {
            remove(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_launcher_left_is_removed_and_what_is_in_use_is_not() {
        let base = std::env::temp_dir().join(format!("comb-place-{}", std::process::id()));
        std::fs::create_dir(&base).unwrap();
        let used = Place::make_in(&base).unwrap();
        let left = base.join("comb-run-1-0");
        std::fs::create_dir(&left).unwrap();
        std::fs::write(left.join(LOCK), "").unwrap();
        std::fs::write(left.join(SOCKET), "").unwrap();
        let strange = base.join("comb-run-2-0");
        std::fs::create_dir(&strange).unwrap();

        let second = Place::make_in(&base).unwrap();
        assert!(used.path.exists() && second.path.exists() && used.path != second.path);
        assert!(!left.exists(), "nobody holds its lock");
        assert!(strange.exists(), "whose it is cannot be told");
        let paths = [used.path.clone(), second.path.clone()];
        drop((used, second));
        assert!(paths.iter().all(|path| !path.exists()));
        std::fs::remove_dir_all(base).unwrap();
    }
}
