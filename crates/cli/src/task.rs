//! `comb task`: which tasks run on the cells, what each depends on, and how to end one.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Args, Subcommand};
use comb_cell::clock::span;
use comb_containment::dependencies::Dependencies;
use comb_dashboard::dependencies;
use comb_host::RuntimeDirectory;
use comb_host::control::{CellCondition, Reply, Request};
use comb_host::tasks::TaskRecord;
use comb_region::named::{Ask, Register, Status};
use rustix::process::Signal;
use serde_json::json;

use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::{agent, table};

const EXAMPLES: &str = "\
A task is what one `comb run` has started on the cells, and is called by the process id of that command. It fails with any cell that it
depends on, and with no other: `comb task show` says which these are, and why.

Examples:
  comb task ls
  comb task show 1234
  comb task kill 1234                  as Ctrl-C does it, but by SIGTERM; a second time it is killed";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Task {
    #[command(subcommand)]
    command: TaskCommand,
}

#[derive(Debug, Subcommand)]
enum TaskCommand {
    /// List the tasks
    #[command(visible_alias = "list")]
    Ls,
    /// Show a task's components, and the cells that it depends on
    Show {
        /// As `comb task ls` numbers it
        task: u32,
    },
    /// Tell a task's components to end; a second time, kill them
    Kill {
        /// As `comb task ls` numbers it
        task: u32,
    },
}

impl Task {
    pub(crate) fn run(self, output: Output) -> Outcome {
        let directory = RuntimeDirectory::from_environment()?;
        match self.command {
            TaskCommand::Ls => list(&directory, output),
            TaskCommand::Show { task } => show(&directory, task, output),
            TaskCommand::Kill { task } => {
                find(&tasks(&directory)?, task)?;
                let signal = Signal::TERM.as_raw();
                match agent::ask(&directory, &Request::EndTask { task, signal })? {
                    Reply::TaskTold => {
                        let object = json!({ "task": task, "told": signal });
                        output.tell(&object, format!("task {task} was told to end"))?;
                        Ok(ExitCode::SUCCESS)
                    }
                    _ => Err(agent::unexpected()),
                }
            }
        }
    }
}

fn tasks(directory: &RuntimeDirectory) -> Result<Vec<TaskRecord>, Failure> {
    match agent::ask(directory, &Request::Tasks)? {
        Reply::Tasks(tasks) => Ok(tasks),
        _ => Err(agent::unexpected()),
    }
}

/// What the homes of regions say of each that lives.
fn regions(directory: &RuntimeDirectory) -> Result<Vec<(u32, Status)>, Failure> {
    let Reply::Status(status) = agent::ask(directory, &Request::Status)? else {
        return Err(agent::unexpected());
    };
    let homes: std::collections::BTreeSet<u32> =
        Register::of(directory.path()).all()?.iter().map(|entry| entry.cell).collect();
    let living =
        status.cells.iter().filter(|cell| cell.state == CellCondition::Up && homes.contains(&cell.cell));
    let mut regions = Vec::new();
    for cell in living {
        // One that is dying is depended on for a moment only.
        let report = Ask::at(directory.path(), cell.cell).and_then(|door| door.report()).unwrap_or_default();
        regions.extend(report.into_iter().map(|status| (cell.cell, status)));
    }
    Ok(regions)
}

/// The one of that number, or which there are.
fn find(tasks: &[TaskRecord], number: u32) -> Result<&TaskRecord, Failure> {
    tasks.iter().find(|task| task.wanted.task == number).ok_or_else(|| {
        let there: Vec<String> = tasks.iter().map(|task| task.wanted.task.to_string()).collect();
        Failure::not_found(match &there[..] {
            [] => format!("there is no task {number}, nor any other: `comb run -n 2 -- PROGRAM` runs one"),
            [only] => format!("there is no task {number}: the only one is {only}"),
            there => format!("there is no task {number}: there are {}", there.join(", ")),
        })
    })
}

fn list(directory: &RuntimeDirectory, output: Output) -> Outcome {
    let (tasks, regions) = (tasks(directory)?, regions(directory)?);
    let objects: Vec<serde_json::Value> = tasks.iter().map(|task| object(task, &regions)).collect();
    output.show(&objects, || table_of(&tasks, &regions))?;
    Ok(ExitCode::SUCCESS)
}

fn table_of(tasks: &[TaskRecord], regions: &[(u32, Status)]) -> String {
    if tasks.is_empty() {
        return "no tasks; `comb run -n 2 -- PROGRAM` runs one\n".to_owned();
    }
    let heading = ["TASK", "COMPONENTS", "DEPENDS ON CELLS", "RUNS FOR", "RESTARTS", "PROGRAM"];
    let mut rows = vec![heading.map(String::from).to_vec()];
    rows.extend(tasks.iter().map(|task| {
        let (depends, _) = dependencies::of(task, regions);
        vec![
            task.wanted.task.to_string(),
            task.seats.len().to_string(),
            numbers(&depends),
            age(task),
            task.wanted.restarts.to_string(),
            task.wanted.program.join(" "),
        ]
    }));
    table::format(&rows)
}

fn numbers(depends: &Dependencies) -> String {
    let cells: Vec<String> = depends.cells().map(|cell| cell.0.to_string()).collect();
    cells.join(",")
}

fn age(task: &TaskRecord) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    span(now.saturating_sub(task.since_s).saturating_mul(1_000_000_000))
}

fn object(task: &TaskRecord, regions: &[(u32, Status)]) -> serde_json::Value {
    let (depends, words) = dependencies::of(task, regions);
    let depends: Vec<serde_json::Value> = depends
        .cells()
        .map(|cell| {
            let why: Vec<&str> =
                words.iter().filter(|(of, _)| *of == cell.0).map(|(_, why)| why.as_str()).collect();
            json!({ "cell": cell.0, "why": why })
        })
        .collect();
    json!({
        "task": task.wanted.task,
        "program": task.wanted.program,
        "restarts": task.wanted.restarts,
        "since_s": task.since_s,
        "components": task.seats.iter().enumerate().map(|(rank, seat)| {
            json!({ "rank": rank, "cell": seat.cell, "process": seat.process })
        }).collect::<Vec<_>>(),
        "depends": depends,
    })
}

fn show(directory: &RuntimeDirectory, number: u32, output: Output) -> Outcome {
    let tasks = tasks(directory)?;
    let task = find(&tasks, number)?;
    let regions = regions(directory)?;
    output.show(&object(task, &regions), || text(task, &regions))?;
    Ok(ExitCode::SUCCESS)
}

fn text(task: &TaskRecord, regions: &[(u32, Status)]) -> String {
    let mut text =
        format!("task {}: {}\nruns for {}", task.wanted.task, task.wanted.program.join(" "), age(task));
    match task.wanted.restarts {
        0 => {}
        1 => text.push_str(", started again once"),
        times => {
            let _ = write!(text, ", started again {times} times");
        }
    }
    text.push_str("\n\n");
    let mut rows = vec![["COMPONENT", "CELL", "PID"].map(String::from).to_vec()];
    rows.extend(task.seats.iter().enumerate().map(|(rank, seat)| {
        let process = if seat.process == 0 { "-".to_owned() } else { seat.process.to_string() };
        vec![rank.to_string(), seat.cell.to_string(), process]
    }));
    text.push_str(&table::format(&rows));
    text.push('\n');
    let (depends, words) = dependencies::of(task, regions);
    let mut rows = vec![["DEPENDS ON CELL", "FOR"].map(String::from).to_vec()];
    for cell in depends.cells() {
        for (nth, (_, why)) in words.iter().filter(|(of, _)| *of == cell.0).enumerate() {
            let cell = if nth == 0 { cell.0.to_string() } else { String::new() };
            rows.push(vec![cell, why.clone()]);
        }
    }
    text.push_str(&table::format(&rows));
    text
}

#[cfg(test)]
mod tests {
    use comb_containment::CellId;
    use comb_host::tasks::{Seat, Wanted};

    use super::*;

    #[test]
    fn a_task_is_shown_with_what_it_depends_on_and_why() {
        let seat = |cell, process| Seat { cell, cgroup: None, process };
        let program = ["./ocean", "-p4"].map(String::from).to_vec();
        let wanted =
            Wanted { task: 77, program, components: 2, cells: Vec::new(), restarts: 1, ..Wanted::default() };
        let task = TaskRecord { wanted, seats: vec![seat(1, 100), seat(3, 101)], since_s: 0 };
        let status = |name: &str, processes: &[u32]| Status {
            name: name.to_owned(),
            importers: 0,
            copiers: 0,
            granted: 0,
            away: 0,
            lost: 0,
            waiting: 0,
            resident_bytes: 0,
            processes: processes.to_vec(),
            ancestors: Vec::new(),
            nodes: 0,
            memory_home: None,
            held: Vec::new(),
            misses: 0,
        };
        let regions = [(4, status("table", &[101, 5])), (2, status("other", &[9]))];
        let text = text(&task, &regions);
        for line in [
            "0          1     100",
            "1                component 0 runs there",
            "4                region table lives there (component 1)",
        ] {
            assert!(text.contains(line), "{line:?} in\n{text}");
        }
        let (depends, _) = dependencies::of(&task, &regions);
        assert!(depends.dies_with(CellId(4)) && !depends.dies_with(CellId(2)));
        assert_eq!(numbers(&depends), "1,3,4");
    }
}
