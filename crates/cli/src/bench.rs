//! `comb bench NAME`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};

use crate::failure::Failure;

/// What can be measured.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Name {
    /// The wire, beside Open MPI, UCX, iceoryx2, libfabric and sockets
    Net,
    /// Membership and ordered update, beside corosync and the classic way
    Membership,
    /// Shared memory, beside private memory, threads and a page cache over Open MPI
    Memory,
    /// Programs compiled for many cells, beside the same compiled by clang alone
    Cc,
}

/// What of `cc` can be measured alone.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Part {
    /// Single loads, stores and misses
    Accesses,
    /// One thread in one process, by clang's
    Hits,
    /// Two components that share page frames, by two threads
    Import,
    /// Two components with copies, check by page
    Copies,
    /// Two hosts of one core, by one
    Hosts,
    /// Whether 32 components are right
    Many,
    /// What compiling takes, by clang's
    Compiling,
}

impl From<Part> for comb_bench::cc::Part {
    fn from(part: Part) -> Self {
        match part {
            Part::Accesses => Self::Accesses,
            Part::Hits => Self::Hits,
            Part::Import => Self::Import,
            Part::Copies => Self::Copies,
            Part::Hosts => Self::Hosts,
            Part::Many => Self::Many,
            Part::Compiling => Self::Compiling,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct Bench {
    /// What to measure
    #[arg(value_enum, default_value_t = Name::Net)]
    name: Name,
    /// One JSON object a line: claim, ours, unit, peer, theirs, ratio, goal, met
    #[arg(long)]
    json: bool,
    /// More rounds; takes a few minutes
    #[arg(long)]
    full: bool,
    /// Of cc, only this
    #[arg(long, value_enum)]
    only: Option<Part>,
}

impl Bench {
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        if self.only.is_some() && !matches!(self.name, Name::Cc) {
            return Err(Failure::new(
                "--only is for comb bench cc: the others are measured as a whole".to_owned(),
            ));
        }
        match self.name {
            Name::Net => comb_bench::net::run(self.full, self.json),
            Name::Memory => {
                comb_bench::memory::run(self.full, self.json)
                    .map_err(|error| Failure::new(error.to_string()))?;
            }
            Name::Cc => {
                comb_bench::cc::run(self.only.map(Into::into), self.full, self.json)
                    .map_err(|error| Failure::new(error.to_string()))?;
            }
            Name::Membership => {
                comb_bench::membership::run(self.full, self.json)
                    .map_err(|error| Failure::new(error.to_string()))?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// One of the measured processes.
#[derive(Debug, Args)]
pub(crate) struct BenchSide {
    name: String,
    /// The other process's folder and what else it tells, for the side that answers
    #[arg(long, num_args = 2)]
    answer: Vec<PathBuf>,
    /// Of a farm
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=20_000))]
    nodes: Option<u32>,
}

impl BenchSide {
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        let outcome = match &self.answer[..] {
            [room, told] => comb_bench::side::answer(&self.name, room, told),
            _ => comb_bench::side::ask(&self.name, self.nodes),
        };
        outcome.map_err(|error| Failure::new(error.to_string()))?;
        Ok(ExitCode::SUCCESS)
    }
}
