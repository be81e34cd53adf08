//! The classic way between processes, as it is measured beside ours: one comes in by as many calls as the thesis counts, all apply what
//! one of them updates, and all others go on without one that is killed. (`crates/bench/src/classic_group.rs`)

use std::process::Command;

use serde_json::Value;

#[test]
fn the_classic_way_joins_updates_and_regroups_between_processes() {
    let run =
        Command::new(env!("CARGO_BIN_EXE_comb")).args(["bench-side", "classic", "--nodes", "5"]).output();
    let run = run.expect("our own program");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let said: Value = serde_json::from_slice(&run.stdout).expect("a line of JSON");
    // §7.7.1: 10 + 7 n, where n were there before.
    assert_eq!(said["join_calls"], 10 + 7 * 4, "{said}");
    assert!(said["updates_per_second"].as_f64().is_some_and(|rate| rate > 0.0), "{said}");
    assert_eq!(said["left"], 4, "{said}");
    // Regroup's states, of all to all, in each of five phases at least.
    let grown = said["messages_after"].as_u64().zip(said["messages_before"].as_u64());
    assert!(grown.is_some_and(|(after, before)| after > before + 5 * 4 * 3), "{said}");
}
