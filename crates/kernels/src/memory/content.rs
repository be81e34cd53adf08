//! Frames as bytes: what is there is only ever copied, or read and written by the host's kernel. It is never a Rust object, for programs may change it at any time.
#![expect(unsafe_code, reason = "frames are memory that others have, too")]

use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use rustix::io::Errno;

use super::PAGE_BYTES;

/// Neighbouring frames of a kernel, as bytes. Their memory stays as long as there is one of these.
#[derive(Debug)]
pub struct Piece {
    start: NonNull<u8>,
    bytes: usize,
    _in_use: Arc<()>,
}

// SAFETY: an address range that is used by copies and by the host's kernel only, from any thread.
unsafe impl Send for Piece {}
// SAFETY: as above.
unsafe impl Sync for Piece {}

/// Where a kernel's frames are in its process.
#[derive(Debug)]
pub(super) struct Content {
    start: NonNull<u8>,
    frames: u32,
    in_use: Arc<()>,
}

impl Content {
    /// Of a kernel that has so many frames, from there on.
    ///
    /// # Safety
    /// The addresses are reserved for these frames for as long as this lives.
    pub(super) unsafe fn new(start: NonNull<u8>, frames: u32) -> Self {
        Self { start, frames, in_use: Arc::new(()) }
    }

    fn at(&self, frame: u32, offset: usize, bytes: usize) -> NonNull<u8> {
        let start = frame as usize * PAGE_BYTES + offset;
        let end = start.checked_add(bytes).expect("a sum of small numbers");
        assert!(end <= self.frames as usize * PAGE_BYTES, "within the frames");
        // SAFETY: within the frames, as was just checked.
        unsafe { self.start.add(start) }
    }

    pub(super) fn piece(&self, frame: u32, count: u32) -> Piece {
        let bytes = count as usize * PAGE_BYTES;
        Piece { start: self.at(frame, 0, bytes), bytes, _in_use: self.in_use.clone() }
    }

    pub(super) fn copy_out(&self, frame: u32, offset: usize, to: &mut [u8]) {
        let from = self.at(frame, offset, to.len());
        // SAFETY: within the frames; bytes, of which any value is one.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to.as_mut_ptr(), to.len()) }
    }

    pub(super) fn copy_in(&self, frame: u32, offset: usize, from: &[u8]) {
        let to = self.at(frame, offset, from.len());
        // SAFETY: within the frames, to which nobody has a reference.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to.as_ptr(), from.len()) }
    }
}

impl Drop for Content {
    /// Whoever still reads into a piece or writes from it has to end before the memory goes.
    fn drop(&mut self) {
        while Arc::strong_count(&self.in_use) > 1 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
}

impl Piece {
    /// How many bytes: whole frames.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// There is always one.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Puts bytes there.
    pub fn fill(&self, offset: usize, from: &[u8]) {
        assert!(offset.checked_add(from.len()).is_some_and(|end| end <= self.bytes), "within the piece");
        // SAFETY: within the piece, to which nobody has a reference.
        unsafe {
            std::ptr::copy_nonoverlapping(from.as_ptr(), self.start.as_ptr().add(offset), from.len());
        }
    }

    /// Makes the rest zeros.
    pub fn clear(&self, from: usize) {
        assert!(from <= self.bytes, "within the piece");
        // SAFETY: as above.
        unsafe { std::ptr::write_bytes(self.start.as_ptr().add(from), 0, self.bytes - from) }
    }

    /// Gets bytes from there.
    pub fn copy_out(&self, offset: usize, to: &mut [u8]) {
        assert!(offset.checked_add(to.len()).is_some_and(|end| end <= self.bytes), "within the piece");
        // SAFETY: within the piece; bytes, of which any value is one.
        unsafe { std::ptr::copy_nonoverlapping(self.start.as_ptr().add(offset), to.as_mut_ptr(), to.len()) }
    }
}

/// All that moves past the page cache is whole ones, but for a file's end.
const SECTOR_BYTES: usize = 512;

/// The host's limit of pieces in one call.
const MOST_PIECES: usize = 1024;

type Call = unsafe extern "C" fn(libc::c_int, *const libc::iovec, libc::c_int, libc::off_t) -> libc::ssize_t;

/// Reads all of a file's bytes from there on into pieces, in as few calls as there can be. How many there were, before the file's end.
pub(super) fn read(file: BorrowedFd<'_>, at: u64, into: &[Piece]) -> Result<usize, Errno> {
    transfer(libc::preadv, file, at, into)
}

/// Writes all pieces.
pub(super) fn write(file: BorrowedFd<'_>, at: u64, from: &[Piece]) -> Result<(), Errno> {
    let bytes: usize = from.iter().map(Piece::len).sum();
    if transfer(libc::pwritev, file, at, from)? == bytes { Ok(()) } else { Err(Errno::NOSPC) }
}

fn transfer(call: Call, file: BorrowedFd<'_>, at: u64, pieces: &[Piece]) -> Result<usize, Errno> {
    let mut vectors: Vec<libc::iovec> = pieces
        .iter()
        .map(|piece| libc::iovec { iov_base: piece.start.as_ptr().cast(), iov_len: piece.bytes })
        .collect();
    let (mut done, mut first) = (0, 0);
    while first < vectors.len() {
        let some = &vectors[first..(first + MOST_PIECES).min(vectors.len())];
        let offset = libc::off_t::try_from(at + done as u64).map_err(|_| Errno::INVAL)?;
        let count = libc::c_int::try_from(some.len()).expect("as many as the host takes");
        // SAFETY: each vector is a piece's memory, or the rest of one, which stays while the piece does.
        let result = unsafe { call(file.as_raw_fd(), some.as_ptr(), count, offset) };
        let Ok(mut moved) = usize::try_from(result) else {
            let error = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
            match Errno::from_raw_os_error(error) {
                Errno::INTR => continue,
                error => return Err(error),
            }
        };
        if moved == 0 {
            break;
        }
        done += moved;
        if !moved.is_multiple_of(SECTOR_BYTES) {
            // The file's end. To ask again from here would be an error past the page cache.
            break;
        }
        while first < vectors.len() && moved >= vectors[first].iov_len {
            moved -= vectors[first].iov_len;
            first += 1;
        }
        if moved > 0 {
            let rest = &mut vectors[first];
            rest.iov_base = rest.iov_base.wrapping_byte_add(moved);
            rest.iov_len -= moved;
        }
    }
    Ok(done)
}
