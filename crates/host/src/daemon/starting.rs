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
        let (pid, incarnation) = (cell.pid, cell.incarnation);
        // From here on the peers' clocks are compared with this one.
        let killed_at_ns = monotonic_ns();
        running.kill();
        self.cells[index].killed_at_ns = Some(killed_at_ns);
        self.cells[index].is_held = hold;
        self.tell_others(number, &Order::Ended { cell: number, pid, killed_at_ns: Some(killed_at_ns) });
        let what = What::CellStruck { cell: number, incarnation, hangs: false, struck_ns: killed_at_ns };
        self.events.note(what, format_args!("killed cell {number} (process {pid})"));
        Ok(self.aftermath(number, pid, killed_at_ns))
    }

    /// What is waited for when a cell was struck: that all who had a channel to it have noticed, and are at work again.
    fn aftermath(&self, cell: u32, pid: u32, killed_at_ns: u64) -> Awaited {
        let linked = self.cells.iter().filter(|other| other.linked.contains(&cell));
        let peers = linked.map(|other| other.number).collect();
        Awaited::Killed { cell, pid, killed_at_ns, peers, noticed: Vec::new(), recovered: Vec::new() }
    }

    /// A cell is stopped: the others have to find that it hangs.
    pub(super) fn hang(&mut self, number: u32) -> Result<Awaited, String> {
        let index = self.index_of(number)?;
        let cell = &self.cells[index];
        let Some(running) = &cell.running else {
            return Err(format!("cell {number} is not running: `comb cell start {number}` starts it"));
        };
        if self.cells.iter().filter(|other| other.is_up()).count() < 2 {
            return Err(format!("no cell but {number} is up: nobody would find that it hangs"));
        }
        let (pid, incarnation) = (cell.pid, cell.incarnation);
        let killed_at_ns = monotonic_ns();
        if !process::stop(&running.process) {
            return Err(format!("cell {number} (process {pid}) cannot be stopped"));
        }
        let what = What::CellStruck { cell: number, incarnation, hangs: true, struck_ns: killed_at_ns };
        self.events.note(what, format_args!("stopped cell {number} (process {pid}), so that it hangs"));
        Ok(self.aftermath(number, pid, killed_at_ns))
    }

    /// No new tasks, or again.
    pub(super) fn drain(&mut self, number: u32, drain: bool) -> Result<(), String> {
        let index = self.index_of(number)?;
        let is_last =
            !self.cells.iter().any(|cell| cell.number != number && cell.is_up() && !cell.is_draining);
        if drain && is_last {
            return Err(format!(
                "cell {number} is the last that takes tasks: `comb cell add` starts another"
            ));
        }
        let before = std::mem::replace(&mut self.cells[index].is_draining, drain);
        if before != drain {
            let text = if drain { "gets no new tasks" } else { "gets tasks again" };
            let what = if drain { What::CellDraining { cell: number } } else { What::Note };
            self.events.note(what, format_args!("cell {number} {text}"));
            self.write_state();
        }
        Ok(())
    }

    /// A cell ends in good order, and comes in again.
    pub(super) fn end_and_start(&mut self, number: u32) -> Result<Awaited, String> {
        let index = self.index_of(number)?;
        let cell = &mut self.cells[index];
        let Some(running) = &cell.running else { return self.start_again(number) };
        (cell.is_held, cell.is_draining, cell.again) = (false, false, Again::AtItsEnd);
        cell.is_told_to_end = true;
        let pid = cell.pid;
        let connection = cell.connection.and_then(|connection| self.cell_connections.get_mut(&connection));
        if !connection.is_some_and(|known| known.tell(&Order::Leave)) {
            running.kill();
        }
        self.events.note(What::Note, format_args!("ends cell {number} (process {pid}), to start it anew"));
        Ok(Awaited::Started { cell: number, not: Some(pid) })
    }

    /// More cells.
    pub(super) fn add(&mut self, count: u32) -> Result<Awaited, String> {
        if self.abroad.federation.has_others() {
            return Err("the cells of this host have numbers that the other hosts know: `comb leave`, and `comb join --cells` with more".to_owned());
        }
        let most = crate::MOST_CELLS as usize;
        if count == 0 || self.cells.len() + count as usize > most {
            let here = self.cells.len();
            return Err(format!("{here} cells and {count} more cannot be: there are 1 to {most} on a host"));
        }
        let first = self.cells.iter().map(|cell| cell.number).max().unwrap_or(0) + 1;
        for number in first..first + count {
            self.cells.push(Cell::new(number));
            self.start_beside_others(self.cells.len() - 1);
        }
        Ok(Awaited::Added { first, count })
    }

    /// Cells that have come to be at work since the last look.
    pub(super) fn note_those_that_are_up(&mut self) {
        for index in 0..self.cells.len() {
            let cell = &self.cells[index];
            if cell.is_noted_up || !cell.is_up() || !waits::is_connected(cell, &self.cells) {
                continue;
            }
            let (number, incarnation) = (cell.number, cell.incarnation);
            self.cells[index].is_noted_up = true;
            let text = format_args!("cell {number} is up, incarnation {incarnation}");
            self.events.note_quietly(What::CellUp { cell: number, incarnation }, text);
        }
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
        self.cells[index].is_draining = false;
        self.start_beside_others(index);
        Ok(Awaited::Started { cell: number, not: None })
    }

    /// A cell that comes in to those that live, or begins alone.
    pub(super) fn start_beside_others(&mut self, index: usize) {
        let number = self.cells[index].number;
        let Some(beginning) = self.beginning_beside_others(number) else {
            self.cells[index].again = Again::WhenReached;
            return say(format_args!("cell {number} waits until the other hosts are reached"));
        };
        self.start_cell(index, &beginning);
    }
}
