//! Where the bytes of a message stand when they do not fit in its slot, and how a receiver sees them.

use std::collections::VecDeque;

use crate::ring::{CONTENT_WORDS, INLINE_BYTES, SLOT_WORDS};
use crate::segment::SharedRange;
use crate::sync::{AtomicU64, Ordering};

/// Payloads start at multiples of a cache line: a line never carries two messages.
const ALIGNMENT: u32 = 64;

/// The producer's own book of its payload area: which bytes are still unread by the consumer.
///
/// Payloads are read in the order in which they were sent, so free space is one range that moves round the area.
/// Whenever everything has been read, the area is used from its start again: lines that were used a moment ago are
/// still in both caches, which makes a 1 KB round trip 1.4 × faster here than walking through the area.
#[derive(Debug)]
pub(crate) struct PayloadArea {
    bytes: u32,
    head: u32,
    unread: VecDeque<Extent>,
}

#[derive(Clone, Copy, Debug)]
struct Extent {
    /// The message that carries it.
    sequence: u32,
    start: u32,
}

impl PayloadArea {
    pub(crate) fn new(bytes: u32, slots: u32) -> Self {
        Self { bytes, head: 0, unread: VecDeque::with_capacity(slots as usize) }
    }

    /// The longest payload that it can ever take.
    pub(crate) fn capacity(&self) -> u32 {
        self.bytes
    }

    /// Frees what messages up to `acknowledged` carried.
    #[inline]
    pub(crate) fn reclaim(&mut self, acknowledged: u32) {
        while let Some(first) = self.unread.front() {
            if acknowledged.wrapping_sub(first.sequence) > u32::MAX / 2 {
                break;
            }
            self.unread.pop_front();
        }
        if self.unread.is_empty() {
            self.head = 0;
        }
    }

    /// Finds room for the payload of message `sequence`.
    #[inline]
    pub(crate) fn allocate(&mut self, sequence: u32, bytes: u32) -> Option<u32> {
        let length = bytes.checked_next_multiple_of(ALIGNMENT)?;
        let start = match self.unread.front() {
            None => (length <= self.bytes).then_some(0),
            // Free space runs from the head to the end and again from 0 to the oldest unread payload. A head that
            // met the oldest would look like an empty area: one line always stays between them.
            Some(oldest) if oldest.start < self.head => {
                if length <= self.bytes - self.head {
                    Some(self.head)
                } else {
                    (length < oldest.start).then_some(0)
                }
            }
            Some(oldest) => (self.head + length < oldest.start).then_some(self.head),
        }?;
        self.head = start + length;
        self.unread.push_back(Extent { sequence, start });
        Some(start)
    }
}

/// The bytes of a message as its receiver sees them.
#[derive(Clone, Copy, Debug)]
pub enum Payload<'a> {
    /// A small message, still in the sender's slot, which it may write at any time: copy first, then check, then use.
    Inline(Inline<'a>),
    /// In private memory: nobody changes it any more.
    Private(&'a [u8]),
    /// Still in the sender's memory, which it may write at any time: copy first, then check, then use.
    Shared(SharedRange<'a>),
}

/// Up to 56 bytes, as the eight-byte words that they travelled in. Read where they stand: a copy of all words in between
/// is some nanoseconds of a round trip.
#[derive(Clone, Copy, Debug)]
pub struct Inline<'a> {
    /// The header first, which was read before and is not read again.
    slot: &'a [AtomicU64; SLOT_WORDS],
    length: u8,
}

impl<'a> Inline<'a> {
    /// `length` is at most [`INLINE_BYTES`].
    #[inline]
    pub(crate) fn new(slot: &'a [AtomicU64; SLOT_WORDS], length: u8) -> Self {
        debug_assert!(usize::from(length) <= INLINE_BYTES);
        Self { slot, length }
    }

    /// The words that hold the message, each read once; what lies behind its end is undefined.
    #[inline]
    pub fn words(&self) -> [u64; CONTENT_WORDS] {
        self.first_words()
    }

    /// The first `N` of them, at most seven.
    #[inline]
    pub(crate) fn first_words<const N: usize>(&self) -> [u64; N] {
        std::array::from_fn(|index| self.slot[1 + index].load(Ordering::Relaxed))
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        usize::from(self.length)
    }

    #[inline]
    pub(crate) fn copy_to(&self, into: &mut [u8]) {
        assert!(into.len() <= self.len());
        let (whole, tail) = into.as_chunks_mut::<8>();
        let mut words = self.slot[1..].iter();
        for (chunk, word) in whole.iter_mut().zip(&mut words) {
            *chunk = word.load(Ordering::Relaxed).to_le_bytes();
        }
        if !tail.is_empty()
            && let Some(word) = words.next()
        {
            tail.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes()[..tail.len()]);
        }
    }

    fn copy_part(&self, at: usize, into: &mut [u8]) {
        let bytes = self.words().map(u64::to_le_bytes);
        into.copy_from_slice(&bytes.as_flattened()[..self.len()][at..at + into.len()]);
    }
}

impl Payload<'_> {
    /// Length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            Self::Inline(inline) => inline.len(),
            Self::Private(bytes) => bytes.len(),
            Self::Shared(range) => range.len(),
        }
    }

    /// Whether the message has no content.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies the first `into.len()` bytes out. Panics if there are fewer.
    #[inline]
    pub fn copy_to(&self, into: &mut [u8]) {
        match self {
            Self::Inline(inline) => inline.copy_to(into),
            Self::Private(bytes) => into.copy_from_slice(&bytes[..into.len()]),
            Self::Shared(range) => range.copy_to(into),
        }
    }

    /// As [`Payload::copy_to`], from byte `at` on.
    #[inline]
    pub(crate) fn copy_part(&self, at: usize, into: &mut [u8]) {
        match self {
            _ if at == 0 => self.copy_to(into),
            Self::Inline(inline) => inline.copy_part(at, into),
            Self::Private(bytes) => into.copy_from_slice(&bytes[at..at + into.len()]),
            Self::Shared(range) => range.copy_part(at, into),
        }
    }

    /// A private copy.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len()];
        self.copy_to(&mut bytes);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_area_that_has_been_read_starts_over() {
        let mut area = PayloadArea::new(4096, 8);
        assert_eq!(area.allocate(1, 1000), Some(0));
        assert_eq!(area.allocate(2, 1000), Some(1024));
        area.reclaim(1);
        assert_eq!(area.allocate(3, 64), Some(2048), "message 2 is still unread");
        area.reclaim(3);
        assert_eq!(area.allocate(4, 64), Some(0));
    }

    #[test]
    fn what_can_never_fit_and_what_does_not_fit_now_are_refused() {
        let mut area = PayloadArea::new(4096, 8);
        assert_eq!(area.allocate(1, 4097), None);
        assert_eq!(area.allocate(1, u32::MAX), None);
        assert_eq!(area.allocate(1, 4096), Some(0));
        assert_eq!(area.allocate(2, 1), None);
        area.reclaim(1);
        assert_eq!(area.allocate(2, 1), Some(0));
    }

    proptest! {
        /// No payload is placed over one that the consumer has not read, across the wrap of sequence numbers too.
        #[test]
        fn unread_payloads_never_overlap(
            lengths in prop::collection::vec((1_u32..2000, 0_u8..3), 1..200),
            first in any::<u32>(),
        ) {
            let mut area = PayloadArea::new(4096, 64);
            let mut live: VecDeque<(u32, u32, u32)> = VecDeque::new();
            let mut sequence = first;
            for (bytes, reads) in lengths {
                for _ in 0..reads {
                    if let Some((read, _, _)) = live.pop_front() {
                        area.reclaim(read);
                    }
                }
                if let Some(start) = area.allocate(sequence, bytes) {
                    let end = start + bytes;
                    prop_assert!(end <= 4096);
                    for &(_, other_start, other_end) in &live {
                        prop_assert!(end <= other_start || start >= other_end);
                    }
                    live.push_back((sequence, start, end));
                    sequence = sequence.wrapping_add(1);
                } else {
                    prop_assert!(!live.is_empty(), "an empty area takes any payload that fits");
                }
            }
        }
    }
}
