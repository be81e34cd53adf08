//! The physical memory: frames, in page groups, each of which is memory of its own, so that a kernel can be given some and not others.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};

use rustix::fs::{FallocateFlags, SealFlags, fallocate, fcntl_add_seals};
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
            let file = Self::fresh()?;
            self.show(group, &file)?;
            // Frames belong to the one thread that serves a supervisor's calls.
            let _ = place.set(file);
        }
        Ok(place.get().expect("just made").as_fd())
    }

    /// Memory for a group. Whoever is given its descriptor can do nothing to its length: others who have the group would be stopped by it.
    pub(crate) fn fresh() -> Result<OwnedFd, Errno> {
        let file = host::memory(c"comb-frames", GROUP_BYTES)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok(file)
    }

    fn show(&self, group: u32, file: &OwnedFd) -> Result<(), Errno> {
        let bytes = usize::try_from(GROUP_BYTES).expect("a group is small");
        self.all.put(group as usize * bytes, bytes, file.as_fd())
    }

    /// Gives a group other memory: its old one. Who had that and has not got the other sees and changes nothing of the group from now on.
    pub(crate) fn exchange(&mut self, group: u32, file: OwnedFd) -> Result<OwnedFd, Errno> {
        self.group(group)?;
        self.show(group, &file)?;
        let old = self.groups[group as usize].take().expect("just made");
        let _ = self.groups[group as usize].set(file);
        Ok(old)
    }

    /// Gives a group new memory, with what was there or with zeros. What the old one took is the host's again; who keeps it and stores there takes it once
    /// more, until its process ends.
    pub(crate) fn renew(&mut self, group: u32, keeps_content: bool) -> Result<(), Errno> {
        let Some(old) = self.groups[group as usize].get() else { return Ok(()) };
        let new = Self::fresh()?;
        if keeps_content {
            let mut content = vec![0; usize::try_from(GROUP_BYTES).expect("a group is small")];
            let length = rustix::io::pread(old, &mut content, 0)?;
            for (page, at) in content[..length].chunks(4096).zip((0..).step_by(4096)) {
                if page.iter().any(|byte| *byte != 0) {
                    rustix::io::pwrite(&new, page, at)?;
                }
            }
        }
        empty(&self.exchange(group, new)?)
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

/// The host has the memory of a group again: it is all zeros.
pub(crate) fn empty(file: &OwnedFd) -> Result<(), Errno> {
    fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, GROUP_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_shortens_a_group_and_who_keeps_an_old_one_sees_nothing_new() {
        let mut frames = Frames::new(2).unwrap();
        frames.write(Frame(130), 0, b"kept");
        let old = frames.group(1).unwrap().try_clone_to_owned().unwrap();
        assert_eq!(rustix::fs::ftruncate(&old, 0), Err(Errno::PERM));
        assert_eq!(fcntl_add_seals(&old, SealFlags::WRITE), Err(Errno::PERM));
        frames.renew(1, true).unwrap();
        let (mut bytes, mut seen) = ([0; 4], [1; 4]);
        frames.read(Frame(130), 0, &mut bytes);
        assert_eq!(&bytes, b"kept");
        rustix::io::pread(&old, &mut seen, Frame(130).offset()).unwrap();
        assert_eq!(seen, [0; 4], "the host has it back");
        rustix::io::pwrite(&old, b"lost", Frame(130).offset()).unwrap();
        frames.read(Frame(130), 0, &mut bytes);
        assert_eq!(&bytes, b"kept");
        frames.renew(1, false).unwrap();
        frames.read(Frame(130), 0, &mut bytes);
        assert_eq!(bytes, [0; 4]);
    }
}
