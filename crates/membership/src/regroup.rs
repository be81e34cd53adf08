//! Who belongs to the group now: agreement after a suspicion. (MSCS §7.7.2)
//!
//! MSCS's five phases with a consensus inside: for each view, its members agree on one successor. `ALGORITHM.md` tells why that
//! is right. Here every member is an acceptor of ballots (`activate`, `closing`); the least that is not suspected leads one;
//! the tie-breaker of the new view leads its cleanup (`cleanup`).
//!
//! Without a log, who crashes comes back as another member, and comes in by [`crate::join`]. With one, it speaks for its former
//! life until the next view (`memory`).

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::time::Duration;

use comb_types::{NodeId, Time};
use serde::{Deserialize, Serialize};

use crate::transmit::Transmit;
use crate::view::{Member, View, ViewEpoch};
use crate::wire::{self, PeerError, Protocol};
use activate::Campaign;
use message::{Ballot, Body, Decision, Message, Proposal};

mod accusations;
mod activate;
mod belief;
mod cleanup;
mod closing;
#[cfg(test)]
mod liars;
#[cfg(test)]
pub(crate) use liars::lie_bytes as lie;
mod memory;
mod message;
#[cfg(test)]
mod model;
mod pruning;
#[cfg(test)]
mod tests;

pub(crate) use memory::Mark;
pub use memory::Memory;
pub use message::MOST_MEMBERS;

/// How bad it looks, in the order of certainty.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Strength {
    /// Some detector thinks so. If the member answers all the same, it stays.
    Suspected,
    /// It is not heard here; others still hear it. One end of such a link is pruned.
    Unreachable,
    /// The detectors agree. Nobody waits for it.
    Failed,
    /// Its host's agent ended it. It will never speak again, nothing that it says from now on is taken, and it does not count.
    ///
    /// Say this only of a member that had not agreed to a view after the one that this machine is in: see [`Regroup::agreed`]. Of
    /// another, say [`Strength::Ended`]. (See [`crate::quorum::judge`].)
    Fenced,
    /// As fenced, but it had agreed to the next view. It does not count either, unless those of whom this is said could have decided
    /// that view by themselves.
    Ended,
}

impl Strength {
    /// Whether it is certain that the member never speaks again.
    fn is_over(self) -> bool {
        self >= Self::Fenced
    }
}

/// How long things take before something is done about it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Timing {
    /// A message that was not answered is sent again after so long.
    pub resend: Duration,
    /// How long a coordinator waits for those who do not answer and have not been given up.
    pub activate: Duration,
    /// How long a member waits for a coordinator before it becomes one; longer for greater members, and after each attempt.
    /// And so long after a view change nothing less than [`Strength::Failed`] is a reason for the next one.
    pub patience: Duration,
}

impl Default for Timing {
    /// For a local network: 50 ms is a hundred round trips, and MSCS's waits were found far too long. (MSCS §7.9.3)
    fn default() -> Self {
        Self {
            resend: Duration::from_millis(50),
            activate: Duration::from_millis(500),
            patience: Duration::from_millis(500),
        }
    }
}

/// What happens to a member.
#[derive(Clone, Debug)]
pub enum Input<'a> {
    /// A detector says something bad.
    Suspect(Member, Strength),
    /// A node is heard again: what was said of it is taken back, unless it is dead: [`Strength::Fenced`] or [`Strength::Ended`].
    Heard(NodeId),
    /// A message came.
    Message {
        /// Whence, as the network says.
        from: NodeId,
        /// Its bytes.
        bytes: &'a [u8],
    },
    /// The answer to [`Event::Freeze`] and [`Event::Reach`]: up to this position, without a gap, this member holds the updates.
    Position(u64),
    /// The cut of the last [`Event::Decided`] is reached: this member holds and has delivered all up to it, and nothing beyond.
    Flushed,
    /// The answer to [`Event::Acquire`].
    Acquired {
        /// Which epoch was asked for.
        epoch: ViewEpoch,
        /// Whether this member has it.
        granted: bool,
    },
    /// These shall come in: see [`crate::join`].
    Admit(Vec<Member>),
    /// The time of [`Regroup::next_timeout`] has come.
    Timeout,
}

/// What a member's driver is told.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Event {
    /// Acknowledge nothing more in this view, and answer with [`Input::Position`]. It stays so until a later view is installed.
    Freeze {
        /// Of the view that may end.
        epoch: ViewEpoch,
    },
    /// The view may end at this cut. Fetch what is lacking up to it, throw nothing away, and answer with [`Input::Position`] when all of
    /// it is held. If another such event comes first, then that one counts alone.
    Reach {
        /// Updates up to this position may belong to the view that ends.
        cut: u64,
        /// Who holds them all. If none of them answers, any other member may.
        holders: Vec<NodeId>,
    },
    /// Ask the quorum resource, and answer with [`Input::Acquired`].
    Acquire {
        /// The epoch to ask for.
        epoch: ViewEpoch,
        /// For whom: not the life that asks, if that goes on for a former one.
        seat: Member,
    },
    /// The view has ended; this is its successor. Flush to the cut, and answer with [`Input::Flushed`]. If another such
    /// event comes first, then that one counts alone.
    Decided {
        /// The successor, which is not installed yet.
        view: View,
        /// Updates up to this position belong to the view that ended; none beyond does.
        cut: u64,
        /// Who holds them all. Some may be leaving; they serve until the view is installed. If none of them answers, any other member
        /// of the view that ended may hold them.
        holders: Vec<NodeId>,
    },
    /// Everybody in this view has reached the cut: go on in it.
    Installed(View),
    /// Everybody has installed it.
    Settled(View),
    /// The group goes on without this member: halt.
    Excluded {
        /// The first view without it.
        by: ViewEpoch,
    },
    /// This part of the group may not go on. People should know; it goes on by itself when enough members are heard again.
    Stuck {
        /// Why.
        reason: Stuck,
    },
}

/// Why a part of a group may not go on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum Stuck {
    /// Too few members are here.
    #[error("{here} of {members} members are no quorum")]
    NoQuorum {
        /// How many answered.
        here: usize,
        /// How many there are.
        members: usize,
    },
    /// The other one of two has the quorum resource.
    #[error("the other one of two has the quorum resource")]
    ResourceTaken,
    /// Nobody who is here holds all that earlier views have agreed on.
    #[error("what was agreed up to position {cut} is lost")]
    CutLost {
        /// Up to which position something was agreed.
        cut: u64,
    },
}

/// How far this member is with the view that was decided last.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Stage {
    /// Cleanup one: it fetches what it lacks up to the cut.
    Flushing,
    /// Cleanup one is over here, not everywhere.
    Flushed,
    /// Cleanup two is over here, not everywhere.
    Installed,
    /// Normal work.
    Settled,
}

/// Up to so many members tell each other what they accept, so that each counts the quorum itself. In larger views that would be
/// a message for each pair, and the coordinator is believed.
const MOST_THAT_COUNT: usize = 8;

/// Decisions that are kept for members that missed them.
const MOST_HISTORY: usize = 32;

/// Decisions that are told at once to a member that missed several, and that are remembered on a disk.
const MOST_TOLD: usize = 4;

/// A ballot so far ahead of all others is no ballot of an honest member: it would take years of failed attempts.
const MOST_BALLOTS_AHEAD: u32 = 1 << 24;

/// One member of a group.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Regroup {
    /// As the view names it.
    me: Member,
    /// Who goes on in the next view: the same, but for one that has come back.
    life: Member,
    timing: Timing,
    /// Of the input that is being handled.
    now: Time,
    /// The one that was decided last.
    view: View,
    /// The cut that its predecessor ended with.
    base: u64,
    stage: Stage,
    evidence: BTreeMap<NodeId, Strength>,
    /// Who was heard to say something bad of whom, in this view; and how often that was wrong, lately, and when last.
    accusations: BTreeSet<(NodeId, NodeId)>,
    false_alarms: BTreeMap<(Member, Member), (u8, Time)>,
    /// Who shall come in.
    admit: BTreeSet<Member>,
    /// Nothing but [`Strength::Failed`] is a reason before.
    calm_until: Time,

    // As an acceptor of ballots about the end of this view.
    promised: Ballot,
    accepted: Option<(Ballot, Proposal)>,
    /// A proposal that this member accepts when it has reached the cut.
    offered: Option<(Ballot, Proposal)>,
    frozen: bool,
    /// There were too few to end this view, for a while.
    was_stuck: bool,
    position: Option<u64>,
    /// A promise that waits for the position.
    owed: Option<Ballot>,
    /// Decisions that members tell and that are not believed yet.
    voices: BTreeMap<NodeId, Decision>,
    /// What members have said that they accepted last.
    attested: BTreeMap<NodeId, (Ballot, u64)>,
    /// Who was asked lately how this view ended. Each question may bring several answers, so nobody is asked at each message.
    asked: BTreeSet<NodeId>,

    // As a coordinator.
    campaign: Option<Campaign>,
    highest: u32,
    attempts: u32,
    granted: Option<bool>,

    // As the leader of the cleanup.
    flushed: BTreeSet<NodeId>,
    installed: BTreeSet<NodeId>,
    /// Members of the last view that are not in this one, and may not know.
    left: Vec<NodeId>,

    /// The newest last. The decision that ended the view before this one is there, unless this member has just joined.
    history: VecDeque<Decision>,
    /// A coordinator that had to decide without itself tells the others until one of them says that they have gone on: nobody else may
    /// know, and nobody else may hold what they lack.
    is_leaving: bool,
    /// When people hear that none of them has.
    alone_at: Option<Time>,
    halted: bool,
    resend_at: Option<Time>,
    takeover_at: Option<Time>,
    to_myself: VecDeque<(ViewEpoch, Body)>,
    out: VecDeque<(NodeId, Message)>,
    events: VecDeque<Event>,
}

impl Regroup {
    /// The founder of a group: its view is settled.
    pub fn founding(me: Member, timing: Timing, now: Time) -> Self {
        let mut machine = Self::joining(me, timing, now, View::founded_by(me), 0);
        machine.stage = Stage::Settled;
        machine
    }

    /// A member that a view has just admitted, or that all members of a first view were configured with. It says
    /// [`Input::Flushed`] when it holds everything up to the cut.
    pub fn joining(me: Member, timing: Timing, now: Time, view: View, cut: u64) -> Self {
        Self::seated(me, me, timing, now, view, cut)
    }

    fn seated(me: Member, life: Member, timing: Timing, now: Time, view: View, cut: u64) -> Self {
        assert!(view.is_sound() && view.member(me.node) == Some(me), "a member is in its view");
        let mut machine = Self {
            me,
            life,
            timing,
            now,
            view,
            base: cut,
            stage: Stage::Flushing,
            evidence: BTreeMap::new(),
            accusations: BTreeSet::new(),
            false_alarms: BTreeMap::new(),
            admit: BTreeSet::new(),
            calm_until: now.saturating_add(timing.patience),
            promised: Ballot::NONE,
            accepted: None,
            offered: None,
            frozen: false,
            was_stuck: false,
            position: None,
            owed: None,
            voices: BTreeMap::new(),
            attested: BTreeMap::new(),
            asked: BTreeSet::new(),
            campaign: None,
            highest: 0,
            attempts: 0,
            granted: None,
            flushed: BTreeSet::new(),
            installed: BTreeSet::new(),
            left: Vec::new(),
            history: VecDeque::new(),
            is_leaving: false,
            alone_at: None,
            halted: false,
            resend_at: None,
            takeover_at: None,
            to_myself: VecDeque::new(),
            out: VecDeque::new(),
            events: VecDeque::new(),
        };
        machine.arrange();
        machine
    }

    /// The view that was decided last.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// The views that it knows to have been decided, of late. One may be without it.
    pub fn decided_views(&self) -> impl Iterator<Item = &View> {
        self.history.iter().map(|decision| &decision.proposal.view).chain([&self.view])
    }

    /// The epoch of the last view that this member has agreed to, be it decided or not. If all that are not there had agreed to nothing
    /// later than a view, then nobody has decided its successor without those that are.
    pub fn agreed(&self) -> ViewEpoch {
        self.accepted.as_ref().map_or(self.view.epoch, |(_, proposal)| proposal.view.epoch)
    }

    /// How far it is installed.
    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// Whether updates must not be acknowledged now.
    pub fn is_frozen(&self) -> bool {
        self.frozen || self.stage < Stage::Installed
    }

    /// Takes one input. Then drain [`Regroup::poll_transmit`] and [`Regroup::poll_event`] before the next. An error names a
    /// peer that broke a rule; nothing has changed then. What arrives late, twice or in another order is no error.
    pub fn handle(&mut self, now: Time, input: Input<'_>) -> Result<(), PeerError> {
        if self.halted {
            return Ok(());
        }
        self.now = now;
        let before = self.view.epoch;
        match input {
            Input::Suspect(member, strength) => self.suspect(member, strength),
            Input::Heard(node) => self.heard(node),
            Input::Message { from, bytes } => self.receive(from, bytes)?,
            Input::Position(position) => self.positioned(position),
            Input::Flushed => self.reached_cut(),
            Input::Acquired { epoch, granted } => self.acquired(epoch, granted),
            Input::Admit(members) => self.wish(&members),
            Input::Timeout => self.due(),
        }
        self.hear_myself();
        if self.view.epoch > before {
            // The new view may name one that has failed meanwhile, and be led by that one. The others have been told of the view by now.
            self.raise();
            self.hear_myself();
        }
        self.arrange();
        Ok(())
    }

    /// The next message to be sent.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        let (to, message) = self.out.pop_front()?;
        Some(Transmit { to, bytes: wire::encode(Protocol::Regroup, &message) })
    }

    /// The next thing to tell the driver.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// When to call [`Regroup::handle`] even if nothing arrives.
    pub fn next_timeout(&self) -> Option<Time> {
        if self.halted {
            return None;
        }
        let until = self.campaign.as_ref().and_then(|campaign| campaign.until);
        [self.resend_at, self.takeover_at, until, self.alone_at].into_iter().flatten().min()
    }

    fn suspect(&mut self, member: Member, strength: Strength) {
        if member == self.me || self.view.member(member.node) != Some(member) {
            return;
        }
        if !self.trusts_detector(member.node, strength) {
            return;
        }
        if strength.is_over() || !self.is_over(member.node) {
            let before = self.evidence.insert(member.node, strength);
            if strength.is_over() && before != Some(strength) {
                self.proven(member.node);
            }
        }
        self.raise();
        self.gathered();
        self.reconsider_voices();
    }

    fn heard(&mut self, node: NodeId) {
        if !self.is_over(node) {
            self.evidence.remove(&node);
        }
        if !self.frozen {
            self.accusations.remove(&(self.me.node, node));
        }
    }

    /// Puts a message into its place: about this view, about one that is over, or about one that is not known here yet.
    fn receive(&mut self, from: NodeId, bytes: &[u8]) -> Result<(), PeerError> {
        let message: Message = wire::decode(from, Protocol::Regroup, bytes)?;
        let refuse = |rule| Err(PeerError::new(from, rule));
        if message.sender.node != from {
            return refuse("a message in the name of another");
        }
        if from == self.me.node {
            return refuse("a message in my name");
        }
        if message.epoch < self.view.epoch {
            self.tell_how_it_ended(&message);
            return Ok(());
        }
        if self.is_leaving {
            self.hear_that_they_went_on(from, &message.body);
            return Ok(());
        }
        if let Body::Gone { by } = message.body {
            return self.gone(from, by);
        }
        let member = self.view.member(from);
        if message.epoch > self.view.epoch {
            let tells_itself = matches!(message.body, Body::Decide(_));
            if member == Some(message.sender) && !tells_itself && self.asked.insert(from) {
                self.send(from, Body::Ask);
            }
            return Ok(());
        }
        // Who has come back and is in the next view under its own name tells those how it came to that who still know its former.
        let is_told_by_life = matches!(message.body, Body::Decide(_)) && member < Some(message.sender);
        if member.is_none() || (member != Some(message.sender) && !is_told_by_life) {
            return refuse("a message from somebody who is not in the view that it is about");
        }
        if self.is_over(from) {
            // It was on its way when its sender was ended, and must not be taken: others may count on that already.
            return Ok(());
        }
        self.follow(from, message.body)
    }

    /// A message about the view of now, from one of its members.
    fn follow(&mut self, from: NodeId, body: Body) -> Result<(), PeerError> {
        if self.is_back() && matches!(body, Body::Flushed | Body::Install | Body::Installed | Body::Settle) {
            // How far the former life was with the cleanup is not remembered, and this one has no part in it.
            return Ok(());
        }
        match body {
            Body::Alarm { evidence, admit } => self.alarmed(from, &evidence, &admit),
            Body::Prepare { ballot } => self.prepare(from, ballot),
            Body::Promise { ballot, promise } => self.promise(from, ballot, promise),
            Body::Refuse { promised } => self.refused(from, promised),
            Body::Propose { ballot, proposal, basis } => self.propose(from, ballot, proposal, &basis),
            Body::Accept { ballot, digest } => self.accept(from, ballot, digest),
            Body::Decide(decision) => self.told_decision(from, decision),
            Body::Flushed => self.flushed_at(from),
            Body::Install => self.install(from),
            Body::Installed => self.installed_at(from),
            Body::Settle => self.settle(from),
            // It has not ended; and who says that it has is heard before it comes to this.
            Body::Ask | Body::Gone { .. } => Ok(()),
        }
    }

    fn send(&mut self, to: NodeId, body: Body) {
        self.send_about(self.view.epoch, to, body);
    }

    fn send_about(&mut self, epoch: ViewEpoch, to: NodeId, body: Body) {
        if to == self.me.node {
            self.to_myself.push_back((epoch, body));
        } else {
            self.out.push_back((to, Message { sender: self.me, epoch, body }));
        }
    }

    /// A coordinator is a member like others, and hears what it tells them.
    fn hear_myself(&mut self) {
        while let Some((epoch, body)) = self.to_myself.pop_front() {
            if epoch == self.view.epoch && !self.halted {
                let heard = self.follow(self.me.node, body);
                debug_assert!(heard.is_ok(), "a member keeps the rules towards itself: {heard:?}");
            }
        }
    }

    /// Whether the view should end.
    fn has_reason(&self) -> bool {
        self.frozen || self.is_back() || !self.evidence.is_empty() || !self.admit.is_empty()
    }

    /// Whether a member is known here to be dead.
    fn is_over(&self, node: NodeId) -> bool {
        self.evidence.get(&node).is_some_and(|strength| strength.is_over())
    }

    /// Members before this one that could coordinate.
    fn rank(&self) -> u32 {
        let before = self.view.nodes().take_while(|node| *node != self.me.node);
        before.filter(|node| !self.evidence.contains_key(node)).fold(0, |rank, _| rank + 1)
    }

    /// Does what the time asks for.
    fn due(&mut self) {
        let is_due = |at: Option<Time>, now: Time| at.is_some_and(|at| at <= now);
        if self.halted {
            return;
        }
        if is_due(self.alone_at, self.now) {
            self.nobody_went_on();
        }
        if is_due(self.resend_at, self.now) {
            self.resend_at = None;
            self.resend();
        }
        if is_due(self.campaign.as_ref().and_then(|campaign| campaign.until), self.now) {
            self.campaign_is_over_time();
        }
        if is_due(self.takeover_at, self.now) {
            self.takeover_at = None;
            self.attempts += 1;
            self.begin();
        }
    }

    /// Sees to it that what is waited for is asked for again.
    fn arrange(&mut self) {
        if self.halted {
            return;
        }
        let waits = self.campaign.is_some()
            || self.has_reason()
            || self.stage != Stage::Settled
            || !self.voices.is_empty()
            || !self.asked.is_empty()
            || self.is_leaving;
        if !waits {
            self.resend_at = None;
        } else if self.resend_at.is_none() {
            self.resend_at = Some(self.now.saturating_add(self.timing.resend));
        }
        let may_take_over = self.has_reason() && self.campaign.is_none() && !self.is_leaving;
        if !may_take_over {
            self.takeover_at = None;
        } else if self.takeover_at.is_none() {
            let patience = self.timing.patience * (self.rank() + 1) * (1 << self.attempts.min(4));
            self.takeover_at = Some(self.now.saturating_add(patience));
        }
    }

    fn resend(&mut self) {
        if self.is_leaving {
            self.tell_decision_to_members();
            self.ask_whether_they_went_on();
            return;
        }
        self.asked.clear();
        self.ask_for_voices();
        self.resend_cleanup();
        if self.campaign.is_some() {
            self.resend_campaign();
        } else {
            self.raise();
        }
    }

    fn halt(&mut self, by: ViewEpoch) {
        self.events.push_back(Event::Excluded { by });
        self.halted = true;
    }
}

/// A message in words, for logs. What is no message of a regroup says so.
pub fn describe(from: NodeId, bytes: &[u8]) -> String {
    match wire::decode::<Message>(from, Protocol::Regroup, bytes) {
        Ok(message) => message.to_string(),
        Err(error) => error.to_string(),
    }
}
