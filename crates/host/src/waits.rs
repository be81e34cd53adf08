//! Requests whose answer needs time: the agent goes on with its work and answers when it is so far.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use comb_cell::supervision::Recovered;

use crate::cell::Cell;
use crate::control::{Killed, Reply, WentOn};

/// What is waited for.
#[derive(Debug)]
pub(crate) enum Awaited {
    /// All cells up and connected.
    Up,
    /// A cell dead, and all who had a channel to it aware of that and at work again.
    Killed {
        cell: u32,
        pid: u32,
        killed_at_ns: u64,
        peers: BTreeSet<u32>,
        noticed: Vec<(u32, u64)>,
        recovered: Vec<WentOn>,
    },
    /// A cell up and connected, in another process than that.
    Started { cell: u32, not: Option<u32> },
    /// So many more, from that number on.
    Added { first: u32, count: u32 },
}

impl Awaited {
    /// Starting takes milliseconds and noticing less; what is not done within this is stuck, and the user is to know.
    fn limit(&self) -> Duration {
        match self {
            Self::Up => Duration::from_secs(30),
            Self::Killed { .. } => Duration::from_secs(5),
            Self::Started { .. } | Self::Added { .. } => Duration::from_secs(15),
        }
    }
}

/// A command that waits.
#[derive(Debug)]
pub(crate) struct Wait {
    pub(crate) connection: u64,
    pub(crate) awaited: Awaited,
    started: Instant,
}

impl Wait {
    pub(crate) fn new(connection: u64, awaited: Awaited) -> Self {
        Self { connection, awaited, started: Instant::now() }
    }

    pub(crate) fn deadline(&self) -> Instant {
        self.started + self.awaited.limit()
    }

    /// A cell says that its channel to `peer` ended.
    pub(crate) fn noticed(&mut self, by: u32, peer: u32, at_ns: u64) {
        if let Awaited::Killed { cell, killed_at_ns, peers, noticed, .. } = &mut self.awaited
            && *cell == peer
            && peers.contains(&by)
            && noticed.iter().all(|(known, _)| *known != by)
        {
            // A cell that claims to have known before is as fast as can be.
            noticed.push((by, at_ns.saturating_sub(*killed_at_ns)));
        }
    }

    /// A cell has recovered.
    pub(crate) fn recovered(&mut self, by: u32, report: &Recovered) {
        if let Awaited::Killed { cell, killed_at_ns, recovered, .. } = &mut self.awaited
            && report.dead.contains(cell)
            && report.resumed_ns >= *killed_at_ns
            && recovered.iter().all(|known| known.cell != by)
        {
            let since = |at_ns: u64| at_ns.saturating_sub(*killed_at_ns);
            recovered.push(WentOn {
                cell: by,
                entered_ns: since(report.entered_ns),
                resumed_ns: since(report.resumed_ns),
                discarded_pages: report.discarded_pages,
            });
        }
    }

    /// The answer, if it is time for one.
    pub(crate) fn answer(&self, cells: &[Cell], now: Instant) -> Option<Reply> {
        let late = now >= self.deadline();
        match &self.awaited {
            Awaited::Up => {
                let ended = cells.iter().find_map(|cell| Some((cell.number, cell.ended.as_ref()?)));
                if let Some((number, how)) = ended {
                    return Some(Reply::Refused(format!("cell {number} did not come up: {how}")));
                }
                let missing = cells.iter().find(|cell| !is_connected(cell, cells));
                match missing {
                    None => {
                        let channels: usize = cells.iter().map(|cell| cell.linked.len()).sum();
                        let channels = u32::try_from(channels / 2).unwrap_or(u32::MAX);
                        Some(Reply::Up { channels, agent_pid: std::process::id() })
                    }
                    Some(cell) if late => Some(Reply::Refused(format!(
                        "cell {} is not connected after {} s: see `comb ps` and `comb log`",
                        cell.number,
                        self.awaited.limit().as_secs()
                    ))),
                    Some(_) => None,
                }
            }
            Awaited::Killed { cell, pid, peers, noticed, recovered, .. } => {
                let (cell, pid) = (*cell, *pid);
                let is_gone = |other: &Cell| other.running.is_none() || other.pid != pid;
                let gone = cells.iter().all(|other| other.number != cell || is_gone(other));
                let lives =
                    |peer: u32| cells.iter().any(|other| other.number == peer && other.running.is_some());
                let living = || peers.iter().copied().filter(|&peer| lives(peer));
                let unaware = living().filter(|peer| noticed.iter().all(|(known, _)| known != peer)).count();
                let at_work = |peer: u32| recovered.iter().any(|known| known.cell == peer);
                (late || gone && unaware == 0 && living().all(at_work)).then(|| {
                    let (mut noticed, mut recovered) = (noticed.clone(), recovered.clone());
                    noticed.sort_by_key(|(_, after)| *after);
                    recovered.sort_by_key(|known| known.resumed_ns);
                    // Peers that died meanwhile have nothing to notice any more.
                    let peers = u32::try_from(noticed.len() + unaware).unwrap_or(u32::MAX);
                    Reply::Killed(Killed { cell, pid, peers, noticed, recovered })
                })
            }
            Awaited::Added { first, count } => {
                let mut added = cells.iter().filter(|cell| (*first..first + count).contains(&cell.number));
                let ended = added.clone().find_map(|cell| Some((cell.number, cell.ended.as_ref()?)));
                if let Some((number, how)) = ended {
                    return Some(Reply::Refused(format!("cell {number} did not come up: {how}")));
                }
                let (first, count) = (*first, *count);
                let took_ns = u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX);
                match added.find(|cell| !is_connected(cell, cells)) {
                    None => Some(Reply::Added { first, count, took_ns }),
                    Some(cell) if late => Some(Reply::Refused(format!(
                        "cell {} is not connected after {} s: see `comb ps` and `comb log`",
                        cell.number,
                        self.awaited.limit().as_secs()
                    ))),
                    Some(_) => None,
                }
            }
            Awaited::Started { cell, not } => {
                let found = cells.iter().find(|other| other.number == *cell)?;
                if !late && not.is_some_and(|before| before == found.pid || found.running.is_none()) {
                    return None;
                }
                if let Some(how) = &found.ended {
                    return Some(Reply::Refused(format!("cell {cell} did not come up: {how}")));
                }
                let expected = cells.iter().filter(|other| other.is_up() && other.number != *cell).count();
                (late || is_connected(found, cells)).then(|| Reply::Started {
                    pid: found.pid,
                    incarnation: found.incarnation,
                    channels: u32::try_from(found.linked.len()).unwrap_or(u32::MAX),
                    channels_expected: u32::try_from(expected).unwrap_or(u32::MAX),
                    took_ns: u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX),
                })
            }
        }
    }
}

/// Whether a cell is up and has a channel to every other that runs, and these agree.
pub(crate) fn is_connected(cell: &Cell, cells: &[Cell]) -> bool {
    let others = || cells.iter().filter(|other| other.number != cell.number && other.running.is_some());
    cell.is_up()
        && others().all(|other| cell.linked.contains(&other.number) && other.linked.contains(&cell.number))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kill_of_two(peers: impl IntoIterator<Item = u32>) -> Wait {
        let peers = peers.into_iter().collect();
        let (noticed, recovered) = (Vec::new(), Vec::new());
        Wait::new(0, Awaited::Killed { cell: 2, pid: 7, killed_at_ns: 1000, peers, noticed, recovered })
    }

    #[test]
    fn only_peers_count_and_each_once() {
        let mut wait = kill_of_two([1, 3]);
        wait.noticed(3, 2, 5000);
        wait.noticed(3, 2, 9000);
        wait.noticed(4, 2, 2000);
        wait.noticed(1, 3, 2000);
        wait.noticed(1, 2, 500);
        let Some(Reply::Killed(killed)) = wait.answer(&[], wait.deadline()) else { panic!("it is late") };
        assert_eq!((killed.peers, killed.noticed), (2, vec![(1, 0), (3, 4000)]));
    }

    #[test]
    fn a_peer_that_died_meanwhile_is_not_waited_for() {
        let wait = kill_of_two([1]);
        let mut one = Cell::new(1);
        one.ended = Some("killed".into());
        assert!(wait.answer(&[one, Cell::new(2)], Instant::now()).is_some());
    }

    #[test]
    fn a_cell_that_fails_while_coming_up_is_told_at_once() {
        let mut two = Cell::new(2);
        two.ended = Some("failed with status 1".into());
        let wait = Wait::new(0, Awaited::Up);
        let answer = wait.answer(&[Cell::new(1), two], Instant::now());
        assert_eq!(answer, Some(Reply::Refused("cell 2 did not come up: failed with status 1".into())));
        assert_eq!(wait.answer(&[Cell::new(1)], Instant::now()), None);
    }
}
