//! The regroup algorithm: five phases, state broadcast by point-to-point datagrams, no coordinator but the tie-breaker. (§7.7.2)
//!
//! What the thesis leaves open and what we chose:
//! - An *epoch* counts the runs, so that states of two runs are never mixed. A state of a later epoch starts that run here; if a
//!   run was under way, that is a cascading start, hence cautious.
//! - Nodes close over the set that they have heard of, and freeze it. The tie-breaker of a set (its smallest node) decides when
//!   all of the set closed over the same. Two sets that both survive share a node, so there are never two decisions.
//! - A joiner that some members know and others do not yet counts as a member that is missing, until it is said to be alive.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use comb_types::{NodeId, Time};
use serde::{Deserialize, Serialize};

use super::closing::{self, Heard};
use super::heartbeat::next;
use super::node_set::NodeSet;
use super::timing::{ACTIVATE_LEAST, ACTIVATE_MOST, CLOSING_EXTRA, LATER_PHASE, REGROUP_TICK};

/// The phases, and the state outside of them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Phase {
    /// No regroup goes on.
    Regular,
    /// Phase 1: who is there?
    Activate,
    /// Phase 2: may we survive, and who of us?
    Closing,
    /// Phase 3: does everybody know who is pruned?
    Pruning,
    /// Phase 4: the membership is installed; others are told of the failures.
    CleanupOne,
    /// Phase 5: the second part of a coordinated cleanup.
    CleanupTwo,
}

/// One mask for each phase.
const PHASES: usize = 5;

/// What is known of one member.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
struct Row {
    /// From whom it has received states itself: a row of the connectivity matrix.
    heard: NodeSet,
    /// Over which set it closed; empty before.
    closed_over: NodeSet,
}

/// What a node broadcasts every tick.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct State {
    pub(super) epoch: u64,
    pub(super) phase: Phase,
    pub(super) is_cautious: bool,
    /// Who is known to have reached each phase, by whomever. (§7.9.3: "I-have-heard-from-node-X")
    masks: [NodeSet; PHASES],
    rows: Vec<(NodeId, Row)>,
    /// Once the tie-breaker has said so.
    decided: Option<Decision>,
    /// What the sender has installed, and by which epoch's run.
    installed: (u64, Decision),
}

/// What the tie-breaker decides.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Decision {
    /// Who survives the pruning.
    pub(super) members: NodeSet,
    /// Who gives out the lock of the global update from now on.
    pub(super) locker: NodeId,
}

/// What came of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    Started { epoch: u64, is_cautious: bool },
    Entered(Phase),
    Installed { epoch: u64, decision: Decision, removed: NodeSet },
    Halted(&'static str),
}

#[derive(Debug)]
pub(super) struct Regroup {
    me: NodeId,
    members: NodeSet,
    /// Counted as a member that is missing.
    joining: NodeSet,
    tie_breaker: NodeId,
    pub(super) owns_quorum_resource: bool,
    /// Who gives out the lock of the global update, and who may after it, as this node sees it.
    pub(super) locker: NodeId,
    pub(super) operational: NodeSet,
    epoch: u64,
    phase: Phase,
    is_cautious: bool,
    /// Whether the first tick of this run has come.
    is_active: bool,
    tick_at: Option<Time>,
    phase_since: Time,
    /// Since when all of the set that we closed over are in closing.
    closed_since: Option<Time>,
    masks: [NodeSet; PHASES],
    rows: alloc::collections::BTreeMap<NodeId, Row>,
    decided: Option<Decision>,
    /// What an interrupted run decided and some may have installed: a survivor must be one by that as well.
    interrupted: Option<NodeSet>,
    /// By which epoch the membership came to be, as decided then.
    installed: (u64, Decision),
    pub(super) sends: VecDeque<(NodeId, State)>,
    pub(super) outcomes: VecDeque<Outcome>,
}

impl Regroup {
    pub(super) fn new(now: Time, me: NodeId, members: NodeSet, epoch: u64, tie_breaker: NodeId) -> Self {
        Self {
            me,
            members,
            joining: NodeSet::EMPTY,
            tie_breaker,
            owns_quorum_resource: false,
            locker: tie_breaker,
            operational: members,
            epoch,
            phase: Phase::Regular,
            is_cautious: false,
            is_active: false,
            tick_at: None,
            phase_since: now,
            closed_since: None,
            masks: [members; PHASES],
            rows: Default::default(),
            decided: None,
            interrupted: None,
            installed: (epoch, Decision { members, locker: tie_breaker }),
            sends: VecDeque::new(),
            outcomes: VecDeque::new(),
        }
    }

    pub(super) fn members(&self) -> NodeSet {
        self.members
    }

    pub(super) fn joining(&self) -> NodeSet {
        self.joining
    }

    pub(super) fn tie_breaker(&self) -> NodeId {
        self.tie_breaker
    }

    pub(super) fn phase(&self) -> Phase {
        self.phase
    }

    /// A node is about to become a member.
    pub(super) fn announce(&mut self, joiner: NodeId) {
        self.joining.insert(joiner);
    }

    /// A node has become a member.
    pub(super) fn add(&mut self, joiner: NodeId) {
        self.joining.remove(joiner);
        self.members.insert(joiner);
    }

    /// It will not become one. One that has, leaves by a regroup only.
    pub(super) fn forget(&mut self, joiner: NodeId) {
        self.joining.remove(joiner);
    }

    /// The failure detector says that a member is silent.
    pub(super) fn suspect(&mut self, now: Time, node: NodeId) {
        match self.phase {
            _ if !self.members.contains(node) => {}
            Phase::Regular => self.start(now, self.epoch.saturating_add(1), false),
            // Phase one finds out by itself.
            Phase::Activate => {}
            _ if self.candidates().contains(node) => self.start(now, self.epoch.saturating_add(1), true),
            _ => {}
        }
    }

    /// A state from a member. The error says which rule it breaks.
    pub(super) fn receive(&mut self, now: Time, from: NodeId, state: State) -> Result<(), &'static str> {
        if state.rows.len() > super::node_set::MOST_NODES as usize {
            return Err("a regroup state with more rows than nodes");
        }
        if state.decided.is_some_and(|decided| !decided.members.contains(decided.locker)) {
            return Err("a regroup decision whose locker does not survive");
        }
        if !state.installed.1.members.contains(state.installed.1.locker) {
            return Err("a membership without its locker");
        }
        if state.installed.0 > self.installed.0 && state.installed.0 < state.epoch {
            self.follow(now, state.installed);
            let is_over = !state.installed.1.members.contains(self.me) || !self.members.contains(from);
            if is_over {
                return Ok(());
            }
        }
        if state.epoch > self.epoch {
            let is_cascading = self.phase != Phase::Regular;
            self.start(now, state.epoch, state.is_cautious || is_cascading);
        }
        if state.epoch < self.epoch {
            return Ok(());
        }
        if self.phase == Phase::Regular {
            self.help(from, &state);
            return Ok(());
        }
        if self.is_active {
            self.merge(from, state);
            self.advance(now);
        }
        Ok(())
    }

    /// A run was interrupted when others had installed its membership and this node had not. They installed it only after all
    /// that are in it had learned of it, so it holds for this node too.
    fn follow(&mut self, now: Time, installed: (u64, Decision)) {
        if installed.1.members.contains(self.me) {
            self.adopt(installed);
            self.advance(now);
        } else {
            self.halt("regrouped away");
        }
    }

    /// The run is over here, and not yet for one that lacks somebody's word. Nobody broadcasts any more, so it asks in vain
    /// unless it is answered.
    fn help(&mut self, from: NodeId, state: &State) {
        let is_finished = self.members.is_within(state.masks[PHASES - 1]);
        if !is_finished && state.phase != Phase::Regular {
            let mine = self.state();
            self.sends.push_back((from, mine));
        }
    }

    pub(super) fn timeout(&mut self, now: Time) {
        if self.tick_at.is_none_or(|tick| now < tick) {
            return;
        }
        self.tick_at = self.tick_at.map(|tick| next(tick, now, REGROUP_TICK));
        if !self.is_active {
            self.is_active = true;
            self.masks[0].insert(self.me);
            self.rows.entry(self.me).or_default().heard.insert(self.me);
        }
        self.advance(now);
        if self.phase != Phase::Regular {
            self.broadcast();
        }
    }

    pub(super) fn next_timeout(&self) -> Option<Time> {
        self.tick_at
    }

    fn start(&mut self, now: Time, epoch: u64, is_cautious: bool) {
        let was_decided = self.phase > Phase::Closing && self.phase < Phase::CleanupOne;
        if was_decided {
            self.interrupted = self.decided.map(|decided| decided.members);
        }
        self.epoch = epoch;
        self.is_cautious = is_cautious;
        self.is_active = false;
        self.tick_at = Some(now.saturating_add(REGROUP_TICK));
        self.masks = [NodeSet::EMPTY; PHASES];
        self.rows.clear();
        self.decided = None;
        self.outcomes.push_back(Outcome::Started { epoch, is_cautious });
        self.enter(now, Phase::Activate);
    }

    fn enter(&mut self, now: Time, phase: Phase) {
        self.phase = phase;
        self.phase_since = now;
        self.closed_since = None;
        if phase > Phase::Activate {
            self.masks[phase as usize - 1].insert(self.me);
        }
        self.outcomes.push_back(Outcome::Entered(phase));
    }

    fn broadcast(&mut self) {
        let state = self.state();
        for node in self.members.iter().filter(|node| *node != self.me) {
            self.sends.push_back((node, state.clone()));
        }
    }

    fn state(&self) -> State {
        State {
            epoch: self.epoch,
            phase: self.phase,
            is_cautious: self.is_cautious,
            masks: self.masks,
            rows: self.rows.iter().map(|(node, row)| (*node, *row)).collect(),
            decided: self.decided,
            installed: self.installed,
        }
    }

    fn merge(&mut self, from: NodeId, state: State) {
        self.is_cautious |= state.is_cautious;
        for (mine, theirs) in self.masks.iter_mut().zip(state.masks) {
            *mine = mine.with(theirs.within(self.members));
        }
        self.masks[0].insert(from);
        for (node, theirs) in state.rows {
            if node == self.me || !self.members.contains(node) {
                continue;
            }
            let row = self.rows.entry(node).or_default();
            row.heard = row.heard.with(theirs.heard);
            if row.closed_over.is_empty() {
                row.closed_over = theirs.closed_over;
            }
        }
        self.rows.entry(self.me).or_default().heard.insert(from);
        if self.decided.is_none() {
            self.decided = state.decided.filter(|decided| decided.members.is_within(self.members));
        }
    }

    /// Over whom this node closed, or who survives once that is decided.
    fn candidates(&self) -> NodeSet {
        let closed = || self.rows.get(&self.me).map_or(NodeSet::EMPTY, |row| row.closed_over);
        self.decided.map_or_else(closed, |decided| decided.members)
    }

    /// Goes as many phases on as it can.
    fn advance(&mut self, now: Time) {
        if !self.is_active {
            return;
        }
        loop {
            let before = self.phase;
            match self.phase {
                Phase::Regular => return,
                Phase::Activate => self.activate(now),
                Phase::Closing => self.close(now),
                Phase::Pruning => self.prune(now),
                Phase::CleanupOne => {
                    if self.members.is_within(self.masks[3]) {
                        self.enter(now, Phase::CleanupTwo);
                    }
                }
                Phase::CleanupTwo => {
                    if self.members.is_within(self.masks[4]) {
                        self.enter(now, Phase::Regular);
                        self.tick_at = None;
                        self.broadcast();
                    }
                }
            }
            if self.phase == before {
                break;
            }
        }
        let waits = now.since(self.phase_since);
        if self.phase > Phase::Activate && waits >= LATER_PHASE {
            self.start(now, self.epoch.saturating_add(1), true);
        }
    }

    /// Phase 1.
    fn activate(&mut self, now: Time) {
        if self.decided.is_some_and(|decided| !decided.members.contains(self.me)) {
            return self.halt("decided against while it was silent");
        }
        let waited = now.since(self.phase_since);
        let missing = self.members.without(self.masks[0]).len();
        let is_over = waited >= ACTIVATE_MOST
            || !self.is_cautious && (missing == 0 || missing == 1 && waited >= ACTIVATE_LEAST);
        if is_over {
            let current = self.masks[0].within(self.members);
            if !self.survives(current) {
                return self.halt("not in a part that may survive");
            }
            self.rows.entry(self.me).or_default().closed_over = current;
            self.enter(now, Phase::Closing);
        }
    }

    fn survives(&self, current: NodeSet) -> bool {
        let by = |original, tie_breaker| {
            closing::survives(original, tie_breaker, current, self.owns_quorum_resource)
        };
        let interrupted = self.interrupted.and_then(|decided| Some((decided, decided.first()?)));
        by(self.members.with(self.joining), self.tie_breaker)
            && interrupted.is_none_or(|(decided, tie_breaker)| by(decided, tie_breaker))
    }

    /// Phase 2.
    fn close(&mut self, now: Time) {
        if self.decided.is_some() {
            return self.enter(now, Phase::Pruning);
        }
        let current = self.candidates();
        if !current.is_within(self.masks[1]) {
            return;
        }
        let since = *self.closed_since.get_or_insert(now);
        let has_waited = now.since(since) >= CLOSING_EXTRA;
        let agree = |node| self.rows.get(&node).is_some_and(|row| row.closed_over == current);
        if !current.iter().all(agree) {
            if has_waited {
                self.start(now, self.epoch.saturating_add(1), true);
            }
            return;
        }
        if current.first() == Some(self.me) {
            self.decide(current, has_waited);
            if self.decided.is_some() {
                self.close(now);
            }
        }
    }

    /// What only the tie-breaker of the new members does.
    fn decide(&mut self, current: NodeSet, has_waited: bool) {
        let heard: Heard = self.rows.iter().map(|(node, row)| (*node, row.heard)).collect();
        if closing::is_fully_connected(&heard, current) {
            self.decided = self.decision(current);
        } else if has_waited {
            let left = closing::prune(&heard, current);
            if self.survives(left) {
                self.decided = self.decision(left);
            } else {
                self.halt("no fully connected part may survive");
            }
        }
    }

    fn decision(&self, members: NodeSet) -> Option<Decision> {
        let locker = if members.contains(self.locker) {
            self.locker
        } else {
            self.operational.within(members).after(self.locker).or(members.first())?
        };
        Some(Decision { members, locker })
    }

    /// Phase 3. Who is pruned halts here, but not at once: it may be the tie-breaker itself, or the only one that has told
    /// others of the decision.
    fn prune(&mut self, now: Time) {
        let all_know = self.candidates().is_within(self.masks[2]);
        let survives = self.candidates().contains(self.me);
        if survives && all_know {
            self.install(now);
        } else if !survives && (all_know || now.since(self.phase_since) >= CLOSING_EXTRA) {
            self.halt("pruned");
        }
    }

    /// Phase 4, which all of those that the decision names have learned of.
    fn install(&mut self, now: Time) {
        let Some(decision) = self.decided else { return };
        self.enter(now, Phase::CleanupOne);
        self.adopt((self.epoch, decision));
    }

    fn adopt(&mut self, installed: (u64, Decision)) {
        let (epoch, decision) = installed;
        let removed = self.members.without(decision.members);
        self.installed = installed;
        self.members = decision.members;
        self.joining = NodeSet::EMPTY;
        self.interrupted = None;
        self.tie_breaker = self.members.first().unwrap_or(self.me);
        self.locker = decision.locker;
        self.operational = self.operational.within(self.members);
        self.outcomes.push_back(Outcome::Installed { epoch, decision, removed });
    }

    fn halt(&mut self, why: &'static str) {
        self.tick_at = None;
        self.is_active = false;
        self.outcomes.push_back(Outcome::Halted(why));
    }
}

impl State {
    pub(super) fn describe(&self) -> alloc::string::String {
        let Self { epoch, phase, masks, .. } = self;
        let mut words = alloc::format!("regroup {epoch}: {phase:?}, reached {masks:?}");
        if self.is_cautious {
            words.push_str(", with caution");
        }
        if let Some(decided) = self.decided {
            words.push_str(&alloc::format!(", survivors {:?}", decided.members));
        }
        words
    }
}

#[cfg(test)]
mod tests;
