//! What the first kernel grants to others, and takes from them: memory that was taken is other memory from then on. (Cache Kernel §2.4, §4.3)

use std::ops::Range;

use rustix::io::Errno;

use super::{CallError, Supervisor};
use crate::frames::{Frames, empty};
use crate::objects::{Access, FRAMES_IN_GROUP, KernelId, Refused, Tag};
use crate::space::SpaceError;

fn no_memory(error: Errno) -> SpaceError {
    SpaceError::Host { action: "give memory", error }
}

impl Supervisor {
    /// Changes what a kernel may do with some page groups. What it may not write any more is other memory from then on, with the same content, and unloaded
    /// from all who had mapped it; so what a kernel still has of it in its own process is nobody's. Who shares such a group is told of it, and what
    /// it stores there until then is lost. Only the first can.
    pub fn set_access(
        &mut self,
        caller: KernelId,
        kernel: KernelId,
        groups: Range<u64>,
        access: Access,
    ) -> Result<(), CallError> {
        let before = self.objects.kernel(kernel)?.groups.clone();
        let changed = self.objects.set_access(&mut self.machine, caller, kernel, groups.clone(), access);
        self.publish();
        changed?;
        let may_write = |group: &u64| before.of_frame(group * FRAMES_IN_GROUP) == Access::ReadWrite;
        let lost: Vec<u32> = groups.filter(may_write).filter_map(|group| u32::try_from(group).ok()).collect();
        if access < Access::ReadWrite {
            self.take_from_spaces(caller, &lost)?;
            lost.iter().try_for_each(|group| self.machine.frames.renew(*group, true)).map_err(no_memory)?;
        }
        Ok(())
    }

    /// Gives page groups other memory, all zeros, and takes what they were from whoever has it. Only the first can.
    pub fn clear_groups(&mut self, caller: KernelId, groups: &[u32]) -> Result<(), CallError> {
        self.take_from_spaces(caller, groups)?;
        Ok(groups.iter().try_for_each(|group| self.machine.frames.renew(*group, false)).map_err(no_memory)?)
    }

    /// As [`Self::clear_groups`], but what they were is put away under a name, behind what is there already: emptied, and still with whoever has it. So a
    /// kernel that is swapped out goes on with the memory that it knows, whichever groups that is. Only the first can.
    pub fn put_away(&mut self, caller: KernelId, name: Tag, groups: &[u32]) -> Result<(), CallError> {
        self.take_from_spaces(caller, groups)?;
        let frames = &mut self.machine.frames;
        // What the host can refuse comes first.
        groups.iter().try_for_each(|group| frames.group(*group).map(drop)).map_err(no_memory)?;
        let new = groups.iter().map(|_| Frames::fresh()).collect::<Result<Vec<_>, _>>().map_err(no_memory)?;
        let away = self.away.entry(name).or_default();
        for (group, new) in groups.iter().zip(new) {
            let old = frames.exchange(*group, new).map_err(no_memory)?;
            let _ = empty(&old);
            away.push_back(old);
        }
        Ok(())
    }

    /// Gives page groups the memory that was put away under a name, all zeros, the oldest first. Only the first can.
    pub fn put_back(&mut self, caller: KernelId, name: Tag, groups: &[u32]) -> Result<(), CallError> {
        self.take_from_spaces(caller, groups)?;
        let away = self.away.entry(name).or_default();
        if away.len() < groups.len() {
            let groups = u32::try_from(groups.len()).expect("there are fewer");
            return Err(Refused::NotAway { name, groups }.into());
        }
        let frames = &mut self.machine.frames;
        groups.iter().try_for_each(|group| frames.group(*group).map(drop)).map_err(no_memory)?;
        // Who has it may have stored there meanwhile.
        away.iter().take(groups.len()).try_for_each(empty).map_err(no_memory)?;
        for (group, file) in groups.iter().zip(away.drain(..groups.len())) {
            frames.exchange(*group, file).map_err(no_memory)?;
        }
        Ok(())
    }

    /// What was put away under a name is not needed any more. Only the first can say so.
    pub fn forget_away(&mut self, caller: KernelId, name: Tag) -> Result<(), CallError> {
        self.take_from_spaces(caller, &[])?;
        self.away.remove(&name);
        Ok(())
    }

    /// Page groups are about to be other memory.
    fn take_from_spaces(&mut self, caller: KernelId, groups: &[u32]) -> Result<(), CallError> {
        let unloaded = self.objects.unload_groups(&mut self.machine, caller, groups);
        self.publish();
        unloaded?;
        for place in self.machine.spaces.iter_mut().flatten() {
            place.space.forget_groups(groups);
        }
        Ok(())
    }
}
