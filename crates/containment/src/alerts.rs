//! Hints about cells become alerts, and alerts are voted on. (Hive §4.3)
//!
//! One cell that is wrong about another, or lies, must not be able to have it killed, and must not be able to keep all others busy with
//! alerts for ever. So each cell looks for itself and tells all others what it found, each counts by itself, and a cell whose
//! alert is voted down twice is a suspect.
//!
//! A verdict is not yet a death: membership agrees on who lives, with the verdict as its reason. Two cells may count differently, if a
//! liar tells them different things; the agreement is what makes them one.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use comb_types::{CellId, Time};
use serde::{Deserialize, Serialize};

use crate::transmit::To;

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

/// What speaks against a cell.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Finding {
    /// Its tick stands still.
    Silent,
    /// Its process, or memory that it has, is gone.
    Gone,
    /// It has not answered a call within its limit.
    Late,
    /// What it has written fails a check.
    Corrupt,
    /// It said that it is about to go.
    Leaving,
    /// It raised the same alert twice and was voted down both times. [`Alerts`] finds this itself.
    Slander,
}

/// How long things take.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Config {
    /// How long after it was heard an alert is over that no majority has decided. Whoever is asked to look has to answer within it.
    pub limit: Duration,
    /// So long a cell does not raise the same alert again. Several limits, lest votes on one are counted for the next.
    pub pause: Duration,
    /// So long a cell's wrong alerts are held against it.
    pub memory: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            // A tick of a live cell moves several times in it, so that whoever looks has seen it move.
            limit: Duration::from_millis(20),
            pause: Duration::from_millis(100),
            // Two mistakes a day apart are bad luck, two in a minute are not.
            memory: Duration::from_secs(60),
        }
    }
}

/// What cells tell each other about a third.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Message {
    /// An alert, and its sender's vote for it.
    Raise {
        /// Against whom.
        suspect: CellId,
        /// Why.
        finding: Finding,
    },
    /// What the sender found when it looked.
    Vote {
        /// At whom.
        suspect: CellId,
        /// For what.
        finding: Finding,
        /// Whether it found that as well.
        agrees: bool,
    },
}

/// What the driver has to know or to do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Event {
    /// Look whether this is so, and tell [`Alerts::looked`] within [`Config::limit`]. Later is as if not at all.
    Look {
        /// At whom.
        suspect: CellId,
        /// For what.
        finding: Finding,
        /// Who says so.
        by: CellId,
    },
    /// More than half of those who vote found it. Comes once for each life of a suspect.
    Verdict {
        /// Who has failed.
        suspect: CellId,
        /// What they found.
        finding: Finding,
    },
    /// No majority found it.
    VotedDown {
        /// Who may go on.
        suspect: CellId,
        /// What was said of it.
        finding: Finding,
        /// Who said it.
        by: CellId,
    },
}

/// What a peer may not say. Nothing has changed by it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PeerError {
    /// It does not live in our view. If it lives in the next one, it heard of that earlier than we: on its own this proves no fault.
    #[error("{0} is not among the living, and votes")]
    NotLiving(CellId),
    /// It votes about itself.
    #[error("{0} votes about itself")]
    AboutItself(CellId),
    /// What cannot come: it is said in our own name.
    #[error("a message in our own name came to {0}")]
    FromOurselves(CellId),
}

impl PeerError {
    /// Whose fault it is; in the last case, whose name was taken.
    pub fn guilty(self) -> CellId {
        let (Self::NotLiving(cell) | Self::AboutItself(cell) | Self::FromOurselves(cell)) = self;
        cell
    }
}

/// So often the same alert of a cell may be voted down before the cell is a suspect itself. (Hive §4.3)
const MOST_WRONG_ALERTS: u8 = 2;

/// One cell's part in all alerts.
///
/// After each call, take out everything by [`Alerts::poll_transmit`] and [`Alerts::poll_event`]. Whatever peers say, there is an
/// alert at most for each suspect and finding, and in it a vote at most for each cell.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Alerts {
    own: CellId,
    config: Config,
    living: BTreeSet<CellId>,
    alerts: BTreeMap<Charge, Alert>,
    /// Where this cell was asked to look, and until when the answer counts. An alert may end before: the answer goes to all others
    /// nevertheless, for whoever has heard other votes needs it.
    looks: BTreeMap<Charge, Time>,
    /// What this cell has raised, and when.
    raised: BTreeMap<Charge, Time>,
    /// By who raised it.
    voted_down: BTreeMap<(CellId, Charge), Wrong>,
    /// Those in `living` on whom there was a verdict.
    condemned: BTreeSet<CellId>,
    transmits: VecDeque<(To, Message)>,
    events: VecDeque<Event>,
}

/// What is said of whom.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct Charge {
    suspect: CellId,
    finding: Finding,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Alert {
    /// What each said last.
    votes: BTreeMap<CellId, bool>,
    /// Nobody, if votes came on a faster way than the alert itself.
    raisers: BTreeSet<CellId>,
    ends_at: Time,
}

/// How often an alert was voted down.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Wrong {
    times: u8,
    last: Time,
}

impl Alerts {
    /// A cell's part, that has not yet heard who lives.
    pub fn new(own: CellId) -> Self {
        Self::with_config(own, Config::default())
    }

    /// The same, with other times.
    pub fn with_config(own: CellId, config: Config) -> Self {
        Self {
            own,
            config,
            living: BTreeSet::new(),
            alerts: BTreeMap::new(),
            looks: BTreeMap::new(),
            raised: BTreeMap::new(),
            voted_down: BTreeMap::new(),
            condemned: BTreeSet::new(),
            transmits: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// These live, as agreed, and this cell among them. What concerns others is forgotten; alerts that are open are counted anew.
    ///
    /// A cell that has died and come back between two views is told of by [`Alerts::reborn`].
    pub fn living(&mut self, now: Time, cells: &[CellId]) {
        let living: BTreeSet<CellId> = cells.iter().copied().collect();
        let gone: Vec<CellId> = self.living.difference(&living).copied().collect();
        self.living = living;
        gone.into_iter().for_each(|cell| self.forget(cell));
        self.handle_timeout(now);
        self.decide_all(now);
    }

    /// A cell that was living lives again, and has nothing to do with its former life.
    pub fn reborn(&mut self, now: Time, cell: CellId) {
        self.forget(cell);
        self.decide_all(now);
    }

    /// This cell found something itself, which raises an alert, unless this cell raised it a moment ago. If another has raised it, this
    /// is a vote on that one.
    pub fn hint(&mut self, now: Time, suspect: CellId, finding: Finding) {
        // What is slander says the record, and nothing else.
        if finding != Finding::Slander {
            self.handle_timeout(now);
            self.find(now, Charge { suspect, finding });
        }
    }

    /// What this cell found when it was asked to look.
    pub fn looked(&mut self, now: Time, suspect: CellId, finding: Finding, agrees: bool) {
        self.handle_timeout(now);
        let charge = Charge { suspect, finding };
        let has_voted = self.alerts.get(&charge).is_some_and(|alert| alert.votes.contains_key(&self.own));
        if self.looks.remove(&charge).is_some() && !has_voted {
            self.vote(now, charge, agrees);
        }
    }

    /// A cell says something.
    pub fn handle(&mut self, now: Time, from: CellId, message: Message) -> Result<(), PeerError> {
        let (Message::Raise { suspect, finding } | Message::Vote { suspect, finding, .. }) = message;
        if from == self.own {
            return Err(PeerError::FromOurselves(from));
        }
        if !self.living.contains(&from) {
            return Err(PeerError::NotLiving(from));
        }
        if from == suspect {
            return Err(PeerError::AboutItself(from));
        }
        self.handle_timeout(now);
        // Views come to one cell earlier than to another: whom we do not know, others may. And what was decided is decided.
        if self.living.contains(&suspect) && !self.condemned.contains(&suspect) {
            let charge = Charge { suspect, finding };
            match message {
                Message::Raise { .. } => self.hear_alert(now, from, charge),
                Message::Vote { agrees, .. } => self.hear_vote(now, from, charge, agrees),
            }
            self.decide(now, charge);
        }
        Ok(())
    }

    /// What is to be sent.
    pub fn poll_transmit(&mut self) -> Option<(To, Message)> {
        self.transmits.pop_front()
    }

    /// What is to be done.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Ends what is over. To be called at [`Alerts::next_timeout`].
    pub fn handle_timeout(&mut self, now: Time) {
        let over = self.alerts.iter().filter(|(_, alert)| alert.ends_at <= now);
        let over: Vec<Charge> = over.map(|(&charge, _)| charge).collect();
        for charge in over {
            // Nobody is blamed for it: those who did not vote may be slow, or as dead as the suspect.
            let alert = self.alerts.remove(&charge).expect("just seen");
            self.tell_voted_down(charge, &alert);
        }
        self.looks.retain(|_, until| *until > now);
        self.raised.retain(|_, at| now.since(*at) < self.config.pause);
        self.voted_down.retain(|_, wrong| now.since(wrong.last) < self.config.memory);
    }

    /// When to call [`Alerts::handle_timeout`], even if nothing comes.
    pub fn next_timeout(&self) -> Option<Time> {
        self.alerts.values().map(|alert| alert.ends_at).min()
    }

    /// Whoever raises it: this cell found it itself.
    fn find(&mut self, now: Time, charge: Charge) {
        let Charge { suspect, finding } = charge;
        let is_voter = self.may_vote(self.own, suspect) && self.living.contains(&suspect);
        if !is_voter || self.condemned.contains(&suspect) {
            return;
        }
        if !self.raised.contains_key(&charge) && !self.is_proven_wrong(self.own, charge) {
            // Though another may have raised it: perhaps to us alone.
            self.raised.insert(charge, now);
            self.open(now, self.own, charge);
            self.transmits.push_back((To::Others, Message::Raise { suspect, finding }));
            self.decide(now, charge);
        } else if self.alerts.get(&charge).is_some_and(|alert| alert.votes.get(&self.own) != Some(&true)) {
            self.vote(now, charge, true);
        }
    }

    fn hear_alert(&mut self, now: Time, from: CellId, charge: Charge) {
        if self.slanders(from) {
            // Nobody needs to look any more at what it says.
            return self.hear_vote(now, from, charge, true);
        }
        self.open(now, from, charge);
        let has_voted = self.alerts[&charge].votes.contains_key(&self.own);
        if !self.may_vote(self.own, charge.suspect) || has_voted {
            return;
        }
        if charge.finding != Finding::Slander {
            if !self.looks.contains_key(&charge) {
                self.looks.insert(charge, now.saturating_add(self.config.limit));
                let Charge { suspect, finding } = charge;
                self.events.push_back(Event::Look { suspect, finding, by: from });
            }
        } else if self.slanders(charge.suspect) {
            self.vote(now, charge, true);
        }
        // Whoever has no record does not say no: its own votes may be still on their way to it.
    }

    fn hear_vote(&mut self, now: Time, from: CellId, charge: Charge, agrees: bool) {
        let ends_at = now.saturating_add(self.config.limit);
        let alert = self.alerts.entry(charge).or_insert_with(|| Alert::unraised(ends_at));
        let is_first = alert.votes.insert(from, agrees).is_none();
        if is_first && alert.raisers.is_empty() {
            alert.ends_at = ends_at;
        }
    }

    /// There is an alert now, and `by` is for it.
    fn open(&mut self, now: Time, by: CellId, charge: Charge) {
        let ends_at = now.saturating_add(self.config.limit);
        let alert = self.alerts.entry(charge).or_insert_with(|| Alert::unraised(ends_at));
        if alert.raisers.is_empty() {
            alert.ends_at = ends_at;
        }
        alert.raisers.insert(by);
        alert.votes.insert(by, true);
    }

    /// This cell's vote.
    fn vote(&mut self, now: Time, charge: Charge, agrees: bool) {
        if let Some(alert) = self.alerts.get_mut(&charge) {
            alert.votes.insert(self.own, agrees);
        }
        let Charge { suspect, finding } = charge;
        self.transmits.push_back((To::Others, Message::Vote { suspect, finding, agrees }));
        self.decide(now, charge);
    }

    fn decide_all(&mut self, now: Time) {
        let open: Vec<Charge> = self.alerts.keys().copied().collect();
        open.into_iter().for_each(|charge| self.decide(now, charge));
    }

    /// Ends an alert that a majority has decided.
    fn decide(&mut self, now: Time, charge: Charge) {
        let Some(alert) = self.alerts.get(&charge) else { return };
        let voters = self.living.iter().filter(|&&cell| self.may_vote(cell, charge.suspect)).count();
        let agreeing = alert.votes.values().filter(|&&agrees| agrees).count();
        let against = alert.votes.len() - agreeing;
        if 2 * agreeing > voters {
            self.condemn(charge);
        } else if !alert.raisers.is_empty() && 2 * (voters - against) <= voters {
            let alert = self.alerts.remove(&charge).expect("just seen");
            self.tell_voted_down(charge, &alert);
            self.blame(now, charge, &alert);
        }
    }

    fn condemn(&mut self, charge: Charge) {
        let Charge { suspect, finding } = charge;
        self.alerts.retain(|other, _| other.suspect != suspect);
        // The suspect itself hears of its failure in the next view.
        if self.condemned.insert(suspect) && suspect != self.own {
            self.events.push_back(Event::Verdict { suspect, finding });
        }
    }

    fn tell_voted_down(&mut self, charge: Charge, alert: &Alert) {
        let Charge { suspect, finding } = charge;
        let told = alert.raisers.iter().map(|&by| Event::VotedDown { suspect, finding, by });
        self.events.extend(told);
    }

    /// Those who raised an alert were wrong.
    ///
    /// Nobody is wrong about slander: whether others have the same record depends on what the slanderer told whom.
    fn blame(&mut self, now: Time, charge: Charge, alert: &Alert) {
        if charge.finding == Finding::Slander {
            return;
        }
        for &raiser in &alert.raisers {
            let wrong = self.voted_down.entry((raiser, charge)).or_insert(Wrong { times: 0, last: now });
            *wrong = Wrong { times: wrong.times.saturating_add(1), last: now };
            if wrong.times >= MOST_WRONG_ALERTS {
                self.find(now, Charge { suspect: raiser, finding: Finding::Slander });
            }
        }
    }

    /// Whether a cell was wrong about this once too often.
    fn is_proven_wrong(&self, raiser: CellId, charge: Charge) -> bool {
        self.voted_down.get(&(raiser, charge)).is_some_and(|wrong| wrong.times >= MOST_WRONG_ALERTS)
    }

    /// Whether it was wrong about anything once too often.
    fn slanders(&self, cell: CellId) -> bool {
        let mut wrong = self.voted_down.iter().filter(|((raiser, _), _)| *raiser == cell);
        wrong.any(|(_, wrong)| wrong.times >= MOST_WRONG_ALERTS)
    }

    fn may_vote(&self, cell: CellId, suspect: CellId) -> bool {
        cell != suspect && self.living.contains(&cell)
    }

    /// Forgets all that was said of a cell, and all that it said.
    fn forget(&mut self, cell: CellId) {
        self.alerts.retain(|charge, _| charge.suspect != cell);
        self.looks.retain(|charge, _| charge.suspect != cell);
        for alert in self.alerts.values_mut() {
            alert.votes.remove(&cell);
            alert.raisers.remove(&cell);
        }
        self.raised.retain(|charge, _| charge.suspect != cell);
        self.voted_down.retain(|(raiser, charge), _| *raiser != cell && charge.suspect != cell);
        self.condemned.remove(&cell);
    }
}

impl Alert {
    /// Of which only votes were heard.
    fn unraised(ends_at: Time) -> Self {
        Self { votes: BTreeMap::new(), raisers: BTreeSet::new(), ends_at }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Silent => "its tick stands still",
            Self::Gone => "it is gone",
            Self::Late => "it does not answer in time",
            Self::Corrupt => "what it writes fails a check",
            Self::Leaving => "it says that it goes",
            Self::Slander => "it was voted down twice for the same alert",
        })
    }
}
