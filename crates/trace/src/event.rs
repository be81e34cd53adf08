//! One thing that was seen to happen, as a recorder hands it over. `bpf/record.h` says the same in C; a test compares the two.

use serde::{Deserialize, Serialize};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A file, for as long as its inode lives: numbers of deleted files are given to new ones, with another generation.
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Default,
    Debug,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Serialize,
    Deserialize,
)]
#[repr(C)]
pub struct Identity {
    /// Its number in its file system.
    pub inode: u64,
    /// Its file system, as the kernel numbers it.
    pub device: u32,
    /// Which file of this number it is. 0 where that is not known: of files that nobody opened, and in some file systems.
    pub generation: u32,
}

impl Identity {
    /// Whether it is a file at all.
    pub const fn is_some(self) -> bool {
        self.inode != 0
    }
}

/// What was seen, without its texts.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Event {
    /// The number of an [`Operation`](crate::Operation): an allegation, as anything in a file is.
    pub operation: u8,
    /// [`flag`]s.
    pub flags: u8,
    /// How much text stands behind it.
    pub text_bytes: u16,
    /// The kernel's number of the thread.
    pub thread: u32,
    /// And of its process.
    pub process: u32,
    /// The descriptor that was used; -1 for none.
    pub descriptor: i32,
    /// When the call began, on the clock that is never set.
    pub start_ns: u64,
    /// How long it took.
    pub duration_ns: u64,
    /// What it returned: bytes, a descriptor, or a negative error number. Of a mapping, nothing; of a name, an error if it is cut in front.
    pub result: i64,
    /// How much was asked for.
    pub asked: u64,
    /// Flags of an open, the command of a control operation, the number that a duplicate was to have (its flags are in `asked`), and so on; of a
    /// thread's end, how many threads its process has left, and one more. An address is nowhere.
    pub argument: u64,
    /// Tells open files apart while they are open. 0 for none.
    pub handle: u64,
    /// The file, if it is known which.
    pub file: Identity,
    /// Where in the file it began; of a seek, where that led; of a directory, where its reading is afterwards, in its own count.
    pub offset: u64,
    /// How long it is afterwards.
    pub size: u64,
    /// Its type and permissions.
    pub mode: u32,
    /// How many pages had to be brought into the page cache.
    pub pages: u32,
}

/// What stands in front of each text.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct TextHead {
    /// The directory that a path starts from; none if it starts from the root.
    pub base: Identity,
    /// The bytes that follow.
    pub bytes: u32,
    /// Nothing.
    pub unused: u32,
}

/// What an [`Event`]'s flags say.
pub mod flag {
    /// Of what reads: pages were missing in the page cache, so that what it wanted was not all there. What writes brings new pages into the
    /// cache, and misses none.
    pub const MISS: u8 = 1;
    /// The open made the file.
    pub const CREATED: u8 = 2;
    /// The offset was given, and the file's position stayed.
    pub const POSITIONAL: u8 = 4;
    /// It was asked for by io_uring.
    pub const IO_URING: u8 = 8;
    /// The second record of one call: a transfer's output.
    pub const SECOND: u8 = 16;
    /// What was opened is a pipe, a socket or a device, of which nothing more is recorded; or a duplicate of such a thing took the descriptor of
    /// a file.
    pub const NO_FILE: u8 = 32;
    /// A new thread shares its maker's descriptors.
    pub const SHARES: u8 = 64;
    /// Its buffers were several.
    pub const VECTOR: u8 = 128;
}

/// The longest text: a path of Linux.
pub const MOST_TEXT_BYTES: usize = 4096;

/// The texts behind an event, one after the other; what is cut off is left out.
pub fn texts(mut bytes: &[u8]) -> impl Iterator<Item = (Identity, &[u8])> {
    std::iter::from_fn(move || {
        let (head, rest) = TextHead::read_from_prefix(bytes).ok()?;
        let text = rest.get(..head.bytes as usize)?;
        bytes = &rest[text.len()..];
        Some((head.base, text))
    })
}

/// Puts a text behind an event's others. What is longer than any path is cut.
pub fn append_text(behind: &mut Vec<u8>, base: Identity, text: &[u8]) {
    let text = &text[..text.len().min(MOST_TEXT_BYTES)];
    let bytes = u32::try_from(text.len()).expect("a path is short");
    behind.extend_from_slice(TextHead { base, bytes, unused: 0 }.as_bytes());
    behind.extend_from_slice(text);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Operation;

    const HEADER: &str = include_str!("../bpf/record.h");

    /// The numbers that an enumeration in the header gives its names.
    fn numbers(prefix: &str) -> Vec<(String, u64)> {
        let lines = HEADER.lines().filter_map(|line| line.trim().strip_prefix(prefix)?.split_once(" = "));
        lines.map(|(name, number)| (name.to_owned(), number.trim_end_matches(',').parse().unwrap())).collect()
    }

    #[test]
    fn operations_have_the_numbers_that_the_header_gives_them() {
        let in_header: Vec<_> =
            numbers("OPERATION_").into_iter().chain(numbers("NOTE_")).map(|(_, number)| number).collect();
        let here: Vec<_> = Operation::ALL.iter().map(|operation| *operation as u64).collect();
        assert_eq!(in_header, here);
        for (name, number) in numbers("OPERATION_") {
            let operation = Operation::of_number(u8::try_from(number).unwrap()).unwrap();
            let name = name.to_lowercase().replace('_', "-");
            assert!(
                operation.name().starts_with(&name) || operation.name().replace('-', "") == name,
                "{name}: {operation}"
            );
        }
    }

    #[test]
    fn flags_have_the_numbers_that_the_header_gives_them() {
        let here = [
            ("MISS", flag::MISS),
            ("CREATED", flag::CREATED),
            ("POSITIONAL", flag::POSITIONAL),
            ("IO_URING", flag::IO_URING),
            ("SECOND", flag::SECOND),
            ("NO_FILE", flag::NO_FILE),
            ("SHARES", flag::SHARES),
            ("VECTOR", flag::VECTOR),
        ];
        assert_eq!(numbers("FLAG_"), here.map(|(name, number)| (name.to_owned(), u64::from(number))));
    }

    #[test]
    fn the_fields_are_the_header_s() {
        let body = |name: &str| {
            let start = format!("struct {name} {{");
            HEADER.split_once(&start).unwrap().1.split_once("};").unwrap().0
        };
        let body = body("event").replace("struct subject about;", body("subject"));
        let fields: Vec<_> =
            body.lines().filter_map(|line| line.trim().split_once(';')?.0.rsplit_once(' ')).collect();
        let names: Vec<_> = fields.iter().map(|(_, name)| *name).collect();
        let shown = format!("{:?}", Event::default());
        let mut rest = shown.as_str();
        for name in names {
            rest = rest
                .split_once(&format!("{name}: "))
                .unwrap_or_else(|| panic!("{name} is not, or not here, in {shown}"))
                .1;
        }
        let bytes: usize = fields
            .iter()
            .map(|(kind, _)| match *kind {
                "u8" => 1,
                "u16" => 2,
                "u32" | "s32" => 4,
                "u64" | "s64" => 8,
                "struct identity" => 16,
                other => panic!("{other}"),
            })
            .sum();
        assert_eq!(bytes, size_of::<Event>());
        assert_eq!(size_of::<TextHead>(), 24);
    }

    #[test]
    fn texts_are_read_up_to_the_cut() {
        let text = |text: &str| {
            let mut behind = Vec::new();
            append_text(&mut behind, Identity::default(), text.as_bytes());
            behind
        };
        let both = [text("one"), text("two")].concat();
        let read = |bytes| texts(bytes).map(|(_, text)| text.to_vec()).collect::<Vec<_>>();
        assert_eq!(read(&both), [b"one", b"two"]);
        assert_eq!(read(&both[..both.len() - 1]), [b"one"]);
        assert!(read(&both[..10]).is_empty());
    }
}
