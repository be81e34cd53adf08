//! Clocks, sleeping, and timers that send a signal or are read as a file.

use crate::descriptors::Kind;
use crate::errno::{EINVAL, EOPNOTSUPP, Errno};
use crate::host;
use crate::layouts::{TimerSpec, TimerValue, Timespec, Timeval};
use crate::machine::Machine;
use crate::signals::information;
use crate::unix::{Caller, Unix};
use crate::waiting::{Id, Key, Outcome, Wait};
use std::cell::Cell;
use std::time::{Duration, Instant};

/// Longer than any program runs; a sum with it does not overflow an `Instant`.
const FOREVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// A timer that is read as a file.
pub(crate) struct TimerFile {
    pub(crate) number: u64,
    clock: i32,
    next: Cell<Option<Instant>>,
    interval: Cell<Duration>,
}

impl TimerFile {
    /// When it passes next.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.next.get()
    }

    pub(crate) fn has_passed(&self, now: Instant) -> bool {
        self.next.get().is_some_and(|next| next <= now)
    }

    /// How often it has passed since it was last asked.
    pub(crate) fn take(&self, now: Instant) -> u64 {
        let Some(next) = self.next.get().filter(|&next| next <= now) else { return 0 };
        let interval = self.interval.get();
        if interval.is_zero() {
            self.next.set(None);
            return 1;
        }
        let more = u64::try_from((now - next).as_nanos() / interval.as_nanos()).unwrap_or(u64::MAX);
        let ahead = interval.as_nanos() - (now - next).as_nanos() % interval.as_nanos();
        self.next.set(Some(now + Duration::from_nanos(u64::try_from(ahead).unwrap_or(u64::MAX))));
        more.saturating_add(1)
    }
}

/// A span of time that a program gave.
pub(crate) fn span(time: Timespec) -> Result<Duration, Errno> {
    let seconds = u64::try_from(time.seconds).map_err(|_| EINVAL)?;
    let nanoseconds =
        u32::try_from(time.nanoseconds).ok().filter(|&part| part < 1_000_000_000).ok_or(EINVAL)?;
    Ok(Duration::new(seconds, nanoseconds).min(FOREVER))
}

fn span_of(time: Timeval) -> Result<Duration, Errno> {
    if !(0..1_000_000).contains(&time.microseconds) {
        return Err(EINVAL);
    }
    span(Timespec { seconds: time.seconds, nanoseconds: time.microseconds * 1000 })
}

fn told(span: Duration) -> Timespec {
    Timespec { seconds: span.as_secs() as i64, nanoseconds: i64::from(span.subsec_nanos()) }
}

fn told_short(span: Duration) -> Timeval {
    Timeval { seconds: span.as_secs() as i64, microseconds: i64::from(span.subsec_micros()) }
}

/// A number of milliseconds as `poll` takes it: negative for no end.
pub(crate) fn milliseconds(count: i32) -> Option<Timespec> {
    (count >= 0).then(|| Timespec {
        seconds: i64::from(count / 1000),
        nanoseconds: i64::from(count % 1000) * 1_000_000,
    })
}

impl<M: Machine> Unix<M> {
    /// When a call gives up that was given a span of time. The same for the same call, however often it is made again.
    pub(crate) fn deadline(&mut self, who: Caller, timeout: Timespec) -> Result<Instant, Errno> {
        let span = span(timeout)?;
        let progress = &mut self.thread_mut(who.thread).progress;
        Ok(*progress.deadline.get_or_insert_with(|| Instant::now() + span))
    }

    /// The same for a time on a clock.
    pub(crate) fn absolute_deadline(
        &mut self,
        who: Caller,
        clock: i32,
        time: Timespec,
    ) -> Result<Instant, Errno> {
        let time = span(time)?;
        let now = host::clock(clock)?;
        let progress = &mut self.thread_mut(who.thread).progress;
        Ok(*progress.deadline.get_or_insert_with(|| Instant::now() + time.saturating_sub(now)))
    }

    fn show_clock(&mut self, who: Caller, clock: i32) -> Result<Duration, Errno> {
        match clock {
            libc::CLOCK_REALTIME
            | libc::CLOCK_MONOTONIC
            | libc::CLOCK_MONOTONIC_RAW
            | libc::CLOCK_BOOTTIME
            | libc::CLOCK_TAI
            | libc::CLOCK_REALTIME_COARSE
            | libc::CLOCK_MONOTONIC_COARSE => host::clock(clock),
            _ => self.show_used(who, clock),
        }
    }

    pub(crate) fn call_clock(&mut self, who: Caller, clock: i32, into: u64) -> Outcome {
        let time = self.show_clock(who, clock)?;
        self.memory.write(who.space, into, &told(time))?;
        Ok(0)
    }

    pub(crate) fn call_clock_step(&mut self, who: Caller, clock: i32, into: u64) -> Outcome {
        self.show_clock(who, clock)?;
        let step = if clock < 0 { Duration::from_nanos(1) } else { host::clock_step(clock)? };
        if into != 0 {
            self.memory.write(who.space, into, &told(step))?;
        }
        Ok(0)
    }

    pub(crate) fn call_time_of_day(&mut self, who: Caller, into: u64, zone: u64) -> Outcome {
        if into != 0 {
            self.memory.write(who.space, into, &told_short(host::clock(libc::CLOCK_REALTIME)?))?;
        }
        if zone != 0 {
            self.memory.write(who.space, zone, &0u64)?;
        }
        Ok(0)
    }

    pub(crate) fn call_time(&mut self, who: Caller, into: u64) -> Outcome {
        let now = host::clock(libc::CLOCK_REALTIME)?.as_secs();
        if into != 0 {
            self.memory.write(who.space, into, &now)?;
        }
        Ok(now)
    }

    pub(crate) fn call_sleep(&mut self, who: Caller, clock: i32, absolute: bool, time: u64) -> Outcome {
        let time: Timespec = self.memory.read(who.space, time)?;
        if !matches!(clock, libc::CLOCK_REALTIME | libc::CLOCK_MONOTONIC | libc::CLOCK_BOOTTIME) {
            return Err(if clock == libc::CLOCK_PROCESS_CPUTIME_ID { EOPNOTSUPP } else { EINVAL }.into());
        }
        let until =
            if absolute { self.absolute_deadline(who, clock, time)? } else { self.deadline(who, time)? };
        if until <= Instant::now() { Ok(0) } else { Err(Wait::until(Some(until)).into()) }
    }

    /// A sleep was interrupted: tells the program how long it would have lasted.
    pub(crate) fn tell_rest_of_sleep(&mut self, id: Id) {
        let Some(who) = self.caller(id) else { return };
        let thread = self.thread(id);
        let (number, arguments) = thread.call;
        let rest_at = match number as i64 {
            libc::SYS_nanosleep => arguments[1],
            libc::SYS_clock_nanosleep if arguments[1] as i32 & libc::TIMER_ABSTIME == 0 => arguments[3],
            _ => 0,
        };
        if let (true, Some(until)) = (rest_at != 0, thread.progress.deadline) {
            // A program that gives a bad address does not learn the rest.
            let _ =
                self.memory.write(who.space, rest_at, &told(until.saturating_duration_since(Instant::now())));
        }
    }

    /// When the next signal of a timer is due.
    pub(crate) fn next_alarm(&self) -> Option<Instant> {
        self.processes.values().filter_map(|process| process.alarm.map(|(when, _)| when)).min()
    }

    /// Sends the signals of timers that are due.
    pub(crate) fn ring_alarms(&mut self, now: Instant) {
        let due: Vec<Id> = self
            .processes
            .values()
            .filter(|process| process.alarm.is_some_and(|(when, _)| when <= now))
            .map(|process| process.id)
            .collect();
        for id in due {
            if let Some(process) = self.processes.get_mut(&id) {
                process.alarm =
                    process.alarm.and_then(|(_, again)| (!again.is_zero()).then(|| (now + again, again)));
            }
            // One more of the same signal is no loss.
            let _ = self.post(id, None, information(libc::SIGALRM, libc::SI_KERNEL));
        }
    }

    fn swap_alarm(&mut self, who: Caller, alarm: Option<(Duration, Duration)>) -> TimerValue {
        let now = Instant::now();
        let process = self.process_mut(who.process);
        let before = process.alarm;
        process.alarm =
            alarm.filter(|(first, _)| !first.is_zero()).map(|(first, again)| (now + first, again));
        before.map_or(TimerValue::default(), |(when, again)| TimerValue {
            interval: told_short(again),
            value: told_short(when.saturating_duration_since(now).max(Duration::from_micros(1))),
        })
    }

    pub(crate) fn call_alarm(&mut self, who: Caller, seconds: u32) -> Outcome {
        let before =
            self.swap_alarm(who, Some((Duration::from_secs(u64::from(seconds)), Duration::ZERO))).value;
        let rounded = before.seconds
            + i64::from(before.microseconds > 500_000 || before.seconds == 0 && before.microseconds > 0);
        Ok(rounded as u64)
    }

    pub(crate) fn call_set_timer(&mut self, who: Caller, kind: i32, new: u64, old: u64) -> Outcome {
        if kind != libc::ITIMER_REAL {
            // Timers on the time that a program uses: there are none.
            return Err(EINVAL.into());
        }
        let value: TimerValue =
            if new == 0 { TimerValue::default() } else { self.memory.read(who.space, new)? };
        let spans = (span_of(value.value)?, span_of(value.interval)?);
        let before = self.swap_alarm(who, Some(spans));
        if old != 0 {
            self.memory.write(who.space, old, &before)?;
        }
        Ok(0)
    }

    pub(crate) fn call_get_timer(&mut self, who: Caller, kind: i32, into: u64) -> Outcome {
        let mut shown = TimerValue::default();
        if kind == libc::ITIMER_REAL
            && let Some((when, again)) = self.process(who.process).alarm
        {
            shown = TimerValue {
                interval: told_short(again),
                value: told_short(
                    when.saturating_duration_since(Instant::now()).max(Duration::from_micros(1)),
                ),
            };
        }
        self.memory.write(who.space, into, &shown)?;
        Ok(0)
    }

    pub(crate) fn call_timer_create(&mut self, who: Caller, clock: i32, flags: i32) -> Outcome {
        let known = matches!(clock, libc::CLOCK_REALTIME | libc::CLOCK_MONOTONIC | libc::CLOCK_BOOTTIME);
        if !known || flags & !(libc::TFD_CLOEXEC | libc::TFD_NONBLOCK) != 0 {
            return Err(EINVAL.into());
        }
        let number = self.new_number();
        let timer = TimerFile { number, clock, next: Cell::new(None), interval: Cell::new(Duration::ZERO) };
        let file = self.new_file(Kind::Timer(timer), libc::O_RDWR | flags & libc::TFD_NONBLOCK);
        self.install(who, file, flags & libc::TFD_CLOEXEC != 0)
    }

    pub(crate) fn call_timer_set(
        &mut self,
        who: Caller,
        descriptor: i32,
        flags: i32,
        new: Option<u64>,
        old: u64,
    ) -> Outcome {
        let file = self.file(who, descriptor)?;
        let Kind::Timer(timer) = &file.kind else { return Err(EINVAL.into()) };
        let now = Instant::now();
        let before = TimerSpec {
            interval: told(timer.interval.get()),
            value: told(timer.next.get().map_or(Duration::ZERO, |next| next.saturating_duration_since(now))),
        };
        if let Some(new) = new {
            let value: TimerSpec = self.memory.read(who.space, new)?;
            let (first, again) = (span(value.value)?, span(value.interval)?);
            let first = if flags & 1 != 0 && !first.is_zero() {
                first.saturating_sub(host::clock(timer.clock)?).max(Duration::from_nanos(1))
            } else {
                first
            };
            timer.next.set((!first.is_zero()).then(|| now + first));
            timer.interval.set(again);
            self.wakes.wake(Key::Object(timer.number));
        }
        if old != 0 {
            self.memory.write(who.space, old, &before)?;
        }
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_counts_what_was_missed() {
        let start = Instant::now();
        let timer = TimerFile {
            number: 1,
            clock: libc::CLOCK_MONOTONIC,
            next: Cell::new(Some(start + Duration::from_millis(10))),
            interval: Cell::new(Duration::from_millis(4)),
        };
        assert_eq!(timer.take(start + Duration::from_millis(9)), 0);
        assert_eq!(timer.take(start + Duration::from_millis(19)), 3);
        assert_eq!(timer.next(), Some(start + Duration::from_millis(22)));
    }

    #[test]
    fn spans_of_programs_are_checked() {
        assert_eq!(span(Timespec { seconds: -1, nanoseconds: 0 }), Err(EINVAL));
        assert_eq!(span(Timespec { seconds: 0, nanoseconds: 1_000_000_000 }), Err(EINVAL));
        assert_eq!(span(Timespec { seconds: i64::MAX, nanoseconds: 0 }), Ok(FOREVER));
        assert_eq!(milliseconds(-1), None);
    }
}
