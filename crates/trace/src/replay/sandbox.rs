//! The directory in which a trace is replayed, and out of which no path leads.
//!
//! A trace's paths are those of another machine, and whoever wrote the trace chose them. Each is taken apart and put together again without
//! `..` when the trace is read (see `namespace`); and what is left is resolved by the kernel with the order to stay below the
//! sandbox, to follow no link, wherever it leads and whoever put it there, and to cross no mount.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use thiserror::Error;

use super::namespace::{Kind, Prior};
use super::plan::Plan;

/// What stands in files that were there before.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Fill {
    /// Holes, which take no room: a read finds zeros and does not reach the disk.
    #[default]
    Holes,
    /// Bytes, so that reading them is work.
    Bytes,
}

/// Why nothing can be replayed there. What had been made by then is still there.
#[derive(Debug, Error)]
pub enum PrepareError {
    /// Something is in there that is none of ours.
    #[error("{path} is not empty; name an empty directory, or one that is not there yet")]
    NotEmpty {
        /// Where.
        path: PathBuf,
    },
    /// The disk is too small.
    #[error(
        "{path} has room for {free_bytes} bytes, and this replay needs {needed_bytes}; name a directory on a larger disk"
    )]
    NoRoom {
        /// Where.
        path: PathBuf,
        /// What is needed.
        needed_bytes: u64,
        /// What there is.
        free_bytes: u64,
    },
    /// The kernel cannot be told to stay within a directory.
    #[error("this kernel cannot keep a path within a directory; a replay needs Linux 5.6 or later")]
    TooOld,
    /// Something could not be made.
    #[error("{path}: {error}")]
    Io {
        /// Where.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

/// A directory that is ready for a replay.
pub struct Sandbox {
    folder: OwnedFd,
    path: PathBuf,
    was_made: bool,
    unprepared: u64,
}

impl Sandbox {
    /// Makes what a plan needs to be there, in a directory that is empty or not there yet.
    pub fn prepare(path: &Path, plan: &Plan, fill: Fill) -> Result<Self, PrepareError> {
        let failed = |error: io::Error| PrepareError::Io { path: path.to_path_buf(), error };
        let was_made = !path.exists();
        if was_made {
            fs::create_dir_all(path).map_err(failed)?;
        }
        let path = path.canonicalize().map_err(failed)?;
        if fs::read_dir(&path).map_err(failed)?.next().is_some() {
            return Err(PrepareError::NotEmpty { path });
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder =
            rustix::fs::openat(CWD, &path, flags, Mode::empty()).map_err(|error| failed(error.into()))?;
        let mut sandbox = Self { folder, path, was_made, unprepared: 0 };
        if sandbox.open(b".", OFlags::PATH, Mode::empty()).is_err_and(|error| error == Errno::NOSYS) {
            return Err(PrepareError::TooOld);
        }
        sandbox.check_room(plan, fill)?;
        for prior in &plan.priors {
            match sandbox.make_prior(prior, fill) {
                Ok(()) => {}
                Err(error @ (Errno::NOSPC | Errno::DQUOT | Errno::ROFS | Errno::ACCESS | Errno::IO)) => {
                    let path = sandbox.path.join(OsStr::from_bytes(&prior.path));
                    return Err(PrepareError::Io { path, error: error.into() });
                }
                // A name that this file system does not take, a length that none has: the replay will say what comes of it.
                Err(_) => sandbox.unprepared += 1,
            }
        }
        Ok(sandbox)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How much of what should have been there before could not be made.
    pub const fn unprepared(&self) -> u64 {
        self.unprepared
    }

    /// Removes what this plan has made, and the directory itself if it was not there before. What somebody else put there stays, and so do
    /// the directories that it is in. Returns how many of ours could not be removed.
    pub fn clean(self, plan: &Plan) -> u64 {
        let priors = plan.priors.iter().map(|prior| prior.path.as_slice());
        let all = plan.paths.iter().chain(&plan.present).map(|path| &**path).chain(priors);
        let all: BTreeSet<&[u8]> = all.filter(|path| *path != b".").collect();
        let mut left = 0;
        // Backwards: what is in a directory stands behind it.
        for path in all.into_iter().rev() {
            let result = self.delete(path, false).or_else(|error| match error {
                Errno::ISDIR | Errno::PERM => self.delete(path, true),
                error => Err(error),
            });
            left += u64::from(matches!(
                result,
                Err(Errno::NOTEMPTY | Errno::EXIST | Errno::PERM | Errno::ACCESS | Errno::BUSY)
            ));
        }
        if self.was_made {
            let _ = fs::remove_dir(&self.path);
        }
        left
    }

    fn check_room(&self, plan: &Plan, fill: Fill) -> Result<(), PrepareError> {
        let prior = plan.priors.iter().filter_map(|prior| prior.size).fold(0, u64::saturating_add);
        let filled = if fill == Fill::Bytes { prior } else { 0 };
        let needed_bytes = plan.room_bytes.saturating_add(filled);
        let room = rustix::fs::fstatvfs(&self.folder)
            .map_err(|error| PrepareError::Io { path: self.path.clone(), error: error.into() })?;
        let free_bytes = room.f_bavail.saturating_mul(room.f_frsize);
        if needed_bytes > free_bytes {
            return Err(PrepareError::NoRoom { path: self.path.clone(), needed_bytes, free_bytes });
        }
        Ok(())
    }

    fn make_prior(&self, prior: &Prior, fill: Fill) -> Result<(), Errno> {
        let size = prior.size.unwrap_or(0);
        match prior.kind.unwrap_or_default() {
            Kind::Directory => self.make_directory(&prior.path, 0o700),
            Kind::File => self.make_file(&prior.path, size, fill),
            Kind::Link(bytes) => {
                // Where it led nobody knows; here it leads to the directory that it is in, in as many letters.
                let target: Vec<u8> = b"./".iter().copied().cycle().take(bytes.into()).collect();
                let (above, name) = self.above(&prior.path)?;
                rustix::fs::symlinkat(target.as_slice(), above.as_fd(), name)
            }
        }
    }

    /// Makes a file of this length.
    pub(super) fn make_file(&self, path: &[u8], size: u64, fill: Fill) -> Result<(), Errno> {
        let file =
            self.open(path, OFlags::CREATE | OFlags::WRONLY | OFlags::NOFOLLOW, Mode::from_raw_mode(0o600))?;
        if fill == Fill::Bytes {
            let block = pattern(1 << 20);
            let mut at = 0;
            while at < size {
                let bytes =
                    usize::try_from((size - at).min(block.len() as u64)).expect("it is less than a block");
                at += rustix::io::pwrite(&file, &block[..bytes], at)? as u64;
            }
        }
        rustix::fs::ftruncate(&file, size)
    }

    pub(super) fn make_directory(&self, path: &[u8], mode: u32) -> Result<(), Errno> {
        let (above, name) = self.above(path)?;
        rustix::fs::mkdirat(above.as_fd(), name, Mode::from_raw_mode(mode | 0o700))
    }

    pub(super) fn delete(&self, path: &[u8], is_directory: bool) -> Result<(), Errno> {
        let (above, name) = self.above(path)?;
        let flags = if is_directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        rustix::fs::unlinkat(above.as_fd(), name, flags)
    }

    /// Opens what is below the sandbox, and nothing else.
    pub(super) fn open(&self, path: &[u8], flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
        let stay = ResolveFlags::BENEATH
            | ResolveFlags::NO_SYMLINKS
            | ResolveFlags::NO_MAGICLINKS
            | ResolveFlags::NO_XDEV;
        rustix::fs::openat2(&self.folder, path, flags | OFlags::CLOEXEC, mode, stay)
    }

    /// The directory that something is in, and its name there: calls that take a name follow no link that has it, if told so.
    pub(super) fn above<'a>(&'a self, path: &'a [u8]) -> Result<(Above<'a>, &'a [u8]), Errno> {
        match path.iter().rposition(|&byte| byte == b'/') {
            None => Ok((Above::Root(self.folder.as_fd()), path)),
            Some(end) => {
                let above = self.open(&path[..end], OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?;
                Ok((Above::Inner(above), &path[end + 1..]))
            }
        }
    }

    pub(super) fn root(&self) -> BorrowedFd<'_> {
        self.folder.as_fd()
    }
}

/// The directory that something is in.
pub(super) enum Above<'a> {
    Root(BorrowedFd<'a>),
    Inner(OwnedFd),
}

impl AsFd for Above<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Root(folder) => *folder,
            Self::Inner(folder) => folder.as_fd(),
        }
    }
}

/// Bytes that are no zeros, and that nothing compresses: so many of them.
pub(super) fn pattern(bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut block = Vec::with_capacity(bytes + 8);
    while block.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        block.extend_from_slice(&state.to_le_bytes());
    }
    block.truncate(bytes);
    block
}
