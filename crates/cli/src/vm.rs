//! `comb vm`: virtual machines with ordinary operating systems, which share what they have in common and fail alone.

mod exec;
mod files;
mod monitor;
mod moving;
mod nets;
mod segment;
mod shown;
mod top;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use comb_host::RuntimeDirectory;
use comb_host::state_directory::StateDirectory;
use comb_vm::attached::{Attached, DiskOf, SubnetOf};
use comb_vm::control::{Answer, Ask, AskError, Machines};
use comb_vm::files::machine::MOST_SHELVES;
use comb_vm::hardware::{Accelerator, Hardware, LEAST_BYTES};
use comb_vm::image::{Images, Recipe};
use comb_vm::names::Name;
use comb_vm::snapshot::{Of, Snapshots};
use comb_vm::subnets::Subnets;
use comb_vm::template::Template;
use serde_json::json;

use crate::config::Config;
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::progress::Progress;
use crate::run::{Cells, cells, memory};
use crate::table;
use crate::vm::monitor::{At, Begin};
use crate::vm::segment::Common;

pub(crate) use monitor::VmMonitor;
pub(crate) use nets::{VmDisk, VmSwitch};

const EXAMPLES: &str = "\
An image is a kernel and a root file system, made once. Machines of one image share one copy of it in memory and on disk; what each writes is its own, and gone with it.
A clone does not boot: it continues where a template stood, which is made when the first clone of an image is wanted, and shares that one's memory, too.
Where cells run (`comb up`), a machine is the charge of one and ends with it.

Examples:
  comb vm create small --from-debian                  an image with busybox
  comb vm create build --from-debian --packages gcc,make
  comb vm clone small -n 8                            small-1 to small-8
  comb vm exec small-3 -- uname -a
  comb vm run small --as db --net lab --disk data.img:overlay=db.changes
  comb vm clone small --as web --net lab:nat          `comb vm exec web -- ping db`
  comb vm clone small -n 8 --memory 128M..1G          memory goes to those that need it
  comb vm ls
  comb vm migrate small-3 beta                        from now on it is on the host beta
  comb vm top
  comb vm stop --all";

/// How long a machine may take to end in good order.
const STOP_LIMIT: Duration = Duration::from_secs(20);

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Vm {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make an image
    Create(Create),
    /// List the images, or remove one
    Images(ImagesOf),
    /// Boot a machine
    Run(Run),
    /// Have machines continue where one of their image stood: no boot, and its memory is theirs, too
    Clone(Clone),
    /// List the machines that run
    #[command(visible_alias = "list")]
    Ls,
    /// List the subnets, who is on them, and what became of what they sent
    Nets,
    /// Run a program in a machine
    Exec(exec::Exec),
    /// Be at a machine's console; Ctrl-] leaves it
    Console(exec::Console),
    /// End machines in good order
    Stop(Stop),
    /// End machines at once
    Kill(Which),
    /// Save all of a machine as it is now; it goes on
    Snapshot(SnapshotOf),
    /// List the snapshots, or remove one
    Snapshots(SnapshotsOf),
    /// Have a machine go on where another was saved
    Restore(Restore),
    /// Have a machine go on on another host of the comb: it stands still for a moment only
    Migrate(moving::Migrate),
    /// Have another host of the comb have a snapshot as well
    Send(moving::Send),
    /// Have a machine use more or less memory
    Mem(Mem),
    /// Files that machines have in common
    Files(files::Files),
    /// Show what machines do and what they have, again and again
    Top(top::Top),
}

#[derive(Debug, Args)]
struct Create {
    /// What it is to be called
    image: Name,
    /// Make it of Debian's packages: there is no other way yet
    #[arg(long, required = true)]
    from_debian: bool,
    /// A kernel's package, that was downloaded before [default: Debian's kernel for clouds, by apt]
    #[arg(long, value_name = "DEB")]
    kernel: Option<PathBuf>,
    /// A small Debian with these packages [default: busybox alone]
    #[arg(long, value_name = "PACKAGES", value_delimiter = ',', value_parser = package)]
    packages: Vec<String>,
    /// Copy what this directory contains into its root
    #[arg(long, value_name = "DIRECTORY")]
    with: Option<PathBuf>,
    /// Have this program of this machine's in it, too, with the libraries that it is linked with: by the same path as here, and by its name. May be repeated
    #[arg(long = "bring", value_name = "PROGRAM")]
    brings: Vec<PathBuf>,
    /// This program alone, which was linked with libcomb_library_os.a: no shell, no files, no other process
    #[arg(long, value_name = "PROGRAM", conflicts_with_all = ["packages", "room", "brings"])]
    program: Option<PathBuf>,
    /// How much is to be free in its root file system, in megabytes
    #[arg(long, value_name = "MB", default_value_t = 64, value_parser = clap::value_parser!(u32).range(0..=65_536))]
    room: u32,
}

#[derive(Debug, Args)]
struct ImagesOf {
    /// Remove this one; machines that run from it go on
    #[arg(long, value_name = "IMAGE")]
    remove: Option<Name>,
}

#[derive(Debug, Args)]
struct Made {
    /// What it begins from, as `comb vm images` lists them
    image: Name,
    /// What it is to be called, or what the names of several begin with [default: as the image]
    #[arg(long = "as", value_name = "NAME")]
    name: Option<Name>,
    /// Its memory, such as 256M; or LEAST..MOST, such as 128M..1G: it begins with the least, and more comes when it needs it and others or the host have it, and goes again
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = guest_memory)]
    memory: GuestMemory,
    /// Its processors
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    cpus: u32,
    /// How many nodes its memory and its processors are shared out to: another's memory is farther away
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=8))]
    nodes: u32,
    /// Have so many cores of a cell's for itself, where there are others left: each of its processors stays on one [default: share them with all]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=256))]
    cores: Option<u32>,
    /// Have the host's kernel keep one copy of pages that are alike: who runs in one machine can learn then what is in another's memory
    #[arg(long)]
    merge: bool,
    /// Memory that it has in common with others, as /dev/segments/NAME: NAME=SIZE makes it if nobody has it yet
    #[arg(long = "segment", value_name = "NAME[=SIZE]")]
    segments: Vec<Common>,
    /// What a program that is alone in it (comb vm create --program) may read of this machine's, as /host/…
    #[arg(long, value_name = "DIRECTORY")]
    reads: Option<PathBuf>,
    /// Let another take its place when it fails
    #[arg(long)]
    restart: bool,
    /// The cells that may have it in charge, when there are any (`comb up`): a list such as 1,3 or all; `none`: it is nobody's
    #[arg(long, value_name = "CELLS", value_parser = cells)]
    cells: Option<Cells>,
    /// Have a place on this subnet, which is there as long as a machine is on it; others on it know it by its name. With `SUBNET:nat` it reaches what you reach, too, with
    /// `SUBNET:tap=DEVICE` the host's network
    #[arg(long, value_name = "SUBNET")]
    net: Option<SubnetOf>,
    /// Files that it has in common with others, under /files: NAME, or NAME:rw for one that may change them. May be repeated
    #[arg(long, value_name = "NAME[:rw]")]
    files: Vec<files::Has>,
}

#[derive(Debug, Args)]
struct Run {
    #[command(flatten)]
    made: Made,
    /// Have a disk with what this file contains. What is written is gone with the machine; with `FILE:overlay=OTHER` it is kept in that file, with `FILE:exclusive` it goes to the
    /// file itself, which nobody else has meanwhile; `FILE:read-only`
    #[arg(long, value_name = "FILE")]
    disk: Vec<DiskOf>,
    /// What runs it: `qemu`, or `uml` (user-mode Linux) to compute faster where there is no KVM. That has one processor, its own kernel in the place of the image's, and is neither saved nor cloned
    #[arg(long, value_name = "ENGINE", default_value = "qemu", value_parser = engine)]
    engine: Accelerator,
}

#[derive(Debug, Args)]
struct Clone {
    #[command(flatten)]
    made: Made,
    /// How many
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    count: u32,
}

#[derive(Debug, Args)]
struct Which {
    /// Their names
    #[arg(required_unless_present = "all")]
    machines: Vec<Name>,
    /// All that run
    #[arg(long, conflicts_with = "machines")]
    all: bool,
}

#[derive(Debug, Args)]
struct Stop {
    #[command(flatten)]
    which: Which,
    /// End them at once after so many seconds
    #[arg(long, value_name = "SECONDS", value_parser = crate::run::limit)]
    limit: Option<Duration>,
}

#[derive(Debug, Args)]
struct SnapshotOf {
    /// Of which machine
    machine: Name,
    /// What it is to be called
    snapshot: Name,
}

#[derive(Debug, Args)]
struct SnapshotsOf {
    /// Remove this one; machines that went on from it have what they need
    #[arg(long, value_name = "SNAPSHOT")]
    remove: Option<Name>,
}

#[derive(Debug, Args)]
struct Restore {
    /// As `comb vm snapshots` lists it
    snapshot: Name,
    /// What the machine is to be called [default: as the one that was saved]
    #[arg(long = "as", value_name = "NAME")]
    name: Option<Name>,
    /// Let another take its place when it fails, from the same snapshot
    #[arg(long)]
    restart: bool,
    /// The cells that may have it in charge, when there are any; `none`: it is nobody's
    #[arg(long, value_name = "CELLS", value_parser = cells)]
    cells: Option<Cells>,
}

#[derive(Debug, Args)]
struct Mem {
    /// Its name
    machine: Name,
    /// How much it is to have: up to what it was made with, or within the range that it was made with
    #[arg(value_parser = memory)]
    size: u64,
}

/// What a machine begins with, and what it may come to have; zero: no more.
#[derive(Clone, Copy, Debug)]
struct GuestMemory {
    begins: u64,
    most: u64,
}

/// A guest describes all that it has, a sixty-fourth of that, in what it began with.
const MOST_TIMES: u64 = 8;

fn guest_memory(text: &str) -> Result<GuestMemory, &'static str> {
    let size = |text: &str| memory(text).map(|bytes| bytes.saturating_add((2 << 20) - 1) >> 21 << 21);
    let (begins, most) = match text.split_once("..") {
        Some((least, most)) => (size(least)?, size(most)?),
        None => (size(text)?, 0),
    };
    if begins < LEAST_BYTES {
        return Err("a guest needs at least 64M");
    }
    if most != 0 && !(begins..=begins.saturating_mul(MOST_TIMES)).contains(&most) {
        return Err("the most is no less than the least, and up to eight times as much");
    }
    Ok(GuestMemory { begins, most })
}

fn engine(text: &str) -> Result<Accelerator, &'static str> {
    match text {
        "qemu" => Ok(Accelerator::of_host()),
        "uml" => Ok(Accelerator::Uml),
        _ => Err("say qemu or uml"),
    }
}

fn package(text: &str) -> Result<String, &'static str> {
    let may_be = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"+-.".contains(&byte);
    if !text.is_empty() && !text.starts_with('-') && text.bytes().all(may_be) {
        Ok(text.to_owned())
    } else {
        Err("say names of Debian packages, separated by commas")
    }
}

/// Where machines that run have their sockets: beside what belongs to an agent, which may come and go.
pub(crate) fn machines(directory: &RuntimeDirectory) -> Machines {
    let mut path = directory.path().as_os_str().to_owned();
    path.push("-vm");
    Machines::at(path.into())
}

/// The subnets of this host, whose switches are this program.
pub(crate) fn subnets(directory: &RuntimeDirectory) -> Result<Subnets, Failure> {
    let mut path = directory.path().as_os_str().to_owned();
    path.push("-nets");
    Ok(Subnets::at(path.into(), std::env::current_exe()?))
}

/// Where images are.
pub(crate) fn images() -> Images {
    Images::at(StateDirectory::from_environment().path().join("images"))
}

/// Where snapshots are.
pub(crate) fn snapshots() -> Snapshots {
    Snapshots::at(StateDirectory::from_environment().path().join("snapshots"))
}

/// The agent's program, which goes into images: beside this one, or where it was installed with it.
fn guest_program() -> Result<PathBuf, Failure> {
    let own = std::env::current_exe()?;
    let beside = own.with_file_name("comb-guest");
    let installed = own.with_file_name("../lib/comb/comb-guest");
    [beside, installed].into_iter().find(|path| path.exists()).ok_or_else(|| {
        Failure::not_found(format!("comb-guest, which goes into images, is not beside {}", own.display()))
    })
}

impl Vm {
    pub(crate) fn run(self, output: Output, config: &Config) -> Outcome {
        let directory = RuntimeDirectory::from_environment()?;
        let machines = machines(&directory);
        match self.command {
            Command::Create(create) => create.run(output),
            Command::Images(of) => of.run(output),
            Command::Run(run) => {
                let disks = run.disk.into_iter().map(DiskOf::absolute).collect::<Result<_, _>>()?;
                run.made.start(&machines, run.engine, None, disks, output, config)
            }
            Command::Clone(clone) => {
                let (engine, count) = (Accelerator::of_host(), Some(clone.count));
                clone.made.start(&machines, engine, count, Vec::new(), output, config)
            }
            Command::Nets => nets::list(&subnets(&directory)?, output),
            Command::Ls => shown::list(&machines, output),
            Command::Exec(exec) => exec.run(&machines),
            Command::Console(console) => console.run(&machines),
            Command::Stop(stop) => {
                let limit_ms = stop.limit.unwrap_or(STOP_LIMIT).as_millis();
                let limit_ms = u64::try_from(limit_ms).unwrap_or(u64::MAX);
                end(&machines, stop.which, Some(limit_ms), output)
            }
            Command::Kill(which) => end(&machines, which, None, output),
            Command::Snapshot(of) => of.run(&machines, output),
            Command::Snapshots(of) => of.run(output),
            Command::Restore(restore) => restore.run(output, config),
            Command::Files(files) => files.run(&machines, output),
            Command::Migrate(migrate) => migrate.run(&machines, output),
            Command::Send(send) => send.run(output),
            Command::Top(top) => top.run(&machines, output),
            Command::Mem(mem) => {
                let bytes = mem.size;
                machines.reach(&mem.machine)?.ask(&Ask::SetMemory { bytes })?;
                let said = format!("{} is to have {}", mem.machine, table::bytes(bytes));
                output.tell(&json!({ "name": mem.machine.as_str(), "bytes": bytes }), said)?;
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}

impl Create {
    fn run(self, output: Output) -> Outcome {
        let recipe = Recipe {
            // A program alone has its own.
            agent: if self.program.is_some() { PathBuf::new() } else { guest_program()? },
            kernel: self.kernel,
            packages: self.packages,
            with: self.with,
            brings: self.brings,
            room_mb: self.room,
            program: self.program,
        };
        let since = Instant::now();
        StateDirectory::from_environment().create().map_err(Failure::new)?;
        let mut shown = None;
        let image = images().build(&self.image, &recipe, |line| {
            drop(shown.take());
            shown = Some(Progress::begin(output, line));
        })?;
        drop(shown);
        let root = match image.root_bytes {
            0 => "a program alone".to_owned(),
            bytes => format!("a root of {}", table::bytes(bytes)),
        };
        let took = since.elapsed().as_secs_f64();
        let said = format!(
            "image {}: Linux {}, {root}, after {took:.1} s; `comb vm clone {}` has a machine continue from it",
            image.name, image.kernel_version, image.name
        );
        output.tell(&shown::image(&image), said)?;
        Ok(ExitCode::SUCCESS)
    }
}

impl ImagesOf {
    fn run(self, output: Output) -> Outcome {
        if let Some(name) = self.remove {
            images().remove(&name)?;
            output.tell(&json!({ "name": name.as_str() }), format!("image {name} is removed"))?;
        } else {
            shown::images(&images().list(), output)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Made {
    fn start(
        self,
        machines: &Machines,
        accelerator: Accelerator,
        clones: Option<u32>,
        disks: Vec<DiskOf>,
        output: Output,
        config: &Config,
    ) -> Outcome {
        let attached = Attached { disks, subnet: self.net };
        let needs_qemu = self.cpus > 1
            || self.nodes > 1
            || self.memory.most > 0
            || self.merge
            || !(attached.is_empty() && self.files.is_empty() && self.segments.is_empty());
        if accelerator == Accelerator::Uml && needs_qemu {
            return Err(Failure::usage(
                "user-mode Linux has neither --cpus, --nodes, a range of --memory, --merge, --disk, --net, --files nor --segment: leave them out, or say --engine qemu",
            ));
        }
        if self.merge && clones.is_none() && !attached.is_empty() {
            let why = "a machine with a disk or a network shows its memory to other processes, which cannot be merged: leave out --merge, or say `comb vm clone`";
            return Err(Failure::usage(why));
        }
        if self.cores.is_some() && self.cells == Some(Cells::None) {
            return Err(Failure::usage(
                "--cores is about machines in cells, and --cells none is outside of them",
            ));
        }
        let image = images().open(&self.image)?;
        let reads = self.reads.as_ref().map(std::fs::canonicalize).transpose()?;
        if reads.is_some() && image.root_bytes > 0 {
            return Err(Failure::usage(format!(
                "--reads is for a program that is alone, and `{}` is a whole system",
                image.name
            )));
        }
        let hardware = Hardware {
            memory_bytes: self.memory.begins,
            most_bytes: self.memory.most,
            processors: self.cpus,
            accelerator,
            nodes: self.nodes,
            merges: self.merge,
            attached,
            watcher: None,
        };
        if clones.is_some() {
            // Once, and not by each.
            let mut shown = None;
            Template::of(&image, &hardware, &mut |line| shown = Some(Progress::begin(output, line)))?;
        }
        if self.files.len() > MOST_SHELVES {
            return Err(Failure::usage(format!("a machine has at most {MOST_SHELVES} --files")));
        }
        // Those that there are not are said once.
        self.files.iter().try_for_each(|files| files.open().map(drop))?;
        let taken = machines.names();
        let prefix = self.name.clone().unwrap_or_else(|| self.image.clone());
        let names: Vec<Name> = match (&self.name, clones.unwrap_or(1)) {
            (Some(name), 1) => vec![name.clone()],
            (_, count) => {
                let numbered = (1..).map(|number| prefix.numbered(number));
                let free = numbered.filter(|name| !name.as_ref().is_ok_and(|name| taken.contains(name)));
                free.take(count as usize)
                    .collect::<Result<_, _>>()
                    .map_err(|error| Failure::usage(error.to_string()))?
            }
        };
        // They are there, and as large as they are to be, before any machine is.
        let directory = RuntimeDirectory::from_environment()?;
        let held =
            self.segments.iter().map(|common| common.hold(&directory)).collect::<Result<Vec<_>, _>>()?;
        let shown = Progress::begin(output, format!("starting {}", names.len()));
        let begins = names.into_iter().map(|name| Begin {
            name: name.to_string(),
            image: self.image.to_string(),
            hardware: hardware.clone(),
            at: if clones.is_some() { At::Template } else { At::Boot },
            is_replaced: self.restart,
            is_outside: self.cells == Some(Cells::None),
            cells: these(self.cells.as_ref()),
            files: self.files.clone(),
            cores: self.cores.unwrap_or(0),
            all_bytes: config.vm_memory,
            segments: self.segments.clone(),
            reads: reads.clone(),
        });
        let begun = monitor::start_all(begins.collect())?;
        drop((shown, held));
        tell(begun, output)
    }
}

/// The cells of a list, if one was given.
fn these(cells: Option<&Cells>) -> Option<Vec<u32>> {
    match cells {
        Some(Cells::These(cells)) => Some(cells.clone()),
        _ => None,
    }
}

/// Says which machines are at work; of those that are not, the last is the failure.
fn tell(begun: Vec<monitor::Begun>, output: Output) -> Outcome {
    let mut failed = None;
    for (name, outcome) in begun {
        match outcome {
            Ok(took_us) => {
                let said = format!("{name} is at work after {:.2} s", f64::from(took_us) / 1e6);
                output.tell(&json!({ "name": name, "begun_us": took_us }), said)?;
            }
            Err(why) => {
                let failure = Failure::new(format!("{name}: {why}"));
                if let Some(before) = failed.replace(failure) {
                    output.warn(before);
                }
            }
        }
    }
    failed.map_or(Ok(ExitCode::SUCCESS), Err)
}

impl SnapshotOf {
    fn run(self, machines: &Machines, output: Output) -> Outcome {
        let mut line = machines.reach(&self.machine)?;
        let shown = line.show()?;
        StateDirectory::from_environment().create().map_err(Failure::new)?;
        let of = Of { machine: shown.name, image: shown.image, hardware: shown.hardware };
        let progress = Progress::begin(output, format!("saving {}", self.machine));
        let made = snapshots().make(&self.snapshot, &of, |directory| {
            line.ask(&Ask::Snapshot { directory: directory.to_owned() })?;
            Ok::<(), Failure>(())
        })?;
        drop(progress);
        let said = format!("{} is saved as {}: {}", self.machine, self.snapshot, table::bytes(made.bytes()));
        output.tell(&shown::snapshot(&self.snapshot, &made), said)?;
        Ok(ExitCode::SUCCESS)
    }
}

impl SnapshotsOf {
    fn run(self, output: Output) -> Outcome {
        if let Some(name) = self.remove {
            snapshots().remove(&name)?;
            output.tell(&json!({ "name": name.as_str() }), format!("snapshot {name} is removed"))?;
        } else {
            shown::snapshots(&snapshots().list(), output)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Restore {
    fn run(self, output: Output, config: &Config) -> Outcome {
        let of = snapshots().open(&self.snapshot)?.of;
        let name = self.name.map_or(of.machine, |name| name.to_string());
        let begin = Begin {
            name,
            image: of.image,
            hardware: of.hardware,
            at: At::Snapshot(self.snapshot.to_string()),
            is_replaced: self.restart,
            is_outside: self.cells == Some(Cells::None),
            cells: these(self.cells.as_ref()),
            files: Vec::new(),
            cores: 0,
            all_bytes: config.vm_memory,
            segments: Vec::new(),
            reads: None,
        };
        tell(monitor::start_all(vec![begin])?, output)
    }
}

/// Ends machines, in good order within so many milliseconds or at once, and waits until they have.
fn end(machines: &Machines, which: Which, limit_ms: Option<u64>, output: Output) -> Outcome {
    let names = if which.all { machines.names() } else { which.machines };
    let leave = |name: &Name| {
        let _ = std::fs::remove_dir_all(machines.directory_of(name));
    };
    let mut lines = Vec::new();
    for name in names {
        match machines.reach(&name) {
            Ok(mut line) => {
                let is_monitor_killed = match limit_ms {
                    Some(limit_ms) => line.ask_soon(&Ask::Stop { limit_ms }).map(|_| false)?,
                    None => line.kill()?,
                };
                lines.push((name, line, is_monitor_killed));
            }
            // Its monitor was killed: what is left of it is in nobody's way.
            Err(AskError::None(_)) if which.all => leave(&name),
            Err(error) => return Err(error.into()),
        }
    }
    for (name, mut line, is_monitor_killed) in lines {
        while let Ok(Some(Answer::Done | Answer::Shown(_))) = line.hear(None) {}
        if is_monitor_killed {
            leave(&name);
        }
        output.tell(&json!({ "name": name.as_str() }), format!("{name} has ended"))?;
    }
    Ok(ExitCode::SUCCESS)
}
