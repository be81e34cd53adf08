//! The hidden `comb vm-monitor`: the process of each machine, and how those are started.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use comb_host::RuntimeDirectory;
use comb_host::control::ControlError;
use comb_host::tasks::{Places, TaskOrder, Wanted};
use comb_vm::control::{Ask, Machines};
use comb_vm::engine::Engine;
use comb_vm::hardware::Hardware;
use comb_vm::image::Image;
use comb_vm::monitor::{Beginning, End, Order, Seat, Told, User, run};
use comb_vm::moving::arriving::Arrival;
use comb_vm::moving::{MoveError, Rest, Show, Way};
use comb_vm::names::Name;
use comb_vm::template::Template;
use serde::{Deserialize, Serialize};

use crate::failure::{Failure, Kind, Outcome};
use crate::vm::segment::Common;

/// How soon an order of the agent's is seen that came while something else was done.
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

/// A machine that takes another's place waits so long for a cell: its own may be on its way back.
const RETURN_LIMIT: Duration = Duration::from_secs(10);

/// A machine that the agent wants to end has so long.
const END_LIMIT_MS: u64 = 2_000;

/// What a monitor is to begin.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Begin {
    pub(crate) name: String,
    pub(crate) image: String,
    pub(crate) hardware: Hardware,
    pub(crate) at: At,
    pub(crate) is_replaced: bool,
    /// It is nobody's charge.
    pub(crate) is_outside: bool,
    /// The cells that may have it in charge, if it is to be some cell's; none: any.
    pub(crate) cells: Option<Vec<u32>>,
    /// What it has in common with others.
    pub(crate) files: Vec<super::files::Has>,
    /// Cores that it is to have for itself; 0: none.
    pub(crate) cores: u32,
    /// What all machines may have together; none: what the host can give.
    pub(crate) all_bytes: Option<u64>,
    /// What it has in common with others, and how large that is if that is said.
    pub(crate) segments: Vec<Common>,
    /// What a program that is alone in it may read.
    pub(crate) reads: Option<PathBuf>,
}

/// Where a machine begins.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum At {
    Boot,
    Template,
    /// A snapshot of that name.
    Snapshot(String),
    /// Another host, from which it comes; whoever takes its place is a clone, or boots.
    Arriving {
        is_clone: bool,
    },
}

/// What a monitor says of that, once.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Said {
    /// From its start, in microseconds.
    Begun(u32),
    Failed(String),
}

/// A machine's name, and after how many microseconds its guest was at work, or why it is not.
pub(super) type Begun = (String, Result<u32, String>);

/// Starts monitors, which go on by themselves, and waits until their guests are at work.
pub(super) fn start_all(begins: Vec<Begin>) -> Result<Vec<Begun>, Failure> {
    let own = std::env::current_exe()?;
    // More at once would only wait for each other.
    let at_once = std::thread::available_parallelism().map_or(2, usize::from) * 2;
    let mut begun = Vec::new();
    let mut started: std::collections::VecDeque<(String, Child)> = std::collections::VecDeque::new();
    let mut begins = begins.into_iter();
    loop {
        while started.len() < at_once
            && let Some(begin) = begins.next()
        {
            let mut command = Command::new(&own);
            command.arg("vm-monitor").process_group(0);
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
            let mut child = command.spawn()?;
            let mut to = child.stdin.take().expect("it is piped");
            to.write_all(&serde_json::to_vec(&begin)?)?;
            drop(to);
            started.push_back((begin.name, child));
        }
        let Some((name, mut child)) = started.pop_front() else { return Ok(begun) };
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("it is piped")).read_line(&mut line)?;
        let outcome = match serde_json::from_str(&line) {
            Ok(Said::Begun(took_us)) => Ok(took_us),
            Ok(Said::Failed(why)) => Err(why),
            Err(_) => Err("its monitor has ended".to_owned()),
        };
        begun.push((name, outcome));
    }
}

#[derive(Debug, Args)]
pub(crate) struct VmMonitor {
    /// What is to run comes from another host, by way of the agent that has started this
    #[arg(long)]
    receives: bool,
    /// This goes on when its agent has ended
    #[arg(long, requires = "receives")]
    apart: bool,
}

impl VmMonitor {
    pub(crate) fn run(self) -> Outcome {
        // Whoever has started it may close its terminal, or wait for its end.
        let _ = rustix::process::setsid();
        let directory = RuntimeDirectory::from_environment()?;
        if self.receives {
            return if self.apart { super::moving::receive(&directory) } else { super::moving::go_apart() };
        }
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text)?;
        let begin: Begin = serde_json::from_str(&text)?;
        let image = super::images().open(&begin.image.parse()?)?;
        match monitor(&directory, &begin, image, None) {
            Ok(()) => Ok(ExitCode::SUCCESS),
            Err(failure) => {
                say(&Said::Failed(failure.to_string()));
                Err(failure)
            }
        }
    }
}

fn say(said: &Said) {
    let mut out = std::io::stdout();
    // Nobody may be there to hear it any more.
    let _ = serde_json::to_string(said).map(|line| writeln!(out, "{line}").and_then(|()| out.flush()));
}

/// Runs a machine until it ends; one that comes from another host, if one is given.
pub(super) fn monitor(
    directory: &RuntimeDirectory,
    begin: &Begin,
    image: Image,
    mut arrival: Option<&mut Arrival>,
) -> Result<(), Failure> {
    let name: Name = begin.name.parse()?;
    let beginning = match &begin.at {
        At::Boot => Beginning::Boot,
        At::Template => Beginning::Template(Template::of(&image, &begin.hardware, &mut |_| ())?),
        At::Snapshot(name) => Beginning::Snapshot(super::snapshots().open(&name.parse()?)?),
        At::Arriving { is_clone } => {
            let template = is_clone.then(|| Template::there(&image, &begin.hardware)).flatten();
            Beginning::Arriving(Box::new(template.map_or(Beginning::Boot, Beginning::Template)))
        }
    };
    let is_there = directory.control_socket().exists();
    if begin.cells.is_some() && !is_there {
        return Err(Failure::of(Kind::NotRunning, "there are no cells: `comb up` starts them"));
    }
    if begin.cores > 0 && !is_there {
        let why = "--cores is about machines in cells, and there are none: `comb up` starts them";
        return Err(Failure::of(Kind::NotRunning, why));
    }
    if begin.hardware.has_room() {
        move_memory(super::machines(directory), begin.all_bytes)?;
    }
    let order = Order {
        name: name.clone(),
        image,
        beginning,
        hardware: begin.hardware.clone(),
        is_replaced: begin.is_replaced,
        subnets: super::subnets(directory)?,
        files: begin.files.iter().map(super::files::Has::open).collect::<Result<_, _>>()?,
        has_cores: begin.cores > 0,
        segments: begin.segments.iter().map(|common| common.hold(directory)).collect::<Result<_, _>>()?,
        reads: begin.reads.clone(),
    };
    let mut charge = Charge {
        directory,
        begin,
        name,
        in_cells: is_there && !begin.is_outside,
        started: Instant::now(),
        has_begun: false,
        keeper: None,
        arrival: arrival.take(),
    };
    let end = run(&super::machines(directory), &order, &mut charge)?;
    if charge.has_begun {
        return Ok(());
    }
    Err(Failure::new(match end {
        End::Stopped | End::Killed => "it was ended before its guest was at work",
        End::Panicked => "its guest's kernel gave up before it was at work",
        End::Hung => "its guest has not begun",
        End::Lost => "its engine has ended",
        End::Moved => "it has moved on",
        End::Blind => {
            "its guest is of another version, or does not see its segments: make its image anew (comb vm create)"
        }
    }))
}

/// Moves memory between machines, if no other monitor does.
fn move_memory(machines: Machines, all_bytes: Option<u64>) -> std::io::Result<()> {
    let moves = move || {
        // The machine is not there yet, and with the last one the directory goes.
        while comb_policy::mover::run(machines.clone(), all_bytes).is_err() {
            std::thread::sleep(BETWEEN_LOOKS);
        }
    };
    std::thread::Builder::new().name("comb-mover".into()).spawn(moves)?;
    Ok(())
}

/// A machine as a task of one component: the agent knows of it, and ends it with its cell.
struct Charge<'a> {
    directory: &'a RuntimeDirectory,
    begin: &'a Begin,
    name: Name,
    in_cells: bool,
    started: Instant,
    has_begun: bool,
    /// Keeps in touch with the agent, for as long as this engine lives.
    keeper: Option<Keeper>,
    /// What comes from another host.
    arrival: Option<&'a mut Arrival>,
}

impl User for Charge<'_> {
    fn seat(&mut self, replaced: u32) -> Result<Option<Seat>, String> {
        self.keeper = None;
        if !self.in_cells {
            return Ok(None);
        }
        let wanted = Wanted {
            task: std::process::id(),
            program: vec!["vm".to_owned(), self.begin.name.clone()],
            components: 1,
            cells: self.begin.cells.clone().unwrap_or_default(),
            restarts: replaced,
            cores: self.begin.cores,
            gang: false,
        };
        let until = Instant::now() + RETURN_LIMIT;
        let places = loop {
            match Places::ask(self.directory, &wanted) {
                Err(ControlError::Refused(_)) if replaced > 0 && Instant::now() < until => {
                    std::thread::sleep(BETWEEN_LOOKS / 10);
                }
                asked => break asked.map_err(|error| error.to_string())?,
            }
        };
        let seat = places.seats().first().ok_or("the agent says of no cell")?;
        let found = Seat { cell: seat.cell, cgroup: seat.cgroup.clone() };
        let keeper = Keeper::new(places, super::machines(self.directory), self.name.clone());
        self.keeper = Some(keeper.map_err(|error| error.to_string())?);
        Ok(Some(found))
    }

    fn tell(&mut self, told: Told) {
        match told {
            Told::Engine(process) => {
                if let Some(keeper) = &self.keeper {
                    keeper.process.store(process, Ordering::Relaxed);
                }
            }
            Told::Begun => {
                self.has_begun = true;
                let took_us = u32::try_from(self.started.elapsed().as_micros()).unwrap_or(u32::MAX);
                say(&Said::Begun(took_us));
                // Whoever waits for the end of this waits for no more.
                let _ = rustix::stdio::dup2_stdout(File::open("/dev/null").expect("there is one"));
            }
            Told::Replaced(_) => self.started = Instant::now(),
        }
    }

    fn way_to(&mut self, host: &str) -> Way {
        super::moving::way_to(host)
    }

    fn receive(&mut self, engine: &mut Engine, root: &Path, show: Show<'_>) -> Result<Rest, MoveError> {
        let arrival = self.arrival.take().ok_or_else(|| MoveError::Here("nothing comes".into()))?;
        let rest = match arrival.take_up(engine, root, show) {
            Ok(rest) => rest,
            Err(error) => {
                self.arrival = Some(arrival);
                return Err(error);
            }
        };
        // The agent waits for no more.
        let nothing = File::options().read(true).write(true).open("/dev/null");
        let _ = nothing
            .map(|nothing| rustix::stdio::dup2_stdin(&nothing).and(rustix::stdio::dup2_stdout(&nothing)));
        Ok(rest)
    }
}

/// A thread that hears the agent.
struct Keeper {
    process: Arc<AtomicU32>,
    over: Arc<OwnedFd>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Keeper {
    fn new(mut places: Places, machines: Machines, name: Name) -> std::io::Result<Self> {
        let over = Arc::new(rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC)?);
        let process = Arc::new(AtomicU32::new(0));
        let (is_over, engine) = (Arc::clone(&over), Arc::clone(&process));
        let keeps = move || {
            let mut told = 0;
            loop {
                let now = engine.load(Ordering::Relaxed);
                if now != told {
                    places.began(0, now);
                    told = now;
                }
                match places.hear(BETWEEN_LOOKS, &*is_over) {
                    Some(TaskOrder::End { .. }) => {
                        // Nothing is waited for: the monitor may wait for this thread's end, because its engine has gone.
                        let reached = machines.reach(&name);
                        let _ = reached.and_then(|mut line| line.say(&Ask::Stop { limit_ms: END_LIMIT_MS }));
                    }
                    // The engine has gone with the cell: its monitor sees that.
                    Some(TaskOrder::CellLost { .. }) | None => {}
                }
                if is_set(&is_over) {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("comb-places".into()).spawn(keeps)?;
        Ok(Self { process, over, thread: Some(thread) })
    }
}

fn is_set(event: &OwnedFd) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    poll(&mut [PollFd::new(event, PollFlags::IN)], Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))
        .is_ok_and(|ready| ready > 0)
}

impl Drop for Keeper {
    fn drop(&mut self) {
        let _ = rustix::io::write(&*self.over, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
