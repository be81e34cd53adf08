//! What must never be told of circles, and what must have been heard in the end.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use comb_sim::{Checker, Truth};
use comb_types::NodeId;

use super::super::one_order::{hash, rule};
use super::{CircleMember, Event, terms};
use crate::circles::{self, EVERYONE, Ordering, Reliability};
use crate::view::{Member, View, ViewEpoch};

/// Something that was said.
#[derive(Clone, Debug)]
struct Word {
    from: Member,
    circle: String,
    reliability: Reliability,
    /// The how manieth of its sender's.
    number: u64,
    to: Option<NodeId>,
    /// Said when all were in one view for good: to whom.
    last_to: Option<Vec<Member>>,
    heard_by: BTreeSet<Member>,
}

#[derive(Clone, Debug, Default)]
struct Life {
    view: Option<View>,
    /// By circle: who is in it, as this life was told.
    members: BTreeMap<String, Vec<Member>>,
    /// The last position of anything that it was told, and of a change.
    position: u64,
    since: u64,
    is_restored: bool,
    /// The last of each sender in a circle that keeps its senders' orders.
    last: BTreeMap<(String, Member), u64>,
    said: u64,
}

/// What was seen of a run.
#[derive(Debug, Default)]
pub(super) struct Seen {
    words: BTreeMap<u64, Word>,
    lives: BTreeMap<Member, Life>,
    /// Who was in a circle from a position on, in a view.
    changed: BTreeMap<(String, u64, ViewEpoch), Vec<Member>>,
    /// What was told at a position.
    told: BTreeMap<u64, (String, Member, u64)>,
    pub(super) must_be_heard: bool,
    pub(super) heard_atomic: u64,
    pub(super) heard_gossip: u64,
    pub(super) heard_lossy: u64,
    pub(super) missed: u64,
    pub(super) changes: u64,
    pub(super) restored: u64,
}

pub(super) struct Judge(pub(super) Rc<RefCell<Seen>>);

impl Seen {
    fn said(&mut self, me: Member, circle: &str, reliability: Reliability, hash: u64, to: Option<NodeId>) {
        let life = self.lives.entry(me).or_default();
        life.said += 1;
        let members = match (&life.view, circle) {
            (Some(view), EVERYONE) => Some(view.members.clone()),
            _ => life.members.get(circle).cloned(),
        };
        let word = Word {
            from: me,
            circle: circle.to_owned(),
            reliability,
            number: life.said,
            to,
            last_to: members.filter(|_| self.must_be_heard),
            heard_by: BTreeSet::new(),
        };
        self.words.insert(hash, word);
    }

    fn changed(&mut self, me: Member, circle: &str, since: u64, members: &[Member]) -> Result<(), String> {
        self.changes += 1;
        let life = self.lives.entry(me).or_default();
        rule(since >= life.since || life.is_restored, || format!("{me:?} is told of {circle} of before"))?;
        life.since = since;
        let was_in = life.members.get(circle).is_some_and(|before| before.contains(&me));
        rule(was_in || members.contains(&me), || {
            format!("{me:?} is told of {circle}, to which it never belonged")
        })?;
        match members.contains(&me) {
            true => life.members.insert(circle.to_owned(), members.to_vec()),
            false => life.members.remove(circle),
        };
        // Who gets a state is told of circles as they were then, in whatever view that was.
        let Some(view) = life.view.as_ref().filter(|_| !life.is_restored) else { return Ok(()) };
        let first = self.changed.entry((circle.to_owned(), since, view.epoch));
        let first = first.or_insert_with(|| members.to_vec());
        // Whoever has left is told the same as those who stay.
        rule(first == members, || format!("{circle} is {members:?} at {since} for {me:?}, and {first:?}"))
    }

    fn heard(&mut self, me: Member, told: &circles::Event) -> Result<(), String> {
        let circles::Event::Told { circle, from, is_to_one, position, body } = told else { return Ok(()) };
        let hash = hash(&body[..]);
        let word = self.words.get_mut(&hash).ok_or_else(|| format!("nobody said what {me:?} hears"))?;
        rule(word.circle == *circle && word.from == *from, || {
            format!("{me:?} hears {told:?}, and it was {word:?}")
        })?;
        rule(word.to.is_some() == *is_to_one && word.to.is_none_or(|to| to == me.node), || {
            format!("{me:?} hears what was for {:?}", word.to)
        })?;
        let life = self.lives.entry(me).or_default();
        let members = match circle == EVERYONE {
            true => life.view.as_ref().map(|view| &view.members),
            false => life.members.get(circle),
        };
        let is_among = match members {
            Some(members) => members.contains(&me) && members.contains(from),
            // Who comes in hears what is said to everyone before it is told of its first view.
            None => circle == EVERYONE,
        };
        rule(is_among, || format!("{me:?} hears {from:?} in {circle}, which is {members:?}"))?;
        let is_first = word.heard_by.insert(me);
        let may_double = *circle == "lossy";
        rule(is_first || may_double, || format!("{me:?} hears {word:?} twice"))?;
        if circle != EVERYONE && terms(circle).ordering == Ordering::Fifo {
            let last = life.last.entry((circle.clone(), *from)).or_default();
            rule(*last < word.number, || format!("{me:?} hears {word:?} behind number {last}"))?;
            *last = word.number;
        }
        match (word.reliability, position) {
            (Reliability::Atomic(_), Some(position)) => {
                self.heard_atomic += 1;
                rule(life.position < *position, || {
                    format!("{me:?} hears {position} behind {}", life.position)
                })?;
                life.position = *position;
                let name = (circle.clone(), *from, hash);
                let first = self.told.entry(*position).or_insert_with(|| name.clone());
                rule(*first == name, || format!("total order: {position} is {first:?} and {name:?}"))
            }
            (Reliability::Epidemic, None) => {
                self.heard_gossip += 1;
                Ok(())
            }
            (Reliability::Lossy, None) => {
                self.heard_lossy += 1;
                Ok(())
            }
            other => Err(format!("{me:?} hears {other:?}")),
        }
    }

    /// What was said when all were there for good has come to all for whom it was, unless it was lossy.
    fn judge_end(&self) -> Result<(), String> {
        for word in self.words.values().filter(|word| word.reliability != Reliability::Lossy) {
            let Some(to) = &word.last_to else { continue };
            let deaf = to.iter().find(|member| !word.heard_by.contains(member));
            rule(deaf.is_none(), || format!("{deaf:?} has not heard {word:?}"))?;
        }
        Ok(())
    }
}

impl Checker<CircleMember> for Judge {
    fn saw(&mut self, _truth: &Truth<'_>, _node: NodeId, event: &Event) -> Result<(), String> {
        let mut seen = self.0.borrow_mut();
        match event {
            &Event::Said { me, ref circle, reliability, hash, to } => {
                seen.said(me, circle, reliability, hash, to);
                Ok(())
            }
            &Event::View { me, ref view } => {
                let life = seen.lives.entry(me).or_default();
                (life.view, life.is_restored) = (Some(view.clone()), false);
                Ok(())
            }
            &Event::Restored { me } => {
                seen.restored += 1;
                let life = seen.lives.entry(me).or_default();
                life.is_restored = true;
                life.members.clear();
                Ok(())
            }
            Event::Circle { me, event } => match event {
                circles::Event::Changed { circle, since, members } => {
                    seen.changed(*me, circle, *since, members)
                }
                circles::Event::Told { .. } => seen.heard(*me, event),
                circles::Event::Missed { first, last, .. } => {
                    seen.missed += last - first + 1;
                    rule(!seen.must_be_heard, || format!("{me:?} misses {event:?} in good weather"))
                }
                circles::Event::Refused { .. } => {
                    Err(format!("{me:?}: all want the same terms, and {event:?}"))
                }
            },
            Event::Refused { from, rule } => Err(format!("honest {from} was refused: {rule}")),
        }
    }

    fn end(&mut self, _truth: &Truth<'_>) -> Result<(), String> {
        self.0.borrow().judge_end()
    }
}
