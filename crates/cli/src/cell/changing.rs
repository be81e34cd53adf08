//! What is done to cells that work: they are drained, restarted, and more are added.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use comb_cell::clock::span;
use comb_host::RuntimeDirectory;
use comb_host::control::{Killed, Reply, Request};
use comb_region::named::Ask;
use serde_json::json;

use super::{sentence, tell_started};
use crate::agent;
use crate::failure::{Failure, Kind, Outcome};
use crate::output::Output;

/// From one look at what still depends on a cell to the next.
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);

/// Stops a cell, so that it hangs.
pub(super) fn hang(directory: &RuntimeDirectory, cell: u32, output: Output) -> Outcome {
    agent::check_cells(directory, &[cell])?;
    match agent::ask(directory, &Request::Hang { cell })? {
        Reply::Killed(killed) => {
            output.tell(&killed, sentence(&killed, "stopped, so that it hangs"))?;
            let Killed { peers, noticed, .. } = killed;
            Ok(if noticed.len() >= peers as usize { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        _ => Err(agent::unexpected()),
    }
}

/// What fails with a cell, or would be lost with it.
fn dependants(directory: &RuntimeDirectory, cell: u32) -> (Vec<u32>, Vec<String>) {
    let seen = comb_dashboard::look(directory);
    let depends = |task: &&comb_dashboard::snapshot::Task| task.depends_on.iter().any(|on| on.cell == cell);
    let tasks = seen.tasks.iter().filter(depends).map(|task| task.task).collect();
    let here = seen.regions.into_iter().filter(|region| region.cell == cell);
    (tasks, here.map(|region| region.region).collect())
}

fn words(tasks: &[u32], regions: &[String]) -> String {
    let list = |what: &str, names: Vec<String>| match names.len() {
        0 => None,
        1 => Some(format!("{what} {}", names[0])),
        _ => Some(format!("{what}s {}", names.join(", "))),
    };
    let tasks = list("task", tasks.iter().map(u32::to_string).collect());
    let regions = list("region", regions.to_vec());
    tasks.into_iter().chain(regions).collect::<Vec<_>>().join(" and ")
}

/// No new tasks, and waits until none is left.
pub(super) fn drain(
    directory: &RuntimeDirectory,
    cell: u32,
    undo: bool,
    limit: Option<Duration>,
    output: Output,
) -> Outcome {
    agent::check_cells(directory, &[cell])?;
    let Reply::Done = agent::ask(directory, &Request::Drain { cell, drain: !undo })? else {
        return Err(agent::unexpected());
    };
    if undo {
        output.tell(&json!({ "cell": cell, "draining": false }), format!("cell {cell} gets tasks again"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let since = Instant::now();
    loop {
        let (tasks, regions) = dependants(directory, cell);
        let done = tasks.is_empty() && regions.is_empty();
        if done || limit.is_none_or(|limit| since.elapsed() >= limit) {
            let object = json!({ "cell": cell, "draining": true, "tasks": tasks, "regions": regions });
            let text = if done {
                format!(
                    "cell {cell} is drained: nothing depends on it; `comb cell restart {cell}` starts it anew"
                )
            } else {
                let left = words(&tasks, &regions);
                format!(
                    "cell {cell} gets no new tasks; {left} would still be lost with it (`comb cell drain {cell} --wait SECONDS` waits)"
                )
            };
            output.tell(&object, text)?;
            let is_late = !done && limit.is_some();
            return Ok(if is_late { Failure::of(Kind::NoAnswer, "").exit_code() } else { ExitCode::SUCCESS });
        }
        if output.shows_progress() {
            eprint!("\rwaiting for {}  ", words(&tasks, &regions));
        }
        std::thread::sleep(BETWEEN_LOOKS);
    }
}

/// What is done before a cell is restarted.
pub(super) struct Before {
    /// Waited until nothing depends on it, so long at most.
    pub(super) wait: Option<Duration>,
    /// Its regions are saved there.
    pub(super) save: Option<PathBuf>,
}

/// Ends cells in good order and starts them anew, one at a time: the next when the one before is back. `cells`: none are named, and all are meant.
pub(super) fn restart(
    directory: &RuntimeDirectory,
    cells: Option<Vec<u32>>,
    before: Before,
    output: Output,
) -> Outcome {
    let there = agent::status(directory)?.cells;
    let cells = cells.unwrap_or_else(|| there.iter().map(|cell| cell.cell).collect());
    agent::check_cells(directory, &cells)?;
    let save = before.save.map(std::path::absolute).transpose()?;
    for cell in cells {
        if before.wait.is_some() {
            await_drained(directory, cell, before.wait, save.is_some())?;
        }
        let (tasks, regions) = dependants(directory, cell);
        if let Some(save) = &save {
            for name in &regions {
                Ask::about(directory.path(), name)?.0.save(name, &save.join(name))?;
            }
        } else if !(tasks.is_empty() && regions.is_empty()) {
            let left = words(&tasks, &regions);
            output.warn(format!("lost with cell {cell}, or as at the last checkpoint: {left}"));
        }
        let code = tell_started(cell, &agent::ask(directory, &Request::Restart { cell })?, output)?;
        if code != ExitCode::SUCCESS {
            return Ok(code);
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn await_drained(
    directory: &RuntimeDirectory,
    cell: u32,
    limit: Option<Duration>,
    saves_regions: bool,
) -> Result<(), Failure> {
    agent::ask(directory, &Request::Drain { cell, drain: true })?;
    let since = Instant::now();
    loop {
        let (tasks, mut regions) = dependants(directory, cell);
        if saves_regions {
            regions.clear();
        }
        if tasks.is_empty() && regions.is_empty() {
            return Ok(());
        }
        if limit.is_some_and(|limit| since.elapsed() >= limit) {
            let _ = agent::ask(directory, &Request::Drain { cell, drain: false });
            let left = words(&tasks, &regions);
            let text =
                format!("cell {cell} was not restarted: {left} would be lost with it; it gets tasks again");
            return Err(Failure::of(Kind::NoAnswer, text));
        }
        std::thread::sleep(BETWEEN_LOOKS);
    }
}

/// More cells.
pub(super) fn add(directory: &RuntimeDirectory, cells: u32, output: Output) -> Outcome {
    match agent::ask(directory, &Request::Add { cells })? {
        Reply::Added { first, count, took_ns } => {
            let object = json!({ "first": first, "count": count, "took_ns": took_ns });
            let took = span(took_ns);
            let text = match count {
                1 => format!("cell {first} is up after {took}"),
                _ => format!("cells {first} to {} are up after {took}", first + count - 1),
            };
            output.tell(&object, text)?;
            Ok(ExitCode::SUCCESS)
        }
        _ => Err(agent::unexpected()),
    }
}

/// The cells, with what they have.
pub(super) fn list(directory: &RuntimeDirectory, output: Output) -> Outcome {
    agent::status(directory)?;
    let seen = comb_dashboard::look(directory);
    output.show(&seen.cells, || {
        let heading = ["CELL", "HOST", "STATE", "LIFE", "TASKS", "OWN", "IMPORTED", "LOANED", "WRITERS"];
        let mut rows = vec![heading.map(String::from).to_vec()];
        for cell in &seen.cells {
            let writers = seen.rights.iter().filter(|right| right.home == cell.cell);
            let writers: Vec<String> =
                writers.map(|right| format!("{}:{}", right.holder, right.pages)).collect();
            rows.push(vec![
                cell.cell.to_string(),
                cell.host.clone(),
                cell.state.to_owned(),
                cell.incarnation.to_string(),
                cell.tasks.len().to_string(),
                crate::table::bytes(cell.memory.own_bytes),
                crate::table::bytes(cell.memory.imported_bytes),
                crate::table::bytes(cell.memory.loaned_bytes),
                if writers.is_empty() { "-".to_owned() } else { writers.join(" ") },
            ]);
        }
        crate::table::painted(&rows, output, |column, text| {
            crate::table::state_colour(text).filter(|_| column == 2)
        })
    })?;
    Ok(ExitCode::SUCCESS)
}
