//! What the components of `comb bench memory` do. Component 0 prints what was measured, a JSON line each.

mod elsewhere;
mod metadata;
pub(crate) mod objects;

use std::hint::black_box;
use std::time::{Duration, Instant};

use comb_region::{Array, Placement, Task, Terms};
use serde_json::json;

use crate::{cell_region, delivery, jacobi, two_hosts};

/// Which part a component runs.
pub(crate) const PART: &str = "COMB_BENCH_PART";

type Outcome = Result<(), Box<dyn std::error::Error>>;

const PAGE: usize = 4096;
const WORDS: usize = PAGE / 8;

/// Runs the part that the environment names.
pub(crate) fn run() -> Outcome {
    let part = std::env::var(PART)?;
    if part == "delivery" {
        return delivery::run();
    }
    if part == "two_hosts" || two_hosts::are_several()? {
        two_hosts::keep_to_one_core()?;
    }
    let task = Task::join()?;
    match part.as_str() {
        "hits" => hits(&task),
        "first_touch" => first_touch(&task),
        "misses" => elsewhere::misses(&task),
        "bulk" => elsewhere::bulk(&task),
        "jacobi" => grids(&task),
        "objects" => objects::objects(&task),
        "metadata" => metadata::metadata(&task),
        "two_hosts" => two_hosts::run(&task),
        "cell_region" => cell_region::run(&task),
        "checked" => checked(&task),
        other => Err(format!("{other:?} is no part of the benchmark").into()),
    }
}

pub(crate) fn say(task: &Task, rank: u32, test: &str, unit: &str, value: f64) {
    if task.rank() == rank {
        println!("{}", json!({ "test": test, "unit": unit, "value": value }));
    }
}

pub(crate) fn nanoseconds_each(took: Duration, times: usize) -> f64 {
    took.as_nanos() as f64 / times as f64
}

/// The least of several.
pub(crate) fn best_of(times: usize, mut measure: impl FnMut() -> Duration) -> Duration {
    (0..times).map(|_| measure()).min().unwrap_or_default()
}

#[expect(unsafe_code, reason = "private and shared memory are read by the same code")]
pub(crate) fn sum_of(words: *const u64, count: usize) -> u64 {
    // SAFETY: both callers have so many words there; a component that stores them has stopped before.
    let words = unsafe { std::slice::from_raw_parts(words, count) };
    words.iter().fold(0, |sum, word| sum.wrapping_add(*word))
}

#[expect(unsafe_code, reason = "as `sum`")]
pub(crate) fn fill(words: *mut u64, count: usize, with: u64) {
    // SAFETY: both callers have so many words there, and nobody else uses them meanwhile.
    let words = unsafe { std::slice::from_raw_parts_mut(words, count) };
    for (index, word) in words.iter_mut().enumerate() {
        *word = with ^ index as u64;
    }
}

/// What the misses of compiled code stand on.
fn checked(task: &Task) -> Outcome {
    const BLOCK_BYTES: u32 = 128;
    if let Some(costs) = task.measure_checked(BLOCK_BYTES)? {
        say(task, task.rank(), "found", "ns", costs.found);
        say(task, task.rank(), "fence", "ns", costs.fence[0]);
    }
    Ok(())
}

/// Loads and stores that need no asking, beside private memory.
fn hits(task: &Task) -> Outcome {
    for (name, bytes) in [("256 KB", 256 << 10), ("64 MB", 64 << 20)] {
        let count = bytes / 8;
        let all: Vec<Array<u64>> =
            (0..PLACES).map(|_| Array::together(task, count, &Terms::default())).collect::<Result<_, _>>()?;
        // The others wait, asleep.
        if task.rank() == 0 {
            let shared: Vec<*mut u64> = all.iter().map(Array::as_ptr).collect();
            let [stores, loads] = by_private(&shared, count);
            say(task, 0, &format!("stores by private, {name}"), "ratio", stores);
            say(task, 0, &format!("loads by private, {name}"), "ratio", loads);
        }
        task.barrier();
    }
    Ok(())
}

/// Which frames memory happens to have decides some percents of what a cache does for it: several places are measured.
pub(crate) const PLACES: usize = 5;

/// How long stores and loads of memory take by those of private memory: of several pairs the one in the middle, and of each the best of runs
/// by turns.
pub(crate) fn by_private(shared: &[*mut u64], count: usize) -> [f64; 2] {
    const TURNS: usize = 7;
    let times = ((64 << 20) / (count * 8)).max(1);
    let mut ratios = [Vec::new(), Vec::new()];
    for &shared in shared {
        let mut private = vec![0_u64; count];
        // As large pages as the other has: small ones.
        let pair = [small_pages(&mut private), shared];
        pair.iter().for_each(|&words| fill(words, count, 1));
        let stores = |words: *mut u64| (0..times as u64).for_each(|with| fill(black_box(words), count, with));
        let loads = |words: *mut u64| (0..times).for_each(|_| _ = black_box(sum_of(black_box(words), count)));
        let ways: [&dyn Fn(*mut u64); 2] = [&stores, &loads];
        for (ratios, run) in ratios.iter_mut().zip(ways) {
            let mut best = [Duration::MAX; 2];
            for _ in 0..TURNS {
                for (best, &words) in best.iter_mut().zip(&pair) {
                    let started = Instant::now();
                    run(words);
                    *best = (*best).min(started.elapsed());
                }
            }
            ratios.push(best[1].as_secs_f64() / best[0].as_secs_f64());
        }
    }
    ratios.map(|mut ratios| {
        ratios.sort_unstable_by(f64::total_cmp);
        ratios[ratios.len() / 2]
    })
}

/// Where its page frames are small, as shared memory's are.
#[expect(unsafe_code, reason = "advice about memory that a vector has")]
pub(crate) fn small_pages(words: &mut Vec<u64>) -> *mut u64 {
    let first = words.as_mut_ptr();
    let begin = (first as usize).next_multiple_of(PAGE);
    let bytes = (size_of_val(&words[..]) + first as usize).saturating_sub(begin) / PAGE * PAGE;
    // SAFETY: whole pages within the vector; advice changes no content.
    unsafe { libc::madvise(begin as *mut libc::c_void, bytes, libc::MADV_NOHUGEPAGE) };
    first
}

/// First loads and stores of pages that have content, beside a plain shared mapping of the same.
fn first_touch(task: &Task) -> Outcome {
    const PAGES: usize = 8192;
    let count = PAGES * WORDS;
    let shared =
        Array::<u64>::together(task, count, &Terms { placement: Placement::At(0), ..Terms::default() })?;
    let stored =
        Array::<u64>::together(task, count, &Terms { placement: Placement::At(0), ..Terms::default() })?;
    if task.rank() == 0 {
        fill(shared.as_ptr(), count, 1);
        fill(stored.as_ptr(), count, 1);
    }
    task.barrier();
    if task.rank() == 1 {
        let touch_all = |words: *const u64| {
            let started = Instant::now();
            for page in 0..PAGES {
                black_box(load(words, page * WORDS));
            }
            nanoseconds_each(started.elapsed(), PAGES)
        };
        let store_all = |words: *mut u64| {
            let started = Instant::now();
            for page in 0..PAGES {
                store(words, page * WORDS, 1);
            }
            nanoseconds_each(started.elapsed(), PAGES)
        };
        let plain = PlainMapping::filled(PAGES)?;
        say(task, 1, "first load, plain", "ns", touch_all(plain.again()?.cast_const()));
        say(task, 1, "first load", "ns", touch_all(shared.as_ptr()));
        say(task, 1, "first store, plain", "ns", store_all(plain.again()?));
        say(task, 1, "first store", "ns", store_all(stored.as_ptr()));
    }
    task.barrier();
    Ok(())
}

/// A shared mapping as any program makes one.
pub(crate) struct PlainMapping {
    file: std::os::fd::OwnedFd,
    bytes: usize,
}

impl PlainMapping {
    pub(crate) fn fresh(pages: usize) -> Result<Self, rustix::io::Errno> {
        let bytes = pages * PAGE;
        let file = rustix::fs::memfd_create("plain", rustix::fs::MemfdFlags::CLOEXEC)?;
        rustix::fs::ftruncate(&file, bytes as u64)?;
        Ok(Self { file, bytes })
    }

    /// Somebody else's.
    pub(crate) fn of(file: std::os::fd::OwnedFd, pages: usize) -> Self {
        Self { file, bytes: pages * PAGE }
    }

    pub(crate) fn file(&self) -> std::os::fd::BorrowedFd<'_> {
        std::os::fd::AsFd::as_fd(&self.file)
    }

    pub(crate) fn filled(pages: usize) -> Result<Self, rustix::io::Errno> {
        let this = Self::fresh(pages)?;
        fill(this.again()?, this.bytes / 8, 1);
        Ok(this)
    }

    /// Mapped once more, for good.
    pub(crate) fn again(&self) -> Result<*mut u64, rustix::io::Errno> {
        self.again_at(std::ptr::null_mut())
    }

    /// The same there, if that is free.
    #[expect(unsafe_code, reason = "a mapping")]
    pub(crate) fn again_at(&self, address: *mut std::ffi::c_void) -> Result<*mut u64, rustix::io::Errno> {
        use rustix::mm::{MapFlags, ProtFlags, mmap};
        // SAFETY: a new mapping, of which nobody else knows.
        let memory = unsafe {
            mmap(address, self.bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, &self.file, 0)
        }?;
        Ok(memory.cast())
    }
}

#[expect(unsafe_code, reason = "shared memory")]
pub(crate) fn load(words: *const u64, index: usize) -> u64 {
    // SAFETY: the callers stay within what they have.
    unsafe { words.add(index).read_volatile() }
}

#[expect(unsafe_code, reason = "shared memory")]
pub(crate) fn store(words: *mut u64, index: usize, value: u64) {
    // SAFETY: the callers stay within what they have.
    unsafe { words.add(index).write_volatile(value) }
}

/// Does something with each of so many pages, a power of two, and never with the next, so that nothing is read ahead. How long each took,
/// in nanoseconds, by length.
pub(crate) fn in_no_order(pages: usize, access: impl Fn(usize)) -> Vec<u64> {
    let mut each: Vec<u64> = Vec::with_capacity(pages);
    for page in 0..pages {
        let started = Instant::now();
        access(page * 1237 % pages);
        each.push(u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }
    each.sort_unstable();
    each
}

/// Jacobi's iteration, the rows dealt to the components.
fn grids(task: &Task) -> Outcome {
    let (size, iterations) = (jacobi::SIZE, jacobi::ITERATIONS);
    let terms = Terms::default();
    let grids = [
        Array::<f64>::together(task, size * size, &terms)?,
        Array::<f64>::together(task, size * size, &terms)?,
    ];
    let part = jacobi::Part::of(task.rank() as usize, task.count() as usize);
    let pointers = [grids[0].as_ptr(), grids[1].as_ptr()];
    let took = part.run(pointers, iterations, &|| task.barrier());
    say(task, 0, "jacobi, an iteration", "us", took.as_secs_f64() * 1e6 / iterations as f64);
    task.barrier();
    if task.rank() == 0 {
        println!(
            "{}",
            json!({ "test": "jacobi, checksum", "unit": "", "value": jacobi::checksum(pointers[iterations % 2]) })
        );
    }
    task.barrier();
    Ok(())
}
