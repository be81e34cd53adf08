//! What a whole member writes to its log, and how it goes on from there.
//!
//! One log has it all, in one order: updates, what regroup must not forget, and snapshots that take the place of everything before.
//! `ALGORITHM.md` says what must be on the disk before what is said.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use comb_types::{Incarnation, Time};
use serde::{Deserialize, Serialize};

use super::{Event, Inside, Stack};
use crate::circles::Circles;
use crate::join::{self, Join};
use crate::order::{self, LogError, Order};
use crate::regroup::{self, Mark, Memory, Regroup};
use crate::view::{Member, View};

#[cfg(test)]
mod tests;

/// How large a log grows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogConfig {
    /// When so much was written since the last snapshot, and more than that was long, the next is made.
    pub most_bytes: u64,
}

impl Default for LogConfig {
    /// Some seconds to read after a restart.
    fn default() -> Self {
        Self { most_bytes: 64 << 20 }
    }
}

#[derive(Serialize, Deserialize)]
enum Record<'a> {
    /// As ordered update wants it.
    Updates(#[serde(borrow)] &'a [u8]),
    Memory(Memory),
    Snapshot(order::Snapshot),
    /// Lives from this on may have been admitted to a view; none has said anything in one.
    Petition {
        since: Incarnation,
    },
}

impl Record<'_> {
    fn write(&self) -> Vec<u8> {
        postcard::to_allocvec(self).expect("our own records can be written")
    }
}

/// What waits until a record is on the disk.
#[derive(Clone, Copy, Debug)]
enum Written {
    /// Acknowledgements up to this position.
    Updates(u64),
    /// Whatever regroup and join have to say.
    Memory,
    /// To be let in.
    Petition,
    Nothing,
}

/// What was written, and what is on its way to the disk.
#[derive(Clone, Debug, Default)]
pub(super) struct Writing {
    number: u64,
    under_way: VecDeque<(u64, Written)>,
    /// What the last memory was that was written.
    mark: Option<Mark>,
    memories_under_way: usize,
    is_flushed: bool,
    has_petitioned: bool,
    /// The state of another member that this one went on from.
    adopted: Option<order::Snapshot>,
    bytes_since_snapshot: u64,
    snapshot_bytes: u64,
    is_compacting: bool,
    unwanted_states: u32,
}

impl Stack {
    /// A node that goes on from its log, of which these are the records. If a quorum of its last view comes back, they go on from
    /// there; if the others have gone on without it, it joins them by way of [`join::Config::contacts`]. With an empty log it
    /// joins.
    ///
    /// The first event is [`Event::Restore`], and then come the updates that followed, when the group has agreed on them.
    pub fn resuming<'a>(
        config: super::Config,
        me: Member,
        now: Time,
        records: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<Self, LogError> {
        let mut order = Order::joining(config.order.clone(), me, order::Snapshot::default());
        let (mut memory, mut since, mut state) = (None::<Memory>, None, Vec::new());
        for bytes in records {
            match postcard::from_bytes(bytes).map_err(|_| LogError::Unreadable)? {
                Record::Updates(updates) => order.replay(updates)?,
                Record::Memory(next) if !next.is_sound() => return Err(LogError::Unreadable),
                Record::Memory(next) => {
                    let is_another = |before: &Memory| before.view().epoch < next.view().epoch;
                    if memory.as_ref().is_none_or(is_another) {
                        order.replay_cut(next.cut());
                    }
                    (memory, since) = (Some(next), None);
                }
                Record::Snapshot(snapshot) if !Circles::is_sound(&snapshot.state) => {
                    return Err(LogError::Unreadable);
                }
                Record::Snapshot(snapshot) => {
                    state.clone_from(&snapshot.state);
                    order = Order::joining(config.order.clone(), me, snapshot);
                }
                Record::Petition { since: first } => (memory, since) = (None, Some(first)),
            }
        }
        let contacts = config.join.contacts.clone();
        let Some(memory) = memory else {
            let join = Join::again(me, since.unwrap_or(me.incarnation), config.join.clone(), now);
            let mut stack = Self::new(config, me, join, contacts, now);
            stack.writing.has_petitioned = since.is_some();
            return Ok(stack);
        };
        let me =
            Member { incarnation: me.incarnation.max(Incarnation(memory.seat().incarnation.0 + 1)), ..me };
        if memory.seat().node != me.node {
            return Err(LogError::OfAnother { node: memory.seat().node });
        }
        order.go_on_as(me, memory.view().clone());
        let (view, cut, holders) = (memory.view().clone(), memory.cut(), memory.holders());
        let mut join = Join::within(me, config.join.clone(), now, view.clone());
        let told = join.handle(now, join::Input::Decided { view, cut, holders });
        debug_assert!(told.is_ok(), "only a peer's message is refused");
        let mut stack = Self::new(config, me, join, contacts, now);
        stack.writing.mark = Some(memory.mark());
        stack.events.push_back(Event::Restore { position: order.delivered(), state });
        let lacks_some = order.held() < memory.cut();
        let (view, cut, holders) =
            (stack.as_this_life(memory.view().clone()), memory.cut(), memory.holders());
        let regroup = Regroup::resuming(me, stack.config.regroup, now, memory);
        stack.inside = Some(Inside { order, regroup });
        if lacks_some {
            stack.tell_order(now, order::Input::Change { view, cut, holders });
        }
        stack.connect(now);
        Ok(stack)
    }

    fn has_log(&self) -> bool {
        self.config.order.has_log
    }

    /// Whether all that regroup must not forget is on the disk. Nobody hears a word of it before.
    pub(super) fn is_remembered(&self) -> bool {
        let mark = self.regroup().map(Regroup::mark);
        !self.has_log() || (self.writing.memories_under_way == 0 && mark == self.writing.mark)
    }

    /// Whether it goes on for a former life, and is in no view itself.
    pub(super) fn is_back(&self) -> bool {
        self.regroup().is_some_and(Regroup::is_back)
    }

    /// Writes what regroup must not forget, if that is news.
    pub(super) fn remember(&mut self) {
        let Some(Inside { regroup, .. }) = &self.inside else { return };
        let mark = Some(regroup.mark());
        if self.has_log() && mark != self.writing.mark {
            let memory = Record::Memory(regroup.memory()).write();
            self.writing.mark = mark;
            self.writing.memories_under_way += 1;
            self.append(Written::Memory, memory);
        }
    }

    pub(super) fn write_updates(&mut self, position: u64, updates: &[u8]) {
        self.append(Written::Updates(position), Record::Updates(updates).write());
    }

    fn append(&mut self, written: Written, bytes: Vec<u8>) {
        self.writing.number += 1;
        let number = self.writing.number;
        self.writing.bytes_since_snapshot += bytes.len() as u64;
        self.writing.under_way.push_back((number, written));
        self.events.push_back(Event::Persist { number, bytes });
    }

    fn replace(&mut self, written: Written, records: Vec<Vec<u8>>) {
        self.writing.number += 1;
        let number = self.writing.number;
        self.writing.bytes_since_snapshot = 0;
        self.writing.snapshot_bytes = records.iter().map(|record| record.len() as u64).sum();
        self.writing.under_way.push_back((number, written));
        self.events.push_back(Event::Replace { number, records });
    }

    /// In the place of the log: a snapshot, what regroup must not forget, and the updates that follow.
    fn replace_by(&mut self, written: Written, snapshot: order::Snapshot) {
        let Some(Inside { order, regroup }) = &self.inside else { return };
        let behind = order.record_behind(snapshot.position);
        let behind = behind.map(|updates| Record::Updates(&updates).write());
        let memory = Record::Memory(regroup.memory()).write();
        self.writing.mark = Some(regroup.mark());
        let records = [Record::Snapshot(snapshot).write(), memory].into_iter().chain(behind);
        self.replace(written, records.collect());
    }

    /// A joiner is in, with this state.
    pub(super) fn write_joined(&mut self, snapshot: order::Snapshot) {
        if self.has_log() {
            self.writing.memories_under_way += 1;
            self.replace_by(Written::Memory, snapshot);
        }
    }

    /// Ordered update is about to go on from another member's state.
    pub(super) fn adopts(&mut self, snapshot: &order::Snapshot) {
        if self.has_log() {
            self.writing.adopted = Some(snapshot.clone());
        }
    }

    pub(super) fn write_adopted(&mut self, position: u64) {
        if let Some(snapshot) = self.writing.adopted.take() {
            self.replace_by(Written::Updates(position), snapshot);
        }
    }

    /// A joiner has the state. Before it asks to be let in, its disk says that it does: if it crashes then, its next life can
    /// speak for it.
    pub(super) fn synchronised(&mut self, now: Time) {
        if self.has_log() && !self.writing.has_petitioned {
            let petition = Record::Petition { since: self.join.since() };
            self.replace(Written::Petition, alloc::vec![petition.write()]);
        } else {
            self.is_synchronised(now);
        }
    }

    /// All up to the cut is on the disk; that there is this cut has to be, too, before anybody counts on it.
    pub(super) fn flushed(&mut self, now: Time) {
        if self.is_remembered() {
            self.tell_regroup(now, regroup::Input::Flushed);
        } else {
            self.writing.is_flushed = true;
        }
    }

    /// Another cut counts now.
    pub(super) fn must_flush_again(&mut self) {
        self.writing.is_flushed = false;
    }

    /// Every record up to this is on the disk.
    pub(super) fn persisted(&mut self, now: Time, number: u64) {
        while let Some(&(_, written)) = self.writing.under_way.front().filter(|(first, _)| *first <= number) {
            self.writing.under_way.pop_front();
            match written {
                Written::Updates(position) => self.tell_order(now, order::Input::Persisted { position }),
                Written::Memory => self.writing.memories_under_way -= 1,
                Written::Petition => {
                    self.writing.has_petitioned = true;
                    self.is_synchronised(now);
                }
                Written::Nothing => {}
            }
        }
        if self.writing.is_flushed && self.is_remembered() {
            self.writing.is_flushed = false;
            self.tell_regroup(now, regroup::Input::Flushed);
        }
    }

    /// The group has gone on without the seat that this member had. What it holds may not be what they have.
    pub(super) fn join_anew(&mut self, now: Time) {
        self.inside = None;
        self.given = None;
        self.decided.clear();
        // The answer to what was asked before is still to come, and is of no use.
        self.writing.unwanted_states += u32::from(self.unfinished.take().is_some());
        for (_, written) in &mut self.writing.under_way {
            if let Written::Updates(_) = written {
                *written = Written::Nothing;
            }
        }
        self.writing.mark = None;
        self.writing.is_flushed = false;
        self.join = Join::new(self.me, self.config.join.clone(), now);
    }

    /// As ordered update is told of it, which knows no seats.
    pub(super) fn as_this_life(&self, mut view: View) -> View {
        let me = self.me;
        view.members.iter_mut().filter(|member| member.node == me.node).for_each(|member| *member = me);
        view
    }

    /// Asks for the state if somebody lacks it, or if enough was written since the last time.
    pub(super) fn ask_for_state(&mut self) {
        let has_log = self.has_log();
        let Some(Inside { order, .. }) = &mut self.inside else { return };
        let enough = self.config.log.most_bytes.max(self.writing.snapshot_bytes);
        let is_long = has_log && self.writing.bytes_since_snapshot > enough;
        let is_due = is_long && order.is_at_work();
        if (is_due || self.is_giving) && self.unfinished.is_none() {
            self.writing.is_compacting = is_due;
            order.keep_behind(is_due.then(|| order.delivered()));
            self.unfinished = Some(order.snapshot(Vec::new()));
            self.events.push_back(Event::WantsState);
        }
    }

    /// That is the state. If too much was forgotten since, it will be asked for again.
    pub(super) fn compact(&mut self, snapshot: &order::Snapshot) {
        let is_whole = self.order().is_some_and(|order| order.keeps_all_behind(snapshot.position));
        if core::mem::take(&mut self.writing.is_compacting) && is_whole {
            self.replace_by(Written::Nothing, snapshot.clone());
        }
        if let Some(Inside { order, .. }) = &mut self.inside {
            order.keep_behind(None);
        }
    }

    /// Whether a state that was given answers a question that nobody asks any more.
    pub(super) fn is_unwanted_state(&mut self) -> bool {
        let less = self.writing.unwanted_states.checked_sub(1);
        self.writing.unwanted_states = less.unwrap_or(0);
        less.is_some()
    }

    fn is_synchronised(&mut self, now: Time) {
        let position = self.given.as_ref().map_or(0, |given| given.position);
        self.tell_join(now, join::Input::Synchronised { position });
    }

    fn tell_join(&mut self, now: Time, input: join::Input<'_>) {
        let told = self.join.handle(now, input);
        debug_assert!(told.is_ok(), "only a peer's message is refused");
    }
}
