//! Who may open channels: within the host one user's processes, from other hosts these and the cells that these hosts have.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use comb_cell::supervision::process_name;
use comb_net::agent::{Identity, Policy, SameUser};

use super::members::Roster;

/// Which host has which numbers: the agent writes, its broker reads.
#[derive(Clone, Debug, Default)]
pub(crate) struct Blocks(Arc<Mutex<BTreeMap<String, (u32, u32)>>>);

impl Blocks {
    pub(super) fn set(&self, roster: &Roster) {
        let blocks =
            roster.others().map(|member| (member.name.clone(), (member.first, member.count))).collect();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = blocks;
    }

    fn has(&self, host: &str, process: &str) -> bool {
        let blocks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(&(first, count)) = blocks.get(host) else { return false };
        (first..first.saturating_add(count)).any(|cell| process_name(cell) == process)
    }
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct CombPolicy {
    pub(crate) blocks: Blocks,
}

impl Policy for CombPolicy {
    fn may_open(&self, from: &Identity, to: &Identity, endpoint: &str) -> Result<(), String> {
        SameUser.may_open(from, to, endpoint)
    }

    fn may_enter(&self, host: &str, from: &Identity, to: &Identity, endpoint: &str) -> Result<(), String> {
        let is_cell = |process: &str| process.starts_with("cell-");
        // A cell is its host's, whoever runs its agent there; and nobody passes for a cell of another.
        match (is_cell(&from.name), is_cell(&to.name)) {
            (true, true) if self.blocks.has(host, &from.name) => Ok(()),
            (true, _) => Err(format!("{} is no cell of host {host}", from.name)),
            (false, _) => SameUser.may_open(from, to, endpoint),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::members::tests::member;
    use super::*;

    #[test]
    fn a_host_has_its_own_cells_and_no_others() {
        let mut roster = Roster::of(member("alpha", 1, 2));
        roster.add(member("beta", 3, 2)).unwrap();
        let policy = CombPolicy { blocks: Blocks::default() };
        policy.blocks.set(&roster);
        let process = |name: &str, uid| Identity { name: name.to_owned(), pid: 7, uid };
        let own = process("cell-1", 1000);
        assert!(policy.may_enter("beta", &process("cell-3", 2000), &own, "group").is_ok());
        for (host, from) in [
            ("beta", "cell-1"),
            ("beta", "cell-5"),
            ("gamma", "cell-3"),
            ("beta", "cell-x"),
            ("beta", "cell-03"),
        ] {
            assert!(policy.may_enter(host, &process(from, 0), &own, "group").is_err(), "{host} {from}");
        }
        assert!(policy.may_enter("beta", &process("part", 1000), &process("other", 1000), "x").is_ok());
        assert!(policy.may_enter("beta", &process("part", 1001), &process("other", 1000), "x").is_err());
    }
}
