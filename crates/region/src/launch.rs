//! Starting the components of a task, on this host or on several, and ending them together.
//!
//! [`Launch`] says what is to run; [`Launch::start`] starts it, with an agent of the task's own; [`Running::wait`] waits for its end:
//! when one component fails, the others are ended. Nothing outlives the launcher: no process, also when it is killed, and no file.
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
//! | `running` | a task at work: who ends when, and what its exit status is |
//! | `printer` | what components write, with or without labels |
//! | `place`, `frames`, `program`, `binding` | what a crew needs: a directory, page frames, the program's file, cores |

mod binding;
mod crew;
mod frames;
mod place;
mod printer;
mod process;
mod program;
mod running;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;

use comb_net::agent::server::StartError;

pub use self::{
    binding::{BadCores, Binding},
    crew::Stream,
    process::How,
    running::{Control, End, Outcome, Printed, Running},
};
use crate::task::{Checkpoint, DESCRIPTION_VERSION, Description, Share};
use crew::{Crew, InputOfFirst, Plan};

/// The most components of a task: each has channels to all others.
pub const MOST_COMPONENTS: u32 = 1024;
/// Events that wait for whoever waits for the task. Components that write more wait, too.
const EVENTS: usize = 64;

/// What is to run, and how.
#[derive(Clone, Debug)]
pub struct Launch {
    program: OsString,
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    directory: Option<PathBuf>,
    components: u32,
    share: Share,
    memory_bytes: u64,
    checkpoint: Option<Checkpoint>,
    bind: Option<Binding>,
    output: Output,
    has_input: bool,
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
            components: 1,
            share: Share::Auto,
            memory_bytes: 0,
            checkpoint: None,
            bind: None,
            output: Output::Inherited,
            has_input: true,
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

    /// How many components.
    #[must_use]
    pub fn components(mut self, components: u32) -> Self {
        self.components = components;
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

    /// Starts the task on this host.
    pub fn start(&self) -> Result<Running, LaunchError> {
        let plan = self.plan()?;
        let captures = plan.captures;
        let mut crew = Crew::gather(plan)?;
        crew.settle(None)?;
        let (sender, events) = mpsc::sync_channel(EVENTS);
        let watched = crew.start(sender.clone())?;
        Ok(Running::new(self.components, watched, sender, events, captures.then_some(self.output)))
    }

    /// What a host is to run, if it is the only one.
    fn plan(&self) -> Result<Plan, LaunchError> {
        if self.components == 0 || self.components > MOST_COMPONENTS {
            return Err(LaunchError::Count(self.components));
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
            components: crew::components_here(self.components),
            share: self.share,
            frames: None,
            memory_bytes: self.memory_bytes,
            checkpoint,
        };
        Ok(Plan {
            program: self.program.clone(),
            arguments: self.arguments.clone(),
            environment: self.environment.clone(),
            directory: self.directory.as_ref().map(|directory| directory.clone().into_os_string()),
            bind: self.bind.clone(),
            captures: self.output != Output::Inherited,
            input: if self.has_input { InputOfFirst::Inherited } else { InputOfFirst::Nothing },
            first: 0,
            count: self.components,
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
