//! A kernel for what has to be done in each period. All that its program needs is loaded and locked before it begins, so nothing that other kernels load can
//! take its place; and its threads are of a priority that the host prefers to all usual ones. (Cache Kernel §2.3, §4.3)
#![expect(unsafe_code, reason = "frames are written by address")]

use std::time::{Duration, Instant};

use comb_kernel::calls::Calls;
use comb_kernel::objects::{Mapping, SpaceLoad, Tag, ThreadId, ThreadLoad};
use comb_kernel::supervisor::{CallError, State};
use comb_kernel::thread::{Registers, Stop};
use rustix::thread::{CpuSet, sched_setaffinity};
use thiserror::Error;

const CODE_PAGE: u64 = 0x400;
const DATA_PAGE: u64 = 0x600;
const PAGE_BYTES: usize = 4096;

/// Why there is no real-time program, or not any more.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum Failure {
    /// The supervisor says why.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The kernel was granted no frames at these places.
    #[error("frame {0} is not granted, and two are needed from there on")]
    NoFrames(u64),
    /// More than a page.
    #[error("a program of {0} bytes is longer than a page")]
    TooLong(usize),
    /// It did something else than to make a call at its end of the work.
    #[error("the program has ended: {0:?}")]
    Ended(Option<Stop>),
}

/// What is to be done.
#[derive(Clone, Copy, Debug)]
pub struct Task<'a> {
    /// Position-independent; it makes any system call when it has done its work, and begins again after it. `rdi` is what [`Realtime::run`] is told, `rsi` the
    /// address of a page that it may write.
    pub program: &'a [u8],
    /// Of its thread and, as far as the supervisor lets it, of the calling one.
    pub priority: u8,
    /// Whether all is exempt from replacement: the kernel's grant has to have room for a space, a thread and two mappings.
    pub locked: bool,
    /// Two frames, from this one on.
    pub frame: u64,
    /// The only processor that it runs on, and the calling thread from then on: who wakes somebody on another processor waits for what the host does there.
    pub processor: Option<u32>,
}

/// What became of some periods.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Kept {
    /// From the moment at which each was to begin until its work was done, in order.
    pub took: Vec<Duration>,
    /// How many were not done when the next one was to begin.
    pub missed: usize,
}

impl Kept {
    /// The longest.
    pub fn latest(&self) -> Duration {
        self.took.iter().max().copied().unwrap_or_default()
    }
}

/// A program, ready to begin at any time.
#[derive(Debug)]
pub struct Realtime<C> {
    calls: C,
    thread: ThreadId,
}

impl<C: Calls> Realtime<C> {
    /// Loads all that it needs.
    pub fn new(mut calls: C, task: &Task<'_>) -> Result<Self, Failure> {
        let Task { program, priority, locked, frame, processor } = *task;
        if program.len() > PAGE_BYTES {
            return Err(Failure::TooLong(program.len()));
        }
        let group_frames = u64::from(comb_kernel::frames::GROUP_FRAMES);
        let group = |frame: u64| u32::try_from(frame / group_frames).ok();
        let is_granted =
            |frame: u64| group(frame).is_some_and(|group| group < calls.groups() && calls.may_write(group));
        if !is_granted(frame) || !is_granted(frame + 1) {
            return Err(Failure::NoFrames(frame));
        }
        let at = usize::try_from(frame).expect("it is within memory") * PAGE_BYTES;
        // SAFETY: two frames that this kernel was granted, which nothing of Rust's is in.
        unsafe {
            let to = calls.memory().as_ptr().add(at);
            to.write_bytes(0, 2 * PAGE_BYTES);
            to.copy_from(program.as_ptr(), program.len());
        }
        calls.set_own_priority(priority).or_else(|error| match error {
            // Of a kernel that nobody has told the supervisor of, it is its starter who decides.
            CallError::NoProcess => Ok(()),
            error => Err(error),
        })?;
        let space = calls.load_space(SpaceLoad { tag: Tag(0), locked })?;
        let code = Mapping { executable: true, locked, ..Mapping::read(space, CODE_PAGE, frame) };
        let data =
            Mapping { writable: true, locked, stored: true, ..Mapping::read(space, DATA_PAGE, frame + 1) };
        calls.load_mappings(&code, 1)?;
        calls.load_mappings(&data, 1)?;
        let registers = Registers { rip: CODE_PAGE << 12, rsi: DATA_PAGE << 12, ..Registers::default() };
        let load = ThreadLoad { tag: Tag(0), space, priority, locked };
        let thread = calls.load_thread(load, &State { registers, ..State::default() }, 0)?;
        calls.keep_on(thread, processor)?;
        if let Some(processor) = processor.and_then(|processor| usize::try_from(processor).ok())
            && processor < CpuSet::MAX_CPU
        {
            let mut only = CpuSet::new();
            only.set(processor);
            // Where this is not permitted, it is late more often.
            let _ = sched_setaffinity(None, &only);
        }
        Ok(Self { calls, thread })
    }

    /// Has it do this amount of its work, and tells how long that took.
    pub fn once(&mut self, amount: u64) -> Result<Duration, Failure> {
        let began = Instant::now();
        self.work(amount)?;
        Ok(began.elapsed())
    }

    /// Has it do this amount of its work in each period. One that is missed is done late; those after it begin when they should, or at once.
    pub fn run(&mut self, amount: u64, period: Duration, periods: u32) -> Result<Kept, Failure> {
        let mut kept = Kept::default();
        let start = Instant::now();
        for number in 1..=periods {
            let begin = start + period * number;
            std::thread::sleep(begin.saturating_duration_since(Instant::now()));
            self.work(amount)?;
            let took = begin.elapsed();
            kept.missed += usize::from(took > period);
            kept.took.push(took);
        }
        Ok(kept)
    }

    fn work(&mut self, amount: u64) -> Result<(), Failure> {
        let area = self.calls.area(self.thread)?;
        let registers = area.registers().ok_or(Failure::Ended(None))?;
        let registers = Registers { rdi: amount, rsi: DATA_PAGE << 12, ..registers };
        area.set_registers(&registers).ok_or(Failure::Ended(None))?;
        area.resume();
        while !area.is_stopped() {
            self.calls.bell().listen(0, Some(Duration::from_millis(100)), |_| {});
        }
        match area.stop() {
            Some(Stop::Call { is_foreign: false }) => Ok(()),
            other => Err(Failure::Ended(other)),
        }
    }
}

#[cfg(test)]
mod tests;
