//! Pages of idle processes, in a file of the host while others need their frames.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};

use crate::contents;
use crate::machine::{Frame, Machine, PAGE_BYTES};
use crate::spaces::{Memory, Space, SpaceNumber};

/// So many frames are freed at a time: what one needs, the next will too.
const AT_ONCE: usize = 64;

/// A place in the file, for one page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Slot(u32);

/// The file, which has no name and goes with the emulator.
#[derive(Default)]
pub(crate) struct Swap {
    file: Option<File>,
    /// How many pages may be there.
    most: u64,
    /// By slot, how many spaces have a page that is there.
    holders: Vec<u32>,
    free: Vec<Slot>,
    /// How many pages went there, and came back.
    pub(crate) moved: [u64; 2],
}

impl Swap {
    pub(crate) fn new(bytes: u64) -> Self {
        Self { most: bytes / PAGE_BYTES, ..Self::default() }
    }

    fn file(&mut self) -> Option<&File> {
        if self.file.is_none() {
            let mut options = File::options();
            let options = options.read(true).write(true).custom_flags(libc::O_TMPFILE).mode(0o600);
            self.file = options.open(std::env::temp_dir()).ok();
        }
        self.file.as_ref()
    }

    /// Keeps a page. Nothing: there is no room, or the host does not take it.
    fn put(&mut self, content: &[u8]) -> Option<Slot> {
        let slot = self.free.last().copied().or_else(|| {
            let next = u32::try_from(self.holders.len()).ok()?;
            (u64::from(next) < self.most).then_some(Slot(next))
        })?;
        self.file()?.write_all_at(content, u64::from(slot.0) * PAGE_BYTES).ok()?;
        if self.free.pop().is_none() {
            self.holders.push(0);
        }
        self.holders[slot.0 as usize] = 1;
        self.moved[0] += 1;
        Some(slot)
    }

    fn read(&mut self, slot: Slot, into: &mut [u8]) -> Option<()> {
        self.file()?.read_exact_at(into, u64::from(slot.0) * PAGE_BYTES).ok()?;
        self.moved[1] += 1;
        Some(())
    }

    /// One more space has that page.
    pub(crate) fn hold(&mut self, slot: Slot) {
        self.holders[slot.0 as usize] += 1;
    }

    /// One space less.
    pub(crate) fn release(&mut self, slot: Slot) {
        let holders = &mut self.holders[slot.0 as usize];
        assert!(*holders > 0, "a free slot has no holder");
        *holders -= 1;
        if *holders == 0 {
            self.free.push(slot);
        }
    }

    /// How many pages are there.
    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        self.holders.len() - self.free.len()
    }
}

impl<M: Machine> Memory<M> {
    /// Frees frames of the process that was idle for longest. What this one has stays: it is what is being worked with.
    pub(crate) fn swap_out(&mut self, except: SpaceNumber) -> bool {
        let mut content = vec![0; PAGE_BYTES as usize];
        let mut order: Vec<SpaceNumber> =
            self.spaces.keys().copied().filter(|number| *number != except).collect();
        order.sort_by_key(|number| self.spaces[number].used);
        let mut freed = 0;
        for number in order {
            let Space { machine, private, .. } = &self.spaces[&number];
            // A frame that several have would not be free without the others.
            let alone = private.iter().filter(|(_, frame)| self.frames.holders(**frame) == 1);
            let chosen: Vec<(u64, Frame)> =
                alone.take(AT_ONCE - freed).map(|(page, frame)| (*page, *frame)).collect();
            let machine = *machine;
            // From here on nobody stores to them. Neighbours go at once.
            for run in chosen.chunk_by(|(page, _), (next, _)| page + 1 == *next) {
                self.machine.unmap(machine, run[0].0, run.len() as u64);
            }
            for (page, frame) in chosen {
                contents::read(&self.machine, frame, 0, &mut content);
                let Some(slot) = self.swap.put(&content) else { return freed > 0 };
                let space = self.spaces.get_mut(&number).expect("it was just there");
                space.private.remove(&page);
                space.out.insert(page, slot);
                self.frames.release(frame);
                freed += 1;
            }
            if freed >= AT_ONCE {
                break;
            }
        }
        freed > 0
    }

    /// Brings a page back into a frame, which nobody else has. Nothing: it cannot be read, or is not there.
    pub(crate) fn swap_in(&mut self, number: SpaceNumber, page: u64, frame: Frame) -> Option<()> {
        let mut content = vec![0; PAGE_BYTES as usize];
        let slot = *self.spaces[&number].out.get(&page)?;
        self.swap.read(slot, &mut content)?;
        contents::write(&self.machine, frame, 0, &content);
        let space = self.spaces.get_mut(&number)?;
        space.out.remove(&page);
        space.private.insert(page, frame);
        self.swap.release(slot);
        Some(())
    }

    /// Pages that a space does not have any more.
    pub(crate) fn forget_out(&mut self, gone: BTreeMap<u64, Slot>) {
        gone.into_values().for_each(|slot| self.swap.release(slot));
    }
}
