//! Everything is taken down.

use super::*;

impl Daemon {
    pub(super) fn end_all(&mut self, connection: Option<u64>) {
        let first = self.ending.is_none();
        let ending = self.ending.get_or_insert_default();
        ending.connections.extend(connection);
        if !first {
            return;
        }
        ending.deadline = Some(Instant::now() + END_LIMIT);
        self.events.note(What::Ending, "takes everything down");
        self.notify.tell_of_end();
        self.waxing.end();
        let end = rustix::process::Signal::TERM.as_raw();
        self.tasks.values().for_each(|task| task.tell(&TaskOrder::End { signal: end }));
        for cell in &self.cells {
            let connection =
                cell.connection.and_then(|connection| self.cell_connections.get_mut(&connection));
            let told = connection.is_some_and(|known| known.tell(&Order::End));
            let Some(running) = &cell.running else { continue };
            let ending = self.ending.as_mut().expect("set above");
            if told {
                ending.told += 1;
            } else {
                ending.killed += 1;
                running.kill();
            }
        }
        for wait in std::mem::take(&mut self.waits) {
            self.reply(wait.connection, &Reply::Refused("the cells were taken down meanwhile".into()));
        }
    }

    /// Whether all cells have ended. Kills those that do not.
    pub(super) fn is_over(&mut self) -> bool {
        let Some(ending) = &mut self.ending else { return false };
        let living = self.cells.iter().filter_map(|cell| cell.running.as_ref());
        if living.clone().count() == 0 {
            return true;
        }
        if ending.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            ending.deadline = None;
            for running in living {
                running.kill();
                ending.killed += 1;
                ending.told = ending.told.saturating_sub(1);
            }
        }
        false
    }

    pub(super) fn finish(mut self) -> Result<(), DaemonError> {
        let ending = self.ending.take().unwrap_or_default();
        if let Some(cgroup) = &self.cgroup {
            remains::remove_cgroups(cgroup);
        } else {
            marks::kill_all(&self.directory);
        }
        self.part_from_hosts();
        let commands = std::mem::take(&mut self.commands);
        if let Some(dashboard) = &mut self.dashboard {
            dashboard.end();
        }
        let Self { directory, server, .. } = self;
        drop(server);
        let removed = directory.remove();
        let directory_removed = matches!(removed, Ok(true));
        let reply = Reply::Down(Down { ended: ending.told, killed: ending.killed, directory_removed });
        for connection in ending.connections {
            if let Some(command) = commands.get(&connection) {
                let _ = protocol::send(&command.socket, &reply, &[]);
            }
        }
        removed.map(drop).map_err(DaemonError::from)
    }
}
