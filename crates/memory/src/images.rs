//! Memory outside the heap that is shared where it lies: a program's own variables.
//!
//! An image has an allocation's blocks and rights, and its content has a place in the frames, near their end ([`crate::space::IMAGES_BYTES`]). Only
//! its addresses are its own. They are declared once, before any of it is mapped: handlers of signals look here whose an address is.
#![expect(unsafe_code, reason = "looks at a program's variables as bytes")]

use std::ops::Range;
use std::sync::OnceLock;

use crate::layout::Layout;
use crate::memory::Memory;
use crate::space::{HEAP, HEAP_BYTES, HEAP_START, IMAGES_BYTES, PAGE_BYTES, index};

/// Memory that lies outside the heap.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Image {
    /// Its addresses: whole pages.
    pub addresses: Range<usize>,
    /// Where its content begins in the frames.
    pub offset: u64,
}

/// Why memory cannot be shared where it lies. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ImageError {
    /// Whose it would be nobody could tell.
    #[error("it overlaps with other shared memory")]
    Overlap,
    /// Rights are a page's.
    #[error("it is not of whole pages")]
    Uneven,
    /// There is no more room for their content.
    #[error("so much memory outside the heap is not to be had")]
    TooLarge,
    /// A process declares them once.
    #[error("this process has said already what it shares outside the heap")]
    Declared,
}

/// By address.
static IMAGES: OnceLock<Vec<Image>> = OnceLock::new();

/// Says what is shared outside the heap: addresses, and how many bytes each takes of the frames. Where its content is, in the same order; the same
/// in every process that declares the same.
pub fn declare(wanted: &[(Range<usize>, u64)]) -> Result<Vec<Image>, ImageError> {
    let images = placed(wanted)?;
    let mut sorted = images.clone();
    sorted.sort_by_key(|image| image.addresses.start);
    IMAGES.set(sorted).map_err(|_| ImageError::Declared)?;
    Ok(images)
}

fn placed(wanted: &[(Range<usize>, u64)]) -> Result<Vec<Image>, ImageError> {
    let mut images: Vec<Image> = Vec::new();
    let mut next = HEAP_BYTES - IMAGES_BYTES;
    for (addresses, span) in wanted {
        let is_even = |address: usize| address.is_multiple_of(PAGE_BYTES);
        if addresses.is_empty() || !is_even(addresses.start) || !is_even(addresses.end) {
            return Err(ImageError::Uneven);
        }
        let meets = |others: &Range<usize>| addresses.start < others.end && others.start < addresses.end;
        if meets(&HEAP) || images.iter().any(|image| meets(&image.addresses)) {
            return Err(ImageError::Overlap);
        }
        let end = next.checked_add(*span).filter(|&end| end <= HEAP_BYTES).ok_or(ImageError::TooLarge)?;
        images.push(Image { addresses: addresses.clone(), offset: next });
        next = end.next_multiple_of(PAGE_BYTES as u64);
    }
    Ok(images)
}

/// Where in the frames that is what an address shows, were there an allocation: of the heap and of images. None of private memory.
#[inline]
pub fn place(address: usize) -> Option<u64> {
    if HEAP.contains(&address) {
        return Some((address - HEAP_START) as u64);
    }
    let images = IMAGES.get()?;
    let at = images.partition_point(|image| image.addresses.end <= address);
    let image = images.get(at).filter(|image| image.addresses.contains(&address))?;
    Some(image.offset + (address - image.addresses.start) as u64)
}

/// Whether a range of addresses is shared memory, all of it in one piece.
pub(crate) fn covers(address: usize, bytes: usize) -> bool {
    if HEAP.contains(&address) {
        return bytes <= HEAP.end - address;
    }
    let Some(images) = IMAGES.get() else { return false };
    let at = images.partition_point(|image| image.addresses.end <= address);
    images
        .get(at)
        .is_some_and(|image| image.addresses.contains(&address) && bytes <= image.addresses.end - address)
}

/// Copies what is in such memory, before anything of it is mapped, to where its content will be: of some of its blocks. Pages of zeros are left out,
/// and take no frames.
///
/// # Safety
/// The layout is of an image that was declared and is mapped readable as the program's own memory still, and no thread stores there.
pub unsafe fn take_in(memory: &Memory, layout: &Layout, blocks: Range<u64>) {
    for block in blocks.map(crate::Block) {
        let start = layout.address(block);
        let bytes = layout.block_bytes().min(layout.start() + index(layout.bytes()) - start);
        // SAFETY: the caller's promise.
        let content = unsafe { std::slice::from_raw_parts(crate::pointer(start as u64).cast_const(), bytes) };
        if content.iter().any(|&byte| byte != 0) {
            memory.fill(layout, block, content);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_found_where_its_content_is() {
        let wanted = [
            (0x7fff_0000_0000..0x7fff_0000_3000, 0x3000),
            (0x40_0000..0x40_1000, 0x1000),
            (0x40_1000..0x40_3000, 0x2000),
        ];
        let images = declare(&wanted).expect("nothing is wrong with them");
        let first = HEAP_BYTES - IMAGES_BYTES;
        assert_eq!(images.iter().map(|image| image.offset - first).collect::<Vec<_>>(), [0, 0x3000, 0x4000]);
        for (address, offset) in [
            (0x7fff_0000_0000, Some(first)),
            (0x7fff_0000_2fff, Some(first + 0x2fff)),
            (0x7fff_0000_3000, None),
            (0x40_0fff, Some(first + 0x3fff)),
            (0x40_1000, Some(first + 0x4000)),
            (0x40_2fff, Some(first + 0x5fff)),
            (0x40_3000, None),
            (0x3f_ffff, None),
            (0, None),
            (usize::MAX, None),
            (HEAP_START, Some(0)),
            (HEAP_START + 77, Some(77)),
            (HEAP_START - 1, None),
        ] {
            assert_eq!(place(address), offset, "{address:#x}");
            assert_eq!(covers(address, 1), offset.is_some());
        }
        assert!(covers(0x40_1000, 0x2000) && !covers(0x40_1000, 0x2001) && !covers(0x40_0000, 0x1001));
        assert_eq!(declare(&wanted), Err(ImageError::Declared));
    }

    #[test]
    fn what_cannot_be_shared_is_refused() {
        let page = |start: usize| (start..start + 4096, 4096);
        assert_eq!(placed(&[page(0x1000), page(0x1000)]), Err(ImageError::Overlap));
        assert_eq!(placed(&[page(HEAP_START)]), Err(ImageError::Overlap));
        assert_eq!(placed(&[page(0x1001)]), Err(ImageError::Uneven));
        assert_eq!(placed(&[(0x1000..0x1000, 0)]), Err(ImageError::Uneven));
        assert_eq!(placed(&[(0x1000..0x2000, IMAGES_BYTES + 1)]), Err(ImageError::TooLarge));
        assert_eq!(placed(&[page(0x1000), (0x2000..0x3000, u64::MAX)]), Err(ImageError::TooLarge));
    }
}
