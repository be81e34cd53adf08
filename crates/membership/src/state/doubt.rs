//! From a version that does not rise to a failure.
//!
//! A node that hears of no later version for longer than the threshold suspects, tells some others, and asks the suspect itself;
//! so do all others to whom the same happens. A version that rises clears the suspicion wherever it is heard of. What stays
//! suspected for a while, by a quorum, has failed: that so many questions and answers all got lost is far less likely than that
//! the gap alone was chance.

use comb_types::{NodeId, Time};

use super::message::{Doubt, Kind, Message, News};
use super::near::Doubted;
use super::standing::Standing;
use super::{Event, State};

/// How many near nodes are told of a new suspicion at once.
const CONFIDANTS: usize = 3;

/// Doubters that are remembered: more make no difference to any quorum.
const MOST_DOUBTERS: usize = 16;

impl State {
    /// The threshold for this moment: what was learned from gaps, but also more than most nodes of the zone are silent for right
    /// now. When loss begins, or when we stand apart, all fall silent together, before any gap has ended that could be learned from.
    pub(super) fn set_threshold(&mut self, now: Time) {
        let mut ages: [core::time::Duration; 64] = [core::time::Duration::ZERO; 64];
        let mut count = 0;
        let me = self.config.me.node;
        let others = self.near.iter().filter(|near| !near.is_failed && near.member.node != me);
        for (age, near) in ages.iter_mut().zip(others) {
            *age = now.since(near.risen_at);
            count += 1;
        }
        let common = if count > 2 { *ages[..count].select_nth_unstable(count / 2).1 } else { ages[0] / 8 };
        let learned = self.staleness.threshold().unwrap_or(self.config.interval * 10);
        let threshold = learned.max(common * 3).max(self.config.interval * 3);
        self.threshold = threshold.min(self.config.longest_silence);
    }

    /// Suspects whom there is reason to suspect, and decides where it is time.
    pub(super) fn judge(&mut self, now: Time) {
        self.next_check = Time::MAX;
        let me = self.config.me.node;
        let confirmation = (self.config.interval / 2).max(self.threshold / 8);
        let quorum = self.quorum();
        let may_decide = now.since(self.heard_at) < self.threshold.min(self.config.interval * 3);
        for place in 0..self.near.len() {
            let near = &self.near[place];
            if near.is_failed || near.member.node == me {
                continue;
            }
            let suspect_at = near.risen_at.saturating_add(self.threshold);
            if now < suspect_at && !near.is_suspected() {
                self.next_check = self.next_check.min(suspect_at);
                continue;
            }
            if !near.is_suspected() {
                self.suspect(now, place);
            }
            let Some(doubt) = &self.near[place].doubt else { continue };
            let decide_at = doubt.since.map_or(Time::MAX, |since| since.saturating_add(confirmation));
            let has_quorum = doubt.by.len() >= quorum;
            if now < decide_at {
                self.next_check = self.next_check.min(decide_at);
            } else if has_quorum && may_decide {
                let member = self.near[place].member;
                self.fail(now, member);
            } else if has_quorum && now.since(self.near[place].risen_at) >= self.config.longest_silence {
                self.conclude_alone(place);
            }
        }
        self.judge_allegations(now);
    }

    /// Who hears nobody at all is deaf, or alone in the world. It acts as if it were alone, and tells nobody: if anybody ever hears
    /// of it, then it was not.
    fn conclude_alone(&mut self, place: usize) {
        let near = &mut self.near[place];
        near.is_failed = true;
        near.doubt = None;
        let member = near.member;
        self.concluded_alone.push(member);
        self.events.push_back(Event::Lost(member));
    }

    /// Somebody is there: what we concluded when we heard nobody was wrong, or is for others to say.
    pub(super) fn take_back(&mut self, now: Time) {
        for member in core::mem::take(&mut self.concluded_alone) {
            if self.zones.get(member.node).is_none_or(Standing::is_failed) {
                continue;
            }
            if let Ok(place) = self.find(member.node)
                && self.near[place].member == member
            {
                let near = &mut self.near[place];
                (near.is_failed, near.risen_at) = (false, now);
                self.events.push_back(Event::Cleared(member));
            }
        }
    }

    fn quorum(&self) -> usize {
        let unsuspected = self.near.iter().filter(|near| !near.is_failed && !near.is_suspected()).count();
        self.config.quorum.min(unsuspected / 2 + 1)
    }

    pub(super) fn suspect(&mut self, now: Time, place: usize) {
        let me = self.config.me.node;
        let near = &mut self.near[place];
        let doubt = near.doubt.get_or_insert_default();
        doubt.since = Some(now);
        add_doubters(doubt, &[me]);
        let subject = near.member;
        self.events.push_back(Event::Suspected(subject));
        let told =
            Message { kind: Kind::Push, doubts: self.doubt_of(place).into_iter().collect(), ..self.blank() };
        for _ in 0..CONFIDANTS {
            if let Some(to) = self.any_near().filter(|&to| to != subject.node) {
                self.send(to, &told);
            }
        }
        self.ask_suspect(place);
    }

    /// Asks a suspect for a sign of life. What it answers, everybody will hear.
    pub(super) fn ask_suspect(&mut self, place: usize) {
        let doubts = self.doubt_of(place).into_iter().collect();
        let rows = self.own_row();
        let question = Message { kind: Kind::Digest, rows, doubts, ..self.blank() };
        self.send(self.near[place].member.node, &question);
    }

    /// What we say to others of a doubt.
    pub(super) fn doubt_of(&self, place: usize) -> Option<Doubt> {
        let near = &self.near[place];
        let doubt = near.doubt.as_ref().filter(|doubt| !doubt.by.is_empty() && !near.is_failed)?;
        Some(Doubt {
            subject: near.member.node,
            incarnation: near.member.incarnation,
            version: near.version,
            by: doubt.by.clone(),
        })
    }

    /// Others doubt. If it is we whom they doubt, they shall hear of us.
    pub(super) fn hear_doubt(&mut self, now: Time, from: NodeId, doubt: &Doubt) {
        let me = self.config.me;
        if doubt.subject == me.node {
            if doubt.incarnation == me.incarnation {
                self.show_life(now, from);
            }
            return;
        }
        let Ok(place) = self.find(doubt.subject) else { return };
        let near = &mut self.near[place];
        let is_same = near.member.incarnation == doubt.incarnation && near.version == doubt.version;
        if !near.is_failed && is_same {
            add_doubters(near.doubt.get_or_insert_default(), &doubt.by);
            if near.is_suspected() {
                self.next_check = self.next_check.min(now);
            }
        }
    }

    /// Others say that a near node failed. We know it as well as they do: if we heard of it a moment ago, we wait until our own
    /// clock bears them out, or the node itself denies it.
    pub(super) fn hear_of_failure(&mut self, now: Time, news: News) {
        let place = match self.find(news.node) {
            Ok(place) if news.node != self.config.me.node => place,
            _ => return self.raise(now, news.node, news.standing),
        };
        let near = &self.near[place];
        let is_fresh = now.since(near.risen_at) < self.threshold / 2;
        let is_same_life = near.member.incarnation == news.standing.incarnation;
        if near.is_failed || !is_fresh || !is_same_life || news.standing.is_fenced() {
            return self.raise(now, news.node, news.standing);
        }
        if self.zones.get(news.node).is_some_and(|known| known >= news.standing) {
            return;
        }
        if !self.alleged.contains(&news) && self.alleged.len() < super::message::MOST_ROWS {
            let believed_at = near.risen_at.saturating_add(self.threshold / 2);
            self.next_check = self.next_check.min(believed_at);
            self.alleged.push(news);
            let told = Message { kind: Kind::Push, news: alloc::vec![news], ..self.blank() };
            self.send(news.node, &told);
        }
    }

    fn judge_allegations(&mut self, now: Time) {
        for news in core::mem::take(&mut self.alleged) {
            let is_old = self.zones.get(news.node).is_some_and(|known| known >= news.standing);
            if !is_old {
                let heard = self.find(news.node).map_or(Time::ZERO, |place| self.near[place].risen_at);
                let believed_at = heard.saturating_add(self.threshold / 2);
                if now >= believed_at {
                    self.raise(now, news.node, news.standing);
                } else {
                    self.next_check = self.next_check.min(believed_at);
                    self.alleged.push(news);
                }
            }
        }
    }
}

fn add_doubters(doubt: &mut Doubted, doubters: &[NodeId]) {
    for &doubter in doubters {
        if let Err(place) = doubt.by.binary_search(&doubter)
            && doubt.by.len() < MOST_DOUBTERS
        {
            doubt.by.insert(place, doubter);
        }
    }
}
