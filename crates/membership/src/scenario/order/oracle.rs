//! What stands in for `regroup`: it knows who is up, agrees with itself, and tells everybody at the worst times.
//!
//! It keeps the two rules on which ordered update relies. A change is decided on the answers of more than half of the last
//! view that was *flushed by all* of its members; one that was agreed and not flushed is not enough, for what was committed
//! may be held by one of its members alone. And a view is installed only when all of its members have flushed.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use comb_sim::{Checker, Dice, Fault, Truth, World};
use comb_types::{NodeId, Time};

use super::replica::{Command, Event, Replica};
use crate::view::{Member, View, ViewEpoch};

/// So long a round waits for those who do not answer before it goes on without them.
const PATIENCE: Duration = Duration::from_millis(300);

/// What the nodes have answered.
#[derive(Debug, Default)]
pub(super) struct Answers {
    positions: BTreeMap<(u64, NodeId), u64>,
    flushed: BTreeSet<(u64, NodeId)>,
    need_snapshot: BTreeSet<NodeId>,
}

/// Reads the answers off the nodes' events.
pub(super) struct Listener(pub(super) Rc<RefCell<Answers>>);

impl Checker<Replica> for Listener {
    fn saw(&mut self, _truth: &Truth<'_>, node: NodeId, event: &Event) -> Result<(), String> {
        let mut answers = self.0.borrow_mut();
        match *event {
            Event::Position { round, held } => drop(answers.positions.insert((round, node), held)),
            Event::Flushed { round } => drop(answers.flushed.insert((round, node))),
            Event::NeedsSnapshot => drop(answers.need_snapshot.insert(node)),
            _ => {}
        }
        Ok(())
    }
}

#[derive(Debug)]
enum Stage {
    /// All is well since then, as far as the oracle has looked.
    Quiet,
    Gathering {
        asked: Vec<Member>,
        since: Time,
    },
    Flushing {
        view: View,
        since: Time,
    },
}

pub(super) struct Oracle {
    pub(super) answers: Rc<RefCell<Answers>>,
    dice: Dice,
    /// The last view that all of its members have flushed.
    settled: View,
    /// The last view that was decided.
    decided: View,
    round: u64,
    stage: Stage,
    /// Lives that others have gone on without. Some have not heard of it yet; none of them is in a view again.
    out: BTreeSet<Member>,
    /// Commands come up to so much late.
    pub(super) latest: Duration,
    /// Nodes that are put out of their view start again after so long; not at all if none.
    pub(super) comes_back: Option<Duration>,
    /// Changes that nobody's failure is the reason for, in a million looks.
    pub(super) whims_per_million: u32,
    pub(super) changes: u64,
}

impl Oracle {
    pub(super) fn new(first: View, dice: Dice) -> Self {
        Self {
            answers: Rc::default(),
            dice,
            round: first.epoch.0,
            settled: first.clone(),
            decided: first,
            stage: Stage::Quiet,
            out: BTreeSet::new(),
            latest: Duration::from_millis(10),
            comes_back: None,
            whims_per_million: 0,
            changes: 0,
        }
    }

    /// Whether nothing is under way.
    pub(super) fn is_quiet(&self) -> bool {
        matches!(self.stage, Stage::Quiet)
    }

    /// Whether so many of the view are dead that it has no successor.
    pub(super) fn is_stuck(&self, truth: &Truth<'_>) -> bool {
        self.alive(truth, &self.settled).filter(|member| self.decided.members.contains(member)).count() * 2
            <= self.settled.members.len()
    }

    fn alive<'a>(&self, truth: &'a Truth<'_>, view: &'a View) -> impl Iterator<Item = Member> + 'a {
        let is_alive = |member: &&Member| !truth.is_dead(member.node, member.incarnation);
        view.members.iter().filter(is_alive).copied()
    }

    /// Who is up and in no view.
    fn waiting(&self, truth: &Truth<'_>) -> Vec<Member> {
        let lives = truth.up().map(|node| Member { node, incarnation: truth.node(node).incarnation });
        let is_known = |life: &Member| self.decided.members.contains(life) || self.out.contains(life);
        lives.filter(|life| life.incarnation.0 > 1 && !is_known(life)).collect()
    }

    /// Looks, and does what is to be done.
    pub(super) fn look(&mut self, world: &mut World<Replica>) {
        self.hand_out_snapshots(world);
        let now = world.now();
        match &self.stage {
            Stage::Quiet => {
                let truth = world.truth();
                let has_dead = self.alive(&truth, &self.settled).count() < self.settled.members.len();
                let is_reason = has_dead || !self.waiting(&truth).is_empty();
                // Sometimes a while passes before a failure is seen.
                if is_reason && self.dice.below(4) == 0 || self.dice.happens(self.whims_per_million) {
                    self.start_round(world);
                }
            }
            Stage::Gathering { asked, since } => {
                let truth = world.truth();
                let is_over = now.since(*since) > PATIENCE;
                let answered = |member: &Member| {
                    self.answers.borrow().positions.contains_key(&(self.round, member.node))
                        && !truth.is_dead(member.node, member.incarnation)
                };
                let is_missing =
                    |member: &Member| !answered(member) && !truth.is_dead(member.node, member.incarnation);
                if asked.iter().any(is_missing) && !is_over {
                    return;
                }
                let there: Vec<Member> = asked.iter().copied().filter(answered).collect();
                let quorum = there.iter().filter(|member| self.settled.members.contains(member)).count();
                if quorum * 2 > self.settled.members.len() {
                    self.decide(world, &there);
                } else if is_over {
                    self.start_round(world);
                }
            }
            Stage::Flushing { view, since } => {
                let truth = world.truth();
                let is_failing = self.alive(&truth, view).count() < view.members.len();
                let has_flushed =
                    |node: &NodeId| self.answers.borrow().flushed.contains(&(self.round, *node));
                if view.nodes().all(|node| has_flushed(&node)) {
                    let view = view.clone();
                    self.install(world, view);
                } else if is_failing || now.since(*since) > 3 * PATIENCE {
                    self.start_round(world);
                }
            }
        }
    }

    /// All were down, and are up again with their logs: they form a view of those who are furthest in the last view, among
    /// some that are more than half.
    #[cfg(test)]
    pub(super) fn revive(&mut self, world: &mut World<Replica>) {
        let truth = world.truth();
        let life = |node| Member { node, incarnation: truth.node(node).incarnation };
        let mut members: Vec<Member> = truth.up().map(life).collect();
        members.sort_unstable();
        let mut heard = members.clone();
        while heard.len() * 2 > self.settled.members.len() + 1 && self.dice.below(2) == 0 {
            heard.remove(self.dice.index(heard.len()));
        }
        let extent = |member: &Member| world.actor(member.node).and_then(Replica::extent);
        let furthest = heard.iter().filter_map(extent).max().expect("somebody is up");
        let holders: Vec<_> = heard
            .iter()
            .filter(|member| extent(member) == Some(furthest))
            .map(|member| member.node)
            .collect();
        self.round += 1;
        let view =
            View { epoch: ViewEpoch(self.round), tie_breaker: members[0].node, members: members.clone() };
        for member in &members {
            world.command(member.node, Command::Freeze { round: self.round });
            let (view, holders) = (view.clone(), holders.clone());
            let change = Command::Change { round: self.round, view, cut: furthest.1, holders };
            self.tell(world, member.node, change);
        }
        (self.decided, self.settled) = (view.clone(), view.clone());
        self.stage = Stage::Flushing { view, since: world.now() };
    }

    fn start_round(&mut self, world: &mut World<Replica>) {
        self.round = self.round.max(self.decided.epoch.0) + 1;
        let asked: Vec<_> = self.alive(&world.truth(), &self.decided).collect();
        for member in &asked {
            self.tell(world, member.node, Command::Freeze { round: self.round });
        }
        self.stage = Stage::Gathering { asked, since: world.now() };
    }

    fn decide(&mut self, world: &mut World<Replica>, there: &[Member]) {
        let (round, positions) = (self.round, self.answers.borrow().positions.clone());
        let held = |member: &Member| positions.get(&(round, member.node)).copied().unwrap_or(0);
        let heard = self.heard(there);
        let cut = heard.iter().map(held).max().expect("a quorum is somebody");
        let holders: Vec<_> =
            heard.iter().filter(|member| held(member) == cut).map(|member| member.node).collect();
        let joiners = self.waiting(&world.truth());
        let mut members = [there, &joiners].concat();
        members.sort_unstable();
        members.dedup_by_key(|member| member.node);
        let view =
            View { epoch: ViewEpoch(self.round), tie_breaker: there[0].node, members: members.clone() };
        for old in self.decided.members.clone() {
            if !members.contains(&old) {
                self.put_out(world, old);
            }
        }
        let sponsor = there[self.dice.index(there.len())].node;
        let snapshot = world.actor(sponsor).and_then(Replica::snapshot).expect("it has just answered");
        for member in &members {
            if joiners.contains(member) {
                // Both come in this order, whatever the delay.
                world.command(member.node, Command::Join { snapshot: snapshot.clone() });
                world.command(member.node, Command::Freeze { round: self.round });
            }
            let (view, holders) = (view.clone(), holders.clone());
            self.tell(world, member.node, Command::Change { round: self.round, view, cut, holders });
        }
        self.decided = view.clone();
        self.stage = Stage::Flushing { view, since: world.now() };
    }

    /// Whose answers count: sometimes a bare quorum, so that others, who may hold more, come into the next view too.
    fn heard(&mut self, there: &[Member]) -> Vec<Member> {
        let mut heard = there.to_vec();
        while self.dice.below(2) == 0 {
            let without = self.dice.index(heard.len());
            let rest: Vec<_> = heard[..without].iter().chain(&heard[without + 1..]).copied().collect();
            let quorum = rest.iter().filter(|member| self.settled.members.contains(member)).count();
            if quorum * 2 <= self.settled.members.len() {
                break;
            }
            heard = rest;
        }
        heard
    }

    fn install(&mut self, world: &mut World<Replica>, view: View) {
        for node in view.nodes() {
            self.tell(world, node, Command::Install { view: view.clone() });
        }
        self.settled = view;
        self.stage = Stage::Quiet;
        self.changes += 1;
    }

    /// A member that did not answer is told so, some time.
    fn put_out(&mut self, world: &mut World<Replica>, member: Member) {
        self.out.insert(member);
        if world.truth().is_dead(member.node, member.incarnation) {
            return;
        }
        self.tell(world, member.node, Command::Leave);
        if let Some(pause) = self.comes_back {
            let at = world.now().saturating_add(pause + self.dice.between(Duration::ZERO..pause));
            world.at(at, Fault::Start(member.node));
        }
    }

    fn hand_out_snapshots(&mut self, world: &mut World<Replica>) {
        let who = std::mem::take(&mut self.answers.borrow_mut().need_snapshot);
        for node in who {
            let states = world.actors().filter_map(|(_, actor)| actor.snapshot());
            if let Some(snapshot) = states.max_by_key(|snapshot| snapshot.position) {
                self.tell(world, node, Command::Take { snapshot });
            }
        }
    }

    /// Most hear it soon, some late.
    fn tell(&mut self, world: &mut World<Replica>, node: NodeId, command: Command) {
        let most = if self.dice.below(8) == 0 { self.latest * 10 } else { self.latest };
        let at = world.now().saturating_add(self.dice.between(Duration::ZERO..most));
        world.command_at(at, node, command);
    }
}
