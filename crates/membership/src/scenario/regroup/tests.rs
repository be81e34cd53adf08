//! Runs by seed, and single failures that are looked at closely.

use super::*;

fn options(seed: u64) -> Options {
    Options { seed, nodes: None, soak: false }
}

#[test]
fn sim_storms() {
    for seed in 0..std::env::var("SEEDS").map_or(100, |n| n.parse().unwrap()) {
        match run(options(seed), None) {
            Err(failure) => println!("FAIL {failure}"),
            Ok(report) => println!(
                "{seed} {} {:?}",
                report.steps,
                report.figures.iter().map(|f| f.1).collect::<Vec<_>>()
            ),
        }
    }
}

#[test]
fn sim_one_seed_is_one_run() {
    for seed in 0..3 {
        let hash = |seed| run(options(seed), None).expect("it holds").trace_hash;
        assert_eq!(hash(seed), hash(seed));
    }
}

#[test]
fn watch_one() {
    let Ok(seed) = std::env::var("SEED") else { return };
    let lines: u64 = std::env::var("LINES").map_or(u64::MAX, |lines| lines.parse().unwrap());
    let mut count = 0;
    let watch: super::Watch = Some(Box::new(move |line| {
        count += 1;
        if count < lines
            && !line.what.contains("I am here")
            && !line.what.contains("entries")
            && !line.what.contains("I hold")
            && !line.what.contains("committed")
        {
            println!("{line}")
        }
        if count > lines {
            panic!("enough")
        }
    }));
    println!("{:?}", run(options(seed.parse().unwrap()), watch));
}
