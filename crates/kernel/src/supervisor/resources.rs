//! What kernels may have of the processors: shares and priorities, enforced on the host. (Cache Kernel §4.3)

use std::time::{Duration, Instant};

use super::{CallError, Machine, Runner, Supervisor};
use crate::objects::{KernelId, ThreadId};
use crate::scheduling::{Class, Process, Thread};
use crate::shares::USUAL_PRIORITY;

/// How often what kernels use is charged.
const TICK: Duration = Duration::from_millis(10);

impl Machine {
    /// Charges a thread's kernel for what it has used, if it matters.
    pub(super) fn charge(&mut self, runner: Runner) {
        let Runner { kernel, priority, space, area } = runner;
        if self.meter.is_limited(kernel)
            && let Some(place) = &mut self.spaces[usize::from(space)]
            && let Some((used, processor)) = place.threads[area as usize].take_used()
        {
            self.meter.charge(kernel, processor, priority, used);
        }
    }

    /// Has the host prefer a thread by its priority, if its kernel has a share left.
    pub(super) fn prefer(&mut self, runner: Runner) {
        let Runner { kernel, priority, space, area } = runner;
        let Some(place) = &mut self.spaces[usize::from(space)] else { return };
        let thread = &mut place.threads[area as usize];
        let is_demoted = self.meter.is_limited(kernel) && self.meter.is_demoted(kernel, thread.processor());
        thread.prefer(Class::of(if is_demoted { 0 } else { priority }), false);
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
        for slot in 0..self.machine.threads.len() {
            if let Some(runner) = &mut self.machine.threads[slot]
                && runner.kernel == kernel
            {
                runner.priority = runner.priority.min(maximum);
                let runner = *runner;
                self.machine.prefer(runner);
            }
        }
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
        if let Some(runner) = &mut self.machine.threads[usize::from(thread.slot())] {
            let before = *runner;
            runner.priority = priority;
            let runner = *runner;
            self.machine.charge(before);
            self.machine.prefer(runner);
        }
        Ok(())
    }

    /// What a process of the host's uses is its kernel's, too.
    pub fn charge_process(&mut self, kernel: KernelId, process: u32) -> Result<(), CallError> {
        self.objects.kernel(kernel)?;
        self.machine.processes.retain(|(_, known)| known.number() != process);
        self.machine.processes.push((kernel, Process::new(process)));
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
        let runners: Vec<Runner> = machine.threads.iter().flatten().copied().collect();
        for runner in &runners {
            machine.charge(*runner);
        }
        let Machine { meter, processes, .. } = machine;
        processes.retain_mut(|(kernel, process)| {
            if !meter.is_limited(*kernel) {
                return true;
            }
            if process.look().is_none() {
                return false;
            }
            for (used, processor) in process.threads().filter_map(Thread::take_used) {
                meter.charge(*kernel, processor, USUAL_PRIORITY, used);
            }
            true
        });
        meter.pass(passed);
        for (kernel, process) in processes.iter_mut() {
            for thread in process.threads() {
                let is_demoted = meter.is_demoted(*kernel, thread.processor());
                thread.prefer(if is_demoted { Class::Idle } else { Class::NEW }, is_demoted);
            }
        }
        for runner in runners {
            self.machine.prefer(runner);
        }
    }
}

/// How many processors the host has, with those that are off.
pub(super) fn processors() -> usize {
    let possible = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
    let last = possible.trim().rsplit(['-', ',']).next().and_then(|last| last.parse::<usize>().ok());
    last.map_or_else(|| std::thread::available_parallelism().map_or(1, usize::from), |last| last + 1)
}

#[cfg(test)]
mod tests;
