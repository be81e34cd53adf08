use super::*;

use crate::detect::{Kind, Source};
use comb_types::Incarnation;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn first_life(node: u32) -> Member {
    Member { node: NodeId(node), incarnation: Incarnation(1) }
}

fn all_known(world: &World<Gossiper>, nodes: u32) -> bool {
    all_acquainted(world.actors().map(|(_, actor)| actor), nodes)
}

/// A farm in which all have known each other for a while.
fn acquainted(trial: Trial) -> (World<Gossiper>, Rc<RefCell<Tally>>) {
    let (mut world, tally) = farm(trial, Some(seconds(30)));
    let nodes = trial.nodes;
    let all = world.run_while_not(seconds(120), |world| all_known(world, nodes)).expect("no rule broken");
    let known: Vec<_> = world.actors().map(|(_, actor)| actor.state().alive()).collect();
    assert!(all, "seed {}: after two minutes the nodes know of {known:?}", trial.seed);
    world.run_for(seconds(15)).expect("no rule broken");
    (world, tally)
}

#[test]
fn sim_a_crash_in_a_zone_is_learnt_of_by_all() {
    for seed in 0..4 {
        let once = || {
            measure(Trial::quiet(seed, 64), Some(seconds(8)), None)
                .unwrap_or_else(|failure| panic!("{failure}"))
        };
        let measured = once();
        assert_eq!(measured.trace_hash, once().trace_hash, "the same seed is another run");
        assert_eq!(measured.missed, 0);
        assert!(
            measured.last_learns > Some(seconds(1)),
            "nobody can know so soon: {:?}",
            measured.last_learns
        );
    }
}

#[test]
fn sim_who_hears_what_a_node_heard_knows_what_it_knew() {
    let heard: Rc<RefCell<Vec<Heard>>> = Rc::default();
    let listened = Rc::clone(&heard);
    listen(7, 130, move |heard| listened.borrow_mut().push(heard))
        .unwrap_or_else(|failure| panic!("{failure}"));
    let heard = heard.borrow();
    let mut hearer = Hearer::start(&heard[0]).expect("it begins with its beginning");
    assert_eq!(hearer.state().alive(), 1);
    heard[1..].iter().for_each(|heard| hearer.hear(heard));
    assert_eq!((hearer.state().alive(), hearer.state().refused()), (130, 0));
    // Else it would not be asked, and would hear nothing, as a node of that zone.
    assert!(hearer.sent() > 100, "{}", hearer.sent());
}

/// A crash that not all had time to learn of was told as one of which all learnt at once.
#[test]
fn a_crash_that_somebody_never_learnt_of_has_no_last_observer() {
    let at = |millis| Some(Time::from_millis(millis));
    let span = |millis| Some(Duration::from_millis(millis));
    let crash = Time::from_millis(1000);
    assert_eq!(learning(crash, &[at(3000), at(2000), at(2500)]), (span(1000), span(2000)));
    assert_eq!(learning(crash, &[at(3000), None, at(2500)]), (span(1500), None));
    assert_eq!(learning(crash, &[None, None]), (None, None));

    let hasty = Trial { lasting: seconds(6), ..Trial::quiet(6, 64) };
    let measured = measure(hasty, None, None).unwrap_or_else(|failure| panic!("{failure}"));
    assert!(measured.missed > 0, "three seconds are too short for anybody");
    assert_eq!(measured.last_learns, None);
}

#[test]
fn sim_the_scenario_says_what_it_measured() {
    let report = run(Options { seed: 5, nodes: None, soak: false }, None)
        .unwrap_or_else(|failure| panic!("{failure}"));
    let figure =
        |name: &str| report.figures.iter().find(|figure| figure.0.contains(name)).map(|figure| figure.1);
    assert_eq!((figure("nodes"), figure("false failures")), (Some(64.0), Some(0.0)));
    assert!(figure("last observer").is_some_and(|seconds| (1.0..8.0).contains(&seconds)));
    assert!(figure("memory").is_some_and(|bytes| (1000.0..100_000.0).contains(&bytes)));
}

#[test]
fn sim_a_crash_is_learnt_of_in_all_zones() {
    let trial = Trial { lasting: seconds(60), ..Trial::quiet(11, 500) };
    let measured = measure(trial, Some(seconds(8)), None).unwrap_or_else(|failure| panic!("{failure}"));
    assert_eq!(measured.missed, 0);
    let times = measured.last_learns.zip(measured.first_learns);
    let spread = times.map(|(last, first)| last - first).expect("all learnt of all");
    assert!(spread < Duration::from_millis(1500), "{spread:?} from the first to the last");
}

#[test]
fn sim_a_zone_that_fails_as_a_whole_is_missed_by_the_others() {
    for nodes in [65, 200] {
        let trial = Trial { crashes: 0, zone_crashes: true, ..Trial::quiet(12, nodes) };
        let measured = measure(trial, Some(seconds(40)), None).unwrap_or_else(|failure| panic!("{failure}"));
        assert_eq!(measured.missed, 0);
        assert!(measured.last_learns > Some(Duration::ZERO), "nothing crashed");
    }
}

#[test]
fn sim_loss_of_a_quarter_makes_no_false_failure_among_a_thousand() {
    let trial = Trial { lost_per_million: 250_000, lasting: seconds(600), ..Trial::quiet(13, 1000) };
    let measured = measure(trial, Some(seconds(15)), None).unwrap_or_else(|failure| panic!("{failure}"));
    assert_eq!((measured.missed, measured.false_failures), (0, 0));
}

#[test]
fn sim_loss_of_three_quarters_leaves_failures_seen_and_entries_spread() {
    for seed in 20..23 {
        let trial = Trial { lost_per_million: 750_000, lasting: seconds(400), ..Trial::quiet(seed, 64) };
        let measured = measure(trial, Some(seconds(30)), None).unwrap_or_else(|failure| panic!("{failure}"));
        assert_eq!((measured.missed, measured.false_failures), (0, 0));

        let (mut world, _) = acquainted(trial);
        world.command(NodeId(5), Command::Write("role", Some(b"home".to_vec())));
        let all_read = |world: &World<Gossiper>, value: Option<&[u8]>| {
            world.actors().all(|(_, actor)| actor.state().read(NodeId(5), "role") == value)
        };
        let is_read = world.run_while_not(seconds(30), |world| all_read(world, Some(b"home")));
        assert_eq!(is_read, Ok(true), "seed {seed}: an entry did not reach all");
        world.command(NodeId(5), Command::Write("role", None));
        let is_removed = world.run_while_not(seconds(30), |world| all_read(world, None));
        assert_eq!(is_removed, Ok(true), "seed {seed}: a tombstone did not reach all");
    }
}

#[test]
fn sim_half_of_the_nodes_paused_half_of_the_time_make_no_healthy_one_fail() {
    for (seed, millis) in [(30, 100), (31, 1000), (32, 4000), (33, 15_000)] {
        let stands = Duration::from_millis(millis);
        let trial = Trial {
            stutter: Some((stands, stands)),
            lasting: seconds(200),
            crashes: 0,
            ..Trial::quiet(seed, 100)
        };
        let measured = measure(trial, Some(seconds(60)), None).unwrap_or_else(|failure| panic!("{failure}"));
        assert_eq!(measured.false_failures, 0);
    }
}

/// It hears nobody, and must not conclude that all others are dead; or at least, must not convince them of it.
#[test]
fn sim_a_node_that_is_deaf_makes_nobody_fail() {
    for seed in 40..43 {
        let (mut world, tally) = acquainted(Trial::quiet(seed, 150));
        let deaf = NodeId(7);
        let now = world.now();
        for node in (0..150).map(NodeId).filter(|&node| node != deaf) {
            world.at(now, Fault::Cut { from: node, to: deaf });
        }
        world.at(now.saturating_add(seconds(60)), Fault::Heal);
        world.run_for(seconds(100)).unwrap_or_else(|failure| panic!("{failure}"));
        assert!(tally.borrow().false_failures.is_empty());
        assert!(all_known(&world, 150), "all is well again");
    }
}

#[test]
fn sim_halves_that_lost_each_other_find_each_other_again() {
    for seed in 50..53 {
        let (mut world, _) = acquainted(Trial::quiet(seed, 100));
        let (left, right) = (0..100).map(NodeId).partition(|node| node.0 % 2 == 0);
        world.at(world.now(), Fault::Partition(vec![left, right]));
        world.run_for(seconds(60)).unwrap_or_else(|failure| panic!("{failure}"));
        let parted = world.actors().all(|(_, actor)| actor.state().alive() == 50);
        assert!(parted, "seed {seed}: some count on nodes that they cannot reach");
        // What is still under way when the network heals is excused: it was said of those who could not be reached.
        world.at(world.now(), Fault::Heal);
        let (mut healed, end) = (false, world.now().saturating_add(seconds(120)));
        while !healed && world.now() < end {
            match world.run_while_not(seconds(120), |world| all_known(world, 100)) {
                Ok(all) => healed = all,
                Err(failure) => assert!(failure.rule.contains("healthy"), "{failure}"),
            }
        }
        assert!(healed, "seed {seed}: the halves stay apart");
    }
}

#[test]
fn sim_a_node_that_comes_back_is_another_member_and_its_entries_are_gone() {
    let (mut world, _) = acquainted(Trial::quiet(60, 80));
    let node = NodeId(9);
    world.command(node, Command::Write("role", Some(b"home".to_vec())));
    world.run_for(seconds(10)).expect("no rule broken");
    assert_eq!(world.actor(NodeId(3)).and_then(|actor| actor.state().read(node, "role")), Some(&b"home"[..]));
    world.at(world.now(), Fault::Crash(node));
    world.at(world.now().saturating_add(seconds(2)), Fault::Start(node));
    world.run_for(seconds(20)).expect("no rule broken");
    let second = Member { node, incarnation: Incarnation(2) };
    assert!(world.actors().all(|(_, actor)| actor.state().member(node) == Some(second)));
    assert!(world.actors().all(|(_, actor)| actor.state().read(node, "role").is_none()));
}

#[test]
fn sim_buddies_are_faster_than_gossip_and_no_less_sure() {
    for (seed, lost_per_million, stutter) in
        [(70, 0, None), (71, 250_000, None), (72, 0, Some((seconds(2), seconds(2))))]
    {
        let lasting = seconds(240);
        let trial = Trial { lost_per_million, stutter, lasting, buddies: true, ..Trial::quiet(seed, 64) };
        let measured = measure(trial, Some(seconds(15)), None).unwrap_or_else(|failure| panic!("{failure}"));
        assert_eq!((measured.missed, measured.false_failures), (0, 0));
        if lost_per_million == 0 && stutter.is_none() {
            assert!(
                measured.first_learns.is_some_and(|first| first < seconds(2)),
                "{:?}",
                measured.first_learns
            );
        }
    }
}

/// Its link to one of its observers is down; the others hear it.
#[test]
fn sim_who_is_cut_off_from_one_node_is_unreachable_for_it_and_has_not_failed() {
    let (mut world, _) = acquainted(Trial { buddies: true, ..Trial::quiet(79, 64) });
    let observer = NodeId(3);
    let actor = world.actor(observer).expect("it is up");
    let subject = actor.lookout.watched().next().expect("it watches some");
    for (from, to) in [(observer, subject.node), (subject.node, observer)] {
        world.at(world.now(), Fault::Cut { from, to });
    }
    world.run_for(seconds(20)).unwrap_or_else(|failure| panic!("{failure}"));
    let condition = |world: &World<Gossiper>, node| world.actor(node).map(|actor| actor.condition(subject));
    assert_eq!(condition(&world, observer), Some(Condition::Unreachable));
    assert_eq!(condition(&world, NodeId(50)), Some(Condition::Alive));
    world.at(world.now(), Fault::Heal);
    world.run_for(seconds(20)).unwrap_or_else(|failure| panic!("{failure}"));
    assert_eq!(condition(&world, observer), Some(Condition::Alive));
}

#[test]
fn sim_what_the_environment_shows_is_known_to_all() {
    let (mut world, _) = acquainted(Trial::quiet(80, 150));
    let (dead, fenced) = (first_life(20), first_life(21));
    world.at(world.now(), Fault::Crash(dead.node));
    world.at(world.now(), Fault::Crash(fenced.node));
    world.run_for(Duration::from_millis(100)).expect("no rule broken");
    let seen = |subject, kind| Command::Evidence(Evidence::new(subject, kind, Source::PlugIn(1)));
    world.command(NodeId(100), seen(dead, Kind::ProcessExit));
    // Nobody is believed alone that a node was ended.
    world.command(NodeId(101), seen(fenced, Kind::Fenced));
    world.command(NodeId(11), seen(fenced, Kind::Fenced));
    world.run_for(seconds(5)).expect("no rule broken");
    for (node, actor) in world.actors() {
        assert_eq!(actor.condition(dead), Condition::Failed, "{node}");
        assert_eq!(actor.condition(fenced), Condition::Fenced, "{node}");
        assert_eq!(actor.state().member(fenced.node), None, "{node}");
    }
}

/// Garbled messages are refused, or they are rumours that nobody made up. A rumour of a failure is denied by its subject, and one of
/// a later life is not believed alone. But what a node says of itself is, so a few may have to start again. No other has suffered.
#[test]
fn sim_garbled_messages_do_little_harm() {
    let mut refused = 0;
    for seed in 90..93 {
        let (mut world, _) = farm(Trial::quiet(seed, 64), None);
        world.network_mut().default.garbled_per_million = 1000;
        world.run_for(seconds(60)).expect("only counted");
        world.network_mut().default.garbled_per_million = 0;
        world.run_for(seconds(60)).expect("only counted");
        refused += world.actors().map(|(_, actor)| actor.state().refused()).sum::<u64>();
        for (_, actor) in world.actors() {
            let well = (0..64).filter(|&node| actor.state().member(NodeId(node)) == Some(first_life(node)));
            assert!(well.count() >= 60, "seed {seed}");
        }
    }
    // Most make a wrong hash or version, which is passed on in good faith, and mended by its subject.
    assert!(refused > 0, "{refused} refused");
}

#[test]
fn sim_traffic_does_not_grow_with_the_farm() {
    let mean = |nodes| {
        let trial = Trial { crashes: 0, lasting: seconds(80), ..Trial::quiet(95, nodes) };
        measure(trial, Some(seconds(8)), None).unwrap_or_else(|failure| panic!("{failure}")).mean_bytes
    };
    let (small, large) = (mean(64), mean(640));
    let middle = (small + large) / 2.0;
    assert!((large - small).abs() / 2.0 <= 0.2 * middle, "{small} and {large} bytes a second");
    assert!(large <= 5000.0, "{large} bytes a second");
}
