//! What a cell shows to the others: structures in memory of its own, which they read carefully. (Hive §4.1)
//!
//! It begins with a [`Face`]: when the cell moved last, what it has, and where its regions are listed. Whoever watches a cell looks at the first word
//! of it with every tick; now and then it walks through everything else, so that a structure that nobody happens to read is not corrupt for long.

use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use comb_containment::alerts::Finding;
use comb_memory::careful::{Careful, CarefulError, Peer, Source, careful};
use comb_memory::{Far, Full, PublishError, Published, Structure};
use comb_region::named::home::OtherCells;
use comb_region::named::shown::{NodeShown, RegionsShown, Seen, walk};
use comb_types::{CellId, Incarnation};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::clock::monotonic_ns;
use crate::hints::{self, CellHint, MOST_TASKS};
use crate::watch::{self, Sight, Suspicion, Tick};

/// Room for what a cell shows. Only what is used takes memory.
const SHOWN_BYTES: u64 = 64 << 20;

/// Why a cell cannot show anything.
#[derive(Debug, thiserror::Error)]
pub enum ShownError {
    /// No memory.
    #[error("no memory to show to the other cells: {0}")]
    Publish(#[from] PublishError),
    /// No room, which cannot be at the beginning.
    #[error(transparent)]
    Full(#[from] Full),
}

/// Where others begin to read.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Face {
    /// When the cell's loop came round last, on `CLOCK_MONOTONIC` of its host.
    pub moved_at_ns: u64,
    /// For how long the loop's thread had a core until then.
    pub ran_ns: u64,
    /// Processor time that everything in it has used.
    pub used_ns: u64,
    /// Bytes of page frames that it has.
    pub frame_bytes: u64,
    /// Bytes that it should have at most; 0: no limit.
    pub most_bytes: u64,
    /// Its regions.
    pub regions: Far<RegionsShown>,
    /// What else the policy wants to know. Apart, so that whoever watches the cell has little to read.
    pub load: Far<Load>,
}

impl Structure for Face {
    const TAG: u32 = u32::from_le_bytes(*b"face");
}

/// What a cell has to do, and has done for the policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Load {
    /// Bytes of its page frames that nobody may store to.
    pub idle_bytes: u64,
    /// Bytes of page frames that are promised to regions, or loaned.
    pub reserved_bytes: u64,
    /// Bytes of memory that processes of tasks have in it for themselves.
    pub task_bytes: u64,
    /// Processes of tasks.
    pub processes: u64,
    /// What it has done at the policy's word.
    pub heeded: Heeded,
    /// Its tasks: [`MOST_TASKS`] rows.
    pub tasks: Far<TaskShown>,
}

impl Structure for Load {
    const TAG: u32 = u32::from_le_bytes(*b"load");
}

/// What a cell has done because it was hinted, since it began.
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    Debug,
    Default,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    serde::Serialize,
    serde::Deserialize,
)]
#[repr(C)]
pub struct Heeded {
    /// Bytes of page frames that it has given back.
    pub given_back_bytes: u64,
    /// Bytes of tasks' memory that it has paged out.
    pub paged_out_bytes: u64,
    /// How often it has had a task wait.
    pub waits: u64,
    /// How often it has given a task other cores.
    pub bindings: u64,
}

/// A task that has components in a cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct TaskShown {
    /// Which; 0: the row shows nothing.
    pub task: u32,
    /// Components of it in all cells.
    pub components: u32,
    /// Cores that it wants for itself; 0: it wants none.
    pub cores: u32,
    /// Whether its components want to run at the same time, and to wait together: 1 or 0.
    pub is_gang: u32,
}

impl Structure for TaskShown {
    const TAG: u32 = u32::from_le_bytes(*b"task");
}

/// What was seen of a cell.
#[derive(Clone, Debug)]
pub struct Condition {
    /// Where readers begin.
    pub face: Face,
    /// What it has to do.
    pub load: Load,
    /// Its tasks.
    pub tasks: Vec<TaskShown>,
}

/// What this cell shows.
#[derive(Debug)]
pub struct Shown {
    published: Arc<Published>,
    face: Far<Face>,
    load: Far<Load>,
    tasks: Far<TaskShown>,
}

impl Shown {
    /// Makes the memory, and a face in it.
    pub fn create(own: CellId, incarnation: u64) -> Result<Self, ShownError> {
        let published = Published::create(own, Incarnation(incarnation), SHOWN_BYTES)?;
        let tasks = published.allocate_array(&[TaskShown::default(); MOST_TASKS])?;
        let load = published.allocate(Load { tasks, ..Load::default() })?;
        let face = Face {
            moved_at_ns: monotonic_ns(),
            ran_ns: 0,
            used_ns: 0,
            frame_bytes: 0,
            most_bytes: 0,
            regions: Far::NONE,
            load,
        };
        let face = published.allocate(face)?;
        published.set_root(face);
        Ok(Self { published: Arc::new(published), face, load, tasks })
    }

    /// For others in this cell that have something to show.
    pub fn published(&self) -> &Arc<Published> {
        &self.published
    }

    /// For the agent.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.published.descriptor()
    }

    /// This cell moves. Said by the thread of its loop.
    pub fn tick(&self) {
        self.published.tick();
        let Tick { at_ns, ran_ns } = Tick::now();
        self.update(|face| (face.moved_at_ns, face.ran_ns) = (at_ns, ran_ns));
    }

    /// Something of it has changed.
    pub fn update(&self, change: impl FnOnce(&mut Face)) {
        self.published.update(self.face, change);
    }

    /// What it has to do has changed. Where its tasks are listed stays.
    pub fn set_load(&self, load: Load) {
        self.published.update(self.load, |shown| *shown = Load { tasks: self.tasks, ..load });
    }

    /// Its tasks are these. There is room for [`MOST_TASKS`].
    pub fn set_tasks(&self, tasks: &[TaskShown]) {
        for at in 0..MOST_TASKS {
            let row = tasks.get(at).copied().unwrap_or_default();
            if self.published.get_element(self.tasks, at) != row {
                self.published.update_element(self.tasks, at, |shown| *shown = row);
            }
        }
    }

    /// Nothing here is to be believed any more.
    pub fn cut_off(&self) {
        self.published.cut_off();
    }
}

/// What the other cells show. All clones are one.
#[derive(Clone, Debug, Default)]
pub struct Others {
    cells: Arc<Mutex<BTreeMap<CellId, Arc<Other>>>>,
    /// From whom to borrow, as the policy says.
    preferred: Arc<Mutex<CellHint>>,
    /// What this cell shows itself, for others' pointers may lead there.
    own: Option<Arc<Published>>,
}

#[derive(Debug)]
struct Other {
    process: u32,
    shown: Arc<Peer>,
}

impl OtherCells for Others {
    fn peer(&self, cell: CellId) -> Option<Arc<Peer>> {
        self.of(cell).map(|other| Arc::clone(&other.shown))
    }

    /// From whom frames are borrowed first comes first.
    fn cells(&self) -> Vec<CellId> {
        let load = self.seen().into_iter().map(|cell| (cell.0, 0)).collect();
        let preferred = self.preferred.lock().unwrap_or_else(PoisonError::into_inner);
        hints::order(&load, Some(&preferred)).into_iter().map(CellId).collect()
    }
}

impl Others {
    /// The others of the cell that shows this.
    pub fn of_whom(own: Arc<Published>) -> Self {
        Self { own: Some(own), ..Self::default() }
    }

    /// A cell shows this.
    pub fn see(
        &self,
        cell: CellId,
        incarnation: u64,
        process: u32,
        file: &OwnedFd,
    ) -> Result<(), CarefulError> {
        let shown = Arc::new(Peer::map(file, cell, Incarnation(incarnation))?);
        self.known().insert(cell, Arc::new(Other { process, shown }));
        Ok(())
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<CellId, Arc<Other>>> {
        self.cells.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn of(&self, cell: CellId) -> Option<Arc<Other>> {
        self.known().get(&cell).cloned()
    }

    /// Of which cells something is seen.
    pub fn seen(&self) -> Vec<CellId> {
        self.known().keys().copied().collect()
    }

    /// Which of them are preferred, where any would do.
    pub(crate) fn prefer(&self, hint: &CellHint) {
        let mut preferred = self.preferred.lock().unwrap_or_else(PoisonError::into_inner);
        if *preferred != *hint {
            preferred.clone_from(hint);
        }
    }

    /// A cell is no more.
    pub fn forget(&self, cell: CellId) {
        self.known().remove(&cell);
    }

    /// In which life a cell is.
    pub(crate) fn life(&self, cell: CellId) -> Option<Incarnation> {
        self.of(cell).map(|other| other.shown.incarnation())
    }

    /// What a cell shows; none if it has shown nothing yet.
    pub fn face(&self, cell: CellId) -> Option<Result<Face, CarefulError>> {
        self.of(cell).map(|other| face_of(&other.shown))
    }

    /// All that a cell shows of what it has to do; none if it has shown nothing yet.
    pub fn load(&self, cell: CellId) -> Option<Result<Condition, CarefulError>> {
        self.read(cell, |c| {
            let face = c.read(c.root::<Face>()?)?;
            let load = c.read(face.load)?;
            let tasks = c.array(load.tasks, MOST_TASKS)?.into_iter().filter(|row| row.task != 0).collect();
            Ok(Condition { face, load, tasks })
        })
    }

    /// When a cell moved last, and its process; none if it has shown nothing yet.
    pub(crate) fn moved(&self, cell: CellId) -> Option<(u32, Result<Tick, Finding>)> {
        let other = self.of(cell)?;
        let moved = match face_of(&other.shown) {
            Ok(face) => Ok(Tick { at_ns: face.moved_at_ns, ran_ns: face.ran_ns }),
            // It was stopped within a change: what its thread does says whether that is for ever.
            Err(CarefulError::Unstable { .. }) => Ok(Tick::UNKNOWN),
            Err(error) => Err(finding(&error)),
        };
        Some((other.process, moved))
    }

    /// Walks through all that a cell shows: the first rule that is broken. (What cannot be looked at now is not broken.)
    pub fn sweep(&self, cell: CellId) -> Result<(), CarefulError> {
        match self.walk(cell) {
            Err(error) if is_suspicious(&error) => Err(error),
            _ => Ok(()),
        }
    }

    /// The same, and what cannot be looked at now. A change that nobody is at work on comes to no end.
    fn walk(&self, cell: CellId) -> Result<(), CarefulError> {
        let Some(other) = self.of(cell) else { return Ok(()) };
        let walked = self.walk_once(cell, &other);
        match &walked {
            // Whoever is within a change for all of that time does not sleep.
            Err(CarefulError::Unstable { version, .. })
                if version % 2 == 1
                    && watch::all_sleep(other.process)
                    && self.walk_once(cell, &other) == walked =>
            {
                Err(CarefulError::Broken { cell, rule: "a change comes to its end" })
            }
            _ => walked,
        }
    }

    fn walk_once(&self, cell: CellId, other: &Other) -> Result<(), CarefulError> {
        let mut elsewhere = Vec::new();
        walk_all(&*other.shown, |seen| {
            if let Seen::Elsewhere(node, life) = seen {
                elsewhere.push((node, life));
            }
        })?;
        elsewhere.into_iter().try_for_each(|(node, life)| self.check_node(cell, node, life))
    }

    /// A pointer that leads astray is the fault of whoever has it, unless what it leads to is damaged: then its cell does not stand a walk itself. One to
    /// another life of that cell says nothing about who has it: that life is over, or has not been seen here yet.
    fn check_node(
        &self,
        holder: CellId,
        node: Far<NodeShown>,
        life: Incarnation,
    ) -> Result<(), CarefulError> {
        let other = self.of(node.cell());
        let own = self.own.as_deref().filter(|own| own.cell() == node.cell());
        let (to, now): (&dyn Source, Incarnation) = match (own, &other) {
            (Some(own), _) => (own, own.incarnation()),
            (None, Some(other)) => (&*other.shown, other.shown.incarnation()),
            (None, None) => return Ok(()),
        };
        if life == Incarnation(0) {
            return Err(CarefulError::Broken {
                cell: holder,
                rule: "a pointer to another cell leads to a life of it",
            });
        }
        match (life == now).then(|| careful(to, |c| c.read(node))) {
            Some(Err(
                CarefulError::WrongTag { .. }
                | CarefulError::Misaligned { .. }
                | CarefulError::OutOfRange { .. },
            )) if !walk_all(to, |_| ()).is_err_and(|error| is_suspicious(&error)) => {
                Err(CarefulError::Broken {
                    cell: holder,
                    rule: "a pointer to another cell leads to a node there",
                })
            }
            // Its cell may be on its way out, or not be seen yet.
            _ => Ok(()),
        }
    }

    /// Whether anything that a cell shows breaks a rule; `None`: something is within a change, which may be over soon.
    pub(crate) fn is_corrupt(&self, cell: CellId) -> Option<bool> {
        match self.walk(cell) {
            Err(CarefulError::Unstable { .. }) => None,
            walked => Some(walked.is_err_and(|error| is_suspicious(&error))),
        }
    }

    /// Reads what a cell shows; none if it has shown nothing yet.
    pub fn read<R>(&self, cell: CellId, section: impl FnOnce(&Careful<'_, Peer>) -> R) -> Option<R> {
        self.of(cell).map(|other| careful(&*other.shown, section))
    }
}

/// Through all that a cell shows.
fn walk_all(source: &dyn Source, see: impl FnMut(Seen)) -> Result<(), CarefulError> {
    careful(source, |c| {
        let face = c.read(c.root::<Face>()?)?;
        c.array(c.read(face.load)?.tasks, MOST_TASKS)?;
        if face.regions.is_none() { Ok(()) } else { walk(c, face.regions, see) }
    })
}

fn face_of(shown: &Peer) -> Result<Face, CarefulError> {
    careful(shown, |c| c.read(c.root::<Face>()?))
}

/// Whether an error says something about the cell, and not about this one or the moment.
fn is_suspicious(error: &CarefulError) -> bool {
    !matches!(
        error,
        CarefulError::System { .. } | CarefulError::TooMany { .. } | CarefulError::Unstable { .. }
    )
}

/// What an error in a careful reference speaks for.
pub(crate) fn finding(error: &CarefulError) -> Finding {
    match error {
        CarefulError::BusError { .. } => Finding::Gone,
        CarefulError::CutOff { .. } => Finding::Leaving,
        _ => Finding::Corrupt,
    }
}

/// The same file, by a descriptor that neither stores nor shortens it.
pub fn reopened_to_read(file: &OwnedFd) -> Result<OwnedFd, Errno> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}

/// Whether the cell that shows this has failed, as somebody sees it who belongs to no cell: it does not move though it could, or breaks a rule.
pub fn has_failed(file: &OwnedFd, cell: CellId, incarnation: u64, process: u32) -> bool {
    let others = Others::default();
    if others.see(cell, incarnation, process, file).is_err() {
        return true;
    }
    let moved = |others: &Others| others.moved(cell).and_then(|(_, moved)| moved.ok());
    let Some(first) = moved(&others) else { return true };
    if others.is_corrupt(cell) == Some(true) {
        return true;
    }
    // A cell says so, or none has heard of it for long.
    let Some(suspicion) = Suspicion::of(process, first) else { return false };
    let mut suspicion = suspicion.as_alleged();
    let mut look = || {
        std::thread::sleep(Duration::from_millis(3));
        moved(&others).map_or(Sight::Hangs, |moved| suspicion.look(moved))
    };
    // Whoever says that it hangs has asked it.
    match look() {
        Sight::Asleep => look() == Sight::Hangs,
        sight => sight == Sight::Hangs,
    }
}

#[cfg(test)]
mod tests {
    use comb_region::named::ADDRESSES;
    use comb_region::named::shown::{PlaceShown, RegionShown};

    use super::*;

    fn seen(shown: &Shown, cell: u32, incarnation: u64) -> Result<Others, CarefulError> {
        let file = shown.file().try_clone_to_owned().unwrap();
        let file = reopened_to_read(&file).unwrap();
        let others = Others::default();
        others.see(CellId(cell), incarnation, std::process::id(), &file).map(|()| others)
    }

    /// A cell that watches another one was the only one to look, and did not look at what itself has.
    #[test]
    fn a_pointer_into_the_memory_of_whoever_looks_is_looked_at() {
        let (own, shown) = (Shown::create(CellId(3), 7).unwrap(), Shown::create(CellId(4), 7).unwrap());
        let published = shown.published();
        let node = |parent, life| {
            let places = published.allocate_array(&[PlaceShown::NOT_HERE]).unwrap();
            published.allocate(NodeShown { parent, parent_life: life, places, blocks: 1, slots: 0 }).unwrap()
        };
        let elsewhere = own.published().allocate_array(&[PlaceShown::NOT_HERE]).unwrap();
        let there = NodeShown { parent: Far::NONE, parent_life: 0, places: elsewhere, blocks: 1, slots: 0 };
        let there = own.published().allocate(there).unwrap();
        let list = |by: &Shown, newest| {
            let (begins, bytes, generation) = (ADDRESSES.start, 4096, 1);
            let first = RegionShown { next: Far::NONE, begins, bytes, generation, newest };
            let first = by.published().allocate(first).unwrap();
            let list = by.published().allocate(RegionsShown { first, count: 1, version: 2 }).unwrap();
            by.update(|face| face.regions = list);
        };
        let file = reopened_to_read(&shown.file().try_clone_to_owned().unwrap()).unwrap();
        let others = Others::of_whom(Arc::clone(own.published()));
        others.see(CellId(4), 7, std::process::id(), &file).unwrap();
        let sweep = |parent, life| {
            list(&shown, node(parent, life));
            others.sweep(CellId(4))
        };
        assert!(sweep(there, 7).is_ok());
        assert!(sweep(Far::alleged(CellId(3), there.offset() + 8), 7).is_err(), "astray");
        assert!(sweep(Far::alleged(CellId(3), there.offset() + 8), 6).is_ok(), "that life is over");
        // Wild stores in one cell had another one ended, whose pointer led to what they had damaged.
        own.published().free(there);
        assert!(sweep(there, 7).is_err(), "to what is no more");
        list(&own, there);
        assert!(sweep(there, 7).is_ok(), "to what is damaged");
    }

    /// Wild stores left a list within a change, as it seemed: nobody found anything wrong, and programs lost what they could not find.
    #[test]
    fn what_is_within_a_change_is_broken_when_nobody_is_at_work_on_it() {
        let shown = Shown::create(CellId(3), 7).unwrap();
        let list = |version| {
            let list = RegionsShown { first: Far::NONE, count: 0, version };
            let list = shown.published().allocate(list).unwrap();
            shown.update(|face| face.regions = list);
        };
        let mut asleep = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let looks = |process| {
            let file = reopened_to_read(&shown.file().try_clone_to_owned().unwrap()).unwrap();
            let others = Others::default();
            others.see(CellId(3), 7, process, &file).unwrap();
            (others.sweep(CellId(3)).is_ok(), others.is_corrupt(CellId(3)))
        };
        list(3);
        assert_eq!(looks(std::process::id()), (true, None), "this one may be at work on it");
        let since = std::time::Instant::now();
        while looks(asleep.id()) != (false, Some(true)) {
            assert!(since.elapsed() < Duration::from_secs(20), "it sleeps");
        }
        list(4);
        assert_eq!(looks(asleep.id()), (true, Some(false)));
        asleep.kill().unwrap();
        asleep.wait().unwrap();
    }

    #[test]
    fn a_cell_is_seen_to_move_until_it_is_cut_off_or_gone() {
        let shown = Shown::create(CellId(3), 7).unwrap();
        assert!(seen(&shown, 4, 7).is_err() && seen(&shown, 3, 8).is_err(), "another's, or of another life");
        let others = seen(&shown, 3, 7).unwrap();
        let before = others.moved(CellId(3)).unwrap().1.unwrap();
        shown.tick();
        let after = others.moved(CellId(3)).unwrap().1.unwrap();
        assert!(after.at_ns >= before.at_ns && after.ran_ns > 0);
        assert!(others.sweep(CellId(3)).is_ok() && others.moved(CellId(4)).is_none());
        shown.cut_off();
        assert_eq!(others.moved(CellId(3)).unwrap().1, Err(Finding::Leaving));
        // Its memory is taken back.
        let shown = Shown::create(CellId(3), 7).unwrap();
        let others = seen(&shown, 3, 7).unwrap();
        rustix::fs::ftruncate(shown.file(), 0).unwrap();
        assert_eq!(others.moved(CellId(3)).unwrap().1, Err(Finding::Gone));
        std::mem::forget(shown);
    }
}
