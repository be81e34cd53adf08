//! `comb host`: the agent. `comb up` runs it; by hand it takes over the cells of an agent that died.

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use comb_host::{MOST_CELLS, RuntimeDirectory, daemon};
use comb_net::agent::Limits;

use crate::failure::Outcome;

/// What the agent writes to standard output when it can be asked.
pub(crate) const READY: &str = "ready";

#[derive(Debug, Args)]
pub(crate) struct Host {
    /// How many cells to start, if there are none to take over.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_CELLS)))]
    cells: u32,
    /// Take everything down when standard input ends.
    #[arg(long)]
    end_with_stdin: bool,
    /// What its processes may hold.
    #[arg(long)]
    limits: Option<Limits>,
    /// Bytes of page frames that each cell may have.
    #[arg(long)]
    memory: Option<u64>,
    /// Have cells fail when they are told to.
    #[arg(long, hide = true)]
    faults: bool,
}

impl Host {
    pub(crate) fn run(self) -> Outcome {
        let directory = RuntimeDirectory::from_environment()?;
        let Self { cells, end_with_stdin, limits, memory, faults } = self;
        let limits = limits.unwrap_or_default();
        let options =
            daemon::Options { directory, cells, end_with_stdin, limits, memory_bytes: memory, faults };
        daemon::run(&options, || {
            // It may be gone by now; standard input tells of that.
            let _ = writeln!(std::io::stdout(), "{READY}");
            // Whoever waited for that word must not wait for more.
            if let Ok(nowhere) = std::fs::File::options().write(true).open("/dev/null") {
                let _ = rustix::stdio::dup2_stdout(nowhere);
            }
        })?;
        Ok(ExitCode::SUCCESS)
    }
}
