//! What nodes tell each other of themselves and of others, and what of it is impossible whatever happened.

use alloc::string::String;
use alloc::vec::Vec;

use comb_types::{Incarnation, NodeId};
use serde::{Deserialize, Serialize};

use super::Config;
use super::standing::Standing;
use crate::wire::PeerError;

/// Fits into one packet of an Ethernet, whatever tunnels it goes through: a lost piece would lose all of it.
pub(super) const LONGEST_MESSAGE: usize = 1400;

/// Nodes of one zone, and so rows of one digest: as many as a word has bits.
pub(super) const MOST_ROWS: usize = 64;

/// With a version a second, a life of 68 years.
pub(super) const MOST_VERSION: u32 = 1 << 31;

/// What is expected of the receiver.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(super) enum Kind {
    /// Answer, even if there is nothing newer: how many answers come shows how much is lost.
    #[default]
    Digest,
    /// To a digest.
    Answer,
    /// To an answer: what its sender does not know, or seems to know better. It may be corrected once more.
    Return,
    /// News, a change, or what was asked for. No answer is counted on.
    Push,
}

/// One message: whatever parts of it there are.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(super) struct Message {
    pub(super) kind: Kind,
    /// How many nodes the sender takes for alive. Who knows far fewer is told all at once.
    pub(super) known: u32,
    /// Hash of how all nodes stand, as the sender knows.
    pub(super) world: [u8; 4],
    /// Who lives, as the sender knows: in the order of their numbers.
    pub(super) rows: Vec<Row>,
    pub(super) doubts: Vec<Doubt>,
    pub(super) news: Vec<News>,
    pub(super) zones: Vec<ZoneRow>,
    pub(super) summaries: Vec<Summary>,
    pub(super) wants: Vec<Want>,
    pub(super) deltas: Vec<Delta>,
}

/// What a node has of one node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Row {
    /// How far its number is from that of the row before; of the first, the number itself.
    pub(super) step: u32,
    pub(super) incarnation: Incarnation,
    pub(super) version: u32,
    /// Of its entries. Bytes, since a hash as a variable-length number is longer than it is.
    pub(super) hash: [u8; 4],
}

/// Some have heard of no later version of a node for longer than is likely.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Doubt {
    pub(super) subject: NodeId,
    pub(super) incarnation: Incarnation,
    pub(super) version: u32,
    /// Who they are, in the order of their numbers.
    pub(super) by: Vec<NodeId>,
}

/// How a node stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct News {
    pub(super) node: NodeId,
    pub(super) standing: Standing,
}

/// What a node has of a zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct ZoneRow {
    pub(super) zone: u32,
    /// Rises while any of its nodes lives.
    pub(super) beat: u32,
    /// Of how its nodes stand.
    pub(super) hash: [u8; 4],
}

/// How the nodes of a zone stand.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Summary {
    pub(super) zone: u32,
    /// A bit for each node that has ever been heard of.
    pub(super) present: [u8; 8],
    /// Those that do not stand as most do: in their first life, and never taken for failed. In the order of their slots.
    pub(super) unusual: Vec<(u8, Standing)>,
}

/// A request for what changed in a node's entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Want {
    pub(super) owner: NodeId,
    pub(super) incarnation: Incarnation,
    pub(super) since: u32,
    pub(super) floor: u32,
}

/// What changed in a node's entries.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Delta {
    pub(super) owner: NodeId,
    pub(super) incarnation: Incarnation,
    /// Tombstones up to this version are forgotten.
    pub(super) floor: u32,
    /// After which version; 0 if these are all there are, and others are to be thrown away.
    pub(super) since: u32,
    /// Whether there are no later ones.
    pub(super) is_complete: bool,
    /// Of all entries that the sender has.
    pub(super) hash: u32,
    /// In the order of their versions.
    pub(super) changes: Vec<Change>,
}

/// One entry, or its tombstone.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Change {
    pub(super) version: u32,
    pub(super) key: String,
    pub(super) value: Option<Vec<u8>>,
}

impl Message {
    /// Finds what no honest node can have sent, whatever it knows. What depends on our own knowledge is judged elsewhere.
    pub(super) fn check(&self, from: NodeId, config: &Config) -> Result<(), PeerError> {
        let rule = |holds: bool, rule| if holds { Ok(()) } else { Err(PeerError::new(from, rule)) };
        let is_node = |node: NodeId| node.0 < config.most_nodes;
        rule(is_node(from) && from != config.me.node, "a message from a node that cannot be")?;
        rule(self.known <= config.most_nodes, "more nodes than there may be")?;
        self.check_rows(from, config)?;
        for doubt in &self.doubts {
            rule(is_node(doubt.subject) && doubt.by.iter().copied().all(is_node), "a doubt of no node")?;
            rule(doubt.by.is_sorted_by(|a, b| a < b), "doubters out of order")?;
            rule(!doubt.by.is_empty() && doubt.by.len() <= MOST_ROWS, "a doubt of nobody, or of too many")?;
            rule(doubt.by.binary_search(&doubt.subject).is_err(), "a node that doubts itself")?;
        }
        let is_life = |standing: Standing| standing.incarnation.0 > 0;
        for news in &self.news {
            rule(is_node(news.node) && is_life(news.standing), "news of no node")?;
        }
        let zones = config.most_nodes.div_ceil(config.zone_size);
        rule(self.zones.iter().all(|row| row.zone < zones), "a zone that cannot be")?;
        for summary in &self.summaries {
            rule(summary.zone < zones, "a zone that cannot be")?;
            let present = u64::from_le_bytes(summary.present);
            let last = u64::BITS - present.leading_zeros();
            let beyond = u64::from(summary.zone) * u64::from(config.zone_size) + u64::from(last);
            let fits = last <= config.zone_size && beyond <= u64::from(config.most_nodes);
            rule(fits, "a zone with nodes that cannot be")?;
            rule(summary.unusual.is_sorted_by(|a, b| a.0 < b.0), "a zone out of order")?;
            for &(slot, standing) in &summary.unusual {
                let is_present = slot < 64 && present & (1 << slot) != 0;
                rule(is_present && is_life(standing), "a zone that says how nobody stands")?;
            }
        }
        rule(self.wants.iter().all(|want| is_node(want.owner)), "a request for entries of no node")?;
        self.deltas.iter().try_for_each(|delta| delta.check(from, config))
    }

    fn check_rows(&self, from: NodeId, config: &Config) -> Result<(), PeerError> {
        if self.rows.len() > MOST_ROWS {
            return Err(PeerError::new(from, "a digest of too many nodes"));
        }
        let mut node = 0_u64;
        for (place, row) in self.rows.iter().enumerate() {
            node += u64::from(row.step);
            if place > 0 && row.step == 0 {
                return Err(PeerError::new(from, "a digest that has a node twice"));
            }
            if row.version > MOST_VERSION {
                return Err(PeerError::new(from, "a version that no life comes to"));
            }
            if node >= u64::from(config.most_nodes) || row.incarnation.0 == 0 {
                return Err(PeerError::new(from, "a digest with a node that cannot be"));
            }
        }
        Ok(())
    }
}

impl Delta {
    fn check(&self, from: NodeId, config: &Config) -> Result<(), PeerError> {
        let rule = |holds: bool, rule| if holds { Ok(()) } else { Err(PeerError::new(from, rule)) };
        rule(self.owner.0 < config.most_nodes && self.incarnation.0 > 0, "entries of no node")?;
        rule(self.owner != config.me.node, "our own entries from another node")?;
        rule(self.changes.is_sorted_by(|a, b| a.version < b.version), "changes out of order")?;
        rule(self.changes.iter().all(|change| change.version > self.since), "changes from before")?;
        rule(self.changes.iter().all(Change::is_within_limits), "a key or a value that is too long")?;
        let mut keys: Vec<_> = self.changes.iter().map(|change| change.key.as_str()).collect();
        keys.sort_unstable();
        rule(keys.is_sorted_by(|a, b| a < b), "a key that changed twice")
    }
}

/// The bytes that a number takes on the wire.
pub(super) fn length(number: u64) -> usize {
    ((u64::BITS - (number | 1).leading_zeros()) as usize).div_ceil(7)
}
