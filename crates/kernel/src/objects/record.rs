//! The sixteen bytes of a mapping.
//!
//! A record says that something depends on something else. That a page depends on a frame is the common case; that a mapping depends on its
//! signal thread, or on the source of its copy, are others of the same shape (§4.1):
//!
//! | kind    | depends on (`frame`) | dependent (`page`) | context (`space`) |
//! |---------|----------------------|--------------------|-------------------|
//! | mapping | frame                | page               | space             |
//! | signal  | thread               | mapping's record   | none              |
//! | copy    | source frame         | mapping's record   | none              |

use super::mappings::Mapping;
use super::sizes::MAXIMUM_PAGES;

const _: () = assert!(size_of::<Record>() == 16);

const PAGE_BITS: u32 = MAXIMUM_PAGES.trailing_zeros();

const MAPPING: u8 = 1 << 0;
// Of a mapping.
const WRITABLE: u8 = 1 << 1;
const EXECUTABLE: u8 = 1 << 2;
const MESSAGE: u8 = 1 << 3;
const LOCKED: u8 = 1 << 4;
const USED: u8 = 1 << 5;
const MODIFIED: u8 = 1 << 6;
const HAS_MORE: u8 = 1 << 7;
// Of what is not a mapping.
const FREE: u8 = 0;
const SIGNAL: u8 = 1 << 1;
const COPY: u8 = 1 << 2;

/// What a record is about.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Kind {
    Free,
    Mapping,
    Signal,
    Copy,
}

/// A number of three bytes: a frame, or a record.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Number([u8; 3]);

impl Number {
    /// As a link: there is no next one.
    pub(super) const NONE: Self = Self([0xff; 3]);

    pub(super) fn new(number: u32) -> Self {
        let [a, b, c, _] = number.to_le_bytes();
        Self([a, b, c])
    }

    pub(super) fn get(self) -> u32 {
        let Self([a, b, c]) = self;
        u32::from_le_bytes([a, b, c, 0])
    }

    /// As a link: the next one.
    pub(super) fn next(self) -> Option<u32> {
        (self != Self::NONE).then(|| self.get())
    }
}

impl core::fmt::Debug for Number {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.next().fmt(f)
    }
}

/// One record. Its links are its table's.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(C, align(8))]
pub(super) struct Record {
    /// 36 bits of page, 12 of space.
    page_and_space: [u8; 6],
    frame: Number,
    pub(super) next_by_page: Number,
    pub(super) next_by_frame: Number,
    flags: u8,
}

impl Record {
    pub(super) const NOTHING: Self = Self {
        page_and_space: [0; 6],
        frame: Number::NONE,
        next_by_page: Number::NONE,
        next_by_frame: Number::NONE,
        flags: FREE,
    };

    fn new(frame: u32, page: u64, space: u16, flags: u8) -> Self {
        let [a, b, c, d, e, f, ..] = (u64::from(space) << PAGE_BITS | page).to_le_bytes();
        Self { page_and_space: [a, b, c, d, e, f], frame: Number::new(frame), flags, ..Self::NOTHING }
    }

    pub(super) fn mapping(space: u16, frame: u32, mapping: &Mapping) -> Self {
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        let flags = MAPPING
            | flag(mapping.writable, WRITABLE)
            | flag(mapping.executable, EXECUTABLE)
            | flag(mapping.message, MESSAGE)
            | flag(mapping.locked, LOCKED)
            | flag(mapping.signal.is_some() || mapping.copy_of.is_some(), HAS_MORE);
        Self::new(frame, mapping.page, space, flags)
    }

    pub(super) fn signal(mapping: u32, thread: u16) -> Self {
        Self::new(u32::from(thread), u64::from(mapping), 0, SIGNAL)
    }

    pub(super) fn copy(mapping: u32, source: u32) -> Self {
        Self::new(source, u64::from(mapping), 0, COPY)
    }

    pub(super) fn linked(self, next_by_page: Number, next_by_frame: Number) -> Self {
        Self { next_by_page, next_by_frame, ..self }
    }

    pub(super) fn kind(&self) -> Kind {
        match self.flags {
            FREE => Kind::Free,
            SIGNAL => Kind::Signal,
            COPY => Kind::Copy,
            _ => Kind::Mapping,
        }
    }

    fn word(&self) -> u64 {
        let [a, b, c, d, e, f] = self.page_and_space;
        u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
    }

    pub(super) fn page(&self) -> u64 {
        self.word() & (MAXIMUM_PAGES - 1)
    }

    pub(super) fn space(&self) -> u16 {
        u16::try_from(self.word() >> PAGE_BITS).expect("twelve bits")
    }

    /// The frame; of a signal, the slot of its thread.
    pub(super) fn frame(&self) -> u32 {
        self.frame.get()
    }

    /// Of a signal, the slot of its thread.
    pub(super) fn thread(&self) -> u16 {
        u16::try_from(self.frame()).expect("it was made of one")
    }

    /// The mapping that this is, or is more of, if it is in this place.
    pub(super) fn of_mapping(&self, place: u32) -> u32 {
        if self.is_mapping() { place } else { u32::try_from(self.page()).expect("it was made of one") }
    }

    /// What it is found by, as a page of a space or as more of a mapping.
    pub(super) fn page_key(&self) -> u64 {
        page_key(self.kind(), self.space(), self.page())
    }

    /// What it is found by, as a dependent.
    pub(super) fn frame_key(&self) -> FrameKey {
        if self.kind() == Kind::Signal {
            FrameKey::thread(self.thread())
        } else {
            FrameKey::frame(self.frame())
        }
    }

    fn has(&self, flag: u8) -> bool {
        self.flags & (MAPPING | flag) == MAPPING | flag
    }

    pub(super) fn is_mapping(&self) -> bool {
        self.has(MAPPING)
    }

    pub(super) fn is_writable(&self) -> bool {
        self.has(WRITABLE)
    }

    pub(super) fn is_executable(&self) -> bool {
        self.has(EXECUTABLE)
    }

    pub(super) fn is_message(&self) -> bool {
        self.has(MESSAGE)
    }

    pub(super) fn is_locked(&self) -> bool {
        self.has(LOCKED)
    }

    pub(super) fn is_used(&self) -> bool {
        self.has(USED)
    }

    pub(super) fn is_modified(&self) -> bool {
        self.has(MODIFIED)
    }

    /// Whether there is a signal record or a copy record of this mapping.
    pub(super) fn has_more(&self) -> bool {
        self.has(HAS_MORE)
    }

    pub(super) fn set_used(&mut self, is_used: bool) {
        self.flags = if is_used { self.flags | USED } else { self.flags & !USED };
    }

    pub(super) fn set_rights(&mut self, writable: bool, executable: bool) {
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        self.flags =
            self.flags & !(WRITABLE | EXECUTABLE) | flag(writable, WRITABLE) | flag(executable, EXECUTABLE);
    }

    pub(super) fn set_modified(&mut self) {
        self.flags |= MODIFIED;
    }

    pub(super) fn set_no_more(&mut self) {
        self.flags &= !HAS_MORE;
    }
}

/// By what a mapping, or what is more of one, is hashed.
pub(super) fn page_key(kind: Kind, space: u16, page: u64) -> u64 {
    (kind as u64) << 48 | u64::from(space) << PAGE_BITS | page
}

/// By what dependents are chained: a frame, or a signal thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FrameKey(pub(super) u64);

impl FrameKey {
    pub(super) fn frame(frame: u32) -> Self {
        Self(u64::from(frame))
    }

    pub(super) fn thread(slot: u16) -> Self {
        Self(1 << 24 | u64::from(slot))
    }
}
