//! How much of the processors programs have used. What the emulator does for them is not theirs.

use crate::errno::EINVAL;
use crate::host;
use crate::layouts::Times;
use crate::machine::Machine;
use crate::unix::{Caller, Unix};
use crate::waiting::{Id, Outcome};
use std::time::Duration;

/// What a process has used, beside what its threads have that are there.
#[derive(Clone, Copy, Default)]
pub(crate) struct Used {
    /// Those that have ended.
    pub(crate) before: Duration,
    /// Its children that it has waited for, with theirs.
    pub(crate) by_children: Duration,
}

/// A span of time in the hundredths of a second in which some calls count.
pub(crate) fn ticks(time: Duration) -> i64 {
    (time.as_millis() / 10) as i64
}

/// As `struct rusage` has it. Nobody tells what of it was in the host's kernel.
pub(crate) fn usage(used: Duration) -> libc::rusage {
    let mut usage: libc::rusage = host::zeroes();
    usage.ru_utime.tv_sec = used.as_secs() as i64;
    usage.ru_utime.tv_usec = i64::from(used.subsec_micros());
    usage
}

impl<M: Machine> Unix<M> {
    /// What a thread has used.
    pub(crate) fn used_by_thread(&mut self, id: Id) -> Duration {
        let Some(thread) = self.threads.get(&id) else { return Duration::ZERO };
        thread.used_before + self.memory.machine.used(thread.machine)
    }

    /// What a process has used.
    pub(crate) fn used_by_process(&mut self, id: Id) -> Duration {
        let Some(process) = self.processes.get(&id) else { return Duration::ZERO };
        let (before, threads) = (process.used.before, process.threads.clone());
        threads.into_iter().map(|thread| self.used_by_thread(thread)).fold(before, |sum, one| sum + one)
    }

    /// What a process has used, and its children that it has waited for.
    pub(crate) fn used_by_family(&mut self, id: Id) -> Duration {
        let by_children = self.processes.get(&id).map_or(Duration::ZERO, |process| process.used.by_children);
        self.used_by_process(id) + by_children
    }

    /// What a clock shows that stands still while nobody runs. Its number is a process or a thread, turned over, and which of both.
    pub(crate) fn show_used(&mut self, who: Caller, clock: i32) -> Result<Duration, crate::errno::Errno> {
        const OF_THREAD: i32 = 4;
        const KIND: i32 = 3;
        const OF_DEVICE: i32 = 3;
        let (target, is_thread) = match clock {
            libc::CLOCK_PROCESS_CPUTIME_ID => (0, false),
            libc::CLOCK_THREAD_CPUTIME_ID => (0, true),
            _ if clock >= 0 || clock & KIND == OF_DEVICE => return Err(EINVAL),
            _ => (!(clock >> 3), clock & OF_THREAD != 0),
        };
        match (target, is_thread) {
            (0, true) => Ok(self.used_by_thread(who.thread)),
            (0, false) => Ok(self.used_by_process(who.process)),
            (_, true) if self.process(who.process).threads.contains(&target) => {
                Ok(self.used_by_thread(target))
            }
            (_, false) if self.processes.contains_key(&target) => Ok(self.used_by_process(target)),
            _ => Err(EINVAL),
        }
    }

    pub(crate) fn call_usage(&mut self, who: Caller, whose: i32, into: u64) -> Outcome {
        let used = match whose {
            libc::RUSAGE_SELF => self.used_by_process(who.process),
            libc::RUSAGE_THREAD => self.used_by_thread(who.thread),
            libc::RUSAGE_CHILDREN => self.process(who.process).used.by_children,
            _ => return Err(EINVAL.into()),
        };
        let mut usage = usage(used);
        if whose != libc::RUSAGE_CHILDREN {
            usage.ru_maxrss = (self.memory.resident_pages(who.space) * 4) as i64;
        }
        self.memory.write_bytes(who.space, into, &host::bytes_of(&usage))?;
        Ok(0)
    }

    pub(crate) fn call_times(&mut self, who: Caller, into: u64) -> Outcome {
        if into != 0 {
            let user = ticks(self.used_by_process(who.process));
            let children_user = ticks(self.process(who.process).used.by_children);
            self.memory.write(who.space, into, &Times { user, children_user, ..Times::default() })?;
        }
        Ok(ticks(self.began.elapsed()) as u64)
    }
}
