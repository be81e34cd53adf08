//! What a turn takes when more is active than there are places for (Cache Kernel §5.2): each turn, one of the active pages, threads or spaces is used, by
//! chance, and loaded again if it had to go.

use comb_kernel::objects::{Sizes, Tag, Writeback};
use comb_kernel::programs;
use comb_kernel::thread::Stop;
use comb_types::Dice;

use super::*;
use crate::figure::{Curve, Drawing, Figure};

/// How many are active, in percent of the places: the thrashing points, and what comes before.
const LOADS: [u32; 10] = [25, 50, 75, 90, 100, 110, 125, 150, 200, 400];

/// Of each kind, by [`LOADS`]: microseconds a turn.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Thrashing {
    pub(super) mappings: [Option<f64>; LOADS.len()],
    pub(super) threads: [Option<f64>; LOADS.len()],
    pub(super) spaces: [Option<f64>; LOADS.len()],
}

fn active(places: u32, load: u32) -> u32 {
    places * load / 100
}

/// How long a turn takes, of so many.
fn turns(count: u32, mut turn: impl FnMut() -> Outcome<()>) -> Outcome<Option<f64>> {
    // All that is active has had a turn before anything is measured.
    for _ in 0..count / 2 {
        turn()?;
    }
    Ok(Some(each(count, turn)?))
}

/// Pages of one program that stores to one, makes a call, and is told the next.
fn of_mappings(active: u32, places: u32, turns_of_each: u32) -> Outcome<Option<f64>> {
    // One is its code's.
    let mut world = World::new(Sizes { mappings: places + 1, ..Sizes::default() })?;
    world.supervisor.frames().write(Frame(1), 0, programs::STORES);
    let space = world.supervisor.load_space(world.kernel, SpaceLoad { tag: Tag(1), locked: false })?;
    let code = Mapping { locked: true, ..mapping(space, CODE_PAGE, 1, true) };
    world.supervisor.load_mappings(world.kernel, &code, 1)?;
    let thread = world.thread(space, 0)?;
    let mut dice = Dice::new(1);
    turns(active * turns_of_each, || {
        let page = DATA_PAGE + u64::from(dice.below(active));
        let area = world.supervisor.area(world.kernel, thread)?;
        let registers = Registers { rip: CODE_PAGE << 12, rdi: page << 12, ..Registers::default() };
        area.set_registers(&registers).ok_or("a program has harmed itself")?;
        world.next(thread, 0)?;
        while let Some(Stop::Fault { address, .. }) = world.supervisor.area(world.kernel, thread)?.stop() {
            let page = address >> 12;
            // What is not a page of its data is its code, which went with the others.
            let missing = match page.checked_sub(DATA_PAGE) {
                Some(number) => mapping(space, page, 128 + number, false),
                None => code,
            };
            world.supervisor.load_mappings(world.kernel, &missing, 1)?;
            world.next(thread, 0)?;
        }
        world.forget()
    })
}

/// Threads that make a call in each of their turns, all in one space or each in its own.
fn of_threads(active: u32, sizes: Sizes, apart: bool, turns_of_each: u32) -> Outcome<Option<f64>> {
    let mut world = World::new(sizes)?;
    let count = active as usize;
    let mut spaces: Vec<Option<SpaceId>> = vec![None; if apart { count } else { 1 }];
    let mut threads: Vec<Option<ThreadId>> = vec![None; count];
    let mut states: Vec<State> = vec![State::default(); count];
    for state in &mut states {
        state.registers.rip = CODE_PAGE << 12;
    }
    let mut dice = Dice::new(1);
    turns(active * turns_of_each, || {
        let chosen = dice.index(count);
        let home = if apart { chosen } else { 0 };
        let space = match spaces[home] {
            Some(space) => space,
            None => {
                let tag = Tag(home as u64);
                let space = world.supervisor.load_space(world.kernel, SpaceLoad { tag, locked: false })?;
                world.supervisor.load_mappings(world.kernel, &mapping(space, CODE_PAGE, 0, true), 1)?;
                *spaces[home].insert(space)
            }
        };
        let thread = match threads[chosen] {
            Some(thread) => thread,
            None => {
                let load =
                    ThreadLoad { tag: Tag(chosen as u64), space, priority: USUAL_PRIORITY, locked: false };
                let thread = world.supervisor.load_thread(world.kernel, load, &states[chosen], 0)?;
                *threads[chosen].insert(thread)
            }
        };
        world.next(thread, 0)?;
        while let Some(writeback) = world.supervisor.take_writeback(world.kernel)? {
            match writeback {
                Writeback::Thread { tag, state } => {
                    let gone = usize::try_from(tag.0)?;
                    (threads[gone], states[gone]) = (None, *state);
                }
                Writeback::Space { tag } => spaces[usize::try_from(tag.0)?] = None,
                Writeback::Mapping { .. } | Writeback::Kernel { .. } => {}
            }
        }
        Ok(())
    })
}

pub(super) fn measure(count: u32) -> Outcome<Thrashing> {
    const MAPPINGS: u32 = 256;
    const THREADS: u32 = 32;
    const SPACES: u32 = 8;
    let mut thrashing = Thrashing::default();
    // All on one processor: who wakes somebody on another pays for that, by chance.
    let processors = peers::processors()?;
    peers::stay_on(&processors[..1])?;
    for (index, load) in LOADS.into_iter().enumerate() {
        thrashing.mappings[index] = of_mappings(active(MAPPINGS, load), MAPPINGS, count)?;
        let sizes = Sizes { threads: THREADS, ..Sizes::default() };
        thrashing.threads[index] = of_threads(active(THREADS, load), sizes, false, 8 * count)?;
        let sizes = Sizes { spaces: SPACES, ..Sizes::default() };
        thrashing.spaces[index] = of_threads(active(SPACES, load), sizes, true, 8 * count)?;
    }
    peers::stay_on(&processors)?;
    Ok(thrashing)
}

impl Thrashing {
    /// How many times as long a turn takes with twice as much active as there are places, by one with half as much.
    pub(super) fn factors(&self) -> [Option<f64>; 3] {
        let at = |load: u32| LOADS.iter().position(|known| *known == load).expect("it is one of them");
        [self.mappings, self.threads, self.spaces].map(|times| Some(times[at(200)]? / times[at(50)]?))
    }

    pub(super) fn drawing(&self) -> Drawing {
        let curve = |label, times: [Option<f64>; LOADS.len()]| {
            let points = LOADS
                .into_iter()
                .zip(times)
                .filter_map(|(load, time)| Some((f64::from(load) / 100.0, time?)))
                .collect();
            Curve { label, points }
        };
        Figure {
            name: "cache-kernel-thrashing",
            title: "A turn, when more is active than there are places for (Cache Kernel, §5.2)",
            x: "active objects, by places in their table",
            y: "µs a turn",
        }
        .of(vec![
            curve("pages, 256 places", self.mappings),
            curve("threads of a space, 32 places", self.threads),
            curve("spaces with a thread, 8 places", self.spaces),
        ])
    }
}
