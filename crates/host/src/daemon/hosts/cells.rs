//! The cells of all hosts: what the others hear of ours, and ours of theirs; how those begin that wait for others.

use super::*;

impl Daemon {
    /// What is due with other hosts, at each turn of the loop.
    pub(in crate::daemon) fn begin_what_is_due_abroad(&mut self) {
        if self.abroad.federation.comb.is_none() || self.ending.is_some() {
            return;
        }
        self.abroad.federation.tend();
        self.tell_where_others_are(None);
        self.start_those_that_wait_for_hosts();
        let light: Vec<_> = self
            .cells
            .iter()
            .map(|cell| {
                (
                    cell.number,
                    cell.incarnation,
                    cell.is_up(),
                    cell.running.is_some(),
                    cell.is_member,
                    cell.linked.len(),
                )
            })
            .collect();
        let is_due = self.abroad.federation.comb.as_ref().is_some_and(|comb| comb.is_to_tell(&light));
        if is_due {
            let words = self.cell_words();
            if let Some(comb) = &mut self.abroad.federation.comb {
                comb.tell_cells(light, words);
            }
        }
    }

    /// When that is to be looked at next.
    pub(in crate::daemon) fn next_due_abroad(&self) -> Option<Instant> {
        self.abroad.federation.next_due().filter(|_| self.ending.is_none())
    }

    /// How the cells of this host are, for others.
    pub(in crate::daemon) fn cell_words(&self) -> Vec<CellWord> {
        let word = |cell: &Cell| {
            let status = cell.status(&self.cells);
            let state = match (&status.state, &cell.again) {
                (CellCondition::Up, _) => CellState::Up,
                (CellCondition::Starting, Again::WhenReached) => CellState::Waiting,
                (CellCondition::Starting, _) => CellState::Starting,
                (CellCondition::Ended(how), _) => CellState::Ended(plain(how)),
            };
            CellWord {
                cell: status.cell,
                incarnation: status.incarnation,
                state,
                is_member: cell.is_member && !cell.is_stranded,
                pid: status.pid,
                channels: u32::try_from(cell.linked.len()).unwrap_or(u32::MAX),
                uptime_ms: status.uptime_ms,
                cpu_ms: status.cpu_ms,
                memory_bytes: status.memory_bytes,
                round_trips: status.round_trips,
            }
        };
        self.cells.iter().map(word).collect()
    }

    /// Where the cells of other hosts are, for one cell or, if there is something new in it, for all.
    pub(in crate::daemon) fn tell_where_others_are(&mut self, to: Option<u64>) {
        let Some(comb) = &self.abroad.federation.comb else { return };
        let cells = comb.roster.others().flat_map(|member| {
            let peer = comb.peers.get(&member.name);
            let is_host_heard = peer.is_some_and(|peer| peer.line.is_some());
            let is_up = move |cell: u32| {
                peer.is_some_and(|peer| {
                    peer.line.is_some()
                        && peer.cells.iter().any(|word| word.cell == cell && word.state == CellState::Up)
                })
            };
            let host = member.name.clone();
            member.cells().map(move |cell| CellElsewhere {
                cell,
                host: host.clone(),
                is_up: is_up(cell),
                is_host_heard,
            })
        });
        let cells: Vec<CellElsewhere> = cells.collect();
        let is_new = cells != self.abroad.told;
        let order = Order::Elsewhere { cells: cells.clone() };
        for (connection, known) in &mut self.cell_connections {
            let is_cell = known.cell.is_some_and(|cell| cell != POLICY.0);
            if is_cell && to.map_or(is_new, |to| to == *connection) {
                known.tell(&order);
            }
        }
        if to.is_none() {
            self.abroad.told = cells;
        }
    }

    /// How a cell begins beside those that live, wherever they do. `None`: not before its host has reached the others. One that began
    /// alone meanwhile would be a second comb.
    pub(in crate::daemon) fn beginning_beside_others(&self, number: u32) -> Option<Beginning> {
        let federation = &self.abroad.federation;
        let here = self.cells.iter().filter(|cell| cell.running.is_some()).map(|cell| cell.number);
        let elsewhere = federation.comb.as_ref().map(|comb| comb.contacts()).unwrap_or_default();
        let others: Vec<u32> = here.chain(elsewhere).collect();
        if !others.is_empty() {
            return Some(Beginning::ComingIn(others));
        }
        let may_found =
            !federation.has_others() || federation.comb.as_ref().is_some_and(|comb| comb.may_found());
        may_found.then(|| Beginning::Together(vec![number]))
    }

    pub(super) fn start_those_that_wait_for_hosts(&mut self) {
        let waiting = self.cells.iter().filter(|cell| cell.again == Again::WhenReached && !cell.is_held);
        let waiting: Vec<u32> = waiting.map(|cell| cell.number).collect();
        for number in waiting {
            if self.beginning_beside_others(number).is_some() {
                self.restart(number, "the other hosts are there");
            }
        }
    }

    /// What cells are told when they are started, of those of other hosts.
    pub(in crate::daemon) fn elsewhere_argument(&self) -> String {
        let comb = self.abroad.federation.comb.iter();
        let cells = comb
            .flat_map(|comb| comb.roster.others())
            .flat_map(|member| member.cells().map(|cell| format!("{cell}={}", member.name)));
        cells.collect::<Vec<_>>().join(",")
    }

    /// The recovery master, in a cell of ours, finds that a cell of another host can be started again.
    pub(in crate::daemon) fn restart_abroad(&mut self, cell: u32) {
        if let Some(host) = self.abroad.federation.host_of(cell).map(|member| member.name.clone()) {
            // A host that is not reached has its agent do that by itself.
            let is_up = |comb: &crate::federation::Comb| {
                comb.peers.get(&host).is_some_and(|peer| peer.line.is_some())
            };
            if self.abroad.federation.comb.as_ref().is_some_and(is_up) {
                self.ask(&host, None, Asked::Restart { cell }, Purpose::Nobody);
            }
        }
    }
}
