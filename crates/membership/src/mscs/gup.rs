//! The global update protocol: one lock, one sender, one receiver after the other. (§7.8)
//!
//! The locker gives out the lock, and with it the update's number; it applies the update before anybody else. The sender carries it
//! to the others in the order of the circular list, from the locker on, itself included at its place. So those that have an update
//! are always a first part of that list, and when the locker fails, the next in the list knows of it if anybody does: that is
//! what makes the failure cases work.
//!
//! Calls are made between nodes of one epoch only, and all that are under way end when a membership is installed: then
//! [`Gup::installed`] goes on from what is known. That is how a failed RPC "waits for the regroup algorithm to run".

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::fmt;

use comb_types::NodeId;
use serde::{Deserialize, Serialize};

use super::node_set::NodeSet;
use super::rpc::CallId;

/// Names an update, so that it is known again when its sender comes with it a second time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct UpdateId {
    /// Who sends it.
    pub origin: NodeId,
    /// In which of its lives.
    pub life: u64,
    /// As its how manieth.
    pub number: u64,
}

/// What an update changes.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    /// Whatever the driver keeps.
    Data(Vec<u8>),
    /// Nobody else may join now. (§7.7.1, phase 2)
    LockJoin {
        /// Who does.
        joiner: NodeId,
        /// By whom.
        sponsor: NodeId,
    },
    /// The joiner is fully operational, and the next may join. (§7.7.1, phase 6)
    UnlockJoin {
        /// Who.
        joiner: NodeId,
    },
    /// The join came to nothing.
    AbortJoin {
        /// Whose.
        joiner: NodeId,
    },
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Update {
    pub(super) id: UpdateId,
    pub(super) change: Change,
}

impl fmt::Debug for Change {
    /// Data may be long, and says nothing to who reads a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Data(data) => write!(f, "{} bytes", data.len()),
            Self::LockJoin { joiner, sponsor } => write!(f, "{joiner} joins by {sponsor}"),
            Self::UnlockJoin { joiner } => write!(f, "{joiner} is operational"),
            Self::AbortJoin { joiner } => write!(f, "{joiner} does not join"),
        }
    }
}

impl fmt::Display for Update {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}, number {} of {}", self.change, self.id.number, self.id.origin)
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum Request {
    /// To the locker: the lock, and the update that it is wanted for.
    Lock(Update),
    Apply {
        sequence: u64,
        update: Update,
    },
    /// To the locker: all have it.
    Unlock {
        sequence: u64,
    },
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    Granted { sequence: u64 },
    Done,
}

/// Whose join goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct JoinLock {
    pub(super) joiner: NodeId,
    pub(super) sponsor: NodeId,
}

/// What every operational node has alike after the same updates.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Replica {
    /// How many updates.
    pub(super) applied: u64,
    /// Of all of them, in their order.
    pub(super) digest: u64,
    /// Who receives updates: the members that have finished their join.
    pub(super) operational: NodeSet,
    pub(super) join_lock: Option<JoinLock>,
    pub(super) locker: NodeId,
}

/// What is to be done outside.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Act {
    Call {
        to: NodeId,
        request: Request,
    },
    Answer {
        to: NodeId,
        call: CallId,
        answer: Answer,
    },
    Applied {
        sequence: u64,
        digest: u64,
        update: Update,
    },
    /// Every operational member has an update of this node's.
    Completed {
        id: UpdateId,
    },
    /// The lock was given for an update whose predecessors are not here.
    Behind,
}

#[derive(Debug)]
struct Holder {
    node: NodeId,
    sequence: u64,
}

#[derive(Debug)]
struct Waiter {
    from: NodeId,
    /// None if it is this node itself.
    call: Option<CallId>,
    update: Update,
}

#[derive(Debug)]
enum Stage {
    Locking,
    /// Who is done with it, besides the locker.
    Updating {
        sequence: u64,
        done: NodeSet,
    },
    /// `is_news` is whether the update was not yet said to be complete.
    Unlocking {
        sequence: u64,
        is_news: bool,
    },
}

#[derive(Debug)]
struct Sending {
    update: Update,
    stage: Stage,
}

/// A transmission that the locker took over.
#[derive(Debug)]
struct Replay {
    sequence: u64,
    done: NodeSet,
}

#[derive(Debug)]
pub(super) struct Gup {
    me: NodeId,
    life: u64,
    number: u64,
    members: NodeSet,
    /// Whether the replica is the cluster's, and not that of a node that has yet to join.
    is_synchronized: bool,
    replica: Replica,
    /// The update that was applied last, for a replay.
    last: Option<Update>,
    holder: Option<Holder>,
    waiting: VecDeque<Waiter>,
    replay: Option<Replay>,
    own: VecDeque<Update>,
    sending: Option<Sending>,
    pub(super) acts: VecDeque<Act>,
}

impl Gup {
    /// Of a member of a cluster in which nothing was updated yet.
    pub(super) fn member(me: NodeId, life: u64, members: NodeSet) -> Self {
        let locker = members.first().unwrap_or(me);
        let replica = Replica { applied: 0, digest: 0, operational: members, join_lock: None, locker };
        Self {
            me,
            life,
            number: 0,
            members,
            is_synchronized: true,
            replica,
            last: None,
            holder: None,
            waiting: VecDeque::new(),
            replay: None,
            own: VecDeque::new(),
            sending: None,
            acts: VecDeque::new(),
        }
    }

    /// Of a node that is to join.
    pub(super) fn joiner(me: NodeId, life: u64) -> Self {
        Self { is_synchronized: false, ..Self::member(me, life, NodeSet::of(me)) }
    }

    pub(super) fn replica(&self) -> &Replica {
        &self.replica
    }

    /// Whether this node sends an update or has one to send.
    pub(super) fn is_sending(&self) -> bool {
        self.sending.is_some() || !self.own.is_empty()
    }

    /// Updates all nodes, after what is under way here already.
    pub(super) fn submit(&mut self, change: Change) -> UpdateId {
        let update = self.name(change);
        let id = update.id;
        self.own.push_back(update);
        self.pump();
        id
    }

    /// As [`Gup::submit`], before what waits here.
    pub(super) fn submit_first(&mut self, change: Change) -> UpdateId {
        let update = self.name(change);
        let id = update.id;
        self.own.push_front(update);
        self.pump();
        id
    }

    fn name(&mut self, change: Change) -> Update {
        self.number += 1;
        Update { id: UpdateId { origin: self.me, life: self.life, number: self.number }, change }
    }

    /// A node has become a member; it gets no updates before it is operational.
    pub(super) fn add_member(&mut self, joiner: NodeId) {
        self.members.insert(joiner);
    }

    /// What the joiner got from another's database; older news than its own are none.
    pub(super) fn synchronize(&mut self, members: NodeSet, replica: Replica) {
        self.members = members;
        if self.is_synchronized && replica.applied < self.replica.applied {
            return;
        }
        self.replica = replica;
        self.is_synchronized = true;
        if let Some(Sending { update, stage: Stage::Updating { sequence, done } }) = &mut self.sending
            && *sequence <= self.replica.applied
        {
            self.last = Some(update.clone());
            done.insert(self.me);
        }
    }

    /// Goes on after [`Act::Behind`].
    pub(super) fn go_on(&mut self) {
        if let Some(Sending { stage: Stage::Updating { .. }, .. }) = self.sending {
            self.step();
        } else {
            self.pump();
        }
    }

    /// What a member needs to know of the others before it has their database.
    pub(super) fn acquaint(&mut self, members: NodeSet, operational: NodeSet, locker: NodeId) {
        self.members = members;
        self.replica.operational = operational;
        self.replica.locker = locker;
    }

    /// Calls from a member of the same epoch. The error says which rule it breaks.
    pub(super) fn receive(
        &mut self,
        from: NodeId,
        call: CallId,
        request: Request,
    ) -> Result<(), &'static str> {
        if !self.is_synchronized {
            return Err("an update for a node that has not joined");
        }
        match request {
            Request::Lock(update) => {
                if self.replica.locker != self.me {
                    return Err("asks for the lock where it is not");
                }
                if update.id.origin != from {
                    return Err("asks for the lock in another's name");
                }
                self.lock(Waiter { from, call: Some(call), update });
                return Ok(());
            }
            Request::Apply { sequence, update } => self.receive_update(sequence, update)?,
            Request::Unlock { sequence } => {
                if self.replica.locker != self.me {
                    return Err("gives the lock back where it is not");
                }
                let is_held =
                    self.holder.as_ref().is_some_and(|it| it.node == from && it.sequence == sequence);
                if is_held && self.replay.is_none() {
                    self.holder = None;
                }
            }
        }
        self.acts.push_back(Act::Answer { to: from, call, answer: Answer::Done });
        self.serve_waiting();
        Ok(())
    }

    fn receive_update(&mut self, sequence: u64, update: Update) -> Result<(), &'static str> {
        let applied = self.replica.applied;
        if sequence == applied && self.last.as_ref().is_some_and(|last| last.id != update.id) {
            return Err("two updates with one number");
        }
        if sequence > applied.saturating_add(1) {
            return Err("an update that skips some");
        }
        self.apply(sequence, update);
        Ok(())
    }

    /// The answer to a call that this node made.
    pub(super) fn answered(&mut self, from: NodeId, request: &Request, answer: &Answer) {
        match (request, answer) {
            (Request::Lock(update), Answer::Granted { sequence }) => self.granted(update.id, *sequence),
            (Request::Apply { update, sequence }, Answer::Done) => self.has_applied(from, *sequence, update),
            (Request::Unlock { sequence: unlocked }, Answer::Done) => {
                if let Some(Sending { stage: Stage::Unlocking { sequence, is_news }, .. }) = self.sending
                    && sequence == *unlocked
                {
                    self.complete(is_news);
                }
            }
            _ => {}
        }
    }

    /// At the locker.
    fn lock(&mut self, waiter: Waiter) {
        let is_last = self.last.as_ref().is_some_and(|last| last.id == waiter.update.id);
        let holds = self.holder.as_ref().is_some_and(|holder| holder.node == waiter.from);
        if is_last && self.replay.is_none() {
            // It had the lock for this before the former locker failed, and goes on here. (Failure case 3)
            let sequence = self.replica.applied;
            self.holder = Some(Holder { node: waiter.from, sequence });
            self.answer_grant(&waiter, sequence);
            return;
        }
        if holds && self.replay.is_none() {
            // It would not ask for another one if it had not finished: a former locker has its unlock.
            self.holder = None;
        }
        self.waiting.push_back(waiter);
        self.serve_waiting();
    }

    fn serve_waiting(&mut self) {
        if self.holder.is_some() || self.replay.is_some() || self.replica.locker != self.me {
            return;
        }
        let Some(waiter) = self.waiting.pop_front() else { return };
        let sequence = self.replica.applied.saturating_add(1);
        self.holder = Some(Holder { node: waiter.from, sequence });
        self.apply(sequence, waiter.update.clone());
        self.answer_grant(&waiter, sequence);
    }

    fn answer_grant(&mut self, waiter: &Waiter, sequence: u64) {
        match waiter.call {
            Some(call) => {
                let answer = Answer::Granted { sequence };
                self.acts.push_back(Act::Answer { to: waiter.from, call, answer });
            }
            None => self.granted(waiter.update.id, sequence),
        }
    }

    fn apply(&mut self, sequence: u64, update: Update) {
        let replica = &mut self.replica;
        if replica.applied.checked_add(1) != Some(sequence) {
            return;
        }
        replica.applied = sequence;
        replica.digest = digest(replica.digest, &update);
        match update.change {
            Change::Data(_) => {}
            Change::LockJoin { joiner, sponsor } => {
                if replica.join_lock.is_none() && self.members.contains(sponsor) {
                    replica.join_lock = Some(JoinLock { joiner, sponsor });
                }
            }
            Change::UnlockJoin { joiner } => {
                replica.operational.insert(joiner);
                replica.join_lock = replica.join_lock.filter(|lock| lock.joiner != joiner);
            }
            Change::AbortJoin { joiner } => {
                replica.join_lock = replica.join_lock.filter(|lock| lock.joiner != joiner);
            }
        }
        self.last = Some(update.clone());
        let digest = replica.digest;
        self.acts.push_back(Act::Applied { sequence, digest, update });
    }

    /// Starts with the next update of this node's.
    fn pump(&mut self) {
        if self.sending.is_some() || !self.is_synchronized {
            return;
        }
        let Some(update) = self.own.pop_front() else { return };
        self.sending = Some(Sending { update, stage: Stage::Locking });
        self.ask_for_lock();
    }

    fn ask_for_lock(&mut self) {
        let Some(sending) = &mut self.sending else { return };
        sending.stage = Stage::Locking;
        let update = sending.update.clone();
        if self.replica.locker == self.me {
            self.lock(Waiter { from: self.me, call: None, update });
        } else {
            self.acts.push_back(Act::Call { to: self.replica.locker, request: Request::Lock(update) });
        }
    }

    fn granted(&mut self, id: UpdateId, sequence: u64) {
        let Some(sending) = &mut self.sending else { return };
        if sending.update.id == id && matches!(sending.stage, Stage::Locking) {
            sending.stage = Stage::Updating { sequence, done: NodeSet::EMPTY };
            self.step();
        }
    }

    fn has_applied(&mut self, node: NodeId, applied: u64, update: &Update) {
        if let Some(Sending { update: own, stage: Stage::Updating { sequence, done } }) = &mut self.sending
            && own.id == update.id
            && *sequence == applied
        {
            done.insert(node);
            self.step();
        } else if let Some(replay) = &mut self.replay
            && replay.sequence == applied
        {
            replay.done.insert(node);
            self.step_replay();
        }
    }

    /// Who comes next in the circular list, beginning after the locker and ending before it. A joiner that says that it is
    /// operational applies that last: others do not know yet that it has a place in the list.
    fn next_receiver(&self, done: NodeSet) -> Option<NodeId> {
        let locker = self.replica.locker;
        let mut left = self.replica.operational.within(self.members).without(done);
        left.remove(locker);
        let is_left = self.me != locker && !done.contains(self.me);
        left.after(locker).or_else(|| is_left.then_some(self.me))
    }

    fn step(&mut self) {
        let Some(Sending { update, stage: Stage::Updating { sequence, done } }) = &self.sending else {
            return;
        };
        let (update, sequence, mut done) = (update.clone(), *sequence, *done);
        if sequence > self.replica.applied.saturating_add(1) {
            self.acts.push_back(Act::Behind);
            return;
        }
        let mut next = self.next_receiver(done);
        if next == Some(self.me) {
            self.apply(sequence, update.clone());
            done.insert(self.me);
            next = self.next_receiver(done);
        }
        let stage = match next {
            Some(_) => Stage::Updating { sequence, done },
            None => Stage::Unlocking { sequence, is_news: true },
        };
        self.sending = Some(Sending { update: update.clone(), stage });
        match next {
            Some(to) => {
                let request = Request::Apply { sequence, update };
                self.acts.push_back(Act::Call { to, request });
            }
            None => self.unlock(sequence),
        }
    }

    fn unlock(&mut self, sequence: u64) {
        if self.replica.locker == self.me {
            self.holder = None;
            self.complete(true);
            self.serve_waiting();
        } else {
            let request = Request::Unlock { sequence };
            self.acts.push_back(Act::Call { to: self.replica.locker, request });
        }
    }

    fn complete(&mut self, is_news: bool) {
        let Some(sending) = self.sending.take() else { return };
        if is_news {
            self.acts.push_back(Act::Completed { id: sending.update.id });
        }
        self.pump();
    }

    /// A membership was installed: no call is under way any more. All are told the same locker, by the one that
    /// decided on the membership: who is operational, members may see differently while a joiner says that it is.
    pub(super) fn installed(&mut self, members: NodeSet, locker: NodeId) {
        let removed = self.members.without(members);
        self.members = members;
        let replica = &mut self.replica;
        let is_alive = |lock: &JoinLock| members.contains(lock.sponsor) && !removed.contains(lock.joiner);
        replica.join_lock = replica.join_lock.filter(is_alive);
        replica.operational = replica.operational.within(members);
        if replica.operational.is_empty() {
            // Nobody is left but who was joining: what it has is all there is.
            replica.operational = members;
            self.is_synchronized = true;
        }
        let has_moved = core::mem::replace(&mut replica.locker, locker) != locker;
        if !self.is_synchronized {
            return;
        }
        // Who waited asks again.
        self.waiting.clear();
        if self.replica.locker == self.me {
            self.take_lock_over(has_moved);
        }
        self.resume(has_moved);
        self.serve_waiting();
    }

    /// At the locker: who holds the lock now?
    fn take_lock_over(&mut self, is_new_here: bool) {
        if is_new_here {
            // The last update may not be finished, and whether it is, only its sender knows.
            let last = self.last.as_ref().map(|last| last.id.origin);
            self.holder = last.map(|node| Holder { node, sequence: self.replica.applied });
        }
        let Some(holder) = &self.holder else { return };
        if holder.node == self.me {
            let own = self.sending.as_ref().map(|sending| sending.update.id);
            if self.last.as_ref().map(|last| last.id) != own {
                self.holder = None;
            }
        } else if !self.members.contains(holder.node) {
            // The sender failed: the locker completes what it stored. (Failure cases 1 and 4)
            let done = self.replay.take().map_or(NodeSet::EMPTY, |replay| replay.done);
            self.replay = Some(Replay { sequence: holder.sequence, done });
            self.step_replay();
        }
    }

    fn step_replay(&mut self) {
        let Some(replay) = &mut self.replay else { return };
        replay.done.insert(self.me);
        let (sequence, done) = (replay.sequence, replay.done);
        match (self.next_receiver(done), &self.last) {
            (Some(to), Some(last)) => {
                let request = Request::Apply { sequence, update: last.clone() };
                self.acts.push_back(Act::Call { to, request });
            }
            _ => {
                self.replay = None;
                self.holder = None;
                self.serve_waiting();
            }
        }
    }

    /// At a sender: goes on with the members that are left.
    fn resume(&mut self, has_moved: bool) {
        let locker = self.replica.locker;
        let applied = self.replica.applied;
        let Some(sending) = &mut self.sending else {
            let is_mine = |last: &Update| last.id.origin == self.me && last.id.life == self.life;
            if has_moved
                && locker != self.me
                && let Some(last) = self.last.clone().filter(is_mine)
            {
                // The new locker cannot know that this was finished, and waits for its unlock.
                let stage = Stage::Unlocking { sequence: applied, is_news: false };
                self.sending = Some(Sending { update: last, stage });
                self.unlock(applied);
            }
            return self.pump();
        };
        match &sending.stage {
            Stage::Locking => self.ask_for_lock(),
            Stage::Updating { sequence, done } => {
                let has_it = if locker == self.me { applied >= *sequence } else { done.contains(locker) };
                if has_moved && !has_it {
                    // Nobody that is left has it, or the new locker has and will say so.
                    self.ask_for_lock();
                } else {
                    self.step();
                }
            }
            Stage::Unlocking { sequence, is_news } => {
                let (sequence, is_news) = (*sequence, *is_news);
                if locker == self.me {
                    // The former locker may have taken our unlock and given the lock to another: then that is its.
                    self.holder.take_if(|holder| holder.node == self.me);
                    self.complete(is_news);
                } else {
                    self.unlock(sequence);
                }
            }
        }
    }
}

/// Two replicas with the same digest have applied the same updates in the same order, as surely as 64 bits can say.
fn digest(before: u64, update: &Update) -> u64 {
    let bytes = postcard::to_allocvec(update).expect("our own updates can be written");
    bytes.iter().fold(before.wrapping_add(0x9e37_79b9_7f4a_7c15), |digest, byte| {
        (digest ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3).rotate_left(7)
    })
}

#[cfg(test)]
mod tests;
