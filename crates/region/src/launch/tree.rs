//! A directory for as long as its owner lives, with whatever comes to be in it.

use std::fs::File;
use std::io::{Error, ErrorKind, Result};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::fs::{FlockOperation, StatVfsMountFlags};

/// What was sent along with a program.
const FILES: &str = "comb-files-";
/// What a host without comb has it in.
const BROUGHT: &str = "comb-brought-";
/// Locked while its owner lives, however it ends. Beside the tree: what is in the tree is not ours.
const LOCK: &str = ".lock";
/// What the files are in.
const INSIDE: &str = "files";
/// One that nobody has locked yet may be one that is being made. Nobody takes so long.
const LEFT_AFTER: Duration = Duration::from_secs(24 * 3600);
/// Directories that somebody else made to be in the way.
const MOST_TRIES: u32 = 10_000;
/// What was killed a moment ago may still be writing.
const MOST_REMOVALS: u32 = 10;
const BETWEEN_REMOVALS: Duration = Duration::from_millis(10);

/// Removed when it is dropped. What is left behind where its owner was killed, the next one removes.
#[derive(Debug)]
pub(super) struct Tree {
    path: PathBuf,
    _lock: File,
}

impl Tree {
    /// Makes an empty one in `$TMPDIR`, or in the first of the usual places from which programs can be executed.
    pub(super) fn make() -> Result<Self> {
        let named = std::env::var_os("TMPDIR").map(PathBuf::from).filter(|path| path.is_absolute());
        let usual = ["/tmp", "/var/tmp", "/dev/shm"].map(PathBuf::from);
        let mut refused = Error::from(ErrorKind::NotFound);
        for base in named.into_iter().chain(usual) {
            match Self::make_in(&base) {
                Ok(tree) => return Ok(tree),
                Err(error) => refused = Error::new(error.kind(), format!("{}: {error}", base.display())),
            }
        }
        Err(refused)
    }

    fn make_in(base: &Path) -> Result<Self> {
        if rustix::fs::statvfs(base)?.f_flag.contains(StatVfsMountFlags::NOEXEC) {
            return Err(Error::new(
                ErrorKind::PermissionDenied,
                "no program may be executed from it (noexec)",
            ));
        }
        sweep(base);
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        for _ in 0..MOST_TRIES {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let path = base.join(format!("{FILES}{}-{number}", std::process::id()));
            match std::fs::DirBuilder::new().mode(0o700).create(&path) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => continue,
                outcome => outcome?,
            }
            let made =
                Self::adopt(path.clone()).and_then(|tree| std::fs::create_dir(tree.inside()).map(|()| tree));
            return made.inspect_err(|_| remove(&path));
        }
        Err(ErrorKind::AlreadyExists.into())
    }

    /// One that is there, of this user's own.
    pub(super) fn adopt(path: PathBuf) -> Result<Self> {
        if !is_ours(&path) {
            return Err(Error::new(ErrorKind::PermissionDenied, "the directory is not this user's own"));
        }
        let lock = File::create(path.join(LOCK))?;
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        path.parent().into_iter().for_each(sweep);
        Ok(Self { path, _lock: lock })
    }

    /// All of it.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Where files are that have names of others' choosing.
    pub(super) fn inside(&self) -> PathBuf {
        self.path.join(INSIDE)
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

fn remove(path: &Path) {
    for _ in 0..MOST_REMOVALS {
        match std::fs::remove_dir_all(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => std::thread::sleep(BETWEEN_REMOVALS),
            _ => return,
        }
    }
}

/// Not by a link, of which nobody knows where it leads.
pub(super) fn is_ours(path: &Path) -> bool {
    let user = rustix::process::geteuid().as_raw();
    std::fs::symlink_metadata(path).is_ok_and(|found| found.is_dir() && found.uid() == user)
}

/// Removes what owners of this user left that were killed.
fn sweep(base: &Path) {
    for entry in std::fs::read_dir(base).into_iter().flatten().flatten() {
        let (name, path) = (entry.file_name(), entry.path());
        let is_one = [FILES, BROUGHT].iter().any(|prefix| name.as_bytes().starts_with(prefix.as_bytes()));
        if !is_one || !is_ours(&path) {
            continue;
        }
        match File::open(path.join(LOCK)) {
            Ok(lock) if rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() => {
                remove(&path);
            }
            Err(_) if is_old(&path) => remove(&path),
            _ => {}
        }
    }
}

/// Whether nobody has changed what is in a directory for a day.
pub(super) fn is_old(path: &Path) -> bool {
    let changed = std::fs::symlink_metadata(path).and_then(|found| found.modified());
    changed.is_ok_and(|changed| changed.elapsed().is_ok_and(|age| age > LEFT_AFTER))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_owner_left_is_removed_with_all_that_is_in_it_and_what_is_in_use_is_not() {
        let base = std::env::temp_dir().join(format!("comb-tree-{}", std::process::id()));
        std::fs::create_dir(&base).unwrap();
        let used = Tree::make_in(&base).unwrap();
        std::fs::write(used.inside().join("file"), "").unwrap();
        let [left, begins] = ["comb-files-1-0", "comb-brought-2"].map(|name| base.join(name));
        std::fs::create_dir_all(left.join("files/deep")).unwrap();
        std::fs::write(left.join(LOCK), "").unwrap();
        std::fs::create_dir(&begins).unwrap();

        let second = Tree::make_in(&base).unwrap();
        assert!(used.path.exists() && second.path.exists() && used.path != second.path);
        assert!(!left.exists(), "nobody holds its lock");
        assert!(begins.exists(), "it may be locked any moment");
        let paths = [used.path.clone(), second.path.clone()];
        drop((used, second));
        assert!(paths.iter().all(|path| !path.exists()));

        let link = base.join("link");
        std::os::unix::fs::symlink(&begins, &link).unwrap();
        assert!(Tree::adopt(link).is_err());
        drop(Tree::adopt(begins.clone()).unwrap());
        assert!(!begins.exists());
        std::fs::remove_dir_all(base).unwrap();
    }
}
