//! Replicas that are killed, and replicas on hosts that die and are cut off; a client that writes, and users who write, exchange and read,
//! some of them at one replica whatever becomes of it: whoever is made good comes back, nobody lacks what was acknowledged, and what users saw is in one order.
//! (`crates/bench/src/write_gap.rs` does it and looks.)

use std::process::Command;

#[test]
fn replicas_whose_hosts_die_or_are_cut_off_come_back_and_lose_nothing_acknowledged() {
    let run = Command::new(env!("CARGO_BIN_EXE_comb")).args(["bench-side", "faults_of_hosts"]).output();
    let run = run.expect("our own program");
    let said = String::from_utf8_lossy(&run.stderr);
    if said.contains("needs root or user namespaces") {
        return println!("skipped: {said}");
    }
    assert!(run.status.success(), "{said}");
}
