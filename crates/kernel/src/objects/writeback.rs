//! What owners are told of objects that have gone.

use std::collections::VecDeque;

use super::ids::Tag;
use super::kernel::KernelDescriptor;

/// An object that is not loaded any more, with what its owner needs to load it again. Each object that goes is written back once, and after
/// all that depended on it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Writeback<S> {
    /// A mapping.
    Mapping {
        /// Of this space.
        space: Tag,
        /// Of this page.
        page: u64,
        /// To this frame.
        frame: u64,
        /// Whether the page was written. If so its content must be saved before the frame has another use.
        modified: bool,
        /// Whether it was touched since the clock hand last passed. Of one that was replaced this says nothing.
        referenced: bool,
    },
    /// A thread, which was stopped.
    Thread {
        /// The owner's name for it.
        tag: Tag,
        /// Where it goes on.
        state: S,
    },
    /// A space.
    Space {
        /// The owner's name for it.
        tag: Tag,
    },
    /// A kernel; the first one hears of it.
    Kernel {
        /// The first kernel's name for it.
        tag: Tag,
        /// What it was granted, with every change since.
        descriptor: KernelDescriptor,
        /// What it has not heard, which includes all its objects that went with it. It is a part of the kernel's state: it goes along, and
        /// comes back with it at the next load, or is dropped if the kernel has ended. The paper leaves this open; were it dropped here, a
        /// kernel that was replaced would have lost its threads.
        waiting: VecDeque<Writeback<S>>,
    },
}
