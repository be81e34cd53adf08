//! The one thing that differs between kernels: how the MMU is made to stop threads.

use std::ops::Range;

use comb_coherence::Access;

use crate::frames::Frames;
use crate::memory::MemoryError;

/// A run of pages of guarded addresses whose frames lie in a row too.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Run {
    /// Of its first page.
    pub(crate) address: usize,
    /// Where that page's content is.
    pub(crate) frame: u64,
    /// Whole pages.
    pub(crate) bytes: usize,
}

impl Run {
    pub(crate) fn addresses(&self) -> Range<usize> {
        self.address..self.address + self.bytes
    }
}

/// Changes what the MMU lets threads do with whole pages of guarded mappings.
///
/// Calls for different pages may come from any threads at the same time. For one page, [`AccessControl::change`] is called by one
/// thread at a time, and [`AccessControl::repair`] may come while a `change` *raises* the right, never while one lowers it.
pub(crate) trait AccessControl: Send + Sync + std::fmt::Debug {
    /// Takes over addresses that are mapped to frames, so far with no right at all. All pages begin with one right; what is allowed
    /// need not go through at once, see [`AccessControl::repair`].
    fn guard(&self, address: usize, bytes: usize, initial: Access) -> Result<(), MemoryError>;

    /// Changes the right of all pages of a run. When it returns, no thread does any more what the new right forbids, and what threads
    /// stored before is in the frames. If it fails, the MMU allows no more than the smaller of the two rights.
    ///
    /// `is_known` is false if nothing was ever changed or repaired there.
    fn change(
        &self,
        frames: &Frames,
        run: Run,
        from: Access,
        to: Access,
        is_known: bool,
    ) -> Result<(), MemoryError>;

    /// Raises the right of a run from [`Access::Invalid`] and fills it at once, where that is quicker than one after the other: its frames
    /// are most likely new. Whether it was done; if not, nothing has changed. Nobody repairs the run meanwhile.
    fn deliver(&self, frames: &Frames, run: Run, content: &[u8], to: Access) -> Result<bool, MemoryError> {
        let _ = (frames, run, content, to);
        Ok(false)
    }

    /// Makes the MMU agree to a right that pages have, which is not [`Access::Invalid`]: it may have stopped a thread all the same.
    fn repair(&self, frames: &Frames, run: Run, access: Access) -> Result<(), MemoryError>;
}
