//! What a message changes.

use alloc::string::String;
use alloc::vec::Vec;

use comb_types::{NodeId, Time};

use super::message::{Delta, Kind, LONGEST_MESSAGE, MOST_VERSION, Message, News, Row, Summary, ZoneRow};
use super::near::Near;
use super::standing::{Standing, Zone, slots};
use super::{Event, State, life};
use crate::wire::{self, PeerError, Protocol};

/// How far a version of ours that others believe may be ahead of the true one for us to go beyond it. Who tells us of a greater one
/// made it up itself: nobody would have believed it.
const MOST_OVERTAKEN: u32 = 1 << 20;

/// How far a node may have come that writes much, since it was heard of last. What lies beyond, it has to say itself.
const MOST_RISES_AT_ONCE: u32 = 1 << 10;
const MOST_RISES_A_ROUND: u32 = 1 << 4;

/// What is said to a message.
#[derive(Debug, Default)]
pub(super) struct Reply {
    /// Places of near nodes of which we know more, and how often places had moved by then.
    pub(super) newer: Vec<usize>,
    pub(super) moves: u32,
    /// Whether some node's entries are not as the message says that they are.
    pub(super) lacks_entries: bool,
    /// Zones of which we know something else.
    pub(super) zones: Vec<u32>,
    /// Zones of which we know a later beat.
    pub(super) beats: Vec<ZoneRow>,
    /// Whether we know something else of any zone, mentioned or not.
    pub(super) is_other_world: bool,
}

impl State {
    pub(super) fn receive(&mut self, now: Time, from: NodeId, bytes: &[u8]) -> Result<(), PeerError> {
        if bytes.len() > LONGEST_MESSAGE {
            return Err(PeerError::new(from, "a message that is too long"));
        }
        let message: Message = wire::decode(from, Protocol::State, bytes)?;
        message.check(from, &self.config)?;
        self.check(from, &message)?;
        self.heard_at = now;
        if !self.concluded_alone.is_empty() {
            self.take_back(now);
        }
        self.take(now, from, bytes.len(), &message);
        Ok(())
    }

    /// Finds what cannot be so, after what we know.
    fn check(&self, from: NodeId, message: &Message) -> Result<(), PeerError> {
        let me = self.config.me;
        let mut node = NodeId(0);
        let mut place = 0;
        for row in &message.rows {
            node.0 += row.step;
            while self.near.get(place).is_some_and(|near| near.member.node < node) {
                place += 1;
            }
            let Some(near) = self.near.get(place).filter(|near| near.member.node == node) else { continue };
            let leap = row.version.saturating_sub(near.version);
            if node == me.node && (row.incarnation > me.incarnation || leap > MOST_OVERTAKEN) {
                return Err(PeerError::new(from, "a version of us that we never had"));
            }
        }
        let of_us = message.news.iter().filter(|news| news.node == me.node).map(|news| news.standing);
        let own_zone = self.zones.zone_of(me.node);
        let summaries = message.summaries.iter().filter(|summary| summary.zone == own_zone);
        let in_summaries = summaries.filter_map(|summary| summary.standing(self.zones.slot_of(me.node)));
        if of_us.chain(in_summaries).any(|standing| standing.incarnation > me.incarnation) {
            return Err(PeerError::new(from, "a life of us that has not begun"));
        }
        let mut wants = message.wants.iter().filter(|want| want.owner == me.node);
        if wants.any(|want| want.incarnation > me.incarnation) {
            return Err(PeerError::new(from, "a life of us that has not begun"));
        }
        Ok(())
    }

    /// Takes over what is new in a message that may be so, and answers it.
    fn take(&mut self, now: Time, from: NodeId, bytes: usize, message: &Message) {
        let mut reply = Reply { moves: self.moves, ..Reply::default() };
        self.take_rows(now, from, message, &mut reply);
        for doubt in &message.doubts {
            self.hear_doubt(now, from, doubt);
        }
        for &news in &message.news {
            self.hear_news(now, from, news);
        }
        for summary in &message.summaries {
            self.take_summary(now, from, summary, &mut reply);
        }
        for told in &message.zones {
            let known = self.zones.zone(told.zone).map(Zone::row);
            if known.is_none_or(|known| known.hash != told.hash) {
                reply.zones.push(told.zone);
            }
            match known {
                Some(known) if known.beat < told.beat => self.hear_beat(now, told),
                Some(known) if known.beat > told.beat && !self.is_near(from) => reply.beats.push(known),
                _ => {}
            }
        }
        reply.is_other_world = message.world != self.zones.hash();
        self.is_unsettled = reply.is_other_world;
        for delta in &message.deltas {
            self.take_delta(delta);
        }
        match message.kind {
            Kind::Digest => self.answer(from, message, &reply),
            Kind::Answer => self.pace.answered(bytes),
            Kind::Return | Kind::Push => {}
        }
        if message.kind != Kind::Digest {
            if message.kind == Kind::Push {
                // Else two that each know what the other does not believe would tell each other without end.
                reply.zones.clear();
            }
            self.follow_up(from, message, &reply);
        }
        if self.next_check <= now {
            self.judge(now);
        }
    }

    fn take_rows(&mut self, now: Time, from: NodeId, message: &Message, reply: &mut Reply) {
        // Only a digest of the whole zone shows by what it leaves out that its sender does not know it.
        let lists_all = message.kind == Kind::Digest && message.rows.len() > 1 && self.is_near(from);
        let (mut strangers, mut doubtful) = (Vec::new(), None);
        let (mut node, mut place) = (NodeId(0), 0);
        for row in &message.rows {
            node.0 += row.step;
            while self.near.get(place).is_some_and(|near| near.member.node < node) {
                if lists_all && !self.near[place].is_failed {
                    reply.newer.push(place);
                }
                place += 1;
            }
            match self.near.get(place) {
                Some(near) if near.member.node == node => {
                    self.overtake(now, node, row);
                    if node != from && self.is_doubtful(now, place, row) {
                        doubtful = Some(node);
                    } else if !self.take_row(now, from, place, row) {
                        strangers.push((node, *row));
                    } else if message.kind == Kind::Digest && self.near[place].version > row.version {
                        reply.newer.push(place);
                    }
                    reply.lacks_entries |= self.near[place].is_wanted();
                    place += 1;
                }
                _ => strangers.push((node, *row)),
            }
        }
        if lists_all {
            reply.newer.extend((place..self.near.len()).filter(|&place| !self.near[place].is_failed));
        }
        if let Some(node) = doubtful {
            self.ask_for_life(node);
        }
        for (node, row) in strangers {
            self.hear_news(now, from, News { node, standing: Standing::alive(row.incarnation) });
            if let Ok(place) = self.find(node) {
                self.take_row(now, from, place, &row);
            }
        }
    }

    /// Somebody has made up a version of ours. Others who believe it would take our true ones for old, and us for dead: so we go
    /// beyond it.
    fn overtake(&mut self, now: Time, node: NodeId, row: &Row) {
        if node != self.config.me.node {
            return;
        }
        let me = self.me();
        let is_other_state = row.version == me.version && u32::from_le_bytes(row.hash) != me.hash;
        let is_ahead = row.version > me.version || (is_other_state && me.version > 0);
        if row.incarnation == me.member.incarnation && is_ahead && row.version < MOST_VERSION {
            me.version = row.version;
            me.raise(now);
        }
    }

    /// Whether a third node's word for a version is to be asked of the node itself: it can hardly have come so far since we heard of
    /// it last.
    fn is_doubtful(&self, now: Time, place: usize, row: &Row) -> bool {
        let near = &self.near[place];
        let rounds = now.since(near.risen_at).as_nanos() / self.config.interval.as_nanos().max(1);
        let rises = u128::from(MOST_RISES_AT_ONCE) + u128::from(MOST_RISES_A_ROUND) * rounds;
        let is_known = near.version > 0 && row.incarnation == near.member.incarnation;
        is_known && u128::from(row.version.saturating_sub(near.version)) > rises
    }

    /// Says whether the row is of the life that we know, or of one before.
    fn take_row(&mut self, now: Time, from: NodeId, place: usize, row: &Row) -> bool {
        let near = &mut self.near[place];
        if row.incarnation != near.member.incarnation {
            return row.incarnation < near.member.incarnation;
        }
        let hash = u32::from_le_bytes(row.hash);
        if row.version == near.version && from == near.member.node {
            // What a third node passed on another may have made up.
            near.hash = hash;
        }
        if row.version > near.version {
            let gap = now.since(near.risen_at);
            if near.version > 0 && !near.is_failed {
                self.staleness.saw(gap);
            }
            near.version = row.version;
            near.hash = hash;
            near.risen_at = now;
            if let Some(doubt) = near.doubt.take()
                && doubt.since.is_some()
            {
                self.events.push_back(Event::Cleared(near.member));
            }
        }
        true
    }

    /// How a node stands, as a peer says.
    fn hear_news(&mut self, now: Time, from: NodeId, news: News) {
        match self.weigh(from, news) {
            Some(news) if news.standing.is_failed() && self.is_for_jurors(from, news) => {}
            Some(news) if news.standing.is_failed() => self.hear_of_failure(now, news),
            Some(news) => self.raise(now, news.node, news.standing),
            None => {}
        }
    }

    /// Whether this is of one of a group that its sender does not belong to.
    fn is_for_jurors(&self, from: NodeId, news: News) -> bool {
        let is_one = |node| self.jurors.contains(&node);
        is_one(news.node) && !is_one(from) && !news.standing.is_fenced()
    }

    fn take_summary(&mut self, now: Time, from: NodeId, summary: &Summary, reply: &mut Reply) {
        if self.is_layered && summary.zone != self.zones.zone_of(self.config.me.node) {
            // Whole zones at once: a node that comes into a large farm does not take them in node by node.
            let joined = self.zones.join(summary);
            if joined != 0 {
                let first = self.zones.node(summary.zone, 0);
                self.events.push_back(Event::ZoneJoined { first, nodes: joined });
            }
        }
        for slot in slots(u64::from_le_bytes(summary.present)) {
            let Some(standing) = summary.standing(slot) else { continue };
            let node = self.zones.node(summary.zone, slot);
            if self.zones.get(node).is_some_and(|known| known >= standing) {
                continue;
            }
            self.hear_news(now, from, News { node, standing });
        }
        // Not whenever ours differs: what we do not believe yet, we would be told again for ever.
        let ours = self.zones.zone(summary.zone).map(Zone::summary);
        if ours.is_some_and(|ours| ours.is_ahead_of(summary)) {
            reply.zones.push(summary.zone);
        }
    }

    fn take_delta(&mut self, delta: &Delta) {
        let Ok(place) = self.find(delta.owner) else { return };
        let near = &mut self.near[place];
        if near.member.incarnation != delta.incarnation || near.is_failed {
            return;
        }
        let Some(after) = near.entries.after(delta) else { return };
        let owner = life(delta.owner, delta.incarnation);
        self.events.extend(after.differences(&near.entries).map(|(key, value)| Event::Entry {
            owner,
            key: String::from(key),
            value: value.map(Vec::from),
        }));
        near.entries = after;
    }
}

impl Near {
    /// How its row follows on that of another node.
    pub(super) fn row(&self, before: NodeId) -> Row {
        Row {
            step: self.member.node.0 - before.0,
            incarnation: self.member.incarnation,
            version: self.version,
            hash: self.hash.to_le_bytes(),
        }
    }
}
