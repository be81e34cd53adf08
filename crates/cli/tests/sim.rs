//! `comb sim`, as people call it. In a network that loses nearly everything no node can learn of a crash: that run fails.

use std::process::{Command, Output};

fn sim(arguments: &str) -> Output {
    let arguments = arguments.split(' ');
    Command::new(env!("CARGO_BIN_EXE_comb")).arg("sim").args(arguments).output().expect("our own program")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_run_that_fails_is_shown_and_the_command_that_repeats_it_is_said() {
    let silent = sim("gossip --loss 99 --nodes 8 --seeds 3");
    let shown = sim("gossip --loss 99 --nodes 8 --seeds 3 --show-failures");
    for run in [&silent, &shown] {
        assert!(!run.status.success(), "{}", text(&run.stdout));
        let again = "again: comb sim gossip --seed 1 --nodes 8 --loss 99 --watch";
        assert!(text(&run.stderr).contains(again), "{}", text(&run.stderr));
    }
    let log = text(&shown.stdout);
    assert!(log.contains("gossip, seed 1:") && log.contains("crash"), "{log}");
    assert!(!log.contains("gossip, seed 2:"), "the first that fails is enough");
    assert!(
        log.lines().count() > text(&silent.stdout).lines().count() + 100,
        "its messages are not there: {log}"
    );
    // What repeats it shows the same.
    let again = sim("gossip --seed 1 --nodes 8 --loss 99 --watch");
    let watched = text(&again.stdout);
    let messages = watched.lines().take(100).collect::<Vec<_>>().join("\n");
    assert!(log.contains(&messages), "another run");
}

#[test]
fn a_loss_is_not_promised_to_scenarios_that_roll_their_own() {
    for (arguments, fault) in
        [("order --loss 75", "order"), ("all --loss 75", "rolls its own"), ("gossip --loss 100", "100")]
    {
        let run = sim(arguments);
        assert!(!run.status.success() && text(&run.stderr).contains(fault), "{}", text(&run.stderr));
    }
}
