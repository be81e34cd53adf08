//! What this kernel can do for shared memory, and what we were told to do without.

use comb_types::mechanism::Mechanism;

use crate::userfaultfd::Userfaultfd;

/// Whether the kernel has a mechanism and it was not switched off; none of a mechanism that is not this crate's.
pub fn is_available(mechanism: Mechanism) -> Option<bool> {
    let kernel_has_it = match mechanism {
        Mechanism::Userfaultfd => Userfaultfd::open().is_ok(),
        Mechanism::UserfaultfdContinueWp => {
            Userfaultfd::open().is_ok_and(|opened| opened.continues_protected())
        }
        Mechanism::Membarrier
        | Mechanism::AfXdp
        | Mechanism::SocketPidfd
        | Mechanism::Landlock
        | Mechanism::Cgroups
        | Mechanism::Bpf
        | Mechanism::BpfCast
        | Mechanism::PagemapScan => {
            return None;
        }
    };
    Some(kernel_has_it && !mechanism.is_switched_off())
}

/// Whether another process can guard memory that this one imports from it.
pub fn guards_imports() -> bool {
    Userfaultfd::open_whole().is_ok()
}
