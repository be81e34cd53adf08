//! iceoryx2 between two processes, as an opponent in Comb's network benchmark.
//!
//! The program starts itself a second time; the two open all services, then measure. iceoryx2 keeps its files in the
//! directory given, which its caller removes with `/dev/shm/NAME-*`, NAME being the directory's own: it drops nearly
//! everything itself, but leaves one segment for the nodes of a next run.

mod line;
mod measure;
mod payload;

use std::{
    env,
    error::Error,
    io::{self, Read, Write},
    process::{self, Child, ChildStdin, ChildStdout, Command, Stdio},
    thread,
};

use iceoryx2::prelude::*;
use iceoryx2_bb_elementary::package_version::PackageVersion;
use rustix::{
    process::{Signal, set_parent_process_death_signal},
    thread::{CpuSet, sched_setaffinity},
};

use crate::{line::Side, measure::Lines};

type Outcome<T> = Result<T, Box<dyn Error>>;

const ASKER_CPU: usize = 0;
const ANSWERER_CPU: usize = 1;

/// Before iceoryx2 is touched, so that its memory starts on the CPU that uses it.
fn settle_on_cpu(cpu: usize) -> Outcome<()> {
    let mut cpus = CpuSet::new();
    cpus.set(cpu);
    sched_setaffinity(None, &cpus)?;
    set_parent_process_death_signal(Some(Signal::KILL))?;
    Ok(())
}

/// A node whose files are in `directory`, and whose shared memory is named after the last part of its path.
fn node_in(directory: &str) -> Outcome<Node<ipc::Service>> {
    let mark = directory.rsplit('/').next().unwrap_or(directory);
    let mut config = Config::default();
    config.global.set_root_path(&Path::new(directory.as_bytes())?);
    config.global.prefix = FileName::new(format!("{mark}-").as_bytes())?;
    Ok(NodeBuilder::new().config(&config).create::<ipc::Service>()?)
}

/// Each side says that it has come so far and waits until the other has.
fn meet(output: &mut impl Write, input: &mut impl Read) -> Outcome<()> {
    output.write_all(b".")?;
    output.flush()?;
    input.read_exact(&mut [0])?;
    Ok(())
}

/// Opens this side's ends of all lines and joins them to the other's.
fn open_lines(
    node: &Node<ipc::Service>,
    side: Side,
    output: &mut impl Write,
    input: &mut impl Read,
) -> Outcome<Lines> {
    let lines = Lines::open(node, side)?;
    meet(output, input)?;
    lines.connect()?;
    meet(output, input)?;
    Ok(lines)
}

fn ask(directory: &str, mut output: ChildStdin, mut input: ChildStdout) -> Outcome<()> {
    let node = node_in(directory)?;
    let mut lines = open_lines(&node, Side::Asker, &mut output, &mut input)?;
    lines.ask(PackageVersion::get_str())?;
    meet(&mut output, &mut input)
}

fn answer(directory: &str) -> Outcome<()> {
    settle_on_cpu(ANSWERER_CPU)?;
    let (mut output, mut input) = (io::stdout(), io::stdin());
    let node = node_in(directory)?;
    let mut lines = open_lines(&node, Side::Answerer, &mut output, &mut input)?;
    lines.answer()?;
    meet(&mut output, &mut input)
}

/// Leaves at once if the answerer fails: the asker would spin for its messages for ever.
fn wait_for(mut answerer: Child) {
    match answerer.wait() {
        Ok(status) if status.success() => {}
        outcome => {
            eprintln!("the answering process failed: {outcome:?}");
            process::exit(1);
        }
    }
}

fn start(directory: &str) -> Outcome<()> {
    settle_on_cpu(ASKER_CPU)?;
    let mut answerer = Command::new(env::current_exe()?)
        .args([directory, "answer"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let output = answerer.stdin.take().ok_or("no pipe to the answerer")?;
    let input = answerer.stdout.take().ok_or("no pipe from the answerer")?;
    let watcher = thread::spawn(|| wait_for(answerer));
    ask(directory, output, input)?;
    watcher.join().map_err(|_| "the watching thread failed".into())
}

fn main() -> Outcome<()> {
    set_log_level(LogLevel::Error);
    let arguments: Vec<String> = env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [directory] => start(directory),
        [directory, "answer"] => answer(directory),
        _ => Err("usage: iceoryx2_peer DIRECTORY".into()),
    }
}
