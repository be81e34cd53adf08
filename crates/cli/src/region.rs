//! `comb region`: memory with a name, that lives in a cell and outlives the programs that use it.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use comb_cell::hints::{self, CellHint};
use comb_host::RuntimeDirectory;
use comb_host::control::{CellCondition, Reply, Request};
use comb_region::named::{Ask, Entry, Mode, Register, Status, Wanted};
use serde_json::json;

use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::progress::Progress;
use crate::suggest::did_you_mean;
use crate::{agent, table};

const EXAMPLES: &str = "\
A region lives in a cell. Programs attach it by its name (comb_attach() in C, Task::attach in Rust) and load and store; it is at the
same address in all of them. It is there until it is removed, or until its cell dies: then whoever touches it is told that it is
lost. A checkpoint is of one moment, and programs go on meanwhile.

Examples:
  comb region create table --size 4G                          in the cell with the fewest regions
  comb region create log --size 1T --sparse --cell 2          what is never touched costs nothing
  comb region ls
  comb region checkpoint table --to /var/tmp/table            again later: only what has changed since
  comb region restore table2 --from /var/tmp/table            a region again, by this name
  comb region fork table experiment --cell 3                  a child, which is changed without changing the parent
  comb region rm table";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Region {
    #[command(subcommand)]
    command: RegionCommand,
}

#[derive(Debug, Subcommand)]
enum RegionCommand {
    /// Make a region
    Create(Create),
    /// Make a copy-on-write child of a region: it contains what that does at this moment, and takes memory for what is used of it
    Fork {
        /// The region
        parent: String,
        /// The child's name
        name: String,
        /// The cell that it is to live in [default: the one with the fewest regions]
        #[arg(long)]
        cell: Option<u32>,
        /// Who may read (4) and store (2), as for files: you, your group, all others
        #[arg(long, default_value_t, value_name = "MODE")]
        mode: Mode,
    },
    /// List regions, where they live and who uses them
    #[command(visible_alias = "list")]
    Ls,
    /// Remove a region; what it contains is gone
    #[command(visible_alias = "remove")]
    Rm {
        /// Its name
        name: String,
        /// Even if it is in use: it is lost to those who use it
        #[arg(long)]
        force: bool,
    },
    /// Make a region again of a checkpoint
    Restore(Restore),
    /// Write what a region contains at this moment to files
    Checkpoint {
        /// Its name
        name: String,
        /// The directory that holds its checkpoints: made if it is not there
        #[arg(long, value_name = "DIR")]
        to: PathBuf,
    },
}

#[derive(Debug, Args)]
struct Restore {
    /// The region's name
    name: String,
    /// The directory that holds its checkpoints: the last one counts
    #[arg(long, value_name = "DIR")]
    from: PathBuf,
    /// The cell that it is to live in [default: one with few regions, and memory]
    #[arg(long)]
    cell: Option<u32>,
    /// Who may read (4) and store (2), as for files: you, your group, all others
    #[arg(long, default_value_t, value_name = "MODE")]
    mode: Mode,
}

impl From<Restore> for Create {
    fn from(Restore { name, from, cell, mode }: Restore) -> Self {
        Self {
            name,
            size: None,
            cell,
            memory_of: None,
            from: Some(from),
            sparse: false,
            mode,
            block: 4096,
            migratory: false,
        }
    }
}

#[derive(Debug, Args)]
struct Create {
    /// Its name: letters, digits, dots, dashes and underscores
    name: String,
    /// How long: bytes; K, M, G or T may follow [default: as the checkpoint that it is made from]
    #[arg(long, value_name = "BYTES", value_parser = bytes, required_unless_present = "from")]
    size: Option<u64>,
    /// The cell that it is to live in [default: one with few regions, and memory]
    #[arg(long)]
    cell: Option<u32>,
    /// The cell that it is to have its page frames of [default: the one that it lives in; another, if that has not enough]
    #[arg(long, value_name = "CELL")]
    memory_of: Option<u32>,
    /// What it contains: a checkpoint of a region
    #[arg(long, value_name = "DIR")]
    from: Option<PathBuf>,
    /// It may be larger than memory
    #[arg(long)]
    sparse: bool,
    /// Who may read (4) and store (2), as for files: you, your group, all others
    #[arg(long, default_value_t, value_name = "MODE")]
    mode: Mode,
    /// How many bytes change hands at once: 4096 to 65536, a power of two
    #[arg(long, default_value_t = 4096, value_name = "BYTES", value_parser = block)]
    block: u32,
    /// For what is read, changed and passed on: a copy has one holder at a time
    #[arg(long)]
    migratory: bool,
}

pub(crate) fn bytes(text: &str) -> Result<u64, &'static str> {
    let said = "say a number of bytes, at least 1, such as 512M, 4G or 1T";
    if let Some(terabytes) = text.strip_suffix(['T', 't']) {
        let terabytes = terabytes.parse::<u64>().ok().filter(|&terabytes| terabytes > 0);
        return terabytes.and_then(|terabytes| terabytes.checked_mul(1 << 40)).ok_or(said);
    }
    crate::run::memory(text).map_err(|_| said)
}

fn block(text: &str) -> Result<u32, &'static str> {
    let number = text.parse::<u32>().ok();
    let is_known = |&bytes: &u32| bytes.is_power_of_two() && (4096..=65536).contains(&bytes);
    number.filter(is_known).ok_or("a power of two from 4096 to 65536")
}

impl Region {
    pub(crate) fn run(self, output: Output) -> Outcome {
        let directory = RuntimeDirectory::from_environment()?;
        match self.command {
            RegionCommand::Create(create) => create.run(&directory, output),
            RegionCommand::Restore(restore) => Create::from(restore).run(&directory, output),
            RegionCommand::Fork { parent, name, cell, mode } => {
                fork(&directory, parent, name, cell, mode, output)
            }
            RegionCommand::Ls => list(&directory, output),
            RegionCommand::Rm { name, force } => {
                let entry = find(&directory, &name)?;
                if !cells(&directory)?.contains(&entry.cell) {
                    let register = Register::of(directory.path());
                    register.remove(&name)?;
                    let object = json!({ "region": name, "lost_with": entry.cell });
                    let text = format!("region {name} was lost with cell {}; its name is free", entry.cell);
                    output.tell(&object, text)?;
                    return Ok(ExitCode::SUCCESS);
                }
                let removed = Ask::about(directory.path(), &name)?.0.remove(&name, force)?;
                let text = match removed {
                    0 => format!("region {name} is removed"),
                    1 => format!("region {name} is removed; a process that used it has lost it"),
                    users => format!("region {name} is removed; {users} processes that used it have lost it"),
                };
                output.tell(&json!({ "region": name, "users": removed }), text)?;
                Ok(ExitCode::SUCCESS)
            }
            RegionCommand::Checkpoint { name, to } => {
                let to = std::path::absolute(&to)?;
                find(&directory, &name)?;
                let (door, _) = Ask::about(directory.path(), &name)?;
                let progress = Progress::begin(output, format!("writing a checkpoint of {name}"));
                let (number, pages) = door.save(&name, &to)?;
                drop(progress);
                let object = json!({ "region": name, "checkpoint": number, "directory": to, "pages": pages });
                let text = format!(
                    "checkpoint {number} of {name} is in {}: {pages} {} of 4096 bytes written",
                    to.display(),
                    if pages == 1 { "page" } else { "pages" }
                );
                output.tell(&object, text)?;
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}

/// The region of that name; else which was meant. That there is no agent is said first.
fn find(directory: &RuntimeDirectory, name: &str) -> Result<Entry, Failure> {
    cells(directory)?;
    let register = Register::of(directory.path());
    if let Some(entry) = register.find(name)? {
        return Ok(entry);
    }
    let all = register.all()?;
    let meant = did_you_mean(name, all.iter().map(|entry| entry.name.as_str()));
    let meant = match &all[..] {
        [] => ", nor any other: `comb region create NAME --size 1G` makes one".to_owned(),
        _ if meant.is_empty() => ": `comb region ls` lists those there are".to_owned(),
        _ => meant,
    };
    Err(Failure::not_found(format!("there is no region {name}{meant}")))
}

/// The cells that live.
fn cells(directory: &RuntimeDirectory) -> Result<Vec<u32>, Failure> {
    match agent::ask(directory, &Request::Status)? {
        Reply::Status(status) => {
            let living = status.cells.iter().filter(|cell| cell.state == CellCondition::Up);
            Ok(living.map(|cell| cell.cell).collect())
        }
        _ => Err(agent::unexpected()),
    }
}

impl Create {
    fn run(self, directory: &RuntimeDirectory, output: Output) -> Outcome {
        let from = self.from.map(std::path::absolute).transpose()?;
        let cell = match self.cell {
            Some(cell) => cell,
            None => least_used(directory)?,
        };
        let wanted = Wanted {
            name: self.name,
            bytes: self.size,
            block_bytes: self.block,
            migratory: self.migratory,
            mode: self.mode,
            sparse: self.sparse,
            from,
            parent: None,
            memory_home: self.memory_of,
        };
        // An agent or a cell that is not there is told of by who knows what to do.
        agent::check_cells(directory, &[cell])?;
        let progress =
            wanted.from.as_ref().map(|_| Progress::begin(output, format!("reading {}", wanted.name)));
        let made = Ask::at(directory.path(), cell)?.create(&wanted);
        drop(progress);
        tell_of_new(&made?, output)
    }
}

fn fork(
    directory: &RuntimeDirectory,
    parent: String,
    name: String,
    cell: Option<u32>,
    mode: Mode,
    output: Output,
) -> Outcome {
    let cell = match cell {
        Some(cell) => cell,
        None => least_used(directory)?,
    };
    agent::check_cells(directory, &[cell])?;
    find(directory, &parent)?;
    let wanted = Wanted {
        name,
        bytes: None,
        block_bytes: 4096,
        migratory: false,
        mode,
        sparse: false,
        from: None,
        parent: Some(parent),
        memory_home: None,
    };
    tell_of_new(&Ask::at(directory.path(), cell)?.create(&wanted)?, output)
}

fn tell_of_new(entry: &Entry, output: Output) -> Outcome {
    let Entry { name, cell, allocation, .. } = entry;
    output.tell(entry, format!("region {name} lives in cell {cell}: {} bytes", allocation.bytes))?;
    Ok(ExitCode::SUCCESS)
}

fn least_used(directory: &RuntimeDirectory) -> Result<u32, Failure> {
    let entries = Register::of(directory.path()).all()?;
    let regions = |cell: u32| entries.iter().filter(|entry| entry.cell == cell).count();
    let Reply::Status(status) = agent::ask(directory, &Request::Status)? else {
        return Err(agent::unexpected());
    };
    let living = status.cells.iter().filter(|cell| cell.state == CellCondition::Up).map(|cell| cell.cell);
    let load = living.map(|cell| (cell, regions(cell))).collect();
    let hint = status.wax.map(|wax| CellHint {
        prefer: wax.prefer,
        acceptable: wax.acceptable.into_iter().collect(),
        ..CellHint::default()
    });
    let best = hints::order(&load, hint.as_ref()).first().copied();
    best.ok_or_else(|| Failure::new("no cell lives: `comb cell start 1` starts one"))
}

fn list(directory: &RuntimeDirectory, output: Output) -> Outcome {
    let living = cells(directory)?;
    let entries = Register::of(directory.path()).all()?;
    let mut states = Vec::new();
    for &cell in &living {
        if entries.iter().any(|entry| entry.cell == cell) {
            states.extend(Ask::at(directory.path(), cell).and_then(|door| door.report()).unwrap_or_default());
        }
    }
    let state = |entry: &Entry| states.iter().find(|state| state.name == entry.name);
    let objects: Vec<serde_json::Value> =
        entries.iter().map(|entry| json!({ "region": entry, "state": state(entry) })).collect();
    output.show(&objects, || {
        if entries.is_empty() {
            return "no regions; `comb region create NAME --size 1G` makes one\n".to_owned();
        }
        const STATE: usize = 6;
        let heading = ["REGION", "CELL", "LENGTH", "MEMORY", "MODE", "USED BY", "STATE"];
        let mut rows = vec![heading.map(String::from).to_vec()];
        rows.extend(entries.iter().map(|entry| row(entry, state(entry))));
        table::painted(&rows, output, |column, text| table::state_colour(text).filter(|_| column == STATE))
    })?;
    Ok(ExitCode::SUCCESS)
}

fn row(entry: &Entry, state: Option<&Status>) -> Vec<String> {
    let told = |tell: fn(&Status) -> String| state.map_or_else(|| "-".to_owned(), tell);
    vec![
        entry.name.clone(),
        entry.cell.to_string(),
        table::bytes(entry.allocation.bytes),
        told(|state| table::bytes(state.resident_bytes)),
        entry.mode.to_string(),
        told(|state| match state.importers + state.copiers {
            0 => "nobody".to_owned(),
            1 => "1 process".to_owned(),
            users => format!("{users} processes"),
        }),
        words(entry, state),
    ]
}

fn words(entry: &Entry, state: Option<&Status>) -> String {
    match state {
        None => format!("lost with cell {}", entry.cell),
        Some(Status { lost: 1, .. }) => "1 block lost".to_owned(),
        Some(Status { lost, .. }) if *lost > 0 => format!("{lost} blocks lost"),
        Some(_) => "whole".to_owned(),
    }
}
