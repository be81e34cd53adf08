//! Whether a cell moves. (Hive §4.3, "clock monitoring")
//!
//! Each cell writes the time into a word of its own as its loop goes round, and looks at the word of the next cell in the ring. A word that stands
//! still is not yet a cell that hangs: on a busy machine a healthy one waits for a core. So whoever finds it too old looks at what the kernel says of its
//! thread, at once and after a moment:
//!
//! | what the thread did | |
//! |---|---|
//! | it is stopped, or gone | it hangs |
//! | it slept between the two looks, and its alarm is over, and so did all other threads of the cell | it is asked whether it is there, which wakes it. Whoever sleeps on after that hangs: it waits for something else |
//! | it slept, and another thread of the cell did not | nothing is known: it may wait for that one, and that one for a core |
//! | it had a core for long since it came round, and once more since that core was seen to go, and did not come round again | it hangs |
//! | it waited for a core, or had one only for a moment | nothing is known: look again, and say nothing meanwhile |
//!
//! An alarm alone says nothing: that of a processor which the host of a virtual machine has taken away for some milliseconds is late, and a healthy cell sleeps on
//! until it comes. A question makes it runnable at once, wherever it sleeps.
//!
//! Nor does it say much that a thread had a core for long: while the host has taken its processor away, that time counts as the thread's, whoever looks from
//! another processor sees it run on meanwhile, and on a busy machine another thread is next. It comes round as soon as it is its turn again. But the clock of a
//! processor that is away stands: when that has been seen to go, the thread has to have a core once more.
//!
//! Beside the time, a cell writes for how long its thread has had a core until then: what the kernel says later is more by what it had since.
//!
//! Only a word that moves shows that a cell does. Whoever has not seen that has nothing to say against those who found that it hangs.

use std::time::{Duration, Instant};

use comb_types::CellId;

use self::pulse::Pulse;
use crate::clock::{monotonic_ns, own_thread_ns};

mod pulse;

/// How often a cell comes round at least, with nothing to do. To be woken is most of what a cell at rest takes.
pub const TICK: Duration = Duration::from_millis(12);
/// Whoever is looked at in its turn has moved since. A word that is older is looked into.
const LATE: Duration = Duration::from_millis(7);
/// Nothing is said of one that is not so old. That of a healthy cell that got no core in time may be as well, which costs its watcher some looks.
const OVERDUE: Duration = Duration::from_millis(13);
/// The alarm of one that sleeps for so long is over; if it has not come, it is late for a reason that is not the cell's, or it wakes nobody.
const OVERSLEPT: Duration = Duration::from_millis(15);
/// Between the two looks at the thread at least.
pub(crate) const BETWEEN_LOOKS: Duration = Duration::from_millis(1);
/// No turn of the loop takes so long on a core.
const LONGEST_TURN: Duration = Duration::from_millis(4);
/// A loop that has much to do shows so often that it goes round: it has a core for no longer than this and a turn between two words.
pub(crate) const BETWEEN_TICKS: Duration = Duration::from_millis(1);
/// A processor whose clock stands for so long is no longer waited for: nobody takes one away for longer, but there are kernels that wake no clock beside one thread.
const PULSELESS: Duration = Duration::from_secs(1);
/// For so long a thread that moves has a core since its last tick at most.
const LONGEST: Duration = LONGEST_TURN.saturating_add(BETWEEN_TICKS);

/// What a cell shows of its loop as it goes round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tick {
    /// When, on `CLOCK_MONOTONIC`.
    pub(crate) at_ns: u64,
    /// For how long its thread had a core until then.
    pub(crate) ran_ns: u64,
}

impl Tick {
    /// As old as any, and nothing is known of its thread.
    pub(crate) const UNKNOWN: Self = Self { at_ns: 0, ran_ns: u64::MAX };

    /// Of the calling thread.
    pub(crate) fn now() -> Self {
        Self { at_ns: monotonic_ns(), ran_ns: own_thread_ns() }
    }
}

/// What the kernel says of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Thread {
    state: u8,
    processor: usize,
    ran_ns: u64,
}

impl Thread {
    /// Of the first thread of a process; none if that is gone.
    fn of(process: u32) -> Option<Self> {
        let (state, processor) = state_of(process, &process.to_string())?;
        let times = std::fs::read_to_string(format!("/proc/{process}/task/{process}/schedstat")).ok()?;
        let ran_ns = times.split_whitespace().next()?.parse().ok()?;
        Some(Self { state, processor, ran_ns })
    }
}

/// What a thread does, as a letter, and the processor that it is on or was on.
fn state_of(process: u32, thread: &str) -> Option<(u8, usize)> {
    let stat = std::fs::read(format!("/proc/{process}/task/{thread}/stat")).ok()?;
    // Behind the name, which may contain anything.
    let behind = stat.iter().rposition(|&byte| byte == b')')? + 1;
    let mut words = std::str::from_utf8(&stat[behind..]).ok()?.split_whitespace();
    let state = *words.next()?.as_bytes().first()?;
    Some((state, words.nth(35)?.parse().ok()?))
}

/// Whether all threads of a process sleep.
pub(crate) fn all_sleep(process: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    threads
        .filter_map(|thread| state_of(process, thread.file_name().to_str()?))
        .all(|(state, _)| state == b'S')
}

/// What comes of a look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sight {
    Moves,
    /// Look again after a moment.
    Unclear,
    /// Look again after a moment, and compare with this look.
    Anew,
    /// Ask it whether it is there, look again after a moment, and compare with this look.
    Asleep,
    Hangs,
}

/// One cell under suspicion, from the first look to the last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Suspicion {
    process: u32,
    tick: Tick,
    looked_ns: u64,
    first: Option<Thread>,
    is_asked: bool,
    /// Of the processor that it has had for long, as it stood when that was seen: what went before says nothing.
    pulse: Option<Pulse>,
    /// The processor was seen to go since.
    goes: bool,
}

impl Suspicion {
    /// Of a cell that shows such a tick, for [`Suspicion::look`] at once and after [`Suspicion::next_in`]; `None`: it has moved when it should.
    pub(crate) fn of(process: u32, tick: Tick) -> Option<Self> {
        let now = monotonic_ns();
        let is_late = now.saturating_sub(tick.at_ns) >= as_ns(LATE);
        is_late.then(|| Self {
            process,
            tick,
            looked_ns: now,
            first: Thread::of(process),
            is_asked: false,
            pulse: None,
            goes: false,
        })
    }

    /// Of one about which something is said already: whoever said that it loops has looked at the clock of the processor, and to do so again would take longer
    /// than the vote lasts.
    pub(crate) fn as_alleged(self) -> Self {
        Self { goes: true, ..self }
    }

    /// Looks again; the cell shows such a tick now.
    pub(crate) fn look(&mut self, tick: Tick) -> Sight {
        let now = monotonic_ns();
        if tick.at_ns != self.tick.at_ns {
            return Sight::Moves;
        }
        if self.lasts() < OVERDUE {
            return Sight::Unclear;
        }
        let second = Thread::of(self.process);
        let between = Duration::from_nanos(now - self.looked_ns);
        let (process, first, has_overslept) = (self.process, self.first, self.lasts() >= OVERSLEPT);
        let others_sleep = || all_sleep(process);
        let has_had_it = |processor| self.has_had(|| Pulse::of(processor));
        let sight = judge(tick.ran_ns, first, second, between, has_overslept, others_sleep, has_had_it);
        match sight {
            Sight::Asleep if self.is_asked => return Sight::Hangs,
            Sight::Asleep | Sight::Anew => {
                self.is_asked |= sight == Sight::Asleep;
                (self.first, self.looked_ns) = (second, now);
            }
            _ => {}
        }
        sight
    }

    /// It has had a processor for long, which has such a pulse now.
    fn has_had(&mut self, pulse: impl FnOnce() -> Option<Pulse>) -> Sight {
        if self.goes || self.lasts() >= PULSELESS {
            return Sight::Hangs;
        }
        let Some(pulse) = pulse() else { return Sight::Hangs };
        match self.pulse.replace(pulse).filter(|before| before.processor == pulse.processor) {
            // What counted as the thread's while the processor was away is behind it from now on.
            Some(before) if before != pulse => {
                self.goes = true;
                Sight::Anew
            }
            _ => Sight::Unclear,
        }
    }

    /// When it is looked at again.
    pub(crate) fn next_in(&self) -> Duration {
        OVERDUE.saturating_sub(self.lasts()).max(BETWEEN_LOOKS)
    }

    /// For how long the cell has not moved.
    pub(crate) fn lasts(&self) -> Duration {
        Duration::from_nanos(monotonic_ns().saturating_sub(self.tick.at_ns))
    }
}

fn judge(
    ran_ns: u64,
    first: Option<Thread>,
    second: Option<Thread>,
    between: Duration,
    has_overslept: bool,
    others_sleep: impl FnOnce() -> bool,
    has_had_for_long: impl FnOnce(usize) -> Sight,
) -> Sight {
    let (Some(first), Some(second)) = (first, second) else { return Sight::Hangs };
    let ran = Duration::from_nanos(second.ran_ns.saturating_sub(first.ran_ns));
    // Whoever shows more than it can have had is looked at twice instead.
    let ran_since_tick = Duration::from_nanos(second.ran_ns.saturating_sub(ran_ns.min(first.ran_ns)));
    match second.state {
        b'T' | b't' | b'Z' | b'X' => Sight::Hangs,
        // What it had between the looks may be the rest of a turn that began before, but not so much.
        _ if ran_since_tick >= LONGEST && ran >= BETWEEN_TICKS => has_had_for_long(second.processor),
        _ if between < BETWEEN_LOOKS => Sight::Unclear,
        // Its alarm would have made it runnable, and so would a question.
        b'S' if first.state == b'S' && ran.is_zero() => {
            if has_overslept && others_sleep() {
                Sight::Asleep
            } else {
                Sight::Unclear
            }
        }
        // It had something to do, and may have the rest of it before it.
        b'S' => Sight::Anew,
        // It has a core, or waits for one, or for memory from a disk. On a busy machine it has little of it, and that adds up.
        _ => Sight::Unclear,
    }
}

/// Until a cell ticks next, in its place of so many in the ring of the living. They go by one clock, so that each looks when about half of a tick has gone
/// since the one that it watches should have moved: one that is a little late is not overdue then, and one that hangs is found some milliseconds earlier than
/// by a look at any moment.
pub(crate) fn until_tick(now_ns: u64, (place, living): (usize, usize)) -> Duration {
    let (tick, living) = (as_ns(TICK), living.max(1) as u64);
    // The same between any two that follow each other, between the last and the first as well.
    let behind = tick * (living / 2) / living;
    let phase = (living - place as u64 % living) * behind % tick;
    Duration::from_nanos(tick - (now_ns + tick - phase) % tick)
}

/// The first of a cell's ticks that is not earlier, if that is one.
pub(crate) fn tick_behind(moment: Instant, tick: Instant) -> Instant {
    let ticks = moment.saturating_duration_since(tick).as_nanos().div_ceil(TICK.as_nanos());
    tick + TICK * u32::try_from(ticks).unwrap_or(u32::MAX)
}

fn as_ns(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// The cell that another one watches: the next in the ring of the living.
pub(crate) fn watched_by(own: CellId, living: &[CellId]) -> Option<CellId> {
    let mut sorted: Vec<CellId> = living.iter().copied().filter(|&cell| cell != own).collect();
    sorted.sort_unstable();
    sorted.iter().copied().find(|&cell| cell > own).or_else(|| sorted.first().copied())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_millis(4);
    const UNKNOWN: u64 = Tick::UNKNOWN.ran_ns;

    fn judge(first: Option<Thread>, second: Option<Thread>, between: Duration) -> Sight {
        super::judge(UNKNOWN, first, second, between, true, || true, |_| Sight::Hangs)
    }

    fn thread(state: u8, ran_ms: u64) -> Option<Thread> {
        Some(Thread { state, processor: 0, ran_ns: ran_ms * 1_000_000 })
    }

    #[test]
    fn a_stopped_and_a_looping_thread_hang_and_a_sleeping_one_is_asked() {
        let first = thread(b'S', 10);
        for (second, why) in [(thread(b'T', 10), "stopped"), (None, "gone")] {
            assert_eq!(judge(first, second, LONG), Sight::Hangs, "{why}");
        }
        assert_eq!(judge(first, thread(b'S', 10), LONG), Sight::Asleep);
        assert_eq!(judge(thread(b'R', 10), thread(b'R', 15), LONG), Sight::Hangs, "it loops");
    }

    #[test]
    fn one_that_waits_for_a_core_does_not_hang_however_long_it_takes() {
        for between in [LONG, Duration::from_secs(3)] {
            assert_eq!(judge(thread(b'R', 10), thread(b'R', 10), between), Sight::Unclear);
            assert_eq!(judge(thread(b'S', 10), thread(b'R', 10), between), Sight::Unclear);
            assert_eq!(judge(thread(b'D', 10), thread(b'D', 10), between), Sight::Unclear);
        }
        assert_eq!(judge(thread(b'S', 10), thread(b'S', 11), LONG), Sight::Anew, "it had something to do");
    }

    /// A cell that looped on a machine with many others had a core for less than half of the time between any two looks, and was taken for one that moves: its
    /// watcher, who saw more of it, was voted down twice and ended for that.
    #[test]
    fn one_that_loops_is_found_however_little_of_a_core_it_has() {
        let looks = [(12, 4), (14, 8), (15, 12)];
        let sights =
            looks.map(|(ran, ms)| judge(thread(b'R', 10), thread(b'R', ran), Duration::from_millis(ms)));
        assert_eq!(sights, [Sight::Unclear, Sight::Unclear, Sight::Hangs]);
    }

    /// The host had taken a processor away for seven milliseconds, which counted as the cell's; then others were next, and three cells found that it loops.
    #[test]
    fn one_that_has_had_a_core_for_long_hangs_if_it_had_it_once_more() {
        let look = |ticked_at_ms: u64, first, second| {
            super::judge(ticked_at_ms * 1_000_000, first, second, LONG, false, || false, |_| Sight::Hangs)
        };
        assert_eq!(look(10, thread(b'R', 17), thread(b'R', 17)), Sight::Unclear, "others are next");
        assert_eq!(look(10, thread(b'R', 17), thread(b'R', 18)), Sight::Hangs);
        assert_eq!(look(10, thread(b'R', 11), thread(b'R', 15)), Sight::Hangs);
        assert_eq!(
            look(14, thread(b'R', 17), thread(b'R', 18)),
            Sight::Unclear,
            "a turn, and what goes before its tick"
        );
        assert_eq!(
            look(10, thread(b'S', 13), thread(b'S', 15)),
            Sight::Hangs,
            "it waits in its loop for something else, again and again"
        );
        assert_eq!(
            look(99, thread(b'R', 15), thread(b'R', 18)),
            Sight::Unclear,
            "it cannot have had so much"
        );
    }

    /// A cell's loop waited for a lock, and who had it waited for a core: three others found that it hangs.
    #[test]
    fn one_that_waits_for_another_of_its_threads_does_not_hang() {
        let asleep = thread(b'S', 10);
        assert_eq!(
            super::judge(UNKNOWN, asleep, asleep, LONG, true, || false, |_| Sight::Hangs),
            Sight::Unclear
        );
        assert!(!all_sleep(std::process::id()), "this one is at work");
    }

    #[test]
    fn one_whose_alarm_may_be_late_does_not_hang() {
        let (asleep, stopped) = (thread(b'S', 10), thread(b'T', 10));
        assert_eq!(
            super::judge(UNKNOWN, asleep, asleep, LONG, false, || true, |_| Sight::Hangs),
            Sight::Unclear
        );
        assert_eq!(
            super::judge(UNKNOWN, asleep, stopped, LONG, false, || true, |_| Sight::Hangs),
            Sight::Hangs
        );
    }

    #[test]
    fn one_that_sleeps_is_asked_before_it_is_said_that_it_hangs() {
        let mut sleeper = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let begins = Instant::now();
        while state_of(sleeper.id(), &sleeper.id().to_string()).is_none_or(|(state, _)| state != b'S') {
            assert!(begins.elapsed() < Duration::from_secs(20), "it never sleeps");
            std::thread::yield_now();
        }
        let mut suspicion = Suspicion::of(sleeper.id(), Tick::UNKNOWN).expect("old");
        let mut next = || loop {
            match suspicion.look(Tick::UNKNOWN) {
                Sight::Unclear | Sight::Anew => std::thread::sleep(BETWEEN_LOOKS),
                sight => return sight,
            }
        };
        assert_eq!([next(), next()], [Sight::Asleep, Sight::Hangs]);
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
    }

    /// While the host has taken a processor away, another one sees the thread on it run and run.
    #[test]
    fn one_whose_processor_stands_does_not_loop() {
        let tick = Tick { at_ns: monotonic_ns() - as_ns(OVERDUE), ran_ns: 0 };
        let mut suspicion = Suspicion::of(std::process::id(), tick).expect("overdue");
        let at = |suspicion: &mut Suspicion, processor, count| {
            suspicion.has_had(|| Some(Pulse { processor, count }))
        };
        assert_eq!([0; 3].map(|_| at(&mut suspicion, 0, 7)), [Sight::Unclear; 3], "it stands");
        assert_eq!(at(&mut suspicion, 1, 8), Sight::Unclear, "the thread has gone to another one");
        assert_eq!({ suspicion }.has_had(|| None), Sight::Hangs, "nobody says whether it goes");
        let mut old = suspicion;
        old.tick.at_ns -= as_ns(PULSELESS);
        assert_eq!(at(&mut old, 1, 8), Sight::Hangs, "for too long");
        assert_eq!(at(&mut suspicion.as_alleged(), 1, 8), Sight::Hangs, "who found it has seen it go");
        assert_eq!(at(&mut suspicion, 1, 9), Sight::Anew, "it goes");
        assert_eq!(at(&mut suspicion, 1, 9), Sight::Hangs, "and the thread has had it since");
    }

    #[test]
    fn one_that_loops_is_found_by_the_clock_of_its_processor() {
        let mut looper =
            std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let tick = Tick { at_ns: monotonic_ns() - as_ns(OVERDUE), ran_ns: 0 };
        let mut suspicion = Suspicion::of(looper.id(), tick).expect("overdue");
        let is_found = loop {
            std::thread::sleep(suspicion.next_in());
            match suspicion.look(tick) {
                Sight::Hangs => break true,
                _ if suspicion.lasts() > Duration::from_secs(20) => break false,
                _ => {}
            }
        };
        looper.kill().unwrap();
        looper.wait().unwrap();
        assert!(is_found);
        // Where all clocks can be read, and a machine that gives it a core at all.
        let is_to_be_seen = Pulse::of(0).is_some() && suspicion.lasts() < PULSELESS;
        assert!(suspicion.goes || !is_to_be_seen, "it goes by the clock: {suspicion:?}");
    }

    #[test]
    fn a_thread_is_seen_on_the_processor_that_it_is_on() {
        let own = rustix::thread::gettid();
        let allowed = rustix::thread::sched_getaffinity(None).unwrap();
        for processor in (0..rustix::thread::CpuSet::MAX_CPU).filter(|&at| allowed.is_set(at)) {
            let mut only = rustix::thread::CpuSet::new();
            only.set(processor);
            rustix::thread::sched_setaffinity(None, &only).unwrap();
            let seen = state_of(std::process::id(), &own.as_raw_nonzero().to_string());
            assert_eq!(seen, Some((b'R', processor)));
        }
    }

    #[test]
    fn two_looks_need_time_between_them() {
        let soon = Duration::from_micros(500);
        assert_eq!(judge(thread(b'S', 10), thread(b'S', 10), soon), Sight::Unclear);
        assert_eq!(judge(thread(b'R', 10), thread(b'R', 12), Duration::from_millis(2)), Sight::Unclear);
    }

    #[test]
    fn each_looks_well_before_the_next_tick_of_the_one_that_it_watches_and_well_behind_its_last() {
        let tick = as_ns(TICK);
        for living in 2..=64 {
            let ticks_at = |place: usize| 40 * tick + as_ns(until_tick(40 * tick, (place % living, living)));
            for place in 0..living {
                let behind = (ticks_at(place) + tick - ticks_at(place + 1)) % tick;
                assert!((tick * 3 / 10..=tick / 2).contains(&behind), "{place} of {living}: {behind} ns");
                assert!(behind + 500_000 < as_ns(LATE), "a little late is not late");
            }
        }
    }

    #[test]
    fn who_has_not_moved_when_it_should_is_looked_at_when_it_is_overdue() {
        let own = std::process::id();
        let aged = |age: Duration| Tick { at_ns: monotonic_ns() - as_ns(age), ran_ns: 0 };
        assert!(Suspicion::of(own, aged(Duration::ZERO)).is_none());
        let late = Suspicion::of(own, aged(LATE)).expect("late");
        assert!(late.next_in() > BETWEEN_LOOKS && late.next_in() <= OVERDUE - LATE);
        let overdue = Suspicion::of(own, aged(OVERDUE)).expect("overdue");
        assert_eq!(overdue.next_in(), BETWEEN_LOOKS);
    }

    #[test]
    fn who_is_late_is_not_behind_from_then_on() {
        let tick = as_ns(TICK);
        for at in [(0, 1), (0, 4), (3, 4), (2, 5)] {
            let next = |now_ns: u64| now_ns + as_ns(until_tick(now_ns, at));
            let first = next(40 * tick);
            assert_eq!([0, 1, tick - 1].map(|late| next(first + late)), [first + tick; 3]);
        }
    }

    #[test]
    fn the_ring_is_closed() {
        let cells = [3, 1, 7].map(CellId);
        assert_eq!(watched_by(CellId(1), &cells), Some(CellId(3)));
        assert_eq!(watched_by(CellId(7), &cells), Some(CellId(1)));
        assert_eq!(watched_by(CellId(7), &[CellId(7)]), None);
    }

    #[test]
    fn a_fresh_tick_is_not_suspect_and_our_own_thread_is_seen() {
        assert!(Suspicion::of(std::process::id(), Tick::now()).is_none());
        let mut old = Suspicion::of(std::process::id(), Tick::UNKNOWN).expect("old");
        assert!(old.first.is_some());
        assert_eq!(old.look(Tick::now()), Sight::Moves);
    }
}
