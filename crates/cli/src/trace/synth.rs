//! `comb trace synth`.

use std::fs::{self, File};
use std::io::{BufReader, BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use comb_trace::store::{RECORDING_ENDING, TABLES_FOLDER};
use comb_trace::synthesis::{Amount, Model, write_trace};
use serde_json::json;

use super::store::tables;
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::progress::Progress;

const EXAMPLES: &str = "\
What is made up is a recording: comb trace report, replay and fio take it. A model holds distributions with their tails, and no names.

Examples:
  comb trace synth comb-trace-… --to made --model ours.json      as what was recorded, and the model of it
  comb trace synth ours.json --to load --users 20 --seed 7       twenty such users, independent of each other
  comb trace synth thesis --to nt --sessions 1000000             as the thesis' text says of Windows NT
  comb trace replay load /mnt/new/sandbox";

/// Makes a workload up, with the heavy tails and the pauses of a recorded one
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Synth {
    /// A directory with recordings, a model's file, or `thesis`
    from: PathBuf,
    /// The directory to write the recording into: made if it is not there
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    /// How many files are opened
    #[arg(long, value_name = "COUNT", default_value_t = 100_000)]
    sessions: u64,
    /// How many users, each active and silent by turns [default: as in the model]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    users: Option<u32>,
    /// The same seed, the same workload
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write the model down
    #[arg(long, value_name = "FILE")]
    model: Option<PathBuf>,
}

impl Synth {
    pub(crate) fn run(self, output: Output) -> Outcome {
        let mut model = self.measured(output)?;
        model.sources = self.users.unwrap_or(model.sources);
        model.check().map_err(|error| Failure::new(format!("{}: {error}", self.from.display())))?;
        let failed =
            |path: &PathBuf, error: std::io::Error| Failure::new(format!("{}: {error}", path.display()));
        if let Some(path) = &self.model {
            let written = File::create(path).and_then(|file| model.write(BufWriter::new(file)));
            written.map_err(|error| failed(path, error))?;
        }
        fs::create_dir_all(&self.to).map_err(|error| failed(&self.to, error))?;
        let path = self.to.join(format!("synth-{}", self.seed)).with_extension(RECORDING_ENDING);
        let progress = Progress::begin(output, format!("making up {} sessions", self.sessions));
        let mut file =
            BufWriter::with_capacity(1 << 20, File::create_new(&path).map_err(|error| failed(&path, error))?);
        let written = write_trace(&model, self.seed, Amount::Sessions(self.sessions), &mut file);
        let events =
            written.and_then(|events| file.flush().map(|()| events)).map_err(|error| failed(&path, error))?;
        drop(progress);
        let object =
            json!({ "recording": path, "events": events, "sessions": self.sessions, "users": model.sources });
        output
            .tell(&object, format_args!("{events} events of {} users: {}", model.sources, path.display()))?;
        Ok(ExitCode::SUCCESS)
    }

    fn measured(&self, output: Output) -> Result<Model, Failure> {
        if self.from.is_dir() {
            tables(output, &self.from)?;
            return Ok(Model::of(&self.from.join(TABLES_FOLDER))?);
        }
        if self.from.as_os_str() == "thesis" {
            return Ok(Model::thesis());
        }
        let file = File::open(&self.from)
            .map_err(|error| Failure::not_found(format!("{}: {error}", self.from.display())))?;
        Model::read(BufReader::new(file))
            .map_err(|error| Failure::new(format!("{}: {error}", self.from.display())))
    }
}
