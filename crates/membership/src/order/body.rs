//! The content of an update, where it lies.

use alloc::sync::Arc;
use core::fmt;
use core::hash::{Hash, Hasher};
use core::ops::{Deref, Range};

/// The content of an update. It lies in the message that brought it and shares that with its neighbours, so a copy of this
/// costs nothing; but one body that is kept keeps a whole message.
#[derive(Clone)]
pub struct Body {
    message: Arc<[u8]>,
    place: Range<usize>,
}

impl Body {
    /// The bytes of `message` at `place`, which lies within it.
    pub(super) fn within(message: &Arc<[u8]>, place: Range<usize>) -> Self {
        debug_assert!(place.end <= message.len());
        Self { message: message.clone(), place }
    }
}

impl Body {
    /// Without its first byte.
    pub(crate) fn cut_first(&mut self) {
        self.place.start = self.place.end.min(self.place.start + 1);
    }
}

impl From<&[u8]> for Body {
    fn from(bytes: &[u8]) -> Self {
        Self { message: bytes.into(), place: 0..bytes.len() }
    }
}

impl Deref for Body {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.message[self.place.clone()]
    }
}

impl PartialEq for Body {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Body {}

impl Hash for Body {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.len())
    }
}
