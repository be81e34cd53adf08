//! Hints: what the policy says to the cells, in memory of its own which they read carefully. (Hive §3.2)
//!
//! The policy is a program outside of all cells that sees what each shows. What it says is how resources could be used better, and nothing that anybody has to
//! do: whoever reads a hint checks it, follows it as far as that can only cost time, and does well without any.
//!
//! | who takes it (Hive, Table 3.4) | what it is told |
//! |---|---|
//! | page allocator | which cells to allocate from: the best first, and which will do |
//! | clock hand | how much a cell could give back |
//! | scheduler | which cores a task is to run on, and whether it is to wait for its turn |
//! | swapper | whose memory is to be paged out |

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::BorrowedFd;

use comb_memory::careful::{Careful, CarefulError, Peer, careful};
use comb_memory::{Far, Published, Structure};
use comb_types::{CellId, Incarnation};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::shown::ShownError;

/// The policy, among those who publish something. Cells are counted from 1.
pub const POLICY: CellId = CellId(0);
/// Cells that hints are given to. Behind the first row, which is for who is in no cell.
pub const MOST_CELLS: usize = 64;
/// Tasks that hints are given for.
pub const MOST_TASKS: usize = 64;
/// Cells in an order of preference.
pub const MOST_PREFERRED: usize = 8;
/// Tells the policy's process which life of it it is.
pub const INCARNATION_VARIABLE: &str = "COMB_WAX_INCARNATION";
const PUBLISHED_BYTES: u64 = 1 << 20;

/// Some of a host's cores, by their numbers below 256.
#[derive(Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(transparent)]
pub struct Cores([u64; 4]);

impl Cores {
    /// How many there can be.
    pub const MOST: usize = 256;

    /// Whether it has a core.
    pub fn contains(&self, core: usize) -> bool {
        core < Self::MOST && self.0[core / 64] >> (core % 64) & 1 == 1
    }

    /// How many it has.
    pub fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.0 == [0; 4]
    }

    /// From the lowest on.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = usize> + '_ {
        (0..Self::MOST).filter(|&core| self.contains(core))
    }

    /// These but for those.
    pub fn without(&self, others: &Self) -> Self {
        Self(std::array::from_fn(|word| self.0[word] & !others.0[word]))
    }

    /// These and those.
    pub fn with(&self, others: &Self) -> Self {
        Self(std::array::from_fn(|word| self.0[word] | others.0[word]))
    }

    /// Whether they have a core in common.
    pub fn overlaps(&self, others: &Self) -> bool {
        self.without(others) != *self
    }

    /// Whether all of these are among those.
    pub fn is_within(&self, others: &Self) -> bool {
        self.without(others).is_empty()
    }
}

impl FromIterator<usize> for Cores {
    /// Numbers that are too high are left out.
    fn from_iter<I: IntoIterator<Item = usize>>(cores: I) -> Self {
        let mut words = [0; 4];
        for core in cores.into_iter().filter(|&core| core < Self::MOST) {
            words[core / 64] |= 1 << (core % 64);
        }
        Self(words)
    }
}

impl std::fmt::Debug for Cores {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

/// What a cell is told of its memory, or whoever is in no cell.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CellHint {
    /// From which cells to allocate, the best first.
    pub prefer: Vec<u32>,
    /// Which cells will do.
    pub acceptable: BTreeSet<u32>,
    /// How many bytes it could give back.
    pub give_back_bytes: u64,
}

/// What cells are told of a task.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TaskHint {
    /// Where it is to run. None: wherever it does.
    pub cores: Cores,
    /// It is not its turn.
    pub waits: bool,
    /// Its memory is wanted for others.
    pub swap: bool,
}

/// All that is said at one moment.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Hints {
    /// By cell; 0: for whoever is in none.
    pub cells: BTreeMap<u32, CellHint>,
    /// By the task's number.
    pub tasks: BTreeMap<u32, TaskHint>,
}

// ── as it lies in memory ──

/// Where readers begin.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct HintsShown {
    /// How often the policy has decided.
    pub round: u64,
    /// Set to 0: room for what comes.
    pub reserved: u64,
    /// A row for each cell, by its number.
    pub cells: Far<CellHintShown>,
    /// A row for each task of which something is said, anywhere.
    pub tasks: Far<TaskHintShown>,
}

impl Structure for HintsShown {
    const TAG: u32 = u32::from_le_bytes(*b"hint");
}

/// See [`CellHint`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct CellHintShown {
    /// Numbers of cells; 0 ends them.
    pub prefer: [u8; MOST_PREFERRED],
    /// Bit n - 1 is cell n's.
    pub acceptable: u64,
    /// Bytes.
    pub give_back_bytes: u64,
}

impl Structure for CellHintShown {
    const TAG: u32 = u32::from_le_bytes(*b"hcel");
}

/// See [`TaskHint`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct TaskHintShown {
    /// Which cores.
    pub cores: Cores,
    /// Which task; 0: the row says nothing.
    pub task: u32,
    /// [`WAITS`], [`SWAP`].
    pub flags: u32,
}

impl Structure for TaskHintShown {
    const TAG: u32 = u32::from_le_bytes(*b"htas");
}

/// A task is to wait.
pub const WAITS: u32 = 1;
/// A task's memory is to be paged out.
pub const SWAP: u32 = 2;

impl CellHintShown {
    fn of(hint: &CellHint) -> Self {
        let mut row = Self::new_zeroed();
        let known = hint.prefer.iter().filter_map(|&cell| u8::try_from(cell).ok());
        for (place, cell) in row.prefer.iter_mut().zip(known) {
            *place = cell;
        }
        let known = hint.acceptable.iter().filter(|&&cell| (1..=MOST_CELLS as u32).contains(&cell));
        row.acceptable = known.fold(0, |bits, cell| bits | 1 << (cell - 1));
        row.give_back_bytes = hint.give_back_bytes;
        row
    }

    /// What can be meant by it: cells that there can be, each once.
    fn read(&self) -> CellHint {
        let mut prefer: Vec<u32> = Vec::new();
        for cell in self.prefer.into_iter().take_while(|&cell| cell != 0).map(u32::from) {
            if cell <= MOST_CELLS as u32 && !prefer.contains(&cell) {
                prefer.push(cell);
            }
        }
        let is_in = |cell: &u32| self.acceptable >> (cell - 1) & 1 == 1;
        let acceptable = (1..=MOST_CELLS as u32).filter(is_in).collect();
        CellHint { prefer, acceptable, give_back_bytes: self.give_back_bytes }
    }
}

impl TaskHintShown {
    fn of((&task, hint): (&u32, &TaskHint)) -> Self {
        let flags = if hint.waits { WAITS } else { 0 } | if hint.swap { SWAP } else { 0 };
        Self { cores: hint.cores, task, flags }
    }
}

/// The policy's side: where hints are published.
#[derive(Debug)]
pub struct Voice {
    published: Published,
    hints: Far<HintsShown>,
    cells: Far<CellHintShown>,
    tasks: Far<TaskHintShown>,
    /// As it stands there.
    said: Hints,
}

impl Voice {
    /// For that life of the policy. It has said nothing yet.
    pub fn create(incarnation: u64) -> Result<Self, ShownError> {
        let published = Published::create(POLICY, Incarnation(incarnation), PUBLISHED_BYTES)?;
        let cells = published.allocate_array(&[CellHintShown::new_zeroed(); MOST_CELLS + 1])?;
        let tasks = published.allocate_array(&[TaskHintShown::new_zeroed(); MOST_TASKS])?;
        let hints = published.allocate(HintsShown { round: 0, reserved: 0, cells, tasks })?;
        published.set_root(hints);
        Ok(Self { published, hints, cells, tasks, said: Hints::default() })
    }

    /// For the agent, which hands it to the cells.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.published.descriptor()
    }

    /// Says this, in place of what was said before. Of more cells and tasks than there is room for, the last are left out.
    pub fn say(&mut self, hints: Hints) {
        for cell in 0..=MOST_CELLS {
            let number = u32::try_from(cell).expect("few");
            let hint = |hints: &Hints| hints.cells.get(&number).map(CellHintShown::of);
            let (before, now) = (hint(&self.said), hint(&hints));
            if before != now {
                let row = now.unwrap_or_else(CellHintShown::new_zeroed);
                self.published.update_element(self.cells, cell, |shown| *shown = row);
            }
        }
        let row = |hints: &Hints, at: usize| hints.tasks.iter().nth(at).map(TaskHintShown::of);
        for at in 0..MOST_TASKS {
            let (before, now) = (row(&self.said, at), row(&hints, at));
            if before != now {
                let row = now.unwrap_or_else(TaskHintShown::new_zeroed);
                self.published.update_element(self.tasks, at, |shown| *shown = row);
            }
        }
        self.published.update(self.hints, |hints| hints.round += 1);
        self.said = hints;
    }
}

/// What somebody has read of the hints.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Heard {
    /// How often the policy has decided: it lives as long as that grows.
    pub round: u64,
    /// What is said to the reader.
    pub own: CellHint,
    /// What is said of tasks. Of which two things are said, nothing is.
    pub tasks: BTreeMap<u32, TaskHint>,
}

/// Reads what the policy says to a cell, or with 0 to who is in none.
pub fn hear(policy: &Peer, cell: u32) -> Result<Heard, CarefulError> {
    careful(policy, |c| read(c, cell))
}

fn read(c: &Careful<'_, Peer>, cell: u32) -> Result<Heard, CarefulError> {
    let hints = c.read(c.root::<HintsShown>()?)?;
    let own = c.element(hints.cells, cell as usize)?.read();
    let rows = c.array(hints.tasks, MOST_TASKS)?;
    let (mut tasks, mut contradicted) = (BTreeMap::new(), BTreeSet::new());
    for row in rows.iter().filter(|row| row.task != 0) {
        let hint = TaskHint { cores: row.cores, waits: row.flags & WAITS != 0, swap: row.flags & SWAP != 0 };
        if tasks.insert(row.task, hint).is_some_and(|before| before != hint) {
            contradicted.insert(row.task);
        }
    }
    tasks.retain(|task, _| !contradicted.contains(task));
    Ok(Heard { round: hints.round, own, tasks })
}

/// How far ahead of others a cell may be that is preferred: what was hinted is no reason to put everything into one.
const MOST_AHEAD: usize = 4;

/// Orders cells for who is to allocate from them: those that are preferred before the others, as long as they have not much more to do; then by what they
/// have. `load` is how much each has, and which can be chosen at all.
pub fn order(load: &BTreeMap<u32, usize>, hint: Option<&CellHint>) -> Vec<u32> {
    let least = load.values().min().copied().unwrap_or(0);
    let rank = |cell: u32, has: usize| {
        let hint = hint.filter(|_| has <= least.saturating_add(MOST_AHEAD))?;
        let place = hint.prefer.iter().position(|&preferred| preferred == cell);
        place.or_else(|| hint.acceptable.contains(&cell).then_some(MOST_PREFERRED))
    };
    let mut cells: Vec<(usize, usize, u32)> =
        load.iter().map(|(&cell, &has)| (rank(cell, has).unwrap_or(usize::MAX), has, cell)).collect();
    cells.sort_unstable();
    cells.into_iter().map(|(_, _, cell)| cell).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shown::reopened_to_read;

    fn heard(voice: &Voice, cell: u32) -> Result<Heard, CarefulError> {
        let file = reopened_to_read(&voice.file().try_clone_to_owned().unwrap()).unwrap();
        hear(&Peer::map(file, POLICY, Incarnation(3)).unwrap(), cell)
    }

    #[test]
    fn what_is_said_is_heard_by_whom_it_is_said_to() {
        let mut voice = Voice::create(3).unwrap();
        assert_eq!(heard(&voice, 2).unwrap(), Heard::default());
        let own = CellHint { prefer: vec![2, 64, 1], acceptable: [1, 2, 64].into(), give_back_bytes: 77 };
        let hint = TaskHint { cores: [0, 255].into_iter().collect(), waits: true, swap: true };
        let (cells, tasks) =
            (BTreeMap::from([(2, own.clone())]), BTreeMap::from([(9, hint), (4, TaskHint::default())]));
        voice.say(Hints { cells, tasks: tasks.clone() });
        assert_eq!(heard(&voice, 2).unwrap(), Heard { round: 1, own, tasks: tasks.clone() });
        assert_eq!(heard(&voice, 3).unwrap(), Heard { round: 1, own: CellHint::default(), tasks });
        voice.say(Hints::default());
        assert_eq!(heard(&voice, 2).unwrap(), Heard { round: 2, ..Heard::default() });
        assert!(heard(&voice, 65).is_err(), "there is no such row");
    }

    #[test]
    fn cells_that_cannot_be_and_what_contradicts_itself_are_left_out() {
        let voice = Voice::create(3).unwrap();
        let row = CellHintShown {
            prefer: [200, 3, 3, 65, 2, 0, 1, 1],
            acceptable: u64::MAX,
            give_back_bytes: u64::MAX,
        };
        voice.published.update_element(voice.cells, 1, |shown| *shown = row);
        for (at, flags) in [(0, WAITS), (1, 0), (2, SWAP | 0xf0)] {
            let task = if at == 2 { 8 } else { 7 };
            let row = TaskHintShown { cores: Cores::default(), task, flags };
            voice.published.update_element(voice.tasks, at, |shown| *shown = row);
        }
        let heard = heard(&voice, 1).unwrap();
        assert_eq!(heard.own.prefer, [3, 2]);
        assert_eq!(heard.own.acceptable.len(), 64);
        assert_eq!(heard.tasks, [(8, TaskHint { swap: true, ..TaskHint::default() })].into());
    }

    #[test]
    fn who_is_preferred_comes_first_as_long_as_it_has_not_much_more() {
        let load = BTreeMap::from([(1, 0), (2, 1), (3, 4), (4, 5)]);
        assert_eq!(order(&load, None), [1, 2, 3, 4]);
        let hint = CellHint { prefer: vec![4, 3, 9], acceptable: [2, 3].into(), ..CellHint::default() };
        assert_eq!(order(&load, Some(&hint)), [3, 2, 1, 4]);
        assert!(order(&BTreeMap::new(), Some(&hint)).is_empty());
    }

    #[test]
    fn sets_of_cores() {
        let (some, other): (Cores, Cores) =
            ([1, 64, 255, 256].into_iter().collect(), [64].into_iter().collect());
        assert_eq!((some.len(), some.iter().collect::<Vec<_>>()), (3, vec![1, 64, 255]));
        assert!(other.is_within(&some) && some.overlaps(&other) && !some.is_within(&other));
        assert_eq!(format!("{:?}", some.without(&other)), "{1, 255}");
        assert_eq!(some.without(&other).with(&other), some);
    }
}
