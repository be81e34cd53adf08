//! ClusNet's failure detector: all to all, fixed timers. (§7.6.1)

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use comb_types::{NodeId, Time};

use super::node_set::NodeSet;
use super::timing::{CHECK, HEARTBEAT, SUSPICION};

/// Sends heartbeats to a set of nodes and watches another.
#[derive(Debug)]
pub(super) struct Heartbeats {
    send_at: Time,
    check_at: Time,
    number: u64,
    heard: BTreeMap<NodeId, Heard>,
}

#[derive(Debug)]
struct Heard {
    last: Time,
    is_suspected: bool,
}

impl Heartbeats {
    pub(super) fn new(now: Time) -> Self {
        Self { send_at: now, check_at: now.saturating_add(CHECK), number: 0, heard: BTreeMap::new() }
    }

    /// Watches these and nobody else. Who is new has the whole detection period from now.
    pub(super) fn watch(&mut self, now: Time, nodes: NodeSet) {
        self.heard.retain(|node, _| nodes.contains(*node));
        for node in nodes.iter() {
            self.heard.entry(node).or_insert(Heard { last: now, is_suspected: false });
        }
    }

    pub(super) fn heard(&mut self, now: Time, from: NodeId) {
        if let Some(heard) = self.heard.get_mut(&from) {
            *heard = Heard { last: now, is_suspected: false };
        }
    }

    /// The number of the heartbeat to send now, if one is due.
    pub(super) fn due(&mut self, now: Time) -> Option<u64> {
        if now < self.send_at {
            return None;
        }
        self.send_at = next(self.send_at, now, HEARTBEAT);
        self.number += 1;
        Some(self.number)
    }

    /// Whether this is the moment of a check.
    pub(super) fn is_check(&mut self, now: Time) -> bool {
        let is_due = now >= self.check_at;
        if is_due {
            self.check_at = next(self.check_at, now, CHECK);
        }
        is_due
    }

    /// Who has been silent for too long and was not said to be so before.
    pub(super) fn newly_suspected(&mut self, now: Time) -> Vec<NodeId> {
        let is_new = |heard: &Heard| !heard.is_suspected && now.since(heard.last) >= SUSPICION;
        let new = self.heard.iter_mut().filter(|(_, heard)| is_new(heard));
        let said = new.map(|(node, heard)| {
            heard.is_suspected = true;
            *node
        });
        said.collect()
    }

    pub(super) fn next_timeout(&self) -> Time {
        self.send_at.min(self.check_at)
    }
}

/// The next moment of something periodic. A node that stood still does not catch up on what it missed.
pub(super) fn next(due: Time, now: Time, period: core::time::Duration) -> Time {
    let next = due.saturating_add(period);
    if next > now { next } else { now.saturating_add(period) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OTHER: NodeId = NodeId(1);

    fn at(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    #[test]
    fn a_node_is_suspected_once_after_six_missed_heartbeats() {
        let mut heartbeats = Heartbeats::new(at(0));
        heartbeats.watch(at(0), NodeSet::of(OTHER));
        heartbeats.heard(at(500), OTHER);
        assert_eq!(heartbeats.newly_suspected(at(7699)), []);
        assert_eq!(heartbeats.newly_suspected(at(7700)), [OTHER]);
        assert_eq!(heartbeats.newly_suspected(at(7800)), []);
        heartbeats.heard(at(7900), OTHER);
        assert_eq!(heartbeats.newly_suspected(at(15_100)), [OTHER], "a second silence is news again");
    }

    #[test]
    fn who_stood_still_sends_one_heartbeat_and_not_all_that_it_missed() {
        let mut heartbeats = Heartbeats::new(at(0));
        assert_eq!(heartbeats.due(at(0)), Some(1));
        assert_eq!(heartbeats.due(at(1199)), None);
        assert_eq!(heartbeats.due(at(10_000)), Some(2));
        assert_eq!(heartbeats.due(at(10_001)), None);
        assert_eq!(heartbeats.next_timeout(), at(600), "the check is overdue");
        assert!(heartbeats.is_check(at(10_000)));
        assert_eq!(heartbeats.next_timeout(), at(10_600));
    }
}
