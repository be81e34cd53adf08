//! What must never be, and what must have been in the end.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use comb_sim::{Checker, Truth};
use comb_types::{NodeId, Time};

use super::super::one_order::{OneOrder, Place, rule};
use super::replica::{Event, Replica};
use crate::order::Level;
use crate::view::{Member, View};

#[derive(Clone, Copy, Debug)]
struct Sent {
    level: Level,
    hash: u64,
    at: Time,
    is_reached: bool,
    position: Option<u64>,
}

/// One life of a node.
#[derive(Clone, Debug, Default)]
struct Life {
    delivered: u64,
    submitted: u64,
    view: Option<View>,
}

/// What was seen of a run.
#[derive(Debug, Default)]
pub(super) struct Seen {
    order: OneOrder,
    sent: BTreeMap<(Member, u64), Sent>,
    last_numbers: BTreeMap<Member, u64>,
    lives: BTreeMap<Member, Life>,
    /// Until an update had reached its level, for those that were to reach a majority.
    pub(super) latencies: Vec<Duration>,
    pub(super) lagging: u64,
    pub(super) caught_up: u64,
    pub(super) snapshots: u64,
    pub(super) reached: u64,
}

impl Seen {
    /// How many updates were delivered somewhere.
    pub(super) fn delivered(&self) -> u64 {
        self.order.len()
    }

    /// How many updates were submitted.
    pub(super) fn submitted(&self) -> u64 {
        self.sent.len() as u64
    }

    /// How many updates of a node, in all its lives, were delivered.
    #[cfg(test)]
    pub(super) fn delivered_from(&self, node: NodeId) -> usize {
        self.order.places().iter().filter(|place| place.sender.node == node).count()
    }
}

/// Total order, view synchrony, no creation, no doubles, first come first served for each sender, one state; and at the
/// end, atomicity.
pub(super) struct Judge {
    pub(super) seen: Rc<RefCell<Seen>>,
    /// Whether all is quiet at the end, so that everything must have come to pass.
    pub(super) must_settle: Rc<RefCell<bool>>,
}

impl Seen {
    fn delivered_at(&mut self, me: Member, position: u64, place: Place) -> Result<(), String> {
        let life = self.lives.entry(me).or_default();
        let before = std::mem::replace(&mut life.delivered, position);
        if self.order.deliver(before, position, place)? { self.judge_new(position, place) } else { Ok(()) }
    }

    fn judge_new(&mut self, position: u64, place: Place) -> Result<(), String> {
        let name = (place.sender, place.number);
        let sent = self.sent.get_mut(&name).ok_or_else(|| format!("creation: nobody sent {name:?}"))?;
        rule(sent.hash == place.hash, || format!("creation: {name:?} is not what was sent"))?;
        rule(sent.position.is_none(), || {
            format!("doubled: {name:?} is at {:?} and {position}", sent.position)
        })?;
        sent.position = Some(position);
        let last = self.last_numbers.insert(place.sender, place.number).unwrap_or(0);
        rule(place.number == last + 1, || format!("sender's order: {name:?} comes after {last}"))
    }

    fn reached(&mut self, now: Time, me: Member, number: u64, level: Level) -> Result<(), String> {
        let sent = self.sent.get_mut(&(me, number)).ok_or("a level for what was not sent")?;
        rule(sent.level == level, || format!("update {number} was to reach {:?}", sent.level))?;
        rule(!sent.is_reached, || format!("update {number} was told to have reached its level twice"))?;
        sent.is_reached = true;
        self.reached += 1;
        if level == Level::Majority {
            self.latencies.push(now.since(sent.at));
        }
        Ok(())
    }

    /// Everything that was promised is everywhere where it should be.
    fn judge_end(&self, truth: &Truth<'_>) -> Result<(), String> {
        let alive = self.lives.iter().filter(|(life, _)| !truth.is_dead(life.node, life.incarnation));
        let newest = alive.clone().filter_map(|(_, life)| life.view.as_ref()).max_by_key(|view| view.epoch);
        let members: Vec<_> = match newest {
            Some(view) => alive.filter(|(life, _)| view.members.contains(life)).collect(),
            None => alive.collect(),
        };
        for (member, life) in &members {
            rule(life.delivered == self.delivered(), || {
                format!("atomicity: {} has {} of {} updates", member.node, life.delivered, self.delivered())
            })?;
            for number in 1..=life.submitted {
                let sent = &self.sent[&(**member, number)];
                rule(sent.is_reached && sent.position.is_some(), || {
                    format!("progress: update {number} of {} has not come to its end: {sent:?}", member.node)
                })?;
            }
        }
        for (name, sent) in &self.sent {
            let is_promised = sent.is_reached && sent.level != Level::Ordered;
            rule(!is_promised || sent.position.is_some(), || format!("atomicity: {name:?} was promised"))?;
        }
        Ok(())
    }
}

impl Checker<Replica> for Judge {
    fn saw(&mut self, truth: &Truth<'_>, node: NodeId, event: &Event) -> Result<(), String> {
        let me = Member { node, incarnation: truth.node(node).incarnation };
        let mut seen = self.seen.borrow_mut();
        match *event {
            Event::Submitted { number, level, hash } => {
                let sent = Sent { level, hash, at: truth.now, is_reached: false, position: None };
                seen.sent.insert((me, number), sent);
                let life = seen.lives.entry(me).or_default();
                life.submitted += 1;
                rule(number == life.submitted, || format!("number {number} follows {}", life.submitted - 1))
            }
            Event::Delivered { position, place } => seen.delivered_at(me, position, place),
            Event::Reached { number, level } => seen.reached(truth.now, me, number, level),
            Event::Joined { position, state } => {
                seen.lives.entry(me).or_default().delivered = position;
                seen.snapshots += 1;
                let known = seen.order.state(position);
                rule(known == state, || format!("the snapshot of position {position} has another state"))
            }
            Event::Installed { ref view } => {
                let life = seen.lives.entry(me).or_default();
                let is_newer = life.view.as_ref().is_none_or(|before| before.epoch < view.epoch);
                life.view = Some(view.clone());
                rule(is_newer, || format!("{} is installed after a later one", view.epoch))
            }
            Event::Lagging => {
                seen.lagging += 1;
                Ok(())
            }
            Event::CaughtUp => {
                seen.caught_up += 1;
                Ok(())
            }
            Event::Refused { from, rule } => Err(format!("honest {from} was refused: {rule}")),
            Event::Position { .. } | Event::Flushed { .. } | Event::NeedsSnapshot => Ok(()),
        }
    }

    fn end(&mut self, truth: &Truth<'_>) -> Result<(), String> {
        if *self.must_settle.borrow() { self.seen.borrow().judge_end(truth) } else { Ok(()) }
    }
}
