//! Threads that an application kernel schedules itself, and what becomes of it when they stop. (Cache Kernel §3)
//!
//! A [`Driver`] runs the threads of a kernel's spaces by loading them: which one next, a [`Scheduler`] says. Faults go to the segments of the thread's space, calls to the
//! kernel's [`Handler`], which can have a say in faults and exceptions as well.

mod driver;
mod scheduler;

pub use self::driver::{Driver, DriverError, Processors};
pub use self::scheduler::{RoundRobin, Scheduler};

use comb_kernel::objects::Tag;
use comb_kernel::thread::{Registers, Stop};
use thiserror::Error;

use crate::memory::{FaultError, Resources, Segments};

/// A thread that waits for its kernel, and what the kernel has.
#[derive(Debug)]
pub struct Stopped<'a> {
    /// The kernel's name for the thread.
    pub thread: Tag,
    /// The kernel's name for its space.
    pub space: Tag,
    /// As they are; what is changed here holds if the answer is [`Answer::GoesOn`].
    pub registers: Registers,
    /// What its space has.
    pub segments: &'a mut Segments,
    /// The kernel's.
    pub resources: &'a mut Resources,
    /// Threads that waited, and go on now, with what their call returns.
    pub woken: &'a mut Vec<(Tag, u64)>,
    /// Threads that begin now, in the same space, in this state and with this priority.
    pub begun: &'a mut Vec<(Registers, u8)>,
}

/// What becomes of a thread.
#[derive(Debug)]
pub enum Answer {
    /// It goes on, and its call returned this.
    Returns(u64),
    /// It goes on with the registers as they are now.
    GoesOn,
    /// It waits until somebody wakes it.
    Waits,
    /// It ends, and its space with the last one.
    Leaves,
    /// Its space ends.
    Ends(End),
}

/// Why a space has ended.
#[derive(Debug, Error)]
pub enum End {
    /// Its program said so.
    #[error("it ended with status {0}")]
    Exit(i32),
    /// All its threads have.
    #[error("its last thread has ended")]
    LastThread,
    /// A touch of memory that could not be answered.
    #[error("at {at:#x}: {error}")]
    Fault {
        /// Where its instruction is.
        at: u64,
        /// Why.
        #[source]
        error: FaultError,
    },
    /// Anything else that a program cannot do.
    #[error("at {at:#x}: {stop:?}")]
    Exception {
        /// Where its instruction is.
        at: u64,
        /// What.
        stop: Stop,
    },
    /// Its process has harmed itself, or was ended by the host.
    #[error("its process is gone")]
    Harmed,
}

/// What a kernel does about its threads' stops.
pub trait Handler {
    /// A system call, as the registers say.
    fn call(&mut self, stopped: &mut Stopped<'_>) -> Answer;

    /// A fault that no segment could answer.
    fn failed(&mut self, stopped: &mut Stopped<'_>, error: FaultError) -> Answer {
        Answer::Ends(End::Fault { at: stopped.registers.rip, error })
    }

    /// Any other stop.
    fn exception(&mut self, stopped: &mut Stopped<'_>, stop: Stop) -> Answer {
        Answer::Ends(End::Exception { at: stopped.registers.rip, stop })
    }
}
