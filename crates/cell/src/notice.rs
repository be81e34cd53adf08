//! How long after a kill a cell noticed it.
//!
//! The cell knows when it noticed; the agent knows when it killed. Whichever comes first waits here for the other.
//! What is measured: from just before the agent's system call that kills, to the moment the cell's endpoint returned
//! the error.

use std::collections::BTreeMap;

use comb_net::Cause;

/// The agent's word for the moment of a kill is under way when a cell notices. It may take so long; after that the
/// notice is written without a time.
const AGENT_LIMIT_NS: u64 = 50_000_000;

/// A kill that nobody noticed for so long concerns an earlier life of that cell.
const KILL_MEMORY_NS: u64 = 10_000_000_000;

/// The end of a channel, as it is written to the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Notice {
    /// `process/endpoint` of the peer.
    pub peer: String,
    /// Why, in the words of the network.
    pub cause: String,
    /// From the kill to now; `None` if nobody said when it was killed.
    pub after_ns: Option<u64>,
}

impl std::fmt::Display for Notice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the channel to {} ended", self.peer)?;
        if let Some(after) = self.after_ns {
            write!(f, " {} after the kill", crate::clock::span(after))?;
        }
        write!(f, ": {}", self.cause)
    }
}

#[derive(Debug)]
struct Noticed {
    cell: u32,
    at_ns: u64,
    notice: Notice,
}

/// What the agent says of a cell's end.
#[derive(Clone, Copy, Debug)]
struct Told {
    /// When it said so.
    at_ns: u64,
    killed_at_ns: Option<u64>,
}

/// Brings the two together.
#[derive(Debug, Default)]
pub struct Notices {
    waiting: Vec<Noticed>,
    /// On cells whose end was noticed by nobody or not by all.
    told: BTreeMap<u32, Told>,
}

impl Notices {
    /// The channel to `cell` ended at `at_ns`.
    pub fn channel_ended(&mut self, cell: u32, at_ns: u64, peer: String, cause: &Cause) {
        let notice = Notice { peer, cause: cause.to_string(), after_ns: None };
        self.waiting.push(Noticed { cell, at_ns, notice });
    }

    /// The agent says that `cell` has ended.
    pub fn agent_said(&mut self, now_ns: u64, cell: u32, killed_at_ns: Option<u64>) {
        self.told.insert(cell, Told { at_ns: now_ns, killed_at_ns });
    }

    /// A channel to `cell` is open: what was said before concerned an earlier life.
    pub fn channel_opened(&mut self, cell: u32) {
        self.told.remove(&cell);
    }

    /// Notices that are complete, or have waited long enough.
    pub fn take_due(&mut self, now_ns: u64) -> Vec<Notice> {
        self.told.retain(|_, told| now_ns.saturating_sub(told.at_ns) < KILL_MEMORY_NS);
        let mut due = Vec::new();
        let told = &self.told;
        self.waiting.retain_mut(|noticed| {
            let word = told.get(&noticed.cell);
            if word.is_none() && now_ns.saturating_sub(noticed.at_ns) < AGENT_LIMIT_NS {
                return true;
            }
            if let Some(word) = word {
                noticed.notice.after_ns =
                    word.killed_at_ns.and_then(|killed| noticed.at_ns.checked_sub(killed));
            }
            due.push(noticed.notice.clone());
            false
        });
        due
    }

    /// When [`Notices::take_due`] has something to give even if nothing is heard.
    pub fn next_due_ns(&self) -> Option<u64> {
        self.waiting.iter().map(|noticed| noticed.at_ns.saturating_add(AGENT_LIMIT_NS)).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(notices: &mut Notices, at_ns: u64) {
        notices.channel_ended(2, at_ns, "cell-2/wire".into(), &Cause::Exited(7));
    }

    #[test]
    fn whichever_comes_first_waits_for_the_other() {
        let mut notices = Notices::default();
        ended(&mut notices, 1_400_000);
        assert_eq!(notices.take_due(1_500_000), []);
        assert_eq!(notices.next_due_ns(), Some(1_400_000 + AGENT_LIMIT_NS));
        notices.agent_said(1_600_000, 2, Some(1_000_000));
        let due = notices.take_due(1_600_000);
        assert_eq!(
            due[0].to_string(),
            "the channel to cell-2/wire ended 0.4 ms after the kill: its process 7 ended"
        );

        let mut notices = Notices::default();
        notices.agent_said(1_100_000, 2, Some(1_000_000));
        ended(&mut notices, 1_400_000);
        assert_eq!(notices.take_due(1_400_000)[0].after_ns, Some(400_000));
    }

    #[test]
    fn an_end_that_nobody_caused_is_told_without_a_time() {
        let mut notices = Notices::default();
        ended(&mut notices, 1_000_000);
        notices.agent_said(1_100_000, 2, None);
        let due = notices.take_due(1_100_000);
        assert_eq!(due[0].to_string(), "the channel to cell-2/wire ended: its process 7 ended");

        ended(&mut notices, 1_000_000);
        notices.channel_opened(2);
        assert_eq!(notices.take_due(2_000_000), []);
        assert_eq!(notices.take_due(1_000_000 + AGENT_LIMIT_NS).len(), 1, "the agent is silent");
    }

    #[test]
    fn a_kill_of_an_earlier_life_explains_nothing() {
        let mut notices = Notices::default();
        notices.agent_said(1000, 2, Some(500));
        notices.channel_opened(2);
        ended(&mut notices, 1_000_000);
        assert_eq!(notices.take_due(1_000_000), []);
    }
}
