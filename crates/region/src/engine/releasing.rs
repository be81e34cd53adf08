//! Memory that is given back by another component than the one that has made it: that one does it, between messages.

use std::sync::Arc;

use super::{Engine, Mistake};
use crate::waiting::Slot;
use crate::wire::{Head, Kind};

/// An allocation that the others are told to forget.
pub(super) struct Releasing {
    offset: u64,
    /// Done when all of them have.
    forgotten: Arc<Slot>,
    /// Who wants it, and its token.
    from: u32,
    token: u64,
}

/// To who wants to give back what is not there, or what is being given back.
pub(crate) const NOT_RELEASED: u64 = 1;

impl Engine {
    /// All others are told that an allocation of this component's is no more; the slot ends when they have forgotten it.
    pub(crate) fn begin_to_free(&mut self, offset: u64, slot: &Arc<Slot>) {
        let others = self.core.others();
        slot.begin(u32::try_from(others.len()).expect("as many as ranks"));
        for rank in others {
            let token = self.core.token(rank, slot);
            self.core.say(rank, Kind::Freed, &[token, offset, 0, 0], &[]);
        }
    }

    /// All have forgotten it: its addresses may be given out again.
    pub(crate) fn free(&mut self, offset: u64) {
        let span = self.entries[&offset].shape.layout.span();
        self.remove(offset);
        self.heap.give_back(offset, span);
    }

    pub(super) fn take_release(&mut self, from: u32, head: &Head) -> Result<(), Mistake> {
        let [token, offset, ..] = *head;
        let me = self.core.me.0;
        let is_ours = self.entries.get(&offset).is_some_and(|entry| entry.may_be_freed_by(me));
        if !is_ours || self.releasing.iter().any(|releasing| releasing.offset == offset) {
            self.core.say(from, Kind::Known, &[token, NOT_RELEASED, 0, 0], &[]);
            return Ok(());
        }
        let forgotten = Arc::new(Slot::default());
        self.begin_to_free(offset, &forgotten);
        self.releasing.push(Releasing { offset, forgotten, from, token });
        Ok(())
    }

    pub(super) fn go_on_releasing(&mut self) {
        if self.releasing.is_empty() {
            return;
        }
        let released: Vec<_> =
            self.releasing.extract_if(.., |releasing| releasing.forgotten.is_done()).collect();
        for Releasing { offset, from, token, .. } in released {
            self.free(offset);
            self.core.say(from, Kind::Known, &[token, 0, 0, 0], &[]);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::engine::scene::{allocation, engine};
    use crate::terms::{Guard, Sharing};
    use crate::wire::{self, Kind};

    #[test]
    fn what_another_gives_back_is_freed_by_who_made_it_once_and_nothing_else_is() {
        let mut engine = engine();
        let span = 256 << 20;
        // Far from the slice's beginning, where other tests have theirs.
        let offset = engine.heap.take(span).expect("room") + span;
        engine.heap.give_back(offset - span, span);
        assert!(engine.heap.take_at(offset, 300_000));
        let mut theirs = allocation(offset + (16 << 20), Sharing::Stache, Guard::Page);
        theirs.creator = 1;
        engine.install(allocation(offset, Sharing::Stache, Guard::Page)).expect("installed");
        engine.install(theirs).expect("installed");
        for offset in [offset, theirs.offset, offset, 4096, u64::MAX] {
            let release = wire::pack(&[9, offset, 0, 0]);
            engine.take(2, Kind::Release as u8, &release).expect("a question that may be asked");
            engine.tend();
        }
        assert!(!engine.entries.contains_key(&offset));
        assert!(engine.entries.contains_key(&theirs.offset), "it is not this component's");
        assert!(engine.heap.take_at(offset, 300_000), "its addresses are free");
        engine.remove(theirs.offset);
    }
}
