//! Who hears of a message. (§2.2, §4.1)

use super::cache::Objects;
use super::errors::Refused;
use super::ids::{KernelId, SpaceId, ThreadId};
use super::record::{FrameKey, Kind, Record};

/// One who hears of a message, and where it has it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Receiver {
    /// The message is in this space.
    pub space: SpaceId,
    /// On this page.
    pub page: u64,
    /// And this thread is signalled.
    pub thread: ThreadId,
}

impl<S> Objects<S> {
    /// Who is signalled when a message is written to a page: two look-ups, by frame and then by mapping. It may be the sender, too, if it
    /// has a signal thread there. What was found holds as long as [`Self::map_version`] is the same.
    pub fn receivers(
        &self,
        space: SpaceId,
        page: u64,
    ) -> Result<impl Iterator<Item = Receiver> + use<'_, S>, Refused> {
        let sender = self.find_mapping(space, page)?;
        let frame = FrameKey::frame(self.map.at(sender).frame());
        Ok(self.map.dependents(frame).filter_map(|(mapping, record)| {
            let signal = self.map.find_more(Kind::Signal, mapping)?;
            let space = SpaceId(self.spaces.key(record.space()));
            let thread = ThreadId(self.threads.key(self.map.at(signal).thread()));
            Some(Receiver { space, page: record.page(), thread })
        }))
    }

    /// Gives a mapping another signal thread, in place: nothing is unmapped, and no sender goes. So a thread that waits for a message can
    /// be unloaded once another hears of it. (§2.3)
    pub fn redirect(
        &mut self,
        caller: KernelId,
        space: SpaceId,
        page: u64,
        thread: ThreadId,
    ) -> Result<(), Refused> {
        let kernel = self.find_kernel(caller)?;
        self.find_own_space(kernel, space)?;
        let mapping = self.find_mapping(space, page)?;
        let slot = self.find_own_thread(kernel, thread)?;
        let signal = self.map.find_more(Kind::Signal, mapping).ok_or(Refused::NoSignal { space, page })?;
        if self.map.is_crowded(FrameKey::thread(slot)) {
            return Err(Refused::Crowded(thread));
        }
        self.map.remove(signal);
        self.map.insert(Record::signal(mapping, slot));
        Ok(())
    }
}
