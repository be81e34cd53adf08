//! Tables of descriptors, and the open files that they and their copies refer to.

use crate::epoll::Epoll;
use crate::errno::{EBADF, EINVAL, EMFILE, Errno};
use crate::objects::FileName;
use crate::pipes::End;
use crate::virtual_files::{Device, Listing};
use std::cell::{Cell, RefCell};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::rc::Rc;

/// As many descriptors as a process may ever have.
pub(crate) const MOST_DESCRIPTORS: u64 = 4096;

/// What an open file is.
pub(crate) enum Kind {
    /// A regular file of the host, whose own offset is the open file's.
    Regular { host: OwnedFd, name: FileName },
    /// A directory of the host.
    Directory { host: OwnedFd },
    /// A place in the host's tree, opened with `O_PATH`.
    Path { host: OwnedFd },
    /// Something of the host that may block: a terminal or a pipe that the emulator was started with.
    Stream { host: OwnedFd },
    /// A device of the emulator's own.
    Device(Device),
    /// A file with contents that were made when it was opened.
    Text(Vec<u8>),
    /// A directory of the emulator's own.
    Listing(Listing),
    /// An end of a pipe.
    Pipe(End),
    /// A counter (`eventfd`).
    Counter { number: u64, value: Cell<u64>, semaphore: bool },
    /// A timer (`timerfd`).
    Timer(crate::timers::TimerFile),
    /// A set of descriptors to be polled.
    Epoll(Epoll),
    /// A socket of the host, with what programs call its own address and its peer's where the host calls them otherwise.
    Socket { host: OwnedFd, own_name: RefCell<Vec<u8>>, peer_name: RefCell<Vec<u8>> },
}

/// An open file, which any number of descriptors may refer to.
pub(crate) struct OpenFile {
    pub(crate) number: u64,
    pub(crate) kind: Kind,
    /// `O_ACCMODE`, `O_APPEND`, `O_NONBLOCK` and the like.
    pub(crate) flags: Cell<i32>,
    /// For what is not the host's: where the next read begins.
    pub(crate) position: Cell<u64>,
    /// How often it was read or written: after that, what was ready before is news again.
    pub(crate) used: Cell<u64>,
}

impl OpenFile {
    /// The host's descriptor behind it, if there is one.
    pub(crate) fn host(&self) -> Option<RawFd> {
        match &self.kind {
            Kind::Regular { host, .. }
            | Kind::Directory { host }
            | Kind::Path { host }
            | Kind::Stream { host }
            | Kind::Socket { host, .. } => Some(host.as_raw_fd()),
            _ => None,
        }
    }

    /// Whether a call that cannot go on fails with `EAGAIN`.
    pub(crate) fn never_waits(&self) -> bool {
        self.flags.get() & libc::O_NONBLOCK != 0
    }

    pub(crate) fn may_read(&self) -> bool {
        self.flags.get() & (libc::O_ACCMODE | libc::O_PATH) != libc::O_WRONLY
            && self.flags.get() & libc::O_PATH == 0
    }

    pub(crate) fn may_write(&self) -> bool {
        self.flags.get() & libc::O_ACCMODE != libc::O_RDONLY && self.flags.get() & libc::O_PATH == 0
    }

    /// The host's name for the file, if it is a regular one.
    pub(crate) fn name(&self) -> Option<FileName> {
        match self.kind {
            Kind::Regular { name, .. } => Some(name),
            _ => None,
        }
    }
}

#[derive(Clone)]
struct Slot {
    file: Rc<OpenFile>,
    closes_on_exec: bool,
}

/// The descriptors of a process.
#[derive(Clone, Default)]
pub(crate) struct Table {
    slots: Vec<Option<Slot>>,
}

/// A table that processes may share.
pub(crate) type SharedTable = Rc<RefCell<Table>>;

fn index(descriptor: i32) -> Result<usize, Errno> {
    usize::try_from(descriptor).map_err(|_| EBADF)
}

impl Table {
    fn slot(&self, descriptor: i32) -> Result<&Slot, Errno> {
        self.slots.get(index(descriptor)?).and_then(Option::as_ref).ok_or(EBADF)
    }

    /// What a descriptor refers to.
    pub(crate) fn get(&self, descriptor: i32) -> Result<Rc<OpenFile>, Errno> {
        self.slot(descriptor).map(|slot| Rc::clone(&slot.file))
    }

    /// The lowest free descriptor from `from` on is made to refer to the file.
    pub(crate) fn add(
        &mut self,
        file: Rc<OpenFile>,
        closes_on_exec: bool,
        from: i32,
        limit: u64,
    ) -> Result<i32, Errno> {
        let limit = limit.min(MOST_DESCRIPTORS) as usize;
        let from = usize::try_from(from).ok().filter(|&from| from < limit).ok_or(EINVAL)?;
        let free = (from..self.slots.len())
            .find(|&at| self.slots[at].is_none())
            .unwrap_or(from.max(self.slots.len()));
        if free >= limit {
            return Err(EMFILE);
        }
        if free >= self.slots.len() {
            self.slots.resize(free + 1, None);
        }
        self.slots[free] = Some(Slot { file, closes_on_exec });
        Ok(free as i32)
    }

    /// This very descriptor is made to refer to the file; what it referred to before comes back.
    pub(crate) fn set(
        &mut self,
        descriptor: i32,
        file: Rc<OpenFile>,
        closes_on_exec: bool,
        limit: u64,
    ) -> Result<Option<Rc<OpenFile>>, Errno> {
        let at = index(descriptor)?;
        if at as u64 >= limit.min(MOST_DESCRIPTORS) {
            return Err(EBADF);
        }
        if at >= self.slots.len() {
            self.slots.resize(at + 1, None);
        }
        Ok(self.slots[at].replace(Slot { file, closes_on_exec }).map(|slot| slot.file))
    }

    /// The descriptor refers to nothing any more; what it referred to comes back.
    pub(crate) fn remove(&mut self, descriptor: i32) -> Result<Rc<OpenFile>, Errno> {
        let slot = self.slots.get_mut(index(descriptor)?).and_then(Option::take).ok_or(EBADF)?;
        Ok(slot.file)
    }

    /// Whether the descriptor goes with an exec.
    pub(crate) fn closes_on_exec(&self, descriptor: i32) -> Result<bool, Errno> {
        self.slot(descriptor).map(|slot| slot.closes_on_exec)
    }

    /// Says whether the descriptor goes with an exec.
    pub(crate) fn set_closes_on_exec(&mut self, descriptor: i32, closes: bool) -> Result<(), Errno> {
        let slot = self.slots.get_mut(index(descriptor)?).and_then(Option::as_mut).ok_or(EBADF)?;
        slot.closes_on_exec = closes;
        Ok(())
    }

    /// All descriptors in use.
    pub(crate) fn used(&self) -> Vec<i32> {
        (0..self.slots.len()).filter(|&at| self.slots[at].is_some()).map(|at| at as i32).collect()
    }

    /// Those of them that go with an exec.
    pub(crate) fn closing_on_exec(&self) -> Vec<i32> {
        self.used().into_iter().filter(|&descriptor| self.closes_on_exec(descriptor) == Ok(true)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(number: u64) -> Rc<OpenFile> {
        Rc::new(OpenFile {
            number,
            kind: Kind::Text(Vec::new()),
            flags: Cell::new(0),
            position: Cell::new(0),
            used: Cell::new(0),
        })
    }

    #[test]
    fn the_lowest_free_descriptor_is_given() {
        let mut table = Table::default();
        for number in 0..4 {
            assert_eq!(table.add(file(number), false, 0, 64), Ok(number as i32));
        }
        assert_eq!(table.remove(1).map(|file| file.number), Ok(1));
        assert_eq!(table.add(file(9), true, 2, 64), Ok(4));
        assert_eq!(table.add(file(10), false, 0, 64), Ok(1));
        assert_eq!(table.closing_on_exec(), vec![4]);
        assert_eq!(table.get(-1).map(|file| file.number), Err(EBADF));
        assert_eq!(table.get(77).map(|file| file.number), Err(EBADF));
    }

    #[test]
    fn the_limit_holds_for_every_way_to_get_one() {
        let mut table = Table::default();
        for _ in 0..3 {
            table.add(file(0), false, 0, 3).expect("room");
        }
        assert_eq!(table.add(file(0), false, 0, 3), Err(EMFILE));
        assert_eq!(table.add(file(0), false, 3, 3), Err(EINVAL));
        assert!(table.set(3, file(0), false, 3).is_err());
        assert!(table.set(i32::MAX, file(0), false, u64::MAX).is_err());
        assert_eq!(table.set(2, file(5), false, 3).expect("in range").map(|file| file.number), Some(0));
    }
}
