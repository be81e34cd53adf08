//! Tasks: where their components run, and who launches them.

use super::*;

/// Of a task with more components, the event that it began names the cells of so many.
const MOST_CELLS_NAMED: usize = 64;

impl Daemon {
    pub(super) fn place(&mut self, connection: u64, wanted: &Wanted) {
        let reply = match self.seats_for(wanted) {
            Ok(seats) => {
                let record = TaskRecord { wanted: wanted.clone(), seats, since_s: tasks::now_s() };
                return self.resume(connection, &record);
            }
            Err(why) => Reply::Refused(why),
        };
        self.reply(connection, &reply);
    }

    pub(super) fn seats_for(&mut self, wanted: &Wanted) -> Result<Vec<Seat>, String> {
        let mut load: BTreeMap<u32, usize> = BTreeMap::new();
        for cell in self.cells.iter().filter(|cell| cell.is_up()) {
            let is_meant = wanted.cells.contains(&cell.number);
            if is_meant || wanted.cells.is_empty() && !cell.is_draining {
                load.insert(cell.number, 0);
            }
        }
        // One that runs again does so on those that live.
        let needs_all = wanted.restarts == 0 || load.is_empty();
        if let Some(&missing) = wanted.cells.iter().find(|cell| needs_all && !load.contains_key(cell)) {
            self.index_of(missing)?;
            return Err(format!("cell {missing} is not up: `comb ps` shows which are"));
        }
        for seat in self.tasks.values().flat_map(|task| &task.record.seats) {
            load.entry(seat.cell).and_modify(|count| *count += 1);
        }
        let cells = tasks::deal(wanted.components, &load, self.waxing.advice().as_ref());
        if cells.is_empty() {
            return Err("no cell is up: `comb ps` shows them, `comb cell start 1` starts one".to_owned());
        }
        let cgroup = |cell: u32| {
            let parent = self.cgroup.as_ref()?.path().join(format!("cell-{cell}"));
            // One of its own within the cell's: it can be told to wait as a whole.
            let own = heeding::cgroup_of(&parent, wanted.task);
            let name = own.file_name()?.to_str()?;
            Some(Cgroup::create(&parent, name).map_or(parent, |own| own.path().to_owned()))
        };
        Ok(cells.into_iter().map(|cell| Seat { cell, cgroup: cgroup(cell), process: 0 }).collect())
    }

    /// A task is in the book from now on, by the connection that asked.
    pub(super) fn resume(&mut self, connection: u64, record: &TaskRecord) {
        if self.tasks.len() >= MOST_TASKS {
            return self.reply(connection, &Reply::Refused(format!("there are {MOST_TASKS} tasks already")));
        }
        let Some(command) = self.commands.remove(&connection) else { return };
        let number = record.wanted.task;
        let _ = epoll::delete(&self.epoll, &command.socket);
        let reply = Reply::Placed { seats: record.seats.clone() };
        if protocol::send(&command.socket, &reply, &[]).is_ok()
            && self.watch(&command.socket, Source::Task(number)).is_ok()
        {
            let (program, cells) = (record.wanted.program.clone(), record.seats.iter().map(|seat| seat.cell));
            let cells: Vec<u32> = cells.take(MOST_CELLS_NAMED).collect();
            let text = format_args!("task {number} runs in cells {cells:?}: {}", program.join(" "));
            self.events.note_quietly(
                What::TaskBegan { task: number, program: program.clone(), cells: cells.clone() },
                text,
            );
            self.tasks.insert(number, Task::new(record.clone(), command.socket));
        }
        self.tasks_changed();
    }

    pub(super) fn hear_task(&mut self, number: u32) {
        if self.tasks.get_mut(&number).is_some_and(|task| !task.hear()) {
            self.tasks.remove(&number);
            let text = format_args!("task {number} is over");
            self.events.note_quietly(What::TaskEnded { task: number }, text);
        }
        self.tasks_changed();
    }

    /// Whoever launches a small process waits for nothing that can come later.
    fn tasks_changed(&mut self) {
        self.tell_tasks_at.get_or_insert_with(|| Instant::now() + TASKS_SETTLE);
    }

    /// What has changed is told to the cells together.
    pub(super) fn tell_of_changed_tasks(&mut self) {
        if self.tell_tasks_at.take_if(|at| *at <= Instant::now()).is_some() {
            self.remove_cgroups_of_ended_tasks();
            self.tell_of_tasks();
        }
    }

    /// Those that still have processes are left for the next time.
    fn remove_cgroups_of_ended_tasks(&self) {
        for cell in self.cgroup.iter().flat_map(Cgroup::children) {
            for own in cell.children() {
                let name = own.path().file_name().and_then(|name| name.to_str());
                let number = name.and_then(|name| name.strip_prefix("task-")?.parse().ok());
                if number.is_some_and(|number| !self.tasks.contains_key(&number)) {
                    own.remove();
                }
            }
        }
    }

    /// Cells know which tasks they have.
    pub(super) fn tell_of_tasks(&mut self) {
        for known in self.cell_connections.values_mut() {
            let Some(cell) = known.cell.filter(|&cell| cell != POLICY.0) else { continue };
            let tasks: Vec<_> =
                self.tasks.values().filter_map(|task| task.in_cell(cell)).take(MOST_TASKS_TOLD).collect();
            if known.tasks != tasks {
                known.tasks.clone_from(&tasks);
                known.tell(&Order::Tasks { tasks });
            }
        }
    }
}
