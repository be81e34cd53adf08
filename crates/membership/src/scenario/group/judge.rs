//! What must never be, and what must have been in the end.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use comb_sim::{Checker, Truth};
use comb_types::NodeId;

use super::super::one_order::{OneOrder, Place, rule};
use super::member::{Event, GroupMember};
use crate::detect::Condition;
use crate::order::Level;
use crate::quorum::{Basis, judge};
use crate::view::{Member, View, ViewEpoch};

#[derive(Clone, Copy, Debug)]
struct Sent {
    hash: u64,
    /// Reached, with a promise that it will never be lost.
    is_promised: bool,
    is_reached: bool,
    is_placed: bool,
}

#[derive(Clone, Debug, Default)]
struct Life {
    delivered: u64,
    view: Option<View>,
}

/// What was seen of a run.
#[derive(Debug, Default)]
pub(super) struct Seen {
    order: OneOrder,
    sent: BTreeMap<(Member, u64), Sent>,
    lives: BTreeMap<Member, Life>,
    views: BTreeMap<ViewEpoch, View>,
    pub(super) restored: u64,
    /// How often a member that was up was doubted, and whether that may be.
    pub(super) doubted: u64,
    pub(super) may_doubt: bool,
    pub(super) resumed: u64,
    pub(super) forgot: u64,
    /// Whether the group can still agree at the end, so that everything must have come to its end.
    pub(super) must_settle: bool,
    /// Whether there are fenced members: not where they have logs, and come back.
    pub(super) may_fence: bool,
    /// Views of fewer than a quorum, whose others had all ended; and updates that were lost with these.
    pub(super) remainders: u64,
    pub(super) lost: u64,
    /// Who has halted since the last look.
    pub(super) halted: Vec<NodeId>,
}

/// One order, one sequence of views, one state; nothing made up, doubled, or lost that was promised.
pub(super) struct Judge(pub(super) Rc<RefCell<Seen>>);

impl Seen {
    pub(super) fn delivered(&self) -> u64 {
        self.order.len()
    }

    pub(super) fn views(&self) -> u64 {
        self.views.len() as u64
    }

    pub(super) fn is_installed(&self, epoch: ViewEpoch) -> bool {
        self.views.contains_key(&epoch)
    }

    fn deliver(&mut self, me: Member, position: u64, place: Place) -> Result<(), String> {
        let life = self.lives.entry(me).or_default();
        let before = std::mem::replace(&mut life.delivered, position);
        // The program goes by what it was told last. (A joiner is brought up to its first view in none.)
        let is_told_in_time = life.view.as_ref().is_none_or(|view| view.epoch == place.epoch);
        rule(is_told_in_time, || {
            format!("view synchrony: {me:?} is told position {position} of {} in another view", place.epoch)
        })?;
        if !self.order.deliver(before, position, place)? {
            return Ok(());
        }
        let name = (place.sender, place.number);
        let sent = self.sent.get_mut(&name).ok_or_else(|| format!("nobody sent {name:?}"))?;
        rule(sent.hash == place.hash, || format!("{name:?} is not what was sent"))?;
        rule(!sent.is_placed, || format!("{name:?} was delivered twice"))?;
        sent.is_placed = true;
        Ok(())
    }

    /// Of the last view that a life has installed.
    pub(super) fn installed(&self, life: Member) -> ViewEpoch {
        let view = self.lives.get(&life).and_then(|life| life.view.as_ref());
        view.map_or(ViewEpoch(0), |view| view.epoch)
    }

    /// Those that are left of a view may go on, though they are no quorum of it, if all others have ended. What these alone had
    /// delivered is lost, and so is what they had been promised; nobody else's is.
    fn lose_with_the_dead(&mut self, truth: &Truth<'_>, before: &View, view: &View, delivered: u64) {
        let stay = before.nodes().filter(|&node| before.member(node) == view.member(node)).collect();
        if !self.may_fence || judge(before, &stay, &Basis::default()).is_quorum() {
            return;
        }
        self.remainders += 1;
        for place in self.order.lose_beyond(delivered) {
            self.lost += 1;
            if let Some(sent) = self.sent.get_mut(&(place.sender, place.number)) {
                sent.is_placed = false;
                sent.is_promised &= !truth.is_dead(place.sender.node, place.sender.incarnation);
            }
        }
    }

    fn install(&mut self, truth: &Truth<'_>, me: Member, view: &View) -> Result<(), String> {
        rule(view.members.contains(&me), || format!("{me:?} installs {view:?}"))?;
        let delivered = self.lives.entry(me).or_default().delivered;
        let before = self.views.get(&ViewEpoch(view.epoch.0 - 1)).cloned();
        if let Some(before) = before.filter(|before| before.members.contains(&me))
            && !self.views.contains_key(&view.epoch)
        {
            self.lose_with_the_dead(truth, &before, view, delivered);
        }
        let life = self.lives.entry(me).or_default();
        let before = life.view.replace(view.clone());
        let follows = before.is_none_or(|before| before.epoch.0 + 1 == view.epoch.0);
        rule(follows, || format!("{me:?} is told of {} behind one that it does not follow", view.epoch))?;
        let first = self.views.entry(view.epoch).or_insert_with(|| view.clone());
        rule(first == view, || format!("{} is {first:?} and {view:?}", view.epoch))
    }

    /// Everybody who is up is in one view and has everything.
    fn judge_end(&self, truth: &Truth<'_>) -> Result<(), String> {
        let newest = self.views.values().next_back().ok_or("no view was ever installed")?;
        for node in truth.up() {
            let me = Member { node, incarnation: truth.node(node).incarnation };
            let life = self.lives.get(&me).ok_or_else(|| format!("{node} never came in"))?;
            rule(newest.members.contains(&me), || format!("{node} is not in {}", newest.epoch))?;
            rule(life.view.as_ref() == Some(newest), || format!("{node} is in {:?}", life.view))?;
            rule(life.delivered == self.delivered(), || {
                format!("{node} has {} of {} updates", life.delivered, self.delivered())
            })?;
            let own = self.sent.range((me, 0)..=(me, u64::MAX));
            for (name, sent) in own {
                rule(sent.is_reached && sent.is_placed, || format!("{name:?} has not come to its end"))?;
            }
        }
        rule(newest.members.len() == truth.up().count(), || format!("the dead are in {newest:?}"))?;
        for (name, sent) in &self.sent {
            rule(!sent.is_promised || sent.is_placed, || format!("{name:?} was promised, and is lost"))?;
        }
        Ok(())
    }
}

impl Checker<GroupMember> for Judge {
    fn saw(&mut self, truth: &Truth<'_>, node: NodeId, event: &Event) -> Result<(), String> {
        let mut seen = self.0.borrow_mut();
        match *event {
            Event::Submitted { me, number, hash, .. } => {
                let sent = Sent { hash, is_promised: false, is_reached: false, is_placed: false };
                let before = seen.sent.insert((me, number), sent);
                rule(before.is_none(), || format!("number {number} was given twice"))
            }
            Event::Delivered { me, position, place } => seen.deliver(me, position, place),
            Event::Reached { me, number, level } => {
                let sent = seen.sent.get_mut(&(me, number)).ok_or("a level for what was not sent")?;
                rule(!sent.is_reached, || format!("number {number} reached its level twice"))?;
                sent.is_reached = true;
                sent.is_promised = level != Level::Ordered;
                Ok(())
            }
            Event::Restored { me, position, state } => {
                seen.restored += 1;
                let known = seen.order.state(position);
                seen.lives.entry(me).or_default().delivered = position;
                rule(known == state, || format!("the state at {position} is another"))
            }
            Event::View { me, ref view } => seen.install(truth, me, view),
            Event::Condition(change) => {
                let is_dead = truth.is_dead(change.subject.node, change.subject.incarnation);
                let is_wrong = change.condition > Condition::Alive && !is_dead;
                seen.doubted += u64::from(is_wrong);
                rule(seen.may_doubt || !is_wrong, || format!("{:?} of a healthy one", change))
            }
            Event::Refused { from, rule } => Err(format!("honest {from} was refused: {rule}")),
            Event::Excluded | Event::DiskFull => {
                seen.halted.push(node);
                Ok(())
            }
            Event::Resumed => {
                seen.resumed += 1;
                Ok(())
            }
            Event::Forgot => {
                seen.forgot += 1;
                Ok(())
            }
        }
    }

    fn end(&mut self, truth: &Truth<'_>) -> Result<(), String> {
        let seen = self.0.borrow();
        if seen.must_settle { seen.judge_end(truth) } else { Ok(()) }
    }
}
