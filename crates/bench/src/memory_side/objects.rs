//! Objects smaller than a page: who guards each alone, and who guards pages.

use std::hint::black_box;
use std::time::{Duration, Instant};

use comb_region::{Combine, Guard, Placement, Sharing, Task, Terms};

use super::{Outcome, best_of, load, say, store};

/// How many changes of a thousand are of others' objects.
pub(crate) const OF_OTHERS: [u64; 4] = [0, 1, 10, 500];
pub(crate) const MANY: usize = 4096;
pub(crate) const FEW: usize = 64;

/// Objects of 128 bytes that all change, by turns of chance. Neighbours in a page are of different components.
pub(super) fn objects(task: &Task) -> Outcome {
    for guard in [Guard::Page, Guard::Mmu] {
        for others in OF_OTHERS {
            let mut all = Objects::new(task, guard, MANY, others)?;
            say(
                task,
                0,
                &format!("changes of {MANY} objects in steps, {others}, {guard:?}"),
                "1/s",
                all.in_steps(),
            );
            let mut all = Objects::new(task, guard, FEW, others)?;
            say(task, 0, &format!("changes of {FEW} objects, {others}, {guard:?}"), "1/s", all.at_liberty());
        }
    }
    hits(task)
}

struct Objects<'a> {
    task: &'a Task,
    places: Vec<*mut u64>,
    others: u64,
    chance: u64,
}

impl<'a> Objects<'a> {
    fn new(
        task: &'a Task,
        guard: Guard,
        objects: usize,
        others: u64,
    ) -> Result<Self, Box<dyn std::error::Error>> {
        let terms = Terms {
            guard,
            block_bytes: if guard == Guard::Mmu { 128 } else { 4096 },
            placement: Placement::RoundRobin,
            sharing: Sharing::Stache,
            ..Terms::default()
        };
        let memory = task.allocate_together((objects * 128) as u64, &terms)?;
        let object = |index: usize| {
            let place = match guard {
                Guard::Mmu => task.object(memory, index).expect("so many"),
                _ => memory.wrapping_add(index * 128),
            };
            place.cast::<u64>()
        };
        let places = (0..objects).map(object).collect();
        Ok(Self { task, places, others, chance: u64::from(task.rank()) + 1 })
    }

    fn change_one(&mut self) {
        let (rank, count) = (self.task.rank() as usize, self.task.count() as usize);
        self.chance =
            self.chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // Neighbours in a page are of different components.
        let is_others = (self.chance >> 12 & 0xf_ffff) * 1000 < self.others << 20;
        let owner = if is_others { rank + 1 } else { rank } % count;
        let place = self.places[(self.chance >> 33) as usize % (self.places.len() / count) * count + owner];
        store(place, 0, load(place, 0) + 1);
    }

    /// Changes a second, by all together, where they wait for each other whenever each has made as many as it has objects: as programs
    /// do that compute in steps.
    fn in_steps(&mut self) -> f64 {
        const LONG: Duration = Duration::from_millis(300);
        let changes = self.places.len() / self.task.count() as usize;
        self.task.barrier();
        let started = Instant::now();
        let mut steps = 0_u32;
        loop {
            (0..changes).for_each(|_| self.change_one());
            steps += 1;
            let is_over = u64::from(started.elapsed() >= LONG);
            if self.task.reduce(Combine::Greatest, &[is_over])[0] == 1 {
                break;
            }
        }
        f64::from(steps) * self.places.len() as f64 / started.elapsed().as_secs_f64()
    }

    /// The same where nobody waits for anybody: who has most of the pages makes most of the changes, and keeps them.
    fn at_liberty(&mut self) -> f64 {
        const LONG: Duration = Duration::from_millis(300);
        self.task.barrier();
        let started = Instant::now();
        let mut changes = 0_u64;
        while started.elapsed() < LONG {
            self.change_one();
            changes += 1;
        }
        let changes = self.task.reduce(Combine::Sum, &[changes])[0];
        changes as f64 / started.elapsed().as_secs_f64()
    }
}

/// What a page of addresses for each object costs who finds it there.
fn hits(task: &Task) -> Outcome {
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
