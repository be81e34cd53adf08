//! `comb-fuzz-programs [--bare] --seed N`: the C program of that seed, on the standard output.

use comb_fuzz_programs::Calls;
use std::io::Write;
use std::process::ExitCode;

const USAGE: &str = "usage: comb-fuzz-programs [--bare] --seed N
The C program of that seed, to the standard output. --bare: it calls hardly any function of the C library.";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let seed: Option<(u64, Calls)> = match words[..] {
        ["--seed", number] => number.parse().ok().map(|seed| (seed, Calls::Library)),
        ["--bare", "--seed", number] => number.parse().ok().map(|seed| (seed, Calls::Bare)),
        _ => None,
    };
    let Some((seed, calls)) = seed else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match std::io::stdout().write_all(comb_fuzz_programs::program(seed, calls).as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("comb-fuzz-programs: cannot write: {error}");
            ExitCode::FAILURE
        }
    }
}
