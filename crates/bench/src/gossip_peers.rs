//! foca, chitchat and serf beside our state service: the libraries in the same seeded world, serf's agents on loopback, as many
//! nodes and as much loss. What is not built here is said to be missing.

use std::time::Duration;

use comb_membership::scenario::gossip::{self, Measured, Trial};
use serde_json::Value;

use crate::membership::{Bench, Outcome, peer_lines};

/// In which false failures are counted.
const COUNTED: Duration = Duration::from_secs(300);
/// How a library's nodes stutter, as `benches/peers` has it.
const STUTTERS_MS: [u64; 2] = [500, 5000];
/// Real time that one setting of a library may take for a scenario: foca's, chitchat's, and chitchat's with a thousand nodes.
const SOON_S: u64 = 120;
const LATER_S: u64 = 300;
const LATEST_S: u64 = 900;

/// Of one setting of a peer.
#[derive(Clone, PartialEq, Debug)]
struct Found {
    setting: String,
    value: Option<f64>,
    /// What is to be known of the value, or why there is none.
    note: String,
}

/// What a run of a library is asked for.
struct Run {
    nodes: u32,
    loss_percent: u32,
    scenario: &'static str,
    real_s: u64,
}

impl Run {
    fn lines(&self, library: &str) -> Vec<Value> {
        let Self { nodes, loss_percent, scenario, real_s } = self;
        let words = [
            library.to_owned(),
            nodes.to_string(),
            loss_percent.to_string(),
            (*scenario).to_owned(),
            "1".to_owned(),
            COUNTED.as_secs().to_string(),
            real_s.to_string(),
        ];
        peer_lines(&words.each_ref().map(String::as_str))
    }

    fn trial(&self) -> Trial {
        Trial { lost_per_million: self.loss_percent * 10_000, ..Trial::quiet(1, self.nodes) }
    }
}

/// All rows: minutes.
pub(crate) fn compare(bench: &mut Bench) -> Outcome<()> {
    for (nodes, loss_percent) in [(256, 25), (64, 75)] {
        let run = |real_s| Run { nodes, loss_percent, scenario: "steady", real_s };
        let trial = Trial { lasting: COUNTED, crashes: 0, ..run(0).trial() };
        let ours = f64::from(of_ours(trial)?.false_failures);
        let claim = format!("{nodes} nodes, {loss_percent}% loss, 300 s: healthy ones taken for failed");
        for (library, real_s) in [("foca", SOON_S), ("chitchat", LATER_S)] {
            bench.says(&format!("{library}, {nodes} nodes"));
            let found = found(&run(real_s).lines(library), "falsely_failed_nodes", &[]);
            rows(bench, &claim, ours, "nodes", library, found);
        }
    }
    stutters(bench)?;
    for (nodes, loss_percent, libraries) in [
        (64, 75, &[("foca", SOON_S), ("chitchat", LATER_S)][..]),
        (256, 0, &[("foca", SOON_S), ("chitchat", LATER_S)]),
        (1000, 0, &[("chitchat", LATEST_S)]),
    ] {
        let run = |real_s| Run { nodes, loss_percent, scenario: "crash", real_s };
        let ours = of_ours(run(0).trial())?.last_learns.map_or(f64::INFINITY, |last| last.as_secs_f64());
        let claim = format!("{nodes} nodes, {loss_percent}% loss: last observer learns of a crash");
        for &(library, real_s) in libraries {
            bench.says(&format!("{library}, {nodes} nodes"));
            let found = found(&run(real_s).lines(library), "detection_seconds", &[]);
            rows(bench, &claim, ours, "s virtual", library, found);
        }
    }
    bench.says("serf");
    let lines = peer_lines(&["serf", "32"]);
    let trial = Trial::quiet(1, 32);
    let Measured { false_failures, last_learns, .. } = of_ours(trial)?;
    let ours = last_learns.map_or(f64::INFINITY, |last| last.as_secs_f64());
    let claim = "32 nodes: last observer learns of a crash (serf: agents of this machine)";
    rows(bench, claim, ours, "s", "serf", found(&lines, "detection_seconds", &[]));
    let claim = "… meanwhile, words that a healthy one has failed";
    rows(bench, claim, false_failures.into(), "", "serf", found(&lines, "false_failures", &[]));
    Ok(())
}

/// Half of the nodes run and stand still by turns.
fn stutters(bench: &mut Bench) -> Outcome<()> {
    let run = |real_s| Run { nodes: 64, loss_percent: 0, scenario: "stutter", real_s };
    let peers = [("foca", SOON_S), ("chitchat", LATER_S)].map(|(library, real_s)| {
        bench.says(&format!("{library}, half of the nodes stutter"));
        (library, run(real_s).lines(library))
    });
    for stutter_ms in STUTTERS_MS {
        let half = Duration::from_millis(stutter_ms);
        let trial = Trial { lasting: COUNTED, crashes: 0, stutter: Some((half, half)), ..run(0).trial() };
        let ours = f64::from(of_ours(trial)?.false_failures);
        let seconds = half.as_secs_f64();
        let claim = format!(
            "64 nodes, half of them paused {seconds} s of {}: healthy ones taken for failed",
            2.0 * seconds
        );
        for (library, lines) in &peers {
            let found = found(lines, "falsely_failed_nodes", &[("stutter_ms", stutter_ms as f64)]);
            rows(bench, &claim, ours, "nodes", library, found);
        }
    }
    Ok(())
}

fn of_ours(trial: Trial) -> Outcome<Measured> {
    Ok(gossip::measure(trial, None, None)?)
}

fn rows(bench: &mut Bench, claim: &str, ours: f64, unit: &'static str, library: &str, found: Vec<Found>) {
    for Found { setting, value, note } in found {
        let peer = if setting.is_empty() { library.to_owned() } else { format!("{library}, {setting}") };
        bench.for_the_record(claim, (Some(ours), value), unit, &peer, note);
    }
}

/// The worst value of each setting, of the lines about `what` that say all of `details`.
fn found(lines: &[Value], what: &str, details: &[(&str, f64)]) -> Vec<Found> {
    let mut settings: Vec<&str> = Vec::new();
    for setting in lines.iter().map(|line| line["setting"].as_str().unwrap_or_default()) {
        if !settings.contains(&setting) {
            settings.push(setting);
        }
    }
    let of = |&setting: &&str| {
        let all = || lines.iter().filter(move |line| line["setting"].as_str().unwrap_or_default() == setting);
        let is_asked_for = |line: &&Value| {
            line["what"] == what && details.iter().all(|(name, value)| line[name].as_f64() == Some(*value))
        };
        let value = all().filter(is_asked_for).filter_map(|line| line["value"].as_f64()).reduce(f64::max);
        // A crash that was never seen by all, or a run that real time ended, counts against what was seen.
        let missing = all()
            .filter(|line| line["what"] == what || line["what"] == "joined_seconds" || line["what"] == "all");
        let missing = missing.filter_map(|line| line["missing"].as_str()).next_back();
        let seconds = all().filter(is_asked_for).filter_map(|line| line["seconds"].as_f64()).reduce(f64::min);
        let note = match (missing, seconds) {
            (Some(missing), _) => missing.to_owned(),
            (None, Some(seconds)) if seconds < COUNTED.as_secs_f64() => format!("in {seconds:.0} s of these"),
            (None, _) if value.is_none() => "it does not say".to_owned(),
            (None, _) => String::new(),
        };
        Found { setting: setting.to_owned(), value, note }
    };
    if lines.is_empty() {
        let note = "not measured: make setup-bench".to_owned();
        return vec![Found { setting: String::new(), value: None, note }];
    }
    settings.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_setting_is_found_with_its_worst_and_what_is_missing() {
        let lines = [
            json!({"peer": "foca", "setting": "default", "what": "detection_seconds", "value": 10.5}),
            json!({"peer": "foca", "setting": "default", "what": "detection_seconds", "value": 16.0}),
            json!({"peer": "foca", "setting": "default", "what": "real_seconds", "value": 99.0}),
            json!({"peer": "foca", "setting": "tuned", "what": "detection_seconds", "value": null, "missing": "too late"}),
        ];
        let one =
            |setting: &str, value, note: &str| Found { setting: setting.into(), value, note: note.into() };
        let seen = found(&lines, "detection_seconds", &[]);
        assert_eq!(seen, [one("default", Some(16.0), ""), one("tuned", None, "too late")]);
    }

    #[test]
    fn a_run_that_real_time_ended_says_how_far_it_came_and_a_peer_that_is_not_there_why() {
        let steady = |seconds, ms| json!({"setting": "default", "what": "falsely_failed_nodes", "value": 3, "seconds": seconds, "stutter_ms": ms});
        let lines = [steady(300.0, 500.0), steady(41.0, 5000.0)];
        let note = |ms| found(&lines, "falsely_failed_nodes", &[("stutter_ms", ms)])[0].note.clone();
        assert_eq!((note(500.0).as_str(), note(5000.0).as_str()), ("", "in 41 s of these"));
        let not_built = [json!({"peer": "foca", "what": "all", "value": null, "missing": "not built"})];
        assert_eq!(found(&not_built, "falsely_failed_nodes", &[])[0].note, "not built");
        assert_eq!(found(&[], "falsely_failed_nodes", &[])[0].value, None);
    }
}
