//! What kernels may have of the processors: shares and priorities, enforced on the host. (Cache Kernel §4.3)

use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

use super::{CallError, Machine, Place, Runner, Supervisor};
use crate::objects::{KernelId, Refused, ThreadId};
use crate::scheduling::{Class, Process, Thread};
use crate::shares::{Meter, USUAL_PRIORITY};

/// How often what kernels use is charged.
const TICK: Duration = Duration::from_millis(10);

impl Place {
    /// Charges its kernel for what its threads have used, if it matters: those that run, and those that only say that they do not.
    pub(super) fn charge(&mut self, meter: &mut Meter) {
        if !meter.is_limited(self.kernel) {
            return;
        }
        for thread in &mut self.threads {
            let priority = thread.priority;
            if let Some((used, processor)) = thread.take_used() {
                meter.charge(self.kernel, processor, priority, used);
            }
        }
    }

    /// Has the host prefer a thread by its priority, if its kernel has a share left.
    pub(super) fn prefer(&mut self, area: u32, meter: &Meter) {
        let thread = &mut self.threads[area as usize];
        let priority = thread.priority;
        prefer(thread, self.kernel, priority, meter);
    }

    fn prefer_all(&mut self, meter: &Meter) {
        for area in 0..u32::try_from(self.threads.len()).expect("few") {
            self.prefer(area, meter);
        }
    }
}

/// Has the host prefer a thread by a priority, if its kernel has a share left where it runs. Whether it has.
fn prefer(thread: &mut Thread, kernel: KernelId, priority: u8, meter: &Meter) -> bool {
    let is_demoted = meter.is_limited(kernel) && meter.is_demoted(kernel, thread.processor());
    thread.prefer(Class::of(if is_demoted { 0 } else { priority }), false);
    !is_demoted
}

impl Machine {
    /// Has the host prefer all threads of a kernel's spaces and of its own processes by what it has left.
    fn prefer_all(&mut self, kernel: KernelId) {
        let Self { spaces, processes, meter, .. } = self;
        spaces
            .iter_mut()
            .flatten()
            .filter(|place| place.kernel == kernel)
            .for_each(|place| place.prefer_all(meter));
        for (_, process) in processes.iter_mut().filter(|(of, _)| *of == kernel) {
            let priority = process.priority;
            for thread in process.threads() {
                if !prefer(thread, kernel, priority, meter) {
                    // It may have changed that itself.
                    thread.prefer(Class::of(0), true);
                }
            }
        }
    }
}

impl Supervisor {
    /// Changes a kernel's shares of the processors, in percent. Only the first kernel can.
    pub fn set_processor_shares(
        &mut self,
        caller: KernelId,
        kernel: KernelId,
        shares: &[u8],
    ) -> Result<(), CallError> {
        self.objects.set_processor_shares(caller, kernel, shares)?;
        self.machine.meter.set(kernel, shares);
        self.machine.prefer_all(kernel);
        Ok(())
    }

    /// Changes the highest priority that a kernel's threads can have. Those that are above come down to it. Only the first kernel can.
    pub fn set_maximum_priority(
        &mut self,
        caller: KernelId,
        kernel: KernelId,
        maximum: u8,
    ) -> Result<(), CallError> {
        self.objects.set_maximum_priority(caller, kernel, maximum)?;
        for (of, process) in &mut self.machine.processes {
            if *of == kernel && process.priority > maximum {
                process.set_priority(maximum);
            }
        }
        for place in self.machine.spaces.iter_mut().flatten().filter(|place| place.kernel == kernel) {
            for thread in &mut place.threads {
                thread.priority = thread.priority.min(maximum);
            }
        }
        self.machine.prefer_all(kernel);
        Ok(())
    }

    /// Changes a thread's priority: the higher, the more it is charged. ([`crate::shares`])
    pub fn set_priority(
        &mut self,
        caller: KernelId,
        thread: ThreadId,
        priority: u8,
    ) -> Result<(), CallError> {
        self.objects.set_priority(caller, thread, priority)?;
        let Machine { spaces, threads, meter, .. } = &mut self.machine;
        if let Some(Runner { space, area, .. }) = threads[usize::from(thread.slot())]
            && let Some(place) = &mut spaces[usize::from(space)]
        {
            place.charge(meter);
            place.threads[area as usize].priority = priority;
            place.prefer(area, meter);
        }
        Ok(())
    }

    /// How much of the processors a thread of the caller's has used so far, if its state asked for that.
    pub fn thread_used(&self, caller: KernelId, thread: ThreadId) -> Result<Option<Duration>, CallError> {
        let view = self.objects.thread(thread)?;
        if view.kernel != caller {
            return Err(Refused::ForeignThread(thread).into());
        }
        Ok(self.machine.threads[usize::from(thread.slot())].and_then(|runner| {
            let place = self.machine.spaces[usize::from(runner.space)].as_ref()?;
            runner.used(&place.threads[runner.area as usize])
        }))
    }

    /// What a process of the host's uses is its kernel's, too. It is named by its descriptor: a number could be another's by now.
    pub fn charge_process(&mut self, kernel: KernelId, process: BorrowedFd<'_>) -> Result<(), CallError> {
        self.objects.kernel(kernel)?;
        let about = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", process.as_raw_fd()));
        let about = about.unwrap_or_default();
        let number = about.lines().find_map(|line| line.strip_prefix("Pid:")?.trim().parse::<u32>().ok());
        let process = number.filter(|number| *number > 0).ok_or(CallError::NoProcess)?;
        self.machine.processes.retain(|(_, known)| known.number() != process);
        self.machine.processes.push((kernel, Process::new(process)));
        Ok(())
    }

    /// Changes the priority of all threads of a kernel's own processes, which [`Self::charge_process`] was told of.
    pub fn set_own_priority(&mut self, caller: KernelId, priority: u8) -> Result<(), CallError> {
        let maximum = self.objects.kernel(caller)?.maximum_priority;
        if priority > maximum {
            return Err(Refused::Priority { asked: priority, maximum }.into());
        }
        let mut own = self.machine.processes.iter_mut().filter(|(kernel, _)| *kernel == caller).peekable();
        if own.peek().is_none() {
            return Err(CallError::NoProcess);
        }
        own.for_each(|(_, process)| process.set_priority(priority));
        self.machine.prefer_all(caller);
        Ok(())
    }

    /// How much a kernel has used of each processor: see [`crate::shares::Meter::used`].
    pub fn used(&self, kernel: KernelId) -> Vec<Duration> {
        self.machine.meter.used(kernel).collect()
    }

    /// Charges a kernel for what was done for it.
    pub(crate) fn charge_service(&mut self, kernel: KernelId, used: Duration) {
        self.machine.meter.charge(kernel, rustix::thread::sched_getcpu(), USUAL_PRIORITY, used);
    }

    /// Whether a kernel has used more than its share of the processor that this runs on.
    pub(crate) fn is_demoted(&self, kernel: KernelId) -> bool {
        self.machine.meter.is_demoted(kernel, rustix::thread::sched_getcpu())
    }

    /// How often shares are to be looked after, if there are any that are not whole.
    pub(crate) fn tick(&self) -> Option<Duration> {
        self.machine.meter.has_limits().then_some(TICK)
    }

    /// Charges all kernels for what was used since, and has the host prefer whose share is not used up. To be called often: it does so when it is time.
    pub fn look_after_shares(&mut self) {
        let now = Instant::now();
        let passed = now.saturating_duration_since(self.charged_until);
        if passed < TICK {
            return;
        }
        self.charged_until = now;
        let machine = &mut self.machine;
        if !machine.meter.has_limits() {
            return;
        }
        machine.processes.retain(|(kernel, _)| self.objects.kernel(*kernel).is_ok());
        let Machine { meter, processes, spaces, .. } = machine;
        spaces.iter_mut().flatten().for_each(|place| place.charge(meter));
        processes.retain_mut(|(kernel, process)| {
            if !meter.is_limited(*kernel) {
                return true;
            }
            if process.look().is_none() {
                return false;
            }
            let priority = process.priority;
            for (used, processor) in process.threads().filter_map(Thread::take_used) {
                meter.charge(*kernel, processor, priority, used);
            }
            true
        });
        meter.pass(passed);
        let limited: Vec<KernelId> = meter.limited().collect();
        for kernel in limited {
            machine.prefer_all(kernel);
        }
    }
}

/// How many processors the host has, with those that are off.
pub(super) fn count() -> usize {
    let possible = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
    let last = possible.trim().rsplit(['-', ',']).next().and_then(|last| last.parse::<usize>().ok());
    last.map_or_else(|| std::thread::available_parallelism().map_or(1, usize::from), |last| last + 1)
}

#[cfg(test)]
mod tests;
