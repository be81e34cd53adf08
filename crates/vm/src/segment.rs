//! Segments: memory of the host's that machines have in common, each as a device of its own whose pages their programs map. (Disco §4.2: sharing that is explicit)
//!
//! A segment is a file in memory, under a virtio-pmem device of each machine that has it. What a guest's kernel would make of such a device is a disk, of which it maps its own copies;
//! behind a head that says so it makes a device whose very pages are mapped (`/dev/dax…`). The head is ours, and written anew for each machine that comes.

use std::fs::{DirBuilder, DirEntry, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;

use comb_guest::segment::{MOST_NAME_BYTES, mark};
use rustix::fs::{FallocateFlags, FlockOperation, fallocate, flock};
use thiserror::Error;

use crate::engine::{Engine, EngineError};
use crate::names::Name;

/// In front of what programs map. As much as a guest's kernel maps at once, so that it can.
const HEAD_BYTES: u64 = 2 << 20;

/// No host has as much.
const MOST_BYTES: u64 = 1 << 50;

/// Where in the head a guest's kernel looks.
const HEAD_AT: u64 = 4096;

/// All segments of a user.
#[derive(Clone, Debug)]
pub struct Segments {
    directory: PathBuf,
}

/// One that is held: it is there for as long as somebody holds it, and its memory is all there from the beginning.
#[derive(Debug)]
pub struct Segment {
    /// What it is called.
    pub name: Name,
    /// So much can be mapped.
    pub bytes: u64,
    path: PathBuf,
    /// Locked, as by all who hold it.
    file: Option<File>,
    all: Segments,
}

/// Why there is none.
#[derive(Debug, Error)]
pub enum SegmentError {
    /// Nobody has one of this name.
    #[error("no machine has a segment `{0}`: say how large it is to be, as in `--segment {0}=64M`")]
    None(Name),
    /// A guest could not tell which it is.
    #[error("`{0}` is too long for a segment: up to {MOST_NAME_BYTES} letters, digits and dashes")]
    Name(Name),
    /// It is not as large.
    #[error("the segment `{name}` has {has} bytes, and not {wanted}: say no size to have it as it is")]
    Size {
        /// Which.
        name: Name,
        /// So many.
        has: u64,
        /// Of these.
        wanted: u64,
    },
    /// Somebody else's files are in the way.
    #[error("{0} is not this user's")]
    NotOurs(PathBuf),
    /// The host.
    #[error("{0}: {1}")]
    Host(PathBuf, io::Error),
}

impl Segments {
    /// Those in a directory, which is in the host's memory and made when it is needed.
    pub fn at(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// Holds one, which is made if nobody does and it is said how large it is to be.
    pub fn hold(&self, name: &Name, bytes: Option<u64>) -> Result<Segment, SegmentError> {
        let mark = mark(name.as_str()).ok_or_else(|| SegmentError::Name(name.clone()))?;
        let _alone = self.lock()?;
        let held = self.hold_alone(name, mark, bytes);
        if held.is_err() {
            self.leave();
        }
        held
    }

    /// The same, while nobody else makes or removes one.
    fn hold_alone(
        &self,
        name: &Name,
        mark: [u8; MOST_NAME_BYTES],
        bytes: Option<u64>,
    ) -> Result<Segment, SegmentError> {
        let wanted = bytes.map(|bytes| bytes.clamp(1, MOST_BYTES).next_multiple_of(HEAD_BYTES));
        let path = self.directory.join(name.as_str());
        let host = |error| SegmentError::Host(path.clone(), error);
        let mut options = File::options();
        options.read(true).write(true).create(wanted.is_some()).mode(0o600).custom_flags(libc::O_NOFOLLOW);
        let file = options.open(&path).map_err(|error| match error.kind() {
            ErrorKind::NotFound => SegmentError::None(name.clone()),
            _ => host(error),
        })?;
        // What was left by somebody who was killed is nobody's.
        let is_new = flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok();
        if is_new {
            let Some(wanted) = wanted else {
                let _ = std::fs::remove_file(&path);
                return Err(SegmentError::None(name.clone()));
            };
            let made = file.set_len(0).map_err(host).and_then(|()| {
                // Now, and not when a guest writes to it: that would be the guest's end.
                fallocate(&file, FallocateFlags::empty(), 0, HEAD_BYTES + wanted)
                    .map_err(|error| host(error.into()))
            });
            if made.is_err() {
                let _ = std::fs::remove_file(&path);
            }
            made?;
        }
        flock(&file, FlockOperation::NonBlockingLockShared).map_err(|error| host(error.into()))?;
        let has = file.metadata().map_err(host)?.len().saturating_sub(HEAD_BYTES);
        if let Some(wanted) = wanted.filter(|wanted| *wanted != has) {
            return Err(SegmentError::Size { name: name.clone(), has, wanted });
        }
        file.write_all_at(&head(mark, has), HEAD_AT).map_err(host)?;
        Ok(Segment { name: name.clone(), bytes: has, path, file: Some(file), all: self.clone() })
    }

    /// Leaves nothing where nothing is.
    fn leave(&self) {
        let is_lock = |entry: io::Result<DirEntry>| entry.is_ok_and(|entry| entry.file_name() == ".lock");
        if std::fs::read_dir(&self.directory).is_ok_and(|mut entries| entries.all(is_lock)) {
            let _ = std::fs::remove_file(self.directory.join(".lock"));
            let _ = std::fs::remove_dir(&self.directory);
        }
    }

    /// Nobody else makes or removes one meanwhile.
    fn lock(&self) -> Result<File, SegmentError> {
        let host = |error| SegmentError::Host(self.directory.clone(), error);
        let path = self.directory.join(".lock");
        loop {
            DirBuilder::new().recursive(true).mode(0o700).create(&self.directory).map_err(host)?;
            if std::fs::symlink_metadata(&self.directory).map_err(host)?.uid()
                != rustix::process::geteuid().as_raw()
            {
                return Err(SegmentError::NotOurs(self.directory.clone()));
            }
            // Whoever leaves last removes both.
            let opened = File::options().create(true).append(true).mode(0o600).open(&path);
            let lock = match opened {
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                opened => opened.map_err(host)?,
            };
            flock(&lock, FlockOperation::LockExclusive).map_err(|error| host(error.into()))?;
            let is_there =
                |found: std::fs::Metadata| lock.metadata().is_ok_and(|lock| lock.ino() == found.ino());
            if std::fs::metadata(&path).is_ok_and(is_there) {
                return Ok(lock);
            }
        }
    }
}

impl Segment {
    /// Gives it to a machine that runs, as its device of that number.
    pub fn plug(&self, engine: &mut Engine, number: usize) -> Result<(), EngineError> {
        let (bytes, align) = (HEAD_BYTES + self.bytes, Some(HEAD_BYTES));
        engine.plug_memory(&format!("segment{number}"), &self.path, bytes, align, true)
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        let Ok(_alone) = self.all.lock() else { return };
        let Some(file) = self.file.take() else { return };
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let _ = std::fs::remove_file(&self.path);
        }
        self.all.leave();
    }
}

/// What has a guest's kernel make such a device of memory (`struct nd_pfn_sb` of Linux, version 1.4): what it has to remember of pages it keeps in its own memory.
fn head(mark: [u8; MOST_NAME_BYTES], bytes: u64) -> Vec<u8> {
    const PAGE_BYTES: u32 = 4096;
    const IN_ITS_OWN_MEMORY: u32 = 1;
    const STRUCT_PAGE_BYTES: u16 = 64;
    let mut head = b"NVDIMM_DAX_INFO\0".to_vec();
    head.extend(mark);
    // No namespace that has a label is around it, and there are no flags.
    head.extend([0; 16 + 4]);
    head.extend([1_u16, 4].map(u16::to_le_bytes).concat());
    head.extend([HEAD_BYTES, bytes / u64::from(PAGE_BYTES)].map(u64::to_le_bytes).concat());
    let alignment = u32::try_from(HEAD_BYTES).expect("it is short");
    head.extend([IN_ITS_OWN_MEMORY, 0, 0, alignment, PAGE_BYTES].map(u32::to_le_bytes).concat());
    head.extend(STRUCT_PAGE_BYTES.to_le_bytes());
    head.resize(4096, 0);
    let sum = fletcher(&head);
    let at = head.len() - 8;
    head[at..].copy_from_slice(&sum.to_le_bytes());
    head
}

/// Fletcher's sum, as Linux has it for what describes memory.
fn fletcher(bytes: &[u8]) -> u64 {
    let (mut low, mut high) = (0_u32, 0_u32);
    for word in bytes.chunks_exact(4) {
        low = low.wrapping_add(u32::from_le_bytes(word.try_into().expect("four bytes")));
        high = high.wrapping_add(low);
    }
    u64::from(high) << 32 | u64::from(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: usize = 2 << 20;

    fn segments(name: &str) -> (Segments, PathBuf) {
        let directory = std::env::temp_dir().join(format!("comb-vm-segments-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        (Segments::at(directory.clone()), directory)
    }

    #[test]
    fn a_segment_is_there_while_somebody_holds_it() {
        let (segments, directory) = segments("held");
        let name: Name = "both".parse().unwrap();
        assert!(matches!(segments.hold(&name, None), Err(SegmentError::None(_))));
        let first = segments.hold(&name, Some(3 << 20)).unwrap();
        assert_eq!(first.bytes, 4 << 20);
        first.file.as_ref().unwrap().write_all_at(b"kept", HEAD_BYTES).unwrap();
        // What a guest has made of the head, the next does not see.
        first.file.as_ref().unwrap().write_all_at(&[9; 4096], HEAD_AT).unwrap();
        let second = segments.hold(&name, None).unwrap();
        assert_eq!(second.bytes, 4 << 20);
        let content = std::fs::read(&second.path).unwrap();
        assert_eq!(&content[HEAD..][..4], b"kept");
        assert_eq!(&content[4096..8192], head(mark("both").unwrap(), 4 << 20));
        let error = segments.hold(&name, Some(8 << 20)).unwrap_err();
        assert!(matches!(error, SegmentError::Size { has: 4_194_304, wanted: 8_388_608, .. }), "{error}");
        drop(first);
        assert!(segments.hold(&name, None).is_ok());
        drop(second);
        assert!(!directory.exists());
        assert!(matches!(segments.hold(&name, None), Err(SegmentError::None(_))));
    }

    #[test]
    fn what_was_left_is_nobodys() {
        let (segments, directory) = segments("left");
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("old"), vec![7; 3 << 20]).unwrap();
        let name: Name = "old".parse().unwrap();
        assert!(matches!(segments.hold(&name, None), Err(SegmentError::None(_))));
        assert!(!directory.join("old").exists());
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("old"), vec![7; 3 << 20]).unwrap();
        let anew = segments.hold(&name, Some(2 << 20)).unwrap();
        assert!(std::fs::read(&anew.path).unwrap()[HEAD..].iter().all(|&byte| byte == 0));
        drop(anew);
        assert!(matches!(segments.hold(&name, Some(u64::MAX)), Err(SegmentError::Host(..))));
        assert!(!directory.exists());
        let long: Name = "seventeen-letters".parse().unwrap();
        assert!(matches!(segments.hold(&long, Some(1)), Err(SegmentError::Name(_))));
    }

    #[test]
    fn a_head_is_what_linux_takes() {
        let head = head(mark("both").unwrap(), 14 << 20);
        assert_eq!((head.len(), &head[..20]), (4096, b"NVDIMM_DAX_INFO\0both".as_slice()));
        // By `nd_fletcher64` over a head of which the sum is no part.
        let mut without = head.clone();
        without[4088..].fill(0);
        assert_eq!(head[4088..], fletcher(&without).to_le_bytes());
        assert_eq!(fletcher(&[1, 0, 0, 0, 2, 0, 0, 0]), 4 << 32 | 3);
    }
}
