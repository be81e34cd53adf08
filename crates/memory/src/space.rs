//! Where shared memory lies: at the same addresses in every cell, so that a pointer into it means the same everywhere.

use std::ops::Range;

/// The heap's first address. Neither loaders nor allocators nor stacks come here by themselves.
pub const HEAP_START: usize = 0x1000_0000_0000;

/// The heap's length, nearly 32 TiB of addresses, which cost nothing until they are touched: up to the state table.
pub const HEAP_BYTES: u64 = 0x1fe0_0000_0000;

/// Offsets at the heap's end that no allocation of a program gets: there is the content of what has addresses outside the heap.
pub const IMAGES_BYTES: u64 = 4 << 30;

/// The state table's first address, which compiled checks have as a constant: the byte for an address is at
/// `TABLE_START + address / 128`.
pub const TABLE_START: usize = 0x2fe0_0000_0000;

/// The table speaks for all addresses that a program can have: for those that nobody shares it says zero, "load and store".
pub const TABLE_BYTES: usize = (1 << 47) / SMALLEST_BLOCK_BYTES;

/// Where the state table speaks for the heap.
pub const STATE_START: usize = state_address(HEAP_START);

/// Where the state table speaks for an address.
pub const fn state_address(address: usize) -> usize {
    TABLE_START + address / SMALLEST_BLOCK_BYTES
}

/// The grain of mappings.
pub const PAGE_BYTES: usize = 4096;

/// The smallest block: what one byte of the state table speaks for.
pub const SMALLEST_BLOCK_BYTES: usize = 128;

/// The heap's addresses.
pub(crate) const HEAP: Range<usize> = HEAP_START..HEAP_START + index(HEAP_BYTES);

/// A pointer to an address that another cell, or a number in a message, speaks of. It proves nothing: whether there is memory, and
/// whose, says the allocation.
pub fn pointer(address: u64) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(usize::try_from(address).expect("addresses have 64 bits"))
}

/// An offset or a length in the heap, for addresses.
#[expect(clippy::cast_possible_truncation, reason = "addresses have 64 bits, or there is no such heap")]
pub(crate) const fn index(bytes: u64) -> usize {
    bytes as usize
}
