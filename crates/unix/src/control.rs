//! Calls on descriptors as such: copies, flags, pipes, and what may be asked of devices.

use crate::descriptors::{Kind, OpenFile};
use crate::errno::{EBADF, EINVAL, ENOTTY, ESRCH, Errno};
use crate::host;
use crate::machine::Machine;
use crate::pipes::{End, Pipe};
use crate::unix::{Caller, Unix};
use crate::waiting::{Id, Outcome};
use std::os::fd::AsRawFd;
use std::rc::Rc;

/// `FIONREAD`, `FIONBIO`, `FIOCLEX` and `FIONCLEX` are for every file.
const WAITING_BYTES: u64 = 0x541b;
const NEVER_WAITS: u64 = 0x5421;
const CLOSES: u64 = 0x5451;
const STAYS: u64 = 0x5450;
/// Bytes of the kernel's `struct termios`, which is shorter than the C library's.
const TERMIOS_BYTES: usize = 36;

impl<M: Machine> Unix<M> {
    /// What a descriptor of the caller refers to.
    pub(crate) fn file(&self, who: Caller, descriptor: i32) -> Result<Rc<OpenFile>, Errno> {
        self.process(who.process).table.borrow().get(descriptor)
    }

    fn descriptor_limit(&self, who: Caller) -> u64 {
        self.process(who.process).limits[libc::RLIMIT_NOFILE as usize].current
    }

    /// Gives the caller a descriptor for a file.
    pub(crate) fn install(&mut self, who: Caller, file: Rc<OpenFile>, closes_on_exec: bool) -> Outcome {
        let limit = self.descriptor_limit(who);
        let table = Rc::clone(&self.process(who.process).table);
        Ok(table.borrow_mut().add(file, closes_on_exec, 0, limit)? as u64)
    }

    fn let_go(&mut self, process: Id, file: Rc<OpenFile>) {
        let last = Rc::strong_count(&file) == 1;
        self.drop_locks(process, &file, last);
        drop(file);
    }

    /// Closes a descriptor.
    pub(crate) fn close(&mut self, who: Caller, descriptor: i32) -> Result<(), Errno> {
        let table = Rc::clone(&self.process(who.process).table);
        let file = table.borrow_mut().remove(descriptor)?;
        self.let_go(who.process, file);
        Ok(())
    }

    /// A process ends: its descriptors go, unless others share them.
    pub(crate) fn close_all(&mut self, process: Id) {
        let table = std::mem::take(&mut self.process_mut(process).table);
        let Some(table) = Rc::into_inner(table) else { return };
        let mut table = table.into_inner();
        for descriptor in table.used() {
            if let Ok(file) = table.remove(descriptor) {
                self.let_go(process, file);
            }
        }
    }

    pub(crate) fn call_close(&mut self, who: Caller, descriptor: i32) -> Outcome {
        self.close(who, descriptor)?;
        Ok(0)
    }

    pub(crate) fn call_close_range(&mut self, who: Caller, first: u32, last: u32, flags: u32) -> Outcome {
        const ON_EXEC: u32 = 4;
        const UNSHARE: u32 = 2;
        if first > last || flags & !(ON_EXEC | UNSHARE) != 0 {
            return Err(EINVAL.into());
        }
        if flags & UNSHARE != 0 {
            let own = self.process(who.process).table.borrow().clone();
            self.process_mut(who.process).table = Rc::new(std::cell::RefCell::new(own));
        }
        let used = self.process(who.process).table.borrow().used();
        for descriptor in used.into_iter().filter(|&one| (first..=last).contains(&(one as u32))) {
            if flags & ON_EXEC != 0 {
                self.process(who.process).table.borrow_mut().set_closes_on_exec(descriptor, true)?;
            } else {
                self.close(who, descriptor)?;
            }
        }
        Ok(0)
    }

    pub(crate) fn call_duplicate(&mut self, who: Caller, descriptor: i32) -> Outcome {
        let file = self.file(who, descriptor)?;
        self.install(who, file, false)
    }

    /// `dup2` without flags, `dup3` with them.
    pub(crate) fn call_duplicate_to(
        &mut self,
        who: Caller,
        from: i32,
        to: i32,
        flags: Option<i32>,
    ) -> Outcome {
        let file = self.file(who, from)?;
        if from == to {
            return if flags.is_some() { Err(EINVAL.into()) } else { Ok(to as u64) };
        }
        let flags = flags.unwrap_or(0);
        if flags & !libc::O_CLOEXEC != 0 {
            return Err(EINVAL.into());
        }
        let limit = self.descriptor_limit(who);
        let table = Rc::clone(&self.process(who.process).table);
        let before = table.borrow_mut().set(to, file, flags != 0, limit)?;
        if let Some(before) = before {
            self.let_go(who.process, before);
        }
        Ok(to as u64)
    }

    pub(crate) fn call_pipe(&mut self, who: Caller, into: u64, flags: i32) -> Outcome {
        if flags & !(libc::O_CLOEXEC | libc::O_NONBLOCK) != 0 {
            return Err(EINVAL.into());
        }
        let pipe = Pipe::new(self.new_number(), &self.wakes);
        let ends = [(true, libc::O_RDONLY), (false, libc::O_WRONLY)];
        let ends = ends.map(|(reads, access)| {
            let end = End::new(&pipe, reads, !reads);
            self.new_file(Kind::Pipe(end), access | flags & libc::O_NONBLOCK)
        });
        self.install_pair(who, ends, into, flags & libc::O_CLOEXEC != 0)
    }

    /// Gives the caller two descriptors at once, or none.
    pub(crate) fn install_pair(
        &mut self,
        who: Caller,
        files: [Rc<OpenFile>; 2],
        into: u64,
        closes_on_exec: bool,
    ) -> Outcome {
        let [one, other] = files;
        let one = self.install(who, one, closes_on_exec)? as i32;
        let placed = self.install(who, other, closes_on_exec).and_then(|other| {
            let other = other as i32;
            self.memory.write(who.space, into, &[one, other]).map_err(|error| {
                let _ = self.close(who, other);
                error.into()
            })
        });
        if placed.is_err() {
            self.close(who, one)?;
        }
        placed.map(|()| 0)
    }

    pub(crate) fn call_fcntl(
        &mut self,
        who: Caller,
        descriptor: i32,
        command: i32,
        argument: u64,
    ) -> Outcome {
        let file = self.file(who, descriptor)?;
        let table = Rc::clone(&self.process(who.process).table);
        match command {
            libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => {
                let limit = self.descriptor_limit(who);
                let closes = command == libc::F_DUPFD_CLOEXEC;
                let copy = table.borrow_mut().add(file, closes, argument as i32, limit)?;
                Ok(copy as u64)
            }
            libc::F_GETFD => Ok(u64::from(table.borrow().closes_on_exec(descriptor)?)),
            libc::F_SETFD => {
                table.borrow_mut().set_closes_on_exec(descriptor, argument & libc::FD_CLOEXEC as u64 != 0)?;
                Ok(0)
            }
            libc::F_GETFL => Ok(file.flags.get() as u64),
            libc::F_SETFL => {
                let changed = libc::O_NONBLOCK | libc::O_APPEND;
                if let Kind::Regular { host, .. } = &file.kind
                    && (argument as i32 ^ file.flags.get()) & libc::O_APPEND != 0
                {
                    host::set_append(host.as_raw_fd(), argument as i32 & libc::O_APPEND != 0)?;
                }
                file.flags.set(file.flags.get() & !changed | argument as i32 & changed);
                Ok(0)
            }
            libc::F_GETLK
            | libc::F_SETLK
            | libc::F_SETLKW
            | libc::F_OFD_GETLK
            | libc::F_OFD_SETLK
            | libc::F_OFD_SETLKW => self.call_lock(who, &file, command, argument),
            libc::F_GETPIPE_SZ | libc::F_SETPIPE_SZ => match &file.kind {
                Kind::Pipe(end) if command == libc::F_GETPIPE_SZ => Ok(end.pipe.capacity() as u64),
                Kind::Pipe(end) => Ok(end.pipe.set_capacity(u64::from(argument as u32))? as u64),
                _ => Err(EBADF.into()),
            },
            _ => {
                self.note_unsupported(libc::SYS_fcntl as u64, command as u64);
                Err(EINVAL.into())
            }
        }
    }

    /// `ioctl`: only what does no harm is passed to the host.
    pub(crate) fn call_ioctl(&mut self, who: Caller, descriptor: i32, request: u64, at: u64) -> Outcome {
        let file = self.file(who, descriptor)?;
        let request = request & 0xffff_ffff;
        match request {
            CLOSES | STAYS => {
                self.process(who.process)
                    .table
                    .borrow_mut()
                    .set_closes_on_exec(descriptor, request == CLOSES)?;
                return Ok(0);
            }
            NEVER_WAITS => {
                let on: i32 = self.memory.read(who.space, at)?;
                let flags = file.flags.get() & !libc::O_NONBLOCK;
                file.flags.set(flags | if on == 0 { 0 } else { libc::O_NONBLOCK });
                return Ok(0);
            }
            WAITING_BYTES => {
                let count = match &file.kind {
                    Kind::Pipe(end) => end.pipe.waiting() as i32,
                    Kind::Stream { host } | Kind::Socket { host, .. } => {
                        let mut value = [0u8; 64];
                        host::device_value(host.as_raw_fd(), WAITING_BYTES, &mut value)?;
                        i32::from_le_bytes([value[0], value[1], value[2], value[3]])
                    }
                    Kind::Regular { host, .. } => {
                        let left = host::stat(host.as_raw_fd())?.st_size
                            - host::seek(host.as_raw_fd(), 0, libc::SEEK_CUR)? as i64;
                        left.clamp(0, i64::from(i32::MAX)) as i32
                    }
                    _ => return Err(ENOTTY.into()),
                };
                self.memory.write(who.space, at, &count)?;
                return Ok(0);
            }
            _ => {}
        }
        let Kind::Stream { host } = &file.kind else { return Err(ENOTTY.into()) };
        let host = host.as_raw_fd();
        if !host::is_terminal(host) {
            return Err(ENOTTY.into());
        }
        let mut value = [0u8; 64];
        match request {
            libc::TCGETS => {
                host::device_value(host, request, &mut value)?;
                self.memory.write_bytes(who.space, at, &value[..TERMIOS_BYTES])?;
            }
            libc::TCSETS | libc::TCSETSW | libc::TCSETSF => {
                self.memory.read_bytes(who.space, at, &mut value[..TERMIOS_BYTES])?;
                host::device_value(host, request, &mut value)?;
            }
            libc::TIOCGWINSZ => {
                host::device_value(host, request, &mut value)?;
                self.memory.write_bytes(who.space, at, &value[..8])?;
            }
            libc::TIOCGPGRP => self.memory.write(who.space, at, &self.foreground)?,
            libc::TIOCSPGRP => {
                let group: Id = self.memory.read(who.space, at)?;
                let session = self.process(who.process).session;
                if !self
                    .processes
                    .values()
                    .any(|process| process.group == group && process.session == session)
                {
                    return Err(if group < 0 { EINVAL } else { ESRCH }.into());
                }
                self.foreground = group;
            }
            libc::TIOCGSID => {
                let session = self.process(who.process).session;
                self.memory.write(who.space, at, &session)?;
            }
            libc::TIOCSCTTY | libc::TIOCNOTTY => {}
            _ => {
                self.note_unsupported(libc::SYS_ioctl as u64, request);
                return Err(ENOTTY.into());
            }
        }
        Ok(0)
    }

    pub(crate) fn call_event_counter(&mut self, who: Caller, value: u32, flags: i32) -> Outcome {
        if flags & !(libc::EFD_CLOEXEC | libc::EFD_NONBLOCK | libc::EFD_SEMAPHORE) != 0 {
            return Err(EINVAL.into());
        }
        let kind = Kind::Counter {
            number: self.new_number(),
            value: std::cell::Cell::new(u64::from(value)),
            semaphore: flags & libc::EFD_SEMAPHORE != 0,
        };
        let file = self.new_file(kind, libc::O_RDWR | flags & libc::EFD_NONBLOCK);
        self.install(who, file, flags & libc::EFD_CLOEXEC != 0)
    }

    /// `memfd_create`: a file without a name, in memory of the host.
    pub(crate) fn call_memory_file(&mut self, who: Caller, name: u64, flags: u32) -> Outcome {
        self.memory.read_string(who.space, name, 249).map_err(|_| EINVAL)?;
        if flags & !(libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) != 0 {
            return Err(EINVAL.into());
        }
        let host = host::memory_file()?;
        let stat = host::stat(host.as_raw_fd())?;
        let file = self.new_file(Kind::Regular { host, name: (stat.st_dev, stat.st_ino) }, libc::O_RDWR);
        self.install(who, file, flags & libc::MFD_CLOEXEC != 0)
    }

    /// Whether a descriptor is one at all, for calls that do nothing else with it.
    pub(crate) fn call_check_descriptor(&mut self, who: Caller, descriptor: i32) -> Outcome {
        self.file(who, descriptor).map_err(|_| EBADF)?;
        Ok(0)
    }
}
