//! What is sent to whom, and how often.

use alloc::vec::Vec;

use comb_types::{Dice, NodeId, Time};

use super::State;
use super::message::{
    Delta, Doubt, Kind, LONGEST_MESSAGE, Message, News, Row, Summary, Want, ZoneRow, length,
};
use super::near::Near;
use super::receive::Reply;
use super::standing::Zone;
use crate::transmit::Transmit;
use crate::wire::{self, Protocol};

/// Rows of other zones in a digest to our zone, and in one to another. So few that traffic does not depend on how many zones
/// there are; they go round.
const ZONES_NEAR: usize = 6;
const ZONES_FAR: usize = 16;

/// By how many times more they are while others are seen to know something else than we do.
const WHEN_UNSETTLED: usize = 3;

/// To how many nodes a failure is told by whoever hears of it first. Of 10,000 nodes, 98 % hear it so within milliseconds, and
/// the others from digests of the next round.
const RUMOUR_FAN_OUT: usize = 4;

/// Rumours that are told on. More than that, and the hashes of zones show the rest.
const MOST_RUMOURS: usize = 64;
const RUMOURS_IN_MESSAGE: usize = 16;

/// Messages that one interval may cost beyond its rounds. After that, news wait for the next round.
const MOST_PUSHES: u32 = 24;

/// One round in so many asks a node that has failed, so that two halves find each other again.
const ROUNDS_BETWEEN_REVIVALS: u32 = 16;

/// So many rounds of a life ask a contact each: else nodes that start together would find their neighbours and stay among them.
const YOUNG_ROUNDS: u32 = 8;

/// Something new, and how many of our messages will still tell it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rumour {
    news: News,
    left: u32,
}

/// How much goes out, and how much of it comes back.
#[derive(Clone, Debug, Default)]
pub(super) struct Pace {
    /// In 256ths, the older the less: digests sent, answers received, and their bytes.
    asked: u32,
    answered: u32,
    asked_bytes: u32,
    answered_bytes: u32,
    /// Messages of this interval besides the rounds'.
    pushes: u32,
    cursor: usize,
}

impl Pace {
    fn asked(&mut self, bytes: usize) {
        self.asked += 256;
        self.asked_bytes += u32::try_from(bytes).unwrap_or(0);
    }

    pub(super) fn answered(&mut self, bytes: usize) {
        self.answered += 256;
        self.answered_bytes += u32::try_from(bytes).unwrap_or(0);
    }

    /// A round begins. What is long past counts less.
    fn next_round(&mut self) {
        self.pushes = 0;
        for number in [&mut self.asked, &mut self.answered, &mut self.asked_bytes, &mut self.answered_bytes] {
            *number -= *number / 16;
        }
    }

    /// Of a thousand messages, how many arrive: a question and its answer are two.
    pub(super) fn arriving_per_mille(&self) -> u32 {
        if self.asked < 256 * 4 {
            return 1000;
        }
        let share = u64::from(self.answered.min(self.asked)) * 1_000_000 / u64::from(self.asked);
        u32::try_from(share.isqrt()).unwrap_or(1000).clamp(1, 1000)
    }

    /// Digests of this round: so many that as many arrive as if nothing were lost, within what a round may cost. In 1000ths.
    fn fan_out_per_mille(&self, config: &super::Config) -> u32 {
        let arriving = self.arriving_per_mille();
        // One in twenty is lost in any network that is in use, and is no reason for more.
        let wanted =
            if arriving > 950 { config.fan_out * 1000 } else { config.fan_out * 1_000_000 / arriving };
        let digest =
            (u64::from(self.asked_bytes) * 256).checked_div(u64::from(self.asked)).unwrap_or(0).max(100);
        let answer =
            (u64::from(self.answered_bytes) * 256).checked_div(u64::from(self.answered)).unwrap_or(0);
        let each = digest + answer * u64::from(arriving) / 1000;
        let round = u64::try_from(config.interval.as_millis()).unwrap_or(1000);
        let affordable = u64::from(config.most_bytes_per_second) * round / each;
        let most = u32::try_from(affordable).unwrap_or(u32::MAX).min(config.most_fan_out * 1000);
        wanted.min(most).max(1000)
    }
}

/// What still fits into a message.
struct Space(usize);

impl Space {
    fn takes(&mut self, bytes: usize) -> bool {
        let fits = bytes <= self.0;
        if fits {
            self.0 -= bytes;
        }
        fits
    }
}

impl State {
    /// Raises our version, looks who has been silent for too long, and tells some nodes what we know.
    pub(super) fn round(&mut self, now: Time) {
        self.pace.next_round();
        self.beat(now);
        let tombstone_versions = self.config.tombstone_versions;
        let me = self.me();
        me.raise(now);
        if me.version.is_multiple_of(64) && me.entries.sweep(me.version.saturating_sub(tombstone_versions)) {
            me.hash = me.entries.hash();
        }
        self.set_threshold(now);
        self.judge(now);
        self.ask_suspects();
        self.judge_zones(now);
        let fan_out = self.pace.fan_out_per_mille(&self.config);
        self.gossip_near(fan_out);
        self.gossip_far(fan_out);
        self.look_for_others();
        let interval = self.config.interval;
        // A little out of step with each other, so that nobody always comes just after somebody.
        let next = self.dice.between(interval - interval / 16..interval + interval / 16);
        self.next_round = self.next_round.saturating_add(next).max(now.saturating_add(interval / 2));
    }

    fn ask_suspects(&mut self) {
        for place in 0..self.near.len() {
            if self.near[place].is_suspected() && !self.near[place].is_failed {
                self.ask_suspect(place);
            }
        }
    }

    fn gossip_near(&mut self, fan_out_per_mille: u32) {
        let digests = self.roll_count(fan_out_per_mille);
        let others = self.near.iter().filter(|near| !near.is_failed).count() - 1;
        if others == 0 {
            return;
        }
        let digest = self.digest_near();
        let bytes = wire::encode(Protocol::State, &digest);
        let mut told: Vec<NodeId> = Vec::new();
        for _ in 0..digests.min(others) * 2 {
            if told.len() == digests.min(others) {
                break;
            }
            if let Some(to) = self.any_near().filter(|to| !told.contains(to)) {
                told.push(to);
                self.pace.asked(bytes.len());
                self.transmits.push_back(Transmit { to, bytes: bytes.clone() });
            }
        }
    }

    /// Every other round in the mean, another zone.
    fn gossip_far(&mut self, fan_out_per_mille: u32) {
        if !self.is_layered {
            return;
        }
        for _ in 0..self.roll_count(fan_out_per_mille / (2 * self.config.fan_out)) {
            let Some(to) = self.any_far() else { continue };
            let zones = self.rotate_zones(ZONES_FAR);
            let news = self.tell_rumours();
            let digest = Message { kind: Kind::Digest, rows: self.own_row(), zones, news, ..self.blank() };
            let bytes = self.send(to, &digest);
            self.pace.asked(bytes);
        }
    }

    /// Asks somebody who may be there, though we do not gossip with it: a contact that we have not heard of yet, or a node that
    /// has failed, so that two halves find each other again.
    fn look_for_others(&mut self) {
        let is_young = self.me().version <= YOUNG_ROUNDS;
        let contacts = &self.config.contacts;
        let contact = contacts.get(self.dice.index(contacts.len().max(1))).copied();
        let is_unknown = contact.is_some_and(|contact| self.member(contact).is_none());
        let to = if is_young || is_unknown {
            contact
        } else if !self.concluded_alone.is_empty() {
            self.zones.any(true, &mut self.dice)
        } else if self.dice.below(ROUNDS_BETWEEN_REVIVALS) == 0 {
            self.zones.any(false, &mut self.dice)
        } else {
            None
        };
        if let Some(to) = to.filter(|&to| to != self.config.me.node) {
            let question = Message { kind: Kind::Digest, rows: self.own_row(), ..self.blank() };
            self.send(to, &question);
        }
    }

    /// A number that is so large in the mean.
    pub(super) fn roll_count(&mut self, per_mille: u32) -> usize {
        (per_mille / 1000 + u32::from(self.dice.below(1000) < per_mille % 1000)) as usize
    }

    /// Somebody of our zone, rather a near one.
    pub(super) fn any_near(&mut self) -> Option<NodeId> {
        let me = self.config.me.node;
        let pick = |near: &[Near], dice: &mut Dice| {
            (0..8).find_map(|_| {
                let near = &near[dice.index(near.len())];
                (!near.is_failed && near.member.node != me).then_some(near.member.node)
            })
        };
        let one = pick(&self.near, &mut self.dice)?;
        let other = pick(&self.near, &mut self.dice)?;
        Some(self.nearer(one, other))
    }

    /// Somebody of another zone, rather a near one.
    fn any_far(&mut self) -> Option<NodeId> {
        let one = self.zones.any(true, &mut self.dice)?;
        let other = self.zones.any(true, &mut self.dice)?;
        let nearer = self.nearer(one, other);
        [nearer, one, other].into_iter().find(|&node| !self.is_near(node))
    }

    /// Mostly the nearer of two. Not always: else those far away would hear everything last.
    fn nearer(&mut self, one: NodeId, other: NodeId) -> NodeId {
        let me = self.config.me.node;
        let distance = |node| self.config.distance.between(me, node);
        let (nearer, farther) = if distance(one) <= distance(other) { (one, other) } else { (other, one) };
        if self.dice.below(4) == 0 { farther } else { nearer }
    }

    pub(super) fn blank(&self) -> Message {
        Message { known: self.zones.alive(), world: self.zones.hash(), ..Message::default() }
    }

    pub(super) fn own_row(&mut self) -> Vec<Row> {
        alloc::vec![self.me().row(NodeId(0))]
    }

    fn digest_near(&mut self) -> Message {
        let mut space = Space(LONGEST_MESSAGE - 32);
        let zones = self.rotate_zones(ZONES_NEAR);
        let news = self.tell_rumours();
        let mut doubts = Vec::new();
        let mut wants = Vec::new();
        space.takes(zones.len() * 14 + news.len() * 20);
        for place in 0..self.near.len() {
            if let Some(doubt) = self.doubt_of(place)
                && doubts.len() < 4
                && space.takes(doubt.bytes())
            {
                doubts.push(doubt);
            }
            if self.near[place].is_wanted() && wants.len() < 4 && space.takes(30) {
                wants.push(self.near[place].want());
            }
        }
        let listed: Vec<_> = (0..self.near.len()).filter(|&place| !self.near[place].is_failed).collect();
        // Where not all fit, others are left out each time.
        let longest = listed.iter().map(|&place| self.near[place].row(NodeId(0)).bytes()).max().unwrap_or(1);
        let start = self.dice.index(listed.len().saturating_sub(space.0 / longest) + 1);
        let rows = self.rows(listed[start..].iter().copied(), &mut space);
        Message { kind: Kind::Digest, rows, doubts, news, zones, wants, ..self.blank() }
    }

    /// As many rows as fit.
    fn rows(&self, places: impl Iterator<Item = usize>, space: &mut Space) -> Vec<Row> {
        let mut before = NodeId(0);
        let rows = places.map_while(|place| {
            let near = &self.near[place];
            let row = near.row(before);
            before = near.member.node;
            space.takes(row.bytes()).then_some(row)
        });
        rows.collect()
    }

    /// Our zone's row, and those of the next few others.
    fn rotate_zones(&mut self, count: usize) -> Vec<ZoneRow> {
        let count = if self.is_unsettled { count * WHEN_UNSETTLED } else { count };
        let own = self.zones.zone(self.zones.zone_of(self.config.me.node)).map(Zone::row);
        let start = self.pace.cursor;
        self.pace.cursor = (start + count) % self.zones.len().max(1);
        let others = self.zones.rotated(start).take(count).map(Zone::row);
        own.into_iter().chain(others.filter(|&row| Some(row) != own)).collect()
    }

    /// What is new, for one more message.
    fn tell_rumours(&mut self) -> Vec<News> {
        let told = self.rumours.iter_mut().take(RUMOURS_IN_MESSAGE).map(|rumour| {
            rumour.left -= 1;
            rumour.news
        });
        let told: Vec<_> = told.collect();
        let turn = told.len();
        self.rumours.rotate_left(turn);
        self.rumours.retain(|rumour| rumour.left > 0);
        told
    }

    /// There is something new. All will hear of it in digests, and if it is urgent, some do at once.
    pub(super) fn rumour(&mut self, news: News, is_urgent: bool) {
        self.rumours.retain(|rumour| rumour.news.node != news.node);
        if self.rumours.len() == MOST_RUMOURS {
            if !is_urgent {
                return;
            }
            self.rumours.remove(0);
        }
        let rounds = u32::BITS - self.zones.alive().leading_zeros();
        self.rumours.push(Rumour { news, left: 4 + 2 * rounds });
        if !is_urgent {
            return;
        }
        let told = Message { kind: Kind::Push, news: alloc::vec![news], ..self.blank() };
        for number in 0..RUMOUR_FAN_OUT {
            if self.pace.pushes >= MOST_PUSHES {
                return;
            }
            let to = if self.is_layered && number % 2 == 0 { self.any_far() } else { self.any_near() };
            if let Some(to) = to {
                self.pace.pushes += 1;
                self.send(to, &told);
            }
        }
    }

    /// Somebody doubts that we live.
    pub(super) fn show_life(&mut self, now: Time, to: NodeId) {
        let is_first = self.pace.pushes == 0;
        if self.pace.pushes >= MOST_PUSHES {
            return;
        }
        self.pace.pushes += 1;
        if is_first {
            self.me().raise(now);
        }
        let message = Message { kind: Kind::Push, rows: self.own_row(), ..self.blank() };
        self.send(to, &message);
        for _ in 0..if is_first { RUMOUR_FAN_OUT } else { 0 } {
            if let Some(to) = self.any_near() {
                self.send(to, &message);
            }
        }
    }

    /// Our own entries have changed.
    pub(super) fn push_change(&mut self, before: (u32, u32)) {
        let me = self.config.me;
        let want = Want { owner: me.node, incarnation: me.incarnation, since: before.0, floor: before.1 };
        let delta = self.me().entries.delta(&want, LONGEST_MESSAGE - 64);
        let rows = self.own_row();
        let change = Message { kind: Kind::Push, rows, deltas: delta.into_iter().collect(), ..self.blank() };
        for _ in 0..self.config.fan_out {
            if let Some(to) = self.any_near().filter(|_| self.pace.pushes < MOST_PUSHES) {
                self.pace.pushes += 1;
                self.send(to, &change);
            }
        }
    }

    /// Says what we know that the sender of a digest does not, and asks what it knows that we do not.
    pub(super) fn answer(&mut self, to: NodeId, digest: &Message, reply: &Reply) {
        let mut space = Space(LONGEST_MESSAGE - 32);
        let news = self.tell_rumours();
        space.takes(news.len() * 20);
        // Where places have moved meanwhile, what is newer is heard of in the next round.
        let newer = if self.moves == reply.moves { &reply.newer[..] } else { &[] };
        let rows = self.rows(newer.iter().copied(), &mut space);
        let deltas = self.deltas(&digest.wants, &mut space);
        let mut summaries = self.summaries(&reply.zones, &mut space);
        let is_newcomer = u64::from(digest.known) * 2 < u64::from(self.zones.alive());
        if is_newcomer {
            self.summarise_all(&mut summaries, &mut space);
        }
        let wants = if reply.lacks_entries { self.wants_of(digest, &mut space) } else { Vec::new() };
        let asks =
            reply.is_other_world && reply.zones.is_empty() && space.takes(ZONES_FAR * WHEN_UNSETTLED * 14);
        let mut zones = if asks { self.rotate_zones(ZONES_FAR) } else { Vec::new() };
        if !self.is_near(to) {
            zones.extend(self.zones.zone(self.zones.zone_of(self.config.me.node)).map(Zone::row));
            zones.extend(reply.beats.iter().take_while(|_| space.takes(14)));
        }
        let answer =
            Message { kind: Kind::Answer, rows, news, zones, summaries, wants, deltas, ..self.blank() };
        self.send(to, &answer);
    }

    /// What an answer still asks for, or does not know.
    pub(super) fn follow_up(&mut self, to: NodeId, message: &Message, reply: &Reply) {
        let mut space = Space(LONGEST_MESSAGE - 32);
        let deltas = self.deltas(&message.wants, &mut space);
        let summaries = self.summaries(&reply.zones, &mut space);
        let wants = if reply.lacks_entries { self.wants_of(message, &mut space) } else { Vec::new() };
        if !(deltas.is_empty() && summaries.is_empty() && wants.is_empty()) {
            let kind = if message.kind == Kind::Answer { Kind::Return } else { Kind::Push };
            let more = Message { kind, summaries, wants, deltas, ..self.blank() };
            self.send(to, &more);
        }
    }

    fn deltas(&self, wants: &[Want], space: &mut Space) -> Vec<Delta> {
        let mut deltas = Vec::new();
        for want in wants {
            let Ok(place) = self.find(want.owner) else { continue };
            let near = &self.near[place];
            // What we lack ourselves, others may give.
            if near.member.incarnation != want.incarnation || near.entries.want() <= (want.since, want.floor)
            {
                continue;
            }
            if let Some(delta) = near.entries.delta(want, space.0) {
                space.takes(delta.bytes());
                deltas.push(delta);
            }
        }
        deltas
    }

    fn summaries(&self, zones: &[u32], space: &mut Space) -> Vec<Summary> {
        let summary = |&zone| {
            let known = self.zones.zone(zone).map(Zone::summary);
            known.unwrap_or(Summary { zone, present: [0; 8], unusual: Vec::new() })
        };
        zones.iter().map(summary).take_while(|summary| space.takes(summary.bytes())).collect()
    }

    /// For a node that knows hardly anybody: as many zones as fit, others for the next one.
    fn summarise_all(&mut self, summaries: &mut Vec<Summary>, space: &mut Space) {
        let start = self.dice.index(self.zones.len());
        let all = self.zones.rotated(start).map(Zone::summary);
        summaries.extend(all.take_while(|summary| space.takes(summary.bytes())));
    }

    /// Entries that are not as a message says they are.
    fn wants_of(&self, message: &Message, space: &mut Space) -> Vec<Want> {
        let mut wants = Vec::new();
        let mut node = NodeId(0);
        for row in &message.rows {
            node.0 += row.step;
            let Ok(place) = self.find(node) else { continue };
            let near = &self.near[place];
            let is_told = (near.member.incarnation, near.version) == (row.incarnation, row.version);
            if is_told
                && near.is_wanted()
                && node != self.config.me.node
                && wants.len() < 8
                && space.takes(30)
            {
                wants.push(near.want());
            }
        }
        wants
    }

    /// Says how long it is.
    pub(super) fn send(&mut self, to: NodeId, message: &Message) -> usize {
        let bytes = wire::encode(Protocol::State, message);
        debug_assert!(bytes.len() <= LONGEST_MESSAGE, "{} bytes: {message:?}", bytes.len());
        let length = bytes.len();
        self.transmits.push_back(Transmit { to, bytes });
        length
    }
}

impl Near {
    fn want(&self) -> Want {
        let (since, floor) = self.entries.want();
        Want { owner: self.member.node, incarnation: self.member.incarnation, since, floor }
    }
}

impl Row {
    fn bytes(&self) -> usize {
        length(self.step.into()) + length(self.incarnation.0) + length(self.version.into()) + 4
    }
}

impl Doubt {
    fn bytes(&self) -> usize {
        20 + self.by.len() * 5
    }
}

impl Delta {
    fn bytes(&self) -> usize {
        postcard::experimental::serialized_size(self).unwrap_or(LONGEST_MESSAGE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::Member;
    use comb_types::Incarnation;

    /// The fan-out after many rounds in which so many of a thousand messages arrive.
    fn fan_out(arriving_per_mille: u32, digest_bytes: usize) -> u32 {
        let me = Member { node: NodeId(0), incarnation: Incarnation(1) };
        let config = super::super::Config::new(me, Vec::new(), 1);
        let (mut pace, mut dice) = (Pace::default(), Dice::new(2));
        for _ in 0..500 {
            pace.next_round();
            for _ in 0..4 {
                pace.asked(digest_bytes);
                if dice.happens(arriving_per_mille * arriving_per_mille) {
                    pace.answered(digest_bytes / 2);
                }
            }
        }
        pace.fan_out_per_mille(&config)
    }

    #[test]
    fn fan_out_rises_with_loss_as_far_as_traffic_may() {
        assert_eq!(fan_out(1000, 300), 2000);
        assert!((2300..3200).contains(&fan_out(750, 300)), "{}", fan_out(750, 300));
        assert!((6000..=8000).contains(&fan_out(250, 300)), "{}", fan_out(250, 300));
        let dear = fan_out(250, 1000);
        assert!(
            (4000..=4500).contains(&dear),
            "4500 bytes a second are four digests and some answers: {dear}"
        );
    }
}
