//! Why a call is refused. One that is has changed nothing.

use super::groups::Access;
use super::ids::{KernelId, SpaceId, Tag, ThreadId};

/// Why a call is refused. An identifier that is stale is nobody's fault: what it named may have been replaced a moment ago, and the caller
/// loads it anew and tries again. Everything else is the caller's fault, unless it says otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error, serde::Serialize, serde::Deserialize)]
pub enum Refused {
    /// The kernel was replaced or unloaded, or never was.
    #[error("the kernel {0:?} is not loaded, or not any more")]
    StaleKernel(KernelId),
    /// The space was replaced or unloaded, or never was.
    #[error("the space {0:?} is not loaded, or not any more")]
    StaleSpace(SpaceId),
    /// The thread was replaced or unloaded, or never was.
    #[error("the thread {0:?} is not loaded, or not any more")]
    StaleThread(ThreadId),
    /// The page has no mapping, or not any more. Nobody's fault, as with identifiers.
    #[error("page {page:#x} of {space:?} is not mapped")]
    NotMapped {
        /// The space.
        space: SpaceId,
        /// The page.
        page: u64,
    },
    /// Another kernel's space.
    #[error("the space {0:?} is another kernel's")]
    ForeignSpace(SpaceId),
    /// Another kernel's thread.
    #[error("the thread {0:?} is another kernel's")]
    ForeignThread(ThreadId),
    /// Only the first kernel may do this.
    #[error("only the first kernel may do this")]
    NotFirst,
    /// The first kernel is always there, with all that it was given.
    #[error("the first kernel stays as it is")]
    IsFirst,
    /// There is no such page.
    #[error("there is no page {0:#x}")]
    NoPage(u64),
    /// There is no such frame.
    #[error("there is no frame {0:#x}")]
    NoFrame(u64),
    /// There is no such page group.
    #[error("there is no page group {0}")]
    NoGroup(u64),
    /// Some are none, or named twice, or not in ascending order.
    #[error("these are no page groups in ascending order")]
    NoGroups,
    /// Less memory was put away under this name.
    #[error("under the name {} no memory of {groups} page groups was put away", name.0)]
    NotAway {
        /// The name.
        name: Tag,
        /// How many groups were to have it.
        groups: u32,
    },
    /// The kernel has less access to the frame than this takes.
    #[error("frame {frame:#x} takes {wanted:?}, which the kernel has not")]
    NoAccess {
        /// Which frame.
        frame: u64,
        /// What the kernel would need.
        wanted: Access,
    },
    /// The kernel's threads cannot have so high a priority.
    #[error("priority {asked} is above {maximum}, the highest that this kernel has")]
    Priority {
        /// What was asked.
        asked: u8,
        /// What the kernel has.
        maximum: u8,
    },
    /// The kernel has locked all that it may. It can unload one, or load this one unlocked.
    #[error("the kernel has locked as many objects of this kind as it may")]
    LockLimit,
    /// All kernels together could lock a whole table, and nothing would be left to replace.
    #[error("with these limits all kernels together could lock a whole table")]
    TooManyLocks,
    /// No kernel can have this descriptor.
    #[error(transparent)]
    Descriptor(#[from] DescriptorError),
    /// The tables cannot have these sizes.
    #[error(transparent)]
    Sizes(#[from] SizesError),
    /// Too many writebacks wait for the caller. It takes some, and tries again.
    #[error("{waiting} writebacks wait to be taken first")]
    Behind {
        /// So many.
        waiting: usize,
    },
    /// The mapping has no signal thread that could be exchanged for another.
    #[error("page {page:#x} of {space:?} has no signal thread")]
    NoSignal {
        /// The space.
        space: SpaceId,
        /// The page.
        page: u64,
    },
    /// The thread has as many signal pages as one may have. Loading the mapping anew would replace another of them.
    #[error("{0:?} has too many signal pages for one more without replacement")]
    Crowded(ThreadId),
}

/// Why no kernel can have a descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error, serde::Serialize, serde::Deserialize)]
pub enum DescriptorError {
    /// The array is for another memory.
    #[error("{0} page groups are not those of this memory")]
    Groups(u64),
    /// More than all of a processor.
    #[error("{0} % of a processor is more than there is")]
    Share(u8),
}

/// Why tables cannot have some sizes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error, serde::Serialize, serde::Deserialize)]
pub enum SizesError {
    /// From 2 to 65,536.
    #[error("there cannot be {0} kernels")]
    Kernels(u32),
    /// From 1 to 4,096.
    #[error("there cannot be {0} spaces")]
    Spaces(u32),
    /// From 1 to 65,536.
    #[error("there cannot be {0} threads")]
    Threads(u32),
    /// From 3 to 16,777,215.
    #[error("there cannot be {0} mapping records")]
    Mappings(u32),
    /// Up to 1,048,576.
    #[error("{0} writebacks cannot wait for each kernel")]
    Writebacks(u32),
    /// Up to 16,777,216.
    #[error("there cannot be {0} frames")]
    Frames(u64),
}
