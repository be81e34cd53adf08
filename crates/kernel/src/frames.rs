//! The physical memory: frames, in page groups, each of which is memory of its own, so that a kernel can be given some and not others.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

use crate::host::{self, Shared};
use crate::stub::layout::PAGE_BYTES;

/// Frames in a page group, by which memory is granted. (Cache Kernel §4.3)
pub const GROUP_FRAMES: u32 = 128;
const GROUP_BYTES: u64 = GROUP_FRAMES as u64 * PAGE_BYTES;

/// A page frame.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Frame(pub u32);

impl Frame {
    /// Its page group.
    pub fn group(self) -> u32 {
        self.0 / GROUP_FRAMES
    }

    /// Where it is in its group's memory.
    pub(crate) fn offset(self) -> u64 {
        u64::from(self.0 % GROUP_FRAMES) * PAGE_BYTES
    }
}

/// All frames of a supervisor.
#[derive(Debug)]
pub struct Frames {
    /// Made when they are used for the first time.
    groups: Vec<OnceLock<OwnedFd>>,
    /// All of them, one after the other.
    all: Arc<Shared>,
}

impl Frames {
    /// As many groups of frames, all zeros. They take no memory before they are used.
    pub fn new(groups: u32) -> Result<Self, Errno> {
        let bytes = usize::try_from(u64::from(groups) * GROUP_BYTES).map_err(|_| Errno::NOMEM)?;
        let all = Arc::new(Shared::reserve(bytes)?);
        Ok(Self { groups: (0..groups).map(|_| OnceLock::new()).collect(), all })
    }

    /// A group's memory, which is there from now on.
    pub(crate) fn group(&self, group: u32) -> Result<BorrowedFd<'_>, Errno> {
        let place = &self.groups[group as usize];
        if place.get().is_none() {
            let file = host::memory(c"comb-frames", GROUP_BYTES)?;
            let bytes = usize::try_from(GROUP_BYTES).expect("a group is small");
            self.all.put(group as usize * bytes, bytes, file.as_fd())?;
            // Frames belong to the one thread that serves a supervisor's calls.
            let _ = place.set(file);
        }
        Ok(place.get().expect("just made").as_fd())
    }

    /// How many there are.
    pub fn len(&self) -> u32 {
        u32::try_from(self.groups.len()).expect("their number was given as one") * GROUP_FRAMES
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Where the first one is in this process, and after it all others: once their group was used. Programs change what is there at any time.
    pub fn start(&self) -> std::ptr::NonNull<u8> {
        self.all.at(0)
    }

    /// The same, for who keeps it.
    pub(crate) fn memory(&self) -> Arc<Shared> {
        self.all.clone()
    }

    /// Sees to it that frames have memory.
    pub(crate) fn populate(&self, first: Frame, frames: u32) -> Result<(), Errno> {
        let bytes = u64::from(frames) * PAGE_BYTES;
        fallocate(self.group(first.group())?, FallocateFlags::empty(), first.offset(), bytes)
    }

    /// Copies from a frame, as it is now.
    pub fn read(&self, frame: Frame, offset: usize, to: &mut [u8]) {
        assert!(offset + to.len() <= 4096, "within a frame");
        self.group(frame.group()).expect("the host has memory");
        self.all.copy_out(frame.0 as usize * 4096 + offset, to);
    }

    /// Copies to a frame.
    pub fn write(&self, frame: Frame, offset: usize, from: &[u8]) {
        assert!(offset + from.len() <= 4096, "within a frame");
        self.group(frame.group()).expect("the host has memory");
        self.all.copy_in(frame.0 as usize * 4096 + offset, from);
    }

    /// Copies a frame.
    pub(crate) fn copy(&self, from: Frame, to: Frame) {
        let mut content = [0; 4096];
        self.read(from, 0, &mut content);
        self.write(to, 0, &content);
    }
}
