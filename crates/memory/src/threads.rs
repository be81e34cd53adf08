//! Threads whose own code looks at the state table before it loads or stores, and how rights are taken from them.
//!
//! Between the look and the access a right may be lowered. Two things see to it that no access comes after all:
//!
//! - A single access is a restartable sequence of the kernel's (`rseq`): who is interrupted in between looks again.
//! - Accesses that were looked at together are made with the thread's *pins* odd: a number of the thread's own that it counts up before it looks
//!   and when it is through. It never waits meanwhile.
//!
//! Who lowers a right writes the table, then makes a *fence*: it has the kernel interrupt all threads that run, and waits until every number
//! that was odd has changed. (Blizzard §3.2) A thread notes what it is about to look at before it does, so who finds in its notes nothing of what the
//! right is to need not wait for it: whatever it has noted since, it looks at after the interruption.
#![expect(unsafe_code, reason = "words of other threads")]

use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, compiler_fence, fence};

use crate::fault::Verdict;
use crate::software;

/// What a thread notes while its pins are odd: which ranges it has looked at.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Noted {
    start: AtomicU64,
    /// Twice the length, and one more for what is to be stored to.
    bytes_and_store: AtomicU64,
}

impl Noted {
    fn meets(&self, range: &Range<usize>) -> bool {
        let start = crate::space::index(self.start.load(Ordering::Relaxed));
        let bytes = crate::space::index(self.bytes_and_store.load(Ordering::Relaxed) >> 1);
        start < range.end && start.saturating_add(bytes) > range.start
    }
}

/// As many ranges as are looked at together.
pub const MOST_NOTED: usize = 8;

/// The beginning of what compiled code has for each thread (`comb_thread.h`), as its layout is there.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Thread {
    pins: AtomicU64,
    /// The stack for what others may see: not our matter.
    shared_stack: [AtomicUsize; 2],
    noted_count: AtomicU64,
    noted: [Noted; MOST_NOTED],
    /// Not 0: the thread makes no access before it has made this 0 and passed a fence.
    away: AtomicU64,
    /// Not our matter.
    has_late: AtomicU64,
    /// What it has looked at alone among the others.
    alone: Noted,
}

/// A range that was looked at.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Need {
    pub(crate) start: usize,
    pub(crate) bytes: usize,
    pub(crate) is_store: bool,
    /// By the thread itself, in the state table.
    pub(crate) is_looked_at: bool,
}

impl Thread {
    /// One whose pins are even.
    pub const fn new() -> Self {
        Self {
            pins: AtomicU64::new(0),
            shared_stack: [const { AtomicUsize::new(0) }; 2],
            noted_count: AtomicU64::new(0),
            noted: [const { Noted { start: AtomicU64::new(0), bytes_and_store: AtomicU64::new(0) } };
                MOST_NOTED],
            away: AtomicU64::new(0),
            has_late: AtomicU64::new(0),
            alone: Noted { start: AtomicU64::new(0), bytes_and_store: AtomicU64::new(0) },
        }
    }

    /// No access comes from it because of what it found in the state table before.
    fn is_outside(&self) -> bool {
        self.away.load(Ordering::SeqCst) != 0 && !self.is_pinned()
    }

    #[inline]
    pub(crate) fn is_pinned(&self) -> bool {
        self.pins.load(Ordering::Relaxed) & 1 == 1
    }

    /// From even to odd or back, by the thread itself.
    #[inline]
    pub(crate) fn count_up(&self) {
        compiler_fence(Ordering::SeqCst);
        // No more is needed to order this with the looks that follow: a fence interrupts this thread, or finds the new number.
        self.pins.store(self.pins.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
        compiler_fence(Ordering::SeqCst);
    }

    pub(crate) fn note(&self, needs: &[Need]) {
        for (noted, need) in self.noted.iter().zip(needs) {
            noted.start.store(need.start as u64, Ordering::Relaxed);
            let bytes = (need.bytes as u64) << 1;
            noted.bytes_and_store.store(bytes | u64::from(need.is_store), Ordering::Relaxed);
        }
        self.noted_count.store(needs.len().min(MOST_NOTED) as u64, Ordering::Relaxed);
    }

    fn noted(&self, into: &mut [Need; MOST_NOTED]) -> usize {
        let count = usize::try_from(self.noted_count.load(Ordering::Relaxed)).unwrap_or(0).min(MOST_NOTED);
        for (need, noted) in into.iter_mut().zip(&self.noted[..count]) {
            let word = noted.bytes_and_store.load(Ordering::Relaxed);
            *need = Need {
                start: crate::space::index(noted.start.load(Ordering::Relaxed)),
                bytes: crate::space::index(word >> 1),
                is_store: word & 1 == 1,
                is_looked_at: true,
            };
        }
        count
    }

    /// Whether it may be about to access something of a range. Nothing noted is anything.
    fn may_be_at(&self, range: &Range<usize>) -> bool {
        let count = usize::try_from(self.noted_count.load(Ordering::Acquire)).unwrap_or(0);
        let noted = self.noted.iter().take(count).chain([&self.alone]);
        count == 0 || noted.into_iter().any(|noted| noted.meets(range))
    }
}

/// More threads than these do not check accesses in one process.
const MOST_THREADS: usize = 4096;

struct Slot {
    /// By the thread's own number; 0 is nobody.
    owner: AtomicU64,
    thread: AtomicPtr<Thread>,
    /// How many fences look at it now.
    watchers: AtomicU32,
}

static SLOTS: [Slot; MOST_THREADS] = [const {
    Slot {
        owner: AtomicU64::new(0),
        thread: AtomicPtr::new(std::ptr::null_mut()),
        watchers: AtomicU32::new(0),
    }
}; MOST_THREADS];
/// No slot behind this was ever used.
static USED: AtomicUsize = AtomicUsize::new(0);
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// This process has more threads that check accesses than there can be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("more than {MOST_THREADS} threads of a process cannot check their accesses to shared memory")]
pub struct TooMany;

/// The calling thread checks its accesses from now on. To be called before its first one.
///
/// # Safety
/// `thread` is there until [`end`] has returned on this thread, begins as [`Thread`] does, and only this thread changes its pins.
pub unsafe fn begin(thread: *const Thread) -> Result<(), TooMany> {
    prepare();
    let me = this_thread();
    let is_taken =
        |slot: &&Slot| slot.owner.compare_exchange(0, me, Ordering::AcqRel, Ordering::Relaxed).is_ok();
    let index = SLOTS.iter().position(|slot| is_taken(&slot)).ok_or(TooMany)?;
    SLOTS[index].thread.store(thread.cast_mut(), Ordering::SeqCst);
    USED.fetch_max(index + 1, Ordering::SeqCst);
    // A fence that does not see it is over before this thread looks at the table.
    COUNT.fetch_add(1, Ordering::SeqCst);
    Ok(())
}

/// The calling thread makes no more checked accesses. Nobody looks at its words any more when this returns.
pub fn end() {
    let Some(slot) = own_slot() else { return };
    slot.thread.store(std::ptr::null_mut(), Ordering::SeqCst);
    while slot.watchers.load(Ordering::SeqCst) != 0 {
        std::thread::yield_now();
    }
    slot.owner.store(0, Ordering::Release);
    COUNT.fetch_sub(1, Ordering::SeqCst);
}

#[inline]
fn used() -> &'static [Slot] {
    &SLOTS[..USED.load(Ordering::Acquire)]
}

#[inline]
fn own_slot() -> Option<&'static Slot> {
    let me = this_thread();
    used().iter().find(|slot| slot.owner.load(Ordering::Relaxed) == me)
}

/// The calling thread's own words, if it has any. Not from thread-local storage, which may have to be allocated first: fault handlers ask.
#[inline]
fn own() -> Option<&'static Thread> {
    let thread = own_slot()?.thread.load(Ordering::Relaxed);
    // SAFETY: there until this thread calls `end`, as `begin` demands; it is not kept for longer than a call.
    unsafe { thread.as_ref() }
}

#[inline]
fn this_thread() -> u64 {
    // SAFETY: has no preconditions, and may be called from signal handlers.
    unsafe { libc::pthread_self() as u64 }
}

/// Whether the calling thread checks accesses.
pub fn is_known() -> bool {
    own_slot().is_some()
}

/// Does something with the calling thread's words; one that has none gets some for so long.
pub(crate) fn with_own<R>(work: impl FnOnce(&Thread) -> R) -> Result<R, TooMany> {
    if let Some(thread) = own() {
        let away = thread.away.swap(0, Ordering::SeqCst);
        let done = work(thread);
        thread.away.store(away, Ordering::SeqCst);
        return Ok(done);
    }
    let thread = Thread::new();
    // SAFETY: it ends below, and is nobody else's. What may unwind out of `work` is an access, which does not.
    unsafe { begin(&raw const thread) }?;
    let done = work(&thread);
    end();
    Ok(done)
}

/// The calling thread is in none of its own code while this is there, if it is one that checks accesses: who lowers a right need not wait for it.
#[derive(Debug)]
pub struct Away {
    thread: Option<&'static Thread>,
    before: u64,
}

impl Away {
    /// From now on. What was looked at before is not accessed any more; handlers of signals that run meanwhile take it back for themselves.
    pub fn begin() -> Self {
        let thread = own().filter(|thread| !thread.is_pinned());
        let before = thread.map_or(0, |thread| thread.away.swap(1, Ordering::SeqCst));
        Self { thread, before }
    }

    /// Whether the thread checks accesses, and goes back to that when this is gone.
    pub fn comes_back(&self) -> bool {
        self.thread.is_some() && self.before == 0
    }
}

impl Drop for Away {
    fn drop(&mut self) {
        if let Some(thread) = self.thread {
            thread.away.swap(self.before, Ordering::SeqCst);
        }
    }
}

/// Whether any thread but the calling one checks accesses and is among its own code.
pub fn others_compute() -> bool {
    let me = this_thread();
    used().iter().any(|slot| {
        let owner = slot.owner.load(Ordering::Relaxed);
        owner != 0 && owner != me && !with_thread_of(slot, Thread::is_outside).unwrap_or(true)
    })
}

/// Does something with another thread's words, if it is still there.
fn with_thread_of<R>(slot: &Slot, work: impl FnOnce(&Thread) -> R) -> Option<R> {
    slot.watchers.fetch_add(1, Ordering::SeqCst);
    // SAFETY: `end` waits for us before the words are gone.
    let done = unsafe { slot.thread.load(Ordering::SeqCst).as_ref() }.map(work);
    slot.watchers.fetch_sub(1, Ordering::SeqCst);
    done
}

/// How often threads were interrupted for a fence; for those who want to know what it costs.
pub fn interruptions() -> u64 {
    INTERRUPTIONS.load(Ordering::Relaxed)
}

static INTERRUPTIONS: AtomicU64 = AtomicU64::new(0);

/// How threads that run are interrupted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Barrier {
    /// Restartable sequences begin again.
    Restarting,
    /// They do not: single accesses must be made with pins odd, too.
    Private,
    /// The same, slowly: of all processes.
    Global,
    None,
}

const QUERY: usize = 0;
const GLOBAL: usize = 1 << 0;
const PRIVATE: usize = 1 << 3;
const REGISTER_PRIVATE: usize = 1 << 4;
const RESTARTING: usize = 1 << 7;
const REGISTER_RESTARTING: usize = 1 << 8;

fn membarrier(command: usize) -> isize {
    // SAFETY: changes no memory.
    unsafe { crate::syscalls::raw(libc::SYS_membarrier, [command, 0, 0, 0, 0, 0]) }
}

fn barrier() -> Barrier {
    static BARRIER: OnceLock<Barrier> = OnceLock::new();
    *BARRIER.get_or_init(|| {
        let known = membarrier(QUERY);
        let has = |command: usize| known > 0 && known.cast_unsigned() & command != 0;
        let registers = |command, register| has(command) && has(register) && membarrier(register) == 0;
        if registers(RESTARTING, REGISTER_RESTARTING) {
            Barrier::Restarting
        } else if registers(PRIVATE, REGISTER_PRIVATE) {
            Barrier::Private
        } else if has(GLOBAL) {
            Barrier::Global
        } else {
            Barrier::None
        }
    })
}

/// Whether rights can be taken from threads that check their accesses. To be asked before there are any.
pub(crate) fn prepare() -> bool {
    barrier() != Barrier::None
}

/// Whether single accesses may be restartable sequences. Where not, all are to be made with pins odd.
pub fn are_restartable() -> bool {
    barrier() == Barrier::Restarting
}

/// When it returns, no thread makes an access any more because of what it found in the state table before.
pub fn wait_for_accesses() {
    wait_for_accesses_to(0..usize::MAX);
}

/// The same for accesses to some addresses.
pub(crate) fn wait_for_accesses_to(range: Range<usize>) {
    fence(Ordering::SeqCst);
    let me = this_thread();
    if COUNT.load(Ordering::SeqCst) == 0 {
        return;
    }
    // Its own accesses are over, or begin again: it is here. Who is away and comes back finds what the table says now.
    if own().is_none_or(|thread| !thread.is_pinned()) && !others_compute() {
        return;
    }
    INTERRUPTIONS.fetch_add(1, Ordering::Relaxed);
    match barrier() {
        Barrier::Restarting => membarrier(RESTARTING),
        Barrier::Private => membarrier(PRIVATE),
        Barrier::Global => membarrier(GLOBAL),
        Barrier::None => 0,
    };
    for slot in used().iter().filter(|slot| slot.owner.load(Ordering::Relaxed) != me) {
        let _ = with_thread_of(slot, |thread| wait_while_pinned(thread, &range));
    }
}

fn wait_while_pinned(thread: &Thread, range: &Range<usize>) {
    let pins = thread.pins.load(Ordering::Acquire);
    // What is noted may be of later pins: then those are over.
    if pins & 1 == 0 || !thread.may_be_at(range) {
        return;
    }
    let mut spins = 0_u32;
    while thread.pins.load(Ordering::Acquire) == pins {
        spins += 1;
        if spins.is_multiple_of(64) {
            std::thread::yield_now();
        } else {
            std::hint::spin_loop();
        }
    }
}

/// Serves a thread that was stopped. One that was stopped among accesses that it had looked at together would be waited for by whoever is to give it
/// what it needs: so it lets all go first, and has all of them together when it goes on.
pub(crate) fn serve(first: Need, serve: impl Fn(Need) -> Verdict) -> Verdict {
    let Some(thread) = own().filter(|thread| thread.is_pinned()) else { return serve(first) };
    let mut noted = [Need::default(); MOST_NOTED];
    let count = thread.noted(&mut noted);
    let noted = &noted[..count];
    thread.count_up();
    loop {
        let served = |need: &Need| software::missing(need).map_or(Verdict::Retry, &serve);
        // Where it was stopped the table may say that it may: of a page that nobody has touched.
        let verdict = std::iter::once(serve(first)).chain(noted.iter().map(served));
        let ended = verdict.into_iter().find(|verdict| *verdict != Verdict::Retry);
        // Handlers of signals may have been here meanwhile.
        thread.note(noted);
        thread.count_up();
        if ended.is_some() || noted.iter().all(software::is_allowed) {
            return ended.unwrap_or(Verdict::Retry);
        }
        thread.count_up();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    /// What the compiled code's C has.
    #[test]
    fn threads_lie_as_compiled_code_has_them() {
        assert_eq!(std::mem::offset_of!(Thread, pins), 0);
        assert_eq!(std::mem::offset_of!(Thread, noted_count), 24);
        assert_eq!(std::mem::offset_of!(Thread, noted), 32);
        assert_eq!(size_of::<Noted>(), 16);
        assert_eq!(std::mem::offset_of!(Thread, away), 160);
        assert_eq!(std::mem::offset_of!(Thread, alone), 176);
    }

    /// Of those who are away, even between pins: those they have come back for.
    #[test]
    fn who_is_away_does_not_compute_unless_its_pins_are_odd() {
        let ends = std::sync::Barrier::new(2);
        // Other tests have threads, too.
        let is_outside = |thread: &AtomicPtr<Thread>| {
            // SAFETY: it is there until the second meeting.
            unsafe { thread.load(Ordering::SeqCst).as_ref() }.is_some_and(Thread::is_outside)
        };
        let (theirs, away_in_work) = (AtomicPtr::default(), AtomicU64::new(9));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                with_own(|thread| {
                    theirs.store(std::ptr::from_ref(thread).cast_mut(), Ordering::SeqCst);
                    ends.wait();
                    ends.wait();
                    let away = Away::begin();
                    assert!(away.comes_back());
                    assert!(!Away::begin().comes_back(), "it is away still");
                    ends.wait();
                    ends.wait();
                    let within = with_own(|thread| thread.away.load(Ordering::SeqCst));
                    away_in_work.store(within.expect("room"), Ordering::SeqCst);
                    thread.count_up();
                    ends.wait();
                    ends.wait();
                    thread.count_up();
                    drop(away);
                    ends.wait();
                    ends.wait();
                })
            });
            let expected = [(false, "it computes"), (true, "away"), (false, "between pins"), (false, "back")];
            for (expected, when) in expected {
                ends.wait();
                assert_eq!(is_outside(&theirs), expected, "{when}");
                ends.wait();
            }
        });
        assert_eq!(away_in_work.into_inner(), 0, "what it does between pins is seen by none");
    }

    fn need(range: Range<usize>) -> Need {
        Need { start: range.start, bytes: range.len(), is_store: false, is_looked_at: true }
    }

    #[test]
    fn a_fence_waits_for_those_who_are_among_accesses_and_for_nobody_else() {
        let is_over = AtomicBool::new(false);
        let is_in = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                with_own(|thread| {
                    thread.count_up();
                    is_in.store(true, Ordering::SeqCst);
                    std::thread::sleep(std::time::Duration::from_millis(20));
                    is_over.store(true, Ordering::SeqCst);
                    thread.count_up();
                })
            });
            while !is_in.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            wait_for_accesses();
            assert!(is_over.load(Ordering::SeqCst), "it was not waited for");
        });
        // Nor does one that is among accesses to something else.
        let (ends, needs) = (std::sync::Barrier::new(2), [need(4096..8192), need(16384..16385)]);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                with_own(|thread| {
                    thread.note(&needs);
                    thread.count_up();
                    ends.wait();
                    ends.wait();
                    thread.count_up();
                })
            });
            ends.wait();
            for others in [0..4096, 8192..16384, 16385..usize::MAX] {
                wait_for_accesses_to(others);
            }
            let is_waited_for = |range: Range<usize>| {
                let theirs = used().iter().filter(|slot| slot.owner.load(Ordering::Relaxed) != this_thread());
                theirs.filter_map(|slot| with_thread_of(slot, |thread| thread.may_be_at(&range))).any(|is| is)
            };
            assert!(is_waited_for(8191..8192) && is_waited_for(16384..16386) && is_waited_for(0..4097));
            ends.wait();
        });
        // One that is there and makes no accesses holds nobody up.
        let ends = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                with_own(|_| {
                    ends.wait();
                    ends.wait();
                })
            });
            ends.wait();
            wait_for_accesses();
            ends.wait();
        });
    }
}
