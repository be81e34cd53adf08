//! `comb trace store`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use comb_trace::store::{StoreError, TABLES_FOLDER, ensure_tables};
use serde_json::json;

use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::progress::Progress;

const EXAMPLES: &str = "\
The tables are Parquet files: a folder for each table, a file for each recording in it. What they hold is in docs/tracing.md.

Examples:
  comb trace store comb-trace-…
  duckdb -c \"SELECT operation, count(*) FROM 'comb-trace-…/tables/trace/*.parquet' JOIN 'comb-trace-…/tables/operation/*.parquet'
             USING (operation_id) GROUP BY 1 ORDER BY 2 DESC\"";

/// Makes tables of recordings
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Store {
    /// A directory with recordings
    directory: PathBuf,
}

impl Store {
    pub(crate) fn run(self, output: Output) -> Outcome {
        tables(output, &self.directory)?;
        let tables = self.directory.join(TABLES_FOLDER);
        output.tell(&json!({ "tables": tables }), tables.display())?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Makes the tables of a directory, if need be, and says what is wrong with its recordings.
pub(super) fn tables(output: Output, directory: &std::path::Path) -> Result<(), Failure> {
    let progress = Progress::begin(output, format!("making tables of {}", directory.display()));
    let damaged = ensure_tables(directory, &mut |_| {}).map_err(failed)?;
    drop(progress);
    for (path, error) in damaged {
        output.warn(format!("{}: {error}", path.display()));
    }
    Ok(())
}

/// A directory without a recording is not found.
pub(super) fn failed(error: StoreError) -> Failure {
    match error {
        StoreError::Nothing(_) => Failure::not_found(error.to_string()),
        StoreError::Io { error: ref cause, .. } if cause.kind() == std::io::ErrorKind::NotFound => {
            Failure::not_found(error.to_string())
        }
        _ => error.into(),
    }
}
