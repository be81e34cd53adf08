//! System calls on shared memory that is guarded: whether this process has them covered.

use comb_memory::syscalls::{self, Coverage, Hooks};

use crate::futex;

/// Set to 0, system calls are left alone: those that are given memory which is not here fail with EFAULT.
const COVER_VARIABLE: &str = "COMB_COVER";

/// Has `comb_memory` cover them. A process that may not is told if it `wants_to_know`, and goes on: all but such system calls works without. Whether
/// they are: only then it can be let in to memory that another process guards, for there are system calls that undo a guard.
pub(crate) fn cover(wants_to_know: bool) -> bool {
    if std::env::var_os(COVER_VARIABLE).is_some_and(|value| value == "0") {
        return false;
    }
    let mut is_covered = true;
    let consequence = match syscalls::cover(Hooks { futex: Some(futex::on_futex) }) {
        Ok(Coverage { vectored: true }) => return true,
        Ok(Coverage { vectored: false }) => "this program's code is at the same addresses in every process (it is not position independent, or \
             addresses are not randomised): readv, writev, sendmsg, recvmsg and their kin, given buffers in shared memory, may fail with EFAULT"
            .to_owned(),
        Err(error) => {
            is_covered = false;
            format!(
                "system calls that are given shared memory may fail with EFAULT, futexes there wake nobody in other components, and of named regions this \
                 process has copies: {error}"
            )
        }
    };
    if wants_to_know {
        eprintln!("comb: {consequence} ({COVER_VARIABLE}=0 keeps things so, without this warning)");
    }
    is_covered
}
