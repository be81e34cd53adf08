//! What must never be, whatever happens.

use std::collections::BTreeMap;

use comb_sim::{Checker, Truth};

use super::node::Node;
use crate::mscs::{Event, NodeSet, UpdateId};
use crate::view::ViewEpoch;
use crate::{Incarnation, NodeId};

/// All that install the members of one epoch install the same.
#[derive(Default)]
pub(super) struct SameMembers {
    installed: BTreeMap<ViewEpoch, NodeSet>,
}

impl Checker<Node> for SameMembers {
    fn saw(&mut self, _truth: &Truth<'_>, node: NodeId, event: &Event) -> Result<(), String> {
        let Event::Installed { epoch, members, .. } = event else { return Ok(()) };
        if !members.contains(node) {
            return Err(format!("{epoch}: installs {members:?} and is not in it"));
        }
        let first = *self.installed.entry(*epoch).or_insert(*members);
        if first == *members { Ok(()) } else { Err(format!("{epoch}: {members:?} and not {first:?}")) }
    }
}

/// What one life of a node has applied.
#[derive(Default)]
struct Log {
    incarnation: Option<Incarnation>,
    last: u64,
    /// The digest after each update that it applied or took over.
    digests: BTreeMap<u64, u64>,
    places: BTreeMap<UpdateId, u64>,
}

/// Survivors apply the same updates in the same order, and an update that is complete is applied by all of them. Who halted or
/// crashed may have applied more (failure case 5), so only the end shows it.
#[derive(Default)]
pub(super) struct TotalOrder {
    logs: BTreeMap<NodeId, Log>,
    /// With the place that its sender applied it at.
    completed: BTreeMap<UpdateId, (u64, u64)>,
}

impl Checker<Node> for TotalOrder {
    fn saw(&mut self, truth: &Truth<'_>, node: NodeId, event: &Event) -> Result<(), String> {
        let incarnation = Some(truth.node(node).incarnation);
        let log = self.logs.entry(node).or_default();
        if log.incarnation != incarnation {
            *log = Log { incarnation, ..Log::default() };
        }
        match event {
            Event::Applied { sequence, id, digest, .. } => {
                if *sequence != log.last + 1 {
                    return Err(format!("applies update {sequence} after update {}", log.last));
                }
                if log.places.insert(*id, *sequence).is_some() {
                    return Err(format!("applies {id:?} twice"));
                }
                log.last = *sequence;
                log.digests.insert(*sequence, *digest);
            }
            Event::Synchronized { sequence, digest } => {
                log.last = *sequence;
                log.digests.insert(*sequence, *digest);
            }
            Event::Completed(id) => {
                // Its sender may have it from another's database.
                let place = log.places.get(id).copied().unwrap_or(log.last);
                let digest = log.digests.get(&place).copied().unwrap_or(0);
                self.completed.insert(*id, (place, digest));
            }
            _ => {}
        }
        Ok(())
    }

    fn end(&mut self, truth: &Truth<'_>) -> Result<(), String> {
        let is_alive = |node: NodeId, log: &Log| {
            truth.node(node).is_up && log.incarnation == Some(truth.node(node).incarnation) && log.last > 0
        };
        let alive: Vec<_> = self.logs.iter().filter(|(node, log)| is_alive(**node, log)).collect();
        let mut first_seen = BTreeMap::new();
        for (node, log) in &alive {
            for (sequence, digest) in &log.digests {
                let (other, seen) = *first_seen.entry(*sequence).or_insert((*node, *digest));
                if seen != *digest {
                    return Err(format!("update {sequence} of {node} is not that of {other}"));
                }
            }
            if log.last != alive[0].1.last {
                return Err(format!("{node} has {} updates, {} {}", log.last, alive[0].0, alive[0].1.last));
            }
            for (id, (sequence, digest)) in &self.completed {
                if log.digests.get(sequence).is_some_and(|own| own != digest) || *sequence > log.last {
                    return Err(format!("{node} lacks {id:?}, which is complete"));
                }
            }
        }
        Ok(())
    }
}
