//! Guest memory in pieces, which files are read into and written from without a copy in between.
#![expect(unsafe_code, reason = "the host's kernel reads and writes guest memory by its address")]

use std::cell::Cell;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;

use vm_memory::{Bytes, GuestAddress, GuestMemory, Permissions, VolatileSlice};

use crate::devices::backend::Memory;

/// What one call to the kernel takes (`IOV_MAX`).
const MOST_PIECES: usize = 1024;

/// Pieces of guest memory that follow each other. What has been read or written is no longer among them.
#[derive(Default)]
pub(super) struct Pieces<'m> {
    slices: Vec<VolatileSlice<'m>>,
    done: usize,
}

impl<'m> Pieces<'m> {
    /// Adds a piece, if the guest has memory there and there are not too many.
    pub(super) fn push(&mut self, memory: &'m Memory, at: GuestAddress, bytes: u32) -> bool {
        let Ok(slices) = GuestMemory::get_slices(memory, at, bytes as usize, Permissions::ReadWrite) else {
            return false;
        };
        for slice in slices {
            match slice {
                Ok(slice) if self.slices.len() < MOST_PIECES => self.slices.push(slice),
                _ => return false,
            }
        }
        true
    }

    /// Whether none was added yet.
    pub(super) fn is_empty(&self) -> bool {
        self.slices.is_empty()
    }

    /// How many bytes there are.
    pub(super) fn bytes(&self) -> u64 {
        self.slices[self.done..].iter().map(|slice| slice.len() as u64).sum()
    }

    /// Takes the last byte off.
    pub(super) fn split_last(&mut self) -> Option<VolatileSlice<'m>> {
        let last = self.slices.pop()?;
        let (rest, byte) = last.split_at(last.len().checked_sub(1)?).ok()?;
        if !rest.is_empty() {
            self.slices.push(rest);
        }
        Some(byte)
    }

    /// Copies the first bytes out, if there are so many.
    pub(super) fn take(&mut self, mut to: &mut [u8]) -> bool {
        while let Some(slice) = self.slices.get(self.done).filter(|_| !to.is_empty()) {
            let count = slice.copy_to(to);
            to = &mut to[count..];
            self.advance(count);
        }
        to.is_empty()
    }

    /// Copies bytes in, as many as there is room for.
    pub(super) fn put(&mut self, mut from: &[u8]) {
        while let Some(slice) = self.slices.get(self.done).filter(|_| !from.is_empty()) {
            let count = slice.len().min(from.len());
            // It is as long as that.
            let _ = slice.write_slice(&from[..count], 0);
            from = &from[count..];
            self.advance(count);
        }
    }

    fn advance(&mut self, mut count: usize) {
        while let Some(slice) = self.slices.get_mut(self.done).filter(|_| count > 0) {
            match slice.offset(count) {
                Ok(rest) if !rest.is_empty() => {
                    *slice = rest;
                    return;
                }
                _ => {
                    count -= slice.len();
                    self.done += 1;
                }
            }
        }
    }

    /// Reads so many bytes of a file from there on into the first pieces. If they are not in memory, that is said before they are waited for.
    pub(super) fn read(
        &mut self,
        file: &File,
        offset: u64,
        bytes: u64,
        before_waiting: Option<&dyn Fn()>,
    ) -> io::Result<()> {
        let flags = Cell::new(if before_waiting.is_some() { libc::RWF_NOWAIT } else { 0 });
        self.transfer(offset, bytes, |pieces, count, offset| {
            loop {
                // SAFETY: the pieces lie within mappings of guest memory that live as long as `self`; what is written there while others look is the guest's affair.
                let read = unsafe { libc::preadv2(file.as_raw_fd(), pieces, count, offset, flags.get()) };
                // A file system need not know the flag.
                if read >= 0 || flags.replace(0) == 0 {
                    return read;
                }
                before_waiting.into_iter().for_each(|say| say());
            }
        })
    }

    /// Writes the first pieces to so many bytes of a file from there on.
    pub(super) fn write(&mut self, file: &File, offset: u64, bytes: u64) -> io::Result<()> {
        self.transfer(offset, bytes, |pieces, count, offset| {
            // SAFETY: as above, and the kernel only reads them.
            unsafe { libc::pwritev(file.as_raw_fd(), pieces, count, offset) }
        })
    }

    fn transfer(
        &mut self,
        mut offset: u64,
        mut bytes: u64,
        perform: impl Fn(*const libc::iovec, libc::c_int, libc::off_t) -> isize,
    ) -> io::Result<()> {
        let mut pieces = Vec::with_capacity(self.slices.len() - self.done);
        while bytes > 0 {
            pieces.clear();
            let mut rest = bytes;
            for slice in &self.slices[self.done..] {
                let length = slice.len().min(usize::try_from(rest).unwrap_or(usize::MAX));
                pieces.push(libc::iovec { iov_base: slice.ptr_guard_mut().as_ptr().cast(), iov_len: length });
                rest -= length as u64;
                if rest == 0 {
                    break;
                }
            }
            let count = pieces.len().try_into().map_err(io::Error::other)?;
            match perform(pieces.as_ptr(), count, offset.try_into().map_err(io::Error::other)?) {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                done if done > 0 => {
                    self.advance(done.unsigned_abs());
                    offset += done.unsigned_abs() as u64;
                    bytes -= done.unsigned_abs() as u64;
                }
                _ => {
                    let error = io::Error::last_os_error();
                    if error.kind() != ErrorKind::Interrupted {
                        return Err(error);
                    }
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_to_wait_says_so_and_reads_all_the_same() {
        // Of these files nobody knows whether they are in memory.
        let file = File::open("/proc/sys/kernel/random/boot_id").expect("a file");
        let mut bytes = [0; 36];
        let said = Cell::new(0);
        let slices = vec![VolatileSlice::from(&mut bytes[..])];
        let say = || said.set(said.get() + 1);
        Pieces { slices, done: 0 }.read(&file, 0, 36, Some(&say)).expect("it is read");
        assert_eq!(said.get(), 1);
        assert_eq!(bytes[8], b'-');
    }
}
