//! What shared memory costs beside its content.

use std::hint::black_box;

use comb_region::{Placement, Task, Terms};

use super::{Outcome, PAGE, WORDS, load, say, store};

/// A terabyte, of which a gigabyte is touched.
pub(super) fn metadata(task: &Task) -> Outcome {
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
