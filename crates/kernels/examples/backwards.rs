//! A kernel in a hundred lines, for a program that goes through a file from its end to its beginning: docs/kernel-tutorial.md.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use comb_kernel::objects::Sizes;
use comb_kernel::shares::USUAL_PRIORITY;
use comb_kernel::thread::Registers;
use comb_kernels::memory::{
    Anonymous, Backing, Clock, Counts, File, Paged, Pages, Replacement, Resources, Rights, Step,
};
use comb_kernels::processing::{Answer, Driver, End, Handler, Processors, RoundRobin, Stopped};

/// Adds the first byte of each page from `rdi` down to `rsi` to `rbx`, and makes call 60.
const PROGRAM: &[u8] = &[
    0x0f, 0xb6, 0x0f, // movzx ecx, byte [rdi]
    0x48, 0x01, 0xcb, // add rbx, rcx
    0x48, 0x81, 0xef, 0, 0x10, 0, 0, // sub rdi, 4096
    0x48, 0x39, 0xf7, // cmp rdi, rsi
    0x73, 0xee, // jae to the beginning
    0xb8, 60, 0, 0, 0, // mov eax, 60
    0x0f, 0x05, // syscall
];

const CODE_PAGE: u64 = 0x400;
const FILE_PAGE: u64 = 0x10_0000;
/// Pages that are read together.
const RUN: u64 = 32;

/// What its kernel knows: pages are needed from the last to the first, each once.
#[derive(Debug)]
pub(crate) struct Backwards;

impl Replacement for Backwards {
    fn along(&mut self, page: u64, _: &Pages) -> Range<u64> {
        (page + 1).saturating_sub(RUN)..page + 1
    }

    fn ahead(&mut self, page: u64, _: &Pages) -> Vec<Range<u64>> {
        let end = (page + 1).saturating_sub(RUN);
        std::iter::once(end.saturating_sub(RUN)..end).collect()
    }

    /// What is behind the pages that come was used, and is not needed any more.
    fn make_room(&mut self, coming: &Range<u64>, _: bool, pages: &Pages) -> Step {
        let used = (coming.end + RUN..pages.count()).rev().find(|page| pages.is_here(*page));
        used.map_or(Step::Nothing, |page| Step::Evict((page + 1).saturating_sub(RUN)..page + 1))
    }
}

/// What its one call means.
#[derive(Default)]
struct Sums {
    sum: u64,
    counts: Counts,
}

impl Handler for Sums {
    fn call(&mut self, stopped: &mut Stopped<'_>) -> Answer {
        self.sum = stopped.registers.rbx;
        self.counts = stopped.segments.counts();
        Answer::Ends(End::Exit(0))
    }
}

/// Sums a file up, with this policy and a page group of memory: the sum, and what that took.
pub(crate) fn sum(
    path: &Path,
    policy: Box<dyn Replacement>,
) -> Result<(u64, Counts), Box<dyn std::error::Error>> {
    let resources = Resources::alone(Sizes::default(), 1)?;
    let mut driver = Driver::new(resources, Box::new(RoundRobin::default()), Processors::Own);
    let space = driver.add_space();
    let (segments, _) = driver.space(space).expect("it was just added");

    let code = Anonymous::new(1, PROGRAM.to_vec(), &std::env::temp_dir())?;
    let code = Paged::new(Arc::new(code), Box::new(Clock::default()), 1);
    segments.add(CODE_PAGE, Rights { write: false, execute: true }, Box::new(code))?;

    let file = File::open(path, false).map_err(|error| format!("{}: {error}", path.display()))?;
    let pages = file.pages();
    let file = Paged::new(Arc::new(file), policy, 4 * 32 - 1);
    segments.add(FILE_PAGE, Rights { write: false, execute: false }, Box::new(file))?;

    let registers = Registers {
        rip: CODE_PAGE << 12,
        rdi: (FILE_PAGE + pages - 1) << 12,
        rsi: FILE_PAGE << 12,
        ..Registers::default()
    };
    driver.add_thread(space, registers, USUAL_PRIORITY);
    let mut sums = Sums::default();
    match driver.run(&mut sums)?.remove(&space) {
        Some(End::Exit(0)) => Ok((sums.sum, sums.counts)),
        end => Err(format!("{end:?}").into()),
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("usage: backwards FILE")?;
    let (with_clock, with_backwards) =
        (sum(path.as_ref(), Box::new(Clock::default()))?, sum(path.as_ref(), Box::new(Backwards))?);
    println!("a clock: {with_clock:?}\nbackwards: {with_backwards:?}");
    Ok(())
}
