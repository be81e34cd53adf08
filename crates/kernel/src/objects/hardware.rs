//! What the machine is asked before an object may be forgotten.

use super::ids::{SpaceId, ThreadId};

/// The machine, as far as the tables need it. Each call returns when it is done, and cannot fail: a machine that cannot stop a thread or
/// take a page away is not one that a cell can go on with.
///
/// Of a space that goes, first all threads are stopped, then its pages unmapped, then it is ended. Of a thread that goes, it is stopped
/// before the pages that signal it are unmapped. Each object is written back only after that. Else a page may be unmapped while threads of
/// its space run, and they fault when they use it; that is what a cache of mappings means.
///
/// Nothing is told of loads. Who loads a mapping or a thread puts it into the machine afterwards, and may not do so before: the load may
/// have taken away what was there.
pub trait Hardware {
    /// What a thread is when it does not run. It is moved about in queues, so a large one is better boxed.
    type State;

    /// Stops a thread. When this returns it does not run and never will, under this identifier.
    fn stop(&mut self, thread: ThreadId) -> Self::State;

    /// Takes away a range of pages, from every processor. Each page of it that was written since it was mapped is reported. All that is
    /// loaded in this range is about to go, so what lies between may be unmapped with it.
    fn unmap(&mut self, space: SpaceId, first_page: u64, pages: u64, modified: &mut dyn FnMut(u64));

    /// Ends a space. It has no threads and no pages any more.
    fn end_space(&mut self, space: SpaceId);
}
