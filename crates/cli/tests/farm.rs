//! What a farm costs: processes of their own, whose size the kernel knows. (`crates/bench/src/farm.rs` runs and asks them; small farms
//! here, large ones in `comb bench membership --full`.)

use std::process::Command;

use serde_json::Value;

const MEGABYTE: f64 = 1e6;
const PAGE: f64 = 4096.0;

fn side(name: &str, nodes: u32) -> Value {
    let run = Command::new(env!("CARGO_BIN_EXE_comb"))
        .args(["bench-side", name, "--nodes", &nodes.to_string()])
        .output()
        .expect("our own program");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    serde_json::from_slice(&run.stdout).expect("a line of JSON")
}

#[test]
fn a_process_that_knows_a_farm_holds_little_more_than_one_that_is_alone() {
    let view = side("farm_view", 3000);
    let field = |name: &str| view[name].as_f64().expect("a number");
    assert!(field("bytes") <= 4.0 * MEGABYTE, "{view}");
    // What it counts itself, beyond what one counts that is alone, it holds, so there was something to measure. The kernel knows whole
    // pages only, and a few that the one alone holds too have room for some of it: three were seen, six are allowed for.
    assert!(
        field("counted_bytes") > 30_000.0 && field("bytes") + 6.0 * PAGE > field("counted_bytes"),
        "{view}"
    );
}

#[test]
fn a_worlds_process_holds_less_than_a_megabyte_for_each_node() {
    let farm = side("farm", 1000);
    let held = farm["resident_bytes_a_node"].as_f64().expect("a number");
    assert!((10_000.0..MEGABYTE).contains(&held), "{farm}");
    assert_eq!(farm["measured"]["missed"], 0, "{farm}");
}
