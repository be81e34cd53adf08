//! `comb reproduce NAME`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use comb_bench::reproduce::Paper;

use crate::failure::Outcome;
use crate::output::Output;

/// Whose claims. As JSON, an object a line: paper, item, paper_value, measured, baseline, unit, command, note.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Name {
    /// U-Net: endpoints, active messages, what they save over the kernel's way
    Unet,
    /// The Virtual Interface Architecture and the interfaces that it grew out of
    Via,
    /// MSCS's heartbeats, regroup, join and global update, and ours
    Mscs,
    /// Blizzard: access control at block grain, and what shared memory costs with it
    Blizzard,
    /// Hive: what it costs that cells are apart, and what comes of a failure
    Hive,
}

#[derive(Debug, Args)]
pub(crate) struct Reproduce {
    /// Which paper
    name: Name,
    /// Of hive, Table 7.4: what `comb inject --full -o json` has printed
    #[arg(long, value_name = "FILE")]
    injected: Option<PathBuf>,
}

impl Reproduce {
    pub(crate) fn run(&self, output: Output) -> Outcome {
        let paper = match self.name {
            Name::Unet => Paper::Unet,
            Name::Via => Paper::Via,
            Name::Mscs => Paper::Mscs,
            Name::Blizzard => Paper::Blizzard,
            Name::Hive => Paper::Hive,
        };
        comb_bench::reproduce::run(paper, output.is_json(), self.injected.as_deref())?;
        Ok(ExitCode::SUCCESS)
    }
}
