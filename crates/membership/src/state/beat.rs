//! Zones as a whole: who says that a node has failed when all of its zone has?
//!
//! While any node of a zone lives, the zone's beat rises by about one a round, and goes round with the zones' hashes. If it does
//! not for longer than is likely, some of its nodes are asked directly. Their zone has failed when so many questions went
//! unanswered that loss cannot be why.

use core::time::Duration;

use comb_types::{NodeId, Time};

use super::State;
use super::message::{Kind, Message, ZoneRow};
use super::standing::{Standing, slots};
use crate::detect::staleness::Staleness;

/// Of all gaps between two beats, how many raise a suspicion: many more than of a node's, since a question settles it.
const FALSE_SUSPICIONS_PER_BILLION: u32 = 100_000;

/// How many nodes of a suspected zone are asked in a round.
const QUESTIONS: u32 = 2;

/// How many questions must stay unanswered, if no message is ever lost. Not fewer, since all but one of those that are asked may
/// have failed; and by so many times more as fewer pairs of messages arrive.
const FEWEST_QUESTIONS: u32 = 12;

impl State {
    /// Once in an interval, whoever of our zone comes first raises its beat.
    pub(super) fn beat(&mut self, now: Time) {
        let own = self.zones.zone_of(self.config.me.node);
        let zone = self.zones.zone_mut(own);
        if now.since(zone.risen_at) >= self.config.interval / 4 * 3 {
            zone.beat = zone.beat.saturating_add(1);
            zone.risen_at = now;
        }
    }

    pub(super) fn hear_beat(&mut self, now: Time, told: &ZoneRow) {
        let is_layered = self.is_layered;
        let (interval, own) = (self.config.interval, self.zones.zone_of(self.config.me.node));
        let zone = self.zones.zone_mut(told.zone);
        let gap = now.since(zone.risen_at);
        if zone.beat > 0 && is_layered && told.zone != own {
            let new = || Staleness::new(interval, FALSE_SUSPICIONS_PER_BILLION);
            self.zone_staleness.get_or_insert_with(new).saw(gap);
        }
        (zone.beat, zone.risen_at, zone.unanswered) = (told.beat, now, 0);
    }

    /// Asks zones that are silent, and gives up those that stay so.
    pub(super) fn judge_zones(&mut self, now: Time) {
        let learned = self.zone_staleness.as_ref().and_then(Staleness::threshold);
        let threshold = learned.unwrap_or(self.config.interval * 10).max(self.config.interval * 4);
        // Who hears nobody at all learns nothing from it about others.
        if !self.is_layered || now.since(self.heard_at) > self.config.interval * 3 {
            return;
        }
        let own = self.zones.zone_of(self.config.me.node);
        let is_silent = |zone: &&mut super::standing::Zone| {
            let is_known = zone.beat > 0 && zone.alive() != 0;
            is_known && zone.number() != own && now.since(zone.risen_at) > threshold
        };
        let arriving = u64::from(self.pace.arriving_per_mille());
        let enough = u64::from(FEWEST_QUESTIONS) * 1_000_000 / (arriving * arriving);
        let mut silent = alloc::vec::Vec::new();
        for zone in self.zones.iter_mut().filter(is_silent).take(8) {
            silent.push((zone.number(), zone.alive(), u64::from(zone.unanswered) >= enough));
            zone.unanswered += QUESTIONS;
        }
        for (zone, alive, is_dead) in silent {
            let nodes = slots(alive).map(|slot| self.zones.node(zone, slot));
            let nodes: alloc::vec::Vec<NodeId> = nodes.collect();
            if is_dead {
                let standing = |node| self.zones.get(node).map(Standing::failed);
                let failed: alloc::vec::Vec<_> =
                    nodes.iter().filter_map(|&node| Some((node, standing(node)?))).collect();
                failed.into_iter().for_each(|(node, standing)| self.raise(now, node, standing));
                continue;
            }
            for _ in 0..QUESTIONS {
                let to = nodes[self.dice.index(nodes.len())];
                self.ask_zone(to);
            }
        }
    }

    /// Asks for a sign of life of a node's zone.
    fn ask_zone(&mut self, to: NodeId) {
        let own = self.zones.zone(self.zones.zone_of(self.config.me.node)).map(super::standing::Zone::row);
        // What we have of its zone shows that we do not know its beat.
        let theirs = self.zones.zone(self.zones.zone_of(to)).map(super::standing::Zone::row);
        let zones = own.into_iter().chain(theirs).collect();
        let question = Message { kind: Kind::Digest, rows: self.own_row(), zones, ..self.blank() };
        self.send(to, &question);
    }

    /// How long a zone may be silent before it is asked; none while there are no others.
    pub fn zone_threshold(&self) -> Option<Duration> {
        self.zone_staleness.as_ref().and_then(Staleness::threshold)
    }
}
