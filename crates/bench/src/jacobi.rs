//! Jacobi's iteration on a square, by any number of workers that meet at a barrier.

use std::ops::Range;
use std::time::{Duration, Instant};

pub(crate) const SIZE: usize = 1024;
pub(crate) const ITERATIONS: usize = 300;

/// The rows of one worker.
pub(crate) struct Part {
    rows: Range<usize>,
    is_first: bool,
    is_last: bool,
}

impl Part {
    pub(crate) fn of(worker: usize, workers: usize) -> Self {
        let row = |worker: usize| 1 + (SIZE - 2) * worker / workers;
        Self { rows: row(worker)..row(worker + 1), is_first: worker == 0, is_last: worker + 1 == workers }
    }

    /// Fills its rows, and iterates. What the iterations took.
    pub(crate) fn run(&self, grids: [*mut f64; 2], iterations: usize, barrier: &dyn Fn()) -> Duration {
        let from = if self.is_first { 0 } else { self.rows.start };
        let to = if self.is_last { SIZE } else { self.rows.end };
        for grid in grids {
            for row in from..to {
                row_of(grid, row)
                    .iter_mut()
                    .enumerate()
                    .for_each(|(column, value)| *value = initial(row, column));
            }
        }
        barrier();
        self.sweep(grids[0], grids[1]);
        barrier();
        let started = Instant::now();
        for iteration in 0..iterations {
            self.sweep(grids[iteration % 2], grids[(iteration + 1) % 2]);
            barrier();
        }
        started.elapsed()
    }

    fn sweep(&self, from: *mut f64, to: *mut f64) {
        for row in self.rows.clone() {
            let from = from.cast_const();
            let (above, here, below) =
                (read_row(from, row - 1), read_row(from, row), read_row(from, row + 1));
            let new = row_of(to, row);
            for column in 1..SIZE - 1 {
                new[column] = 0.25 * (above[column] + below[column] + here[column - 1] + here[column + 1]);
            }
        }
    }
}

fn initial(row: usize, column: usize) -> f64 {
    if row == 0 || column == 0 { 1.0 } else { 0.0 }
}

#[expect(unsafe_code, reason = "memory that threads or processes share")]
fn row_of<'a>(grid: *mut f64, row: usize) -> &'a mut [f64] {
    // SAFETY: a grid has SIZE rows of SIZE; between two barriers a row is either stored by one worker or loaded by some.
    unsafe { std::slice::from_raw_parts_mut(grid.add(row * SIZE), SIZE) }
}

#[expect(unsafe_code, reason = "memory that threads or processes share")]
fn read_row<'a>(grid: *const f64, row: usize) -> &'a [f64] {
    // SAFETY: as in `row_of`.
    unsafe { std::slice::from_raw_parts(grid.add(row * SIZE), SIZE) }
}

pub(crate) fn checksum(grid: *mut f64) -> f64 {
    (0..SIZE).flat_map(|row| read_row(grid, row).iter()).sum()
}

/// The same by threads of this process: what an iteration takes, in microseconds, and the checksum.
pub(crate) fn by_threads(threads: usize) -> (f64, f64) {
    let mut memory = [vec![0.0_f64; SIZE * SIZE], vec![0.0_f64; SIZE * SIZE]];
    let pointers = memory.each_mut().map(|grid| grid.as_mut_ptr() as usize);
    let barrier = SpinningBarrier::new(threads);
    let took = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|worker| {
                let barrier = &barrier;
                scope.spawn(move || {
                    let grids = pointers.map(|grid| grid as *mut f64);
                    Part::of(worker, threads).run(grids, ITERATIONS, &|| barrier.wait())
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().expect("it does not panic")).max().unwrap_or_default()
    });
    (took.as_secs_f64() * 1e6 / ITERATIONS as f64, checksum(memory[ITERATIONS % 2].as_mut_ptr()))
}

/// The fastest that threads have: theirs is not to be made slow by a sleep.
struct SpinningBarrier {
    threads: usize,
    here: std::sync::atomic::AtomicUsize,
    round: std::sync::atomic::AtomicUsize,
}

impl SpinningBarrier {
    fn new(threads: usize) -> Self {
        Self { threads, here: Default::default(), round: Default::default() }
    }

    fn wait(&self) {
        use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
        let round = self.round.load(Acquire);
        if self.here.fetch_add(1, AcqRel) + 1 == self.threads {
            self.here.store(0, Release);
            self.round.store(round + 1, Release);
            return;
        }
        let mut looks = 0_u32;
        while self.round.load(Acquire) == round {
            std::hint::spin_loop();
            looks += 1;
            if looks.is_multiple_of(10_000) {
                std::thread::yield_now();
            }
        }
    }
}
