//! What the first kernel asks of a supervisor in another process. (Cache Kernel §2.4, §3)

use super::*;
use crate::objects::{KernelLoad, Refused};
use crate::space::SpaceError;
use crate::wire::{OfFirst, receive_now};

impl Server {
    pub(super) fn perform_first(&mut self, index: usize, request: OfFirst) -> Result<Answer, CallError> {
        let first = self.supervisor.first();
        if self.counters[index].kernel != first {
            return Err(Refused::NotFirst.into());
        }
        match request {
            OfFirst::LoadKernel { tag, descriptor, locked, waiting: expected } => {
                let waiting = std::mem::take(&mut self.counters[index].handed);
                // Of an earlier load some may be left, if that came to nothing.
                if u32::try_from(waiting.len()) != Ok(expected) {
                    return Ok(Answer::NotUnderstood);
                }
                let kernel =
                    self.supervisor.load_kernel(first, KernelLoad { tag, descriptor, locked, waiting })?;
                let sent = self.open(kernel).and_then(|counter| {
                    send_descriptors(&self.counters[index].socket, kernel.to_word(), &[counter.as_fd()])
                });
                if let Err(error) = sent {
                    self.supervisor.unload_kernel(first, kernel)?;
                    return Err(SpaceError::Host { action: "open a counter", error }.into());
                }
                return Ok(Answer::Kernel(kernel));
            }
            // Of kernels only the first hears.
            OfFirst::HandOver(Gone::Kernel { .. }) => return Ok(Answer::NotUnderstood),
            OfFirst::HandOver(gone) => {
                if self.counters[index].handed.len() >= self.supervisor.objects().most_waiting() {
                    self.counters[index].handed.clear();
                    return Err(CallError::Crowded);
                }
                self.counters[index].handed.push_back(gone.into());
            }
            OfFirst::UnloadKernel(kernel) => self.supervisor.unload_kernel(first, kernel)?,
            OfFirst::SetAccess { kernel, groups, access } => {
                self.supervisor.set_access(first, kernel, groups.clone(), access)?;
                let groups: Vec<u32> = groups.filter_map(|group| u32::try_from(group).ok()).collect();
                if access < Access::ReadWrite {
                    self.groups_renewed(&groups);
                }
                let mut counters = self.counters.iter_mut();
                if let Some(counter) = counters.find(|counter| counter.kernel == kernel) {
                    counter.untold.extend(groups);
                }
            }
            OfFirst::SetProcessorShares { kernel, shares } => {
                self.supervisor.set_processor_shares(first, kernel, &shares)?;
            }
            OfFirst::SetMaximumPriority { kernel, maximum } => {
                self.supervisor.set_maximum_priority(first, kernel, maximum)?;
            }
            OfFirst::ChargeProcess(kernel) => {
                // Only a process that it has a descriptor of.
                let sent = receive_now(&self.counters[index].socket);
                match sent.map(|(word, processes)| (KernelId::from_word(word), processes)) {
                    Ok((of, processes)) if of == kernel && processes.len() == 1 => {
                        self.supervisor.charge_process(kernel, processes[0].as_fd())?;
                    }
                    _ => return Ok(Answer::NotUnderstood),
                }
            }
            OfFirst::ClearGroups(groups) => {
                self.supervisor.clear_groups(first, &groups)?;
                self.groups_renewed(&groups);
            }
            OfFirst::PutAway { name, groups } => {
                self.supervisor.put_away(first, name, &groups)?;
                self.groups_renewed(&groups);
            }
            OfFirst::PutBack { name, groups } => {
                self.supervisor.put_back(first, name, &groups)?;
                self.groups_renewed(&groups);
            }
            OfFirst::ForgetAway(name) => self.supervisor.forget_away(first, name)?,
        }
        Ok(Answer::Done)
    }

    /// Some groups are other memory now: all who may write them are to be told.
    fn groups_renewed(&mut self, groups: &[u32]) {
        for index in 0..self.counters.len() {
            let kernel = self.counters[index].kernel;
            let own: Vec<u32> =
                groups.iter().copied().filter(|group| self.may_write(kernel, *group)).collect();
            self.counters[index].untold.extend(own);
        }
    }
}
