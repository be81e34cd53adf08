//! Components that share page frames have a page table each. What one has filled the others map together, before they come to it page by page; and much memory
//! gets large frames when it is allocated.

use std::collections::BTreeSet;
use std::sync::Arc;

use comb_memory::large;

use super::Task;
use super::allocating::available_bytes;
use crate::terms::Allocation;

/// What is looked at together, and not again when all of it is there.
const CHUNK_BYTES: usize = 2 << 20;
/// A component may never touch what it maps in advance, and pays for it: 0.1 µs and 8 bytes a page.
const MOST_BYTES: usize = 1 << 30;

/// Large frames are taken when memory is allocated, be it used or not: of what the host has left, an allocation may take so large a part in that way.
const LARGE_OF: u64 = 8;

/// What is mapped in advance already: chunks by generation of their allocation and address.
#[derive(Default)]
pub(super) struct Present {
    whole: BTreeSet<(u32, usize)>,
    bytes: usize,
}

impl Task {
    /// Whoever allocates much, and does not say that it is sparse, will use it.
    pub(super) fn take_large_frames(&self, allocation: &Allocation) {
        let Allocation { bytes, terms, .. } = allocation;
        if self.imports()
            && !terms.sparse
            && *bytes >= large::LEAST_BYTES
            && *bytes <= available_bytes() / LARGE_OF
        {
            let start = comb_memory::pointer(comb_memory::HEAP_START as u64 + allocation.offset).addr();
            large::fill(start..start + usize::try_from(*bytes).unwrap_or(0));
        }
    }

    /// Maps what the other components of this host have touched by now, where page frames are shared. It pays after they have set up what
    /// this one is to work on, and is too much for each of many barriers.
    pub fn map_present(&self) {
        if !self.imports() || self.count() == 1 {
            return;
        }
        // Another thread is at it.
        let Ok(mut present) = self.inner.present.try_lock() else { return };
        let (memory, allocations) = {
            let engine = self.runtime().lock();
            (Arc::clone(&engine.core.memory), engine.addresses())
        };
        for (generation, addresses) in allocations {
            for chunk in addresses.clone().step_by(CHUNK_BYTES) {
                if present.bytes >= MOST_BYTES {
                    return;
                }
                if !present.whole.contains(&(generation, chunk)) {
                    let end = addresses.end.min(chunk + CHUNK_BYTES);
                    let mapped = memory.map_present(chunk..end);
                    present.bytes += mapped;
                    if mapped == end - chunk {
                        present.whole.insert((generation, chunk));
                    }
                }
            }
        }
    }
}
