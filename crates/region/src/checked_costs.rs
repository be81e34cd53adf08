//! What it costs where a program's own code looks for its rights.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use comb_memory::threads::{self, Thread};

use crate::task::{AllocateError, Task};
use crate::terms::{Guard, Placement, Terms};

/// Times in nanoseconds. Of misses and fences, of one in two and of one in a hundred.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct CheckedCosts {
    /// A block of so many bytes, which lives with another component that waits, comes here to be loaded.
    pub read_miss: [f64; 2],
    /// It comes to be stored to.
    pub write_miss: [f64; 2],
    /// Code that has missed asks, and the right is there.
    pub found: f64,
    /// All threads of this process have to look again, while one of them computes.
    pub fence: [f64; 2],
    /// The same, while no other thread checks its accesses.
    pub fence_alone: f64,
}

const BLOCKS: usize = 4096;
const FENCES: usize = 2000;
/// Fences are timed beside a thread that runs meanwhile: where there is but one core, none.
const LONGEST: Duration = Duration::from_secs(2);
const FOUND: usize = 20_000;

impl Task {
    /// Measures it between components 0 and 1, in blocks of so many bytes. All components call it; component 1 gets the numbers.
    pub fn measure_checked(&self, block_bytes: u32) -> Result<Option<CheckedCosts>, AllocateError> {
        let terms =
            Terms { guard: Guard::Check, block_bytes, placement: Placement::At(0), ..Terms::default() };
        let bytes = BLOCKS * block_bytes as usize;
        let loaded = self.allocate_together(bytes as u64, &terms)?;
        let stored = self.allocate_together(bytes as u64, &terms)?;
        if self.rank() == 0 {
            for place in [loaded, stored] {
                (0..BLOCKS)
                    .for_each(|block| self.store_once(place.wrapping_add(block * block_bytes as usize)));
            }
        }
        self.barrier();
        let costs = (self.rank() == 1).then(|| {
            let timed = |first: *mut u8, is_store| {
                // In no order: nobody reads ahead.
                let place = |turn: usize| first.wrapping_add(turn * 1237 % BLOCKS * block_bytes as usize);
                let times = (0..BLOCKS)
                    .map(|turn| nanoseconds(|| _ = self.fetch(place(turn), block_bytes as usize, is_store)));
                shares(times.collect())
            };
            let (read_miss, write_miss) = (timed(loaded, false), timed(stored, true));
            let found = nanoseconds(|| (0..FOUND).for_each(|_| _ = self.fetch(loaded, 8, false)));
            CheckedCosts { read_miss, write_miss, found: found / FOUND as f64, ..fences() }
        });
        self.barrier();
        Ok(costs)
    }

    fn store_once(&self, place: *mut u8) {
        #[expect(unsafe_code, reason = "the first byte of a block")]
        // SAFETY: of an allocation that stays; nobody else uses it yet.
        let store = || unsafe { place.write_volatile(1) };
        let _ = comb_memory::software::with_right(place, 1, true, store);
    }
}

fn fences() -> CheckedCosts {
    let timed = || nanoseconds(threads::wait_for_accesses);
    let is_over = AtomicBool::new(false);
    let turns = AtomicU64::new(0);
    let [fence_alone, _] = shares(as_checking(|| (0..FENCES).map(|_| timed()).collect()));
    let fence = as_checking(|| {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                as_checking(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        turns.fetch_add(1, Ordering::Relaxed);
                    }
                });
            });
            let begun = Instant::now();
            let mut times = Vec::new();
            while times.len() < FENCES && begun.elapsed() < LONGEST {
                let before = turns.load(Ordering::Relaxed);
                let time = timed();
                // Else it shares a core with this thread, and nobody had to be interrupted.
                if turns.load(Ordering::Relaxed) != before {
                    times.push(time);
                } else {
                    std::thread::yield_now();
                }
            }
            is_over.store(true, Ordering::Relaxed);
            shares(times)
        })
    });
    CheckedCosts { fence, fence_alone, ..CheckedCosts::default() }
}

/// As a thread of a program whose code checks its accesses.
fn as_checking<R>(work: impl FnOnce() -> R) -> R {
    let thread = Thread::new();
    #[expect(unsafe_code, reason = "words of this thread that others look at")]
    // SAFETY: it ends below.
    let begun = unsafe { threads::begin(&raw const thread) };
    let done = work();
    if begun.is_ok() {
        threads::end();
    }
    done
}

fn nanoseconds(what: impl FnOnce()) -> f64 {
    let begun = Instant::now();
    what();
    begun.elapsed().as_nanos() as f64
}

/// Of one in two and of one in a hundred; no numbers where nothing was measured.
fn shares(mut times: Vec<f64>) -> [f64; 2] {
    times.sort_unstable_by(f64::total_cmp);
    [times.len() / 2, times.len() / 100 * 99].map(|at| times.get(at).copied().unwrap_or(f64::NAN))
}
