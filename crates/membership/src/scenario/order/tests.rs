//! Seeds, many of them; and the failures that the thesis names.

use super::*;

fn figure(report: &Report, name: &str) -> f64 {
    report.figures.iter().find(|figure| figure.0 == name).expect("a figure of that name").1
}

#[test]
fn sim_one_order_for_all_in_any_weather() {
    let (mut stuck, mut changes, mut caught_up, mut snapshots) = (0.0, 0.0, 0.0, 0.0);
    for seed in 0..100 {
        let options = Options { seed, nodes: None, soak: false };
        let report = run(options, None).unwrap_or_else(|failure| panic!("{failure}"));
        stuck += figure(&report, "groups that lost their quorum");
        changes += figure(&report, "changes of the view");
        caught_up += figure(&report, "members that caught up");
        snapshots += figure(&report, "snapshots handed over");
    }
    // What was not seen was not tested.
    assert!(
        stuck < 50.0 && changes > 200.0 && caught_up > 10.0 && snapshots > 50.0,
        "{stuck} stuck, {changes} changes, {caught_up} caught up, {snapshots} snapshots"
    );
}
