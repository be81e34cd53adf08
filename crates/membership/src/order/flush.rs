//! Out of one view and into the next, as `regroup` says.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use comb_types::NodeId;

use super::history::History;
use super::sequencer::Sequencer;
use super::{Event, Order, Phase, Progress, Snapshot};
use crate::transmit::To;
use crate::view::{Member, View, ViewEpoch};

/// A view that was agreed and is not installed.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Change {
    pub view: View,
    pub wanted: Wanted,
    is_flushed: bool,
    /// Its view may end before it was installed. What is lacking is still fetched: there may be nobody else to hold it.
    pub is_frozen: bool,
}

/// A cut to be reached.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Wanted {
    /// Of the view that begins there.
    pub epoch: ViewEpoch,
    pub cut: u64,
    /// Who said to hold everything up to it, and then who else may.
    pub holders: Vec<NodeId>,
    turn: usize,
}

impl Wanted {
    fn new(
        epoch: ViewEpoch,
        cut: u64,
        mut holders: Vec<NodeId>,
        others: impl Iterator<Item = NodeId>,
    ) -> Self {
        for other in others {
            if !holders.contains(&other) {
                holders.push(other);
            }
        }
        Self { epoch, cut, holders, turn: 0 }
    }

    /// Whom to ask now: the same until it is silent, and then the next.
    pub(super) fn holder(&self, me: NodeId) -> Option<NodeId> {
        let others: Vec<_> = self.holders.iter().filter(|&&holder| holder != me).collect();
        others.get(self.turn % others.len().max(1)).map(|&&holder| holder)
    }

    pub(super) fn holder_was_silent(&mut self) {
        self.turn += 1;
    }
}

impl Order {
    pub(super) fn freeze(&mut self) {
        if let Phase::Out = self.phase {
            return;
        }
        if let Phase::Changing(change) = &mut self.phase {
            change.is_frozen = true;
        } else {
            self.leave_normal();
            self.phase = Phase::Frozen;
        }
        // What is not on the disk yet could be missing when it is asked for: a crash would make a cut that nobody holds.
        let held = self.persisting.limit(&self.config, self.history.held());
        self.events.push_back(Event::Position(held));
    }

    /// Nothing of what was under way in the view is of use.
    fn leave_normal(&mut self) {
        self.sequencer = None;
        self.outbox.freeze();
        self.history.forget_early();
        self.transmits.retain(|cast| cast.to != To::Others);
        (self.is_ack_due, self.ack_at, self.fetch_at) = (false, None, None);
    }

    pub(super) fn change(&mut self, view: View, cut: u64, holders: Vec<NodeId>) {
        if let Phase::Out = self.phase {
            return;
        }
        assert!(cut >= self.delivered, "what was delivered belongs to every later view");
        self.leave_normal();
        self.reach = None;
        let former = core::mem::replace(&mut self.latest, view.clone());
        if !view.members.contains(&self.me) {
            self.phase = Phase::Out;
            return;
        }
        let is_holder = holders.contains(&self.me.node);
        self.trust_log(is_holder);
        self.history.truncate(cut);
        self.persisting.truncate(self.history.held());
        self.recount();
        // The holders may die first. Then all that is left of the former view is asked, and those who may have fetched it since.
        let wanted = Wanted::new(view.epoch, cut, holders, former.nodes().chain(view.nodes()));
        self.phase = Phase::Changing(Change { view, wanted, is_flushed: false, is_frozen: false });
        self.fetch_after = self.config.resend_after;
        self.check_flushed();
    }

    /// The view that is frozen may end at this cut. Nothing is thrown away for it: it may end at another.
    pub(super) fn reach(&mut self, cut: u64, holders: Vec<NodeId>) {
        if !self.is_frozen() {
            return;
        }
        let epoch = ViewEpoch(self.latest.epoch.0 + 1);
        let wanted = Wanted::new(epoch, cut, holders, self.latest.nodes());
        match &mut self.reach {
            // A later ballot with the same holders: the turn goes on.
            Some(reach) if reach.holders == wanted.holders => reach.cut = cut,
            _ => {
                self.reach = Some(wanted);
                (self.fetch_at, self.fetch_after) = (None, self.config.resend_after);
                // Of a life that goes on from a log, nobody has counted them yet.
                self.recount();
            }
        }
        self.check_reached();
    }

    pub(super) fn is_frozen(&self) -> bool {
        match &self.phase {
            Phase::Frozen => true,
            Phase::Changing(change) => change.is_frozen,
            Phase::Joining | Phase::Normal | Phase::Out => false,
        }
    }

    /// The cut that is to be reached.
    pub(super) fn wanted(&mut self) -> Option<&mut Wanted> {
        match (&mut self.reach, &mut self.phase) {
            (Some(reach), _) => Some(reach),
            (None, Phase::Changing(change)) => Some(&mut change.wanted),
            (None, _) => None,
        }
    }

    /// The numbers as of what is held.
    fn recount(&mut self) {
        self.ordered.clone_from(&self.numbers);
        for position in self.delivered + 1..=self.history.held() {
            if let Some(held) = self.history.get(position) {
                self.ordered.insert(held.sender, held.number);
            }
        }
    }

    /// Tells when everything up to a cut is here; asks for it if not.
    pub(super) fn check_cuts(&mut self) {
        self.check_flushed();
        self.check_reached();
    }

    fn check_reached(&mut self) {
        let held = self.persisting.limit(&self.config, self.history.held());
        let Some(reach) = &self.reach else { return };
        if held >= reach.cut {
            self.reach = None;
            self.fetch_at = None;
            self.events.push_back(Event::Position(held));
            self.check_flushed();
        } else if self.fetch_at.is_none() {
            self.fetch();
        }
    }

    fn check_flushed(&mut self) {
        let held = self.persisting.limit(&self.config, self.history.held());
        let Phase::Changing(change) = &mut self.phase else { return };
        if held < change.wanted.cut {
            if self.fetch_at.is_none() {
                self.fetch();
            }
            return;
        }
        if self.reach.is_none() {
            self.fetch_at = None;
        }
        self.persisting.forget_former();
        if !core::mem::replace(&mut change.is_flushed, true) {
            self.events.push_back(Event::Flushed);
        }
    }

    pub(super) fn install(&mut self, view: View) {
        if let Phase::Changing(change) = &self.phase {
            assert!(change.is_flushed && change.view == view, "a view is installed after it was flushed");
        } else {
            assert!(matches!(self.phase, Phase::Joining), "a view is installed after it was agreed");
        }
        assert!(view.members.contains(&self.me), "a view is installed by its members");
        // What was not committed could be lost with its holders, up to now: it is delivered only here, and still before
        // anything of the new view.
        let cut = self.history.held();
        self.deliver(cut);
        self.outbox.held_by_all(cut, &mut self.events);
        self.numbers.retain(|member, _| view.members.contains(member));
        self.ordered.clone_from(&self.numbers);
        self.progress = Progress { committed: cut, stable: cut, trim: self.history.first() - 1, last: cut };
        self.outbox.start_over();
        let next = |place: usize| self.numbers.get(&view.members[place]).map_or(1, |number| number + 1);
        self.sequencer =
            (view.sequencer() == self.me.node).then(|| Sequencer::new(&view, &self.config, cut, next));
        self.transmits.clear();
        self.latest = view.clone();
        self.view = view;
        self.phase = Phase::Normal;
        (self.fetch_at, self.fetch_after) = (None, self.config.resend_after);
        self.admit_own();
        if self.sequencer.is_some() {
            self.advance();
        }
    }

    /// The application has the state of a position that nobody can bring this member to in steps.
    pub(super) fn take_snapshot(&mut self, snapshot: Snapshot) {
        let is_beyond_cut = self.wanted().is_some_and(|wanted| snapshot.position > wanted.cut);
        if snapshot.position <= self.delivered || is_beyond_cut {
            return;
        }
        self.numbers = snapshot.numbers.into_iter().collect::<BTreeMap<Member, u64>>();
        self.delivered = snapshot.position;
        if snapshot.position <= self.history.held() {
            self.history.trim(snapshot.position);
        } else {
            self.history = History::after(snapshot.position);
            self.persist_snapshot(snapshot.position);
        }
        self.recount();
        if let Some(&number) = self.numbers.get(&self.me) {
            self.outbox.ordered(self.now, &self.config, number, &mut self.events);
            self.outbox.delivered(number, snapshot.position, &mut self.events);
        }
        (self.fetch_at, self.fetch_after) = (None, self.config.resend_after);
        match self.phase {
            Phase::Changing(_) | Phase::Frozen => self.check_cuts(),
            Phase::Normal => {
                self.progress.last = self.progress.last.max(snapshot.position);
                self.progress.committed = self.progress.committed.max(snapshot.position);
                self.deliver(self.progress.committed);
                self.is_ack_due = true;
                self.fetch();
            }
            Phase::Joining | Phase::Out => {}
        }
    }
}
