//! Page frames that one cell has of another: the physical level of sharing. (Hive §5.4)
//!
//! The home of a region, its *data home*, may have the frames from another cell, the *memory home*: because that was asked for, or because its own are in
//! use. Frames are counted and loaned by extents; all of a region's are of one cell, so that it depends on two at most. The memory home leaves them alone until they
//! are returned, or the borrower is dead; the firewall does not defend them against it, so what a home itself lives on is never in borrowed frames. If the memory home dies,
//! the frames are gone, and the region is made anew from what is stable.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use comb_containment::CellId;
use comb_containment::frames::{Allocated, Frame, FrameTable};
use comb_memory::Exports;

use super::{Books, Office};
use crate::named::door::Ask;
use crate::named::keeper::Reference;
use crate::named::register::Entry;

/// What is counted and loaned.
pub(super) const EXTENT_BYTES: u64 = 2 << 20;

/// A cell's frames: which are in use, whose they are, who has them.
pub(super) struct Loans {
    own: CellId,
    most_bytes: u64,
    table: FrameTable,
    /// By the region that they are for.
    loaned: BTreeMap<u64, Loaned>,
}

struct Loaned {
    client: CellId,
    frames: Vec<Frame>,
    /// Nobody here looks at them.
    _exports: Exports,
}

/// Where a region's frames are from.
#[derive(Debug, Default)]
pub(super) struct Provenance {
    frames: Vec<Frame>,
}

impl Provenance {
    /// Its memory home, if that is another cell.
    pub(super) fn borrowed_from(&self, own: u32) -> Option<u32> {
        self.frames.first().map(|frame| frame.home.0).filter(|&home| home != own)
    }
}

impl Loans {
    /// A cell that may have so many bytes of frames.
    pub(super) fn new(own: u32, most_bytes: u64) -> Self {
        let own = CellId(own);
        let extents = most_bytes / EXTENT_BYTES;
        let (most_bytes, table) = (extents * EXTENT_BYTES, FrameTable::new(own, extents));
        Self { own, most_bytes, table, loaned: BTreeMap::new() }
    }

    /// Bytes that are not in use.
    pub(super) fn free_bytes(&self) -> u64 {
        self.table.free() as u64 * EXTENT_BYTES
    }

    /// Bytes of its own that are in use, or loaned.
    pub(super) fn reserved_bytes(&self) -> u64 {
        self.most_bytes - self.free_bytes()
    }

    /// So many extents, all of one cell; or the cell to borrow them from.
    fn take(
        &mut self,
        extents: u64,
        acceptable: &[CellId],
        preferred: Option<CellId>,
    ) -> Result<Vec<Frame>, Option<CellId>> {
        let mut taken: Vec<Frame> = Vec::new();
        while (taken.len() as u64) < extents {
            let allocated = self.table.allocate(acceptable, preferred);
            match allocated {
                Some(Allocated::Frame(frame))
                    if taken.first().is_none_or(|first| first.home == frame.home) =>
                {
                    taken.push(frame);
                }
                other => {
                    let another = match other {
                        Some(Allocated::Frame(frame)) => {
                            self.give_up([frame]);
                            // Not enough of the first: somebody has to have all.
                            acceptable.iter().copied().find(|&cell| cell != self.own)
                        }
                        Some(Allocated::BorrowFrom(cell)) => Some(cell),
                        None => None,
                    };
                    self.give_up(taken);
                    return Err(another);
                }
            }
        }
        Ok(taken)
    }

    /// Extents are not used any more. Those that were borrowed are to be returned.
    fn give_up(&mut self, frames: impl IntoIterator<Item = Frame>) {
        for frame in frames {
            let given_up = self.table.give_up(frame);
            debug_assert!(given_up.is_ok(), "{frame:?}: {given_up:?}");
        }
    }

    /// Another cell wants so many extents for a region.
    pub(super) fn loan(&mut self, client: u32, region: u64, extents: u64) -> Result<Vec<Frame>, String> {
        if (self.table.free() as u64) < extents {
            return Err(format!("{} has {} bytes of frames left", self.own, self.free_bytes()));
        }
        if self.loaned.contains_key(&region) {
            return Err("frames for that region are on loan already".to_owned());
        }
        let mut loaned = Vec::new();
        for _ in 0..extents {
            let frame = self.table.loanable().ok_or("no frame is left")?;
            self.table.loan_frame(CellId(client), frame).map_err(|error| error.to_string())?;
            loaned.push(frame);
        }
        Ok(loaned)
    }

    /// They are on their way.
    pub(super) fn is_loaned(&mut self, client: u32, region: u64, frames: Vec<Frame>, exports: Exports) {
        let loaned = Loaned { client: CellId(client), frames, _exports: exports };
        self.loaned.insert(region, loaned);
    }

    /// A cell says that it uses them no more.
    pub(super) fn returned(&mut self, client: u32, region: u64) -> Result<(), String> {
        if self.loaned.get(&region).is_none_or(|loaned| loaned.client != CellId(client)) {
            return Err("no such frames are on loan".to_owned());
        }
        let loaned = self.loaned.remove(&region).expect("just seen");
        loaned.frames.into_iter().try_for_each(|frame| {
            self.table.returned(loaned.client, frame).map_err(|error| error.to_string())
        })
    }

    /// A cell is dead: what it had borrowed is free, and what was borrowed from it is gone.
    pub(super) fn cell_ended(&mut self, cell: u32) {
        let cell = CellId(cell);
        self.table.dead(cell);
        self.loaned.retain(|_, loaned| loaned.client != cell);
    }
}

impl Office {
    /// Frames for a region: of the memory home that was asked for, or this cell's own, or another's that has some.
    pub(super) fn frames_for(
        &self,
        entry: &Entry,
        memory_home: Option<u32>,
    ) -> Result<(Exports, Provenance), String> {
        let allocation = entry.allocation;
        let bytes = allocation.layout().map_err(|error| error.to_string())?.frame_bytes();
        let of_our_own = || Exports::create(bytes).map_err(|error| error.to_string());
        if allocation.terms.sparse {
            return Ok((of_our_own()?, Provenance::default()));
        }
        let (own, extents) = (CellId(self.options.cell), bytes.div_ceil(EXTENT_BYTES));
        let preferred = memory_home.map(CellId);
        let mut acceptable = vec![own];
        acceptable.extend(self.options.others.iter().flat_map(|others| others.cells()));
        if let Some(home) = preferred.filter(|home| !acceptable.contains(home)) {
            return Err(format!("{home} is not here to have frames of: `comb ps` shows which are"));
        }
        let mut why = String::new();
        loop {
            let taken = self.books().loans.take(extents, &acceptable, preferred);
            match taken {
                Ok(frames) if frames.first().is_none_or(|frame| frame.home == own) => {
                    let exports = of_our_own().inspect_err(|_| self.books().loans.give_up(frames.clone()))?;
                    return Ok((exports, Provenance { frames }));
                }
                // What was borrowed before and is not in use: it is never kept.
                Ok(frames) => self.books().loans.give_up(frames),
                Err(Some(lender)) => match self.borrow(lender, allocation.offset, extents) {
                    Ok(borrowed) => return Ok(borrowed),
                    Err(refused) => why = format!("; {lender} refuses: {refused}"),
                },
                Err(None) => {}
            }
            // Another one, unless somebody wanted that one.
            let tried = acceptable.iter().position(|&cell| cell != own);
            match tried.filter(|_| preferred.is_none()) {
                Some(tried) => drop(acceptable.remove(tried)),
                None => {
                    return Err(format!(
                        "{bytes} bytes of frames are not left in any acceptable cell ({} has {}){why}",
                        own,
                        self.books().loans.free_bytes()
                    ));
                }
            }
        }
    }

    fn borrow(&self, from: CellId, region: u64, extents: u64) -> Result<(Exports, Provenance), String> {
        let door = Ask::at(&self.options.runtime, from.0).map_err(|error| error.to_string())?;
        let (numbers, files) =
            door.borrow(region, extents, self.options.cell).map_err(|error| error.to_string())?;
        let frames: Vec<Frame> = numbers.into_iter().map(|number| Frame { home: from, number }).collect();
        let entered = (|| {
            let [file, to_read] =
                <[OwnedFd; 2]>::try_from(files).map_err(|_| "no frames came with it".to_owned())?;
            let exports = Exports::borrow(file, to_read).map_err(|error| error.to_string())?;
            let mut books = self.books();
            for &frame in &frames {
                books.loans.table.borrow_frame(frame).map_err(|error| error.to_string())?;
            }
            let taken = books.loans.take(extents, &[from], Some(from));
            taken
                .map(|frames| (exports, Provenance { frames }))
                .map_err(|_| "fewer came than were asked for".to_owned())
        })();
        entered.inspect_err(|_| drop(door.give_back(region, self.options.cell)))
    }

    /// A region is no more: its frames are free, or go back.
    pub(super) fn give_frames_back(&self, region: u64, provenance: Provenance) {
        let from = provenance.borrowed_from(self.options.cell);
        let mut books = self.books();
        books.loans.give_up(provenance.frames.iter().copied());
        if from.is_some() {
            for frame in provenance.frames {
                let _ = books.loans.table.return_frame(frame);
            }
        }
        drop(books);
        if let Some(from) = from {
            let _ = Ask::at(&self.options.runtime, from)
                .and_then(|door| door.give_back(region, self.options.cell));
        }
    }

    /// Another home wants frames for a region of its own.
    pub(super) fn loan(
        &self,
        client: u32,
        region: u64,
        extents: u64,
    ) -> Result<(Vec<u64>, Vec<OwnedFd>), String> {
        let frames = self.books().loans.loan(client, region, extents)?;
        let made = (|| {
            let exports = Exports::create(extents * EXTENT_BYTES).map_err(|error| error.to_string())?;
            // If this cell dies, its memory is gone, whoever uses it.
            self.keep(Reference::Frames { region }, &[exports.file()])?;
            let files =
                [exports.file(), exports.file_to_read()].map(|file| rustix::io::fcntl_dupfd_cloexec(file, 0));
            let files: Result<Vec<OwnedFd>, _> = files.into_iter().collect();
            Ok((exports, files.map_err(|error| error.to_string())?))
        })();
        let mut books = self.books();
        match made {
            Ok((exports, files)) => {
                let numbers = frames.iter().map(|frame| frame.number).collect();
                books.loans.is_loaned(client, region, frames, exports);
                Ok((numbers, files))
            }
            Err(why) => {
                for frame in frames {
                    let _ = books.loans.table.returned(CellId(client), frame);
                }
                Err(why)
            }
        }
    }

    /// They come back.
    pub(super) fn take_loan_back(&self, client: u32, region: u64) -> Result<(), String> {
        self.books().loans.returned(client, region)?;
        if let Some(keeper) = &self.options.keeper {
            keeper.release(region);
        }
        Ok(())
    }
}

impl Books {
    /// Regions whose memory home is one of these: their frames are gone.
    pub(super) fn in_frames_of(&self, dead: &[u32], own: u32) -> Vec<u64> {
        let is_gone =
            |provenance: &Provenance| provenance.borrowed_from(own).is_some_and(|home| dead.contains(&home));
        self.regions
            .iter()
            .filter(|(_, region)| is_gone(&region.provenance))
            .map(|(&offset, _)| offset)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(numbers: &[u32]) -> Vec<CellId> {
        numbers.iter().copied().map(CellId).collect()
    }

    #[test]
    fn all_frames_of_a_region_are_of_one_cell() {
        let mut loans = Loans::new(1, 5 * EXTENT_BYTES);
        let acceptable = cells(&[1, 2]);
        let first = loans.take(3, &acceptable, None).unwrap();
        assert!(first.iter().all(|frame| frame.home == CellId(1)) && loans.free_bytes() == 2 * EXTENT_BYTES);
        // Two are left, and three are wanted: they are another's, and the two are still there.
        assert_eq!(loans.take(3, &acceptable, None), Err(Some(CellId(2))));
        assert_eq!(loans.take(3, &cells(&[1]), None), Err(None));
        assert_eq!(loans.free_bytes(), 2 * EXTENT_BYTES);
        assert_eq!(loans.take(1, &acceptable, Some(CellId(2))), Err(Some(CellId(2))), "as was asked");
        for number in 0..3 {
            loans.table.borrow_frame(Frame { home: CellId(2), number }).unwrap();
        }
        let borrowed = loans.take(3, &acceptable, Some(CellId(2))).unwrap();
        assert!(borrowed.iter().all(|frame| frame.home == CellId(2)));
        assert_eq!(Provenance { frames: borrowed }.borrowed_from(1), Some(2));
        assert_eq!(Provenance { frames: first.clone() }.borrowed_from(1), None);
        loans.give_up(first);
        assert_eq!(loans.free_bytes(), 5 * EXTENT_BYTES);
    }

    #[test]
    fn frames_on_loan_come_back_from_who_has_them_or_when_it_is_dead() {
        let mut loans = Loans::new(1, 5 * EXTENT_BYTES);
        let exports = || Exports::create(EXTENT_BYTES).unwrap();
        for (client, region) in [(2, 7), (3, 8)] {
            let frames = loans.loan(client, region, 2).unwrap();
            loans.is_loaned(client, region, frames, exports());
        }
        assert!(loans.loan(2, 9, 2).is_err() && loans.loan(2, 7, 1).is_err());
        assert!(loans.returned(3, 7).is_err(), "it is another's");
        assert!(loans.returned(2, 9).is_err());
        loans.cell_ended(3);
        assert_eq!(loans.free_bytes(), 3 * EXTENT_BYTES);
        assert!(loans.returned(3, 8).is_err());
    }
}
