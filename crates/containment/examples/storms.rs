//! Many runs of simulated scenarios, without the whole command:
//!
//!     cargo run --profile simulation -p comb-containment --example storms -- FIRST NAME=RUNS…
//!
//! from seed FIRST on. A run that breaks a rule is named as `comb sim` repeats it, and ends this with 1.

use std::process::ExitCode;

use comb_sim::scenario::{Options, Scenario, on_all_cores};

fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let first: u64 = words.next().ok_or("from which seed on?")?.parse()?;
    let mut is_good = true;
    for word in words {
        let (name, runs) = word.split_once('=').ok_or("NAME=RUNS")?;
        let scenario = all().find(|scenario| scenario.name == name).ok_or(format!("no scenario {name}"))?;
        is_good &= storm(scenario, first, runs.parse()?);
    }
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn all() -> impl Iterator<Item = &'static Scenario> {
    let of_memory = comb_coherence::scenario::ALL.iter().chain(comb_containment::scenario::ALL);
    comb_membership::scenario::ALL.iter().chain(of_memory)
}

fn storm(scenario: &Scenario, first: u64, runs: u64) -> bool {
    let seeds: Vec<u64> = (first..first + runs).collect();
    let run = |&seed: &u64| {
        let options = Options { seed, nodes: None, soak: false };
        std::panic::catch_unwind(|| (scenario.run)(options, None).err().map(|failure| failure.to_string()))
            .unwrap_or_else(|_| Some("it panicked".to_owned()))
    };
    let broken = on_all_cores(&seeds, run, |_| {});
    let broken: Vec<(u64, String)> =
        seeds.into_iter().zip(broken).filter_map(|(seed, why)| Some((seed, why?))).collect();
    println!("{}: {} of {runs} runs without a broken rule", scenario.name, runs - broken.len() as u64);
    for (seed, why) in &broken {
        println!("FAILED: {why}\n  again: comb sim {} --seed {seed} --watch", scenario.name);
    }
    broken.is_empty()
}
