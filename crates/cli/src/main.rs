//! The `comb` command.

mod agent;
mod bench;
mod cell;
mod dashboard;
mod demo;
mod doctor;
mod down;
mod events;
mod failure;
mod host;
mod inject;
mod log;
mod output;
mod ps;
mod region;
mod report;
mod reproduce;
mod run;
mod sim;
mod table;
mod task;
mod top;
mod up;
mod wax;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::failure::Failure;
use crate::output::Output;

/// One computer made of many cells: what breaks is lost, the rest carries on.
#[derive(Debug, Parser)]
#[command(name = "comb", version, after_help = AFTER_HELP, max_term_width = 100)]
struct Arguments {
    #[command(flatten)]
    output: output::Options,
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

Environment:
  COMB_RUNTIME_DIR      where the agent and its cells are found; another directory, other cells
                        (else $XDG_RUNTIME_DIR/comb, else /tmp/comb-<uid>)
  COMB_WITHOUT          kernel mechanisms to do without, such as membarrier,socket_pidfd, or all (see comb doctor)";

#[derive(Debug, Subcommand)]
enum Command {
    /// Start cells on this machine and connect them
    Up(up::Up),
    /// List the cells and their agent
    Ps(ps::Ps),
    /// Kill or start one cell
    Cell(cell::Cell),
    /// Show what has happened, and how each failure went
    Events(events::Events),
    /// Watch cells, tasks and failures in the terminal
    Top(top::Top),
    /// Say where the dashboard is
    Dashboard(dashboard::Dashboard),
    /// Show what the agent and the cells have written down
    Log(log::Log),
    /// End all cells and their agent, and leave nothing behind
    Down(down::Down),
    /// Run a program on many cells
    Run(Box<run::Run>),
    /// List, show and end what runs on the cells
    Task(task::Task),
    /// Memory with a name, that lives in a cell and outlives programs
    Region(region::Region),
    /// See four cells at work, one of them killed, and the others carrying on
    Demo(demo::Demo),
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
    DemoProgram(demo::DemoProgram),
    #[command(hide = true)]
    BenchSide(bench::BenchSide),
    #[command(hide = true)]
    Host(host::Host),
    #[command(hide = true)]
    RunPart(run::RunPart),
    #[command(hide = true)]
    Wax(wax::Wax),
}

fn main() -> ExitCode {
    let arguments = match read_arguments() {
        Ok(arguments) => arguments,
        Err(code) => return code,
    };
    let output = Output::of(&arguments.output);
    let outcome = comb_net::mechanism::check_environment()
        .map_err(|error| Failure::usage(error.to_string()))
        .and_then(|()| match arguments.command {
            Command::Up(up) => up.run(output),
            Command::Ps(ps) => ps.run(output),
            Command::Cell(cell) => cell.run(output),
            Command::Log(log) => log.run(output),
            Command::Events(events) => events.run(output),
            Command::Top(top) => top.run(output),
            Command::Dashboard(dashboard) => dashboard.run(output),
            Command::Down(down) => down.run(output),
            Command::Demo(demo) => demo.run(output),
            Command::DemoProgram(program) => program.run(),
            Command::Doctor(doctor) => doctor.run(output),
            Command::Bench(bench) => bench.run(output),
            Command::Reproduce(reproduce) => reproduce.run(output),
            Command::Sim(sim) => sim.run(output),
            Command::Inject(inject) => inject.run(output),
            Command::InjectProgram(program) => program.run(),
            Command::BenchSide(side) => side.run(),
            Command::Host(host) => host.run(output),
            Command::Run(run) => run.run(output),
            Command::Region(region) => region.run(output),
            Command::Task(task) => task.run(output),
            Command::RunPart(part) => part.run(),
            Command::Wax(wax) => wax.run(),
        });
    match outcome {
        Ok(code) => code,
        // Whoever reads our output has read enough.
        Err(failure) if failure.is_closed_pipe() => ExitCode::SUCCESS,
        Err(failure) => {
            output.fail(&failure);
            failure.exit_code()
        }
    }
}

/// As clap tells of wrong ones; to programs in their own way.
fn read_arguments() -> Result<Arguments, ExitCode> {
    let asked = output::guess(std::env::args_os());
    let command = Arguments::command().color((&asked).into());
    let read = command.try_get_matches().and_then(|matches| Arguments::from_arg_matches(&matches));
    read.map_err(|error| {
        let output = Output::of(&asked);
        if error.use_stderr() && output.is_json() {
            let failure = Failure::usage(sentence(&error));
            output.fail(&failure);
            return failure.exit_code();
        }
        let _ = error.print();
        ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
    })
}

/// What is wrong and what was perhaps meant, without the usage.
fn sentence(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let said = text.split("\n\nUsage:").next().unwrap_or_default();
    let said = said.split("\n\nFor more information").next().unwrap_or_default();
    let lines: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.join(" ").trim_start_matches("error: ").to_owned()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_arguments_are_consistent() {
        <super::Arguments as clap::CommandFactory>::command().debug_assert();
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
