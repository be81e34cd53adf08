//! Loads and unloads of kernels, spaces and threads, and the cascades that these cause.

use std::collections::VecDeque;
use std::ops::Range;

use super::errors::{Refused, SizesError};
use super::groups::{Access, Groups};
use super::hardware::Hardware;
use super::ids::{KernelId, SpaceId, Tag, ThreadId};
use super::kernel::{Kernel, KernelDescriptor, Locks, check_shares};
use super::physical_map::PhysicalMap;
use super::record::FrameKey;
use super::sizes::{MAXIMUM_FRAMES, MAXIMUM_PAGES, Sizes};
use super::slots::Slots;
use super::writeback::Writeback;

/// The first kernel's slot.
const FIRST: u16 = 0;

/// All that is loaded. `S` is the state of a thread that does not run.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Objects<S> {
    pub(super) sizes: Sizes,
    pub(super) frames: u64,
    pub(super) kernels: Slots<Kernel<S>>,
    pub(super) spaces: Slots<Space>,
    pub(super) threads: Slots<Thread<S>>,
    pub(super) map: PhysicalMap,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Space {
    pub(super) kernel: u16,
    pub(super) tag: Tag,
    /// How many of its pages are mapped.
    pub(super) mappings: u32,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Thread<S> {
    pub(super) space: u16,
    pub(super) tag: Tag,
    pub(super) priority: u8,
    /// Of one that is about to go.
    pub(super) stopped: Option<S>,
}

/// A kernel to load.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct KernelLoad<S> {
    /// The first kernel's name for it.
    pub tag: Tag,
    /// What it may use.
    pub descriptor: KernelDescriptor,
    /// Whether it is exempt from replacement.
    pub locked: bool,
    /// What it had not heard when it was written back. Empty for a new one.
    pub waiting: VecDeque<Writeback<S>>,
}

/// A space to load.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
pub struct SpaceLoad {
    /// The owner's name for it.
    pub tag: Tag,
    /// Whether it is exempt from replacement, as long as its kernel is locked.
    pub locked: bool,
}

/// A thread to load. Its registers are the machine's business.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
pub struct ThreadLoad {
    /// The owner's name for it.
    pub tag: Tag,
    /// Where it runs.
    pub space: SpaceId,
    /// Up to its kernel's highest.
    pub priority: u8,
    /// Whether it is exempt from replacement, as long as its space and its kernel are locked.
    pub locked: bool,
}

/// A loaded space.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SpaceView {
    /// The owner's name for it.
    pub tag: Tag,
    /// The owner.
    pub kernel: KernelId,
    /// How many of its pages are mapped.
    pub mappings: u32,
}

/// A loaded thread.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ThreadView {
    /// The owner's name for it.
    pub tag: Tag,
    /// Where it runs.
    pub space: SpaceId,
    /// The owner, to whom its faults and traps go.
    pub kernel: KernelId,
    /// Among the loaded threads.
    pub priority: u8,
}

impl<S> Objects<S> {
    /// Empty tables but for the first kernel, which is locked, and has access to all frames, whatever the descriptor's groups say. The rest
    /// of the descriptor counts for it as for any other. (§2.4)
    pub fn new(
        sizes: Sizes,
        frames: u64,
        tag: Tag,
        descriptor: KernelDescriptor,
    ) -> Result<(Self, KernelId), Refused> {
        sizes.check()?;
        if frames > MAXIMUM_FRAMES {
            return Err(SizesError::Frames(frames).into());
        }
        let descriptor = KernelDescriptor { groups: Groups::new(frames, Access::ReadWrite), ..descriptor };
        descriptor.check(frames)?;
        let mut objects = Self {
            sizes,
            frames,
            kernels: Slots::new(sizes.kernels),
            spaces: Slots::new(sizes.spaces),
            threads: Slots::new(sizes.threads),
            map: PhysicalMap::new(sizes.mappings, sizes.seed),
        };
        objects.limits_fit(descriptor.locks, None)?;
        let first =
            objects.insert_kernel(KernelLoad { tag, descriptor, locked: true, waiting: VecDeque::new() });
        Ok((objects, first))
    }

    /// Loads a kernel, in the place of another if need be. Only the first kernel can.
    pub fn load_kernel<H: Hardware<State = S>>(
        &mut self,
        hardware: &mut H,
        caller: KernelId,
        load: KernelLoad<S>,
    ) -> Result<KernelId, Refused> {
        self.check_first(caller)?;
        self.check_not_behind(FIRST)?;
        load.descriptor.check(self.frames)?;
        let victim = if self.kernels.is_full() {
            let victim = self.kernels.victim(|slot| !self.kernels.is_locked(slot));
            Some(victim.expect("not all can be locked"))
        } else {
            None
        };
        self.limits_fit(load.descriptor.locks, victim)?;
        if load.locked {
            self.may_lock(FIRST, |locks| locks.kernels, 1)?;
        }
        if let Some(victim) = victim {
            self.kernels.pass(victim);
            self.take_kernel(hardware, victim);
        }
        if load.locked {
            self.locked_mut(FIRST).kernels += 1;
        }
        Ok(self.insert_kernel(load))
    }

    /// Room for what may wait is made here, so that a writeback takes none unless its owner is behind.
    fn insert_kernel(&mut self, load: KernelLoad<S>) -> KernelId {
        let KernelLoad { tag, descriptor, locked, mut waiting } = load;
        waiting.reserve(self.sizes.writebacks as usize + 1);
        KernelId(self.kernels.insert(Kernel { tag, descriptor, locked: Locks::default(), waiting }, locked))
    }

    /// Loads a space of the caller's, in the place of another if need be.
    pub fn load_space<H: Hardware<State = S>>(
        &mut self,
        hardware: &mut H,
        caller: KernelId,
        load: SpaceLoad,
    ) -> Result<SpaceId, Refused> {
        let kernel = self.find_kernel(caller)?;
        self.check_not_behind(kernel)?;
        if load.locked {
            self.may_lock(kernel, |locks| locks.spaces, 1)?;
        }
        if self.spaces.is_full() {
            let victim = self.spaces.victim(|slot| !self.is_space_held(slot));
            let victim = victim.expect("not all can be locked");
            self.spaces.pass(victim);
            self.take_space(hardware, victim);
        }
        if load.locked {
            self.locked_mut(kernel).spaces += 1;
        }
        Ok(SpaceId(self.spaces.insert(Space { kernel, tag: load.tag, mappings: 0 }, load.locked)))
    }

    /// Loads a thread into a space of the caller's, in the place of another thread if need be.
    pub fn load_thread<H: Hardware<State = S>>(
        &mut self,
        hardware: &mut H,
        caller: KernelId,
        load: ThreadLoad,
    ) -> Result<ThreadId, Refused> {
        let ThreadLoad { tag, space, priority, locked } = load;
        let kernel = self.find_kernel(caller)?;
        self.check_not_behind(kernel)?;
        let space = self.find_own_space(kernel, space)?;
        self.check_priority(kernel, priority)?;
        if locked {
            self.may_lock(kernel, |locks| locks.threads, 1)?;
        }
        if self.threads.is_full() {
            let victim = self.threads.victim(|slot| !self.is_thread_held(slot));
            let victim = victim.expect("not all can be locked");
            self.threads.pass(victim);
            self.take_thread(hardware, victim);
        }
        if locked {
            self.locked_mut(kernel).threads += 1;
        }
        Ok(ThreadId(self.threads.insert(Thread { space, tag, priority, stopped: None }, locked)))
    }

    /// Unloads a kernel with all that is its own, locked or not. Only the first kernel can, and not itself.
    pub fn unload_kernel<H: Hardware<State = S>>(
        &mut self,
        hardware: &mut H,
        caller: KernelId,
        kernel: KernelId,
    ) -> Result<(), Refused> {
        let kernel = self.find_granted(caller, kernel)?;
        self.take_kernel(hardware, kernel);
        Ok(())
    }

    /// Unloads a space with its threads and mappings, locked or not.
    pub fn unload_space<H: Hardware<State = S>>(
        &mut self,
        hardware: &mut H,
        caller: KernelId,
        space: SpaceId,
    ) -> Result<(), Refused> {
        let space = self.find_own_space(self.find_kernel(caller)?, space)?;
        self.take_space(hardware, space);
        Ok(())
    }

    /// Unloads a thread with the mappings that signal it, locked or not.
    pub fn unload_thread<H: Hardware<State = S>>(
        &mut self,
        hardware: &mut H,
        caller: KernelId,
        thread: ThreadId,
    ) -> Result<(), Refused> {
        let thread = self.find_own_thread(self.find_kernel(caller)?, thread)?;
        self.take_thread(hardware, thread);
        Ok(())
    }

    /// Changes a thread's priority in place. (§2.3)
    pub fn set_priority(&mut self, caller: KernelId, thread: ThreadId, priority: u8) -> Result<(), Refused> {
        let kernel = self.find_kernel(caller)?;
        let thread = self.find_own_thread(kernel, thread)?;
        self.check_priority(kernel, priority)?;
        self.threads.at_mut(thread).priority = priority;
        Ok(())
    }

    /// Changes what a kernel may do with some page groups. What it has mapped and may not any more is unloaded, for which all records are
    /// looked at; this is not done often. (§2.4, §4.3)
    pub fn set_access<H: Hardware<State = S>>(
        &mut self,
        hardware: &mut H,
        caller: KernelId,
        kernel: KernelId,
        groups: Range<u64>,
        access: Access,
    ) -> Result<(), Refused> {
        let kernel = self.find_granted(caller, kernel)?;
        let granted = &mut self.kernels.at_mut(kernel).descriptor.groups;
        if groups.end > granted.count() {
            return Err(Refused::NoGroup(groups.end));
        }
        granted.set(groups, access);
        if access < Access::ReadWrite {
            self.flush_forbidden(hardware, kernel);
        }
        Ok(())
    }

    /// Changes a kernel's shares of the processors. (§4.3)
    pub fn set_processor_shares(
        &mut self,
        caller: KernelId,
        kernel: KernelId,
        shares: &[u8],
    ) -> Result<(), Refused> {
        let kernel = self.find_granted(caller, kernel)?;
        check_shares(shares)?;
        let granted = &mut self.kernels.at_mut(kernel).descriptor.processor_shares;
        granted.clear();
        granted.extend_from_slice(shares);
        Ok(())
    }

    /// Changes the highest priority that a kernel's threads can have. Those that are above come down to it. (§4.3)
    pub fn set_maximum_priority(
        &mut self,
        caller: KernelId,
        kernel: KernelId,
        maximum: u8,
    ) -> Result<(), Refused> {
        let kernel = self.find_granted(caller, kernel)?;
        self.kernels.at_mut(kernel).descriptor.maximum_priority = maximum;
        for slot in self.threads.numbers() {
            if self.threads.get(slot).is_some_and(|thread| self.spaces.at(thread.space).kernel == kernel) {
                let thread = self.threads.at_mut(slot);
                thread.priority = thread.priority.min(maximum);
            }
        }
        Ok(())
    }

    /// The oldest object that has gone and whose owner has not heard yet.
    pub fn take_writeback(&mut self, kernel: KernelId) -> Result<Option<Writeback<S>>, Refused> {
        let kernel = self.find_kernel(kernel)?;
        Ok(self.kernels.at_mut(kernel).waiting.pop_front())
    }

    /// Who has writebacks to take, and how many.
    pub fn waiting(&self) -> impl Iterator<Item = (KernelId, usize)> {
        let all = self
            .kernels
            .iter()
            .map(|(slot, kernel)| (KernelId(self.kernels.key(slot)), kernel.waiting.len()));
        all.filter(|(_, waiting)| *waiting > 0)
    }

    /// How many writebacks can wait for one kernel: those that it may be behind with, and all that can be loaded.
    pub fn most_waiting(&self) -> usize {
        let Sizes { writebacks, spaces, threads, mappings, .. } = self.sizes;
        [writebacks, 1, spaces, threads, mappings].into_iter().map(|size| size as usize).sum()
    }

    /// What a kernel, a space, a thread and a mapping's record take here.
    pub fn descriptor_bytes(&self) -> [usize; 4] {
        let groups = self.kernels.at(FIRST).descriptor.groups.bytes();
        [
            self.kernels.slot_bytes() + groups,
            self.spaces.slot_bytes(),
            self.threads.slot_bytes(),
            size_of::<super::record::Record>(),
        ]
    }

    /// What a kernel may use.
    pub fn kernel(&self, kernel: KernelId) -> Result<&KernelDescriptor, Refused> {
        Ok(&self.kernels.at(self.find_kernel(kernel)?).descriptor)
    }

    /// A space, and whose it is.
    pub fn space(&self, space: SpaceId) -> Result<SpaceView, Refused> {
        let &Space { kernel, tag, mappings } = self.spaces.at(self.find_space(space)?);
        Ok(SpaceView { tag, kernel: KernelId(self.kernels.key(kernel)), mappings })
    }

    /// The space that has a slot now.
    pub fn space_at(&self, slot: usize) -> Option<SpaceId> {
        let (slot, _) = self.spaces.iter().find(|(number, _)| usize::from(*number) == slot)?;
        Some(SpaceId(self.spaces.key(slot)))
    }

    /// A thread, and whose it is.
    pub fn thread(&self, thread: ThreadId) -> Result<ThreadView, Refused> {
        let &Thread { space, tag, priority, .. } = self.threads.at(self.find_thread(thread)?);
        let kernel = KernelId(self.kernels.key(self.spaces.at(space).kernel));
        Ok(ThreadView { tag, space: SpaceId(self.spaces.key(space)), kernel, priority })
    }

    /// A kernel did something: it is not the next to be replaced. A stale one is left alone, here and below: it is only a hint.
    pub fn touch_kernel(&mut self, kernel: KernelId) {
        if let Some(slot) = self.kernels.find(kernel.0) {
            self.kernels.touch(slot);
        }
    }

    /// A space is used, and so is its kernel.
    pub fn touch_space(&mut self, space: SpaceId) {
        if let Some(slot) = self.spaces.find(space.0) {
            self.spaces.touch(slot);
            self.kernels.touch(self.spaces.at(slot).kernel);
        }
    }

    /// A thread runs; its space and its kernel are used.
    pub fn touch_thread(&mut self, thread: ThreadId) {
        if let Some(slot) = self.threads.find(thread.0) {
            self.threads.touch(slot);
            self.touch_space(SpaceId(self.spaces.key(self.threads.at(slot).space)));
        }
    }

    /// A page is used. Its space is not thereby: who has seen the page used has seen a thread run.
    pub fn touch_mapping(&mut self, space: SpaceId, page: u64) {
        if let Some(slot) = self.spaces.find(space.0)
            && page < MAXIMUM_PAGES
            && let Some(mapping) = self.map.find(slot, page)
        {
            self.map.at_mut(mapping).set_used(true);
        }
    }

    fn take_kernel<H: Hardware<State = S>>(&mut self, hardware: &mut H, kernel: u16) {
        for slot in self.spaces.numbers() {
            if self.spaces.get(slot).is_some_and(|space| space.kernel == kernel) {
                self.take_space(hardware, slot);
            }
        }
        if self.kernels.is_locked(kernel) {
            self.locked_mut(FIRST).kernels -= 1;
        }
        let Kernel { tag, descriptor, waiting, .. } = self.kernels.remove(kernel);
        self.write_back(FIRST, Writeback::Kernel { tag, descriptor, waiting });
    }

    /// All threads stop before anything else goes, so that none runs into pages that it has lost with its space.
    fn take_space<H: Hardware<State = S>>(&mut self, hardware: &mut H, space: u16) {
        let of_space = |objects: &Self, slot: &u16| {
            objects.threads.get(*slot).is_some_and(|thread| thread.space == space)
        };
        for slot in self.threads.numbers() {
            if of_space(self, &slot) {
                self.stop(hardware, slot);
            }
        }
        for slot in self.threads.numbers() {
            if of_space(self, &slot) {
                self.take_thread(hardware, slot);
            }
        }
        self.flush_range(hardware, space, 0..MAXIMUM_PAGES);
        hardware.end_space(SpaceId(self.spaces.key(space)));
        let is_locked = self.spaces.is_locked(space);
        let Space { kernel, tag, .. } = self.spaces.remove(space);
        if is_locked {
            self.locked_mut(kernel).spaces -= 1;
        }
        self.write_back(kernel, Writeback::Space { tag });
    }

    fn take_thread<H: Hardware<State = S>>(&mut self, hardware: &mut H, thread: u16) {
        self.stop(hardware, thread);
        loop {
            let signal = self.map.dependents(FrameKey::thread(thread)).next();
            let Some(mapping) = signal.map(|(place, record)| record.of_mapping(place)) else { break };
            self.flush(hardware, mapping);
        }
        let is_locked = self.threads.is_locked(thread);
        let Thread { space, tag, stopped, .. } = self.threads.remove(thread);
        let kernel = self.spaces.at(space).kernel;
        if is_locked {
            self.locked_mut(kernel).threads -= 1;
        }
        self.write_back(kernel, Writeback::Thread { tag, state: stopped.expect("it was stopped") });
    }

    fn stop<H: Hardware<State = S>>(&mut self, hardware: &mut H, thread: u16) {
        let id = ThreadId(self.threads.key(thread));
        self.threads.at_mut(thread).stopped.get_or_insert_with(|| hardware.stop(id));
    }

    pub(super) fn write_back(&mut self, kernel: u16, writeback: Writeback<S>) {
        self.kernels.at_mut(kernel).waiting.push_back(writeback);
    }

    pub(super) fn find_kernel(&self, kernel: KernelId) -> Result<u16, Refused> {
        self.kernels.find(kernel.0).ok_or(Refused::StaleKernel(kernel))
    }

    pub(super) fn find_space(&self, space: SpaceId) -> Result<u16, Refused> {
        self.spaces.find(space.0).ok_or(Refused::StaleSpace(space))
    }

    fn find_thread(&self, thread: ThreadId) -> Result<u16, Refused> {
        self.threads.find(thread.0).ok_or(Refused::StaleThread(thread))
    }

    pub(super) fn find_own_space(&self, kernel: u16, space: SpaceId) -> Result<u16, Refused> {
        let slot = self.find_space(space)?;
        if self.spaces.at(slot).kernel == kernel { Ok(slot) } else { Err(Refused::ForeignSpace(space)) }
    }

    pub(super) fn find_own_thread(&self, kernel: u16, thread: ThreadId) -> Result<u16, Refused> {
        let slot = self.find_thread(thread)?;
        let owner = self.spaces.at(self.threads.at(slot).space).kernel;
        if owner == kernel { Ok(slot) } else { Err(Refused::ForeignThread(thread)) }
    }

    pub(super) fn check_first(&self, caller: KernelId) -> Result<(), Refused> {
        if self.find_kernel(caller)? == FIRST { Ok(()) } else { Err(Refused::NotFirst) }
    }

    /// A kernel that the caller, the first one, may take from and give to.
    fn find_granted(&self, caller: KernelId, kernel: KernelId) -> Result<u16, Refused> {
        self.check_first(caller)?;
        match self.find_kernel(kernel)? {
            FIRST => Err(Refused::IsFirst),
            slot => Ok(slot),
        }
    }

    pub(super) fn check_not_behind(&self, kernel: u16) -> Result<(), Refused> {
        let waiting = self.kernels.at(kernel).waiting.len();
        if waiting > self.sizes.writebacks as usize { Err(Refused::Behind { waiting }) } else { Ok(()) }
    }

    fn check_priority(&self, kernel: u16, asked: u8) -> Result<(), Refused> {
        let maximum = self.kernels.at(kernel).descriptor.maximum_priority;
        if asked > maximum { Err(Refused::Priority { asked, maximum }) } else { Ok(()) }
    }
}
