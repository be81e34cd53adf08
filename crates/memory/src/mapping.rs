//! A file's memory, mapped for as long as somebody wants it.
#![expect(unsafe_code, reason = "gives a mapping back")]

use std::os::fd::BorrowedFd;

use rustix::io::Errno;

use crate::kernel::{self, Protection};
use crate::space::index;

/// Addresses of shared memory. What is there is loaded and stored by atomics and assembly alone: others do so too.
#[derive(Debug)]
pub(crate) struct Mapping {
    address: usize,
    bytes: u64,
}

impl Mapping {
    pub(crate) fn new(file: BorrowedFd<'_>, bytes: u64, protection: Protection) -> Result<Self, Errno> {
        let address = kernel::map_shared(file, index(bytes), protection)?;
        Ok(Self { address, bytes })
    }

    #[inline]
    pub(crate) fn address(&self) -> usize {
        self.address
    }

    #[inline]
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Gives the kernel advice that throws nothing away.
    pub(crate) fn advise(&self, advice: libc::c_int) {
        // SAFETY: our own mapping, and nothing is thrown away.
        let _ = unsafe { kernel::advise(self.address, index(self.bytes), advice) };
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: ours since `new`, and whoever has the address borrows this.
        unsafe { kernel::unmap(self.address, index(self.bytes)) };
    }
}
