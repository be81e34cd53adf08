//! `comb vm files`: directories that machines have in common, of which the host has one copy.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Subcommand};
use comb_guest::frames::Frames;
use comb_guest::packing::{Said, pack};
use comb_guest::wire::{Command, Ended};
use comb_host::state_directory::StateDirectory;
use comb_vm::control::{Answer, Ask, AskError, Machines, Shown};
use comb_vm::files::edition::{BroughtOut, Writing};
use comb_vm::files::machine::{FilesShown, Use, within};
use comb_vm::files::shelf::{Shelf, Shelves};
use comb_vm::names::Name;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::progress::Progress;
use crate::table;

const EXAMPLES: &str = "\
Machines see them under /files, read-only, and read the host's one copy: no page of theirs is in a machine's own memory. `update` brings out what a directory has now, as a whole;
machines see that at once, and who has a file of before open keeps it. One machine may have them to write: what it changes is its own until it is brought out.

Examples:
  comb vm files update docs /usr/share/doc       a directory of this host's
  comb vm clone small -n 8 --files docs          they see it as /files/docs
  comb vm clone small --as server --files docs:rw
  comb vm exec server -- sh -c 'echo new > /files/docs/NEWS'
  comb vm files update docs --from server        what it has changed there is seen by all
  comb vm files update logs --from server:/var/log";

/// A guest that has not done by then what it is to do with files has something else to do.
const ANSWER_LIMIT: Duration = Duration::from_secs(120);

/// What files have room for that nobody has said, beside twice what they have.
const ROOM_BYTES: u64 = 64 << 20;

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Files {
    #[command(subcommand)]
    command: FilesCommand,
}

#[derive(Debug, Subcommand)]
enum FilesCommand {
    /// Have machines see what a directory has now
    Update(Update),
    /// List files that machines can have in common
    Ls,
    /// Remove some that no machine has
    Remove {
        /// Their name
        files: Name,
    },
}

#[derive(Debug, Args)]
struct Update {
    /// What they are called; the first time they are made
    files: Name,
    /// A directory of this host's
    #[arg(required_unless_present = "from", conflicts_with = "from")]
    directory: Option<PathBuf>,
    /// What this machine has changed in /files, if it has them to write, or a directory of its own: MACHINE or MACHINE:/DIRECTORY
    #[arg(long, value_name = "MACHINE")]
    from: Option<From>,
    /// How much room there is to be for all that machines still see of them, in megabytes, when they are made [default: twice what is in the directory, and 64]
    #[arg(long, value_name = "MB", value_parser = clap::value_parser!(u32).range(1..=32_768))]
    room: Option<u32>,
}

/// A machine, or a directory in it.
#[derive(Clone, Debug)]
struct From {
    machine: Name,
    directory: Option<String>,
}

impl FromStr for From {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (machine, directory) = match text.split_once(':') {
            Some((machine, directory)) if directory.starts_with('/') => (machine, Some(directory.to_owned())),
            Some(_) => return Err("say MACHINE:/DIRECTORY".into()),
            None => (text, None),
        };
        let machine = machine.parse().map_err(|error: comb_vm::names::NameError| error.to_string())?;
        Ok(Self { machine, directory })
    }
}

/// Files that a machine is to have: `NAME`, or `NAME:rw`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Has {
    name: String,
    is_writer: bool,
}

impl FromStr for Has {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, is_writer) = match text.split_once(':') {
            Some((name, "rw")) => (name, true),
            Some((name, "ro")) => (name, false),
            Some(_) => return Err("say NAME, or NAME:rw".into()),
            None => (text, false),
        };
        let name: Name = name.parse().map_err(|error: comb_vm::names::NameError| error.to_string())?;
        Ok(Self { name: name.to_string(), is_writer })
    }
}

impl Has {
    pub(super) fn open(&self) -> Result<Use, Failure> {
        let shelf = shelves().open(&self.name.parse()?)?;
        Ok(Use { shelf, is_writer: self.is_writer })
    }
}

/// Where shelves are.
fn shelves() -> Shelves {
    Shelves::at(StateDirectory::from_environment().path().join("files"))
}

impl Files {
    pub(super) fn run(self, machines: &Machines, output: Output) -> Outcome {
        match self.command {
            FilesCommand::Update(update) => update.run(machines, output),
            FilesCommand::Ls => list(machines, output),
            FilesCommand::Remove { files } => {
                shelves().remove(&files)?;
                output.tell(&json!({ "name": files.as_str() }), format!("the files {files} are removed"))?;
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}

/// Machines that have a shelf, and what they have of it; an error: one does not say, and may have it in use.
fn users(machines: &Machines, shelf: &Name) -> Result<Vec<(Name, FilesShown)>, AskError> {
    let shown = |(name, shown): (Name, Option<Shown>)| {
        let Some(shown) = shown else { return Some(Err(AskError::Silent(name))) };
        let found = shown.files.into_iter().find(|found| found.shelf == shelf.as_str())?;
        Some(Ok((name, found)))
    };
    machines.show_all().into_iter().filter_map(shown).collect()
}

/// Asks a machine's monitor for something that its guest does; an error says why it has not.
fn ask(machines: &Machines, machine: &Name, ask: &Ask) -> Result<(), String> {
    let mut line = machines.reach(machine).map_err(|error| error.to_string())?;
    line.say(ask).map_err(|error| error.to_string())?;
    match line.hear(Some(ANSWER_LIMIT)).map_err(|error| error.to_string())? {
        Some(Answer::Refused(why)) => Err(why),
        Some(_) => Ok(()),
        None => Err("its guest does not answer".into()),
    }
}

/// The slots whose editions machines still have, as bits; if those are all but the last, they are asked to leave what nobody has open.
fn kept(machines: &Machines, shelf: &Shelf) -> Result<u32, Failure> {
    let bits = |users: &[(Name, FilesShown)]| users.iter().fold(0, |bits, (_, shown)| bits | shown.kept);
    let all = users(machines, &shelf.name)?;
    let current = shelf.record()?.current.map_or(0, |slot| 1 << slot);
    if (bits(&all) | current) + 1 < 1 << comb_guest::files::SLOTS {
        return Ok(bits(&all));
    }
    for (machine, _) in &all {
        // One that does not has what it had.
        let _ = ask(machines, machine, &Ask::LeaveFiles { shelf: shelf.name.to_string() });
    }
    Ok(bits(&users(machines, &shelf.name)?))
}

/// Runs a program in a machine, and hands on what it writes.
fn run_within(
    machines: &Machines,
    machine: &Name,
    command: Command,
    mut writes: impl FnMut(&[u8]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut line = machines.reach(machine)?;
    line.say(&Ask::Exec(command))?;
    line.say(&Ask::Input(Vec::new()))?;
    let mut errors = Vec::new();
    loop {
        match line.hear(Some(ANSWER_LIMIT))? {
            Some(Answer::Output { is_error, bytes }) => {
                line.say(&Ask::Taken(u32::try_from(bytes.len()).unwrap_or(0)))?;
                if is_error {
                    errors.extend(&bytes[..bytes.len().min(4096_usize.saturating_sub(errors.len()))]);
                } else {
                    writes(&bytes)?;
                }
            }
            Some(Answer::Ended(Ended::Exited(0))) => return Ok(()),
            Some(Answer::Ended(Ended::NotRun(why)) | Answer::Refused(why)) => {
                return Err(Failure::new(format!("{machine}: {why}")));
            }
            Some(Answer::Ended(_)) => {
                let why = String::from_utf8_lossy(&errors);
                let why = if why.trim().is_empty() { "it does not say why" } else { why.trim() };
                return Err(Failure::new(format!("{machine}: {why}")));
            }
            Some(_) => {}
            None => return Err(Failure::new(format!("{machine}: its guest does not answer"))),
        }
    }
}

/// What a stream becomes: an edition of a shelf, which is made once it is said how much follows.
struct Taking<'a> {
    update: &'a Update,
    machines: &'a Machines,
    /// Of which edition what comes are changes, and in which machine.
    changes: Option<(&'a Name, u64)>,
    writing: Option<Writing>,
}

impl Taking<'_> {
    fn take(&mut self, said: Said) -> Result<(), Failure> {
        match (&mut self.writing, &said) {
            (Some(writing), _) => Ok(writing.take(said)?),
            (None, &Said::Total { entries, bytes }) => {
                let room = self.update.room.map(|mb| u64::from(mb) << 20);
                let room = room.unwrap_or_else(|| bytes.saturating_mul(2).saturating_add(ROOM_BYTES));
                let name = &self.update.files;
                let shelf = shelves().open_or_make(name, room.min(1 << 40), entries.min(1 << 24))?;
                let writing = Writing::begin(&shelf, kept(self.machines, &shelf)?)?;
                let last = writing.follows();
                if let Some((machine, edition)) = self.changes.filter(|&(_, edition)| edition != last) {
                    return Err(Failure::new(format!(
                        "{machine} has changed edition {edition} of `{name}`, and {last} has been brought out since: bring out all that it has, with --from {machine}:/files/{name}"
                    )));
                }
                self.writing = Some(writing);
                Ok(())
            }
            _ => Err(Failure::new("what comes does not say how much it is")),
        }
    }
}

/// A machine in which nobody can write some files until they have been brought out, or could not be.
struct Stopped<'a> {
    machines: &'a Machines,
    machine: &'a Name,
    files: &'a Name,
    edition: u64,
    goes_on: bool,
}

impl<'a> Stopped<'a> {
    fn new(machines: &'a Machines, machine: &'a Name, files: &'a Name) -> Result<Self, Failure> {
        machines.reach(machine)?;
        let all = users(machines, files)?;
        let found = all.iter().find(|(name, shown)| name == machine && shown.is_writer);
        let Some((_, shown)) = found else {
            return Err(Failure::new(format!(
                "{machine} does not have the files `{files}` to write (--files {files}:rw): name one of its directories, --from {machine}:/DIRECTORY"
            )));
        };
        run_within(machines, machine, within(&["stop-writing", files.as_str()]), |_| Ok(()))?;
        Ok(Self { machines, machine, files, edition: shown.edition, goes_on: true })
    }
}

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        if self.goes_on {
            let command = within(&["go-on-writing", self.files.as_str()]);
            let _ = run_within(self.machines, self.machine, command, |_| Ok(()));
        }
    }
}

impl Update {
    fn run(self, machines: &Machines, output: Output) -> Outcome {
        StateDirectory::from_environment().create().map_err(Failure::new)?;
        let progress = Progress::begin(output, format!("bringing out {}", self.files));
        let writer = self.from.as_ref().filter(|from| from.directory.is_none()).map(|from| &from.machine);
        let stopped = writer.map(|machine| Stopped::new(machines, machine, &self.files)).transpose()?;
        let changes = stopped.as_ref().map(|stopped| (stopped.machine, stopped.edition));
        let mut taking = Taking { update: &self, machines, changes, writing: None };
        match (&self.directory, &self.from) {
            (Some(directory), _) => {
                let mut failed = None;
                let packed = pack(directory, None, |said| {
                    taking.take(said.clone()).map_err(|failure| {
                        failed = Some(failure);
                        io::ErrorKind::Other.into()
                    })
                });
                match (packed, failed) {
                    (Ok(()), _) => {}
                    (Err(_), Some(failure)) => return Err(failure),
                    (Err(error), None) => {
                        return Err(Failure::not_found(format!("{}: {error}", directory.display())));
                    }
                }
            }
            (None, Some(From { machine, directory })) => {
                let command = match directory {
                    Some(directory) => within(&["pack", directory]),
                    None => within(&["pack-shelf", self.files.as_str()]),
                };
                let mut came = Frames::default();
                run_within(machines, machine, command, |bytes| {
                    came.push(bytes);
                    while let Some(said) = came.take()? {
                        taking.take(said)?;
                    }
                    Ok(())
                })?;
            }
            (None, None) => return Err(Failure::usage("say a directory, or --from")),
        }
        let writing = taking.writing.ok_or_else(|| Failure::new("nothing has come"))?;
        let brought_out = writing.bring_out()?;
        if let Some(mut stopped) = stopped {
            stopped.goes_on = false;
        }
        drop(progress);
        self.show(machines, writer, &brought_out, output)
    }

    /// Has all machines that have these files see the edition, and says which do not.
    fn show(
        &self,
        machines: &Machines,
        writer: Option<&Name>,
        edition: &BroughtOut,
        output: Output,
    ) -> Outcome {
        let mut asked = Vec::new();
        for (machine, _) in users(machines, &self.files)? {
            let is_brought_out = Some(&machine) == writer;
            let ask = Ask::ShowFiles { shelf: self.files.to_string(), is_brought_out };
            let said = machines.reach(&machine).and_then(|mut line| line.say(&ask).map(|()| line));
            asked.push((machine, said));
        }
        let (mut see, mut behind) = (0, Vec::new());
        for (machine, line) in asked {
            match line.and_then(|mut line| line.hear(Some(ANSWER_LIMIT))) {
                Ok(Some(Answer::Refused(why))) => behind.push((machine, why)),
                Ok(Some(_)) => see += 1,
                Ok(None) => behind.push((machine, "its guest does not answer".into())),
                // It has ended.
                Err(_) => {}
            }
        }
        for (machine, why) in &behind {
            output.warn(format!("{machine} does not see it: {why}"));
        }
        let BroughtOut { number, entries, bytes, new_bytes, .. } = *edition;
        let behind: Vec<&str> = behind.iter().map(|(machine, _)| machine.as_str()).collect();
        let object = json!({
            "name": self.files.as_str(), "edition": number, "entries": entries, "bytes": bytes,
            "new_bytes": new_bytes, "machines": see, "behind": behind,
        });
        let (all, new) = (table::bytes(bytes), table::bytes(new_bytes));
        let who = match see {
            0 => "no machine has it".to_owned(),
            1 => "one machine sees it".to_owned(),
            count => format!("{count} machines see it"),
        };
        let said = format!(
            "edition {number} of {}: {entries} entries, {all}, of which {new} are new; {who}",
            self.files
        );
        output.tell(&object, said)?;
        Ok(ExitCode::SUCCESS)
    }
}

fn list(machines: &Machines, output: Output) -> Outcome {
    let mut objects = Vec::new();
    let heading = ["FILES", "EDITION", "ENTRIES", "SIZE", "ROOM", "MACHINES", "WRITER"];
    let mut rows = vec![heading.map(String::from).to_vec()];
    for shelf in shelves().list() {
        let record = shelf.record()?;
        let users = users(machines, &shelf.name)?;
        let writer = users.iter().find(|(_, shown)| shown.is_writer).map(|(name, _)| name.as_str());
        let (number, entries, bytes) =
            record.edition().map_or((0, 0, 0), |edition| (edition.number, edition.entries, edition.bytes()));
        let room = u64::from(record.content().blocks) * comb_vm::files::erofs::BLOCK_BYTES;
        rows.push(vec![
            shelf.name.to_string(),
            number.to_string(),
            entries.to_string(),
            table::bytes(bytes),
            table::bytes(room),
            users.len().to_string(),
            writer.unwrap_or("-").to_owned(),
        ]);
        objects.push(json!({
            "name": shelf.name.as_str(), "edition": number, "entries": entries, "bytes": bytes, "room_bytes": room,
            "machines": users.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), "writer": writer,
            "directory": shelf.directory(),
        }));
    }
    let objects: Vec<Value> = objects;
    output.show(&objects, || {
        if objects.is_empty() {
            return "there are no files in common: `comb vm files update NAME DIRECTORY` brings some out\n"
                .to_owned();
        }
        table::format(&rows)
    })?;
    Ok(ExitCode::SUCCESS)
}
