//! The network: what becomes of a message on its way.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use comb_types::{Dice, NodeId, Time};

/// What a link does to the messages of one direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Link {
    /// The least time that a message takes.
    pub delay: Duration,
    /// Up to so much is added, each as likely as any other. Messages whose times overlap overtake each other.
    pub jitter: Duration,
    /// How many in a million are lost.
    pub lost_per_million: u32,
    /// How many in a million come twice.
    pub doubled_per_million: u32,
    /// How many in a million come up to ten times later than others.
    pub late_per_million: u32,
    /// How many in a million come with a byte changed. Off by default: a real network has checksums.
    pub garbled_per_million: u32,
    /// The longest message that goes through. A longer one is lost, and counted.
    pub longest_bytes: usize,
}

impl Default for Link {
    /// A quiet local network.
    fn default() -> Self {
        Self {
            delay: Duration::from_micros(100),
            jitter: Duration::from_micros(100),
            lost_per_million: 0,
            doubled_per_million: 0,
            late_per_million: 0,
            garbled_per_million: 0,
            longest_bytes: 65_507,
        }
    }
}

/// A link that works and does not, by turns.
#[derive(Clone, Copy, Debug)]
struct Flap {
    up: Duration,
    down: Duration,
    since: Time,
}

impl Flap {
    fn is_down(&self, now: Time) -> bool {
        let cycle = (self.up + self.down).as_nanos().max(1);
        now.since(self.since).as_nanos() % cycle >= self.up.as_nanos()
    }
}

/// All links, and what is wrong with them now.
#[derive(Debug, Default)]
pub struct Network {
    /// Of every pair that has no link of its own.
    pub default: Link,
    links: BTreeMap<(NodeId, NodeId), Link>,
    /// Nodes of different sides do not hear each other.
    sides: BTreeMap<NodeId, u32>,
    /// From the first to the second, nothing goes through.
    cuts: BTreeSet<(NodeId, NodeId)>,
    flaps: BTreeMap<(NodeId, NodeId), Flap>,
    clogged: BTreeSet<NodeId>,
}

/// What is to be done with a message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It arrives at these times, once or twice; with that byte changed, if any.
    Arrives {
        at: [Option<Time>; 2],
        garbled: Option<(usize, u8)>,
    },
    /// It waits for a node whose network is clogged.
    Held,
    Lost,
    TooLong,
}

impl Network {
    /// Gives one direction of a pair a link of its own.
    pub fn set_link(&mut self, from: NodeId, to: NodeId, link: Link) {
        self.links.insert((from, to), link);
    }

    /// The link from one node to another.
    pub fn link(&self, from: NodeId, to: NodeId) -> Link {
        if self.links.is_empty() {
            return self.default;
        }
        self.links.get(&(from, to)).copied().unwrap_or(self.default)
    }

    /// Whether messages can get from one to the other now, if none is lost by chance.
    pub fn connects(&self, from: NodeId, to: NodeId, now: Time) -> bool {
        from == to || !self.is_cut(from, to, now)
    }

    fn is_cut(&self, from: NodeId, to: NodeId, now: Time) -> bool {
        self.side(from) != self.side(to)
            || self.cuts.contains(&(from, to))
            || self.flaps.get(&(from, to)).is_some_and(|flap| flap.is_down(now))
    }

    fn side(&self, node: NodeId) -> u32 {
        if self.sides.is_empty() { 0 } else { self.sides.get(&node).copied().unwrap_or(0) }
    }

    pub(crate) fn partition(&mut self, sides: &[Vec<NodeId>]) {
        self.sides.clear();
        for (number, side) in (1..).zip(sides) {
            self.sides.extend(side.iter().map(|&node| (node, number)));
        }
    }

    pub(crate) fn cut(&mut self, from: NodeId, to: NodeId) {
        self.cuts.insert((from, to));
    }

    pub(crate) fn flap(&mut self, from: NodeId, to: NodeId, up: Duration, down: Duration, since: Time) {
        self.flaps.insert((from, to), Flap { up, down, since });
    }

    pub(crate) fn clog(&mut self, node: NodeId) {
        self.clogged.insert(node);
    }

    pub(crate) fn unclog(&mut self, node: NodeId) {
        self.clogged.remove(&node);
    }

    /// All links work again as they are set.
    pub(crate) fn heal(&mut self) {
        self.sides.clear();
        self.cuts.clear();
        self.flaps.clear();
        self.clogged.clear();
    }

    pub(crate) fn holds(&self, from: NodeId, to: NodeId) -> bool {
        !self.clogged.is_empty() && (self.clogged.contains(&from) || self.clogged.contains(&to))
    }

    /// What becomes of a message that is sent now.
    pub(crate) fn fate(&self, from: NodeId, to: NodeId, bytes: usize, now: Time, dice: &mut Dice) -> Fate {
        let link = self.link(from, to);
        if bytes > link.longest_bytes {
            return Fate::TooLong;
        }
        if from == to {
            return Fate::Arrives { at: [Some(now), None], garbled: None };
        }
        if self.is_cut(from, to, now) || dice.happens(link.lost_per_million) {
            return Fate::Lost;
        }
        if self.holds(from, to) {
            return Fate::Held;
        }
        let mut arrival = || {
            let once = link.delay + dice.between(Duration::ZERO..link.jitter);
            let late = if dice.happens(link.late_per_million) { dice.below(10) } else { 0 };
            now.saturating_add(once + once * late)
        };
        let first = arrival();
        let second = if link.doubled_per_million > 0 { Some(arrival()) } else { None };
        let at = [Some(first), second.filter(|_| dice.happens(link.doubled_per_million))];
        let garbled = (bytes > 0 && dice.happens(link.garbled_per_million))
            .then(|| (dice.index(bytes), 1 << dice.below(8)));
        Fate::Arrives { at, garbled }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: NodeId = NodeId(0);
    const B: NodeId = NodeId(1);
    const C: NodeId = NodeId(2);

    fn connects(network: &Network, pairs: [(NodeId, NodeId); 3], at: u64) -> [bool; 3] {
        pairs.map(|(from, to)| network.connects(from, to, Time::from_millis(at)))
    }

    #[test]
    fn partitions_cuts_and_flaps_go_with_heal() {
        let mut network = Network::default();
        network.partition(&[vec![A, B], vec![C]]);
        assert_eq!(connects(&network, [(A, B), (A, C), (C, B)], 0), [true, false, false]);
        network.heal();
        network.cut(A, B);
        assert_eq!(connects(&network, [(A, B), (B, A), (A, C)], 0), [false, true, true]);
        network.heal();
        let (up, down) = (Duration::from_millis(10), Duration::from_millis(5));
        network.flap(A, B, up, down, Time::from_millis(100));
        let seen = [100, 109, 110, 114, 115].map(|at| network.connects(A, B, Time::from_millis(at)));
        assert_eq!(seen, [true, true, false, false, true]);
        network.heal();
        assert_eq!(connects(&network, [(A, B), (B, A), (A, C)], 112), [true; 3]);
    }

    #[test]
    fn a_link_has_a_direction_and_who_is_clogged_neither_hears_nor_is_heard() {
        let mut network = Network::default();
        network.set_link(A, B, Link { lost_per_million: 1_000_000, ..Link::default() });
        let fate = |network: &Network, from, to| network.fate(from, to, 9, Time::ZERO, &mut Dice::new(1));
        assert_eq!(fate(&network, A, B), Fate::Lost);
        assert!(matches!(fate(&network, B, A), Fate::Arrives { .. }));
        network.clog(C);
        assert_eq!([fate(&network, C, A), fate(&network, A, C)], [Fate::Held, Fate::Held]);
        network.heal();
        assert!(matches!(fate(&network, A, C), Fate::Arrives { .. }));
    }

    #[test]
    fn a_partition_takes_the_place_of_the_one_before() {
        let mut network = Network::default();
        network.partition(&[vec![A], vec![B]]);
        network.partition(&[vec![C]]);
        assert_eq!(connects(&network, [(A, B), (A, C), (C, B)], 0), [true, false, false]);
    }

    #[test]
    fn one_bit_of_a_garbled_message_is_another() {
        let mut network = Network::default();
        network.default.garbled_per_million = 1_000_000;
        for seed in 0..50 {
            let fate = network.fate(A, B, 7, Time::ZERO, &mut Dice::new(seed));
            let Fate::Arrives { garbled: Some((byte, mask)), .. } = fate else { panic!("{fate:?}") };
            assert!(byte < 7 && mask.count_ones() == 1);
        }
    }

    #[test]
    fn messages_are_lost_doubled_and_late_as_often_as_said() {
        let mut network = Network::default();
        network.default.lost_per_million = 250_000;
        network.default.doubled_per_million = 100_000;
        network.default.late_per_million = 200_000;
        let mut dice = Dice::new(5);
        let (mut lost, mut doubled, mut late) = (0, 0, 0);
        for _ in 0..10_000 {
            match network.fate(A, B, 100, Time::ZERO, &mut dice) {
                Fate::Lost => lost += 1,
                Fate::Arrives { at: [Some(first), second], .. } => {
                    doubled += u32::from(second.is_some());
                    late += u32::from(first > Time::from_micros(200));
                }
                other => panic!("{other:?}"),
            }
        }
        assert!((2300..2700).contains(&lost), "{lost}");
        assert!((650..850).contains(&doubled), "{doubled}");
        assert!((1100..1500).contains(&late), "{late}");
        assert_eq!(network.fate(A, B, 70_000, Time::ZERO, &mut dice), Fate::TooLong);
    }
}
