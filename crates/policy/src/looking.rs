//! What is seen: a picture of all cells, of what they show, and of the host.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use comb_cell::hints::Cores;
use comb_cell::shown::{Condition, Face, Others};
use comb_memory::careful::CarefulError;
use comb_types::CellId;
use rustix::thread::{CpuSet, sched_getaffinity};

use crate::decide::{CellState, Picture, TaskState};

/// Load is of so long a time at least: a cell that begins, or has done one thing, is not busy.
const LOAD_OVER: Duration = Duration::from_secs(2);

/// Looks at all cells, again and again.
#[derive(Debug, Default)]
pub struct Lookout {
    /// What each cell had used, and when.
    used: BTreeMap<CellId, Sample>,
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Instant,
    used_ns: u64,
    load_permille: u64,
}

/// A cell that this depends on is no more.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0} is gone")]
pub struct Lost(pub CellId);

impl Lookout {
    /// What is to be seen now. A cell that shows what cannot be is not in the picture.
    pub fn look(&mut self, others: &Others, slice: u64) -> Result<Picture, Lost> {
        let mut picture = Picture { cores: cores(), slice, ..Picture::default() };
        (picture.host_bytes, picture.host_free_bytes) = host_memory();
        let mut tasks: BTreeMap<u32, TaskState> = BTreeMap::new();
        for cell in others.seen() {
            let Condition { face, load, tasks: shown } = match others.load(cell) {
                Some(Ok(seen)) => seen,
                Some(Err(CarefulError::BusError { .. } | CarefulError::CutOff { .. })) => {
                    return Err(Lost(cell));
                }
                _ => continue,
            };
            let Face { frame_bytes, most_bytes, .. } = face;
            picture.cells.push(CellState {
                cell: cell.0,
                load_permille: self.load(cell, face.used_ns),
                processes: load.processes,
                frame_bytes,
                idle_bytes: load.idle_bytes,
                reserved_bytes: load.reserved_bytes,
                task_bytes: load.task_bytes,
                most_bytes,
            });
            for row in shown {
                let (components, is_gang) = (row.components, row.is_gang == 1);
                let state = TaskState { task: row.task, components, cores: row.cores, is_gang };
                tasks.entry(row.task).or_insert(state);
            }
        }
        picture.tasks = tasks.into_values().collect();
        Ok(picture)
    }

    fn load(&mut self, cell: CellId, used_ns: u64) -> u64 {
        let at = Instant::now();
        let sample = self.used.entry(cell).or_insert(Sample { at, used_ns, load_permille: 0 });
        let span = at.duration_since(sample.at);
        if span >= LOAD_OVER {
            let used = u128::from(used_ns.saturating_sub(sample.used_ns)) * 1000;
            let load_permille = u64::try_from(used / span.as_nanos()).unwrap_or(u64::MAX);
            *sample = Sample { at, used_ns, load_permille };
        }
        sample.load_permille
    }
}

fn cores() -> Cores {
    let set = sched_getaffinity(None).unwrap_or_default();
    (0..Cores::MOST).filter(|&core| core < CpuSet::MAX_CPU && set.is_set(core)).collect()
}

/// All of it, and what is to be had.
pub(crate) fn host_memory() -> (u64, u64) {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
    };
    field("MemTotal:").zip(field("MemAvailable:")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use comb_cell::shown::{Load, Shown, TaskShown, reopened_to_read};

    use super::*;

    fn seen(shown: &Shown, others: &Others, cell: u32) {
        let file = reopened_to_read(&shown.file().try_clone_to_owned().unwrap()).unwrap();
        others.see(CellId(cell), 1, std::process::id(), &file).unwrap();
    }

    #[test]
    fn the_picture_is_what_cells_show() {
        let (one, two, others) =
            (Shown::create(CellId(1), 1).unwrap(), Shown::create(CellId(2), 1).unwrap(), Others::default());
        seen(&one, &others, 1);
        seen(&two, &others, 2);
        one.update(|face| (face.frame_bytes, face.most_bytes) = (4096, 8192));
        one.set_load(Load { idle_bytes: 77, processes: 3, ..Load::default() });
        let task = TaskShown { task: 9, components: 3, cores: 1, is_gang: 1 };
        one.set_tasks(&[task]);
        two.set_tasks(&[task, TaskShown { task: 4, ..task }]);
        let picture = Lookout::default().look(&others, 5).unwrap();
        assert_eq!((picture.cells.len(), picture.tasks.len(), picture.slice), (2, 2, 5));
        let first = &picture.cells[0];
        assert_eq!(
            (first.frame_bytes, first.most_bytes, first.idle_bytes, first.processes),
            (4096, 8192, 77, 3)
        );
        assert!(!picture.cores.is_empty() && picture.host_bytes > picture.host_free_bytes);
        two.cut_off();
        assert_eq!(Lookout::default().look(&others, 5), Err(Lost(CellId(2))));
    }
}
