//! The fence between "I go to sleep" and "is there really nothing?".
//!
//! A receiver that goes to sleep announces it and looks once more; a sender posts and then looks whether the receiver
//! sleeps. Both need a full fence between the two, or both can miss each other. Where sends are many and sleeps are few,
//! the sleeper pays for both with membarrier(2), which runs a fence on every core that runs a registered process: some
//! microseconds, and an interrupt for whoever works there. An endpoint that sleeps for nearly every message has its peers pay.
#![expect(unsafe_code, reason = "membarrier(2) has no wrapper that is safe")]

use std::sync::OnceLock;
use std::sync::atomic::{Ordering, compiler_fence, fence};

use crate::mechanism::{Mechanism, Probe};

fn membarrier(command: i32) -> i64 {
    if cfg!(miri) {
        // An interpreter has no such kernel.
        return -1;
    }
    // SAFETY: membarrier takes numbers and touches no memory of ours.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) }
}

pub(crate) fn kernel_has_membarrier() -> bool {
    let needed = libc::MEMBARRIER_CMD_GLOBAL_EXPEDITED | libc::MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED;
    let supported = membarrier(libc::MEMBARRIER_CMD_QUERY);
    supported > 0 && supported & i64::from(needed) == i64::from(needed)
}

/// Which fences an endpoint and those who send to it use: the cheap ones only when all have registered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fences {
    /// The sleeper pays.
    Asymmetric,
    /// Both pay.
    Full,
}

impl Fences {
    /// What this process can do; registers it on the first call.
    pub(crate) fn of_this_process() -> Self {
        static REGISTERED: OnceLock<bool> = OnceLock::new();
        let registered = *REGISTERED.get_or_init(|| {
            Mechanism::Membarrier.is_available()
                && membarrier(libc::MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED) == 0
        });
        if registered { Self::Asymmetric } else { Self::Full }
    }

    pub(crate) fn meet(self, other: Self) -> Self {
        if self == other { self } else { Self::Full }
    }

    /// The sender's side: after its store, before it looks whether the receiver sleeps.
    #[inline]
    pub(crate) fn after_post(self) {
        match self {
            Self::Asymmetric => compiler_fence(Ordering::SeqCst),
            Self::Full => fence(Ordering::SeqCst),
        }
    }

    /// The sleeper's side: after it announced itself, before its last look. Asymmetric ones serve peers of both kinds.
    pub(crate) fn before_sleep(self) {
        fence(Ordering::SeqCst);
        if self == Self::Asymmetric {
            let fenced = membarrier(libc::MEMBARRIER_CMD_GLOBAL_EXPEDITED);
            debug_assert_eq!(fenced, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mechanism::runs_again_without;

    #[test]
    fn without_membarrier_both_sides_pay() {
        let here = Fences::of_this_process();
        if runs_again_without(Mechanism::Membarrier, "fence::tests::without_membarrier_both_sides_pay") {
            let kernel = if kernel_has_membarrier() { Fences::Asymmetric } else { Fences::Full };
            assert_eq!(here, kernel, "where the kernel has it, it is used");
        } else {
            assert_eq!(here, Fences::Full);
            here.before_sleep();
        }
        assert_eq!(Fences::Full.meet(here), Fences::Full, "a peer without it decides");
    }
}
