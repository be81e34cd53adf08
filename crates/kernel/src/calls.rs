//! What an application kernel asks of its supervisor, in the same process or in another.

use std::ops::Range;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use crate::host::Shared;
use crate::objects::{
    Access, KernelId, KernelLoad, Mapping, Refused, SpaceId, SpaceLoad, Tag, ThreadId, ThreadLoad, Writeback,
};
use crate::scheduling::prefer_this_thread;
use crate::space::Bell;
use crate::supervisor::{CallError, State, Supervisor};
use crate::thread::Area;

/// The calls of one kernel. Each is done when it returns; what it displaced is to be heard of by [`Calls::take_writeback`].
pub trait Calls {
    /// Where its threads ring, by the number of their slot.
    fn bell(&self) -> &Bell;

    /// Where frame 0 is in this process, and after it all others. Those that were not granted may not be touched.
    fn memory(&self) -> NonNull<u8>;

    /// The same memory, for who keeps it longer than this. To touch what was not granted ends the process.
    fn kept_memory(&self) -> Arc<Shared>;

    /// Whether a page group may be mapped writable. From then on its frames are where [`Calls::memory`] says.
    fn may_write(&self, group: u32) -> bool;

    /// How many page groups there are, with those that were not granted.
    fn groups(&self) -> u32;

    /// The area of a thread that is loaded.
    fn area(&self, thread: ThreadId) -> Result<Area<'_>, CallError>;

    /// Loads a space, with nothing in it.
    fn load_space(&mut self, load: SpaceLoad) -> Result<SpaceId, CallError>;

    /// Loads a thread, stopped in this state: [`Area::resume`] lets it go on.
    fn load_thread(&mut self, load: ThreadLoad, state: &State, spins: u32) -> Result<ThreadId, CallError>;

    /// Loads mappings of neighbouring pages to neighbouring frames, of which the first is given.
    fn load_mappings(&mut self, first: &Mapping, count: u32) -> Result<(), CallError>;

    /// Makes the copy that a page is to become ([`Mapping::copy_of`]), and maps it: what a kernel does when a thread stops at the first store.
    fn make_copy(&mut self, space: SpaceId, page: u64) -> Result<(), CallError>;

    /// Takes the right to store away from all that is mapped in a range.
    fn forbid_writes(&mut self, space: SpaceId, page: u64, pages: u64) -> Result<(), CallError>;

    /// Unloads what is mapped in a range: how much that was.
    fn unload_mappings(&mut self, space: SpaceId, page: u64, pages: u64) -> Result<u32, CallError>;

    /// Unloads a thread.
    fn unload_thread(&mut self, thread: ThreadId) -> Result<(), CallError>;

    /// Unloads a space, with its threads and mappings.
    fn unload_space(&mut self, space: SpaceId) -> Result<(), CallError>;

    /// Stops a thread wherever it is: it rings.
    fn interrupt(&mut self, thread: ThreadId) -> Result<(), CallError>;

    /// Delivers a message, an address of this space, to the threads that are signalled by its page. To how many.
    fn signal(&mut self, space: SpaceId, address: u64) -> Result<u32, CallError>;

    /// Has another thread hear of the messages of a page.
    fn redirect(&mut self, space: SpaceId, page: u64, thread: ThreadId) -> Result<(), CallError>;

    /// Has the supervisor look after spaces that ended by themselves and after shares, if nobody else does.
    fn look_around(&mut self);

    /// Has a thread run on this processor only, or on any: to wake it is five times as fast on that of who wakes it.
    fn keep_on(&mut self, thread: ThreadId, processor: Option<u32>) -> Result<(), CallError>;

    /// How much of the processors a thread has used so far, if its state asked for that ([`State::used`]).
    fn used(&mut self, thread: ThreadId) -> Result<Option<Duration>, CallError>;

    /// Changes a thread's priority: what is charged for it changes with it. ([`crate::shares`])
    fn set_priority(&mut self, thread: ThreadId, priority: u8) -> Result<(), CallError>;

    /// Changes the priority of the kernel itself: of its process, or of the calling thread if the supervisor is in its own.
    fn set_own_priority(&mut self, priority: u8) -> Result<(), CallError>;

    /// The oldest object that was unloaded and of which this kernel has not heard. It hears of page groups that it was given or has lost as well, here as in
    /// every call.
    fn take_writeback(&mut self) -> Result<Option<Writeback<Box<State>>>, CallError>;
}

/// What only the first kernel can ask: for others, and for itself. (§2.4, §3)
pub trait First: Calls {
    /// Loads a kernel, in the place of another if need be, with what it had not heard when it was written back. Whoever gets the counter's end is that
    /// kernel.
    fn load_kernel(&mut self, load: KernelLoad<Box<State>>) -> Result<(KernelId, OwnedFd), CallError>;

    /// Unloads a kernel, with all that it has loaded.
    fn unload_kernel(&mut self, kernel: KernelId) -> Result<(), CallError>;

    /// Changes what a kernel may do with some page groups: see [`Supervisor::set_access`]. The kernel hears of it with its next call.
    fn set_access(&mut self, kernel: KernelId, groups: Range<u64>, access: Access) -> Result<(), CallError>;

    /// Changes a kernel's shares of the processors, in percent of each.
    fn set_processor_shares(&mut self, kernel: KernelId, shares: &[u8]) -> Result<(), CallError>;

    /// Changes the highest priority that a kernel's threads can have.
    fn set_maximum_priority(&mut self, kernel: KernelId, maximum: u8) -> Result<(), CallError>;

    /// What a process uses, named by its descriptor, is its kernel's: see [`Supervisor::charge_process`].
    fn charge_process(&mut self, kernel: KernelId, process: BorrowedFd<'_>) -> Result<(), CallError>;

    /// Gives page groups, in ascending order, other memory, all zeros: what they were, nobody has any more.
    fn clear_groups(&mut self, groups: &[u32]) -> Result<(), CallError>;

    /// As this, but what they were is put away under a name, emptied: see [`Supervisor::put_away`].
    fn put_away(&mut self, name: Tag, groups: &[u32]) -> Result<(), CallError>;

    /// Gives page groups the memory that was put away under a name, all zeros, the oldest first.
    fn put_back(&mut self, name: Tag, groups: &[u32]) -> Result<(), CallError>;

    /// What was put away under a name is not needed any more.
    fn forget_away(&mut self, name: Tag) -> Result<(), CallError>;

    /// Copies from a frame, as it is now.
    fn read(&self, frame: u64, offset: usize, to: &mut [u8]);

    /// Copies to a frame.
    fn write(&mut self, frame: u64, offset: usize, from: &[u8]);
}

/// A kernel in its supervisor's process: where one application has a machine for itself, it can be the first and only kernel. (§3)
#[derive(Debug)]
pub struct Direct {
    supervisor: Supervisor,
    kernel: KernelId,
}

impl Direct {
    /// One of the kernels of a supervisor, which has it for itself.
    pub fn new(supervisor: Supervisor, kernel: KernelId) -> Self {
        Self { supervisor, kernel }
    }
}

impl Calls for Direct {
    fn bell(&self) -> &Bell {
        self.supervisor.bell(self.kernel).expect("nobody unloads it but itself")
    }

    fn memory(&self) -> NonNull<u8> {
        self.supervisor.frames().start()
    }

    fn kept_memory(&self) -> Arc<Shared> {
        self.supervisor.frames().memory()
    }

    fn may_write(&self, group: u32) -> bool {
        self.supervisor.frames().group(group).is_ok()
    }

    fn groups(&self) -> u32 {
        self.supervisor.frames().len() / crate::frames::GROUP_FRAMES
    }

    fn area(&self, thread: ThreadId) -> Result<Area<'_>, CallError> {
        self.supervisor.area(self.kernel, thread)
    }

    fn load_space(&mut self, load: SpaceLoad) -> Result<SpaceId, CallError> {
        self.supervisor.load_space(self.kernel, load)
    }

    fn load_thread(&mut self, load: ThreadLoad, state: &State, spins: u32) -> Result<ThreadId, CallError> {
        self.supervisor.load_thread(self.kernel, load, state, spins)
    }

    fn load_mappings(&mut self, first: &Mapping, count: u32) -> Result<(), CallError> {
        self.supervisor.load_mappings(self.kernel, first, count)
    }

    fn make_copy(&mut self, space: SpaceId, page: u64) -> Result<(), CallError> {
        self.supervisor.make_copy(self.kernel, space, page)
    }

    fn forbid_writes(&mut self, space: SpaceId, page: u64, pages: u64) -> Result<(), CallError> {
        self.supervisor.forbid_writes(self.kernel, space, page, pages)
    }

    fn unload_mappings(&mut self, space: SpaceId, page: u64, pages: u64) -> Result<u32, CallError> {
        self.supervisor.unload_mappings(self.kernel, space, page, pages)
    }

    fn unload_thread(&mut self, thread: ThreadId) -> Result<(), CallError> {
        self.supervisor.unload_thread(self.kernel, thread)
    }

    fn unload_space(&mut self, space: SpaceId) -> Result<(), CallError> {
        self.supervisor.unload_space(self.kernel, space)
    }

    fn interrupt(&mut self, thread: ThreadId) -> Result<(), CallError> {
        self.supervisor.interrupt(self.kernel, thread)
    }

    fn signal(&mut self, space: SpaceId, address: u64) -> Result<u32, CallError> {
        self.supervisor.signal(self.kernel, space, address)
    }

    fn redirect(&mut self, space: SpaceId, page: u64, thread: ThreadId) -> Result<(), CallError> {
        self.supervisor.redirect(self.kernel, space, page, thread)
    }

    fn look_around(&mut self) {
        self.supervisor.sweep();
        self.supervisor.look_after_shares();
    }

    fn keep_on(&mut self, thread: ThreadId, processor: Option<u32>) -> Result<(), CallError> {
        self.supervisor.keep_on(self.kernel, thread, processor)
    }

    fn used(&mut self, thread: ThreadId) -> Result<Option<Duration>, CallError> {
        self.supervisor.thread_used(self.kernel, thread)
    }

    fn set_priority(&mut self, thread: ThreadId, priority: u8) -> Result<(), CallError> {
        self.supervisor.set_priority(self.kernel, thread, priority)
    }

    fn set_own_priority(&mut self, priority: u8) -> Result<(), CallError> {
        let maximum = self.supervisor.objects().kernel(self.kernel)?.maximum_priority;
        if priority > maximum {
            return Err(Refused::Priority { asked: priority, maximum }.into());
        }
        prefer_this_thread(priority);
        Ok(())
    }

    fn take_writeback(&mut self) -> Result<Option<Writeback<Box<State>>>, CallError> {
        self.supervisor.take_writeback(self.kernel)
    }
}
