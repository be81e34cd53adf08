//! Starting the components of a task, on this host or on several, and ending them together.
//!
//! [`Launch`] says what is to run; [`Launch::start`] starts it, with an agent of the task's own; [`Running::wait`] waits for its end:
//! when one component fails, the others are ended. Nothing outlives the launcher, even when it is killed: no process, and no file.
//!
//! ```no_run
//! use comb_region::launch::{Launch, Output};
//!
//! let outcome = Launch::new("./ocean").argument("-p4").components(4).output(Output::Labelled).start()?.wait();
//! std::process::exit(outcome.status());
//! # Ok::<(), comb_region::launch::LaunchError>(())
//! ```
//!
//! | module | what it has |
//! |---|---|
//! | `crew` | the components of one host, and the thread that watches them |
//! | `process` | one of them: how it is started, and ended with all that it started |
//! | `confined` | they signal and debug each other, and nobody else |
//! | `guard` | a process that cleans up where the launcher is killed |
//! | `running` | a task at work: who ends when, and what its exit status is |
//! | `printer` | what components write, with or without labels |
//! | `hosts` | which components run where |
//! | `conversation`, `part`, `remote` | several hosts: what launcher and parts say to each other, and both sides of it |
//! | `input` | standard input, on its way to another host |
//! | `bringing`, `luggage`, `executable`, `delivery`, `noise` | how comb comes to another host that has none |
//! | `copies`, `tree`, `files`, `sent` | what is kept there for the next time, and a program's files, which are not |
//! | `place`, `frames`, `program`, `binding`, `reports` | what a crew needs: a directory, page frames, the program's file, cores, files for reports |

mod binding;
mod bringing;
mod confined;
mod conversation;
mod copies;
mod crew;
mod delivery;
mod executable;
mod files;
mod frames;
mod guard;
mod hosts;
mod input;
mod library;
mod luggage;
mod noise;
mod part;
mod place;
mod printer;
mod process;
mod program;
mod remote;
mod reports;
mod running;
mod sent;
mod spawn;
mod tree;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use comb_net::agent::server::StartError;

pub use self::{
    binding::{BadCores, Binding},
    confined::can_confine,
    copies::Copy,
    crew::{InCell, Stream},
    hosts::{BadHost, Host},
    library::LIBRARY_VARIABLE,
    part::serve_part,
    process::How,
    running::{Control, End, Outcome, Printed, Running},
};
use crate::task::{Checkpoint, Component, DESCRIPTION_VERSION, Description, Share, Spread};
use crew::{Crew, InputOfFirst, Plan};
use files::Files;
use remote::Shell;
use running::Crews;

/// The most components of a task: each has channels to all others.
pub const MOST_COMPONENTS: u32 = 1024;
/// Events that wait for whoever waits for the task. Components that write more wait, too.
const EVENTS: usize = 64;

/// By what a part is started on another host, unless said otherwise.
pub const DEFAULT_SHELL: &str = "ssh -o BatchMode=yes {host}";

/// What is to run, and how.
#[derive(Clone, Debug)]
pub struct Launch {
    program: OsString,
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    directory: Option<PathBuf>,
    components: Option<u32>,
    share: Share,
    memory_bytes: u64,
    copies_bytes: u64,
    checkpoint: Option<Checkpoint>,
    spread: Spread,
    bind: Option<Binding>,
    output: Output,
    has_input: bool,
    limit: Option<Duration>,
    reports: bool,
    hosts: Vec<Host>,
    cells: Vec<InCell>,
    is_confined: bool,
    shell: String,
    comb: Option<PathBuf>,
    sends: Option<Vec<PathBuf>>,
}

/// Where what components write goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Output {
    /// Where the launcher's goes.
    #[default]
    Inherited,
    /// There, too, line by line, each with its component's rank before it: `[2] `.
    Labelled,
    /// Into [`Outcome::printed`].
    Collected,
}

/// Why a task could not be started. No component has run.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// As many cannot be.
    #[error("{0} components cannot be: say 1 to {MOST_COMPONENTS}")]
    Count(u32),
    /// No such file.
    #[error("cannot run {program}: {source}")]
    NoProgram {
        /// Which.
        program: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// A directory, or a file without permission.
    #[error("{0} cannot be executed: is it a program, with permission for you to execute it (`chmod +x`)?")]
    NotExecutable(PathBuf),
    /// Found nowhere.
    #[error(
        "there is no program {} in PATH{}",
        program.display(),
        if *here { format!(": the file here is run when you say ./{}", program.display()) } else { String::new() }
    )]
    NotInPath {
        /// Which.
        program: OsString,
        /// Whether a program of that name is in the working directory.
        here: bool,
    },
    /// The components' working directory.
    #[error("there is no directory {0} for the components to work in: say another with --directory")]
    NoDirectory(PathBuf),
    /// Cores to bind to.
    #[error("cannot bind components to cores: {0}")]
    Cores(String),
    /// Hosts and numbers of components that do not go together.
    #[error("{0}")]
    Deal(String),
    /// The words that start parts.
    #[error("{0:?} is no command: a quote is open (--shell takes words as a shell does)")]
    Shell(String),
    /// A path that shells would take apart.
    #[error(
        "{0} has characters that a shell on another host may take for its own: say another path with --comb"
    )]
    Comb(PathBuf),
    /// What is not on another host.
    #[error(
        "{0} is not there. The program, and the directory to work in, have to be under the same path on all hosts (on a file \
         system that they share), or are sent along with --send"
    )]
    NotShared(PathBuf),
    /// A file that cannot be sent to other hosts.
    #[error("cannot send {path}: {reason}")]
    Send {
        /// Which.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// Files that were sent and cannot be kept.
    #[error("{0}")]
    Unpack(String),
    /// Where other hosts' agents are to reach ours.
    #[error("cannot listen on {address}: {source}. Is that the address of this host? (--hosts NAME=ADDRESS)")]
    Door {
        /// Where.
        address: std::net::IpAddr,
        /// Why not.
        source: std::io::Error,
    },
    /// One of several hosts, and what it said.
    #[error("host {host}: {reason}")]
    Host {
        /// Which.
        host: String,
        /// Why not.
        reason: String,
    },
    /// A path that a description cannot hold.
    #[error("{0} is not UTF-8: choose another directory")]
    NotUtf8(PathBuf),
    /// No agent.
    #[error(transparent)]
    Agent(#[from] StartError),
    /// The system refused.
    #[error("{doing}: {source}")]
    System {
        /// What was tried.
        doing: &'static str,
        /// Why not.
        source: std::io::Error,
    },
}

impl Launch {
    /// One component of a program: a path, or a name to look for in `PATH`.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        Self {
            program: program.as_ref().to_owned(),
            arguments: Vec::new(),
            environment: Vec::new(),
            directory: None,
            components: None,
            share: Share::Auto,
            memory_bytes: 0,
            copies_bytes: 0,
            checkpoint: None,
            spread: Spread::default(),
            bind: None,
            output: Output::Inherited,
            has_input: true,
            limit: None,
            reports: false,
            hosts: Vec::new(),
            cells: Vec::new(),
            is_confined: false,
            shell: DEFAULT_SHELL.to_owned(),
            comb: None,
            sends: None,
        }
    }

    /// One more argument for the program.
    #[must_use]
    pub fn argument(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.arguments.push(argument.as_ref().to_owned());
        self
    }

    /// More of them.
    #[must_use]
    pub fn arguments<A: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.arguments.extend(arguments.into_iter().map(|argument| argument.as_ref().to_owned()));
        self
    }

    /// How many components. Unless said: one, or as many as the hosts say.
    #[must_use]
    pub fn components(mut self, components: u32) -> Self {
        self.components = Some(components);
        self
    }

    /// How components of one host come to each other's memory.
    #[must_use]
    pub fn share(mut self, share: Share) -> Self {
        self.share = share;
        self
    }

    /// The most that each component may keep of memory homed in it; 0 is no limit.
    #[must_use]
    pub fn memory_bytes(mut self, memory_bytes: u64) -> Self {
        self.memory_bytes = memory_bytes;
        self
    }

    /// The most that each component keeps of copies of others' memory: what is beyond it is given back, the oldest first, and asked for again when it is
    /// needed. Sixteen blocks may always be kept. 0 is no limit.
    #[must_use]
    pub fn copies_bytes(mut self, copies_bytes: u64) -> Self {
        self.copies_bytes = copies_bytes;
        self
    }

    /// Where threads begin of a program that was compiled to have them in all components.
    #[must_use]
    pub fn spread(mut self, spread: Spread) -> Self {
        self.spread = spread;
        self
    }

    /// Where the task's checkpoints are, and whether it goes on from the last.
    #[must_use]
    pub fn checkpoint(mut self, directory: impl AsRef<Path>, restores: bool) -> Self {
        self.checkpoint = Some(Checkpoint { directory: directory.as_ref().to_owned(), restores });
        self
    }

    /// Sets a variable in the components' environment, which is otherwise the launcher's.
    #[must_use]
    pub fn environment(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.environment.push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Where components begin, if not where the launcher is.
    #[must_use]
    pub fn directory(mut self, directory: impl AsRef<Path>) -> Self {
        self.directory = Some(directory.as_ref().to_owned());
        self
    }

    /// Binds each component to one core.
    #[must_use]
    pub fn bind(mut self, binding: Binding) -> Self {
        self.bind = Some(binding);
        self
    }

    /// Where what components write goes.
    #[must_use]
    pub fn output(mut self, output: Output) -> Self {
        self.output = output;
        self
    }

    /// Component 0 reads nothing, as the others do, instead of the launcher's standard input.
    #[must_use]
    pub fn without_input(mut self) -> Self {
        self.has_input = false;
        self
    }

    /// A task that is not over so long after its start is told to end: [`Outcome::late`] says so.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Each component records where its memory traffic comes from, and hands that in at its end: [`Outcome::parts`].
    #[must_use]
    pub fn report(mut self) -> Self {
        self.reports = true;
        self
    }

    /// Puts components into cells of this host, by rank.
    #[must_use]
    pub fn in_cells(mut self, cells: impl IntoIterator<Item = InCell>) -> Self {
        self.cells = cells.into_iter().collect();
        self
    }

    /// Components, and what they start, may signal and debug each other and nobody else, where the kernel has that ([`can_confine`]).
    #[must_use]
    pub fn confined(mut self) -> Self {
        self.is_confined = true;
        self
    }

    /// Runs the task on these hosts, not on this one: [`serve_part`] does there what this process would do here. Neighbouring ranks are
    /// on one host. The environment is that of the shell there.
    #[must_use]
    pub fn hosts(mut self, hosts: impl IntoIterator<Item = Host>) -> Self {
        self.hosts.extend(hosts);
        self
    }

    /// The words that run a command on another host, if not [`DEFAULT_SHELL`]; `{host}` in them is its name. They pass on what is
    /// read and written, and end when the command does.
    #[must_use]
    pub fn shell(mut self, words: &str) -> Self {
        words.clone_into(&mut self.shell);
        self
    }

    /// Where `comb` is on the other hosts. Unless said: where this program is, if it is the same there; otherwise this program goes there by
    /// itself, and stays as a copy for the next time.
    #[must_use]
    pub fn comb(mut self, program: impl AsRef<Path>) -> Self {
        self.comb = Some(program.as_ref().to_owned());
        self
    }

    /// Sends files and directories along to the hosts, and the program with them if it is a path. They are removed at the end. What is within the
    /// directory for components to begin in has the same place there, anything else its last name; components begin in the directory there.
    #[must_use]
    pub fn send<P: AsRef<Path>>(mut self, paths: impl IntoIterator<Item = P>) -> Self {
        let paths = paths.into_iter().map(|path| path.as_ref().to_owned());
        self.sends.get_or_insert_default().extend(paths);
        self
    }

    /// Starts the task.
    pub fn start(&self) -> Result<Running, LaunchError> {
        let mut running = self.begin()?;
        if let Some(limit) = self.limit {
            running.limit(limit);
        }
        Ok(running)
    }

    fn begin(&self) -> Result<Running, LaunchError> {
        let (sender, events) = mpsc::sync_channel(EVENTS);
        if self.hosts.is_empty() {
            let components = self.components.unwrap_or(1);
            let plan = self.plan(crew::components_here(components))?;
            let mut crew = Crew::gather(plan)?;
            crew.settle(None)?;
            let crews = Crews::Here(crew.start(sender.clone())?);
            return Ok(Running::new(components, crews, sender, events, self.output));
        }
        let shares = hosts::deal(&self.hosts, self.components)?;
        let on = |share: &hosts::Share| vec![Component { host: share.host.clone() }; share.count as usize];
        let mut plan = self.plan(shares.iter().flat_map(on).collect())?;
        let files = self.find_files(&mut plan)?;
        let components = plan.count;
        let forwards = self.has_input;
        let of_host = |share: &hosts::Share| Plan {
            captures: true,
            input: if forwards { InputOfFirst::Ordered } else { InputOfFirst::Nothing },
            first: share.first,
            count: share.count,
            cells: Vec::new(),
            is_confined: false,
            ..plan.clone()
        };
        let crews = Crews::There(remote::start(&self.parts()?, shares, files.as_ref(), of_host, &sender)?);
        let mut running = Running::new(components, crews, sender, events, self.output);
        if forwards {
            let system = |source| LaunchError::System { doing: "cannot read standard input", source };
            running.forward_input().map_err(system)?;
        }
        Ok(running)
    }

    fn parts(&self) -> Result<Shell, LaunchError> {
        let words = remote::split_words(&self.shell).ok_or_else(|| LaunchError::Shell(self.shell.clone()))?;
        match self.comb.clone().map(PathBuf::into_os_string) {
            Some(comb) if !remote::is_plain(&comb) => Err(LaunchError::Comb(comb.into())),
            comb => Ok(Shell { words, comb }),
        }
    }

    /// What is sent along, if anything, and where the program is in it.
    fn find_files(&self, plan: &mut Plan) -> Result<Option<Arc<Files>>, LaunchError> {
        let Some(mut paths) = self.sends.clone() else { return Ok(None) };
        let system = |source| LaunchError::System { doing: "there is no current directory", source };
        let here = std::env::current_dir().map_err(system)?.join(self.directory.clone().unwrap_or_default());
        if !here.is_dir() {
            return Err(LaunchError::NoDirectory(here));
        }
        if self.program.as_bytes().contains(&b'/') {
            program::find(&self.program, &here, None)?;
            let program = PathBuf::from(&self.program);
            plan.program = files::name_there(&program, &here)?.into_os_string();
            plan.is_sent = true;
            paths.push(program);
        }
        plan.directory = None;
        Files::find(&paths, &here).map(|files| Some(Arc::new(files)))
    }

    /// What a host is to run, if it is the only one.
    fn plan(&self, components: Vec<Component>) -> Result<Plan, LaunchError> {
        let count = u32::try_from(components.len()).unwrap_or(u32::MAX);
        if count == 0 || count > MOST_COMPONENTS {
            return Err(LaunchError::Count(count));
        }
        let mut checkpoint = self.checkpoint.clone();
        if let Some(checkpoint) = &mut checkpoint {
            let directory = std::path::absolute(&checkpoint.directory).unwrap_or_default();
            if directory.to_str().is_none() {
                return Err(LaunchError::NotUtf8(directory));
            }
            checkpoint.directory = directory;
        }
        let description = Description {
            version: DESCRIPTION_VERSION,
            name: fresh_name(),
            rank: 0,
            agent: PathBuf::new(),
            components,
            share: self.share,
            frames: None,
            memory_bytes: self.memory_bytes,
            copies_bytes: self.copies_bytes,
            checkpoint,
            spread: self.spread,
            report: None,
        };
        Ok(Plan {
            program: self.program.clone(),
            is_sent: false,
            arguments: self.arguments.clone(),
            environment: self.environment.clone(),
            directory: self.directory.as_ref().map(|directory| directory.clone().into_os_string()),
            bind: self.bind.clone(),
            reports: self.reports,
            captures: self.output != Output::Inherited,
            input: if self.has_input { InputOfFirst::Inherited } else { InputOfFirst::Nothing },
            cells: self.cells.clone(),
            is_confined: self.is_confined,
            first: 0,
            count,
            description,
        })
    }
}

/// A name that no other task of this host has at the same time.
fn fresh_name() -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    match NUMBER.fetch_add(1, Ordering::Relaxed) {
        0 => format!("run-{}", std::process::id()),
        number => format!("run-{}-{number}", std::process::id()),
    }
}
