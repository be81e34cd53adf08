//! What the next life of a cell makes of the regions that were lost with the one before: each that has a checkpoint is there again, under its name, at its
//! addresses, and with what it contained when that was written. It is of another generation: who had it attached has lost it. (Hive §4.2)

use super::shared::Shared;
use super::{Books, Office};
use crate::named::keeper::Reference;
use crate::named::register::{Entry, RegisterError};
use crate::named::saving::Opened;

/// Names of regions without a checkpoint are free again. The others are made by [`inherit`].
pub(super) fn forget_the_lost(office: &Office) -> Result<(), RegisterError> {
    for entry in office.register.of_cell(office.options.cell)? {
        if entry.saved.is_none() {
            office.register.remove(&entry.name)?;
        }
    }
    Ok(())
}

/// Makes the regions of earlier lives anew. Reads files: nobody is to wait for that who need not.
pub(super) fn inherit(office: &Office) {
    let Ok(entries) = office.register.of_cell(office.options.cell) else { return };
    for entry in entries.into_iter().filter(|entry| entry.incarnation != office.options.incarnation) {
        let name = entry.name.clone();
        if let Err(why) = make_anew(office, entry) {
            eprintln!("comb: region {name} is lost: {why}");
            let _ = office.register.remove(&name);
        }
    }
}

/// A region as it is at its last checkpoint, or with nothing in it.
pub(super) fn make_anew(office: &Office, mut entry: Entry) -> Result<(), String> {
    let saved = entry.saved.as_deref().map(Opened::open).transpose().map_err(|error| error.to_string())?;
    if saved.as_ref().is_some_and(|saved| saved.bytes() > entry.allocation.bytes) {
        return Err("what its checkpoint holds is longer than it was".to_owned());
    }
    entry.incarnation = office.options.incarnation;
    entry.allocation.generation = office.books().next_generation(entry.allocation.generation);
    let (exports, provenance) = office.frames_for(&entry, None)?;
    let mut region = Shared::new(entry.clone(), exports, office.options.published.clone());
    region.provenance = provenance;
    if let Some(saved) = saved {
        saved.fill(&mut region).map_err(|error| error.to_string())?;
        region.saved = saved.as_saved();
    }
    let reference = Reference::Frames { region: entry.allocation.offset };
    office.keep(reference, &[region.body.exports.file()])?;
    let mut books = office.books();
    if let Some(showing) = &mut books.showing {
        showing.show(&entry).map_err(|error| error.to_string())?;
    }
    books.regions.insert(entry.allocation.offset, region);
    drop(books);
    // Not before: whoever finds it attaches it.
    office.register.renew(&entry).map_err(|error| error.to_string())
}

impl Books {
    /// One that no region here has had, nor the one that had this.
    pub(super) fn next_generation(&mut self, before: u32) -> u32 {
        self.generation = self.generation.max(before).wrapping_add(1);
        self.generation
    }
}
