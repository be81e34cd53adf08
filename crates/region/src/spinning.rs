//! Whether a thread that waits had better spin: it learns from what its spins have cost others.

use std::sync::atomic::{AtomicU64, Ordering};

/// So many spins in a row that took a core from others.
const HARM_BEFORE_REST: u64 = 2;
/// Then so many waits do not spin.
const RESTING_WAITS: u64 = 32;

/// Whether spinning has done harm lately: a thread that spun in vain and was taken off its core meanwhile has kept others from it, perhaps
/// the very one that it waited for. A spin in vain alone is no harm: once both ends of a channel sleep, no answer comes within a spin, and
/// who learned from that would never spin again.
#[derive(Default)]
pub(crate) struct Learned {
    /// Harmful spins in a row; from [`HARM_BEFORE_REST`] on, those that were left out since, too.
    harm: AtomicU64,
}

impl Learned {
    pub(crate) fn pays(&self) -> bool {
        let harm = self.harm.load(Ordering::Relaxed);
        if harm < HARM_BEFORE_REST {
            return true;
        }
        let is_over = harm >= HARM_BEFORE_REST + RESTING_WAITS;
        self.harm.store(if is_over { 0 } else { harm + 1 }, Ordering::Relaxed);
        is_over
    }

    pub(crate) fn learn(&self, did_harm: bool) {
        if did_harm {
            self.harm.fetch_add(1, Ordering::Relaxed);
        } else {
            self.harm.store(0, Ordering::Relaxed);
        }
    }
}

/// How often this thread was taken off its core for another.
pub(crate) fn preemptions() -> i64 {
    thread_usage().ru_nivcsw
}

#[expect(unsafe_code, reason = "a system call that no crate of ours wraps")]
fn thread_usage() -> libc::rusage {
    let mut usage = std::mem::MaybeUninit::zeroed();
    // SAFETY: room for the answer; all zeros are one.
    unsafe {
        libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
        usage.assume_init()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_took_a_core_from_others_rests_and_tries_again() {
        let learned = Learned::default();
        for _ in 0..100 {
            assert!(learned.pays());
            learned.learn(false);
        }
        (0..HARM_BEFORE_REST).for_each(|_| learned.learn(true));
        let waits = (0..=RESTING_WAITS).map(|_| learned.pays());
        assert_eq!(waits.filter(|pays| !pays).count() as u64, RESTING_WAITS);
        assert!(learned.pays(), "another try");
        learned.learn(true);
        learned.learn(false);
        learned.learn(true);
        assert!(learned.pays(), "not in a row");
    }
}
