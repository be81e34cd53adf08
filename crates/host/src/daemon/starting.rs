//! What people do to one cell: it is killed, told to fail, or started again.

use super::*;

impl Daemon {
    pub(super) fn kill(&mut self, number: u32, hold: bool) -> Result<Awaited, String> {
        let index = self.index_of(number)?;
        let cell = &self.cells[index];
        let Some(running) = &cell.running else {
            let how = cell.ended.clone().unwrap_or_default();
            return Err(format!(
                "cell {number} is not running ({how}): `comb cell start {number}` starts it"
            ));
        };
        let linked = self.cells.iter().filter(|other| other.linked.contains(&number));
        let peers = linked.map(|other| other.number).collect();
        let pid = cell.pid;
        // From here on the peers' clocks are compared with this one.
        let killed_at_ns = monotonic_ns();
        running.kill();
        self.cells[index].killed_at_ns = Some(killed_at_ns);
        self.cells[index].is_held = hold;
        self.tell_others(number, &Order::Ended { cell: number, pid, killed_at_ns: Some(killed_at_ns) });
        say(format_args!("killed cell {number} (process {pid})"));
        Ok(Awaited::Killed {
            cell: number,
            pid,
            killed_at_ns,
            peers,
            noticed: Vec::new(),
            recovered: Vec::new(),
        })
    }

    /// A cell is to fail.
    pub(super) fn inject(&mut self, number: u32, fault: Fault) -> Result<(), String> {
        if self.observations.is_none() {
            return Err(NO_FAULTS.to_owned());
        }
        let connection = self.cells[self.index_of(number)?].connection;
        let known = connection.and_then(|connection| self.cell_connections.get_mut(&connection));
        known.ok_or_else(|| format!("cell {number} is not up"))?.tell(&Order::Inject(fault));
        Ok(())
    }

    pub(super) fn start_again(&mut self, number: u32) -> Result<Awaited, String> {
        let index = self.index_of(number)?;
        if self.cells[index].running.is_some() {
            return Err(format!("cell {number} is running already (process {})", self.cells[index].pid));
        }
        self.start_beside_others(index);
        Ok(Awaited::Started { cell: number })
    }

    /// A cell that comes in to those that live, or begins alone.
    pub(super) fn start_beside_others(&mut self, index: usize) {
        let number = self.cells[index].number;
        let Some(beginning) = self.beginning_beside_others(number) else {
            self.cells[index].again = Again::WhenReached;
            return say(format_args!("cell {number} waits until the other hosts are reached"));
        };
        self.start_cell(index, &beginning);
        let cell = &self.cells[index];
        say(format_args!("started cell {number} (process {}), incarnation {}", cell.pid, cell.incarnation));
    }
}
