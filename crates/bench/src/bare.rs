//! The bare cache-line ping-pong: what the hardware charges for a word to the other core and back. Every ratio of
//! the network benchmark is against it, and its value says how near the two cores are at the moment.
#![expect(unsafe_code, reason = "maps the memory that the ping-pong runs over")]

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::{MapFlags, ProtFlags};

const BYTES: usize = 8192;
/// The two words lie on two pages: no prefetcher couples them.
const ANSWER: usize = 4096 / 8;

/// Two words shared by two processes.
pub(crate) struct Bare {
    words: *mut std::ffi::c_void,
}

impl Bare {
    pub(crate) fn create() -> std::io::Result<(Self, OwnedFd)> {
        let fd = rustix::fs::memfd_create("comb-bench", rustix::fs::MemfdFlags::empty())?;
        rustix::fs::ftruncate(&fd, BYTES as u64)?;
        Ok((Self::map(&fd)?, fd))
    }

    pub(crate) fn map(fd: impl AsFd) -> std::io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping at an address that the kernel chooses.
        let words =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), BYTES, protection, MapFlags::SHARED, fd, 0) }?;
        Ok(Self { words })
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < BYTES / 8);
        // SAFETY: within the mapping, which lives as long as `self`; both processes use atomics only.
        unsafe { &*self.words.cast::<AtomicU64>().add(index) }
    }

    /// One round trip, number `round`, which counts up from 1.
    #[inline]
    pub(crate) fn ping(&self, round: u64) {
        self.word(0).store(round, Ordering::Release);
        while self.word(ANSWER).load(Ordering::Acquire) != round {
            std::hint::spin_loop();
        }
    }

    /// The other side of it.
    #[inline]
    pub(crate) fn pong(&self, round: u64) {
        while self.word(0).load(Ordering::Acquire) != round {
            std::hint::spin_loop();
        }
        self.word(ANSWER).store(round, Ordering::Release);
    }

    pub(crate) fn reset(&self) {
        self.word(0).store(0, Ordering::SeqCst);
        self.word(ANSWER).store(0, Ordering::SeqCst);
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        // SAFETY: ours since `map`.
        let _ = unsafe { rustix::mm::munmap(self.words, BYTES) };
    }
}
