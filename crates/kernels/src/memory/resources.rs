//! What the segments of a kernel share: its supervisor, its frames, and what it has not heard yet.
#![expect(unsafe_code, reason = "says how long the frames stay")]

use std::collections::VecDeque;

use comb_kernel::calls::{Calls, Direct};
use comb_kernel::frames::GROUP_FRAMES;
use comb_kernel::objects::{Sizes, Writeback};
use comb_kernel::supervisor::{CallError, State, Supervisor};

use super::content::{Content, Piece};
use super::disk::{Disk, Job};
use super::{Place, Pool, Run};

/// A kernel's.
pub struct Resources {
    /// Frames that nothing is in.
    pub pool: Pool,
    waiting: VecDeque<Writeback<Box<State>>>,
    disk: Disk,
    /// Threads that could go on in one have run before the next.
    pub(super) round: u64,
    /// Goes before the calls do.
    content: Content,
    calls: Box<dyn Calls>,
}

impl std::fmt::Debug for Resources {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Resources").field("pool", &self.pool).finish_non_exhaustive()
    }
}

impl Resources {
    /// All that a kernel was granted.
    pub fn new(calls: Box<dyn Calls>) -> Self {
        let pool = Pool::of(&*calls);
        // SAFETY: the frames of a kernel stay where they are as long as its calls do, which are dropped after this.
        let content = unsafe { Content::new(calls.memory(), calls.groups() * GROUP_FRAMES) };
        Self { pool, waiting: VecDeque::new(), disk: Disk::new(), round: 0, content, calls }
    }

    /// All of a supervisor of its own, in this process: where one application has a machine for itself. (§3)
    pub fn alone(sizes: Sizes, groups: u32) -> Result<Self, CallError> {
        let (supervisor, kernel) = Supervisor::new(sizes, groups)?;
        Ok(Self::new(Box::new(Direct::new(supervisor, kernel))))
    }

    /// Has something moved by another thread.
    pub(super) fn start(&self, job: Job) {
        self.disk.start(job, self.calls.bell().ringer());
    }

    /// Whether the kernel's bell is to ring when something was moved. To be said before [`super::Segment::begin_fault`] is asked.
    pub fn set_awaited(&self, is_awaited: bool) {
        self.disk.set_awaited(is_awaited);
    }

    /// Threads whose pages have come have run since, or had time for it: others can have the frames.
    pub fn next_round(&mut self) {
        self.round += 1;
    }

    /// What is asked of the supervisor.
    pub fn calls(&mut self) -> &mut dyn Calls {
        &mut *self.calls
    }

    /// Frames as bytes. They are the caller's, or what is in them is of no value to him.
    pub fn piece(&self, run: Run) -> Piece {
        assert!(
            (run.frame..run.frame + run.count).all(|frame| self.is_granted(frame)),
            "frames of the kernel"
        );
        self.content.piece(run.frame, run.count)
    }

    fn is_granted(&self, frame: u32) -> bool {
        self.calls.may_write(frame / GROUP_FRAMES)
    }

    /// Copies from a frame, as it is now.
    pub fn copy_out(&self, frame: u32, offset: usize, to: &mut [u8]) {
        assert!(self.is_granted(frame), "a frame of the kernel");
        self.content.copy_out(frame, offset, to);
    }

    /// Copies to a frame.
    pub fn copy_in(&self, frame: u32, offset: usize, from: &[u8]) {
        assert!(self.is_granted(frame), "a frame of the kernel");
        self.content.copy_in(frame, offset, from);
    }

    /// Unloads what is mapped of a segment's pages, and tells of all that it has not heard of yet whether it was modified, and whether it was referenced.
    pub fn unload(
        &mut self,
        place: &Place,
        page: u64,
        pages: u64,
        mut each: impl FnMut(u64, bool, bool),
    ) -> Result<(), CallError> {
        let first = place.first + page;
        self.calls.unload_mappings(place.space, first, pages)?;
        while let Some(gone) = self.calls.take_writeback()? {
            self.waiting.push_back(gone);
        }
        self.waiting.retain(|gone| match *gone {
            Writeback::Mapping { space, page, modified, referenced, .. }
                if space == place.tag && (first..first + pages).contains(&page) =>
            {
                each(page - place.first, modified, referenced);
                false
            }
            _ => true,
        });
        Ok(())
    }

    /// The next of what was unloaded and nobody here has heard of.
    pub fn take_writeback(&mut self) -> Result<Option<Writeback<Box<State>>>, CallError> {
        match self.waiting.pop_front() {
            Some(gone) => Ok(Some(gone)),
            None => self.calls.take_writeback(),
        }
    }
}
