//! The `comb` command.

mod agent;
mod bench;
mod cell;
mod doctor;
mod down;
mod failure;
mod host;
mod inject;
mod join;
mod leave;
mod log;
mod ps;
mod region;
mod report;
mod reproduce;
mod run;
mod sim;
mod table;
mod task;
mod token;
mod up;
mod wax;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::failure::Failure;

/// One computer made of many cells: what breaks is lost, the rest carries on.
#[derive(Debug, Parser)]
#[command(name = "comb", version, after_help = AFTER_HELP, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

const AFTER_HELP: &str = "\
A first look:
  comb up --cells 4     start four cells
  comb ps               see them
  comb cell kill 2      kill one; the others notice
  comb log              read who noticed, and when
  comb cell start 2     start it again
  comb down             end everything

More hosts:
  comb token            on one host: prints what lets another in
  comb join --token T   on the other: its cells are of the same comb from now on
  comb host ls          see the hosts

Environment:
  COMB_RUNTIME_DIR      where the agent and its cells are found; another directory, other cells
                        (else $XDG_RUNTIME_DIR/comb, else /tmp/comb-<uid>)
  COMB_STATE_DIR        where a host keeps its key and who belongs to its comb
                        (else /var/lib/comb for root, else $XDG_STATE_HOME/comb, else ~/.local/state/comb)
  COMB_WITHOUT          kernel mechanisms to do without, such as membarrier,socket_pidfd, or all (see comb doctor)";

#[derive(Debug, Subcommand)]
enum Command {
    /// Start cells on this machine and connect them
    Up(up::Up),
    /// List the cells and their agent
    Ps(ps::Ps),
    /// Kill or start one cell
    Cell(cell::Cell),
    /// Show what the agent and the cells have written down
    Log(log::Log),
    /// End all cells and their agent, and leave nothing behind
    Down(down::Down),
    /// Print a token, with which another host joins these cells
    Token(token::Token),
    /// Have this host join the cells of others, or come back to them
    Join(join::Join),
    /// End this host's cells, and leave the comb for good
    Leave(leave::Leave),
    /// The hosts of the comb; without a command: the agent itself
    Host(host::Host),
    /// Run a program on many cells
    Run(Box<run::Run>),
    /// List, show and end what runs on the cells
    Task(task::Task),
    /// Memory with a name, that lives in a cell and outlives programs
    Region(region::Region),
    /// Say what this machine can do, and what to do about what it cannot
    Doctor(doctor::Doctor),
    /// Measure Comb beside its peers
    Bench(bench::Bench),
    /// Measure again what a paper claims, beside the classic way
    Reproduce(reproduce::Reproduce),
    /// Run the protocols in a seeded world, with faults
    Sim(sim::Sim),
    /// Make cells fail in every way there is, and see whether the others carry on
    Inject(inject::Inject),
    #[command(hide = true)]
    InjectProgram(inject::InjectProgram),
    #[command(hide = true)]
    BenchSide(bench::BenchSide),
    #[command(hide = true)]
    RunPart(run::RunPart),
    #[command(hide = true)]
    Wax(wax::Wax),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = comb_net::mechanism::check_environment().map_err(Failure::from).and_then(|()| {
        match arguments.command {
            Command::Up(up) => up.run(),
            Command::Ps(ps) => ps.run(),
            Command::Cell(cell) => cell.run(),
            Command::Log(log) => log.run(),
            Command::Down(down) => down.run(),
            Command::Doctor(doctor) => doctor.run(),
            Command::Bench(bench) => bench.run(),
            Command::Reproduce(reproduce) => reproduce.run(),
            Command::Sim(sim) => sim.run(),
            Command::Inject(inject) => inject.run(),
            Command::InjectProgram(program) => program.run(),
            Command::BenchSide(side) => side.run(),
            Command::Token(token) => token.run(),
            Command::Join(join) => join.run(),
            Command::Leave(leave) => leave.run(),
            Command::Host(host) => host.run(),
            Command::Run(run) => run.run(),
            Command::Region(region) => region.run(),
            Command::Task(task) => task.run(),
            Command::RunPart(part) => part.run(),
            Command::Wax(wax) => wax.run(),
        }
    });
    match outcome {
        Ok(code) => code,
        // Whoever reads our output has read enough.
        Err(failure) if failure.is_closed_pipe() => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("comb: {failure}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_arguments_are_consistent() {
        use clap::CommandFactory;
        super::Arguments::command().debug_assert();
    }

    /// `make bench` names nothing, and ended with a usage error.
    #[test]
    fn what_make_bench_runs_is_understood() {
        use clap::Parser;
        for arguments in [&["comb", "bench"][..], &["comb", "bench", "--json"], &["comb", "bench", "net"]] {
            super::Arguments::try_parse_from(arguments).unwrap();
        }
    }
}
