use super::*;

fn options(seed: u64) -> Options {
    Options { seed, nodes: None, soak: false }
}

#[test]
fn sim_crashes_and_returns_leave_all_with_the_same_members_and_updates() {
    for seed in 0..20 {
        let report = run(options(seed), None).unwrap_or_else(|failure| panic!("{failure}"));
        assert!(report.figures[1].1 >= 20.0, "too few updates to show anything: {report:?}");
    }
}

#[test]
fn sim_one_seed_is_one_run() {
    let hash = |seed| run(options(seed), None).expect("a run without failure").trace_hash;
    assert_eq!(hash(3), hash(3));
    assert_ne!(hash(3), hash(4));
}
#[test]
#[ignore]
fn many() {
    let mut bad = 0;
    for seed in 0..3000 {
        let nodes = Some(3 + (seed % 10) as u32);
        match run(Options { seed, nodes, soak: false }, None) {
            Ok(report) => {
                if seed < 12 {
                    println!("{report:?}")
                }
            }
            Err(failure) => {
                bad += 1;
                if bad < 15 {
                    println!("BAD {nodes:?} {failure}")
                }
            }
        }
    }
    println!("bad {bad}");
}
#[test]
#[ignore]
fn one() {
    let seed: u64 = std::env::var("SEED").unwrap().parse().unwrap();
    let nodes = Some(3 + (seed % 10) as u32);
    let r = run(
        Options { seed, nodes, soak: false },
        Some(Box::new(|line| {
            if !line.what.contains("heartbeat") {
                println!("{line}")
            }
        })),
    );
    println!("{r:?}");
}
