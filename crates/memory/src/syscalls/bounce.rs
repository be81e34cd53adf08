//! A stretch of shared memory moved to private memory, for the kernel to read or write there.

use super::copy::{give, load, touch_store};
use super::scratch::{BUFFER_BYTES, Scratch};

pub(super) const BAD_ADDRESS: isize = -(libc::EFAULT as isize);
pub(super) const NO_MEMORY: isize = -(libc::ENOMEM as isize);

/// More than this is not moved by one call. No message is as long, and of all else fewer bytes than asked for are an answer.
pub(super) const MOST_BYTES: usize = 64 << 20;
/// What fits in a scratch's own buffer, at whatever place within a page, beside a few small things.
pub(super) const PIECE_BYTES: usize = BUFFER_BYTES / 2;
/// The longest path, with its zero; other strings are shorter.
const TEXT_BYTES: usize = 4096;
const PAGE_BYTES: usize = 4096;

pub(super) struct Moved {
    private: &'static mut [u8],
    shared: usize,
    unit: usize,
}

impl Moved {
    /// For the kernel to read. `alone`: it may read it later, too.
    pub(super) fn in_whole(
        scratch: &mut Scratch,
        shared: usize,
        bytes: usize,
        alone: bool,
    ) -> Result<Self, isize> {
        if bytes > MOST_BYTES {
            return Err(NO_MEMORY);
        }
        let private = scratch.reserve(bytes, shared, alone).ok_or(NO_MEMORY)?;
        if load(shared, private) != bytes { Err(BAD_ADDRESS) } else { Ok(Self { private, shared, unit: 1 }) }
    }

    /// For the kernel to read, as much as there is; at least a byte, unless none is asked for.
    pub(super) fn in_some(scratch: &mut Scratch, shared: usize, bytes: usize) -> Result<Self, isize> {
        let private = scratch.reserve(bytes, shared, false).ok_or(NO_MEMORY)?;
        let there = load(shared, private);
        if there == 0 && bytes > 0 {
            return Err(BAD_ADDRESS);
        }
        Ok(Self { private: &mut private[..there], shared, unit: 1 })
    }

    /// For the kernel to write. That there is memory to write to is seen before the kernel takes anything from anywhere.
    pub(super) fn out(scratch: &mut Scratch, shared: usize, bytes: usize, unit: u16) -> Result<Self, isize> {
        if bytes > 0 && !touch_store(shared) {
            return Err(BAD_ADDRESS);
        }
        let private = scratch.reserve(bytes, shared, false).ok_or(NO_MEMORY)?;
        Ok(Self { private, shared, unit: usize::from(unit) })
    }

    /// For the kernel to read and write.
    pub(super) fn in_out(scratch: &mut Scratch, shared: usize, bytes: usize) -> Result<Self, isize> {
        let moved = Self::in_whole(scratch, shared, bytes, false)?;
        if bytes > 0 && !touch_store(shared) { Err(BAD_ADDRESS) } else { Ok(moved) }
    }

    /// A string. One that is too long stays so, for the kernel to say.
    pub(super) fn text(scratch: &mut Scratch, shared: usize) -> Result<Self, isize> {
        let private = scratch.reserve(TEXT_BYTES + 1, 0, false).ok_or(NO_MEMORY)?;
        let mut used = 0;
        while used < TEXT_BYTES {
            // Not past a page: the next one may not be there, or cost somebody a right.
            let here = shared + used;
            let bytes = (PAGE_BYTES - here % PAGE_BYTES).min(TEXT_BYTES - used);
            let piece = &mut private[used..used + bytes];
            let there = load(here, piece);
            if piece[..there].contains(&0) {
                return Ok(Self { private, shared, unit: 1 });
            }
            if there < bytes {
                return Err(BAD_ADDRESS);
            }
            used += bytes;
        }
        private[TEXT_BYTES] = 0;
        Ok(Self { private, shared, unit: 1 })
    }

    pub(super) fn private_address(&self) -> usize {
        self.private.as_ptr() as usize
    }

    pub(super) fn len(&self) -> usize {
        self.private.len()
    }

    /// Copies what is there to its place, up to so many bytes.
    pub(super) fn give(&self, most: usize) -> bool {
        give(&self.private[..self.private.len().min(most)], self.shared)
    }

    /// Copies what a call filled, by its result.
    pub(super) fn give_filled(&self, result: isize) -> bool {
        usize::try_from(result).is_ok_and(|result| self.give(result.saturating_mul(self.unit))) || result <= 0
    }
}
