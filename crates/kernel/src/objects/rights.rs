//! What threads may do with pages that are mapped, changed in place: as unloading and loading again, for less. (§3: "a small number of special
//! operations")

use super::cache::Objects;
use super::errors::Refused;
use super::ids::{KernelId, SpaceId};
use super::mappings::{Mapping, Walk};
use super::sizes::MAXIMUM_PAGES;

impl<S> Objects<S> {
    /// Whether all that there is to a mapping is loaded already, but for what threads may do with it. Then it may be done from now on.
    pub fn change_rights(&mut self, caller: KernelId, mapping: &Mapping) -> Result<bool, Refused> {
        let kernel = self.find_kernel(caller)?;
        self.find_own_space(kernel, mapping.space)?;
        let Ok(loaded) = self.mapping(mapping.space, mapping.page) else { return Ok(false) };
        let Mapping { writable, executable, .. } = *mapping;
        if (Mapping { writable, executable, stored: mapping.stored, ..loaded }) != *mapping
            || mapping.signal.is_some()
            || mapping.copy_of.is_some()
        {
            return Ok(false);
        }
        self.check_access(kernel, mapping)?;
        let place = self.find_mapping(mapping.space, mapping.page)?;
        let record = self.map.at_mut(place);
        record.set_rights(writable, executable);
        record.set_used(true);
        Ok(true)
    }

    /// Takes the right to store away from all that is mapped in a range. It costs what [`Self::unload_mappings`] does.
    pub fn forbid_writes(
        &mut self,
        caller: KernelId,
        space: SpaceId,
        first_page: u64,
        pages: u64,
    ) -> Result<(), Refused> {
        let space = self.find_own_space(self.find_kernel(caller)?, space)?;
        let end = first_page.checked_add(pages).filter(|end| *end <= MAXIMUM_PAGES);
        let end = end.ok_or(Refused::NoPage(first_page.saturating_add(pages)))?;
        let mut walk = Walk::new(self, space, first_page..end);
        while let Some(place) = walk.next(&self.map) {
            let record = self.map.at_mut(place);
            record.set_rights(false, record.is_executable());
        }
        Ok(())
    }
}
