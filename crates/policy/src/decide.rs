//! What is hinted, of a picture of all cells: no clock, no system.

use std::collections::BTreeMap;

use comb_cell::hints::{CellHint, Cores, Hints, MOST_PREFERRED, MOST_TASKS, TaskHint};

/// A cell, as it shows itself.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CellState {
    /// Its number.
    pub cell: u32,
    /// Processor time that it uses, in thousandths of a core.
    pub load_permille: u64,
    /// Processes of tasks.
    pub processes: u64,
    /// Bytes of page frames.
    pub frame_bytes: u64,
    /// Bytes of them that nobody may store to.
    pub idle_bytes: u64,
    /// Bytes of page frames that are promised to regions, or loaned.
    pub reserved_bytes: u64,
    /// Bytes that processes of tasks have for themselves.
    pub task_bytes: u64,
    /// Bytes that it should have at most; 0: no limit.
    pub most_bytes: u64,
}

/// A task, of what cells show of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TaskState {
    /// Its number.
    pub task: u32,
    /// Its components in all cells.
    pub components: u32,
    /// Cores that it wants for itself; 0: none.
    pub cores: u32,
    /// Whether its components want to run at the same time.
    pub is_gang: bool,
}

/// All that is seen at one moment.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Picture {
    /// The cells, in any order.
    pub cells: Vec<CellState>,
    /// The tasks, in any order.
    pub tasks: Vec<TaskState>,
    /// The host's cores.
    pub cores: Cores,
    /// Memory of the host, and how much of it is to be had; 0: not known.
    pub host_bytes: u64,
    /// See above.
    pub host_free_bytes: u64,
    /// Which slice of time it is: in each, other tasks have their turn.
    pub slice: u64,
}

impl CellState {
    fn bytes(&self) -> u64 {
        self.frame_bytes.saturating_add(self.task_bytes)
    }

    /// Seven eighths of what it should have: it is to give back before it has to.
    fn is_pressed(&self) -> bool {
        self.most_bytes > 0 && self.bytes() > self.most_bytes / 8 * 7
    }

    /// What it is to give back, down to three quarters.
    fn excess(&self) -> u64 {
        if self.is_pressed() { self.bytes() - self.most_bytes / 4 * 3 } else { 0 }
    }

    /// It has little left to promise, or has promised more than it can hold.
    fn is_short(&self) -> bool {
        self.is_pressed() || self.most_bytes > 0 && self.reserved_bytes > self.most_bytes / 8 * 7
    }

    /// How much of what it should have it has or has promised, in sixteenths: what is about the same counts as the same.
    fn fullness(&self) -> u64 {
        let sixteenths =
            u128::from(self.bytes().max(self.reserved_bytes)) * 16 / u128::from(self.most_bytes.max(1));
        if self.most_bytes == 0 { 0 } else { u64::try_from(sixteenths).unwrap_or(u64::MAX) }
    }
}

/// What is hinted.
pub fn decide(picture: &Picture) -> Hints {
    let mut tasks: Vec<&TaskState> = picture.tasks.iter().filter(|task| task.task != 0).collect();
    tasks.sort_unstable_by_key(|task| task.task);
    tasks.dedup_by_key(|task| task.task);
    tasks.truncate(MOST_TASKS);
    let mut hints: BTreeMap<u32, TaskHint> =
        tasks.iter().map(|task| (task.task, TaskHint::default())).collect();
    share_space(&tasks, &picture.cores, &mut hints);
    take_turns(&tasks, picture, &mut hints);
    swap(&tasks, picture, &mut hints);
    // What is not said of a task is that it runs as it likes.
    hints.retain(|_, hint| *hint != TaskHint::default());
    Hints { cells: allocate_and_reclaim(picture), tasks: hints }
}

/// Whether the host has less than a sixteenth left.
fn is_host_pressed(picture: &Picture) -> bool {
    picture.host_bytes > 0 && picture.host_free_bytes < picture.host_bytes / 16
}

/// Page allocator and clock hand.
fn allocate_and_reclaim(picture: &Picture) -> BTreeMap<u32, CellHint> {
    let mut cells: Vec<&CellState> = picture.cells.iter().filter(|cell| cell.cell != 0).collect();
    // Load in halves of a core: who was looked at a moment later is not busier for that.
    let worth = |cell: &CellState| (cell.is_short(), cell.fullness(), cell.load_permille / 500);
    cells.sort_unstable_by_key(|cell| (worth(cell), cell.processes, cell.cell));
    // Where one is as good as another, whoever is to choose knows better.
    let is_all_one = cells.windows(2).all(|pair| worth(pair[0]) == worth(pair[1]));
    let best: Vec<u32> = cells.iter().map(|cell| cell.cell).collect();
    let will_do = |cell: &&&CellState| !cell.is_short();
    let mut acceptable: Vec<u32> = cells.iter().filter(will_do).map(|cell| cell.cell).collect();
    if acceptable.is_empty() {
        acceptable.clone_from(&best);
    }
    let hint = |own: Option<&CellState>| {
        // Whoever allocates at home depends on nobody else. (Hive §5.6)
        let at_home = own.map(|own| own.cell).filter(|cell| acceptable.contains(cell));
        let others = best.iter().copied().filter(|&cell| Some(cell) != at_home);
        let most = if own.is_none() && is_all_one { 0 } else { MOST_PREFERRED };
        let prefer = at_home.into_iter().chain(others).take(most).collect();
        let give_back_bytes = own.map_or(0, |own| {
            let host = if is_host_pressed(picture) { own.idle_bytes / 4 } else { 0 };
            own.excess().max(host).min(own.idle_bytes)
        });
        CellHint { prefer, acceptable: acceptable.iter().copied().collect(), give_back_bytes }
    };
    let none = (0, hint(None));
    cells.iter().map(|cell| (cell.cell, hint(Some(cell)))).chain([none]).collect()
}

/// Space sharing: who wants cores for itself gets them, from the highest on, the first first; a quarter of all stays for the others, who keep away from them.
fn share_space(tasks: &[&TaskState], all: &Cores, hints: &mut BTreeMap<u32, TaskHint>) {
    let most = all.len() - all.len().div_ceil(4);
    let mut free: Vec<usize> = all.iter().collect();
    let mut given = 0;
    for task in tasks.iter().filter(|task| task.cores > 0) {
        let wants = task.cores as usize;
        if wants > most - given {
            continue;
        }
        given += wants;
        let cores: Cores = free.split_off(free.len() - wants).into_iter().collect();
        hints.entry(task.task).or_default().cores = cores;
    }
    if given == 0 {
        return;
    }
    let rest: Cores = free.into_iter().collect();
    for task in tasks {
        let hint = hints.entry(task.task).or_default();
        if hint.cores.is_empty() {
            hint.cores = rest;
        }
    }
}

/// Gang scheduling: as many gangs as there are cores for are a row, and rows take turns. Who has cores for itself needs no turn.
fn take_turns(tasks: &[&TaskState], picture: &Picture, hints: &mut BTreeMap<u32, TaskHint>) {
    let has_own =
        |task: &TaskState| task.cores > 0 && hints.get(&task.task).is_some_and(|hint| !hint.cores.is_empty());
    let gangs: Vec<&&TaskState> = tasks.iter().filter(|task| task.is_gang && !has_own(task)).collect();
    let own: usize = tasks.iter().filter(|task| has_own(task)).map(|task| task.cores as usize).sum();
    let cores = picture.cores.len().saturating_sub(own).max(1);
    let mut rows: Vec<(usize, Vec<u32>)> = Vec::new();
    for gang in gangs {
        let wants = gang.components as usize;
        match rows.iter_mut().find(|(used, _)| used + wants <= cores) {
            Some((used, row)) => {
                *used += wants;
                row.push(gang.task);
            }
            None => rows.push((wants, vec![gang.task])),
        }
    }
    let Some(turn) = picture.slice.checked_rem(rows.len() as u64) else { return };
    for (_, row) in (0..).zip(&rows).filter(|(at, _)| *at != turn).map(|(_, row)| row) {
        for task in row {
            hints.entry(*task).or_default().waits = true;
        }
    }
}

/// The swapper: while memory is short, who waits does so without it.
fn swap(tasks: &[&TaskState], picture: &Picture, hints: &mut BTreeMap<u32, TaskHint>) {
    let is_short = is_host_pressed(picture) || picture.cells.iter().any(CellState::is_pressed);
    for task in tasks.iter().filter(|_| is_short) {
        if let Some(hint) = hints.get_mut(&task.task).filter(|hint| hint.waits) {
            hint.swap = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn cell(cell: u32, load_permille: u64, frame_bytes: u64) -> CellState {
        CellState {
            cell,
            load_permille,
            frame_bytes,
            idle_bytes: frame_bytes,
            most_bytes: 1600,
            ..CellState::default()
        }
    }

    fn with_cells(cells: Vec<CellState>) -> Picture {
        Picture { cells, ..Picture::default() }
    }

    #[test]
    fn cells_with_memory_come_before_those_with_little_to_do() {
        let cases: [(Vec<CellState>, &[u32]); 5] = [
            (vec![cell(1, 0, 0), cell(2, 0, 0)], &[]),
            (vec![cell(1, 900, 0), cell(2, 0, 0)], &[2, 1]),
            (vec![cell(1, 100, 0), cell(2, 0, 0)], &[]),
            (vec![cell(1, 0, 800), cell(2, 900, 0)], &[2, 1]),
            (vec![cell(1, 0, 1500), cell(2, 4000, 1300)], &[2, 1]),
        ];
        for (cells, expected) in cases {
            assert_eq!(decide(&with_cells(cells.clone())).cells[&0].prefer, expected, "{cells:?}");
        }
    }

    #[test]
    fn who_allocates_stays_at_home_unless_memory_is_short_there() {
        let hints = decide(&with_cells(vec![cell(1, 0, 1500), cell(2, 0, 100), cell(3, 900, 100)]));
        assert_eq!(hints.cells[&1].prefer, [2, 3, 1]);
        assert_eq!(hints.cells[&3].prefer, [3, 2, 1]);
        assert_eq!(hints.cells[&0].acceptable, [2, 3].into());
        // Where all are short of it, all will do.
        let hints = decide(&with_cells(vec![cell(1, 0, 1500), cell(2, 0, 1500)]));
        assert_eq!(hints.cells[&0].acceptable, [1, 2].into());
    }

    #[test]
    fn who_has_too_much_gives_back_what_is_idle_and_no_more() {
        for (frame_bytes, idle_bytes, gives) in
            [(1400, 1400, 0), (1401, 1401, 201), (1600, 100, 100), (5000, 5000, 3800)]
        {
            let pressed = CellState { idle_bytes, ..cell(1, 0, frame_bytes) };
            let hints = decide(&with_cells(vec![pressed, cell(2, 0, 0)]));
            assert_eq!((hints.cells[&1].give_back_bytes, hints.cells[&2].give_back_bytes), (gives, 0));
        }
        let unlimited = CellState { most_bytes: 0, ..cell(1, 0, 1000) };
        let mut picture = with_cells(vec![unlimited]);
        assert_eq!(decide(&picture).cells[&1].give_back_bytes, 0);
        (picture.host_bytes, picture.host_free_bytes) = (1600, 99);
        assert_eq!(decide(&picture).cells[&1].give_back_bytes, 250);
    }

    fn gang(task: u32, components: u32) -> TaskState {
        TaskState { task, components, is_gang: true, cores: 0 }
    }

    fn waiting(tasks: &[TaskState], slice: u64) -> Vec<u32> {
        let cores = (0..4).collect();
        let hints = decide(&Picture { tasks: tasks.to_vec(), cores, slice, ..Picture::default() });
        hints.tasks.iter().filter(|(_, hint)| hint.waits).map(|(&task, _)| task).collect()
    }

    #[test]
    fn gangs_take_turns_if_there_are_not_cores_for_all() {
        assert!(waiting(&[gang(1, 9)], 0).is_empty(), "one alone");
        assert!(waiting(&[gang(1, 2), gang(2, 2)], 0).is_empty(), "there is room for both");
        let three = [gang(1, 3), gang(2, 2), gang(3, 1)];
        assert_eq!(
            (waiting(&three, 0), waiting(&three, 1), waiting(&three, 2)),
            (vec![2], vec![1, 3], vec![2])
        );
        let ordinary = TaskState { is_gang: false, ..gang(4, 4) };
        assert!(waiting(&[gang(1, 4), ordinary], 1).is_empty());
        // Who has cores for itself needs no turn, and leaves less to the others.
        let own = TaskState { cores: 2, ..gang(9, 2) };
        assert_eq!(waiting(&[own, gang(1, 2), gang(2, 1)], 0), [2]);
    }

    #[test]
    fn cores_are_given_from_the_highest_and_the_others_keep_away() {
        let wants = |task, cores| TaskState { task, components: 1, cores, is_gang: false };
        let tasks = vec![wants(1, 0), wants(2, 2), wants(3, 2), wants(4, 1)];
        let hints = decide(&Picture { tasks, cores: (0..4).collect(), ..Picture::default() }).tasks;
        let cores = |task: u32| hints[&task].cores.iter().collect::<Vec<_>>();
        assert_eq!((cores(2), cores(4)), (vec![2, 3], vec![1]));
        assert_eq!((cores(1), cores(3)), (vec![0], vec![0]), "there are not so many left for 3");
        let none = decide(&Picture {
            tasks: vec![wants(1, 0), wants(2, 1)],
            cores: (0..1).collect(),
            ..Picture::default()
        });
        assert!(none.tasks.is_empty(), "of one core nobody has it alone");
    }

    prop_compose! {
        fn some_cell()(cell in 0_u32..70, load_permille in 0_u64..5000, frame_bytes: u64, idle_bytes: u64,
                       reserved_bytes: u64, task_bytes: u64, most_bytes: u64, processes in 0_u64..9) -> CellState {
            CellState { cell, load_permille, processes, frame_bytes, idle_bytes, reserved_bytes, task_bytes, most_bytes }
        }
    }

    prop_compose! {
        fn some_task()(task in 0_u32..12, components in 0_u32..9, cores in 0_u32..9, is_gang: bool) -> TaskState {
            TaskState { task, components, cores, is_gang }
        }
    }

    proptest! {
        /// Whatever cells show, what is hinted can be followed, and each gang has its turn.
        #[test]
        fn any_picture_gives_hints_that_can_be_followed(
            cells in proptest::collection::vec(some_cell(), 0..70),
            tasks in proptest::collection::vec(some_task(), 0..12),
            cores in 0_usize..20,
            (host_bytes, host_free_bytes) in any::<(u64, u64)>(),
            slice in 0_u64..100,
        ) {
            let cores: Cores = (0..cores).collect();
            let mut picture = Picture { cells, tasks, cores, host_bytes, host_free_bytes, slice };
            let hints = decide(&picture);
            let known: BTreeSet<u32> = picture.cells.iter().map(|cell| cell.cell).collect();
            for (cell, hint) in &hints.cells {
                prop_assert!(hint.prefer.iter().chain(&hint.acceptable).all(|cell| *cell != 0 && known.contains(cell)));
                let idle = picture.cells.iter().filter(|state| state.cell == *cell).map(|state| state.idle_bytes).max();
                prop_assert!(hint.give_back_bytes <= idle.unwrap_or(0));
            }
            let wants = |task: &u32| picture.tasks.iter().find(|state| state.task == *task).unwrap();
            let mut taken = Cores::default();
            for (task, hint) in &hints.tasks {
                prop_assert!(hint.cores.is_within(&cores));
                prop_assert!(!hint.swap || hint.waits);
                if hint.waits {
                    prop_assert!(picture.tasks.iter().any(|state| state.task == *task && state.is_gang));
                }
                if hint.cores.len() == wants(task).cores as usize && !hint.cores.is_empty() && !hint.cores.overlaps(&taken) {
                    taken = taken.with(&hint.cores);
                }
            }
            prop_assert!(taken.len() <= cores.len());
            // Everybody has a turn within as many slices as there are tasks.
            let mut waits: BTreeSet<u32> = picture.tasks.iter().map(|task| task.task).collect();
            for slice in 0..picture.tasks.len().max(1) as u64 * 12 {
                picture.slice = slice;
                let hints = decide(&picture);
                waits.retain(|task| hints.tasks.get(task).is_some_and(|hint| hint.waits));
            }
            prop_assert!(waits.is_empty(), "{waits:?}");
        }
    }
}
