//! What a program asks for when it allocates, and what all cells know of it then.

use comb_memory::{Grain, Layout, LayoutError};
use serde::{Deserialize, Serialize};

/// How an allocation is shared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Terms {
    /// The grain at which cells have rights: a power of two from 128 to 65,536. By [`Guard::Page`] and [`Guard::Hybrid`] not less than 4096.
    pub block_bytes: u32,
    /// What stops a load or store that has no right.
    pub guard: Guard,
    /// Who may do what when, and who is told.
    pub sharing: Sharing,
    /// Where its blocks live.
    pub placement: Placement,
    /// It may be larger than memory and disk: what is never touched costs nothing.
    pub sparse: bool,
    /// Blocks get another home when one component alone keeps missing them. Only where one writes at a time: [`Sharing::may_move`].
    pub moves: bool,
}

impl Default for Terms {
    /// One writer or many readers of each page, which lives where it is touched first.
    fn default() -> Self {
        Self {
            block_bytes: 4096,
            guard: Guard::Page,
            sharing: Sharing::Stache,
            placement: Placement::FirstTouch,
            sparse: false,
            moves: false,
        }
    }
}

/// What stops loads and stores. (Blizzard §2)
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Guard {
    /// The MMU, at page grain: for any code, and for arrays.
    Page,
    /// The MMU, for blocks of up to 2 KB that have a page of addresses each: for objects that many cells store into. One
    /// block is not the neighbour of the next; see [`crate::Task::objects`].
    Mmu,
    /// Checks in the program's own code, at any grain: for code that was compiled for it, and accesses by [`comb_memory::software`]. Any other
    /// that touches such memory finds what is not there, and stores what nobody sees. (Blizzard-S)
    Check,
    /// The MMU for loads, and checks in the program's own code for stores. (Blizzard-ES)
    Hybrid,
}

impl Guard {
    fn grain(self) -> Grain {
        match self {
            Self::Page => Grain::Pages,
            Self::Mmu => Grain::Minipages,
            Self::Check => Grain::Checked,
            Self::Hybrid => Grain::CheckedStores,
        }
    }

    /// Whether a protocol can work over it: nothing tells one of many writers which of a checked block's bytes a program has stored to.
    pub(crate) fn suits(self, sharing: Sharing) -> bool {
        !self.grain().is_checked() || !matches!(sharing, Sharing::Release | Sharing::Update)
    }
}

/// Protocols. `comb-coherence` says what each promises.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Sharing {
    /// One writer or many readers; sequentially consistent.
    Stache,
    /// One holder, who may write: for what is read, changed and passed on.
    Migratory,
    /// Many writers; others' copies are dropped when a cell synchronises.
    Release,
    /// Many writers; others' copies are changed when a cell synchronises.
    Update,
    /// A protocol of the program's own, by the number under which each component has registered it.
    Own(u16),
}

impl Sharing {
    /// Whether blocks may get another home than they were born with: where many write, they stay.
    pub fn may_move(self) -> bool {
        !matches!(self, Self::Release | Self::Update)
    }

    /// Whether what was stored is found by others only when somebody synchronises.
    pub(crate) fn is_published(self) -> bool {
        !matches!(self, Self::Stache | Self::Migratory)
    }
}

/// Where blocks live.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Placement {
    /// Each extent with the component that touches it first.
    FirstTouch,
    /// Extent after extent, with one component after the other.
    RoundRobin,
    /// All of it with one.
    At(u32),
}

/// Blocks that get their home together: large enough that the table of homes is small beside them, small enough that an array's
/// parts can live apart.
pub const EXTENT_BYTES: u64 = 64 << 10;

/// A piece of the heap that was allocated at once, as all components know it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Allocation {
    /// Where it begins in the heap.
    pub offset: u64,
    /// As asked for.
    pub bytes: u64,
    /// Which allocation at that place: what is said of an earlier one is refused.
    pub generation: u32,
    /// Who has made it, and says where extents live that are placed by first touch.
    pub creator: u32,
    /// How it is shared.
    pub terms: Terms,
    /// Where its addresses begin, of memory outside the heap; 0 of all other. The offset is of its content alone, then.
    /// Nobody is told: all components have the same.
    #[serde(skip)]
    pub image: u64,
}

impl Allocation {
    /// How it lies in the heap.
    pub(crate) fn layout(&self) -> Result<Layout, LayoutError> {
        match usize::try_from(self.image) {
            Ok(0) | Err(_) => self.terms.layout(self.offset, self.bytes),
            Ok(start) => self.terms.layout_at(start, self.offset, self.bytes),
        }
    }
}

impl Terms {
    /// How so many bytes lie at a place.
    pub(crate) fn layout(&self, offset: u64, bytes: u64) -> Result<Layout, LayoutError> {
        Layout::new(offset, bytes, self.block_bytes, self.guard.grain())
    }

    /// The same outside the heap, with the content at an offset.
    pub(crate) fn layout_at(&self, start: usize, offset: u64, bytes: u64) -> Result<Layout, LayoutError> {
        Layout::of_image(start, offset, bytes, self.block_bytes, self.guard.grain())
    }
}
