//! How an allocation lies in the heap: where its blocks are for programs, and where their content is in the frames.

use comb_coherence::Block;

use crate::space::{HEAP_BYTES, HEAP_START, PAGE_BYTES, SMALLEST_BLOCK_BYTES, index, state_address};

/// The largest block: sixteen pages are granted or taken at once.
pub const LARGEST_BLOCK_BYTES: usize = 65536;

const PAGE: u64 = PAGE_BYTES as u64;

/// What the MMU guards apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Grain {
    /// Whole pages: blocks are neighbours in the heap, and a block is a page at least.
    Pages,
    /// Blocks smaller than a page. Several share a page frame, and each is reached through a page of addresses of its own, so that
    /// the MMU guards it alone: `4096 / block_bytes` times as many addresses, and as many entries of the TLB.
    Minipages,
    /// Blocks of any size, neighbours in the heap. The MMU stops who comes to a page first; from then on loads and stores are checked by the
    /// program's own code, see [`crate::software`].
    Checked,
    /// Whole pages: the MMU stops loads, and stores are checked by the program's own code.
    CheckedStores,
}

impl Grain {
    /// Whether a program's own code looks at the state table before it stores.
    pub fn is_checked(self) -> bool {
        matches!(self, Self::Checked | Self::CheckedStores)
    }
}

/// Why there is no such layout. The caller asked for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LayoutError {
    /// It would be nowhere.
    #[error("an allocation has a byte at least")]
    Empty,
    /// Allocations begin at pages.
    #[error("the offset or address {0:#x} is not a multiple of 4096")]
    Offset(u64),
    /// Blocks have a size that can be.
    #[error("a block of {0} bytes: it must be a power of two, from 128 to 65536")]
    BlockBytes(u32),
    /// A page of addresses cannot guard more than a page.
    #[error(
        "a block of {0} bytes with a minipage of its own: at most 2048; larger ones are guarded by pages"
    )]
    NoMinipage(u32),
    /// It does not fit.
    #[error("{bytes} bytes at the offset {offset:#x} reach beyond the heap")]
    BeyondHeap {
        /// Where it would begin.
        offset: u64,
        /// How long it would be.
        bytes: u64,
    },
}

/// An allocation's place and shape. Two cells that have the same four numbers mean the same addresses and the same frames.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Layout {
    /// Of its first byte.
    start: usize,
    offset: u64,
    bytes: u64,
    /// As the protocol sees it.
    block_bytes: u32,
    grain: Grain,
    /// `blocks / views`, rounded up, of minipages: what a view is long.
    frame_pages: u64,
}

impl Layout {
    /// An allocation of `bytes` at `offset` in the heap. Where the MMU guards pages, blocks smaller than a page become a page.
    pub fn new(offset: u64, bytes: u64, block_bytes: u32, grain: Grain) -> Result<Self, LayoutError> {
        Self::of_image(HEAP_START.wrapping_add(index(offset)), offset, bytes, block_bytes, grain)
    }

    /// The same for memory that is not in the heap, but anywhere from `start` on, as a program's own variables are. Its content has
    /// its place in the frames all the same.
    pub fn of_image(
        start: usize,
        offset: u64,
        bytes: u64,
        block_bytes: u32,
        grain: Grain,
    ) -> Result<Self, LayoutError> {
        if bytes == 0 {
            return Err(LayoutError::Empty);
        }
        if let Some(uneven) = [offset, start as u64].into_iter().find(|at| !at.is_multiple_of(PAGE)) {
            return Err(LayoutError::Offset(uneven));
        }
        let possible = SMALLEST_BLOCK_BYTES..=LARGEST_BLOCK_BYTES;
        if !block_bytes.is_power_of_two() || !possible.contains(&(block_bytes as usize)) {
            return Err(LayoutError::BlockBytes(block_bytes));
        }
        let beyond = LayoutError::BeyondHeap { offset, bytes };
        if bytes > HEAP_BYTES {
            return Err(beyond);
        }
        let (block_bytes, times) = match grain {
            Grain::Pages | Grain::CheckedStores => (block_bytes.max(4096), 1),
            Grain::Minipages if block_bytes > 2048 => return Err(LayoutError::NoMinipage(block_bytes)),
            Grain::Minipages => (block_bytes, PAGE / u64::from(block_bytes)),
            Grain::Checked => (block_bytes, 2),
        };
        let blocks = bytes.div_ceil(u64::from(block_bytes));
        let frame_pages = (blocks * u64::from(block_bytes)).div_ceil(PAGE);
        let layout = Self { start, offset, bytes, block_bytes, grain, frame_pages };
        let span = frame_pages.checked_mul(PAGE * times).ok_or(beyond)?;
        if offset.checked_add(span).is_none_or(|end| end > HEAP_BYTES) {
            return Err(beyond);
        }
        Ok(layout)
    }

    /// Where it begins in the heap, and in the frames.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// What was asked for.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What the MMU guards apart.
    pub fn grain(&self) -> Grain {
        self.grain
    }

    /// Where it begins for programs.
    pub fn start(&self) -> usize {
        self.start
    }

    /// A block's length, as the protocol sees it: at least a page where the MMU guards pages.
    pub fn block_bytes(&self) -> usize {
        self.block_bytes as usize
    }

    /// How many blocks it has.
    pub fn blocks(&self) -> u64 {
        self.bytes.div_ceil(u64::from(self.block_bytes))
    }

    /// How many bytes of the heap its addresses take. Those of [`Grain::Checked`] have as many again behind them, which are nobody's: at
    /// those offsets the frames contain what its invalid blocks contain.
    pub fn span(&self) -> u64 {
        match self.grain {
            Grain::Checked => 2 * self.frame_bytes(),
            _ => self.mapped_bytes(),
        }
    }

    /// How many addresses are mapped.
    pub(crate) fn mapped_bytes(&self) -> u64 {
        self.frame_bytes() * self.views()
    }

    /// How many bytes its content takes in the frames, from its offset on.
    pub fn frame_bytes(&self) -> u64 {
        self.frame_pages * PAGE
    }

    /// The address of a block's first byte, as programs see it.
    pub fn address(&self, block: Block) -> usize {
        debug_assert!(block.0 < self.blocks());
        let relative = match self.grain {
            Grain::Pages | Grain::Checked | Grain::CheckedStores => block.0 * u64::from(self.block_bytes),
            Grain::Minipages => {
                let (view, page) = (block.0 % self.views(), block.0 / self.views());
                (view * self.frame_pages + page) * PAGE + view * u64::from(self.block_bytes)
            }
        };
        self.start + index(relative)
    }

    /// The block that lies at an address; none where the allocation has no block, as between minipages.
    pub fn block_at(&self, address: usize) -> Option<Block> {
        let relative = address.checked_sub(self.start)? as u64;
        let block = match self.grain {
            Grain::Pages | Grain::Checked | Grain::CheckedStores => relative / u64::from(self.block_bytes),
            Grain::Minipages => {
                let (view, page) = (relative / PAGE / self.frame_pages, relative / PAGE % self.frame_pages);
                if relative % PAGE / u64::from(self.block_bytes) != view {
                    return None;
                }
                page * self.views() + view
            }
        };
        (block < self.blocks()).then_some(Block(block))
    }

    /// Where a block's content begins in the frames.
    pub fn frame(&self, block: Block) -> u64 {
        debug_assert!(block.0 < self.blocks());
        self.offset + block.0 * u64::from(self.block_bytes)
    }

    /// Where the state table speaks for what is at a place in the frames. Of minipages it speaks for their place in the frames, as if they
    /// were neighbours.
    #[inline]
    pub(crate) fn state(&self, frame: u64) -> usize {
        debug_assert!(frame >= self.offset && frame <= self.offset + self.frame_bytes());
        state_address(self.start) + index(frame - self.offset) / SMALLEST_BLOCK_BYTES
    }

    /// Whether blocks are neighbours in the heap.
    pub(crate) fn is_in_a_row(&self) -> bool {
        self.grain != Grain::Minipages
    }

    /// In how many mappings its frames are reached.
    pub(crate) fn views(&self) -> u64 {
        match self.grain {
            Grain::Pages | Grain::Checked | Grain::CheckedStores => 1,
            Grain::Minipages => PAGE / u64::from(self.block_bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRAINS: [(Grain, u32); 10] = [
        (Grain::Checked, 128),
        (Grain::Checked, 1024),
        (Grain::Checked, 65536),
        (Grain::CheckedStores, 4096),
        (Grain::Pages, 128),
        (Grain::Pages, 4096),
        (Grain::Pages, 65536),
        (Grain::Minipages, 128),
        (Grain::Minipages, 512),
        (Grain::Minipages, 2048),
    ];

    #[test]
    fn every_byte_of_a_block_is_found_at_its_address_and_every_frame_is_one_blocks() {
        for (grain, block_bytes) in GRAINS {
            for bytes in [1, 127, 4096, 5000, 65536 * 3 + 1] {
                let layout = Layout::new(8192, bytes, block_bytes, grain).unwrap();
                let span = HEAP_START + 8192..HEAP_START + 8192 + index(layout.span());
                let mut frames = std::collections::HashSet::new();
                for block in (0..layout.blocks()).map(Block) {
                    let first = layout.address(block);
                    let last = first + layout.block_bytes() - 1;
                    assert!(span.contains(&first) && span.contains(&last));
                    assert_eq!(layout.block_at(first), Some(block));
                    assert_eq!(layout.block_at(last), Some(block));
                    assert_ne!(layout.block_at(last + 1), Some(block));
                    assert_ne!(layout.block_at(first - 1), Some(block));
                    assert!(frames.insert(layout.frame(block)));
                    assert_eq!(index(layout.frame(block)) % PAGE_BYTES, first % PAGE_BYTES);
                    assert!(layout.frame(block) + layout.block_bytes() as u64 <= 8192 + layout.frame_bytes());
                }
                assert!(layout.blocks() * layout.block_bytes() as u64 >= bytes);
            }
        }
    }

    #[test]
    fn minipages_of_one_frame_have_a_page_of_addresses_each() {
        let layout = Layout::new(0, 128 * 64, 128, Grain::Minipages).unwrap();
        assert_eq!((layout.span(), layout.frame_bytes()), (64 * 4096, 2 * 4096));
        let pages: std::collections::HashSet<usize> =
            (0..64).map(|block| layout.address(Block(block)) / PAGE_BYTES).collect();
        assert_eq!(pages.len(), 64);
        assert_eq!(layout.address(Block(0)), HEAP_START);
        assert_eq!(layout.address(Block(1)), HEAP_START + 2 * 4096 + 128);
        assert_eq!(layout.address(Block(32)), HEAP_START + 4096);
        assert_eq!(
            layout.block_at(HEAP_START + 128),
            None,
            "that byte is another block's, and reached elsewhere"
        );
    }

    #[test]
    fn what_cannot_be_laid_out_is_refused() {
        let new = Layout::new;
        assert_eq!(new(0, 0, 4096, Grain::Pages), Err(LayoutError::Empty));
        assert_eq!(new(100, 1, 4096, Grain::Pages), Err(LayoutError::Offset(100)));
        for block_bytes in [0, 64, 100, 131_072] {
            assert_eq!(new(0, 1, block_bytes, Grain::Pages), Err(LayoutError::BlockBytes(block_bytes)));
        }
        assert_eq!(new(0, 1, 4096, Grain::Minipages), Err(LayoutError::NoMinipage(4096)));
        assert!(new(0, HEAP_BYTES, 4096, Grain::Pages).is_ok());
        for (offset, bytes, grain) in [
            (4096, HEAP_BYTES, Grain::Pages),
            (0, u64::MAX, Grain::Pages),
            (HEAP_BYTES - 4096, 4097, Grain::Pages),
            (u64::MAX - 4095, 1, Grain::Pages),
            (0, HEAP_BYTES / 32 + 1, Grain::Minipages),
        ] {
            let refused = new(offset, bytes, 128, grain);
            assert_eq!(refused, Err(LayoutError::BeyondHeap { offset, bytes }));
        }
    }
}
