//! What a thread waits for that cannot have its call completed yet, and how it is found when that comes.
//!
//! A call that has to wait is made again, from its beginning, when any of the things that it waits for may have changed; what it
//! has done already is kept in `Progress`. So nothing is lost if it is made again in vain.

use crate::errno::Errno;
use std::cell::RefCell;
use std::os::fd::RawFd;
use std::time::Instant;

/// The number of a process, a thread, a process group or a session.
pub(crate) type Id = i32;

/// A thing of the emulator's own that may change.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Key {
    /// A pipe, a counter or another thing with a number.
    Object(u64),
    /// The children of a process.
    Children(Id),
    /// A process that was made by vfork has gone its own way.
    Parting(Id),
    /// Locks on files.
    Locks,
    /// Signals that are waiting for a process.
    Signals(Id),
}

/// What becomes of a call when a signal is delivered meanwhile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Interruption {
    /// It is made again after a handler with `SA_RESTART`, and fails with `EINTR` after another.
    Restart,
    /// It fails with `EINTR` after any handler.
    Fail,
    /// It goes on: nothing but the end of the process disturbs it.
    Ignore,
}

/// What a call waits for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Wait {
    /// Any of these.
    pub(crate) keys: Vec<Key>,
    /// Or any of these, descriptors of the host with the events of `poll`.
    pub(crate) descriptors: Vec<(RawFd, i16)>,
    /// Or this moment.
    pub(crate) until: Option<Instant>,
    pub(crate) interruption: Interruption,
}

impl Wait {
    /// For one thing of the emulator's.
    pub(crate) fn key(key: Key) -> Wait {
        Wait { keys: vec![key], descriptors: Vec::new(), until: None, interruption: Interruption::Restart }
    }

    /// For one descriptor of the host.
    pub(crate) fn descriptor(descriptor: RawFd, events: i16) -> Wait {
        let descriptors = vec![(descriptor, events)];
        Wait { keys: Vec::new(), descriptors, until: None, interruption: Interruption::Restart }
    }

    /// For a moment, or forever.
    pub(crate) fn until(until: Option<Instant>) -> Wait {
        Wait { keys: Vec::new(), descriptors: Vec::new(), until, interruption: Interruption::Fail }
    }
}

/// Why a call has no result yet or never will.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Stop {
    /// It failed.
    Error(Errno),
    /// It waits.
    Wait(Wait),
    /// There is nothing to return: the registers are set already, or the thread is gone.
    Gone,
}

impl From<Errno> for Stop {
    fn from(error: Errno) -> Stop {
        Stop::Error(error)
    }
}

impl From<Wait> for Stop {
    fn from(wait: Wait) -> Stop {
        Stop::Wait(wait)
    }
}

/// The outcome of a call.
pub(crate) type Outcome = Result<u64, Stop>;

/// What a call that waited has done so far.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct Progress {
    /// Whether it was made before.
    pub(crate) begun: bool,
    /// When it gives up, as computed when it was first made.
    pub(crate) deadline: Option<Instant>,
    /// Bytes that it has moved.
    pub(crate) done: u64,
    /// What another thread gave it as its result.
    pub(crate) given: Option<u64>,
}

/// Things that have changed since the waiting threads were last looked at.
#[derive(Default)]
pub(crate) struct Wakes {
    changed: RefCell<Vec<Key>>,
}

impl Wakes {
    /// This thing may be what somebody waits for.
    pub(crate) fn wake(&self, key: Key) {
        let mut changed = self.changed.borrow_mut();
        if !changed.contains(&key) {
            changed.push(key);
        }
    }

    /// All that have changed since the last time.
    pub(crate) fn take(&self) -> Vec<Key> {
        std::mem::take(&mut self.changed.borrow_mut())
    }
}
