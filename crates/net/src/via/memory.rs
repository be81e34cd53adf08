//! Registered memory: what descriptors may name. (Thesis §3.4.2)
//!
//! Registering gives the memory to the interfaces, which fill and read it while work is under way; the application
//! reaches it through the handle. A tag stands on each registration and on each interface: an interface touches
//! memory of its own tag only, so that one process can keep clients apart that it serves through several interfaces.

use super::descriptor::Span;
use super::places::{Place, Places};
use crate::payload::Payload;
use crate::window::Window;

/// Names a registration. Stale for ever once it is deregistered.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MemoryHandle(Place);

/// A protection tag.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Tag(pub(super) u32);

/// Why memory cannot be used. Nothing was moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MemoryError {
    /// No such registration, or no longer.
    #[error("the memory handle is unknown: was it deregistered?")]
    Handle,
    /// The registration carries another tag than the interface.
    #[error("the memory carries another protection tag than the interface")]
    Tag,
    /// Beyond the registration's end.
    #[error("{bytes} bytes at offset {offset} do not lie within the registered {registered}")]
    Range {
        /// As asked.
        offset: usize,
        /// As asked.
        bytes: usize,
        /// As there are.
        registered: usize,
    },
    /// Posted descriptors name it.
    #[error("posted descriptors name this memory: complete them first")]
    InUse,
}

#[derive(Debug)]
pub(super) enum Backing {
    Private(Vec<u8>),
    Window(Window),
}

#[derive(Debug)]
struct Registration {
    tag: Tag,
    backing: Backing,
}

/// All registrations of one endpoint.
#[derive(Debug, Default)]
pub(super) struct Memory {
    registrations: Places<Registration>,
    tags: u32,
    /// What goes from a peer's memory into a window passes through here: a raw copy has one private side.
    between: Vec<u8>,
}

impl Memory {
    pub(super) fn new_tag(&mut self) -> Tag {
        self.tags += 1;
        Tag(self.tags)
    }

    pub(super) fn register(&mut self, backing: Backing, tag: Tag) -> MemoryHandle {
        MemoryHandle(self.registrations.add(|_| Registration { tag, backing }))
    }

    pub(super) fn deregister(&mut self, handle: MemoryHandle) -> Result<Backing, MemoryError> {
        self.registrations.remove(handle.0).map(|found| found.backing).ok_or(MemoryError::Handle)
    }

    #[inline]
    fn find(&self, handle: MemoryHandle) -> Result<&Registration, MemoryError> {
        self.registrations.get(handle.0).ok_or(MemoryError::Handle)
    }

    #[inline]
    fn find_mut(&mut self, handle: MemoryHandle) -> Result<&mut Registration, MemoryError> {
        self.registrations.get_mut(handle.0).ok_or(MemoryError::Handle)
    }

    /// Whether an interface of `tag` may use the spans.
    #[inline(always)]
    pub(super) fn check(&self, tag: Tag, spans: &[Span]) -> Result<(), MemoryError> {
        spans.iter().try_for_each(|&span| self.check_span(tag, span))
    }

    #[inline]
    fn check_span(&self, tag: Tag, span: Span) -> Result<(), MemoryError> {
        let found = self.find(span.memory)?;
        if found.tag != tag {
            return Err(MemoryError::Tag);
        }
        found.backing.check(span.offset, span.bytes)
    }

    pub(super) fn window(&self, handle: MemoryHandle) -> Option<&Window> {
        match &self.find(handle).ok()?.backing {
            Backing::Window(window) => Some(window),
            Backing::Private(_) => None,
        }
    }

    pub(super) fn read(
        &self,
        handle: MemoryHandle,
        offset: usize,
        into: &mut [u8],
    ) -> Result<(), MemoryError> {
        let backing = &self.find(handle)?.backing;
        backing.check(offset, into.len())?;
        match backing {
            Backing::Private(bytes) => into.copy_from_slice(&bytes[offset..offset + into.len()]),
            Backing::Window(window) => window.read(offset, into).expect("just checked"),
        }
        Ok(())
    }

    pub(super) fn write(
        &mut self,
        handle: MemoryHandle,
        offset: usize,
        from: &[u8],
    ) -> Result<(), MemoryError> {
        let backing = &mut self.find_mut(handle)?.backing;
        backing.check(offset, from.len())?;
        match backing {
            Backing::Private(bytes) => bytes[offset..offset + from.len()].copy_from_slice(from),
            Backing::Window(window) => window.write(offset, from).expect("just checked"),
        }
        Ok(())
    }

    pub(super) fn whole(&self, handle: MemoryHandle) -> Option<&[u8]> {
        match &self.find(handle).ok()?.backing {
            Backing::Private(bytes) => Some(bytes),
            Backing::Window(_) => None,
        }
    }

    pub(super) fn whole_mut(&mut self, handle: MemoryHandle) -> Option<&mut [u8]> {
        match &mut self.find_mut(handle).ok()?.backing {
            Backing::Private(bytes) => Some(bytes),
            Backing::Window(_) => None,
        }
    }

    /// Private memory as it is; `None` for a window, whose peer may be writing it.
    #[inline]
    pub(super) fn private(&self, span: Span) -> Result<Option<&[u8]>, MemoryError> {
        let backing = &self.find(span.memory)?.backing;
        backing.check(span.offset, span.bytes)?;
        Ok(match backing {
            Backing::Private(bytes) => Some(&bytes[span.offset..span.offset + span.bytes]),
            Backing::Window(_) => None,
        })
    }

    /// As [`Memory::private`], to be written.
    #[inline]
    pub(super) fn private_mut(&mut self, span: Span) -> Result<Option<&mut [u8]>, MemoryError> {
        let backing = &mut self.find_mut(span.memory)?.backing;
        backing.check(span.offset, span.bytes)?;
        Ok(match backing {
            Backing::Private(bytes) => Some(&mut bytes[span.offset..span.offset + span.bytes]),
            Backing::Window(_) => None,
        })
    }

    /// Copies the bytes that start `at` bytes into the spans.
    pub(super) fn gather(&self, spans: &[Span], at: usize, into: &mut [u8]) -> Result<(), MemoryError> {
        for (span, piece) in pieces(spans, at, into.len()) {
            self.read(span.memory, span.offset, &mut into[piece..piece + span.bytes])?;
        }
        Ok(())
    }

    /// Copies the payload from byte `start` on to where it belongs, `at` bytes into the spans: once, out of the memory in
    /// which the sender left it.
    #[inline]
    pub(super) fn scatter(
        &mut self,
        spans: &[Span],
        at: usize,
        from: &Payload<'_>,
        start: usize,
    ) -> Result<(), MemoryError> {
        for (span, piece) in pieces(spans, at, from.len() - start) {
            match self.private_mut(span)? {
                Some(into) => from.copy_part(start + piece, into),
                None => self.write_window(span, from, start + piece)?,
            }
        }
        Ok(())
    }

    #[cold]
    fn write_window(&mut self, span: Span, from: &Payload<'_>, start: usize) -> Result<(), MemoryError> {
        let mut between = std::mem::take(&mut self.between);
        between.resize(span.bytes, 0);
        from.copy_part(start, &mut between);
        let outcome = self.write(span.memory, span.offset, &between);
        self.between = between;
        outcome
    }
}

impl Backing {
    #[inline]
    fn check(&self, offset: usize, bytes: usize) -> Result<(), MemoryError> {
        let registered = match self {
            Self::Private(memory) => memory.len(),
            Self::Window(window) => window.len(),
        };
        match offset.checked_add(bytes) {
            Some(end) if end <= registered => Ok(()),
            _ => Err(MemoryError::Range { offset, bytes, registered }),
        }
    }
}

/// The parts of `spans` that hold the `bytes` bytes from `at` on, each with its place among those bytes.
#[inline]
pub(super) fn pieces(spans: &[Span], at: usize, bytes: usize) -> impl Iterator<Item = (Span, usize)> + '_ {
    let (mut skip, mut done) = (at, 0);
    spans.iter().filter_map(move |span| {
        let skipped = skip.min(span.bytes);
        skip -= skipped;
        let taken = (span.bytes - skipped).min(bytes - done);
        let piece = (Span { offset: span.offset + skipped, bytes: taken, ..*span }, done);
        done += taken;
        (taken > 0).then_some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(memory: MemoryHandle, offset: usize, bytes: usize) -> Span {
        Span { memory, offset, bytes }
    }

    #[test]
    fn gathering_and_scattering_are_inverse_in_pieces_of_every_length() {
        let mut memory = Memory::default();
        let tag = memory.new_tag();
        let one = memory.register(Backing::Private((0..100).collect()), tag);
        let two = memory.register(Backing::Private(vec![0; 100]), tag);
        let from = [span(one, 10, 7), span(one, 50, 0), span(one, 30, 20), span(one, 0, 1)];
        let to = [span(two, 90, 3), span(two, 0, 25)];
        for length in 1..=28 {
            for at in (0..28).step_by(length) {
                let mut buffer = vec![0; length.min(28 - at)];
                memory.gather(&from, at, &mut buffer).unwrap();
                memory.scatter(&to, at, &Payload::Private(&buffer), 0).unwrap();
            }
            let (mut expected, mut got) = (vec![0; 28], vec![0; 28]);
            memory.gather(&from, 0, &mut expected).unwrap();
            memory.gather(&to, 0, &mut got).unwrap();
            assert_eq!(got, expected, "in pieces of {length}");
            assert_eq!(expected[..8], [10, 11, 12, 13, 14, 15, 16, 30]);
        }
    }

    #[test]
    fn handles_tags_and_ranges_are_checked() {
        let mut memory = Memory::default();
        let (tag, other) = (memory.new_tag(), memory.new_tag());
        let handle = memory.register(Backing::Private(vec![0; 10]), tag);
        assert_eq!(memory.check(tag, &[span(handle, 0, 10), span(handle, 10, 0)]), Ok(()));
        assert_eq!(memory.check(other, &[span(handle, 0, 10)]), Err(MemoryError::Tag));
        for (offset, bytes) in [(0, 11), (10, 1), (usize::MAX, 1)] {
            let range = MemoryError::Range { offset, bytes, registered: 10 };
            assert_eq!(memory.check(tag, &[span(handle, offset, bytes)]), Err(range));
        }
        memory.deregister(handle).unwrap();
        memory.register(Backing::Private(vec![0; 10]), tag);
        assert_eq!(memory.check(tag, &[span(handle, 0, 1)]), Err(MemoryError::Handle), "stale");
    }
}
