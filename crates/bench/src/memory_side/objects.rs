//! Objects smaller than a page: who guards each alone, and who guards pages.

use std::hint::black_box;
use std::time::{Duration, Instant};

use comb_region::{Guard, Placement, Sharing, Task, Terms};

use super::{Outcome, best_of, load, say, store};

/// Objects of 128 bytes that both change, by turns of chance.
pub(super) fn objects(task: &Task) -> Outcome {
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
