//! How many pages of a cell others can store to, looked at every 20 ms, under many small processes and under one program on all cells (Hive, section 4.2).

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use comb_region::Task;
use comb_region::named::{Ask, Attaching};

use super::comb::Comb;
use super::measured::Measured;
use super::role;
use crate::cell_region::STORED;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const CELLS: u32 = 4;
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);
const LOOKED_AT: Duration = Duration::from_secs(5);
/// Where the processes of the batch have what they share, as compilers have their intermediate files.
const TEMPORARY: &str = "temporary";
const AT_ONCE: usize = 4;
const PAGES_EACH: usize = 12;
const COMPUTING: Duration = Duration::from_millis(50);

/// By samples `writable, batch` and `writable, spanning`: pages of a cell, of each cell at each look.
pub(crate) fn measure(measured: &mut Measured) -> Outcome<()> {
    let comb = Comb::up(CELLS)?;
    comb.create_region(TEMPORARY, "1M", 1)?;
    comb.create_region(STORED, "32M", 1)?;
    let mut running: Vec<Child> = Vec::new();
    let (mut next, began) = (0_u32, Instant::now());
    while began.elapsed() < LOOKED_AT {
        running.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
        while running.len() < AT_ONCE {
            // Cell 1 has the pages; the others take turns.
            let cell = (2 + next % (CELLS - 1)).to_string();
            let part = next as usize % AT_ONCE;
            let mut task =
                role::task(&format!("{} {TEMPORARY} {part}", role::WRITES), &["-n", "1", "--cells", &cell])?;
            running.push(task.env("COMB_RUNTIME_DIR", comb.path()).stdout(Stdio::null()).spawn()?);
            next += 1;
        }
        look(&comb, "writable, batch", measured);
        std::thread::sleep(BETWEEN_LOOKS);
    }
    for mut child in running {
        child.wait()?;
    }
    let began = Instant::now();
    while began.elapsed() < LOOKED_AT {
        let mut task = role::task(&format!("{} region", role::GRID), &["-n", "4", "--cells", "all"])?;
        let mut task = task.env("COMB_RUNTIME_DIR", comb.path()).stdout(Stdio::null()).spawn()?;
        while task.try_wait()?.is_none() {
            look(&comb, "writable, spanning", measured);
            std::thread::sleep(BETWEEN_LOOKS);
        }
    }
    Ok(())
}

fn look(comb: &Comb, name: &str, measured: &mut Measured) {
    for cell in 1..=CELLS {
        // A home that is busy is looked at the next time.
        let regions = Ask::at(&comb.path(), cell).and_then(|ask| ask.report());
        if let Ok(regions) = regions {
            measured.add(name, regions.iter().map(|region| region.granted).sum::<u64>() as f64);
        }
    }
}

/// One process of the batch.
pub(super) fn write(region: &str, part: usize) -> Outcome<()> {
    const WORDS: usize = 4096 / 8;
    let task = Task::join()?;
    let region = task.attach(region, &Attaching::default())?;
    let words =
        region.array::<u64>((part * PAGES_EACH * 4096) as u64, PAGES_EACH * WORDS).ok_or("too small")?;
    let began = Instant::now();
    for page in 0.. {
        words.set(page % PAGES_EACH * WORDS, 1);
        if began.elapsed() > COMPUTING {
            return Ok(());
        }
    }
    Ok(())
}
