//! `comb bench NAME`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};

use crate::failure::Failure;
use crate::output::Output;

/// What can be measured. As JSON, an object a line: claim, ours, unit, peer, theirs, ratio, goal, met.
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
    /// Cells: careful reads, the firewall, calls, failures, what they take at rest and from programs
    Cell,
    /// The command and the page, as people wait for them
    Product,
    /// Recording what programs do with files, beside strace and perf trace
    Trace,
    /// The cache kernel: calls and faults of programs, loads of its objects, beside ptrace and the host
    Kernel,
    /// Virtual machines of one image: their memory, their beginning and their failures, beside plain QEMU
    Vm,
}

/// What of `cc` can be measured alone.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum CcPart {
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

impl From<CcPart> for comb_bench::cc::Part {
    fn from(part: CcPart) -> Self {
        match part {
            CcPart::Accesses => Self::Accesses,
            CcPart::Hits => Self::Hits,
            CcPart::Import => Self::Import,
            CcPart::Copies => Self::Copies,
            CcPart::Hosts => Self::Hosts,
            CcPart::Many => Self::Many,
            CcPart::Compiling => Self::Compiling,
        }
    }
}

/// What of `cell` can be measured alone.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum CellPart {
    /// Reading what other cells show
    Careful,
    /// Rights to store to another cell's pages
    Firewall,
    /// Calls between cells
    Rpc,
    /// First loads of another cell's pages
    Fault,
    /// Failures, from the fault until work goes on
    Recovery,
    /// What cells take that have nothing to do
    Rest,
    /// Programs and batches on cells
    Programs,
}

impl From<CellPart> for comb_bench::cell::Part {
    fn from(part: CellPart) -> Self {
        match part {
            CellPart::Careful => Self::Careful,
            CellPart::Firewall => Self::Firewall,
            CellPart::Rpc => Self::Rpc,
            CellPart::Fault => Self::Fault,
            CellPart::Recovery => Self::Recovery,
            CellPart::Rest => Self::Rest,
            CellPart::Programs => Self::Programs,
        }
    }
}

/// What of `vm` can be measured alone.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum VmPart {
    /// What eight machines of one image take that read the same
    Density,
    /// From nothing until the first word
    Starting,
    /// What others see of a machine that is killed, and what takes its place
    Failing,
    /// Reads of disks
    Disks,
    /// What goes from machine to machine, and what is left of it beside a flood
    Networks,
    /// Files that machines have in common
    Files,
    /// Machines that move to another host
    Moving,
    /// What engines cost
    Engines,
    /// Pages that move between the nodes of a machine's memory
    Nodes,
    /// Memory that moves between machines
    Memory,
    /// Programs that are alone in a machine
    Programs,
}

impl From<VmPart> for comb_bench::vm::Part {
    fn from(part: VmPart) -> Self {
        match part {
            VmPart::Density => Self::Density,
            VmPart::Starting => Self::Starting,
            VmPart::Failing => Self::Failing,
            VmPart::Disks => Self::Disks,
            VmPart::Networks => Self::Networks,
            VmPart::Files => Self::Files,
            VmPart::Moving => Self::Moving,
            VmPart::Engines => Self::Engines,
            VmPart::Nodes => Self::Nodes,
            VmPart::Memory => Self::Memory,
            VmPart::Programs => Self::Programs,
        }
    }
}

/// The part of that name, or which there are.
fn part<P: ValueEnum>(name: &str, of: &str) -> Result<P, Failure> {
    P::from_str(name, false).map_err(|_| {
        let names = P::value_variants().iter().filter_map(P::to_possible_value);
        let names: Vec<String> = names.map(|value| value.get_name().to_owned()).collect();
        Failure::usage(format!("{name:?} is no part of comb bench {of}: {}", names.join(", ")))
    })
}

#[derive(Debug, Args)]
pub(crate) struct Bench {
    /// What to measure
    #[arg(value_enum, default_value_t = Name::Net)]
    name: Name,
    /// More rounds; takes a few minutes
    #[arg(long)]
    full: bool,
    /// Only this part. Of cc: accesses, hits, import, copies, hosts, many, compiling. Of cell: careful, firewall, rpc, fault, recovery,
    /// rest, programs. Of vm: density, starting, failing, disks, networks, files, moving, engines, nodes, memory, programs
    #[arg(long, value_name = "PART")]
    only: Option<String>,
}

impl Bench {
    pub(crate) fn run(&self, output: Output) -> Result<ExitCode, Failure> {
        if self.only.is_some() && !matches!(self.name, Name::Cc | Name::Cell | Name::Vm) {
            return Err(Failure::usage(
                "--only is for comb bench cc, cell and vm: the others are measured as a whole".to_owned(),
            ));
        }
        let only = self.only.as_deref();
        match self.name {
            Name::Net => comb_bench::net::run(self.full, output.is_json()),
            Name::Memory => {
                comb_bench::memory::run(self.full, output.is_json())
                    .map_err(|error| Failure::new(error.to_string()))?;
            }
            Name::Cc => {
                let only = only.map(|name| part::<CcPart>(name, "cc")).transpose()?;
                comb_bench::cc::run(only.map(Into::into), self.full, output.is_json())
                    .map_err(|error| Failure::new(error.to_string()))?;
            }
            Name::Cell => {
                let only = only.map(|name| part::<CellPart>(name, "cell")).transpose()?;
                comb_bench::cell::run(only.map(Into::into), self.full, output.is_json())
                    .map_err(|error| Failure::new(error.to_string()))?;
            }
            Name::Product => {
                comb_bench::product::run(self.full, output.is_json())
                    .map_err(|error| Failure::new(error.to_string()))?;
            }
            Name::Trace => {
                comb_bench::trace::run(self.full, output.is_json())
                    .map_err(|error| Failure::new(error.to_string()))?;
            }
            Name::Kernel => {
                comb_bench::kernel::run(self.full, output.is_json())
                    .map_err(|error| Failure::new(error.to_string()))?;
            }
            Name::Vm => {
                let only = only.map(|name| part::<VmPart>(name, "vm")).transpose()?;
                comb_bench::vm::run(only.map(Into::into), self.full, output.is_json())
                    .map_err(|error| Failure::new(error.to_string()))?;
            }
            Name::Membership => {
                comb_bench::membership::run(self.full, output.is_json())
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
