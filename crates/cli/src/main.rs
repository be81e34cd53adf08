//! The `comb` command.

mod agent;
mod bench;
mod cell;
mod completion;
mod config;
mod dashboard;
mod demo;
mod doctor;
mod down;
mod events;
mod failure;
mod host;
mod inject;
mod join;
mod kernel;
mod leave;
mod log;
mod output;
mod progress;
mod ps;
mod region;
mod report;
mod reproduce;
mod run;
mod sim;
mod suggest;
mod table;
mod task;
mod token;
mod top;
mod trace;
mod up;
mod version;
mod vm;
mod wax;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::config::Config;
use crate::failure::{Failure, Outcome};
use crate::output::Output;

/// One computer made of many cells: what breaks is lost, the rest carries on.
#[derive(Debug, Parser)]
#[command(name = "comb", version, after_help = AFTER_HELP, max_term_width = 100)]
struct Arguments {
    #[command(flatten)]
    output: output::Options,
    #[command(flatten)]
    configuration: config::Options,
    #[command(subcommand)]
    command: Command,
}

const AFTER_HELP: &str = "\
A first look:
  comb up --cells 4        start four cells
  comb ps                  see them; comb dashboard: in a browser
  comb cell kill 2         kill one; the others notice, and it is started again
  comb events --failures   read who noticed, and how each step went
  comb down                end everything

More hosts:
  comb token            on one host: prints what lets another in
  comb join --token T   on the other: its cells are of the same comb from now on
  comb host ls          see the hosts

Exit status:
  0  done                                  4  no such cell, task, region or host
  1  failed                                5  not permitted, or refused
  2  wrong usage                           6  no answer in time
  3  no comb is running here               comb run: the program's own; 124 after --limit

Environment:
  COMB_RUNTIME_DIR      where the agent and its cells are found; another directory, other cells
                        (else /run/comb if it is yours, else $XDG_RUNTIME_DIR/comb, else for root /run/comb, else /tmp/comb-<uid>; with a name, comb-NAME)
  COMB_STATE_DIR        where a host keeps its key and who belongs to its comb
                        (else /var/lib/comb for root, else $XDG_STATE_HOME/comb, else ~/.local/state/comb)
  COMB_WITHOUT          kernel mechanisms to do without, such as membarrier,socket_pidfd, or all (see comb doctor)
  COMB_CONFIG           the configuration file; COMB_NAME, COMB_CELLS and others count more (see comb config show)
  NO_COLOR              no colours";

#[derive(Debug, Subcommand)]
enum Command {
    /// Start cells on this machine and connect them
    Up(up::Up),
    /// List the cells and their agent
    Ps(ps::Ps),
    /// List, kill, hang, drain, restart and add cells
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
    /// Print a token, with which another host joins these cells
    Token(token::Token),
    /// Have this host join the cells of others, or come back to them
    Join(join::Join),
    /// End this host's cells, and leave the comb for good
    Leave(leave::Leave),
    /// Run a program on many cells
    Run(Box<run::Run>),
    /// List, show and end what runs on the cells
    Task(task::Task),
    /// Memory with a name, that lives in a cell and outlives programs
    Region(region::Region),
    /// See four cells at work, one of them killed, and the others carrying on
    Demo(demo::Demo),
    /// List the hosts, or be the agent of one
    Host(host::Host),
    /// Show what is configured, or check a file
    Config(config::Configuration),
    /// Say what this machine can do, and what to do about what it cannot
    Doctor(doctor::Doctor),
    /// Record what programs do with files, and see what may be said of it
    Trace(trace::Trace),
    /// Run programs on a cache kernel, where they reach nothing but what they are given
    Kernel(kernel::Kernel),
    /// Virtual machines, which share what they have in common and fail alone
    Vm(Box<vm::Vm>),
    /// Measure Comb beside its peers
    Bench(bench::Bench),
    /// Measure again what a paper claims, beside the classic way
    Reproduce(reproduce::Reproduce),
    /// Run the protocols in a seeded world, with faults
    Sim(sim::Sim),
    /// Make cells fail in every way there is, and see whether the others carry on
    Inject(inject::Inject),
    /// Print what a shell needs to complete this command's words
    Completion(completion::Completion),
    /// Print which comb this is, and whom it understands
    Version(version::Show),
    #[command(hide = true)]
    Man(completion::Man),
    #[command(hide = true)]
    InjectProgram(inject::InjectProgram),
    #[command(hide = true)]
    DemoProgram(demo::DemoProgram),
    #[command(hide = true)]
    BenchSide(bench::BenchSide),
    #[command(hide = true)]
    RunPart(run::RunPart),
    #[command(hide = true)]
    VmMonitor(vm::VmMonitor),
    #[command(hide = true)]
    VmDisk(vm::VmDisk),
    #[command(hide = true)]
    VmSwitch(vm::VmSwitch),
    #[command(hide = true)]
    Wax(wax::Wax),
}

impl Command {
    fn run(self, output: Output, options: &config::Options) -> Outcome {
        match self {
            // These go by nothing but their arguments.
            Self::Completion(completion) => return completion.run(&Arguments::command(), output),
            Self::Man(man) => return man.run(Arguments::command(), output),
            Self::Version(version) => return version.run(output),
            Self::Config(config) => return config.run(output, options),
            _ => {}
        }
        // Parts of a comb were told all by who started them, and are not to fail for a file that is being written.
        let config = if self.is_part() { Config::default() } else { Config::read(options)? };
        config::adopt(&config)?;
        comb_net::mechanism::check_environment().map_err(|error| Failure::usage(error.to_string()))?;
        match self {
            Self::Up(up) => up.run(output, &config),
            Self::Ps(ps) => ps.run(output),
            Self::Cell(cell) => cell.run(output),
            Self::Log(log) => log.run(output),
            Self::Events(events) => events.run(output),
            Self::Top(top) => top.run(output),
            Self::Token(token) => token.run(output, &config),
            Self::Join(join) => join.run(output, &config),
            Self::Leave(leave) => leave.run(output),
            Self::Dashboard(dashboard) => dashboard.run(output),
            Self::Demo(demo) => demo.run(output),
            Self::DemoProgram(program) => program.run(),
            Self::Down(down) => down.run(output),
            Self::Doctor(doctor) => doctor.run(output),
            Self::Trace(trace) => trace.run(output),
            Self::Kernel(kernel) => kernel.run(output),
            Self::Vm(vm) => vm.run(output, &config),
            Self::VmMonitor(monitor) => monitor.run(),
            Self::VmDisk(disk) => Ok(disk.run()),
            Self::VmSwitch(switch) => Ok(switch.run()),
            Self::Bench(bench) => bench.run(output),
            Self::Reproduce(reproduce) => reproduce.run(output),
            Self::Sim(sim) => sim.run(output),
            Self::Inject(inject) => inject.run(output),
            Self::InjectProgram(program) => program.run(),
            Self::BenchSide(side) => side.run(),
            Self::Host(host) => host.run(output, &config),
            Self::Run(run) => run.run(output, &config),
            Self::Region(region) => region.run(output),
            Self::Task(task) => task.run(output),
            Self::RunPart(part) => part.run(),
            Self::Wax(wax) => wax.run(),
            Self::Completion(_) | Self::Man(_) | Self::Version(_) | Self::Config(_) => {
                unreachable!("run above")
            }
        }
    }

    /// What is started by other commands only.
    fn is_part(&self) -> bool {
        match self {
            Self::InjectProgram(_)
            | Self::DemoProgram(_)
            | Self::BenchSide(_)
            | Self::RunPart(_)
            | Self::VmMonitor(_)
            | Self::VmDisk(_)
            | Self::VmSwitch(_)
            | Self::Wax(_) => true,
            Self::Dashboard(dashboard) => dashboard.is_part(),
            Self::Cell(cell) => cell.is_part(),
            _ => false,
        }
    }
}

fn main() -> ExitCode {
    let arguments = match read_arguments() {
        Ok(arguments) => arguments,
        Err(code) => return code,
    };
    let output = Output::of(&arguments.output);
    let outcome = arguments.command.run(output, &arguments.configuration);
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

    /// What is global goes before a command and behind it, also where a command has an argument of that name.
    #[test]
    fn global_options_are_everywhere() {
        use clap::Parser;
        for line in [
            "comb --name b -o json region rm tally",
            "comb region rm tally --name b --json",
            "comb reproduce hive --config c.toml -o json",
            "comb region create t --size 1M --name b --color never",
        ] {
            super::Arguments::try_parse_from(line.split(' '))
                .unwrap_or_else(|error| panic!("{line}: {error}"));
        }
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
