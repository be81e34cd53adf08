//! Who has got a right is to use it before it is taken: for some microseconds, messages about its block wait. Without that two components that store to
//! one block take it from each other before either has stored, and come back for ever.

use std::ops::Range;
use std::time::{Duration, Instant};

use comb_coherence::Block;

use super::{Engine, locate};
use crate::wire::Head;

/// A message as it came.
type Kept = (u32, Head, Vec<u8>);

/// A block that a thread is to have for a moment: messages about it are kept.
struct Hold {
    offset: u64,
    block: u64,
    until: Instant,
    /// Whom it is for. None: it has not been seen since it was told.
    thread: Option<u64>,
}

/// The same for blocks that a thread wants together.
struct RangeHold {
    thread: u64,
    offset: u64,
    blocks: Range<u64>,
    /// None: until the thread has those behind them, too. That comes to an end, for all wait for blocks in the same order.
    until: Option<Instant>,
}

/// How soon who has got a right makes its access.
pub(crate) struct Pace {
    /// Within this, as a rule.
    hold: Duration,
    /// Who comes back to the same place so soon has not made it, because it had to wait for its core: then it is given more.
    at_once: Duration,
}

/// It returns from a signal handler, and is back at its instruction.
pub(crate) const OWN: Pace = Pace { hold: Duration::from_micros(3), at_once: Duration::from_micros(8) };
/// It has to be told first.
pub(super) const GUESTS: Pace = Pace { hold: Duration::from_micros(8), at_once: Duration::from_micros(100) };
const LONGEST_HOLD: Duration = Duration::from_millis(2);
/// A thread that drives sees within this that it need not wait any more. One that sleeps comes when it has a core; longer than this all others
/// would wait for that.
const SPINNERS_HOLD: Duration = Duration::from_micros(50);
const SLEEPERS_HOLD: Duration = Duration::from_micros(200);
/// More threads than this that were given something at once have to take their chance.
const MOST_HOLDS: usize = 64;

/// Places that are remembered where threads were served: as many as one wants together, and some.
const REMEMBERED: usize = 16;

/// A thread that was served, where, and when.
#[derive(Clone, Copy, Default)]
struct Served {
    thread: u64,
    address: usize,
    at: Option<Instant>,
    /// How often it came back at once.
    times: u32,
}

#[derive(Default)]
pub(super) struct Holds {
    holds: Vec<Hold>,
    ranges: Vec<RangeHold>,
    /// In the order in which they came.
    kept: Vec<Kept>,
    served: [Served; REMEMBERED],
    /// Which of them is overwritten next.
    oldest: usize,
}

impl Holds {
    /// Whether some message waits for nothing but time.
    pub(super) fn are_owing(&self) -> bool {
        let is_open = |range: &RangeHold, head: &Head| {
            range.until.is_none() && range.offset == head[1] && range.blocks.contains(&head[2])
        };
        self.kept.iter().any(|(_, head, _)| !self.ranges.iter().any(|range| is_open(range, head)))
    }

    /// Keeps a message, if it is about a block that is held: until [`Engine::release_held`] has found that its time is over. Whether it is.
    pub(super) fn keep(&mut self, from: u32, head: &Head, content: &[u8]) -> bool {
        // None overtakes another.
        let is_kept = self.is_held(head[1], head[2]) || self.is_awaited(head[1], head[2]);
        if is_kept {
            self.kept.push((from, *head, content.to_vec()));
        }
        is_kept
    }

    fn is_held(&self, offset: u64, block: u64) -> bool {
        self.holds.iter().any(|hold| (hold.offset, hold.block) == (offset, block))
            || self.ranges.iter().any(|range| range.offset == offset && range.blocks.contains(&block))
    }

    /// Whether a message about a block is kept.
    fn is_awaited(&self, offset: u64, block: u64) -> bool {
        self.kept.iter().any(|(_, head, _)| (head[1], head[2]) == (offset, block))
    }

    fn hold(&mut self, (offset, block): (u64, u64), until: Instant, thread: Option<u64>) {
        let is_awaited = self.is_awaited(offset, block);
        let is_it = |hold: &&mut Hold| (hold.offset, hold.block) == (offset, block);
        if let Some(hold) = self.holds.iter_mut().find(is_it) {
            // Others have waited for it long enough, unless nobody has had it yet.
            if hold.thread.is_none() || !is_awaited {
                (hold.until, hold.thread) = (until, thread);
            }
        } else if self.holds.len() < MOST_HOLDS {
            self.holds.push(Hold { offset, block, until, thread });
        }
    }

    /// A thread has these, and waits for what is behind them.
    pub(super) fn hold_range(&mut self, thread: u64, offset: u64, blocks: Range<u64>) {
        self.ranges.retain(|range| range.thread != thread);
        self.ranges.push(RangeHold { thread, offset, blocks, until: None });
    }

    /// A thread has all that it wanted together, or wants it no more.
    pub(super) fn hold_range_until(&mut self, thread: u64, all: Option<((u64, Range<u64>), Instant)>) {
        self.ranges.retain(|range| range.thread != thread);
        let Some(((offset, blocks), until)) = all else { return };
        let is_given = |hold: &&mut Hold| hold.offset == offset && blocks.contains(&hold.block);
        for hold in self.holds.iter_mut().filter(is_given) {
            (hold.until, hold.thread) = (until, Some(thread));
        }
        if blocks.end - blocks.start > 1 {
            self.ranges.push(RangeHold { thread, offset, blocks, until: Some(until) });
        }
    }

    /// A thread has used all that it was given.
    fn let_go(&mut self, thread: u64) {
        self.holds.retain(|hold| hold.thread != Some(thread));
        self.ranges.retain(|range| range.thread != thread);
    }

    /// Messages about what is not held any more.
    fn released(&mut self) -> Vec<Kept> {
        let now = Instant::now();
        self.holds.retain(|hold| now < hold.until);
        self.ranges.retain(|range| range.until.is_none_or(|until| now < until));
        let mut kept = std::mem::take(&mut self.kept);
        let released = kept.extract_if(.., |(_, head, _)| !self.is_held(head[1], head[2])).collect();
        self.kept = kept;
        released
    }
}

impl Engine {
    /// Threads have just been told that they have a right: until they come it is theirs.
    pub(super) fn hold_given(&mut self) {
        if self.core.given.is_empty() {
            return;
        }
        let now = Instant::now();
        for (offset, Block(block), has_slept) in self.core.given.drain(..) {
            let hold = if has_slept { SLEEPERS_HOLD } else { SPINNERS_HOLD };
            self.holds.hold((offset, block), now + hold, None);
        }
    }

    /// A thread that has its right may be robbed of it before it has used it: for a moment nobody can. Until when.
    pub(crate) fn served(&mut self, thread: u64, address: usize, pace: &Pace) -> Option<Instant> {
        let (entry, block) = locate(&mut self.entries, address)?;
        let offset = entry.shape.allocation.offset;
        let now = Instant::now();
        let Holds { served, oldest, .. } = &mut self.holds;
        let is_it = |last: &Served| (last.thread, last.address) == (thread, address);
        let place = served.iter().position(is_it).unwrap_or_else(|| {
            *oldest = (*oldest + 1) % REMEMBERED;
            *oldest
        });
        let last = &mut served[place];
        let is_back = (last.thread, last.address) == (thread, address)
            && last.at.is_some_and(|at| now - at < pace.at_once);
        let times = if is_back { last.times + 1 } else { 0 };
        *last = Served { thread, address, at: Some(now), times };
        let until = now + LONGEST_HOLD.min(pace.hold * (1 << times.min(10)));
        self.holds.hold((offset, block.0), until, Some(thread));
        Some(until)
    }

    /// A thread is where it makes no access, and has made all that it was given something for.
    pub(crate) fn let_go(&mut self, thread: u64) {
        self.holds.let_go(thread);
    }

    /// Whether a thread was served at a place so short a while ago that it cannot have used what it had.
    pub(super) fn is_back(&self, thread: u64, address: usize) -> bool {
        let mut served = self.holds.served.iter();
        let last = served.find(|last| (last.thread, last.address) == (thread, address));
        last.and_then(|last| last.at).is_some_and(|at| at.elapsed() < OWN.at_once)
    }

    /// Hears what was kept for long enough. Whether there was any of it.
    pub(super) fn release_held(&mut self) -> bool {
        if self.holds.holds.is_empty() && self.holds.ranges.is_empty() && self.holds.kept.is_empty() {
            return false;
        }
        let released = self.holds.released();
        let were_any = !released.is_empty();
        self.hear_kept(released);
        were_any
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use comb_coherence::Access;

    use crate::engine::Stopped;
    use crate::engine::scene::{allocation, engine};
    use crate::terms::{Guard, Sharing};
    use crate::wire::{self, Kind};

    /// The next message may be here already, and is about the same block. Without this the thread is told that it may go on, finds that it may
    /// not, and asks anew, for as long as another stores there.
    #[test]
    fn what_a_thread_has_waited_for_is_there_when_it_comes() {
        const OFFSET: u64 = 220 << 20;
        let mut engine = engine();
        engine.install(allocation(OFFSET, Sharing::Stache, Guard::Page)).expect("installed");
        // It lives with component 1.
        let address = engine.entries[&OFFSET].shape.layout.address(super::Block(17));
        let slot = engine.slot();
        assert!(matches!(engine.fault(address, true, &Arc::clone(&slot)), Stopped::Waits));
        let say =
            |kind: u64, content: &[u8]| [&wire::pack(&[7 << 32 | kind, OFFSET, 17, 0])[..], content].concat();
        let (writable, recall) = (say(8, &[5; 4096]), say(10, &[]));
        engine.take(1, Kind::Protocol as u8, &writable).expect("asked for");
        assert!(slot.is_done());
        engine.take(1, Kind::Protocol as u8, &recall).expect("a home's right");
        assert!(engine.may_store(address) && engine.is_owing(), "it is gone before the thread has come");
        // Another one, or one that was not seen since: neither has used it.
        engine.let_go(1);
        engine.drive();
        assert!(engine.may_store(address), "let go for another");
        engine.served(1, address, &super::OWN);
        engine.let_go(1);
        engine.drive();
        assert!(!engine.may_store(address), "kept from others, though it was used");
        while engine.is_owing() {
            engine.drive();
        }
        let layout = engine.entries[&OFFSET].shape.layout;
        assert_ne!(
            engine.core.memory.access(&layout, super::Block(17)),
            Access::ReadWrite,
            "it was never given back"
        );
        engine.remove(OFFSET);
    }
}
