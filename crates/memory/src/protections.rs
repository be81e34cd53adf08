//! Access control by the protections of mappings, where userfaultfd is refused. Threads get SIGSEGV.
//!
//! Every change between neighbours with different rights is another mapping of the process, of which there are 65,530
//! (`vm.max_map_count`): memory whose rights are finely mixed comes to an end here.
#![expect(unsafe_code, reason = "protections are changed by address")]

use comb_coherence::Access;

use crate::access::{AccessControl, Run};
use crate::frames::Frames;
use crate::kernel::{self, Protection};
use crate::memory::MemoryError;

/// Has no state: the kernel has it all.
#[derive(Debug)]
pub(crate) struct Protections;

fn protection(access: Access) -> Protection {
    match access {
        Access::ReadWrite => Protection::LoadsAndStores,
        Access::ReadOnly => Protection::Loads,
        Access::Invalid => Protection::Nothing,
    }
}

fn protect(run: Run, access: Access) -> Result<(), MemoryError> {
    // SAFETY: guarded addresses, as `AccessControl` demands of its caller.
    unsafe { kernel::protect(run.address, run.bytes, protection(access)) }
        .map_err(|source| MemoryError::from_mapping("change the rights to shared memory", source))
}

impl AccessControl for Protections {
    fn guard(&self, address: usize, bytes: usize, initial: Access) -> Result<(), MemoryError> {
        protect(Run { address, frame: 0, bytes }, initial)
    }

    fn change(
        &self,
        _frames: &Frames,
        run: Run,
        from: Access,
        to: Access,
        _is_known: bool,
    ) -> Result<(), MemoryError> {
        if from == to {
            return Ok(());
        }
        protect(run, to).inspect_err(|_| {
            if to < from {
                // What was raised in part is lowered again.
                let _ = protect(run, from);
            }
        })
    }

    fn repair(&self, _frames: &Frames, run: Run, access: Access) -> Result<(), MemoryError> {
        protect(run, access)
    }
}
