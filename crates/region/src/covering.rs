//! System calls on shared memory that is guarded: whether this process has them covered.

use comb_memory::syscalls::{self, Coverage, Hooks};

use crate::futex;

/// Set to 0, system calls are left alone: those that are given memory which is not here fail with EFAULT.
const COVER_VARIABLE: &str = "COMB_COVER";

/// Has `comb_memory` cover them. A process that may not is told if it `wants_to_know`, and goes on: all but such system calls works without.
pub(crate) fn cover(wants_to_know: bool) {
    if std::env::var_os(COVER_VARIABLE).is_some_and(|value| value == "0") {
        return;
    }
    let consequence = match syscalls::cover(Hooks { futex: Some(futex::on_futex) }) {
        Ok(Coverage { vectored: true }) => return,
        Ok(Coverage { vectored: false }) => "this program's code is at the same addresses in every process (it is not position independent, or \
             addresses are not randomised): readv, writev, sendmsg, recvmsg and their kin, given buffers in shared memory, may fail with EFAULT"
            .to_owned(),
        Err(error) => format!(
            "system calls that are given shared memory may fail with EFAULT, and futexes there wake nobody in other components: {error}"
        ),
    };
    if !wants_to_know {
        return;
    }
    eprintln!("comb: {consequence} ({COVER_VARIABLE}=0 keeps things so, without this warning)");
}
