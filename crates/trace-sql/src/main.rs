//! `comb-trace-sql [--json] [--memory BYTES] TABLES QUERY`: asks the tables that `comb trace store` made. `comb trace sql` runs it.

mod failure;
mod query;
mod rows;
mod tables;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use tokio::signal::unix::{SignalKind, signal};

use crate::failure::{Failure, Kind};
use crate::query::{Engine, Question};

const USAGE: &str = "comb-trace-sql [--json] [--memory BYTES] TABLES QUERY; it is what comb trace sql runs";

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let is_json = arguments.first().is_some_and(|first| first == "--json");
    let outcome = question(&arguments).and_then(|question| answer(&question));
    match outcome {
        Ok(code) => code,
        Err(failure) => failure.tell(is_json),
    }
}

fn question(arguments: &[OsString]) -> Result<Question, Failure> {
    let usage = || Failure::new(Kind::Usage, USAGE);
    let (mut is_json, mut memory_bytes, mut words) = (false, None, Vec::new());
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.to_str() {
            Some("--json") if words.is_empty() => is_json = true,
            Some("--memory") if words.is_empty() => {
                let bytes = rest.next().and_then(|bytes| bytes.to_str()?.parse().ok());
                memory_bytes = Some(bytes.ok_or_else(usage)?);
            }
            Some(option) if words.is_empty() && option.starts_with('-') => return Err(usage()),
            _ => words.push(argument),
        }
    }
    let [tables, query] = words[..] else { return Err(usage()) };
    let text = query.to_str().ok_or_else(|| Failure::new(Kind::Usage, "the query is no UTF-8"))?;
    Ok(Question { tables: PathBuf::from(tables), text: text.to_owned(), is_json, memory_bytes })
}

fn answer(question: &Question) -> Result<ExitCode, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let engine = Engine::new(question)?;
    let files = engine.temporary_files();
    // Apart from the query, which may look at a large table for long without a pause.
    runtime.spawn(async move {
        let number = ending().await;
        files.remove();
        std::process::exit(128 + number);
    });
    runtime.block_on(engine.answer(question))?;
    Ok(ExitCode::SUCCESS)
}

/// The number of the first signal that ends a program.
async fn ending() -> i32 {
    let ways = [(SignalKind::interrupt(), 2), (SignalKind::terminate(), 15), (SignalKind::hangup(), 1)];
    let ways = ways.map(|(kind, number)| {
        Box::pin(async move {
            match signal(kind) {
                Ok(mut signal) => signal.recv().await,
                // Then it ends us without our help.
                Err(_) => std::future::pending().await,
            };
            number
        })
    });
    futures_util::future::select_all(ways).await.0
}
