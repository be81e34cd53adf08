//! What a machine's file trees looked like at one time: names, sizes and times of all files, in such an order that the trees can be
//! recovered. (Thesis §9.3.1)
//!
//! A trace says what is done with files; a snapshot says what files there are that nobody touches, and two of them say what a day has
//! changed. (Thesis §9.5)
//!
//! # The order
//! Depth first, and within a directory by name, byte by byte. A directory stands before what is in it and says how many files and
//! directories that is, so that a reader knows where it ends; and two snapshots can be compared side by side while they are read, however
//! large they are: see [`difference()`].
//!
//! # In the file
//! Frames, each with a checksum, as in a trace: a head, blocks of records ([`block`]), an end. Each block can be read for itself.

pub mod block;
pub mod difference;
pub mod reading;
pub mod totals;
pub mod tree;
pub mod walk;

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

pub use self::difference::{Change, Difference, DifferenceError, difference};
pub use self::reading::{SnapshotFileError, SnapshotReader};
pub use self::totals::Totals;
pub use self::tree::Tree;
pub use self::walk::{Options, TakeError, Taken, take};
use crate::event::Identity;
use crate::framing::Format;
use crate::trace_file::Mount;

/// A snapshot: its head, its blocks of records, its end.
const FORMAT: Format = Format { magic: b"comb snapshot\n1", last_kind: 3 };

/// The kinds of its frames.
const HEAD: u8 = 1;
const RECORDS: u8 = 2;
const END: u8 = 3;

/// Of what machine a snapshot is.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Head {
    /// The machine's name.
    pub machine: String,
    /// Its kernel.
    pub kernel: String,
    /// Where the trees begin that it shows, in their order.
    pub roots: Vec<Vec<u8>>,
    /// File systems.
    pub mounts: Vec<Mount>,
    /// Whether names are given as hashes.
    pub are_names_hashed: bool,
    /// What becomes of a name that everybody knows: two snapshots in which it is the same have their names hashed by the same key.
    pub known_name: Vec<u8>,
    /// When it began, on the wall's clock.
    pub began_ns: u64,
}

impl Head {
    /// The types of file systems, by device.
    pub fn systems(&self) -> HashMap<u32, String> {
        self.mounts.iter().map(|mount| (mount.device, mount.kind.clone())).collect()
    }
}

/// How a snapshot ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct End {
    /// All that are not directories.
    pub files: u64,
    /// Directories, also those that were not entered.
    pub directories: u64,
    /// What was gone, or replaced, between two looks at it.
    pub vanished: u64,
    /// What may not be looked at.
    pub unreadable: u64,
    /// Directories that were left out by intention.
    pub not_entered: u64,
    /// When it ended, on the wall's clock.
    pub ended_ns: u64,
}

/// What is known of a file beside its name. Times are nanoseconds since 1970; what does not fit stands at the nearest that does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Attributes {
    /// Its type and permissions.
    pub mode: u32,
    /// Whose it is.
    pub user: u32,
    /// And of which group.
    pub group: u32,
    /// How many names it has.
    pub links: u32,
    /// The file itself, whatever it is called. Which of several files of one number it is is not known here: the generation is 0.
    pub file: Identity,
    /// How long it is.
    pub size: u64,
    /// How much room it takes.
    pub allocated_bytes: u64,
    /// When its content last changed.
    pub modified_ns: i64,
    /// When it was last read, as far as the file system keeps that.
    pub accessed_ns: i64,
    /// When something about it last changed.
    pub changed_ns: i64,
    /// When it came to be, where the file system keeps that.
    pub born_ns: Option<i64>,
}

const TYPE: u32 = 0o170_000;

impl Attributes {
    /// Whether it is a directory.
    pub const fn is_directory(&self) -> bool {
        self.mode & TYPE == 0o040_000
    }

    /// Whether it is a file with content: no link, pipe, socket or device.
    pub const fn is_regular(&self) -> bool {
        self.mode & TYPE == 0o100_000
    }

    /// Whether it is a symbolic link.
    pub const fn is_link(&self) -> bool {
        self.mode & TYPE == 0o120_000
    }
}

/// Whether a snapshot shows what is in a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Inside {
    /// It does.
    #[default]
    Seen,
    /// It was not allowed, or the directory was gone by then.
    Unreadable,
    /// Another file system begins there.
    OtherFileSystem,
    /// The kernel makes up what is in there when somebody looks.
    OfKernel,
}

impl Inside {
    const ALL: [Self; 4] = [Self::Seen, Self::Unreadable, Self::OtherFileSystem, Self::OfKernel];
}

/// What a directory holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Directory {
    /// How many entries of it are no directories.
    pub files: u64,
    /// How many are.
    pub directories: u64,
    /// Whether both numbers are worth anything.
    pub inside: Inside,
}

/// A file or a directory, as a snapshot's reader hands it over.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Entry {
    /// Where it is, from the root of the file system. Any bytes.
    pub path: Vec<u8>,
    /// How far below the root of its tree: that one has 0.
    pub depth: u32,
    /// What is known of it.
    pub attributes: Attributes,
    /// If it is a directory.
    pub directory: Option<Directory>,
}

impl Entry {
    /// What it is called in its directory; of a root, its whole path.
    pub fn name(&self) -> &[u8] {
        match self.path.iter().rposition(|&byte| byte == b'/') {
            Some(at) if self.depth > 0 => &self.path[at + 1..],
            _ => &self.path,
        }
    }
}
