//! How much is held.

use super::errors::SizesError;

/// Frames are named by 24 bits: 64 GiB of 4 KiB each.
pub const MAXIMUM_FRAMES: u64 = 1 << 24;
/// Pages of a space are named by 36 bits, which is all that 48-bit addresses have.
pub const MAXIMUM_PAGES: u64 = 1 << 36;
/// A record names its space by 12 bits.
const MAXIMUM_SPACES: u32 = 1 << 12;
/// Slots have 16 bits.
const MAXIMUM_SLOTS: u32 = 1 << 16;
/// Links have 24 bits, and one value says that there is none.
const MAXIMUM_MAPPINGS: u32 = (1 << 24) - 1;
/// Room for them is kept for every kernel.
const MAXIMUM_WRITEBACKS: u32 = 1 << 20;
/// A mapping, its signal thread and the source of its copy have a record each.
pub(super) const RECORDS_OF_A_MAPPING: u32 = 3;

/// How many objects of each kind can be loaded at a time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Sizes {
    /// At least two, so that one can always be replaced that is not the first.
    pub kernels: u32,
    /// Up to 4,096.
    pub spaces: u32,
    /// Up to 65,536.
    pub threads: u32,
    /// Records of mappings: one each, one more for a signal thread, and one more for the source of a copy.
    pub mappings: u32,
    /// So many writebacks may wait for a kernel before its loads are refused.
    pub writebacks: u32,
    /// What hashing multiplies by. Whoever does not know it cannot choose pages so that they collide.
    pub seed: u64,
}

impl Default for Sizes {
    /// The numbers of the paper's Table 1. A kernel that has let a thousand writebacks wait is not just slow.
    fn default() -> Self {
        Self {
            kernels: 16,
            spaces: 64,
            threads: 256,
            mappings: 65_536,
            writebacks: 1_024,
            seed: 0x9e37_79b9_7f4a_7c15,
        }
    }
}

impl Sizes {
    /// Whether tables can have these sizes.
    pub fn check(&self) -> Result<(), SizesError> {
        let within = |size, least, most, error| {
            if (least..=most).contains(&size) { Ok(()) } else { Err(error) }
        };
        within(self.kernels, 2, MAXIMUM_SLOTS, SizesError::Kernels(self.kernels))?;
        within(self.spaces, 1, MAXIMUM_SPACES, SizesError::Spaces(self.spaces))?;
        within(self.threads, 1, MAXIMUM_SLOTS, SizesError::Threads(self.threads))?;
        within(self.mappings, RECORDS_OF_A_MAPPING, MAXIMUM_MAPPINGS, SizesError::Mappings(self.mappings))?;
        within(self.writebacks, 0, MAXIMUM_WRITEBACKS, SizesError::Writebacks(self.writebacks))
    }
}
