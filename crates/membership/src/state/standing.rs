//! How every node stands, zone by zone, so that two who know different things come to know the same.

use alloc::vec::Vec;

use comb_types::{Dice, Incarnation, NodeId, Time};
use serde::{Deserialize, Serialize};

use super::message::{Summary, ZoneRow, length};

/// How a node stands. The greater of two replaces the other, whoever said it first and in whatever order they come: so all
/// nodes come to agree without agreement. An odd turn says that the node has failed; only the node itself answers that with the
/// next even one, and only a new life comes after the last turn.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub(crate) struct Standing {
    pub(crate) incarnation: Incarnation,
    pub(crate) turn: u32,
}

impl Standing {
    /// Of a node in its first life that was never taken for failed. Most stand so, and it costs no memory.
    pub(crate) const FIRST: Self = Self { incarnation: Incarnation(1), turn: 0 };

    pub(crate) fn alive(incarnation: Incarnation) -> Self {
        Self { incarnation, turn: 0 }
    }

    pub(crate) fn is_failed(self) -> bool {
        self.turn % 2 == 1
    }

    pub(crate) fn is_fenced(self) -> bool {
        self.turn == u32::MAX
    }

    /// It has failed. Two that find the same say the same.
    pub(crate) fn failed(self) -> Self {
        Self { turn: self.turn | 1, ..self }
    }

    pub(crate) fn fenced(self) -> Self {
        Self { turn: u32::MAX, ..self }
    }

    /// It has not. Of a fenced life, nothing can be said any more.
    pub(crate) fn refuted(self) -> Self {
        if self.is_failed() && !self.is_fenced() { Self { turn: self.turn + 1, ..self } } else { self }
    }

    fn hash(self, slot: u8) -> u32 {
        let word = self.incarnation.0.rotate_left(24) ^ u64::from(self.turn) << 8 ^ u64::from(slot);
        Dice::new(word).below(u32::MAX)
    }
}

/// How the nodes of one zone stand.
#[derive(Clone, Debug, Default)]
pub(crate) struct Zone {
    number: u32,
    hash: u32,
    present: u64,
    failed: u64,
    /// Rises while any node of the zone lives; and when it was seen to.
    pub(super) beat: u32,
    pub(super) risen_at: Time,
    /// How many questions to its nodes went unanswered since it is suspected.
    pub(super) unanswered: u32,
    /// Those that do not stand as [`Standing::FIRST`], in the order of their slots.
    unusual: Vec<(u8, Standing)>,
}

impl Zone {
    fn get(&self, slot: u8) -> Option<Standing> {
        if self.present & 1 << slot == 0 {
            return None;
        }
        let place = self.unusual.binary_search_by_key(&slot, |(slot, _)| *slot);
        Some(place.map_or(Standing::FIRST, |place| self.unusual[place].1))
    }

    /// Says how the node stood before, if it stands otherwise now.
    fn raise(&mut self, slot: u8, standing: Standing) -> Option<Option<Standing>> {
        let before = self.get(slot);
        if before.is_some_and(|before| before >= standing) {
            return None;
        }
        self.hash ^= before.map_or(0, |before| before.hash(slot)) ^ standing.hash(slot);
        self.present |= 1 << slot;
        self.failed = self.failed & !(1 << slot) | u64::from(standing.is_failed()) << slot;
        if standing != Standing::FIRST {
            match self.unusual.binary_search_by_key(&slot, |(slot, _)| *slot) {
                Ok(place) => self.unusual[place].1 = standing,
                Err(place) => self.unusual.insert(place, (slot, standing)),
            }
        }
        Some(before)
    }

    pub(super) fn number(&self) -> u32 {
        self.number
    }

    pub(super) fn alive(&self) -> u64 {
        self.present & !self.failed
    }

    pub(super) fn row(&self) -> ZoneRow {
        ZoneRow { zone: self.number, beat: self.beat, hash: self.hash.to_le_bytes() }
    }

    pub(super) fn summary(&self) -> Summary {
        let present = self.present.to_le_bytes();
        Summary { zone: self.number, present, unusual: self.unusual.clone() }
    }
}

impl Summary {
    pub(super) fn standing(&self, slot: u8) -> Option<Standing> {
        if u64::from_le_bytes(self.present) & 1 << slot == 0 {
            return None;
        }
        let place = self.unusual.binary_search_by_key(&slot, |(slot, _)| *slot);
        Some(place.map_or(Standing::FIRST, |place| self.unusual[place].1))
    }

    /// Whether it says of some node what replaces what another says.
    pub(super) fn is_ahead_of(&self, other: &Self) -> bool {
        (0..64).any(|slot| self.standing(slot) > other.standing(slot))
    }

    /// The hash of a zone that stands so.
    #[cfg(test)]
    fn hash(&self) -> u32 {
        let standings = (0..64).filter_map(|slot| Some(self.standing(slot)?.hash(slot)));
        standings.fold(0, |hash, each| hash ^ each)
    }

    pub(super) fn bytes(&self) -> usize {
        let unusual = self.unusual.iter();
        let bytes = unusual.map(|(_, it)| 1 + length(it.incarnation.0) + length(it.turn.into()));
        10 + length(self.zone.into()) + bytes.sum::<usize>()
    }
}

/// All zones.
#[derive(Clone, Debug)]
pub(crate) struct Zones {
    /// Nodes of a zone, at most 64.
    size: u32,
    /// In the order of their numbers.
    zones: Vec<Zone>,
    alive: u32,
    hash: u32,
}

impl Zones {
    pub(super) fn new(size: u32) -> Self {
        assert!((1..=64).contains(&size), "a zone is a word of bits");
        Self { size, zones: Vec::new(), alive: 0, hash: 0 }
    }

    pub(super) fn zone_of(&self, node: NodeId) -> u32 {
        node.0 / self.size
    }

    pub(super) fn slot_of(&self, node: NodeId) -> u8 {
        u8::try_from(node.0 % self.size).expect("a zone has at most 64 nodes")
    }

    /// The node of a slot.
    pub(super) fn node(&self, zone: u32, slot: u8) -> NodeId {
        NodeId(zone * self.size + u32::from(slot))
    }

    /// How many nodes are alive, as far as is known.
    pub(super) fn alive(&self) -> u32 {
        self.alive
    }

    /// Of how all nodes stand.
    pub(super) fn hash(&self) -> [u8; 4] {
        self.hash.to_le_bytes()
    }

    pub(super) fn get(&self, node: NodeId) -> Option<Standing> {
        self.zone(self.zone_of(node))?.get(self.slot_of(node))
    }

    /// Says how the node stood before, if it stands otherwise now.
    pub(super) fn raise(&mut self, node: NodeId, standing: Standing) -> Option<Option<Standing>> {
        let (number, slot) = (self.zone_of(node), self.slot_of(node));
        self.change(number, |zone| zone.raise(slot, standing))
    }

    /// Takes over those nodes of a zone that were not known at all and stand as most do, and says which.
    pub(super) fn join(&mut self, summary: &Summary) -> u64 {
        let unusual = summary.unusual.iter().fold(0, |slots, (slot, _)| slots | 1_u64 << slot);
        self.change(summary.zone, |zone| {
            let joined = u64::from_le_bytes(summary.present) & !zone.present & !unusual;
            for slot in slots(joined) {
                zone.hash ^= Standing::FIRST.hash(slot);
            }
            zone.present |= joined;
            joined
        })
    }

    /// Changes a zone, and what is counted over all of them.
    fn change<R>(&mut self, number: u32, change: impl FnOnce(&mut Zone) -> R) -> R {
        let zone = self.zone_mut(number);
        let (alive, hash) = (zone.alive().count_ones(), zone.hash);
        let result = change(zone);
        let (alive_now, hash_now) = (zone.alive().count_ones(), zone.hash);
        self.alive = self.alive - alive + alive_now;
        // With the number, or two zones that are alike would cancel each other out.
        let mixed = |hash: u32| Dice::new(u64::from(number) << 32 | u64::from(hash)).below(u32::MAX);
        self.hash ^= if hash == hash_now { 0 } else { mixed(hash) ^ mixed(hash_now) };
        result
    }

    pub(super) fn zone(&self, number: u32) -> Option<&Zone> {
        let place = self.zones.binary_search_by_key(&number, |zone| zone.number).ok()?;
        Some(&self.zones[place])
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Zone> {
        self.zones.iter_mut()
    }

    pub(super) fn zone_mut(&mut self, number: u32) -> &mut Zone {
        let place = match self.zones.binary_search_by_key(&number, |zone| zone.number) {
            Ok(place) => place,
            Err(place) => {
                self.zones.insert(place, Zone { number, ..Zone::default() });
                place
            }
        };
        &mut self.zones[place]
    }

    /// All zones from the `start`th on, round and round once.
    pub(super) fn rotated(&self, start: usize) -> impl Iterator<Item = &Zone> {
        let start = start % self.zones.len().max(1);
        self.zones[start..].iter().chain(&self.zones[..start])
    }

    /// Some node that is alive, or one that is not, as is wanted; none if chance finds none soon.
    pub(super) fn any(&self, alive: bool, dice: &mut Dice) -> Option<NodeId> {
        // Zones are about equally full. One that is not is only asked less often than its share.
        for _ in 0..4 {
            let zone = self.zones.get(dice.index(self.zones.len().max(1)))?;
            let among = if alive { zone.alive() } else { zone.failed };
            if among != 0 {
                let slot = slots(among).nth(dice.index(among.count_ones() as usize))?;
                return Some(self.node(zone.number, slot));
            }
        }
        None
    }

    pub(super) fn len(&self) -> usize {
        self.zones.len()
    }

    /// How every node stands that was ever heard of.
    pub(super) fn everybody(&self) -> Vec<(NodeId, Standing)> {
        let of = |zone: &Zone| {
            let known =
                slots(zone.present).filter_map(|slot| Some((self.node(zone.number, slot), zone.get(slot)?)));
            known.collect::<Vec<_>>()
        };
        self.zones.iter().flat_map(of).collect()
    }

    pub(super) fn bytes(&self) -> usize {
        let own = self.zones.capacity() * size_of::<Zone>();
        own + self.zones.iter().map(|zone| zone.unusual.capacity() * 24).sum::<usize>()
    }
}

/// The numbers of the bits that are set.
pub(super) fn slots(bits: u64) -> impl Iterator<Item = u8> {
    (0..64).filter(move |slot| bits & 1 << slot != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn standing(incarnation: u64, turn: u32) -> Standing {
        Standing { incarnation: Incarnation(incarnation), turn }
    }

    #[test]
    fn a_failure_is_answered_by_its_subject_and_a_fenced_life_only_by_the_next() {
        let first = Standing::FIRST;
        assert!(first.failed() > first && first.failed().is_failed());
        assert!(first.failed().refuted() > first.failed() && !first.failed().refuted().is_failed());
        assert_eq!(first.refuted(), first, "nothing to refute");
        assert_eq!(first.fenced().refuted(), first.fenced());
        assert!(Standing::alive(Incarnation(2)) > first.fenced());
    }

    proptest! {
        /// Whatever order news comes in, and however often, the zone and its hash are the same; and a summary says all.
        #[test]
        fn zones_agree_whatever_the_order(
            mut news in prop::collection::vec((0_u32..130, 1_u64..3, 0_u32..4), 0..40),
            turn in 0_usize..40,
        ) {
            let [mut first, mut second, mut third] = [64; 3].map(Zones::new);
            for &(node, incarnation, turn) in &news {
                first.raise(NodeId(node), standing(incarnation, turn));
            }
            let turn = turn % news.len().max(1);
            news.rotate_left(turn);
            for &(node, incarnation, turn) in news.iter().chain(&news) {
                second.raise(NodeId(node), standing(incarnation, turn));
            }
            for number in 0..3 {
                let Some(zone) = first.zone(number) else { continue };
                let summary = zone.summary();
                third.join(&summary);
                for slot in 0..64 {
                    if let Some(standing) = summary.standing(slot) {
                        let node = third.node(number, slot);
                        third.raise(node, standing);
                    }
                }
                prop_assert_eq!(u32::from_le_bytes(zone.row().hash), summary.hash());
            }
            for other in [&second, &third] {
                prop_assert_eq!(first.alive(), other.alive());
                for number in 0..3 {
                    let hash = |zones: &Zones| zones.zone(number).map(Zone::row);
                    prop_assert_eq!(hash(&first), hash(other));
                }
            }
        }
    }
}
