//! What belongs to a cell is killed by its mark, where there are no cgroups ([`comb_region::belonging`]).

use comb_region::belonging;

use crate::{RuntimeDirectory, process};

/// Whoever is found and killed may have started others meanwhile.
const MOST_ROUNDS: usize = 10;

/// Kills all processes that belong to this cell.
pub(crate) fn kill_all_in(directory: &RuntimeDirectory, cell: u32) {
    kill(directory, |found| found == cell);
}

/// Kills all processes that belong to cells of this agent.
pub(crate) fn kill_all(directory: &RuntimeDirectory) {
    kill(directory, |_| true);
}

fn kill(directory: &RuntimeDirectory, is_meant: impl Fn(u32) -> bool) {
    let belongs = |&pid: &u32| belonging::marked(pid, directory.path()).is_some_and(&is_meant);
    for _ in 0..MOST_ROUNDS {
        let marked: Vec<u32> = others().filter(belongs).collect();
        for pid in &marked {
            // Opened before it is looked at once more: the number may have been given to another meanwhile.
            if let Some(process) = process::open_number(*pid).filter(|_| belongs(pid)) {
                process::kill(&process);
            }
        }
        if marked.is_empty() {
            return;
        }
    }
}

/// All processes but this one.
fn others() -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let own = std::process::id();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(move |&pid| pid != own)
}
