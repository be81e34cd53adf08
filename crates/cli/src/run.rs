//! `comb run`: a program on many cells, and the hidden `comb run-part`, which starts its components on another host.

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clap::{Args, ValueEnum};
use comb_host::tasks::Wanted;
use comb_host::{RuntimeDirectory, signals};
use comb_net::agent::Limits;
use comb_region::INVOCATION_COST_VARIABLE;
use comb_region::launch::{
    BadCores, Binding, Control, Copy, DEFAULT_SHELL, Host, LIBRARY_VARIABLE, Launch, MOST_COMPONENTS,
    Outcome as Ended, Output as Lines, serve_part,
};
use comb_region::task::{Share, Spread, TASK_VARIABLE};
use rustix::event::{PollFd, PollFlags};

use crate::agent;
use crate::config::Config;
use crate::failure::{Failure, Kind, Outcome};
use crate::output::Output;
use crate::report::Report;
use on_cells::{Loss, OnCells};

mod on_cells;

const EXAMPLES: &str = "\
The components are processes of one program that share memory. They fail together: when one of them fails, the others are
told to end (SIGTERM) and killed two seconds later, and the exit status is that of the one that failed first: its own, or 128
and the signal that killed it. A task that is not over within its --limit is ended in the same way; the exit status is 124. Nothing
outlives this command.

Examples:
  comb run -n 4 -- ./ocean -p4             four components on this host
  comb run -n 4 --share copy -- ./ocean    the same, as if they were on several hosts
  comb run -n 4 --share copy --report -- ./ocean
                                           and say at the end which lines wait for memory, and for what
  comb run -n 4 --bind --label -- ./ocean  a core for each, and lines that say who wrote them
  comb run --hosts a,b -n 8 -- ./ocean     components 0 to 3 on host a, 4 to 7 on b, started by ssh
  comb run --hosts a,b --send=data -- ./ocean
                                           where the program is not: it is sent along, and data with it
  comb run --hosts a=10.0.0.1:3,b=10.0.0.2:1 --shell 'ip netns exec {host}' -- ./ocean
                                           three on a and one on b, which are network namespaces
  comb run -n 4 --spread fill:2 -- ./ocean -p8
                                           threads 0 and 1 of a combcc program on component 0, 2 and 3 on 1 …

Component 0 reads this command's standard input, the others nothing.

On other hosts nothing of Comb has to be installed or to run: where this comb is not under the same path, it comes along by --shell. A copy is
kept in ~/.cache/comb there (or XDG_CACHE_HOME), the last four builds of it; where none can be kept, it comes each time and goes at the end. The program, and this
directory, must be under the same path there, or are sent along (--send): components begin in a directory of the task's own then, which is removed at
the end with all that they leave in it. The hosts must be as this one (Linux, the same kind of processor, a libc no older), have a POSIX sh, head and sha256sum, and
reach each other at the addresses given.";

/// Start a program on many cells, which share memory
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, override_usage = "comb run -n COUNT [OPTIONS] -- PROGRAM [ARGS]...")]
pub(crate) struct Run {
    /// How many components (with --hosts: one each, unless you say)
    #[arg(long, short = 'n', value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_COMPONENTS)))]
    components: Option<u32>,
    /// How components of one host come to each other's memory: by the fastest way, or by copies as if they were on several hosts
    #[arg(long, value_enum, default_value_t = Sharing::Auto)]
    share: Sharing,
    /// The most memory that each component keeps for all, in bytes; K, M or G may follow [default: no limit]
    #[arg(long, value_name = "BYTES", value_parser = memory)]
    memory: Option<u64>,
    /// The most that each component keeps of copies of others' memory, in bytes; K, M or G may follow [default: no limit]
    #[arg(long, value_name = "BYTES", value_parser = memory)]
    copies: Option<u64>,
    /// Where threads begin of a program that combcc has compiled: round-robin, component after component; fill:N, so many in each before the next;
    /// home, where the thread is that makes them
    #[arg(long, value_name = "POLICY", default_value = "round-robin")]
    spread: Spread,
    /// Nanoseconds that every miss takes longer, to see what a slower one would do to a program
    #[arg(long, value_name = "NS", hide = true)]
    invocation_cost: Option<u64>,
    /// Where the task's checkpoints are
    #[arg(long, value_name = "DIR")]
    checkpoint: Option<PathBuf>,
    /// Go on from the last checkpoint
    #[arg(long, requires = "checkpoint")]
    restore: bool,
    /// The cells to run on, when there are any (`comb up`): a list such as 1,3 or all; `none`: outside of them
    /// [default: those with the least to do, as few as will do]
    #[arg(long, value_name = "CELLS", value_parser = cells, conflicts_with = "hosts")]
    cells: Option<Cells>,
    /// When it fails because a cell was lost: run it again on the cells that live, from its last checkpoint if it makes any
    /// (see --checkpoint), else from the start
    #[arg(long)]
    restart: bool,
    /// Its components run at the same time: they take turns with those of other such tasks where there are not cores enough for all
    #[arg(long, conflicts_with = "hosts")]
    gang: bool,
    /// Have so many cores for itself, where there are others left [default: share them with all]
    #[arg(long, value_name = "COUNT", conflicts_with_all = ["hosts", "bind"], value_parser = clap::value_parser!(u32).range(1..=256))]
    cores: Option<u32>,
    /// In cells: let it signal and debug whatever your user may, not just its own processes
    #[arg(long, conflicts_with = "hosts")]
    unconfined: bool,
    /// Bind each component to one core: to those of a list such as 0,2,4-7 in turn, or of all
    #[arg(long, value_name = "CORES", num_args = 0..=1, require_equals = true, default_missing_value = "all", value_parser = binding)]
    bind: Option<Binding>,
    /// End the task if it is not over after so many seconds [default: no limit]
    #[arg(long, value_name = "SECONDS", value_parser = limit)]
    limit: Option<Duration>,
    /// Set a variable of the components' environment, or with its name alone pass ours on to other hosts
    #[arg(long, value_name = "NAME[=VALUE]", value_parser = variable)]
    env: Vec<(String, OsString)>,
    /// Where components begin [default: here]
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
    /// Write before each line which component it is from
    #[arg(long)]
    label: bool,
    /// At the end, say where the task's memory traffic comes from: on standard error, or in FILE (as JSON if its name ends in .json)
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
    report: Option<PathBuf>,
    /// Run on these hosts instead of this one: `NAME[=ADDRESS][:COUNT]`, separated by commas
    #[arg(long, value_name = "HOSTS", value_delimiter = ',')]
    hosts: Vec<Host>,
    /// What runs a command on another host; {host} in it is the host's name [default: "ssh -o BatchMode=yes {host}"]
    #[arg(long, value_name = "COMMAND", requires = "hosts")]
    shell: Option<String>,
    /// Where comb is on the other hosts [default: where it is here if it is the same there; else a copy of this one, which is brought there and kept]
    #[arg(long, value_name = "PATH", requires = "hosts")]
    comb: Option<PathBuf>,
    /// Send the program along to the other hosts, and PATH too: a file or a directory (again for more). It begins there in a directory of the task's own, in
    /// which what is below this one has its place; that is removed at the end [default: all is under the same path there]
    #[arg(long, value_name = "PATH", num_args = 0..=1, require_equals = true, default_missing_value = "", requires = "hosts")]
    send: Vec<OsString>,
    /// What to run: a path, or a name to be found in PATH
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM [ARGS]")]
    program: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Sharing {
    Auto,
    Copy,
}

/// Where components run, as the user says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Cells {
    None,
    /// Any, if there are none in the list.
    These(Vec<u32>),
}

pub(crate) fn cells(text: &str) -> Result<Cells, &'static str> {
    match text {
        "none" => Ok(Cells::None),
        "all" => Ok(Cells::These(Vec::new())),
        list => {
            let numbers =
                list.split(',').map(|number| number.trim().parse().ok()).collect::<Option<Vec<u32>>>();
            numbers
                .map(Cells::These)
                .ok_or("say cells as `comb ps` numbers them, such as 1,3; or all, or none")
        }
    }
}

pub(crate) fn memory(text: &str) -> Result<u64, &'static str> {
    // Read as the agent's limits are.
    let limits = format!("memory_bytes={text}").parse::<Limits>();
    limits
        .map(|limits| limits.memory_bytes)
        .map_err(|_| "say a number of bytes, at least 1, such as 512M or 4G")
}

pub(crate) fn limit(text: &str) -> Result<Duration, &'static str> {
    let seconds = text.parse().ok().filter(|seconds| *seconds > 0.0);
    let limit = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    limit.ok_or("say a number of seconds, more than 0, such as 90 or 0.5")
}

fn binding(text: &str) -> Result<Binding, BadCores> {
    if text == "all" { Ok(Binding::All) } else { text.parse() }
}

fn variable(text: &str) -> Result<(String, OsString), String> {
    let (name, value) = match text.split_once('=') {
        Some((name, value)) => (name, Some(OsString::from(value))),
        None => (text, std::env::var_os(text)),
    };
    match value {
        _ if name.is_empty() => Err("say NAME=VALUE".to_owned()),
        _ if name == TASK_VARIABLE => Err(format!("{TASK_VARIABLE} is what tells components of their task")),
        Some(value) => Ok((name.to_owned(), value)),
        None => Err(format!("{name} is not set here: say {name}=VALUE")),
    }
}

impl Run {
    pub(crate) fn run(self, output: Output, config: &Config) -> Outcome {
        let report = self.report.clone();
        if let Some(file) = report.as_deref().filter(|file| *file != Path::new("-")) {
            // Before anything runs whose report would be lost.
            let opened = std::fs::OpenOptions::new().append(true).create(true).open(file);
            let refused = |error| {
                let file = file.display();
                Failure::new(format!(
                    "the report cannot be written to {file}: {error}; name another --report=FILE"
                ))
            };
            opened.map_err(refused)?;
        }
        let ended = self.run_to_its_end(output, config)?;
        if let Some(file) = report {
            let file = Some(file.as_path()).filter(|file| *file != Path::new("-"));
            Report::of(&ended.parts).write(file)?;
        }
        Ok(ExitCode::from(u8::try_from(ended.status() & 0xff).unwrap_or(u8::MAX)))
    }

    /// Runs it, and runs it again if it was lost with a cell and is to.
    fn run_to_its_end(self, output: Output, config: &Config) -> Result<Ended, Failure> {
        let (restarts, checkpoint) = (self.restart, self.checkpoint.clone());
        let (places, mut wanted) = (self.places()?, self.wanted());
        let is_confined = places.is_some() && !self.unconfined;
        let mut launch = self.launch(config)?;
        if is_confined {
            launch = launch.confined();
        }
        let task = forward_signals()?;
        loop {
            let mut on_cells = match &places {
                Some(directory) => Some(OnCells::find(directory, &wanted).map_err(Failure::from)?),
                None => None,
            };
            if let Some(on_cells) = &on_cells {
                launch = on_cells.put(launch);
            }
            let mut running = launch.start()?;
            if let Some(on_cells) = &mut on_cells {
                on_cells.watch(&mut running)?;
            }
            task.hand_to(Some(running.control()));
            let ended = running.wait();
            let lost = on_cells
                .as_ref()
                .filter(|_| ended.interrupted.is_none())
                .and_then(|on_cells| on_cells.lost_with(&ended, restarts));
            match (lost, &ended.failed) {
                (Some(Loss::OfItsCell(cell)), Some(failed)) => {
                    output.warn(format_args!(
                        "component {} (pid {}) was lost with cell {cell}; the task ends with it",
                        failed.rank, failed.process
                    ));
                }
                (Some(Loss::OfAnother(cell)), Some(failed)) => {
                    output.warn(format_args!("{failed} when cell {cell} was lost; the task ends with it"));
                }
                _ => {
                    if let Some(sentence) = sentence(&ended) {
                        output.warn(sentence);
                    }
                }
            }
            if lost.is_none() || !restarts {
                return Ok(ended);
            }
            task.hand_to(None);
            wanted.restarts += 1;
            let is_saved = checkpoint.as_ref().filter(|directory| directory.join("current").exists());
            launch = match is_saved {
                Some(directory) => {
                    let shown = directory.display();
                    output.warn(format_args!("runs it again from its last checkpoint in {shown}"));
                    launch.checkpoint(directory, true)
                }
                None => {
                    output.warn("runs it again from the start");
                    launch
                }
            };
        }
    }

    /// Where the agent is whose cells it is to run on; `None`: it runs outside of cells.
    fn places(&self) -> Result<Option<RuntimeDirectory>, Failure> {
        if self.cells == Some(Cells::None) || !self.hosts.is_empty() {
            return Ok(None);
        }
        let directory = RuntimeDirectory::from_environment()?;
        let is_there = directory.control_socket().exists();
        if self.cells.is_some() && !is_there {
            return Err(Failure::of(
                Kind::NotRunning,
                format!("no agent is running in {directory}, so there are no cells: `comb up` starts them"),
            ));
        }
        if !is_there && (self.gang || self.cores.is_some()) {
            return Err(Failure::of(
                Kind::NotRunning,
                format!(
                    "--gang and --cores are about tasks in cells, and no agent is running in {directory}: `comb up` starts cells"
                ),
            ));
        }
        if let Some(Cells::These(cells)) = &self.cells {
            agent::check_cells(&directory, cells)?;
        }
        Ok(is_there.then_some(directory))
    }

    fn wanted(&self) -> Wanted {
        Wanted {
            task: std::process::id(),
            program: self.program.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
            components: self.components.unwrap_or(1),
            cells: match &self.cells {
                Some(Cells::These(cells)) => cells.clone(),
                _ => Vec::new(),
            },
            restarts: 0,
            cores: self.cores.unwrap_or(0),
            gang: self.gang,
        }
    }

    fn launch(self, config: &Config) -> Result<Launch, Failure> {
        let (program, arguments) = self.program.split_first().expect("clap requires one");
        let share = match self.share {
            Sharing::Auto => Share::Auto,
            Sharing::Copy => Share::Copy,
        };
        let shell = self.shell.as_ref().or(config.run.shell.as_ref());
        let shell = shell.map_or(DEFAULT_SHELL, String::as_str);
        // Hosts of this comb need no other way in.
        let within = crate::host::within_comb(&self.hosts, shell).filter(|_| self.send.is_empty());
        // Their agents start their own comb.
        let comb = if within.is_some() { Some(std::env::current_exe()?) } else { None };
        let comb = comb.as_ref().or(self.comb.as_ref()).or(config.run.comb.as_ref());
        let comb = comb.filter(|_| !self.hosts.is_empty()).cloned();
        let (hosts, shell) = within.unwrap_or_else(|| (self.hosts.clone(), shell.to_owned()));
        let lines = if self.label { Lines::Labelled } else { Lines::Inherited };
        let mut launch = Launch::new(program).arguments(arguments).share(share).output(lines).shell(&shell);
        match self.components {
            Some(components) => launch = launch.components(components),
            None if self.hosts.is_empty() => {
                return Err(Failure::usage("how many components? Say for example: comb run -n 4 -- PROGRAM"));
            }
            None => {}
        }
        if let Some(bytes) = self.memory {
            launch = launch.memory_bytes(bytes);
        }
        if let Some(limit) = self.limit {
            launch = launch.limit(limit);
        }
        if let Some(bytes) = self.copies {
            launch = launch.copies_bytes(bytes);
        }
        if self.report.is_some() {
            launch = launch.report();
        }
        if let Some(directory) = &self.checkpoint {
            launch = launch.checkpoint(directory, self.restore);
        }
        launch = launch.spread(self.spread);
        if let Some(nanoseconds) = self.invocation_cost {
            launch = launch.environment(INVOCATION_COST_VARIABLE, nanoseconds.to_string());
        }
        if let Some(binding) = self.bind {
            launch = launch.bind(binding);
        }
        if let Some(comb) = comb {
            launch = launch.comb(comb);
        }
        if !self.send.is_empty() {
            // Without a path: the program alone.
            launch = launch.send(self.send.iter().filter(|path| !path.is_empty()));
        }
        if self.hosts.is_empty() {
            launch = self.directory.iter().fold(launch, Launch::directory);
        } else {
            // What is inherited on this host has to be said on others.
            let directory = self.directory.unwrap_or_default();
            launch = launch.directory(std::env::current_dir()?.join(directory));
            let ours = std::env::vars_os().filter(|(name, _)| is_passed_on(&name.to_string_lossy()));
            launch = ours.fold(launch, |launch, (name, value)| launch.environment(name, value));
        }
        launch = self.env.into_iter().fold(launch, |launch, (name, value)| launch.environment(name, value));
        Ok(launch.hosts(hosts))
    }
}

/// How Comb is to work, such as COMB_WITHOUT; but not where things are on this host.
fn is_passed_on(variable: &str) -> bool {
    variable.starts_with("COMB_")
        && ![TASK_VARIABLE, LIBRARY_VARIABLE, "COMB_RUNTIME_DIR", "COMB_NAME", "COMB_CONFIG"]
            .contains(&variable)
}

fn sentence(ended: &Ended) -> Option<String> {
    if let Some(limit) = ended.late {
        return Some(format!("the task was not over after {limit:?} (--limit) and was told to end"));
    }
    let failed = ended.failed.as_ref()?;
    Some(match ended.interrupted {
        // Whoever pressed Ctrl-C knows.
        Some(2) => return None,
        Some(signal) => {
            let name = rustix::process::Signal::from_named_raw(signal).map_or("a signal", signals::name);
            format!("the task was told to end by {name}")
        }
        None => format!("{failed}; the task ends with it"),
    })
}

/// What people and service managers tell this process is meant for the components of the task that is put into what this returns.
/// Before that it is the end: hosts may take long to answer, and what has been started ends with us.
fn forward_signals() -> std::io::Result<Forwarded> {
    let came = signals::catch()?;
    let forwarded = Forwarded::default();
    let to = Arc::clone(&forwarded.0);
    let forward = move || loop {
        if rustix::event::poll(&mut [PollFd::new(came, PollFlags::IN)], None).is_ok()
            && let Some(signal) = signals::take()
        {
            match &*to.lock().unwrap_or_else(PoisonError::into_inner) {
                Some(control) => control.interrupt(signal.as_raw()),
                None => std::process::exit(128 + signal.as_raw()),
            }
        }
    };
    std::thread::Builder::new().name("comb-signals".into()).spawn(forward)?;
    Ok(forwarded)
}

/// Where signals go.
#[derive(Default)]
struct Forwarded(Arc<Mutex<Option<Control>>>);

impl Forwarded {
    /// To nobody: they end this process.
    fn hand_to(&self, control: Option<Control>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = control;
    }
}

/// What `comb run` starts on another host.
#[derive(Debug, Args)]
pub(crate) struct RunPart {
    /// This comb is a copy in that directory of copies
    #[arg(long, value_name = "DIR")]
    kept: Option<PathBuf>,
    /// This comb is in that directory, which is to go at the end
    #[arg(long, value_name = "DIR", conflicts_with = "kept")]
    temporary: Option<PathBuf>,
}

impl RunPart {
    pub(crate) fn run(self) -> Outcome {
        let told = signals::catch()?;
        let copy = self.kept.map(Copy::Kept).or(self.temporary.map(Copy::Temporary));
        serve_part(std::io::stdin(), std::io::stdout(), Some(told.as_fd()), copy.as_ref())?;
        Ok(ExitCode::SUCCESS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use comb_region::launch::{End, How};

    #[test]
    fn options_are_read_as_people_write_them() {
        assert_eq!((memory("4G"), memory("100")), (Ok(4 << 30), Ok(100)));
        assert!(memory("0").is_err() && memory("much").is_err());
        assert_eq!(
            (limit("90"), limit("0.5")),
            (Ok(Duration::from_secs(90)), Ok(Duration::from_millis(500)))
        );
        assert!(["0", "-1", "nan", "1e300", "soon"].iter().all(|text| limit(text).is_err()));
        assert_eq!(binding("all"), Ok(Binding::All));
        assert_eq!(binding("1,3"), Ok(Binding::Cores(vec![1, 3])));
        assert_eq!(variable("A=b=c"), Ok(("A".to_owned(), "b=c".into())));
        for (text, words) in
            [("=b", "NAME=VALUE"), ("NO_SUCH_VARIABLE", "is not set"), ("COMB_TASK=x", "tells components")]
        {
            assert!(variable(text).unwrap_err().contains(words), "{text}");
        }
        assert!(is_passed_on("COMB_WITHOUT"));
        assert!(!is_passed_on("COMB_RUNTIME_DIR") && !is_passed_on("COMB_LIBRARY") && !is_passed_on("PATH"));
    }

    #[test]
    fn the_shell_that_is_told_is_the_one_that_is_used() {
        use clap::Args as _;
        let help = Run::augment_args(clap::Command::new("run")).render_long_help().to_string();
        assert!(help.contains(&format!("[default: {DEFAULT_SHELL:?}]")), "{help}");
    }

    #[test]
    fn an_end_is_told_in_a_sentence() {
        let failed = Some(End { rank: 2, process: 123, how: How::Killed(9) });
        let mut ended = Ended {
            failed,
            failed_at: None,
            interrupted: None,
            late: None,
            printed: Vec::new(),
            parts: Vec::new(),
        };
        let told = "component 2 (pid 123) was killed by signal 9 (SIGKILL); the task ends with it";
        assert_eq!(sentence(&ended).unwrap(), told);
        ended.interrupted = Some(15);
        assert_eq!(sentence(&ended).unwrap(), "the task was told to end by SIGTERM");
        ended.interrupted = Some(2);
        assert_eq!(sentence(&ended), None);
        ended.late = Some(Duration::from_millis(1500));
        assert_eq!(
            sentence(&ended).unwrap(),
            "the task was not over after 1.5s (--limit) and was told to end"
        );
    }
}
