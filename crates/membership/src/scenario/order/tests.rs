//! Seeds, many of them; and the failures that the thesis names.

use comb_sim::{DiskConditions, Fault, Link};

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

#[test]
fn sim_a_seed_is_a_run() {
    let hash = |seed| run(Options { seed, nodes: Some(4), soak: false }, None).unwrap().trace_hash;
    assert_eq!(hash(7), hash(7));
    assert_ne!(hash(7), hash(8));
}

const SENDER: NodeId = NodeId(3);
const SEQUENCER: NodeId = NodeId(0);
const NODES: u32 = 5;

/// What became of one update of [`SENDER`], in a view of which some members crash while it is under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Outcomes {
    delivered: u32,
    never_happened: u32,
}

/// One update, and so long after it was submitted the crash. Nothing else is lost. The survivors go on, and agree.
fn drill(victims: &[NodeId], prepare: impl Fn(&mut Stage)) -> Outcomes {
    let mut outcomes = Outcomes::default();
    for seed in 0..40 {
        let mut stage = Stage::new(seed, NODES, &Config::default());
        let submitted = Time::from_millis(50);
        let submit = |body: &[u8]| Command::Submit { level: Level::Majority, body: body.to_vec() };
        stage.world.command_at(submitted, SENDER, submit(b"the update"));
        prepare(&mut stage);
        // One way is 100 to 200 µs, and the update is delivered everywhere after four.
        let crash = submitted.saturating_add(Duration::from_micros(seed * 25));
        for &victim in victims {
            stage.world.at(crash, Fault::Crash(victim));
        }
        let after = Time::from_millis(2000);
        stage.world.command_at(after, NodeId(1), submit(b"life goes on"));
        stage.run_until(after).and_then(|()| stage.settle()).unwrap_or_else(|failure| panic!("{failure}"));
        assert!(*stage.must_settle.borrow(), "the survivors are a quorum");
        let seen = stage.seen.borrow();
        assert_eq!(seen.delivered_from(NodeId(1)), 1, "life goes on");
        match seen.delivered_from(SENDER) {
            0 => outcomes.never_happened += 1,
            _ => outcomes.delivered += 1,
        }
    }
    outcomes
}

#[test]
fn sim_the_sender_fails() {
    let outcomes = drill(&[SENDER], |stage| {
        let half = Link { lost_per_million: 500_000, ..Link::default() };
        stage.world.network_mut().set_link(SENDER, SEQUENCER, half);
    });
    assert!(outcomes.delivered > 0 && outcomes.never_happened > 0, "{outcomes:?}");
}

#[test]
fn sim_a_receiver_fails() {
    let outcomes = drill(&[NodeId(4)], |_| {});
    assert_eq!(outcomes, Outcomes { delivered: 40, never_happened: 0 });
}

#[test]
fn sim_the_sequencer_fails() {
    let outcomes = drill(&[SEQUENCER], |_| {});
    assert_eq!(outcomes, Outcomes { delivered: 40, never_happened: 0 });
}

#[test]
fn sim_the_sender_and_the_sequencer_fail() {
    let outcomes = drill(&[SENDER, SEQUENCER], |_| {});
    assert!(outcomes.delivered > 0 && outcomes.never_happened > 0, "{outcomes:?}");
}

/// The thesis: "pretend the update never happened."
#[test]
fn sim_all_who_have_the_update_and_the_sender_fail() {
    let outcomes = drill(&[SENDER, SEQUENCER], |stage| {
        for deaf in [1, 2, 4].map(NodeId) {
            stage.world.at(Time::from_millis(40), Fault::Cut { from: SEQUENCER, to: deaf });
        }
    });
    assert_eq!(outcomes, Outcomes { delivered: 0, never_happened: 40 });
}

/// The slow member is 30 ms for every message, and a link's length of updates behind: the others do not wait for it, and
/// when it is fast again it catches up.
#[test]
fn sim_a_member_that_does_not_keep_up_stalls_nobody() {
    for seed in 0..10 {
        let mut stage = Stage::new(seed, NODES, &hurried());
        let (start, end) = (Time::from_millis(100), Time::from_millis(3000));
        stage.load(start, end, Duration::from_millis(1));
        let slow = Fault::Slow { node: NodeId(4), each_input: Duration::from_millis(30) };
        stage.world.at(start, slow);
        stage.world.at(end, Fault::Steady(NodeId(4)));
        stage.run_until(end).unwrap_or_else(|failure| panic!("{failure}"));
        let busy = end.since(start);
        let median = figure(&stage.report(busy), "latency of a majority, median");
        assert!(median < 5.0, "a majority waits {median} ms");
        stage.settle().unwrap_or_else(|failure| panic!("{failure}"));
        let report = stage.report(busy);
        assert!(figure(&report, "members that fell behind") >= 1.0);
        assert!(figure(&report, "members that caught up") >= 1.0);
        assert!(figure(&report, "changes of the view") == 0.0, "nobody was put out for it");
    }
}

/// Power is lost everywhere at once, and again when it has hardly come back. What was delivered to anybody or promised to
/// its sender before is delivered by all after.
#[test]
fn sim_a_group_that_was_down_as_a_whole_goes_on_from_its_logs() {
    for seed in 0..40 {
        let config = Config { has_log: true, ..Config::default() };
        let mut stage = Stage::new(seed, NODES, &config);
        // Much is under way to a slow disk at any time.
        let slow = DiskConditions { sync_time: Duration::from_millis(3), ..DiskConditions::default() };
        for outage in 0..4 {
            let least = Duration::from_millis(if outage == 0 { 300 } else { 0 });
            let lasting = least + stage.dice.between(Duration::ZERO..Duration::from_millis(60));
            let start = stage.world.now();
            let off = start.saturating_add(lasting);
            stage.load(start, off, Duration::from_micros(300));
            for node in (0..NODES).map(NodeId) {
                stage.world.at(start, Fault::Disk { node, conditions: slow });
                stage.world.at(off, Fault::Crash(node));
                stage.world.at(off.saturating_add(Duration::from_millis(200)), Fault::Start(node));
            }
            stage.run_until(off).unwrap_or_else(|failure| panic!("{failure}"));
            // The oracle does not look while all are down: it would take them for joiners.
            let look_again = off.saturating_add(Duration::from_millis(210));
            stage.world.run_until(look_again).unwrap_or_else(|failure| panic!("{failure}"));
            assert!(stage.seen.borrow().delivered() > 100, "something was done");
            stage.oracle.revive(&mut stage.world);
            let soon = stage.dice.between(Duration::ZERO..Duration::from_millis(200));
            stage.run_until(look_again.saturating_add(soon)).unwrap_or_else(|failure| panic!("{failure}"));
        }
        stage.settle().unwrap_or_else(|failure| panic!("{failure}"));
        assert!(*stage.must_settle.borrow());
    }
}
