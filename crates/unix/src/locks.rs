//! Locks on files, between the processes of this emulator. Programs of the host do not see them. Two processes that wait for each
//! other's locks wait forever; no error tells them.

use crate::descriptors::{Kind, OpenFile};
use crate::errno::{EAGAIN, EBADF, EINVAL, Errno};
use crate::host;
use crate::layouts::FileLock;
use crate::machine::Machine;
use crate::objects::FileName;
use crate::unix::{Caller, Unix};
use crate::waiting::{Id, Key, Outcome, Wait};
use std::collections::BTreeMap;
use std::ops::Range;
use std::os::fd::AsRawFd;

/// Who holds a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Owner {
    /// All threads of a process, by whatever descriptor.
    Process(Id),
    /// An open file, by `fcntl`.
    File(u64),
    /// An open file, by `flock`, which knows nothing of the other two.
    Whole(u64),
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Lock {
    owner: Owner,
    range: Range<u64>,
    exclusive: bool,
}

/// Locks on one file at most: a program cannot fill the emulator's memory with them.
const MOST_LOCKS: usize = 4096;

/// All locks that are held.
#[derive(Default)]
pub(crate) struct Locks {
    files: BTreeMap<FileName, Vec<Lock>>,
}

impl Locks {
    fn conflict(&self, name: FileName, owner: Owner, range: &Range<u64>, exclusive: bool) -> Option<&Lock> {
        let whole = |owner: Owner| matches!(owner, Owner::Whole(_));
        self.files.get(&name)?.iter().find(|lock| {
            lock.owner != owner
                && whole(lock.owner) == whole(owner)
                && lock.range.start < range.end
                && range.start < lock.range.end
                && (exclusive || lock.exclusive)
        })
    }

    /// Takes a range from what the owner has locked.
    fn unlock(&mut self, name: FileName, owner: Owner, range: &Range<u64>) {
        let Some(locks) = self.files.get_mut(&name) else { return };
        let mut rest = Vec::new();
        for lock in locks.drain(..) {
            if lock.owner != owner || lock.range.end <= range.start || range.end <= lock.range.start {
                rest.push(lock);
                continue;
            }
            if lock.range.start < range.start {
                rest.push(Lock { range: lock.range.start..range.start, ..lock.clone() });
            }
            if range.end < lock.range.end {
                rest.push(Lock { range: range.end..lock.range.end, ..lock });
            }
        }
        *locks = rest;
        if locks.is_empty() {
            self.files.remove(&name);
        }
    }

    fn lock(
        &mut self,
        name: FileName,
        owner: Owner,
        range: Range<u64>,
        exclusive: bool,
    ) -> Result<(), Errno> {
        self.unlock(name, owner, &range);
        let locks = self.files.entry(name).or_default();
        if locks.len() >= MOST_LOCKS {
            return Err(crate::errno::ENOMEM);
        }
        locks.push(Lock { owner, range, exclusive });
        Ok(())
    }
}

impl<M: Machine> Unix<M> {
    fn lock_range(file: &OpenFile, wanted: &FileLock) -> Result<(FileName, Range<u64>), Errno> {
        let Kind::Regular { host, name } = &file.kind else { return Err(EBADF) };
        let base = match i32::from(wanted.whence) {
            libc::SEEK_SET => 0,
            libc::SEEK_CUR => host::seek(host.as_raw_fd(), 0, libc::SEEK_CUR)? as i64,
            libc::SEEK_END => host::stat(host.as_raw_fd())?.st_size,
            _ => return Err(EINVAL),
        };
        let start = base.checked_add(wanted.start).ok_or(EINVAL)?;
        let end = match wanted.bytes {
            0 => i64::MAX,
            bytes => start.checked_add(bytes).ok_or(EINVAL)?,
        };
        let (start, end) = (start.min(end), start.max(end));
        Ok((*name, u64::try_from(start).map_err(|_| EINVAL)?..end as u64))
    }

    fn set_lock(
        &mut self,
        name: FileName,
        owner: Owner,
        range: Range<u64>,
        kind: i32,
        waits: bool,
    ) -> Outcome {
        let exclusive = match kind {
            libc::F_UNLCK => {
                self.locks.unlock(name, owner, &range);
                self.wakes.wake(Key::Locks);
                return Ok(0);
            }
            libc::F_RDLCK => false,
            libc::F_WRLCK => true,
            _ => return Err(EINVAL.into()),
        };
        match self.locks.conflict(name, owner, &range, exclusive) {
            Some(_) if waits => Err(Wait::key(Key::Locks).into()),
            Some(_) => Err(EAGAIN.into()),
            None => {
                self.locks.lock(name, owner, range, exclusive)?;
                self.wakes.wake(Key::Locks);
                Ok(0)
            }
        }
    }

    /// The locking commands of `fcntl`.
    pub(crate) fn call_lock(&mut self, who: Caller, file: &OpenFile, command: i32, at: u64) -> Outcome {
        let wanted: FileLock = self.memory.read(who.space, at)?;
        let (name, range) = Self::lock_range(file, &wanted)?;
        let of_file = matches!(command, libc::F_OFD_GETLK | libc::F_OFD_SETLK | libc::F_OFD_SETLKW);
        let owner = if of_file { Owner::File(file.number) } else { Owner::Process(who.process) };
        let kind = i32::from(wanted.kind);
        match command {
            libc::F_GETLK | libc::F_OFD_GETLK => {
                let mut told = wanted;
                match self.locks.conflict(name, owner, &range, kind == libc::F_WRLCK) {
                    None => told.kind = libc::F_UNLCK as i16,
                    Some(lock) => {
                        told.kind = if lock.exclusive { libc::F_WRLCK } else { libc::F_RDLCK } as i16;
                        told.whence = libc::SEEK_SET as i16;
                        told.start = lock.range.start as i64;
                        told.bytes = if lock.range.end == i64::MAX as u64 {
                            0
                        } else {
                            (lock.range.end - lock.range.start) as i64
                        };
                        told.process = if let Owner::Process(process) = lock.owner { process } else { -1 };
                    }
                }
                self.memory.write(who.space, at, &told)?;
                Ok(0)
            }
            _ => {
                let access = match kind {
                    libc::F_RDLCK => file.may_read(),
                    libc::F_WRLCK => file.may_write(),
                    _ => true,
                };
                if !access {
                    return Err(EBADF.into());
                }
                let waits = matches!(command, libc::F_SETLKW | libc::F_OFD_SETLKW);
                self.set_lock(name, owner, range, kind, waits)
            }
        }
    }

    /// `flock`.
    pub(crate) fn call_flock(&mut self, who: Caller, descriptor: i32, operation: i32) -> Outcome {
        let file = self.file(who, descriptor)?;
        let name = match &file.kind {
            Kind::Regular { name, .. } => *name,
            Kind::Directory { host } => {
                let stat = host::stat(host.as_raw_fd())?;
                (stat.st_dev, stat.st_ino)
            }
            _ => return Err(EBADF.into()),
        };
        let kind = match operation & !libc::LOCK_NB {
            libc::LOCK_SH => libc::F_RDLCK,
            libc::LOCK_EX => libc::F_WRLCK,
            libc::LOCK_UN => libc::F_UNLCK,
            _ => return Err(EINVAL.into()),
        };
        self.set_lock(name, Owner::Whole(file.number), 0..u64::MAX, kind, operation & libc::LOCK_NB == 0)
    }

    /// A descriptor of a process was closed: its locks on the file go, and with the last descriptor those of the open file.
    pub(crate) fn drop_locks(&mut self, process: Id, file: &OpenFile, last: bool) {
        if self.locks.files.is_empty() {
            return;
        }
        let before = self.locks.files.values().map(Vec::len).sum::<usize>();
        if let Some(name) = file.name() {
            self.locks.unlock(name, Owner::Process(process), &(0..u64::MAX));
        }
        if last {
            for locks in self.locks.files.values_mut() {
                locks.retain(|lock| {
                    lock.owner != Owner::File(file.number) && lock.owner != Owner::Whole(file.number)
                });
            }
            self.locks.files.retain(|_, locks| !locks.is_empty());
        }
        if self.locks.files.values().map(Vec::len).sum::<usize>() != before {
            self.wakes.wake(Key::Locks);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: FileName = (1, 2);

    #[test]
    fn ranges_are_cut_and_others_are_kept_out() {
        let mut locks = Locks::default();
        let (one, two) = (Owner::Process(1), Owner::Process(2));
        locks.lock(FILE, one, 0..100, true).expect("room");
        assert!(locks.conflict(FILE, two, &(50..60), false).is_some());
        assert!(locks.conflict(FILE, one, &(50..60), true).is_none());
        assert!(locks.conflict(FILE, Owner::Whole(9), &(0..1000), true).is_none());
        locks.unlock(FILE, one, &(40..60));
        assert!(locks.conflict(FILE, two, &(40..60), true).is_none());
        assert!(locks.conflict(FILE, two, &(39..40), false).is_some());
        locks.lock(FILE, one, 0..40, false).expect("room");
        assert!(locks.conflict(FILE, two, &(0..40), false).is_none());
        assert!(locks.conflict(FILE, two, &(60..61), false).is_some());
        locks.unlock(FILE, one, &(0..u64::MAX));
        assert!(locks.files.is_empty());
    }
}
