//! Memory outside the heap becomes part of the task's: what was in it is what it begins with.
#![expect(unsafe_code, reason = "a program's variables are taken in as bytes")]

use comb_memory::images;

use super::{Image, JoinError, Joining, Task};
use crate::terms::{Allocation, Guard, Placement, Terms};

/// All allocations by `allocate` are younger.
const GENERATION: u32 = 0;
/// Whose they are: nobody gives them back.
const CREATOR: u32 = 0;

impl Task {
    /// All components do, with the same images.
    pub(super) fn share_images(&self, joining: &Joining) -> Result<(), JoinError> {
        if joining.images.is_empty() {
            return Ok(());
        }
        let allocations = declare(joining)?;
        for allocation in &allocations {
            self.take_in(allocation)?;
        }
        // Where page frames are shared, all is there before anybody looks.
        self.barrier();
        let installed: Result<Vec<()>, _> =
            allocations.iter().map(|&allocation| self.install(allocation)).collect();
        // And where they are not, nobody asks who does not know of them yet.
        self.barrier();
        installed.map(drop)
    }

    fn install(&self, allocation: Allocation) -> Result<(), JoinError> {
        let installed = self.runtime().lock().install(allocation);
        installed.map_err(|_| refused(allocation.image, "the system refuses to map it anew"))
    }

    /// Puts what counts of this component's own content where it will be looked for.
    fn take_in(&self, allocation: &Allocation) -> Result<(), JoinError> {
        let layout = allocation.layout().map_err(|error| refused(allocation.image, &error.to_string()))?;
        let memory = self.memory();
        let engine = self.runtime().lock();
        let (me, homes) = (engine.core.me.0, engine.homes_of(allocation, &layout));
        drop(engine);
        for extent in 0..=homes.extent(layout.blocks() - 1) {
            let is_ours = if self.imports() { me == CREATOR } else { homes.by_rule(extent) == Some(me) };
            if is_ours {
                let blocks = homes.blocks_of(extent);
                let blocks = blocks.start..blocks.end.min(layout.blocks());
                // SAFETY: declared, and still the program's own memory; whoever joins is alone in the process.
                unsafe { images::take_in(&memory, &layout, blocks) };
            }
        }
        Ok(())
    }
}

/// Where their content is, and how they are shared.
fn declare(joining: &Joining) -> Result<Vec<Allocation>, JoinError> {
    let mut wanted = Vec::new();
    for image in &joining.images {
        let bytes = image.bytes as u64;
        let layout = terms(joining, image).layout_at(image.start, 0, bytes);
        let layout = layout.map_err(|error| refused(image.start as u64, &error.to_string()))?;
        wanted.push((image.start..image.start.saturating_add(image.bytes), layout.span()));
    }
    let first = joining.images[0].start as u64;
    let placed = images::declare(&wanted).map_err(|error| refused(first, &error.to_string()))?;
    let allocation = |(image, placed): (&Image, images::Image)| Allocation {
        offset: placed.offset,
        bytes: image.bytes as u64,
        generation: GENERATION,
        creator: CREATOR,
        terms: terms(joining, image),
        image: image.start as u64,
    };
    Ok(joining.images.iter().zip(placed).map(allocation).collect())
}

/// Who has no more than so much has no large arrays there, but counters beside what others only read: each has a block of its own or shares it with few.
const SMALL_IMAGE: usize = 64 << 10;
const SMALL_BLOCK: u32 = 128;

/// An image ends where it ends: the block that is last does not reach beyond. Extents live with one component after the other, so
/// that all know whose content counts.
fn terms(joining: &Joining, image: &Image) -> Terms {
    let guard = if joining.terms.guard == Guard::Mmu { Guard::Page } else { joining.terms.guard };
    let whole = 1_u32 << image.bytes.trailing_zeros().min(16);
    let is_of_small_variables = guard == Guard::Check && image.bytes <= SMALL_IMAGE;
    let most = if is_of_small_variables { SMALL_BLOCK } else { joining.terms.block_bytes };
    let block_bytes = most.min(whole);
    Terms { guard, block_bytes, placement: Placement::RoundRobin, ..joining.terms }
}

fn refused(start: u64, why: &str) -> JoinError {
    JoinError::Image { start: usize::try_from(start).unwrap_or(usize::MAX), why: why.to_owned() }
}
