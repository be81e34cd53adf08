//! Does one action.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

use rustix::fs::{
    Advice, AtFlags, FallocateFlags, FlockOperation, Mode, OFlags, RawDir, RenameFlags, SeekFrom, Timestamps,
};
use rustix::io::Errno;

use super::descriptors::SlotId;
use super::plan::Plan;
use super::sandbox::{Fill, Sandbox, pattern};
use super::step::{Action, Where};

/// As much is moved with one call at most.
const MOST_AT_ONCE_BYTES: usize = 4 << 20;

/// A file that is open.
struct Open {
    file: OwnedFd,
    /// Where its next read or write begins, as far as this replay moved it.
    position: AtomicU64,
}

/// All files that are open at a time.
pub(super) struct OpenFiles(Vec<RwLock<Option<Open>>>);

impl OpenFiles {
    pub(super) fn of(plan: &Plan) -> Self {
        Self(plan.slots.iter().map(|_| RwLock::new(None)).collect())
    }

    fn put(&self, slot: SlotId, file: Option<OwnedFd>) {
        let open = file.map(|file| Open { file, position: AtomicU64::new(0) });
        *self.0[slot.0 as usize].write().unwrap_or_else(PoisonError::into_inner) = open;
    }

    fn with<R>(&self, slot: SlotId, act: impl FnOnce(&Open) -> Result<R, Errno>) -> Result<R, Errno> {
        let open = self.0[slot.0 as usize].read().unwrap_or_else(PoisonError::into_inner);
        act(open.as_ref().ok_or(Errno::BADF)?)
    }
}

/// One who does actions.
pub(super) struct Performer<'a> {
    plan: &'a Plan,
    sandbox: &'a Sandbox,
    open: &'a OpenFiles,
    to_write: Vec<u8>,
    buffer: Vec<u8>,
}

impl<'a> Performer<'a> {
    pub(super) const fn new(plan: &'a Plan, sandbox: &'a Sandbox, open: &'a OpenFiles) -> Self {
        Self { plan, sandbox, open, to_write: Vec::new(), buffer: Vec::new() }
    }

    /// Does it, and says how many bytes that moved, or where a position is.
    pub(super) fn perform(&mut self, action: Action) -> Result<u64, Errno> {
        match action {
            Action::Read { slot, bytes, at } => return self.read(slot, bytes, at),
            Action::Touch { slot, bytes, offset } => return self.read(slot, bytes, Where::Given(offset)),
            Action::Write { slot, bytes, at } => return self.write(slot, bytes, at),
            Action::Seek { slot, whence, offset, from } => return self.seek(slot, whence, offset, from),
            Action::List { slot, bytes } => return self.list(slot, bytes),
            Action::Open { .. }
            | Action::Adopt { .. }
            | Action::Map { .. }
            | Action::Close(_)
            | Action::KeepOpen
            | Action::Duplicate(_) => self.session(action)?,
            Action::TruncateOpen { .. }
            | Action::Allocate { .. }
            | Action::Lock { .. }
            | Action::Sync(_)
            | Action::Advise { .. }
            | Action::StatusOfOpen(_)
            | Action::TouchedOpen(_) => self.control(action)?,
            _ => self.by_path(action)?,
        }
        Ok(0)
    }

    fn session(&self, action: Action) -> Result<(), Errno> {
        match action {
            Action::Open { path, slot, flags, mode } => {
                let flags = OFlags::from_bits_retain(flags);
                let mode = if flags.contains(OFlags::CREATE) { mode | 0o600 } else { 0 };
                let file = self.sandbox.open(self.plan.path(path), flags, Mode::from_raw_mode(mode))?;
                if let Some(slot) = slot {
                    self.open.put(slot, Some(file));
                }
            }
            Action::Adopt { path, slot } => {
                let path = self.plan.path(path);
                let open = |flags| self.sandbox.open(path, flags | OFlags::NOFOLLOW, Mode::empty());
                let file = open(OFlags::RDWR).or_else(|_| open(OFlags::RDONLY))?;
                self.open.put(slot, Some(file));
            }
            Action::Map { slot, of } => {
                let file = self.open.with(of, |open| rustix::io::fcntl_dupfd_cloexec(&open.file, 0))?;
                self.open.put(slot, Some(file));
            }
            Action::Duplicate(slot) => {
                self.open.with(slot, |open| rustix::io::fcntl_dupfd_cloexec(&open.file, 0))?;
            }
            Action::Close(slot) => {
                self.open.with(slot, |_| Ok(()))?;
                self.open.put(slot, None);
            }
            _ => {}
        }
        Ok(())
    }

    fn control(&self, action: Action) -> Result<(), Errno> {
        let slot = action.slot().expect("it is done with an open file");
        self.open.with(slot, |open| {
            let file = &open.file;
            match action {
                Action::TruncateOpen { bytes, .. } => rustix::fs::ftruncate(file, bytes),
                Action::Allocate { mode, offset, bytes, .. } => {
                    rustix::fs::fallocate(file, FallocateFlags::from_bits_truncate(mode), offset, bytes)
                }
                // Should the order of the trace not be enough, a replay is not to stand still.
                Action::Lock { operation, .. } => rustix::fs::flock(
                    file,
                    match operation & 0xb {
                        1 => FlockOperation::NonBlockingLockShared,
                        8 => FlockOperation::NonBlockingUnlock,
                        _ => FlockOperation::NonBlockingLockExclusive,
                    },
                ),
                Action::Sync(_) => rustix::fs::fsync(file),
                Action::Advise { advice, offset, bytes, .. } => {
                    let advice = match advice {
                        0 => Advice::Normal,
                        1 => Advice::Random,
                        2 => Advice::Sequential,
                        4 => Advice::DontNeed,
                        5 => Advice::NoReuse,
                        _ => Advice::WillNeed, // which `readahead` is as well
                    };
                    rustix::fs::fadvise(file, offset, bytes.try_into().ok(), advice)
                }
                Action::TouchedOpen(_) => rustix::fs::futimens(file, &now()),
                _ => rustix::fs::fstat(file).map(|_| ()),
            }
        })
    }

    fn by_path(&self, action: Action) -> Result<(), Errno> {
        if let Some(path) = action.path() {
            return self.of_path(action, self.plan.path(path));
        }
        match action {
            Action::FileSystem => rustix::fs::fstatfs(self.sandbox.root()).map(|_| ()),
            // Of the file system that is used, not of the whole machine.
            Action::SyncAll => rustix::fs::syncfs(self.sandbox.root()),
            _ => Ok(()),
        }
    }

    fn of_path(&self, action: Action, path: &[u8]) -> Result<(), Errno> {
        match action {
            Action::Appear { is_directory: true, .. } => match self.sandbox.make_directory(path, 0o700) {
                Err(Errno::EXIST) => return Ok(()),
                result => return result,
            },
            Action::Appear { size, .. } => return self.sandbox.make_file(path, size, Fill::Holes),
            Action::MakeDirectory(_) => return self.sandbox.make_directory(path, 0o755),
            Action::Delete(_) => return self.sandbox.delete(path, false),
            Action::RemoveDirectory(_) => return self.sandbox.delete(path, true),
            Action::Truncate { bytes, .. } => {
                let file = self.sandbox.open(path, OFlags::WRONLY | OFlags::NOFOLLOW, Mode::empty())?;
                return rustix::fs::ftruncate(file, bytes);
            }
            Action::Make(_) => {
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
                return self.sandbox.open(path, flags, Mode::from_raw_mode(0o600)).map(drop);
            }
            _ => {}
        }
        let (above, name) = self.sandbox.above(path)?;
        let above = above.as_fd();
        match action {
            Action::ReadLink(_) => rustix::fs::readlinkat(above, name, Vec::new()).map(|_| ()),
            Action::SymbolicLink(_) => rustix::fs::symlinkat(".", above, name),
            Action::Touched(_) => rustix::fs::utimensat(above, name, &now(), AtFlags::SYMLINK_NOFOLLOW),
            Action::Rename { to, flags, .. } => {
                let (new_above, new_name) = self.sandbox.above(self.plan.path(to))?;
                let flags = RenameFlags::from_bits_truncate(flags);
                rustix::fs::renameat_with(above, name, new_above.as_fd(), new_name, flags)
            }
            Action::Link { from, .. } => {
                let (old_above, old_name) = self.sandbox.above(self.plan.path(from))?;
                rustix::fs::linkat(old_above.as_fd(), old_name, above, name, AtFlags::empty())
            }
            _ => rustix::fs::statat(above, name, AtFlags::SYMLINK_NOFOLLOW).map(|_| ()),
        }
    }

    fn read(&mut self, slot: SlotId, bytes: u64, at: Where) -> Result<u64, Errno> {
        let buffer = &mut self.buffer;
        self.open.with(slot, |open| {
            moved(open, bytes, at, |bytes, offset| {
                if buffer.len() < bytes {
                    buffer.resize(bytes, 0);
                }
                match offset {
                    None => rustix::io::read(&open.file, &mut buffer[..bytes]),
                    Some(offset) => rustix::io::pread(&open.file, &mut buffer[..bytes], offset),
                }
            })
        })
    }

    fn write(&mut self, slot: SlotId, bytes: u64, at: Where) -> Result<u64, Errno> {
        let content = &mut self.to_write;
        self.open.with(slot, |open| {
            moved(open, bytes, at, |bytes, offset| {
                if content.len() < bytes {
                    *content = pattern(bytes);
                }
                match offset {
                    None => rustix::io::write(&open.file, &content[..bytes]),
                    Some(offset) => rustix::io::pwrite(&open.file, &content[..bytes], offset),
                }
            })
        })
    }

    fn seek(&self, slot: SlotId, whence: u8, offset: i64, from: Option<u64>) -> Result<u64, Errno> {
        let unsigned = u64::try_from(offset).map_err(|_| Errno::INVAL);
        let to = match whence {
            0 => SeekFrom::Start(unsigned?),
            1 => SeekFrom::Current(offset),
            2 => SeekFrom::End(offset),
            3 => SeekFrom::Data(unsigned?),
            4 => SeekFrom::Hole(unsigned?),
            _ => return Err(Errno::INVAL),
        };
        self.open.with(slot, |open| {
            if let Some(from) = from {
                put_position(open, from)?;
            }
            let position = rustix::fs::seek(&open.file, to)?;
            open.position.store(position, Ordering::Relaxed);
            Ok(position)
        })
    }

    /// One call, whatever it finds.
    fn list(&mut self, slot: SlotId, bytes: u64) -> Result<u64, Errno> {
        let room = usize::try_from(bytes).unwrap_or(MOST_AT_ONCE_BYTES).clamp(512, MOST_AT_ONCE_BYTES);
        let mut buffer = Vec::with_capacity(room);
        self.open.with(slot, |open| {
            let mut listing = RawDir::new(&open.file, buffer.spare_capacity_mut());
            let mut entries = 0;
            while let Some(entry) = listing.next() {
                entry?;
                entries += 1;
                if listing.is_buffer_empty() {
                    break;
                }
            }
            Ok(entries)
        })
    }
}

/// Sees to it that a file's position is where the trace had it: an operation that could not be done again is not to shift all that follow.
fn put_position(open: &Open, position: u64) -> Result<(), Errno> {
    // What is no position is not known.
    if i64::try_from(position).is_ok() && open.position.load(Ordering::Relaxed) != position {
        rustix::fs::seek(&open.file, SeekFrom::Start(position))?;
        open.position.store(position, Ordering::Relaxed);
    }
    Ok(())
}

/// Moves so many bytes, in as few calls as it takes; fewer if there are no more.
fn moved(
    open: &Open,
    bytes: u64,
    at: Where,
    mut call: impl FnMut(usize, Option<u64>) -> Result<usize, Errno>,
) -> Result<u64, Errno> {
    let is_given = matches!(at, Where::Given(_));
    let start = at.offset();
    if !is_given {
        put_position(open, start)?;
    }
    let mut done = 0;
    loop {
        let next = usize::try_from(bytes - done).unwrap_or(usize::MAX).min(MOST_AT_ONCE_BYTES);
        let offset = is_given.then(|| start.saturating_add(done));
        match call(next, offset) {
            Ok(count) => {
                done += count as u64;
                if count < next || done >= bytes {
                    break;
                }
            }
            Err(Errno::INTR) => {}
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
        }
    }
    if !is_given {
        open.position.fetch_add(done, Ordering::Relaxed);
    }
    Ok(done)
}

const fn now() -> Timestamps {
    let now = rustix::fs::Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW };
    Timestamps { last_access: now, last_modification: now }
}
