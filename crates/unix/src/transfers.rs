//! Reading and writing of open files. Regular files of the host are read into the frames of the program and written from them,
//! without a copy between.

use crate::descriptors::{Kind, OpenFile};
use crate::errno::{EAGAIN, EBADF, EINVAL, EIO, EISDIR, ENOSPC, ENXIO, EPIPE, ESPIPE, Errno};
use crate::host;
use crate::layouts::Vector;
use crate::machine::{Access, Machine};
use crate::pipes::Stuck;
use crate::signals::information;
use crate::unix::{Caller, Unix};
use crate::user_memory::Buffer;
use crate::waiting::{Key, Outcome, Stop, Wait};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::rc::Rc;

/// What is moved at once where bytes are copied.
const CHUNK: u64 = 65536;
/// As much as one call moves on Linux.
const MOST: u64 = 0x7fff_f000;

/// What is left of buffers behind so many bytes.
fn behind(buffers: &[Buffer], mut done: u64) -> Vec<Buffer> {
    let mut rest = Vec::new();
    for buffer in buffers {
        let skipped = done.min(buffer.bytes);
        done -= skipped;
        if skipped < buffer.bytes {
            rest.push(Buffer {
                address: buffer.address.wrapping_add(skipped),
                bytes: buffer.bytes - skipped,
            });
        }
    }
    rest
}

/// The part of a file that so many bytes are, at an offset or where it stands.
fn part(host: i32, at: Option<u64>, bytes: u64) -> Range<u64> {
    let from = at.or(host::seek(host, 0, libc::SEEK_CUR).ok()).unwrap_or(0);
    from..from.saturating_add(bytes)
}

impl<M: Machine> Unix<M> {
    /// The buffers that a vector of a program names.
    pub(crate) fn buffers(&mut self, who: Caller, at: u64, count: u64) -> Result<Vec<Buffer>, Errno> {
        if count > 1024 {
            return Err(EINVAL);
        }
        let mut buffers = Vec::new();
        let mut total = 0u64;
        for index in 0..count {
            let vector: Vector = self.memory.read(who.space, at.wrapping_add(index * 16))?;
            if vector.bytes > i64::MAX as u64 {
                return Err(EINVAL);
            }
            let bytes = vector.bytes.min(MOST - total);
            total += bytes;
            buffers.push(Buffer { address: vector.base, bytes });
        }
        Ok(buffers)
    }

    /// What a call does that cannot go on yet.
    fn wait_or_fail(file: &OpenFile, wait: Wait) -> Stop {
        if file.never_waits() { Stop::Error(EAGAIN) } else { Stop::Wait(wait) }
    }

    fn read_regular(
        &mut self,
        who: Caller,
        host: i32,
        name: crate::objects::FileName,
        buffers: &[Buffer],
        at: Option<u64>,
    ) -> Outcome {
        let total: u64 = buffers.iter().map(|buffer| buffer.bytes).sum();
        self.memory.before_read(name, || part(host, at, total));
        let mut done = 0;
        while done < total {
            let step =
                self.memory.pieces(who.space, &behind(buffers, done), Access::Write).and_then(|pieces| {
                    match at {
                        Some(at) => host::read_at(host, &pieces, at.saturating_add(done)),
                        None => host::read(host, &pieces),
                    }
                });
            match step {
                Ok(0) => break,
                Ok(bytes) => done += bytes,
                Err(error) if done == 0 => return Err(error.into()),
                Err(_) => break,
            }
        }
        Ok(done)
    }

    fn write_regular(
        &mut self,
        who: Caller,
        file: &OpenFile,
        buffers: &[Buffer],
        at: Option<u64>,
    ) -> Outcome {
        let Kind::Regular { host, name } = &file.kind else { return Err(EBADF.into()) };
        let host = host.as_raw_fd();
        let total: u64 = buffers.iter().map(|buffer| buffer.bytes).sum();
        self.memory.before_write(*name, || part(host, at, total))?;
        let mut done = 0;
        while done < total {
            let step = self.memory.pieces(who.space, &behind(buffers, done), Access::Read).and_then(
                |pieces| match at {
                    Some(at) => host::write_at(host, &pieces, at.saturating_add(done)),
                    None => host::write(host, &pieces),
                },
            );
            match step {
                Ok(0) => break,
                Ok(bytes) => done += bytes,
                Err(error) if done == 0 => return Err(error.into()),
                Err(_) => break,
            }
        }
        self.wrote(*name, host, file, at, done)?;
        Ok(done)
    }

    /// Brings what was written to a file to those who have it mapped.
    fn wrote(
        &mut self,
        name: crate::objects::FileName,
        host: i32,
        file: &OpenFile,
        at: Option<u64>,
        bytes: u64,
    ) -> Result<(), Errno> {
        let end = match at {
            Some(at) if file.flags.get() & libc::O_APPEND == 0 => at + bytes,
            Some(_) => host::stat(host)?.st_size as u64,
            None => host::seek(host, 0, libc::SEEK_CUR)?,
        };
        self.memory.after_write(name, end.saturating_sub(bytes), end)
    }

    /// Reads from an open file, at an offset or where it stands.
    pub(crate) fn read_file(
        &mut self,
        who: Caller,
        file: &Rc<OpenFile>,
        buffers: &[Buffer],
        at: Option<u64>,
    ) -> Outcome {
        if !file.may_read() {
            return Err(EBADF.into());
        }
        file.used.set(file.used.get() + 1);
        let total: u64 = buffers.iter().map(|buffer| buffer.bytes).sum();
        let most = total.min(CHUNK) as usize;
        match &file.kind {
            Kind::Regular { host, name } => self.read_regular(who, host.as_raw_fd(), *name, buffers, at),
            Kind::Text(text) => {
                let from = at.unwrap_or(file.position.get()).min(text.len() as u64) as usize;
                let bytes = &text[from..(from + most).min(text.len())];
                let done = self.memory.scatter(who.space, buffers, bytes)?;
                if at.is_none() {
                    file.position.set(from as u64 + done);
                }
                Ok(done)
            }
            Kind::Device(device) => self.read_device(who, *device, buffers),
            Kind::Directory { .. } | Kind::Listing(_) => Err(EISDIR.into()),
            Kind::Path { .. } => Err(EBADF.into()),
            Kind::Epoll(_) => Err(EINVAL.into()),
            _ if at.is_some() => Err(ESPIPE.into()),
            _ if total == 0 => Ok(0),
            Kind::Stream { host } => {
                let host = host.as_raw_fd();
                if host::ready(host, libc::POLLIN) == 0 {
                    return Err(Self::wait_or_fail(file, Wait::descriptor(host, libc::POLLIN)));
                }
                let pieces = self.memory.pieces(who.space, buffers, Access::Write)?;
                Ok(host::read(host, &pieces)?)
            }
            Kind::Pipe(end) => match end.pipe.look(most) {
                Ok(bytes) => {
                    let done = self.memory.scatter(who.space, buffers, &bytes)?;
                    end.pipe.consume(done as usize);
                    Ok(done)
                }
                Err(_) => Err(Self::wait_or_fail(file, Wait::key(Key::Object(end.pipe.number)))),
            },
            Kind::Counter { number, value, semaphore } => {
                if total < 8 {
                    return Err(EINVAL.into());
                }
                if value.get() == 0 {
                    return Err(Self::wait_or_fail(file, Wait::key(Key::Object(*number))));
                }
                let taken = if *semaphore { 1 } else { value.get() };
                self.memory.scatter(who.space, buffers, &taken.to_le_bytes())?;
                value.set(value.get() - taken);
                self.wakes.wake(Key::Object(*number));
                Ok(8)
            }
            Kind::Timer(timer) => {
                if total < 8 {
                    return Err(EINVAL.into());
                }
                let passed = timer.take(std::time::Instant::now());
                if passed == 0 {
                    let mut wait = Wait::key(Key::Object(timer.number));
                    wait.until = timer.next();
                    return Err(Self::wait_or_fail(file, wait));
                }
                self.memory.scatter(who.space, buffers, &passed.to_le_bytes())?;
                Ok(8)
            }
            Kind::Socket { host, .. } => {
                let host = host.as_raw_fd();
                let mut pieces = self.memory.pieces(who.space, buffers, Access::Write)?;
                match host::receive(host, &mut pieces, 0) {
                    Ok((bytes, _, _)) => Ok(bytes),
                    Err(EAGAIN) => Err(Self::wait_or_fail(file, Wait::descriptor(host, libc::POLLIN))),
                    Err(error) => Err(error.into()),
                }
            }
        }
    }

    fn read_device(
        &mut self,
        who: Caller,
        device: crate::virtual_files::Device,
        buffers: &[Buffer],
    ) -> Outcome {
        use crate::virtual_files::Device;
        let total: u64 = buffers.iter().map(|buffer| buffer.bytes).sum();
        let mut done = 0;
        while done < total.min(crate::user_memory::MOST_BYTES) {
            let mut bytes = vec![0u8; (total - done).min(CHUNK) as usize];
            match device {
                Device::Null => return Ok(0),
                Device::Terminal => return Err(EIO.into()),
                Device::Random => host::random(&mut bytes),
                Device::Zero | Device::Full => {}
            }
            match self.memory.scatter(who.space, &behind(buffers, done), &bytes) {
                Ok(0) => break,
                Ok(moved) => done += moved,
                Err(error) if done == 0 => return Err(error.into()),
                Err(_) => break,
            }
        }
        Ok(done)
    }

    /// Nobody reads what is written.
    fn broken_pipe(&mut self, who: Caller) -> Stop {
        // If the signal cannot be sent, the error alone tells it.
        let _ = self.post(who.process, Some(who.thread), information(libc::SIGPIPE, libc::SI_USER));
        EPIPE.into()
    }

    /// Gives bytes to something that may have no room for them now; how many it took.
    fn put(&mut self, who: Caller, file: &OpenFile, bytes: &[u8]) -> Outcome {
        match &file.kind {
            Kind::Pipe(end) => match end.pipe.put(bytes) {
                Ok(done) => Ok(done as u64),
                Err(Stuck::Broken) => Err(self.broken_pipe(who)),
                Err(Stuck::NotNow) => Err(Self::wait_or_fail(file, Wait::key(Key::Object(end.pipe.number)))),
            },
            Kind::Stream { host } => {
                let host = host.as_raw_fd();
                if host::ready(host, libc::POLLOUT) == 0 {
                    return Err(Self::wait_or_fail(file, Wait::descriptor(host, libc::POLLOUT)));
                }
                // A pipe of the host that is ready takes so many without waiting.
                match host::write_own(host, &bytes[..bytes.len().min(crate::pipes::ATOMIC)]) {
                    Err(EPIPE) => Err(self.broken_pipe(who)),
                    Err(EAGAIN) => Err(Self::wait_or_fail(file, Wait::descriptor(host, libc::POLLOUT))),
                    done => Ok(done?),
                }
            }
            Kind::Socket { host, .. } => {
                let host = host.as_raw_fd();
                let mut pieces =
                    [libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }];
                match host::send(host, &mut pieces, &[], 0) {
                    Err(EPIPE) => Err(self.broken_pipe(who)),
                    Err(EAGAIN) => Err(Self::wait_or_fail(file, Wait::descriptor(host, libc::POLLOUT))),
                    done => Ok(done?),
                }
            }
            _ => Err(EINVAL.into()),
        }
    }

    /// Gives bytes from a source, until all are gone; a call that waits remembers how far it came.
    fn put_all(
        &mut self,
        who: Caller,
        file: &OpenFile,
        total: u64,
        mut source: impl FnMut(&mut Self, u64) -> Result<Vec<u8>, Errno>,
    ) -> Outcome {
        loop {
            let done = self.thread(who.thread).progress.done;
            if done >= total && total > 0 {
                return Ok(done);
            }
            let step = source(self, done)
                .map_err(Stop::from)
                .and_then(|bytes| if bytes.is_empty() { Ok(0) } else { self.put(who, file, &bytes) });
            match step {
                Ok(0) => return Ok(done),
                Ok(moved) => self.thread_mut(who.thread).progress.done += moved,
                Err(Stop::Error(_)) if done > 0 => return Ok(done),
                Err(stop) => return Err(stop),
            }
        }
    }

    /// Writes to an open file, at an offset or where it stands.
    pub(crate) fn write_file(
        &mut self,
        who: Caller,
        file: &Rc<OpenFile>,
        buffers: &[Buffer],
        at: Option<u64>,
    ) -> Outcome {
        use crate::virtual_files::Device;
        if !file.may_write() {
            return Err(EBADF.into());
        }
        file.used.set(file.used.get() + 1);
        let total: u64 = buffers.iter().map(|buffer| buffer.bytes).sum();
        match &file.kind {
            Kind::Regular { .. } => self.write_regular(who, file, buffers, at),
            Kind::Device(Device::Full) => Err(ENOSPC.into()),
            Kind::Device(_) => Ok(total),
            Kind::Directory { .. } | Kind::Listing(_) | Kind::Path { .. } => Err(EBADF.into()),
            Kind::Text(_) | Kind::Epoll(_) | Kind::Timer(_) => Err(EINVAL.into()),
            _ if at.is_some() => Err(ESPIPE.into()),
            Kind::Counter { number, value, .. } => {
                let bytes = self.memory.gather(who.space, buffers, 8)?;
                let added = <[u8; 8]>::try_from(bytes).map(u64::from_le_bytes).map_err(|_| EINVAL)?;
                if added == u64::MAX {
                    return Err(EINVAL.into());
                }
                match value.get().checked_add(added).filter(|&sum| sum < u64::MAX) {
                    Some(sum) => {
                        value.set(sum);
                        self.wakes.wake(Key::Object(*number));
                        Ok(8)
                    }
                    None => Err(Self::wait_or_fail(file, Wait::key(Key::Object(*number)))),
                }
            }
            _ => self.put_all(who, file, total, |unix, done| {
                unix.memory.gather(who.space, &behind(buffers, done), CHUNK)
            }),
        }
    }

    pub(crate) fn call_read(
        &mut self,
        who: Caller,
        descriptor: i32,
        buffers: &[Buffer],
        at: Option<u64>,
    ) -> Outcome {
        let file = self.file(who, descriptor)?;
        self.read_file(who, &file, buffers, at)
    }

    pub(crate) fn call_write(
        &mut self,
        who: Caller,
        descriptor: i32,
        buffers: &[Buffer],
        at: Option<u64>,
    ) -> Outcome {
        let file = self.file(who, descriptor)?;
        self.write_file(who, &file, buffers, at)
    }

    /// One buffer, as most calls have it.
    pub(crate) fn one_buffer(address: u64, bytes: u64) -> [Buffer; 1] {
        [Buffer { address, bytes: bytes.min(MOST) }]
    }

    pub(crate) fn call_seek(&mut self, who: Caller, descriptor: i32, offset: i64, whence: i32) -> Outcome {
        let file = self.file(who, descriptor)?;
        let moved = |base: u64| base.checked_add_signed(offset).ok_or(EINVAL);
        let position = match &file.kind {
            Kind::Regular { host, .. } | Kind::Directory { host } => {
                return Ok(host::seek(host.as_raw_fd(), offset, whence)?);
            }
            Kind::Device(_) => 0,
            Kind::Text(_) | Kind::Listing(_) => match whence {
                libc::SEEK_SET => moved(0)?,
                libc::SEEK_CUR => moved(file.position.get())?,
                libc::SEEK_END => match &file.kind {
                    Kind::Text(text) => moved(text.len() as u64)?,
                    _ => return Err(EINVAL.into()),
                },
                _ => return Err(ENXIO.into()),
            },
            _ => return Err(ESPIPE.into()),
        };
        file.position.set(position);
        Ok(position)
    }

    /// `sendfile`, and `copy_file_range` between regular files.
    pub(crate) fn call_send_file(
        &mut self,
        who: Caller,
        to: i32,
        from: i32,
        offsets: [u64; 2],
        bytes: u64,
    ) -> Outcome {
        let (to, from) = (self.file(who, to)?, self.file(who, from)?);
        if !to.may_write() || !from.may_read() {
            return Err(EBADF.into());
        }
        let Kind::Regular { host, name } = &from.kind else { return Err(EINVAL.into()) };
        let host = host.as_raw_fd();
        self.memory.before_read(*name, || 0..u64::MAX);
        let bytes = bytes.min(MOST);
        let [from_at, to_at] = offsets;
        let start: u64 = if from_at == 0 {
            host::seek(host, 0, libc::SEEK_CUR)?
        } else {
            self.memory.read(who.space, from_at)?
        };
        // Where the file stands is moved at the very end only, so that a call that waits begins again at the same place.
        let chunk = |done: u64| {
            let mut chunk = vec![0u8; (bytes - done).min(CHUNK) as usize];
            let read = host::read_own(host, &mut chunk, start.saturating_add(done))?;
            chunk.truncate(read as usize);
            Ok(chunk)
        };
        let done = if let Kind::Regular { host: target, name } = &to.kind {
            let target = target.as_raw_fd();
            let mut place: Option<u64> =
                if to_at == 0 { None } else { Some(self.memory.read(who.space, to_at)?) };
            let mut done = 0;
            while done < bytes {
                let chunk = chunk(done)?;
                if chunk.is_empty() {
                    break;
                }
                let piece =
                    [libc::iovec { iov_base: chunk.as_ptr().cast_mut().cast(), iov_len: chunk.len() }];
                self.memory.before_write(*name, || part(target, place, chunk.len() as u64))?;
                let wrote = match place {
                    Some(at) => host::write_at(target, &piece, at)?,
                    None => host::write(target, &piece)?,
                };
                self.wrote(*name, target, &to, place, wrote)?;
                place = place.map(|at| at + wrote);
                done += wrote;
            }
            if let Some(place) = place {
                self.memory.write(who.space, to_at, &place)?;
            }
            done
        } else if to_at != 0 || bytes == 0 {
            return if bytes == 0 { Ok(0) } else { Err(EINVAL.into()) };
        } else {
            self.put_all(who, &to, bytes, |_, done| chunk(done))?
        };
        if from_at == 0 {
            host::seek(host, (start + done) as i64, libc::SEEK_SET)?;
        } else {
            self.memory.write(who.space, from_at, &(start + done))?;
        }
        Ok(done)
    }

    pub(crate) fn call_synchronize(&mut self, who: Caller, descriptor: i32, data_only: bool) -> Outcome {
        let file = self.file(who, descriptor)?;
        match &file.kind {
            Kind::Regular { host, name } => {
                // What other cells have, too, is on no disk.
                self.memory.before_read(*name, || 0..0);
                host::synchronize(host.as_raw_fd(), data_only)?;
            }
            Kind::Directory { host } => host::synchronize(host.as_raw_fd(), data_only)?,
            _ => return Err(EINVAL.into()),
        }
        Ok(0)
    }

    pub(crate) fn call_allocate(
        &mut self,
        who: Caller,
        descriptor: i32,
        mode: i32,
        offset: i64,
        bytes: i64,
    ) -> Outcome {
        let file = self.file(who, descriptor)?;
        let Kind::Regular { host, .. } = &file.kind else { return Err(EBADF.into()) };
        if !file.may_write() || offset < 0 || bytes <= 0 {
            return Err(EINVAL.into());
        }
        if mode & !libc::FALLOC_FL_KEEP_SIZE != 0 {
            return Err(crate::errno::EOPNOTSUPP.into());
        }
        host::allocate(host.as_raw_fd(), mode, offset, bytes)?;
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_done_is_skipped_across_buffers() {
        let buffers = [
            Buffer { address: 10, bytes: 4 },
            Buffer { address: 100, bytes: 0 },
            Buffer { address: 50, bytes: 6 },
        ];
        assert_eq!(behind(&buffers, 0), vec![buffers[0], buffers[2]]);
        assert_eq!(behind(&buffers, 4), vec![buffers[2]]);
        assert_eq!(behind(&buffers, 7), vec![Buffer { address: 53, bytes: 3 }]);
        assert_eq!(behind(&buffers, 10), Vec::new());
    }
}
