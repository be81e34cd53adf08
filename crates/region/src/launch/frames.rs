//! Page frames that the components of one host share.

use std::os::fd::OwnedFd;

use rustix::fs::{MemfdFlags, SealFlags};

/// As large as the heap: a page frame has the same offset in the file as its page in the heap. What nobody touches takes no memory.
const BYTES: u64 = comb_memory::HEAP_BYTES;

/// Empty frames, of a size that nobody can change. No program can be executed from them.
pub(super) fn make() -> rustix::io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Linux before 6.3 does not know how to say that it is not to be executable.
    let frames = rustix::fs::memfd_create(c"comb-frames", flags | MemfdFlags::NOEXEC_SEAL)
        .or_else(|_| rustix::fs::memfd_create(c"comb-frames", flags))?;
    rustix::fs::ftruncate(&frames, BYTES)?;
    rustix::fs::fcntl_add_seals(&frames, SealFlags::SHRINK | SealFlags::GROW)?;
    Ok(frames)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_as_large_as_the_heap_cost_nothing_and_stay_so() {
        let frames = make().unwrap();
        let found = rustix::fs::fstat(&frames).unwrap();
        assert_eq!((found.st_size.cast_unsigned(), found.st_blocks), (BYTES, 0));
        assert!(rustix::fs::ftruncate(&frames, BYTES / 2).is_err());
        assert!(rustix::fs::ftruncate(&frames, 2 * BYTES).is_err());
    }
}
