//! `comb trace sql`.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use clap::Args;
use comb_trace::store::{Kind, TABLES, TABLES_FOLDER};
use serde_json::json;

use super::store::tables;
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::table;

const EXAMPLES: &str = "\
The tables are those of comb trace store, and are made if need be; docs/tracing.md says what they hold. SQL is that of DataFusion. With -o json a
row is an object a line. The program that answers, comb-trace-sql, is no part of comb: make trace-sql builds it, make install-trace-sql installs it.

Examples:
  comb trace sql --tables                          tables and columns
  comb trace sql \"SELECT operation, count(*) AS times FROM trace JOIN operation USING (operation_id)
                  GROUP BY operation ORDER BY times DESC\" comb-trace-…
  comb trace sql \"DESCRIBE file\" comb-trace-…";

/// What answers: it takes longer to build than all of comb, and not everybody wants it.
const PROGRAM: &str = "comb-trace-sql";

/// Asks the tables in SQL
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Sql {
    /// What is asked
    #[arg(required_unless_present = "tables")]
    query: Option<String>,
    /// A directory with recordings, or with their tables
    #[arg(default_value = ".")]
    directory: PathBuf,
    /// List tables and columns instead
    #[arg(long, conflicts_with = "query")]
    tables: bool,
    /// How much memory a query may take, in bytes; K, M or G may follow. What does not fit goes to temporary files [default: half of
    /// what is free]
    #[arg(long, value_name = "BYTES", value_parser = crate::run::memory)]
    memory: Option<u64>,
}

impl Sql {
    pub(crate) fn run(self, output: Output) -> Outcome {
        let Some(query) = self.query else { return list(output) };
        let program = program().ok_or_else(|| {
            Failure::new(format!(
                "SQL is answered by {PROGRAM}, which is neither beside comb nor in PATH: make trace-sql builds it from comb's source, make \
                 install-trace-sql installs it; other engines read the tables as well: docs/tracing.md"
            ))
        })?;
        tables(output, &self.directory)?;
        let mut command = Command::new(&program);
        if output.is_json() {
            command.arg("--json");
        }
        if let Some(bytes) = self.memory {
            command.args(["--memory", &bytes.to_string()]);
        }
        let error = command.arg(self.directory.join(TABLES_FOLDER)).arg(query).exec();
        Err(Failure::new(format!("{}: {error}", program.display())))
    }
}

/// Beside us, or else in PATH.
fn program() -> Option<PathBuf> {
    let own = std::env::current_exe().ok();
    let beside = own.as_deref().and_then(|own| own.parent());
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = beside.map(PathBuf::from).into_iter().chain(std::env::split_paths(&path));
    places.map(|folder| folder.join(PROGRAM)).find(|program| program.is_file())
}

fn list(output: Output) -> Outcome {
    let named = |kind: Kind| match kind {
        Kind::Small | Kind::Large => "number",
        Kind::Time => "time",
        Kind::Text => "text",
    };
    let columns = || {
        TABLES.iter().flat_map(|table| table.columns.iter().map(|column| (table.name, column.0, column.1)))
    };
    let objects: Vec<_> = columns()
        .map(|(table, column, kind)| json!({ "table": table, "column": column, "holds": named(kind) }))
        .collect();
    output.show(&objects, || {
        let heading = ["TABLE", "COLUMN", "HOLDS"].map(str::to_owned).to_vec();
        let rows =
            columns().map(|(table, column, kind)| [table, column, named(kind)].map(str::to_owned).to_vec());
        table::format(&std::iter::once(heading).chain(rows).collect::<Vec<_>>())
    })?;
    Ok(ExitCode::SUCCESS)
}
