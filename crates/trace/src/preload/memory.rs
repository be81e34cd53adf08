//! Memory that is shared with programs that may do anything to it: words that can be looked at and changed, and no references.
#![expect(unsafe_code, reason = "maps memory that other processes write, and hands out words of it")]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

/// A mapping of words. Its size is sealed: nobody can take pages away from below it.
pub(super) struct Memory {
    file: File,
    base: NonNull<AtomicU64>,
    words: usize,
}

// SAFETY: it is an address range whose words are only used as atomics.
unsafe impl Send for Memory {}

impl Memory {
    /// Memory full of zeros.
    pub(super) fn new(bytes: usize) -> io::Result<Self> {
        let file = File::from(memfd_create("comb-trace", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?);
        file.set_len(bytes as u64)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, wherever the kernel finds room.
        let base = unsafe {
            libc::mmap(std::ptr::null_mut(), bytes, protection, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).expect("the kernel maps nothing at zero");
        Ok(Self { file, base, words: bytes / 8 })
    }

    /// By which others open it: while this process is there, and for those who may look into it.
    pub(super) fn descriptor(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// All of it. What is read there is an allegation.
    pub(super) fn words(&self) -> &[AtomicU64] {
        // SAFETY: so many words are mapped, aligned to pages, for as long as `self` is there; any bits are a number, and whoever else
        // writes them does so in words or bytes of a mapping of its own, which atomics bear.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.words) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the range is ours since `new`, and nobody has a reference into it that outlives `self`.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.words * 8) };
    }
}
