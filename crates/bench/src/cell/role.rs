//! What the processes do that this benchmark starts: this program once more, as `bench-side cell`, with a role in its environment.

use std::process::{Command, Output, Stdio};

use super::{batch, calls, failures, firewall, guarded, pages, rest, writable};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const VARIABLE: &str = "COMB_BENCH_CELL";

/// Loads from what it imports, by the line that is behind it.
pub(super) const LOADS: &str = "loads";
/// Stores to it.
pub(super) const STORES: &str = "stores";
/// Touches what it imports and is shown nothing.
pub(super) const IS_STOPPED: &str = "is_stopped";
/// Stores to pages of a named region, each for the first time.
pub(super) const STORES_FIRST: &str = "stores_first";
/// Calls, and is called.
pub(super) const CALLS: &str = "calls";
pub(super) const IS_CALLED: &str = "is_called";
/// Touches pages of a region, and of a plain mapping, for the first time.
pub(super) const TOUCHES: &str = "touches";
/// Reads pages of a region, as one of a batch.
pub(super) const READS: &str = "reads";
/// A program whose memory is a region, or a plain mapping.
pub(super) const GRID: &str = "grid";
/// Has so many pages of a region to store to, and does nothing.
pub(super) const HOLDS: &str = "holds";
/// Stores to pages of a region for a while, as one of a batch.
pub(super) const WRITES: &str = "writes";
/// Wakes as often as a cell, and does nothing.
pub(super) const WAKES: &str = "wakes";
/// Takes a core.
pub(super) const HOGS: &str = "hogs";
/// Computes for some tens of milliseconds.
pub(super) const COMPUTES: &str = "computes";

/// Starts a process with a role, without input; what it has to say against it is seen.
pub(super) fn command(role: &str) -> std::io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["bench-side", "cell"]).env(VARIABLE, role).stdin(Stdio::null()).stderr(Stdio::inherit());
    Ok(command)
}

/// As components of a task: `comb run` with these options.
pub(super) fn task(role: &str, options: &[&str]) -> std::io::Result<Command> {
    let program = std::env::current_exe()?;
    let mut command = Command::new(&program);
    command.arg("run").args(options).arg("--").arg(&program).args(["bench-side", "cell"]);
    command.env(VARIABLE, role).stdin(Stdio::null()).stderr(Stdio::inherit());
    Ok(command)
}

/// What a process has printed, a number a line.
pub(super) fn numbers(output: &Output) -> Outcome<Vec<f64>> {
    if !output.status.success() {
        return Err(format!("a measured process has failed: {}", output.status).into());
    }
    let printed = std::str::from_utf8(&output.stdout)?;
    Ok(printed.lines().map(str::parse).collect::<Result<_, _>>()?)
}

/// What a process has printed, a name and a number a line.
pub(super) fn named(output: &Output) -> Outcome<Vec<(String, f64)>> {
    if !output.status.success() {
        return Err(format!("a measured process has failed: {}", output.status).into());
    }
    let line = |line: &str| {
        let (name, number) = line.rsplit_once(' ')?;
        Some((name.to_owned(), number.parse().ok()?))
    };
    Ok(std::str::from_utf8(&output.stdout)?.lines().filter_map(line).collect())
}

/// Does what its role is.
pub(crate) fn run() -> Outcome<()> {
    let role = std::env::var(VARIABLE)?;
    let words: Vec<&str> = role.split_whitespace().collect();
    match words[..] {
        [LOADS, line] => firewall::load_for_ever(line.parse()?),
        [STORES, line] => firewall::store_for_ever(line.parse()?),
        [IS_STOPPED, line] => firewall::be_stopped(line.parse()?),
        [STORES_FIRST] => firewall::store_first(),
        [CALLS] => calls::call(),
        [IS_CALLED, room, bare, process, shown] => {
            calls::be_called(room.as_ref(), bare, process.parse()?, shown)
        }
        [TOUCHES, plain] => pages::touch(plain),
        [READS, pages] => pages::read(pages.parse()?),
        [GRID, memory] => guarded::run(memory),
        [HOLDS, region, pages] => failures::hold(region, pages.parse()?),
        [WRITES, region, part] => writable::write(region, part.parse()?),
        [WAKES] => rest::wake(),
        [HOGS] => failures::hog(),
        [COMPUTES] => batch::compute(),
        _ => Err(format!("{role:?} is no role").into()),
    }
}
