//! `comb reproduce PAPER`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use comb_bench::reproduce::{Order, Paper, ReproduceError};

use crate::failure::{Failure, Outcome};
use crate::output::Output;

/// What is to be done.
#[derive(Clone, Copy, Debug)]
enum What {
    List,
    All,
    One(Paper),
}

impl What {
    fn all() -> impl Iterator<Item = (&'static str, Self, &'static str)> {
        let papers = Paper::ALL.into_iter().map(|paper| (paper.name(), Self::One(paper), paper.title()));
        [(
            "list",
            Self::List,
            "Which papers there are, how many items of each, and about how long a run takes",
        )]
        .into_iter()
        .chain([("all", Self::All, "Every paper that can be measured, one after the other")])
        .chain(papers)
    }

    fn parser() -> impl TypedValueParser<Value = Self> {
        let names = Self::all().map(|(name, _, help)| PossibleValue::new(name).help(help));
        PossibleValuesParser::new(names.collect::<Vec<_>>()).try_map(|name| {
            Self::all().find(|what| what.0 == name).map(|what| what.1).ok_or("not one of them")
        })
    }
}

#[derive(Debug, Args)]
pub(crate) struct Reproduce {
    /// Which paper, or all of them, or a list
    #[arg(value_name = "PAPER", value_parser = What::parser())]
    what: What,
    /// The folder of the report: index.html, report.json, and the figures
    #[arg(long, value_name = "DIR", default_value = "report")]
    into: PathBuf,
    /// Of hive, Table 7.4: what `comb inject --full -o json` has printed
    #[arg(long, value_name = "FILE")]
    injected: Option<PathBuf>,
}

impl Reproduce {
    pub(crate) fn run(&self, output: Output) -> Outcome {
        let order = Order { into: &self.into, json: output.is_json(), injected: self.injected.as_deref() };
        let done = match self.what {
            What::List => order.list(),
            What::All => order.all(),
            What::One(paper) => order.one(paper),
        };
        match done {
            Ok(()) => Ok(ExitCode::SUCCESS),
            Err(ReproduceError::Output(error)) => Err(Failure::from(error)),
            Err(error) => Err(Failure::from(error)),
        }
    }
}
