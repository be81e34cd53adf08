//! Runs by seed, and single failures that are looked at closely.

use super::*;
use crate::regroup::Stage;

fn options(seed: u64) -> Options {
    Options { seed, nodes: None, soak: false }
}

fn holds<T>(outcome: Result<T, Failure>) -> T {
    outcome.unwrap_or_else(|failure| panic!("{failure}"))
}

#[test]
fn sim_storms() {
    let mut by_themselves = 0;
    // The first hundred, and those that broke a rule once.
    for seed in (0..100).chain([2_003_739]) {
        let report = holds(run(options(seed), None));
        let restarts = report.figures.iter().find(|(name, ..)| *name == "restarts by people");
        by_themselves += u32::from(restarts.is_some_and(|(_, times, _)| *times == 0.0));
    }
    assert!(
        by_themselves > 50,
        "a storm that always kills the group shows little: {by_themselves} of 101 lived"
    );
}

#[test]
fn sim_one_seed_is_one_run() {
    for seed in 0..3 {
        let hash = |seed| holds(run(options(seed), None)).trace_hash;
        assert_eq!(hash(seed), hash(seed));
    }
    assert_ne!(holds(run(options(0), None)).trace_hash, holds(run(options(1), None)).trace_hash);
}

/// MSCS needed three seconds and ten thousand messages for it. (MSCS §7.7.2)
#[test]
fn sim_a_crash_among_32_takes_a_few_round_trips() {
    for (seed, victim) in [(1, 31), (2, 0), (3, 13)] {
        let mut run = Run::new(seed, 32, None);
        holds(run.form());
        let (time, messages) = holds(run.crash(NodeId(victim)));
        println!("node {victim} of 32: {time:?}, {messages} messages");
        assert!(time < Duration::from_millis(5), "no timer had to fire: {time:?}");
        assert!(messages <= 31 * 10, "ten a member, not one for each pair: {messages}");
    }
}

#[test]
fn sim_the_32nd_joins_with_four_exchanges() {
    let mut run = Run::new(4, 32, None);
    for node in 0..31 {
        run.world.start(NodeId(node));
    }
    holds(run.world.run_for(Duration::from_secs(3)));
    assert!(holds(run.become_whole(CALM)));
    let time = holds(run.join(NodeId(31)));
    let joiner = run.world.actor(NodeId(31)).expect("it is up");
    let exchanges = u64::from(joiner.exchanges) + joiner.regroup_sent;
    println!("{exchanges} exchanges, {time:?}");
    assert_eq!(exchanges, 4, "hello, petition, and one for each cleanup");
    assert!(time < Duration::from_millis(50), "{time:?}");
}

#[test]
fn sim_joiners_of_a_moment_come_in_together() {
    let mut run = Run::new(5, 16, None);
    (0..9).for_each(|node| run.world.start(NodeId(node)));
    holds(run.world.run_for(Duration::from_secs(3)));
    assert!(holds(run.become_whole(CALM)));
    let before = run.history.borrow().views.len();
    (9..16).for_each(|node| run.world.start(NodeId(node)));
    holds(run.world.run_for(Duration::from_millis(1)));
    assert!(holds(run.become_whole(CALM)));
    let views = run.history.borrow().views.len() - before;
    assert!(views <= 4, "seven joiners took {views} views");
}

/// Two halves of four: the one with the tie-breaker goes on. When they hear each other again, the others halt, and come back.
#[test]
fn sim_halves_and_a_partition_that_heals() {
    for seed in 0..20 {
        let mut run = Run::new(seed, 4, None);
        holds(run.form());
        let tie_breaker = run.world.actor(NodeId(0)).and_then(Node::view).expect("it is in").0.tie_breaker;
        let other = NodeId((tie_breaker.0 + 1) % 4);
        let (one, two) = (0..4).map(NodeId).partition(|node| *node == tie_breaker || *node == other);
        let now = run.world.now();
        run.world.at(now, Fault::Partition(vec![one, two]));
        holds(run.world.run_for(Duration::from_secs(4)));
        let settled =
            |run: &Run, node| run.world.actor(node).and_then(Node::view).map(|(view, _)| view.members.len());
        assert_eq!(settled(&run, tie_breaker), Some(2));
        assert_eq!(run.history.borrow().excluded.len(), 0, "the others cannot know yet");
        let now = run.world.now();
        run.world.at(now, Fault::Heal);
        holds(run.calm());
        assert_eq!(run.history.borrow().excluded.len(), 2);
        assert_eq!(run.interventions, 0);
    }
}

/// One direction of one link is cut: one of its two ends goes, everybody else stays, and all hear each other.
#[test]
fn sim_a_link_that_works_one_way_is_pruned() {
    for seed in 0..20 {
        let mut run = Run::new(seed, 5, None);
        holds(run.form());
        let now = run.world.now();
        run.world.at(now, Fault::Cut { from: NodeId(3), to: NodeId(2) });
        holds(run.world.run_for(Duration::from_secs(5)));
        let history = run.history.borrow();
        let ends: Vec<_> = history.excluded.iter().map(|(node, _)| node.0).collect();
        assert_eq!(ends, [2], "the end that complains");
        let (view, stage) = run.world.actor(NodeId(0)).and_then(Node::view).expect("it is in");
        assert_eq!((view.members.len(), stage), (4, Stage::Settled));
    }
}

/// Members crash one after the other, each in the midst of the regroup for the one before.
#[test]
fn sim_failures_cascade() {
    for seed in 0..40 {
        let mut run = Run::new(seed, 7, None);
        holds(run.form());
        let mut now = run.world.now();
        for victim in [6, 0, 1] {
            run.world.at(now, Fault::Crash(NodeId(victim)));
            for node in (0..7).map(NodeId) {
                run.world.command_at(now, node, Command::Suspect(NodeId(victim), Strength::Failed));
            }
            let step = run.world.dice().between(Duration::ZERO..Duration::from_millis(2));
            now = now.saturating_add(step);
        }
        holds(run.world.run_until(now));
        assert!(holds(run.become_whole(Duration::from_secs(10))), "seed {seed}");
    }
}
