//! A message from a thread in one space to a thread in another, and the answer.

use std::time::{Duration, Instant};

use comb_kernel::frames::Frame;
use comb_kernel::objects::{Mapping, Sizes, SpaceId, Tag, ThreadId, ThreadLoad};
use comb_kernel::programs;
use comb_kernel::shares::USUAL_PRIORITY;
use comb_kernel::space::TRANSLATIONS_ADDRESS;
use comb_kernel::supervisor::State;
use comb_kernel::thread::{Area, Registers};

use super::{CODE_PAGE, DATA_PAGE, Measured, Outcome, World, mapping, peers, rounds};

const STACK_PAGE: u64 = 0x500;
const TIMES: u64 = 100_000;

/// The page that a space writes, and the one where it hears of what the other has written.
const OWN: u64 = DATA_PAGE;
const OTHERS: u64 = DATA_PAGE + 0x100;

fn load(world: &mut World, space: SpaceId, begins_by_waiting: u64) -> Outcome<ThreadId> {
    world.supervisor.load_mappings(
        world.kernel,
        &mapping(space, STACK_PAGE, 20 + begins_by_waiting, false),
        1,
    )?;
    let load = ThreadLoad { tag: Tag(begins_by_waiting), space, priority: USUAL_PRIORITY, locked: false };
    Ok(world.supervisor.load_thread(world.kernel, load, &state(begins_by_waiting), 0)?)
}

fn state(begins_by_waiting: u64) -> State {
    let registers = Registers {
        rip: (CODE_PAGE << 12) + 1024,
        rsp: (STACK_PAGE + 1) << 12,
        rdi: Area::ring_address(0),
        rsi: OWN << 12,
        rdx: TRANSLATIONS_ADDRESS,
        rbp: begins_by_waiting,
        r9: TIMES,
        ..Registers::default()
    };
    State { registers, ..State::default() }
}

/// Half of a round trip, in microseconds; and how many of the messages were signalled by the supervisor.
fn half(world: &mut World, spaces: [SpaceId; 2], threads: [ThreadId; 2]) -> Outcome<(f64, u32)> {
    for (begins_by_waiting, thread) in (0..).zip(threads) {
        let area = world.supervisor.area(world.kernel, thread)?;
        area.set_registers(&state(begins_by_waiting).registers).ok_or("a program has harmed itself")?;
    }
    let (mut asked, mut ended) = (0, [false; 2]);
    let since = Instant::now();
    for thread in threads {
        world.supervisor.area(world.kernel, thread)?.resume();
    }
    while ended != [true; 2] {
        world.supervisor.bell(world.kernel)?.listen(0, Some(Duration::from_millis(100)), |_| {});
        for (index, thread) in threads.into_iter().enumerate() {
            let area = world.supervisor.area(world.kernel, thread)?;
            let called = area.is_stopped().then(|| area.registers()).flatten().map(|registers| registers.rax);
            match called {
                Some(programs::SIGNAL) => {
                    asked += 1;
                    world.supervisor.signal(world.kernel, spaces[index], OWN << 12)?;
                    world.supervisor.area(world.kernel, thread)?.resume();
                }
                Some(programs::END) => ended[index] = true,
                _ => {}
            }
        }
        if since.elapsed() > Duration::from_secs(60) {
            return Err("messages do not arrive".into());
        }
    }
    // A stray answer of the last time would be taken for one of the next.
    Ok((since.elapsed().as_secs_f64() * 1e6 / (2.0 * f64::from(u32::try_from(TIMES)?)), asked))
}

/// Needs two processors.
pub(super) fn measure(count: usize, measured: &mut Measured) -> Outcome<()> {
    let processors = peers::processors()?;
    if processors.len() < 2 {
        return Ok(());
    }
    let mut asked = 0;
    let value = rounds(count, || {
        let mut world = World::new(Sizes::default())?;
        world.supervisor.frames().write(Frame(0), 1024, programs::messages());
        let spaces = [world.space()?, world.space()?];
        let threads = [load(&mut world, spaces[0], 0)?, load(&mut world, spaces[1], 1)?];
        for (thread, &processor) in threads.into_iter().zip(&processors) {
            world.supervisor.keep_on(world.kernel, thread, u32::try_from(processor).ok())?;
        }
        for (way, frame) in [(0, 128), (1, 129)] {
            let signal = Some(threads[1 - way]);
            let hears = Mapping {
                writable: false,
                message: true,
                signal,
                ..mapping(spaces[1 - way], OTHERS, frame, false)
            };
            world.supervisor.load_mappings(world.kernel, &hears, 1)?;
            let says = Mapping { message: true, ..mapping(spaces[way], OWN, frame, false) };
            world.supervisor.load_mappings(world.kernel, &says, 1)?;
        }
        let (took, by_supervisor) = half(&mut world, spaces, threads)?;
        asked = by_supervisor;
        Ok(took)
    })?;
    (measured.message, measured.asked) = (value, asked);
    measured.bare_line = rounds(count, || Ok(peers::bare_line(&processors)?.unwrap_or(f64::NAN)))?;
    Ok(())
}
