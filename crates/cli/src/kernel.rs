//! `comb kernel run`: unmodified programs on a cache kernel, which reach nothing but what they are given.

mod sharing;

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use comb_host::signals;
use comb_kernel::calls::Direct;
use comb_kernel::frames::GROUP_FRAMES;
use comb_kernel::objects::Sizes;
use comb_kernel::supervisor::Supervisor;
use comb_unix::supervised::Supervised;
use comb_unix::traced::Traced;
use comb_unix::{ExitStatus, Machine, Options, Unix};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::failure::Failure;
use crate::output::Output;
use crate::run::memory;

#[derive(Debug, Args)]
pub(crate) struct Kernel {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run an unmodified Linux program, that sees one directory of this host and nothing else of it
    Run(Run),
}

#[derive(Debug, Args)]
struct Run {
    /// The directory that programs see as /
    #[arg(long, value_name = "DIRECTORY", default_value = "/")]
    root: PathBuf,
    /// Where the program starts, as it sees it; the current directory if that is below the root, and / otherwise
    #[arg(short = 'C', long, value_name = "DIRECTORY")]
    directory: Option<PathBuf>,
    /// How much memory all programs can have, such as 512M or 2G
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = memory)]
    memory: u64,
    /// How much of idle programs' memory may be on disk while others need theirs, 0 for nothing
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = swap)]
    swap: u64,
    /// Set a variable of the environment, or leave one out (NAME=)
    #[arg(short = 'e', long = "env", value_name = "NAME=VALUE")]
    variables: Vec<OsString>,
    #[command(flatten)]
    share: sharing::Share,
    /// Trace the programs instead of running a cache kernel below them: calls take several times as long, but it needs nothing of the host but ptrace
    #[arg(long)]
    ptrace: bool,
    /// At the end, list the system calls that the emulator does not have and that programs made
    #[arg(long)]
    list_unsupported: bool,
    /// The program and its arguments
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl Kernel {
    pub(crate) fn run(self, output: Output) -> Result<ExitCode, Failure> {
        match self.command {
            Command::Run(run) => run.run(output),
        }
    }
}

impl Run {
    fn run(mut self, output: Output) -> Result<ExitCode, Failure> {
        let root = self
            .root
            .canonicalize()
            .map_err(|error| Failure::not_found(format!("{}: {error}", self.root.display())))?;
        let directory = self.directory.take().unwrap_or_else(|| {
            let current = std::env::current_dir().unwrap_or_default();
            Path::new("/").join(current.strip_prefix(&root).unwrap_or(Path::new("")))
        });
        let environment = environment(&self.variables);
        if let Some(found) = search(&root, &self.command[0], &environment) {
            self.command[0] = found;
        }
        // Before signals are for the programs: whoever waits can be interrupted.
        let (sharing, _number) = self.share.meet(self.memory, output)?.unzip();
        let options = Options {
            root,
            working_directory: directory,
            arguments: self.command.clone(),
            environment,
            standard: [None, None, None],
            swap: self.swap,
            sharing,
            signals: Some(forwarded_signals()?),
        };
        let status = if self.ptrace {
            let failed = |error| Failure::new(format!("no programs can be traced here: {error}"));
            let machine = Traced::new(self.memory).map_err(failed)?;
            self.run_on(machine, options, Traced::is_exhausted, output)?
        } else {
            self.run_on(self.cache_kernel()?, options, Supervised::is_exhausted, output)?
        };
        let code = match status {
            ExitStatus::Exited(code) => code,
            ExitStatus::Killed(signal) => 128 + signal,
        };
        Ok(ExitCode::from(u8::try_from(code & 0xff).unwrap_or(1)))
    }

    fn cache_kernel(&self) -> Result<Supervised<Direct>, Failure> {
        raise_limits();
        let group_bytes = u64::from(GROUP_FRAMES) * 4096;
        let groups = u32::try_from(self.memory.div_ceil(group_bytes).max(8))
            .map_err(|_| Failure::usage("so much memory cannot be named".to_owned()))?;
        let sizes = Sizes { mappings: (groups * GROUP_FRAMES).clamp(65_536, 1 << 22), ..Sizes::default() };
        let failed = |error| {
            Failure::new(format!(
                "no cache kernel can run here: {error}; --ptrace needs less of the host, and is slower"
            ))
        };
        let (supervisor, kernel) = Supervisor::new(sizes, groups).map_err(failed)?;
        Ok(Supervised::new(Direct::new(supervisor, kernel), sizes, 0))
    }

    fn run_on<M: Machine>(
        &self,
        machine: M,
        options: Options,
        is_exhausted: fn(&M) -> bool,
        output: Output,
    ) -> Result<ExitStatus, Failure> {
        let name = self.command[0].display().to_string();
        let mut unix =
            Unix::new(machine, options).map_err(|error| Failure::not_found(format!("{name}: {error}")))?;
        let status = unix.run();
        if !unix.serve_others(Duration::from_secs(1)) {
            output.warn("the program has ended; what it shares is there for the other cells until their programs have, too");
            while !unix.serve_others(Duration::from_secs(60)) {}
        }
        for cell in unix.dead_cells() {
            output.warn(format!("cell {} has died: what only it had of the shared memory is lost", cell.0));
        }
        if is_exhausted(unix.machine()) && status != ExitStatus::Exited(0) {
            let memory = crate::table::bytes(self.memory);
            output.warn(format!("programs wanted more than the {memory} that they may have: --memory"));
        }
        if self.list_unsupported {
            for (call, count) in unix.unsupported() {
                output.warn(format!("there is no {call}: {count} times"));
            }
        }
        Ok(status)
    }
}

fn swap(text: &str) -> Result<u64, &'static str> {
    if text == "0" { Ok(0) } else { memory(text) }
}

/// This process's, with what is to be different.
fn environment(changes: &[OsString]) -> Vec<OsString> {
    let name = |variable: &OsStr| {
        let bytes = variable.as_bytes();
        bytes.split(|byte| *byte == b'=').next().unwrap_or_default().to_vec()
    };
    let changed: Vec<Vec<u8>> = changes.iter().map(|change| name(change)).collect();
    let kept = std::env::vars_os().filter(|(variable, _)| !changed.contains(&variable.as_bytes().to_vec()));
    let kept = kept.map(|(mut variable, value)| {
        variable.push("=");
        variable.push(value);
        variable
    });
    let set = changes.iter().filter(|change| !change.as_bytes().ends_with(b"=")).cloned();
    kept.chain(set).collect()
}

/// Where a program is that was not said to be in any directory.
fn search(root: &Path, program: &OsStr, environment: &[OsString]) -> Option<OsString> {
    if program.as_bytes().contains(&b'/') {
        return None;
    }
    let path = environment.iter().find_map(|variable| variable.as_bytes().strip_prefix(b"PATH="))?;
    let directories =
        path.split(|byte| *byte == b':').map(|directory| Path::new(OsStr::from_bytes(directory)));
    directories
        .map(|directory| Path::new("/").join(directory).join(program))
        .find(|path| root.join(path.strip_prefix("/").unwrap_or(path)).is_file())
        .map(PathBuf::into_os_string)
}

/// Each page group is memory of its own, and has a descriptor.
fn raise_limits() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// A descriptor from which signals for this process can be read, a byte each: they are for the programs.
fn forwarded_signals() -> Result<OwnedFd, Failure> {
    let told = signals::catch()?;
    let (reads, writes) = std::io::pipe()?;
    let forward = move |mut writes: std::io::PipeWriter| {
        loop {
            let _ = poll(&mut [PollFd::new(told, PollFlags::IN)], None);
            while let Some(signal) = signals::take() {
                let number = u8::try_from(signal.as_raw()).unwrap_or(15);
                if writes.write_all(&[number]).is_err() {
                    return;
                }
            }
            let _ = rustix::io::read(told.as_fd(), &mut [0; 8]);
        }
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || forward(writes))?;
    Ok(reads.into())
}
