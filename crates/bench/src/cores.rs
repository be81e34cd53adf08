//! Where the two cores are. A virtual machine's host puts them now on two threads of one core, now on two cores, and it
//! moves one when it wakes from sleep, hardly ever while both run. So they are kept from sleeping while something is
//! measured, and laid to sleep when the other placement is wanted.

use std::fs::File;
use std::io::Write;
use std::time::{Duration, Instant};

use crate::net::median;
use crate::program::Priority;

/// Two threads of one core answer each other within 100 ns here, two cores in 350.
pub(crate) const NEAR_BELOW_NS: f64 = 200.0;
/// Here a core is moved in one of three sleeps of this length, in one of ten of 10 ms.
const SLEEP: Duration = Duration::from_millis(50);
/// The bare ping-pong takes milliseconds.
const BARE_LIMIT_S: u32 = 20;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Placement {
    Near,
    Far,
}

impl Placement {
    pub(crate) fn of(bare_ns: f64) -> Self {
        if bare_ns < NEAR_BELOW_NS { Self::Near } else { Self::Far }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Near => "near",
            Self::Far => "far",
        }
    }
}

/// Both cores, kept awake where that is allowed.
pub(crate) struct Cores {
    priority: Priority,
    awake: Option<File>,
    /// The bare round trip when it was last taken.
    bare_ns: Option<f64>,
}

impl Cores {
    pub(crate) fn new(priority: Priority) -> Self {
        let mut this = Self { priority, awake: keep_awake(), bare_ns: None };
        this.look();
        this
    }

    /// How programs are run on them.
    pub(crate) fn priority(&self) -> Priority {
        self.priority
    }

    pub(crate) fn bare_ns(&self) -> Option<f64> {
        self.bare_ns
    }

    /// Takes the bare ping-pong.
    pub(crate) fn look(&mut self) -> Option<f64> {
        let taken = self.priority.ours("bare", BARE_LIMIT_S).ok();
        self.bare_ns =
            taken.and_then(|samples| median(&samples.iter().map(|sample| sample.value).collect::<Vec<_>>()));
        self.bare_ns
    }

    /// Lets the cores sleep, and looks again, until they are as wanted or the time is over. Returns what that took.
    pub(crate) fn seek(&mut self, wanted: Placement, at_most: Duration) -> Duration {
        let started = Instant::now();
        while self.bare_ns.is_some_and(|bare| Placement::of(bare) != wanted) && started.elapsed() < at_most {
            self.awake = None;
            std::thread::sleep(SLEEP);
            self.awake = keep_awake();
            self.look();
        }
        started.elapsed()
    }
}

/// For as long as the file is open, the kernel's idle loop does not let a core sleep (`pm_qos_interface` in the kernel's
/// documentation). Programs that are measured spin on both: it is between them, and while they start, that this matters.
fn keep_awake() -> Option<File> {
    let mut file = File::options().write(true).open("/dev/cpu_dma_latency").ok()?;
    file.write_all(&0_i32.to_ne_bytes()).ok()?;
    Some(file)
}
