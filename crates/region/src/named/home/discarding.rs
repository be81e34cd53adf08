//! What a home throws away when a cell fails. (Hive §4.2, §4.3)
//!
//! A cell that fails may have stored anything to whatever its processes could store to. Those pages are discarded: they become what is stable, which is the
//! region's last checkpoint, or zeros if there is none. A region that has lost pages so is of a new *generation*: whoever attached it before is told that it is
//! lost, for what it has seen there no longer holds; whoever attaches it from now on finds it usable.
//!
//! It is done in two steps, with all cells waiting for each other between them: first nobody's process can store any more ([`Home::cut_off`]), then pages are
//! discarded ([`Home::discard`]). Until the end of it ([`Home::resume`]) nobody is given a right.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::shared::Shared;
use super::{Books, Filled, Home, Office, inheriting};
use crate::named::register::Entry;
use crate::wire::Kind;

/// A process that has ended within this before its cell was found failed may have ended because of that.
const DOUBTFUL_FOR: Duration = Duration::from_secs(2);
/// Whoever has the newest content of other blocks alone, and does not give it back, loses it.
const HOMECOMING_LIMIT: Duration = Duration::from_millis(50);
const PAGE: u64 = 4096;

/// What was discarded.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Discarded {
    /// Pages.
    pub pages: u64,
    /// The regions that they were of.
    pub regions: Vec<String>,
}

/// What a process could store to that is gone.
pub(super) struct Doubtful {
    cell: u32,
    blocks: Vec<u64>,
    since: Instant,
}

impl Doubtful {
    pub(super) fn now(cell: u32, blocks: Vec<u64>) -> Self {
        Self { cell, blocks, since: Instant::now() }
    }
}

/// A recovery, at this home.
#[derive(Debug)]
pub(super) struct Recovering {
    dead: BTreeSet<u32>,
    /// When what others have alone was asked for.
    recalled: Option<Instant>,
}

impl Home {
    /// From when this returns on no process of these cells can store to anything here, and nobody is given a right. May be said again, with others.
    /// `None`, of this and the other steps: the home is at work; ask again soon. Whoever asks has others to watch over, and does not wait.
    pub fn cut_off(&self, dead: &[u32]) -> Option<()> {
        if dead.is_empty() {
            return Some(());
        }
        let mut books = self.office.books_at_once()?;
        let Books { regions, peers, recovering, .. } = &mut *books;
        let recovering = recovering.get_or_insert(Recovering { dead: BTreeSet::new(), recalled: None });
        recovering.dead.extend(dead);
        for region in regions.values_mut() {
            let is_theirs = |cell: Option<u32>| cell.is_some_and(|cell| recovering.dead.contains(&cell));
            let theirs: Vec<u32> = region
                .body
                .attachments
                .iter()
                .filter(|(_, attachment)| is_theirs(attachment.cell))
                .map(|(&number, _)| number)
                .collect();
            for number in theirs {
                region.detach(peers, number);
            }
        }
        books.with_nodes(|books| {
            for region in books.regions.values_mut() {
                dead.iter().for_each(|&cell| region.body.forks.cell_ended(cell));
            }
        });
        Some(())
    }

    /// Throws away what the dead could have damaged. `None`: others have blocks of such regions alone, which come home first; ask again soon.
    /// However much that is, `moves` is called again and again meanwhile: whoever asks may be watched over itself.
    pub fn discard(&self, dead: &[u32], moves: &mut dyn FnMut()) -> Option<Discarded> {
        if dead.is_empty() {
            return Some(Discarded::default());
        }
        let mut books = self.office.books_at_once()?;
        let since = books.recovering.as_mut()?.recalled.get_or_insert_with(Instant::now).to_owned();
        let is_patient = since.elapsed() < HOMECOMING_LIMIT;
        let Books { regions, peers, .. } = &mut *books;
        let damaged = |region: &Shared| region.damaged_by(dead);
        let mut is_home = true;
        for region in regions.values_mut().filter(|region| !damaged(region).is_empty()) {
            is_home &= region.is_home(peers);
        }
        if !is_home && is_patient {
            return None;
        }
        let mut discarded = Discarded::default();
        let own = self.office.options.cell;
        for offset in books.in_frames_of(dead, own) {
            let Some(region) = books.regions.get(&offset) else { continue };
            discarded.pages += region.body.used.iter().map(|&block| region.pages_of(block)).sum::<u64>();
            discarded.regions.push(region.entry.name.clone());
            let entry = region.entry.clone();
            books.remove_for(offset, DISCARDED);
            self.make_anew_beside(entry);
        }
        dead.iter().for_each(|&cell| books.loans.cell_ended(cell));
        let offsets: Vec<u64> = books.regions.keys().copied().collect();
        for offset in offsets {
            let blocks = damaged(&books.regions[&offset]);
            if !blocks.is_empty() {
                books.discard(&self.office, offset, blocks, &mut discarded, moves);
            }
        }
        Some(discarded)
    }

    /// Frames are asked for, and files are read: not by who watches over cells.
    fn make_anew_beside(&self, entry: Entry) {
        let office = Arc::clone(&self.office);
        let makes = move || {
            if let Some(keeper) = &office.options.keeper {
                keeper.release(entry.allocation.offset);
            }
            let name = entry.name.clone();
            if let Err(why) = inheriting::make_anew(&office, entry) {
                eprintln!("comb: region {name} is lost with its frames: {why}");
                let _ = office.register.remove(&name);
            }
        };
        let _ = std::thread::Builder::new().name("comb-anew".to_owned()).spawn(makes);
    }

    /// It is over: rights are given again.
    pub fn resume(&self) -> Option<()> {
        let mut books = self.office.books_at_once()?;
        if books.recovering.take().is_none() {
            return Some(());
        }
        let offsets: Vec<u64> = books.regions.keys().copied().collect();
        for offset in offsets {
            let Some(region) = books.regions.get_mut(&offset) else { continue };
            region.forget_doubtful();
            if !region.is_frozen {
                let late = region.thaw();
                books.hear_late(late);
            }
        }
        drop(books);
        self.office.kick();
        Some(())
    }
}

impl Shared {
    /// The blocks that processes of these cells could store to when they went.
    fn damaged_by(&self, dead: &[u32]) -> BTreeSet<u64> {
        let theirs = self.doubtful.iter().filter(|doubtful| dead.contains(&doubtful.cell));
        theirs.flat_map(|doubtful| doubtful.blocks.iter().copied()).collect()
    }

    /// What may concern nobody any more.
    pub(super) fn forget_doubtful(&mut self) {
        self.doubtful.retain(|doubtful| doubtful.since.elapsed() < DOUBTFUL_FOR);
    }

    fn pages_of(&self, block: u64) -> u64 {
        let range = self.body.range(block);
        (range.end - range.start).div_ceil(PAGE)
    }
}

impl Books {
    fn discard(
        &mut self,
        office: &Office,
        offset: u64,
        damaged: BTreeSet<u64>,
        discarded: &mut Discarded,
        moves: &mut dyn FnMut(),
    ) {
        let generation = self.next_generation(0);
        let Self { regions, peers, dismissed, .. } = self;
        let region = regions.get_mut(&offset).expect("there a moment ago");
        // Blocks that their last holder did not give back, now or before, are no better.
        let mut gone = damaged;
        gone.extend(region.away());
        gone.extend(region.body.lost.keys().copied());
        let numbers: Vec<u32> = region.body.attachments.keys().copied().collect();
        for number in numbers {
            if let Some(rank) = region.body.attachments[&number].rank {
                peers.send(rank, Kind::Freed, &[DISCARDED, offset, 0, 0], &[]);
                dismissed.insert((rank, offset));
            }
            region.detach(peers, number);
            moves();
        }
        region.doubtful.clear();
        // A checkpoint that is being written may have taken some of it in.
        region.body.snapshot = None;
        region.begin_anew();
        discarded.pages += gone.iter().map(|&block| region.pages_of(block)).sum::<u64>();
        discarded.regions.push(region.entry.name.clone());
        region.restore(&gone, moves);
        region.entry.allocation.generation = generation;
        region.body.allocation.generation = generation;
        if let Some(showing) = &mut self.showing {
            showing.renew(&region.entry);
        }
        if let Err(error) = office.register.renew(&region.entry) {
            eprintln!("comb: region {} cannot be found any more: {error}", region.entry.name);
        }
    }
}

/// Why a region is gone, as its home says: its owner has removed it.
pub(crate) const REMOVED: u64 = 0;
/// Why a region is gone: see the [module](self).
pub(crate) const DISCARDED: u64 = 1;

impl Shared {
    /// Blocks become what the last checkpoint has of them.
    fn restore(&mut self, blocks: &BTreeSet<u64>, moves: &mut dyn FnMut()) {
        let zeros = vec![0; self.body.layout.block_bytes()];
        for &block in blocks {
            self.body.put_stable(block, &zeros);
            moves();
        }
        let Some(saved) = self.saved.open() else { return };
        // What comes next in that place is of another generation.
        self.saved.begin_anew();
        let block_bytes = self.body.block_bytes();
        let restored =
            saved.and_then(|saved| saved.fill(&mut Restored { region: self, blocks, block_bytes, moves }));
        if let Err(error) = restored {
            eprintln!(
                "comb: the last checkpoint of {} cannot be read: {error}; zeros are in its place",
                self.entry.name
            );
        }
    }
}

struct Restored<'a> {
    region: &'a mut Shared,
    blocks: &'a BTreeSet<u64>,
    block_bytes: u64,
    moves: &'a mut dyn FnMut(),
}

impl Filled for Restored<'_> {
    fn refill(&mut self, at: u64, content: &[u8]) {
        if self.blocks.contains(&(at / self.block_bytes)) {
            self.region.body.exports.copy_in(at, content);
        }
        (self.moves)();
    }
}
