//! What may be replaced, and how much may be exempt from it.
//!
//! A lock exempts an object only if all that the object depends on is locked as well (§4.2). How many objects a kernel can lock, its
//! descriptor says; the sum over all kernels is less than the table. So there is always something to replace.

use super::cache::Objects;
use super::errors::Refused;
use super::kernel::Locks;
use super::record::{FrameKey, Kind};
use super::sizes::RECORDS_OF_A_MAPPING;

/// An object is held if nothing can replace it.
impl<S> Objects<S> {
    pub(super) fn is_space_held(&self, space: u16) -> bool {
        self.spaces.is_locked(space) && self.kernels.is_locked(self.spaces.at(space).kernel)
    }

    pub(super) fn is_thread_held(&self, thread: u16) -> bool {
        self.threads.is_locked(thread) && self.is_space_held(self.threads.at(thread).space)
    }

    /// A writable mapping depends on the receivers of its frame, too: when one of them goes, it does (§4.2, multi-mapping consistency).
    pub(super) fn is_mapping_held(&self, mapping: u32) -> bool {
        let record = self.map.at(mapping);
        let users = self.map.dependents(FrameKey::frame(record.frame())).map(|(place, _)| place);
        let mut receivers = users.filter(|place| self.map.find_more(Kind::Signal, *place).is_some());
        self.is_mapping_held_but_for_receivers(mapping)
            && (!record.is_writable() || receivers.all(|place| self.is_mapping_held_but_for_receivers(place)))
    }

    fn is_mapping_held_but_for_receivers(&self, mapping: u32) -> bool {
        let record = self.map.at(mapping);
        let is_thread_held = |signal| self.is_thread_held(self.map.at(signal).thread());
        record.is_locked()
            && self.is_space_held(record.space())
            && self.map.find_more(Kind::Signal, mapping).is_none_or(is_thread_held)
    }

    /// Whether a kernel with these limits can be beside all that are loaded but this one, which would go.
    pub(super) fn limits_fit(&self, limits: Locks, without: Option<u16>) -> Result<(), Refused> {
        let loaded = || self.kernels.iter().filter(move |(slot, _)| Some(*slot) != without);
        let sum = |of: fn(&Locks) -> u32| {
            loaded().map(|(_, kernel)| u64::from(of(&kernel.descriptor.locks))).sum::<u64>()
                + u64::from(of(&limits))
        };
        let sizes = &self.sizes;
        // The first kernel is locked beside those that it loads. Of records, a mapping may need several at a time.
        let fit = sum(|locks| locks.kernels) + 1 < u64::from(sizes.kernels)
            && sum(|locks| locks.spaces) < u64::from(sizes.spaces)
            && sum(|locks| locks.threads) < u64::from(sizes.threads)
            && sum(|locks| locks.mappings) + u64::from(RECORDS_OF_A_MAPPING) <= u64::from(sizes.mappings);
        if fit { Ok(()) } else { Err(Refused::TooManyLocks) }
    }

    /// Whether a kernel may lock so many more of a kind.
    pub(super) fn may_lock(&self, kernel: u16, of: fn(&Locks) -> u32, more: u32) -> Result<(), Refused> {
        let kernel = self.kernels.at(kernel);
        if of(&kernel.locked) + more <= of(&kernel.descriptor.locks) {
            Ok(())
        } else {
            Err(Refused::LockLimit)
        }
    }

    pub(super) fn locked_mut(&mut self, kernel: u16) -> &mut Locks {
        &mut self.kernels.at_mut(kernel).locked
    }
}
