//! What an agent keeps for the homes of its host.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use comb_memory::{KeptGuard, Orphaned};
use comb_net::agent::credentials;
use comb_net::agent::protocol;
use rustix::event::{PollFd, PollFlags, Timespec};

use super::{Reference, Reply, Request, Taken};

/// Of one cell: as many as processes can be attached to sixteen of its regions. Each is two descriptors of the agent's.
const MOST_OF_A_CELL: usize = 4096;

/// Second references. Whoever owns it says which cells have ended.
#[derive(Debug, Default)]
pub struct KeptReferences {
    /// In the order in which they came: there may be several of one place, of which the last is in use.
    regions: Vec<Kept>,
}

/// What there is of one region.
#[derive(Debug)]
struct Kept {
    cell: u32,
    region: u64,
    frames: Arc<Orphaned>,
    importers: BTreeMap<u32, Importer>,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// Its home is at work.
    Homed,
    /// Its home is no more, and its frames are being emptied.
    Ending,
    /// They are. The next home may take it.
    Orphaned,
    /// Nobody is to have it again.
    Released,
}

#[derive(Debug)]
struct Importer {
    guard: KeptGuard,
    process: OwnedFd,
}

impl Importer {
    /// Whether nobody can store by what it has mapped.
    fn is_gone(&self) -> bool {
        let mut ended = [PollFd::new(&self.process, PollFlags::IN)];
        let has_ended = rustix::event::poll(&mut ended, Some(&Timespec::default())) == Ok(1);
        // A child may have the same memory for a while.
        has_ended && !self.guard.lives()
    }
}

impl KeptReferences {
    /// Keeps it, or says why not.
    pub fn keep(
        &mut self,
        cell: u32,
        reference: Reference,
        descriptors: Vec<OwnedFd>,
    ) -> Result<(), &'static str> {
        if self.of(cell).map(|kept| 1 + kept.importers.len()).sum::<usize>() >= MOST_OF_A_CELL {
            return Err("it keeps as many for this cell as it may");
        }
        let mut descriptors = descriptors.into_iter();
        let first = descriptors.next().ok_or("no descriptor came with it")?;
        match reference {
            Reference::Frames { region } => {
                let frames = Orphaned::new(first).map_err(|_| "those are no frames")?;
                // Handed over once more, or taken by a successor.
                if let Some(known) = self.of(cell).find(|kept| is_same(&kept.frames, &frames)) {
                    known.stage = Stage::Homed;
                    return Ok(());
                }
                let (importers, stage, frames) = (BTreeMap::new(), Stage::Homed, Arc::new(frames));
                self.regions.push(Kept { cell, region, frames, importers, stage });
            }
            Reference::Guard { region, importer, address } => {
                let process = descriptors.next().ok_or("no process came with it")?;
                let address = usize::try_from(address).map_err(|_| "that is no address")?;
                let is_meant = |kept: &&mut Kept| kept.region == region && kept.stage == Stage::Homed;
                let kept = self.of(cell).filter(is_meant).last().ok_or("the frames come first")?;
                kept.importers.insert(importer, Importer { guard: KeptGuard::new(first, address), process });
            }
        }
        Ok(())
    }

    fn of(&mut self, cell: u32) -> impl Iterator<Item = &mut Kept> {
        self.regions.iter_mut().filter(move |kept| kept.cell == cell)
    }

    /// A home has given a region up, and emptied its frames.
    pub fn release(&mut self, cell: u32, region: u64) {
        for kept in self.of(cell).filter(|kept| kept.region == region && kept.stage == Stage::Homed) {
            kept.stage = Stage::Released;
        }
        self.tidy();
    }

    /// A cell has ended: no thread of it runs any more. What its next life hands over from now on is its own.
    pub fn cell_ends(&mut self, cell: u32) -> Ending {
        let homed = self.of(cell).filter(|kept| kept.stage == Stage::Homed);
        let frames = homed.map(|kept| {
            kept.stage = Stage::Ending;
            Arc::clone(&kept.frames)
        });
        Ending { frames: frames.collect() }
    }

    /// What an earlier life of the cell has left, as it can be handed over to the next. It is kept here, too.
    pub fn take(&mut self, cell: u32) -> rustix::io::Result<Vec<Taken>> {
        let own = |descriptor: BorrowedFd<'_>| rustix::io::fcntl_dupfd_cloexec(descriptor, 0);
        let mut all = Vec::new();
        for kept in self.of(cell).filter(|kept| kept.stage == Stage::Orphaned) {
            let region = kept.region;
            all.push((Reference::Frames { region }, vec![own(kept.frames.as_fd())?]));
            for (&importer, Importer { guard, process }) in &kept.importers {
                let reference = Reference::Guard { region, importer, address: guard.address() as u64 };
                all.push((reference, vec![own(guard.as_fd())?, own(process.as_fd())?]));
            }
        }
        Ok(all)
    }

    /// Closes what nobody needs any more. Called now and then.
    pub fn tidy(&mut self) {
        self.regions.retain_mut(|kept| {
            kept.importers.retain(|_, importer| !importer.is_gone());
            matches!(kept.stage, Stage::Homed | Stage::Ending) || !kept.importers.is_empty()
        });
    }

    /// All of them, by names that are theirs as long as they are kept.
    pub fn all(&self) -> Vec<(String, BorrowedFd<'_>)> {
        let mut all = Vec::new();
        for kept in &self.regions {
            let number = rustix::fs::fstat(&kept.frames).map_or(0, |found| found.st_ino);
            let name = format!("cell-{}.{:x}.{number}", kept.cell, kept.region);
            all.push((format!("{name}.frames"), kept.frames.as_fd()));
            let guards = kept.importers.iter();
            all.extend(
                guards.map(|(importer, kept)| (format!("{name}.guard-{importer}"), kept.guard.as_fd())),
            );
        }
        all
    }

    /// How many regions there are references of, and how many importers.
    pub fn count(&self) -> (usize, usize) {
        (self.regions.len(), self.regions.iter().map(|kept| kept.importers.len()).sum())
    }
}

fn is_same(one: &Orphaned, other: &Orphaned) -> bool {
    let number = |frames: &Orphaned| rustix::fs::fstat(frames).map(|found| (found.st_dev, found.st_ino)).ok();
    number(one).is_some() && number(one) == number(other)
}

/// Frames of a cell that has ended.
#[derive(Debug)]
#[must_use = "they are to be emptied"]
pub struct Ending {
    frames: Vec<Arc<Orphaned>>,
}

impl Ending {
    /// Empties them. When this returns, nobody has anything of them. That takes a third of a second for 256 MB that were in use: others are served meanwhile.
    pub fn finish(self, references: &Mutex<KeptReferences>) {
        for frames in &self.frames {
            if let Err(error) = frames.empty() {
                eprintln!("comb: frames of a cell that has ended stay as they are: {error}");
            }
        }
        let mut references = locked(references);
        for kept in &mut references.regions {
            if self.frames.iter().any(|frames| Arc::ptr_eq(frames, &kept.frames)) {
                kept.stage = Stage::Orphaned;
            }
        }
        references.tidy();
    }
}

fn locked(references: &Mutex<KeptReferences>) -> MutexGuard<'_, KeptReferences> {
    references.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Serves a home until it hangs up. `is_cell` says whether a process is that life of that cell: others are hung up on.
pub fn serve(socket: &OwnedFd, references: &Mutex<KeptReferences>, is_cell: impl Fn(u32, u32, u64) -> bool) {
    let locked =
        || -> MutexGuard<'_, KeptReferences> { references.lock().unwrap_or_else(PoisonError::into_inner) };
    let Ok(who) = credentials::of_peer(socket) else { return };
    let mut cell = None;
    while let Ok((request, descriptors)) = protocol::receive::<Request>(socket) {
        let done = match (request, cell) {
            (Request::Hello { cell: number, incarnation }, None) => {
                let is_so = is_cell(who.pid, number, incarnation);
                cell = is_so.then_some(number);
                if is_so { Ok(()) } else { Err("this process is not that cell") }
            }
            (Request::Keep(reference), Some(cell)) => locked().keep(cell, reference, descriptors),
            (Request::Release { region }, Some(cell)) => {
                locked().release(cell, region);
                Ok(())
            }
            (Request::Take, Some(cell)) => {
                let taken = locked().take(cell);
                taken.map_err(|_| "it has no descriptor left").and_then(|all| {
                    let hand = |(reference, descriptors): &Taken| {
                        let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
                        protocol::send(socket, &Reply::Taken(*reference), &descriptors)
                    };
                    all.iter().try_for_each(hand).map_err(|_| "they cannot be handed over")
                })
            }
            _ => Err("hello comes first, and once"),
        };
        let reply = done.map_or_else(|why| Reply::Refused(why.to_owned()), |()| Reply::Done);
        if protocol::send(socket, &reply, &[]).is_err() || cell.is_none() {
            return;
        }
    }
}
