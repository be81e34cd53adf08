//! The programs of the demonstration. Those that are examples elsewhere are the same here.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;

use crate::failure::{Failure, Outcome};

#[path = "../../../region/examples/heat.rs"]
pub(super) mod heat;

/// How long a small program takes.
const SMALL: Duration = Duration::from_secs(3);

#[derive(Debug, Args)]
pub(crate) struct DemoProgram {
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

impl DemoProgram {
    pub(crate) fn run(self) -> Outcome {
        let (name, arguments) = self.words.split_first().expect("clap requires one");
        let ended = match name.as_str() {
            "heat" => heat::run(arguments.iter().cloned()),
            "small" => small(arguments),
            "kv" => comb_bench::run_kv(arguments),
            other => Err(format!("the demonstration has no program {other}").into()),
        };
        ended.map(|()| ExitCode::SUCCESS).map_err(|error| Failure::new(error.to_string()))
    }
}

/// A small program: computes for some seconds what can be known beforehand.
fn small(arguments: &[String]) -> Result<(), Box<dyn std::error::Error>> {
    let seed: u64 = arguments.first().ok_or("which?")?.parse()?;
    let (began, mut last) = (Instant::now(), 0);
    while began.elapsed() < SMALL {
        last = result(seed);
        std::thread::sleep(Duration::from_millis(20));
    }
    println!("{last}");
    Ok(())
}

/// What a small program finds.
pub(super) fn result(seed: u64) -> u64 {
    (0..100_000).fold(seed, |sum: u64, step| {
        sum.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(step).rotate_left(17)
    })
}
