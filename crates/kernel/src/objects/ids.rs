//! Names of loaded objects.

use super::slots::Key;

/// The owner's own name for an object, which it gets back with the writeback. It means nothing here.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, serde::Serialize, serde::Deserialize,
)]
pub struct Tag(pub u64);

/// Where in a word the version and the kind of object stand. The slot is in the lowest bits.
const VERSION_SHIFT: u32 = 16;
const KIND_SHIFT: u32 = 48;

fn to_word(kind: u16, Key { slot, version }: Key) -> u64 {
    u64::from(kind) << KIND_SHIFT | u64::from(version) << VERSION_SHIFT | u64::from(slot)
}

fn from_word(kind: u16, word: u64) -> Key {
    let [slot_low, slot_high, a, b, c, d, kind_low, kind_high] = word.to_le_bytes();
    if u16::from_le_bytes([kind_low, kind_high]) != kind {
        return Key::NEVER;
    }
    Key { slot: u16::from_le_bytes([slot_low, slot_high]), version: u32::from_le_bytes([a, b, c, d]) }
}

macro_rules! identifier {
    ($(#[$doc:meta])* $name:ident, $kind:literal) => {
        $(#[$doc])*
        ///
        /// It is assigned at each load, so it is stale once the object is gone, whatever has its slot then: until that has been loaded four
        /// thousand million times. (§2)
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize)]
        pub struct $name(pub(super) Key);

        impl $name {
            /// Its slot: that of no other object of its kind while it is loaded, and of others before and after.
            pub fn slot(self) -> u16 {
                self.0.slot
            }

            /// As a word, for the wire.
            pub fn to_word(self) -> u64 {
                to_word($kind, self.0)
            }

            /// What another says is an identifier. Nothing shows that it was ever given out: each use of it is checked. A word that names
            /// another kind of object becomes an identifier that is always stale.
            pub fn from_word(word: u64) -> Self {
                Self(from_word($kind, word))
            }
        }
    };
}

identifier!(
    /// A loaded kernel.
    KernelId, 1
);
identifier!(
    /// A loaded space.
    SpaceId, 2
);
identifier!(
    /// A loaded thread.
    ThreadId, 3
);
