//! Walks file trees and writes down what is there. (Thesis §9.3.1)
//!
//! The trees are in use meanwhile. A directory is listed, and each of its entries looked at, before it is written down: so the numbers in it
//! are those of the entries that follow. A directory that is gone, or is another one, by the time it is entered has nothing in it, and is
//! counted. No link is followed, and everything is opened from the directory above it, so that nobody who moves directories about makes the
//! walk leave its tree.

mod level;

use std::collections::{BTreeSet, HashMap};
use std::ffi::{CStr, CString};
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, RawDir, Statx, StatxFlags, StatxTimestamp};
use rustix::io::Errno;
use thiserror::Error;

use self::level::{Child, Level, Levels};
use super::block::{BlockWriter, Record};
use super::{Attributes, Directory, END, End, FORMAT, HEAD, Head, Inside, RECORDS};
use crate::event::Identity;
use crate::privacy::Privacy;
use crate::trace_file::Mount;
use crate::{file_type, framing, machine};

/// How a snapshot is to be taken.
pub struct Options {
    /// Whether file systems are entered that are mounted within the trees. Those that the kernel makes up never are.
    pub crosses_file_systems: bool,
    /// Whether names are hidden. Two snapshots can be compared if both are taken with the same of these, or with none.
    pub privacy: Privacy,
}

impl Default for Options {
    fn default() -> Self {
        Self { crosses_file_systems: false, privacy: Privacy::none() }
    }
}

/// Why there is no snapshot.
#[derive(Debug, Error)]
pub enum TakeError {
    /// Nothing was to be looked at.
    #[error("no directory was named; name one, such as /")]
    NoRoots,
    /// There is no such tree. Nothing has been written.
    #[error("{path}: {error}; name a directory that is there and may be read")]
    Root {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// It could not be written: what is there of it can be read up to where it ends.
    #[error("the snapshot cannot be written any further ({0}); what has been written can be read")]
    Output(#[from] io::Error),
}

/// How it went.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Taken {
    /// What was found, and what was not.
    pub end: End,
    /// How much was written.
    pub bytes: u64,
}

/// Writes a snapshot of the trees below some directories. A tree within another is part of that one.
pub fn take(roots: &[PathBuf], options: &Options, output: &mut impl Write) -> Result<Taken, TakeError> {
    take_watched(roots, options, output, &mut |_| {})
}

/// When somebody may change the tree who is to be seen doing it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// The names in a directory are known, and nothing more.
    Listed,
    /// Each has been looked at; none of the directories has been entered.
    LookedAt,
}

fn take_watched(
    roots: &[PathBuf],
    options: &Options,
    output: &mut impl Write,
    watch: &mut dyn FnMut(Stage),
) -> Result<Taken, TakeError> {
    let mounts = machine::mounts();
    let mut walk = Walk {
        options,
        output,
        watch,
        of_kernel: mounts.iter().map(|mount| (mount.device, file_type::is_of_kernel(&mount.kind))).collect(),
        entered_devices: BTreeSet::new(),
        block: BlockWriter::default(),
        levels: Levels::default(),
        buffer: Vec::with_capacity(LIST_BYTES),
        taken: Taken::default(),
    };
    let roots = walk.roots(roots)?;
    walk.begin(&roots, mounts)?;
    for Root { path, folder, attributes } in roots {
        let name = options.privacy.path(path.as_os_str().as_bytes()).into_owned();
        walk.enter(name, path.as_os_str().as_bytes(), attributes, Ok(folder))?;
        walk.below()?;
    }
    walk.end()
}

/// As much of a directory is read at a time.
const LIST_BYTES: usize = 64 << 10;

struct Root {
    path: PathBuf,
    folder: OwnedFd,
    attributes: Attributes,
}

struct Walk<'a, W> {
    options: &'a Options,
    output: &'a mut W,
    watch: &'a mut dyn FnMut(Stage),
    of_kernel: HashMap<u32, bool>,
    /// Of the roots: what stands on another is not entered, unless all are.
    entered_devices: BTreeSet<u32>,
    block: BlockWriter,
    levels: Levels,
    buffer: Vec<u8>,
    taken: Taken,
}

impl<W: Write> Walk<'_, W> {
    /// The roots, in the order of their paths and without those within others.
    fn roots(&mut self, named: &[PathBuf]) -> Result<Vec<Root>, TakeError> {
        let mut roots: Vec<Root> = Vec::new();
        // Part by part, as `Path` compares: so what is within another stands behind it.
        let mut paths = Vec::new();
        for path in named {
            let failed = |error| TakeError::Root { path: path.clone(), error };
            paths.push(path.canonicalize().map_err(failed)?);
        }
        paths.sort();
        for path in paths {
            let failed = |error: Errno| TakeError::Root { path: path.clone(), error: error.into() };
            let folder = open_folder(CWD, &path).map_err(failed)?;
            let attributes = look_at(&folder, c"").map_err(failed)?;
            self.entered_devices.insert(attributes.file.device);
            if !roots.last().is_some_and(|root| path.starts_with(&root.path)) {
                roots.push(Root { path, folder, attributes });
            }
        }
        let stored = |root: &Root| self.options.privacy.path(root.path.as_os_str().as_bytes()).into_owned();
        roots.sort_by(|one, other| super::difference::path_order(&stored(one), &stored(other)));
        if roots.is_empty() { Err(TakeError::NoRoots) } else { Ok(roots) }
    }

    fn begin(&mut self, roots: &[Root], mut mounts: Vec<Mount>) -> Result<(), TakeError> {
        let privacy = &self.options.privacy;
        for mount in &mut mounts {
            mount.place = privacy.path(&mount.place).into_owned();
        }
        let (machine, kernel) = machine::names();
        let head = Head {
            machine,
            kernel,
            roots: roots
                .iter()
                .map(|root| privacy.path(root.path.as_os_str().as_bytes()).into_owned())
                .collect(),
            mounts,
            are_names_hashed: privacy.hides(),
            known_name: privacy.path(b"comb").into_owned(),
            began_ns: machine::now().wall_ns,
        };
        self.output.write_all(FORMAT.magic)?;
        self.taken.bytes = FORMAT.magic.len() as u64;
        self.put(HEAD, |bytes| postcard::to_extend(&head, bytes).expect("a head can be encoded"))
    }

    /// Writes down a directory, and makes it the one that is walked next.
    fn enter(
        &mut self,
        name: Vec<u8>,
        real_name: &[u8],
        attributes: Attributes,
        folder: Result<OwnedFd, Errno>,
    ) -> Result<(), TakeError> {
        let mut directory = Directory { inside: self.inside(&attributes), ..Directory::default() };
        let mut level = None;
        match folder {
            _ if directory.inside != Inside::Seen => self.taken.end.not_entered += 1,
            Ok(folder) => {
                let mut children = self.children(&folder);
                children.sort_unstable_by(|one, other| one.stored_name().cmp(other.stored_name()));
                directory.directories =
                    children.iter().filter(|child| child.attributes.is_directory()).count() as u64;
                directory.files = children.len() as u64 - directory.directories;
                (self.watch)(Stage::LookedAt);
                level = Some(Level::new(real_name.to_vec(), attributes.file, folder, children));
            }
            Err(error) => {
                directory.inside = Inside::Unreadable;
                self.miss(error);
            }
        }
        self.taken.end.directories += 1;
        self.write(Record { name, attributes, directory: Some(directory) })?;
        if let Some(level) = level {
            self.levels.push(level);
        }
        Ok(())
    }

    /// Walks through all that is below the directories that have been entered.
    fn below(&mut self) -> Result<(), TakeError> {
        while let Some(child) = self.levels.next_child() {
            let Child { name, real_name, attributes } = child;
            if attributes.is_directory() {
                let folder = if self.inside(&attributes) == Inside::Seen {
                    self.opened(&real_name, attributes.file)
                } else {
                    Err(Errno::XDEV) // nobody looks at it
                };
                let name = name.unwrap_or_else(|| real_name.to_bytes().to_vec());
                self.enter(name, real_name.to_bytes(), attributes, folder)?;
            } else {
                self.taken.end.files += 1;
                let name = name.unwrap_or_else(|| real_name.into_bytes());
                self.write(Record { name, attributes, directory: None })?;
            }
        }
        Ok(())
    }

    /// Opens a directory of the one where the walk is, if it is still the one that was looked at.
    fn opened(&mut self, name: &CStr, file: Identity) -> Result<OwnedFd, Errno> {
        let folder = open_folder(self.levels.folder()?, name)?;
        if look_at(&folder, c"")?.file == file { Ok(folder) } else { Err(Errno::NOENT) }
    }

    fn inside(&self, directory: &Attributes) -> Inside {
        let device = directory.file.device;
        if self.of_kernel.get(&device).is_some_and(|&is_so| is_so) {
            Inside::OfKernel
        } else if self.options.crosses_file_systems || self.entered_devices.contains(&device) {
            Inside::Seen
        } else {
            Inside::OtherFileSystem
        }
    }

    /// All that is in a directory and can be looked at.
    fn children(&mut self, folder: &OwnedFd) -> Vec<Child> {
        let mut names: Vec<CString> = Vec::new();
        let mut listing = RawDir::new(folder, self.buffer.spare_capacity_mut());
        while let Some(entry) = listing.next() {
            match entry {
                Ok(entry) => names.push(entry.file_name().to_owned()),
                Err(error) => {
                    match error {
                        Errno::NOENT => self.taken.end.vanished += 1,
                        _ => self.taken.end.unreadable += 1,
                    }
                    break;
                }
            }
        }
        (self.watch)(Stage::Listed);
        let mut children = Vec::with_capacity(names.len());
        for real_name in names {
            if matches!(real_name.to_bytes(), b"." | b"..") {
                continue;
            }
            match look_at(folder, &real_name) {
                Ok(attributes) => {
                    let privacy = &self.options.privacy;
                    let name = privacy.hides().then(|| privacy.path(real_name.to_bytes()).into_owned());
                    children.push(Child { name, real_name, attributes });
                }
                Err(error) => self.miss(error),
            }
        }
        children
    }

    fn miss(&mut self, error: Errno) {
        match error {
            Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::STALE => self.taken.end.vanished += 1,
            _ => self.taken.end.unreadable += 1,
        }
    }

    fn write(&mut self, record: Record) -> Result<(), TakeError> {
        self.block.add(record);
        if self.block.is_full() { self.write_block() } else { Ok(()) }
    }

    fn write_block(&mut self) -> Result<(), TakeError> {
        match self.block.take() {
            Some(block) => self.put(RECORDS, |bytes| [bytes, block].concat()),
            None => Ok(()),
        }
    }

    fn put(&mut self, kind: u8, put: impl FnOnce(Vec<u8>) -> Vec<u8>) -> Result<(), TakeError> {
        let frame = framing::framed(kind, put);
        self.output.write_all(&frame)?;
        self.taken.bytes += frame.len() as u64;
        Ok(())
    }

    fn end(mut self) -> Result<Taken, TakeError> {
        self.write_block()?;
        self.taken.end.ended_ns = machine::now().wall_ns;
        let end = self.taken.end;
        self.put(END, |bytes| postcard::to_extend(&end, bytes).expect("an end can be encoded"))?;
        self.output.flush()?;
        Ok(self.taken)
    }
}

/// Opens a directory to list it, without leaving a mark on it where that is allowed.
fn open_folder(above: impl AsFd, name: impl rustix::path::Arg + Copy) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::openat(&above, name, flags | OFlags::NOATIME, Mode::empty()) {
        Err(Errno::PERM) => rustix::fs::openat(&above, name, flags, Mode::empty()),
        result => result,
    }
}

/// What is known of an entry, or of the directory itself.
fn look_at(folder: &OwnedFd, name: &CStr) -> Result<Attributes, Errno> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::EMPTY_PATH;
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    rustix::fs::statx(folder, name, flags, wanted).map(|status| attributes(&status))
}

fn attributes(status: &Statx) -> Attributes {
    Attributes {
        mode: status.stx_mode.into(),
        user: status.stx_uid,
        group: status.stx_gid,
        links: status.stx_nlink,
        file: Identity {
            inode: status.stx_ino,
            device: machine::kernel_device(status.stx_dev_major, status.stx_dev_minor),
            generation: 0,
        },
        size: status.stx_size,
        allocated_bytes: status.stx_blocks.saturating_mul(512),
        modified_ns: time_ns(&status.stx_mtime),
        accessed_ns: time_ns(&status.stx_atime),
        changed_ns: time_ns(&status.stx_ctime),
        born_ns: (status.stx_mask & StatxFlags::BTIME.bits() != 0).then(|| time_ns(&status.stx_btime)),
    }
}

fn time_ns(time: &StatxTimestamp) -> i64 {
    time.tv_sec.saturating_mul(1_000_000_000).saturating_add(time.tv_nsec.into())
}

#[cfg(test)]
mod tests;
