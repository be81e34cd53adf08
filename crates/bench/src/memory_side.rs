//! What the components of `comb bench memory` do. Component 0 prints what was measured, a JSON line each.

use std::hint::black_box;
use std::time::{Duration, Instant};

use comb_net::{Agent, EndpointOptions, Geometry};
use comb_region::task::Description;
use comb_region::{Array, Guard, Placement, Sharing, Task, Terms};
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
    if part == "two_hosts" {
        two_hosts::keep_to_one_core()?;
    }
    let task = Task::join()?;
    match part.as_str() {
        "hits" => hits(&task),
        "first_touch" => first_touch(&task),
        "misses" => misses(&task),
        "bulk" => bulk(&task),
        "jacobi" => grids(&task),
        "objects" => objects(&task),
        "metadata" => metadata(&task),
        "two_hosts" => two_hosts::run(&task),
        "cell_region" => cell_region::run(&task),
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

/// Loads and stores that need no asking, beside private memory.
fn hits(task: &Task) -> Outcome {
    for (name, bytes) in [("256 KB", 256 << 10), ("64 MB", 64 << 20)] {
        let count = bytes / 8;
        let mut private = vec![0_u64; count];
        let shared = Array::<u64>::together(task, count, &Terms::default())?;
        // As large pages as the other has: small ones.
        let private = small_pages(&mut private);
        let times = (512 << 20) / bytes;
        let loads = |words: *const u64| {
            black_box(sum_of(words, count));
            best_of(5, || {
                let started = Instant::now();
                for _ in 0..times {
                    black_box(sum_of(black_box(words), count));
                }
                started.elapsed()
            })
        };
        let stores = |words: *mut u64| {
            best_of(5, || {
                let started = Instant::now();
                (0..times as u64).for_each(|with| fill(black_box(words), count, with));
                started.elapsed()
            })
        };
        task.barrier();
        // By turns: the others wait, asleep.
        for turn in 0..task.count() {
            if turn == task.rank() {
                fill(private, count, 1);
                fill(shared.as_ptr(), count, 1);
                let (own, ours) = (stores(private), stores(shared.as_ptr()));
                say(
                    task,
                    0,
                    &format!("stores by private, {name}"),
                    "ratio",
                    ours.as_secs_f64() / own.as_secs_f64(),
                );
                let (own, ours) = (loads(private), loads(shared.as_ptr()));
                say(
                    task,
                    0,
                    &format!("loads by private, {name}"),
                    "ratio",
                    ours.as_secs_f64() / own.as_secs_f64(),
                );
            }
            task.barrier();
        }
    }
    Ok(())
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

    fn filled(pages: usize) -> Result<Self, rustix::io::Errno> {
        let this = Self::fresh(pages)?;
        fill(this.again()?, this.bytes / 8, 1);
        Ok(this)
    }

    /// Mapped once more, for good.
    #[expect(unsafe_code, reason = "a mapping")]
    pub(crate) fn again(&self) -> Result<*mut u64, rustix::io::Errno> {
        use rustix::mm::{MapFlags, ProtFlags, mmap};
        // SAFETY: a new mapping, of which nobody else knows.
        let memory = unsafe {
            mmap(
                std::ptr::null_mut(),
                self.bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                &self.file,
                0,
            )
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

/// Misses of component 1, by copies, while component 0 waits and answers.
fn misses(task: &Task) -> Outcome {
    const PAGES: usize = 4096;
    let terms = Terms { placement: Placement::At(0), ..Terms::default() };
    let words = Array::<u64>::together(task, PAGES * WORDS, &terms)?;
    let fresh = Array::<u64>::together(task, PAGES * WORDS, &terms)?;
    if task.rank() == 0 {
        fill(words.as_ptr(), PAGES * WORDS, 1);
        fill(fresh.as_ptr(), PAGES * WORDS, 1);
    }
    task.barrier();
    let timed = |access: &dyn Fn(usize)| in_no_order(PAGES, |page| access(page * WORDS));
    if task.rank() == 1 {
        let all = [
            ("read miss", timed(&|index| _ = black_box(words.get(index)))),
            ("upgrade", timed(&|index| words.set(index, 7))),
            ("write miss", timed(&|index| fresh.set(index, 7))),
        ];
        for (name, each) in all {
            say(task, 1, &format!("{name}, median"), "ns", each[PAGES / 2] as f64);
            say(task, 1, &format!("{name}, 99th of a hundred"), "ns", each[PAGES / 100 * 99] as f64);
        }
    }
    task.barrier();
    object_misses(task)?;
    round_trips(task)?;
    task.barrier();
    Ok(())
}

/// The same of objects that are guarded alone.
fn object_misses(task: &Task) -> Outcome {
    const OBJECTS: usize = 4096;
    let terms =
        Terms { guard: Guard::Mmu, block_bytes: 128, placement: Placement::At(0), ..Terms::default() };
    let memory = task.allocate_together((OBJECTS * 128) as u64, &terms)?;
    let place = |index: usize| task.object(memory, index * 1237 % OBJECTS).expect("so many").cast::<u64>();
    let places: Vec<*mut u64> = (0..OBJECTS).map(place).collect();
    if task.rank() == 0 {
        places.iter().for_each(|&place| store(place, 0, 1));
    }
    task.barrier();
    if task.rank() == 1 {
        let mut each: Vec<u64> = Vec::with_capacity(OBJECTS);
        for &place in &places {
            let started = Instant::now();
            black_box(load(place, 0));
            each.push(u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX));
        }
        each.sort_unstable();
        say(task, 1, "read miss of an object, median", "ns", each[OBJECTS / 2] as f64);
    }
    task.barrier();
    Ok(())
}

/// The same two processes, over an endpoint of their own.
struct Raw {
    endpoint: comb_net::Endpoint,
    channel: comb_net::ChannelKey,
}

impl Raw {
    fn meet(task: &Task, geometry: Geometry) -> Result<Self, Box<dyn std::error::Error>> {
        const SOON: Duration = Duration::from_secs(20);
        let description = Description::from_environment()?;
        let name = |rank: u32| format!("{}-raw{rank}", description.name);
        let agent = Agent::connect(&description.agent, &name(task.rank()))?;
        let options = EndpointOptions { geometry, events: true, ..EndpointOptions::default() };
        let mut endpoint = agent.endpoint_with("raw", options)?;
        task.barrier();
        let channel = if task.rank() == 1 {
            let host = &description.components[0].host;
            let here = format!("{}/raw", name(0));
            endpoint.open(&if description.is_here(0) { here } else { format!("{host}:{here}") })?
        } else {
            endpoint.accept(SOON).ok_or("nobody opens a channel")?
        };
        Ok(Self { endpoint, channel })
    }

    fn send(&mut self, message: &[u8]) -> Outcome {
        Ok(self.endpoint.send_within(self.channel, 0, &[message], Duration::from_secs(20))?)
    }

    /// Spins.
    fn receive(&mut self, buffer: &mut [u8]) -> Outcome {
        while self.endpoint.receive(buffer)?.is_none() {}
        Ok(())
    }
}

/// A question of 32 bytes and a page in answer, without any memory behind it.
fn round_trips(task: &Task) -> Outcome {
    const TIMES: usize = 20_000;
    let mut raw = Raw::meet(task, Geometry { slots: 256, payload_bytes: 256 << 10 })?;
    let (question, page, mut buffer) = ([0; 32], vec![0; PAGE], vec![0; PAGE]);
    let mut each: Vec<u64> = Vec::with_capacity(TIMES);
    for _ in 0..TIMES {
        if task.rank() == 1 {
            let started = Instant::now();
            raw.send(&question)?;
            raw.receive(&mut buffer)?;
            each.push(u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX));
        } else {
            raw.receive(&mut buffer)?;
            raw.send(&page)?;
        }
    }
    each.sort_unstable();
    if let Some(median) = each.get(TIMES / 2) {
        say(task, 1, "raw round trip of a page", "ns", *median as f64);
    }
    Ok(())
}

/// One reads what the other has, from begin to end; beside a stream of messages of the same length.
fn bulk(task: &Task) -> Outcome {
    const BYTES: usize = 64 << 20;
    for block_bytes in [4096_u32, 65536] {
        let terms = Terms { placement: Placement::At(0), block_bytes, ..Terms::default() };
        let words = Array::<u64>::together(task, BYTES / 8, &terms)?;
        // The first time the reader has no page frames for it yet.
        for (with, how) in [(1, "reading"), (2, "reading again")] {
            if task.rank() == 0 {
                fill(words.as_ptr(), BYTES / 8, with);
            }
            task.barrier();
            if task.rank() == 1 {
                let started = Instant::now();
                black_box(sum_of(words.as_ptr(), BYTES / 8));
                let rate = BYTES as f64 / started.elapsed().as_secs_f64() / 1e6;
                say(task, 1, &format!("sequential {how}, blocks of {block_bytes}"), "MB/s", rate);
            }
            task.barrier();
        }
    }
    let mut raw = Raw::meet(task, Geometry { slots: 256, payload_bytes: 256 << 10 })?;
    for bytes in [PAGE, 60 << 10] {
        let (message, mut buffer) = (vec![1_u8; bytes], vec![0_u8; bytes]);
        let times = BYTES / bytes;
        let started = Instant::now();
        for _ in 0..times {
            if task.rank() == 0 { raw.send(&message)? } else { raw.receive(&mut buffer)? }
        }
        let rate = (times * bytes) as f64 / started.elapsed().as_secs_f64() / 1e6;
        say(task, 1, &format!("stream of messages of {bytes}"), "MB/s", rate);
        // Both begin the next together.
        if task.rank() == 0 { raw.receive(&mut buffer[..8])? } else { raw.send(&[0; 8])? }
    }
    task.barrier();
    Ok(())
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

/// Objects of 128 bytes that both change, by turns of chance.
fn objects(task: &Task) -> Outcome {
    const OBJECTS: usize = 64;
    const LONG: Duration = Duration::from_millis(300);
    // Half of the changes are of others' objects, or one in a hundred.
    let patterns = [("any", 500), ("its own", 10)];
    let guards = [Guard::Page, Guard::Mmu];
    for (guard, (whose, others)) in
        guards.into_iter().flat_map(|guard| patterns.map(|pattern| (guard, pattern)))
    {
        let terms = Terms {
            guard,
            block_bytes: if guard == Guard::Mmu { 128 } else { 4096 },
            placement: Placement::RoundRobin,
            sharing: Sharing::Stache,
            ..Terms::default()
        };
        let memory = task.allocate_together((OBJECTS * 128) as u64, &terms)?;
        let object = |index: usize| {
            let place = match guard {
                Guard::Mmu => task.object(memory, index).expect("so many"),
                Guard::Page => memory.wrapping_add(index * 128),
            };
            place.cast::<u64>()
        };
        let places: Vec<*mut u64> = (0..OBJECTS).map(object).collect();
        let (rank, count) = (task.rank() as usize, task.count() as usize);
        task.barrier();
        let mut chance = u64::from(task.rank()) + 1;
        let started = Instant::now();
        let mut changes = 0_u64;
        while started.elapsed() < LONG {
            changes += 1;
            chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // Neighbours in a page are of different components.
            let owner = if chance >> 20 & 1023 < others * 1024 / 1000 { rank + 1 } else { rank } % count;
            let place = places[(chance >> 33) as usize % (OBJECTS / count) * count + owner];
            store(place, 0, load(place, 0) + 1);
        }
        let changes = task.reduce(comb_region::Combine::Sum, &[changes])[0];
        let rate = changes as f64 / started.elapsed().as_secs_f64();
        say(task, 0, &format!("changes of objects, {whose}, {guard:?}"), "1/s", rate);
        task.barrier();
    }
    // What a page of addresses for each object costs who finds it there.
    const MANY: usize = 4096;
    let terms =
        Terms { guard: Guard::Mmu, block_bytes: 128, placement: Placement::At(0), ..Terms::default() };
    let apart = task.allocate_together((MANY * 128) as u64, &terms)?;
    let together = task
        .allocate_together((MANY * 128) as u64, &Terms { placement: Placement::At(0), ..Terms::default() })?;
    if task.rank() == 0 {
        let apart: Vec<*mut u64> =
            (0..MANY).map(|index| task.object(apart, index).expect("so many").cast()).collect();
        let dense: Vec<*mut u64> = (0..MANY).map(|index| together.wrapping_add(index * 128).cast()).collect();
        for places in [&apart, &dense] {
            places.iter().for_each(|&place| store(place, 0, 1));
        }
        let walk = |places: &[*mut u64]| {
            best_of(5, || {
                let started = Instant::now();
                for _ in 0..200 {
                    places.iter().for_each(|&place| _ = black_box(load(place, 0)));
                }
                started.elapsed()
            })
        };
        say(
            task,
            0,
            "hits of 4096 objects, Mmu by Page",
            "ratio",
            walk(&apart).as_secs_f64() / walk(&dense).as_secs_f64(),
        );
    }
    task.barrier();
    Ok(())
}

/// A terabyte, of which a gigabyte is touched.
fn metadata(task: &Task) -> Outcome {
    const RESERVED: usize = 1 << 40;
    const TOUCHED: usize = 1 << 30;
    let before = kilobytes();
    let terms = Terms { sparse: true, placement: Placement::At(0), ..Terms::default() };
    let memory: *mut u64 = task.allocate_together(RESERVED as u64, &terms)?.cast();
    task.barrier();
    if task.rank() == 0 {
        // In eight places.
        for part in 0..8 {
            let first = (RESERVED / 8 / 8) * part;
            (0..TOUCHED / 8 / PAGE).for_each(|page| store(memory, first + page * WORDS, 1));
        }
        say(task, 0, "metadata of a terabyte, at home", "MB", (kilobytes() - before) as f64 / 1e3);
    }
    task.barrier();
    if task.rank() == 1 {
        for part in 0..8 {
            let first = (RESERVED / 8 / 8) * part;
            (0..TOUCHED / 8 / PAGE).for_each(|page| _ = black_box(load(memory, first + page * WORDS)));
        }
        say(task, 1, "metadata of a terabyte, at a client", "MB", (kilobytes() - before) as f64 / 1e3);
    }
    task.barrier();
    say(
        task,
        0,
        "metadata of a terabyte, at home of what is away",
        "MB",
        (kilobytes() - before) as f64 / 1e3,
    );
    task.barrier();
    Ok(())
}

/// Private memory and page tables of this process: what is not shared memory's content.
fn kilobytes() -> i64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let of = |name: &str| -> i64 {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("0");
        line.trim().trim_end_matches("kB").trim().parse().unwrap_or(0)
    };
    of("RssAnon:") + of("VmPTE:")
}
