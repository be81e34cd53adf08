//! Recovery between two barriers, started anew by every view. (Hive §4.3)
//!
//! Before the first barrier each cell takes the dead's rights away and removes what its processes have mapped of them. Behind it no
//! valid access is under way any more, to anybody, and so each cell can look undisturbed at what the dead could have written, and
//! discard that. Behind the second one nobody can come upon what another has still to discard.
//!
//! A cell that dies meanwhile makes another view, and all begin again: with the dead of that view, and with those whose round was not
//! over.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use comb_types::{CellId, Incarnation};
use serde::{Deserialize, Serialize};

use crate::transmit::To;

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

/// A point that all who live in a view reach before any goes on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Barrier {
    /// Nothing of the dead has rights or is mapped here.
    First,
    /// What the dead could have written here is discarded.
    Second,
}

/// What cells tell each other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Message {
    /// The sender has come to a barrier. Whoever is at the second was at the first.
    Reached {
        /// Of which view.
        epoch: u64,
        /// Which of the two.
        barrier: Barrier,
        /// It waits for others and has said this before: whoever has gone on says so. An answer is no question, or two that have gone on would have something
        /// to say to each other for ever.
        asks: bool,
    },
}

/// What an [`Event`] asks the driver for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Step {
    /// See [`Event::CutOff`].
    CutOff,
    /// See [`Event::Discard`].
    Discard,
}

/// Lives that are over.
pub type Dead = Vec<(CellId, Incarnation)>;

/// What the driver has to do. Events of an earlier epoch may be left alone when one of a later has come, but for the last.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Event {
    /// Hold up accesses to others, take all rights from the dead and remove what is mapped of them; then tell [`Recovery::done`].
    CutOff {
        /// Of which view.
        epoch: u64,
        /// Whose. Nobody's, if the view has only gained members.
        dead: Dead,
    },
    /// Discard what these could have written here; then tell [`Recovery::done`].
    Discard {
        /// Of which view.
        epoch: u64,
        /// Who.
        dead: Dead,
    },
    /// All have. What was held up goes on or gets its error.
    Resumed {
        /// Of which view.
        epoch: u64,
        /// Since the last of these events. Who came and went in views that this cell has not heard of is not among them: nothing
        /// here was theirs.
        dead: Dead,
        /// Whether this cell looks after those who are missing: checks what they ran on, and has them started anew.
        master: bool,
    },
}

/// What a peer may not say. Nothing has changed by it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PeerError {
    /// It is not in the view whose barriers it says it is at.
    #[error("{0} is at a barrier of a view in which it does not live")]
    NotLiving(CellId),
    /// It says that all were at the first barrier, and we were not.
    #[error("{0} is at the second barrier before we are at the first")]
    TooEarly(CellId),
    /// What cannot come: it is said in our own name.
    #[error("a message in our own name came to {0}")]
    FromOurselves(CellId),
}

impl PeerError {
    /// Whose fault it is; in the last case, whose name was taken.
    pub fn guilty(self) -> CellId {
        let (Self::NotLiving(cell) | Self::TooEarly(cell) | Self::FromOurselves(cell)) = self;
        cell
    }
}

/// One cell's part in all rounds.
///
/// After each call, take out everything by [`Recovery::poll_transmit`] and [`Recovery::poll_event`]. What a peer says takes two
/// numbers, however much it says.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Recovery {
    own: CellId,
    epoch: u64,
    living: BTreeMap<CellId, Incarnation>,
    phase: Phase,
    /// Since the last round that came to its end.
    dead: BTreeSet<(CellId, Incarnation)>,
    /// What each said last of each barrier, this cell too. Of later epochs as well: their views may be on their way here.
    reached: BTreeMap<(CellId, Barrier), u64>,
    transmits: VecDeque<(To, Message)>,
    events: VecDeque<Event>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Phase {
    /// No round is under way.
    Resumed,
    /// The driver cuts off.
    CuttingOff,
    AtFirst,
    /// The driver discards.
    Discarding,
    AtSecond,
}

impl Recovery {
    /// A cell's part, before its first view.
    pub fn new(own: CellId) -> Self {
        Self {
            own,
            epoch: 0,
            living: BTreeMap::new(),
            phase: Phase::Resumed,
            dead: BTreeSet::new(),
            reached: BTreeMap::new(),
            transmits: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// An agreed view, of which this cell is a member: a round begins, whatever was under way. Epochs begin at 1; a view that is not
    /// later than the last is ignored. Whoever lived in the last view, and does not in this one or does anew, is dead.
    pub fn view(&mut self, epoch: u64, living: &[(CellId, Incarnation)]) {
        let living: BTreeMap<CellId, Incarnation> = living.iter().copied().collect();
        if epoch <= self.epoch || !living.contains_key(&self.own) {
            return;
        }
        let gone = self.living.iter().filter(|(cell, life)| living.get(cell) != Some(life));
        let gone: BTreeMap<CellId, Incarnation> = gone.map(|(&cell, &life)| (cell, life)).collect();
        self.dead.extend(gone.iter().map(|(&cell, &life)| (cell, life)));
        (self.epoch, self.living, self.phase) = (epoch, living, Phase::CuttingOff);
        // What comes from others for this view may have come already. What a life said that is over does not hold for the next one.
        let members = &self.living;
        let may_count = |cell: &CellId, of: u64| of > epoch || of == epoch && members.contains_key(cell);
        self.reached.retain(|(cell, _), of| !gone.contains_key(cell) && may_count(cell, *of));
        self.events.push_back(Event::CutOff { epoch, dead: self.dead() });
    }

    /// The driver has done what an event asked for. Of an earlier epoch, it does not matter any more.
    pub fn done(&mut self, epoch: u64, step: Step) {
        if epoch != self.epoch {
            return;
        }
        let barrier = match (self.phase, step) {
            (Phase::CuttingOff, Step::CutOff) => Barrier::First,
            (Phase::Discarding, Step::Discard) => Barrier::Second,
            _ => return,
        };
        self.phase = if barrier == Barrier::First { Phase::AtFirst } else { Phase::AtSecond };
        self.reached.insert((self.own, barrier), epoch);
        self.transmits.push_back((To::Others, Message::Reached { epoch, barrier, asks: false }));
        self.go_on();
    }

    /// A cell says something.
    pub fn handle(&mut self, from: CellId, message: Message) -> Result<(), PeerError> {
        let Message::Reached { epoch, barrier, asks } = message;
        if from == self.own {
            return Err(PeerError::FromOurselves(from));
        }
        if epoch < self.epoch || epoch == 0 {
            return Ok(());
        }
        if epoch == self.epoch {
            if !self.living.contains_key(&from) {
                return Err(PeerError::NotLiving(from));
            }
            if barrier == Barrier::Second && self.phase == Phase::CuttingOff {
                return Err(PeerError::TooEarly(from));
            }
        }
        if asks && epoch == self.epoch && self.phase == Phase::Resumed && self.has_said(Barrier::Second) {
            // All were at the second barrier: it has said so before, and has not heard us.
            let answer = Message::Reached { epoch, barrier: Barrier::Second, asks: false };
            self.transmits.push_back((To::One(from), answer));
        }
        // The last word counts, not the greatest: that could be one for all time, and the next life's words would be in vain.
        self.reached.insert((from, barrier), epoch);
        self.go_on();
        Ok(())
    }

    /// Says again how far this cell is in the round that is under way. To be called now and then as long as [`Recovery::is_recovering`]: what was
    /// said to a cell that there was no channel to, it has not heard.
    pub fn repeat(&mut self) {
        let said = [Barrier::Second, Barrier::First].into_iter().find(|&barrier| self.has_said(barrier));
        if let Some(barrier) = said.filter(|_| self.is_recovering()) {
            self.transmits
                .push_back((To::Others, Message::Reached { epoch: self.epoch, barrier, asks: true }));
        }
    }

    /// What is to be sent.
    pub fn poll_transmit(&mut self) -> Option<(To, Message)> {
        self.transmits.pop_front()
    }

    /// What is to be done.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Whether anybody has died whose end this cell has not recovered from.
    pub fn has_dead(&self) -> bool {
        !self.dead.is_empty()
    }

    /// Whether a round is under way.
    pub fn is_recovering(&self) -> bool {
        self.phase != Phase::Resumed
    }

    /// The barrier that is awaited, and who has not come to it: nobody, if no round is under way. Whoever stays in this list for long
    /// deserves a look.
    pub fn held_up_by(&self) -> (Barrier, Vec<CellId>) {
        let barrier = match self.phase {
            Phase::CuttingOff | Phase::AtFirst => Barrier::First,
            Phase::Discarding | Phase::AtSecond | Phase::Resumed => Barrier::Second,
        };
        let missing = self.living.keys().copied().filter(|&cell| !self.has_reached(cell, barrier));
        (barrier, if self.is_recovering() { missing.collect() } else { Vec::new() })
    }

    /// From a barrier at which all are.
    fn go_on(&mut self) {
        let epoch = self.epoch;
        if self.phase == Phase::AtFirst && self.is_complete(Barrier::First) {
            self.phase = Phase::Discarding;
            self.events.push_back(Event::Discard { epoch, dead: self.dead() });
        } else if self.phase == Phase::AtSecond && self.is_complete(Barrier::Second) {
            self.phase = Phase::Resumed;
            let (dead, master) = (self.dead(), self.living.keys().next() == Some(&self.own));
            self.dead.clear();
            self.events.push_back(Event::Resumed { epoch, dead, master });
        }
    }

    fn is_complete(&self, barrier: Barrier) -> bool {
        self.living.keys().all(|&cell| self.has_reached(cell, barrier))
    }

    fn has_said(&self, barrier: Barrier) -> bool {
        self.reached.get(&(self.own, barrier)) == Some(&self.epoch)
    }

    fn has_reached(&self, cell: CellId, barrier: Barrier) -> bool {
        let is_at = |barrier| self.reached.get(&(cell, barrier)) == Some(&self.epoch);
        is_at(barrier) || barrier == Barrier::First && is_at(Barrier::Second)
    }

    fn dead(&self) -> Dead {
        self.dead.iter().copied().collect()
    }
}
