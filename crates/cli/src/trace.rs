//! `comb trace`: how files are really used.

mod agent;
mod collect;
mod collecting;
mod record;
mod replay;
mod report;
mod show;
mod snapshot;
mod sql;
mod store;
mod synth;
mod top;

use clap::{Args, Subcommand};

use crate::failure::Outcome;
use crate::output::Output;

const EXAMPLES: &str = "\
Examples:
  comb trace record -- make -j8          record what make and all that it starts do with files
  comb trace record -a --for 1h          record all processes of this machine for an hour
  comb trace agent alpha                 record it for a collector on host alpha, which runs comb trace collect DIR
  comb trace show comb-trace-…           read what happened, operation by operation
  comb trace report comb-trace-…         tables and figures, with what may be said of them and what not

Recording needs root (or CAP_BPF and CAP_PERFMON). Who is neither records a command through a library that programs load, which does not
see all; the trace says so. comb doctor tells what this kernel can do.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Trace {
    #[command(subcommand)]
    command: TraceCommand,
}

#[derive(Debug, Subcommand)]
enum TraceCommand {
    /// Record what programs do with files
    Record(record::Record),
    /// Record on this machine and send it to a collector on another host
    Agent(agent::Agent),
    /// Take what agents on other hosts record into a directory
    Collect(collect::Collect),
    /// Print a recording, operation by operation
    Show(show::Show),
    /// Show who does what with which files, as it happens
    Top(top::Top),
    /// Write tables and figures, with what may be said of them
    Report(report::Report),
    /// Make tables of recordings, which any SQL engine reads
    Store(store::Store),
    /// Ask the tables in SQL
    Sql(sql::Sql),
    /// Take down which files there are
    Snapshot(snapshot::Snapshot),
    /// Compare two snapshots
    #[command(visible_alias = "diff")]
    Difference(snapshot::Difference),
    /// Do again what was recorded, in a directory
    Replay(replay::Replay),
    /// Make a workload up, with the heavy tails and the pauses of a recorded one
    Synth(synth::Synth),
    /// Write what was recorded down for fio
    Fio(replay::Fio),
}

impl Trace {
    pub(crate) fn run(self, output: Output) -> Outcome {
        match self.command {
            TraceCommand::Record(record) => record.run(output),
            TraceCommand::Agent(agent) => agent.run(output),
            TraceCommand::Collect(collect) => collect.run(output),
            TraceCommand::Show(show) => show.run(output),
            TraceCommand::Top(top) => top.run(output),
            TraceCommand::Report(report) => report.run(output),
            TraceCommand::Store(store) => store.run(output),
            TraceCommand::Sql(sql) => sql.run(output),
            TraceCommand::Snapshot(snapshot) => snapshot.run(output),
            TraceCommand::Difference(difference) => difference.run(output),
            TraceCommand::Replay(replay) => replay.run(output),
            TraceCommand::Synth(synth) => synth.run(output),
            TraceCommand::Fio(fio) => fio.run(output),
        }
    }
}
