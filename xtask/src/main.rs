//! Developer tasks: `cargo xtask --help`.

mod checks;
mod steps;
mod suites;
mod tidy;
mod workspace;

use std::process::ExitCode;

use steps::Report;

const HELP: &str = "\
Developer tasks of Comb.

Usage: cargo xtask TASK

  check                        format, lints with every set of features, documentation, the protocol crates for aarch64,
                               house rules
  test                         check, then every test, comb-net also without newer mechanisms and features, a minute of
                               stress, thousands of simulated storms, model checks, loom, fuzz and the shell scripts
  page                         the dashboard's page in a browser
  compiled                     combcc: the pass, its run-time, the wrapped library, programs compiled for cells
  sql                          comb-trace-sql, whose engine takes ten minutes to an hour to build; no other task does
  packages                     sqlite3, zlib, zstd, lua, redis and fmt by combcc: ten minutes, sources from the network
  packaging                    the static archive and the Debian package, made for release, checked, installed and used in a
                               system of their own: needs root, and a network the first time
  sim                          simulations of the protocol crates (tests named sim_…)
  sim --seed N                 one run of each scenario (comb sim), and the log of each that fails
  sim --seed N NAME […]        one run of that scenario with its log; --nodes N, --soak, --loss PERCENT as it was
  sim --soak [--seed N] [--seeds N]
                               a thousand nodes for ten virtual hours, other long runs, and N storms of each scenario
                               (10000) from seed N on (1): an hour or two
  model                        model checks of the protocol crates (tests named model_…)
  stress [--seconds N]         tasks that load and store by chance, judged by one order of all stores; N seconds in all (60)
  soak [--hours N]             sim --soak, then stress for N hours (4)
  loom                         every interleaving of the protocols' atomic operations (comb-net, tests named loom_…)
  miri                         undefined behaviour in shared memory (comb-net, tests named miri_…); needs nightly
  fuzz [--seconds N] [NAME]    mutate what a peer may write, N seconds a test (20), only tests that contain NAME
  bench [ARGUMENT…]            comb bench, built for release
  tidy                         house rules over the repository's files

A task runs all its steps even if one fails, ends with a table of them, and exits with 1 if any failed.";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut report = Report::default();
    match arguments.as_slice() {
        // First, so that its arguments, --help among them, are its own.
        ["bench", rest @ ..] => suites::bench(&mut report, rest),
        [] | ["help" | "--help" | "-h"] | [_, "--help" | "-h"] => {
            steps::say(HELP);
            return ExitCode::SUCCESS;
        }
        ["check"] => checks::check(&mut report),
        ["test"] => {
            checks::check(&mut report);
            suites::workspace_tests(&mut report);
            suites::fallbacks(&mut report);
            suites::least_features(&mut report);
            suites::page(&mut report);
            suites::compiled(&mut report);
            suites::stress(&mut report, suites::STRESS_SECONDS);
            suites::storms(&mut report);
            suites::model_checks(&mut report);
            suites::loom(&mut report);
            suites::fuzz(&mut report, suites::FUZZ_SECONDS_OF_ALL, None);
            checks::shell_scripts(&mut report);
        }
        ["compiled"] => suites::compiled(&mut report),
        ["page"] => suites::page(&mut report),
        ["sql"] => suites::sql(&mut report),
        ["packages"] => suites::packages(&mut report),
        ["packaging"] => suites::packaging(&mut report),
        ["sim"] => suites::simulations(&mut report),
        ["sim", rest @ ..] => match suites::sim_arguments(rest) {
            Ok(arguments) => suites::sim(&mut report, &arguments),
            Err(mistake) => return usage(&mistake),
        },
        ["stress", rest @ ..] => match suites::stress_arguments(rest) {
            Ok(seconds) => suites::stress(&mut report, seconds),
            Err(mistake) => return usage(&mistake),
        },
        ["soak", rest @ ..] => match suites::soak_arguments(rest) {
            Ok(seconds) => {
                suites::sim(&mut report, &suites::sim_arguments(&["--soak"]).expect("its own words"));
                suites::stress(&mut report, seconds);
            }
            Err(mistake) => return usage(&mistake),
        },
        ["model"] => suites::model_checks(&mut report),
        ["loom"] => suites::loom(&mut report),
        ["miri"] => suites::miri(&mut report),
        ["fuzz", rest @ ..] => match suites::fuzz_arguments(rest) {
            Ok((seconds, name)) => suites::fuzz(&mut report, seconds, name),
            Err(mistake) => return usage(&mistake),
        },
        ["tidy"] => checks::tidy(&mut report),
        [task, ..] => return usage(&format!("no such task, or arguments that it does not take: {task}")),
    }
    report.finish()
}

fn usage(mistake: &str) -> ExitCode {
    eprintln!("xtask: {mistake}\n\n{HELP}");
    ExitCode::from(2)
}
