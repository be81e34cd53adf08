//! `comb bench kernel`: what the cache kernel takes for its operations (Cache Kernel, Table 2 and §5.3), beside what else stops programs.

pub(crate) mod compiling;
mod items;
mod lines;
mod messages;
mod paging;
mod peers;
mod realtime;
mod thrashing;

pub(crate) use self::items::items;

use std::collections::VecDeque;
use std::path::Path;
use std::time::{Duration, Instant};

use comb_kernel::frames::Frame;
use comb_kernel::objects::{
    Access, Groups, KernelDescriptor, KernelId, KernelLoad, Locks, Mapping, Sizes, SpaceId, SpaceLoad, Tag,
    ThreadId, ThreadLoad,
};
use comb_kernel::programs;
use comb_kernel::shares::USUAL_PRIORITY;
use comb_kernel::supervisor::{State, Supervisor};
use comb_kernel::thread::Registers;
use comb_kernels::measure::locality::{self, Locality};

use self::thrashing::Thrashing;
use crate::net::median;
use crate::report::{Goal, Row, print, shows_progress};
use crate::reproduce::{ReproduceError, Reproduced};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const NOTES: &str = "\
The supervisor and its first kernel are one process here, as where a single application has the machine (Cache Kernel §3); programs are in spaces of their own. Medians \
of rounds. Spinning: the program on one processor, its kernel on another, none of which sleeps; sleeping: both on one processor, and each sleeps until the other \
wakes it. The numbers of the paper are of a 25 MHz 68040, from 1994. Not measured: kernels in processes of their own, machines with more processors.";

const CODE_PAGE: u64 = 0x400;
const DATA_PAGE: u64 = 0x70000;
const MANY_SPINS: u32 = 1_000_000;

struct World {
    supervisor: Supervisor,
    kernel: KernelId,
}

impl World {
    fn new(sizes: Sizes) -> Outcome<Self> {
        let (supervisor, kernel) = Supervisor::new(sizes, 64)?;
        supervisor.frames().write(Frame(0), 0, programs::CALLS);
        supervisor.frames().write(Frame(0), 256, programs::FAULTS);
        Ok(Self { supervisor, kernel })
    }

    fn space(&mut self) -> Outcome<SpaceId> {
        let space = self.supervisor.load_space(self.kernel, SpaceLoad { tag: Tag(1), locked: false })?;
        self.supervisor.load_mappings(self.kernel, &mapping(space, CODE_PAGE, 0, true), 1)?;
        Ok(space)
    }

    fn thread(&mut self, space: SpaceId, spins: u32) -> Outcome<ThreadId> {
        let state = State {
            registers: Registers { rip: CODE_PAGE << 12, ..Registers::default() },
            ..State::default()
        };
        let load = ThreadLoad { tag: Tag(2), space, priority: USUAL_PRIORITY, locked: false };
        Ok(self.supervisor.load_thread(self.kernel, load, &state, spins)?)
    }

    /// Lets it go on until it stops again.
    fn next(&self, thread: ThreadId, spins: u32) -> Outcome<()> {
        let area = self.supervisor.area(self.kernel, thread)?;
        area.resume();
        let since = Instant::now();
        while !area.is_stopped() {
            self.supervisor.bell(self.kernel)?.listen(spins, Some(Duration::from_millis(100)), |_| {});
            if since.elapsed() > Duration::from_secs(5) {
                return Err("a program does not stop".into());
            }
        }
        Ok(())
    }

    /// Nobody needs what was written back.
    fn forget(&mut self) -> Outcome<()> {
        while self.supervisor.take_writeback(self.kernel)?.is_some() {}
        Ok(())
    }
}

fn mapping(space: SpaceId, page: u64, frame: u64, is_code: bool) -> Mapping {
    Mapping { writable: !is_code, executable: is_code, ..Mapping::read(space, page, frame) }
}

/// Microseconds for one of so many.
fn each(times: u32, mut what: impl FnMut() -> Outcome<()>) -> Outcome<f64> {
    let since = Instant::now();
    for _ in 0..times {
        what()?;
    }
    Ok(since.elapsed().as_secs_f64() * 1e6 / f64::from(times))
}

/// The median of some rounds.
fn rounds(count: usize, mut what: impl FnMut() -> Outcome<f64>) -> Outcome<Option<f64>> {
    let values: Vec<f64> = (0..count).map(|_| what()).collect::<Outcome<_>>()?;
    Ok(median(&values))
}

/// What was measured. In microseconds, if nothing else is said.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Measured {
    call: Option<f64>,
    call_asleep: Option<f64>,
    by_ptrace: Option<f64>,
    native_call: Option<f64>,
    fault: Option<f64>,
    native_fault: Option<f64>,
    message: Option<f64>,
    /// How many of the messages the supervisor signalled.
    asked: u32,
    bare_line: Option<f64>,
    /// Load, load with writeback, unload: of mappings, threads, spaces, kernels.
    times: [Three; 4],
    /// Of descriptors, in bytes: of kernels, spaces, threads, mappings; and how many there can be.
    bytes: [Option<f64>; 4],
    places: [Option<f64>; 4],
    /// Of threads, what is not in these: a first load, and an unload of one that runs.
    other_threads: [Option<f64>; 2],
    /// Percent of what is mapped.
    share: Option<f64>,
    /// Of code: of memory, and all.
    lines: [Option<f64>; 2],
    thrashing: Thrashing,
    locality: Option<Locality>,
}

fn measure(count: usize, say: &dyn Fn(&str)) -> Outcome<Measured> {
    let mut measured = Measured::default();
    say("calls and faults");
    stops(count, &mut measured)?;
    say("messages");
    messages::measure(count, &mut measured)?;
    say("loads and unloads");
    measured.times = [mappings(count)?, threads(count)?, spaces(count)?, kernels(count)?];
    measured.other_threads = other_threads(count)?;
    let world = World::new(Sizes::default())?;
    let number = |value: usize| u32::try_from(value).ok().map(f64::from);
    let (bytes, records) = world.supervisor.objects().record_bytes();
    measured.share = number(bytes).map(|bytes| bytes / (f64::from(records) * 4096.0) * 100.0);
    measured.bytes = world.supervisor.objects().descriptor_bytes().map(number);
    let Sizes { kernels, spaces, threads, mappings, .. } = Sizes::default();
    measured.places = [kernels, spaces, threads, mappings].map(|places| Some(f64::from(places)));
    measured.lines = lines::counted();
    Ok(measured)
}

/// Runs the benchmark and prints its rows.
pub fn run(full: bool, json: bool) -> Outcome<()> {
    let count = if full { 21 } else { 7 };
    let say = |what: &str| {
        if shows_progress(json) {
            eprint!("\r{what:70}");
        }
    };
    let measured = measure(count, &say)?;
    let note = format!("of 200000, {} signalled by the supervisor, which translates them", measured.asked);
    let message =
        limit("a message to a running thread of another space, both spin", measured.message, "µs", 1.0);
    let mut rows = vec![
        beside(
            "a call through an application kernel, both spin",
            measured.call,
            3.0,
            "ptrace",
            measured.by_ptrace,
        ),
        beside(
            "a page fault with the load of a mapping, both spin",
            measured.fault,
            6.0,
            "the host's own",
            measured.native_fault,
        ),
        beside(
            "a call through an application kernel, both sleep",
            measured.call_asleep,
            10.0,
            "ptrace",
            measured.by_ptrace,
        ),
        row("a call of the host, by itself", measured.native_call, "µs"),
        Row { note, ..message },
        row("a word from one processor to the other, and nothing else", measured.bare_line, "µs"),
    ];
    for ((object, paper), ours) in items::TIMES.into_iter().zip(measured.times) {
        for ((what, ours), paper) in
            ["load", "load with writeback", "unload"].into_iter().zip(ours).zip(paper)
        {
            let mut row = row(&format!("{object}: {what}"), ours, "µs");
            (row.peer, row.theirs) = ("the paper's, 1994".to_owned(), Some(paper));
            rows.push(row);
        }
    }
    let [first, running] = measured.other_threads;
    rows.push(row("thread: load of the first in its place of a space", first, "µs"));
    rows.push(row("thread: unload of one that computes", running, "µs"));
    rows.push(limit(
        "a mapping's descriptor and its part of the indexes, of what it maps",
        measured.share,
        "%",
        0.5,
    ));
    rows.extend(realtime::rows(if full { 5000 } else { 1000 }, &say)?);
    rows.extend(compiling::rows(if full { 9 } else { 3 }, &say)?);
    rows.extend(paging::rows(if full { 7 } else { 3 }, &say));
    say("");
    print(&rows, json);
    if !json {
        println!("{NOTES}");
    }
    Ok(())
}

/// For `comb reproduce cache-kernel`.
pub(crate) fn reproduce(talks: bool) -> Result<Reproduced, ReproduceError> {
    let say = |what: &str| {
        if talks {
            eprint!("\r{what:70}");
        }
    };
    let failed = |error: Box<dyn std::error::Error>| ReproduceError::Nothing(error.to_string());
    let mut measured = measure(7, &say).map_err(failed)?;
    say("turns, when more is active than there are places for");
    measured.thrashing = thrashing::measure(20).map_err(failed)?;
    say("a simulation, whose neighbours are on different pages");
    measured.locality = Some(locality::measure(Path::new(paging::PLACE), 2).map_err(failed)?);
    say("");
    let how = "One supervisor and its first kernel in one process; programs of a few instructions in spaces of their own; medians of seven rounds.";
    Ok(Reproduced {
        how: how.to_owned(),
        items: items::items(&measured),
        drawings: vec![measured.thrashing.drawing()],
    })
}

/// Calls and faults of programs.
fn stops(count: usize, measured: &mut Measured) -> Outcome<()> {
    const TIMES: u32 = 20_000;
    let processors = peers::processors()?;
    let apart = processors.len() > 1;
    measured.by_ptrace = peers::ptrace_calls(TIMES, count)?;
    measured.native_call = peers::native_calls(TIMES);
    measured.native_fault = peers::native_faults(count)?;
    if apart {
        peers::stay_on(&processors[..1])?;
    }
    // Its programs keep the processor.
    let mut world = World::new(Sizes::default())?;
    let space = world.space()?;
    let thread = world.thread(space, MANY_SPINS)?;
    let sleeper = world.thread(space, 0)?;
    measured.call_asleep = rounds(count, || each(TIMES, || world.next(sleeper, 0)))?;
    if apart {
        peers::stay_on(&processors[1..2])?;
        measured.call = rounds(count, || each(TIMES, || world.next(thread, MANY_SPINS)))?;
        measured.fault = faults(&mut world, space, count)?;
    }
    peers::stay_on(&processors)
}

/// A program touches page after page.
fn faults(world: &mut World, space: SpaceId, count: usize) -> Outcome<Option<f64>> {
    const PAGES: u32 = 32 * 128;
    let thread = world.thread(space, MANY_SPINS)?;
    rounds(count, || {
        let area = world.supervisor.area(world.kernel, thread)?;
        let registers =
            Registers { rip: (CODE_PAGE << 12) + 256, rdi: DATA_PAGE << 12, ..Registers::default() };
        area.set_registers(&registers).ok_or("a program has harmed itself")?;
        world.next(thread, MANY_SPINS)?;
        let mut page = 0;
        let took = each(PAGES, || {
            world.supervisor.load_mappings(
                world.kernel,
                &Mapping { stored: true, ..mapping(space, DATA_PAGE + page, 128 + page, false) },
                1,
            )?;
            page += 1;
            world.next(thread, MANY_SPINS)
        })?;
        world.supervisor.unload_mappings(world.kernel, space, DATA_PAGE, PAGES.into())?;
        world.forget()?;
        Ok(took)
    })
}

type Three = [Option<f64>; 3];

fn of_each(values: &[[f64; 3]]) -> Three {
    std::array::from_fn(|index| median(&values.iter().map(|value| value[index]).collect::<Vec<_>>()))
}

fn mappings(count: usize) -> Outcome<Three> {
    const TIMES: u32 = 1024;
    let mut world = World::new(Sizes { mappings: TIMES + 1, ..Sizes::default() })?;
    let space = world.space()?;
    let mut values = Vec::new();
    for _ in 0..count {
        let mut page = 0;
        let mut load = |world: &mut World| {
            world.supervisor.load_mappings(
                world.kernel,
                &mapping(space, DATA_PAGE + page, 128 + page, false),
                1,
            )?;
            page += 1;
            Ok(())
        };
        let fresh = each(TIMES, || load(&mut world))?;
        let mut replacing = || {
            let took = each(TIMES / 2, || load(&mut world))?;
            world.forget()?;
            Ok::<f64, Box<dyn std::error::Error>>(took)
        };
        let replaced = (replacing()? + replacing()?) / 2.0;
        let mut last = DATA_PAGE + 2 * u64::from(TIMES);
        let unloaded = each(TIMES / 2, || {
            last -= 1;
            world.supervisor.unload_mappings(world.kernel, space, last, 1)?;
            Ok(())
        })?;
        world.supervisor.unload_mappings(world.kernel, space, 0, 1 << 30)?;
        world.forget()?;
        world.supervisor.load_mappings(world.kernel, &mapping(space, CODE_PAGE, 0, true), 1)?;
        values.push([fresh, replaced, unloaded]);
    }
    Ok(of_each(&values))
}

/// Loads as many as there is room for, as many again in their places, and unloads these.
fn three<I>(
    world: &mut World,
    times: u32,
    count: usize,
    load: impl Fn(&mut World) -> Outcome<I>,
    unload: impl Fn(&mut World, I) -> Outcome<()>,
) -> Outcome<Three> {
    let mut values = Vec::new();
    for _ in 0..count {
        let mut loaded = Vec::new();
        let mut load_all = |loaded: &mut Vec<I>| {
            each(times, || {
                loaded.push(load(world)?);
                Ok(())
            })
        };
        let fresh = load_all(&mut loaded)?;
        let replacing = load_all(&mut loaded)?;
        let mut left = loaded.split_off(times as usize).into_iter();
        let unloading = each(times, || left.next().map_or(Ok(()), |object| unload(world, object)))?;
        world.forget()?;
        values.push([fresh, replacing, unloading]);
    }
    Ok(of_each(&values))
}

fn threads(count: usize) -> Outcome<Three> {
    const TIMES: u32 = 64;
    let mut world = World::new(Sizes { threads: TIMES, ..Sizes::default() })?;
    let space = world.space()?;
    let unload = |world: &mut World, thread| Ok(world.supervisor.unload_thread(world.kernel, thread)?);
    three(&mut world, TIMES, count, |world| world.thread(space, 0), unload)
}

/// A thread that is the first in its place of the space, for which the host starts one; and the unload of one that computes.
fn other_threads(count: usize) -> Outcome<[Option<f64>; 2]> {
    const TIMES: usize = 32;
    let mut world = World::new(Sizes::default())?;
    world.supervisor.frames().write(Frame(0), 0, programs::COMPUTES);
    let mut values = [Vec::new(), Vec::new()];
    for _ in 0..count {
        let space = world.space()?;
        let mut took = [0.0; 2];
        let mut threads = Vec::new();
        for _ in 0..TIMES {
            let since = Instant::now();
            threads.push(world.thread(space, 0)?);
            took[0] += since.elapsed().as_secs_f64() * 1e6;
        }
        for thread in threads {
            let area = world.supervisor.area(world.kernel, thread)?;
            area.resume();
            std::thread::sleep(Duration::from_micros(200));
            if area.is_stopped() {
                return Err("a program that computes has stopped".into());
            }
            let since = Instant::now();
            world.supervisor.unload_thread(world.kernel, thread)?;
            took[1] += since.elapsed().as_secs_f64() * 1e6;
        }
        world.supervisor.unload_space(world.kernel, space)?;
        world.forget()?;
        for (values, took) in values.iter_mut().zip(took) {
            values.push(took / TIMES as f64);
        }
    }
    Ok(values.map(|values| median(&values)))
}

fn spaces(count: usize) -> Outcome<Three> {
    const TIMES: u32 = 16;
    let mut world = World::new(Sizes { spaces: TIMES, ..Sizes::default() })?;
    let load = |world: &mut World| {
        Ok(world.supervisor.load_space(world.kernel, SpaceLoad { tag: Tag(1), locked: false })?)
    };
    let unload = |world: &mut World, space| Ok(world.supervisor.unload_space(world.kernel, space)?);
    three(&mut world, TIMES, count, load, unload)
}

fn kernels(count: usize) -> Outcome<Three> {
    const TIMES: u32 = 15;
    let mut world = World::new(Sizes { kernels: TIMES + 1, ..Sizes::default() })?;
    let frames = u64::from(world.supervisor.frames().len());
    let load = |world: &mut World| {
        let descriptor = KernelDescriptor {
            groups: Groups::new(frames, Access::None),
            processor_shares: vec![50; 2],
            maximum_priority: USUAL_PRIORITY,
            locks: Locks::default(),
        };
        let load = KernelLoad { tag: Tag(3), descriptor, locked: false, waiting: VecDeque::new() };
        Ok(world.supervisor.load_kernel(world.kernel, load)?)
    };
    let unload = |world: &mut World, kernel| Ok(world.supervisor.unload_kernel(world.kernel, kernel)?);
    three(&mut world, TIMES, count, load, unload)
}

fn row(claim: &str, ours: Option<f64>, unit: &'static str) -> Row {
    Row {
        claim: claim.to_owned(),
        ours,
        unit,
        peer: String::new(),
        theirs: None,
        ratio: None,
        goal: Goal::None,
        note: String::new(),
    }
}

fn limit(claim: &str, ours: Option<f64>, unit: &'static str, most: f64) -> Row {
    Row {
        peer: "what it may be".to_owned(),
        theirs: Some(most),
        ratio: ours.map(|ours| ours / most),
        goal: Goal::AtMost(1.0),
        ..row(claim, ours, unit)
    }
}

/// A limit, with what else takes how long in the same run.
fn beside(claim: &str, ours: Option<f64>, most: f64, peer: &str, theirs: Option<f64>) -> Row {
    let note = theirs.map_or(String::new(), |theirs| format!("{peer}: {theirs:.2} µs"));
    Row { note, ..limit(claim, ours, "µs", most) }
}
