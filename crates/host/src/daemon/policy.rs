//! Processes that the agent keeps running beside the cells: Wax, as long as all cells live, and the dashboard.

use super::*;

impl Daemon {
    /// When all cells are as they are to be for a while.
    pub(super) fn start_policy(&mut self) {
        let is_settled =
            self.cells.iter().all(|cell| cell.running.is_none() || (cell.is_up() && cell.shows().is_some()));
        let is_one_up = self.cells.iter().any(Cell::is_up);
        if self.ending.is_some() || !is_settled || !is_one_up || !self.waxing.is_due(Instant::now()) {
            return;
        }
        let started = self.waxing.start(&self.directory, self.cgroup.as_ref());
        let event = epoll::EventData::new_u64(Source::Policy.token());
        let watched =
            started.and_then(|process| Ok(epoll::add(&self.epoll, process, event, epoll::EventFlags::IN)?));
        if let Err(error) = watched {
            self.waxing.end();
            say(format_args!("the policy cannot be started: {error}"));
        } else {
            let incarnation = self.waxing.incarnation;
            let text = format_args!("the policy runs, incarnation {incarnation}");
            self.events.note_quietly(What::PolicyBegan { incarnation }, text);
        }
        self.write_state();
    }

    pub(super) fn hear_policy(&mut self, report: &Report, descriptors: Vec<OwnedFd>) -> Result<(), String> {
        if *report == Report::Shows {
            self.waxing.shows(descriptors.into_iter().next().ok_or("it shows nothing")?)?;
            self.tell_of_hints(None);
        }
        Ok(())
    }

    /// Where hints are is told to one cell, or to all.
    pub(super) fn tell_of_hints(&mut self, to: Option<u64>) {
        let Some((order, file)) = self.waxing.order() else { return };
        for (connection, known) in &mut self.cell_connections {
            let is_cell = known.cell.is_some_and(|cell| cell != POLICY.0);
            if is_cell && to.is_none_or(|to| to == *connection) {
                known.tell_with(&order, Some(Arc::clone(&file)));
            }
        }
    }

    pub(super) fn look_for_end_of_policy(&mut self) {
        if let Some(process) = self.waxing.process() {
            let _ = epoll::delete(&self.epoll, process);
        }
        let (pid, incarnation) = (self.waxing.status().map(|status| status.pid), self.waxing.incarnation);
        match self.waxing.take_end() {
            Some((how, connection)) => {
                if let Some(connection) = connection {
                    self.cell_connections.remove(&connection);
                }
                let pid = pid.map(|pid| format!(" (process {pid})")).unwrap_or_default();
                let text = format_args!("the policy{pid}, incarnation {incarnation}, is gone: {how}");
                self.events.note(What::PolicyEnded { incarnation }, text);
            }
            None => {
                if let Some(process) = self.waxing.process() {
                    let _ = self.watch(process, Source::Policy);
                }
            }
        }
    }

    /// When all cells are up: they come first.
    pub(super) fn start_dashboard(&mut self) {
        let is_one_missing =
            self.cells.iter().any(|cell| cell.incarnation == 1 && cell.running.is_some() && !cell.is_up());
        let Some(dashboard) = self.dashboard.as_mut().filter(|_| self.ending.is_none() && !is_one_missing)
        else {
            return;
        };
        if dashboard.next_due().is_none_or(|due| due > Instant::now()) {
            return;
        }
        let event = epoll::EventData::new_u64(Source::Dashboard.token());
        let started = dashboard.start(&self.directory);
        let watched =
            started.and_then(|process| Ok(epoll::add(&self.epoll, process, event, epoll::EventFlags::IN)?));
        if let Err(error) = watched {
            dashboard.end();
            say(format_args!("the dashboard cannot be started: {error}"));
        }
    }

    pub(super) fn look_for_end_of_dashboard(&mut self) {
        let Some(dashboard) = &mut self.dashboard else { return };
        if let Some(process) = dashboard.process() {
            let _ = epoll::delete(&self.epoll, process);
        }
        match dashboard.take_end() {
            Some(how) if self.ending.is_none() => {
                self.events.note(What::Note, format_args!("the dashboard is gone: {how}"));
            }
            _ => {
                if let Some(process) = self.dashboard.as_ref().and_then(Dashboard::process) {
                    let _ = self.watch(process, Source::Dashboard);
                }
            }
        }
    }
}
