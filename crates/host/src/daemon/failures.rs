//! Failures: votes are counted, cells ended, their places looked at, and started again.

use super::*;

impl Daemon {
    /// A cell knows that most cells find another one failed. What most of them say is so; a single one is not believed, unless the agent
    /// sees it as well.
    pub(super) fn take_vote(&mut self, by: u32, (suspect, incarnation): (u32, u64), finding: &str) {
        let voters = self.cells.iter().filter(|cell| cell.is_up() && cell.number != suspect).count();
        let Some(cell) = self.cells.iter_mut().find(|cell| cell.number == suspect) else { return };
        // What was found of a life says nothing about the next, and one that is to end already needs no other reason.
        let is_ending = cell.running.is_none() || cell.killed_at_ns.is_some() || cell.is_told_to_end;
        if is_ending || ![0, cell.incarnation].contains(&incarnation) {
            return;
        }
        cell.found_failed_by.insert(by);
        let votes = cell.found_failed_by.len();
        let is_believed = if voters > 1 { votes * 2 > voters } else { cell.looks_failed() };
        if !is_believed {
            return;
        }
        let (incarnation, pid) = (cell.incarnation, cell.pid);
        self.events.note(
            What::CellCondemned { cell: suspect, incarnation },
            format_args!(
                "ends cell {suspect} (process {pid}): {votes} of {voters} found it failed: {finding}"
            ),
        );
        cell.killed_at_ns = Some(monotonic_ns());
        cell.failing = Some(finding.to_owned());
        if let Some(running) = &cell.running {
            running.kill();
        }
    }

    pub(super) fn take_recovered(&mut self, by: u32, recovered: &Recovered) {
        self.waxing.recovered(by);
        if let Some(cell) = self.cells.iter_mut().find(|cell| cell.number == by) {
            (cell.is_member, cell.is_stranded) = (true, false);
        }
        if self.recoveries.len() >= MOST_RECOVERIES {
            self.recoveries.pop_front();
        }
        for wait in &mut self.waits {
            wait.recovered(by, recovered);
        }
        let mut recovered = recovered.clone();
        recovered.regions.truncate(MOST_REGIONS_REMEMBERED);
        let text = comb_cell::supervision::sentence(&recovered);
        let what = What::CellRecovered { by, recovered: recovered.clone() };
        self.events.note_quietly(what, format_args!("cell {by} {text}"));
        self.recoveries.push_back((by, recovered));
    }

    /// What a cell ran on: whether another life of it can. (Hive §4.3: the recovery master runs hardware diagnostics)
    pub(super) fn diagnose(&self, which: u32) -> Result<(), String> {
        if let Ok(Some(cgroup)) = self.cgroup_of(which)
            && cgroup.has_processes()
        {
            return Err("processes of its last life are still there".to_owned());
        }
        // What a supervisor and a task of a moment need.
        let (has, needs) = (process::available_bytes(), 64 << 20);
        if has.is_some_and(|bytes| bytes < needs) {
            return Err(format!("the host has no {} MiB of memory left", needs >> 20));
        }
        rustix::fs::memfd_create("comb-trial", rustix::fs::MemfdFlags::CLOEXEC)
            .map(drop)
            .map_err(|error| format!("the host makes no files in memory: {error}"))
    }

    /// Cells whose places were not fit a moment ago.
    pub(super) fn restart_those_that_wait(&mut self) {
        let waiting = self.cells.iter().filter_map(|cell| match &cell.again {
            Again::WhenFit { why, .. } => Some((cell.number, why.clone())),
            _ => None,
        });
        let waiting: Vec<(u32, String)> = waiting.collect();
        waiting.into_iter().for_each(|(which, why)| self.restart(which, &why));
    }

    /// Those who could have told how the cells went on are dead or hang: nobody can come in, and what is left can agree on nothing. All
    /// cells begin anew. A single one that says so is not believed while another goes on.
    pub(super) fn begin_anew_if_all_are_stranded(&mut self, why: &str) {
        let hangs =
            |cell: &Cell| cell.seen.is_some_and(|seen| seen.elapsed() > SILENCE_LIMIT) && cell.looks_failed();
        let goes_on =
            |cell: &Cell| cell.running.is_some() && cell.is_member && !cell.is_stranded && !hangs(cell);
        let is_to_end = |cell: &&mut Cell| cell.running.is_some() && cell.killed_at_ns.is_none();
        if self.cells.iter().any(goes_on) {
            return;
        }
        let lost: Vec<&mut Cell> = self.cells.iter_mut().filter(is_to_end).collect();
        if !lost.is_empty() {
            say(format_args!("ends all cells, for those that are left cannot agree on anything: {why}"));
        }
        for cell in lost {
            cell.killed_at_ns = Some(monotonic_ns());
            cell.running.as_ref().into_iter().for_each(Running::kill);
        }
    }

    /// Where no cell is left there is no recovery master: then the agent has them started again.
    pub(super) fn restart_if_none_is_left(&mut self) {
        if self.cells.iter().any(|cell| cell.running.is_some()) {
            return;
        }
        let numbers: Vec<u32> = self.cells.iter().map(|cell| cell.number).collect();
        for number in numbers {
            self.restart(number, "no other cell is left");
        }
    }

    /// The recovery master has found nothing that speaks against it.
    pub(super) fn restart(&mut self, which: u32, why: &str) {
        let Ok(index) = self.index_of(which) else { return };
        // Others may see its end before it is told to us.
        self.look_for_end(which);
        let cell = &mut self.cells[index];
        let before = std::mem::replace(&mut cell.again, Again::Not);
        if cell.running.is_some() {
            // It takes long to end. That it is to is known here.
            if cell.killed_at_ns.is_some() {
                cell.again = Again::AtItsEnd;
            }
            return;
        }
        if cell.is_held || self.ending.is_some() {
            return;
        }
        // Where they are told to fail, that they fail often says nothing.
        if let Err(why) = cell.may_start_again(Instant::now())
            && self.observations.is_none()
        {
            return self.stays_down(which, &why);
        }
        if let Err(found) = self.diagnose(which) {
            // Processes with much memory take their time to end.
            let since = match before {
                Again::WhenFit { since, .. } => since,
                _ => Instant::now(),
            };
            if since.elapsed() >= DIAGNOSIS_LIMIT {
                return self.stays_down(which, &found);
            }
            self.cells[index].again = Again::WhenFit { since, why: why.to_owned() };
            return;
        }
        self.events.note(What::Note, format_args!("starts cell {which} again: {why}"));
        self.start_beside_others(index);
    }

    fn stays_down(&mut self, which: u32, why: &str) {
        let text = format_args!("cell {which} stays down: {why}; `comb cell start {which}` tries again");
        self.events.note(What::CellStaysDown { cell: which }, text);
    }

    /// Nobody has said that they can be started again.
    pub(super) fn restart_the_forgotten(&mut self) {
        let now = Instant::now();
        let is_forgotten =
            |cell: &&Cell| matches!(cell.again, Again::Unsaid { since } if now >= since + WORD_LIMIT);
        let forgotten: Vec<u32> = self.cells.iter().filter(is_forgotten).map(|cell| cell.number).collect();
        forgotten
            .into_iter()
            .for_each(|cell| self.restart(cell, "no recovery master has said anything of it"));
    }
}
