//! The first kernel in a process of its own.

use std::ops::Range;
use std::os::fd::{BorrowedFd, OwnedFd};

use super::{Client, GROUP_BYTES};
use crate::calls::First;
use crate::objects::{Access, KernelId, KernelLoad, Tag};
use crate::supervisor::{CallError, State};
use crate::wire::{Answer, Gone, OfFirst, Request, send_descriptors};

/// So many page groups are named in one request.
const AT_ONCE: usize = 4096;

impl Client {
    fn ask_first(&mut self, request: OfFirst) -> Result<(), CallError> {
        self.ask_for_nothing(&Request::OfFirst(request))
    }

    fn place_of(&self, frame: u64, offset: usize, bytes: usize) -> usize {
        assert!(offset + bytes <= 4096, "within a frame");
        let place = usize::try_from(frame).expect("a frame that there is") * 4096;
        let group = u32::try_from(place / GROUP_BYTES).expect("a frame that there is");
        assert!(self.granted.has(group), "a frame of its own");
        place + offset
    }
}

impl First for Client {
    fn load_kernel(&mut self, load: KernelLoad<Box<State>>) -> Result<(KernelId, OwnedFd), CallError> {
        let KernelLoad { tag, descriptor, locked, waiting } = load;
        let count = u32::try_from(waiting.len()).map_err(|_| CallError::Crowded)?;
        for writeback in waiting {
            self.ask_first(OfFirst::HandOver(Gone::of(writeback).0))?;
        }
        match self.ask(&Request::OfFirst(OfFirst::LoadKernel { tag, descriptor, locked, waiting: count }))? {
            Answer::Kernel(kernel) => Ok((kernel, self.receive(kernel.to_word())?)),
            _ => Err(CallError::NoSupervisor),
        }
    }

    fn unload_kernel(&mut self, kernel: KernelId) -> Result<(), CallError> {
        self.ask_first(OfFirst::UnloadKernel(kernel))
    }

    fn set_access(&mut self, kernel: KernelId, groups: Range<u64>, access: Access) -> Result<(), CallError> {
        self.ask_first(OfFirst::SetAccess { kernel, groups, access })
    }

    fn set_processor_shares(&mut self, kernel: KernelId, shares: &[u8]) -> Result<(), CallError> {
        self.ask_first(OfFirst::SetProcessorShares { kernel, shares: shares.to_vec() })
    }

    fn set_maximum_priority(&mut self, kernel: KernelId, maximum: u8) -> Result<(), CallError> {
        self.ask_first(OfFirst::SetMaximumPriority { kernel, maximum })
    }

    fn charge_process(&mut self, kernel: KernelId, process: BorrowedFd<'_>) -> Result<(), CallError> {
        send_descriptors(&self.socket, kernel.to_word(), &[process]).map_err(|_| CallError::NoSupervisor)?;
        self.ask_first(OfFirst::ChargeProcess(kernel))
    }

    fn clear_groups(&mut self, groups: &[u32]) -> Result<(), CallError> {
        groups.chunks(AT_ONCE).try_for_each(|some| self.ask_first(OfFirst::ClearGroups(some.to_vec())))
    }

    fn put_away(&mut self, name: Tag, groups: &[u32]) -> Result<(), CallError> {
        let put = |groups| OfFirst::PutAway { name, groups };
        groups.chunks(AT_ONCE).try_for_each(|some| self.ask_first(put(some.to_vec())))
    }

    fn put_back(&mut self, name: Tag, groups: &[u32]) -> Result<(), CallError> {
        let put = |groups| OfFirst::PutBack { name, groups };
        groups.chunks(AT_ONCE).try_for_each(|some| self.ask_first(put(some.to_vec())))
    }

    fn forget_away(&mut self, name: Tag) -> Result<(), CallError> {
        self.ask_first(OfFirst::ForgetAway(name))
    }

    fn read(&self, frame: u64, offset: usize, to: &mut [u8]) {
        self.memory.copy_out(self.place_of(frame, offset, to.len()), to);
    }

    fn write(&mut self, frame: u64, offset: usize, from: &[u8]) {
        self.memory.copy_in(self.place_of(frame, offset, from.len()), from);
    }
}
