//! A pointer that means the same in every component.

/// A byte of some component's memory. Plain numbers: it can be sent in a message, and is checked whenever it is used.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct GlobalPointer {
    /// Whose memory.
    pub component: u32,
    /// Which of its windows.
    pub window: u32,
    /// The window's epoch when the pointer was made.
    pub epoch: u64,
    /// Where in it.
    pub offset: u64,
}

/// As it travels: little-endian, in the order of the fields.
pub(super) const POINTER_BYTES: usize = 24;

impl GlobalPointer {
    /// The pointer so many bytes further on in the same component: Split-C's local arithmetic.
    #[must_use]
    pub fn advance(self, bytes: u64) -> Self {
        // Past the end is found where the pointer is used.
        Self { offset: self.offset.saturating_add(bytes), ..self }
    }

    /// For a message.
    pub fn to_bytes(self) -> [u8; POINTER_BYTES] {
        let mut bytes = [0; POINTER_BYTES];
        bytes[..4].copy_from_slice(&self.component.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.window.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.epoch.to_le_bytes());
        bytes[16..].copy_from_slice(&self.offset.to_le_bytes());
        bytes
    }

    /// From a message: an allegation until it is used.
    pub fn from_bytes(bytes: [u8; POINTER_BYTES]) -> Self {
        let (words, _) = bytes.as_chunks::<4>();
        let word = |index: usize| u32::from_le_bytes(words[index]);
        let long = |index: usize| u64::from(word(index)) | u64::from(word(index + 1)) << 32;
        Self { component: word(0), window: word(1), epoch: long(2), offset: long(4) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_pointer_survives_its_way(
            component in any::<u32>(), window in any::<u32>(), epoch in any::<u64>(), offset in any::<u64>(),
        ) {
            let pointer = GlobalPointer { component, window, epoch, offset };
            prop_assert_eq!(GlobalPointer::from_bytes(pointer.to_bytes()), pointer);
        }
    }
}
