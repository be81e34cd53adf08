//! The memory that packets stand in.
#![expect(unsafe_code, reason = "memory that the kernel writes, and descriptors that a foreign crate keeps")]

use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use xdpilone::{RingRx, Umem, UmemConfig};

use super::{CHUNK_BYTES, RECEIVE_CHUNKS, SEND_CHUNKS, XdpWire};

/// Chunks of [`CHUNK_BYTES`], one after the other.
#[derive(Debug)]
pub(super) struct Memory {
    start: NonNull<u8>,
    bytes: usize,
}

impl Memory {
    pub(super) fn map(bytes: usize) -> Result<Self, Errno> {
        // SAFETY: a new private mapping at an address that the kernel chooses; nothing refers to it yet.
        let start = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::POPULATE,
            )
        }?;
        let start = NonNull::new(start.cast()).ok_or(Errno::NOMEM)?;
        Ok(Self { start, bytes })
    }

    /// Registers it with the kernel. `self` must live as long as the result: it is the field behind it.
    pub(super) fn register(&self) -> Result<Umem, xdpilone::Errno> {
        let config = UmemConfig {
            fill_size: RECEIVE_CHUNKS,
            complete_size: SEND_CHUNKS,
            frame_size: CHUNK_BYTES,
            headroom: 0,
            flags: 0,
        };
        let area = NonNull::slice_from_raw_parts(self.start, self.bytes);
        // SAFETY: the area is mapped and page-aligned, and stays mapped until after the sockets are closed: `XdpWire`
        // drops it last. Even if it were not: the kernel holds on to the pages, not to the mapping.
        unsafe { Umem::new(config, area) }
    }

    /// A chunk that is in none of the rings, so that the kernel leaves it alone. Panics beyond the end.
    #[inline]
    pub(super) fn chunk(&mut self, offset: u64) -> &mut [u8] {
        let offset = usize::try_from(offset).expect("within memory");
        assert!(offset + CHUNK_BYTES as usize <= self.bytes, "a chunk beyond the memory");
        // SAFETY: inside the mapping, by the line above; initialised, as the kernel gives zeroes. The kernel reads and
        // writes only chunks that are in its rings, and callers put a chunk into a ring after they are done with it
        // and take the borrow of `self` for it with them.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr().add(offset), CHUNK_BYTES as usize) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this length; the sockets that used it were dropped before.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// Our own descriptor of the socket that a ring belongs to.
pub(super) fn descriptor_of(ring: &RingRx) -> Result<OwnedFd, Errno> {
    // SAFETY: the ring holds the descriptor open for as long as it is borrowed here.
    let borrowed = unsafe { BorrowedFd::borrow_raw(ring.as_raw_fd()) };
    borrowed.try_clone_to_owned().map_err(|_| Errno::MFILE)
}

// SAFETY: everything in it belongs to it alone: the memory is its own mapping, and rings and registered memory are
// pointers into mappings that live as long as they do. Nothing is tied to the thread that made it.
unsafe impl Send for XdpWire {}
