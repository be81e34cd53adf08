//! Components that share page frames have a page table each. What one has filled the others map together, before they come to it page by page.

use std::collections::BTreeSet;

use comb_memory::present;

use super::Task;

/// What is looked at together, and not again when all of it is there.
const CHUNK_BYTES: usize = 2 << 20;
/// A component may never touch what it maps in advance, and pays for it: 0.1 µs and 8 bytes a page.
const MOST_BYTES: usize = 1 << 30;

/// What is mapped in advance already: chunks by generation of their allocation and address.
#[derive(Default)]
pub(super) struct Present {
    whole: BTreeSet<(u32, usize)>,
    bytes: usize,
}

impl Task {
    /// Maps what the other components of this host have touched by now, where page frames are shared. It pays after they have set up what
    /// this one is to work on, and is too much for each of many barriers.
    pub fn map_present(&self) {
        if !self.imports() || self.count() == 1 {
            return;
        }
        // Another thread is at it.
        let Ok(mut present) = self.inner.present.try_lock() else { return };
        let allocations = self.runtime().lock().addresses();
        for (generation, addresses) in allocations {
            for chunk in addresses.clone().step_by(CHUNK_BYTES) {
                if present.bytes >= MOST_BYTES {
                    return;
                }
                if !present.whole.contains(&(generation, chunk)) {
                    let end = addresses.end.min(chunk + CHUNK_BYTES);
                    let pages = present::map_present(chunk..end);
                    let mapped = pages * comb_memory::PAGE_BYTES;
                    present.bytes += mapped;
                    if mapped == end - chunk {
                        present.whole.insert((generation, chunk));
                    }
                }
            }
        }
    }
}
